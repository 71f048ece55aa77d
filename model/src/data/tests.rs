//! Tests of batches, held-out rows and text files.

use std::fs;
use std::io::Write;
use std::path::Path;

use proptest::prelude::*;
use tempfile::{NamedTempFile, TempDir};

use super::*;
use crate::config::Fingerprint;

/// The stream of a seed, in an epoch that begins with nothing committed.
fn stream(seed: u8) -> Stream {
    Stream { seed: [seed; 32], committed: 0 }
}

/// A file whose byte i is i mod 251, and a work for it.
fn text(bytes: usize, context: usize, held_out: f64) -> (NamedTempFile, Work) {
    let mut file = NamedTempFile::new().expect("a temporary file");
    let all: Vec<u8> = (0..bytes).map(|i| (i % 251) as u8).collect();
    file.write_all(&all).expect("written");
    let found = text::describe(file.path()).expect("readable");
    let mut work = Work::text(found);
    work.model.context = context;
    work.data.held_out = held_out;
    (file, work)
}

fn small() -> (NamedTempFile, Work, Dataset) {
    let (file, work) = text(1000, 16, 0.1);
    let source = Dataset::open(&work, 1, &[file.path().to_owned()]).expect("opens");
    (file, work, source)
}

/// Whether a row consists of consecutive bytes of [`text`].
fn is_consecutive(row: &[i32]) -> bool {
    row.windows(2).all(|pair| (pair[0] + 1) % 251 == pair[1])
}

#[test]
fn a_file_is_described_by_digest_and_length() {
    let (file, work, _) = small();
    let bytes = fs::read(file.path()).expect("readable");
    let described = text::describe(file.path()).expect("readable");
    assert_eq!(described.digest, *blake3::hash(&bytes).as_bytes());
    assert_eq!(
        work.data.source,
        Source::Text(Fingerprint { digest: described.digest, bytes: 1000 })
    );
}

#[test]
fn targets_are_the_tokens_that_follow() {
    let (_file, _, text) = small();
    let synthetic = Dataset::open(&Work::synthetic(), 1, &[]).expect("opens");
    for source in [text, synthetic] {
        let batch = source.batch(&stream(3), 5, 0..4).expect("a batch");
        assert_eq!(batch.sequences, 4);
        assert_eq!(batch.inputs.len(), 4 * batch.context);
        let rows = batch.inputs.chunks(batch.context).zip(batch.targets.chunks(batch.context));
        for (inputs, targets) in rows {
            assert_eq!(inputs[1..], targets[..batch.context - 1]);
        }
    }
}

#[test]
fn training_never_sees_the_held_out_end() {
    let (file, work) = text(1000, 16, 0.5);
    let source = Dataset::open(&work, 1, &[file.path().to_owned()]).expect("opens");
    // 499 is the last training byte, and the bytes repeat after 251.
    let mut starts: Vec<_> = (0..4000)
        .map(|step| {
            let batch = source.batch(&stream(0), step, 0..1).expect("a batch");
            assert!(is_consecutive(&batch.inputs));
            batch.inputs[0]
        })
        .collect();
    starts.sort_unstable();
    starts.dedup();
    assert_eq!(starts.len(), 251, "a row may start anywhere");

    let (file, work) = text(200, 16, 0.5);
    let source = Dataset::open(&work, 1, &[file.path().to_owned()]).expect("opens");
    let all = source.batch(&stream(0), 0, 0..2000).expect("a batch");
    assert_eq!(all.targets.iter().max(), Some(&99));
    assert_eq!(all.inputs.iter().min(), Some(&0));
    let held_out = source.held_out(0..5, 5).expect("rows");
    assert_eq!(held_out.inputs.iter().min(), Some(&100));
    assert_eq!(held_out.targets.iter().max(), Some(&199));
    let starts: Vec<_> = held_out.inputs.chunks(16).map(|row| row[0]).collect();
    assert_eq!(starts, [100, 120, 141, 162, 183]);
}

/// Streams differ between peers, but all have the same held-out set.
#[test]
fn the_held_out_set_is_the_same_for_every_peer() {
    let open = |seed| Dataset::open(&Work::synthetic(), seed, &[]).expect("opens");
    let rows = |source: &Dataset| source.held_out(2..6, 64).expect("rows");
    assert_eq!(rows(&open(1)), rows(&open(1)));
    assert_ne!(rows(&open(1)), rows(&open(2)));
    let one = open(1);
    assert_eq!(one.held_out(3..4, 64).expect("a row").inputs, rows(&one).inputs[64..128]);
}

