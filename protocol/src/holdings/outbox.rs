//! Nothing leaves the machine before the records behind it are on disk
//! (docs/PROTOCOL.md, "Durability").
//!
//! The peer hands out records and, after them, what depends on them, in one order. Records are
//! collected while an earlier batch is being written, and share the next flush. What was decided
//! after them waits in a queue, in order. A flush may take very long, and a node that sends no
//! heartbeat meanwhile is taken for dead.
//!
//! So heartbeats alone may overtake: while the head, series and Regroup that a heartbeat names are
//! durable, it is true whatever vote is being written. That is bounded by a few seconds, since
//! other peers wait for the votes of a live peer. What is reported of others rests on no record and
//! does not wait at all: else a flood of bad messages would fill the queue while a disk is slow, and
//! its author would be heard for as long.
//!
//! If a write fails, its records are written again later. Until then outgoing messages are dropped,
//! as on a bad link, heartbeats too, so that the others go on without us; the peer repeats messages
//! that matter. The node keeps training and following. It still hands out updates, chunks and
//! states: these are believed by their digest, and do not come here. Messages are dropped too
//! while a decided update is not yet on disk: a peer may announce a head only if it could restart
//! from it (R21). The records that wait for a full disk are bounded: above the bound the peer is
//! suspended ([`Outbox::is_stuck`]).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::interface::{Disk, Inquiry};
use crate::base::id::Digest;
use crate::base::time::Time;
use crate::history::log::Record;
use crate::machine::event::Event;
use crate::message::Message;
use crate::peer::Output;

/// Something that may have to wait for the disk.
#[derive(Clone, Debug)]
pub(super) enum Effect {
    /// A decision of the peer, as it came out.
    Decision(Box<Output>),
    /// The answer to a question about our lineage, as it is when the answer leaves.
    Answer(Inquiry),
}

/// Whether an effect may happen.
#[derive(Debug)]
pub(super) enum Ruling {
    /// It may happen now: its records are durable.
    Now(Effect),
    /// It waits in the queue for the disk.
    Later,
    /// It never happens: the disk is full, or too much waits for it.
    Never(Effect),
}

/// The records and effects that wait for the disk. Records and effects are counted, so one number
/// per effect says which records it needs.
#[derive(Clone, Debug, Default)]
pub(super) struct Outbox {
    /// The records that are written next, each with its length in bytes.
    records: VecDeque<(usize, Record)>,
    /// The records that are being written, or were refused and are written again.
    batch: Option<Arc<Vec<Record>>>,
    /// Bytes of all waiting records together.
    waiting_bytes: usize,
    /// The updates that were decided and are not on disk, by epoch.
    unflushed: BTreeMap<u64, Digest>,
    /// Each effect with the number of records that must be durable before it may happen.
    queue: VecDeque<(u64, Effect)>,
    /// Records so far, and how many of them are durable.
    issued: u64,
    durable: u64,
    /// The last record that a heartbeat depends on. No heartbeat leaves before this one is durable.
    announced: u64,
    /// Since when the batch is being written.
    writing_since: Option<Time>,
    /// The last write failed; when the next one is tried.
    retry_at: Option<Time>,
}

/// How long heartbeats overtake a write. A write that takes longer is treated like one that failed.
const OVERTAKE: Duration = Duration::from_secs(5);

/// After so long a write counts as one that the disk does not answer.
const LATE: Duration = Duration::from_secs(10);

/// Records that may wait for a full disk, in bytes: a thousand epochs of a small run.
/// Above this the peer is suspended.
const WAITING_BYTES_MAX: usize = 16 << 20;

/// Records that are written at once, in bytes, unless one is longer. Small batches still fit on a
/// disk that is almost full, and a torn one is noticed soon.
pub const BATCH_BYTES: usize = 1 << 20;

/// Bytes before each record in a log: its kind and its length.
const LENGTH_BYTES: usize = 5;

/// The pause before a disk that refused a write is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Effects that may wait: half a minute in which every peer of a full roster sends all that may
/// need an answer. Outgoing messages above that are dropped. Effects that no other peer sees are
/// queued above it too: dropping one would lose a decision.
const QUEUE_MAX: usize = 4_096;

impl Outbox {
    /// Takes a record; what is admitted after it waits for it.
    pub(super) fn log(&mut self, record: Record) {
        self.issued += 1;
        if is_announced(&record) {
            self.announced = self.issued;
        }
        if let Record::Rewound { epoch, .. } = &record {
            self.unflushed.retain(|decided, _| decided <= epoch);
        }
        let length = length(&record);
        self.waiting_bytes += length;
        self.records.push_back((length, record));
    }

    /// The records that are neither durable nor being written.
    pub(super) fn records(&self) -> impl Iterator<Item = &Record> {
        self.records.iter().map(|(_, record)| record)
    }

    /// An update is decided and not on disk: nothing leaves until it is, or a later checkpoint is.
    pub(super) fn await_flush(&mut self, epoch: u64, update: Digest) {
        self.unflushed.insert(epoch, update);
    }

