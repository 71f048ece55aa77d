//! The votes that bind this node, in `votes.log`, and what it has seen decided, in `receipts.log`.
//!
//! The first record of `votes.log` is the log id, drawn for this folder: the same key on two machines is two voters. Only
//! the first id of a simulated peer, or of a founder that the manifest names with one, is known in advance. A file
//! outside of `runs/` notes that such an id was used in a run, so that it is not used again when the log is lost: a
//! node that has forgotten its votes is another voter (R19). The file is made once the log's first
//! record is on the disk, and before the first message, so a crash in between costs no founder its id.
//!
//! Each start appends its incarnation, so that it also rises when a log is lost (R20): the time, or a little more than the
//! last one where that is not behind. How much more is drawn, or two copies of a folder would start as one. A simulated
//! peer counts its starts, 1, 2, 3 …, so that its receipts repeat; it uses the clock only if its log is lost. Then come
//! votes, as [`wire::canonical`] writes them.
//!
//! A `votes.log` that is damaged before its tail is lost: it is set aside and another one begun. So is one that was cut
//! off between two records, or restored from a copy, if that shows: a certificate in `receipts.log` counts a vote of
//! this log that is not in it. From a damaged `receipts.log` the part before the damage is kept, since each link
//! proves itself and binds nobody. The rest is fetched from other peers again, and a state beyond it is not used
//! until then.
//!
//! `receipts.log` only grows. `votes.log` is rewritten when it has grown: without the votes of epochs that were committed
//! long ago, and with a note of the last such epoch. A node that has to go back behind that epoch, because its states
//! are lost, has forgotten votes; so its log counts as lost (R19).
//!
//! Both logs are written by one job at a time, which owns the [`Journal`]. Nothing that rests on a
//! record is sent before [`Journal::append`] has returned.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
};

use intellect_protocol::{
    base::id::LogId,
    history::log::Record,
    message::{Certificate, Series, wire},
};

use super::{
    Store, StoreError,
    log::{Content, Log, MARK_BYTES},
};
use crate::{
    identity::Origin,
    os::{self, cannot},
};

/// Which log binds this start of the node, and which start it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Start {
    /// The log whose votes bind this start.
    pub(crate) log: LogId,
    /// Number of the start, which rises with every start.
    pub(crate) incarnation: u64,
}

/// Both logs, open for more records.
#[derive(Debug)]
pub(crate) struct Journal {
    /// `votes.log`: what this node may not contradict.
    votes: Log,
    /// `receipts.log`: the lineage, whose links prove themselves.
    receipts: Log,
    /// Which log and incarnation this start has.
    start: Start,
    /// Votes of epochs up to this one may be missing in the log.
    forgotten: u64,
    /// Length of `votes.log` when it was last opened or rewritten.
    settled_bytes: u64,
}

/// A start of the node, and what earlier starts left.
#[derive(Debug)]
pub(crate) struct Begun {
    /// The logs, open for more records.
    pub(crate) journal: Journal,
    /// The votes that bind this node, in order.
    pub(crate) votes: Vec<Record>,
    /// The records of its lineage, in order.
    pub(crate) receipts: Vec<Record>,
    /// Files that were set aside, because they were damaged or lacked a vote.
    pub(crate) damaged: Vec<PathBuf>,
}

/// The contents of a `votes.log`.
#[derive(Default)]
struct VoteLog {
    /// The id in the first record; `None` for an empty log.
    log: Option<LogId>,
    /// The highest incarnation; each start writes one.
    incarnation: u64,
    /// The epoch up to which votes were removed on purpose.
    forgotten: u64,
    /// The votes in the order in which they were cast.
    votes: Vec<Record>,
}

