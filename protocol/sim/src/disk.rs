//! The disk of a simulated host: what survives a crash, and what a process starts from again.
//!
//! Writes wait until they are flushed. Votes and receipts are a file each, and nothing orders what the
//! system writes to one of them after what it writes to the other. A crash keeps all that was flushed,
//! and of the rest any prefix of each ([`Kept`]): records are appended, and a torn one is cut off, so
//! that each write is there as a whole or not.
//! The state is not on disk for each epoch; it is the newest checkpoint and the updates after it (R21).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::toy::Anchor;
use intellect_protocol::epoch::Apply;
use intellect_protocol::id::{Digest, RunId};
use intellect_protocol::log::{self, Record, Recovered};
use intellect_protocol::message::{Commit, Head, Link, Message, Series};
use intellect_protocol::peer::UPDATES_KEPT;
use intellect_protocol::wire;

/// Checkpoints kept.
const CHECKPOINTS_KEPT: usize = 3;

/// A file of its own.
#[derive(Clone, Debug)]
pub(super) enum File {
    /// The bytes of an update, and the epoch that it is for.
    Update(Digest, u64, Arc<Vec<u8>>),
    /// A whole checkpoint.
    Checkpoint(Arc<Anchor>),
}

/// How many writes that were not flushed a crash leaves: the first ones of each kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kept {
    /// Records of the log of votes.
    pub votes: usize,
    /// Records of the log of receipts.
    pub receipts: usize,
    /// Updates and checkpoints, each a file of its own.
    pub files: usize,
}

impl Kept {
    /// Everything.
    pub(super) const ALL: Self =
        Self { votes: usize::MAX, receipts: usize::MAX, files: usize::MAX };
}

/// What is lost beside what was never flushed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Damage {
    /// Nothing.
    None,
    /// The log of votes.
    Votes,
    /// The newest checkpoint.
    Checkpoint,
    /// The bytes of every update.
    Updates,
    /// Everything.
    All,
}

/// One disk.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk {
    /// How many logs of votes it has had.
    pub(super) logs: u64,
    votes: Vec<Record>,
    receipts: Vec<Record>,
    updates: BTreeMap<Digest, (u64, Arc<Vec<u8>>)>,
    checkpoints: BTreeMap<(u64, Digest), Arc<Anchor>>,
    pending: Pending,
    /// Whether it takes nothing but records any more.
    pub(super) full: bool,
    /// Whether something was lost since it was last read, and whether the log of votes was.
    pub(super) damaged: bool,
    pub(super) lost_votes: bool,
}

/// What is written and not flushed.
#[derive(Clone, Debug, Default)]
struct Pending {
    votes: Vec<Record>,
    receipts: Vec<Record>,
    files: Vec<File>,
}

/// What a process starts from.
#[derive(Debug)]
pub(super) struct Restored {
    pub(super) recovered: Recovered,
    pub(super) anchor: Arc<Anchor>,
    /// Older states that it can serve.
    pub(super) served: Vec<Arc<Anchor>>,
    pub(super) updates: Vec<(Digest, Arc<Vec<u8>>)>,
}

impl Disk {
    pub(super) fn write(&mut self, file: File) {
        if self.full {
            self.damaged = true;
            return;
        }
        self.pending.files.push(file);
    }

    pub(super) fn append(&mut self, record: Record) {
        let Pending { votes, receipts, .. } = &mut self.pending;
        if record.is_of_lineage() { receipts.push(record) } else { votes.push(record) }
    }

    /// How many writes a crash may lose.
    pub(super) fn unflushed(&self) -> Kept {
        let Pending { votes, receipts, files } = &self.pending;
        Kept { votes: votes.len(), receipts: receipts.len(), files: files.len() }
    }

    /// Whether a crash would lose nothing.
    pub(super) fn is_flushed(&self) -> bool {
        self.unflushed() == Kept { votes: 0, receipts: 0, files: 0 }
    }

    pub(super) fn flush(&mut self) {
        self.crash(Kept::ALL);
    }

    /// The power fails: of what was not flushed, so many writes are there.
    pub(super) fn crash(&mut self, kept: Kept) {
        let Pending { votes, receipts, files } = std::mem::take(&mut self.pending);
        files.into_iter().take(kept.files).for_each(|file| self.keep(file));
        self.votes.extend(votes.into_iter().take(kept.votes));
        for record in receipts.into_iter().take(kept.receipts) {
            if let Record::Committed { head } = &record {
                self.updates.retain(|_, (epoch, _)| *epoch + UPDATES_KEPT as u64 > head.epoch);
            }
            self.receipts.push(record);
        }
    }

    fn keep(&mut self, file: File) {
        match file {
            File::Update(digest, epoch, bytes) => {
                self.updates.insert(digest, (epoch, bytes));
            }
            File::Checkpoint(anchor) => {
                self.checkpoints.insert((anchor.epoch, anchor.digest()), anchor);
                while self.checkpoints.len() > CHECKPOINTS_KEPT {
                    self.checkpoints.pop_first();
                }
            }
        }
    }

