//! The weights that a run begins with, if its manifest names published ones: `genesis.ckpt`.
//!
//! The file is a checkpoint of no run ([`Header::published`]). It is kept as long as the run, since every newcomer needs
//! it. Its momentum, all zeros, is a hole in the file.
//!
//! The organiser makes the file (`unpublished`) and gives it to one node with `--genesis`; from
//! there it spreads. Its digest is in the manifest, so it cannot be exchanged.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    sync::Arc,
};

use intellect_protocol::{
    base::id::Digest,
    history::checkpoint::{Header, PieceError, Table},
    ring::codec::EncodeError,
};

use super::{Saved, Store, StoreError, TEMPORARY, checkpoints};
use crate::{
    checkpoint::{CheckpointError, Front, READ},
    os::{self, cannot},
};

/// Published weights, read and checked.
#[derive(Debug)]
pub(crate) struct Published {
    /// The parameters, in canonical order.
    pub(crate) theta: Vec<f32>,
    /// The file of the weights, ready to be served.
    pub(crate) saved: Saved,
}

/// Why a file has no published weights that can be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PublishedError {
    /// The file cannot be read, or makes no sense.
    #[error(transparent)]
    Read(#[from] CheckpointError),
    /// The file contains other weights, or a state of a run.
    #[error(
        "{} holds {found}, this run begins with the weights {expected}: name the file that \
         `manifest new` wrote beside this run's manifest",
        path.display()
    )]
    Other {
        path: PathBuf,
        /// What the file contains, in words.
        found: String,
        /// The digest that the manifest names.
        expected: Digest,
    },
    /// The weights are those of the manifest, but cannot be trained. Other peers have the same.
    #[error(
        "this run cannot be trained: in {state}, which its manifest names as its genesis, {why}; \
         its organiser has to publish a run with other weights"
    )]
    Useless {
        /// The digest that the manifest names.
        state: Digest,
        /// What is wrong with the weights.
        why: Useless,
    },
}

/// Why published weights cannot be trained. The organiser has published them by mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Useless {
    /// Their momentum is not zero, as it must be before the first epoch.
    #[error("the momentum is not zero")]
    Momentum,
    /// They contain a number that is not finite.
    #[error("a number is not finite")]
    NotFinite,
}

/// The table of `theta` as a run's first state; a manifest names its digest.
pub(crate) fn table(theta: &[f32]) -> Result<Table, EncodeError> {
    Table::of(Header::published(theta.len() as u64), theta, &vec![0.0; theta.len()])
}

/// Writes weights as a checkpoint whose momentum is zero.
fn write(path: &Path, table: &Table, theta: &[f32]) -> Result<File, StoreError> {
    checkpoints::write(path, table, theta, &vec![0.0; theta.len()], None)
}

impl Published {
    /// Reads the weights with the digest `state`, of a model with that many `parameters`.
    ///
    /// The momentum is not read: its table entries already say that it is zero. What is a mistake
    /// of the user (another file) and what is one of the organiser (weights that cannot be trained)
    /// are different errors.
    pub(crate) fn read(
        path: &Path,
        state: Digest,
        parameters: u64,
    ) -> Result<Self, PublishedError> {
        let run = Header::published(parameters).run;
        let other = |found| PublishedError::Other { path: path.to_owned(), found, expected: state };
        let front = Front::read(path, run, parameters).map_err(|error| match error {
            CheckpointError::Run { found, parameters, .. } if found == run => {
                other(format!("weights of {parameters} parameters"))
            }
            CheckpointError::Run { found, .. } => other(format!("a state of run {found}")),
            error => error.into(),
        })?;
        let table = Arc::new(front.table.clone());
        if table.state() != state {
            return Err(other(format!("the weights {}", table.state())));
        }
        let useless = |why| PublishedError::Useless { state, why };
        if table.has_momentum() {
            return Err(useless(Useless::Momentum));
        }
        let theta = front.theta().map_err(|error| match error {
            CheckpointError::Piece { source: PieceError::Content { .. }, .. } => {
                useless(Useless::NotFinite)
            }
            error => error.into(),
        })?;
        let file = File::open(path).map_err(cannot(READ, path)).map_err(CheckpointError::from)?;
        Ok(Self { theta, saved: Saved::new(table, file) })
    }
}

impl Store {
    /// Path of the weights that the run begins with.
    pub(crate) fn genesis_path(&self) -> PathBuf {
        self.folder.join("genesis.ckpt")
    }

