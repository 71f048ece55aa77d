//! Asks a model the items of a task.
//!
//! Text becomes tokens as in lm-eval: spaces at the end of a context go over to its continuation,
//! the two are encoded together, and what is behind the context's own tokens is judged. Before the
//! context stands the token that begins a document, since a model was trained with it. The context
//! is read once, and its state is forked for every choice; what the contexts of successive items
//! have in common, such as solved items, is not read again either. A context that is too long for a
//! family with positions loses its begin. A family without positions reads everything. Only the
//! choices are scored. A state keeps its numbers unrounded, so that a figure does not depend on how
//! a text was read.

use serde::Serialize;
use thiserror::Error;

use super::item::Item;
use crate::arch::{Arch, Keep, Scored};
use crate::config::Work;
use crate::eval::pieces::{self, Room};
use crate::tokenizer::{EncodeError, Tokenizer};
use crate::train::{Judged, Model, Reader, TrainError};

/// What was measured of an item.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Outcome {
    /// What was measured of an item with choices.
    Choice {
        /// ln q of each choice, in their order.
        log_likelihoods: Vec<f64>,
        /// The number of the likeliest choice.
        chosen: usize,
        /// The choice that is the likeliest per character.
        chosen_norm: usize,
        /// The right one, if it is known.
        gold: Option<usize>,
    },
    /// What was measured of a continuation.
    Continuation {
        /// ln q of what was judged, in nats.
        log_likelihood: f64,
        /// Whether each of its tokens is the likeliest.
        is_greedy: bool,
    },
    /// What was measured of a whole text.
    Text {
        /// ln q of what was judged, in nats.
        log_likelihood: f64,
        /// Its words, as lm-eval counts them.
        words: usize,
        /// Its length in bytes of UTF-8.
        bytes: usize,
    },
}

/// An outcome, and whether the model saw the whole item.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Answer {
    /// What was measured of the item.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Whether the begin of the context was left out.
    pub truncated: bool,
}

/// Why an item could not be measured.
#[derive(Debug, Error)]
pub enum MeasureError {
    /// A character of the item has no token.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// The tokenizer makes nothing of what is to be judged, which begins like this.
    #[error("{0:?} has no token behind its context, so there is nothing to judge")]
    NoTokens(String),
    /// The tokenizer makes nothing of a context that begins like this, and knows no token that begins a document.
    #[error("the tokenizer makes no token of the context {0:?}: name one that begins a document")]
    NoContext(String),
    /// What is to be judged is too long for the model.
    #[error(
        "an answer has {tokens} tokens, and the model reads {context} at once: leave the item out"
    )]
    Long {
        /// How many tokens there are in it.
        tokens: usize,
        /// How many the model can read at once.
        context: usize,
    },
    /// The model or its device failed.
    #[error(transparent)]
    Model(#[from] TrainError),
    /// The model's scores are infinite or NaN.
    #[error("the model's scores are not finite: the training has diverged")]
    NotFinite,
}

/// Asks one model the items of tasks.
pub struct Examiner<'a> {
    /// The model that is asked, with its weights.
    model: &'a dyn Model,
    /// How text becomes the model's tokens.
    tokenizer: &'a Tokenizer,
    /// The most tokens that the model can read, where its family has positions.
    reach: Option<usize>,
    /// How much one pass over a long text may take.
    room: Room,
    /// The context that was read last.
    last: Vec<i32>,
    /// What several contexts begin with.
    base: Option<Base<'a>>,
}

/// A beginning of contexts, and a reader behind it, which is forked for each.
struct Base<'a> {
    /// The tokens that all of them begin with.
    tokens: Vec<i32>,
    /// A reader that has read these tokens.
    reader: Box<dyn Reader + 'a>,
}

/// A context and what is judged behind it, in tokens.
struct Pair {
    /// The context, with the token that begins a document in front, where there is one.
    context: Vec<i32>,
    /// What is judged behind it; at least one token.
    judged: Vec<i32>,
}

/// How likely a continuation is.
#[derive(Clone, Copy)]
struct Sum {
    /// Σ ln q of its tokens, in nats.
    log_likelihood: f64,
    /// Whether each of them is the likeliest.
    is_greedy: bool,
}

