//! Tokenizers compared with the ids of the original programs.

use std::fs;
use std::path::PathBuf;

use intellect_model::config::Scheme;
use intellect_model::tokenizer::Tokenizer;
use serde_json::Value;

use crate::folder;

/// The texts, each with its ids from the tokenizer `name`.
fn expected(name: &str) -> Option<Vec<(String, Vec<i32>)>> {
    let file = fs::read(folder()?.join("tokenizers/tokenizers.json")).unwrap();
    let all: Value = serde_json::from_slice(&file).unwrap();
    let texts: Vec<String> = serde_json::from_value(all["texts"].clone()).unwrap();
    let ids: Vec<Vec<i32>> = serde_json::from_value(all[name].clone()).unwrap();
    assert_eq!((texts.len(), ids.len()), (19, 19));
    Some(texts.into_iter().zip(ids).collect())
}

fn open(file: PathBuf) -> Tokenizer {
    let file = fs::read(file).unwrap();
    Tokenizer::read(Scheme::of_file(&file), &file).unwrap()
}

/// Asserts that a text is encoded as `bos` and the golden ids, and that the ids decode to the text.
fn assert_same(tokenizer: &Tokenizer, bos: i32, text: &str, ids: &[i32]) {
    let found = tokenizer.encode(text).unwrap();
    assert_eq!((found[0], &found[1..]), (bos, ids), "{text:?}");
    assert_eq!(tokenizer.text_bytes(&found), Some(text.len()), "{text:?}");
    let mut decoder = tokenizer.decoder();
    let mut back: String = ids.iter().map(|id| decoder.push(*id)).collect();
    back += &decoder.finish();
    assert_eq!(back, text);
}

#[test]
fn rwkv_world_with_a_small_vocabulary() {
    let Some(texts) = expected("rwkv_small") else { return };
    let tokenizer = open(folder().unwrap().join("tokenizers/rwkv_small_vocab.txt"));
    assert_eq!((tokenizer.tokens(), tokenizer.bos()), (368, Some(0)));
    texts.iter().for_each(|(text, ids)| assert_same(&tokenizer, 0, text, ids));
}

/// The whole vocabulary is not part of the vectors: `INTELLECT_RWKV_VOCAB` names its file.
#[test]
fn rwkv_world_with_its_own_vocabulary() {
    let Some(texts) = expected("rwkv_world") else { return };
    let Some(file) = std::env::var_os("INTELLECT_RWKV_VOCAB") else {
        eprintln!("skipped: INTELLECT_RWKV_VOCAB does not name rwkv_vocab_v20230424.txt");
        return;
    };
    let tokenizer = open(file.into());
    assert_eq!((tokenizer.tokens(), tokenizer.bos()), (65_530, Some(0)));
    texts.iter().for_each(|(text, ids)| assert_same(&tokenizer, 0, text, ids));
}

/// The last text spells a special token: the original reads it as that token, here it is ordinary
/// text.
#[test]
fn a_byte_level_bpe_of_hugging_face() {
    let Some(texts) = expected("llama3_small") else { return };
    let tokenizer = open(folder().unwrap().join("tokenizers/llama3_small.json"));
    assert_eq!((tokenizer.tokens(), tokenizer.bos()), (602, Some(600)));
    let (special, ordinary) = texts.split_last().unwrap();
    ordinary.iter().for_each(|(text, ids)| assert_same(&tokenizer, 600, text, ids));
    let (text, ids) = special;
    let rest = text.strip_prefix("<|begin_of_text|>").unwrap();
    assert_same(&tokenizer, 600, rest, &ids[1..]);
    let found = tokenizer.encode(text).unwrap();
    assert_eq!(found.iter().filter(|id| **id == 600).count(), 1);
    assert_same(&tokenizer, 600, text, &found[1..]);
}
