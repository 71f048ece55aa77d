//! Updates on disk, `updates/<epoch>-<update digest>.update`: the bytes as they travel, so that they can be served and
//! replayed as they are.
//!
//! An update is written under another name, flushed, and renamed, before any peer hears that this node has it
//! (docs/PROTOCOL.md, "Durability"). What is read back is believed only if it matches the
//! digest in its name. The protocol's `holdings` decide which updates are kept.
//!
//! An update has about one byte for each parameter with the codec int8, and four with f32.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use intellect_protocol::base::id::Digest;
use intellect_protocol::holdings::Name;

use super::{Store, StoreError, TEMPORARY, files, part_of, write_by};
use crate::os::{cannot, unless_missing};

/// The name of an update's file.
fn file_of(name: Name) -> String {
    format!("{}-{}.{EXTENSION}", name.epoch, name.digest.hex())
}

/// The update that a file is named after. The name must be the very one that [`file_of`] gives, so
/// that no two names mean one update.
fn parse(file: &str) -> Option<Name> {
    let (epoch, rest) = file.split_once('-')?;
    let digest = Digest::from_hex(rest.strip_suffix(EXTENSION)?.strip_suffix('.')?)?;
    let name = Name { epoch: epoch.parse().ok()?, digest };
    (file_of(name) == file).then_some(name)
}

impl Store {
    /// Stores an update, which is on the disk when this returns. It takes as long as the disk, so it is not for the control
    /// loop.
    ///
    /// # Errors
    /// The system refused to write it; no half file is left.
    pub(crate) fn keep_update(&self, name: Name, bytes: &[u8]) -> Result<(), StoreError> {
        let path = self.update_path(name);
        // The update may come from two sides at once: neither writer may cut or remove the other's file.
        let writer = WRITERS.fetch_add(1, Ordering::Relaxed);
        let temporary = path.with_extension(format!("{writer}.{TEMPORARY}"));
        let written = write_by(&temporary, &path, bytes).inspect_err(|_| {
            // The first error says more than a second one would.
            let _ = fs::remove_file(&temporary);
        });
        Ok(written.map_err(cannot("write", &path))?)
    }

    /// The updates on disk, oldest epoch first. Files with other names are left alone.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub(crate) fn updates(&self) -> Result<Vec<Name>, StoreError> {
        let paths = files(&self.updates_folder())?.into_iter();
        let mut names: Vec<Name> =
            paths.filter_map(|path| parse(path.file_name()?.to_str()?)).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// A whole update, if its bytes match the digest in its name.
    ///
    /// # Errors
    /// The system refused to read it, or the file is damaged.
    pub(crate) fn read_update(&self, name: Name) -> Result<Vec<u8>, StoreError> {
        let path = self.update_path(name);
        let bytes = fs::read(&path).map_err(cannot("read", &path))?;
        if blake3::hash(&bytes) != blake3::Hash::from_bytes(name.digest.0) {
            return Err(StoreError::ReadBack { path });
        }
        Ok(bytes)
    }

    /// At most `most` bytes of an update, from `offset` on. They are not verified, since the peer that asks knows the
    /// digest.
    ///
    /// # Errors
    /// The system refused to read it.
    pub(crate) fn update_part(&self, name: Name, offset: u64, most: usize) -> io::Result<Vec<u8>> {
        part_of(&self.update_path(name), offset, most)
    }

    /// Removes updates; it is no error if one is gone already.
    ///
    /// # Errors
    /// The system refused to remove one of them; the others are gone.
    pub(crate) fn drop_updates(&self, names: &[Name]) -> Result<(), StoreError> {
        let mut result = Ok(());
        for name in names {
            let path = self.update_path(*name);
            if let Err(error) = unless_missing(fs::remove_file(&path)) {
                result = Err(cannot("remove", &path)(error).into());
            }
        }
        result
    }

    /// The folder of all updates of the run.
    pub(super) fn updates_folder(&self) -> PathBuf {
        self.folder.join("updates")
    }

    /// The path of the file of one update.
    fn update_path(&self, name: Name) -> PathBuf {
        self.updates_folder().join(file_of(name))
    }
}

/// The extension of a whole update; one that is being written has another.
const EXTENSION: &str = "update";

/// Numbers the writers, so that each has a temporary file of its own.
static WRITERS: AtomicU64 = AtomicU64::new(0);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::{RUN, open};

    fn name(epoch: u64, bytes: &[u8]) -> Name {
        Name { epoch, digest: Digest(*blake3::hash(bytes).as_bytes()) }
    }

    #[test]
    fn an_update_is_kept_listed_served_and_dropped() {
        let (_folder, store) = open();
        let (one, two) = (name(9, b"first"), name(10, b"second"));
        store.keep_update(two, b"second").unwrap();
        store.keep_update(one, b"first").unwrap();
        store.keep_update(one, b"first").unwrap();
        assert_eq!(store.updates().unwrap(), [one, two]);
        assert_eq!(store.read_update(two).unwrap(), b"second");
        assert_eq!(store.update_part(two, 2, 3).unwrap(), b"con");
        assert_eq!(store.update_part(two, 4, 100).unwrap(), b"nd");
        assert_eq!(store.update_part(two, 7, 100).unwrap(), b"");
        assert_eq!(store.update_part(two, u64::MAX, 100).unwrap(), b"");
        store.drop_updates(&[one, one]).unwrap();
        assert_eq!(store.updates().unwrap(), [two]);
        assert!(store.update_part(one, 0, 1).is_err());
    }

    /// It may come from our ring and from another peer.
    #[test]
    fn an_update_that_comes_twice_at_once_is_kept() {
        let (_folder, store) = open();
        let bytes = vec![7; 1 << 20];
        let name = name(3, &bytes);
        std::thread::scope(|scope| {
            let keep = || (0..40).try_for_each(|_| store.keep_update(name, &bytes));
            let writers = [0; 4].map(|_| scope.spawn(keep));
            for writer in writers {
                writer.join().unwrap().unwrap();
            }
        });
        assert_eq!(store.read_update(name).unwrap(), bytes);
        assert_eq!(files(&store.updates_folder()).unwrap().len(), 1);
    }

    #[test]
    fn a_damaged_update_is_known_by_its_digest() {
        let (_folder, store) = open();
        let name = name(3, b"bytes");
        store.keep_update(name, b"bytes").unwrap();
        fs::write(store.update_path(name), b"bites").unwrap();
        assert!(matches!(store.read_update(name), Err(StoreError::ReadBack { .. })));
    }

    #[test]
    fn what_a_crash_left_and_foreign_files_are_no_updates() {
        let (folder, store) = open();
        let name = name(3, b"bytes");
        let left = store.update_path(name).with_extension(TEMPORARY);
        for other in [left.clone(), store.updates_folder().join("03-ff.update")] {
            fs::write(other, b"half").unwrap();
        }
        assert_eq!(store.updates().unwrap(), []);
        let store = Store::open(folder.path(), RUN).unwrap();
        assert_eq!((store.updates().unwrap(), left.exists()), (vec![], false));
    }
}
