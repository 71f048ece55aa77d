//! The state that lives as long as one epoch: entering the next one creates it anew, and nothing
//! else resets any of it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::base::id::{Digest, PeerId};
use crate::base::sign::Signature;
use crate::base::time::Time;
use crate::history::evidence;
use crate::machine::event::{Event, Reason};
use crate::machine::output::Output;
use crate::machine::step::Step;
use crate::message::{
    CHUNKS_MAX, Finished, Head, Heard, Loss, Opening, QuorumRule, Receipt, Roster, Series, Voted,
    Voter,
};

use super::ballot::{Ballot, RingState, Vote};
use super::chunks::FinishedChunks;
use super::ground::Grounds;
use super::interface::Durability;
use super::series::{Adopted, SeriesState, Stage};
use super::updates::StoredUpdates;
use super::waited::Waited;

/// What is known of the open epoch.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    /// What we committed last: this epoch follows on it.
    pub(super) head: Head,
    /// The voters that the last receipt names.
    pub(super) base: Vec<Voter>,
    /// When the epoch began here. Times to Ready count from it.
    pub(super) began: Time,
    /// Our delta, once it is frozen; every attempt of the epoch takes the same one (R31).
    pub(super) frozen: Option<Frozen>,
    /// What each peer that is Ready has declared (R31).
    pub(super) ready: BTreeMap<PeerId, Declared>,
    /// For whom the first attempt has waited (G5).
    pub(super) waited: Waited,
    /// Every roster of this epoch that we know of, by digest, of all its series: the chunks of an
    /// earlier ring may be kept (R10). At most [`BALLOTS_MAX`].
    pub(super) ballots: BTreeMap<Digest, Ballot>,
    /// The Regroups that have led to the open series, in order.
    pub(super) openings: Vec<Opening>,
    /// The series of this epoch that we have been in, the open one last.
    pub(super) chain: Vec<Series>,
    /// The value that a Regroup brought along (R13).
    pub(super) forced: Option<Receipt>,
    /// The votes that are proven to us (R8).
    pub(super) grounds: Grounds,
    /// Voters that another peer has reported as alive (G6).
    pub(super) reported_alive: BTreeSet<PeerId>,
    /// Attempts in which we took part, and waits of ours, that failed; all timers double with each,
    /// so that attempts outlast any real delay (R39). No number that others name counts.
    pub(super) failures: u32,
    /// The updates of this epoch that are stored here.
    pub(super) updates: StoredUpdates,
    /// The finished chunks of this epoch's rings that are stored here.
    pub(super) chunks: FinishedChunks,
    /// Receipts of decided values whose bytes nobody serves (R25).
    pub(super) unserved: BTreeSet<Digest>,
    /// The roster that another peer's `Commit` decided for us.
    pub(super) commit_heard: Option<Digest>,
    /// The open series, the last one of `chain`.
    pub(super) series: SeriesState,
}

/// Our own Ready: what we declare to the others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frozen {
    /// The tokens that the delta was trained on, at most what an epoch can hold (G11).
    pub(super) weight: u64,
    /// Norm of the delta, and loss of its training: for people only.
    pub(super) norm: f32,
    pub(super) loss: Loss,
    /// When it was frozen, which is our own time to Ready.
    pub(super) at: Time,
}

/// What one peer declared by its `Ready`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Declared {
    pub(super) incarnation: u64,
    pub(super) weight: u64,
    /// When a `Ready` of any of its starts was heard first. Waits begin with it, so a peer that declares
    /// one start after another prolongs none.
    pub(super) first: Time,
    /// When that of this start was heard.
    pub(super) at: Time,
}

/// The most rosters that are remembered of one epoch: honest peers make one per attempt and
/// proposer.
const BALLOTS_MAX: usize = 512;

/// The most rosters that are remembered although only votes on them are known.
const UNKNOWN_MAX: usize = 128;

/// The most peers that one fetch names.
const ASKED_MAX: usize = 32;

impl Slot {
    /// The epoch after `head`, in its series without Regroups.
    pub(super) fn new(now: Time, head: Head, voters: Vec<Voter>) -> Self {
        let series = Series::after(&head);
        Self {
            head,
            base: voters.clone(),
            began: now,
            frozen: None,
            ready: BTreeMap::new(),
            waited: Waited::default(),
            ballots: BTreeMap::new(),
            openings: Vec::new(),
            chain: vec![series],
            forced: None,
            grounds: Grounds::default(),
            reported_alive: BTreeSet::new(),
            failures: 0,
            updates: StoredUpdates::default(),
            chunks: FinishedChunks::default(),
            unserved: BTreeSet::new(),
            commit_heard: None,
            series: SeriesState::new(now, series, voters),
        }
    }

