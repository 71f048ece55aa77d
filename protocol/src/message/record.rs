//! The records that messages are about: members and voters, heads, series, rosters and receipts.
//!
//! A record is data with small questions about it. Its bytes and digest are made in `wire`.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::base::blocks::Blocks;
use crate::base::id::{Digest, LogId, PeerId};
use crate::base::sign::Signature;

use super::kept::{Keep, Part, names};
use super::trust::Admissions;

/// Most members of a roster, with or without a position: what fits a gossiped message.
pub const MEMBERS_MAX: usize = 256;

/// A voter: a peer together with its log of votes. With another log it is another voter (R19).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Voter {
    /// The peer, named by its public key.
    pub peer: PeerId,
    /// The log of votes that binds it.
    pub log: LogId,
}

/// One member of a roster or receipt.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Member {
    /// The peer, named by its public key.
    pub peer: PeerId,
    /// The log of votes that binds it.
    pub log: LogId,
    /// The start of the peer that froze the delta.
    pub incarnation: u64,
    /// The tokens that its delta was trained on; 0 is a member without a position in the ring, which only votes.
    pub weight: u64,
}

impl Member {
    /// The voter that this member becomes with the receipt (R18).
    #[must_use]
    pub fn voter(&self) -> Voter {
        Voter { peer: self.peer, log: self.log }
    }
}

/// The state that a peer committed last, by digest. A head in a heartbeat or an answer is a claim;
/// its links prove it up to the state before the last epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Head {
    /// The number of epochs committed on its lineage.
    pub epoch: u64,
    /// The number of tokens committed on its lineage.
    pub tokens: u64,
    /// The digest of the committed state.
    pub state: Digest,
}

/// The rank of a head in the one order of heads (R23, G11): by the number of the highest attestation that its
/// lineage lies on, then by tokens, then by the smaller digest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Rank {
    /// The number of that attestation; 0 is none.
    pub attested: u64,
    tokens: u64,
    state: Reverse<Digest>,
}

impl Head {
    /// Its rank, if `attested` is the number of the highest attestation that its lineage lies on.
    #[must_use]
    pub fn rank(&self, attested: u64) -> Rank {
        Rank { attested, tokens: self.tokens, state: Reverse(self.state) }
    }
}

/// One series of ballots, a configuration of voters. It never decides two values. Its voters are
/// not in it. They follow from the parent's receipt and the Regroup (S6).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Series {
    /// The epoch that the series decides.
    pub epoch: u64,
    /// The digest of the state before that epoch.
    pub parent: Digest,
    /// The last Regroup of this epoch and parent, as it was opened
    /// ([`opening_digest`](crate::message::wire::opening_digest)).
    pub regroup: Option<Digest>,
}

impl Series {
    /// The first series of the epoch after `head`.
    #[must_use]
    pub fn after(head: &Head) -> Self {
        Self { epoch: head.epoch.saturating_add(1), parent: head.state, regroup: None }
    }

    /// The series that an opening of this one leads to.
    #[must_use]
    pub fn regrouped(&self, opening: Digest) -> Self {
        Self { regroup: Some(opening), ..*self }
    }

    /// Whether both decide the same epoch after the same state.
    #[must_use]
    pub fn is_beside(&self, other: &Self) -> bool {
        (self.epoch, self.parent) == (other.epoch, other.parent)
    }
}

/// Whether the voters for which `has` holds are a majority: more than half of all, or exactly half
/// with the first one. Any two majorities share a voter. Of no voters there is none. So of two
/// voters the first can go on alone. A proposer therefore names no newcomer first (G7).
pub fn majority(voters: &[Voter], has: impl Fn(&Voter) -> bool) -> bool {
    let had = || voters.iter().filter(|voter| has(voter));
    let half = voters.len() / 2;
    had().nth(half).is_some()
        || (voters.len().is_multiple_of(2)
            && voters.first().is_some_and(&has)
            && had().count() == half)
}

