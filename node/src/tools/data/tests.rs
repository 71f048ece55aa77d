//! Tests of `data tokenize` and `data show`, as typed.

use intellect_model::config::{Fingerprint, Source, Vocabulary};

use super::*;
use crate::{
    cli::Verb,
    tools::tests::{Folder, has, verb},
};

fn typed(arguments: &[&str]) -> Result<String, DataCommandError> {
    let mut out = Vec::new();
    match verb(&[&["data"], arguments].concat()) {
        Verb::Data(command) => run(&command, &mut out)?,
        other => panic!("{other:?} is no command on data"),
    }
    Ok(String::from_utf8(out).unwrap())
}

const LINES: &str = "{\"text\": \"Hello\"}\n{\"text\": \"\"}\nrubbish\n{\"text\": \"there\"}\n";

#[test]
fn documents_become_a_run_s_data() {
    let folder = Folder::new();
    let (lines, out) = (folder.file("a.jsonl", LINES), folder.path("a.tokens"));
    let said = typed(&["tokenize", &lines, "--out", &out]).unwrap();
    has(
        &said,
        &["tokens     12 of 2 bytes, by bytes with 257 different ones, 256 begins a document"],
    );
    has(&said, &["documents  2, of 6.0 tokens each; a token is 1.00 bytes of text"]);
    has(&said, &["left out   1 empty documents", "skipped    1 records", "a.jsonl, line 3"]);
    let said = typed(&["show", &out]).unwrap();
    has(&said, &["file       152 B, BLAKE3 ", "documents  2", "begins     \"Hello\\nthere\""]);
    assert!(!said.contains("tokenizer"), "{said}");
    // A manifest can name the file.
    let work = crate::tools::manifest::work(&[out.clone().into()]).unwrap();
    let digest = *blake3::hash(&std::fs::read(&out).unwrap()).as_bytes();
    let vocabulary = Vocabulary::BYTES;
    assert_eq!(
        work.data.source,
        Source::Tokens { file: Fingerprint { digest, bytes: 152 }, vocabulary }
    );
    assert_eq!(work.model.vocab, 257);
}

#[test]
fn strict_refuses_what_is_no_document() {
    let folder = Folder::new();
    let (lines, out) = (folder.file("a.jsonl", LINES), folder.path("a.tokens"));
    let said = typed(&["tokenize", &lines, "--out", &out, "--strict"]).unwrap_err().to_string();
    has(&said, &["a.jsonl, line 3: it is not a JSON object", "\"rubbish\""]);
    let said = typed(&["show", &out]).unwrap_err().to_string();
    has(&said, &["a.tokens: No such file"]);
    let said = typed(&["show", &lines]).unwrap_err().to_string();
    has(&said, &["a.jsonl: it is not a token file"]);
}

/// A `tokenizer.json` of two words.
const WORDS: &str = r#"{
    "version": "1.0", "truncation": null, "padding": null, "normalizer": null,
    "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
    "added_tokens": [{"id": 3, "content": "<s>", "single_word": false, "lstrip": false,
        "rstrip": false, "normalized": false, "special": true}],
    "model": {"type": "WordLevel", "unk_token": "<unk>",
        "vocab": {"<unk>": 0, "Hello": 1, "there": 2}}
}"#;

#[test]
fn a_tokenizer_json_or_the_user_says_what_begins_a_document() {
    let folder = Folder::new();
    let (text, words) = (folder.file("a.txt", "Hello there"), folder.file("w.json", WORDS));
    let make = |out: &str, more: &[&str]| {
        let line = ["tokenize", &text, "--out", &folder.path(out), "--tokenizer", &words];
        typed(&[&line, more].concat())
    };
    let said = make("a", &[]).unwrap();
    has(&said, &["tokens     3 of 2 bytes, by hugging-face with 4 different ones, 3 begins"]);
    has(&make("b", &["--bos", "there"]).unwrap(), &["2 begins a document"]);
    let said = make("c", &["--bos", "<eos>"]).unwrap_err().to_string();
    has(&said, &["it has no token \"<eos>\" to begin documents with"]);

    let digest = blake3::hash(WORDS.as_bytes()).to_hex().to_string();
    let said = typed(&["show", &folder.path("a")]).unwrap();
    has(&said, &["tokenizer  file with BLAKE3", &digest]);
    assert!(!said.contains("begins     "), "{said}");
    let said = typed(&["show", &folder.path("a"), "--tokenizer", &words]).unwrap();
    has(&said, &["begins     \"Hello there\""]);
    let said = typed(&["show", &folder.path("a"), "--tokenizer", &text]).unwrap_err();
    has(&said.to_string(), &["a.txt is another tokenizer"]);
    let other = folder.file("b.txt", "Hello you");
    let line = ["tokenize", &other, "--out", &folder.path("d"), "--tokenizer", &words];
    has(&typed(&line).unwrap(), &["lost       1 letters or words"]);
}
