//! Documents as they lie in files: texts, JSON lines, Parquet, tokens that somebody made elsewhere.
//!
//! A reader hands one part after the other to its caller and keeps none, so a file may be larger
//! than memory. A document is one string of JSON lines or of a Parquet column, or a whole text; a
//! long text comes in several parts, each cut behind a line break.
//!
//! A record that is no document (a line that is no JSON, an empty place of a column) is handed over
//! as [`Record`], and the caller decides; a file that is damaged as a whole is an error.
//!
//! All but Parquet is read once, from begin to end, and may be a pipe. Of Parquet all bytes are read before
//! its column is, and a file that is changed meanwhile is refused.

mod bin;
mod jsonl;
mod parquet;
mod text;

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use thiserror::Error;

use super::tokens::header::Width;

/// How documents lie in a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Format {
    /// The whole file is one document of UTF-8.
    Text,
    /// A JSON object per line, one of whose fields is a document.
    JsonLines,
    /// A table, one of whose columns holds documents.
    Parquet,
    /// Nothing but tokens of this width, little endian.
    Tokens(Width),
}

/// Takes what is in a file.
pub(super) trait Sink {
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
pub(super) enum Found {
    /// The begin of a document, or all of it.
    Begin(Part),
    /// What follows of the same document.
    More(Part),
    /// A record that is no document.
    Damaged(Record),
}

/// A piece of a document.
#[derive(Debug)]
pub(super) enum Part {
    /// To be turned into tokens.
    Text(String),
    /// Tokens already.
    Tokens(Vec<u32>),
}

/// What a reader needs to know beside the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape<'a> {
    /// Name of the JSON field or of the column.
    pub(super) field: &'a str,
    /// How many different tokens there are, and which begins a document.
    pub(super) tokens: usize,
    /// The token that begins a document.
    pub(super) bos: u32,
}

/// A record that is no document.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Record {
    /// The file.
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
        /// As given.
        path: PathBuf,
        /// What the system says.
        #[source]
        cause: io::Error,
    },
    /// A name that does not tell the format.
    #[error(
        "what kind of file is {}? Its name ends in none of .txt, .md, .jsonl, .ndjson, .json, .parquet: say \
         with --format text, jsonl, parquet, u16 or u32",
        path.display()
    )]
    Format {
        /// As given.
        path: PathBuf,
    },
    /// A name that says that it was packed.
    #[error(
        "{} is compressed: unpack it first, or pass it on, as in `zcat a.jsonl.gz | intellect-node data \
         tokenize /dev/stdin --format jsonl --out a.tokens`",
        path.display()
    )]
    Compressed {
        /// As given.
        path: PathBuf,
    },
    /// A text that is no UTF-8.
    #[error("{} is no text of UTF-8: byte {at} is not, counted from 0", path.display())]
    NoText {
        /// As given.
        path: PathBuf,
        /// Where.
        at: u64,
    },
    /// A line that no memory should hold.
    #[error("{}, line {line} has more than {LINE_BYTES_MAX} bytes: is it of JSON lines?", path.display())]
    LongLine {
        /// As given.
        path: PathBuf,
        /// Counted from 1.
        line: u64,
    },
    /// Nothing is in it.
    #[error("{} is empty", path.display())]
    Empty {
        /// As given.
        path: PathBuf,
    },
    /// What cannot be read from its end.
    #[error("{} is no file, as Parquet has to be: write it to one first", path.display())]
    NoFile {
        /// As given.
        path: PathBuf,
    },
    /// No Parquet, or a part of one.
    #[error("{} is no whole Parquet file, perhaps it was cut off: {why}", path.display())]
    NoParquet {
        /// As given.
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
        /// As given.
        path: PathBuf,
        /// Its name.
        found: String,
    },
    /// It was written to between the digest and the documents.
    #[error("{} was changed while it was read: begin again when nobody writes to it", path.display())]
    Changed {
        /// As given.
        path: PathBuf,
    },
    /// No column of this name holds one text per row.
    #[error("{} has no column of texts named {column:?}: its columns are {known}", path.display())]
    NoColumn {
        /// As given.
        path: PathBuf,
        /// As given.
        column: String,
        /// Their names and kinds.
        known: String,
    },
    /// Tokens of another width or tokenizer.
    #[error("{} holds no tokens of {width} bytes for this tokenizer: {why}", path.display())]
    WrongWidth {
        /// As given.
        path: PathBuf,
        /// Bytes of a token, as given.
        width: usize,
        /// What shows it.
        why: String,
    },
}

