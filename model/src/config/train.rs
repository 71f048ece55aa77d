//! `[train]`: the inner optimisation.
//!
//! `optim.rs` has the equations of these keys and `schedule.rs` those of the rate. What their ends
//! mean:
//!
//! - `batch`: a peer that lacks memory cuts it, and the step stays the same up to rounding.
//! - `lr`: too high, the loss rises, and at last a gradient is not finite and its step refused.
//! - `beta1`, `beta2`: a moment is a mean over about 1/(1 − β) steps, and 0 keeps nothing of the
//!   steps before.
//! - `eps`: far above the root of the second moment, steps shrink with the gradient instead of
//!   keeping their length.
//! - `clip`: 0 lets the gradient of one abnormal batch enter the moments at any size.
//! - `warmup_tokens`: 0 begins at the peak. `warmup_start` then has no effect.
//! - `decay_tokens`: 0 stays at the peak, whatever `stable_tokens` and `lr_final` say.
//! - `join_ramp_steps`: 0 gives a peer whose moments are cold the full rate at once.

use intellect_table::{Error, Named, Table, table};

table! {
    /// The inner optimisation: AdamW under a warmup–stable–decay schedule.
    pub struct Train in "train" {
        batch: usize, 1..=65_536, "sequences per inner step and peer; cutting it into micro-batches is local";
        lr: f64, 1e-9..=1.0, "peak learning rate";
        beta1: f64, 0.0..=BETA_MAX, "decay of the first moment";
        beta2: f64, 0.0..=BETA_MAX, "decay of the second moment";
        eps: f64, 1e-12..=1e-2, "added to the root of the second moment";
        weight_decay: f64, 0.0..=1.0, "decoupled decay of a Llama's parameters and of the other families' matrices, times the learning rate";
        clip: f64, 0.0..=1e6, "largest global norm of a gradient; 0: none";
        z_loss: f64, 0.0..=1.0, "weight of the squared largest logit in the loss";
        warmup_tokens: u64, 0..=TOKENS_MAX, "committed tokens over which the rate rises";
        warmup_start: f64, 0.0..=1.0, "share of `lr` that it rises from";
        stable_tokens: u64, 0..=TOKENS_MAX, "committed tokens after that at the peak";
        decay_tokens: u64, 0..=TOKENS_MAX, "committed tokens after that over which it falls; 0: it never falls";
        decay: Decay, (), "curve along which it falls";
        lr_final: f64, 0.0..=1.0, "where it ends and stays, at most `lr`";
        join_ramp_steps: u64, 0..=1_000_000, "steps with a lower rate while a peer's Adam moments are cold";
    }
}

/// The curves along which a learning rate falls, from 1 at x = 0 to 0 at x = 1.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Decay {
    /// 1 − √x (Hägele et al. 2024, arXiv 2405.18392; INTELLECT-1).
    OneMinusSqrt,
    /// 1 − x: the same step down for each token.
    Linear,
    /// (1 + cos πx)/2 (Loshchilov & Hutter 2017, arXiv 1608.03983; Eagle and Finch).
    Cosine,
    /// cos(πx/2), steepest at the end (GoldFinch).
    QuarterCosine,
}

impl Decay {
    /// The name of this curve in a manifest.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.entry().0
    }
}

impl Named for Decay {
    const NAMES: &'static [(Self, &'static str, u64)] = &[
        (Self::OneMinusSqrt, "1-sqrt", 1),
        (Self::Linear, "linear", 2),
        (Self::Cosine, "cosine", 3),
        (Self::QuarterCosine, "quarter-cosine", 4),
    ];
}

impl Table for Train {
    /// Checks that the rate does not rise in the decay.
    fn check(&self) -> Result<(), Error> {
        if self.lr_final > self.lr {
            return Err(Error::outside("train.lr_final", self.lr_final, &(0.0..=self.lr)));
        }
        Ok(())
    }
}

/// A mean over ten million steps; at 1 the moment would never move.
const BETA_MAX: f64 = 0.999_999_9;

/// The most tokens of a run: 2^53. Every whole number up to here is also a float, and TOML can write it.
pub(super) const TOKENS_MAX: u64 = 1 << 53;