impl Store {
    /// Begins an incarnation durably; nothing may be sent before. `first` is the id of the first log if it is known in
    /// advance, `origin` that of the identity, `now_ms` the Unix time.
    ///
    /// # Errors
    /// The disk refuses, or the system gives no random bytes. Nothing may be sent then. The next
    /// start tries again: an incarnation that was written and not used does no harm.
    pub(crate) fn begin(
        &self,
        first: Option<LogId>,
        origin: Origin,
        now_ms: u64,
    ) -> Result<Begun, StoreError> {
        let path = self.folder.join("votes.log");
        let content = Content::read(&path).map_err(cannot("read", &path))?;
        let has_begun = content.damaged || !content.records.is_empty();
        let is_used = has_begun || self.used.try_exists().map_err(cannot("read", &self.used))?;
        let claim = || first.map_or(Ok(()), |_| self.claim_first());
        let mut damaged = Vec::new();
        let (receipts, decided) = self.open_receipts(&mut damaged)?;
        let (mut vote_log, whole) = VoteLog::of(&content.records);
        let mut bytes = content.bytes;
        if content.damaged || !whole || vote_log.lacks_a_vote(&decided) {
            // First, so that no crash frees the id of a log that is given up.
            claim().map_err(cannot("write", &self.used))?;
            self.set_aside(&path)?;
            vote_log = VoteLog { incarnation: vote_log.incarnation, ..VoteLog::default() };
            bytes = 0;
            damaged.push(path.clone());
        }
        let mut records = Vec::new();
        let is_lost = vote_log.log.is_none() && is_used;
        let log = match vote_log.log {
            Some(log) => log,
            None => {
                let log = if is_lost { None } else { first }.map_or_else(|| draw(&path), Ok)?;
                records.push(record(KIND_LOG, log.as_bytes()));
                log
            }
        };
        let draw_some = || {
            let drawn = os::random().map(|bytes| u64::from(u16::from_le_bytes(bytes)));
            drawn.map_err(cannot("draw a number for", &path)).map(|number| number % DRAWN_MAX)
        };
        let next = vote_log.incarnation.saturating_add(1);
        let counts = origin == Origin::Simulated && !is_lost;
        let incarnation = if counts {
            next
        } else if next <= now_ms {
            now_ms
        } else {
            next.saturating_add(draw_some()?)
        };
        records.push(record(KIND_INCARNATION, &incarnation.to_le_bytes()));
        let votes = append_to(&path, bytes, &records)?;
        claim().map_err(cannot("write", &self.used))?;
        let start = Start { log, incarnation };
        let settled_bytes = votes.bytes();
        let journal =
            Journal { votes, receipts, start, forgotten: vote_log.forgotten, settled_bytes };
        Ok(Begun { journal, votes: vote_log.votes, receipts: decided, damaged })
    }

    /// Opens `receipts.log`. Of a damaged one the records before the damage are kept in a new file,
    /// and the old one is set aside.
    /// `damaged` gets its path, for people.
    fn open_receipts(&self, damaged: &mut Vec<PathBuf>) -> Result<(Log, Vec<Record>), StoreError> {
        let path = self.folder.join("receipts.log");
        let content = Content::read(&path).map_err(cannot("read", &path))?;
        let of_lineage =
            |bytes: &Vec<u8>| wire::open_record::<Record>(bytes).filter(Record::is_of_lineage);
        let decided: Vec<Record> = content.records.iter().map_while(of_lineage).collect();
        let open = |bytes| Log::open(&path, bytes).map_err(cannot("open", &path));
        if !content.damaged && decided.len() == content.records.len() {
            return Ok((open(content.bytes)?, decided));
        }
        // A copy: until the good part has the name, nothing else may, or a power cut here would cost the lineage.
        self.copy_aside(&path)?;
        damaged.push(path.clone());
        let mut log = open(content.bytes)?;
        let good = content.records.get(..decided.len()).unwrap_or_default();
        log.rewrite(good).map_err(cannot("write", &path))?;
        Ok((log, decided))
    }

    /// Treats the votes of `journal` as lost (R19): sets their log aside and begins another one.
    /// The incarnation stays: it is the same start, as another voter.
    pub(crate) fn renew(&self, journal: &mut Journal) -> Result<(), StoreError> {
        let path = journal.votes.path().to_owned();
        self.set_aside(&path)?;
        let log = draw(&path)?;
        let records = [
            record(KIND_LOG, log.as_bytes()),
            record(KIND_INCARNATION, &journal.start.incarnation.to_le_bytes()),
        ];
        journal.votes = append_to(&path, 0, &records)?;
        journal.start.log = log;
        journal.forgotten = 0;
        journal.settled_bytes = journal.votes.bytes();
        Ok(())
    }

