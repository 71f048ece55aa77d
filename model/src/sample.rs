//! Generates text from a model: one token after the other, each drawn from the model's predictions.
//!
//! With scores z and temperature τ a token is drawn from softmax(z / τ); τ = 0 takes the likeliest.
//! Only the *nucleus* of that distribution is used, the fewest tokens whose probabilities sum to p
//! (Holtzman et al. 2020, arXiv 1904.09751). With p = 1 that is all of them; a lower p leaves out
//! tokens that are each improbable, but together too frequent. The draws are a pure function of the
//! seed. Each token is read once, and the reader's state carries its effect on later tokens. Of the
//! prompt only the last token is scored. The token that begins a document ends the one before it.

pub mod likely;

use std::ops::ControlFlow;

use thiserror::Error;

use crate::arch::{Keep, Scored};
use crate::config::Work;
use crate::data::draw::Draw;
use crate::train::{Model, TrainError};

/// The options of drawing tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// τ, 0–100: above 1 more surprising, below 1 more likely text.
    pub temperature: f64,
    /// p, above 0 and at most 1: the share of the probability that the nucleus has.
    pub top_p: f64,
    /// Selects the draws: the same seed gives the same text.
    pub seed: u64,
    /// The number of tokens to draw, unless the text ends before. With 0 nothing is read.
    pub tokens: usize,
    /// What ends the text before that.
    pub ending: Ending,
    /// How the reader keeps the text.
    pub keep: Keep,
}

/// What ends a text besides the number of its tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The token that begins the next document, in a source of documents. It is not passed on.
    Document,
    /// Nothing: documents may follow one another.
    Never,
}

/// What is to be known about a text besides its tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampled {
    /// How many tokens of the prompt the model did not see: the first ones, because all of them
    /// were more than it can read.
    pub cut: usize,
    /// Whether the document ended before all tokens were drawn.
    pub is_ended: bool,
}

/// Why no token could be drawn.
#[derive(Debug, Error)]
pub enum SampleError {
    /// The prompt is empty, so there is nothing to continue.
    #[error("a sample needs at least one token to begin with")]
    NoPrompt,
    /// The temperature that was asked for is outside 0 to 100.
    #[error("the temperature is {0}: choose 0 to 100")]
    Temperature(f64),
    /// The share of the nucleus that was asked for leaves no token, or is above 1.
    #[error("top-p is {0}: choose more than 0, and 1 at most")]
    TopP(f64),
    /// The model or its device failed.
    #[error(transparent)]
    Model(#[from] TrainError),
    /// The model's scores are infinite or NaN.
    #[error("the model's scores are not finite: the training has diverged")]
    NotFinite,
}

/// Draws tokens after `prompt` and passes each to `on_token` at once, until that breaks or the text
/// ends.
///
/// # Errors
/// An empty prompt, a wrong temperature or share of the nucleus, a model that fails or has
/// diverged. Tokens that were passed on stay valid.
pub fn sample(
    model: &dyn Model,
    work: &Work,
    prompt: &[i32],
    sampling: Sampling,
    on_token: &mut dyn FnMut(i32) -> ControlFlow<()>,
) -> Result<Sampled, SampleError> {
    if prompt.is_empty() {
        return Err(SampleError::NoPrompt);
    }
    let mut sampler = TokenSampler::new(sampling, work.data.tokens(), 0)?;
    let last = match sampling.ending {
        Ending::Document => work.data.vocabulary().map(|vocabulary| vocabulary.bos as i32),
        Ending::Never => None,
    };
    let mut reader = model.reader(sampling.keep);
    let mut unread = prompt.to_vec();
    let mut sampled = Sampled { cut: 0, is_ended: false };
    for drawn in 0..sampling.tokens {
        let scores = reader.read(&unread, Scored::Last)?;
        if drawn == 0 {
            sampled.cut = reader.forgotten();
        }
        let token = sampler.draw(&scores)?;
        if Some(token) == last {
            sampled.is_ended = true;
            break;
        }
        unread = vec![token];
        if on_token(token).is_break() {
            break;
        }
    }
    Ok(sampled)
}

/// Draws the tokens of one text: a pure function of the seed, the number of the text and its scores.
pub struct TokenSampler {
    /// Temperature and nucleus, which were checked.
    sampling: Sampling,
    /// The stream of random numbers, one for each token.
    draw: Draw,
    /// Tokens that there are. A vocabulary may have more rows; the excess is never drawn.
    known: usize,
}

impl TokenSampler {
    /// A sampler for text number `text`. Texts that have one seed and one prompt differ by their
    /// numbers; that of a single one is 0. `known` is how many tokens there are.
    ///
    /// # Errors
    /// A wrong temperature or share of the nucleus.
    pub fn new(sampling: Sampling, known: usize, text: u64) -> Result<Self, SampleError> {
        let Sampling { temperature, top_p, seed, .. } = sampling;
        if !(0.0..=100.0).contains(&temperature) {
            return Err(SampleError::Temperature(temperature));
        }
        if !(top_p > 0.0 && top_p <= 1.0) {
            return Err(SampleError::TopP(top_p));
        }
        let draw = Draw::new(&blake3::derive_key(CONTEXT, &seed.to_le_bytes()), text, 0);
        Ok(Self { sampling, draw, known })
    }

    /// The next token, by the scores of all tokens. // scores `[V]`
    ///
    /// # Errors
    /// [`SampleError::NotFinite`]
    pub fn draw(&mut self, scores: &[f32]) -> Result<i32, SampleError> {
        let known = scores.iter().take(self.known);
        let scores: Vec<_> = known.map(|score| f64::from(*score)).collect();
        let token = pick(&scores, self.sampling, self.draw.unit());
        // The cast is exact, since tokens are below 2^20.
        Ok(token.ok_or(SampleError::NotFinite)? as i32)
    }
}

/// The token at `unit`, from 0 to below 1, of the nucleus of softmax(scores / temperature), the
/// likeliest first; `None` if a score is not finite.
fn pick(scores: &[f64], sampling: Sampling, unit: f64) -> Option<usize> {
    let Sampling { temperature, top_p, .. } = sampling;
    if scores.iter().any(|score| !score.is_finite()) {
        return None;
    }
    let mut order: Vec<usize> = (0..scores.len()).collect();
    // Equal scores keep their order, so that a seed always gives the same text.
    order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
    let top = *order.first()?;
    if temperature == 0.0 {
        return Some(top);
    }
    let weights: Vec<f64> =
        order.iter().map(|token| ((scores[*token] - scores[top]) / temperature).exp()).collect();
    let sums = weights.iter().scan(0.0, |sum, weight| {
        *sum += weight;
        Some(*sum)
    });
    let sums: Vec<f64> = sums.collect();
    let whole = sums.last()?;
    // Rounding may leave a remainder after the last sum.
    let first_above = |share: f64| sums.partition_point(|sum| *sum <= share).min(sums.len() - 1);
    let nucleus = sums.partition_point(|sum| *sum < top_p * whole).min(sums.len() - 1);
    Some(order[first_above(unit * sums[nucleus])])
}

/// Keeps these draws apart from all others that a seed makes.
const CONTEXT: &str = "intellect-node 1 sample";

#[cfg(test)]
mod tests;
