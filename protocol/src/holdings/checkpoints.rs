//! States: which are on disk and served, which one is written next, and what an earlier start left.
//!
//! The newest three on disk are served. A slow joiner needs longer than three epochs
//! for one, so a state that was requested within the last minute is *pinned*: its file
//! is unlinked, but stays open. A request for the state that is being written waits until it is on disk.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::interface::{Inquiry, Location, Name};
use crate::base::id::Digest;
use crate::base::time::Time;
use crate::history::log::{self, Recovered};
use crate::message::{Head, Link, Voted};

/// Checkpoints that are kept on disk. Each takes eight bytes a parameter.
pub const CHECKPOINTS: usize = 3;

/// The most states that are pinned at once. Each costs one more checkpoint of disk space.
pub const PINNED_MAX: usize = 2;

/// A peer that still fetches a state requests a piece of it within this time, which is twice
/// as long as a request may take.
const ASKED_WITHIN: Duration = Duration::from_secs(60);

/// The most requests that wait for the state that is being written, and for how long they do: a peer waits half a
/// minute for an answer.
const WAITING_MAX: usize = 64;
const WAIT: Duration = Duration::from_secs(20);

/// The states that are in memory, on disk and being written.
#[derive(Clone, Debug)]
pub(super) struct Checkpoints {
    /// The newest state, which is in memory.
    pub(super) newest: Head,
    /// States on disk, the newest last.
    saved: VecDeque<Head>,
    /// The published weights with which the run begins; they belong to no run.
    published: Option<Digest>,
    /// When each state that is here was last requested.
    asked: BTreeMap<Digest, Time>,
    /// States whose file is unlinked and that are still served, the most lately requested first.
    pinned: Vec<Digest>,
    /// The state that is being written.
    pub(super) saving: Option<Head>,
    /// Requests for the state that is being written, each with the end of its wait.
    waiting: Vec<(Time, Inquiry, Digest)>,
    /// A state that was fetched and is not on disk yet. It becomes our head once it is.
    pub(super) loaded: Option<Head>,
}

impl Checkpoints {
    /// Begins with what the disk has: the newest checkpoint, and the published weights.
    pub(super) fn new(newest: Head, saved: Option<Head>, published: Option<Digest>) -> Self {
        Self {
            newest,
            saved: saved.into_iter().collect(),
            published,
            asked: BTreeMap::new(),
            pinned: Vec::new(),
            saving: None,
            waiting: Vec::new(),
            loaded: None,
        }
    }

    /// The epoch of the newest complete checkpoint; 0 if there is none.
    pub(super) fn whole(&self) -> u64 {
        self.saved.back().map_or(0, |saved| saved.epoch)
    }

    /// The fetched state, if it is on disk now and so becomes our head.
    pub(super) fn take_loaded(&mut self) -> Option<Head> {
        let saved = self.saved.back().map(|saved| saved.state);
        self.loaded.take_if(|head| saved == Some(head.state))
    }

    /// The state to write now, if one is due. While one is being written, only the newest of the
    /// next ones waits. Genesis is on every disk.
    pub(super) fn due(&mut self) -> Option<Head> {
        let saved = self.saved.back().map(|saved| saved.state);
        let newest = self.newest;
        if self.saving.is_some() || newest.epoch == 0 || saved == Some(newest.state) {
            return None;
        }
        self.saving = Some(newest);
        Some(newest)
    }

    /// The state that was being written is on disk. Returns the states that are served no more. Of
    /// the older ones, those that are pinned stay: the most lately requested, at most
    /// [`PINNED_MAX`].
    pub(super) fn saved(&mut self) -> Vec<Digest> {
        let before: BTreeSet<Digest> = self.on_disk().collect();
        self.saved.extend(self.saving.take());
        while self.saved.len() > CHECKPOINTS {
            let old = self.saved.pop_front().map(|old| old.state);
            self.pinned.extend(old.filter(|old| self.asked.contains_key(old)));
        }
        let asked = &self.asked;
        self.pinned.sort_by_key(|state| std::cmp::Reverse(asked.get(state).copied()));
        self.pinned.truncate(PINNED_MAX);
        let after: BTreeSet<Digest> = self.on_disk().collect();
        before.difference(&after).copied().collect()
    }

