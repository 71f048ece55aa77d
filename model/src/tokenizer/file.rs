//! The file of a tokenizer: a vocabulary of RWKV World, or a `tokenizer.json` of Hugging Face.
//!
//! It is small enough to be read whole, and its BLAKE3 names it: whoever has a file with that
//! digest has the same tokenizer.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::config::Scheme;

/// No tokenizer's file is larger: twice the largest one in wide use, of 33 MB (Gemma's).
pub const FILE_BYTES_MAX: usize = 1 << 26;

/// A tokenizer's file that was read; for a tokenizer of bytes, which has no file, it is empty.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct File {
    /// The form of the tokenizer that it describes.
    pub scheme: Scheme,
    /// The bytes of the file.
    pub bytes: Vec<u8>,
}

/// Why a file is no tokenizer; whoever made or chose it must act.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The system refuses.
    #[error("cannot read the tokenizer {}: {cause}", path.display())]
    Unreadable {
        /// The file, by the path that was given.
        path: PathBuf,
        /// What the system says.
        #[source]
        cause: io::Error,
    },
    /// No tokenizer is so large.
    #[error("the tokenizer {} has more than {FILE_BYTES_MAX} bytes: is it another file?", .0.display())]
    TooLarge(PathBuf),
    /// The tokenizer has a file and none was given.
    #[error("the tokenizer is a file with BLAKE3 {digest}: name it with --tokenizer FILE")]
    NoFile {
        /// Its digest in hex.
        digest: String,
    },
    /// A file was given and the tokenizer has none.
    #[error("the tokenizer here has no file: leave --tokenizer {} out", .0.display())]
    NeedlessFile(PathBuf),
    /// It is another file than the one that tokens were made with.
    #[error(
        "{} is another tokenizer: it has BLAKE3 {found}, the one needed has {digest}",
        path.display()
    )]
    AnotherFile {
        /// The file, by the path that was given.
        path: PathBuf,
        /// Its digest in hex.
        found: String,
        /// The digest of the run's in hex.
        digest: String,
    },
    /// What is in it cannot be used.
    #[error("the tokenizer {} cannot be used: {why}", path.display())]
    Wrong {
        /// The file, by the path that was given.
        path: PathBuf,
        /// What is wrong.
        #[source]
        why: FileError,
    },
}

/// Why bytes are no tokenizer.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum FileError {
    /// A line of a vocabulary that cannot be read.
    #[error("line {line}, {excerpt:?}: {why}")]
    Line {
        /// Counted from 1.
        line: usize,
        /// What is wrong.
        why: &'static str,
        /// Its begin.
        excerpt: String,
    },
    /// The same bytes, or the same id, twice.
    #[error("{what} comes twice: {id}")]
    Twice {
        /// Which of the two.
        what: &'static str,
        /// The id, of the second one.
        id: u32,
    },
    /// A text with this byte would have no tokens.
    #[error("no entry is the single byte {byte}: it is no whole vocabulary of RWKV World")]
    NoByte {
        /// The byte.
        byte: usize,
    },
    /// No `tokenizer.json`.
    #[error("it is no tokenizer.json of Hugging Face that can be used: {why}")]
    NoTokenizer {
        /// What the library says.
        why: String,
    },
    /// Whoever named the file counted other tokens.
    #[error("it has {found} tokens, and {said} were said: the manifest is wrong")]
    Tokens {
        /// In the file.
        found: usize,
        /// In the manifest, or in a token file.
        said: usize,
    },
    /// Nothing begins a document.
    #[error("it does not say which token begins a document: name one")]
    NoBos,
    /// A token to begin documents with that the tokenizer does not have.
    #[error("it has no token {name:?} to begin documents with")]
    NoSuchToken {
        /// How the token was written.
        name: String,
    },
}

impl File {
    /// Stands for the file of a tokenizer of bytes, which has none.
    #[must_use]
    pub fn none() -> Self {
        Self { scheme: Scheme::Bytes, bytes: Vec::new() }
    }

    /// Reads a file; its first letter tells its form.
    ///
    /// # Errors
    /// If it cannot be read, or is larger than any tokenizer.
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

    /// What a manifest calls it: BLAKE3 of its bytes, zeros where there is no file.
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        match self.scheme {
            Scheme::Bytes => [0; 32],
            Scheme::Rwkv | Scheme::HuggingFace => *blake3::hash(&self.bytes).as_bytes(),
        }
    }
}
