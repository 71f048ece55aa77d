//! The inner learning rate: warmup–stable–decay over the run's tokens, and a ramp for whoever joins.
//!
//! The schedule follows what the *run* has committed, not what one peer has done, so that a peer
//! that joins late is where the others are. With t the committed tokens and those that this peer
//! has trained since, and W, S, D the three lengths (Hu et al. 2024, arXiv 2404.06395; the decay
//! with the root is INTELLECT-1's, Jaghouar et al. 2024, arXiv 2412.01152):
//!
//! ```text
//! f(t) = t / W                        t < W
//!        1                            t < W + S, and for ever when D = 0
//!        1 − √((t − W − S) / D)       t < W + S + D
//!        0                            then
//! ```
//!
//! A peer whose Adam moments are cold takes noisy steps of full length: its first k steps are held
//! to n/k of the peak. The smaller of the two factors counts.

use crate::config;

/// The learning rate of any step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schedule {
    peak: f64,
    warmup: u64,
    stable: u64,
    decay: u64,
    ramp: u64,
}

impl Schedule {
    /// The schedule that the manifest asks for.
    #[must_use]
    pub fn new(train: &config::Train) -> Self {
        Self {
            peak: train.lr,
            warmup: train.warmup_tokens,
            stable: train.stable_tokens,
            decay: train.decay_tokens,
            ramp: train.join_ramp_steps,
        }
    }

    /// The learning rate of the step that brings the run to `tokens` tokens and is the `steps`-th
    /// since this peer's Adam moments were cold; both count the step itself, so that the first
    /// one already learns.
    #[must_use]
    pub fn lr(&self, tokens: u64, steps: u64) -> f64 {
        self.peak * self.wsd(tokens).min(self.join(steps))
    }

    fn wsd(&self, tokens: u64) -> f64 {
        if tokens < self.warmup {
            return tokens as f64 / self.warmup as f64;
        }
        let over = (tokens - self.warmup).saturating_sub(self.stable);
        if self.decay == 0 || over == 0 {
            return 1.0;
        }
        (1.0 - (over as f64 / self.decay as f64).sqrt()).max(0.0)
    }

    fn join(&self, steps: u64) -> f64 {
        if steps < self.ramp { steps as f64 / self.ramp as f64 } else { 1.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEDULE: Schedule =
        Schedule { peak: 0.5, warmup: 100, stable: 300, decay: 400, ramp: 4 };

    #[test]
    fn it_warms_up_stays_and_falls() {
        let lr = |tokens| SCHEDULE.lr(tokens, 1000);
        assert_eq!([0, 25, 50, 100, 250, 400].map(lr), [0.0, 0.125, 0.25, 0.5, 0.5, 0.5]);
        assert_eq!([500, 625, 800, 801, u64::MAX].map(lr), [0.25, 0.125, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn without_decay_it_never_falls() {
        let schedule = Schedule { decay: 0, ..SCHEDULE };
        assert_eq!(schedule.lr(u64::MAX, 1000), 0.5);
    }

    #[test]
    fn without_warmup_it_starts_at_the_peak() {
        assert_eq!(Schedule { warmup: 0, ..SCHEDULE }.lr(0, 1000), 0.5);
    }

    #[test]
    fn cold_moments_ramp_up() {
        assert_eq!([1, 2, 3, 4, 5].map(|n| SCHEDULE.lr(200, n)), [0.125, 0.25, 0.375, 0.5, 0.5]);
        assert_eq!(Schedule { ramp: 0, ..SCHEDULE }.lr(200, 1), 0.5);
        // In the warmup the smaller factor counts, not the product.
        assert_eq!(SCHEDULE.lr(50, 3), 0.25);
    }
}
