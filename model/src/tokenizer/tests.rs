//! Tests of encoding and decoding; the golden ids are in `model/tests/golden`.

use proptest::prelude::*;

use super::*;
use crate::config::{Fingerprint, Work};

fn bytes() -> Tokenizer {
    Tokenizer::of(&Work::text(Fingerprint { digest: [0; 32], bytes: 1 }).data, None)
        .expect("no file is needed")
}

/// Three words and a begin token. Words begin with a space, as in files made from SentencePiece
/// models.
fn words() -> Tokenizer {
    let file = r#"{
        "version": "1.0",
        "truncation": {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0},
        "added_tokens": [{"id": 4, "content": "<s>", "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": false, "special": true}],
        "normalizer": null,
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
        "post_processor": null,
        "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
        "model": {"type": "WordLevel", "unk_token": "<unk>",
            "vocab": {"<unk>": 0, "▁one": 1, "▁two": 2, "▁three": 3}}
    }"#;
    Tokenizer::read(Scheme::of_file(file.as_bytes()), file.as_bytes()).expect("a tokenizer")
}

fn symbols(count: usize) -> Tokenizer {
    Tokenizer { kind: Kind::Symbols, tokens: count, bos: None }
}

fn decode(tokenizer: &Tokenizer, tokens: &[i32]) -> String {
    let mut decoder = tokenizer.decoder();
    let mut text: String = tokens.iter().map(|token| decoder.push(*token)).collect();
    text += &decoder.finish();
    text
}

#[test]
fn a_character_comes_when_it_is_whole() {
    let mut decoder = bytes().decoder();
    let parts: Vec<_> = "aé€".bytes().map(|byte| decoder.push(i32::from(byte))).collect();
    assert_eq!(parts, ["a", "", "é", "", "", "€"]);
    assert_eq!(decoder.finish(), "");
}

#[test]
fn what_is_no_text_is_marked() {
    assert_eq!(decode(&bytes(), &[0xff, 0x61]), "\u{fffd}a");
    assert_eq!(decode(&bytes(), &[0xe2, 0x82]), "\u{fffd}");
    // A truncated character, and the text that follows it.
    assert_eq!(decode(&bytes(), &[0xe2, 0x61]), "\u{fffd}a");
    assert_eq!(decode(&bytes(), &[256, -1, 0x61]), "\u{fffd}\u{fffd}a");
    assert_eq!(decode(&symbols(3), &[2, 3, -1]), "c\u{fffd}\u{fffd}");
}

#[test]
fn symbols_have_letters_of_their_own() {
    let all: Vec<_> = (0..256).collect();
    let text = decode(&symbols(256), &all);
    assert_eq!(text.chars().count(), 256);
    assert!(text.chars().all(char::is_alphanumeric));
    assert_eq!(symbols(256).encode(&text), Ok(all));
    let message = symbols(30).encode("aE").map_err(|error| error.to_string());
    assert_eq!(message, Err("'E' is not a symbol of this run, which are a to D".to_owned()));
}

#[test]
fn nothing_is_a_line_break_or_the_first_symbol() {
    assert_eq!(bytes().encode(""), Ok(vec![10]));
    assert_eq!(symbols(5).encode(""), Ok(vec![0]));
}

/// In a source of documents one token begins each, and is not part of the text.
#[test]
fn documents_have_a_begin() {
    let documents = Tokenizer::bytes();
    assert_eq!((documents.tokens(), documents.bos()), (257, Some(256)));
    assert_eq!(documents.encode("a"), Ok(vec![256, 97]));
    assert_eq!(documents.encode(""), Ok(vec![256]));
    assert_eq!(decode(&documents, &[256, 97, 0xe2, 256, 98, 257]), "\na\u{fffd}\nb\u{fffd}");
    assert_eq!(documents.text_bytes(&[256, 97, 98, 256, -1, 257]), Some(2));
    let mut tokens = vec![7];
    documents.append("a", &mut tokens).expect("bytes");
    assert_eq!(tokens, [7, 97]);
}