#[test]
fn an_absent_needless_or_unreadable_file_is_reported() {
    let (file, work, _) = small();
    let message = |work, named: &[&Path]| {
        let named: Vec<_> = named.iter().map(|path| path.to_path_buf()).collect();
        Dataset::open(work, 1, &named).expect_err("refused").to_string()
    };
    let digest = blake3::hash(&fs::read(file.path()).expect("readable")).to_hex();
    assert_eq!(
        message(&work, &[]),
        format!(
            "this run trains on a text file (1 000 bytes, BLAKE3 {digest}): get it from where its \
             organiser says, then name it with --data FILE, or the folder that holds it"
        )
    );
    let mut known = work.clone();
    known.data.hints = crate::config::Hints::of(&["my.txt".into()]);
    known.data.hints.url = Some("https://example.org/".to_owned());
    let hinted = message(&known, &[]);
    let words = "get it: https://example.org/, then name it with --data FILE";
    assert!(hinted.starts_with("this run trains on my.txt (1 000 bytes,"), "{hinted}");
    assert!(hinted.contains(words), "{hinted}");
    assert_eq!(
        message(&known, &[Path::new("my.txt")]),
        format!(
            "this run trains on my.txt (1 000 bytes, BLAKE3 {digest}), which is not in this folder; \
             get it: https://example.org/, then type the line again, or --data FOLDER"
        )
    );
    let synthetic = Work::synthetic();
    let needless = message(&synthetic, &[file.path()]);
    assert!(needless.starts_with("this run's data is synthetic: leave --data "), "{needless}");

    let folder = TempDir::new().expect("a folder");
    let missing = folder.path().join("missing.txt");
    let missing = message(&work, &[&missing]);
    let place = format!("which is not in {}; get it from where", folder.path().display());
    assert!(missing.contains(&place), "{missing}");
    let nothing = message(&work, &[folder.path()]);
    assert!(nothing.starts_with("this run trains on a text file (1 000 bytes,"), "{nothing}");
    assert!(text::describe(folder.path()).is_err());
    // A folder may contain the file, among others of its length.
    fs::write(folder.path().join("a"), [1; 1000]).expect("written");
    fs::copy(file.path(), folder.path().join("b")).expect("copied");
    assert!(Dataset::open(&work, 1, &[folder.path().to_owned()]).is_ok());
}

#[test]
fn another_file_is_refused_by_name() {
    let (mut file, work, source) = small();
    file.write_all(b"!").expect("written");
    let message =
        Dataset::open(&work, 1, &[file.path().to_owned()]).expect_err("refused").to_string();
    let (name, digest) = (file.path().display().to_string(), blake3_of(&file));
    assert!(message.starts_with(&format!("{name} is not this run's file: it has 1001 bytes")));
    assert!(message.contains(&digest), "{message}");
    // The file has the same length and a different byte.
    let mut bytes = fs::read(file.path()).expect("readable");
    bytes.truncate(1000);
    bytes[500] ^= 1;
    fs::write(file.path(), &bytes).expect("written");
    assert!(matches!(
        Dataset::open(&work, 1, &[file.path().to_owned()]),
        Err(DataError::AnotherFile { found: Fingerprint { bytes: 1000, .. }, .. })
    ));
    // The file is truncated while it is open.
    fs::write(file.path(), b"").expect("written");
    assert!(matches!(source.batch(&stream(0), 0, 0..1), Err(DataError::Changed(_))));
}

/// The digest is checked once; later changes are detected by the file's length or time.
#[test]
fn a_text_that_is_changed_meanwhile_is_refused() {
    let (mut file, _, source) = small();
    let row = || source.batch(&stream(1), 0, 0..1).map_err(|error| error.to_string());
    assert!(row().is_ok());
    file.write_all(b"more").expect("written");
    let message = row().expect_err("changed");
    assert!(message.contains("was changed after it had been opened"), "{message}");
    assert!(message.contains(file.path().to_str().expect("UTF-8")), "{message}");
    file.as_file().set_len(10).expect("cut off");
    assert_eq!(row().expect_err("changed"), message);
}

fn blake3_of(file: &NamedTempFile) -> String {
    blake3::hash(&fs::read(file.path()).expect("readable")).to_hex().to_string()
}

