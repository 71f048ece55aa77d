//! What a person may want to see. The node adds names and times (docs/FORMATS.md).

use std::fmt;
use std::sync::Arc;

use crate::access::admit::Denied;
use crate::base::id::{Digest, PeerId};
use crate::message::{Absence, Head, Notice, Receipt};

/// Why a peer counts as lost: the table of peers no longer has it as alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// No heartbeat came for silent-after (4 heartbeats + 4·rtt).
    Silent,
    /// Its connection closed, and no heartbeat arrived by another way.
    Closed,
    /// It said `Leaving`, so nobody waits for it.
    Left,
}

/// How far an attempt has come when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Not every member with a position has accepted.
    Accepted,
    /// The update is being computed or fetched.
    Reduce,
    /// The update is here, and the certificate is awaited.
    Finished,
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Accepted => "accepted",
            Self::Reduce => "reduce",
            Self::Finished => "finished",
        })
    }
}

/// Why an attempt has ended without a decision at this peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A greater head is being fetched.
    Behind,
    /// This peer has reached another head.
    AnotherHead,
    /// A higher attempt was promised or accepted.
    HigherAttempt,
    /// Another peer has proved what was decided.
    DecidedElsewhere,
    /// A Regroup leaves the series.
    Regroup,
    /// A neighbour in the ring is lost, and no peer has the ring's update.
    RingLost,
    /// A member with a position refuses the roster.
    Refused,
    /// Not every member with a position accepted in time.
    AcceptsMissing,
    /// The update did not arrive in time.
    UpdateMissing,
    /// No majority of the voters voted in time.
    VotesMissing,
    /// No peer serves the decided update.
    UpdateUnserved,
    /// No peer serves a chunk that the roster keeps.
    KeptUnserved,
    /// Rosters were seen that leave this peer out, and none that names it came.
    LeftOut,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Behind => "behind",
            Self::AnotherHead => "another head",
            Self::HigherAttempt => "a higher attempt",
            Self::DecidedElsewhere => "decided elsewhere",
            Self::Regroup => "regroup",
            Self::RingLost => "ring lost",
            Self::Refused => "refused",
            Self::AcceptsMissing => "accepts missing",
            Self::UpdateMissing => "update missing",
            Self::VotesMissing => "votes missing",
            Self::UpdateUnserved => "update not served",
            Self::KeptUnserved => "a kept chunk is not served",
            Self::LeftOut => "left out",
        })
    }
}

/// Something that happened. None of it changes what the peer does. The node writes each to its log
/// and its screen (docs/FORMATS.md).
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are those of the documented events")]
pub enum Event {
    /// A peer is alive that was not reported as alive before.
    PeerFound { who: PeerId },
    /// A peer that was reported as found is alive no more.
    PeerLost { who: PeerId, cause: Cause },
    /// This peer has accepted a roster: its members, the digest of the receipt that it adopts, and
    /// how many chunks it keeps.
    Roster {
        epoch: u64,
        attempt: u64,
        members: Vec<PeerId>,
        /// The weight of each; 0 without a position in the ring.
        weights: Vec<u64>,
        adopt: Option<Digest>,
        kept: usize,
    },
    /// This peer has entered the series that a Regroup opened, which leaves out the absent for these reasons.
    Regroup {
        epoch: u64,
        number: u64,
        proposer: PeerId,
        members: Vec<PeerId>,
        absent: Vec<(PeerId, Absence)>,
    },
    /// The outer step of a decided epoch is taken. Epochs that a replay takes are reported by
    /// `Replayed` instead.
    Committed(Arc<Committed>),
    /// An attempt of which this peer had accepted the roster has ended without a decision here.
    Aborted { epoch: u64, attempt: u64, phase: Progress, reason: Reason },
    /// An epoch is committed whose update has nothing of our frozen delta; the delta is carried
    /// into the next one.
    LeftOut { epoch: u64 },
    /// A verified greater head is being fetched, from these peers as far as they are known now.
    Behind { from_epoch: u64, to_epoch: u64, donors: Vec<PeerId> },
    /// One more epoch on the way to a greater head is taken, by its update.
    Replayed { head: Head, to_epoch: u64 },
    /// No peer that answers is further than the next epoch any more.
    CaughtUp { head: Head },
    /// After equal receipts another peer has another state than this one: a program or a machine
    /// computes wrongly.
    Diverged { who: PeerId, mine: Digest, theirs: Digest },
    /// Another lineage parts from ours in this epoch. With `held` a person has to decide; else
    /// `undone` of our epochs are given up for it, often none.
    Fork { first_epoch: u64, mine: Head, theirs: Head, undone: u64, held: bool },
    /// Each voter that a Regroup had left out was seen on our lineage or has left: no other lineage
    /// can exist any more.
    ForkExcluded { first_epoch: u64 },
    /// The attempts of one series have passed 256; they go on. It comes once per series.
    Stuck { epoch: u64, attempts: u64 },
    /// The receipt of this epoch admits a peer, by an invite or by the organiser.
    Admitted { who: PeerId, invite: Option<PeerId>, epoch: u64 },
    /// The receipt of this epoch carries a notice that revokes a peer.
    Revoked { who: PeerId, notice: u64, epoch: u64 },
    /// A peer that was heard is not admitted. It comes again only if the reason changes.
    Refused { who: PeerId, why: Denied },
    /// A notice is learnt (`in_force` is `None`), or is in force since the receipt of an epoch.
    Notice { notice: Arc<Notice>, in_force: Option<u64> },
    /// The user wants to leave, and what is open is finished first.
    Leaving,
}

/// An epoch that this peer has committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The head that the epoch leads to.
    pub head: Head,
    /// The attempt whose certificate decided it.
    pub attempt: u64,
    /// The receipt, which names members and value.
    pub receipt: Receipt,
    /// Whether it was decided in a series that a Regroup opened.
    pub regrouped: bool,
    /// Since which epoch another lineage may exist (R14); `None` if none can.
    pub forkable_since: Option<u64>,
    /// Whether another peer's `Commit` decided it here, instead of Dones that this peer counted.
    pub by_commit: bool,
}
