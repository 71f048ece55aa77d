//! Nothing leaves the machine before what it says is on the disk (docs/PROTOCOL.md, "Durable").
//!
//! The state hands out records and, behind them, what depends on them, in one order. Records are
//! collected while an earlier batch is being written, off the loop, and share its flush; whatever
//! was decided after them waits in a queue, in order. Waiting on the loop itself would be shorter to
//! write, but a flush may take as long as the disk likes, and a node that does not say that it
//! lives is taken for dead.
//!
//! So heartbeats alone may overtake: one that names the head, series and Regroup of before is true
//! as long as those are durable, whatever vote is under way. Not for long, though: others wait for
//! the votes of a peer that lives.
//!
//! When a write fails nothing is lost: its records are written again later. Until then what would
//! have left is dropped, like a message on a bad line (those that matter are repeated by the state),
//! heartbeats too, so that the others go on; and what stays inside goes on as well: the node trains,
//! follows, and is silent. It is as silent while an update is not on the disk that was decided: a head
//! is told only by who could start from it again (R21). What waits for a disk that takes nothing is
//! bounded: above that the node stands still ([`Outbox::is_stuck`]).

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use intellect_protocol::id::Digest;
use intellect_protocol::log::Record;
use intellect_protocol::message::{Ask, Message};
use intellect_protocol::peer::Output;

use crate::net::Reply;
use crate::store::{BATCH_BYTES, Journal, StoreError};

/// What was decided.
#[derive(Debug)]
pub(super) enum Item {
    /// By the state.
    Output(Box<Output>),
    /// To answer a question about our lineage, as it will be then.
    Answer(Ask, Reply),
}

/// Records to write, and where to.
#[derive(Debug)]
pub(super) struct Batch {
    journal: Journal,
    records: Vec<Record>,
}

/// A batch that was written, or not.
#[derive(Debug)]
pub(super) struct Written {
    batch: Batch,
    result: Result<(), StoreError>,
}

/// What waits for the disk.
#[derive(Debug)]
pub(super) struct Outbox {
    /// Absent while a batch is being written.
    journal: Option<Journal>,
    /// Written next, each with its length in bytes.
    records: VecDeque<(usize, Record)>,
    /// Their length, those that are being written included.
    waiting_bytes: usize,
    /// By epoch, updates that were decided and are not on the disk.
    owed: BTreeMap<u64, Digest>,
    /// Each with the number of records that must be durable before.
    queue: VecDeque<(u64, Item)>,
    /// Records so far, and those of them that are durable.
    issued: u64,
    durable: u64,
    /// The last record that a heartbeat tells of.
    told: u64,
    /// Since when a batch is being written.
    writing_since: Option<Instant>,
    /// The last write failed; when the next one is tried.
    retry_at: Option<Instant>,
}

/// How long heartbeats overtake a write: one that takes longer is as good as one that fails.
const OVERTAKE: Duration = Duration::from_secs(5);

/// Records that may wait for a disk that takes nothing, in bytes: a thousand epochs of a small run.
const WAITING_BYTES_MAX: usize = 16 << 20;

/// What stands before a record in a log: its kind and its length.
const LENGTH_BYTES: usize = 5;

/// How long a disk that refused a write is left alone.
const RETRY: Duration = Duration::from_secs(1);

/// Outputs that may wait: those of half a minute in which every peer of a full roster sends all that
/// it may need an answer for. Messages above are dropped.
const QUEUE_MAX: usize = 4_096;

impl Batch {
    /// Writes it; takes as long as the disk.
    pub(super) fn write(mut self) -> Written {
        let result = self.journal.append(&self.records);
        Written { batch: self, result }
    }
}

impl Outbox {
    pub(super) fn new(journal: Journal) -> Self {
        Self {
            journal: Some(journal),
            records: VecDeque::new(),
            waiting_bytes: 0,
            owed: BTreeMap::new(),
            queue: VecDeque::new(),
            issued: 0,
            durable: 0,
            told: 0,
            writing_since: None,
            retry_at: None,
        }
    }

    /// Takes a record; what is admitted after it waits for it.
    pub(super) fn log(&mut self, record: Record) {
        self.issued += 1;
        if is_told(&record) {
            self.told = self.issued;
        }
        if let Record::Rewound { epoch, .. } = &record {
            self.owed.retain(|owed, _| owed <= epoch);
        }
        let length = record.bytes().len() + LENGTH_BYTES;
        self.waiting_bytes += length;
        self.records.push_back((length, record));
    }

