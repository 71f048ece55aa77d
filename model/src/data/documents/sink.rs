//! What readers of documents find, who takes it, and why a file cannot be read to its end.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Takes what is in a file.
pub(in crate::data) trait Sink {
    /// Why it takes no more.
    type Error: From<ReadError>;

    /// Bytes of the file, whatever they mean: all of them, in their order.
    fn bytes(&mut self, bytes: &[u8]);

    /// What was found in them.
    ///
    /// # Errors
    /// If it takes no more.
    fn found(&mut self, found: Found) -> Result<(), Self::Error>;
}

/// One thing that a reader finds.
#[derive(Debug)]
pub(in crate::data) enum Found {
    /// The begin of a document, or all of it.
    Begin(Fragment),
    /// What follows of the same document.
    More(Fragment),
    /// A record that is no document.
    Damaged(Record),
}

/// A part of a document.
#[derive(Debug)]
pub(in crate::data) enum Fragment {
    /// Text, which has to be turned into tokens.
    Text(String),
    /// Tokens already.
    Tokens(Vec<u32>),
}

/// What a reader needs to know beside the file and its format.
#[derive(Clone, Copy, Debug)]
pub(in crate::data) struct ReadOptions<'a> {
    /// Name of the JSON field or of the column.
    pub(in crate::data) field: &'a str,
    /// How many different tokens there are, and which begins a document.
    pub(in crate::data) tokens: usize,
    /// The token that begins a document.
    pub(in crate::data) bos: u32,
}

/// A record that is no document.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Record {
    /// Path of the file that holds it.
    pub path: PathBuf,
    /// Its kind and number, counted from 1: "line 3".
    pub place: String,
    /// What is wrong.
    pub why: String,
    /// Its begin, where it can be shown.
    pub excerpt: String,
}

/// Why a file cannot be read to its end.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The system refuses.
    #[error("cannot read {}: {cause}", path.display())]
    Unreadable {
        /// The file, by the path that was given.
        path: PathBuf,
        /// What the system says.
        #[source]
        cause: io::Error,
    },
    /// A name that does not tell the format.
    #[error(
        "what kind of file is {}? Its name ends in none of .txt, .md, .jsonl, .ndjson, .json, .parquet: say \
         with --format text, jsonl, parquet, u16 or u32",
        .0.display()
    )]
    Format(PathBuf),
    /// A name that says that it was packed.
    #[error(
        "{} is compressed: unpack it first, or pass it on, as in `zcat a.jsonl.gz | intellect-node data \
         tokenize /dev/stdin --format jsonl --out a.tokens`",
        .0.display()
    )]
    Compressed(PathBuf),
    /// A text that is no UTF-8.
    #[error("{} is no text of UTF-8: byte {at} is not, counted from 0", path.display())]
    NoText {
        /// The file, by the path that was given.
        path: PathBuf,
        /// Place of the first byte that is not, counted from 0.
        at: u64,
    },
    /// A line that no memory should hold.
    #[error("{}, line {line} has more than {LINE_BYTES_MAX} bytes: is it of JSON lines?", path.display())]
    LongLine {
        /// The file, by the path that was given.
        path: PathBuf,
        /// Counted from 1.
        line: u64,
    },
    /// Nothing is in it.
    #[error("{} is empty", .0.display())]
    Empty(PathBuf),
    /// What cannot be read from its end.
    #[error("{} is no file, as Parquet has to be: write it to one first", .0.display())]
    NoFile(PathBuf),
    /// No Parquet, or a part of one.
    #[error("{} is no whole Parquet file, perhaps it was cut off: {why}", path.display())]
    NoParquet {
        /// The file, by the path that was given.
        path: PathBuf,
        /// What the library says.
        why: String,
    },
    /// Compressed in a way that this program was not built with.
    #[error(
        "{} is compressed with {found}, which is not supported: write it again with Snappy, Zstandard, \
         gzip or nothing",
        path.display()
    )]
    Compression {
        /// The file, by the path that was given.
        path: PathBuf,
        /// Its name.
        found: String,
    },
    /// It was written to between the digest and the documents.
    #[error("{} was changed while it was read: begin again when nobody writes to it", .0.display())]
    Changed(PathBuf),
    /// No column of this name holds one text per row.
    #[error("{} has no column of texts named {column:?}: its columns are {known}", path.display())]
    NoColumn {
        /// The file, by the path that was given.
        path: PathBuf,
        /// Name of the column, as it was given.
        column: String,
        /// Their names and kinds.
        known: String,
    },
    /// Tokens of another width or tokenizer.
    #[error("{} holds no tokens of {width} bytes for this tokenizer: {why}", path.display())]
    WrongWidth {
        /// The file, by the path that was given.
        path: PathBuf,
        /// Bytes of a token, as given.
        width: usize,
        /// What shows it.
        why: String,
    },
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}: {}", self.path.display(), self.place, self.why)?;
        if self.excerpt.is_empty() {
            return Ok(());
        }
        write!(f, ": {:?}", self.excerpt)
    }
}

impl Record {
    /// A record that shows the begin of what it holds.
    pub(super) fn new(path: &Path, place: String, why: impl fmt::Display, bytes: &[u8]) -> Self {
        let begin = &bytes[..bytes.len().min(4 * EXCERPT_CHARS)];
        let excerpt = String::from_utf8_lossy(begin).chars().take(EXCERPT_CHARS).collect();
        Self { path: path.to_owned(), place, why: why.to_string(), excerpt }
    }
}

impl ReadError {
    /// What to make of the system's refusal to read this file.
    pub(in crate::data) fn unreadable(path: &Path) -> impl Fn(io::Error) -> Self {
        move |cause| Self::Unreadable { path: path.to_owned(), cause }
    }
}

pub(in crate::data) fn open(path: &Path) -> Result<fs::File, ReadError> {
    fs::File::open(path).map_err(ReadError::unreadable(path))
}

/// So much is shown of a record that is no document.
const EXCERPT_CHARS: usize = 60;
/// Ten times the longest documents of the corpora in use.
pub(super) const LINE_BYTES_MAX: u64 = 1 << 26;
