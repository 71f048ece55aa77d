//! Updates: which are kept, in memory and on disk, which may go, and the
//! outer step that waits for one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::interface::{Buffer, Location, Name, Slice};
use crate::base::id::Digest;
use crate::base::time::Time;
use crate::consensus::epoch::Apply;
use crate::machine::output::Replayed;
use crate::peer::UPDATES_KEPT;

/// Committed updates that stay in memory, for peers that were too slow for the ring.
pub const IN_MEMORY: usize = 4;

/// Undecided updates of one epoch: one for each attempt, of which honest peers need few. One more
/// makes the oldest that we have not voted for give way.
pub const OPEN: usize = 16;

/// The updates that are here, in memory or on disk.
#[derive(Clone, Debug, Default)]
pub(super) struct Updates {
    /// Undecided updates, the oldest first; at most [`OPEN`] and those that we voted for.
    open: VecDeque<Digest>,
    /// Committed updates, the oldest first; at most [`UPDATES_KEPT`] and those after the newest
    /// checkpoint.
    committed: VecDeque<Digest>,
    /// Where the bytes of each of them are.
    kept: BTreeMap<Digest, Kept>,
}

/// What is known of one update, and where its bytes are.
#[derive(Clone, Copy, Debug)]
struct Kept {
    /// The epoch whose value it may be, or is.
    epoch: u64,
    /// A vote of ours names it, so it must stay readable (R19).
    voted: bool,
    in_memory: bool,
    on_disk: bool,
}

/// The updates that are kept no more.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Gone {
    /// Updates that go from memory and from disk.
    pub(super) dropped: Vec<Name>,
    /// Updates that go from memory only.
    pub(super) released: Vec<Digest>,
}

impl Updates {
    /// Begins with the updates that were on disk at the start; all of them are old.
    pub(super) fn new(found: Vec<Name>) -> Self {
        let mut updates = Self::default();
        for Name { epoch, digest } in found {
            let kept = Kept { epoch, voted: false, in_memory: false, on_disk: true };
            updates.kept.insert(digest, kept);
            updates.committed.push_back(digest);
        }
        updates
    }

