//! Makes a token file from documents, for the command `data tokenize`.
//!
//! Files are read one after the other, Parquet twice and all others once. A few megabytes of
//! documents at a time are tokenized on all cores, and are written in the order in which they were
//! read, so the same files give the same bytes on every machine. [`Run`] receives what the readers
//! of `documents` find, and gives it to the [`Writer`] of the token file.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use thiserror::Error;

use super::documents::sink::{Found, Fragment, ReadOptions, Sink};
use super::documents::{self, Format, ReadError, Record};
use super::tokens::header::Header;
use super::tokens::writer::{WriteError, Writer};
use crate::config::Vocabulary;
use crate::tokenizer::{EncodeError, FileError, Tokenizer, Unknown};

/// The input, the output and the options of one token file.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// Files of documents, which are read in this order.
    pub inputs: &'a [PathBuf],
    /// The format of all files; `None` if the name of each indicates it.
    pub format: Option<Format>,
    /// Name of the JSON field or the Parquet column with the documents.
    pub field: &'a str,
    /// How to treat a record that is not a document, and a character without a token.
    pub damage: Damage,
    /// Path of the token file, which must not exist.
    pub out: &'a Path,
}

/// How to treat a record that is not a document, or a character without a token.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Damage {
    /// The record or character is left out and counted.
    Skip,
    /// The whole job fails, and there is no token file.
    Refuse,
}

/// The outcome of a job: the header, and everything that was left out.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The header of the token file that was made.
    pub header: Header,
    /// Empty documents, which were left out.
    pub empty: u64,
    /// Records that are not documents, which were left out.
    pub skipped: u64,
    /// The first few of the records that were left out.
    pub examples: Vec<Record>,
    /// The characters that the tokens do not represent.
    pub lost: Lost,
}

/// The characters of the texts that a tokenizer cannot represent.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Lost {
    /// The number of such characters, or of unknown tokens, if the tokenizer has one.
    pub count: u64,
    /// The most frequent of these characters; empty if the tokenizer has an unknown token.
    pub letters: Vec<char>,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { count, letters } = self;
        if letters.is_empty() {
            return write!(f, "{count} letters or words became the token for unknown text");
        }
        write!(f, "{count} letters have no token and are left out, such as {letters:?}")
    }
}

