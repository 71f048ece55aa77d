//! Tests of how a start finds the run's tokenizer.

use std::fs;

use super::*;
use crate::store::tests::open;

/// The smallest vocabulary of RWKV World: the 256 bytes.
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
    let (_folder, store) = open();
    for vocabulary in [None, Some(&Vocabulary::BYTES)] {
        assert_eq!(wanted(vocabulary, None, &store).unwrap(), None);
        let error =
            crate::Error::from(wanted(vocabulary, Some(Path::new("v.txt")), &store).unwrap_err())
                .explain();
        assert!(error.contains("leave --tokenizer v.txt out"), "{error}");
    }
}

#[test]
fn a_tokenizer_is_named_once_and_kept() {
    let (folder, store) = open();
    let (vocabulary, path) = (vocabulary(), folder.path().join("v.txt"));
    let need = |named: Option<&Path>| wanted(Some(&vocabulary), named, &store);
    assert_eq!(need(None).unwrap(), Some(Digest(vocabulary.digest)));
    fs::write(&path, "1 'a' 1\n").unwrap();
    let error = crate::Error::from(need(Some(&path)).unwrap_err()).explain();
    assert!(error.contains("v.txt is another tokenizer"), "{error}");
    assert_eq!(need(None).unwrap(), Some(Digest(vocabulary.digest)));

    fs::write(&path, file()).unwrap();
    assert_eq!(need(Some(&path)).unwrap(), None);
    assert_eq!(need(None).unwrap(), None);
    let named = Digest(vocabulary.digest);
    assert_eq!(store.tokenizer_part(named, 0, 1 << 20), Some(file()));
    assert_eq!(store.tokenizer_part(Digest([9; 32]), 0, 1 << 20), None, "it is another file");
    // A file that was damaged is asked for again.
    fs::write(store.tokenizer_path(), "1 'a' 1\n").unwrap();
    assert_eq!(need(None).unwrap(), Some(Digest(vocabulary.digest)));
    assert_eq!(store.tokenizer_part(named, 0, 1 << 20), None, "it is not handed out");
}
