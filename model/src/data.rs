//! Where tokens come from: any batch of any peer as a pure function of (stream, step, row).
//!
//! A peer's stream has a seed of 32 bytes that others derive from (run, epoch, peer), and says what
//! the run had committed when the epoch began; this file turns it into batches. Row i of step s depends on (seed, s, i) alone: no cursor, no shuffle buffer,
//! nothing to save, and micro-batches of any size hold the same rows. One row has `context` tokens
//! and for each the token that follows it.
//!
//! Some of the source is *held out*: a fixed set of rows, the same for every peer, that no stream
//! contains. A [`Source`] also knows the entropies that its losses are to be compared with, those of
//! the best predictors that look at no token and at one, and, where it is known, the entropy rate,
//! below which nobody can get.
//!
//! Who gets which stream and what is done with a batch is decided elsewhere.

pub mod documents;
pub(crate) mod draw;
mod entropy;
pub mod files;
mod mix;
mod split;
mod steady;
mod synthetic;
pub mod text;
pub mod tokenize;
pub mod tokens;

use std::io;
use std::ops::Range;
use std::path::PathBuf;

use thiserror::Error;

use crate::config::{self, Vocabulary, Work};
use documents::ReadError;
use draw::Draw;
use mix::{Mix, Shape};
use split::{Split, TooSmall};
use synthetic::Markov;
use text::Text;
use tokens::Tokens;
use tokens::header::HeaderError;

/// An open source of tokens.
#[derive(Debug)]
pub struct Source {
    kind: Kind,
    context: usize,
}

/// Where a peer's rows of one epoch are drawn from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Stream {
    /// Another one for every (run, epoch, peer).
    pub seed: [u8; 32],
    /// Tokens that the run had committed when the epoch began.
    pub committed: u64,
}

/// Rows of tokens, one after the other. [B, T]
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// Tokens that the model reads, `sequences` times `context`.
    pub inputs: Vec<i32>,
    /// For each input the token that follows it.
    pub targets: Vec<i32>,
    /// For each input the number of its document, where rows hold several: it changes where
    /// another one begins. Empty where every row is one document.
    pub documents: Vec<i32>,
    /// B, the number of rows.
    pub sequences: usize,
    /// T, tokens in a row.
    pub context: usize,
}

/// What a loss is to be compared with, in nats per token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entropies {
    /// Of a predictor that knows only how many different tokens there are.
    pub uniform: f64,
    /// Of the best predictor that looks at no token, but, in a mix, knows the file.
    pub unigram: f64,
    /// Of the best predictor that looks at the last token; not counted of many different tokens.
    pub bigram: Option<f64>,
    /// The entropy rate H*, which no predictor beats; known of a synthetic source only.
    pub floor: Option<f64>,
}

