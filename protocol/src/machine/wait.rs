//! What a peer waits for. It is for people: no rule reads it.

use std::collections::BTreeSet;

use crate::base::id::PeerId;
use crate::message::QuorumRule;

/// Why the head of a peer does not move now, as far as the protocol knows. The caller knows more: a
/// full disk, a router that lets nobody in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wait {
    /// R15: the run has not begun. It needs more peers, or those that are here begin soon.
    Founders {
        /// Peers that are here and that a founding may name (T9), this one included.
        here: usize,
        /// The peers that found the run, at least.
        needed: usize,
    },
    /// No other peer of the run is here.
    Alone {
        /// How many voters the open epoch has.
        voters: usize,
        /// The rule by which voters form a quorum.
        rule: QuorumRule,
        /// Whether this peer is a quorum by itself, and so trains on.
        goes_on: bool,
        /// R12: whether it goes on later, by a Regroup without the voters that stay away.
        regroups: bool,
    },
    /// The voters of the open epoch that are here form no quorum, or this peer was away and first
    /// hears from each of them (R20).
    Voters {
        /// Voters of the open epoch that are not here.
        missing: BTreeSet<PeerId>,
        /// All voters of the open epoch.
        all: usize,
        /// Whether those that are here form a quorum.
        enough: bool,
        /// R12: whether they go on later, by a Regroup without the voters that stay away.
        regroups: bool,
        /// The rule by which voters form a quorum.
        rule: QuorumRule,
    },
    /// R28: a greater head is being fetched.
    Behind,
    /// R44: others have decided the open epoch, and this peer has not got the decision yet. Or it is new,
    /// and others claim an epoch that it does not fetch yet.
    PassedOver,
    /// R13: a Regroup is joined, and these members have not joined it.
    Joins(BTreeSet<PeerId>),
    /// R36: the work of this peer is ready, and that of these peers is not.
    Training(BTreeSet<PeerId>),
    /// R38: the roster of this attempt has not come.
    Roster {
        /// The number of the attempt, from 1.
        attempt: u64,
        /// The voter that makes it; in the first attempt it is not known.
        owner: Option<PeerId>,
    },
    /// R36: the rosters that were seen leave this peer out, or it refuses them.
    LeftOut(Obstacle),
    /// R5: these members have a position in the ring and have not accepted the roster.
    Accepts(BTreeSet<PeerId>),
    /// R6: the ring runs, or its update is fetched from others.
    Ring {
        /// The member with a position that sent slowest in its last ring, and its bytes per second.
        slowest: Option<(PeerId, u64)>,
        /// Bytes per second that each member has to send to end in time.
        needed: u64,
    },
    /// R5: these voters have not voted for the update, or do not say that they hold it.
    Votes(BTreeSet<PeerId>),
    /// R17: the epoch is decided, and its update is fetched, or others still need this vote.
    Update,
}

/// What keeps a peer out of the rosters that it has seen, as far as it can know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// R41: no ring can pass through it, since no other peer connects to it directly.
    NotDirect,
    /// G5, R42: it has no direct connection with the proposer, or with two members side by side.
    FewLinks {
        /// The other voters with which it has a direct connection.
        linked: usize,
        /// All other voters of the open epoch.
        voters: usize,
    },
    /// R36: its work was not ready when the roster came.
    Late,
    /// G5, G7: it is a newcomer, and the roster has no more positions for newcomers.
    NoPlace,
    /// G6: it is a voter, and a proposer names all voters that it hears.
    Unheard,
    /// T4: it refuses the roster, since by its clock a ticket that came with it has expired.
    Clock,
    /// R3, R4: it refuses the roster for another reason.
    Refused,
    /// G9: nothing that it knows. The proposer may not have got its Ready, or counts offences.
    Unknown,
}
