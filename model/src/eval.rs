//! Measures the quality of a model on text that no peer trains on.
//!
//! The held-out loss is the mean surprise ln 1/q(x) of the actual tokens. For a synthetic source
//! the true probabilities p are known, so the chance of which token came can be averaged out:
//!
//! ```text
//! excess = mean over contexts of KL(p ‖ q) = Σ_x p(x) · (ln p(x) − ln q(x))
//! ```
//!
//! The excess can fall to 0, while a loss can fall to the source's entropy H*. A predictor that
//! looks at no token, or at one, cannot get below its own excess, its entropy minus H*, which a
//! model must beat. Its probabilities are computed from the scores on the host, in f64.
//!
//! Documents are kept apart for every family. The standard error is that of a mean of rows, since
//! the tokens of one row depend on one another.

mod pieces;
pub mod task;

use thiserror::Error;

use crate::config::Work;
use crate::data::corpus::Corpus;
use crate::data::{Batch, DataError, Dataset, Entropies};
use crate::tokenizer::Tokenizer;
use crate::train::{Judged, Model, TrainError};
use pieces::Room;

/// Held-out tokens that suffice to see an epoch's progress, and cost little compared with an epoch.
pub const GLANCE_TOKENS: usize = 1 << 12;

/// The result of an evaluation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evaluation {
    /// Mean held-out loss in nats per token.
    pub loss: f64,
    /// Mean KL(source ‖ model) in nats, where the source is known.
    pub excess: Option<f64>,
    /// The number of tokens over which the loss is averaged.
    pub tokens: usize,
    /// Standard error of the loss, from how far its rows are apart; `None` for a single row.
    pub error: Option<f64>,
}

impl Evaluation {
    /// e^loss: the number of equally likely tokens among which a guess has this loss.
    #[must_use]
    pub fn perplexity(&self) -> f64 {
        self.loss.exp()
    }

    /// The loss in bits per byte of text, which compares models of different vocabularies.
    #[must_use]
    pub fn bits_per_byte(&self, bytes_per_token: f64) -> f64 {
        self.loss / std::f64::consts::LN_2 / bytes_per_token
    }
}

/// The excess of trivial predictors, in nats, to compare a model with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Yardsticks {
    /// The excess of equal probabilities for all tokens.
    pub uniform: f64,
    /// The excess of the best predictor that looks at no token.
    pub unigram: f64,
    /// The excess of the best predictor that looks at the last token.
    pub bigram: f64,
}

/// Why a model could not be measured.
#[derive(Debug, Error)]
pub enum EvalError {
    /// The held-out rows cannot be read.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The model or its device failed.
    #[error(transparent)]
    Model(#[from] TrainError),
    /// The model's scores are infinite or NaN.
    #[error("the model's scores are not finite: the training has diverged")]
    NotFinite,
}

impl Entropies {
    /// The excesses to compare with on this source; `None` where H* is unknown.
    #[must_use]
    pub fn yardsticks(&self) -> Option<Yardsticks> {
        let floor = self.floor?;
        Some(Yardsticks {
            uniform: self.uniform - floor,
            unigram: self.unigram - floor,
            bigram: self.bigram? - floor,
        })
    }
}

/// Measures `model` on a fixed set of at least `tokens` held-out tokens, the same for every peer; on fewer where no more
/// can be had ([`Dataset::held_out_rows`]).
///
/// # Errors
/// If nothing is held out, the source or the model fails, or the model has diverged.
pub fn evaluate(
    model: &dyn Model,
    source: &Dataset,
    work: &Work,
    tokens: usize,
) -> Result<Evaluation, EvalError> {
    let mut sums = Sums::default();
    let room = Room::of(&work.model, work.train.batch);
    let bos = work.data.vocabulary().map(|vocabulary| vocabulary.bos as i32);
    for batch in held_out(source, work, tokens) {
        let batch = batch?;
        if source.is_known() {
            let scores = model.logits(&batch.inputs, batch.sequences)?;
            sums.add(&batch, &scores, source);
        } else {
            sums.judge(model, &batch.rows(), bos, room)?;
        }
    }
    sums.evaluation()
}

/// What was measured on a file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OnFile {
    /// The loss and its standard error.
    pub evaluation: Evaluation,
    /// Bytes of text per judged token; `None` where tokens are not text.
    pub bytes_per_token: Option<f64>,
}

