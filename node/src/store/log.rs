//! A file of records that is appended to, a *batch* at a time: `length u32 LE ‖ first 16 bytes of
//! BLAKE3 ‖ records`, each record `length u32 LE ‖ bytes`. Behind a batch that was flushed stands its
//! *end mark*, [`end_mark`].
//!
//! What [`Log::append`] returned from is on the disk. A process that is killed, or a machine that
//! loses its power, leaves at most one append half done: a *torn tail*, which is cut, since nothing
//! that depends on it has been said to anybody. Of the pages of one append any may have reached the
//! disk and the others be zeros or missing, so its records share one check: were each believed by
//! itself, one behind a gap would look like damage. Whatever else does not fit its check is
//! *damage*: the batches before it are good, those behind it cannot be told from it any more.
//!
//! A length that was damaged may reach beyond the end, as that of a torn batch does. So a tail is
//! torn only if no whole batch begins anywhere in it, and if it has no end mark: the mark is written
//! once the batch is on the disk, so what was told to others is never taken for half an append. The
//! mark itself is flushed with the next batch. A power cut may take it before, and of the last batch
//! of a program that wrote no marks there is none: then a batch that does not fit its check counts as
//! torn.
//!
//! After an append that failed, nothing is known of what the system had taken: the next one cuts
//! the file back to where it was whole and writes all again. Asking only for another flush would
//! be answered with success (<https://wiki.postgresql.org/wiki/Fsync_Errors>).
//!
//! What records mean is the caller's.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{FileExt as _, MetadataExt as _},
    path::{Path, PathBuf},
};

use intellect_protocol::{holdings::BATCH_BYTES, message::wire};

use crate::os;

/// A log that is open for more.
#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
    file: File,
    /// Up to here every batch is whole and on the disk.
    bytes: u64,
    /// Whether there may be more behind that.
    torn: bool,
    /// Whether the name of the file is on the disk.
    named: bool,
}

/// What a log holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Content {
    /// The bytes of each record, up to the end or to the first batch that is damaged.
    pub(super) records: Vec<Vec<u8>>,
    /// Their length in the file.
    pub(super) bytes: u64,
    /// Whether more follows that is not merely torn.
    pub(super) damaged: bool,
}

impl Content {
    /// Reads the file at `path`; one that does not exist is empty.
    pub(super) fn read(path: &Path) -> io::Result<Self> {
        Ok(Self::of(&os::unless_missing(fs::read(path))?.unwrap_or_default()))
    }

    /// The records in `bytes`.
    pub(super) fn of(bytes: &[u8]) -> Self {
        let mut content = Self::default();
        // What should stand at the beginning of `rest`, and does not.
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
    /// Opens the log at `path`, whose first `bytes` bytes are good, and cuts what is behind them.
    pub(super) fn open(path: &Path, bytes: u64) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        let path = path.to_owned();
        Ok(Self { path, file, bytes, torn: true, named: false })
    }

    /// Whether somebody has removed it since: what it takes is lost with the process.
    pub(super) fn is_removed(&self) -> bool {
        self.file.metadata().is_ok_and(|file| file.nlink() == 0)
    }

    /// Where it lies.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Length of all records.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Appends records, at least one, and returns once they are on the disk. On an error, or when
    /// the power fails, none of them counts, and the next append begins where this one did.
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
        // The batch is on the disk whether or not there is room for its mark.
        if self.file.write_all(&mark).is_ok() {
            self.bytes += MARK_BYTES as u64;
            self.torn = false;
        }
        Ok(())
    }

    /// What lies behind the first `bytes` bytes is cut before the next append.
    pub(super) fn take_back(&mut self, bytes: u64) {
        self.torn |= bytes < self.bytes;
        self.bytes = self.bytes.min(bytes);
    }

    /// Puts `records` in the place of all that there is. Whoever looks, after a crash too, finds
    /// the old ones or these.
    pub(super) fn rewrite(&mut self, records: &[Vec<u8>]) -> io::Result<()> {
        let mut bytes = Vec::new();
        for record in records {
            let mark = end_mark(bytes.len() as u64);
            bytes.extend(batch(std::slice::from_ref(record))?);
            bytes.extend(mark);
        }
        let temporary = self.path.with_extension(super::TEMPORARY);
        os::unless_missing(fs::remove_file(&temporary))?;
        let mut file = OpenOptions::new().create_new(true).append(true).open(&temporary)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, &self.path)?;
        // From here on this is the log; if its name cannot be made durable now, then before the
        // next record.
        (self.file, self.bytes, self.torn) = (file, bytes.len() as u64, false);
        self.named = false;
        os::sync_parent(&self.path)?;
        self.named = true;
        Ok(())
    }
}

