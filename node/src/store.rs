//! Every file of a run in the data folder: `runs/<RunId>/{run.toml, node.toml, notices, ticket, votes.log,
//! receipts.log, checkpoints/<epoch>.ckpt, genesis.ckpt, data/, damaged/}`.
//!
//! A file that is replaced is written under another name, flushed, and renamed, so that whoever
//! looks finds the old one or the new one, whole, after a power cut too. Votes and receipts are
//! appended to logs (`log`, `journal`), states are checkpoints (`checkpoints`), and beside the runs
//! lie lists of addresses (`contacts`).
//!
//! What makes no sense is moved into `damaged/`, where the last [`DAMAGED`] files lie for a person
//! to look at. No name of a file comes from a peer. Reading a checkpoint for use is `checkpoint`'s.

mod checkpoints;
pub(crate) mod contacts;
pub(crate) mod data;
pub(crate) mod genesis;
mod journal;
pub(crate) mod links;
mod log;
mod notices;

use std::{
    ffi::OsStr,
    fs::{self, File, ReadDir},
    io::{self, Read as _, Write as _},
    os::unix::fs::{FileExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    sync::Mutex,
};

use intellect_protocol::{base::id::RunId, ring::codec::EncodeError};
use tokio::task::JoinError;

use crate::os::{self, PathError, cannot};

pub(crate) mod incoming;
mod updates;

pub(crate) use checkpoints::{Look, Saved};
pub(crate) use journal::{Begun, Journal, Start};

/// The folder of one run.
#[derive(Debug)]
pub(crate) struct Store {
    folder: PathBuf,
    /// Exists if the identity's own log id was used in this run.
    used: PathBuf,
    /// Where links lie in `receipts.log`, as far as it was asked for them.
    places: Mutex<links::Places>,
}

/// Files that are kept in `damaged/`.
const DAMAGED: usize = 4;

/// Why a file could not be kept. The one before it is still there.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    /// The system said no.
    #[error(transparent)]
    Io(#[from] PathError),
    /// Somebody has removed it while the node ran.
    #[error("{} was removed while this node ran", path.display())]
    Removed {
        /// The file.
        path: PathBuf,
    },
    /// The state has diverged.
    #[error("the state is not stored")]
    NotFinite(#[from] EncodeError),
    /// What was read back is not what was written.
    #[error(
        "{} does not read back as it was written: the disk or the memory is faulty", path.display()
    )]
    ReadBack {
        /// The file that was not renamed.
        path: PathBuf,
    },
    /// A job on the disk was given up.
    #[error("a job on the disk has ended: {0}")]
    Ended(#[from] JoinError),
}

impl Store {
    /// Makes the folder of `run` if need be, and removes what a crash left half written.
    pub(crate) fn open(data_dir: &Path, run: RunId) -> Result<Self, StoreError> {
        let folder = run_folder(data_dir, run);
        let used = data_dir.join("used").join(run.hex());
        let store = Self { folder, used, places: Mutex::default() };
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

    /// Keeps what was typed for the next start (`config::options`).
    pub(crate) fn save_options(&self, text: &str) -> Result<(), StoreError> {
        let path = self.options_path();
        Ok(replace(&path, text.as_bytes()).map_err(cannot("write", &path))?)
    }

    /// Where that is kept.
    pub(crate) fn options_path(&self) -> PathBuf {
        self.folder.join(OPTIONS)
    }

    /// Keeps the signed manifest.
    pub(crate) fn save_manifest(&self, text: &str) -> Result<(), StoreError> {
        let path = self.folder.join("run.toml");
        Ok(replace(&path, text.as_bytes()).map_err(cannot("write", &path))?)
    }

    /// Keeps the file of the run's tokenizer.
    pub(crate) fn save_tokenizer(&self, bytes: &[u8]) -> Result<(), StoreError> {
        let path = self.tokenizer_path();
        Ok(replace(&path, bytes).map_err(cannot("write", &path))?)
    }

    /// At most `most` bytes of it, from `offset` on.
    pub(crate) fn tokenizer_part(&self, offset: u64, most: usize) -> io::Result<Vec<u8>> {
        part_of(&self.tokenizer_path(), offset, most)
    }

    /// Where it is kept.
    pub(crate) fn tokenizer_path(&self) -> PathBuf {
        self.folder.join(TOKENIZER)
    }

    /// Whether this node has taken part in an epoch.
    pub(crate) fn has_receipts(&self) -> bool {
        fs::metadata(self.folder.join("receipts.log")).is_ok_and(|file| file.len() > 0)
    }

    /// Moves a file that makes no sense out of the way, for a person to look at.
    pub(crate) fn set_aside(&self, path: &Path) -> Result<(), StoreError> {
        let folder = self.folder.join("damaged");
        let error = cannot("set aside", path);
        os::create_folder(&folder).map_err(&error)?;
        let number = |path: &PathBuf| path.extension()?.to_str()?.parse::<u64>().ok();
        let mut known: Vec<(u64, PathBuf)> =
            files(&folder)?.into_iter().filter_map(|path| Some((number(&path)?, path))).collect();
        known.sort();
        let next = known.last().map_or(1, |(last, _)| last.saturating_add(1));
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        fs::rename(path, folder.join(format!("{name}.{next}"))).map_err(&error)?;
        os::sync_folder(&folder).and_then(|()| os::sync_parent(path)).map_err(&error)?;
        let old = known.len().saturating_sub(DAMAGED - 1);
        for (_, old) in &known[..old] {
            fs::remove_file(old).map_err(cannot("remove", old))?;
        }
        Ok(())
    }
}

/// What the file of options of the run in `folder` holds, if there is one; a byte more than
/// [`OPTIONS_BYTES_MAX`] stands for all that are too many.
pub(crate) fn options(folder: &Path) -> io::Result<Option<Vec<u8>>> {
    let Some(file) = os::unless_missing(File::open(folder.join(OPTIONS)))? else { return Ok(None) };
    let mut bytes = Vec::new();
    file.take(OPTIONS_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// The runs that a data folder holds.
pub(crate) fn runs(data_dir: &Path) -> io::Result<Vec<RunId>> {
    let runs = os::unless_missing(fs::read_dir(data_dir.join("runs")))?.into_iter().flatten();
    let names: io::Result<Vec<_>> = runs.map(|run| run.map(|run| run.file_name())).collect();
    let mut runs: Vec<RunId> =
        names?.iter().filter_map(|name| RunId::from_hex(name.to_str()?)).collect();
    runs.sort();
    Ok(runs)
}

/// Bytes that the states, updates and fetched data of a run take already.
pub(crate) fn kept_bytes(data_dir: &Path, run: RunId) -> u64 {
    let data = data::paths(data_dir, run);
    let run = run_folder(data_dir, run);
    let folders = ["checkpoints", "updates"].map(|name| files(&run.join(name)));
    let paths = folders.into_iter().flat_map(Result::unwrap_or_default);
    // Published weights, and what a crash left of them: their momentum takes no room.
    let genesis = ["genesis.ckpt", "genesis.tmp"].map(|name| run.join(name));
    let taken = |path: PathBuf| Some(512 * fs::metadata(path).ok()?.blocks());
    paths.chain(genesis).chain(data).filter_map(taken).sum()
}

/// The folder of a run.
pub(crate) fn run_folder(data_dir: &Path, run: RunId) -> PathBuf {
    data_dir.join("runs").join(run.hex())
}

/// Where the signed manifest of a run lies.
pub(crate) fn manifest_path(data_dir: &Path, run: RunId) -> PathBuf {
    run_folder(data_dir, run).join("run.toml")
}

/// Writes a small file under another name, flushes it, and renames it.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write_by(&path.with_extension(TEMPORARY), path, bytes)
}

/// The same by way of the file `temporary`.
fn write_by(temporary: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    finish(File::create(temporary)?, temporary, path, bytes)
}

fn finish(mut file: File, temporary: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(temporary, path)?;
    os::sync_parent(path)
}

/// The files in a folder.
fn files(folder: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let paths = |entries: ReadDir| entries.map(|entry| Ok(entry?.path())).collect();
    Ok(fs::read_dir(folder).and_then(paths).map_err(cannot("read", folder))?)
}

/// At most `most` bytes of a file, from `offset` on.
fn part_of(path: &Path, offset: u64, most: usize) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let rest = file.metadata()?.len().saturating_sub(offset);
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
mod tests;