    /// Stores published weights that are in the file `from` on this machine: as a link to that file if possible, else as
    /// a copy.
    ///
    /// A link needs no time and no room. If the user changes the file later, both change; then its
    /// pieces do not match and are not served.
    pub(crate) fn adopt_genesis(&self, from: &Path, weights: &Published) -> Result<(), StoreError> {
        let path = self.genesis_path();
        let temporary = path.with_extension(TEMPORARY);
        // An earlier start may have left it.
        let _ = fs::remove_file(&temporary);
        if fs::hard_link(from, &temporary).is_err() {
            return write(&path, &weights.saved.table, &weights.theta).map(drop);
        }
        let kept = fs::rename(&temporary, &path).and_then(|()| os::sync_parent(&path));
        // If both were the same file already, rename leaves the temporary name.
        let _ = fs::remove_file(&temporary);
        Ok(kept.map_err(cannot("link to", &path))?)
    }

    /// Stores published weights that were fetched.
    pub(crate) fn save_genesis(
        &self,
        table: Table,
        theta: Vec<f32>,
    ) -> Result<Published, StoreError> {
        let file = write(&self.genesis_path(), &table, &theta)?;
        self.drop_received(&table.state())?;
        Ok(Published { theta, saved: Saved::new(Arc::new(table), file) })
    }
}

#[cfg(test)]
mod tests {
    use intellect_protocol::{base::id::RunId, history::checkpoint::PIECE};

    use super::*;
    use crate::store::unpublished::Unpublished;

    /// Makes the file of these weights, as `manifest new` does; returns their table.
    fn publish(path: &Path, theta: &[f32]) -> Result<Table, StoreError> {
        let parameters = theta.len() as u64;
        Unpublished::write(path, parameters, |take| take(theta))
            .and_then(|made: Unpublished| made.publish())?;
        Ok(table(theta)?)
    }

    #[test]
    fn weights_read_back_and_their_momentum_takes_no_room() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.ckpt");
        let theta: Vec<f32> = (0..2 * PIECE + 7).map(|n| n as f32).collect();
        let table = publish(&path, &theta).unwrap();
        let state = table.state();
        let count = theta.len() as u64;
        let read = Published::read(&path, state, count).unwrap();
        assert_eq!(read.theta, theta);
        assert_eq!(read.saved.piece(5).unwrap(), [0; 28]);
        let metadata = fs::metadata(&path).unwrap();
        assert!(metadata.len() > 8 * count, "as long as any checkpoint");
        let taken = std::os::unix::fs::MetadataExt::blocks(&metadata) * 512;
        assert!(taken < 5 * count, "{taken} bytes for {count} parameters");
        assert!(matches!(publish(&path, &theta), Err(StoreError::Io(_))), "never overwritten");
    }

    /// The error names the organiser, not the disk.
    #[test]
    fn weights_that_nobody_can_train_are_their_organiser_s_fault() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.ckpt");
        let refused = |theta: [f32; 2], v: [f32; 2]| {
            let [theta, v] = [theta, v].map(|numbers| numbers.map(f32::to_le_bytes).concat());
            let digest = |bytes: &[u8]| *blake3::hash(bytes).as_bytes();
            let header = Header::published(2).to_bytes();
            let front = [&header[..], &digest(&theta), &digest(&v)].concat();
            fs::write(&path, [&front[..], &theta, &v].concat()).unwrap();
            let state = Digest::derive("intellect-node 1 state", &front);
            Published::read(&path, state, 2).unwrap_err().to_string()
        };
        for (theta, v, why) in [
            ([1.0, 2.0], [0.0, -1.0], "the momentum is not zero"),
            ([1.0, f32::INFINITY], [0.0; 2], "a number is not finite"),
        ] {
            let error = refused(theta, v);
            assert!(error.contains(why) && error.contains("its organiser"), "{error}");
        }
    }

    #[test]
    fn other_weights_are_refused_and_adopted_ones_are_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.ckpt");
        let table = publish(&path, &[1.0, 2.0]).unwrap();
        let state = table.state();
        let other = Published::read(&path, Digest([9; 32]), 2).unwrap_err();
        assert!(other.to_string().contains("holds the weights"), "{other}");
        let run = RunId([7; 32]);
        let header = Header { run, ..Header::published(2) };
        let of_a_run = Table::of(header, &[1.0, 2.0], &[0.0; 2]).unwrap().to_bytes();
        fs::write(folder.path().join("1.ckpt"), of_a_run).unwrap();
        let other = Published::read(&folder.path().join("1.ckpt"), state, 2).unwrap_err();
        assert!(other.to_string().contains("holds a state of run 07070707"), "{other}");
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
