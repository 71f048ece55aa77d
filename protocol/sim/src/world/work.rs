//! What a process asks of its node: training, rings, the outer step, and fetching from others.

use std::sync::Arc;

use super::{Anchor, Happening, World};
use crate::report::Moment;
use intellect_protocol::blocks::Blocks;
use intellect_protocol::epoch::Apply;
use intellect_protocol::id::{Digest, PeerId};
use intellect_protocol::message::{Ask, Head};
use intellect_protocol::peer::{ASK_TIMEOUT, Input};
use intellect_protocol::wire;

/// Tokens of one epoch's budget, before a peer's own share.
const BUDGET: u64 = 50;
/// How long a donor that says nothing holds up a fetch, in milliseconds.
pub(super) const SILENT_DONOR_MS: u64 = 1_000;

impl World {
    /// Sets how long an epoch's training takes on a host, in milliseconds.
    pub(crate) fn set_training(&mut self, host: usize, training_ms: u64) {
        self.hosts[host].training_ms = training_ms;
    }

    /// The most that any host's training takes, in milliseconds.
    pub(crate) fn longest_training_ms(&self) -> u64 {
        let most = self.hosts.iter().map(|host| host.training_ms).max().unwrap_or(0);
        most + 5 * self.setup.jitter_ms
    }

    /// Sets how long a checkpoint takes to arrive at a host, in milliseconds.
    pub(crate) fn set_loading(&mut self, host: usize, loading_ms: u64) {
        self.hosts[host].loading_ms = loading_ms;
    }

    /// Fills the disk of a host.
    pub(crate) fn fill_disk(&mut self, host: usize) {
        self.hosts[host].disk.full = true;
    }

    /// Begins the budget that is under way anew, if there is one.
    pub(crate) fn train_anew(&mut self, host: usize) {
        let Some(process) = &mut self.hosts[host].process else { return };
        if process.training.take().is_some() {
            self.train(host);
        }
    }

    /// Trains the next epoch; a budget that another epoch interrupted is finished first.
    pub(super) fn train(&mut self, host: usize) {
        let now_ms = self.now_ms;
        let jitter_ms = self.rng.below(5 * self.setup.jitter_ms);
        let budget_ms = self.hosts[host].training_ms + jitter_ms;
        let Some(process) = &mut self.hosts[host].process else { return };
        process.toy.frozen = None;
        process.donors.clear();
        process.repairs.clear();
        let until_ms = process.training.unwrap_or(now_ms + budget_ms).max(now_ms);
        process.training = Some(until_ms);
        let epoch = process.judged.head().epoch + 1;
        self.moments.push((host, epoch, Moment::Training));
        self.push(until_ms - now_ms, host, Happening::Trained { epoch });
    }

    pub(super) fn on_trained(&mut self, host: usize, epoch: u64) {
        let tokens = BUDGET + self.rng.below(BUDGET);
        let now_ms = self.now_ms;
        let Some(process) = &mut self.hosts[host].process else { return };
        let ended = process.training.is_some_and(|until_ms| until_ms <= now_ms);
        if ended && process.judged.head().epoch + 1 == epoch {
            process.training = None;
            let tokens = process.toy.freeze(tokens).weight();
            self.feed(host, Input::Trained { tokens, norm: 1.0 });
        }
    }

    pub(super) fn step_soon(&mut self, host: usize, apply: Arc<Apply>) {
        let Some(process) = &self.hosts[host].process else { return };
        let serial = process.fetches;
        self.push_soon(host, Happening::Step { serial, apply });
    }

    pub(super) fn on_step(&mut self, host: usize, serial: u64, apply: Arc<Apply>) {
        let Some(process) = &mut self.hosts[host].process else { return };
        if process.fetches != serial {
            return;
        }
        if !process.donors.is_empty() && !process.toy.updates.contains_key(&apply.update) {
            let donors = process.donors.clone();
            return self.on_try_step(host, serial, apply, donors);
        }
        let unspent = process.toy.unspent();
        let any = unspent.iter().any(|unspent| !unspent.is_empty());
        process.settled = any.then(|| (apply.spent.clone(), unspent));
        match process.toy.apply(&apply) {
            Some(state) => {
                self.checkpoint(host, false);
                self.feed(host, Input::Applied { state });
            }
            None => {
                let what = format!("{} applies an update that it lacks", self.name(host));
                self.break_with("S4", what);
            }
        }
    }

    /// Fetches an update that is replayed.
    pub(super) fn on_try_step(
        &mut self,
        host: usize,
        serial: u64,
        apply: Arc<Apply>,
        mut donors: Vec<PeerId>,
    ) {
        if self.hosts[host].process.as_ref().is_none_or(|process| process.fetches != serial) {
            return;
        }
        if donors.is_empty() {
            return self.feed(host, Input::UpdateMissing(apply.update));
        }
        let donor = donors.remove(0);
        let Some((from, bytes)) = self.served(host, &donor, &apply.update) else {
            if let Some(process) = &mut self.hosts[host].process {
                process.donors.retain(|other| *other != donor);
            }
            let again = Happening::TryStep { serial, apply, donors };
            return self.push(SILENT_DONOR_MS, host, again);
        };
        if self.keep_update(host, bytes).is_none() {
            return;
        }
        let delay_ms = 2 * self.network.delay_ms(from, host, &mut self.rng);
        let length_ms = self.hosts[host].loading_ms / 8;
        self.push(delay_ms + length_ms, host, Happening::Step { serial, apply });
    }