impl Format {
    /// What a file's name says.
    ///
    /// # Errors
    /// [`ReadError::Format`], [`ReadError::Compressed`]
    pub fn of(path: &Path) -> Result<Self, ReadError> {
        let extension = path.extension().and_then(|extension| extension.to_str());
        match extension.map(str::to_ascii_lowercase).as_deref() {
            Some("txt" | "md" | "text") => Ok(Self::Text),
            Some("jsonl" | "ndjson" | "json") => Ok(Self::JsonLines),
            Some("parquet") => Ok(Self::Parquet),
            Some("gz" | "zst" | "xz" | "bz2" | "zip") => {
                Err(ReadError::Compressed { path: path.to_owned() })
            }
            _ => Err(ReadError::Format { path: path.to_owned() }),
        }
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(given: &str) -> Result<Self, String> {
        match given {
            "text" => Ok(Self::Text),
            "jsonl" => Ok(Self::JsonLines),
            "parquet" => Ok(Self::Parquet),
            "u16" => Ok(Self::Tokens(Width::Two)),
            "u32" => Ok(Self::Tokens(Width::Four)),
            _ => Err(format!("unknown format \"{given}\": choose text, jsonl, parquet, u16, u32")),
        }
    }
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
    /// With the begin of what the record holds.
    fn new(path: &Path, place: String, why: impl fmt::Display, bytes: &[u8]) -> Self {
        let begin = &bytes[..bytes.len().min(4 * EXCERPT_CHARS)];
        let excerpt = String::from_utf8_lossy(begin).chars().take(EXCERPT_CHARS).collect();
        Self { path: path.to_owned(), place, why: why.to_string(), excerpt }
    }
}

/// Sees that a file is there, has something in it, and may be read, long before its turn comes.
///
/// # Errors
/// If not so.
pub(super) fn check(path: &Path, format: Format) -> Result<(), ReadError> {
    let about = path.metadata().map_err(|cause| unreadable(path, cause))?;
    match format {
        _ if about.is_file() && about.len() == 0 => Err(ReadError::Empty { path: path.to_owned() }),
        _ if about.is_file() => open(path).map(drop),
        Format::Parquet => Err(ReadError::NoFile { path: path.to_owned() }),
        // What is in a pipe is there when it is read.
        Format::Text | Format::JsonLines | Format::Tokens(_) => Ok(()),
    }
}

/// Hands everything in a file to `sink`, until it takes no more.
///
/// # Errors
/// If the file cannot be read to its end, or what `sink` says.
pub(super) fn read<S: Sink>(
    path: &Path,
    format: Format,
    shape: Shape<'_>,
    sink: &mut S,
) -> Result<(), S::Error> {
    check(path, format)?;
    match format {
        Format::Text => text::read(path, sink),
        Format::JsonLines => jsonl::read(path, shape.field, sink),
        Format::Parquet => parquet::read(path, shape.field, sink),
        Format::Tokens(width) => bin::read(path, width, shape, sink),
    }
}

fn open(path: &Path) -> Result<fs::File, ReadError> {
    fs::File::open(path).map_err(|cause| unreadable(path, cause))
}

fn unreadable(path: &Path, cause: io::Error) -> ReadError {
    ReadError::Unreadable { path: path.to_owned(), cause }
}

/// Of a record that is no document this much is shown.
const EXCERPT_CHARS: usize = 60;
/// Ten times the longest documents of the corpora in use.
const LINE_BYTES_MAX: u64 = 1 << 26;

#[cfg(test)]
mod tests;