/// How many voters decide, and whether fewer may go on without the others.
///
/// With [`Self::Byzantine`] at most f = ⌊(n − 1)/3⌋ of n voters may lie. Two quorums of ⌊(n + f)/2⌋ + 1 share f + 1
/// voters, one of them honest, and the n − f honest voters are a quorum (Malkhi and Reiter, "Byzantine Quorum
/// Systems", 1998).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QuorumRule {
    /// A majority decides. Survivors without one go on by a Regroup.
    Available,
    /// A majority decides. Without one everybody waits.
    Majority,
    /// ⌊(n + f)/2⌋ + 1 voters decide. Without them everybody waits; a Regroup can only found the run.
    Byzantine,
}

impl QuorumRule {
    /// Whether the voters for which `has` holds are a quorum.
    pub fn holds(self, voters: &[Voter], has: impl Fn(&Voter) -> bool) -> bool {
        match self {
            Self::Available | Self::Majority => majority(voters, has),
            Self::Byzantine => {
                voters.iter().filter(|voter| has(voter)).count() >= self.least(voters.len())
            }
        }
    }

    /// The smallest number of voters that is a quorum, whichever voters these are.
    #[must_use]
    pub fn least(self, voters: usize) -> usize {
        (voters + self.liars(voters)) / 2 + 1
    }

    /// How many voters may lie, of so many.
    #[must_use]
    pub fn liars(self, voters: usize) -> usize {
        if self.prepares() { voters.saturating_sub(1) / 3 } else { 0 }
    }

    /// Whether a vote on a free roster needs a quorum of [`Prepared`](super::Prepared) for its value.
    #[must_use]
    pub fn prepares(self) -> bool {
        self == Self::Byzantine
    }

    /// Whether survivors may go on without the others (R12).
    #[must_use]
    pub fn regroups(self) -> bool {
        self == Self::Available
    }
}

/// The result of an epoch, which the `Done`s sign. Its digest is `r`. It names no attempt and no
/// proposer: a value that a later attempt adopts keeps its receipt, and so its digest.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Receipt {
    /// The series in which the value was formed.
    pub series: Series,
    /// The tickets that it admits peers by, and the next notices (T1). Open runs have none.
    pub trust: Option<Box<Admissions>>,
    /// BLAKE3 of the bytes of the update.
    pub update: Digest,
    /// All members of the roster that formed it: the next voters (R18). Those with a position are in the
    /// sum of every block that no part has.
    pub members: Vec<Member>,
    /// The parts that earlier rosters computed, if chunks were kept (R32). They never cover all blocks.
    pub parts: Vec<Part>,
}

impl Receipt {
    /// The voters of the next epoch, before revocations (R18, T6).
    #[must_use]
    pub fn voters(&self) -> Vec<Voter> {
        self.members.iter().map(Member::voter).collect()
    }

    /// The member that is this start of `peer`.
    #[must_use]
    pub fn member(&self, peer: &PeerId, incarnation: u64) -> Option<&Member> {
        self.members.iter().find(|m| m.peer == *peer && m.incarnation == incarnation)
    }

    /// Whether the delta that `peer` froze in `incarnation` is spent in any block (R34).
    #[must_use]
    pub fn spends(&self, peer: &PeerId, incarnation: u64) -> bool {
        let mut parts = self.parts.iter();
        names(&self.members, peer, incarnation)
            || parts.any(|part| names(&part.members, peer, incarnation))
    }

    /// The blocks of a fragment of `elements` in which that delta is spent (R34).
    #[must_use]
    pub fn spent(&self, peer: &PeerId, incarnation: u64, elements: u64) -> Blocks {
        let named = self.parts.iter().filter(|part| names(&part.members, peer, incarnation));
        let kept = named.fold(Blocks::default(), |all, part| all.and(&part.blocks));
        if names(&self.members, peer, incarnation) {
            kept.and(&self.formed(elements))
        } else {
            kept
        }
    }