    /// Whether this update has to be on disk before anything leaves.
    pub(super) fn awaits_flush(&self, update: &Digest) -> bool {
        self.unflushed.values().any(|decided| decided == update)
    }

    /// Whether any update has to be on disk before anything leaves.
    pub(super) fn awaits_any_flush(&self) -> bool {
        !self.unflushed.is_empty()
    }

    /// An update is on disk, and flushed.
    pub(super) fn kept(&mut self, update: &Digest) {
        self.unflushed.retain(|_, decided| decided != update);
    }

    /// The state after an epoch is on disk, so older updates are not needed.
    pub(super) fn saved(&mut self, epoch: u64) {
        self.unflushed.retain(|decided, _| *decided > epoch);
    }

    /// Whether everything that was decided so far is on disk.
    pub(super) fn is_settled(&self) -> bool {
        self.durable == self.issued && !self.awaits_any_flush()
    }

    /// Whether more records wait for a disk that has failed, or does not answer, than the bound allows.
    pub(super) fn is_stuck(&self) -> bool {
        let waits = self.retry_at.is_some() || self.writing_since.is_some();
        waits && self.waiting_bytes > WAITING_BYTES_MAX
    }

    /// Whether the disk has not answered for long.
    pub(super) fn is_late(&self, now: Time) -> bool {
        self.writing_since.is_some_and(|since| now >= since + LATE)
    }

    /// Decides whether an effect may happen; queues it if it must wait.
    pub(super) fn admit(&mut self, now: Time, item: Effect) -> Ruling {
        if self.awaits_any_flush() && item.leaves() {
            return Ruling::Never(item);
        }
        let free = self.queue.is_empty() && self.durable == self.issued;
        if free || item.is_of_others() || (item.is_heartbeat() && self.may_overtake(now)) {
            return Ruling::Now(item);
        }
        if self.retry_at.is_some() && !item.is_restart() {
            return if item.leaves() { Ruling::Never(item) } else { Ruling::Now(item) };
        }
        if self.queue.len() >= QUEUE_MAX && item.leaves() {
            return Ruling::Never(item);
        }
        self.queue.push_back((self.issued, item));
        Ruling::Later
    }

    /// Whether a heartbeat may go before the records that are being written: the disk must be neither
    /// slow nor full, and all that the heartbeat tells must be flushed.
    fn may_overtake(&self, now: Time) -> bool {
        let soon = self.writing_since.is_none_or(|since| now < since + OVERTAKE);
        self.durable >= self.announced && self.retry_at.is_none() && soon
    }

    /// The batch to write now, if one is due. One batch at a time; a refused one comes again, after
    /// [`RETRY`], before any newer record.
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

    /// When a failed write is tried again.
    pub(super) fn deadline(&self) -> Option<Time> {
        if self.writing_since.is_none() { self.retry_at } else { None }
    }

    /// Whether records are being written to a disk that accepts them.
    pub(super) fn is_open(&self) -> bool {
        self.durable < self.issued && self.retry_at.is_none()
    }

    /// The batch was written or refused. Returns the effects that may happen now, in order,
    /// and those that never happen.
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
                let all = std::mem::take(&mut self.queue);
                let rest;
                (self.queue, rest) = all.into_iter().partition(|(_, item)| item.is_restart());
                rest.into_iter().map(|(_, item)| item).partition(|item| !item.leaves())
            }
        }
    }
}

impl Effect {
    /// Whether it is a heartbeat, which may overtake records.
    fn is_heartbeat(&self) -> bool {
        let Self::Decision(output) = self else { return false };
        matches!(&**output, Output::Gossip(m) if matches!(m.body(), Message::Heartbeat(_)))
    }

    /// Whether it reports what another peer did wrong, or that it came or went.
    fn is_of_others(&self) -> bool {
        use Event::{PeerFound, PeerLost, Refused};
        let Self::Decision(output) = self else { return false };
        matches!(
            **output,
            Output::Fault(..)
                | Output::Proven(..)
                | Output::Event(PeerFound { .. } | PeerLost { .. } | Refused { .. })
        )
    }

    /// Whether it ends this start. The next one needs all records before it, so it waits for a disk that refuses.
    fn is_restart(&self) -> bool {
        matches!(self, Self::Decision(output) if matches!(**output, Output::Restart))
    }

    /// Whether other peers see it. A question reveals nothing but that we ask.
    fn leaves(&self) -> bool {
        match self {
            Self::Answer(..) => true,
            Self::Decision(output) => {
                matches!(**output, Output::Gossip(_) | Output::Send(..) | Output::Ring(_))
            }
        }
    }
}

/// Bytes of a record in the log, with the length before it.
fn length(record: &Record) -> usize {
    record.bytes().len() + LENGTH_BYTES
}

/// Whether heartbeats depend on this record: it changes our head, our series, or the
/// Regroup that we have joined.
fn is_announced(record: &Record) -> bool {
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