    /// Keeps an update that is in memory and may be decided. Returns the
    /// updates that have to go for it.
    pub(super) fn hold(&mut self, Name { epoch, digest }: Name) -> Vec<Name> {
        let new = Kept { epoch, voted: false, in_memory: true, on_disk: false };
        self.kept.entry(digest).or_insert(new).in_memory = true;
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

    /// We vote for this update: it stays until its epoch is decided.
    pub(super) fn vote(&mut self, digest: &Digest) {
        if let Some(kept) = self.kept.get_mut(digest) {
            kept.voted = true;
        }
    }

    /// The update has survived a flush: no power cut loses it now.
    pub(super) fn flushed(&mut self, digest: &Digest) {
        if let Some(kept) = self.kept.get_mut(digest) {
            kept.on_disk = true;
        }
    }

    /// This update is decided; the others of its epoch are not needed any more. No update of an
    /// epoch after `whole`, that of the newest complete checkpoint, may go: our state could not
    /// be restored without it (R21).
    pub(super) fn commit(&mut self, Name { epoch, digest }: Name, whole: u64) -> Gone {
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
        let mut gone = Gone { dropped: self.forget(old), released: Vec::new() };
        // An update that is not on disk is kept in memory for as long as
        // it is likely to be requested.
        let above = self.committed.len().saturating_sub(IN_MEMORY);
        for digest in self.committed.range(..above) {
            let kept = self.kept.get_mut(digest).filter(|kept| kept.in_memory);
            if let Some(kept) = kept {
                kept.in_memory = false;
                gone.released.push(*digest);
            }
        }
        self.kept.retain(|_, kept| kept.in_memory || kept.on_disk);
        let kept = &self.kept;
        self.committed.retain(|digest| kept.contains_key(digest));
        gone
    }

    /// Drops the older half of the committed updates, as far as a checkpoint contains them.
    pub(super) fn make_room(&mut self, whole: u64) -> Vec<Name> {
        let old = self.give_up(self.committed.len() / 2, whole);
        self.forget(old)
    }

    /// Drops those of the `count` oldest committed updates whose epoch is not above `whole`.
    fn give_up(&mut self, count: usize, whole: u64) -> Vec<Digest> {
        let held = |old: &Digest| self.kept.get(old).is_none_or(|kept| kept.epoch <= whole);
        let old: Vec<Digest> = self.committed.iter().take(count).copied().filter(held).collect();
        self.committed.retain(|committed| !old.contains(committed));
        old
    }

    /// Forgets these updates. Returns those that were known.
    pub(super) fn forget(&mut self, old: Vec<Digest>) -> Vec<Name> {
        let gone = old.into_iter().filter_map(|digest| Some((digest, self.kept.remove(&digest)?)));
        gone.map(|(digest, kept)| Name { epoch: kept.epoch, digest }).collect()
    }

    /// The location of an update, if it is here.
    pub(super) fn location(&self, digest: &Digest) -> Option<Location> {
        let kept = self.kept.get(digest)?;
        Some(match kept.in_memory {
            true => Location::Memory(Slice { buffer: Buffer::Update(*digest), range: None }),
            false => Location::Update(Name { epoch: kept.epoch, digest: *digest }),
        })
    }

    /// The number of updates that no outer step has used.
    pub(super) fn open_count(&self) -> usize {
        self.open.len()
    }

    /// Whether its bytes are in memory, where a step needs them.
    pub(super) fn is_in_memory(&self, digest: &Digest) -> bool {
        self.kept.get(digest).is_some_and(|kept| kept.in_memory)
    }

    /// Whether its bytes are flushed, as a vote for it requires (R19).
    pub(super) fn is_on_disk(&self, digest: &Digest) -> bool {
        self.kept.get(digest).is_some_and(|kept| kept.on_disk)
    }

    /// Whether it is here, and a power cut would lose it.
    pub(super) fn is_unflushed(&self, digest: &Digest) -> bool {
        self.kept.get(digest).is_some_and(|kept| !kept.on_disk)
    }
}

/// An update that is being written to disk.
#[derive(Clone, Debug)]
pub(super) struct Writing {
    /// The update; its epoch says when the write is useless.
    pub(super) name: Name,
    /// The rings that computed it, and how fast we sent in each, in bytes per second.
    pub(super) rings: Vec<(Digest, u64)>,
    /// The disk refused it; when the write is tried again.
    pub(super) retry_at: Option<Time>,
}

/// Outer steps that are due, and what is being fetched for them.
#[derive(Clone, Debug, Default)]
pub(super) struct Steps {
    /// The outer step that waits for its update, and how often that was fetched.
    pub(super) unapplied: Option<(Arc<Apply>, u32)>,
    /// When that update is fetched again, after a fetch without success.
    pub(super) refetch_at: Option<Time>,
    /// Updates that a replay still has to fetch.
    pub(super) ahead: VecDeque<Replayed>,
    /// Updates that are being fetched, read or written.
    pub(super) under_way: BTreeSet<Digest>,
    /// Updates that are useless once the open commit is durable.
    pub(super) obsolete: Vec<Name>,
}

/// How often all peers are asked for the update of an outer step, and the pause between, before the
/// process ends: when it restarts it fetches the state instead.
pub(super) const FETCHES: u32 = 5;
pub(super) const FETCH_PAUSE: Duration = Duration::from_secs(1);

/// How many updates a replay fetches ahead of its outer step. More would take memory for bytes that
/// cannot be applied yet.
pub(super) const AHEAD: usize = 2;

impl Steps {
    /// An outer step is taken: nothing waits for it any more.
    pub(super) fn taken(&mut self) {
        (self.unapplied, self.refetch_at) = (None, None);
    }