    /// Notes durably that the log id known in advance is used.
    fn claim_first(&self) -> io::Result<()> {
        self.used.parent().map_or(Ok(()), os::create_folder)?;
        File::create(&self.used)?.sync_all()?;
        os::sync_parent(&self.used)
    }
}

impl Journal {
    /// Which log binds this start, and its incarnation.
    pub(crate) fn start(&self) -> Start {
        self.start
    }

    /// Votes of epochs up to this one may be missing.
    pub(crate) fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Appends records, and returns once they are on the disk. After an error none of them counts; records may be appended
    /// twice without effect.
    ///
    /// Votes are written before links. If the links fail, the votes are taken back, so that both
    /// logs stand where they stood. A log whose file was removed is an error before anything is
    /// written: its records would be gone with the process.
    pub(crate) fn append(&mut self, records: &[Record]) -> Result<(), StoreError> {
        let (decided, votes): (Vec<_>, Vec<_>) =
            records.iter().partition(|record| record.is_of_lineage());
        let votes: Vec<_> = votes.into_iter().map(vote).collect();
        let links: Vec<_> = decided.iter().map(|record| wire::canonical(*record)).collect();
        if let Some(log) = [&self.votes, &self.receipts].into_iter().find(|log| log.is_removed()) {
            return Err(StoreError::Removed { path: log.path().to_owned() });
        }
        let before = self.votes.bytes();
        add(&mut self.votes, &votes)?;
        if let Err(error) = add(&mut self.receipts, &links) {
            // The caller will append these records again.
            self.votes.take_back(before);
            return Err(error);
        }
        let head = decided.iter().rev().find_map(|record| match record {
            Record::Committed { head } => Some(head.epoch),
            _ => None,
        });
        if let Some(head) = head
            && self.has_grown()
        {
            // If this fails, the log is merely longer than it could be, and the next append tries again.
            if let Err(error) = self.forget(head.saturating_sub(VOTES_KEPT)) {
                let path = self.votes.path().display();
                tracing::warn!(%error, %path, "the log cannot be made shorter");
            }
        }
        Ok(())
    }

    /// Whether rewriting `votes.log` would pay: it has doubled since it was opened or rewritten.
    /// So the bytes of all rewrites together are at most about those of all appends.
    fn has_grown(&self) -> bool {
        self.votes.bytes() > REWRITE_BYTES.max(2 * self.settled_bytes)
    }

    /// Rewrites `votes.log` without the votes of epochs up to `epoch`.
    ///
    /// It works on what is on the disk and not on a copy in memory. A log that does not read back
    /// as it was written is left as it is.
    fn forget(&mut self, epoch: u64) -> io::Result<()> {
        let content = Content::read(self.votes.path())?;
        let (vote_log, whole) = VoteLog::of(&content.records);
        if content.damaged || !whole || content.bytes + (MARK_BYTES as u64) < self.votes.bytes() {
            return Err(io::Error::other("it does not read back as it was written"));
        }
        let Start { log, incarnation } = self.start;
        let forgotten = epoch.max(self.forgotten);
        let mut records = vec![
            record(KIND_LOG, log.as_bytes()),
            record(KIND_INCARNATION, &incarnation.to_le_bytes()),
            record(KIND_FORGOTTEN, &forgotten.to_le_bytes()),
        ];
        records.extend(vote_log.votes.iter().filter(|vote| epoch_of(vote) > epoch).map(vote));
        let rewritten = self.votes.rewrite(&records);
        (self.forgotten, self.settled_bytes) = (forgotten, self.votes.bytes());
        rewritten
    }
}

impl VoteLog {
    /// Reads `records`, and returns whether all of them make sense.
    fn of(records: &[Vec<u8>]) -> (Self, bool) {
        let mut vote_log = Self::default();
        let whole = records.iter().enumerate().all(|(index, record)| {
            let Some((kind, body)) = record.split_first() else { return false };
            // The log id comes first, and only once.
            (index == 0) == (*kind == KIND_LOG) && vote_log.take(*kind, body).is_some()
        });
        (vote_log, whole)
    }

