//! Every file of a run in the data folder: `runs/<RunId>/{run.toml, votes.log, checkpoints/<epoch>.ckpt}`.
//!
//! A file that is replaced is written under another name, flushed, and renamed, so that whoever
//! looks finds the old one or the new one, whole, after a power cut too. A checkpoint is read back
//! and compared with its table before it gets its name.
//!
//! `votes.log` is appended to only. A record is `length u32 LE ‖ first 16 bytes of BLAKE3 ‖ bytes`; a
//! torn one at the end is cut. Today it holds log ids and incarnations: a node that restarts has
//! forgotten its votes, so it draws another log id and is another voter (R19). That the identity's
//! own log id was used in a run is noted outside of `runs/` first, so that it is not used again when
//! the log is lost. The incarnation is the greater of the last one + 1 and the time, so that it rises
//! across a lost log too (R20).
//!
//! The age of a checkpoint is the order of writing, kept as its time of modification: after a fork
//! a smaller epoch may be the newer state, and a clock may be set back.
//!
//! No name of a file comes from a peer. Reading a checkpoint for use is `checkpoint`'s.

use std::{
    ffi::OsStr,
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use intellect_protocol::{
    checkpoint::{PIECE_BYTES, Table},
    codec::Codec,
    id::{Digest, LogId, RunId},
};

use crate::os;

pub(crate) mod updates;

/// Checkpoints that are kept.
pub(crate) const CHECKPOINTS: usize = 3;

/// The folder of one run.
#[derive(Debug)]
pub(crate) struct Store {
    folder: PathBuf,
    /// Exists if the identity's own log id was used in this run.
    used: PathBuf,
}

/// Which log binds this start of the node, and which start it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Start {
    /// The log of votes.
    pub(crate) log: LogId,
    /// Rises with every start.
    pub(crate) incarnation: u64,
}

/// A checkpoint on disk, ready to be served. It stays readable while this lives, even when the
/// file is pruned.
#[derive(Clone, Debug)]
pub(crate) struct Saved {
    /// Where it lies.
    pub(crate) path: PathBuf,
    /// Digest of the state.
    pub(crate) state: Digest,
    /// What it is, and the digest of each piece.
    pub(crate) table: Arc<Table>,
    file: Arc<File>,
}

/// Why a file could not be kept. The one before it is still there.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    /// The system said no.
    #[error("cannot {what} {}", path.display())]
    Io {
        /// "write", "read" …
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The state has diverged.
    #[error("number {index} of the state is not finite: it is not stored")]
    NotFinite {
        /// Counted through θ and then v.
        index: usize,
    },
    /// What was read back is not what was written.
    #[error("{} does not read back as it was written: the disk or the memory is faulty", path.display())]
    ReadBack {
        /// The file that was not renamed.
        path: PathBuf,
    },
    /// Nobody has such a piece.
    #[error("there is no piece {piece} in {}", path.display())]
    Piece {
        /// As asked.
        piece: usize,
        /// The checkpoint.
        path: PathBuf,
    },
}

impl Store {
    /// Makes the folder of `run` if need be, and removes what a crash left half written.
    pub(crate) fn open(data_dir: &Path, run: RunId) -> Result<Self, StoreError> {
        let folder = data_dir.join("runs").join(run.hex());
        let store = Self { folder, used: data_dir.join("used").join(run.hex()) };
        let (checkpoints, updates) = (store.checkpoints_folder(), store.updates_folder());
        for folder in [&checkpoints, &updates] {
            os::create_folder(folder).map_err(|source| failed("create", folder, source))?;
        }
        for folder in [&store.folder, &checkpoints, &updates] {
            for path in files(folder)? {
                if path.extension() == Some(OsStr::new(TEMPORARY)) {
                    fs::remove_file(&path).map_err(|source| failed("remove", &path, source))?;
                }
            }
        }
        Ok(store)
    }