    /// The blocks that were computed by the roster that formed it.
    #[must_use]
    pub fn formed(&self, elements: u64) -> Blocks {
        let kept = self.parts.iter().flat_map(|part| part.blocks.ranges());
        Blocks::of(kept).rest(elements)
    }

    /// The contributions in the sums: each start of a peer once, with its weight.
    #[must_use]
    pub fn contributors(&self) -> BTreeMap<(PeerId, u64), u64> {
        let parts = self.parts.iter().flat_map(|part| &part.members);
        let all = self.members.iter().chain(parts).filter(|m| m.weight > 0);
        all.map(|m| ((m.peer, m.incarnation), m.weight)).collect()
    }

    /// The median of the weights in the sums. It bounds the weights of the next epoch where an
    /// epoch has a fixed duration (G11). Of an even number it is the upper one; `None` if nobody
    /// contributed.
    #[must_use]
    pub fn median_weight(&self) -> Option<u64> {
        let mut weights: Vec<u64> = self.contributors().into_values().collect();
        weights.sort_unstable();
        weights.get(weights.len() / 2).copied()
    }

    /// The number of tokens that the epoch adds to its lineage. The checks of a link refuse sums
    /// that overflow (G11); here the sum saturates.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        self.contributors().into_values().fold(0, u64::saturating_add)
    }
}

/// The value of a vote by digest, and its rank. The greatest counts (R8): by depth, then by attempt.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Ranked {
    /// The number of Regroups of the epoch before the series; a deeper vote counts as higher (R13).
    pub depth: u32,
    /// The attempt of the roster that was voted on.
    pub attempt: u64,
    /// The digest of the receipt voted for.
    pub r: Digest,
}

/// A vote with its ground (R5): a quorum of its series' voters accepted the roster that was voted on. Where a third may
/// lie and the roster is free, the quorum is prepared for this value. It proves that the value may
/// have been decided. A log stores it with the vote, so that a restarted voter can prove the vote
/// again.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Voted {
    /// The number of Regroups of the epoch before the series.
    pub depth: u32,
    /// The roster that was voted on.
    pub roster: Roster,
    /// BLAKE3 of the bytes of the update.
    pub update: Digest,
    /// The members that gave the ground, with the signature over their `Accept` or `Prepared`.
    pub accepts: Vec<(PeerId, Signature)>,
}

impl Voted {
    /// The value that was voted for.
    #[must_use]
    pub fn receipt(&self) -> Receipt {
        self.roster.receipt(self.update)
    }
}

/// A voter's Status, as a roster shows it: with the roster's series and attempt it is what was signed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Heard {
    /// The voter that signed the Status.
    pub voter: Voter,
    /// The highest `Done` of the author in this series.
    pub done: Option<Ranked>,
    /// Whether it holds the bytes of the value that the series is forced to.
    pub holds_forced: bool,
    /// The author's signature over the Status.
    pub signature: Signature,
}

/// A ballot of Paxos: the members of the epoch in ring order, and the value that is voted for again, if any.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(from = "RosterForm", into = "RosterForm")]
pub struct Roster {
    /// The series that the ballot is in.
    pub series: Series,
    /// The attempt (ballot number), from 1.
    pub attempt: u64,
    /// The voter that proposes it, a member too.
    pub proposer: PeerId,
    /// The ring, in order, and the members without a position.
    pub members: Vec<Member>,
    /// The voters whose Status for this attempt the proposer used, with that Status (R7, G14).
    /// Attempt 1 asks nobody; from attempt 2 on they are a quorum (R4).
    pub heard: Vec<Heard>,
    /// The value to vote for again (R8); without one the ring computes a new value.
    pub adopt: Option<Receipt>,
    /// The tickets that it admits peers by, and the next notices (T2). An adopted value has its own (T7).
    pub trust: Option<Box<Admissions>>,
    /// The chunks that the ring need not compute again (R10).
    pub keep: Vec<Keep>,
}