impl<'a> Examiner<'a> {
    /// `work` has the sizes of the model, and the rows of a batch.
    #[must_use]
    pub fn new(model: &'a dyn Model, work: &Work, tokenizer: &'a Tokenizer) -> Self {
        let reach = Arch::new(&work.model).reach();
        let room = Room::of(&work.model, work.train.batch);
        Self { model, tokenizer, reach, room, last: Vec::new(), base: None }
    }

    /// Measures what the model makes of one item.
    ///
    /// # Errors
    /// Any of [`MeasureError`].
    pub fn measure(&mut self, item: &Item) -> Result<Answer, MeasureError> {
        match item {
            Item::Choice { context, delimiter, choices, gold } => {
                let pair = |choice| self.pair(context, &format!("{delimiter}{choice}"));
                let pairs = choices.iter().map(pair).collect::<Result<Vec<_>, _>>()?;
                let (sums, truncated) = self.sums(&pairs)?;
                let log_likelihoods: Vec<f64> = sums.iter().map(|sum| sum.log_likelihood).collect();
                let length = |choice: &String| choice.chars().count() as f64;
                let norm =
                    log_likelihoods.iter().zip(choices).map(|(log, choice)| log / length(choice));
                let (chosen, chosen_norm) =
                    (first_largest(&log_likelihoods), first_largest(&norm.collect::<Vec<_>>()));
                let outcome = Outcome::Choice { log_likelihoods, chosen, chosen_norm, gold: *gold };
                Ok(Answer { outcome, truncated })
            }
            Item::Continuation { context, continuation, .. } => {
                let (sums, truncated) = self.sums(&[self.pair(context, continuation)?])?;
                let Sum { log_likelihood, is_greedy } = sums[0];
                let outcome = Outcome::Continuation { log_likelihood, is_greedy };
                Ok(Answer { outcome, truncated })
            }
            Item::Text { text } => {
                let log_likelihood = self.text(text)?;
                let (words, bytes) = (words(text), text.len());
                let outcome = Outcome::Text { log_likelihood, words, bytes };
                Ok(Answer { outcome, truncated: false })
            }
        }
    }

    /// How likely each of the continuations of one context is, and whether its begin was left out.
    fn sums(&mut self, pairs: &[Pair]) -> Result<(Vec<Sum>, bool), MeasureError> {
        let mut truncated = false;
        let mut sums = Vec::with_capacity(pairs.len());
        let mut read: Option<(usize, Box<dyn Reader + '_>)> = None;
        // The last token of the context is read with each continuation, since its scores judge the
        // first token of that.
        if let Some(Pair { context, .. }) = pairs.first() {
            self.keep_common(&context[..context.len() - 1])?;
        }
        for Pair { context, judged } in pairs {
            let cut = self.cut(context.len(), judged.len())?;
            truncated |= cut > 0;
            let last = context.len() - 1;
            // A continuation of another length may leave another part of the context, which is read
            // anew.
            let reader = match read.take() {
                Some((same, reader)) if same == cut => reader,
                _ => self.reader_behind(&context[cut..last])?,
            };
            let tokens = [&context[last..], &judged[..judged.len() - 1]].concat();
            sums.push(Sum::of(&reader.fork().judge(&tokens, judged)?)?);
            read = Some((cut, reader));
        }
        Ok((sums, truncated))
    }

    /// How many tokens of a context are left out, so that it fits with what is judged. The last
    /// token that is judged is not read.
    fn cut(&self, context: usize, judged: usize) -> Result<usize, MeasureError> {
        match self.reach {
            Some(reach) if judged > reach => {
                Err(MeasureError::Long { tokens: judged, context: reach })
            }
            Some(reach) => Ok((context + judged - 1).saturating_sub(reach)),
            None => Ok(0),
        }
    }

    /// Keeps the state behind what this context has in common with the one before it, if that is
    /// worth it and not kept yet.
    fn keep_common(&mut self, context: &[i32]) -> Result<(), MeasureError> {
        let kept = self.base.as_ref().is_some_and(|base| context.starts_with(&base.tokens));
        let same = common(&self.last, context);
        let fits = self.reach.is_none_or(|reach| same <= reach);
        if !kept && same >= COMMON_MIN && fits {
            let tokens = context[..same].to_vec();
            let mut reader = self.model.reader(Keep::EXACT);
            reader.read(&tokens, Scored::Nothing)?;
            self.base = Some(Base { tokens, reader });
        }
        self.last = context.to_vec();
        Ok(())
    }

    /// A reader that has read these tokens.
    fn reader_behind(&self, tokens: &[i32]) -> Result<Box<dyn Reader + '_>, TrainError> {
        let base = self.base.as_ref().filter(|base| tokens.starts_with(&base.tokens));
        let (mut reader, rest) = match base {
            Some(base) => (base.reader.fork(), &tokens[base.tokens.len()..]),
            None => (self.model.reader(Keep::EXACT), tokens),
        };
        if !rest.is_empty() {
            reader.read(rest, Scored::Nothing)?;
        }
        Ok(reader)
    }

