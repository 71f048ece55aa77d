//! Reads the files of a task: a short text, or JSON lines of bounded length.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

use serde_json::Value as Json;
use thiserror::Error;

use super::item::ItemError;
use super::{TaskError, template::excerpt};

/// Why a file of a task cannot be read.
#[derive(Debug, Error)]
pub enum DocsError {
    /// The operating system refuses to read it.
    #[error("cannot read {path}: {cause}")]
    Unreadable {
        /// The file, by the path that was given.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        cause: io::Error,
    },
    /// The file of a task is far too long for one.
    #[error(
        "{} is no task: it has more than {} KiB; the documents stand in a file of their own, which test_file names",
        .0.display(), TASK_BYTES_MAX >> 10
    )]
    LongTask(PathBuf),
    /// A task's file or a line is not UTF-8.
    #[error("{path}, line {line}: it is not UTF-8: convert the file, as with `iconv -t UTF-8`")]
    NotText {
        /// The file, by the path that was given.
        path: PathBuf,
        /// Number of the line, counted from 1.
        line: usize,
    },
    /// A line is too long to be read into memory.
    #[error(
        "{path}, line {line} has more than {} MiB: are these JSON lines, one document on each?",
        LINE_BYTES_MAX >> 20
    )]
    LongLine {
        /// The file, by the path that was given.
        path: PathBuf,
        /// Number of the line, counted from 1.
        line: usize,
    },
    /// The file is too long to be read into memory.
    #[error(
        "{} has more than {} MiB or {LINES_MAX} documents: measure on a part of it, as with `head -n 10000`",
        .0.display(), FILE_BYTES_MAX >> 20
    )]
    TooLong(PathBuf),
    /// A line is not an object of JSON.
    #[error("{path}, line {line}, {excerpt}: it is not an object of JSON ({why})")]
    Json {
        /// The file, by the path that was given.
        path: PathBuf,
        /// Number of the line, counted from 1.
        line: usize,
        /// The first characters of the line.
        excerpt: String,
        /// What the parser of JSON says.
        why: String,
    },
    /// No line of the file has a document.
    #[error("{0} has no document: write one JSON object on each line")]
    Empty(PathBuf),
}

/// The documents of a file of JSON lines.
#[derive(Debug)]
pub struct Docs {
    /// The file, by the path that was given.
    pub path: PathBuf,
    /// Its lines that are not blank.
    pub lines: Vec<Line>,
}

/// A document, and where it stands.
#[derive(Debug)]
pub struct Line {
    /// Number of the line, counted from 1.
    pub number: usize,
    /// What the line holds: an object.
    pub doc: Json,
}

impl Docs {
    /// Reads the documents of a file of JSON lines.
    ///
    /// # Errors
    /// Any of [`DocsError`].
    pub fn read(path: &Path) -> Result<Self, DocsError> {
        let mut reader = BufReader::new(open(path)?.take(FILE_BYTES_MAX + 1));
        let (mut lines, mut number, mut all) = (Vec::new(), 0, 0);
        loop {
            let mut line = Vec::new();
            let mut bounded = (&mut reader).take(LINE_BYTES_MAX + 1);
            let read = bounded.read_until(b'\n', &mut line).map_err(unreadable(path))?;
            if read == 0 {
                break;
            }
            (number, all) = (number + 1, all + read as u64);
            if read as u64 > LINE_BYTES_MAX {
                return Err(DocsError::LongLine { path: path.to_owned(), line: number });
            }
            if all > FILE_BYTES_MAX || lines.len() >= LINES_MAX {
                return Err(DocsError::TooLong(path.to_owned()));
            }
            if let Some(doc) = document(path, number, &line)? {
                lines.push(Line { number, doc });
            }
        }
        if lines.is_empty() {
            return Err(DocsError::Empty(path.to_owned()));
        }
        Ok(Self { path: path.to_owned(), lines })
    }

    /// Makes something of each document.
    ///
    /// # Errors
    /// The first one of which nothing can be made, with its line.
    pub(super) fn each<T>(
        &self,
        make: impl Fn(&Json) -> Result<T, ItemError>,
    ) -> Result<Vec<T>, TaskError> {
        let made = self.lines.iter().map(|line| {
            let wrong = |why| TaskError::Item { path: self.path.clone(), line: line.number, why };
            make(&line.doc).map_err(wrong)
        });
        made.collect()
    }
}

/// The document on a line; `None` if the line is blank.
///
/// # Errors
/// [`DocsError::NotText`], [`DocsError::Json`]
pub fn document(path: &Path, number: usize, line: &[u8]) -> Result<Option<Json>, DocsError> {
    let not_text = |_| DocsError::NotText { path: path.to_owned(), line: number };
    let text = str::from_utf8(line).map_err(not_text)?.trim();
    if text.is_empty() {
        return Ok(None);
    }
    let wrong = |why: String| {
        let (path, excerpt) = (path.to_owned(), excerpt(text));
        DocsError::Json { path, line: number, excerpt, why }
    };
    let doc: Json = serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
    if doc.is_object() { Ok(Some(doc)) } else { Err(wrong("write {…} around it".to_owned())) }
}

/// The text of a task's file, which is short.
pub(super) fn text(path: &Path) -> Result<String, DocsError> {
    let mut bytes = Vec::new();
    let mut file = open(path)?.take(TASK_BYTES_MAX + 1);
    file.read_to_end(&mut bytes).map_err(unreadable(path))?;
    if bytes.len() as u64 > TASK_BYTES_MAX {
        return Err(DocsError::LongTask(path.to_owned()));
    }
    String::from_utf8(bytes).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        DocsError::NotText { path: path.to_owned(), line }
    })
}

/// Opens a file, with its path in the error.
fn open(path: &Path) -> Result<File, DocsError> {
    File::open(path).map_err(unreadable(path))
}

/// The error of a file that the system does not read.
fn unreadable(path: &Path) -> impl Fn(io::Error) -> DocsError {
    move |cause| DocsError::Unreadable { path: path.to_owned(), cause }
}

/// Longer than any task's file.
const TASK_BYTES_MAX: u64 = 1 << 16;
/// Longer than any document that is read at once.
const LINE_BYTES_MAX: u64 = 1 << 24;
/// The most bytes of a file of documents, which are all in memory: a guess.
const FILE_BYTES_MAX: u64 = 1 << 29;
/// The most documents of a file.
const LINES_MAX: usize = 1_000_000;
