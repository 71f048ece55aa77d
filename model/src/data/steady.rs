//! A file that must not change while a run trains on it.
//!
//! Its digest is checked when it is opened; reading all of it again would take too long. A write or
//! a truncation changes its length or its time, which are compared after each row that is read. If
//! another file takes its name, the open file is still the run's.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::documents::sink::ReadError;
use super::error::DataError;

/// An open file, with its length and time when it was opened.
#[derive(Debug)]
pub(super) struct Steady {
    /// Its cursor serves one pass from begin to end, to check the file; afterwards use
    /// [`Steady::read`].
    pub(super) file: fs::File,
    /// The path by which it was opened, for messages.
    pub(super) path: PathBuf,
    /// Length in bytes when the file was opened.
    pub(super) bytes: u64,
    /// The time of its last write when it was opened.
    modified: SystemTime,
}

impl Steady {
    /// Opens a file that is still to be checked.
    pub(super) fn open(path: &Path) -> Result<Self, DataError> {
        let open = || {
            let file = fs::File::open(path)?;
            let (bytes, modified) = look(&file)?;
            Ok(Self { file, path: path.to_owned(), bytes, modified })
        };
        Ok(open().map_err(ReadError::unreadable(path))?)
    }

    /// Fills `buffer` with the bytes at `at`, and compares length and time afterwards, so that no
    /// changed byte is taken.
    ///
    /// # Errors
    /// [`DataError::Changed`], or what the system says.
    pub(super) fn read(&self, buffer: &mut [u8], at: u64) -> Result<(), DataError> {
        let unreadable = ReadError::unreadable(&self.path);
        let read = self.file.read_exact_at(buffer, at);
        if look(&self.file).map_err(&unreadable)? != (self.bytes, self.modified) {
            return Err(DataError::Changed(self.path.clone()));
        }
        Ok(read.map_err(unreadable)?)
    }
}

/// The length and the modification time of a file, one of which changes with every write.
pub(super) fn look(file: &fs::File) -> io::Result<(u64, SystemTime)> {
    let about = file.metadata()?;
    Ok((about.len(), about.modified()?))
}
