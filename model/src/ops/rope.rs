//! Rotary positions: query and key heads are rotated by the angles of their positions (Su et al.
//! 2021, arXiv 2104.09864).
//!
//! The product of a rotated query and a rotated key depends on the difference of their positions
//! only. The gradient is rotated back by the same angles, for a rotation's inverse is its
//! transpose.

use std::sync::Arc;

use burn_backend::tensor::FloatTensor;
use burn_flex::FlexTensor;
use burn_tensor::{Tensor, TensorData};
use rayon::prelude::*;

use super::attention::Heads;
use super::buf::floats_mut;
use super::clock;
use super::lanes::{each, simd};
use super::operator::{FusedOps, Operator, primitive, tensor};
use super::rows::ROWS;

/// Rotates the query and key heads of packed rows by the angles of their positions.
/// // qkv, y [B·T, (H + 2G)·K]
#[derive(Clone, Debug)]
pub struct Rotate {
    /// The shape of the packed rows.
    pub heads: Heads,
    /// The table of the angles of all positions.
    pub rope: Rope,
}

impl Operator<1> for Rotate {
    fn plain<B: FusedOps>(&self, [qkv]: [FloatTensor<B>; 1]) -> FloatTensor<B> {
        let Self { heads, rope } = self;
        let qkv = tensor::<B, 2>(qkv);
        let turned = heads.query + heads.kv;
        let table = |values: &[f32]| {
            let data = TensorData::new(values.to_vec(), [1, heads.tokens, 1, rope.half]);
            Tensor::<B, 4>::from_data(data, &qkv.device())
        };
        let [cos, sin] = rope.angles(heads.tokens).map(table); // [1, T, 1, K/2]
        let x = heads.of(&qkv, 0, turned); // [B, T, H + G, K]
        let (a, b) = (x.clone().narrow(3, 0, rope.half), x.narrow(3, rope.half, rope.half));
        let first = a.clone() * cos.clone() - b.clone() * sin.clone();
        let second = a * sin + b * cos;
        let [rows, width] = [heads.sequences * heads.tokens, turned * heads.size];
        let turned = Tensor::cat(vec![first, second], 3).reshape([rows, width]);
        let values = qkv.narrow(1, width, heads.kv * heads.size);
        primitive(Tensor::cat(vec![turned, values], 1))
    }

    /// Nothing: angles alone decide, and they are in the operator.
    type Saved = ();

    /// Overwrites its input, which is a fresh projection.
    fn forward(&self, [mut qkv]: [FlexTensor; 1]) -> (FlexTensor, ()) {
        self.turn(floats_mut(&mut qkv), 1.0);
        (qkv, ())
    }

    /// Rotates the gradient back by the same angles.
    fn backward(&self, (): (), mut dy: FlexTensor) -> [FlexTensor; 1] {
        self.turn(floats_mut(&mut dy), -1.0);
        [dy]
    }
}

impl Rotate {
    /// Rotates forward if `sign` is 1, back if it is −1. Value heads, behind the keys, stay.
    /// // x [B·T, (H + 2G)·K]
    fn turn(&self, x: &mut [f32], sign: f32) {
        let _timer = clock::start("rotate");
        let Self { heads, rope } = self;
        let (row, rotated) = (heads.row(), (heads.query + heads.kv) * heads.size);
        let [cos, sin] = rope.angles(heads.tokens);
        x.par_chunks_mut(ROWS * row).enumerate().for_each(|(i, x)| {
            rope_rows(x, [row, rotated, rope.half], cos, sin, i * ROWS, sign);
        });
    }
}

/// Cosines and sines of the rotary embedding: angle t·θ^(−2i/K) for position t and pair i < K/2. A
/// clone shares the table. // [T, K/2]
///
/// A pair is (i, i + K/2), the "half" layout of Hugging Face weights.
#[derive(Clone, Debug)]
pub struct Rope {
    /// Cosines of all positions. // [T, K/2]
    cos: Arc<[f32]>,
    /// Sines of all positions. // [T, K/2]
    sin: Arc<[f32]>,
    /// K/2, the pairs of channels of a head.
    half: usize,
    /// Position of the first row that is rotated.
    first: usize,
}

