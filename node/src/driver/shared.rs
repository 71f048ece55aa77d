//! The files of the run's data that this node serves, where the manifest allows it.
//!
//! They are read from the files that are open for training. Every piece is checked before it is sent: a file
//! that was changed is no longer served, so that its owner is not taken for a liar. The chaining
//! values of a file's pieces are computed at the first request for them, which reads the whole file.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use intellect_model::config::Fingerprint;
use intellect_model::data::Dataset;
use intellect_protocol::base::id::Digest;
use intellect_protocol::base::tree::{TREE_PIECE_BYTES, Tree, piece_count, piece_of, value_of};

use crate::fetch::part_of;
use crate::manifest::Manifest;

/// The token files that may be served, in the order of the manifest.
#[derive(Debug)]
pub(super) struct SharedData {
    /// The open files. Training reads from the same ones.
    source: Arc<Dataset>,
    /// What the manifest says of each file; empty if the manifest does not share its data.
    files: Vec<File>,
}

/// One file, with what is known of its content.
#[derive(Debug)]
struct File {
    /// Length and digest of the file, as the manifest names them.
    fingerprint: Fingerprint,
    /// The chaining values of its pieces, once computed; `None` inside if the file has changed.
    tree: OnceLock<Option<Tree>>,
    /// Whether they are being computed. A peer that asks meanwhile has to ask again.
    under: AtomicBool,
}

impl SharedData {
    /// The files of `source`, if the manifest lets them be served.
    pub(super) fn new(manifest: &Manifest, source: Arc<Dataset>) -> Self {
        let data = &manifest.work.data;
        let files = if data.share { data.source.files() } else { Vec::new() };
        let file = |fingerprint| File {
            fingerprint,
            tree: OnceLock::new(),
            under: AtomicBool::new(false),
        };
        Self { source, files: files.into_iter().map(file).collect() }
    }

    /// The digests of the files that are served.
    pub(super) fn files(&self) -> Vec<Digest> {
        self.files.iter().map(|file| Digest(file.fingerprint.digest)).collect()
    }

    /// The chaining values of a file's pieces, from byte `offset` on. The first call reads the whole file.
    pub(super) fn tree_part(&self, file: &Digest, offset: u64) -> Option<Vec<u8>> {
        let (_, tree) = self.find(file)?;
        part_of(&tree.to_bytes(), offset)
    }

    /// A piece of a file. The first call reads the whole file too.
    pub(super) fn piece(&self, file: &Digest, index: u32) -> Option<Vec<u8>> {
        let (file, tree) = self.find(file)?;
        let number = usize::try_from(index).ok()?;
        let piece = self.read(file, number)?;
        if tree.has(number, &piece) {
            return Some(piece);
        }
        tracing::warn!(index, "a file of data was changed: it is served no more");
        None
    }

    /// A file and the chaining values of its pieces; `None` while another thread computes them.
    fn find(&self, digest: &Digest) -> Option<(usize, &Tree)> {
        let of = |file: &File| file.fingerprint.digest == digest.0;
        let index = self.files.iter().position(of)?;
        let file = self.files.get(index)?;
        if file.tree.get().is_none() {
            if file.under.swap(true, Ordering::AcqRel) {
                return None;
            }
            file.tree.get_or_init(|| self.compute(index, digest));
        }
        Some((index, file.tree.get()?.as_ref()?))
    }

    /// Computes the chaining values of a whole file, which reads all of it. `None`: the file cannot
    /// be read, or is not the one of the manifest any more.
    fn compute(&self, index: usize, digest: &Digest) -> Option<Tree> {
        let length = self.files.get(index)?.fingerprint.bytes;
        let count = usize::try_from(piece_count(length)).ok()?;
        let value = |number| Some(value_of(length, number, &self.read(index, number)?));
        let tree = Tree::new(length, (0..count).map(value).collect::<Option<_>>()?)?;
        if tree.digest() == *digest {
            return Some(tree);
        }
        tracing::warn!("a file of data was changed: it is not served");
        None
    }

    /// The bytes of a piece, as they are on disk now.
    fn read(&self, index: usize, number: usize) -> Option<Vec<u8>> {
        let (offset, length) = piece_of(self.files.get(index)?.fingerprint.bytes, number)?;
        let mut piece = vec![0; TREE_PIECE_BYTES.min(length as usize)];
        match self.source.read_file(index, &mut piece, offset) {
            Ok(()) => Some(piece),
            Err(error) => {
                tracing::warn!(%error, "a file of data cannot be served");
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use intellect_model::config::Work;
    use intellect_model::data::text;

    use super::*;
    use crate::store::tests::write_bad;

    #[test]
    fn a_file_is_served_as_it_was_and_no_more_once_it_is_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text");
        let bytes: Vec<u8> =
            (0..2 * TREE_PIECE_BYTES + 9).map(|at| b'a' + (at % 23) as u8).collect();
        fs::write(&path, &bytes).unwrap();
        let fingerprint = text::describe(&path).unwrap();
        let source =
            Dataset::open(&Work::text(fingerprint), 1, std::slice::from_ref(&path)).unwrap();
        let file = || File { fingerprint, tree: OnceLock::new(), under: AtomicBool::new(false) };
        let shared = SharedData { source: Arc::new(source), files: vec![file()] };
        let digest = Digest(fingerprint.digest);
        assert_eq!(shared.files(), [digest]);
        let values = shared.tree_part(&digest, 0).unwrap();
        assert!(Tree::from_bytes(&values, fingerprint.bytes, &digest).is_some());
        assert_eq!(shared.tree_part(&digest, 64).unwrap(), values[64..]);
        assert_eq!(shared.tree_part(&digest, 97), None);
        assert_eq!(shared.piece(&digest, 2).unwrap(), bytes[2 * TREE_PIECE_BYTES..]);
        assert_eq!(shared.piece(&digest, 3), None);
        assert_eq!(shared.piece(&Digest([1; 32]), 0), None);
        // A change of one byte, then another length.
        write_bad(&path, &bytes, 5);
        assert_eq!(shared.piece(&digest, 0), None);
        fs::write(&path, [&bytes[..], b"more"].concat()).unwrap();
        assert_eq!(shared.piece(&digest, 1), None);
    }
}
