//! The disk of a simulated host: what survives a crash, and what the next process starts from.
//!
//! Writes wait until they are flushed. Votes and receipts are a file each, and nothing orders what
//! the system writes to one after what it writes to the other. A crash keeps everything that was
//! flushed, and any prefix of the rest of each file ([`Kept`]): records are appended, and a torn
//! one is cut off, so each write is there as a whole or not at all.
//! A state is not stored for each epoch; it is the newest checkpoint and the updates after it
//! (R21).
//!
//! The world asks the disk two things that a real one cannot answer, and reports a violation if the
//! answer is wrong: whether a message says only what is flushed ([`Disk::proves`]), and whether an
//! update may be deleted ([`Disk::binds`]). Both are decided here from the records alone, without
//! the machine that wrote them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::toy::{self, Anchor};
use intellect_protocol::base::id::{Digest, RunId};
use intellect_protocol::consensus::epoch::Apply;
use intellect_protocol::download::Piece;
use intellect_protocol::history::log::{self, Record, Recovered};
use intellect_protocol::holdings::{self, CHECKPOINTS, Name, Restored};
use intellect_protocol::message::wire;
use intellect_protocol::message::{Commit, Head, Link, Message, Series};

/// A file that is written as a whole.
#[derive(Clone, Debug)]
pub(super) enum File {
    /// The bytes of an update, under its name.
    Update(Name, Arc<Vec<u8>>),
    /// A complete checkpoint of the state.
    Checkpoint(Arc<Anchor>),
}

/// How many writes that were not flushed survive a crash: the first ones of each kind.
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
    /// All writes survive, as when a process ends by itself.
    pub(super) const ALL: Self =
        Self { votes: usize::MAX, receipts: usize::MAX, files: usize::MAX };
}

/// What is lost in addition to writes that were never flushed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Damage {
    /// Nothing is lost in addition to unflushed writes.
    None,
    /// The log of votes, so the next process is another voter (R19).
    Votes,
    /// The newest checkpoint, so an older one is the start.
    Checkpoint,
    /// The bytes of every update, so that only checkpoints are left.
    Updates,
    /// Everything, as on a new disk.
    All,
}

/// The disk of one host, which outlives its processes. What it returns is flushed; what is only
/// written is in `pending`.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk {
    /// How many logs of votes it has had.
    pub(super) logs: u64,
    /// The flushed log of votes, in order.
    votes: Vec<Record>,
    /// The flushed log of receipts, in order.
    receipts: Vec<Record>,
    /// Flushed updates, each with its name and bytes.
    updates: BTreeMap<Digest, (Name, Arc<Vec<u8>>)>,
    /// Flushed checkpoints by epoch and state, at most [`CHECKPOINTS`].
    checkpoints: BTreeMap<(u64, Digest), Arc<Anchor>>,
    /// A state that is being received. There is one at most: another one replaces it.
    received: Option<Received>,
    /// What was written and a crash may lose, until its flush.
    pending: Pending,
    /// Whether the disk is full: it accepts records, but no files.
    pub(super) full: bool,
    /// Whether something was lost since it was last read. A start sets it back.
    pub(super) damaged: bool,
    /// Whether the log of votes was among it: then the next process has a fresh one.
    pub(super) lost_votes: bool,
}

/// The parts of a state that have come: its table, and its numbers with zeros for missing pieces.
#[derive(Clone, Debug)]
struct Received {
    /// The table that its digest names.
    table: Vec<u8>,
    /// θ and v, as far as their pieces have come.
    bytes: Vec<u8>,
}

/// A crash that is planned for a host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlannedCrash {
    /// The host whose power fails, by its index.
    pub(crate) host: usize,
    /// How many points at which it could strike pass before it.
    pub(crate) points: u64,
    /// How many of the unflushed writes survive; all of them if there are fewer.
    pub(crate) kept: Kept,
}

/// What was written and is not flushed. In the order of writing within each kind, and in no order
/// between them.
#[derive(Clone, Debug, Default)]
struct Pending {
    /// Records for the end of the log of votes.
    votes: Vec<Record>,
    /// Records for the end of the log of receipts.
    receipts: Vec<Record>,
    /// Updates and checkpoints, which are flushed one by one.
    files: Vec<File>,
}

