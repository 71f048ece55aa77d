//! Tests of making token files, and of training rows cut from them.

use std::fs;
use std::io::Write;
use std::os::fd::AsRawFd;

use tempfile::TempDir;

use super::*;
use crate::config::{Scheme, Work};
use crate::data::tokens;
use crate::data::{Batch, Dataset, Stream};
use crate::tokenizer::File;

struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(TempDir::new().expect("a folder"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        fs::write(self.path(name), bytes).expect("written");
        self.path(name)
    }

    fn names(&self) -> usize {
        fs::read_dir(self.0.path()).expect("readable").count()
    }

    /// Tokenizes these files by bytes into `out`.
    fn tokenize(&self, inputs: &[PathBuf], damage: Damage) -> Result<Report, TokenizeError> {
        let out = self.path("out");
        let job = Job { inputs, format: None, field: "text", damage, out: &out };
        tokenize(job, &Tokenizer::bytes(), &File::none(), &mut |_| ())
    }

    fn tokens(&self) -> Vec<u32> {
        let header = tokens::describe(&self.path("out")).expect("a token file").0;
        let bytes = fs::read(self.path("out")).expect("readable");
        header.width.tokens(&bytes[tokens::header::HEADER_BYTES..]).collect()
    }
}

fn json_lines(documents: &[String]) -> String {
    documents.iter().map(|text| serde_json::json!({ "text": text }).to_string() + "\n").collect()
}

#[test]
fn files_become_documents_in_their_order() {
    let folder = Folder::new();
    let lines = "{\"text\":\"hi\"}\n{\"text\":\"\"}\n";
    let inputs = [folder.file("a.jsonl", lines), folder.file("b.txt", "yo\n")];
    let report = folder.tokenize(&inputs, Damage::Refuse).expect("made");
    assert_eq!(folder.tokens(), [256, 104, 105, 256, 121, 111, 10]);
    let Header { count, documents, text_bytes, source, vocabulary, .. } = report.header;
    assert_eq!((count, documents, text_bytes, report.empty, report.skipped), (7, 2, 5, 1, 0));
    assert_eq!(source, *blake3::hash(format!("{lines}yo\n").as_bytes()).as_bytes());
    assert_eq!(vocabulary, Vocabulary::BYTES);
    assert_eq!(tokens::describe(&folder.path("out")).expect("a token file").0, report.header);
    assert_eq!(folder.names(), 3, "no part of a file is left");
}

/// Several batches of documents are tokenized on several cores, in the order of the files.
#[test]
fn the_order_does_not_depend_on_the_cores() {
    let folder = Folder::new();
    let documents: Vec<_> = (0..90_000).map(|i| format!("{i} ").repeat(1 + i % 40)).collect();
    let text = "a line of a long text\n".repeat(100_000);
    let inputs = [folder.file("a.jsonl", json_lines(&documents)), folder.file("b.txt", &text)];
    folder.tokenize(&inputs, Damage::Refuse).expect("made");
    let mut expected = Vec::new();
    for document in documents.iter().chain([&text]) {
        expected.push(256);
        expected.extend(document.bytes().map(u32::from));
    }
    assert!(expected.len() > WAITING_BYTES, "{} do not fill a batch", expected.len());
    assert!(folder.tokens() == expected);
}

/// Documents of one byte take many times as much memory.
#[test]
fn small_documents_do_not_pile_up() {
    let folder = Folder::new();
    let documents = vec!["x".to_owned(); 200_000];
    let (inputs, out) = ([folder.file("a.jsonl", json_lines(&documents))], folder.path("out"));
    let damage = Damage::Refuse;
    let job = Job { inputs: &inputs, format: None, field: "text", damage, out: &out };
    let mut message = vec![0];
    tokenize(job, &Tokenizer::bytes(), &File::none(), &mut |done| message.push(done))
        .expect("made");
    assert_eq!(message.last(), Some(&200_000));
    let most = message.windows(2).map(|pair| pair[1] - pair[0]).max();
    assert!(most <= Some((WAITING_BYTES / ENTRY_BYTES) as u64), "{most:?} at a time");
}

