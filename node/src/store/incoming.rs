//! A checkpoint that is arriving: `incoming/<state digest>/checkpoint`, in the layout of a whole one, with holes where
//! pieces are missing.
//!
//! Nothing is flushed, and no list says which pieces are there. After a restart all pieces are read, and those that match
//! their digests are kept. There is one such folder at most.
//!
//! A newer state replaces one that arrives: a node that is behind wants the newest that it can get.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use intellect_protocol::base::id::Digest;
use intellect_protocol::history::checkpoint::{HEADER_BYTES, Header, Table};

use super::{Store, StoreError, files};
use crate::os::{self, cannot, unless_missing};

/// The file of a checkpoint that is arriving.
#[derive(Debug)]
pub(crate) struct Incoming {
    /// For errors: which file the system refused to write.
    path: PathBuf,
    /// The open file. Pieces are written at their own offsets, in any order.
    file: File,
}

impl Store {
    /// The state whose checkpoint was arriving before.
    pub(crate) fn partial(&self) -> Option<Digest> {
        let folders = files(&self.incoming_folder()).ok()?.into_iter();
        let mut states = folders.filter_map(|path| Digest::from_hex(path.file_name()?.to_str()?));
        states.find(|state| self.partial_table(state).is_some())
    }

    /// The table of a checkpoint that is arriving, if the table has come.
    pub(crate) fn partial_table(&self, state: &Digest) -> Option<Table> {
        let mut file = File::open(self.incoming_path(state)).ok()?;
        let mut bytes = vec![0; HEADER_BYTES];
        file.read_exact(&mut bytes).ok()?;
        let count = Header::from_bytes(&bytes).ok()?.piece_count().ok()?;
        // The number of pieces may be damaged: the table must fit into the file.
        let more = u64::try_from(count.checked_mul(32)?).ok()?;
        (file.metadata().ok()?.len() >= more).then_some(())?;
        file.take(more).read_to_end(&mut bytes).ok()?;
        Table::from_bytes(&bytes, state).ok()
    }

    /// Begins to receive a checkpoint, or resumes it. Any other one is removed.
    ///
    /// # Errors
    /// The system refused to write it.
    pub(crate) fn receive(&self, table: &Table) -> Result<Incoming, StoreError> {
        let (state, path) = (table.state(), self.incoming_path(&table.state()));
        let has_begun = self.partial_table(&state).is_some();
        self.drop_incoming(has_begun.then_some(&state))?;
        let open = || -> io::Result<File> {
            path.parent().map_or(Ok(()), os::create_folder)?;
            let file = os::open_as_is(&path)?;
            file.write_all_at(&table.to_bytes(), 0)?;
            Ok(file)
        };
        let file = open().map_err(cannot("write", &path))?;
        Ok(Incoming { path, file })
    }

    /// Removes all checkpoints that are arriving, except `but`.
    ///
    /// # Errors
    /// The system refused to remove one.
    pub(crate) fn drop_incoming(&self, but: Option<&Digest>) -> Result<(), StoreError> {
        let folder = self.incoming_folder();
        if !folder.exists() {
            return Ok(());
        }
        let kept = but.map(|state| folder.join(state.hex()));
        for path in files(&folder)?.into_iter().filter(|path| Some(path) != kept.as_ref()) {
            let gone =
                if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            gone.map_err(cannot("remove", &path))?;
        }
        Ok(())
    }

    /// Removes the arriving form of a checkpoint that is stored whole by now.
    ///
    /// # Errors
    /// The system refused to remove it.
    pub(crate) fn drop_received(&self, state: &Digest) -> Result<(), StoreError> {
        let path = self.incoming_folder().join(state.hex());
        unless_missing(fs::remove_dir_all(&path)).map_err(cannot("remove", &path))?;
        Ok(())
    }

    /// The folder of checkpoints that are arriving.
    fn incoming_folder(&self) -> PathBuf {
        self.folder.join("incoming")
    }

