//! Rotary positions: the angles of every position and pair of channels (Su et al. 2021).

use std::sync::Arc;

/// Cosines and sines of the rotary embedding: angle t·θ^(−2i/K) for position t and pair i < K/2.
/// // [T, K/2]
///
/// A pair is (i, i + K/2), the "half" layout of Hugging Face weights.
#[derive(Clone, Debug)]
pub struct Rope {
    cos: Arc<[f32]>,
    sin: Arc<[f32]>,
    /// K/2
    pub(super) half: usize,
    /// Position of the first row that is turned.
    first: usize,
}

impl Rope {
    /// The table for `tokens` positions and heads of width `size`, an even number.
    pub fn new(tokens: usize, size: usize, theta: f64, scaling: Option<RopeScaling>) -> Self {
        let half = size / 2;
        let inverse = |i: usize| {
            let frequency = (theta as f32).powf(-((2 * i) as f32) / size as f32);
            scaling.map_or(frequency, |scaling| scaling.stretch(frequency))
        };
        let angles = (0..tokens).flat_map(|t| (0..half).map(move |i| t as f32 * inverse(i)));
        let (cos, sin): (Vec<f32>, Vec<f32>) = angles.map(|a| (a.cos(), a.sin())).unzip();
        Self { cos: cos.into(), sin: sin.into(), half, first: 0 }
    }

    /// The same table for rows that begin at position `first`.
    pub fn starting_at(&self, first: usize) -> Self {
        Self { first, ..self.clone() }
    }

    /// Cosines and sines of the first `tokens` rows. // [T, K/2] each
    pub(super) fn angles(&self, tokens: usize) -> [&[f32]; 2] {
        let rows = self.first * self.half..(self.first + tokens) * self.half;
        [&self.cos[rows.clone()], &self.sin[rows]]
    }
}

/// How Llama 3.1 and its successors turn a model to a longer context: what turns less than once over the
/// original context turns slower by a factor, what turns more than four times is left as it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RopeScaling {
    /// 1–1,000.
    pub factor: f64,
    /// Tokens of context before, 8–2^20.
    pub original: usize,
}

impl RopeScaling {
    /// Turns over the original context, below which a frequency is divided: `low_freq_factor` in Llama's
    /// program.
    pub(crate) const ONCE: f32 = 1.0;
    /// And above which it stays: `high_freq_factor`.
    pub(crate) const OFTEN: f32 = 4.0;

    /// Between the two it is a mean of both.
    fn stretch(self, frequency: f32) -> f32 {
        let turns = self.original as f32 * frequency / std::f32::consts::TAU;
        let kept = ((turns - Self::ONCE) / (Self::OFTEN - Self::ONCE)).clamp(0.0, 1.0);
        (1.0 - kept) * frequency / self.factor as f32 + kept * frequency
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Over 64 tokens: half a turn and one are divided, four and more stay, and two and a half are half way.
    #[test]
    fn frequencies_are_stretched_where_they_are_slow() {
        let scaling = RopeScaling { factor: 8.0, original: 64 };
        let part = |turns: f32| {
            let frequency = turns * std::f32::consts::TAU / 64.0;
            scaling.stretch(frequency) / frequency
        };
        for (turns, expected) in [(0.5, 0.125), (1.0, 0.125), (2.5, 0.5625), (4.0, 1.0), (9.0, 1.0)]
        {
            assert!((part(turns) - expected).abs() < 1e-6, "{turns}: {}", part(turns));
        }
    }
}