/// Why a job made no token file.
#[derive(Debug, Error)]
pub enum TokenizeError {
    /// A file of documents cannot be read to its end.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A record is not a document ([`Damage::Refuse`]).
    #[error("{0}")]
    Damaged(Record),
    /// The tokenizer cannot represent all characters ([`Damage::Refuse`]).
    #[error("the tokenizer does not suit these texts: {0}")]
    Lost(Lost),
    /// The tokenizer refuses a document.
    #[error("{path}: {why}")]
    Encode {
        /// The file that holds the document.
        path: PathBuf,
        /// Why the tokenizer refuses it.
        #[source]
        why: EncodeError,
    },
    /// The tokenizer has no token that begins documents.
    #[error("the tokenizer cannot be used: {0}")]
    Tokenizer(#[from] FileError),
    /// The token file cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// Every document was empty or skipped. Has the number of skipped records, if there are any, and the first.
    #[error("the given files contain no document{0}")]
    Nothing(String),
}

/// The format of a file by its name. A file that does not exist is reported as missing, whatever its name.
fn format_of(path: &Path) -> Result<Format, ReadError> {
    fs::metadata(path).map_err(ReadError::unreadable(path))?;
    Format::of(path)
}

/// Makes a token file with `tokenizer`, which was read from `file`. `progress` is called repeatedly
/// with the number of bytes of documents that are done.
///
/// # Errors
/// Any of [`TokenizeError`], after which there is no token file.
pub fn tokenize(
    job: Job<'_>,
    tokenizer: &Tokenizer,
    file: &crate::tokenizer::File,
    progress: &mut dyn FnMut(u64),
) -> Result<Report, TokenizeError> {
    let bos = tokenizer.bos().ok_or(FileError::NoBos)?;
    let tokens = tokenizer.tokens();
    let vocabulary = Vocabulary { scheme: file.scheme, digest: file.digest(), tokens, bos };
    let formats = job.inputs.iter().map(|path| job.format.map_or_else(|| format_of(path), Ok));
    let formats = formats.collect::<Result<Vec<_>, _>>()?;
    let writer = Writer::create(job.out, vocabulary)?;
    for (path, format) in job.inputs.iter().zip(&formats) {
        documents::check(path, *format)?;
    }
    let mut run = Run {
        tokenizer,
        bos,
        damage: job.damage,
        writer,
        path: job.out,
        source: blake3::Hasher::new(),
        waiting: Vec::new(),
        bytes: 0,
        done: 0,
        progress,
        left_out: LeftOut::default(),
    };
    for (path, format) in job.inputs.iter().zip(formats) {
        let options = ReadOptions { field: job.field, tokens, bos };
        run.path = path;
        documents::read(path, format, options, &mut run)?;
        run.write()?;
    }
    run.finish()
}

/// One job while it runs, from the first file to the last.
struct Run<'a> {
    /// Turns the texts into tokens, on all threads at once.
    tokenizer: &'a Tokenizer,
    /// The token that begins a document, which no text makes.
    bos: u32,
    /// Whether what is wrong is left out or ends the job.
    damage: Damage,
    /// The token file, which has its name only at the end.
    writer: Writer,
    /// The file of documents that is being read.
    path: &'a Path,
    /// The digest of all bytes that have been read.
    source: blake3::Hasher,
    /// Parts that were read but not yet written, and whether each begins a document.
    waiting: Vec<(bool, Fragment)>,
    /// Bytes of text and tokens in `waiting`.
    bytes: usize,
    /// Bytes of text and tokens that were written.
    done: u64,
    /// Hears how many bytes are done.
    progress: &'a mut dyn FnMut(u64),
    /// What has been left out so far.
    left_out: LeftOut,
}

/// What a report says about losses.
#[derive(Default)]
struct LeftOut {
    /// Documents without a character.
    empty: u64,
    /// Records that are no documents.
    skipped: u64,
    /// The first few of the skipped records.
    examples: Vec<Record>,
    /// The number of unknown tokens in the output.
    unknown: u64,
    /// The frequency of each character, counted only if the tokenizer may drop some.
    letters: BTreeMap<char, u64>,
}

impl Sink for Run<'_> {
    type Error = TokenizeError;

    fn bytes(&mut self, bytes: &[u8]) {
        self.source.update(bytes);
        (self.progress)(self.done);
    }

    fn found(&mut self, found: Found) -> Result<(), TokenizeError> {
        let (begins, part) = match found {
            Found::Begin(Fragment::Text(text)) if text.is_empty() => {
                self.left_out.empty += 1;
                return Ok(());
            }
            Found::Begin(part) => (true, part),
            Found::More(part) => (false, part),
            Found::Damaged(record) if self.damage == Damage::Refuse => {
                return Err(TokenizeError::Damaged(record));
            }
            Found::Damaged(record) => {
                self.left_out.skipped += 1;
                if self.left_out.examples.len() < EXAMPLES {
                    self.left_out.examples.push(record);
                }
                return Ok(());
            }
        };
        self.bytes += match &part {
            Fragment::Text(text) => {
                if self.tokenizer.unknown() == Unknown::Dropped {
                    text.chars().for_each(|letter| self.left_out.count(letter));
                }
                text.len()
            }
            Fragment::Tokens(tokens) => size_of_val(tokens.as_slice()),
        };
        self.waiting.push((begins, part));
        // Many short parts take memory by their number, too.
        let used = self.bytes + self.waiting.len() * ENTRY_BYTES;
        if used < WAITING_BYTES { Ok(()) } else { self.write() }
    }
}