    /// Begins an incarnation, durably: nothing may be sent before. `first` is the id of the first
    /// log, `now_ms` the Unix time.
    pub(crate) fn begin(&self, first: LogId, now_ms: u64) -> Result<Start, StoreError> {
        let path = self.folder.join("votes.log");
        let found = match fs::read(&path) {
            Ok(bytes) => Some(bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(source) => return Err(failed("read", &path, source)),
        };
        let unused = self.claim_first().map_err(|source| failed("write", &self.used, source))?;
        let log = if unused && found.is_none() {
            first
        } else {
            LogId(os::random().map_err(|source| failed("draw a log id for", &path, source))?)
        };
        let kept = match found.as_deref().map(read_log) {
            None => Log::default(),
            Some(Ok(log)) => log,
            Some(Err(Damaged)) => {
                self.set_aside(&path, now_ms)?;
                Log::default()
            }
        };
        let incarnation = now_ms.max(kept.incarnation.saturating_add(1));
        let mut records = record(&[&[KIND_LOG], log.as_bytes().as_slice()].concat());
        records
            .extend(record(&[&[KIND_INCARNATION], incarnation.to_le_bytes().as_slice()].concat()));
        let append = || -> io::Result<()> {
            let mut file = OpenOptions::new().create(true).append(true).open(&path)?;
            // What a power cut left of the last record.
            file.set_len(kept.bytes)?;
            file.write_all(&records)?;
            file.sync_all()?;
            os::sync_folder(&self.folder)
        };
        append().map_err(|source| failed("write", &path, source))?;
        Ok(Start { log, incarnation })
    }

    /// Notes, durably, that the identity's own log id is used; false if it was before.
    fn claim_first(&self) -> io::Result<bool> {
        self.used.parent().map_or(Ok(()), os::create_folder)?;
        match File::create_new(&self.used) {
            Ok(file) => file.sync_all().and_then(|()| os::sync_parent(&self.used)).map(|()| true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Keeps the signed manifest.
    pub(crate) fn save_manifest(&self, text: &str) -> Result<(), StoreError> {
        let path = self.folder.join("run.toml");
        replace(&path, |file| file.write_all(text.as_bytes()))
            .map_err(|source| failed("write", &path, source))
    }

    /// Keeps a state as `checkpoints/<epoch>.ckpt`, and of the others the newest two. Takes as long
    /// as the disk: not for the control loop.
    pub(crate) fn save(
        &self,
        table: Arc<Table>,
        theta: &[f32],
        momentum: &[f32],
    ) -> Result<Saved, StoreError> {
        let path = self.checkpoints_folder().join(format!("{}.ckpt", table.header().epoch));
        let temporary = path.with_extension(TEMPORARY);
        let newest = self.dated()?.first().map(|(modified, _)| *modified);
        let file = write_checkpoint(&temporary, &table, theta, momentum, newest)
            .and_then(|()| self.take_over(&temporary, &path, &table))
            .inspect_err(|_| {
                // The error that brought us here says more than one of this.
                let _ = fs::remove_file(&temporary);
            })?;
        let old = self.checkpoints()?.into_iter().skip(CHECKPOINTS);
        for old in old.filter(|old| *old != path) {
            fs::remove_file(&old).map_err(|source| failed("remove", &old, source))?;
        }
        Ok(Saved { path, state: table.state(), table, file: Arc::new(file) })
    }

    /// The checkpoints on disk, the last one written first.
    pub(crate) fn checkpoints(&self) -> Result<Vec<PathBuf>, StoreError> {
        Ok(self.dated()?.into_iter().map(|(_, path)| path).collect())
    }

    /// The same, with the time of modification.
    fn dated(&self) -> Result<Vec<(SystemTime, PathBuf)>, StoreError> {
        let mut found = Vec::new();
        for path in files(&self.checkpoints_folder())? {
            if path.extension() == Some(OsStr::new("ckpt")) {
                let modified = fs::metadata(&path).and_then(|metadata| metadata.modified());
                found.push((modified.map_err(|source| failed("read", &path, source))?, path));
            }
        }
        found.sort_by(|a, b| b.cmp(a));
        Ok(found)
    }

    /// Reads `temporary` back, and gives it its name.
    fn take_over(&self, temporary: &Path, path: &Path, table: &Table) -> Result<File, StoreError> {
        let reread = |source| failed("read back", temporary, source);
        let mut file = File::open(temporary).map_err(reread)?;
        let mut front = vec![0; table.to_bytes().len()];
        file.read_exact(&mut front).map_err(reread)?;
        let mut good = front == table.to_bytes();
        let mut bytes = vec![0; PIECE_BYTES];
        for (piece, digest) in table.pieces().iter().enumerate() {
            let elements = table.piece(piece).map_or(0, |range| range.len());
            let bytes = &mut bytes[..4 * elements];
            file.read_exact(bytes).map_err(reread)?;
            good &= blake3::hash(bytes) == blake3::Hash::from_bytes(digest.0);
        }
        if !good {
            return Err(StoreError::ReadBack { path: temporary.to_owned() });
        }
        fs::rename(temporary, path)
            .and_then(|()| os::sync_folder(&self.checkpoints_folder()))
            .map_err(|source| failed("rename", temporary, source))?;
        Ok(file)
    }

    /// Moves a file that makes no sense out of the way, for a person to look at.
    fn set_aside(&self, path: &Path, now_ms: u64) -> Result<(), StoreError> {
        let folder = self.folder.join("damaged");
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let target = folder.join(format!("{name}.{now_ms}"));
        os::create_folder(&folder)
            .and_then(|()| fs::rename(path, &target))
            .map_err(|source| failed("set aside", path, source))
    }

    fn checkpoints_folder(&self) -> PathBuf {
        self.folder.join("checkpoints")
    }
}

impl Saved {
    /// The bytes of a piece, as they are sent.
    pub(crate) fn piece(&self, piece: usize) -> Result<Vec<u8>, StoreError> {
        let (Some(range), Some(offset)) = (self.table.piece(piece), self.table.offset(piece))
        else {
            return Err(StoreError::Piece { piece, path: self.path.clone() });
        };
        let mut bytes = vec![0; 4 * range.len()];
        self.file
            .read_exact_at(&mut bytes, offset)
            .map_err(|source| failed("read", &self.path, source))?;
        Ok(bytes)
    }
}

/// Writes `header ‖ table ‖ pieces`, down to the disk, and makes it younger than `newest` whatever
/// the clock says.
fn write_checkpoint(
    path: &Path,
    table: &Table,
    theta: &[f32],
    momentum: &[f32],
    newest: Option<SystemTime>,
) -> Result<(), StoreError> {
    let failed = |source| failed("write", path, source);
    let mut file = File::create(path).map_err(failed)?;
    file.write_all(&table.to_bytes()).map_err(failed)?;
    let mut bytes = vec![0; PIECE_BYTES];
    for (part, offset) in [(theta, 0), (momentum, theta.len())] {
        for (index, numbers) in part.chunks(PIECE_BYTES / 4).enumerate() {
            let bytes = &mut bytes[..4 * numbers.len()];
            Codec::F32.encode(numbers, bytes).map_err(|error| {
                let intellect_protocol::codec::EncodeError::NonFinite { index: at } = error;
                StoreError::NotFinite { index: offset + index * PIECE_BYTES / 4 + at }
            })?;
            file.write_all(bytes).map_err(failed)?;
        }
    }
    let modified = file.metadata().and_then(|metadata| metadata.modified()).map_err(failed)?;
    if let Some(newest) = newest.filter(|newest| *newest >= modified) {
        file.set_modified(newest + Duration::from_millis(1)).map_err(failed)?;
    }
    file.sync_all().map_err(failed)
}

/// Writes a small file under another name, flushes it, and renames it.
fn replace(path: &Path, write: impl Fn(&mut File) -> io::Result<()>) -> io::Result<()> {
    let temporary = path.with_extension(TEMPORARY);
    let mut file = File::create(&temporary)?;
    write(&mut file)?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    os::sync_parent(path)
}

/// The files in a folder.
fn files(folder: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let entries = fs::read_dir(folder).map_err(|source| failed("read", folder, source))?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    paths.collect::<io::Result<_>>().map_err(|source| failed("read", folder, source))
}

fn failed(what: &'static str, path: &Path, source: io::Error) -> StoreError {
    StoreError::Io { what, path: path.to_owned(), source }
}

/// What is known from a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Log {
    /// The last incarnation.
    incarnation: u64,
    /// Length without a torn record at the end.
    bytes: u64,
}

/// A log with a bad record that is not its last one.
#[derive(Debug, PartialEq, Eq)]
struct Damaged;

/// Reads the records of a log.
fn read_log(bytes: &[u8]) -> Result<Log, Damaged> {
    let mut log = Log::default();
    let mut rest = bytes;
    while let Some((body, after)) = read_record(rest)? {
        match body.split_first() {
            Some((&KIND_INCARNATION, number)) => {
                log.incarnation = u64::from_le_bytes(number.try_into().map_err(|_| Damaged)?);
            }
            Some((&KIND_LOG, _)) => {}
            _ => return Err(Damaged),
        }
        rest = after;
        log.bytes = (bytes.len() - rest.len()) as u64;
    }
    Ok(log)
}

/// A record's body, and the bytes after the record.
type Split<'a> = (&'a [u8], &'a [u8]);

/// The next record and what follows it; `None` at the end, also where a record is torn.
fn read_record(bytes: &[u8]) -> Result<Option<Split<'_>>, Damaged> {
    let Some((length, rest)) = bytes.split_first_chunk::<4>() else { return Ok(None) };
    let length = usize::try_from(u32::from_le_bytes(*length)).map_err(|_| Damaged)?;
    if length > RECORD_BYTES_MAX {
        return Err(Damaged);
    }
    let Some((check, rest)) = rest.split_first_chunk::<CHECK_BYTES>() else { return Ok(None) };
    let Some((body, rest)) = rest.split_at_checked(length) else { return Ok(None) };
    if check_of(body) == *check {
        return Ok(Some((body, rest)));
    }
    // The last one may have been cut by the power.
    if rest.is_empty() { Ok(None) } else { Err(Damaged) }
}

fn record(body: &[u8]) -> Vec<u8> {
    // Ours are short.
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
    [length.to_le_bytes().as_slice(), &check_of(body), body].concat()
}

fn check_of(body: &[u8]) -> [u8; CHECK_BYTES] {
    let mut check = [0; CHECK_BYTES];
    check.copy_from_slice(&blake3::hash(body).as_bytes()[..CHECK_BYTES]);
    check
}

/// Bytes of BLAKE3 that check a record.
const CHECK_BYTES: usize = 16;

/// Longest record that is believed.
const RECORD_BYTES_MAX: usize = 1 << 20;

/// A record that holds a log id: all after it belongs to that log.
const KIND_LOG: u8 = 0;

/// A record that holds an incarnation, `u64` LE.
const KIND_INCARNATION: u8 = 1;

/// Extension of files that are being written.
const TEMPORARY: &str = "tmp";

#[cfg(test)]
mod tests;
