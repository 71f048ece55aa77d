//! The weights that a run begins with, where its manifest names published ones: `genesis.ckpt`.
//!
//! The file is a checkpoint of no run yet ([`Header::published`]). It is kept as long as the run, since
//! whoever comes first needs it; its momentum, all zeros, is a hole in the file.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    sync::Arc,
};

use intellect_protocol::{
    checkpoint::{Header, Table},
    codec::EncodeError,
    id::Digest,
};

use super::{Saved, Store, StoreError, TEMPORARY, checkpoints, failed};
use crate::{
    checkpoint::{CheckpointError, Front},
    os,
};

/// Published weights, whole and checked.
#[derive(Debug)]
pub(crate) struct Published {
    /// In canonical order.
    pub(crate) theta: Vec<f32>,
    /// The file that they are in.
    pub(crate) saved: Saved,
}

/// Why there are no published weights in a file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PublishedError {
    /// It cannot be read, or makes no sense.
    #[error(transparent)]
    Read(#[from] CheckpointError),
    /// Other weights.
    #[error(
        "{} holds the weights {found}, this run begins with {expected}: name the file that \
         `manifest new` wrote beside this run's manifest",
        path.display()
    )]
    Other {
        /// The file.
        path: PathBuf,
        /// What it holds.
        found: Digest,
        /// What the manifest names.
        expected: Digest,
    },
}

/// What `theta` is as a run's first state: its digest is what a manifest names.
pub(crate) fn table(theta: &[f32]) -> Result<Table, EncodeError> {
    Table::of(Header::published(theta.len() as u64), theta, &vec![0.0; theta.len()])
}

/// Writes `theta`, whose table this is, for the first node of a run. The file must not exist.
pub(crate) fn publish(path: &Path, table: &Table, theta: &[f32]) -> Result<(), StoreError> {
    let temporary = path.with_extension(TEMPORARY);
    File::create_new(path).map_err(|source| failed("create", path, source))?;
    let written = checkpoints::write(&temporary, table, theta, &vec![0.0; theta.len()], None)
        .and_then(|()| checkpoints::take_over(&temporary, path, table));
    written.map(drop).inspect_err(|_| {
        // What is there is ours, and nothing.
        let _ = [temporary.as_path(), path].map(fs::remove_file);
    })
}

impl Published {
    /// Reads the weights `state` of a model of `parameters` parameters.
    pub(crate) fn read(
        path: &Path,
        state: Digest,
        parameters: u64,
    ) -> Result<Self, PublishedError> {
        let io_error = |source| CheckpointError::Io { path: path.to_owned(), source };
        let run = Header::published(parameters).run;
        let front = Front::read(path, run, parameters)?;
        let table = Arc::new(front.table.clone());
        if table.state() != state {
            let (path, found) = (path.to_owned(), table.state());
            return Err(PublishedError::Other { path, found, expected: state });
        }
        let theta = front.theta()?;
        let file = File::open(path).map_err(io_error)?;
        Ok(Self { theta, saved: Saved::new(path.to_owned(), table, file) })
    }
}

impl Store {
    /// Where the weights lie that the run begins with.
    pub(crate) fn genesis_path(&self) -> PathBuf {
        self.folder.join("genesis.ckpt")
    }

    /// Keeps published weights that lie elsewhere on this machine, at `from`: the same file if that can
    /// be, else another one.
    pub(crate) fn adopt_genesis(&self, from: &Path, weights: &Published) -> Result<(), StoreError> {
        let path = self.genesis_path();
        let temporary = path.with_extension(TEMPORARY);
        // What an earlier start left.
        let _ = fs::remove_file(&temporary);
        if fs::hard_link(from, &temporary).is_err() {
            return self.write_genesis(&weights.saved.table, &weights.theta).map(drop);
        }
        let kept = fs::rename(&temporary, &path).and_then(|()| os::sync_parent(&path));
        // Where both were the same file already, the new name is left.
        let _ = fs::remove_file(&temporary);
        kept.map_err(|source| failed("link to", &path, source))
    }

    /// Keeps published weights that were fetched.
    pub(crate) fn save_genesis(
        &self,
        table: Table,
        theta: Vec<f32>,
    ) -> Result<Published, StoreError> {
        let file = self.write_genesis(&table, &theta)?;
        self.drop_received(&table.state())?;
        let saved = Saved::new(self.genesis_path(), Arc::new(table), file);
        Ok(Published { theta, saved })
    }

    fn write_genesis(&self, table: &Table, theta: &[f32]) -> Result<File, StoreError> {
        let path = self.genesis_path();
        let temporary = path.with_extension(TEMPORARY);
        let written = checkpoints::write(&temporary, table, theta, &vec![0.0; theta.len()], None)
            .and_then(|()| checkpoints::take_over(&temporary, &path, table));
        written.inspect_err(|_| {
            // The error that brought us here says more than one of this.
            let _ = fs::remove_file(&temporary);
        })
    }
}

#[cfg(test)]
mod tests {
    use intellect_protocol::{checkpoint::PIECE, id::RunId};

    use super::*;

    #[test]
    fn weights_read_back_and_their_momentum_takes_no_room() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.ckpt");
        let theta: Vec<f32> = (0..2 * PIECE + 7).map(|n| n as f32).collect();
        let table = table(&theta).unwrap();
        publish(&path, &table, &theta).unwrap();
        let state = table.state();
        let count = theta.len() as u64;
        let read = Published::read(&path, state, count).unwrap();
        assert_eq!(read.theta, theta);
        assert_eq!(read.saved.piece(5).unwrap(), [0; 28]);
        let metadata = fs::metadata(&path).unwrap();
        assert!(metadata.len() > 8 * count, "as long as any checkpoint");
        let taken = std::os::unix::fs::MetadataExt::blocks(&metadata) * 512;
        assert!(taken < 5 * count, "{taken} bytes for {count} parameters");
        assert!(
            matches!(publish(&path, &table, &theta), Err(StoreError::Io { .. })),
            "never overwritten"
        );
    }

    #[test]
    fn other_weights_are_refused_and_adopted_ones_are_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.ckpt");
        let table = table(&[1.0, 2.0]).unwrap();
        publish(&path, &table, &[1.0, 2.0]).unwrap();
        let state = table.state();
        let other = Published::read(&path, Digest([9; 32]), 2).unwrap_err();
        assert!(matches!(other, PublishedError::Other { .. }), "{other}");
        let store = Store::open(folder.path(), RunId([1; 32])).unwrap();
        let named = Published::read(&path, state, 2).unwrap();
        store.adopt_genesis(&path, &named).unwrap();
        store.adopt_genesis(&path, &named).unwrap();
        assert!(!store.genesis_path().with_extension(TEMPORARY).exists());
        let kept = Published::read(&store.genesis_path(), state, 2).unwrap();
        assert_eq!(kept.theta, [1.0, 2.0]);
        let fetched = store.save_genesis(table, kept.theta).unwrap();
        assert_eq!(fetched.saved.state, state);
        assert_eq!(fs::read(store.genesis_path()).unwrap(), fs::read(&path).unwrap());
    }
}
