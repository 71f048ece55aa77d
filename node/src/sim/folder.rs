//! The folder that a simulation writes to.

use std::{fs, path::PathBuf};

use crate::{
    cli::SimArgs,
    os::{self, cannot},
};

use super::error::SimError;

/// The folder in which everything is written. That of `--out` stays; a temporary one is removed however the simulation
/// ends, unless it is to be kept.
pub(super) struct Folder {
    /// The canonical path, so that processes with another working folder find it.
    pub(super) path: PathBuf,
    /// Whether it is left when this is dropped.
    stays: bool,
}

impl Folder {
    /// Makes the folder; it must be new or empty.
    ///
    /// # Errors
    /// It has files already, it is a file, or it cannot be made.
    pub(super) fn make(args: &SimArgs) -> Result<Self, SimError> {
        let path = args.out.clone().unwrap_or_else(unused);
        let unusable = cannot("use", &path);
        os::refuse_file(&path).map_err(&unusable)?;
        fs::create_dir_all(&path).map_err(&unusable)?;
        if fs::read_dir(&path).map_err(&unusable)?.next().is_some() {
            return Err(SimError::NotEmpty { folder: path.clone() });
        }
        let path = fs::canonicalize(&path).map_err(&unusable)?;
        Ok(Self { path, stays: args.out.is_some() })
    }

    /// The path of the folder, if its files stay. A message must not name a folder that is about to
    /// vanish.
    pub(super) fn kept(&self) -> Option<PathBuf> {
        self.stays.then(|| self.path.clone())
    }

    /// Keeps the files, and returns the path of the folder. It is called for a simulation that
    /// failed, whose logs and events are what a person looks at then.
    pub(super) fn keep(&mut self) -> PathBuf {
        self.stays = true;
        self.path.clone()
    }
}

/// A folder in the system's temporary one that does not exist: an earlier process of the same number may have left its
/// own.
fn unused() -> PathBuf {
    let name = format!("intellect-sim-{}", std::process::id());
    let mut path = std::env::temp_dir().join(&name);
    let mut number = 1_u64;
    while path.exists() {
        number += 1;
        path.set_file_name(format!("{name}-{number}"));
    }
    path
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.stays {
            // The system cleans up its temporary folder.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a container each first process has the same number.
    #[test]
    fn a_folder_that_an_earlier_process_left_is_not_taken() {
        let first = unused();
        fs::create_dir(&first).unwrap();
        let second = unused();
        fs::remove_dir(&first).unwrap();
        assert_ne!(first, second);
        assert!(!second.exists());
    }
}
