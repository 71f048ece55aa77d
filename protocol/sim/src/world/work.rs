//! The work of a process: training, outer steps, writes to disk. All of it takes time.
//!
//! A step or a training that something newer voids still ends at its time, and its entry has no
//! effect then: `orders` counts what voids a training, `loads` what voids an outer step. A write
//! ends with its flush, and until then a crash may lose it. So each kind of write has a method that
//! begins it, and one that the queue calls at its flush.

use std::sync::Arc;

use super::{Anchor, Happening, Host, World};
use crate::disk::File;
use crate::report::{Count, Moment};
use crate::toy::WEIGHT_MAX;
use intellect_protocol::base::blocks::Blocks;
use intellect_protocol::consensus::epoch::Apply;
use intellect_protocol::history::log::Record;
use intellect_protocol::holdings::{Buffer, Disk, Input, Name, Origin};
use intellect_protocol::message::{Head, Loss};
use intellect_protocol::peer;

/// Least tokens of one epoch's training; the rest is drawn, to less than twice as many. It is half
/// of what the rules count as an epoch's work ([`TOKENS`](crate::toy::TOKENS)).
const BUDGET: u64 = 50;
/// How long a checkpoint is written, in milliseconds: longer than some epochs, so that a
/// restart has updates to replay.
const SAVE_MS: u64 = 2_000;

impl World {
    /// Sets how long an epoch's training takes on a host, in milliseconds, without its jitter. A
    /// training that has begun ends when it was to end.
    pub(crate) fn set_training(&mut self, host: usize, training_ms: u64) {
        self.hosts[host].training_ms = training_ms;
    }

    /// The longest training of any host, in milliseconds, with the most jitter.
    pub(crate) fn longest_training_ms(&self) -> u64 {
        let most = self.hosts.iter().map(|host| host.training_ms).max().unwrap_or(0);
        most + 5 * self.setup.jitter_ms
    }

    /// Sets how long a checkpoint takes to arrive at a host, in milliseconds. An update takes an
    /// eighth of that, an answer an eighth of an update.
    pub fn load_in(&mut self, host: usize, loading_ms: u64) {
        self.hosts[host].loading_ms = loading_ms;
    }

    /// Sets how long a flush takes on a host, in milliseconds; 0 by default.
    pub fn flush_in(&mut self, host: usize, flush_ms: u64) {
        self.hosts[host].flush_ms = flush_ms;
    }

    /// Sets how long an outer step takes on a host, in milliseconds; 0 by default.
    pub fn apply_in(&mut self, host: usize, apply_ms: u64) {
        self.hosts[host].apply_ms = apply_ms;
    }

    /// Trains the next epoch. A budget that another epoch interrupted is finished first, and its
    /// end ends this training too. The delta that was frozen before is dropped; what of it is not
    /// spent is in the next one.
    pub(super) fn train(&mut self, host: usize) {
        let now_ms = self.now_ms;
        let jitter_ms = self.rng.below(5 * self.setup.jitter_ms);
        let budget_ms = self.hosts[host].training_ms + jitter_ms;
        let Some(process) = &mut self.hosts[host].process else { return };
        process.toy.frozen = None;
        let until_ms = process.training.unwrap_or(now_ms + budget_ms).max(now_ms);
        process.training = Some(until_ms);
        process.orders += 1;
        let order = process.orders;
        let epoch = process.holdings.peer().head().epoch + 1;
        self.hosts[host].busy_ms = now_ms;
        self.moments.push((host, epoch, Moment::Training));
        self.push(until_ms - now_ms, host, Happening::Trained { order });
    }

    /// The work is done: the delta is frozen and declared. An order that was given meanwhile voids
    /// it.
    pub(super) fn on_trained(&mut self, host: usize, order: u64) {
        let tokens = BUDGET + self.rng.below(BUDGET);
        let (now_ms, boast) = (self.now_ms, self.hosts[host].boast);
        let Some(process) = &mut self.hosts[host].process else { return };
        let ended = process.training.is_some_and(|until_ms| until_ms <= now_ms);
        let head = process.holdings.peer().head();
        if ended && process.orders == order {
            process.training = None;
            let (tokens, most) = boast.map_or((tokens, WEIGHT_MAX), |tokens| (tokens, u64::MAX));
            let frozen = process.toy.freeze(tokens, most);
            let verdict = self.check.froze(&process.judged, &head, &frozen);
            self.judge(verdict);
            let tokens = frozen.weight();
            self.feed_peer(host, peer::Input::Trained { tokens, norm: 1.0, loss: Loss(2.0) });
        }
    }

    /// Plans the step that applies an update. A state that is loaded meanwhile voids it.
    pub(super) fn step_soon(&mut self, host: usize, apply: Arc<Apply>) {
        let Some(process) = &self.hosts[host].process else { return };
        let serial = process.loads;
        let delay_ms = self.hosts[host].apply_ms + 1 + self.rng.below(self.setup.jitter_ms);
        self.push(delay_ms, host, Happening::Step { serial, apply });
    }

    /// Applies an update to the state, and tells the machine which state that makes. The unspent
    /// tokens are noted before, since the checks judge what the step takes of them (S4).
    pub(super) fn on_step(&mut self, host: usize, serial: u64, apply: &Apply) {
        let Some(process) = &mut self.hosts[host].process else { return };
        if process.loads != serial {
            return;
        }
        let unspent = process.toy.unspent();
        let any = unspent.iter().any(|unspent| !unspent.is_empty());
        process.settled = any.then(|| (apply.spent.clone(), unspent));
        let update = process.bytes.get(&Buffer::Update(apply.update)).cloned();
        match update.and_then(|update| process.toy.apply(apply, &update)) {
            Some(()) => {
                process.orders += 1;
                let head = process.toy.anchor.head();
                self.feed(host, Input::State(head, Origin::Applied));
            }
            None => {
                let what = format!("{} applies an update that it lacks", self.name(host));
                self.break_with("S4", what);
            }
        }
    }

