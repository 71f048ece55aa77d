//! The file of a tokenizer: a vocabulary of RWKV World, or a `tokenizer.json` of Hugging Face.
//!
//! It is small enough to be read into memory, and its BLAKE3 names it: files of the same digest are
//! the same tokenizer.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::config::Scheme;

/// Larger files are refused: this is twice the largest one in wide use, of 33 MB (Gemma's).
pub const FILE_BYTES_MAX: usize = 1 << 26;

/// The contents of a tokenizer's file; empty for a tokenizer of bytes, which has no file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct File {
    /// The form of the tokenizer that it describes.
    pub scheme: Scheme,
    /// All bytes of the file, as they are on disk.
    pub bytes: Vec<u8>,
}

/// Why a file cannot be used as a tokenizer. The person who chose or made it must act.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The operating system refuses to open or read the file.
    #[error("cannot read the tokenizer {path}: {cause}")]
    Unreadable {
        /// The file, by the path that was given.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        cause: io::Error,
    },
    /// The file is larger than [`FILE_BYTES_MAX`].
    #[error("the tokenizer {0} has more than {FILE_BYTES_MAX} bytes: is it another file?")]
    TooLarge(PathBuf),
    /// The tokenizer needs the file with this digest in hex, but none was given.
    #[error("the tokenizer is a file with BLAKE3 {0}: name it with --tokenizer FILE")]
    NoFile(String),
    /// The folder of a model has no tokenizer.
    #[error("{0} holds no tokenizer.json: name the model's own tokenizer with --tokenizer FILE")]
    NoneIn(PathBuf),
    /// A file was given, but the tokenizer needs none.
    #[error("the tokenizer here has no file: leave --tokenizer {0} out")]
    NeedlessFile(PathBuf),
    /// It is not the file with which the tokens were made.
    #[error("{path} is another tokenizer: it has BLAKE3 {found}, the one needed has {digest}")]
    AnotherFile {
        /// The file, by the path that was given.
        path: PathBuf,
        /// Digest of the file that was given, in hex.
        found: String,
        /// Digest of the run's file in hex.
        digest: String,
    },
    /// The contents of the file cannot be used.
    #[error("the tokenizer {path} cannot be used: {why}")]
    Wrong {
        /// The file, by the path that was given.
        path: PathBuf,
        /// What is wrong with the contents.
        #[source]
        why: FileError,
    },
}

/// Why the contents of a file are not a tokenizer.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum FileError {
    /// A line of a vocabulary does not parse.
    #[error("line {line}, {excerpt:?}: {why}")]
    Line {
        /// Number of the line, counted from 1.
        line: usize,
        /// What is wrong with the line.
        why: &'static str,
        /// The first characters of the line.
        excerpt: String,
    },
    /// A vocabulary contains the same bytes or the same id twice.
    #[error("{what} comes twice: {id}")]
    Twice {
        /// "an entry" or "an id", whichever occurs twice.
        what: &'static str,
        /// The id of the second occurrence.
        id: u32,
    },
    /// A vocabulary lacks this byte, so that texts with it would have no tokens.
    #[error("no entry is the single byte {0}: it is not a complete vocabulary of RWKV World")]
    NoByte(usize),
    /// The file is not a `tokenizer.json`, or not one that is supported, for this reason.
    #[error("it is not a usable tokenizer.json of Hugging Face: {0}")]
    NoTokenizer(String),
    /// The manifest or token file that names this file has another number of tokens.
    #[error("it has {found} tokens, but {said} were expected: the manifest is wrong")]
    Tokens {
        /// Number of tokens in the file.
        found: usize,
        /// Number of tokens in the manifest, or in a token file.
        said: usize,
    },
    /// The file does not say which token begins a document.
    #[error("it does not say which token begins a document: name it with --bos TOKEN")]
    NoBos,
    /// The token that was chosen to begin documents does not exist under the name that was given.
    #[error("it has no token {0:?} to begin documents with")]
    NoSuchToken(String),
}

impl File {
    /// A placeholder for the file of a tokenizer of bytes, which has none.
    #[must_use]
    pub fn none() -> Self {
        Self { scheme: Scheme::Bytes, bytes: Vec::new() }
    }

    /// Reads a file, whose first character determines its form.
    ///
    /// # Errors
    /// If it cannot be read, or is larger than [`FILE_BYTES_MAX`].
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let unreadable = |cause| OpenError::Unreadable { path: path.to_owned(), cause };
        let mut bytes = Vec::new();
        let file = fs::File::open(path).map_err(unreadable)?;
        file.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        if bytes.len() > FILE_BYTES_MAX {
            return Err(OpenError::TooLarge(path.to_owned()));
        }
        Ok(Self { scheme: Scheme::of_file(&bytes), bytes })
    }

    /// The digest in a manifest: BLAKE3 of the bytes, or zeros where there is no file.
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        match self.scheme {
            Scheme::Bytes => [0; 32],
            Scheme::Rwkv | Scheme::HuggingFace => *blake3::hash(&self.bytes).as_bytes(),
        }
    }
}
