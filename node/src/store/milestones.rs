//! Milestones: states that outlive the newest checkpoints, as `milestones/<epoch>.ckpt`, for a curve or a merge later.
//!
//! A milestone is a second name of a checkpoint's file, so it takes no time, and no room until the checkpoint is pruned.
//! The epochs are those that the number of the rule divides, so every node that keeps some keeps the same ones. After a
//! fork the milestone of an epoch is the state of the lineage that this node is on.
//!
//! A node does not serve them and does not start from them. They are for `merge`, `eval` and a curve over the run.

use std::{
    fs, io,
    num::{NonZeroU64, NonZeroUsize},
    path::{Path, PathBuf},
};

use crate::os::{self, PathError, cannot, unless_missing};

/// Which states are kept for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Keep {
    /// Every state whose epoch this number divides.
    pub(crate) every: NonZeroU64,
    /// Only so many, the newest. Absent: all.
    pub(crate) most: Option<NonZeroUsize>,
}

impl Keep {
    /// Keeps the checkpoint of `epoch` in `folder`, if it is a milestone, and removes the oldest ones beyond the limit.
    ///
    /// # Errors
    /// The disk refuses; the checkpoint itself is stored all the same. A milestone that was there for this epoch may be
    /// gone.
    pub(super) fn milestone(
        self,
        folder: &Path,
        checkpoint: &Path,
        epoch: u64,
    ) -> Result<(), PathError> {
        if !epoch.is_multiple_of(self.every.get()) {
            return Ok(());
        }
        os::create_folder(folder).map_err(cannot("create", folder))?;
        let path = folder.join(format!("{epoch}.ckpt"));
        // The earlier one goes first: to rename one name of a file to another name of it does nothing.
        for old in [&path, &path.with_extension(UNFINISHED)] {
            remove(old)?;
        }
        let new = path.with_extension(UNFINISHED);
        // Some file systems have no second names.
        fs::hard_link(checkpoint, &new)
            .or_else(|_| copy(checkpoint, &new))
            .and_then(|()| fs::rename(&new, &path))
            .and_then(|()| os::sync_parent(&path))
            .map_err(cannot("write", &path))?;
        let most = self.most.map_or(usize::MAX, NonZeroUsize::get);
        milestones(folder)?.iter().skip(most).try_for_each(|old| remove(old))
    }
}

/// Copies a file, and waits until the copy is safe.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::copy(from, to)?;
    fs::File::open(to)?.sync_all()
}

/// Removes a file, if it is there.
fn remove(path: &Path) -> Result<(), PathError> {
    unless_missing(fs::remove_file(path)).map(drop).map_err(cannot("remove", path))
}

/// The milestones in `folder`, the greatest epoch first.
fn milestones(folder: &Path) -> Result<Vec<PathBuf>, PathError> {
    let epoch = |path: &PathBuf| -> Option<u64> {
        path.file_name()?.to_str()?.strip_suffix(".ckpt")?.parse().ok()
    };
    let paths = |entries: fs::ReadDir| entries.map(|entry| Ok(entry?.path())).collect();
    let paths: Vec<PathBuf> =
        fs::read_dir(folder).and_then(paths).map_err(cannot("read", folder))?;
    let mut found: Vec<(u64, PathBuf)> =
        paths.into_iter().filter_map(|path| Some((epoch(&path)?, path))).collect();
    found.sort_by(|a, b| b.cmp(a));
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

/// The end of the name of a file that has no content yet that may be read.
const UNFINISHED: &str = "unfinished";

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use intellect_protocol::{
        base::id::Digest,
        history::checkpoint::{Header, Table},
    };

    use super::*;
    use crate::store::{
        Store,
        tests::{RUN, open},
    };

    fn save(store: &Store, epoch: u64, value: f32) {
        let (theta, momentum) = (vec![value; 5], vec![0.0; 5]);
        let header = Header { run: RUN, epoch, tokens: epoch, r: Digest([3; 32]), parameters: 5 };
        let table = Arc::new(Table::of(header, &theta, &momentum).unwrap());
        store.save(table, &theta, &momentum).unwrap();
    }

    fn names(store: &Store) -> Vec<String> {
        let name = |path: PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
        milestones(&store.milestones_folder()).unwrap().into_iter().map(name).collect()
    }

    fn keep(every: u64, most: usize) -> Keep {
        Keep { every: NonZeroU64::new(every).unwrap(), most: NonZeroUsize::new(most) }
    }

    #[test]
    fn every_third_state_outlives_the_newest_checkpoints() {
        let (_folder, store) = open();
        let store = store.keeping(Some(keep(3, 0)));
        (1..=14).for_each(|epoch| save(&store, epoch, 1.0));
        assert_eq!(names(&store), ["12.ckpt", "9.ckpt", "6.ckpt", "3.ckpt"]);
        assert!(!store.checkpoint_path(9).exists(), "checkpoints are pruned as ever");
        let store = store.keeping(Some(keep(3, 2)));
        save(&store, 15, 1.0);
        assert_eq!(names(&store), ["15.ckpt", "12.ckpt"]);
        let store = store.keeping(None);
        save(&store, 18, 1.0);
        assert_eq!(names(&store), ["15.ckpt", "12.ckpt"]);
    }

    /// An epoch that is committed again, after a fork, replaces its milestone and nothing else.
    #[test]
    fn a_milestone_is_the_state_that_was_saved_last() {
        let (_folder, store) = open();
        let store = store.keeping(Some(keep(2, 0)));
        for value in [1.0, 1.0, 2.0] {
            save(&store, 4, value);
            let bytes =
                fs::read(milestones(&store.milestones_folder()).unwrap().remove(0)).unwrap();
            assert_eq!(bytes, fs::read(store.checkpoint_path(4)).unwrap());
            assert_eq!(fs::read_dir(store.milestones_folder()).unwrap().count(), 1);
        }
    }
}