impl Roster {
    /// The members with a position, in ring order.
    pub fn ring(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|m| m.weight > 0)
    }

    /// The member that is `peer`, if any.
    #[must_use]
    pub fn member(&self, peer: &PeerId) -> Option<&Member> {
        self.members.iter().find(|m| m.peer == *peer)
    }

    /// The highest vote among the Statuses that it shows.
    #[must_use]
    pub fn highest_done(&self) -> Option<Ranked> {
        self.heard.iter().filter_map(|heard| heard.done).max()
    }

    /// Whether the ring must compute before anyone can vote.
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.adopt.is_none()
    }

    /// The blocks of a fragment of `elements` that its ring computes.
    #[must_use]
    pub fn redone(&self, elements: u64) -> Blocks {
        let kept = self.keep.iter().flat_map(|keep| &keep.chunks);
        Blocks::of(kept.flat_map(|kept| kept.blocks.ranges())).rest(elements)
    }

    /// The voters that its members become with the receipt.
    #[must_use]
    pub fn voters(&self) -> Vec<Voter> {
        self.members.iter().map(Member::voter).collect()
    }

    /// The receipt of this roster's value, whose update has the digest `update`.
    #[must_use]
    pub fn receipt(&self, update: Digest) -> Receipt {
        self.adopt.clone().unwrap_or_else(|| Receipt {
            series: self.series,
            trust: self.trust.clone(),
            update,
            members: self.members.clone(),
            parts: self.keep.iter().map(Keep::part).collect(),
        })
    }
}

/// The bytes of a [`Roster`]. One byte after `heard` says what kind of value follows, so in open runs the bytes are as
/// if there were no trust part.
#[derive(Serialize, Deserialize)]
struct RosterForm {
    series: Series,
    attempt: u64,
    proposer: PeerId,
    members: Vec<Member>,
    heard: Vec<Heard>,
    value: Value,
    keep: Vec<Keep>,
}

/// An adopted value brings its own trust part, so the two never come together.
#[derive(Serialize, Deserialize)]
enum Value {
    Free,
    Adopted(Box<Receipt>),
    Admitting(Box<Admissions>),
}

impl From<Roster> for RosterForm {
    fn from(roster: Roster) -> Self {
        let Roster { series, attempt, proposer, members, heard, adopt, trust, keep } = roster;
        let value = match (adopt, trust) {
            (Some(receipt), _) => Value::Adopted(Box::new(receipt)),
            (None, Some(trust)) => Value::Admitting(trust),
            (None, None) => Value::Free,
        };
        Self { series, attempt, proposer, members, heard, value, keep }
    }
}

impl From<RosterForm> for Roster {
    fn from(form: RosterForm) -> Self {
        let RosterForm { series, attempt, proposer, members, heard, value, keep } = form;
        let (adopt, trust) = match value {
            Value::Free => (None, None),
            Value::Adopted(receipt) => (Some(*receipt), None),
            Value::Admitting(trust) => (None, Some(trust)),
        };
        Self { series, attempt, proposer, members, heard, adopt, trust, keep }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two quorums share an honest voter, and the honest voters are one.
    #[test]
    fn a_quorum_outlasts_a_third_that_lies() {
        for voters in 1..=256 {
            let (quorum, liars) = (QuorumRule::Byzantine.least(voters), (voters - 1) / 3);
            assert!(2 * quorum - voters > liars && quorum <= voters - liars, "{voters}");
            assert!(quorum <= 2 * voters / 3 + 1);
        }
        let voter = |name| Voter { peer: PeerId([name; 32]), log: LogId([name; 16]) };
        let four: Vec<Voter> = (0..4).map(voter).collect();
        let holds = |rule: QuorumRule, count: usize| {
            rule.holds(&four, |voter| four[4 - count..].contains(voter))
        };
        assert!(holds(QuorumRule::Byzantine, 3) && !holds(QuorumRule::Byzantine, 2));
        assert!(holds(QuorumRule::Available, 3) && !holds(QuorumRule::Majority, 2));
        assert!(!QuorumRule::Byzantine.holds(&[], |_| true));
    }
}