/// Measures `model` on rows of at least `tokens` tokens of any file, or on the whole file. Of
/// `work` it takes the model's sizes and the rows of a batch, which bound the memory.
///
/// # Errors
/// If the file or the model fails, or the model has diverged.
pub fn on_file(
    model: &dyn Model,
    corpus: &Corpus,
    work: &Work,
    tokenizer: &Tokenizer,
    tokens: u64,
) -> Result<OnFile, EvalError> {
    let mut sums = Sums::default();
    let room = Room::of(&work.model, work.train.batch);
    let mut rows = corpus.rows(work.model.context, tokens).peekable();
    let mut bytes = Some(0);
    while rows.peek().is_some() {
        let rows: Vec<_> = rows.by_ref().take(work.train.batch).collect::<Result<_, _>>()?;
        for row in &rows {
            bytes = bytes.zip(judged_bytes(tokenizer, row)).map(|(all, more)| all + more as u64);
        }
        sums.judge(model, &rows, corpus.bos(), room)?;
    }
    let evaluation = sums.evaluation()?;
    let measured = evaluation.tokens as u64 + 1 == corpus.tokens();
    // Where a character was cut in two, its bytes are counted wrongly; those of a file are known.
    let bytes = if measured { corpus.text_bytes().or(bytes) } else { bytes };
    let bytes_per_token = bytes.map(|bytes| bytes as f64 / evaluation.tokens as f64);
    Ok(OnFile { evaluation, bytes_per_token })
}

/// The bytes of text of a row's tokens but the first, which is read and not judged. With it they are decoded, since some
/// tokenizers leave out the space before the first word.
fn judged_bytes(tokenizer: &Tokenizer, row: &[i32]) -> Option<usize> {
    let [all, first] = [row, &row[..1]].map(|tokens| tokenizer.text_bytes(tokens));
    // A character that was cut in two may count for more alone.
    all.zip(first).map(|(all, first)| all.saturating_sub(first))
}

/// Bytes of text per token of the set that [`evaluate`] uses; `None` where tokens are not text.
///
/// # Errors
/// If nothing is held out, or the source fails.
pub fn bytes_per_token(
    source: &Dataset,
    work: &Work,
    tokenizer: &Tokenizer,
    tokens: usize,
) -> Result<Option<f64>, DataError> {
    let (mut bytes, mut count) = (0, 0);
    for batch in held_out(source, work, tokens) {
        let batch = batch?;
        let Some(more) = tokenizer.text_bytes(&batch.targets) else { return Ok(None) };
        bytes += more;
        count += batch.targets.len();
    }
    Ok(Some(bytes as f64 / count as f64))
}

/// The fixed set of at least `tokens` held-out tokens, or of as many as can be had, in batches.
fn held_out(
    source: &Dataset,
    work: &Work,
    tokens: usize,
) -> impl Iterator<Item = Result<Batch, DataError>> {
    let rows = tokens.div_ceil(work.model.context).clamp(1, source.held_out_rows());
    let batch = work.train.batch;
    (0..rows).step_by(batch).map(move |start| source.held_out(start..rows.min(start + batch), rows))
}

/// What was measured so far, row by row.
#[derive(Default)]
struct Sums {
    /// Surprise and tokens of each row.
    rows: Vec<(f64, usize)>,
    /// Σ of KL(source ‖ model) over the contexts whose truth is known.
    divergence: f64,
    /// How many contexts these are.
    known: usize,
}

impl Sums {
    /// Judges all tokens of rows but the first of each, with the documents of a row kept apart.
    fn judge(
        &mut self,
        model: &dyn Model,
        rows: &[Vec<i32>],
        bos: Option<i32>,
        room: Room,
    ) -> Result<(), TrainError> {
        let apart: Vec<_> = rows.iter().map(|row| pieces::apart(row, bos)).collect();
        let judged = pieces::judge(model, &apart.concat(), room)?;
        let mut judged = judged.iter();
        for row in &apart {
            let row = judged.by_ref().take(row.len()).flatten();
            let add = |(surprise, tokens): (f64, usize), one: &Judged| {
                (surprise - one.log_probability, tokens + 1)
            };
            self.rows.push(row.fold((0.0, 0), add));
        }
        Ok(())
    }

