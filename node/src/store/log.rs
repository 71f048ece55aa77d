//! A file of records that is appended to, a *batch* at a time: `length u32 LE ‖ first 16 bytes of
//! BLAKE3 ‖ records`, each record `length u32 LE ‖ bytes`. Behind a batch that was flushed comes its
//! *end mark*, [`end_mark`].
//!
//! When [`Log::append`] returns, its records are on the disk. A process that is killed, or a machine that loses its
//! power, leaves at most one append half done: a *torn tail*. It is cut off, since nothing that depends on it has been
//! sent. Any pages of one append may have reached the disk, while others are zeros or missing. So its records share
//! one check: if each were believed by itself, one behind a gap would look like damage. Anything else that does not
//! match its check is *damage*: the batches before it are good, those behind it cannot be told from it any more.
//!
//! A damaged length may reach beyond the end, as that of a torn batch does. So a tail is torn only if it contains no
//! whole batch and no end mark. The mark is written once the batch is on the disk, so a batch that others may depend on
//! is never taken for half an append. The mark itself is flushed with the next batch. If it is missing, because of a
//! power cut or a full disk, a batch that does not match its check counts as torn.
//!
//! After an append that failed, it is unknown what the system has written. So the next append cuts the file back to
//! where it was whole and writes everything again. Another flush alone would report success
//! (<https://wiki.postgresql.org/wiki/Fsync_Errors>).
//!
//! The caller decides what records mean.
//!
//! Reading takes time in proportion to the file, and for a tail at most the hashing of
//! [`SEARCH_BYTES`].

use std::{
    fs::{self, File, Metadata, OpenOptions},
    io::{self, Write as _},
    ops::Range,
    os::unix::fs::{FileExt as _, MetadataExt as _},
    path::{Path, PathBuf},
};

use intellect_protocol::{holdings::BATCH_BYTES, message::wire};

use crate::os;

/// A log that is open for more records.
#[derive(Debug)]
pub(super) struct Log {
    /// The path, for a rewrite and for errors.
    path: PathBuf,
    /// The open file, in append mode.
    file: File,
    /// Up to this offset every batch is whole and on the disk.
    bytes: u64,
    /// Whether there may be other bytes behind that offset.
    torn: bool,
    /// Whether the file's name is on the disk.
    named: bool,
}

/// The records of a log, and how its file ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Content {
    /// The records up to the end, or to the first batch that is damaged.
    pub(super) records: Vec<Vec<u8>>,
    /// Length of these records in the file.
    pub(super) bytes: u64,
    /// Whether what follows is damaged and not merely torn.
    pub(super) damaged: bool,
}

/// The records of one batch, and where it is in the file.
pub(super) type Batch = (Vec<Vec<u8>>, Range<u64>);

impl Content {
    /// Reads the file at `path`; a file that does not exist is empty.
    pub(super) fn read(path: &Path) -> io::Result<Self> {
        Ok(Self::of(&os::unless_missing(fs::read(path))?.unwrap_or_default()))
    }

    /// Reads the bytes of a whole file, batch by batch. It stops at the first batch that does not
    /// match its check, and then says whether that is a torn tail or damage.
    pub(super) fn of(bytes: &[u8]) -> Self {
        let mut content = Self::default();
        // A mark that is missing at the beginning of `rest`.
        let (mut rest, mut mark) = (bytes, None);
        while let Some((records, after)) = split_batch(rest) {
            content.records.extend(records);
            let its_mark = end_mark((bytes.len() - rest.len()) as u64);
            mark = None;
            rest = after.strip_prefix(&its_mark).unwrap_or_else(|| {
                mark = Some(its_mark);
                let behind = behind_torn(&its_mark, after);
                behind.filter(|behind| split_body(behind).is_some()).unwrap_or(after)
            });
        }
        content.bytes = (bytes.len() - rest.len()) as u64;
        let tail = mark.and_then(|mark| behind_torn(&mark, rest)).unwrap_or(rest);
        content.damaged = has_mark(rest, content.bytes) || !is_torn(tail);
        content
    }
}

