//! A file of records that is appended to: `length u32 LE ‖ first 16 bytes of BLAKE3 ‖ bytes`, again
//! and again.
//!
//! What [`Log::append`] returned from is on the disk. A process that is killed, or a machine that
//! loses its power, leaves at most one append half done: a *torn tail*, which is cut, since nothing
//! that depends on it has been said to anybody. Whatever else does not fit its check is *damage*:
//! the records before it are good, those behind it cannot be told from it any more.
//!
//! A length that was damaged may reach beyond the end, as that of a torn record does. So a tail is
//! torn only if no whole record begins anywhere in it.
//!
//! After an append that failed, nothing is known of what the system had taken: the next one cuts
//! the file back to where it was whole and writes all again. Asking only for another flush would
//! be answered with success (<https://wiki.postgresql.org/wiki/Fsync_Errors>).
//!
//! What records mean is the caller's.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use intellect_protocol::wire;

use crate::os;

/// A log that is open for more.
#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
    file: File,
    /// Up to here every record is whole and on the disk.
    bytes: u64,
    /// Whether there may be more behind that.
    torn: bool,
    /// Whether the name of the file is on the disk.
    named: bool,
}

/// What a log holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Content {
    /// The bytes of each record, up to the end or to the first that is damaged.
    pub(super) records: Vec<Vec<u8>>,
    /// Their length in the file.
    pub(super) bytes: u64,
    /// Whether more follows that is not merely torn.
    pub(super) damaged: bool,
}

impl Content {
    /// Reads the file at `path`; one that does not exist is empty.
    pub(super) fn read(path: &Path) -> io::Result<Self> {
        match fs::read(path) {
            Ok(bytes) => Ok(Self::of(&bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }

    /// The records in `bytes`.
    pub(super) fn of(bytes: &[u8]) -> Self {
        let mut content = Self::default();
        let mut rest = bytes;
        while let Some((body, after)) = split_record(rest) {
            content.records.push(body.to_vec());
            rest = after;
        }
        content.bytes = (bytes.len() - rest.len()) as u64;
        content.damaged = !is_torn(rest);
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

    /// Where it lies.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Length of all records.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Appends records, and returns once they are on the disk. On an error none of them counts, and
    /// the next append begins where this one did.
    pub(super) fn append(&mut self, records: &[Vec<u8>]) -> io::Result<()> {
        let bytes = encode(records)?;
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
        self.torn = false;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Puts `records` in the place of all that there is. Whoever looks, after a crash too, finds the
    /// old ones or these.
    pub(super) fn rewrite(&mut self, records: &[Vec<u8>]) -> io::Result<()> {
        let bytes = encode(records)?;
        let temporary = self.path.with_extension(super::TEMPORARY);
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().create_new(true).append(true).open(&temporary)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, &self.path)?;
        // From here on this is the log; if its name cannot be made durable now, then before the next
        // record.
        (self.file, self.bytes, self.torn) = (file, bytes.len() as u64, false);
        self.named = false;
        os::sync_parent(&self.path)?;
        self.named = true;
        Ok(())
    }
}

fn encode(records: &[Vec<u8>]) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for record in records {
        let length = u32::try_from(record.len()).ok().filter(|_| record.len() <= RECORD_BYTES_MAX);
        let length = length.ok_or_else(|| io::Error::other("a record is too long for a log"))?;
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(&check_of(record));
        bytes.extend_from_slice(record);
    }
    Ok(bytes)
}

/// The record that `bytes` begin with, if it is whole, and the bytes behind it.
fn split_record(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    if length > RECORD_BYTES_MAX {
        return None;
    }
    let (check, rest) = rest.split_first_chunk::<CHECK_BYTES>()?;
    let (body, rest) = rest.split_at_checked(length)?;
    (check_of(body) == *check).then_some((body, rest))
}

/// Whether an append that was cut short can have left `rest`, which begins with no whole record: it
/// ends before its record does, or with it, and hides no record; or it is room that was never
/// written to.
fn is_torn(rest: &[u8]) -> bool {
    if rest.iter().all(|byte| *byte == 0) {
        return true;
    }
    let Some((length, _)) = rest.split_first_chunk::<4>() else { return true };
    let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
    if length > RECORD_BYTES_MAX || rest.len() > HEAD_BYTES + length {
        return false;
    }
    hides_no_record(rest)
}

/// Whether no whole record begins behind the first byte. Where that would take long to find out, it
/// is not: a log that is lost without need costs less than a vote that is forgotten.
fn hides_no_record(rest: &[u8]) -> bool {
    let mut budget_bytes = SEARCH_BYTES;
    for at in 1..rest.len() {
        let length = rest[at..].first_chunk().map_or(0, |length| u32::from_le_bytes(*length));
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > rest.len() {
            continue;
        }
        let Some(left) = budget_bytes.checked_sub(length) else { return false };
        budget_bytes = left;
        if split_record(&rest[at..]).is_some() {
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

/// Bytes of BLAKE3 that check a record.
const CHECK_BYTES: usize = 16;

/// What stands before each record's bytes.
const HEAD_BYTES: usize = 4 + CHECK_BYTES;

/// Longest record that is believed: the longest of the protocol, and its kind.
const RECORD_BYTES_MAX: usize = wire::RECORD_BYTES_MAX + 1;

/// Bytes that are hashed in search of a record in a tail: a second. A torn tail of a megabyte needs
/// an eighth of it.
const SEARCH_BYTES: usize = 1 << 30;

#[cfg(test)]
mod tests;