/// The file's truncation to two tokens would lose text, and special tokens that are spelt in a
/// text are text.
#[test]
fn a_hugging_face_file_decides_but_does_not_cut() {
    let words = words();
    assert_eq!((words.tokens(), words.bos()), (5, Some(4)));
    assert_eq!(words.encode("one two three one"), Ok(vec![4, 1, 2, 3, 1]));
    let forged = words.encode("one <s> two").expect("tokens");
    assert_eq!(forged.iter().filter(|token| **token == 4).count(), 1, "{forged:?}");
    assert_eq!(words.text_bytes(&[4, 1, 2]), Some("one two".len()));
    let other = words.clone().beginning_with("▁two").expect("a token");
    assert_eq!(other.bos(), Some(2));
    let message = words.beginning_with("four").expect_err("refused").to_string();
    assert_eq!(message, "it has no token \"four\" to begin documents with");
}

/// A space is between words and not before the first, which only both tokens together show.
#[test]
fn text_that_depends_on_what_is_before_comes_piece_by_piece() {
    let mut decoder = words().decoder();
    let parts: Vec<_> = [1, 2, 3, 4, 1, 7].map(|token| decoder.push(token)).into();
    assert_eq!(parts, ["one", " two", " three", "\n", "one", "\u{fffd}"]);
    assert_eq!(decoder.finish(), "");
}

/// The continuation of a prompt begins with the space before its first word.
#[test]
fn a_decoder_goes_on_behind_a_prompt() {
    let words = words();
    let prompt = words.encode("one").expect("tokens");
    assert_eq!(words.decoder_behind(&prompt).push(2), " two");
    assert_eq!(words.decoder_behind(&prompt[..1]).push(2), "two");
    assert_eq!(bytes().decoder_behind(&[97]).push(98), "b");
}

/// Pieces of a text that was cut after line breaks have the same tokens as the whole.
#[test]
fn a_text_goes_on_where_it_was_cut_off() {
    let file = r#"{"version": "1.0",
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
        "model": {"type": "BPE", "vocab": {"▁": 0, "a": 1, "\n": 2, "▁a": 3, "\n\n": 4},
            "merges": ["▁ a", "\n \n"]}}"#;
    let file = Tokenizer::read(Scheme::HuggingFace, file.as_bytes()).expect("a tokenizer");
    for (tokenizer, pieces) in [(file, ["a\n", "aa a\n", "a a"]), (bytes(), ["a\n", "é\n", "\n"])]
    {
        let (mut cut, mut whole) = (Vec::new(), Vec::new());
        tokenizer.append(pieces[0], &mut cut).expect("tokens");
        tokenizer.append_on(pieces[1], &mut cut).expect("tokens");
        tokenizer.append_on(pieces[2], &mut cut).expect("tokens");
        tokenizer.append(&pieces.concat(), &mut whole).expect("tokens");
        assert_eq!(cut, whole);
    }
}

/// Nothing is lost if a line break has no token, or shares one with the following text.
#[test]
fn a_line_break_that_is_no_token_costs_nothing() {
    let file = r#"{"version": "1.0", "model": {"type": "BPE",
        "vocab": {"a": 0, "\n": 1, "\n\n": 2}, "merges": ["\n \n"]}}"#;
    for file in [file.to_owned(), file.replace("\\n", "b")] {
        let tokenizer = Tokenizer::read(Scheme::HuggingFace, file.as_bytes()).expect("a tokenizer");
        let (mut on, mut alone) = (Vec::new(), Vec::new());
        let text = if tokenizer.encode("\n").expect("tokens").is_empty() { "a" } else { "\na" };
        tokenizer.append_on(text, &mut on).expect("tokens");
        tokenizer.append(text, &mut alone).expect("tokens");
        assert_eq!(on, alone);
        assert!(!on.is_empty());
    }
}

/// The library panics where a decoder is to strip more letters than a token has.
#[test]
fn a_decoder_that_strips_the_ends_of_tokens_is_refused() {
    let read = |stop: u32| {
        let file = format!(
            r#"{{"version": "1.0", "model": {{"type": "BPE", "vocab": {{"a": 0}}, "merges": []}},
            "decoder": {{"type": "Sequence", "decoders": [{{"type": "Fuse"}},
                {{"type": "Strip", "content": " ", "start": 1, "stop": {stop}}}]}}}}"#
        );
        Tokenizer::read(Scheme::HuggingFace, file.as_bytes())
    };
    assert_eq!(decode(&read(0).expect("as Llama has it"), &[0]), "a");
    let message = read(1).expect_err("refused").to_string();
    assert!(message.contains("strips the ends of tokens"), "{message}");
}