    /// The means of all that was added.
    fn evaluation(&self) -> Result<Evaluation, EvalError> {
        let sum = |sums: (f64, usize), row: &(f64, usize)| (sums.0 + row.0, sums.1 + row.1);
        let (surprise, tokens) = self.rows.iter().fold((0.0, 0), sum);
        let loss = surprise / tokens as f64;
        if !loss.is_finite() {
            return Err(EvalError::NotFinite);
        }
        let excess = (self.known > 0).then(|| self.divergence / self.known as f64);
        Ok(Evaluation { loss, excess, tokens, error: self.error(loss, tokens) })
    }

    /// SE² = k/(k − 1) · Σ (sᵢ − nᵢ · loss)² / N² over k rows: tokens of one row depend on one another.
    fn error(&self, loss: f64, tokens: usize) -> Option<f64> {
        let rows = self.rows.len() as f64;
        let squares = self.rows.iter().map(|(surprise, n)| (surprise - *n as f64 * loss).powi(2));
        let sum: f64 = squares.sum();
        (rows > 1.0).then(|| (sum * rows / (rows - 1.0)).sqrt() / tokens as f64)
    }

    /// Adds a batch and the model's scores for it. // scores [B·T, V]
    fn add(&mut self, batch: &Batch, scores: &[f32], source: &Dataset) {
        let vocab = scores.len() / batch.inputs.len();
        for (at, (scores, target)) in scores.chunks(vocab).zip(&batch.targets).enumerate() {
            let log = log_probabilities(scores);
            // A token without a score is infinitely surprising.
            let target = usize::try_from(*target).ok().and_then(|target| log.get(target));
            let row = at / batch.context * batch.context;
            if at == row {
                self.rows.push((0.0, 0));
            }
            if let Some((surprise, tokens)) = self.rows.last_mut() {
                *surprise -= target.copied().unwrap_or(f64::NEG_INFINITY);
                *tokens += 1;
            }
            if let Some(truth) = source.truth(&batch.inputs[row..=at]) {
                self.divergence += kl(&truth, &log);
                self.known += 1;
            }
        }
    }
}

/// ln q(x) = z(x) − ln Σ exp z, shifted so that nothing overflows.
fn log_probabilities(scores: &[f32]) -> Vec<f64> {
    let scores = scores.iter().map(|score| f64::from(*score));
    let top = scores.clone().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = scores.clone().map(|score| (score - top).exp()).sum();
    let partition = top + sum.ln();
    scores.map(|score| score - partition).collect()
}