/// The result does not depend on whether the other program wrote the first begin token.
#[test]
fn tokens_of_another_program_become_a_token_file() {
    let folder = Folder::new();
    let tokens = [104_u16, 105, 256, 121];
    let bytes: Vec<u8> = tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
    let (inputs, out) = ([folder.file("a.bin", bytes)], folder.path("out"));
    let make = |format| {
        let damage = Damage::Refuse;
        let job = Job { inputs: &inputs, format, field: "text", damage, out: &out };
        tokenize(job, &Tokenizer::bytes(), &File::none(), &mut |_| ())
    };
    let message = make(None).expect_err("refused").to_string();
    assert!(message.starts_with("what kind of file is"), "{message}");
    let missing = Job {
        inputs: &[folder.path("nofile")],
        format: None,
        field: "text",
        damage: Damage::Refuse,
        out: &out,
    };
    let message = tokenize(missing, &Tokenizer::bytes(), &File::none(), &mut |_| ());
    let message = message.expect_err("refused").to_string();
    assert!(message.starts_with("cannot read") && message.contains("nofile"), "{message}");
    let message = make("u32".parse().ok()).expect_err("refused").to_string();
    assert!(message.contains("holds no tokens of 4 bytes"), "{message}");
    assert_eq!(folder.names(), 1, "nothing is written");
    let header = make("u16".parse().ok()).expect("made").header;
    assert_eq!(folder.tokens(), [256, 104, 105, 256, 121]);
    assert_eq!((header.documents, header.text_bytes), (2, 3));
}

#[test]
fn what_is_no_document_is_left_out_and_counted_or_refused() {
    let folder = Folder::new();
    let lines = "{\"text\":\"a\"}\n{oops\n{\"no\":1}\n{\"text\":\"b\"}\n";
    let input = [folder.file("a.jsonl", lines)];
    let message = folder.tokenize(&input, Damage::Refuse).expect_err("refused").to_string();
    assert!(
        message.contains("a.jsonl, line 2: it is not a JSON object")
            && message.ends_with(": \"{oops\"")
    );
    assert_eq!(folder.names(), 1, "refused means that there is not even a part");
    let report = folder.tokenize(&input, Damage::Skip).expect("made");
    assert_eq!((report.skipped, report.examples.len(), report.header.documents), (2, 2, 2));
    assert_eq!(report.examples[1].place, "line 3");
    assert_eq!(folder.tokens(), [256, 97, 256, 98]);
}

#[test]
fn files_without_a_document_make_no_token_file() {
    let folder = Folder::new();
    let input = [folder.file("a.jsonl", "{\"text\":\"\"}\nnonsense\n")];
    let message = folder.tokenize(&input, Damage::Skip).expect_err("refused").to_string();
    assert!(message.starts_with("the given files contain no document: 1 records were skipped"));
    assert!(message.contains("line 2"), "{message}");
    assert_eq!(folder.names(), 1);
    let blank = [folder.file("b.jsonl", "\n")];
    let message = folder.tokenize(&blank, Damage::Skip).expect_err("refused").to_string();
    assert_eq!(message, "the given files contain no document");
}

#[test]
fn an_existing_file_is_kept() {
    let folder = Folder::new();
    let out = folder.file("out", "old");
    let inputs = [folder.file("a.txt", "new")];
    let message = folder.tokenize(&inputs, Damage::Skip).expect_err("refused").to_string();
    assert!(message.ends_with("choose another name, or move it away"), "{message}");
    let absent = [folder.path("absent.txt")];
    assert!(folder.tokenize(&absent, Damage::Skip).is_err());
    assert_eq!(fs::read(out).expect("readable"), b"old");
}

/// A missing input is reported before the inputs in front of it are read.
#[test]
fn what_cannot_be_read_is_reported_at_once() {
    let folder = Folder::new();
    let inputs = [folder.file("a.jsonl", "nonsense\n"), folder.path("absent.jsonl")];
    let message = folder.tokenize(&inputs, Damage::Refuse).expect_err("refused").to_string();
    assert!(message.contains("absent.jsonl: No such file"), "{message}");
    assert_eq!(folder.names(), 1);
}

/// Input that can be read only once has the same digest as a file with the same contents.
#[test]
fn a_pipe_is_as_good_as_a_file() {
    let folder = Folder::new();
    let lines = json_lines(&["hi".to_owned()]);
    let make = |format: &str| {
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        writer.write_all(lines.as_bytes()).expect("written");
        drop(writer);
        let inputs = [PathBuf::from(format!("/dev/fd/{}", reader.as_raw_fd()))];
        let (format, damage) = (format.parse().ok(), Damage::Refuse);
        let job = Job { inputs: &inputs, format, field: "text", damage, out: &folder.path("out") };
        tokenize(job, &Tokenizer::bytes(), &File::none(), &mut |_| ())
    };
    let message = make("parquet").expect_err("refused").to_string();
    assert!(message.contains("is not a regular file, which Parquet needs"), "{message}");
    let found = make("jsonl").expect("made").header;
    assert_eq!(found.source, *blake3::hash(lines.as_bytes()).as_bytes());
    assert_eq!(folder.tokens(), [256, 104, 105]);
}

