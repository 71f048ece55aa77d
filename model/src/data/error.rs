//! Why data cannot be opened or read.

use std::path::{Path, PathBuf};

use thiserror::Error;

use super::documents::sink::ReadError;
use super::tokens::header::HeaderError;
use crate::config::Fingerprint;
use crate::config::digest::hex;

/// Why a source cannot be opened or read. Each error names what the operator of this peer must do.
#[derive(Debug, Error)]
pub enum DataError {
    /// The run needs a file, and none of the given files and folders can be it or contain it.
    #[error(
        "this run trains on {described}: {get} name it with --data FILE, or the folder that holds it"
    )]
    NoFile {
        /// Digest and length of the file.
        file: Fingerprint,
        /// Name, length and digest, as [`Hints::described`](crate::config::Hints::described) gives
        /// it.
        described: String,
        /// Where to get the file, as an instruction.
        get: String,
    },
    /// The file that was named does not exist.
    #[error(
        "this run trains on {described}, which is not in {}; {get} type the line again, or --data FOLDER",
        folder(path)
    )]
    Missing {
        /// The path that the operator gave.
        path: PathBuf,
        /// Digest and length of the run's file.
        file: Fingerprint,
        /// Name, length and digest, as [`Hints::described`](crate::config::Hints::described) gives
        /// it.
        described: String,
        /// Where to get the file, as an instruction.
        get: String,
    },
    /// A file was given, but the run needs none.
    #[error("this run's data is synthetic: leave --data {0} out")]
    NeedlessFile(PathBuf),
    /// A file cannot be read, or is not text although a new run is to train on it as text.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The documents of the file are in records, so it cannot be a plain text.
    #[error(
        "{} holds records and is not plain text: make a token file of it first, with `intellect-node data \
         tokenize {} --out {}`",
        .0.display(), .0.display(), .0.with_extension("tokens").display()
    )]
    NotPlain(PathBuf),
    /// Another program changed the file during the run.
    #[error(
        "{0} was changed after it had been opened and checked: put the run's file back, and start again"
    )]
    Changed(PathBuf),
    /// The digest or length differs from the run's file.
    #[error(
        "{path} is not this run's file: it has {} bytes and BLAKE3 {}, the run's has {} bytes and BLAKE3 {}",
        found.bytes, hex(&found.digest), expected.bytes, hex(&expected.digest)
    )]
    AnotherFile {
        /// The file, by the path that was given.
        path: PathBuf,
        /// Digest and length of the file that was given.
        found: Fingerprint,
        /// Digest and length of the run's file.
        expected: Fingerprint,
    },
    /// One part of the file is shorter than a row.
    #[error(
        "{path} is too small: its {part} part has {size} {unit}, one row needs {needed}; \
         take a longer file, a shorter model.context or another data.held_out"
    )]
    TooSmall {
        /// The file, by the path that was given.
        path: PathBuf,
        /// Which part of the file: "training" or "held-out".
        part: &'static str,
        /// Length of that part, in `unit`.
        size: u64,
        /// The unit of the lengths: "bytes" or "tokens".
        unit: &'static str,
        /// The length of one row, in `unit`.
        needed: u64,
    },
    /// The file is not a token file, or only a part of one.
    #[error("{path}: {why}")]
    NoTokens {
        /// The file, by the path that was given.
        path: PathBuf,
        /// What is wrong with its header.
        #[source]
        why: HeaderError,
    },
    /// A token file contains a number that its tokenizer does not have.
    #[error("{path} is damaged: token {at} is {token}, and its tokenizer has {tokens}")]
    NoToken {
        /// The file, by the path that was given.
        path: PathBuf,
        /// Index of the token in the file, counted from 0.
        at: u64,
        /// The number that stands at this index.
        token: u32,
        /// How many different tokens its tokenizer has.
        tokens: usize,
    },
    /// The organiser's manifest contradicts the file that it names.
    #[error(
        "the manifest names another tokenizer than {0} was made with: its organiser must change \
         data.tokenizer, tokenizer_digest, tokens or bos"
    )]
    AnotherVocabulary(PathBuf),
    /// None of the given paths is a token file or contains one.
    #[error("there is no token file in {}: `intellect-node data tokenize` makes one", list(.0))]
    NoTokenFile(Vec<PathBuf>),
    /// The files have different tokenizers, so they cannot be mixed.
    #[error("{0} was made with another tokenizer than the files before it: mix files of one")]
    Vocabularies(PathBuf),
    /// A file was named that is not one of the run's.
    #[error(
        "{path} is none of the {count} token files that this run mixes: it has {bytes} bytes, and \
         `manifest show` lists them"
    )]
    NotOfMix {
        /// The file, by the path that was given.
        path: PathBuf,
        /// How many files the run mixes.
        count: usize,
        /// Length of the file in bytes.
        bytes: u64,
    },
    /// Not all files of a mix were named, or some of them do not exist.
    #[error(
        "this run mixes {count} token files and {} of them were not found, among them {described}: {get} \
         name each with --data, or the folder that holds them",
        lacking.len()
    )]
    MissingOfMix {
        /// How many files the run mixes.
        count: usize,
        /// Digests and lengths of the missing files.
        lacking: Vec<Fingerprint>,
        /// The first of them, as [`Hints::described`](crate::config::Hints::described) gives it.
        described: String,
        /// Where to get the files, as an instruction.
        get: String,
    },
    /// The index of a file is beyond the run's files.
    #[error("the run has no file of this number")]
    NoSuchFile,
    /// The manifest holds nothing out, so there is nothing to evaluate on.
    #[error("nothing is held out to measure on: data.held_out is 0")]
    NothingHeldOut,
}

impl DataError {
    /// The missing files, if that is the error.
    #[must_use]
    pub fn lacking(&self) -> Vec<Fingerprint> {
        match self {
            Self::NoFile { file, .. } | Self::Missing { file, .. } => vec![*file],
            Self::MissingOfMix { lacking, .. } => lacking.clone(),
            _ => Vec::new(),
        }
    }
}

/// The folder in which a missing file was expected.
fn folder(path: &Path) -> String {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.display().to_string(),
        _ => "this folder".to_owned(),
    }
}

/// The paths that were named, as one text for a message.
fn list(named: &[PathBuf]) -> String {
    named.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}
