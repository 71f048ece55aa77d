//! Generates text from a model: one token after the other, each drawn from the model's predictions.
//!
//! With scores z and temperature τ a token is drawn from softmax(z / τ); τ = 0 takes the likeliest.
//! Only the *nucleus* of that distribution is used, the fewest tokens whose probabilities sum to p
//! (Holtzman et al. 2020, arXiv 1904.09751). With p = 1 that is all of them; a lower p leaves out
//! tokens that are each improbable, but together too frequent. The draws are a pure function of the
//! seed. Each token is read once, and the reader's state carries its effect on later tokens.

use std::ops::ControlFlow;

use thiserror::Error;

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
    /// The number of tokens to draw.
    pub tokens: usize,
}

/// Why no token could be drawn.
#[derive(Debug, Error)]
pub enum SampleError {
    /// The prompt is empty, so there is nothing to continue.
    #[error("a sample needs at least one token to begin with")]
    NoPrompt,
    /// The temperature is outside 0 to 100.
    #[error("the temperature is {temperature}: choose 0 to 100")]
    Temperature {
        /// The temperature that was asked for.
        temperature: f64,
    },
    /// The share of the nucleus leaves no token, or is above 1.
    #[error("top-p is {top_p}: choose more than 0, and 1 at most")]
    TopP {
        /// The share that was asked for.
        top_p: f64,
    },
    /// The model or its device failed.
    #[error(transparent)]
    Model(#[from] TrainError),
    /// The model's scores are infinite or NaN.
    #[error("the model's scores are not finite: the training has diverged")]
    NotFinite,
}

/// Draws tokens after `prompt` and passes each to `on_token` at once, until that breaks.
///
/// # Errors
/// An empty prompt, a wrong temperature, a model that fails or has diverged.
pub fn sample(
    model: &dyn Model,
    work: &Work,
    prompt: &[i32],
    sampling: Sampling,
    on_token: &mut dyn FnMut(i32) -> ControlFlow<()>,
) -> Result<(), SampleError> {
    let Sampling { temperature, top_p, seed, tokens } = sampling;
    if prompt.is_empty() {
        return Err(SampleError::NoPrompt);
    }
    if !(0.0..=100.0).contains(&temperature) {
        return Err(SampleError::Temperature { temperature });
    }
    if !(top_p > 0.0 && top_p <= 1.0) {
        return Err(SampleError::TopP { top_p });
    }
    let mut draw = Draw::new(&blake3::derive_key(CONTEXT, &seed.to_le_bytes()), 0, 0);
    let mut reader = model.reader();
    let mut unread = prompt.to_vec();
    for _ in 0..tokens {
        let scores = reader.read(&unread)?;
        // A vocabulary may have more rows than there are tokens; the excess is never drawn.
        let known = scores.iter().take(work.data.tokens());
        let scores: Vec<_> = known.map(|score| f64::from(*score)).collect();
        let token = pick(&scores, sampling, draw.unit()).ok_or(SampleError::NotFinite)? as i32;
        unread = vec![token];
        if on_token(token).is_break() {
            break;
        }
    }
    Ok(())
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

const CONTEXT: &str = "intellect-node 1 sample";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Batch;
    use crate::train::{Judged, Reader};

    /// Predicts the successor of the newest token, modulo 8, with a score of `certainty`.
    struct Counter {
        vocab: usize,
        certainty: f32,
    }

    impl Model for Counter {
        fn load(&mut self, _: &[f32]) -> Result<(), TrainError> {
            Ok(())
        }

        fn store(&self, _: &mut [f32]) -> Result<(), TrainError> {
            Ok(())
        }

        fn logits(&self, _: &[i32], _: usize) -> Result<Vec<f32>, TrainError> {
            unreachable!("a sample reads on")
        }

        fn judge(&self, _: &[i32], _: &[i32], _: usize) -> Result<Vec<Judged>, TrainError> {
            unreachable!("a sample has no targets")
        }
        fn loss(&self, _: &Batch) -> Result<f64, TrainError> {
            unreachable!("a sample has no targets")
        }

        fn reader(&self) -> Box<dyn Reader + '_> {
            Box::new(Counting(self))
        }
    }