/// A tokenizer that puts a space before a text does so only once, however long the text is.
#[test]
fn where_a_long_text_is_cut_does_not_show() {
    let folder = Folder::new();
    let file = r#"{"version": "1.0", "decoder": null,
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
        "model": {"type": "BPE", "vocab": {"<s>": 0, "▁": 1, "a": 2, "\n": 3, "▁a": 4},
            "merges": ["▁ a"]}}"#;
    let file = File::open(&folder.file("t.json", file)).expect("a file");
    let tokenizer = Tokenizer::read(file.scheme, &file.bytes).expect("a tokenizer");
    let text = "a a\na\n".repeat(200_000);
    let (inputs, out) = ([folder.file("a.txt", &text)], folder.path("out"));
    let damage = Damage::Refuse;
    let job = Job { inputs: &inputs, format: None, field: "text", damage, out: &out };
    tokenize(job, &tokenizer, &file, &mut |_| ()).expect("made");
    let line = [2, 4, 3, 2, 3];
    let expected = [vec![0, 4], line.repeat(200_000)[1..].to_vec()].concat();
    assert!(folder.tokens() == expected);
}

/// A model with the begin token among its words would find that word in a text.
#[test]
fn a_text_that_spells_a_begin_begins_no_document() {
    let folder = Folder::new();
    let words = r#"{"version":"1.0","pre_tokenizer":{"type":"WhitespaceSplit"},
        "model":{"type":"WordLevel","vocab":{"<s>":0,"a":1,"?":2},"unk_token":"?"}}"#;
    let file = File::open(&folder.file("t.json", words)).expect("a file");
    let tokenizer = Tokenizer::read(file.scheme, &file.bytes).expect("a tokenizer");
    assert_eq!(tokenizer.bos(), Some(0));
    let (inputs, out) = ([folder.file("a.txt", "a <s> a b")], folder.path("out"));
    let damage = Damage::Skip;
    let job = Job { inputs: &inputs, format: None, field: "text", damage, out: &out };
    let report = tokenize(job, &tokenizer, &file, &mut |_| ()).expect("made");
    assert_eq!((folder.tokens(), report.header.documents), (vec![0, 1, 1, 2], 1));
    assert_eq!(report.lost, Lost { count: 1, letters: Vec::new() });
}

/// A model without an unknown token leaves characters out, which nobody would notice.
#[test]
fn letters_that_a_tokenizer_drops_are_reported_or_refused() {
    let folder = Folder::new();
    let model = |more: &str| {
        format!(
            r#"{{"version": "1.0", "model": {{"type": "BPE", {more}
                "vocab": {{"<s>": 0, "a": 1, "b": 2, " ": 3, "<unk>": 4}}, "merges": []}}}}"#
        )
    };
    let make = |more, damage| {
        let file = File::open(&folder.file("t.json", model(more))).expect("a file");
        let tokenizer = Tokenizer::read(file.scheme, &file.bytes).expect("a tokenizer");
        let _ = fs::remove_file(folder.path("out"));
        let (inputs, out) = ([folder.file("a.txt", "aß bü\naß")], folder.path("out"));
        let job = Job { inputs: &inputs, format: None, field: "text", damage, out: &out };
        tokenize(job, &tokenizer, &file, &mut |_| ())
    };
    let lost = make("", Damage::Skip).expect("made").lost;
    assert_eq!((lost.count, lost.letters), (4, vec!['ß', '\n', 'ü']));
    let message = make("", Damage::Refuse).expect_err("refused").to_string();
    assert!(message.contains("4 letters have no token"), "{message}");
    assert!(!folder.path("out").exists());
    let message =
        make(r#""unk_token": "<unk>","#, Damage::Refuse).expect_err("refused").to_string();
    assert!(message.contains("4 letters or words became the token for unknown text"), "{message}");
    let bytes = folder.tokenize(&[folder.file("a.txt", "aß")], Damage::Refuse).expect("made");
    assert_eq!(bytes.lost, Lost::default());
}

