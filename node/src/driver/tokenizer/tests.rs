//! Tests of what becomes of a tokenizer at a start.

use std::fs;

use intellect_protocol::id::RunId;

use super::*;

/// The smallest vocabulary of RWKV World: the bytes.
fn file() -> Vec<u8> {
    let lines = (0..256).map(|byte| format!("{} b'\\x{byte:02x}' 1\n", byte + 1));
    lines.collect::<String>().into_bytes()
}

fn vocabulary() -> Vocabulary {
    let digest = *blake3::hash(&file()).as_bytes();
    Vocabulary { scheme: Scheme::Rwkv, digest, tokens: 257, bos: 0 }
}

#[test]
fn a_run_without_a_tokenizer_s_file_needs_none() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), RunId([1; 32])).unwrap();
    for vocabulary in [None, Some(&Vocabulary::BYTES)] {
        assert_eq!(Need::of(vocabulary, None, &store).unwrap(), Need::Nothing);
        let error = Need::of(vocabulary, Some(Path::new("v.txt")), &store).unwrap_err();
        assert!(error.explain().contains("leave --tokenizer v.txt out"), "{}", error.explain());
    }
}

#[test]
fn a_tokenizer_is_named_once_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), RunId([1; 32])).unwrap();
    let (vocabulary, path) = (vocabulary(), folder.path().join("v.txt"));
    let need = |named: Option<&Path>| Need::of(Some(&vocabulary), named, &store);
    assert_eq!(need(None).unwrap(), Need::Wanted(vocabulary.digest));
    fs::write(&path, "1 'a' 1\n").unwrap();
    let error = need(Some(&path)).unwrap_err().explain();
    assert!(error.contains("v.txt is another tokenizer"), "{error}");
    assert_eq!(need(None).unwrap(), Need::Wanted(vocabulary.digest));

    fs::write(&path, file()).unwrap();
    assert_eq!(need(Some(&path)).unwrap(), Need::Held(file()));
    assert_eq!(need(None).unwrap(), Need::Held(file()));
    // One that was damaged is asked for again.
    fs::write(store.tokenizer_path(), "1 'a' 1\n").unwrap();
    assert_eq!(need(None).unwrap(), Need::Wanted(vocabulary.digest));
}
