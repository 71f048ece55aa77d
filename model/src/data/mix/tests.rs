//! Tests of mixes: how often rows of each file are drawn, and which files are found.

use std::fs;

use tempfile::TempDir;

use super::*;
use crate::config::{Source, Vocabulary, Work};
use crate::data::tokens::writer::Writer;
use crate::data::{Batch, Dataset, Stream, text};

/// Files whose tokens are the number of their file, 1, 2, 3, …; 0 begins a document.
struct Folder(TempDir);

const VOCABULARY: Vocabulary =
    Vocabulary { scheme: crate::config::Scheme::Rwkv, digest: [1; 32], tokens: 50, bos: 0 };

impl Folder {
    /// Files with these counts of tokens.
    fn new(counts: &[usize]) -> Self {
        let folder = Self(TempDir::new().expect("a folder"));
        for (file, count) in counts.iter().enumerate() {
            folder.file(&format!("{file}.tokens"), file as u32 + 1, *count, VOCABULARY);
        }
        folder
    }

    fn file(&self, name: &str, token: u32, count: usize, vocabulary: Vocabulary) {
        let mut writer = Writer::create(&self.path(name), vocabulary).expect("created");
        writer.begin().expect("written");
        writer.tokens(&vec![token; count - 1], 0).expect("written");
        writer.finish([0; 32]).expect("whole");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A work on all files with these weights.
    fn work(&self, weights: &[[f64; 2]], anneal_from: u64) -> Work {
        let (vocabulary, _, files) =
            tokens::describe_all(&[self.0.path().to_owned()]).expect("token files");
        let mut work = Work::mix(vocabulary, &files);
        work.model.context = 16;
        let Source::Mix { components: parts, anneal_from: from, .. } = &mut work.data.source else {
            panic!("a mix");
        };
        assert_eq!(parts.len(), weights.len());
        for (part, weights) in parts.iter_mut().zip(weights) {
            [part.weight, part.anneal_weight] = *weights;
        }
        *from = anneal_from;
        work
    }

    fn open(&self, work: &Work) -> Dataset {
        Dataset::open(work, 1, &[self.0.path().to_owned()]).expect("opens")
    }
}

fn refusal(work: &Work, named: &[PathBuf]) -> String {
    Dataset::open(work, 1, named).expect_err("refused").to_string()
}

/// How many rows are of files 1, 2, 3.
fn rows_of(batch: &Batch) -> [usize; 3] {
    let mut rows = [0; 3];
    // Only the first token of a row can belong to another file.
    batch.targets.chunks(batch.context).for_each(|row| rows[row[0] as usize - 1] += 1);
    rows
}

fn stream(committed: u64) -> Stream {
    Stream { seed: [7; 32], committed }
}

#[test]
fn files_are_drawn_by_weight_and_not_by_size() {
    let folder = Folder::new(&[1000, 9000, 300]);
    let work = folder.work(&[[3.0, 0.0], [1.0, 0.0], [0.0, 1.0]], u64::MAX);
    let rows = rows_of(&folder.open(&work).batch(&stream(0), 0, 0..4000).expect("a batch"));
    // Five standard deviations of a binomial of 4,000 and 3/4 are 137.
    assert!(rows[0].abs_diff(3000) < 137 && rows[0] + rows[1] == 4000 && rows[2] == 0, "{rows:?}");
}

/// The second weights apply from the epoch on that begins with `anneal_from` committed tokens.
#[test]
fn the_weights_change_at_a_count_of_tokens() {
    let folder = Folder::new(&[500, 600, 700]);
    let work = folder.work(&[[1.0, 0.0], [1.0, 0.5], [0.0, 0.5]], 10_000);
    let source = folder.open(&work);
    let rows = |committed| {
        rows_of(&source.batch(&stream(committed), 3, 0..1000).expect("a batch"))
            .map(|rows| rows > 0)
    };
    assert_eq!(rows(9_999), [true, true, false]);
    assert_eq!(rows(10_000), [false, true, true]);
    assert_eq!(rows(u64::MAX), [false, true, true]);
}

/// There is no cursor: rows depend neither on earlier calls, nor on how a batch is cut, nor on the
/// order in which files are named.
#[test]
fn a_row_depends_on_stream_step_and_row_alone() {
    let folder = Folder::new(&[500, 600, 700]);
    let work = folder.work(&[[1.0, 1.0], [2.0, 1.0], [3.0, 1.0]], 5);
    let source = folder.open(&work);
    let whole = source.batch(&stream(0), 9, 0..40).expect("a batch");
    let names = ["2.tokens", "0.tokens", "1.tokens"].map(|name| folder.path(name));
    let other = Dataset::open(&work, 99, &names).expect("opens");
    other.batch(&stream(7), 1, 0..13).expect("a batch");
    let parts =
        [0..17, 17..40].map(|rows| other.batch(&stream(0), 9, rows).expect("a batch").inputs);
    assert_eq!(parts.concat(), whole.inputs);
    let step = source.batch(&stream(0), 10, 0..40).expect("a batch");
    let seed = source.batch(&Stream { seed: [8; 32], committed: 0 }, 9, 0..40).expect("a batch");
    assert!(step.inputs != whole.inputs && seed.inputs != whole.inputs);
}

/// The set has the end of each file, in proportion to the first weights, throughout the run.
#[test]
fn the_held_out_set_has_rows_of_each_file_by_the_first_weights() {
    let folder = Folder::new(&[500, 600, 700]);
    let work = folder.work(&[[5.0, 0.0], [3.0, 0.0], [2.0, 1.0]], 0);
    let source = folder.open(&work);
    let all = source.held_out(0..20, 20).expect("rows");
    assert_eq!(rows_of(&all), [10, 6, 4]);
    assert_eq!(source.held_out_rows(), 6, "half of them are of the first file, which has three");
    let parts = [0..3, 3..20].map(|rows| source.held_out(rows, 20).expect("rows").inputs);
    assert_eq!(parts.concat(), all.inputs);
    // A few rows, or only one, are divided as well.
    assert_eq!(rows_of(&source.held_out(0..3, 3).expect("rows")), [1, 1, 1]);
    assert_eq!(rows_of(&source.held_out(0..1, 1).expect("a row")), [0, 1, 0]);
    // Within a file they are spread over its end, from its first row to its last.
    let split = Folder::new(&[]);
    let mut writer = Writer::create(&split.path("a"), VOCABULARY).expect("created");
    writer.tokens(&(0..200).map(|at| at % 50).collect::<Vec<_>>(), 0).expect("written");
    writer.finish([0; 32]).expect("whole");
    split.file("b", 49, 200, VOCABULARY);
    let work = split.work(&[[1.0, 0.0], [3.0, 0.0]], 0);
    let rows = split.open(&work).held_out(0..8, 8).expect("rows");
    let begins: Vec<_> = rows.inputs.chunks(16).map(|row| row[0]).collect();
    assert_eq!(begins, [30, 33, 49, 49, 49, 49, 49, 49]);
}

#[test]
fn a_file_without_weight_is_never_drawn() {
    for (weights, drawn) in [
        (vec![0.0, 1.0, 0.0, 2.0, 0.0], vec![1, 3]),
        (vec![1e-9, 0.0, 1e6], vec![0, 2]),
        (vec![0.1, 0.2, 0.3], vec![0, 1, 2]),
    ] {
        let shares = Shares::new(weights.iter().copied());
        let below_one = 1.0 - f64::EPSILON / 2.0;
        for unit in [0.0, 1e-300, 0.25, 0.5, 0.9, below_one] {
            assert!(drawn.contains(&shares.at(unit)), "{unit} of {weights:?}");
        }
        assert_eq!((shares.at(0.0), shares.at(below_one)), (drawn[0], drawn[drawn.len() - 1]));
    }
}

#[test]
fn entropies_are_those_of_predictors_that_know_the_file() {
    let folder = Folder::new(&[1000, 1000]);
    let work = folder.work(&[[1.0, 0.0], [3.0, 1.0]], 0);
    let entropies = folder.open(&work).entropies();
    // Each file has one token, except for the first of a thousand.
    let rare = (1000_f64.ln() + 999.0 * (1000.0 / 999.0_f64).ln()) / 1000.0;
    assert!((entropies.uniform - 50_f64.ln()).abs() < 1e-12);
    assert!((entropies.unigram - rare).abs() < 1e-12, "{entropies:?}");
    assert!(entropies.bigram.expect("few tokens") < 1e-12);
}

#[test]
fn every_file_must_be_named_and_no_other() {
    let folder = Folder::new(&[500, 600, 700]);
    let work = folder.work(&[[1.0, 1.0]; 3], 0);
    let path = |name| folder.path(name);
    let message = refusal(&work, &[path("0.tokens"), path("2.tokens")]);
    let digest = text::describe(&path("1.tokens")).expect("readable").digest;
    assert!(
        message.starts_with("this run mixes 3 token files and 1 of them were not found"),
        "{message}"
    );
    assert!(
        message.contains(&format!("1 328 bytes, BLAKE3 {})", crate::config::digest::hex(&digest))),
        "{message}"
    );
    assert!(refusal(&work, &[]).contains("3 of them were not found"));
    assert!(refusal(&work, &[path("absent")]).contains("3 of them were not found"));
    let all = ["0.tokens", "1.tokens", "2.tokens", "absent"].map(path);
    assert!(refusal(&work, &all).contains("absent: No such file"), "one path too many");

    // A folder may contain other files and folders.
    fs::write(path("notes.txt"), "of something else").expect("written");
    fs::create_dir(path("folder")).expect("made");
    assert!(Dataset::open(&work, 1, &[folder.0.path().to_owned()]).is_ok());
    let message = refusal(&work, &[folder.0.path().to_owned(), path("notes.txt")]);
    assert!(
        message.contains("notes.txt is none of the 3 token files that this run mixes"),
        "{message}"
    );
    // Another file of the same length is neither accepted nor an obstacle.
    fs::copy(path("1.tokens"), path("copy.tokens")).expect("copied");
    let mut bytes = fs::read(path("1.tokens")).expect("readable");
    bytes[1000] = 9;
    fs::write(path("1.tokens"), bytes).expect("written");
    assert!(Dataset::open(&work, 1, &[folder.0.path().to_owned()]).is_ok());
    fs::remove_file(path("copy.tokens")).expect("removed");
    let message = refusal(&work, &[folder.0.path().to_owned()]);
    assert!(message.contains("1 of them were not found"), "{message}");
}

#[test]
fn files_of_several_tokenizers_are_not_mixed() {
    let folder = Folder::new(&[500]);
    folder.file("other", 1, 500, Vocabulary { digest: [2; 32], ..VOCABULARY });
    let message =
        tokens::describe_all(&[folder.0.path().to_owned()]).expect_err("refused").to_string();
    assert!(message.contains("other was made with another tokenizer than the files before it"));
    let none = Folder::new(&[]);
    let message =
        tokens::describe_all(&[none.0.path().to_owned()]).expect_err("refused").to_string();
    assert!(message.starts_with("there is no token file in "), "{message}");
}