    /// A replay has ended, with or without success.
    pub(super) fn end_replay(&mut self) {
        self.taken();
        self.ahead.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(n: u8) -> Digest {
        Digest([n; 32])
    }

    fn name(epoch: u64, n: u8) -> Name {
        Name { epoch, digest: digest(n) }
    }

    fn commit(updates: &mut Updates, epoch: u64, n: u8, whole: u64) -> Vec<Name> {
        updates.commit(name(epoch, n), whole).dropped
    }

    fn in_memory(updates: &Updates) -> usize {
        updates.kept.values().filter(|kept| kept.in_memory).count()
    }

    #[test]
    fn committed_updates_outlive_the_open_ones_and_both_are_bounded() {
        let mut updates = Updates::default();
        for n in 0..40 {
            updates.hold(name(1, n));
            updates.flushed(&digest(n));
        }
        assert_eq!(updates.kept.len(), OPEN);
        assert_eq!(commit(&mut updates, 1, 39, 0).len(), OPEN - 1);
        assert_eq!(updates.kept.len(), 1);
        for n in 50..90 {
            updates.hold(name(n.into(), n));
            updates.flushed(&digest(n));
            let gone = updates.commit(name(n.into(), n), u64::MAX);
            assert_eq!(gone.dropped.is_empty(), n <= 80, "{n}: {gone:?}");
            let released = if n == 50 + 3 { 39 } else { n.wrapping_sub(4) };
            assert_eq!(gone.released, [digest(released)][..usize::from(n >= 53)]);
        }
        assert_eq!((updates.kept.len(), in_memory(&updates)), (UPDATES_KEPT, IN_MEMORY));
        assert!(updates.is_in_memory(&digest(89)));
        assert_eq!(updates.location(&digest(58)), Some(Location::Update(name(58, 58))));
        assert!(updates.location(&digest(57)).is_none());
        assert_eq!(updates.make_room(u64::MAX)[0], name(58, 58));
        assert_eq!(updates.kept.len(), UPDATES_KEPT / 2);
    }

    #[test]
    fn an_update_fetched_ahead_survives_the_commit_before_it() {
        let mut updates = Updates::default();
        for n in 1..4 {
            updates.hold(name(n.into(), n));
        }
        assert_eq!(commit(&mut updates, 2, 2, 0), [name(1, 1)]);
        assert!(updates.location(&digest(3)).is_some());
    }

    /// A full disk: what fits into memory is served, and no more.
    #[test]
    fn what_never_reaches_the_disk_is_bounded_too() {
        let mut updates = Updates::default();
        for n in 0..40 {
            updates.hold(name(n.into(), n));
            commit(&mut updates, n.into(), n, 0);
        }
        assert_eq!((updates.kept.len(), updates.committed.len()), (IN_MEMORY, IN_MEMORY));
        assert!(updates.location(&digest(39)).is_some());
    }

    /// R19: a vote without its update costs the log, so a vote pins it, however many others come.
    #[test]
    fn r19_what_was_voted_for_outlives_every_other_open_update() {
        let mut updates = Updates::default();
        updates.hold(name(1, 0));
        updates.vote(&digest(0));
        let dropped: Vec<Digest> =
            (1..40).flat_map(|n| updates.hold(name(1, n))).map(|name| name.digest).collect();
        assert_eq!(dropped, (1..=24).map(digest).collect::<Vec<_>>());
        assert!(updates.location(&digest(0)).is_some() && updates.kept.len() == OPEN);
        assert!(commit(&mut updates, 1, 39, 0).contains(&name(1, 0)));
    }

    /// R21: what no checkpoint contains can be restored from updates alone.
    #[test]
    fn r21_room_is_made_of_what_a_checkpoint_holds() {
        let mut updates = Updates::default();
        for n in 1..9 {
            updates.hold(name(n.into(), n));
            updates.flushed(&digest(n));
            commit(&mut updates, n.into(), n, 0);
        }
        assert!(updates.make_room(0).is_empty());
        let gone: Vec<u64> = updates.make_room(3).iter().map(|name| name.epoch).collect();
        assert_eq!(gone, [1, 2, 3]);
        for n in 9..60 {
            updates.hold(name(n.into(), n));
            updates.flushed(&digest(n));
            assert!(commit(&mut updates, n.into(), n, 3).is_empty());
        }
        let gone: Vec<u64> = updates.make_room(8).iter().map(|name| name.epoch).collect();
        assert_eq!(gone, [4, 5, 6, 7, 8]);
    }
}
