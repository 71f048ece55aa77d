//! What lives as long as one epoch: entering the next one makes it anew, and nothing else resets any of it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::base::id::{Digest, PeerId};
use crate::base::time::Time;
use crate::message::{
    CHUNKS_MAX, Finished, Head, Heard, Opening, QuorumRule, Receipt, Roster, Series, Voted, Voter,
};

use super::ballot::Ballot;
use super::debts::Debts;
use super::ground::Grounds;
use super::held::Held;
use super::loss::Losses;
use super::remains::Remains;
use super::series::{Adopted, SeriesState};

/// One epoch.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    /// What it follows on.
    pub(super) head: Head,
    /// The voters that the last receipt names.
    pub(super) base: Vec<Voter>,
    pub(super) began: Time,
    pub(super) frozen: Option<Frozen>,
    /// The peers that are Ready (R31).
    pub(super) ready: BTreeMap<PeerId, Declared>,
    pub(super) ballots: BTreeMap<Digest, Ballot>,
    /// The Regroups that have led to the open series.
    pub(super) openings: Vec<Opening>,
    /// The series that we have been in, ours last.
    pub(super) chain: Vec<Series>,
    /// The value that a Regroup brought along.
    pub(super) forced: Option<Receipt>,
    /// The votes that are proven to us (R8).
    pub(super) grounds: Grounds,
    /// Ring neighbours reported lost.
    pub(super) lost: Losses,
    /// Who owes a word (G9).
    pub(super) debts: Debts,
    /// Voters that somebody else has heard (G6).
    pub(super) vouched: BTreeSet<PeerId>,
    pub(super) failures: Failures,
    /// Pairs whose link is broken although both live (R35).
    pub(super) broken: BTreeSet<(PeerId, PeerId)>,
    pub(super) held: Held,
    pub(super) remains: Remains,
    /// Decided values whose bytes nobody serves (R25).
    pub(super) unserved: BTreeSet<Digest>,
    /// The roster that somebody else's `Commit` decided for us.
    pub(super) commit_heard: Option<Digest>,
    pub(super) series: SeriesState,
}

/// A delta that is frozen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frozen {
    pub(super) weight: u64,
    pub(super) norm: f32,
    pub(super) at: Time,
}

/// What has come to nothing in the open epoch.
#[derive(Clone, Debug, Default)]
pub(super) struct Failures {
    /// Waits for a voter's roster, and its attempts, that came to nothing (G3).
    pub(super) of: BTreeMap<PeerId, u32>,
    /// Attempts in which we took part, and waits of ours: all timers double with each (R39).
    pub(super) here: u32,
}

impl Failures {
    pub(super) fn count_here(&mut self) {
        self.here = self.here.saturating_add(1);
    }

    /// b: doubles with each deadline that has passed here, so that attempts outlast any real delay (R39).
    /// No number that others name counts (G2).
    pub(super) fn back_off(&self) -> u32 {
        1 << self.here.min(super::timing::DOUBLINGS_MAX)
    }
}

/// What a peer has declared.
#[derive(Clone, Copy, Debug)]
pub(super) struct Declared {
    pub(super) incarnation: u64,
    pub(super) weight: u64,
    /// When that was first heard.
    pub(super) at: Time,
}

/// The most rosters that are remembered of one epoch: honest peers make one per attempt and
/// proposer.
const BALLOTS_MAX: usize = 512;

/// The most rosters that are remembered although they are known only from votes on them.
const UNKNOWN_MAX: usize = 128;

