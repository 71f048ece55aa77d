//! A folder of a model that appears only when it is complete.
//!
//! The order is: the folder `OUT.part`, in it the tensors and the small files, each of them
//! flushed, then the folder's own entries, and last the rename to `OUT`. So after a crash that name
//! stands for a whole model or for nothing. A folder that is there and empty stays, since it may be
//! a mount point or have rights of its own: the files wait in `OUT/.part`, and move up one by one.
//! What a killed process leaves behind is a `.part`, which the next program refuses to touch and names.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Why a folder was not written. Nothing was left behind, but for what [`Self::Unfinished`] names.
#[derive(Debug, Error)]
pub enum StagedError {
    /// The folder contains files, which are not overwritten.
    #[error("{0} is not empty: nothing is overwritten, name another folder")]
    NotEmpty(PathBuf),
    /// Another program writes into this folder, or was killed.
    #[error("{0} is there: another program writes it, or one was killed; remove it in that case")]
    Unfinished(PathBuf),
    /// The operating system refuses to create or write a file or folder.
    #[error("cannot write {path}")]
    Write {
        /// Path of the file or folder that cannot be written.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

/// A folder under another name, `OUT.part`, until it is complete. If it is dropped before, it is
/// removed.
#[derive(Debug)]
pub struct Staged {
    /// Where the files are written.
    pub(crate) folder: PathBuf,
    /// The name that it has in the end, or the folder to which its files move.
    out: PathBuf,
    /// Whether its files move to that folder.
    inside: bool,
    /// Whether it has that name, so that nothing is to be removed.
    complete: bool,
}

impl Staged {
    /// Creates the folder beside `out`, or in it if it is there and empty.
    ///
    /// # Errors
    /// If `out` has files, another program has begun there, or the system refuses.
    pub fn begin(out: &Path) -> Result<Self, StagedError> {
        let inside = out.is_dir();
        let folder = if inside {
            let part = out.join(".part");
            if !part.exists() && fs::read_dir(out).map_err(failed(out))?.next().is_some() {
                return Err(StagedError::NotEmpty(out.to_owned()));
            }
            part
        } else {
            beside(out)?
        };
        match fs::create_dir(&folder) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                Err(StagedError::Unfinished(folder))
            }
            made => {
                made.map_err(failed(&folder))?;
                Ok(Self { folder, out: out.to_owned(), inside, complete: false })
            }
        }
    }

    /// Writes one of the small files of the folder.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn put(&self, name: &str, bytes: &[u8]) -> Result<(), StagedError> {
        let path = self.folder.join(name);
        let write = || {
            let mut file = File::create(&path)?;
            file.write_all(bytes)?;
            file.sync_all()
        };
        write().map_err(failed(&path))
    }

    /// Gives the folder its name, as it is complete. All its files are on the disk before.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn finish(mut self) -> Result<(), StagedError> {
        let rename = || {
            File::open(&self.folder)?.sync_all()?;
            if !self.inside {
                return fs::rename(&self.folder, &self.out);
            }
            for entry in fs::read_dir(&self.folder)? {
                let entry = entry?;
                fs::rename(entry.path(), self.out.join(entry.file_name()))?;
            }
            fs::remove_dir(&self.folder)
        };
        rename().map_err(failed(&self.out))?;
        self.complete = true;
        Ok(())
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if !self.complete {
            // What cannot be removed is named by the next program that writes there.
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

/// The name beside a folder that is not there yet, in a parent that is.
fn beside(out: &Path) -> Result<PathBuf, StagedError> {
    if out.exists() {
        let error = io::Error::new(ErrorKind::NotADirectory, "it is a file: name a folder");
        return Err(failed(out)(error));
    }
    let Some(name) = out.file_name() else {
        return Err(failed(out)(io::Error::new(ErrorKind::InvalidInput, "name a new folder")));
    };
    let parent = out.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.map_or(Ok(()), |parent| fs::create_dir_all(parent).map_err(failed(parent)))?;
    let mut part = name.to_owned();
    part.push(".part");
    Ok(out.with_file_name(part))
}

/// The error of a file or folder that cannot be written.
pub(crate) fn failed(path: &Path) -> impl Fn(io::Error) -> StagedError {
    move |source| StagedError::Write { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_appears_only_when_it_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("deep/out");
        let staged = Staged::begin(&out).unwrap();
        staged.put("a", b"b").unwrap();
        assert!(matches!(Staged::begin(&out), Err(StagedError::Unfinished(_))));
        drop(staged);
        assert_eq!(fs::read_dir(folder.path().join("deep")).unwrap().count(), 0);
        fs::create_dir(&out).unwrap();
        let staged = Staged::begin(&out).unwrap();
        staged.put("a", b"b").unwrap();
        staged.finish().unwrap();
        assert_eq!(fs::read(out.join("a")).unwrap(), b"b");
        assert!(matches!(Staged::begin(&out), Err(StagedError::NotEmpty(_))));
        assert!(Staged::begin(&out.join("a")).is_err());
    }

    /// It may be the end of a link or a mount point, which no other folder can replace.
    #[test]
    fn an_empty_folder_stays_and_gets_the_files() {
        let folder = tempfile::tempdir().unwrap();
        let (empty, link) = (folder.path().join("empty"), folder.path().join("link"));
        fs::create_dir(&empty).unwrap();
        std::os::unix::fs::symlink(&empty, &link).unwrap();
        drop(Staged::begin(&link).unwrap());
        assert_eq!(fs::read_dir(&empty).unwrap().count(), 0);
        let staged = Staged::begin(&link).unwrap();
        staged.put("a", b"b").unwrap();
        assert!(matches!(Staged::begin(&link), Err(StagedError::Unfinished(_))));
        staged.finish().unwrap();
        assert!(link.is_symlink() && fs::read(empty.join("a")).unwrap() == b"b");
        assert_eq!(fs::read_dir(&empty).unwrap().count(), 1);
    }
}
