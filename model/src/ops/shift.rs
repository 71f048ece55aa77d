//! Token shift: a mean of each row and the one before it, by weights per channel (Peng et al. 2023,
//! arXiv 2305.13048).
//!
//! The row before the first token is an ordinary input: zeros in training, the last state in
//! generation. So the same operator reads a whole text and continues it token by token.
//!
//! ```text
//! y_t = x_t + (x_{t−1} − x_t)∘p, p the weight of the past
//! dx_t = dy_t∘(1 − p) + dy_{t+1}∘p,  dp = Σ_t dy_t∘(x_{t−1} − x_t)
//! ```

#[cfg(feature = "cube")]
mod cube;

use burn_backend::tensor::FloatTensor;
use burn_backend::{Backend, TensorMetadata};
use burn_flex::FlexTensor;
use burn_tensor::Tensor;
use rayon::prelude::*;

#[cfg(feature = "cube")]
pub(super) use self::cube::previous;
use super::buf::{floats, floats_mut, make};
use super::clock;
#[cfg(feature = "cube")]
use super::cube::{GpuBackend, OnGpu};
use super::lanes::{each, fma, simd};
use super::operator::{FusedOps, Operator, primitive, tensor};
use super::rows::{ROWS, add_up};

/// The token that the weight of a token shift applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weighs {
    /// The present token: h = x∘μ + prev(x)∘(1 − μ) (Eagle).
    Present,
    /// The previous token: h = x + (prev(x) − x)∘μ (Finch).
    Past,
}

/// A mean of each row and the one before it in its sequence. Inputs: x, μ and the row before the
/// first.
/// // `x, y [B·T, D]; mu [D]; before [B, D]`
#[derive(Clone, Copy, Debug)]
pub struct ShiftMix {
    /// The token that μ weighs; the other one has 1 − μ.
    pub weighs: Weighs,
}

impl Operator<3> for ShiftMix {
    fn plain<B: FusedOps>(&self, [x, mu, before]: [FloatTensor<B>; 3]) -> FloatTensor<B> {
        let (x, mu) = (tensor::<B, 2>(x), tensor::<B, 1>(mu));
        let past = match self.weighs {
            Weighs::Present => mu.neg() + 1.0,
            Weighs::Past => mu,
        };
        primitive(x.clone() + back(&x, before) * past.unsqueeze())
    }

    /// x, μ, before; the gradient of μ needs the differences of rows again.
    type Saved = [FlexTensor; 3];

    fn forward(&self, [x, mu, before]: [FlexTensor; 3]) -> (FlexTensor, Self::Saved) {
        let _timer = clock::start("shift");
        let (rows, weight) = (Shifted::new(&x, &before), Affine::from(self.weighs));
        let y = make(x.shape(), |y| {
            let chunks = y.par_chunks_mut(ROWS * rows.width).enumerate();
            chunks.for_each(|(i, y)| shift_rows(rows, floats(&mu), weight, i * ROWS, y));
        });
        (y, [x, mu, before])
    }

    fn backward(&self, [x, mu, before]: Self::Saved, dy: FlexTensor) -> [FlexTensor; 3] {
        let _timer = clock::start("shift back");
        let (rows, weight) = (Shifted::new(&x, &before), Affine::from(self.weighs));
        let (width, dy) = (rows.width, floats(&dy));
        let mut dmu = make(mu.shape(), |_| ());
        let dx = make(x.shape(), |dx| {
            let partial = dx.par_chunks_mut(ROWS * width).enumerate().map(|(i, dx)| {
                let mut dmu = vec![0.0; width];
                shift_grad_rows(dy, rows, floats(&mu), weight, i * ROWS, dx, &mut dmu);
                dmu
            });
            add_up(&partial.collect::<Vec<_>>(), floats_mut(&mut dmu));
        });
        // The first row of each sequence has `before` as its previous row.
        let dbefore = make(before.shape(), |dbefore| {
            let firsts = dy.chunks(rows.tokens() * width);
            for (dbefore, dy) in dbefore.chunks_exact_mut(width).zip(firsts) {
                for ((dbefore, dy), mu) in dbefore.iter_mut().zip(dy).zip(floats(&mu)) {
                    *dbefore = dy * (weight.a * mu + weight.b);
                }
            }
        });
        [dx, dmu, dbefore]
    }

    #[cfg(feature = "cube")]
    fn on_gpu<B: GpuBackend>(&self, inputs: [FloatTensor<B>; 3]) -> Option<OnGpu<B, 3>> {
        Some(cube::shift_mix::<B>(self.weighs, inputs))
    }
}

/// prev(x) − x, in plain tensors: each sequence is moved down by one row.
/// // x [B·T, D], before [B, D]
pub(super) fn back<B: Backend>(x: &Tensor<B, 2>, before: FloatTensor<B>) -> Tensor<B, 2> {
    let before = tensor::<B, 2>(before);
    let ([rows, width], [sequences, _]) = (x.dims(), before.dims());
    let tokens = rows / sequences;
    let shaped = x.clone().reshape([sequences, tokens, width]);
    let all = Tensor::cat(vec![before.unsqueeze_dim::<3>(1), shaped], 1); // [B, T + 1, D]
    all.narrow(1, 0, tokens).reshape([rows, width]) - x.clone()
}