impl Disk {
    /// Starts to write a file. Returns whether there is room for it.
    pub(super) fn write(&mut self, file: File) -> bool {
        if !self.full {
            self.pending.files.push(file);
        }
        !self.full
    }

    /// Starts to write records, each to the log of its kind.
    pub(super) fn append(&mut self, records: &[Record]) {
        let Pending { votes, receipts, .. } = &mut self.pending;
        for record in records.iter().cloned() {
            if record.is_of_lineage() { receipts.push(record) } else { votes.push(record) }
        }
    }

    /// How many writes a crash may lose now.
    pub(super) fn unflushed(&self) -> Kept {
        let Pending { votes, receipts, files } = &self.pending;
        Kept { votes: votes.len(), receipts: receipts.len(), files: files.len() }
    }

    /// Flushes the records that were written, in both logs.
    pub(super) fn flush_records(&mut self) {
        self.votes.append(&mut self.pending.votes);
        self.receipts.append(&mut self.pending.receipts);
    }

    /// Flushes an update that was written.
    pub(super) fn flush_update(&mut self, digest: &Digest) {
        self.flush(|file| matches!(file, File::Update(name, _) if name.digest == *digest));
    }

    /// Flushes a checkpoint that was written.
    pub(super) fn flush_checkpoint(&mut self, state: &Digest) {
        self.flush(|file| matches!(file, File::Checkpoint(anchor) if anchor.digest() == *state));
    }

    /// Makes the written files that are meant survive a power cut.
    fn flush(&mut self, which: impl Fn(&File) -> bool) {
        for file in self.pending.files.extract_if(.., |file| which(file)).collect::<Vec<_>>() {
            self.keep(file);
        }
    }

    /// The power fails: this many of the unflushed writes survive, the first of each kind. All
    /// others are lost, and nothing is unflushed any more.
    pub(super) fn crash(&mut self, kept: Kept) {
        let Pending { votes, receipts, files } = std::mem::take(&mut self.pending);
        files.into_iter().take(kept.files).for_each(|file| self.keep(file));
        self.votes.extend(votes.into_iter().take(kept.votes));
        self.receipts.extend(receipts.into_iter().take(kept.receipts));
    }

    /// Puts a file where a restart finds it; only the newest [`CHECKPOINTS`] stay.
    fn keep(&mut self, file: File) {
        match file {
            File::Update(name, bytes) => drop(self.updates.insert(name.digest, (name, bytes))),
            File::Checkpoint(anchor) => {
                self.checkpoints.insert((anchor.epoch, anchor.digest()), anchor);
                while self.checkpoints.len() > CHECKPOINTS {
                    self.checkpoints.pop_first();
                }
            }
        }
    }

    /// Deletes updates that nothing needs any more.
    pub(super) fn drop_updates(&mut self, names: &[Name]) {
        self.updates.retain(|_, (name, _)| !names.contains(name));
    }

    /// The bytes of an update, if it is flushed.
    pub(super) fn update(&self, digest: &Digest) -> Option<Arc<Vec<u8>>> {
        self.updates.get(digest).map(|(_, bytes)| Arc::clone(bytes))
    }

    /// Every flushed update, the oldest first.
    pub(super) fn updates(&self) -> Vec<(Name, Arc<Vec<u8>>)> {
        let mut updates: Vec<_> = self.updates.values().cloned().collect();
        updates.sort_by_key(|(name, _)| *name);
        updates
    }

    /// Whether the head was ever taken back, to follow another lineage. Then an update that a vote
    /// names may be gone lawfully.
    pub(super) fn has_rewound(&self) -> bool {
        self.receipts.iter().any(|record| matches!(record, Record::Rewound { .. }))
    }

    /// R19: whether a vote names this update, for an epoch after the head that the disk leads to.
    pub(super) fn binds(&self, name: &Name) -> bool {
        let committed = self.receipts.iter().rev().find_map(|record| match record {
            Record::Committed { head } => Some(head.epoch),
            _ => None,
        });
        name.epoch > committed.unwrap_or(0)
            && self.votes.iter().any(|record| {
                matches!(record, Record::Voted { voted }
                    if (voted.roster.series.epoch, voted.update) == (name.epoch, name.digest))
            })
    }