    struct Counting<'a>(&'a Counter);

    impl Reader for Counting<'_> {
        fn read(&mut self, tokens: &[i32]) -> Result<Vec<f32>, TrainError> {
            let mut scores = vec![0.0; self.0.vocab];
            let last = *tokens.last().expect("a token to go on from");
            scores[(last as usize + 1) % 8] = self.0.certainty;
            // Scores beyond the source's tokens are high, and must not count.
            scores[8..].fill(1e6);
            Ok(scores)
        }

        fn judge(&mut self, _: &[i32], _: &[i32]) -> Result<Vec<Judged>, TrainError> {
            unreachable!("a sample has no targets")
        }
        fn fork(&self) -> Box<dyn Reader + '_> {
            Box::new(Counting(self.0))
        }
    }

    fn work() -> Work {
        let mut work = Work::synthetic();
        work.data.source = crate::config::Source::Synthetic { symbols: 8, order: 1 };
        work
    }

    fn draw(certainty: f32, prompt: &[i32], sampling: Sampling) -> Result<Vec<i32>, SampleError> {
        let mut drawn = Vec::new();
        let model = Counter { vocab: 11, certainty };
        sample(&model, &work(), prompt, sampling, &mut |token| {
            drawn.push(token);
            ControlFlow::Continue(())
        })?;
        Ok(drawn)
    }

    #[test]
    fn at_temperature_zero_the_likeliest_comes() {
        let sampling = Sampling { temperature: 0.0, top_p: 1.0, seed: 1, tokens: 40 };
        let drawn = draw(0.1, &[6], sampling).expect("drawn");
        let counted: Vec<_> = (7..47).map(|token| token % 8).collect();
        assert_eq!(drawn, counted);
    }

    /// A score higher by ln 7 makes one of 8 tokens as likely as the others together; doubling the
    /// temperature takes the square root of its weight.
    #[test]
    fn tokens_come_as_often_as_expected() {
        for (temperature, expected) in [(1.0, 0.5), (2.0, 7_f64.sqrt() / (7.0 + 7_f64.sqrt()))] {
            let sampling = Sampling { temperature, top_p: 1.0, seed: 1, tokens: 20_000 };
            let drawn = draw(7_f32.ln(), &[0], sampling).expect("drawn");
            let hits = drawn.windows(2).filter(|pair| (pair[0] + 1) % 8 == pair[1]).count();
            let share = hits as f64 / 20_000.0;
            assert!((share - expected).abs() < 0.018, "{share} instead of {expected}");
        }
    }

    #[test]
    fn the_seed_selects_the_draws() {
        let seeded = |seed| {
            draw(0.0, &[0, 1], Sampling { temperature: 1.0, top_p: 0.9, seed, tokens: 30 })
                .expect("drawn")
        };
        assert_eq!(seeded(1), seeded(1));
        assert_ne!(seeded(1), seeded(2));
    }

    #[test]
    fn it_stops_when_asked() {
        let sampling = Sampling { temperature: 1.0, top_p: 1.0, seed: 1, tokens: 1000 };
        let mut count = 0;
        let mut stop = |_| {
            count += 1;
            if count == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let model = Counter { vocab: 11, certainty: 1.0 };
        sample(&model, &work(), &[0], sampling, &mut stop).expect("drawn");
        assert_eq!(count, 3);
    }

    #[test]
    fn what_cannot_be_drawn_is_refused() {
        let sampling = Sampling { temperature: 1.0, top_p: 1.0, seed: 1, tokens: 1 };
        assert!(matches!(draw(1.0, &[], sampling), Err(SampleError::NoPrompt)));
        for temperature in [-0.1, 100.1, f64::NAN] {
            let sampling = Sampling { temperature, ..sampling };
            assert!(matches!(draw(1.0, &[0], sampling), Err(SampleError::Temperature { .. })));
        }
        for certainty in [f32::NAN, f32::INFINITY] {
            assert!(matches!(draw(certainty, &[0], sampling), Err(SampleError::NotFinite)));
        }
        for top_p in [0.0, -0.1, 1.1, f64::NAN] {
            let sampling = Sampling { top_p, ..sampling };
            assert!(matches!(draw(1.0, &[0], sampling), Err(SampleError::TopP { .. })));
        }
        assert_eq!(pick(&[], sampling, 0.5), None);
        assert_eq!(pick(&[0.0, 0.0], sampling, 1.0), Some(1));
    }

    /// With probabilities 0.1, 0.6, 0.3 the nucleus of 0.59 has one token and that of 0.7 two, the
    /// likeliest first.
    #[test]
    fn only_the_nucleus_is_drawn_from() {
        let scores = [0.1_f64, 0.6, 0.3].map(f64::ln);
        let drawn = |top_p| {
            let sampling = Sampling { temperature: 1.0, top_p, seed: 0, tokens: 0 };
            [0.0, 0.5, 0.65, 0.75, 0.95].map(|unit| pick(&scores, sampling, unit))
        };
        assert_eq!(drawn(0.59), [1; 5].map(Some));
        assert_eq!(drawn(0.7), [1, 1, 1, 2, 2].map(Some));
        assert_eq!(drawn(1.0), [1, 1, 2, 2, 0].map(Some));
    }
}
