//! Which of the files and folders that somebody names are the run's.
//!
//! A run names its files by digest and length; whoever takes part names files, or folders that hold
//! them. A folder may hold anything else: only its files of the right length are looked into.

use std::fs;
use std::path::{Path, PathBuf};

use super::documents::sink::ReadError;
use super::error::DataError;
use super::text;
use crate::config::{Fingerprint, Hints};

/// A file that was named, by itself or by its folder.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Candidate {
    /// Where it lies.
    pub(super) path: PathBuf,
    /// Length of the file in bytes.
    pub(super) bytes: u64,
    /// Whether somebody meant this very file.
    pub(super) by_itself: bool,
}

/// All files in what is named, those of a folder by name, without its folders.
///
/// # Errors
/// If something is not there, or cannot be read.
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
            // What vanishes meanwhile, or leads nowhere, is no file.
            let about = fs::metadata(&path).ok().filter(fs::Metadata::is_file);
            inside.extend(about.map(|about| about.len()).map(|bytes| Candidate {
                path,
                bytes,
                by_itself: false,
            }));
        }
        inside.sort();
        files.extend(inside);
    }
    Ok(files)
}

/// The one file of a run.
///
/// # Errors
/// If nothing that is named can be it.
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
        // Whatever it is: whoever opens it says what is wrong.
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

/// Whether nothing lies at the end of this path, as far as that can be known.
pub(super) fn is_absent(path: &Path) -> bool {
    matches!(path.try_exists(), Ok(false))
}