    /// Whether a message says only what is on disk, as far as it binds its author. It is asked
    /// before the message leaves, so a record that is written but not flushed does not count.
    ///
    /// It is the table of what must be on disk in docs/PROTOCOL.md, read as a test. A kind of
    /// message that binds nobody needs nothing.
    pub(super) fn proves(&self, run: &RunId, message: &Message) -> bool {
        let voted = |wanted: &dyn Fn(&Record) -> bool| self.votes.iter().rev().any(wanted);
        match message {
            Message::Heartbeat(beat) => {
                let there = |record: &Record| *record == Record::Committed { head: beat.head };
                let known = beat.head.epoch == 0 || self.receipts.iter().rev().any(there);
                known && self.leads_to(&beat.head)
            }
            Message::Query(query) => self.promised(query.series, query.attempt),
            Message::Status(status) => self.promised(status.series, status.attempt),
            Message::Accept(accept) => voted(&|record| {
                matches!(record, Record::Accepted { roster } if roster.series == accept.series
                    && wire::roster_digest(run, roster) == accept.roster)
            }),
            Message::Prepared(prepared) => {
                let held = self.updates.contains_key(&prepared.update);
                held && voted(&|record| {
                    matches!(record, Record::Prepared { series, update, .. }
                        if (*series, *update) == (prepared.series, prepared.update))
                })
            }
            Message::Done(done) => {
                let held = self.updates.contains_key(&done.update);
                held && voted(&|record| {
                    matches!(record, Record::Voted { voted }
                        if wire::receipt_digest(run, &voted.receipt()) == done.r)
                })
            }
            Message::Join(join) => voted(&|record| {
                matches!(record, Record::Joined { regroup, .. }
                    if wire::regroup_digest(run, regroup) == join.regroup)
            }),
            Message::Commit(commit) => {
                let update = match commit {
                    Commit::Whole(link) => link.receipt.update,
                    Commit::Short { update, .. } => *update,
                };
                self.receipts.iter().rev().any(|record| {
                    matches!(record, Record::Decided { link } if link.receipt.update == update)
                })
            }
            Message::Ready(_)
            | Message::Report(_)
            | Message::Ground(_)
            | Message::Opened(_)
            | Message::Roster(_)
            | Message::Refuse(_)
            | Message::Stalled(_)
            | Message::Regroup(_)
            | Message::Leaving(_)
            | Message::Notice(_) => true,
        }
    }

    /// R21: whether a start could come back to the head that was committed or loaded last.
    fn leads_to(&self, head: &Head) -> bool {
        let decided = self.receipts.iter().rev().find_map(|record| match record {
            Record::Decided { link } if link.receipt.series.epoch == head.epoch => Some(link),
            _ => None,
        });
        let saved = self.checkpoints.values().any(|anchor| anchor.epoch >= head.epoch);
        let kept = decided.is_some_and(|link| self.updates.contains_key(&link.receipt.update));
        head.epoch == 0 || saved || kept
    }

    /// R2, R3: nothing below `least` is voted for in `of` any more; R13: nothing at
    /// all in a series that was left.
    fn promised(&self, of: Series, least: u64) -> bool {
        self.votes.iter().rev().any(|record| match record {
            Record::Promised { series, attempt } => *series == of && *attempt >= least,
            Record::Accepted { roster } => roster.series == of && roster.attempt >= least,
            Record::Joined { regroup, .. } => regroup.series == of,
            _ => false,
        })
    }

    /// The links of these epochs, with receipts of these digests; `None` if some are missing. A
    /// node reads them from its log for peers that ask for old epochs.
    pub(super) fn links(&self, run: &RunId, of: &[(u64, Digest)]) -> Option<Vec<Link>> {
        let link = |(_, r): &(u64, Digest)| {
            self.receipts.iter().find_map(|record| match record {
                Record::Decided { link } if wire::receipt_digest(run, &link.receipt) == *r => {
                    Some(link.as_ref().clone())
                }
                _ => None,
            })
        };
        of.iter().map(link).collect()
    }

