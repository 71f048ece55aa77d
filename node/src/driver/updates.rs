//! Updates: which are kept, in memory and on disk, and the outer step that waits for one.
//!
//! An update comes out of our ring, or from other peers. It is flushed to disk before the state
//! hears that it is held, because it votes for what it holds (R5). A disk that takes no more is told
//! to the user; room is made by giving up updates that a checkpoint holds, and it is tried again. Until
//! it succeeds the peer gives no vote for that update, but it serves it from memory and, once others
//! have decided it, takes the outer step and trains on, silently (`outbox`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use intellect_protocol::checkpoint::Header;
use intellect_protocol::epoch::Apply;
use intellect_protocol::id::{Digest, PeerId};
use intellect_protocol::peer::{Input, UPDATES_KEPT};

use super::{Done, Driver, DriverError};
use crate::net::Reply;
use crate::store::StoreError;
use crate::store::updates::Name;
use crate::{fetch, worker};

/// Committed updates that stay in memory, for peers that were too slow for the ring.
pub(crate) const IN_MEMORY: usize = 4;

/// Updates of one epoch that are not decided: one per attempt, of which honest peers need few.
pub(crate) const OPEN: usize = 16;

/// How often the update of an outer step is asked for, of everybody, before the node gives up, and
/// the pause between: who restarts fetches the state instead.
const FETCHES: u32 = 5;
const FETCH_PAUSE: Duration = Duration::from_secs(1);

/// The pause before a full disk is tried again.
pub(super) const DISK_PAUSE: Duration = Duration::from_secs(2);

/// Updates that are replayed are fetched so far ahead of the outer step.
const AHEAD: usize = 2;

/// What is kept.
#[derive(Debug, Default)]
pub(super) struct Updates {
    open: VecDeque<Digest>,
    committed: VecDeque<Digest>,
    kept: BTreeMap<Digest, Kept>,
}

#[derive(Debug)]
struct Kept {
    epoch: u64,
    /// A vote of ours names it (R19).
    voted: bool,
    bytes: Option<Arc<Vec<u8>>>,
    on_disk: bool,
}

/// Where an update is found.
pub(super) enum Place {
    Memory(Arc<Vec<u8>>),
    Disk(Name),
}

impl Updates {
    /// With what is on disk from before; all of it is old.
    pub(super) fn new(found: Vec<Name>) -> Self {
        let mut updates = Self::default();
        for Name { epoch, digest } in found {
            updates.kept.insert(digest, Kept { epoch, voted: false, bytes: None, on_disk: true });
            updates.committed.push_back(digest);
        }
        updates
    }

    /// Keeps an update that may be decided.
    pub(super) fn hold(&mut self, epoch: u64, digest: Digest, bytes: Arc<Vec<u8>>) -> Vec<Name> {
        let new = Kept { epoch, voted: false, bytes: None, on_disk: false };
        let kept = self.kept.entry(digest).or_insert(new);
        kept.bytes = Some(bytes);
        if !self.open.contains(&digest) && !self.committed.contains(&digest) {
            self.open.push_back(digest);
        }
        let above = self.open.len().saturating_sub(OPEN);
        let voted = |open: &Digest| self.kept.get(open).is_some_and(|kept| kept.voted);
        let spare = self.open.iter().copied().filter(|open| *open != digest && !voted(open));
        let old: Vec<Digest> = spare.take(above).collect();
        self.open.retain(|open| !old.contains(open));
        self.forget(old)
    }

    /// We vote for it: it stays until its epoch is decided.
    pub(super) fn vote(&mut self, digest: &Digest) {
        if let Some(kept) = self.kept.get_mut(digest) {
            kept.voted = true;
        }
    }

    /// It is on disk now.
    fn flushed(&mut self, digest: &Digest) {
        if let Some(kept) = self.kept.get_mut(digest) {
            kept.on_disk = true;
        }
    }

