//! The folder of a run as a whole.

use super::*;

pub(super) const RUN: RunId = RunId([7; 32]);

pub(crate) fn open() -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), RUN).unwrap();
    (folder, store)
}

/// Writes what was good with a damaged byte.
pub(crate) fn write_bad(path: &Path, good: &[u8], at: usize) {
    let mut bad = good.to_vec();
    bad[at] ^= 0x40;
    fs::write(path, bad).unwrap();
}

/// The names of the files that were set aside.
pub(super) fn damaged(store: &Store) -> Vec<String> {
    let folder = store.folder.join("damaged");
    let paths = if folder.is_dir() { files(&folder).unwrap() } else { Vec::new() };
    let name = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
    paths.iter().map(name).collect()
}

#[test]
fn what_a_crash_left_half_written_is_removed() {
    let (folder, store) = open();
    for left in ["checkpoints/4.tmp", "votes.tmp"] {
        fs::write(store.folder.join(left), b"half").unwrap();
        Store::open(folder.path(), RUN).unwrap();
        assert!(!store.folder.join(left).exists());
    }
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, b"").unwrap();
    let error = Store::open(&file, RUN).unwrap_err();
    assert!(error.to_string().contains(file.to_str().unwrap()), "{error}");
}

#[test]
fn the_manifest_is_kept_as_it_was_signed() {
    let (_folder, store) = open();
    store.save_manifest("old").unwrap();
    store.save_manifest("new").unwrap();
    assert_eq!(fs::read_to_string(store.folder.join("run.toml")).unwrap(), "new");
}

#[test]
fn a_tokenizer_is_read_whole_once_and_anew_after_another_is_stored() {
    let (_folder, store) = open();
    let digest = |bytes: &[u8]| Digest(*blake3::hash(bytes).as_bytes());
    let (old, new) = (digest(b"0123456789"), digest(b"new"));
    let part = |digest, offset| store.tokenizer_part(digest, offset, 4);
    assert_eq!(part(old, 0), None, "there is no file yet");
    store.save_tokenizer(b"0123456789").unwrap();
    for (offset, found) in [(0, "0123"), (5, "5678"), (8, "89"), (10, "")] {
        assert_eq!(part(old, offset).unwrap(), found.as_bytes(), "{offset}");
    }
    assert_eq!((part(old, 11), part(old, u64::MAX), part(new, 0)), (None, None, None));
    fs::remove_file(store.tokenizer_path()).unwrap();
    assert_eq!(part(old, 8).as_deref(), Some(&b"89"[..]), "the file is open");
    store.save_tokenizer(b"new").unwrap();
    assert_eq!((part(old, 0), part(new, 0).as_deref()), (None, Some(&b"new"[..])));
}

#[test]
fn the_runs_of_a_folder_are_known_by_name() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(runs(folder.path()).unwrap(), []);
    for run in [RunId([9; 32]), RUN] {
        Store::open(folder.path(), run).unwrap();
    }
    fs::create_dir(folder.path().join("runs/other")).unwrap();
    assert_eq!(runs(folder.path()).unwrap(), [RUN, RunId([9; 32])]);
}
