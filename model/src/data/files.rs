//! Finds the run's files among the files and folders that a person names.
//!
//! A run names its files by digest and length; the person names files, or folders that contain
//! them. A folder may contain anything else: only its files of the right length are read.

use std::fs;
use std::path::{Path, PathBuf};

use super::documents::sink::ReadError;
use super::error::DataError;
use super::text;
use crate::config::{Fingerprint, Hints};

/// A file that was named, directly or through its folder.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Candidate {
    /// Where it is, as it was named or found in its folder.
    pub(super) path: PathBuf,
    /// Length of the file in bytes.
    pub(super) bytes: u64,
    /// Whether this very file was named, and not its folder.
    pub(super) by_itself: bool,
}

/// All named files, and the files in named folders in the order of their names, without subfolders.
///
/// # Errors
/// If a path does not exist or cannot be read.
pub(super) fn all(named: &[PathBuf]) -> Result<Vec<Candidate>, DataError> {
    let mut files = Vec::new();
    for path in named {
        let unreadable = ReadError::unreadable(path);
        let about = fs::metadata(path).map_err(&unreadable)?;
        if !about.is_dir() {
            files.push(Candidate { path: path.clone(), bytes: about.len(), by_itself: true });
            continue;
        }
        let mut inside = Vec::new();
        for entry in fs::read_dir(path).map_err(&unreadable)? {
            let path = entry.map_err(&unreadable)?.path();
            // An entry that vanishes meanwhile, or a dangling link, is skipped.
            let about = fs::metadata(&path).ok().filter(fs::Metadata::is_file);
            if let Some(about) = about {
                inside.push(Candidate { path, bytes: about.len(), by_itself: false });
            }
        }
        inside.sort();
        files.extend(inside);
    }
    Ok(files)
}

/// Finds the only file of a run.
///
/// # Errors
/// If none of the named files can be it.
pub(super) fn one(
    named: &[PathBuf],
    kind: &'static str,
    expected: Fingerprint,
    hints: &Hints,
) -> Result<PathBuf, DataError> {
    let (described, get) = (hints.described(0, kind, expected), hints.remedy());
    match named {
        [path] if is_absent(path) => {
            return Err(DataError::Missing { path: path.clone(), file: expected, described, get });
        }
        // Whatever it is, the attempt to open it reports what is wrong.
        [path] if !path.is_dir() => return Ok(path.clone()),
        _ => {}
    }
    for candidate in all(named)?.into_iter().filter(|file| file.bytes == expected.bytes) {
        if text::describe(&candidate.path)? == expected {
            return Ok(candidate.path);
        }
    }
    Err(DataError::NoFile { file: expected, described, get })
}

/// Whether this path does not exist, as far as that can be known.
pub(super) fn is_absent(path: &Path) -> bool {
    matches!(path.try_exists(), Ok(false))
}
