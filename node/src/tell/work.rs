//! What this start has trained: how fast, and how much of it went into the run.

use std::time::{Duration, Instant};

use crate::figures::{self, number_of};

/// Progress of a long training epoch is told so often.
const EVERY: Duration = Duration::from_secs(10);

/// Steps of one epoch since the last sentence about them.
#[derive(Clone, Debug)]
pub(super) struct Trained {
    epoch: u64,
    since: Instant,
    tokens: u64,
    /// Sum over the steps.
    loss: f64,
    steps: u32,
}

impl Trained {
    pub(super) fn new(epoch: u64) -> Self {
        Self { epoch, since: Instant::now(), tokens: 0, loss: 0.0, steps: 0 }
    }

    /// One step of `epoch`; where an epoch lasts, what is to be said of it every few seconds.
    pub(super) fn step(&mut self, epoch: u64, loss: f64, tokens: u64) -> Option<String> {
        if self.epoch != epoch {
            *self = Self::new(epoch);
        }
        self.tokens += tokens;
        self.loss += loss;
        self.steps += 1;
        let length = self.since.elapsed();
        (length >= EVERY).then(|| std::mem::replace(self, Self::new(epoch)).sentence(length))
    }

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

/// What this start has brought into the run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Brought {
    /// Epochs whose update has work of this start in it.
    pub(super) epochs: u64,
    /// Tokens of that work.
    pub(super) tokens: u64,
}

impl Brought {
    /// The last sentence of a node that goes on when `command` is typed; `what` it has, as in "left".
    pub(super) fn last_word(self, what: &str, epoch: u64, command: &str) -> String {
        let Self { epochs, tokens } = self;
        let (epochs, tokens) = (number_of(epochs, "epoch"), figures::count(tokens));
        format!(
            "{what} at epoch {epoch}: took part in {epochs} with {tokens} tokens; `{command}` goes on"
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
    fn the_last_word_says_what_was_brought_and_how_it_goes_on() {
        let brought = Brought { epochs: 24, tokens: 920 };
        assert_eq!(
            brought.last_word("left", 25, "intellect-node --data-dir na"),
            "left at epoch 25: took part in 24 epochs with 920 tokens; \
             `intellect-node --data-dir na` goes on"
        );
    }
}