#[test]
fn a_file_that_holds_no_row_is_too_small() {
    let message = |bytes, held_out| {
        let (file, work) = text(bytes, 16, held_out);
        Dataset::open(&work, 1, &[file.path().to_owned()]).map(|_| ()).map_err(|e| e.to_string())
    };
    let part = |bytes, held_out| message(bytes, held_out).expect_err("refused");
    assert!(part(16, 0.0).contains("its training part has 16 bytes, one row needs 17"));
    assert_eq!(message(17, 0.0), Ok(()));
    assert!(part(169, 0.1).contains("its held-out part has 16 bytes, one row needs 17"));
    assert_eq!(message(170, 0.1), Ok(()));
    assert!(part(33, 0.5).contains("its held-out part has 16 bytes"));
    assert_eq!(message(34, 0.5), Ok(()));
    assert!(part(0, 0.0).contains("its training part has 0 bytes"));
}

#[test]
fn nothing_held_out_is_an_error_when_it_is_asked_for() {
    let (file, work) = text(100, 16, 0.0);
    let source = Dataset::open(&work, 1, &[file.path().to_owned()]).expect("opens");
    assert!(matches!(source.held_out(0..1, 1), Err(DataError::NothingHeldOut)));
    // A synthetic source has a separate stream for the held-out set.
    let mut work = Work::synthetic();
    work.data.held_out = 0.0;
    let source = Dataset::open(&work, 1, &[]).expect("opens");
    assert!(source.held_out(0..1, 1).is_ok());
}

/// The bytes of [`text`] are consecutive, so each byte determines the next one.
#[test]
fn entropies_of_a_text() {
    let (file, work) = text(251 * 40, 16, 0.1);
    let entropies = Dataset::open(&work, 1, &[file.path().to_owned()]).expect("opens").entropies();
    assert!((entropies.uniform - 256_f64.ln()).abs() < 1e-12);
    assert!((entropies.unigram - 251_f64.ln()).abs() < 1e-4);
    assert!(entropies.bigram.expect("few tokens").abs() < 1e-12);
    assert_eq!(entropies.floor, None);
}

/// The published value is 2.45 nats for the bigrams of this text.
#[test]
fn entropies_of_shakespeare() {
    let shared = std::env::var("INTELLECT_SHARED")
        .unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared").to_owned());
    let path = Path::new(&shared).join("data/tinyshakespeare.txt");
    if !path.exists() {
        println!("skipped: {} is not here", path.display());
        return;
    }
    let found = text::describe(&path).expect("readable");
    let work = Work::text(found);
    let entropies = Dataset::open(&work, 1, &[path]).expect("opens").entropies();
    println!("{entropies:?}");
    assert!((entropies.bigram.expect("few tokens") - 2.45).abs() < 0.02);
    assert!((entropies.unigram - 3.31).abs() < 0.02);
}

proptest! {
    /// A batch is a function of (stream, step, row): any cut into micro-batches, any order.
    #[test]
    fn rows_do_not_depend_on_the_batch_they_are_in(
        seed: [u8; 32], step: u64, cut in 0_usize..=6,
    ) {
        let stream = Stream { seed, committed: 0 };
        let (_file, _, text) = small();
        let synthetic = Dataset::open(&Work::synthetic(), 1, &[]).expect("opens");
        for source in [text, synthetic] {
            let whole = source.batch(&stream, step, 0..6).expect("a batch");
            let right = source.batch(&stream, step, cut..6).expect("a batch");
            let left = source.batch(&stream, step, 0..cut).expect("a batch");
            prop_assert_eq!([left.inputs, right.inputs].concat(), whole.inputs.clone());
            prop_assert_eq!([left.targets, right.targets].concat(), whole.targets.clone());
            let other = source.batch(&stream, step.wrapping_add(1), 0..6).expect("a batch");
            prop_assert_ne!(other.inputs, whole.inputs);
        }
    }

    /// Every token is one of the source's symbols.
    #[test]
    fn tokens_are_in_the_alphabet(
        seed: u64, symbols in 2_usize..40, order in 1_usize..3, key: [u8; 32],
    ) {
        let mut work = Work::synthetic();
        work.data.source = Source::Synthetic { symbols, order };
        let source = Dataset::open(&work, seed, &[]).expect("opens");
        let batch = source.batch(&Stream { seed: key, committed: 0 }, 0, 0..3).expect("a batch");
        prop_assert!(batch.inputs.iter().all(|token| (0..symbols as i32).contains(token)));
    }
}