    /// One is decided; the others of its epoch are not needed any more. What can be removed: nothing of an
    /// epoch after `whole`, that of the newest whole checkpoint, for our state could not be had without
    /// it (R21).
    pub(super) fn commit(&mut self, epoch: u64, digest: Digest, whole: u64) -> Vec<Name> {
        self.committed.retain(|known| *known != digest);
        self.committed.push_back(digest);
        let mut old = Vec::new();
        let kept = &self.kept;
        self.open.retain(|open| {
            let later = kept.get(open).is_some_and(|kept| kept.epoch > epoch);
            if !later && *open != digest {
                old.push(*open);
            }
            later
        });
        old.extend(self.give_up(self.committed.len().saturating_sub(UPDATES_KEPT), whole));
        // What is not on disk is kept for as long as it is likely to be asked for.
        let above = self.committed.len().saturating_sub(IN_MEMORY);
        for digest in self.committed.range(..above) {
            if let Some(kept) = self.kept.get_mut(digest) {
                kept.bytes = None;
            }
        }
        let kept = &self.kept;
        self.committed.retain(|digest| kept.get(digest).is_some_and(|k| k.found().is_some()));
        self.kept.retain(|_, kept| kept.found().is_some());
        self.forget(old)
    }

    /// Gives up the older half of what is committed, as far as a checkpoint holds it.
    fn make_room(&mut self, whole: u64) -> Vec<Name> {
        let old = self.give_up(self.committed.len() / 2, whole);
        self.forget(old)
    }

    /// Of the `count` oldest committed ones those up to epoch `whole`.
    fn give_up(&mut self, count: usize, whole: u64) -> Vec<Digest> {
        let held = |old: &Digest| self.kept.get(old).is_none_or(|kept| kept.epoch <= whole);
        let old: Vec<Digest> = self.committed.iter().take(count).copied().filter(held).collect();
        self.committed.retain(|committed| !old.contains(committed));
        old
    }

    fn forget(&mut self, old: Vec<Digest>) -> Vec<Name> {
        let gone = old.into_iter().filter_map(|digest| Some((digest, self.kept.remove(&digest)?)));
        gone.map(|(digest, kept)| Name { epoch: kept.epoch, digest }).collect()
    }

    pub(super) fn place(&self, digest: &Digest) -> Option<Place> {
        let kept = self.kept.get(digest)?;
        let on_disk = || Place::Disk(Name { epoch: kept.epoch, digest: *digest });
        match &kept.bytes {
            Some(bytes) => Some(Place::Memory(Arc::clone(bytes))),
            None => kept.on_disk.then(on_disk),
        }
    }

    /// Those that no outer step has taken.
    fn open_count(&self) -> usize {
        self.open.len()
    }

    fn is_on_disk(&self, digest: &Digest) -> bool {
        self.kept.get(digest).is_some_and(|kept| kept.on_disk)
    }

    /// Whether it is here, and a power cut would lose it.
    pub(super) fn is_unflushed(&self, digest: &Digest) -> bool {
        self.kept.get(digest).is_some_and(|kept| !kept.on_disk)
    }
}

impl Kept {
    fn found(&self) -> Option<()> {
        (self.bytes.is_some() || self.on_disk).then_some(())
    }
}

/// Outer steps that are due, and what is on its way for them.
#[derive(Debug, Default)]
pub(super) struct Steps {
    /// The outer step that waits for its update.
    unapplied: Option<(Arc<Apply>, u32)>,
    /// Updates that are replayed: those still to fetch, and from whom.
    ahead: VecDeque<Name>,
    donors: Vec<PeerId>,
    /// Updates that are on their way, or being read or written.
    under_way: BTreeSet<Digest>,
    /// Those that nobody needs once the open commit is durable.
    obsolete: Vec<Name>,
    /// Whether the disk refused the last one.
    refused: bool,
}

impl Steps {
    /// An outer step is taken: nothing waits for it any more.
    pub(super) fn taken(&mut self) {
        self.unapplied = None;
    }

    /// A replay is over, well or not.
    pub(super) fn end_replay(&mut self) {
        self.unapplied = None;
        self.ahead.clear();
        self.donors.clear();
    }
}

/// Who waits for an update to be kept.
pub(super) enum Origin {
    /// The state, which may vote for what its ring gave.
    Ring { roster: Digest, send_rate: u64 },
    /// The state, or an outer step.
    Fetched,
}

impl Driver {
    /// Keeps an update: in memory at once, and on disk.
    pub(super) fn keep(&mut self, name: Name, bytes: Arc<Vec<u8>>, origin: Origin) {
        let old = self.updates.hold(name.epoch, name.digest, Arc::clone(&bytes));
        self.drop_updates(old);
        let store = Arc::clone(&self.store);
        self.jobs.spawn_blocking(move || {
            let result = store.keep_update(name, &bytes);
            Done::Kept { name, origin, result }
        });
    }

