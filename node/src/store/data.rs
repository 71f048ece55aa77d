//! The files of the run's data that this node has fetched: `data/<BLAKE3>`. A file that is arriving is
//! `data/<BLAKE3>.part`, with holes, and the values of its pieces are in `data/<BLAKE3>.tree`.
//!
//! Nothing is flushed, and no list says which pieces are there. After a restart all pieces are read, and those with the
//! right value are kept. A web server sends the pieces in order, perhaps without values; then only the whole file is
//! checked.
//!
//! The name is the digest, so two runs of one folder do not share a file: each has a folder of its
//! own.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use intellect_model::config::Fingerprint;
use intellect_protocol::base::id::{Digest, RunId};
use intellect_protocol::base::tree::{Tree, piece_of, value_of};

use super::{Store, StoreError, files, replace, run_folder};
use crate::os::{self, cannot, unless_missing};

/// A file of the run's data while it arrives. Its name gets the final form only once all bytes are
/// right.
#[derive(Debug)]
pub(crate) struct Part {
    /// The open file, with holes where pieces are missing.
    file: File,
    /// Its path while it is not whole.
    path: PathBuf,
    /// Path that the file gets once it is whole.
    whole: PathBuf,
    /// The values of its pieces, if they are known.
    tree: Option<Tree>,
    /// The length that the manifest names.
    length: u64,
}

impl Store {
    /// The path of a whole file, whose name is its digest.
    pub(crate) fn data_path(&self, file: &Fingerprint) -> PathBuf {
        path_in(&self.folder, file)
    }

    /// Whether there is a whole file with that digest as its name and of that length.
    pub(crate) fn has_data(&self, file: &Fingerprint) -> bool {
        let about = fs::metadata(self.data_path(file));
        about.is_ok_and(|about| about.is_file() && about.len() == file.bytes)
    }

    /// Treats a damaged file as one that is arriving, so that its good pieces are kept.
    ///
    /// # Errors
    /// The system refused to rename it.
    pub(crate) fn reopen_data(&self, file: &Fingerprint) -> Result<(), StoreError> {
        let path = self.data_path(file);
        fs::rename(&path, part_path(&path)).map_err(cannot("set aside", &path))?;
        Ok(())
    }

    /// The values of the pieces of a file, if they have been fetched.
    pub(crate) fn data_tree(&self, file: &Fingerprint) -> Option<Tree> {
        let bytes = fs::read(tree_path(&self.data_path(file))).ok()?;
        Tree::from_bytes(&bytes, file.bytes, &Digest(file.digest))
    }

    /// Begins to receive a file, or resumes it. `tree` has the values of its pieces, if they are known.
    ///
    /// # Errors
    /// The system refused to write it.
    pub(crate) fn receive_data(
        &self,
        file: &Fingerprint,
        tree: Option<&Tree>,
    ) -> Result<Part, StoreError> {
        let whole = self.data_path(file);
        let path = part_path(&whole);
        let open = || {
            path.parent().map_or(Ok(()), os::create_folder)?;
            tree.map_or(Ok(()), |tree| replace(&tree_path(&whole), &tree.to_bytes()))?;
            os::open_as_is(&path)
        };
        let opened = open().map_err(cannot("write", &path))?;
        Ok(Part { file: opened, path, whole, tree: tree.cloned(), length: file.bytes })
    }
}

impl Part {
    /// Stores a piece that begins at `offset`.
    ///
    /// # Errors
    /// The system refused to write it.
    pub(crate) fn put(&self, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        Ok(self.file.write_all_at(bytes, offset).map_err(cannot("write", &self.path))?)
    }

    /// The numbers of the pieces that are here; each is read and checked.
    pub(crate) fn present(&self) -> BTreeSet<usize> {
        let numbers = (0..).take_while(|number| piece_of(self.length, *number).is_some());
        numbers.filter(|number| self.tree.is_some() && self.value(*number).is_some()).collect()
    }

    /// The values of the pieces that are here without a gap from the first one on. Where no values are known, they are
    /// computed from the bytes as they are.
    pub(crate) fn begun(&self) -> Vec<Digest> {
        (0..).map_while(|number| self.value(number)).collect()
    }

    /// Whether these bytes can be the piece of this number. If its value is known, they must match it.
    pub(crate) fn fits(&self, number: usize, piece: &[u8]) -> bool {
        self.tree.as_ref().is_none_or(|tree| tree.has(number, piece))
    }

    /// The value of a piece, if it is here.
    fn value(&self, number: usize) -> Option<Digest> {
        let (offset, length) = piece_of(self.length, number)?;
        let mut piece = vec![0; length as usize];
        self.file.read_exact_at(&mut piece, offset).ok()?;
        self.fits(number, &piece).then(|| value_of(self.length, number, &piece))
    }