    /// How likely a text is from its begin on. Where the model cannot read it at once, it is read in
    /// windows: each judges what the ones before did not, and the last is filled up at its begin.
    fn text(&self, text: &str) -> Result<f64, MeasureError> {
        let tokens = self.tokens(text)?;
        if tokens.is_empty() {
            return Err(MeasureError::NoTokens(begin_of(text)));
        }
        let begin = self.tokenizer.encode("")?;
        let first = begin.len();
        let all = [begin, tokens].concat();
        let Some(reach) = self.reach else {
            let judged = self.model.reader(Keep::EXACT).judge(&all[..all.len() - 1], &all[1..])?;
            return Ok(Sum::of(&judged[first - 1..])?.log_likelihood);
        };
        let mut windows = Vec::new();
        let mut done = first;
        while done < all.len() {
            let end = (done + reach).min(all.len());
            windows.push((&all[end.saturating_sub(reach + 1)..end], end - done));
            done = end;
        }
        let pieces: Vec<_> = windows.iter().map(|(window, _)| *window).collect();
        let judged = pieces::judge(self.model, &pieces, self.room)?;
        let mut sum = 0.0;
        for (judged, (_, new)) in judged.iter().zip(windows) {
            sum += Sum::of(&judged[judged.len() - new..])?.log_likelihood;
        }
        Ok(sum)
    }

    /// A context and a continuation as tokens.
    fn pair(&self, context: &str, continuation: &str) -> Result<Pair, MeasureError> {
        let kept = context.trim_end();
        let whole = self.tokens(&format!("{context}{continuation}"))?;
        let judged = whole.get(self.tokens(kept)?.len()..).unwrap_or_default().to_vec();
        if judged.is_empty() {
            return Err(MeasureError::NoTokens(begin_of(continuation)));
        }
        let context = self.tokenizer.encode(kept)?;
        if context.is_empty() {
            return Err(MeasureError::NoContext(begin_of(kept)));
        }
        Ok(Pair { context, judged })
    }

    /// The tokens of a text without the one that begins a document.
    fn tokens(&self, text: &str) -> Result<Vec<i32>, EncodeError> {
        let mut tokens = Vec::new();
        self.tokenizer.append(text, &mut tokens)?;
        // The casts are exact, since tokens are below 2^20.
        Ok(tokens.into_iter().map(|token| token as i32).collect())
    }
}

impl Sum {
    /// Sums up tokens that follow one another.
    ///
    /// # Errors
    /// [`MeasureError::NotFinite`]
    fn of(judged: &[Judged]) -> Result<Self, MeasureError> {
        let log_likelihood: f64 = judged.iter().map(|one| one.log_probability).sum();
        let is_greedy = judged.iter().all(|one| one.is_likeliest);
        if log_likelihood.is_finite() {
            Ok(Self { log_likelihood, is_greedy })
        } else {
            Err(MeasureError::NotFinite)
        }
    }
}

/// The first characters of a text that is complained of.
fn begin_of(text: &str) -> String {
    text.chars().take(EXCERPT_CHARS).collect()
}

/// How many tokens two lists have in common at their begin.
fn common(a: &[i32], b: &[i32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// The first of the largest numbers.
fn first_largest(values: &[f64]) -> usize {
    let larger = |best: usize, at: usize| if values[at] > values[best] { at } else { best };
    (0..values.len()).fold(0, larger)
}

/// The parts between white space, where a text that begins or ends with some has an empty part
/// there: `len(re.split(r"\s+", text))`.
fn words(text: &str) -> usize {
    let words = text.split_whitespace().count();
    let edges = usize::from(text.starts_with(char::is_whitespace))
        + usize::from(text.ends_with(char::is_whitespace));
    (words + edges).max(1)
}

/// What contexts have in common is kept from so many tokens on: a guess.
const COMMON_MIN: usize = 16;
/// Characters of a text that a message shows.
const EXCERPT_CHARS: usize = 60;

#[cfg(test)]
mod tests;
