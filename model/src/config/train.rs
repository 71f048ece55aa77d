//! `[train]` field by field, in the order in which it is written and hashed, with bounds.

use super::fields::{Field, Fields};
use super::{Decay, TOKENS_MAX, Train, WorkError};

impl Train {
    pub(super) fn read(fields: &Fields<'_>) -> Result<Self, WorkError> {
        Ok(Self {
            batch: fields.count("batch", 1, 65_536)?,
            lr: fields.float("lr", 1e-9, 1.0)?,
            beta1: fields.float("beta1", 0.0, BETA_MAX)?,
            beta2: fields.float("beta2", 0.0, BETA_MAX)?,
            eps: fields.float("eps", 1e-12, 1e-2)?,
            weight_decay: fields.float("weight_decay", 0.0, 1.0)?,
            clip: fields.float("clip", 0.0, 1e6)?,
            z_loss: fields.float("z_loss", 0.0, 1.0)?,
            warmup_tokens: fields.integer("warmup_tokens", 0, TOKENS_MAX)?,
            warmup_start: fields.float("warmup_start", 0.0, 1.0)?,
            stable_tokens: fields.integer("stable_tokens", 0, TOKENS_MAX)?,
            decay_tokens: fields.integer("decay_tokens", 0, TOKENS_MAX)?,
            decay: fields.choice("decay", &Decay::ALL, Decay::name)?,
            lr_final: fields.float("lr_final", 0.0, fields.float("lr", 1e-9, 1.0)?)?,
            join_ramp_steps: fields.integer("join_ramp_steps", 0, 1_000_000)?,
        })
    }

    pub(super) fn fields(&self) -> Vec<(&'static str, Field)> {
        vec![
            ("batch", Field::count(self.batch)),
            ("lr", Field::Float(self.lr)),
            ("beta1", Field::Float(self.beta1)),
            ("beta2", Field::Float(self.beta2)),
            ("eps", Field::Float(self.eps)),
            ("weight_decay", Field::Float(self.weight_decay)),
            ("clip", Field::Float(self.clip)),
            ("z_loss", Field::Float(self.z_loss)),
            ("warmup_tokens", Field::Integer(self.warmup_tokens)),
            ("warmup_start", Field::Float(self.warmup_start)),
            ("stable_tokens", Field::Integer(self.stable_tokens)),
            ("decay_tokens", Field::Integer(self.decay_tokens)),
            ("decay", Field::Name(self.decay.name(), self.decay as u64)),
            ("lr_final", Field::Float(self.lr_final)),
            ("join_ramp_steps", Field::Integer(self.join_ramp_steps)),
        ]
    }
}

impl Decay {
    const ALL: [Self; 4] = [Self::OneMinusSqrt, Self::Linear, Self::Cosine, Self::QuarterCosine];
}

/// A mean over ten million steps; at 1 the moment would never move.
const BETA_MAX: f64 = 0.999_999_9;