/// Large vocabularies are written with four bytes, and need the tokenizer file of that digest.
#[test]
fn a_vocabulary_is_named_by_its_digest() {
    let folder = Folder::new();
    let bytes = (0..256).map(|byte| format!("{} b'\\x{byte:02x}' 1\n", byte + 1));
    let vocabulary: String = bytes.chain(["70000 'hello' 5\n".to_owned()]).collect();
    let path = folder.file("v.txt", &vocabulary);
    let file = File::open(&path).expect("a vocabulary");
    let tokenizer = Tokenizer::read(file.scheme, &file.bytes).expect("a tokenizer");
    let (inputs, out) = ([folder.file("a.txt", "hello!")], folder.path("out"));
    let damage = Damage::Refuse;
    let job = Job { inputs: &inputs, format: None, field: "text", damage, out: &out };
    let found = tokenize(job, &tokenizer, &file, &mut |_| ()).expect("made").header.vocabulary;
    let digest = blake3::hash(vocabulary.as_bytes());
    let (tokens, bos) = (70_001, 0);
    assert_eq!(found, Vocabulary { scheme: Scheme::Rwkv, digest: *digest.as_bytes(), tokens, bos });
    assert_eq!(folder.tokens(), [0, 70_000, 34]);

    let opened = Tokenizer::of_documents(&found, Some(&path)).expect("the same tokenizer");
    assert_eq!(opened.encode("hello!"), Ok(vec![0, 70_000, 34]));
    let refused = Tokenizer::of_documents(&found, None).expect_err("refused").to_string();
    assert!(refused.contains(&digest.to_hex().to_string()), "{refused}");
    let more = Vocabulary { tokens: 70_002, ..found };
    for (vocabulary, path, message) in [
        (found, &inputs[0], "a.txt is another tokenizer"),
        (more, &path, "it has 70001 tokens, but 70002 were expected"),
        (Vocabulary::BYTES, &path, "leave --tokenizer"),
    ] {
        let refused = Tokenizer::of_documents(&vocabulary, Some(path)).expect_err("refused");
        assert!(refused.to_string().contains(message), "{refused}");
    }
}

/// A source of short documents, and their total length including the begin tokens.
fn short_documents(folder: &Folder) -> (Work, usize) {
    let documents: Vec<_> = (0..500_usize).map(|i| "x".repeat(3 + i % 17)).collect();
    let input = [folder.file("a.jsonl", json_lines(&documents))];
    folder.tokenize(&input, Damage::Refuse).expect("made");
    let (header, file) = tokens::describe(&folder.path("out")).expect("a token file");
    let work = Work::tokens(header.vocabulary, file);
    (work, documents.iter().map(|text| text.len() + 1).sum())
}

/// Rows are cut from anywhere, so each position has a token of a document or a begin token.
#[test]
fn packing_wastes_no_position() {
    let folder = Folder::new();
    let (work, needed) = short_documents(&folder);
    let source = Dataset::open(&work, 1, &[folder.path("out")]).expect("opens");
    let tokens = folder.tokens();
    assert_eq!(tokens.len(), needed, "a file holds documents and their begins");
    let batch = source.batch(&Stream { seed: [1; 32], committed: 0 }, 0, 0..200).expect("a batch");
    let rows = batch.inputs.chunks(batch.context).zip(batch.targets.chunks(batch.context));
    for (inputs, targets) in rows {
        let row: Vec<_> = inputs.iter().chain(targets.last()).map(|token| *token as u32).collect();
        assert!(tokens.windows(row.len()).any(|window| window == row), "{row:?}");
    }
    let end = source.held_out(0..3, 3).expect("rows");
    assert_eq!(end.targets.last().map(|token| *token as u32), tokens.last().copied());
}

/// The number of a document is the count of begin tokens so far in its row.
#[test]
fn documents_in_a_row_are_distinguished() {
    let folder = Folder::new();
    let (work, _) = short_documents(&folder);
    let source = Dataset::open(&work, 1, &[folder.path("out")]).expect("opens");
    let Batch { inputs, documents, context, .. } =
        source.batch(&Stream { seed: [1; 32], committed: 0 }, 7, 0..50).expect("a batch");
    assert_eq!(documents.len(), inputs.len());
    for (row, numbers) in inputs.chunks(context).zip(documents.chunks(context)) {
        let begins = |at: usize| row[..=at].iter().filter(|token| **token == 256).count() as i32;
        assert!((0..context).all(|at| numbers[at] == begins(at)), "{numbers:?}");
    }
    assert!(documents.iter().any(|number| *number > 2));
}