    /// Whether a vote is missing: the newest certificate that counts a vote of this log counts one that is neither in the
    /// log nor forgotten.
    fn lacks_a_vote(&self, decided: &[Record]) -> bool {
        let links = decided.iter().rev().filter_map(|record| match record {
            Record::Decided { link } => Some(link),
            _ => None,
        });
        let counted = links.into_iter().find_map(|link| {
            let Certificate { roster, dones } = &link.certificate;
            let ours = roster.members.iter().find(|m| Some(m.log) == self.log)?;
            let voted = dones.iter().any(|(voter, _)| *voter == ours.peer);
            voted.then_some(roster.series)
        });
        let is_here = |series: Series| {
            self.votes.iter().any(
                |vote| matches!(vote, Record::Voted { voted } if voted.roster.series == series),
            )
        };
        counted.is_some_and(|series| series.epoch > self.forgotten && !is_here(series))
    }

    /// Takes one record; `None` if it makes no sense, which makes the whole log damaged.
    fn take(&mut self, kind: u8, body: &[u8]) -> Option<()> {
        let number = || Some(u64::from_le_bytes(body.try_into().ok()?));
        match kind {
            KIND_LOG => self.log = Some(LogId(body.try_into().ok()?)),
            KIND_INCARNATION => self.incarnation = number()?,
            KIND_FORGOTTEN => self.forgotten = number()?,
            KIND_VOTE => {
                let vote =
                    wire::open_record(body).filter(|record: &Record| !record.is_of_lineage());
                self.votes.push(vote?);
            }
            _ => return None,
        }
        Some(())
    }
}

/// The epoch that a vote is about, by which old votes are found.
fn epoch_of(vote: &Record) -> u64 {
    match vote {
        Record::Promised { series, .. }
        | Record::Prepared { series, .. }
        | Record::Left { series } => series.epoch,
        Record::Voted { voted } => voted.roster.series.epoch,
        Record::Accepted { roster } => roster.series.epoch,
        Record::Joined { regroup, .. } => regroup.series.epoch,
        Record::Opened { opening } => opening.regroup.series.epoch,
        // Records of the lineage are never forgotten.
        Record::Decided { .. }
        | Record::Committed { .. }
        | Record::Marked { .. }
        | Record::Rewound { .. } => u64::MAX,
    }
}

/// Appends records. No records are no write, so that an epoch without votes costs no flush.
fn add(log: &mut Log, records: &[Vec<u8>]) -> Result<(), StoreError> {
    if records.is_empty() {
        return Ok(());
    }
    Ok(log.append(records).map_err(cannot("write", log.path()))?)
}

/// Opens a log behind its first `bytes` bytes and appends records.
fn append_to(path: &Path, bytes: u64, records: &[Vec<u8>]) -> Result<Log, StoreError> {
    let mut log = Log::open(path, bytes).map_err(cannot("write", path))?;
    add(&mut log, records)?;
    Ok(log)
}

/// The most by which an incarnation exceeds the last one where the clock is behind that.
const DRAWN_MAX: u64 = 1_024;

/// A log id from the system's random numbers.
fn draw(path: &Path) -> Result<LogId, StoreError> {
    Ok(LogId(os::random().map_err(cannot("draw a log id for", path))?))
}

/// A vote as a record of `votes.log`.
fn vote(record: &Record) -> Vec<u8> {
    self::record(KIND_VOTE, &wire::canonical(record))
}

/// A record: its kind, then its body.
fn record(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind], body].concat()
}

/// How many epochs before the head keep their votes: as many as keep their updates (docs/FORMATS.md).
const VOTES_KEPT: u64 = 32;

/// A `votes.log` below this length is not rewritten: half a day of epochs of a minute.
const REWRITE_BYTES: u64 = 1 << 20;

/// Kind of an incarnation, `u64` LE.
const KIND_INCARNATION: u8 = 1;

/// Kind of the log id. It comes first: all votes behind it belong to that log.
const KIND_LOG: u8 = 2;

/// Kind of a vote, as the protocol writes it.
const KIND_VOTE: u8 = 3;

/// Kind of the epoch up to which votes are forgotten, `u64` LE.
const KIND_FORGOTTEN: u8 = 4;

#[cfg(test)]
mod tests;
