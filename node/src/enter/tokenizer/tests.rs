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
        let error =
            crate::Error::from(Need::of(vocabulary, Some(Path::new("v.txt")), &store).unwrap_err())
                .explain();
        assert!(error.contains("leave --tokenizer v.txt out"), "{error}");
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
    let error = crate::Error::from(need(Some(&path)).unwrap_err()).explain();
    assert!(error.contains("v.txt is another tokenizer"), "{error}");
    assert_eq!(need(None).unwrap(), Need::Wanted(vocabulary.digest));

    fs::write(&path, file()).unwrap();
    assert_eq!(need(Some(&path)).unwrap(), Need::Held(file()));
    assert_eq!(need(None).unwrap(), Need::Held(file()));
    // One that was damaged is asked for again.
    fs::write(store.tokenizer_path(), "1 'a' 1\n").unwrap();
    assert_eq!(need(None).unwrap(), Need::Wanted(vocabulary.digest));
}

const LIAR: PeerId = PeerId([1; 32]);
const HONEST: PeerId = PeerId([2; 32]);

fn part_of(file: &[u8], offset: u64) -> Option<Vec<u8>> {
    let rest = file.get(usize::try_from(offset).ok()?..)?;
    Some(rest[..rest.len().min(PART_BYTES)].to_vec())
}

/// Asks the members for the file until it is here: who was blamed.
fn arrives(
    file: &[u8],
    members: &[PeerId],
    mut answer: impl FnMut(PeerId, u64) -> Option<Vec<u8>>,
) -> Vec<PeerId> {
    let mut coming = Coming::new(*blake3::hash(file).as_bytes(), 0);
    let mut blamed = Vec::new();
    for _ in 0..1_000 {
        let peer = members[coming.turn % members.len()];
        let Some(part) = answer(peer, Begun::offset(coming.begun(), peer)) else {
            coming.fail();
            continue;
        };
        match coming.add((peer, part)) {
            Step::More => {}
            Step::Wrong { author } => blamed.push(author),
            Step::Whole(found) => {
                assert!(found == file);
                return blamed;
            }
        }
    }
    panic!("it never came; blamed: {blamed:?}")
}

/// On a slow line an answer breaks off now and then, and what came before it is not asked for again.
#[test]
fn a_tokenizer_comes_in_parts_each_of_them_once() {
    for length in [0, 3, PART_BYTES, 2 * PART_BYTES + 3] {
        let file = vec![7; length];
        let (mut questions, mut sent) = (0, Vec::new());
        let blamed = arrives(&file, &[HONEST, LIAR], |peer, offset| {
            questions += 1;
            let is_sent = peer == HONEST && questions % 3 == 0;
            sent.extend(is_sent.then_some(offset));
            is_sent.then(|| part_of(&file, offset))?
        });
        assert_eq!(blamed, []);
        let expected: Vec<_> = (0..=length).step_by(PART_BYTES).map(|at| at as u64).collect();
        assert_eq!(sent, expected);
    }
}

/// It has sent more than the file has, and then nothing any more.
#[test]
fn parts_that_never_end_keep_no_tokenizer_away() {
    let file = vec![7; PART_BYTES + 3];
    for count in [1, 2, 5] {
        let mut left = count;
        let blamed = arrives(&file, &[LIAR, HONEST], |peer, offset| {
            if peer == HONEST {
                return part_of(&file, offset);
            }
            left = u32::checked_sub(left, 1)?;
            Some(vec![8; PART_BYTES])
        });
        assert_eq!(blamed, [], "{count}");
    }
}

/// It begins the file whenever it is asked for the begin, and breaks off.
#[test]
fn a_liar_that_begins_again_and_again_keeps_no_tokenizer_away() {
    let file = vec![7; 3 * PART_BYTES];
    let mut questions = 0;
    let blamed = arrives(&file, &[LIAR, HONEST], |peer, offset| {
        questions += 1;
        match peer {
            LIAR => (offset == 0).then(|| vec![8; PART_BYTES]),
            // A slow line on top of it.
            _ if questions % 3 == 0 => None,
            _ => part_of(&file, offset),
        }
    });
    assert_eq!(blamed, []);
}

/// Who sent it lied. Nothing of it is kept, and it does not go on for ever.
#[test]
fn a_tokenizer_of_another_digest_is_thrown_away() {
    let whole = || (LIAR, vec![7; PART_BYTES]);
    let mut coming = Coming::new([0; 32], 0);
    assert_eq!(coming.add(whole()), Step::More);
    assert_eq!(coming.add((LIAR, vec![8])), Step::Wrong { author: LIAR });
    assert!(coming.bytes.is_empty() && coming.begun().is_none() && coming.turn == 1);
    let endless = (0..1_000).find(|_| coming.add(whole()) != Step::More);
    assert_eq!(endless, Some(FILE_BYTES_MAX / PART_BYTES));
}