/// The weight of the previous row as a·μ + b, so that one kernel serves both forms.
#[derive(Clone, Copy)]
struct Affine {
    /// The factor of μ: −1 if μ weighs the present, else 1.
    a: f32,
    /// The constant: 1 if μ weighs the present, else 0.
    b: f32,
}

impl From<Weighs> for Affine {
    fn from(weighs: Weighs) -> Self {
        match weighs {
            Weighs::Present => Self { a: -1.0, b: 1.0 },
            Weighs::Past => Self { a: 1.0, b: 0.0 },
        }
    }
}

/// The rows of all sequences, and the row before each sequence.
#[derive(Clone, Copy)]
pub(super) struct Shifted<'a> {
    /// All rows, sequence after sequence. // [B·T, D]
    pub(super) x: &'a [f32],
    /// The row before the first of each. // [B, D]
    pub(super) before: &'a [f32],
    /// D, the number of channels of a row.
    pub(super) width: usize,
}

impl<'a> Shifted<'a> {
    /// The rows as slices; nothing is copied.
    pub(super) fn new(x: &'a FlexTensor, before: &'a FlexTensor) -> Self {
        Self { x: floats(x), before: floats(before), width: x.shape()[1] }
    }

    /// T, the tokens of each sequence.
    pub(super) fn tokens(self) -> usize {
        self.x.len() / self.before.len()
    }

    /// A row, counted over all sequences.
    pub(super) fn row(self, index: usize) -> &'a [f32] {
        &self.x[index * self.width..][..self.width]
    }

    /// The row before this one in its sequence. It is called for each row within a kernel, so it
    /// has to be inlined.
    #[inline(always)]
    pub(super) fn prev(self, index: usize) -> &'a [f32] {
        if index.is_multiple_of(self.tokens()) {
            return &self.before[index / self.tokens() * self.width..][..self.width];
        }
        self.row(index - 1)
    }
}

simd! {
    /// y for the rows from `start` on, as many as `y` has.
    fn shift_rows<S>(rows: Shifted<'_>, mu: &[f32], weight: Affine, start: usize, y: &mut [f32]) {
        for (i, y) in y.chunks_exact_mut(rows.width).enumerate() {
            let (x, prev) = (rows.row(start + i), rows.prev(start + i));
            each!(<S>(x, prev, mu; y; weight: Affine) |i| {
                let past = fma::<S>(weight.a, mu[i], weight.b);
                y[i] = fma::<S>(prev[i] - x[i], past, x[i]);
            });
        }
    }

    /// Gradients for the rows from `start` on, as many as `dx` has: a row gets its own part, and
    /// that of the next row of its sequence. Overwrites `dx`, and adds to `dmu`.
    fn shift_grad_rows<S>(
        dy: &[f32], rows: Shifted<'_>, mu: &[f32], weight: Affine, start: usize, dx: &mut [f32],
        dmu: &mut [f32],
    ) {
        let (width, tokens) = (rows.width, rows.tokens());
        for (i, dx) in dx.chunks_exact_mut(width).enumerate() {
            let at = start + i;
            let (x, prev, here) = (rows.row(at), rows.prev(at), &dy[at * width..][..width]);
            each!(<S>(here, x, prev, mu; dx, dmu; weight: Affine) |i| {
                let past = fma::<S>(weight.a, mu[i], weight.b);
                dx[i] = fma::<S>(-here[i], past, here[i]);
                dmu[i] = fma::<S>(here[i] * weight.a, prev[i] - x[i], dmu[i]);
            });
            if !(at + 1).is_multiple_of(tokens) {
                let after = &dy[(at + 1) * width..][..width];
                each!(<S>(after, mu; dx; weight: Affine) |i| {
                    dx[i] = fma::<S>(after[i], fma::<S>(weight.a, mu[i], weight.b), dx[i]);
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{SIZES, assert_plain, assert_slopes, input};
    use super::*;

    #[test]
    fn token_shifts_are_the_plain_form() {
        for [sequences, tokens, width] in SIZES {
            let x = input(&[sequences * tokens, width], 1.0, 1);
            let [mu, before] = [input(&[width], 1.0, 2), input(&[sequences, width], 1.0, 3)];
            for weighs in [Weighs::Present, Weighs::Past] {
                assert_plain(ShiftMix { weighs }, [x.clone(), mu.clone(), before.clone()]);
            }
        }
        let inputs = [input(&[14, 12], 1.0, 1), input(&[12], 1.0, 2), input(&[2, 12], 1.0, 9)];
        assert_slopes(ShiftMix { weighs: Weighs::Present }, inputs);
    }
}