impl Rope {
    /// The table for `tokens` positions and heads of width `size`, an even number. Powers and
    /// angles come from `libm`, so that the table has the same bits on every machine.
    pub fn new(tokens: usize, size: usize, theta: f64, scaling: Option<RopeScaling>) -> Self {
        let half = size / 2;
        let inverse = |i: usize| {
            let frequency = libm::powf(theta as f32, -((2 * i) as f32) / size as f32);
            scaling.map_or(frequency, |scaling| scaling.stretch(frequency))
        };
        let angles = (0..tokens).flat_map(|t| (0..half).map(move |i| t as f32 * inverse(i)));
        let (cos, sin): (Vec<f32>, Vec<f32>) =
            angles.map(|a| (libm::cosf(a), libm::sinf(a))).unzip();
        Self { cos: cos.into(), sin: sin.into(), half, first: 0 }
    }

    /// The same table for rows that begin at position `first`, as when a text is continued.
    pub fn starting_at(&self, first: usize) -> Self {
        Self { first, ..self.clone() }
    }

    /// Cosines and sines of the first `tokens` rows. It panics if they reach beyond the table.
    /// // [T, K/2] each
    fn angles(&self, tokens: usize) -> [&[f32]; 2] {
        let rows = self.first * self.half..(self.first + tokens) * self.half;
        [&self.cos[rows.clone()], &self.sin[rows]]
    }
}

/// How Llama 3.1 and its successors extend a model to a longer context: frequencies with less than
/// one turn over the original context are divided by a factor, those with more than four turns
/// stay, and those between are interpolated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RopeScaling {
    /// The divisor of slow frequencies, 1 to 1,000.
    pub factor: f64,
    /// The context before the extension, 8 to 2^20 tokens.
    pub original: usize,
}

impl RopeScaling {
    /// Turns over the original context below which a frequency is divided, `low_freq_factor` in
    /// Llama's program.
    pub(crate) const ONCE: f32 = 1.0;
    /// Turns over the original context above which a frequency stays, `high_freq_factor`.
    pub(crate) const OFTEN: f32 = 4.0;

    /// The frequency for the longer context, interpolated between the two bounds.
    fn stretch(self, frequency: f32) -> f32 {
        let turns = self.original as f32 * frequency / std::f32::consts::TAU;
        let kept = ((turns - Self::ONCE) / (Self::OFTEN - Self::ONCE)).clamp(0.0, 1.0);
        (1.0 - kept) * frequency / self.factor as f32 + kept * frequency
    }
}

simd! {
    /// Rotates the pairs (i, i + K/2) of each head of width K, forward (`sign` 1) or back (−1).
    /// `first` is the position of the first row; cos, sin [T, K/2].
    fn rope_rows<S>(
        x: &mut [f32], widths: [usize; 3], cos: &[f32], sin: &[f32], first: usize, sign: f32,
    ) {
        let [row, rotated, half] = widths;
        let tokens = cos.len() / half;
        for (i, x) in x.chunks_exact_mut(row).enumerate() {
            let at = (first + i) % tokens * half;
            let (cos, sin) = (&cos[at..at + half], &sin[at..at + half]);
            for head in x[..rotated].chunks_exact_mut(2 * half) {
                let (a, b) = head.split_at_mut(half);
                each!((cos, sin; a, b; sign: f32) |i| {
                    let (u, v, s) = (a[i], b[i], sin[i] * sign);
                    a[i] = u * cos[i] - v * s;
                    b[i] = v * cos[i] + u * s;
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{SHAPES, assert_plain, assert_slopes, heads, input};
    use super::*;

    #[test]
    fn rotation_is_the_plain_form() {
        for shape in SHAPES {
            let heads = heads(shape);
            // The table may be longer than the sequences.
            let rope = Rope::new(heads.tokens + 3, heads.size, 10_000.0, None);
            let qkv = input(&[heads.sequences * heads.tokens, heads.row()], 1.0, 1);
            assert_plain(Rotate { heads, rope }, [qkv]);
        }
        let heads = heads([2, 9, 4, 2, 6]);
        let rope = Rope::new(heads.tokens, heads.size, 100.0, None);
        assert_slopes(Rotate { heads, rope }, [input(&[18, heads.row()], 1.0, 1)]);
    }

    /// Over 64 tokens, half a turn and one turn are divided, four and more stay, and two and a half
    /// are halfway between.
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