    /// The update that a donor serves, if it is reached.
    fn served(
        &mut self,
        host: usize,
        donor: &PeerId,
        update: &Digest,
    ) -> Option<(usize, Arc<Vec<u8>>)> {
        let from = self.reach(host, donor)?;
        let bytes = self.hosts[from].process.as_ref()?.toy.updates.get(update).cloned()?;
        Some((from, bytes))
    }

    /// An update comes at once, unless the line of its host is slow.
    pub(super) fn fetch_update(&mut self, host: usize, update: Digest, donors: Vec<PeerId>) {
        let fetch = Happening::TryUpdate { update, donors };
        match self.hosts[host].loading_ms / 8 {
            0 => self.push_soon(host, fetch),
            length_ms => self.push(length_ms, host, fetch),
        }
    }

    pub(super) fn on_try_update(&mut self, host: usize, update: Digest, mut donors: Vec<PeerId>) {
        let Some(process) = &self.hosts[host].process else { return };
        let held = match self.hosts[host].disk.full {
            true => Input::UpdateUnflushed(update),
            false => Input::UpdateHeld(update),
        };
        if process.toy.updates.contains_key(&update) {
            return self.feed(host, held);
        }
        if donors.is_empty() {
            return self.feed(host, Input::UpdateMissing(update));
        }
        let donor = donors.remove(0);
        match self.served(host, &donor, &update) {
            Some((from, bytes)) => {
                if self.keep_update(host, bytes).is_none() {
                    return;
                }
                let delay_ms = 2 * self.network.delay_ms(from, host, &mut self.rng);
                self.push(delay_ms, host, Happening::Input(held));
            }
            None => self.push(SILENT_DONOR_MS, host, Happening::TryUpdate { update, donors }),
        }
    }

    pub(super) fn load(
        &mut self,
        host: usize,
        head: Head,
        r: Digest,
        donors: Vec<PeerId>,
        spent: Blocks,
    ) {
        let Some(process) = &mut self.hosts[host].process else { return };
        process.fetches += 1;
        let serial = process.fetches;
        self.push_soon(host, Happening::TryLoad { serial, head, r, donors, spent });
    }

    pub(super) fn on_try_load(
        &mut self,
        host: usize,
        serial: u64,
        head: Head,
        r: Digest,
        mut donors: Vec<PeerId>,
        spent: Blocks,
    ) {
        if self.hosts[host].process.as_ref().is_none_or(|process| process.fetches != serial) {
            return;
        }
        if donors.is_empty() {
            return self.feed(host, Input::LoadFailed(head));
        }
        let donor = donors.remove(0);
        let anchor = self
            .reach(host, &donor)
            .and_then(|from| self.hosts[from].process.as_ref()?.toy.serve(&head, &r));
        let Some(anchor) = anchor else {
            let again = Happening::TryLoad { serial, head, r, donors, spent };
            return self.push(SILENT_DONOR_MS, host, again);
        };
        // A donor keeps what somebody is fetching.
        let loading_ms = self.hosts[host].loading_ms;
        self.push(loading_ms, host, Happening::Load { serial, head, anchor, spent });
    }

    pub(super) fn on_load(
        &mut self,
        host: usize,
        serial: u64,
        head: Head,
        anchor: Arc<Anchor>,
        spent: Blocks,
    ) {
        let Some(process) = &mut self.hosts[host].process else { return };
        if process.fetches != serial {
            return;
        }
        self.report.loaded += 1;
        let unspent = process.toy.unspent();
        let verdict = self.check.loaded(&mut process.judged, head, &spent, &unspent);
        process.toy.load(anchor, &spent);
        self.judge(verdict);
        self.checkpoint(host, true);
        self.feed(host, Input::Loaded(head));
        let verdict = self.hosts[host].process.as_ref().map_or(Ok(()), |p| p.judged.owes_no_fork());
        self.judge(verdict);
    }

    pub(super) fn on_asked(&mut self, host: usize, donor: PeerId, ask: &Ask) {
        let answer = self.reach(host, &donor).and_then(|from| {
            let mut answer = self.hosts[from].process.as_ref()?.machine.answer(ask);
            if let Some(forger) = &mut self.forger {
                forger(from, host, &mut answer);
            }
            wire::open_answer(&wire::answer(&answer)).map(|answer| (from, Arc::new(answer)))
        });
        let (delay_ms, answer) = match answer {
            Some((from, answer)) => {
                let delay_ms = 2 * self.network.delay_ms(from, host, &mut self.rng);
                (delay_ms + self.hosts[host].loading_ms / 64, Some(answer))
            }
            None => (u64::try_from(ASK_TIMEOUT.as_millis()).unwrap_or(u64::MAX), None),
        };
        self.push(delay_ms, host, Happening::Input(Input::Answer(donor, answer)));
    }

    /// The host that `name` is, if a request reaches it and its answer would come back.
    pub(super) fn reach(&mut self, host: usize, name: &PeerId) -> Option<usize> {
        let from = self.host(name)?;
        let process = self.hosts[from].process.as_ref()?;
        let up = process.paused.is_none() && self.network.linked(host, from);
        (up && !self.network.loses(host, from, &mut self.rng)).then_some(from)
    }
}