    /// Enters the series that a Regroup has opened.
    pub(super) fn enter(&mut self, now: Time, opening: Opening, series: Series) {
        let found = opening.ground.as_deref().map(Voted::receipt);
        self.forced = found.or_else(|| self.forced.take());
        let voters = opening.regroup.members.clone();
        // Votes on rosters that never came are about the series that is left, whatever comes later.
        self.ballots.retain(|_, ballot| ballot.roster.is_some());
        self.openings.push(opening);
        self.chain.push(series);
        self.series = SeriesState::new(now, series, voters);
    }

    /// Counts an attempt of ours that failed, or a wait that passed: the next timers are longer.
    pub(super) fn count_failure(&mut self) {
        self.failures = self.failures.saturating_add(1);
    }

    /// Notes that an update is stored here, and how safely.
    pub(super) fn hold(&mut self, update: Digest, durability: Durability) {
        self.updates.insert(update, durability);
        self.series.fetching.take_if(|(fetched, _)| *fetched == update);
    }

    /// Our own ring has computed the update of a roster.
    pub(super) fn end_ring(&mut self, roster: Digest, update: Digest) {
        self.updates.insert(update, Durability::Flushed);
        if let Some(ballot) = self.ballots.get_mut(&roster) {
            ballot.computed = Some(update);
            ballot.ring = RingState::Closed;
        }
    }

    /// Stops our own ring of a roster, if it still runs.
    pub(super) fn stop_ring(&mut self, step: &mut Step<'_>, roster: Digest) {
        if let Some(ballot) = self.ballots.get_mut(&roster)
            && ballot.ring == RingState::Running
        {
            ballot.ring = RingState::Lost;
            step.put(Output::Abandon(roster));
        }
    }

    /// Gives up the roster under way, if there is one.
    pub(super) fn abort(&mut self, step: &mut Step<'_>, reason: Reason) {
        let Stage::Open { roster: digest, progress, .. } = self.series.stage else { return };
        self.stop_ring(step, digest);
        // This counts for all members, no matter which of them ended the attempt. Among peers whose waits are too
        // short for a bad link, the hastiest one ends the attempt for all, and each time it may be
        // another one.
        self.count_failure();
        let attempt = self.roster(&digest).map_or(0, |roster| roster.attempt);
        let epoch = self.series.name.epoch;
        step.put(Output::Event(Event::Aborted { epoch, attempt, phase: progress, reason }));
        self.series.stage = Stage::Idle { left_out: None };
    }

    /// The body of a roster, if it is known.
    pub(super) fn roster(&self, digest: &Digest) -> Option<&Arc<Roster>> {
        self.ballots.get(digest).and_then(|ballot| ballot.roster.as_ref())
    }

    /// The ballot of a roster. A full table drops a ballot of the lowest attempt that does not bind
    /// `me`.
    pub(super) fn ballot(&mut self, me: &PeerId, digest: Digest) -> &mut Ballot {
        if self.ballots.len() >= BALLOTS_MAX && !self.ballots.contains_key(&digest) {
            let binds = |b: &Ballot| b.accepts.contains_key(me) || b.dones.contains_key(me);
            let free = self.ballots.iter().filter(|(_, ballot)| !binds(ballot));
            let lowest = free.min_by_key(|(_, ballot)| ballot.attempt()).map(|(digest, _)| *digest);
            lowest.and_then(|lowest| self.ballots.remove(&lowest));
        }
        self.ballots.entry(digest).or_default()
    }

    /// The ballot of a roster that a peer votes on, if the roster is known or there is room to wait
    /// for it.
    pub(super) fn ballot_voted_on(&mut self, me: &PeerId, digest: Digest) -> Option<&mut Ballot> {
        let unknown = |ballot: &&Ballot| ballot.roster.is_none();
        let room = || self.ballots.values().filter(unknown).count() < UNKNOWN_MAX;
        (self.ballots.contains_key(&digest) || room()).then(|| self.ballot(me, digest))
    }