    /// An update is decided, and not on the disk: nothing leaves until it is, or a later checkpoint.
    pub(super) fn owe(&mut self, epoch: u64, update: Digest) {
        self.owed.insert(epoch, update);
    }

    /// Whether an update has to be on the disk before anything leaves.
    pub(super) fn owes(&self, update: &Digest) -> bool {
        self.owed.values().any(|owed| owed == update)
    }

    /// Whether any has.
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

    /// Returns what may happen now; keeps what must wait.
    pub(super) fn admit(&mut self, item: Item, now: Instant) -> Option<Item> {
        if self.is_owing() && item.leaves() {
            return None;
        }
        let free = self.queue.is_empty() && self.durable == self.issued;
        if free || (item.is_heartbeat() && self.may_overtake(now)) {
            return Some(item);
        }
        if self.retry_at.is_some() {
            return Some(item).filter(|item| !item.leaves());
        }
        if self.queue.len() < QUEUE_MAX || !item.leaves() {
            self.queue.push_back((self.issued, item));
        }
        None
    }

    fn may_overtake(&self, now: Instant) -> bool {
        let soon = self.writing_since.is_none_or(|since| now < since + OVERTAKE);
        self.durable >= self.told && self.retry_at.is_none() && soon
    }

    /// The batch to write now, if one is due.
    pub(super) fn due(&mut self, now: Instant) -> Option<Batch> {
        if self.records.is_empty() || self.retry_at.is_some_and(|at| now < at) {
            return None;
        }
        let journal = self.journal.take()?;
        self.writing_since = Some(now);
        let mut bytes = 0;
        let fits = self.records.iter().take_while(|(length, _)| {
            bytes += length;
            bytes <= BATCH_BYTES
        });
        let count = fits.count().max(1);
        let records = self.records.drain(..count).map(|(_, record)| record).collect();
        Some(Batch { journal, records })
    }

    /// When a write is tried again.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.retry_at.filter(|_| self.journal.is_some())
    }

    /// Whether anything is not on the disk yet.
    pub(super) fn is_open(&self) -> bool {
        self.durable < self.issued && self.retry_at.is_none()
    }

    /// A batch was written, or not: what may happen now, in order, and what to tell about the disk:
    /// the first of several failures, and the end of them.
    pub(super) fn written(
        &mut self,
        written: Written,
        now: Instant,
    ) -> (Vec<Item>, Option<Result<(), StoreError>>) {
        let Written { batch: Batch { journal, records }, result } = written;
        (self.journal, self.writing_since) = (Some(journal), None);
        let failed_before = self.retry_at.is_some();
        match result {
            Ok(()) => {
                self.durable += records.len() as u64;
                self.waiting_bytes = self.records.iter().map(|(length, _)| length).sum();
                self.retry_at = None;
                let ready = self.queue.partition_point(|(after, _)| *after <= self.durable);
                let items = self.queue.drain(..ready).map(|(_, item)| item).collect();
                (items, failed_before.then_some(Ok(())))
            }
            Err(error) => {
                for record in records.into_iter().rev() {
                    self.records.push_front((record.bytes().len() + LENGTH_BYTES, record));
                }
                self.retry_at = Some(now + RETRY);
                let stay = self.queue.drain(..).map(|(_, item)| item);
                let items = stay.filter(|item| !item.leaves()).collect();
                (items, (!failed_before).then_some(Err(error)))
            }
        }
    }
}

impl Item {
    fn is_heartbeat(&self) -> bool {
        let Self::Output(output) = self else { return false };
        matches!(&**output, Output::Gossip(m) if matches!(m.body(), Message::Heartbeat(_)))
    }

    /// Whether others see it. A question shows nothing but that we ask.
    fn leaves(&self) -> bool {
        match self {
            Self::Answer(..) => true,
            Self::Output(output) => {
                matches!(**output, Output::Gossip(_) | Output::Send(..) | Output::Ring(_))
            }
        }
    }
}

/// Whether a heartbeat tells of it: of our head, our series, or the Regroup that we have joined.
fn is_told(record: &Record) -> bool {
    match record {
        Record::Joined { .. }
        | Record::Opened { .. }
        | Record::Committed { .. }
        | Record::Rewound { .. } => true,
        Record::Promised { .. }
        | Record::Accepted { .. }
        | Record::Voted { .. }
        | Record::Decided { .. } => false,
    }
}

#[cfg(test)]
mod tests;