/// Peers named in one fetch.
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
            ballots: BTreeMap::new(),
            openings: Vec::new(),
            chain: vec![series],
            forced: None,
            grounds: Grounds::default(),
            lost: Losses::default(),
            debts: Debts::default(),
            vouched: BTreeSet::new(),
            failures: Failures::default(),
            broken: BTreeSet::new(),
            held: Held::default(),
            remains: Remains::default(),
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
        self.openings.push(opening);
        self.chain.push(series);
        self.series = SeriesState::new(now, series, voters);
    }

    /// A roster, if its body is known.
    pub(super) fn roster(&self, digest: &Digest) -> Option<&std::sync::Arc<Roster>> {
        self.ballots.get(digest).and_then(|ballot| ballot.roster.as_ref())
    }

    /// The ballot of a roster. Where there is no room, one of the lowest attempt gives way that does not
    /// bind `me`.
    pub(super) fn ballot(&mut self, me: &PeerId, digest: Digest) -> &mut Ballot {
        if self.ballots.len() >= BALLOTS_MAX && !self.ballots.contains_key(&digest) {
            let binds = |b: &Ballot| b.accepts.contains_key(me) || b.dones.contains_key(me);
            let free = self.ballots.iter().filter(|(_, ballot)| !binds(ballot));
            let lowest = free.min_by_key(|(_, ballot)| ballot.attempt()).map(|(digest, _)| *digest);
            lowest.and_then(|lowest| self.ballots.remove(&lowest));
        }
        self.ballots.entry(digest).or_default()
    }

    /// The ballot that somebody votes on, if its roster is known, or there is room to wait for it.
    pub(super) fn ballot_voted_on(&mut self, me: &PeerId, digest: Digest) -> Option<&mut Ballot> {
        let unknown = |ballot: &&Ballot| ballot.roster.is_none();
        let room = || self.ballots.values().filter(unknown).count() < UNKNOWN_MAX;
        (self.ballots.contains_key(&digest) || room()).then(|| self.ballot(me, digest))
    }

    /// Who was named with a place in a roster of this epoch.
    pub(super) fn members_seen(&self) -> BTreeSet<PeerId> {
        let rosters = self.ballots.values().filter_map(|ballot| ballot.roster.as_ref());
        rosters.flat_map(|roster| roster.ring()).map(|member| member.peer).collect()
    }

    /// The peers that may have an update: those that voted for it, the proposers of rosters that
    /// adopt it and the voters whom these have heard, and all voters if a Regroup forces it.
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

    /// G14: a voter that says in a Status that it has not voted as it did. Both are signed by it.
    pub(super) fn contradicts(&self, heard: &Heard, attempt: u64) -> bool {
        let rank = heard.done.map_or(0, |vote| vote.attempt);
        let ballots = self.ballots.values();
        let mut voted = ballots.filter(|b| b.dones.contains_key(&heard.voter.peer));
        voted.any(|ballot| {
            ballot.roster.as_ref().is_some_and(|roster| {
                roster.series == self.series.name
                    && rank < roster.attempt
                    && roster.attempt < attempt
            })
        })
    }

    /// The series that we have been in, each with its voters.
    pub(super) fn chain(&self) -> Vec<(Series, Vec<Voter>)> {
        let opened = self.openings.iter().map(|opening| &opening.regroup.members);
        let voters = [&self.base].into_iter().chain(opened);
        self.chain.iter().copied().zip(voters.cloned()).collect()
    }

    pub(super) fn depth(&self) -> u32 {
        u32::try_from(self.openings.len()).unwrap_or(u32::MAX)
    }

    /// Whether the proposer, in the same incarnation, has proposed another roster at this attempt.
    pub(super) fn has_proposed_another(&self, digest: Digest, roster: &Roster) -> bool {
        let start = |r: &Roster| r.member(&r.proposer).map(|m| (m.peer, m.incarnation, r.attempt));
        let known = self.ballots.iter().filter(|(other, _)| **other != digest);
        let mut rosters = known.filter_map(|(_, ballot)| ballot.roster.as_ref());
        rosters.any(|other| start(other) == start(roster))
    }

    /// The update of a roster, as far as we know: what a quorum holds, our own ring gave or it adopts, or what others
    /// hold or have voted for.
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

    /// The finished chunks that a `Report` names: of the latest rings, where they are too many.
    pub(super) fn finished(&self) -> Vec<Finished> {
        let mut all: Vec<Finished> = self.remains.all().collect();
        let attempt = |f: &Finished| self.roster(&f.roster).map_or(0, |roster| roster.attempt);
        all.sort_by_key(|finished| Reverse(attempt(finished)));
        all.truncate(CHUNKS_MAX);
        all
    }

    pub(super) fn oldest_ready(&self) -> Option<Time> {
        self.ready.values().map(|declared| declared.at).min()
    }

    /// Who was in every ring of this epoch that was lost, and in none that ended: when one member is silent,
    /// all of them blame their neighbours at once.
    pub(super) fn stallers(&self) -> BTreeSet<PeerId> {
        let ring = |ballot: &Ballot| -> BTreeSet<PeerId> {
            ballot.roster.iter().flat_map(|r| r.ring()).map(|member| member.peer).collect()
        };
        let all = || self.ballots.values();
        let lost = all().filter(|ballot| ballot.is_ring_lost()).map(ring);
        let lost = lost.reduce(|a, b| a.intersection(&b).copied().collect()).unwrap_or_default();
        let ended: BTreeSet<PeerId> =
            all().filter(|b| !b.dones.is_empty()).flat_map(ring).collect();
        lost.difference(&ended).copied().collect()
    }

    /// Whether a ring of this epoch was lost.
    pub(super) fn any_ring_lost(&self) -> bool {
        self.ballots.values().any(Ballot::is_ring_lost)
    }

    /// Whether nobody has accepted, or voted for, anything in this epoch that we know of.
    pub(super) fn is_untouched(&self, me: &PeerId) -> bool {
        let touched = |ballot: &Ballot| ballot.accepts.contains_key(me) || !ballot.dones.is_empty();
        !self.ballots.values().any(touched)
    }

    /// R8: whether it votes for what it does not deliver.
    pub(super) fn withholds(&self, peer: &PeerId) -> bool {
        let missing = |(update, adopted): (&Digest, &Adopted)| {
            adopted.missed && adopted.from.contains(peer) && !self.held.is_here(update)
        };
        self.series.adopted.iter().any(missing)
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
