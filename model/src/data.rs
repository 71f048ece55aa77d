//! The source of tokens: any batch of any peer as a pure function of (stream, step, row).
//!
//! A peer's stream consists of a 32-byte seed, which other crates derive from (run, epoch, peer),
//! and the tokens that the run had committed when the epoch began. This file turns it into batches.
//! Row i of step s depends on (seed, s, i) alone: no cursor, no shuffle buffer, nothing to save,
//! and micro-batches of any size contain the same rows. A row has `context` tokens, and for each
//! the token that follows it.
//!
//! Part of the source is *held out*: a fixed set of rows, the same for every peer, that no stream
//! contains. A [`Dataset`] also knows the entropies to compare its losses with: those of the best
//! predictors that look at no token and at one, and, where it is known, the entropy rate, which no
//! predictor can beat.
//!
//! Other crates decide which peer gets which stream and what to do with a batch.

mod chunks;
pub mod corpus;
pub mod documents;
pub(crate) mod draw;
mod entropy;
mod error;
mod files;
mod mix;
mod split;
mod steady;
mod synthetic;
pub mod text;
pub mod tokenize;
pub mod tokens;

use std::ops::Range;
use std::path::PathBuf;

pub use self::entropy::Entropies;
pub use self::error::DataError;

use crate::config::{Source, Vocabulary, Width, Work};
use draw::Draw;
use mix::Mix;
use split::Split;
use synthetic::Markov;
use text::Text;
use tokens::header::HEADER_BYTES;
use tokens::{Requirements, Tokens};

/// An open source of tokens, whose files were checked.
#[derive(Debug)]
pub struct Dataset {
    /// The source, with its open files.
    kind: Kind,
    /// T, the tokens of each row that it returns.
    context: usize,
}

/// What determines a peer's rows of one epoch.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Stream {
    /// A different seed for every (run, epoch, peer).
    pub seed: [u8; 32],
    /// Tokens that the run had committed when the epoch began.
    pub committed: u64,
}

/// Consecutive rows of tokens. [B, T]
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// Tokens that the model reads, `sequences` times `context`.
    pub inputs: Vec<i32>,
    /// For each input the token that follows it.
    pub targets: Vec<i32>,
    /// For each input the number of its document, which changes where a document begins. Empty
    /// where every row is one document.
    pub documents: Vec<i32>,
    /// B, the number of rows in the batch.
    pub sequences: usize,
    /// T, the number of tokens in a row.
    pub context: usize,
}

impl Dataset {
    /// Opens the source of `work` in the run with this seed. `named` are the files that the source
    /// needs, or folders that contain them.
    ///
    /// # Errors
    /// If a file is missing, not needed, unreadable, different from the run's, or too small.
    pub fn open(work: &Work, seed: u64, named: &[PathBuf]) -> Result<Self, DataError> {
        let (context, held_out) = (work.model.context, work.data.held_out);
        let hints = &work.data.hints;
        let requirements =
            |vocabulary: &Vocabulary| Requirements { vocabulary: *vocabulary, held_out, context };
        let kind = match &work.data.source {
            &Source::Synthetic { symbols, order } => match named.first() {
                None => Kind::Synthetic(Markov::new(seed, symbols, order)),
                Some(path) => return Err(DataError::NeedlessFile(path.clone())),
            },
            Source::Text(file) => {
                let path = files::one(named, "text", *file, hints)?;
                Kind::Text(Text::open(&path, *file, held_out, context)?)
            }
            Source::Tokens { file, vocabulary } => {
                let path = files::one(named, "token", *file, hints)?;
                Kind::Tokens(Tokens::open(&path, *file, requirements(vocabulary))?)
            }
            Source::Mix { vocabulary, components, anneal_from } => {
                let requirements = requirements(vocabulary);
                Kind::Mix(Mix::open(named, hints, components, *anneal_from, requirements)?)
            }
        };
        Ok(Self { kind, context })
    }

    /// How many tokens the files of `work` have to train on, by its manifest alone; `None` for a
    /// synthetic source, which never ends.
    ///
    /// # Errors
    /// [`DataError::TooSmall`], as [`Self::open`] gives it, with the file's name in the manifest.
    pub fn train_tokens(work: &Work) -> Result<Option<u64>, DataError> {
        let (data, mut trained) = (&work.data, None);
        for (index, file) in data.source.files().iter().enumerate() {
            let name = data.hints.names.get(index).map_or("the run's file", String::as_str);
            let (whole, unit) = match data.vocabulary() {
                None => (file.bytes, "bytes"),
                Some(vocabulary) => {
                    let bytes = file.bytes.saturating_sub(HEADER_BYTES as u64);
                    (bytes / Width::of(vocabulary.tokens) as u64, "tokens")
                }
            };
            let split = Split::new(name.as_ref(), whole, unit, data.held_out, work.model.context)?;
            trained = Some(trained.unwrap_or(0) + split.training);
        }
        Ok(trained)
    }

    /// Returns the given rows of one step of a stream. The rows of a step may be asked for in any
    /// parts, and are the same.
    ///
    /// # Errors
    /// If the file can no longer be read.
    pub fn batch(
        &self,
        stream: &Stream,
        step: u64,
        rows: Range<usize>,
    ) -> Result<Batch, DataError> {
        let mut batch = Batch { context: self.context, ..Batch::default() };
        let length = self.context + 1;
        for row in rows {
            let mut draw = Draw::new(&stream.seed, step, row as u64);
            match &self.kind {
                Kind::Synthetic(markov) => batch.push(&markov.walk(&mut draw, length)),
                Kind::Text(text) => {
                    batch.push(&text.read(text.split.anywhere(&mut draw, length), length)?);
                }
                Kind::Tokens(tokens) => {
                    batch.push_packed(tokens, tokens.split.anywhere(&mut draw, length))?;
                }
                Kind::Mix(mix) => {
                    let tokens = mix.draw(&mut draw, stream.committed);
                    batch.push_packed(tokens, tokens.split.anywhere(&mut draw, length))?;
                }
            }
        }
        Ok(batch)
    }

