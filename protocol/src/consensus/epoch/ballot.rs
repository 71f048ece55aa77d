//! One ballot: a roster, and the accepts and votes for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::base::id::{Digest, PeerId};
use crate::base::sign::{Signature, Verified};
use crate::message::{Message, QuorumRule, Roster, Series, Voter};

/// A roster, as far as it is known.
#[derive(Clone, Debug, Default)]
pub(super) struct Ballot {
    /// The roster itself; `None` while only accepts and votes that name its digest are here.
    pub(super) roster: Option<Arc<Roster>>,
    /// The message of its proposer, to pass on.
    pub(super) signed: Option<Arc<Verified<Message>>>,
    /// The peers that accept it, each with the signature over its `Accept`.
    pub(super) accepts: BTreeMap<PeerId, Signature>,
    /// The peers for which it comes too early, as they have told us, its proposer.
    pub(super) early: BTreeSet<PeerId>,
    /// The update that each voter says it holds, with the signature over its `Prepared`.
    pub(super) prepared: BTreeMap<PeerId, (Digest, Signature)>,
    /// What each peer has voted for, the first vote of each. Only those of voters are counted.
    pub(super) dones: BTreeMap<PeerId, Vote>,
    /// Whether a ring of ours runs for this roster.
    pub(super) ring: RingState,
    /// The update that our own ring computed.
    pub(super) computed: Option<Digest>,
}

/// A `Done` that was read: the receipt and the update that it is for, and the signature, which a
/// certificate carries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vote {
    pub(super) r: Digest,
    pub(super) update: Digest,
    pub(super) signature: Signature,
}

/// How far our ring of a roster is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum RingState {
    /// None runs: it has not begun, or it has ended with the whole update.
    #[default]
    Closed,
    /// It runs. Until it ends, or its time is over, the update is not fetched.
    Running,
    /// It stopped before its end, or was abandoned, or belongs to an earlier start of this peer.
    Lost,
}

impl Ballot {
    /// The attempt of its roster; 0 while the roster is not known.
    pub(super) fn attempt(&self) -> u64 {
        self.roster.as_ref().map_or(0, |roster| roster.attempt)
    }

    /// Whether what a message of this series says can be about its roster, as far as that is known.
    pub(super) fn is_of(&self, series: &Series) -> bool {
        self.roster.as_ref().is_none_or(|roster| roster.series == *series)
    }

    /// The value that most voters have voted for. One roster has one value (R11): among honest
    /// voters, all agree.
    pub(super) fn value(&self) -> Option<Vote> {
        let first = self.dones.values().next()?;
        let count = |vote: &Vote| self.dones.values().filter(|other| other.r == vote.r).count();
        if count(first) == self.dones.len() {
            return Some(*first);
        }
        self.dones.values().max_by_key(|vote| (count(vote), vote.r)).copied()
    }

    /// The update that most voters say they hold.
    pub(super) fn most_prepared(&self) -> Option<Digest> {
        let updates = || self.prepared.values().map(|(update, _)| *update);
        updates().max_by_key(|update| (updates().filter(|other| other == update).count(), *update))
    }

    /// Whether a quorum of the voters that its roster names holds an update.
    pub(super) fn is_prepared(&self, rule: QuorumRule, voters: &[Voter], update: &Digest) -> bool {
        let names = |v: &Voter| {
            self.roster.as_ref().is_some_and(|r| r.members.iter().any(|m| m.voter() == *v))
        };
        let says = |v: &Voter| self.prepared.get(&v.peer).is_some_and(|(held, _)| held == update);
        rule.holds(voters, |voter| names(voter) && says(voter))
    }

    /// The signatures that are the ground of a vote for this update (R5).
    pub(super) fn ground(
        &self,
        rule: QuorumRule,
        voters: &[Voter],
        update: Digest,
    ) -> Vec<(PeerId, Signature)> {
        let Some(roster) = &self.roster else { return Vec::new() };
        let votes = |peer: &PeerId| voters.iter().any(|voter| voter.peer == *peer);
        if !(rule.prepares() && roster.is_free()) {
            return self.acceptors(roster).filter(|(peer, _)| votes(peer)).collect();
        }
        // A voter may have prepared before we knew the roster, and turn out to be no member.
        let holds = |peer: &PeerId| votes(peer) && roster.member(peer).is_some();
        let held = self.prepared.iter().filter(|(peer, (u, _))| *u == update && holds(peer));
        held.map(|(peer, (_, signature))| (*peer, *signature)).collect()
    }

    /// The members of this ballot's roster that accepted it, each with its signature.
    pub(super) fn acceptors(&self, roster: &Roster) -> impl Iterator<Item = (PeerId, Signature)> {
        let members = self.accepts.iter().filter(|(peer, _)| roster.member(peer).is_some());
        members.map(|(peer, signature)| (*peer, *signature))
    }

    /// Whether this peer has voted for the receipt with that digest.
    pub(super) fn has_voted(&self, peer: &PeerId, r: Digest) -> bool {
        self.dones.get(peer).is_some_and(|vote| vote.r == r)
    }

    /// R11: whether all votes are for one value.
    pub(super) fn has_one_value(&self) -> bool {
        let mut values = self.dones.values().map(|vote| vote.r);
        let first = values.next();
        values.all(|r| Some(r) == first)
    }
}
