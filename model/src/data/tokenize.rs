//! From documents to a token file: what `data tokenize` does.
//!
//! Files are read one after the other, Parquet twice and all else once; a few megabytes of
//! documents at a time become tokens on all cores, and are written in the order in which they were
//! read: the same files give the same bytes, whatever the machine.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use thiserror::Error;

use super::documents::sink::{Found, Fragment, ReadOptions, Sink};
use super::documents::{self, Format, ReadError, Record};
use super::tokens::header::Header;
use super::tokens::writer::{WriteError, Writer};
use crate::config::Vocabulary;
use crate::tokenizer::{EncodeError, FileError, Tokenizer, Unknown};

/// Which files of documents become which token file, and how.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// Files of documents, in this order.
    pub inputs: &'a [PathBuf],
    /// Their format; where it is none, the name of each file says it.
    pub format: Option<Format>,
    /// Name of the JSON field or of the Parquet column.
    pub field: &'a str,
    /// What to do about a record that is no document, and a letter without a token.
    pub damage: Damage,
    /// The token file.
    pub out: &'a Path,
}

/// What to do about a record that is no document, or a letter without a token.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Damage {
    /// Leave it out, and count it.
    Skip,
    /// Refuse the whole.
    Refuse,
}

/// What became of the documents.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The header of the token file that was made.
    pub header: Header,
    /// Documents without a letter, which were left out.
    pub empty: u64,
    /// Records that were left out.
    pub skipped: u64,
    /// The first few of the records that were left out.
    pub examples: Vec<Record>,
    /// What of the texts is not in the tokens.
    pub lost: Lost,
}

/// What a tokenizer does not know of the texts.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Lost {
    /// Letters, or, where a token stands for the unknown, such tokens.
    pub count: u64,
    /// The most frequent letters of them, where they are known.
    pub letters: Vec<char>,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { count, letters } = self;
        if letters.is_empty() {
            return write!(f, "{count} letters or words became the token of what is unknown");
        }
        write!(f, "{count} letters have no token and are not there; such as {letters:?}")
    }
}

/// Why there is no token file.
#[derive(Debug, Error)]
pub enum TokenizeError {
    /// A file cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A record is no document, and was to be refused.
    #[error("{0}")]
    Damaged(Record),
    /// The tokenizer does not know all of the texts, and that was to be refused.
    #[error("the tokenizer is not for these texts: {0}")]
    Lost(Lost),
    /// The tokenizer has no tokens for a document.
    #[error("{}: {why}", path.display())]
    Encode {
        /// Path of the file that is read.
        path: PathBuf,
        /// What is wrong.
        #[source]
        why: EncodeError,
    },
    /// The tokenizer cannot be used for documents.
    #[error("the tokenizer cannot be used: {0}")]
    Tokenizer(#[from] FileError),
    /// The file cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// Every document was empty or skipped.
    #[error("there is no document in what was given{skipped}")]
    Nothing {
        /// How many were skipped, if some were, and the first of them.
        skipped: String,
    },
}

/// Makes a token file with `tokenizer`, which was read from `file`. Now and then `tell` is given
/// how many bytes of documents are done.
///
/// # Errors
/// Any of [`TokenizeError`]; there is no file then.
pub fn tokenize(
    job: Job<'_>,
    tokenizer: &Tokenizer,
    file: &crate::tokenizer::File,
    tell: &mut dyn FnMut(u64),
) -> Result<Report, TokenizeError> {
    let bos = tokenizer.bos().ok_or(FileError::NoBos)?;
    let tokens = tokenizer.tokens();
    let vocabulary = Vocabulary { scheme: file.scheme, digest: file.digest(), tokens, bos };
    let formats = job.inputs.iter().map(|path| job.format.map_or_else(|| Format::of(path), Ok));
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
        tell,
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

/// A file that is being made.
struct Run<'a> {
    tokenizer: &'a Tokenizer,
    bos: u32,
    damage: Damage,
    writer: Writer,
    /// The file that is read now.
    path: &'a Path,
    /// The digest of all that has been read.
    source: blake3::Hasher,
    /// What was read and not yet written, and whether it begins a document.
    waiting: Vec<(bool, Fragment)>,
    /// Bytes of text and tokens that wait.
    bytes: usize,
    /// Bytes of text and tokens that were written.
    done: u64,
    /// Is told of them.
    tell: &'a mut dyn FnMut(u64),
    left_out: LeftOut,
}

#[derive(Default)]
struct LeftOut {
    empty: u64,
    skipped: u64,
    examples: Vec<Record>,
    /// Tokens that stand for the unknown.
    unknown: u64,
    /// How often each letter was there; counted where some are dropped.
    letters: BTreeMap<char, u64>,
}

impl Sink for Run<'_> {
    type Error = TokenizeError;

    fn bytes(&mut self, bytes: &[u8]) {
        self.source.update(bytes);
        (self.tell)(self.done);
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
        let held = self.bytes + self.waiting.len() * ENTRY_BYTES;
        if held < WAITING_BYTES { Ok(()) } else { self.write() }
    }
}

impl Run<'_> {
    /// Turns what waits into tokens, and writes them.
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
        (self.tell)(self.done);
        Ok(())
    }

    fn finish(self) -> Result<Report, TokenizeError> {
        let lost = self.left_out.lost(self.tokenizer);
        let LeftOut { empty, skipped, examples, .. } = self.left_out;
        if self.writer.is_empty() {
            let first = examples
                .first()
                .map(|record| format!(": {skipped} records were skipped, the first: {record}"));
            return Err(TokenizeError::Nothing { skipped: first.unwrap_or_default() });
        }
        if lost.count > 0 && self.damage == Damage::Refuse {
            return Err(TokenizeError::Lost(lost));
        }
        let source = *self.source.finalize().as_bytes();
        Ok(Report { header: self.writer.finish(source)?, empty, skipped, examples, lost })
    }
}

impl LeftOut {
    fn count(&mut self, letter: char) {
        *self.letters.entry(letter).or_default() += 1;
    }

    /// What the tokenizer does not know. A space between words is no loss: where it has no token,
    /// it comes back with the next word.
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

/// Tokens of a part, and how many bytes of text they stand for. A text that spells the begin of a
/// document begins none.
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
            // Below 2^20.
            let ids: Vec<_> = tokens.iter().map(|token| *token as i32).collect();
            let bytes = tokenizer.text_bytes(&ids).unwrap_or_default();
            Ok((begins, tokens, bytes as u64))
        }
    }
}

/// So many bytes of documents wait at most: enough for all cores, little beside a tokenizer.
const WAITING_BYTES: usize = 1 << 23;
/// What a part takes beside its text or tokens, with what the allocator adds to a small one.
const ENTRY_BYTES: usize = size_of::<(bool, Fragment)>() + 32;
/// So many records that were left out are told.
const EXAMPLES: usize = 5;

#[cfg(test)]
mod tests;
