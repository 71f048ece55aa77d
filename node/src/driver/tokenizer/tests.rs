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

const ONE: PeerId = PeerId([1; 32]);
const OTHER: PeerId = PeerId([2; 32]);

/// What one peer has sent is not asked for again when another one goes on.
#[test]
fn a_tokenizer_comes_in_parts_from_whoever_answers() {
    for length in [0, 3, PART_BYTES, 2 * PART_BYTES + 3] {
        let file = vec![7; length];
        let digest = *blake3::hash(&file).as_bytes();
        let mut coming = Coming::default();
        let mut peers = [ONE, OTHER].into_iter().cycle();
        let found = loop {
            let rest = &file[coming.bytes.len()..];
            let part = rest[..rest.len().min(PART_BYTES)].to_vec();
            match coming.add((peers.next().unwrap(), part), digest) {
                Step::More => assert!(coming.bytes.len() <= length),
                step => break step,
            }
        };
        assert!(found == Step::Whole(file), "{length}");
    }
}

/// Who sent all of it lied; of several nobody is blamed. Neither keeps anything, or goes on for ever.
#[test]
fn a_tokenizer_of_another_digest_is_thrown_away() {
    let whole = || vec![7; PART_BYTES];
    let mut coming = Coming::default();
    for (first, author) in [(ONE, Some(ONE)), (OTHER, None)] {
        assert_eq!(coming.add((first, whole()), [0; 32]), Step::More);
        assert_eq!(coming.add((ONE, vec![8]), [0; 32]), Step::Wrong { author });
        assert!(coming.bytes.is_empty());
    }
    let endless = (0..1_000).find(|_| coming.add((ONE, whole()), [0; 32]) != Step::More);
    assert_eq!(endless, Some(BYTES_MAX / PART_BYTES));
}