/// Why a source cannot be opened or read; whoever runs this peer must act.
#[derive(Debug, Error)]
pub enum DataError {
    /// The run needs a file and none was given.
    #[error(
        "this run trains on a {kind} file of {bytes} bytes with BLAKE3 {digest}{hint}: \
         name it with --data FILE"
    )]
    NoFile {
        /// What is in it.
        kind: &'static str,
        /// Length of the file.
        bytes: u64,
        /// Its digest in hex.
        digest: String,
        /// What else is known of it.
        hint: files::Hint,
    },
    /// A file was given and the run needs none.
    #[error("this run's data is synthetic: leave --data {} out", path.display())]
    NeedlessFile {
        /// As given.
        path: PathBuf,
    },
    /// The system refuses.
    #[error("cannot read {}: {cause}", path.display())]
    Unreadable {
        /// As given.
        path: PathBuf,
        /// What the system says.
        #[source]
        cause: io::Error,
    },
    /// A new run is to train on it, and it is no text.
    #[error(transparent)]
    Document(#[from] ReadError),
    /// Its documents lie in records.
    #[error(
        "{} holds records and is no plain text: make a token file of it first, with `intellect-node data \
         tokenize {} --out {}`",
        path.display(), path.display(), path.with_extension("tokens").display()
    )]
    NotPlain {
        /// As given.
        path: PathBuf,
    },
    /// Somebody wrote to it.
    #[error(
        "{} was changed after it had been opened and checked: put the run's file back, and start again",
        path.display()
    )]
    Changed {
        /// As given.
        path: PathBuf,
    },
    /// It is another file than the run's.
    #[error(
        "{} is not this run's file: it has {found_bytes} bytes and BLAKE3 {found}, \
         the run's has {bytes} bytes and BLAKE3 {digest}",
        path.display()
    )]
    AnotherFile {
        /// As given.
        path: PathBuf,
        /// Its length.
        found_bytes: u64,
        /// Its digest in hex.
        found: String,
        /// Length of the run's file.
        bytes: u64,
        /// Its digest in hex.
        digest: String,
    },
    /// One part of the file holds no row.
    #[error(
        "{} is too small: its {part} part has {size} {unit}, one row needs {needed}; \
         take a longer file, a shorter model.context or another data.held_out",
        path.display()
    )]
    TooSmall {
        /// As given.
        path: PathBuf,
        /// Which part.
        part: &'static str,
        /// Its length.
        size: u64,
        /// What it is counted in.
        unit: &'static str,
        /// What one row takes.
        needed: u64,
    },
    /// It is no token file, or a part of one.
    #[error("{}: {why}", path.display())]
    NoTokens {
        /// As given.
        path: PathBuf,
        /// What is wrong.
        #[source]
        why: HeaderError,
    },
    /// A number in a token file that its tokenizer does not have.
    #[error("{} is damaged: token {at} is {token}, and its tokenizer has {tokens}", path.display())]
    NoToken {
        /// As given.
        path: PathBuf,
        /// Where, counted from 0.
        at: u64,
        /// What is there.
        token: u32,
        /// How many different ones there are.
        tokens: usize,
    },
    /// The organiser's manifest says another thing than the file that it names.
    #[error(
        "the manifest names another tokenizer than {} was made with: its organiser must change \
         data.tokenizer, tokenizer_digest, tokens or bos",
        path.display()
    )]
    AnotherVocabulary {
        /// As given.
        path: PathBuf,
    },
    /// A folder without a token file.
    #[error("there is no token file in {}: `intellect-node data tokenize` makes one", list(named))]
    NoTokenFile {
        /// As given.
        named: Vec<PathBuf>,
    },
    /// Files that cannot be mixed.
    #[error(
        "{} was made with another tokenizer than the files before it: mix files of one",
        path.display()
    )]
    Vocabularies {
        /// As given.
        path: PathBuf,
    },
    /// A file was named that is none of the run's.
    #[error(
        "{} is none of the {count} token files that this run mixes: it has {bytes} bytes, and \
         `manifest show` says which they are",
        path.display()
    )]
    NotOfMix {
        /// As given.
        path: PathBuf,
        /// How many files the run has.
        count: usize,
        /// Its length.
        bytes: u64,
    },
    /// Not all files of a mix were named.
    #[error(
        "this run mixes {count} token files and {missing} of them were not named, one with {bytes} \
         bytes and BLAKE3 {digest}{hint}: name each with --data, or the folder that holds them"
    )]
    MissingOfMix {
        /// How many files the run has.
        count: usize,
        /// How many are missing.
        missing: usize,
        /// Length of the first of them.
        bytes: u64,
        /// Its digest in hex.
        digest: String,
        /// What else is known of it.
        hint: files::Hint,
    },
    /// The manifest holds nothing out.
    #[error("nothing is held out to measure on: data.held_out is 0")]
    NothingHeldOut,
}

impl Source {
    /// Opens the source of `work` in the run with this seed; `named` are its files, where it needs
    /// some, or the folders that hold them.
    ///
    /// # Errors
    /// If a file is needed, needless, unreadable, another one than the run's, or too small.
    pub fn open(work: &Work, seed: u64, named: &[PathBuf]) -> Result<Self, DataError> {
        let (context, held_out) = (work.model.context, work.data.held_out);
        let hints = &work.data.hints;
        let shape = |vocabulary: &Vocabulary| Shape { vocabulary: *vocabulary, held_out, context };
        let kind = match &work.data.source {
            &config::Source::Synthetic { symbols, order } => match named.first() {
                None => Kind::Synthetic(Markov::new(seed, symbols, order)),
                Some(path) => return Err(DataError::NeedlessFile { path: path.clone() }),
            },
            &config::Source::Text { digest, bytes } => {
                let expected = text::File { digest, bytes };
                let path = files::one(named, "text", expected, hints)?;
                Kind::Text(Text::open(&path, expected, held_out, context)?)
            }
            config::Source::Tokens { digest, bytes, vocabulary } => {
                let expected = text::File { digest: *digest, bytes: *bytes };
                let path = files::one(named, "token", expected, hints)?;
                Kind::Tokens(Tokens::open(&path, expected, shape(vocabulary))?)
            }
            config::Source::Mix { vocabulary, parts, anneal_from } => {
                Kind::Mix(Mix::open(named, hints, parts, *anneal_from, shape(vocabulary))?)
            }
        };
        Ok(Self { kind, context })
    }