/// The records of the batch that begins at `at`, or behind the mark that does, and where it ends;
/// `None` if none is whole there.
pub(super) fn read_batch(file: &File, mut at: u64) -> io::Result<Option<(Vec<Vec<u8>>, u64)>> {
    let length = file.metadata()?.len();
    let rest = |at| usize::try_from(length.saturating_sub(at)).unwrap_or(usize::MAX);
    let mut mark = vec![0; MARK_BYTES.min(rest(at))];
    file.read_exact_at(&mut mark, at)?;
    if mark.starts_with(&MARK) || mark == [0; MARK_BYTES] {
        at += mark.len() as u64;
    }
    let rest = rest(at);
    let mut bytes = vec![0; HEAD_BYTES.min(rest)];
    file.read_exact_at(&mut bytes, at)?;
    let Some(length) = bytes.first_chunk::<4>().map(|length| u32::from_le_bytes(*length)) else {
        return Ok(None);
    };
    let length = usize::try_from(length).unwrap_or(usize::MAX).min(BATCH_BYTES_MAX);
    bytes.resize(HEAD_BYTES.saturating_add(length).min(rest), 0);
    file.read_exact_at(&mut bytes, at)?;
    let end = at + bytes.len() as u64;
    Ok(split_batch(&bytes).map(|(records, _)| (records, end)))
}

/// The bytes of one batch.
fn batch(records: &[Vec<u8>]) -> io::Result<Vec<u8>> {
    let too_long = || io::Error::other("a record is too long for a log");
    let mut body = Vec::new();
    for record in records {
        let length = u32::try_from(record.len()).map_err(|_| too_long())?;
        body.extend_from_slice(&length.to_le_bytes());
        body.extend_from_slice(record);
    }
    let length = u32::try_from(body.len()).ok().filter(|_| body.len() <= BATCH_BYTES_MAX);
    let length = length.ok_or_else(too_long)?;
    Ok([length.to_le_bytes().as_slice(), &check_of(&body), &body].concat())
}

/// What stands behind a batch that begins at `at`, once it is on the disk. Only there: what a peer
/// wrote into a record passes for no mark.
fn end_mark(at: u64) -> [u8; MARK_BYTES] {
    let mut hasher = blake3::Hasher::new_derive_key("intellect-node 1 end of batch");
    let mut mark = [0; MARK_BYTES];
    hasher.update(&at.to_le_bytes()).finalize_xof().fill(&mut mark);
    mark[..MARK.len()].copy_from_slice(&MARK);
    mark
}

/// What stands behind the place of a mark of which a power cut took some pages.
fn behind_torn<'a>(mark: &[u8; MARK_BYTES], bytes: &'a [u8]) -> Option<&'a [u8]> {
    let (place, behind) = bytes.split_at_checked(MARK_BYTES)?;
    let torn = place.iter().zip(mark).all(|(there, written)| *there == 0 || there == written);
    torn.then_some(behind)
}

/// Whether the batch that begins at `at`, with `rest`, was on the disk.
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

/// What fits its check at the beginning of `bytes`, and the bytes behind it.
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

/// Whether an append that was cut short can have left `rest`, which begins with no whole batch.
/// That is so if no whole batch is hidden in it, and if it ends no later than the batch that its
/// head announces. Where the page with the first or the last bytes of the head is missing, the
/// length in it says nothing.
fn is_torn(rest: &[u8]) -> bool {
    let Some((head, body)) = rest.split_first_chunk::<HEAD_BYTES>() else { return true };
    let [a, b, c, d, check @ ..] = head;
    let length = usize::try_from(u32::from_le_bytes([*a, *b, *c, *d])).unwrap_or(usize::MAX);
    let in_its_place = length <= BATCH_BYTES_MAX && body.len() <= length;
    let without_head = *a == 0 || *check == [0; CHECK_BYTES];
    (in_its_place || without_head) && hides_no_batch(rest)
}

/// Whether no whole batch begins anywhere in `rest`. Where that would take long to find out, the
/// answer is no: a log that is lost without need costs less than a vote that is forgotten.
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

fn check_of(body: &[u8]) -> [u8; CHECK_BYTES] {
    let mut check = [0; CHECK_BYTES];
    check.copy_from_slice(&blake3::hash(body).as_bytes()[..CHECK_BYTES]);
    check
}

/// Bytes of BLAKE3 that check a batch.
const CHECK_BYTES: usize = 16;

/// What stands before each batch's records.
const HEAD_BYTES: usize = 4 + CHECK_BYTES;

/// What an end mark begins with: no length of a batch.
const MARK: [u8; 4] = [0xff; 4];

/// An end mark.
pub(super) const MARK_BYTES: usize = 20;

/// Longest batch that is believed: what is appended at once, and the longest record of the protocol
/// with its kind and length.
const BATCH_BYTES_MAX: usize = BATCH_BYTES + wire::RECORD_BYTES_MAX + 5;

/// Bytes that are hashed in search of a batch in a tail: a second. A torn tail of a megabyte needs
/// an eighth of it.
const SEARCH_BYTES: usize = 1 << 30;

#[cfg(test)]
mod tests;
