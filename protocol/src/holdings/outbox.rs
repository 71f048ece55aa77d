//! Nothing leaves the machine before what it says is on the disk (docs/PROTOCOL.md, "Durable").
//!
//! The peer hands out records and, behind them, what depends on them, in one order. Records are
//! collected while an earlier batch is being written, and share the next flush; whatever was decided
//! after them waits in a queue, in order. A flush may take as long as the disk likes, and a node that
//! does not say that it lives is taken for dead.
//!
//! So heartbeats alone may overtake: one that names the head, series and Regroup of before is true
//! as long as those are durable, whatever vote is under way. Not for long, though: others wait for
//! the votes of a peer that lives.
//!
//! When a write fails nothing is lost: its records are written again later. Until then what would
//! have left is dropped, like a message on a bad line (those that matter are repeated by the peer),
//! heartbeats too, so that the others go on; and what stays inside goes on as well: the node trains,
//! follows, and is silent. It is as silent while an update is not on the disk that was decided: a head
//! is told only by who could start from it again (R21). What waits for a disk that takes nothing is
//! bounded: above that the peer stands still ([`Outbox::is_stuck`]).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::interface::{Disk, Inquiry};
use crate::base::id::Digest;
use crate::base::time::Time;
use crate::history::log::Record;
use crate::message::Message;
use crate::peer::Output;

/// What was decided.
#[derive(Clone, Debug)]
pub(super) enum Effect {
    /// A decision of the peer.
    Decision(Box<Output>),
    /// The answer to a question about our lineage, as it is when the answer leaves.
    Answer(Inquiry),
}

/// What becomes of something that was decided.
#[derive(Debug)]
pub(super) enum Ruling {
    /// It may happen now.
    Now(Effect),
    /// It waits for the disk.
    Later,
    /// It never happens: the disk takes nothing, or too much waits for it.
    Never(Effect),
}

/// What waits for the disk.
#[derive(Clone, Debug, Default)]
pub(super) struct Outbox {
    /// Written next, each with its length in bytes.
    records: VecDeque<(usize, Record)>,
    /// Being written, or refused by the disk and to be written again.
    batch: Option<Arc<Vec<Record>>>,
    /// Length of all these.
    waiting_bytes: usize,
    /// The updates that were decided and are not on the disk, by epoch.
    owed: BTreeMap<u64, Digest>,
    /// Each with the number of records that must be durable before it may happen.
    queue: VecDeque<(u64, Effect)>,
    /// Records so far, and those of them that are durable.
    issued: u64,
    durable: u64,
    /// The last record that a heartbeat tells of.
    told: u64,
    /// Since when the batch is being written.
    writing_since: Option<Time>,
    /// The last write failed; when the next one is tried.
    retry_at: Option<Time>,
}

/// How long heartbeats overtake a write: one that takes longer is as good as one that fails.
const OVERTAKE: Duration = Duration::from_secs(5);

/// Records that may wait for a disk that takes nothing, in bytes: a thousand epochs of a small run.
const WAITING_BYTES_MAX: usize = 16 << 20;

/// Records that are written at once, in bytes, unless one is longer: small parts find their place on a
/// disk that is almost full, and it is soon told whether one is torn.
pub const BATCH_BYTES: usize = 1 << 20;

/// What stands before a record in a log: its kind and its length.
const LENGTH_BYTES: usize = 5;

/// How long a disk that refused a write is left alone.
const RETRY: Duration = Duration::from_secs(1);

/// Decisions that may wait: those of half a minute in which every peer of a full roster sends all that
/// it may need an answer for. Messages above are dropped.
const QUEUE_MAX: usize = 4_096;

impl Outbox {
    /// Takes a record; what is admitted after it waits for it.
    pub(super) fn log(&mut self, record: Record) {
        self.issued += 1;
        if is_told(&record) {
            self.told = self.issued;
        }
        if let Record::Rewound { epoch, .. } = &record {
            self.owed.retain(|owed, _| owed <= epoch);
        }
        let length = length(&record);
        self.waiting_bytes += length;
        self.records.push_back((length, record));
    }

    /// The records that are not durable yet and not being written.
    pub(super) fn records(&self) -> impl Iterator<Item = &Record> {
        self.records.iter().map(|(_, record)| record)
    }

    /// An update is decided, and not on the disk: nothing leaves until it is, or a later checkpoint.
    pub(super) fn owe(&mut self, epoch: u64, update: Digest) {
        self.owed.insert(epoch, update);
    }

    /// Whether an update has to be on the disk before anything leaves.
    pub(super) fn owes(&self, update: &Digest) -> bool {
        self.owed.values().any(|owed| owed == update)
    }

    /// Whether any update has to be on the disk before anything leaves.
    pub(super) fn is_owing(&self) -> bool {
        !self.owed.is_empty()
    }