    /// How many held-out rows share no judged token. With more rows some tokens would be judged several times, and the
    /// standard error of their mean would be too small. A synthetic source never ends.
    #[must_use]
    pub fn held_out_rows(&self) -> usize {
        let rows = match &self.kind {
            Kind::Synthetic(_) => u64::MAX,
            Kind::Text(text) => text.split.rows(self.context),
            Kind::Tokens(tokens) => tokens.split.rows(self.context),
            Kind::Mix(mix) => mix.held_out_rows(self.context),
        };
        usize::try_from(rows).unwrap_or(usize::MAX)
    }

    /// Returns the given rows of the held-out set of `of` rows, which a file spreads evenly.
    ///
    /// # Errors
    /// If nothing is held out, or the file can no longer be read.
    pub fn held_out(&self, rows: Range<usize>, of: usize) -> Result<Batch, DataError> {
        let mut batch = Batch { context: self.context, ..Batch::default() };
        let (length, of) = (self.context + 1, of as u64);
        let start = |split: Split, row, of| {
            split.held_out(row, of, length).ok_or(DataError::NothingHeldOut)
        };
        for row in rows.map(|row| row as u64) {
            match &self.kind {
                Kind::Synthetic(markov) => batch.push(&markov.held_out(row, length)),
                Kind::Text(text) => {
                    batch.push(&text.read(start(text.split, row, of)?, length)?);
                }
                Kind::Tokens(tokens) => {
                    batch.push_packed(tokens, start(tokens.split, row, of)?)?;
                }
                Kind::Mix(mix) => {
                    let (tokens, row, of) = mix.held_out(row, of);
                    batch.push_packed(tokens, start(tokens.split, row, of)?)?;
                }
            }
        }
        Ok(batch)
    }

    /// Fills `buffer` with the bytes at `at` of the file of this number, counted as in
    /// [`Source::files`]. They are the bytes that were checked when the file was opened.
    ///
    /// # Errors
    /// If the file can no longer be read, was changed meanwhile, is too short, or does not exist.
    pub fn read_file(&self, file: usize, buffer: &mut [u8], at: u64) -> Result<(), DataError> {
        let file = match &self.kind {
            Kind::Synthetic(_) => None,
            Kind::Text(text) => (file == 0).then_some(&text.file),
            Kind::Tokens(tokens) => (file == 0).then_some(&tokens.scanned.file),
            Kind::Mix(mix) => mix.file(file),
        };
        file.ok_or(DataError::NoSuchFile)?.read(buffer, at)
    }

    /// Whether [`truth`](Self::truth) knows this source's probabilities.
    #[must_use]
    pub fn is_known(&self) -> bool {
        matches!(self.kind, Kind::Synthetic(_))
    }

    /// The entropies to compare losses on this source with.
    #[must_use]
    pub fn entropies(&self) -> Entropies {
        match &self.kind {
            Kind::Synthetic(markov) => markov.entropies(),
            Kind::Text(text) => text.entropies,
            Kind::Tokens(tokens) => tokens.scanned.entropies,
            Kind::Mix(mix) => mix.entropies(),
        }
    }

    /// The true probabilities of the token after `history`. They are known only for a synthetic
    /// source, and if the history is at least as long as its order.
    #[must_use]
    pub fn truth(&self, history: &[i32]) -> Option<Vec<f64>> {
        match &self.kind {
            Kind::Synthetic(markov) => markov.truth(history),
            Kind::Text(_) | Kind::Tokens(_) | Kind::Mix(_) => None,
        }
    }
}

impl Batch {
    /// Every row as its tokens and the one that follows them. // [B, T + 1]
    pub(crate) fn rows(&self) -> Vec<Vec<i32>> {
        let rows = self.inputs.chunks(self.context).zip(self.targets.chunks(self.context));
        rows.map(|(inputs, targets)| inputs.iter().chain(targets.last()).copied().collect())
            .collect()
    }

    /// Appends a row of `context` + 1 tokens.
    fn push(&mut self, tokens: &[i32]) {
        assert_eq!(tokens.len(), self.context + 1, "a token to predict after each");
        self.inputs.extend_from_slice(&tokens[..self.context]);
        self.targets.extend_from_slice(&tokens[1..]);
        self.sequences += 1;
    }

    /// Appends the row of a token file that begins with token `start`: documents and parts of them.
    fn push_packed(&mut self, file: &Tokens, start: u64) -> Result<(), DataError> {
        let tokens = file.scanned.read(start, self.context + 1)?;
        let (mut document, bos) = (0, file.scanned.bos());
        self.documents.extend(tokens[..self.context].iter().map(|token| {
            document += i32::from(*token == bos);
            document
        }));
        self.push(&tokens);
        Ok(())
    }
}

/// The kinds of sources; all but the first have files.
#[derive(Debug)]
enum Kind {
    /// The source itself, which draws each row anew.
    Synthetic(Markov),
    /// A text, of which each byte is a token.
    Text(Text),
    /// A token file, of which rows are read when they are drawn.
    Tokens(Tokens),
    /// Several token files, of which each row is drawn from one.
    Mix(Mix),
}

#[cfg(test)]
mod tests;
