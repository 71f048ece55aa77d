//! What lives as long as one epoch: entering the next one makes it anew, and nothing else resets any of it.

use std::collections::{BTreeMap, BTreeSet};

use crate::id::{Digest, PeerId};
use crate::message::{Head, Opening, Receipt, Roster, Series, Voted, Voter};
use crate::time::Time;

use super::ballot::Ballot;
use super::debts::Debts;
use super::ground::Grounds;
use super::held::Held;
use super::loss::Losses;
use super::remains::Remains;
use super::term::Term;

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
    pub(super) term: Term,
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
            term: Term::new(now, series, voters),
        }
    }

    /// Enters the series that a Regroup has opened.
    pub(super) fn enter(&mut self, now: Time, opening: Opening, series: Series) {
        let found = opening.ground.as_deref().map(Voted::receipt);
        self.forced = found.or_else(|| self.forced.take());
        let voters = opening.regroup.members.clone();
        self.openings.push(opening);
        self.chain.push(series);
        self.term = Term::new(now, series, voters);
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
}
