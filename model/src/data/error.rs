//! Why data cannot be opened or read.

use std::path::{Path, PathBuf};

use thiserror::Error;

use super::documents::sink::ReadError;
use super::tokens::header::HeaderError;
use crate::config::Fingerprint;
use crate::config::digest::hex;

/// Why a source cannot be opened or read; whoever runs this peer must act.
#[derive(Debug, Error)]
pub enum DataError {
    /// The run needs a file and none was given, or what was given holds none that can be it.
    #[error(
        "this run trains on {described}: {get} name it with --data FILE, or the folder that holds it"
    )]
    NoFile {
        /// Digest and length of the file.
        file: Fingerprint,
        /// The same with its name, as [`Hints::described`](crate::config::Hints::described) has it.
        described: String,
        /// Where it is to be had, as an order.
        get: String,
    },
    /// The file that was named is not there.
    #[error(
        "this run trains on {described}, which is not in {}; {get} type the line again, or --data FOLDER",
        place(path)
    )]
    Missing {
        /// The path that was given.
        path: PathBuf,
        /// Digest and length of the run's file.
        file: Fingerprint,
        /// The same with its name, as [`Hints::described`](crate::config::Hints::described) has it.
        described: String,
        /// Where it is to be had, as an order.
        get: String,
    },
    /// A file was given and the run needs none.
    #[error("this run's data is synthetic: leave --data {} out", .0.display())]
    NeedlessFile(PathBuf),
    /// A file cannot be read, or is no text although a new run is to train on it as one.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Its documents lie in records.
    #[error(
        "{} holds records and is no plain text: make a token file of it first, with `intellect-node data \
         tokenize {} --out {}`",
        .0.display(), .0.display(), .0.with_extension("tokens").display()
    )]
    NotPlain(PathBuf),
    /// Somebody wrote to it.
    #[error(
        "{} was changed after it had been opened and checked: put the run's file back, and start again",
        .0.display()
    )]
    Changed(PathBuf),
    /// It is another file than the run's.
    #[error(
        "{} is not this run's file: it has {} bytes and BLAKE3 {}, the run's has {} bytes and BLAKE3 {}",
        path.display(), found.bytes, hex(&found.digest), expected.bytes, hex(&expected.digest)
    )]
    AnotherFile {
        /// The file, by the path that was given.
        path: PathBuf,
        /// Digest and length of the file that was given.
        found: Fingerprint,
        /// Digest and length of the run's file.
        expected: Fingerprint,
    },
    /// One part of the file holds no row.
    #[error(
        "{} is too small: its {part} part has {size} {unit}, one row needs {needed}; \
         take a longer file, a shorter model.context or another data.held_out",
        path.display()
    )]
    TooSmall {
        /// The file, by the path that was given.
        path: PathBuf,
        /// Which part of it: "training" or "held-out".
        part: &'static str,
        /// Length of that part, in `unit`.
        size: u64,
        /// What lengths are counted in: "bytes" or "tokens".
        unit: &'static str,
        /// What one row takes, in `unit`.
        needed: u64,
    },
    /// It is no token file, or a part of one.
    #[error("{}: {why}", path.display())]
    NoTokens {
        /// The file, by the path that was given.
        path: PathBuf,
        /// What is wrong.
        #[source]
        why: HeaderError,
    },
    /// A number in a token file that its tokenizer does not have.
    #[error("{} is damaged: token {at} is {token}, and its tokenizer has {tokens}", path.display())]
    NoToken {
        /// The file, by the path that was given.
        path: PathBuf,
        /// Place of the token in the file, counted from 0.
        at: u64,
        /// The number that stands there.
        token: u32,
        /// How many different tokens its tokenizer has.
        tokens: usize,
    },
    /// The organiser's manifest says another thing than the file that it names.
    #[error(
        "the manifest names another tokenizer than {} was made with: its organiser must change \
         data.tokenizer, tokenizer_digest, tokens or bos",
        .0.display()
    )]
    AnotherVocabulary(PathBuf),
    /// A folder without a token file.
    #[error("there is no token file in {}: `intellect-node data tokenize` makes one", list(.0))]
    NoTokenFile(Vec<PathBuf>),
    /// Files that cannot be mixed.
    #[error(
        "{} was made with another tokenizer than the files before it: mix files of one",
        .0.display()
    )]
    Vocabularies(PathBuf),
    /// A file was named that is none of the run's.
    #[error(
        "{} is none of the {count} token files that this run mixes: it has {bytes} bytes, and \
         `manifest show` says which they are",
        path.display()
    )]
    NotOfMix {
        /// The file, by the path that was given.
        path: PathBuf,
        /// How many files the run has.
        count: usize,
        /// Length of the file in bytes.
        bytes: u64,
    },
    /// Not all files of a mix were named, or some of those are not there.
    #[error(
        "this run mixes {count} token files and {} of them were not found, among them {described}: {get} \
         name each with --data, or the folder that holds them",
        lacking.len()
    )]
    MissingOfMix {
        /// How many files the run has.
        count: usize,
        /// Digests and lengths of those that are missing.
        lacking: Vec<Fingerprint>,
        /// The first of them, as [`Hints::described`](crate::config::Hints::described) has it.
        described: String,
        /// Where it is to be had, as an order.
        get: String,
    },
    /// A number behind the last file.
    #[error("the run has no file of this number")]
    NoSuchFile,
    /// The manifest holds nothing out.
    #[error("nothing is held out to measure on: data.held_out is 0")]
    NothingHeldOut,
}

impl DataError {
    /// The files that are not here, where that is what is wrong.
    #[must_use]
    pub fn lacking(&self) -> Vec<Fingerprint> {
        match self {
            Self::NoFile { file, .. } | Self::Missing { file, .. } => vec![*file],
            Self::MissingOfMix { lacking, .. } => lacking.clone(),
            _ => Vec::new(),
        }
    }
}

/// Where a path leads that has nothing at its end.
fn place(path: &Path) -> String {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.display().to_string(),
        _ => "this folder".to_owned(),
    }
}

fn list(named: &[PathBuf]) -> String {
    named.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}
