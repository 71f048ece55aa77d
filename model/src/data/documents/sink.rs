//! What readers find in files of documents, the trait that receives it, and errors of reading.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Receives the contents of a file.
pub(in crate::data) trait Sink {
    /// Why the sink refuses to continue.
    type Error: From<ReadError>;

    /// The raw bytes of the file, all of them and in order.
    fn bytes(&mut self, bytes: &[u8]);

    /// The next thing that was found in these bytes.
    ///
    /// # Errors
    /// If the sink refuses to continue.
    fn found(&mut self, found: Found) -> Result<(), Self::Error>;
}

/// One thing that a reader finds.
#[derive(Debug)]
pub(in crate::data) enum Found {
    /// The beginning of a document, or the whole document.
    Begin(Fragment),
    /// The next part of the same document.
    More(Fragment),
    /// A record that is not a document.
    Damaged(Record),
}

/// A part of a document, in the form in which its file has it.
#[derive(Debug)]
pub(in crate::data) enum Fragment {
    /// Text that is still to be tokenized.
    Text(String),
    /// Tokens, which need no tokenizer.
    Tokens(Vec<u32>),
}

/// What a reader needs to know apart from the file and its format.
#[derive(Clone, Copy, Debug)]
pub(in crate::data) struct ReadOptions<'a> {
    /// Name of the JSON field or the Parquet column with the documents.
    pub(in crate::data) field: &'a str,
    /// How many different tokens the tokenizer has.
    pub(in crate::data) tokens: usize,
    /// The token that begins a document.
    pub(in crate::data) bos: u32,
}

/// A record of a file that is not a document.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Record {
    /// Path of the file that holds it.
    pub path: PathBuf,
    /// Its kind and number, counted from 1: "line 3".
    pub place: String,
    /// The reason why it is not a document.
    pub why: String,
    /// The first characters of the record; empty where nothing can be shown.
    pub excerpt: String,
}

/// Why a file cannot be read to its end.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The operating system refuses to open or read the file.
    #[error("cannot read {path}: {cause}")]
    Unreadable {
        /// The file, by the path that was given.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        cause: io::Error,
    },
    /// The name of the file does not indicate its format, and none was given.
    #[error(
        "what kind of file is {0}? Its name ends in none of .txt, .md, .jsonl, .ndjson, .json, .parquet: say \
         with --format text, jsonl, parquet, u16 or u32"
    )]
    Format(PathBuf),
    /// The name of the file says that it is compressed.
    #[error(
        "{0} is compressed: unpack it first, or pass it on, as in `zcat a.jsonl.gz | intellect-node data \
         tokenize /dev/stdin --format jsonl --out a.tokens`"
    )]
    Compressed(PathBuf),
    /// A text file contains bytes that are not UTF-8.
    #[error("{path} is not UTF-8 text: byte {at} is not, counted from 0")]
    NoText {
        /// The file, by the path that was given.
        path: PathBuf,
        /// Offset of the first wrong byte, counted from 0.
        at: u64,
    },
    /// A line is too long to be read into memory.
    #[error("{path}, line {line} has more than {LINE_BYTES_MAX} bytes: is it of JSON lines?")]
    LongLine {
        /// The file, by the path that was given.
        path: PathBuf,
        /// Number of the line, counted from 1.
        line: u64,
    },
    /// The file has no bytes, which is most likely a mistake.
    #[error("{0} is empty")]
    Empty(PathBuf),
    /// A pipe was given for Parquet, which is read from its end.
    #[error("{0} is not a regular file, which Parquet needs: write it to one first")]
    NoFile(PathBuf),
    /// The file is not Parquet, or only a part of one.
    #[error("{path} is not a complete Parquet file, perhaps it was cut off: {why}")]
    NoParquet {
        /// The file, by the path that was given.
        path: PathBuf,
        /// The error of the Parquet library.
        why: String,
    },
    /// A column is compressed in a way that this program does not support.
    #[error(
        "{path} is compressed with {found}, which is not supported: write it again with Snappy, Zstandard, \
         gzip or nothing"
    )]
    Compression {
        /// The file, by the path that was given.
        path: PathBuf,
        /// Name of the compression in Parquet.
        found: String,
    },
    /// The file was written to between the computation of its digest and the reading of documents.
    #[error("{0} was changed while it was read: begin again when nobody writes to it")]
    Changed(PathBuf),
    /// No column of this name has one text per row.
    #[error("{path} has no column of texts named {column:?}: its columns are {known}")]
    NoColumn {
        /// The file, by the path that was given.
        path: PathBuf,
        /// Name of the column, as it was given.
        column: String,
        /// Names and types of the columns that exist.
        known: String,
    },
    /// The numbers have another width, or belong to another tokenizer.
    #[error("{path} holds no tokens of {width} bytes for this tokenizer: {why}")]
    WrongWidth {
        /// The file, by the path that was given.
        path: PathBuf,
        /// Bytes of a token, as it was given.
        width: usize,
        /// The observation that proves it.
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
    /// A record whose excerpt is taken from the start of `bytes`.
    pub(super) fn new(path: &Path, place: String, why: impl fmt::Display, bytes: &[u8]) -> Self {
        let begin = &bytes[..bytes.len().min(4 * EXCERPT_CHARS)];
        let excerpt = String::from_utf8_lossy(begin).chars().take(EXCERPT_CHARS).collect();
        Self { path: path.to_owned(), place, why: why.to_string(), excerpt }
    }
}

impl ReadError {
    /// Converts the operating system's refusal to read this file.
    pub(in crate::data) fn unreadable(path: &Path) -> impl Fn(io::Error) -> Self {
        move |cause| Self::Unreadable { path: path.to_owned(), cause }
    }
}

/// Opens a file for reading; the error names it.
pub(in crate::data) fn open(path: &Path) -> Result<fs::File, ReadError> {
    fs::File::open(path).map_err(ReadError::unreadable(path))
}

/// Characters of a damaged record that are shown.
const EXCERPT_CHARS: usize = 60;
/// Ten times the longest documents of common corpora.
pub(super) const LINE_BYTES_MAX: u64 = 1 << 26;
