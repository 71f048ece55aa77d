//! Tests of token files: their header, and the files that are refused.

use std::fs;

use tempfile::TempDir;

use super::header::is_token_file;
use super::writer::{WriteError, Writer};
use super::*;
use crate::config::{Scheme, Width, Work};
use crate::data::{Dataset, Stream};

/// A header with a different number in every field.
const HEADER: Header = Header {
    width: Width::Four,
    vocabulary: Vocabulary { scheme: Scheme::HuggingFace, digest: [7; 32], tokens: 70_000, bos: 3 },
    count: 5,
    documents: 2,
    text_bytes: 11,
    source: [9; 32],
};
const FILE_BYTES: u64 = HEADER_BYTES as u64 + 5 * 4;

struct Folder(TempDir);

impl Folder {
    fn path(&self) -> PathBuf {
        self.0.path().join("a.tokens")
    }
}

/// A file of 200 tokens below 50, in which 0 begins documents.
fn made() -> Folder {
    let folder = Folder(TempDir::new().expect("a folder"));
    let vocabulary = Vocabulary { scheme: Scheme::Rwkv, digest: [1; 32], tokens: 50, bos: 0 };
    let mut writer = Writer::create(&folder.path(), vocabulary).expect("created");
    let tokens: Vec<u32> = (0..200).map(|at| at % 50).collect();
    writer.tokens(&tokens, 700).expect("written");
    writer.finish([2; 32]).expect("whole");
    folder
}

fn work(folder: &Folder) -> Work {
    let (header, file) = describe(&folder.path()).expect("a token file");
    let mut work = Work::tokens(header.vocabulary, file);
    work.model.context = 16;
    work
}

fn refusal(folder: &Folder, work: &Work) -> String {
    Dataset::open(work, 1, &[folder.path()]).expect_err("refused").to_string()
}

#[test]
fn a_header_has_its_bytes() {
    let bytes = HEADER.encode();
    assert_eq!(bytes[..12], *b"itokens\x01\x04\0\0\0");
    assert_eq!(bytes[12..24], [4, 0, 0, 0, 0x70, 0x11, 1, 0, 3, 0, 0, 0]);
    let numbers: Vec<_> = bytes[24..64].chunks(8).map(|number| number[0]).collect();
    assert_eq!(numbers, [5, 2, 11, 0, 0]);
    assert_eq!((&bytes[64..96], &bytes[96..]), (&[7; 32][..], &[9; 32][..]));
    assert_eq!(Header::decode(&bytes, FILE_BYTES), Ok(HEADER));
    assert!(is_token_file(&bytes[..7]) && !is_token_file(&bytes[..6]));
}

#[test]
fn a_damaged_header_is_refused() {
    let message = |at: usize, byte: u8| {
        let mut bytes = HEADER.encode();
        bytes[at] = byte;
        Header::decode(&bytes, FILE_BYTES).expect_err("refused").to_string()
    };
    assert!(message(0, b'I').starts_with("it is not a token file: `intellect-node data tokenize`"));
    assert!(message(7, 2).contains("version 2, this program reads 1"));
    assert!(message(8, 3).contains("its width is 3"));
    assert!(message(12, 1).contains("its tokenizer's form is 1"));
    assert!(message(18, 17).contains("number of different tokens is 1118576"));
    assert!(message(22, 2).contains("token that begins a document is 131075"));
    assert!(message(24, 6).contains("it has 148 bytes and its header says 152, 6 tokens of 4"));
    assert!(message(31, 0xff).contains("number of tokens is 18374686479671623685"));
    let cut = Header::decode(&HEADER.encode()[..127], 127);
    assert_eq!(cut, Err(HeaderError::NoTokenFile));
}

/// A width that is too small for the tokenizer is refused.
#[test]
fn a_header_of_the_wrong_width_is_refused() {
    let narrow = Header { width: Width::Two, ..HEADER }.encode();
    let message =
        Header::decode(&narrow, HEADER_BYTES as u64 + 10).expect_err("refused").to_string();
    assert!(message.contains("its width is 2"), "{message}");
    // The header says four bytes, but the file has two.
    let message = Header::decode(&HEADER.encode(), HEADER_BYTES as u64 + 10).expect_err("refused");
    assert!(message.to_string().contains("or its tokens have another width"), "{message}");
}

#[test]
fn a_token_file_is_a_source() {
    let folder = made();
    let work = work(&folder);
    let source = Dataset::open(&work, 1, &[folder.path()]).expect("opens");
    let batch = source.batch(&Stream { seed: [4; 32], committed: 0 }, 0, 0..400).expect("a batch");
    for (input, target) in batch.inputs.iter().zip(&batch.targets) {
        assert_eq!((input + 1) % 50, *target);
    }
    // A tenth is held out: tokens 180 to 199, with the values 30 to 49.
    let held_out = source.held_out(0..2, 2).expect("rows");
    let [first, second] = [&held_out.inputs[..16], &held_out.inputs[16..]].map(|row| row[0]);
    assert_eq!((first, second, held_out.targets.last()), (30, 33, Some(&49)));
    assert_eq!(source.held_out_rows(), 1, "two rows of 16 judge some of the 20 twice");
    let entropies = source.entropies();
    assert!((entropies.uniform - 50_f64.ln()).abs() < 1e-12);
    assert!((entropies.unigram - 50_f64.ln()).abs() < 1e-12);
    assert!(entropies.bigram.expect("few tokens").abs() < 1e-12);
    assert_eq!(begin(&folder.path(), 3).expect("tokens"), [0, 1, 2]);
    assert_eq!(begin(&folder.path(), 999).expect("tokens").len(), 200);
}