impl Run<'_> {
    /// Tokenizes and writes the parts that are waiting.
    fn write(&mut self) -> Result<(), TokenizeError> {
        self.done += std::mem::take(&mut self.bytes) as u64;
        let waiting = std::mem::take(&mut self.waiting);
        let encode = |(begins, part)| encode(self.tokenizer, self.bos, begins, part);
        let all: Result<Vec<_>, _> = waiting.into_par_iter().map(encode).collect();
        for (begins, tokens, bytes) in
            all.map_err(|why| TokenizeError::Encode { path: self.path.to_owned(), why })?
        {
            if begins {
                self.writer.begin()?;
            }
            if let Unknown::Token(unknown) = self.tokenizer.unknown() {
                let found = tokens.iter().filter(|token| **token == unknown).count();
                self.left_out.unknown += found as u64;
            }
            self.writer.tokens(&tokens, bytes)?;
        }
        (self.progress)(self.done);
        Ok(())
    }

    /// Ends the token file, unless nothing is in it or too much was lost.
    fn finish(self) -> Result<Report, TokenizeError> {
        let lost = self.left_out.lost(self.tokenizer);
        let LeftOut { empty, skipped, examples, .. } = self.left_out;
        if self.writer.is_empty() {
            let first = examples
                .first()
                .map(|record| format!(": {skipped} records were skipped, the first: {record}"));
            return Err(TokenizeError::Nothing(first.unwrap_or_default()));
        }
        if lost.count > 0 && self.damage == Damage::Refuse {
            return Err(TokenizeError::Lost(lost));
        }
        let source = *self.source.finalize().as_bytes();
        Ok(Report { header: self.writer.finish(source)?, empty, skipped, examples, lost })
    }
}

impl LeftOut {
    /// Counts a character of the texts.
    fn count(&mut self, letter: char) {
        *self.letters.entry(letter).or_default() += 1;
    }

    /// The characters that the tokenizer cannot represent. A space between words is no loss:
    /// without a token of its own, it is restored with the next word.
    fn lost(&self, tokenizer: &Tokenizer) -> Lost {
        let dropped = |letter| letter != ' ' && tokenizer.drops(letter);
        let letters = self.letters.iter().filter(|(letter, _)| dropped(**letter));
        let mut letters: Vec<(char, u64)> =
            letters.map(|(letter, count)| (*letter, *count)).collect();
        letters.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let count = self.unknown + letters.iter().map(|(_, count)| count).sum::<u64>();
        letters.truncate(EXAMPLES);
        Lost { count, letters: letters.into_iter().map(|(letter, _)| letter).collect() }
    }
}

/// Tokens of a part, and the bytes of text that they represent. Text that spells the token which
/// begins documents does not begin one.
fn encode(
    tokenizer: &Tokenizer,
    bos: u32,
    begins: bool,
    part: Fragment,
) -> Result<(bool, Vec<u32>, u64), EncodeError> {
    match part {
        Fragment::Text(text) => {
            let mut tokens = Vec::with_capacity(text.len() / 3);
            if begins {
                tokenizer.append(&text, &mut tokens)?;
            } else {
                tokenizer.append_on(&text, &mut tokens)?;
            }
            tokens.retain(|token| *token != bos);
            Ok((begins, tokens, text.len() as u64))
        }
        Fragment::Tokens(tokens) => {
            // The cast is exact, since tokens are below 2^20.
            let ids: Vec<_> = tokens.iter().map(|token| *token as i32).collect();
            let bytes = tokenizer.text_bytes(&ids).unwrap_or_default();
            Ok((begins, tokens, bytes as u64))
        }
    }
}

/// The most bytes of documents that wait: enough for all cores, little compared with a tokenizer.
const WAITING_BYTES: usize = 1 << 23;
/// Memory of a part besides its text or tokens, including the allocator's overhead.
const ENTRY_BYTES: usize = size_of::<(bool, Fragment)>() + 32;
/// The number of left-out records, and of lost characters, that are reported.
const EXAMPLES: usize = 5;

#[cfg(test)]
mod tests;