    pub(super) fn on_kept(
        &mut self,
        name: Name,
        origin: Origin,
        result: Result<(), StoreError>,
    ) -> Result<(), DriverError> {
        let update = name.digest;
        self.steps.under_way.remove(&update);
        match result {
            Ok(()) => {
                self.updates.flushed(&update);
                if std::mem::take(&mut self.steps.refused) {
                    self.tell.disk_again();
                }
                match self.updates.place(&update) {
                    Some(_) => self.outbox.kept(&update),
                    // Another one was decided meanwhile, or it came too late.
                    None => self.drop_updates(vec![name]),
                }
                self.input(match origin {
                    Origin::Ring { roster, send_rate } => {
                        Input::RingFinished { roster, update, send_rate }
                    }
                    Origin::Fetched => Input::UpdateHeld(update),
                });
            }
            Err(error) => {
                if !std::mem::replace(&mut self.steps.refused, true) {
                    self.tell.update(&error);
                }
                self.make_room();
                self.input(Input::UpdateUnflushed(update));
                self.jobs.spawn(async move {
                    tokio::time::sleep(DISK_PAUSE).await;
                    Done::Keep { name, origin }
                });
            }
        }
        self.on_arrived(update)
    }

    /// Tries a full disk again, while the update may still be decided, or others wait to hear from us
    /// until it is kept.
    pub(super) fn keep_again(&mut self, name: Name, origin: Origin) {
        let open = name.epoch > self.peer.head().epoch || self.outbox.owes(&name.digest);
        if let (true, Some(Place::Memory(bytes))) = (open, self.updates.place(&name.digest)) {
            self.keep(name, bytes, origin);
        }
    }

    /// The epoch of the newest whole checkpoint.
    pub(super) fn whole(&self) -> u64 {
        self.saved.back().map_or(0, |saved| saved.table.header().epoch)
    }

    /// The disk refuses something.
    pub(super) fn make_room(&mut self) {
        let old = self.updates.make_room(self.whole());
        self.drop_updates(old);
    }

    /// Once the last commit is durable, what it was chosen over can go.
    pub(super) fn drop_obsolete(&mut self) {
        if !self.outbox.is_settled() {
            return;
        }
        let old = std::mem::take(&mut self.steps.obsolete);
        self.drop_updates(old);
    }

    fn drop_updates(&mut self, old: Vec<Name>) {
        if old.is_empty() {
            return;
        }
        let store = Arc::clone(&self.store);
        self.jobs.spawn_blocking(move || {
            if let Err(error) = store.drop_updates(&old) {
                tracing::warn!(%error, "an old update stays");
            }
            Done::Progress
        });
    }

    /// The state wants to hold an update of the open epoch.
    pub(super) fn fetch_update(&mut self, digest: Digest, from: Vec<PeerId>) {
        let epoch = self.peer.head().epoch + 1;
        self.get(Name { epoch, digest }, from);
    }

    /// Brings an update from memory, disk or other peers.
    fn get(&mut self, name: Name, mut from: Vec<PeerId>) {
        if !self.steps.under_way.insert(name.digest) {
            return;
        }
        match self.updates.place(&name.digest) {
            Some(Place::Memory(bytes)) => {
                self.jobs.spawn(async move { Done::Update { name, found: Some(bytes) } });
            }
            Some(Place::Disk(name)) => {
                let store = Arc::clone(&self.store);
                self.jobs.spawn_blocking(move || {
                    let found = store.read_update(name).ok().map(Arc::new);
                    Done::Update { name, found }
                });
            }
            None => {
                self.living_first(&mut from);
                let (net, length) = (self.net.clone(), self.update_bytes());
                self.jobs.spawn(async move {
                    let found = fetch::update(&net, name.digest, length, from).await;
                    Done::Update { name, found: found.map(Arc::new) }
                });
            }
        }
    }

    pub(super) fn update_bytes(&self) -> usize {
        self.manifest.run.codec.encoded_bytes(self.newest.state.theta().len())
    }

    /// An update has come, or not.
    pub(super) fn on_update(
        &mut self,
        name: Name,
        found: Option<Arc<Vec<u8>>>,
    ) -> Result<(), DriverError> {
        let update = name.digest;
        match found.filter(|bytes| self.decodes(bytes)) {
            Some(bytes) if self.updates.is_on_disk(&update) => {
                let old = self.updates.hold(name.epoch, update, bytes);
                self.drop_updates(old);
                self.on_kept(name, Origin::Fetched, Ok(()))
            }
            Some(bytes) => {
                self.keep(name, bytes, Origin::Fetched);
                Ok(())
            }
            None => {
                self.steps.under_way.remove(&update);
                // Damaged, if it was on disk.
                let damaged = self.updates.forget(vec![update]);
                self.drop_updates(damaged);
                self.input(Input::UpdateMissing(update));
                self.on_arrived(update)
            }
        }
    }

