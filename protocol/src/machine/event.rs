//! What a person may want to see. The node adds names and times (docs/FORMATS.md).

use std::fmt;
use std::sync::Arc;

use crate::access::admit::Denied;
use crate::base::id::{Digest, PeerId};
use crate::message::{Head, Notice, Receipt};

/// Why a peer counts as lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// No heartbeat for silent-after.
    Silent,
    /// Its connection closed, and no heartbeat came by another way.
    Closed,
    /// It said `Leaving`.
    Left,
}

/// How far an attempt has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The other Accepts are awaited.
    Accepted,
    /// The update is being computed or fetched.
    Reduce,
    /// The update is held, the certificate awaited.
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

/// Why an attempt has ended without a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A greater head is being fetched.
    Behind,
    /// Another head is reached.
    AnotherHead,
    /// A higher attempt was promised or accepted.
    HigherAttempt,
    /// Somebody has proved what was decided.
    DecidedElsewhere,
    /// A Regroup leaves the series.
    Regroup,
    /// A neighbour in the ring is lost, and nobody has its update.
    RingLost,
    /// A member with a place refuses the roster.
    Refused,
    /// Not every member with a place accepted in time.
    AcceptsMissing,
    /// The update did not come in time.
    UpdateMissing,
    /// No majority voted in time.
    VotesMissing,
    /// Nobody serves the decided update.
    UpdateUnserved,
    /// Nobody serves a chunk that the roster keeps.
    KeptUnserved,
    /// Rosters were seen that leave us out, and none that names us came.
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

/// Something that happened.
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

/// A committed epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The new head.
    pub head: Head,
    /// The attempt whose certificate decided it.
    pub attempt: u64,
    /// Its receipt.
    pub receipt: Receipt,
    /// Whether it was decided through a Regroup.
    pub regrouped: bool,
    /// Since when another lineage may exist (R14).
    pub forkable_since: Option<u64>,
    /// Whether somebody else's `Commit` decided it for us, rather than Dones that we counted.
    pub by_commit: bool,
}