#[test]
fn no_row_of_training_reaches_into_what_is_held_out() {
    let folder = made();
    let mut work = work(&folder);
    work.data.held_out = 0.5;
    // The whole first half trains: the values 0 to 49, twice.
    let source = Dataset::open(&work, 1, &[folder.path()]).expect("opens");
    let split = Split::new(&folder.path(), 200, "tokens", 0.5, 16).expect("two parts");
    let mut draw = crate::data::draw::Draw::new(&[0; 32], 0, 0);
    let starts: Vec<_> = (0..3000).map(|_| split.anywhere(&mut draw, 17)).collect();
    assert_eq!((starts.iter().min(), starts.iter().max()), (Some(&0), Some(&83)));
    assert_eq!(source.held_out(0..1, 1).expect("a row").inputs[0], 0);
}

#[test]
fn another_file_or_tokenizer_than_the_run_s_is_refused() {
    let folder = made();
    let mut other = work(&folder);
    let config = |work: &mut Work| match &mut work.data.source {
        crate::config::Source::Tokens { vocabulary, .. } => vocabulary.bos = 1,
        other => panic!("{other:?}"),
    };
    config(&mut other);
    assert!(refusal(&folder, &other).contains("the manifest names another tokenizer than"));

    let work = work(&folder);
    let message = Dataset::open(&work, 1, &[]).expect_err("refused").to_string();
    assert!(
        message.starts_with("this run trains on a token file (528 bytes, BLAKE3 "),
        "{message}"
    );
    let mut bytes = fs::read(folder.path()).expect("readable");
    bytes[HEADER_BYTES + 10] = 4;
    fs::write(folder.path(), &bytes).expect("written");
    assert!(refusal(&folder, &work).contains("is not this run's file"));
    bytes[HEADER_BYTES + 10] = 50;
    fs::write(folder.path(), &bytes).expect("written");
    assert!(refusal(&folder, &work).contains("token 5 is 50, and its tokenizer has 50"));
    bytes[HEADER_BYTES + 10] = 0;
    fs::write(folder.path(), &bytes).expect("written");
    assert!(refusal(&folder, &work).contains("its number of documents is 4"));
    bytes.truncate(527);
    fs::write(folder.path(), &bytes).expect("written");
    assert!(refusal(&folder, &work).contains("it was cut off, or its tokens have another width"));
    fs::write(folder.path(), "a text").expect("written");
    assert!(refusal(&folder, &work).contains("it is not a token file"));
}

#[test]
fn a_file_that_holds_no_row_is_too_small() {
    let folder = made();
    let mut work = work(&folder);
    work.model.context = 20;
    let message = refusal(&folder, &work);
    assert!(message.contains("its held-out part has 20 tokens, one row needs 21"), "{message}");
}

/// A file with the same length and another modification time.
#[test]
fn a_file_that_is_changed_meanwhile_is_refused() {
    let folder = made();
    let source = Dataset::open(&work(&folder), 1, &[folder.path()]).expect("opens");
    let stream = Stream { seed: [1; 32], committed: 0 };
    let row = || source.batch(&stream, 0, 0..1).map_err(|error| error.to_string());
    assert!(row().is_ok());
    let file = fs::File::options().write(true).open(folder.path()).expect("opens");
    file.set_modified(std::time::SystemTime::UNIX_EPOCH).expect("a time");
    let message = row().expect_err("changed");
    assert!(message.contains("a.tokens was changed after it had been opened"), "{message}");
    assert!(source.held_out(0..1, 1).is_err());
}

/// A writer that stops in the middle leaves nothing behind, and the first writer keeps the name.
#[test]
fn a_file_is_whole_or_absent() {
    let folder = Folder(TempDir::new().expect("a folder"));
    let create = || Writer::create(&folder.path(), Vocabulary::BYTES);
    let mut writer = create().expect("created");
    writer.begin().expect("written");
    assert!(!folder.path().exists());
    assert!(matches!(create(), Err(WriteError::Unfinished(_))));
    drop(writer);
    assert_eq!(fs::read_dir(folder.0.path()).expect("readable").count(), 0);
    let mut writer = create().expect("created");
    writer.begin().expect("written");
    fs::write(folder.path(), "first").expect("written");
    assert!(matches!(writer.finish([2; 32]), Err(WriteError::Exists(_))));
    assert_eq!(fs::read(folder.path()).expect("readable"), b"first");
}