    /// Removes all bytes, of which none is right.
    ///
    /// # Errors
    /// The system refused to cut the file.
    pub(crate) fn clear(&self) -> Result<(), StoreError> {
        Ok(self.file.set_len(0).map_err(cannot("write", &self.path))?)
    }

    /// Flushes the file, which is whole, and renames it.
    ///
    /// # Errors
    /// The system refused to flush or rename it.
    pub(crate) fn finish(&self) -> Result<(), StoreError> {
        let finish = || -> io::Result<()> {
            self.file.set_len(self.length)?;
            self.file.sync_all()?;
            fs::rename(&self.path, &self.whole)?;
            os::sync_parent(&self.whole)?;
            unless_missing(fs::remove_file(tree_path(&self.whole)))?;
            Ok(())
        };
        Ok(finish().map_err(cannot("write", &self.whole))?)
    }
}

/// Path of a whole file in the folder of its run.
pub(crate) fn path_in(folder: &Path, file: &Fingerprint) -> PathBuf {
    folder.join(FOLDER).join(Digest(file.digest).hex())
}

/// Paths of all data files of a run, whole or not.
pub(super) fn paths(data_dir: &Path, run: RunId) -> Vec<PathBuf> {
    files(&run_folder(data_dir, run).join(FOLDER)).unwrap_or_default()
}

/// The path of the file while it arrives.
fn part_path(whole: &Path) -> PathBuf {
    whole.with_extension("part")
}

/// The path of the values of its pieces.
fn tree_path(whole: &Path) -> PathBuf {
    whole.with_extension("tree")
}

/// Name of the folder in that of the run.
const FOLDER: &str = "data";

#[cfg(test)]
pub(crate) mod tests {
    use intellect_protocol::base::tree::TREE_PIECE_BYTES;

    use super::*;
    use crate::store::tests::open;

    /// What a manifest says of a file with these bytes, and the values of its pieces.
    pub(crate) fn described(bytes: &[u8]) -> (Fingerprint, Tree) {
        let (digest, length) = (*blake3::hash(bytes).as_bytes(), bytes.len() as u64);
        let values = bytes.chunks(TREE_PIECE_BYTES).enumerate();
        let values = values.map(|(number, piece)| value_of(length, number, piece)).collect();
        (Fingerprint { digest, bytes: length }, Tree::new(length, values).unwrap())
    }

    /// Whether the file with these bytes is kept.
    pub(crate) fn has(store: &Store, bytes: &[u8]) -> bool {
        let (file, _) = described(bytes);
        store.has_data(&file) && fs::read(store.data_path(&file)).unwrap() == bytes
    }

    fn file() -> (Vec<u8>, Fingerprint, Tree) {
        let bytes: Vec<u8> =
            (0..2 * TREE_PIECE_BYTES + 77).map(|n| (n / 7).to_le_bytes()[0]).collect();
        let (file, tree) = described(&bytes);
        (bytes, file, tree)
    }

    #[test]
    fn what_came_before_a_crash_is_there_after_it() {
        let folder = tempfile::tempdir().unwrap();
        let store = || Store::open(folder.path(), RunId([1; 32])).unwrap();
        let (bytes, file, tree) = file();
        assert_eq!(store().data_tree(&file), None);
        let part = store().receive_data(&file, Some(&tree)).unwrap();
        assert!(part.present().is_empty());
        part.put(2 << 20, &bytes[2 << 20..]).unwrap();
        part.put(0, b"torn").unwrap();
        drop(part);
        assert_eq!(store().data_tree(&file), Some(tree.clone()));
        let part = store().receive_data(&file, Some(&tree)).unwrap();
        assert_eq!(part.present(), BTreeSet::from([2]));
        assert!(!store().has_data(&file));
        for (offset, length, _) in tree.pieces() {
            let begin = usize::try_from(offset).unwrap();
            part.put(offset, &bytes[begin..begin + length as usize]).unwrap();
        }
        // More bytes than the file has are cut off.
        part.put(file.bytes, b"more").unwrap();
        assert_eq!(part.present(), BTreeSet::from([0, 1, 2]));
        part.finish().unwrap();
        assert!(has(&store(), &bytes));
        assert_eq!(paths(folder.path(), RunId([1; 32])), [store().data_path(&file)]);
    }

    #[test]
    fn a_damaged_file_is_repaired_piece_by_piece() {
        let (_folder, store) = open();
        let (mut bytes, file, tree) = file();
        bytes[TREE_PIECE_BYTES + 5] ^= 1;
        fs::create_dir(store.folder.join(FOLDER)).unwrap();
        fs::write(store.data_path(&file), &bytes).unwrap();
        store.reopen_data(&file).unwrap();
        assert!(!store.has_data(&file));
        assert_eq!(
            store.receive_data(&file, Some(&tree)).unwrap().present(),
            BTreeSet::from([0, 2])
        );
        fs::write(tree_path(&store.data_path(&file)), [7; 96]).unwrap();
        assert_eq!(store.data_tree(&file), None);
    }
}
