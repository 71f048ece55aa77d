//! The folder of a simulation.

use std::{fs, path::PathBuf};

use crate::{cli::SimArgs, os::cannot};

use super::error::SimError;

/// The folder in which everything is written. That of `--out` stays; one of our own is removed,
/// however this ends, unless it is kept.
pub(super) struct Folder {
    /// Absolute.
    pub(super) path: PathBuf,
    stays: bool,
}

impl Folder {
    /// Makes it, empty.
    pub(super) fn make(args: &SimArgs) -> Result<Self, SimError> {
        let path = args.out.clone().unwrap_or_else(|| {
            std::env::temp_dir().join(format!("intellect-sim-{}", std::process::id()))
        });
        let unusable = cannot("use", &path);
        fs::create_dir_all(&path).map_err(&unusable)?;
        if fs::read_dir(&path).map_err(&unusable)?.next().is_some() {
            return Err(SimError::NotEmpty { folder: path.clone() });
        }
        let path = fs::canonicalize(&path).map_err(&unusable)?;
        Ok(Self { path, stays: args.out.is_some() })
    }

    /// Where the files stay, if they do.
    pub(super) fn kept(&self) -> Option<PathBuf> {
        self.stays.then(|| self.path.clone())
    }

    /// Has them stay.
    pub(super) fn keep(&mut self) -> PathBuf {
        self.stays = true;
        self.path.clone()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.stays {
            // What cannot be removed is the temporary folder's to clean up.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}