    /// Damages what a restart will find. What was not flushed was lost with the process before.
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
                self.received = None;
            }
        }
    }

    /// The digest of the state that is being received, if any.
    pub(super) fn received_state(&self) -> Option<Digest> {
        self.received.as_ref().map(|received| toy::table_digest(&received.table))
    }

    /// The table of a state, if that is being received.
    pub(super) fn received_table(&self, state: &Digest) -> Option<Vec<u8>> {
        let received = self.received.as_ref()?;
        (self.received_state().as_ref() == Some(state)).then(|| received.table.clone())
    }

    /// Starts to receive a state, or goes on with it. Returns its numbers
    /// and the pieces that are here.
    pub(super) fn receive(&mut self, table: &[u8], pieces: &[Piece]) -> (Vec<u8>, BTreeSet<usize>) {
        drop(self.received.take_if(|received| received.table != table));
        let fresh = || Received { table: table.to_vec(), bytes: vec![0; toy::STATE_BYTES] };
        let bytes = self.received.get_or_insert_with(fresh).bytes.clone();
        let here = |piece: &Piece| {
            let begin = usize::try_from(piece.offset).unwrap_or(usize::MAX);
            let slice = bytes.get(begin..).unwrap_or_default().iter().take(piece.length as usize);
            blake3::hash(&slice.copied().collect::<Vec<u8>>()).as_bytes() == piece.digest.as_bytes()
        };
        let held = pieces.iter().enumerate().filter(|(_, piece)| here(piece));
        let held = held.map(|(number, _)| number).collect();
        (bytes, held)
    }

    /// A piece of the state that is being received has come. A full disk drops it, like any file.
    /// It needs no flush: a piece whose bytes are not those of its digest is fetched again.
    pub(super) fn put_piece(&mut self, offset: u64, piece: &[u8]) {
        let (Some(received), false) = (&mut self.received, self.full) else { return };
        let begin = usize::try_from(offset).unwrap_or(usize::MAX);
        received.bytes[begin..begin + piece.len()].copy_from_slice(piece);
    }

    /// The received state is a checkpoint now.
    pub(super) fn drop_received(&mut self) {
        self.received = None;
    }

    /// The state that the disk still proves, the votes that bind, and the newest checkpoint on it.
    /// It goes from that checkpoint, or from genesis, over each update that is there, and stops at
    /// the first one that is missing or leads to another state than was committed (R21).
    pub(super) fn restore(
        &self,
        run: &RunId,
        genesis: &Arc<Anchor>,
    ) -> (Restored<Arc<Anchor>>, Option<Arc<Anchor>>) {
        let receipts = reread(&self.receipts);
        let marks = log::marks(&receipts);
        let lineage = log::lineage(genesis.head(), receipts);
        let on_it = |anchor: &&Arc<Anchor>| lineage.iter().any(|(head, _)| *head == anchor.head());
        let saved = self.checkpoints.values().rfind(on_it);
        let from = Arc::clone(saved.unwrap_or(genesis));
        let restored = holdings::restore(
            Recovered { lineage, marks, votes: reread(&self.votes), forgotten: 0 },
            from.epoch,
            from,
            |anchor, head, link| self.step(run, anchor, head, link).map(Arc::new),
            |name| self.updates.contains_key(&name.digest),
        );
        (restored, saved.cloned())
    }

    /// The state after the next epoch, if its update is there, and leads to what was committed.
    fn step(&self, run: &RunId, from: &Anchor, head: &Head, link: &Link) -> Option<Anchor> {
        let bytes = self.update(&link.receipt.update)?;
        let Head { epoch, tokens, .. } = *head;
        let (update, r) = (link.receipt.update, wire::receipt_digest(run, &link.receipt));
        let next =
            from.step(&Apply { epoch, r, tokens, update, spent: Default::default() }, &bytes)?;
        (next.digest() == head.state).then_some(next)
    }
}

/// The records as they are read back from their bytes. So each restart also tests that the form in
/// which a log is written can be read.
fn reread(records: &[Record]) -> Vec<Record> {
    records.iter().filter_map(|record| Record::open(&record.bytes())).collect()
}
