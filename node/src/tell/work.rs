//! What this start has trained: how fast, and how much of it went into the run.

use std::time::{Duration, Instant};

use crate::figures::{self, number_of};

/// How often the progress of a long epoch is reported.
const EVERY: Duration = Duration::from_secs(10);

/// Steps of one epoch since the last sentence about them.
#[derive(Clone, Debug)]
pub(super) struct Trained {
    epoch: u64,
    /// Since when the steps are counted.
    since: Instant,
    tokens: u64,
    /// Sum of the losses of the steps.
    loss: f64,
    /// How many steps these are, at least one in a sentence.
    steps: u32,
}

impl Trained {
    pub(super) fn new(epoch: u64) -> Self {
        Self { epoch, since: Instant::now(), tokens: 0, loss: 0.0, steps: 0 }
    }

    /// Counts a step of `epoch`. Every few seconds of a long epoch it returns a sentence about them.
    pub(super) fn step(&mut self, epoch: u64, loss: f64, tokens: u64) -> Option<String> {
        if self.epoch != epoch {
            *self = Self::new(epoch);
        }
        self.tokens += tokens;
        self.loss += loss;
        self.steps += 1;
        let length = self.since.elapsed();
        if length < EVERY {
            return None;
        }
        let sentence = self.sentence(length);
        *self = Self::new(epoch);
        Some(sentence)
    }

    /// The sentence about these steps, with their mean loss and their rate.
    fn sentence(&self, length: Duration) -> String {
        let Self { epoch, tokens, loss, steps, .. } = self;
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a rate for people"
        )]
        let rate = (*tokens as f64 / length.as_secs_f64()) as u64;
        let loss = loss / f64::from(*steps);
        format!("training epoch {epoch}: loss {loss:.3}, {} tokens/s", figures::count(rate))
    }
}

/// What this start has contributed to the run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Contributed {
    /// Epochs whose update contains work of this start.
    pub(super) epochs: u64,
    /// Tokens of the work in these epochs.
    pub(super) tokens: u64,
}

impl Contributed {
    /// The last sentence of a node: `what` became of it, as in "left", and the `command` that continues.
    pub(super) fn last_word(self, what: &str, epoch: u64, command: &str) -> String {
        let Self { epochs, tokens } = self;
        let (epochs, tokens) = (number_of(epochs, "epoch"), figures::count(tokens));
        format!(
            "{what} at epoch {epoch}: took part in {epochs} with {tokens} tokens since this start; \
             continue with `{command}`"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_about_steps_is_about_one_epoch() {
        let trained = Trained { tokens: 4_000, loss: 5.0, steps: 2, ..Trained::new(6) };
        let said = trained.sentence(Duration::from_secs(10));
        assert_eq!(said, "training epoch 6: loss 2.500, 400 tokens/s");
    }

    #[test]
    fn the_last_sentence_says_what_was_contributed_and_how_to_continue() {
        let contributed = Contributed { epochs: 24, tokens: 920 };
        assert_eq!(
            contributed.last_word("left", 25, "intellect-node --data-dir na"),
            "left at epoch 25: took part in 24 epochs with 920 tokens since this start; \
             continue with `intellect-node --data-dir na`"
        );
    }
}
