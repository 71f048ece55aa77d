//! What happens next, in the order of (time, number).
//!
//! Two entries of one time happen in the order in which they were pushed, so nothing depends on how
//! the heap breaks ties.

use std::sync::Arc;

use super::fetch::{Asking, Wanted};
use crate::rings::Notice;
use crate::toy::Anchor;
use intellect_protocol::base::id::{Digest, PeerId};
use intellect_protocol::consensus::epoch::Apply;
use intellect_protocol::download::Failure;
use intellect_protocol::holdings::{Buffer, Input, Inquiry, Name};

/// What happens to a process when its entry is due.
#[derive(Clone, Debug)]
pub(super) enum Happening {
    /// An input for the machine, as a message that arrives.
    Input(Input),
    /// A deadline of the machine is due.
    Tick,
    /// The machine has asked for another start.
    Restart,
    /// Round trips to all others are measured.
    Measure,
    /// Training has used up its budget; void if `order` is not the newest.
    Trained {
        order: u64,
    },
    /// An outer step is taken; void if a fetch of a state has begun since `serial`.
    Step {
        serial: u64,
        apply: Arc<Apply>,
    },
    /// The disk has flushed what was written: records, an update, a state.
    Written,
    Kept(Name),
    Saved(Arc<Anchor>),
    /// Bytes are in memory, and an input reports them.
    Came {
        bytes: Buffer,
        content: Arc<Vec<u8>>,
        input: Input,
    },
    /// Starts a transfer from these donors.
    Fetch(Wanted, Vec<PeerId>),
    /// All liars act without a message.
    LookUp,
    /// The next tick of a transfer.
    Look(u64),
    /// The end of a request of a transfer.
    Part {
        fetch: u64,
        number: u64,
        answer: Result<Vec<u8>, Failure>,
    },
    /// A request leaves for a donor.
    Ask(PeerId, Asking),
    /// A donor has not answered in time.
    Unanswered(Inquiry),
    /// A member notices something about its ring.
    Ringing {
        roster: Digest,
        notice: Notice,
    },
}

/// An event in the queue, for one process of one host.
#[derive(Debug)]
pub(super) struct Entry {
    /// Virtual time, in milliseconds.
    pub(super) at_ms: u64,
    /// Its number, by which entries of one time are ordered.
    pub(super) number: u64,
    pub(super) host: usize,
    /// The process that it is for; one that started later never sees it.
    pub(super) incarnation: u64,
    pub(super) happening: Happening,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at_ms, self.number).cmp(&(other.at_ms, other.number))
    }
}
