//! Which of the files and folders that somebody names are the run's.
//!
//! A run names its files by digest and length; whoever takes part names files, or folders that hold
//! them. A folder may hold anything else: only its files of the right length are looked into.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use super::text::{self, File};
use super::{DataError, hex};
use crate::config::Hints;

/// A file that was named, by itself or by its folder.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Candidate {
    /// Where it lies.
    pub path: PathBuf,
    /// Its length.
    pub bytes: u64,
    /// Whether somebody meant this very file.
    pub by_itself: bool,
}

/// What an organiser says of a file that is missing.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Hint {
    name: Option<String>,
    url: Option<String>,
}

impl Hint {
    /// Of file `index` of a run.
    pub(super) fn new(hints: &Hints, index: usize) -> Self {
        Self { name: hints.names.get(index).cloned(), url: hints.url.clone() }
    }
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(name) = &self.name else { return Ok(()) };
        write!(f, ", which its organiser calls {name}")?;
        self.url.as_ref().map_or(Ok(()), |url| write!(f, " and offers at {url}"))
    }
}

/// All files in what is named, those of a folder by name, without its folders.
///
/// # Errors
/// If something is not there, or cannot be read.
pub fn all(named: &[PathBuf]) -> Result<Vec<Candidate>, DataError> {
    let mut files = Vec::new();
    for path in named {
        let unreadable = |cause| DataError::Unreadable { path: path.clone(), cause };
        let about = fs::metadata(path).map_err(unreadable)?;
        if !about.is_dir() {
            files.push(Candidate { path: path.clone(), bytes: about.len(), by_itself: true });
            continue;
        }
        let mut inside = Vec::new();
        for entry in fs::read_dir(path).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
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
    expected: File,
    hints: &Hints,
) -> Result<PathBuf, DataError> {
    if let [file] = named
        && !file.is_dir()
    {
        // Whatever it is: whoever opens it says what is wrong.
        return Ok(file.clone());
    }
    let fits = |path: &Path| text::describe(path).map(|file| file == expected);
    for candidate in all(named)?.into_iter().filter(|file| file.bytes == expected.bytes) {
        if fits(&candidate.path)? {
            return Ok(candidate.path);
        }
    }
    let (hint, digest) = (Hint::new(hints, 0), hex(expected.digest));
    Err(DataError::NoFile { kind, bytes: expected.bytes, digest, hint })
}