impl Log {
    /// Opens the log at `path`, whose first `bytes` bytes are good. The next append cuts off what is behind them.
    pub(super) fn open(path: &Path, bytes: u64) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        let path = path.to_owned();
        Ok(Self { path, file, bytes, torn: true, named: false })
    }

    /// Whether another file has its name since, or none: its records are lost when the process ends. A file of which
    /// nothing is known any more counts too, as on a disk that was unplugged.
    pub(super) fn is_removed(&self) -> bool {
        let identity = |file: &Metadata| (file.dev(), file.ino());
        match (self.file.metadata(), fs::metadata(&self.path)) {
            (Ok(ours), Ok(named)) => identity(&ours) != identity(&named),
            (Ok(_), Err(error)) => error.kind() == io::ErrorKind::NotFound,
            (Err(_), _) => true,
        }
    }

    /// The path under which the log was opened.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Length of the file up to the last whole batch, or its mark.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Appends records, at least one, and returns once they are on the disk. After an error, or a power cut, none of them
    /// counts, and the next append begins at the same offset.
    pub(super) fn append(&mut self, records: &[Vec<u8>]) -> io::Result<()> {
        let bytes = batch(records)?;
        if !self.named {
            os::sync_parent(&self.path)?;
            self.named = true;
        }
        if self.torn {
            self.file.set_len(self.bytes)?;
        }
        self.torn = true;
        self.file.write_all(&bytes)?;
        self.file.sync_data()?;
        let mark = end_mark(self.bytes);
        self.bytes += bytes.len() as u64;
        // The batch is on the disk even if there is no room for its mark.
        if self.file.write_all(&mark).is_ok() {
            self.bytes += MARK_BYTES as u64;
            self.torn = false;
        }
        Ok(())
    }

    /// Drops what is behind the first `bytes` bytes; the next append cuts it off.
    /// `bytes` has to be an end of a batch, as [`Self::bytes()`] has returned it.
    pub(super) fn take_back(&mut self, bytes: u64) {
        self.torn |= bytes < self.bytes;
        self.bytes = self.bytes.min(bytes);
    }

    /// Replaces all records by `records`. A reader, even after a crash, finds the old records or the new ones.
    pub(super) fn rewrite(&mut self, records: &[Vec<u8>]) -> io::Result<()> {
        let bytes = encode(records)?;
        let temporary = self.path.with_extension(super::TEMPORARY);
        os::unless_missing(fs::remove_file(&temporary))?;
        let mut file = OpenOptions::new().create_new(true).append(true).open(&temporary)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, &self.path)?;
        // From here on this file is the log. If its name cannot be made durable now, the next append does it.
        (self.file, self.bytes, self.torn) = (file, bytes.len() as u64, false);
        self.named = false;
        os::sync_parent(&self.path)?;
        self.named = true;
        Ok(())
    }
}

/// Reads the batch behind the one at `before`, past the mark between them, which may be torn as in [`Content::of`];
/// `None` if there is no whole batch. A batch is found by its offset too: by the empty range there.
pub(super) fn read_batch(file: &File, before: &Range<u64>) -> io::Result<Option<Batch>> {
    let length = file.metadata()?.len();
    let rest = |at| usize::try_from(length.saturating_sub(at)).unwrap_or(usize::MAX);
    let mut at = before.end;
    let mut mark = vec![0; MARK_BYTES.min(rest(at))];
    file.read_exact_at(&mut mark, at)?;
    if behind_torn(&end_mark(before.start), &mark).is_some() {
        at += MARK_BYTES as u64;
    }
    let mut bytes = vec![0; HEAD_BYTES.min(rest(at))];
    file.read_exact_at(&mut bytes, at)?;
    let length = bytes.first_chunk().map_or(0, |length| u32::from_le_bytes(*length));
    let length = usize::try_from(length).unwrap_or(usize::MAX).min(BATCH_BYTES_MAX);
    bytes.resize(HEAD_BYTES.saturating_add(length).min(rest(at)), 0);
    file.read_exact_at(&mut bytes, at)?;
    Ok(split_batch(&bytes).map(|(records, _)| (records, at..at + bytes.len() as u64)))
}

/// A log of one batch per record, each with its end mark.
fn encode(records: &[Vec<u8>]) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for record in records {
        let mark = end_mark(bytes.len() as u64);
        bytes.extend(batch(std::slice::from_ref(record))?);
        bytes.extend(mark);
    }
    Ok(bytes)
}

/// The bytes of a batch: length, check, and the records. A batch above [`BATCH_BYTES_MAX`] is
/// refused, because a reader would take it for damage.
fn batch(records: &[Vec<u8>]) -> io::Result<Vec<u8>> {
    let too_long = || io::Error::other("a record is too long for a log");
    let mut body = Vec::new();
    for record in records {
        let length = u32::try_from(record.len()).map_err(|_| too_long())?;
        body.extend_from_slice(&length.to_le_bytes());
        body.extend_from_slice(record);
    }
    if body.len() > BATCH_BYTES_MAX {
        return Err(too_long());
    }
    let length = u32::try_from(body.len()).map_err(|_| too_long())?;
    Ok([length.to_le_bytes().as_slice(), &check_of(&body), &body].concat())
}