    /// Whether an update of the right digest can be applied: nobody votes for one that cannot.
    fn decodes(&self, update: &[u8]) -> bool {
        let elements = self.newest.state.theta().len();
        self.manifest.run.codec.validate(update, elements).is_ok()
    }

    /// Fetches what a replay will need, in its order.
    pub(super) fn replay(&mut self, updates: &[(u64, Digest)], donors: Vec<PeerId>) {
        let names = updates.iter().map(|(epoch, digest)| Name { epoch: *epoch, digest: *digest });
        (self.steps.ahead, self.steps.donors) = (names.collect(), donors);
        self.fetch_ahead();
    }

    fn fetch_ahead(&mut self) {
        while self.steps.under_way.len() + self.updates.open_count() < AHEAD {
            let Some(name) = self.steps.ahead.pop_front() else { return };
            if !matches!(self.updates.place(&name.digest), Some(Place::Memory(_))) {
                self.get(name, self.steps.donors.clone());
            }
        }
    }

    pub(super) fn apply_update(&mut self, apply: Arc<Apply>) {
        let Some(Place::Memory(update)) = self.updates.place(&apply.update) else {
            // It is on its way, or was one of very many of this epoch: whoever has decided it has it.
            self.steps.unapplied = Some((apply, 0));
            self.fetch_unapplied();
            return;
        };
        // A vote may name one of them: they go once the commit is on disk.
        let old = self.updates.commit(apply.epoch, apply.update, self.whole());
        self.steps.obsolete.extend(old);
        // No ring of this epoch starts any more; the worker keeps what it needs.
        self.delta = None;
        let header = Header {
            run: self.manifest.id,
            epoch: apply.epoch,
            tokens: apply.tokens,
            r: apply.r,
            parameters: self.newest.table.header().parameters,
        };
        self.tell.applied(!apply.spent.is_empty());
        let spent = apply.spent.clone();
        self.command(worker::Command::Apply { header, update, spent });
        self.fetch_ahead();
    }

    /// Fetches what the outer step waits for, if it does.
    pub(super) fn fetch_unapplied(&mut self) {
        let Some((apply, fetches)) = &mut self.steps.unapplied else { return };
        let name = Name { epoch: apply.epoch, digest: apply.update };
        if self.steps.under_way.contains(&name.digest) {
            return;
        }
        *fetches += 1;
        let mut from = self.steps.donors.clone();
        let living = self.peer.roll().live(self.now()).map(|(peer, _)| *peer);
        from.extend(living.filter(|peer| !self.steps.donors.contains(peer)));
        self.get(name, from);
    }

    /// An update has come, or not; the outer step may be waiting for it.
    fn on_arrived(&mut self, update: Digest) -> Result<(), DriverError> {
        self.fetch_ahead();
        let waiting = |(apply, _): &mut (Arc<Apply>, u32)| apply.update == update;
        let Some((apply, fetches)) = self.steps.unapplied.take_if(waiting) else { return Ok(()) };
        if self.updates.place(&update).is_some() {
            self.apply_update(apply);
        } else if fetches < FETCHES {
            self.steps.unapplied = Some((apply, fetches));
            self.jobs.spawn(async {
                tokio::time::sleep(FETCH_PAUSE).await;
                Done::Refetch
            });
        } else {
            return Err(DriverError::UpdateLost { epoch: apply.epoch });
        }
        Ok(())
    }

    /// Answers with a part of an update; dropping `reply` refuses it.
    pub(super) fn serve_update(&mut self, digest: &Digest, offset: u64, reply: Reply) {
        match self.updates.place(digest) {
            None => {}
            Some(Place::Memory(bytes)) => {
                // It is of the open epoch, or the last few: a vote may wait for it.
                if let Some(part) = fetch::part_of(&bytes, offset) {
                    reply.send_at_once(part);
                }
            }
            Some(Place::Disk(name)) => {
                let store = Arc::clone(&self.store);
                self.jobs.spawn_blocking(move || {
                    if let Ok(part) = store.update_part(name, offset, fetch::PART_BYTES) {
                        reply.send(part);
                    }
                    Done::Progress
                });
            }
        }
    }
}

#[cfg(test)]
mod tests;
