//! What happens next, in the order of (time, number).
//!
//! Two entries of one time happen in the order in which they were pushed, so nothing depends on how
//! the heap breaks ties.
//!
//! An entry is never removed before its time. What makes it void is compared when it is due: the
//! incarnation of the process, the newest order to train, the newest fetch of a state. So a process
//! that ends leaves its entries in the queue, and they have no effect.

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
    /// A deadline of the machine is due. Void if an earlier Tick has come in its stead.
    Tick,
    /// The machine has asked for another start. The process ends as if by itself, so all that it
    /// has written is flushed, and the next one starts at once.
    Restart,
    /// Round trips to all others are measured, and again after a while as long as the process runs.
    Measure,
    /// Training has used up its budget; void if `order` is not the newest.
    Trained { order: u64 },
    /// An outer step is taken; void if a fetch of a state has begun since `serial`.
    Step { serial: u64, apply: Arc<Apply> },
    /// The disk flushes all records that were written so far, those after this entry's push too.
    Written,
    /// The disk flushes the update of this name.
    Kept(Name),
    /// The disk flushes this state, which is a checkpoint from then on.
    Saved(Arc<Anchor>),
    /// Bytes are in memory, and an input reports them.
    Came { bytes: Buffer, content: Arc<Vec<u8>>, input: Input },
    /// Starts a transfer from these donors.
    Fetch(Wanted, Vec<PeerId>),
    /// All liars act without a message. It belongs to no process, so it comes even if the host
    /// whose number it has is down.
    LookUp,
    /// The next tick of a transfer.
    Look(u64),
    /// The end of a request of a transfer. `number` is that of the request within its transfer.
    Part { fetch: u64, number: u64, answer: Result<Vec<u8>, Failure> },
    /// A request leaves for a donor.
    Ask(PeerId, Asking),
    /// A donor has not answered in time. It has no effect if the question is closed by then.
    Unanswered(Inquiry),
    /// A member notices something about its ring.
    Ringing { roster: Digest, notice: Notice },
    /// A liar ends its ring before its time.
    BreaksOff(Digest),
}

/// An event in the queue, for one process of one host.
#[derive(Debug)]
pub(super) struct Entry {
    /// Virtual time, in milliseconds.
    pub(super) at_ms: u64,
    /// Its number, by which entries of one time are ordered.
    pub(super) number: u64,
    /// The host on which it happens, by its index.
    pub(super) host: usize,
    /// The process that it is for; one that started later never sees it.
    pub(super) incarnation: u64,
    /// What the world does when the entry is due.
    pub(super) happening: Happening,
}

/// Numbers are never used twice, so equal entries are one entry.
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

/// The least entry is the next one. [`BinaryHeap`](std::collections::BinaryHeap) yields the
/// greatest, so the world puts each into a `Reverse`.
impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at_ms, self.number).cmp(&(other.at_ms, other.number))
    }
}