    /// The location of a state, if it is here. It counts as requested,
    /// since the peer will ask again.
    pub(super) fn ask(&mut self, now: Time, state: Digest) -> Option<Location> {
        let here = self.newest.state == state || self.on_disk().any(|saved| saved == state);
        if here {
            self.asked.insert(state, now);
        }
        let newest = self.newest.state == state;
        here.then_some(if newest { Location::Newest } else { Location::Checkpoint(state) })
    }

    /// Lets a request wait if its state is being written.
    pub(super) fn wait(&mut self, now: Time, ticket: Inquiry, state: Digest) -> bool {
        let waits = self.is_written(&state) && self.waiting.len() < WAITING_MAX;
        if waits {
            self.waiting.push((now + WAIT, ticket, state));
        }
        waits
    }

    fn is_written(&self, state: &Digest) -> bool {
        self.saving.is_some_and(|saving| saving.state == *state)
    }

    /// The requests whose wait has ended, each with the location of its state if that is here.
    pub(super) fn answered(&mut self, now: Time) -> Vec<(Inquiry, Option<Location>)> {
        let mut over = Vec::new();
        for (until, ticket, state) in std::mem::take(&mut self.waiting) {
            if self.is_written(&state) && now < until {
                self.waiting.push((until, ticket, state));
            } else {
                over.push((ticket, self.ask(now, state)));
            }
        }
        over
    }

    /// When the first request that waits must be answered.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.waiting.iter().map(|(until, ..)| *until).min()
    }

    /// Forgets requests that are too old. Returns the states that are
    /// served no more because of that.
    pub(super) fn forget(&mut self, now: Time) -> Vec<Digest> {
        self.asked.retain(|_, at| now < *at + ASKED_WITHIN);
        let asked = &self.asked;
        self.pinned.extract_if(.., |state| !asked.contains_key(state)).collect()
    }

    /// Every state that a donor can serve from disk.
    fn on_disk(&self) -> impl Iterator<Item = Digest> {
        let saved = self.saved.iter().map(|saved| saved.state);
        saved.chain(self.pinned.iter().copied()).chain(self.published)
    }
}

/// What a disk still proves of an earlier start (R19–R21).
#[derive(Clone, Debug)]
pub struct Restored<S> {
    /// The state at the head that was restored.
    pub state: S,
    /// Input for the machine: the lineage up to that head, and the votes.
    pub recovered: Recovered,
    /// The epoch to which the receipts lead; if it is above the
    /// state's, the rest has to be fetched.
    pub known: u64,
    /// Readable updates that the votes name for epochs after that head.
    pub held: BTreeSet<Digest>,
    /// Whether the log of votes counts as lost (R19); then [`Recovered::votes`] is empty.
    pub is_lost: bool,
}

