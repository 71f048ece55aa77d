//! Reads documents from files: texts, JSON lines, Parquet, and tokens that another program made.
//!
//! A reader passes one part after the other to its caller and keeps none, so a file may be larger
//! than memory. A document is one string of JSON lines or of a Parquet column, or a whole text. A
//! long text comes in several parts, each cut after a line break.
//!
//! A record that is not a document (a line that is not JSON, an empty cell of a column) is passed
//! on as [`Record`], and the caller decides. A file that is damaged as a whole is an error.
//!
//! All formats but Parquet are read once, from begin to end, and may come from a pipe. Parquet is
//! read twice, all bytes before the column, and a file that changes meanwhile is refused.

mod bin;
mod jsonl;
mod parquet;
pub(super) mod sink;
mod text;

use std::path::Path;
use std::str::FromStr;

pub use self::sink::{ReadError, Record};

use self::sink::{ReadOptions, Sink, open};
use crate::config::Width;

/// The format of a file of documents.
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

impl Format {
    /// The format that a file's name indicates.
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
                Err(ReadError::Compressed(path.to_owned()))
            }
            _ => Err(ReadError::Format(path.to_owned())),
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

/// Checks that a file exists, is not empty and may be read, long before its turn comes.
///
/// # Errors
/// If one of these conditions does not hold.
pub(super) fn check(path: &Path, format: Format) -> Result<(), ReadError> {
    let about = path.metadata().map_err(ReadError::unreadable(path))?;
    match format {
        _ if about.is_file() && about.len() == 0 => Err(ReadError::Empty(path.to_owned())),
        _ if about.is_file() => open(path).map(drop),
        Format::Parquet => Err(ReadError::NoFile(path.to_owned())),
        // The contents of a pipe are known only when it is read.
        Format::Text | Format::JsonLines | Format::Tokens(_) => Ok(()),
    }
}

/// Passes everything in a file to `sink`, until that refuses.
///
/// # Errors
/// If the file cannot be read to its end, or the error of `sink`.
pub(super) fn read<S: Sink>(
    path: &Path,
    format: Format,
    options: ReadOptions<'_>,
    sink: &mut S,
) -> Result<(), S::Error> {
    check(path, format)?;
    match format {
        Format::Text => text::read(path, sink),
        Format::JsonLines => jsonl::read(path, options.field, sink),
        Format::Parquet => parquet::read(path, options.field, sink),
        Format::Tokens(width) => bin::read(path, width, options, sink),
    }
}

#[cfg(test)]
mod tests;