    /// These rows of one step of a stream.
    ///
    /// # Errors
    /// If the file can no longer be read.
    pub fn batch(
        &self,
        stream: &Stream,
        step: u64,
        rows: Range<usize>,
    ) -> Result<Batch, DataError> {
        let mut batch = Batch::empty(self.context);
        let length = self.context + 1;
        for row in rows {
            let mut draw = Draw::new(&stream.seed, step, row as u64);
            let tokens = match &self.kind {
                Kind::Synthetic(markov) => {
                    batch.push(&markov.walk(&mut draw, length));
                    continue;
                }
                Kind::Text(text) => {
                    batch.push(&text.read(text.split().anywhere(&mut draw, length), length)?);
                    continue;
                }
                Kind::Tokens(tokens) => tokens,
                Kind::Mix(mix) => mix.draw(&mut draw, stream.committed),
            };
            let start = tokens.split().anywhere(&mut draw, length);
            batch.push_packed(&tokens.read(start, length)?, tokens.bos());
        }
        Ok(batch)
    }

    /// These rows of the held-out set, which has `of` rows in all; a file spreads them evenly.
    ///
    /// # Errors
    /// If nothing is held out, or the file can no longer be read.
    pub fn held_out(&self, rows: Range<usize>, of: usize) -> Result<Batch, DataError> {
        let mut batch = Batch::empty(self.context);
        let length = self.context + 1;
        let start = |split: Split, row, of| {
            split.held_out(row, of, length).ok_or(DataError::NothingHeldOut)
        };
        for row in rows {
            let (row, of) = (row as u64, of as u64);
            let (tokens, row, of) = match &self.kind {
                Kind::Synthetic(markov) => {
                    batch.push(&markov.held_out(row, length));
                    continue;
                }
                Kind::Text(text) => {
                    batch.push(&text.read(start(text.split(), row, of)?, length)?);
                    continue;
                }
                Kind::Tokens(tokens) => (tokens, row, of),
                Kind::Mix(mix) => mix.held_out(row, of),
            };
            let start = start(tokens.split(), row, of)?;
            batch.push_packed(&tokens.read(start, length)?, tokens.bos());
        }
        Ok(batch)
    }

    /// What losses on this source are to be compared with.
    #[must_use]
    pub fn entropies(&self) -> Entropies {
        match &self.kind {
            Kind::Synthetic(markov) => markov.entropies(),
            Kind::Text(text) => text.entropies(),
            Kind::Tokens(tokens) => tokens.entropies(),
            Kind::Mix(mix) => mix.entropies(),
        }
    }

    /// The true probabilities of the token after `history`, where they are known: of a synthetic
    /// source with a history of at least its order.
    #[must_use]
    pub fn truth(&self, history: &[i32]) -> Option<Vec<f64>> {
        match &self.kind {
            Kind::Synthetic(markov) => markov.truth(history),
            Kind::Text(_) | Kind::Tokens(_) | Kind::Mix(_) => None,
        }
    }
}

impl Batch {
    fn empty(context: usize) -> Self {
        Self { context, ..Self::default() }
    }

    /// Appends a row of `context` + 1 tokens.
    fn push(&mut self, tokens: &[i32]) {
        assert_eq!(tokens.len(), self.context + 1, "a token to predict after each");
        self.inputs.extend_from_slice(&tokens[..self.context]);
        self.targets.extend_from_slice(&tokens[1..]);
        self.sequences += 1;
    }

    /// Appends a row of `context` + 1 tokens, in which `bos` begins each document.
    fn push_packed(&mut self, tokens: &[i32], bos: i32) {
        let mut document = 0;
        self.documents.extend(tokens[..self.context].iter().map(|token| {
            document += i32::from(*token == bos);
            document
        }));
        self.push(tokens);
    }
}

impl DataError {
    fn another_file(path: PathBuf, found: text::File, expected: text::File) -> Self {
        Self::AnotherFile {
            path,
            found_bytes: found.bytes,
            found: hex(found.digest),
            bytes: expected.bytes,
            digest: hex(expected.digest),
        }
    }

    fn too_small(path: PathBuf, unit: &'static str, small: TooSmall) -> Self {
        let TooSmall { part, size, needed } = small;
        Self::TooSmall { path, part, size, unit, needed }
    }
}

fn list(named: &[PathBuf]) -> String {
    named.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

fn hex(digest: [u8; 32]) -> String {
    blake3::Hash::from_bytes(digest).to_hex().to_string()
}

#[derive(Debug)]
enum Kind {
    Synthetic(Markov),
    Text(Text),
    Tokens(Tokens),
    Mix(Mix),
}

#[cfg(test)]
mod tests;