    /// Takes a fetched state in place of its own. The checks see it once it is on disk.
    pub(super) fn on_load(
        &mut self,
        host: usize,
        serial: u64,
        head: Head,
        anchor: Arc<Anchor>,
        spent: Blocks,
    ) {
        let Some(process) = &mut self.hosts[host].process else { return };
        if process.loads != serial {
            return;
        }
        let unspent = process.toy.unspent();
        process.toy.load(anchor, &spent);
        process.orders += 1;
        process.loading = Some((head, spent, unspent));
        self.feed(host, Input::State(head, Origin::Loaded));
    }

    // ---- the disk ------------------------------------------------------------------------------

    /// Appends records to the log. They can still be lost until they are flushed. The order of the
    /// records of one log stays; that between the two logs does not.
    pub(super) fn write(&mut self, host: usize, records: &[Record]) {
        self.hosts[host].disk.append(records);
        self.push_flush(host, Happening::Written);
    }

    /// Flushes the records, unless the host fails just before; it may also fail just after.
    pub(super) fn on_written(&mut self, host: usize) {
        if self.pass(host) {
            self.hosts[host].disk.flush_records();
            self.pass(host);
            self.feed(host, Input::Written(Disk::Took));
        }
    }

    /// Writes an update to the disk, which may be full.
    pub(super) fn keep(&mut self, host: usize, name: Name) {
        let place = &mut self.hosts[host];
        let Some(process) = &place.process else { return };
        let Some(bytes) = process.bytes.get(&Buffer::Update(name.digest)).cloned() else {
            return self.break_with("R5", "an update is to be kept that is not here".to_owned());
        };
        match place.disk.write(File::Update(name, bytes)) {
            true => self.push_flush(host, Happening::Kept(name)),
            false => self.push_flush(host, Happening::Input(Input::Kept(name, Disk::Refused))),
        }
    }

    /// Reads an update back from the disk, if a flushed one is there. It takes as long as a flush.
    pub(super) fn read(&mut self, host: usize, name: Name) {
        let happening = match self.hosts[host].disk.update(&name.digest) {
            Some(content) => {
                let (bytes, input) = (Buffer::Update(name.digest), Input::UpdateCame(name));
                Happening::Came { bytes, content, input }
            }
            None => Happening::Input(Input::UpdateMissed(name)),
        };
        self.push_flush(host, happening);
    }

    /// Flushes an update; the host may fail just before or just after.
    pub(super) fn on_kept(&mut self, host: usize, name: Name) {
        if self.pass(host) {
            self.hosts[host].disk.flush_update(&name.digest);
            self.pass(host);
            self.feed(host, Input::Kept(name, Disk::Took));
        }
    }

    /// Writes the newest state to the disk, which may be full.
    pub(super) fn save(&mut self, host: usize) {
        let place = &mut self.hosts[host];
        let Some(process) = &place.process else { return };
        let (anchor, fetched) = (Arc::clone(&process.toy.anchor), process.loading.is_some());
        if !place.disk.write(File::Checkpoint(Arc::clone(&anchor))) {
            return self.push_flush(host, Happening::Input(Input::Saved(Disk::Refused)));
        }
        let save_ms = if fetched { 1 } else { SAVE_MS + self.rng.below(20 * self.setup.jitter_ms) };
        self.push(save_ms, host, Happening::Saved(anchor));
    }

    /// Flushes a checkpoint; the host may fail just before or just after. If it is the state that
    /// was loaded last, the change of lineage that it may be is judged here.
    pub(super) fn on_saved(&mut self, host: usize, anchor: Arc<Anchor>) {
        if !self.pass(host) {
            return;
        }
        self.hosts[host].disk.flush_checkpoint(&anchor.digest());
        self.pass(host);
        let Host { disk, process: Some(process), .. } = &mut self.hosts[host] else { return };
        let loaded = process.loading.take_if(|(head, ..)| head.state == anchor.digest());
        if loaded.is_some() {
            disk.drop_received();
        }
        process.states.insert(anchor.digest(), anchor);
        if let Some((head, spent, unspent)) = loaded {
            self.report.count(Count::Loaded, 1);
            let verdict = self.check.loaded(&mut process.judged, head, &spent, &unspent);
            self.judge(verdict);
        }
        self.feed(host, Input::Saved(Disk::Took));
    }

    /// R19: an update that a vote names must stay.
    pub(super) fn drop_updates(&mut self, host: usize, names: &[Name]) {
        let place = &mut self.hosts[host];
        if let Some(bound) = names.iter().find(|name| place.disk.binds(name)) {
            let what = format!("{} drops {bound:?}, which it has voted for", place.name);
            self.break_with("R19", what);
        }
        let place = &mut self.hosts[host];
        place.disk.drop_updates(names);
        if let Some(process) = &mut place.process {
            process
                .bytes
                .retain(|bytes, _| !names.iter().any(|name| *bytes == Buffer::Update(name.digest)));
        }
    }

    /// A flush takes a few milliseconds, or none. It does not wait for the one before, so flushes
    /// of one host may end in another order than they began.
    fn push_flush(&mut self, host: usize, happening: Happening) {
        let flush_ms = self.hosts[host].flush_ms + self.rng.below(self.setup.jitter_ms / 3);
        self.push(flush_ms, host, happening);
    }
}