    /// The file of one of them. The name comes from a digest that this node asked for, never from a
    /// peer.
    fn incoming_path(&self, state: &Digest) -> PathBuf {
        self.incoming_folder().join(state.hex()).join("checkpoint")
    }
}

impl Incoming {
    /// Stores a piece, which begins at `offset` of the checkpoint.
    ///
    /// # Errors
    /// The system refused to write it.
    pub(crate) fn put(&self, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        Ok(self.file.write_all_at(bytes, offset).map_err(cannot("write", &self.path))?)
    }

    /// A stored piece, if all of it is there and matches its digest.
    /// A hole reads as zeros, which match no piece but one of zeros.
    pub(crate) fn get(&self, table: &Table, piece: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; 4 * table.piece(piece)?.len()];
        self.file.read_exact_at(&mut bytes, table.offset(piece)?).ok()?;
        let digest = table.pieces().get(piece)?;
        (blake3::hash(&bytes) == blake3::Hash::from_bytes(digest.0)).then_some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use intellect_protocol::base::id::RunId;
    use intellect_protocol::history::checkpoint::PIECE;

    use super::*;
    use crate::store::kept_bytes;
    use crate::store::tests::{RUN, open};

    fn table(epoch: u64) -> (Table, Vec<f32>) {
        let theta: Vec<f32> = (0..PIECE + 5).map(|n| n as f32).collect();
        let (run, r, parameters) = (RunId([1; 32]), Digest([2; 32]), theta.len() as u64);
        let header = Header { run, epoch, tokens: 9, r, parameters };
        (Table::of(header, &theta, &theta).unwrap(), theta)
    }

    fn bytes(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    #[test]
    fn what_came_before_a_crash_is_there_after_it() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Store::open(folder.path(), RunId([1; 32])).unwrap();
        let (table, theta) = table(7);
        assert_eq!(open().partial(), None);
        let incoming = open().receive(&table).unwrap();
        incoming.put(table.offset(3).unwrap(), &bytes(&theta[PIECE..])).unwrap();
        incoming.put(table.offset(0).unwrap(), b"torn").unwrap();
        drop(incoming);
        assert_eq!(open().partial(), Some(table.state()));
        let incoming = open().receive(&table).unwrap();
        let there: Vec<_> = (0..4).map(|piece| incoming.get(&table, piece).is_some()).collect();
        assert_eq!(there, [false, false, false, true]);
    }

    #[test]
    fn one_is_kept_and_a_damaged_one_is_begun_anew() {
        let (_folder, store) = open();
        let ((old, theta), (new, _)) = (table(7), table(8));
        store.receive(&old).unwrap().put(old.offset(3).unwrap(), &bytes(&theta[PIECE..])).unwrap();
        store.receive(&new).unwrap();
        assert_eq!((store.partial(), store.partial_table(&old.state())), (Some(new.state()), None));
        fs::write(store.incoming_path(&new.state()), [0xff; 200]).unwrap();
        assert_eq!(store.partial(), None);
        let incoming = store.receive(&new).unwrap();
        assert_eq!(store.partial_table(&new.state()), Some(new.clone()));
        assert!((0..4).all(|piece| incoming.get(&new, piece).is_none()));
        store.drop_incoming(None).unwrap();
        assert_eq!(store.partial(), None);
    }

    /// The room that a run needs includes a state that arrives.
    #[test]
    fn what_has_come_of_a_state_counts_as_kept() {
        let (folder, store) = open();
        assert_eq!(kept_bytes(folder.path(), RUN), 0);
        let (table, theta) = table(7);
        let incoming = store.receive(&table).unwrap();
        incoming.put(table.offset(0).unwrap(), &bytes(&theta[..PIECE])).unwrap();
        incoming.file.sync_all().unwrap();
        let taken = 512 * incoming.file.metadata().unwrap().blocks();
        assert!(taken > 0);
        assert_eq!(kept_bytes(folder.path(), RUN), taken);
    }
}