/// KL(p ‖ q) with 0 · ln 0 = 0.
fn kl(truth: &[f64], log: &[f64]) -> f64 {
    let certain = truth.iter().zip(log).filter(|(p, _)| **p > 0.0);
    certain.map(|(p, log)| p * (p.ln() - log)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::Keep;
    use crate::config::Vocabulary;
    use crate::data::tokens::{self, writer::Writer};
    use crate::train::{Reader, ReaderGroup};

    /// A model that knows the source, or assumes equal probabilities.
    struct Oracle<'a> {
        source: &'a Dataset,
        context: usize,
        vocab: usize,
        knows: bool,
    }

    impl Model for Oracle<'_> {
        fn load(&mut self, _: &[f32]) -> Result<(), TrainError> {
            Ok(())
        }

        fn store(&self, _: &mut [f32]) -> Result<(), TrainError> {
            Ok(())
        }

        fn logits(&self, tokens: &[i32], sequences: usize) -> Result<Vec<f32>, TrainError> {
            assert_eq!(tokens.len(), sequences * self.context);
            let rows = tokens.chunks(self.context);
            let ends = rows.flat_map(|row| (1..=row.len()).map(move |end| &row[..end]));
            let scores = |history| match self.source.truth(history) {
                // Scores have no zero point, so any constant may be added.
                Some(truth) if self.knows => {
                    truth.iter().map(|p| p.ln().max(-60.0) as f32 + 300.0).collect()
                }
                _ => vec![-5.0; self.vocab],
            };
            Ok(ends.flat_map(scores).collect())
        }

        /// A token of a row is as surprising as there are tokens in its row.
        fn judge(&self, tokens: &[i32], _: &[i32], rows: usize) -> Result<Vec<Judged>, TrainError> {
            let length = tokens.len() / rows;
            let judged = Judged { log_probability: -(length as f64), is_likeliest: false };
            Ok(vec![judged; tokens.len()])
        }

        fn loss(&self, _: &Batch) -> Result<f64, TrainError> {
            unreachable!("tokens are judged one by one")
        }

        fn reader(&self, _: Keep) -> Box<dyn Reader + '_> {
            unreachable!("whole rows are evaluated")
        }

        fn group(&self, _: Keep) -> Box<dyn ReaderGroup + '_> {
            unreachable!("whole rows are evaluated")
        }
    }

    fn measure(knows: bool) -> (Evaluation, Entropies) {
        let work = Work::synthetic();
        let source = Dataset::open(&work, 3, &[]).expect("opens");
        let (context, vocab) = (work.model.context, work.model.vocab);
        let oracle = Oracle { source: &source, context, vocab, knows };
        let evaluation = evaluate(&oracle, &source, &work, 20_000).expect("measured");
        (evaluation, source.entropies())
    }

    #[test]
    fn a_model_that_knows_the_source_has_no_excess_and_the_loss_of_its_entropy() {
        let (evaluation, entropies) = measure(true);
        let excess = evaluation.excess.expect("known");
        assert!(excess.abs() < 1e-5, "{excess}");
        // The history of the first tokens of each row is too short, so the loss is slightly above
        // H*.
        let floor = entropies.floor.expect("known");
        assert!((evaluation.loss - floor - 0.02).abs() < 0.03, "{} {floor}", evaluation.loss);
        assert!(evaluation.tokens >= 20_000);
    }

    #[test]
    fn a_model_that_knows_nothing_has_the_excess_of_equal_probabilities() {
        let (evaluation, entropies) = measure(false);
        assert!((evaluation.loss - entropies.uniform).abs() < 1e-9);
        let uniform = entropies.yardsticks().expect("known").uniform;
        let excess = evaluation.excess.expect("known");
        assert!((excess - uniform).abs() < 0.02, "{excess} {uniform}");
    }

    /// A document of two tokens has two to judge: its own, and the one that begins the next.
    #[test]
    fn documents_are_measured_each_by_itself() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.tokens");
        let mut writer = Writer::create(&path, Vocabulary::BYTES).expect("a token file begins");
        for _ in 0..3000 {
            writer.begin().expect("written");
            writer.tokens(&[97], 1).expect("written");
        }
        writer.finish([0; 32]).expect("whole");
        let (header, file) = tokens::describe(&path).expect("a token file");
        let work = Work::tokens(header.vocabulary, file);
        let source = Dataset::open(&work, 3, std::slice::from_ref(&path)).expect("opens");
        let (context, vocab) = (work.model.context, work.model.vocab);
        let oracle = Oracle { source: &source, context, vocab, knows: false };
        let evaluation = evaluate(&oracle, &source, &work, 1).expect("measured");
        // A document begins at every second of 64 positions.
        let expected = Evaluation { loss: 2.0, excess: None, tokens: 64, error: None };
        assert_eq!(evaluation, expected);
        let bytes = bytes_per_token(&source, &work, &Tokenizer::bytes(), 1).expect("read");
        assert_eq!(bytes, Some(0.5));
    }

    /// With one byte per token, bits per byte are nats over ln 2. A perplexity of 2 is one bit.
    #[test]
    fn a_bit_is_a_perplexity_of_two() {
        let evaluation =
            Evaluation { loss: std::f64::consts::LN_2, excess: None, tokens: 1, error: None };
        assert!((evaluation.perplexity() - 2.0).abs() < 1e-12);
        assert!((evaluation.bits_per_byte(1.0) - 1.0).abs() < 1e-12);
        assert!((evaluation.bits_per_byte(4.0) - 0.25).abs() < 1e-12);
    }

    /// p = (½, ½, 0), q = (¼, ½, ¼): KL = ½ ln 2.
    #[test]
    fn kl_by_hand() {
        let log = log_probabilities(&[1000.0, 1000.0 + 2_f32.ln(), 1000.0]);
        assert!((kl(&[0.5, 0.5, 0.0], &log) - 0.5 * 2_f64.ln()).abs() < 1e-4);
    }
}
