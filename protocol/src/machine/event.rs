//! What a person may want to see. The node adds names and times (docs/FORMATS.md).

use std::fmt;
use std::sync::Arc;

use crate::access::admit::Denied;
use crate::base::id::{Digest, PeerId};
use crate::message::{Head, Notice, Receipt};

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

/// Something that happened. None of it changes what the peer does.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are those of the documented events")]
pub enum Event {
    PeerFound { who: PeerId },
    PeerLost { who: PeerId, cause: Cause },
    Roster { epoch: u64, attempt: u64, members: Vec<PeerId>, adopt: Option<Digest>, kept: usize },
    Regroup { epoch: u64, number: u64, proposer: PeerId, members: Vec<PeerId>, absent: Vec<PeerId> },
    Committed(Arc<Committed>),
    Aborted { epoch: u64, attempt: u64, phase: Progress, reason: Reason },
    LeftOut { epoch: u64 },
    Behind { from_epoch: u64, to_epoch: u64, donors: Vec<PeerId> },
    Replayed { head: Head, to_epoch: u64 },
    CaughtUp { head: Head },
    Diverged { who: PeerId, mine: Digest, theirs: Digest },
    Fork { first_epoch: u64, mine: Head, theirs: Head, undone: u64, held: bool },
    ForkExcluded { first_epoch: u64 },
    Stuck { epoch: u64, attempts: u64 },
    Admitted { who: PeerId, invite: Option<PeerId>, epoch: u64 },
    Revoked { who: PeerId, notice: u64, epoch: u64 },
    Refused { who: PeerId, why: Denied },
    Notice { notice: Arc<Notice>, in_force: Option<u64> },
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