/// Restores the head from what the logs have (`stored`) and the newest complete checkpoint on
/// their lineage, the `state` of `epoch`. The updates after that are applied, each the one that
/// its receipt names. `step` returns the state after one more epoch, if its update is there and
/// leads to that head. Where one is missing, the head is the one before, and the rest is
/// fetched from other peers (R21).
///
/// The votes bind as before, unless one of them is for an update after that head that `reads`
/// cannot read and apply, or the head lies before the epoch up to which the log of votes has
/// forgotten them. Then the log is lost (R19).
pub fn restore<S>(
    stored: Recovered,
    mut epoch: u64,
    mut state: S,
    mut step: impl FnMut(&S, &Head, &Link) -> Option<S>,
    mut reads: impl FnMut(Name) -> bool,
) -> Restored<S> {
    let Recovered { mut lineage, marks, votes, forgotten } = stored;
    let known = lineage.last().map_or(0, |(head, _)| head.epoch);
    let index = |epoch| usize::try_from(epoch).unwrap_or(usize::MAX);
    for (head, link) in lineage.get(index(epoch)..).unwrap_or_default() {
        let Some(next) = step(&state, head, link) else { break };
        (epoch, state) = (head.epoch, next);
    }
    lineage.truncate(index(epoch));
    let name = |voted: &Voted| Name { epoch: voted.roster.series.epoch, digest: voted.update };
    let named: BTreeSet<Name> = log::voted_beyond(&votes, epoch).map(name).collect();
    let held = named.into_iter().filter(|name| reads(*name)).map(|name| name.digest).collect();
    let is_lost = log::unreadable(&votes, epoch, &held).is_some() || epoch < forgotten;
    let (votes, forgotten) = if is_lost { (Vec::new(), 0) } else { (votes, forgotten) };
    let recovered = Recovered { lineage, marks, votes, forgotten };
    Restored { state, recovered, known, held, is_lost }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(epoch: u8) -> Head {
        Head { epoch: epoch.into(), tokens: 9, state: Digest([epoch; 32]) }
    }

    #[test]
    fn what_is_being_fetched_stays_served_and_no_more_than_two() {
        let mut states = Checkpoints::new(head(0), None, Some(Digest([99; 32])));
        let at = |s| Time::ZERO + Duration::from_secs(s);
        let save = |states: &mut Checkpoints, epoch: u8, s| {
            states.newest = head(epoch);
            assert_eq!(states.due(), Some(head(epoch)));
            assert_eq!(states.due(), None, "one at a time");
            states.forget(at(s));
            states.saved()
        };
        for epoch in 1..=3 {
            assert!(save(&mut states, epoch, 0).is_empty());
            assert!(states.ask(at(epoch.into()), Digest([epoch; 32])).is_some());
        }
        assert!(save(&mut states, 4, 5).is_empty() && save(&mut states, 5, 5).is_empty());
        assert_eq!(states.whole(), 5);
        // The third state that needs a pin takes that of the one that was requested longest ago.
        assert_eq!(save(&mut states, 6, 5), [Digest([1; 32])]);
        assert_eq!(save(&mut states, 7, 5), [Digest([4; 32])], "nobody asked for it");
        assert_eq!(
            states.ask(at(40), Digest([3; 32])),
            Some(Location::Checkpoint(Digest([3; 32])))
        );
        assert_eq!(states.ask(at(40), Digest([7; 32])), Some(Location::Newest));
        assert_eq!(
            states.ask(at(40), Digest([99; 32])),
            Some(Location::Checkpoint(Digest([99; 32])))
        );
        assert_eq!(states.ask(at(40), Digest([1; 32])), None);
        assert_eq!(states.forget(at(63)), [Digest([2; 32])]);
        assert_eq!(states.ask(at(63), Digest([2; 32])), None);
    }

    #[test]
    fn a_request_for_the_state_that_is_being_written_waits_for_the_disk() {
        let mut states = Checkpoints::new(head(1), None, None);
        let (now, late) = (Time::ZERO, Time::ZERO + WAIT);
        assert!(!states.wait(now, Inquiry(1), head(1).state), "nobody writes it");
        assert!(states.due().is_some());
        states.newest = head(2);
        assert_eq!(states.ask(now, head(1).state), None, "it is on the disk only in part");
        assert!(states.wait(now, Inquiry(1), head(1).state));
        assert!(states.answered(now).is_empty());
        assert_eq!(
            (states.deadline(), states.answered(late)),
            (Some(late), vec![(Inquiry(1), None)])
        );
        assert!(states.wait(now, Inquiry(2), head(1).state));
        states.saved();
        let there = Some(Location::Checkpoint(head(1).state));
        assert_eq!(states.answered(now), [(Inquiry(2), there)]);
        assert!(states.due().is_some() && states.wait(now, Inquiry(3), head(2).state));
        states.saving = None;
        states.newest = head(3);
        assert_eq!(states.answered(now), [(Inquiry(3), None)], "the disk refused it");
    }

    #[test]
    fn a_fetched_state_is_the_head_once_it_is_on_disk() {
        let mut states = Checkpoints::new(head(1), Some(head(1)), None);
        assert_eq!(states.due(), None, "it is there");
        states.newest = head(5);
        states.loaded = Some(head(5));
        assert!(states.due().is_some() && states.take_loaded().is_none());
        states.saving = None;
        assert!(states.loaded.is_some() && states.due().is_some());
        states.saved();
        assert_eq!((states.take_loaded(), states.loaded), (Some(head(5)), None));
    }
}