    /// An update is on the disk.
    pub(super) fn kept(&mut self, update: &Digest) {
        self.owed.retain(|_, owed| owed != update);
    }

    /// The state after an epoch is on the disk.
    pub(super) fn saved(&mut self, epoch: u64) {
        self.owed.retain(|owed, _| *owed > epoch);
    }

    /// Whether all that was decided so far is on the disk.
    pub(super) fn is_settled(&self) -> bool {
        self.durable == self.issued && !self.is_owing()
    }

    /// Whether so much waits for a disk that takes nothing that no more may come.
    pub(super) fn is_stuck(&self) -> bool {
        self.retry_at.is_some() && self.waiting_bytes > WAITING_BYTES_MAX
    }

    /// Rules on what was decided; keeps what must wait.
    pub(super) fn admit(&mut self, now: Time, item: Effect) -> Ruling {
        if self.is_owing() && item.leaves() {
            return Ruling::Never(item);
        }
        let free = self.queue.is_empty() && self.durable == self.issued;
        if free || (item.is_heartbeat() && self.may_overtake(now)) {
            return Ruling::Now(item);
        }
        if self.retry_at.is_some() {
            return if item.leaves() { Ruling::Never(item) } else { Ruling::Now(item) };
        }
        if self.queue.len() >= QUEUE_MAX && item.leaves() {
            return Ruling::Never(item);
        }
        self.queue.push_back((self.issued, item));
        Ruling::Later
    }

    fn may_overtake(&self, now: Time) -> bool {
        let soon = self.writing_since.is_none_or(|since| now < since + OVERTAKE);
        self.durable >= self.told && self.retry_at.is_none() && soon
    }

    /// The batch to write now, if one is due.
    pub(super) fn due(&mut self, now: Time) -> Option<Arc<Vec<Record>>> {
        if self.writing_since.is_some() || self.retry_at.is_some_and(|at| now < at) {
            return None;
        }
        if self.batch.is_none() && !self.records.is_empty() {
            let mut bytes = 0;
            let fits = self.records.iter().take_while(|(length, _)| {
                bytes += length;
                bytes <= BATCH_BYTES
            });
            let count = fits.count().max(1);
            let records = self.records.drain(..count).map(|(_, record)| record).collect();
            self.batch = Some(Arc::new(records));
        }
        let batch = self.batch.clone()?;
        self.writing_since = Some(now);
        Some(batch)
    }

    /// When a write is tried again.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.retry_at.filter(|_| self.writing_since.is_none())
    }

    /// Whether records are on their way to a disk that takes them.
    pub(super) fn is_open(&self) -> bool {
        self.durable < self.issued && self.retry_at.is_none()
    }

    /// The batch was written, or was not. Returns what may happen now, in order, and what never
    /// happens.
    pub(super) fn written(&mut self, now: Time, disk: Disk) -> (Vec<Effect>, Vec<Effect>) {
        self.writing_since = None;
        match disk {
            Disk::Took => {
                self.durable += self.batch.take().map_or(0, |batch| batch.len() as u64);
                self.waiting_bytes = self.records.iter().map(|(length, _)| length).sum();
                self.retry_at = None;
                let ready = self.queue.partition_point(|(after, _)| *after <= self.durable);
                (self.queue.drain(..ready).map(|(_, item)| item).collect(), Vec::new())
            }
            Disk::Refused => {
                self.retry_at = Some(now + RETRY);
                self.queue.drain(..).map(|(_, item)| item).partition(|item| !item.leaves())
            }
        }
    }
}

impl Effect {
    fn is_heartbeat(&self) -> bool {
        let Self::Decision(output) = self else { return false };
        matches!(&**output, Output::Gossip(m) if matches!(m.body(), Message::Heartbeat(_)))
    }

    /// Whether others see it. A question shows nothing but that we ask.
    fn leaves(&self) -> bool {
        match self {
            Self::Answer(..) => true,
            Self::Decision(output) => {
                matches!(**output, Output::Gossip(_) | Output::Send(..) | Output::Ring(_))
            }
        }
    }
}

fn length(record: &Record) -> usize {
    record.bytes().len() + LENGTH_BYTES
}

/// Whether heartbeats tell of what this record says: our head, our series, or the Regroup that we
/// have joined.
fn is_told(record: &Record) -> bool {
    match record {
        Record::Joined { .. }
        | Record::Opened { .. }
        | Record::Left { .. }
        | Record::Committed { .. }
        | Record::Rewound { .. } => true,
        Record::Promised { .. }
        | Record::Accepted { .. }
        | Record::Voted { .. }
        | Record::Prepared { .. }
        | Record::Decided { .. }
        | Record::Marked { .. } => false,
    }
}

#[cfg(test)]
mod tests;