#[test]
fn what_is_no_tokenizer_is_refused() {
    let message = |scheme, file: &str| {
        Tokenizer::read(scheme, file.as_bytes()).expect_err("refused").to_string()
    };
    assert!(
        message(Scheme::HuggingFace, "{}")
            .starts_with("it is not a usable tokenizer.json of Hugging Face")
    );
    assert!(
        message(Scheme::HuggingFace, "{\"version").starts_with("it is not a usable tokenizer.json")
    );
    assert!(
        message(Scheme::Rwkv, "<html>").starts_with("line 1, \"<html>\": it is not `id literal")
    );
    assert_eq!(Scheme::of_file(b" \n{\"a\""), Scheme::HuggingFace);
    assert_eq!(Scheme::of_file(b"1 'a' 1"), Scheme::Rwkv);
}

proptest! {
    #[test]
    fn text_comes_back(text in ".{1,40}") {
        let tokens = bytes().encode(&text).expect("bytes");
        prop_assert_eq!(decode(&bytes(), &tokens), text);
    }

    /// Decoding byte by byte gives the same text as decoding at once.
    #[test]
    fn any_bytes_become_what_std_makes_of_them(all: Vec<u8>) {
        let tokens: Vec<_> = all.iter().map(|byte| i32::from(*byte)).collect();
        prop_assert_eq!(decode(&bytes(), &tokens), String::from_utf8_lossy(&all));
    }
}

/// A template for chats writes special tokens, and a text that spells one does not.
#[test]
fn special_tokens_stand_for_themselves_only_in_a_marked_text() {
    let added = |id: u32, content: &str| {
        format!(
            r#"{{"id": {id}, "content": "{content}", "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": true}}"#
        )
    };
    let file = format!(
        r#"{{"version": "1.0", "added_tokens": [{}, {}], "pre_tokenizer": {{"type": "Whitespace"}},
            "model": {{"type": "WordLevel", "unk_token": "u", "vocab": {{"x": 0, "u": 1}}}}}}"#,
        added(2, "<|a|>"),
        added(3, "<|a|>>")
    );
    let tokenizer = Tokenizer::read(Scheme::HuggingFace, file.as_bytes()).unwrap();
    let mut tokens = Vec::new();
    tokenizer.append_marked("x<|a|>x<|a|>>", &mut tokens).unwrap();
    assert_eq!(tokens, [0, 2, 0, 3]);
    assert_eq!(tokenizer.mark_in("x <|a|>> <|a|>"), Some("<|a|>>"));
    assert_eq!((tokenizer.mark_in("<|b|>"), Tokenizer::bytes().mark_in("<|a|>")), (None, None));
    let mut plain = Vec::new();
    tokenizer.append("x<|a|>", &mut plain).unwrap();
    assert!(!plain.contains(&2), "{plain:?}");
}

/// Only the begin of the whole text gets a space, not what is behind a special token.
#[test]
fn text_behind_a_special_token_does_not_begin_a_text() {
    let file = r#"{"version": "1.0",
        "added_tokens": [{"id": 5, "content": "<s>", "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": false, "special": true}],
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"},
        "model": {"type": "WordLevel", "unk_token": "<unk>",
            "vocab": {"<unk>": 0, "▁one": 1, "one": 2, "▁two": 3, "▁three": 4}}}"#;
    let tokenizer = Tokenizer::read(Scheme::HuggingFace, file.as_bytes()).unwrap();
    let mut tokens = Vec::new();
    tokenizer.append_marked("<s>one", &mut tokens).unwrap();
    assert_eq!(tokens, [5, 2]);
}

#[test]
fn nothing_is_the_line_break_of_the_file() {
    let file = r#"{"version": "1.0", "model": {"type": "WordLevel", "unk_token": "u",
        "vocab": {"u": 0, "x": 1, "\n": 2}}}"#;
    let tokenizer = Tokenizer::read(Scheme::HuggingFace, file.as_bytes()).unwrap();
    assert_eq!(tokenizer.bos(), None);
    assert_eq!(tokenizer.encode(""), Ok(vec![2]));
}

/// Its decoder takes the space before the first word.
#[test]
fn the_bytes_of_each_document_are_those_of_its_text() {
    assert_eq!(words().text_bytes(&[4, 1, 4, 2]), Some("one".len() + "two".len()));
}