    /// The peers that had a ring position in any roster of this epoch.
    pub(super) fn members_seen(&self) -> BTreeSet<PeerId> {
        let rosters = self.ballots.values().filter_map(|ballot| ballot.roster.as_ref());
        rosters.flat_map(|roster| roster.ring()).map(|member| member.peer).collect()
    }

    /// The peers that may have an update: those that voted for it or prepared it, the proposers of
    /// rosters that adopt it with the voters that these have heard, and all voters if a Regroup
    /// forces it.
    pub(super) fn holders(&self, me: PeerId, update: Digest) -> Vec<PeerId> {
        let mut from: Vec<PeerId> = Vec::new();
        for ballot in self.ballots.values() {
            let voted = ballot.dones.iter().filter(|(_, vote)| vote.update == update);
            from.extend(voted.map(|(peer, _)| *peer));
            let prepared = ballot.prepared.iter().filter(|(_, (held, _))| *held == update);
            from.extend(prepared.map(|(peer, _)| *peer));
        }
        for roster in self.ballots.values().filter_map(|ballot| ballot.roster.as_ref()) {
            if roster.adopt.as_ref().is_some_and(|receipt| receipt.update == update) {
                from.push(roster.proposer);
                from.extend(roster.heard.iter().map(|heard| heard.voter.peer));
            }
        }
        let forced = self.forced.as_ref().is_some_and(|forced| forced.update == update);
        if forced {
            from.extend(self.series.voters.iter().map(|voter| voter.peer));
        }
        let mut seen = BTreeSet::from([me]);
        from.retain(|peer| seen.insert(*peer));
        from.truncate(ASKED_MAX);
        from
    }

    /// G14: a vote that we hold and that a Status of its author denies, with its roster; the author
    /// signed both.
    pub(super) fn denied(&self, heard: &Heard, attempt: u64) -> Option<(Vote, Arc<Roster>)> {
        let rank = heard.done.map_or(0, |vote| vote.attempt);
        self.ballots.values().find_map(|ballot| {
            let (vote, roster) = (ballot.dones.get(&heard.voter.peer)?, ballot.roster.as_ref()?);
            let here = roster.series == self.series.name;
            let hidden = here && rank < roster.attempt && roster.attempt < attempt;
            hidden.then(|| (*vote, Arc::clone(roster)))
        })
    }

    /// The series that we have been in, each with its voters.
    pub(super) fn chain(&self) -> Vec<(Series, Vec<Voter>)> {
        let opened = self.openings.iter().map(|opening| &opening.regroup.members);
        let voters = [&self.base].into_iter().chain(opened);
        self.chain.iter().copied().zip(voters.cloned()).collect()
    }

    /// How many Regroups of this epoch led to the open series. No vote can have a greater depth.
    pub(super) fn depth(&self) -> u32 {
        u32::try_from(self.openings.len()).unwrap_or(u32::MAX)
    }

    /// The ballot of another roster that its proposer made in the same series, attempt and start (R2).
    pub(super) fn other_proposed(&self, digest: Digest, roster: &Roster) -> Option<&Ballot> {
        let start = evidence::start_of(roster, &roster.proposer)?;
        let twice = |other: &Roster| evidence::start_of(other, &other.proposer) == Some(start);
        self.others(digest).find_map(|(ballot, other)| twice(other).then_some(ballot))
    }

    /// Another roster of this series and attempt that a peer has accepted in the same start (R1), with
    /// the signature of its Accept.
    pub(super) fn other_accepted(
        &self,
        peer: &PeerId,
        digest: Digest,
    ) -> Option<(Signature, Arc<Roster>)> {
        let start = evidence::start_of(self.roster(&digest)?, peer)?;
        self.others(digest).find_map(|(ballot, other)| {
            let (signature, roster) = (ballot.accepts.get(peer)?, ballot.roster.as_ref()?);
            let twice = evidence::start_of(other, peer) == Some(start);
            twice.then(|| (*signature, Arc::clone(roster)))
        })
    }

    /// The other rosters of this epoch that are known, each with its ballot.
    fn others(&self, digest: Digest) -> impl Iterator<Item = (&Ballot, &Roster)> {
        let others = self.ballots.iter().filter(move |(other, _)| **other != digest);
        others.filter_map(|(_, ballot)| Some((ballot, ballot.roster.as_deref()?)))
    }