/// The mark behind a batch that begins at `at`, once the batch is on the disk. It depends on the offset, so bytes that a
/// peer puts into a record cannot pass for a mark.
fn end_mark(at: u64) -> [u8; MARK_BYTES] {
    let mut hasher = blake3::Hasher::new_derive_key("intellect-node 1 end of batch");
    let mut mark = [0; MARK_BYTES];
    hasher.update(&at.to_le_bytes()).finalize_xof().fill(&mut mark);
    mark[..MARK.len()].copy_from_slice(&MARK);
    mark
}

/// The bytes behind a mark of which a power cut may have zeroed some pages.
fn behind_torn<'a>(mark: &[u8; MARK_BYTES], bytes: &'a [u8]) -> Option<&'a [u8]> {
    let (there, behind) = bytes.split_at_checked(MARK_BYTES)?;
    let torn = there.iter().zip(mark).all(|(there, written)| *there == 0 || there == written);
    torn.then_some(behind)
}

/// Whether `rest`, which begins with the batch at `at`, contains that batch's mark.
fn has_mark(rest: &[u8], at: u64) -> bool {
    let mark = end_mark(at);
    rest.windows(MARK_BYTES).any(|bytes| *bytes == mark)
}

/// The records of the batch that `bytes` begin with, if it is whole, and the bytes behind it.
fn split_batch(bytes: &[u8]) -> Option<(Vec<Vec<u8>>, &[u8])> {
    let (mut body, after) = split_body(bytes)?;
    let mut records = Vec::new();
    while !body.is_empty() {
        let (length, rest) = body.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
        let (record, rest) = rest.split_at_checked(length)?;
        records.push(record.to_vec());
        body = rest;
    }
    Some((records, after))
}

/// The body of the batch that `bytes` begin with, if it matches its check, and the bytes behind it.
fn split_body(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    if length == 0 || length > BATCH_BYTES_MAX {
        return None;
    }
    let (check, rest) = rest.split_first_chunk::<CHECK_BYTES>()?;
    let (body, rest) = rest.split_at_checked(length)?;
    (check_of(body) == *check).then_some((body, rest))
}

/// Whether `rest`, which begins with no whole batch, can be left over from an append that was cut short. That is so if it
/// contains no whole batch and ends no later than its head announces. If the page with the first or the last bytes of
/// the head is missing, the announced length means nothing.
fn is_torn(rest: &[u8]) -> bool {
    let Some((head, body)) = rest.split_first_chunk::<HEAD_BYTES>() else { return true };
    let [a, b, c, d, check @ ..] = head;
    let length = usize::try_from(u32::from_le_bytes([*a, *b, *c, *d])).unwrap_or(usize::MAX);
    let in_its_place = length <= BATCH_BYTES_MAX && body.len() <= length;
    let without_head = *a == 0 || *check == [0; CHECK_BYTES];
    (in_its_place || without_head) && hides_no_batch(rest)
}

/// Whether no whole batch begins anywhere in `rest`. If the search would take too long, the answer is no: losing a log
/// without need costs less than forgetting a vote.
fn hides_no_batch(rest: &[u8]) -> bool {
    let mut budget_bytes = SEARCH_BYTES;
    for at in 0..rest.len() {
        let length = rest[at..].first_chunk().map_or(0, |length| u32::from_le_bytes(*length));
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > rest.len() {
            continue;
        }
        let Some(left) = budget_bytes.checked_sub(length) else { return false };
        budget_bytes = left;
        if split_body(&rest[at..]).is_some() {
            return false;
        }
    }
    true
}

/// The check of a batch: the first 16 bytes of its BLAKE3.
fn check_of(body: &[u8]) -> [u8; CHECK_BYTES] {
    let mut check = [0; CHECK_BYTES];
    check.copy_from_slice(&blake3::hash(body).as_bytes()[..CHECK_BYTES]);
    check
}

/// Bytes of BLAKE3 that check a batch.
const CHECK_BYTES: usize = 16;

/// Bytes before the records of a batch: its length and its check.
const HEAD_BYTES: usize = 4 + CHECK_BYTES;

/// The first bytes of an end mark, which are no length of a batch.
const MARK: [u8; 4] = [0xff; 4];

/// The length of an end mark: [`MARK`], then 16 bytes that depend on the offset.
pub(super) const MARK_BYTES: usize = 20;

/// Longest batch that is believed: what is appended at once, and the longest record of the protocol with its kind and
/// length.
const BATCH_BYTES_MAX: usize = BATCH_BYTES + wire::RECORD_BYTES_MAX + 5;

/// Bytes that are hashed at most in search of a batch in a tail: one second. A torn tail of a megabyte needs an eighth
/// of that.
const SEARCH_BYTES: usize = 1 << 30;

#[cfg(test)]
mod tests;
