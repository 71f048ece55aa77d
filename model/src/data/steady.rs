//! A file that stays as it was while a run trains on it.
//!
//! Its digest is checked when it is opened; to read all of it again would take too long. Whoever
//! writes to it or cuts it off changes its length or its time, which are compared after each row
//! that is read. A file that takes its name is another one: the open one is still the run's.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::documents::sink::ReadError;
use super::error::DataError;

/// An open file, and what it was like when it was opened.
#[derive(Debug)]
pub(super) struct Steady {
    /// May be read from its begin to its end once, to be checked; after that [`Steady::read`]
    /// reads.
    pub(super) file: fs::File,
    pub(super) path: PathBuf,
    /// Length in bytes, as it was when the file was opened.
    pub(super) bytes: u64,
    modified: SystemTime,
}

impl Steady {
    /// Opens a file, before it is checked.
    pub(super) fn open(path: &Path) -> Result<Self, DataError> {
        let open = || {
            let file = fs::File::open(path)?;
            let (bytes, modified) = look(&file)?;
            Ok(Self { file, path: path.to_owned(), bytes, modified })
        };
        Ok(open().map_err(ReadError::unreadable(path))?)
    }

    /// Fills `buffer` with what lies at `at`.
    pub(super) fn read(&self, buffer: &mut [u8], at: u64) -> Result<(), DataError> {
        let unreadable = ReadError::unreadable(&self.path);
        let read = self.file.read_exact_at(buffer, at);
        if look(&self.file).map_err(&unreadable)? != (self.bytes, self.modified) {
            return Err(DataError::Changed(self.path.clone()));
        }
        Ok(read.map_err(unreadable)?)
    }
}

/// The length and the time of a file; every change of the file changes one of them.
pub(super) fn look(file: &fs::File) -> io::Result<(u64, SystemTime)> {
    let about = file.metadata()?;
    Ok((about.len(), about.modified()?))
}