    /// The update of a roster, as far as we know: what a quorum holds, else what our own ring
    /// computed, what the roster adopts, what others voted for, or what most others hold.
    pub(super) fn value(&self, rule: QuorumRule, digest: Digest) -> Option<Digest> {
        let ballot = self.ballots.get(&digest)?;
        let prepared = ballot.most_prepared();
        let voters = &self.series.voters;
        if let Some(update) = prepared.filter(|update| ballot.is_prepared(rule, voters, update)) {
            return Some(update);
        }
        let adopted = || ballot.roster.as_ref()?.adopt.as_ref().map(|receipt| receipt.update);
        let voted = || ballot.value().map(|vote| vote.update);
        ballot.computed.or_else(adopted).or_else(voted).or(prepared)
    }

    /// Whether a roster's update is known to exist: our own ring computed it, or more voters than
    /// may lie say that they hold it.
    pub(super) fn has_update(&self, rule: QuorumRule, digest: &Digest) -> bool {
        let Some(ballot) = self.ballots.get(digest) else { return false };
        let holders: BTreeSet<&PeerId> =
            ballot.dones.keys().chain(ballot.prepared.keys()).collect();
        ballot.computed.is_some() || holders.len() > rule.liars(self.series.voters.len())
    }

    /// The finished chunks that a `Report` names; if there are too many, those of the latest rings.
    pub(super) fn finished(&self) -> Vec<Finished> {
        let mut all: Vec<Finished> = self.chunks.all().collect();
        let attempt = |f: &Finished| self.roster(&f.roster).map_or(0, |roster| roster.attempt);
        all.sort_by_key(|finished| Reverse(attempt(finished)));
        all.truncate(CHUNKS_MAX);
        all
    }

    /// Whether we have accepted nothing in this epoch, and know of no vote in it.
    pub(super) fn is_untouched(&self, me: &PeerId) -> bool {
        let touched = |ballot: &Ballot| ballot.accepts.contains_key(me) || !ballot.dones.is_empty();
        !self.ballots.values().any(touched)
    }

    /// R8: whether a peer votes for an update that it does not deliver.
    pub(super) fn withholds(&self, peer: &PeerId) -> bool {
        let missing = |(update, adopted): (&Digest, &Adopted)| {
            adopted.missed && adopted.from.contains(peer) && !self.updates.is_stored(update)
        };
        self.series.adopted.iter().any(missing)
    }

    /// Notes what a peer has declared. Voters are remembered even if they are forgotten elsewhere:
    /// how long they took counts (R36).
    pub(super) fn declare(&mut self, step: &Step<'_>, peer: PeerId, start: u64, weight: u64) {
        let first = self.ready.get(&peer).map_or(step.now, |known| known.first);
        self.ready.insert(peer, Declared { incarnation: start, weight, first, at: step.now });
        step.table.bound(&mut self.ready, |peer| self.series.names_voter(peer));
    }

    /// The weight of our frozen delta; 0 while there is none.
    pub(super) fn frozen_weight(&self) -> u64 {
        self.frozen.map_or(0, |frozen| frozen.weight)
    }

    /// The weight that a peer has declared in this incarnation.
    pub(super) fn ready_of(&self, peer: &PeerId, incarnation: u64) -> Option<u64> {
        let declared = self.ready.get(peer);
        declared.filter(|known| known.incarnation == incarnation).map(|known| known.weight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::LogId;
    use crate::machine::table::{PEERS_MAX, key, passing};

    #[test]
    fn strangers_that_are_ready_under_one_key_after_another_push_nobody_out() {
        let head = Head { epoch: 0, tokens: 0, state: Digest::ZERO };
        let voter = Voter { peer: PeerId([1; 32]), log: LogId([1; 16]) };
        let mut slot = Slot::new(Time::ZERO, head, vec![voter]);
        passing(|table, peer| {
            let step = Step { now: Time::ZERO, table, out: &mut Vec::new() };
            slot.declare(&step, voter.peer, 1, 2);
            slot.declare(&step, peer, 1, 3);
        });
        assert!(slot.ready.len() <= PEERS_MAX, "{}", slot.ready.len());
        assert_eq!(slot.ready_of(&voter.peer, 1), Some(2), "it votes");
        assert_eq!(slot.ready_of(&key(0), 1), Some(3), "it is still heard");
    }
}
