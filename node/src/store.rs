//! Every file of a run in the data folder: `runs/<RunId>/{run.toml, node.toml, notices, ticket, votes.log,
//! receipts.log, checkpoints/<epoch>.ckpt, milestones/<epoch>.ckpt, genesis.ckpt, data/, damaged/}`.
//!
//! A file that is replaced is written under another name, flushed, and renamed. So a reader finds the old file or the
//! new one, whole, after a power cut too. Votes and receipts are appended to logs (`log`, `journal`), states are
//! checkpoints (`checkpoints`), and beside the runs are lists of addresses (`contacts`).
//!
//! A file that makes no sense is moved into `damaged/`, which keeps the last [`DAMAGED`] files for a person to look at.
//! No file name comes from a peer. `checkpoint` reads checkpoints for use.
//!
//! All of it is for one process at a time, which has the lock of the data folder. `used/<RunId>` in
//! the data folder is the only file of a run outside of its folder (`journal`). The methods block
//! for as long as the disk takes, so the loop of a node calls them from jobs.

mod checkpoints;
pub(crate) mod contacts;
pub(crate) mod data;
pub(crate) mod genesis;
mod journal;
pub(crate) mod links;
mod log;
mod milestones;
mod notices;

use std::{
    ffi::OsStr,
    fs::{self, File, ReadDir},
    io::{self, Read as _, Write as _},
    os::unix::fs::{FileExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    sync::{Arc, PoisonError},
};

use intellect_model::tokenizer::FILE_BYTES_MAX;
use intellect_protocol::{
    base::id::{Digest, RunId},
    history::checkpoint::TableError,
    ring::codec::EncodeError,
};
use tokio::{sync::Mutex, task::JoinError};

use crate::os::{self, PathError, cannot};

pub(crate) mod incoming;
pub(crate) mod unpublished;
mod updates;

pub(crate) use checkpoints::{Look, Saved};
pub(crate) use journal::{Begun, Journal, Start};
pub(crate) use milestones::Keep;

/// The folder of one run, with everything that this node stores of it.
#[derive(Debug)]
pub(crate) struct Store {
    /// `runs/<RunId>`, in which every other path of this type begins.
    folder: PathBuf,
    /// The file that exists if the identity's own log id was used in this run.
    used: PathBuf,
    /// Where links are in `receipts.log`, as far as they were asked for.
    index: Arc<Mutex<links::LinkIndex>>,
    /// Which states are kept for good, if any.
    keep: Option<Keep>,
    /// The tokenizer's file, from the first request for it on.
    tokenizer: std::sync::Mutex<Option<Arc<Hashed>>>,
}

/// An open file whose digest was computed.
#[derive(Debug)]
struct Hashed {
    file: File,
    /// The BLAKE3 digest of its first `length` bytes.
    digest: Digest,
    length: u64,
}

impl Hashed {
    /// Reads the whole file, but for what lies beyond `most` bytes.
    fn open(path: &Path, most: usize) -> io::Result<Self> {
        let (file, mut hasher) = (File::open(path)?, blake3::Hasher::new());
        hasher.update_reader((&file).take(most as u64))?;
        let digest = Digest(*hasher.finalize().as_bytes());
        Ok(Self { file, digest, length: hasher.count() })
    }
}

/// How many files `damaged/` keeps.
/// A person needs the newest, and a disk that fails must not fill itself with them.
const DAMAGED: usize = 4;

/// Why a file could not be stored. An earlier version of it is still there.
/// Most come from the system, and pass when there is room again. [`Self::Removed`] and
/// [`Self::ReadBack`] do not: the first means that somebody works in the folder, or that its disk is gone, the second that
/// bytes have changed on the disk or in memory.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    /// The system refused to read, write or remove a file.
    #[error(transparent)]
    Io(#[from] PathError),
    /// A file was removed from outside while the node ran.
    #[error("{} was removed while this node ran", path.display())]
    Removed { path: PathBuf },
    /// A number of the state is not finite: the state has diverged.
    #[error("the state is not stored")]
    NotFinite(#[from] EncodeError),
    /// The model has more parameters than a state can.
    #[error(transparent)]
    Size(#[from] TableError),
    /// The bytes that were read back are not those that were written.
    #[error(
        "{} does not read back as it was written: the disk or the memory is faulty", path.display()
    )]
    ReadBack {
        /// The file, which is not taken into use.
        path: PathBuf,
    },
    /// A job on the disk panicked or was cancelled.
    #[error("a job on the disk has ended: {0}")]
    Ended(#[from] JoinError),
}

impl Store {
    /// Makes the folder of `run` if it is missing, and removes files that a crash left half written.
    /// Only those of the extension [`TEMPORARY`] go. What arrives from others, and is resumed, has
    /// other names.
    pub(crate) fn open(data_dir: &Path, run: RunId) -> Result<Self, StoreError> {
        let folder = run_folder(data_dir, run);
        let used = data_dir.join("used").join(run.hex());
        let (index, tokenizer) = Default::default();
        let store = Self { folder, used, index, keep: None, tokenizer };
        let (checkpoints, updates) = (store.checkpoints_folder(), store.updates_folder());
        for folder in [&checkpoints, &updates] {
            os::create_folder(folder).map_err(cannot("create", folder))?;
        }
        for folder in [&store.folder, &checkpoints, &updates] {
            for path in files(folder)? {
                if path.extension() == Some(OsStr::new(TEMPORARY)) {
                    fs::remove_file(&path).map_err(cannot("remove", &path))?;
                }
            }
        }
        Ok(store)
    }

    /// The same store, which keeps milestones.
    #[must_use]
    pub(crate) fn keeping(self, keep: Option<Keep>) -> Self {
        Self { keep, ..self }
    }

    /// Where milestones are; the folder exists once there is one.
    fn milestones_folder(&self) -> PathBuf {
        self.folder.join("milestones")
    }

    /// Stores the typed options for the next start (`config::options`).
    pub(crate) fn save_options(&self, text: &str) -> Result<(), StoreError> {
        write(&self.options_path(), text.as_bytes())
    }

    /// Path of the file of options.
    pub(crate) fn options_path(&self) -> PathBuf {
        self.folder.join(OPTIONS)
    }

    /// Stores the signed manifest as it came, so that a later start needs nobody to hand it out.
    pub(crate) fn save_manifest(&self, text: &str) -> Result<(), StoreError> {
        write(&self.folder.join("run.toml"), text.as_bytes())
    }

    /// Stores the file of the run's tokenizer.
    pub(crate) fn save_tokenizer(&self, bytes: &[u8]) -> Result<(), StoreError> {
        let written = write(&self.tokenizer_path(), bytes);
        // The next request reads the new file.
        *self.tokenizer.lock().unwrap_or_else(PoisonError::into_inner) = None;
        written
    }

    /// At most `most` bytes of the tokenizer's file, from `offset` on; `None` beyond its end, and if it is not the file
    /// with this BLAKE3 digest. The first call reads the whole file and keeps it open: everybody may ask for a part, so
    /// a part must cost no more than its bytes.
    pub(crate) fn tokenizer_part(
        &self,
        digest: Digest,
        offset: u64,
        most: usize,
    ) -> Option<Vec<u8>> {
        let mut open = self.tokenizer.lock().unwrap_or_else(PoisonError::into_inner);
        if open.is_none() {
            let file = Hashed::open(&self.tokenizer_path(), FILE_BYTES_MAX).ok()?;
            *open = Some(Arc::new(file));
        }
        let found = open.clone()?;
        drop(open);
        if found.digest != digest || found.length < offset {
            return None;
        }
        read_part(&found.file, found.length, offset, most).ok()
    }

    /// Path of the tokenizer's file.
    pub(crate) fn tokenizer_path(&self) -> PathBuf {
        self.folder.join(TOKENIZER)
    }

    /// Whether this node has taken part in an epoch.
    pub(crate) fn has_receipts(&self) -> bool {
        fs::metadata(self.folder.join("receipts.log")).is_ok_and(|file| file.len() > 0)
    }

    /// Moves a file that makes no sense into `damaged/`, for a person to look at.
    pub(crate) fn set_aside(&self, path: &Path) -> Result<(), StoreError> {
        self.put_aside(path, |path, aside| fs::rename(path, aside))
    }

    /// Leaves a copy of such a file in `damaged/`.
    fn copy_aside(&self, path: &Path) -> Result<(), StoreError> {
        self.put_aside(path, |path, aside| fs::copy(path, aside).map(drop))
    }

    /// Gives a file a name in `damaged/`, where the oldest ones are removed.
    /// The name is that of the file and a number that rises, so that no earlier one is replaced.
    fn put_aside(
        &self,
        path: &Path,
        put: impl FnOnce(&Path, &Path) -> io::Result<()>,
    ) -> Result<(), StoreError> {
        let folder = self.folder.join("damaged");
        let error = cannot("set aside", path);
        os::create_folder(&folder).map_err(&error)?;
        let number = |path: &PathBuf| path.extension()?.to_str()?.parse::<u64>().ok();
        let mut known: Vec<(u64, PathBuf)> =
            files(&folder)?.into_iter().filter_map(|path| Some((number(&path)?, path))).collect();
        known.sort();
        let next = known.last().map_or(1, |(last, _)| last.saturating_add(1));
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        put(path, &folder.join(format!("{name}.{next}"))).map_err(&error)?;
        os::sync_folder(&folder).and_then(|()| os::sync_parent(path)).map_err(&error)?;
        let old = known.len().saturating_sub(DAMAGED - 1);
        for (_, old) in &known[..old] {
            fs::remove_file(old).map_err(cannot("remove", old))?;
        }
        Ok(())
    }
}

/// The contents of the file of options in a run's `folder`, if there is one. A longer file than [`OPTIONS_BYTES_MAX`] is
/// cut off one byte beyond that length.
pub(crate) fn options(folder: &Path) -> io::Result<Option<Vec<u8>>> {
    let Some(file) = os::unless_missing(File::open(folder.join(OPTIONS)))? else { return Ok(None) };
    let mut bytes = Vec::new();
    file.take(OPTIONS_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// The runs in a data folder, sorted.
pub(crate) fn runs(data_dir: &Path) -> io::Result<Vec<RunId>> {
    let runs = os::unless_missing(fs::read_dir(data_dir.join("runs")))?.into_iter().flatten();
    let names: io::Result<Vec<_>> = runs.map(|run| run.map(|run| run.file_name())).collect();
    let mut runs: Vec<RunId> =
        names?.iter().filter_map(|name| RunId::from_hex(name.to_str()?)).collect();
    runs.sort();
    Ok(runs)
}

/// Bytes on disk that the states, updates and fetched data of a run take already.
/// Blocks of the disk are counted and not lengths, since files have holes. What cannot be read
/// counts as nothing.
pub(crate) fn kept_bytes(data_dir: &Path, run: RunId) -> u64 {
    let data = data::paths(data_dir, run);
    let run = run_folder(data_dir, run);
    let inside = |name: &str| files(&run.join(name)).unwrap_or_default();
    // A state that arrives is a file in a folder of its own.
    let incoming = inside("incoming").into_iter().map(|folder| folder.join("checkpoint"));
    let paths = ["checkpoints", "updates"].into_iter().flat_map(inside).chain(incoming);
    // Published weights, whole or left half written by a crash; their momentum takes no room.
    let genesis = ["genesis.ckpt", "genesis.tmp"].map(|name| run.join(name));
    let taken = |path: PathBuf| Some(512 * fs::metadata(path).ok()?.blocks());
    paths.chain(genesis).chain(data).filter_map(taken).sum()
}

/// The folder of one run in a data folder.
pub(crate) fn run_folder(data_dir: &Path, run: RunId) -> PathBuf {
    data_dir.join("runs").join(run.hex())
}

/// Path of the signed manifest of a run.
pub(crate) fn manifest_path(data_dir: &Path, run: RunId) -> PathBuf {
    run_folder(data_dir, run).join("run.toml")
}

/// The same as [`replace`], with an error that names the file.
fn write(path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    Ok(replace(path, bytes).map_err(cannot("write", path))?)
}

/// Writes a small file under another name, flushes it, and renames it.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write_by(&path.with_extension(TEMPORARY), path, bytes)
}

/// The same, with `temporary` as the other name.
pub(crate) fn write_by(temporary: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    finish(File::create(temporary)?, temporary, path, bytes)
}

/// Writes, flushes and renames. The rename is the moment at which the new contents count, and it is
/// flushed last.
/// After an error the old file is still there, and perhaps the temporary one, which the next start
/// removes.
fn finish(mut file: File, temporary: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(temporary, path)?;
    os::sync_parent(path)
}

/// The paths of all entries of a folder, in no order.
fn files(folder: &Path) -> Result<Vec<PathBuf>, PathError> {
    let paths = |entries: ReadDir| entries.map(|entry| Ok(entry?.path())).collect();
    fs::read_dir(folder).and_then(paths).map_err(cannot("read", folder))
}

/// At most `most` bytes of a file, from `offset` on.
/// None beyond its end, which is no error.
fn part_of(path: &Path, offset: u64, most: usize) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    read_part(&file, file.metadata()?.len(), offset, most)
}

/// The same of an open file, of which the first `length` bytes count.
fn read_part(file: &File, length: u64, offset: u64, most: usize) -> io::Result<Vec<u8>> {
    let rest = length.saturating_sub(offset);
    let mut bytes = vec![0; usize::try_from(rest).unwrap_or(most).min(most)];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}

/// Name of the file of options in the run's folder.
pub(crate) const OPTIONS: &str = "node.toml";
/// Far more than anybody types.
pub(crate) const OPTIONS_BYTES_MAX: usize = 64 << 10;
/// Name of the run's tokenizer in the run's folder.
pub(crate) const TOKENIZER: &str = "tokenizer";
/// Extension of files that are being written.
const TEMPORARY: &str = "tmp";

#[cfg(test)]
pub(crate) mod tests;