    /// Whether a message says nothing but what is on disk, as far as it binds its author.
    pub(super) fn proves(&self, run: &RunId, message: &Message) -> bool {
        let voted = |wanted: &dyn Fn(&Record) -> bool| self.votes.iter().rev().any(wanted);
        match message {
            Message::Heartbeat(beat) => {
                let there = |record: &Record| *record == Record::Committed { head: beat.head };
                beat.head.epoch == 0 || self.receipts.iter().rev().any(there)
            }
            Message::Query(query) => self.promised(query.series, query.attempt),
            Message::Status(status) => self.promised(status.series, status.attempt),
            Message::Accept(accept) => voted(&|record| match record {
                Record::Accepted { roster } => wire::roster_digest(run, roster) == accept.roster,
                _ => false,
            }),
            Message::Done(done) => {
                let held = self.updates.contains_key(&done.update);
                held && voted(&|record| match record {
                    Record::Voted { receipt, .. } => wire::receipt_digest(run, receipt) == done.r,
                    _ => false,
                })
            }
            Message::Join(join) => voted(&|record| match record {
                Record::Joined { regroup, .. } => {
                    wire::regroup_digest(run, regroup) == join.regroup
                }
                _ => false,
            }),
            Message::Commit(commit) => {
                let update = match commit {
                    Commit::Whole(link) => link.receipt.update,
                    Commit::Short { update, .. } => *update,
                };
                self.receipts.iter().rev().any(|record| match record {
                    Record::Decided { link } => link.receipt.update == update,
                    _ => false,
                })
            }
            Message::Ready(_)
            | Message::Roster(_)
            | Message::Refuse(_)
            | Message::Lost(_)
            | Message::Regroup(_)
            | Message::Leaving(_) => true,
        }
    }

    /// R2, R3: nothing below `attempt` is voted for in `of` any more.
    fn promised(&self, of: Series, least: u32) -> bool {
        self.votes.iter().rev().any(|record| match record {
            Record::Promised { series, attempt } => *series == of && *attempt >= least,
            Record::Accepted { roster } => roster.series == of && roster.attempt >= least,
            _ => false,
        })
    }

    /// Loses the votes given although they were flushed, as a disk does that lies about it.
    pub(super) fn forget_votes(&mut self) {
        self.votes.retain(|record| !matches!(record, Record::Voted { .. }));
    }

    pub(super) fn damage(&mut self, damage: Damage) {
        self.damaged |= damage != Damage::None;
        self.lost_votes |= matches!(damage, Damage::Votes | Damage::All);
        match damage {
            Damage::None => {}
            Damage::Votes => self.votes.clear(),
            Damage::Checkpoint => drop(self.checkpoints.pop_last()),
            Damage::Updates => self.updates.clear(),
            Damage::All => {
                self.votes.clear();
                self.receipts.clear();
                self.updates.clear();
                self.checkpoints.clear();
            }
        }
    }

    /// R19, R21: the state that the disk still proves, and the log of votes, if that is whole. Whether
    /// it counts as lost for want of an update comes with it.
    pub(super) fn restore(&mut self, run: &RunId, genesis: &Arc<Anchor>) -> (Restored, bool) {
        let first = Head { epoch: 0, tokens: 0, state: genesis.digest() };
        let mut lineage = log::lineage(first, reread(&self.receipts));
        let on_it = |anchor: &&Arc<Anchor>| {
            let at = usize::try_from(anchor.epoch.saturating_sub(1)).unwrap_or(usize::MAX);
            lineage.get(at).is_some_and(|(head, _)| head.state == anchor.digest())
        };
        let newest = self.checkpoints.values().rfind(on_it);
        let mut anchor = Arc::clone(newest.unwrap_or(genesis));
        let mut served = vec![Arc::clone(&anchor)];
        while let Some(next) = self.step(run, &lineage, &anchor) {
            anchor = Arc::new(next);
            served.push(Arc::clone(&anchor));
        }
        lineage.truncate(usize::try_from(anchor.epoch).unwrap_or(usize::MAX));
        let votes = reread(&self.votes);
        let readable: BTreeSet<Digest> = self.updates.keys().copied().collect();
        let lost = log::unreadable(&votes, anchor.epoch, &readable).is_some();
        let updates =
            self.updates.iter().map(|(digest, (_, b))| (*digest, Arc::clone(b))).collect();
        let recovered = Recovered { lineage, votes };
        (Restored { recovered, anchor, served, updates }, lost)
    }

    /// R21: the state after the next epoch, if its update is there, and leads to what was committed.
    fn step(&self, run: &RunId, lineage: &[(Head, Link)], from: &Anchor) -> Option<Anchor> {
        let (head, link) = lineage.get(usize::try_from(from.epoch).ok()?)?;
        let (_, bytes) = self.updates.get(&link.receipt.update)?;
        let Head { epoch, tokens, .. } = *head;
        let (update, r) = (link.receipt.update, wire::receipt_digest(run, &link.receipt));
        let next =
            from.step(&Apply { epoch, r, tokens, update, spent: Default::default() }, bytes)?;
        (next.digest() == head.state).then_some(next)
    }
}

/// As the bytes on a disk say it.
fn reread(records: &[Record]) -> Vec<Record> {
    records.iter().filter_map(|record| Record::open(&record.bytes())).collect()
}
