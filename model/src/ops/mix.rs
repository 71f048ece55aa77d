//! The data-dependent interpolation of Finch on slices, forward and backward: all pieces of a row
//! while the row is in the cache.
//!
//! For pieces c, each with its own columns a_c of the low-rank features and rows w_c of the map out
//! of them (Peng et al. 2024, arXiv 2404.05892, equation of ddlerp):
//!
//! ```text
//! m_c = μ_c + a_c·w_c              y_c = x + (prev(x) − x)∘m_c
//! dm_c = dy_c∘(prev(x) − x)        dx_t = Σ_c dy_ct∘(1 − m_ct) + dy_c(t+1)∘m_c(t+1)
//! da_c = dm_c·w_cᵀ                 dw_c = a_cᵀ·dm_c        dμ_c = Σ_t dm_ct
//! ```
//!
//! The backward pass recomputes the weights m, which costs less than storing and reading them. Sums
//! over rows are added in the order of [`groups`](Inputs::group_rows), so results do not depend on
//! the number of threads.

#[cfg(feature = "cube")]
mod cube;

use burn_backend::TensorMetadata;
use burn_backend::tensor::FloatTensor;
use burn_flex::FlexTensor;
use burn_tensor::Tensor;
use rayon::prelude::*;

use super::buf::{contiguous, floats, floats_mut, make};
use super::clock;
#[cfg(feature = "cube")]
use super::cube::{GpuBackend, OnGpuOfMany};
use super::gemm::{Mat, MatMut, Threads, Write, product};
use super::lanes::{each, fma, simd};
use super::operator::{FusedOps, MultiOutput, primitive, tensor};
use super::project::matmul;
use super::rows::add_up;
use super::shift::{Shifted, back};

/// x + (prev(x) − x)∘(μ_c + a_c·w_c) for M consecutive pieces of A, each with R columns of a, R
/// rows of w and a row of μ. Inputs: x, a, w, μ and the row before the first.
/// // x, y [B·T, D]; a [B·T, A·R]; w [A·R, D]; mu [M, D]; before [B, D]
#[derive(Clone, Copy, Debug)]
pub struct DataMix {
    /// The first of the M pieces among the A, counted from 0.
    pub first: usize,
    /// R, the low-rank features of each piece.
    pub rank: usize,
}

impl DataMix {
    /// The inputs as slices; nothing is copied.
    fn inputs<'a>(&self, [x, a, w, mu, before]: [&'a FlexTensor; 5]) -> Inputs<'a> {
        let [a, w, mu] = [a, w, mu].map(floats);
        Inputs { rows: Shifted::new(x, before), a, w, mu, mix: *self }
    }
}

impl<const M: usize> MultiOutput<5, M> for DataMix {
    fn plain<B: FusedOps>(
        &self,
        [x, a, w, mu, before]: [FloatTensor<B>; 5],
    ) -> [FloatTensor<B>; M] {
        let Self { first, rank } = *self;
        let [x, a, w, mu] = [x, a, w, mu].map(tensor::<B, 2>);
        let back = back(&x, before);
        std::array::from_fn(|c| {
            let at = (first + c) * rank;
            let low_rank = matmul(a.clone().narrow(1, at, rank), w.clone().narrow(0, at, rank));
            let weight = low_rank + Tensor::<B, 2>::narrow(mu.clone(), 0, c, 1);
            primitive(x.clone() + back.clone() * weight)
        })
    }

    /// The five inputs x, a, w, μ and the row before.
    type Saved = [FlexTensor; 5];

    fn forward(&self, inputs: [FlexTensor; 5]) -> ([FlexTensor; M], Self::Saved) {
        let mut ys = std::array::from_fn(|_| make(inputs[0].shape(), |_| ()));
        forward(self.inputs(inputs.each_ref()), ys.each_mut().map(floats_mut));
        (ys, inputs)
    }

    fn backward(&self, saved: Self::Saved, dys: [Option<FlexTensor>; M]) -> [FlexTensor; 5] {
        let none = || make(saved[0].shape(), |dy| dy.fill(0.0));
        let dys = dys.map(|dy| dy.map_or_else(none, contiguous));
        let mut gradients = saved.each_ref().map(|input| make(input.shape(), |_| ()));
        let mut outputs = gradients.each_mut().map(floats_mut);
        if M * self.rank < saved[1].shape()[1] {
            // The gradients of unused pieces are not written below.
            outputs[1..3].iter_mut().for_each(|gradient| gradient.fill(0.0));
        }
        backward(self.inputs(saved.each_ref()), dys.each_ref().map(floats), outputs);
        gradients
    }

    #[cfg(feature = "cube")]
    fn on_gpu<B: GpuBackend>(&self, inputs: [FloatTensor<B>; 5]) -> Option<OnGpuOfMany<B, 5, M>> {
        Some(cube::data_mix::<B, M>(*self, inputs))
    }
}

/// Rows per product, so that their weights fit in the L2 cache.
const ROWS: usize = 128;

/// The most partial sums over rows that are in memory at once.
const GROUPS: usize = 16;

/// The rows to mix, and what their weights are computed from.
#[derive(Clone, Copy)]
struct Inputs<'a> {
    /// The rows x, and the row before each sequence.
    rows: Shifted<'a>,
    /// Low-rank features [B·T, A·R] of all A pieces.
    a: &'a [f32],
    /// The map out of the low rank, of all A pieces. // [A·R, D]
    w: &'a [f32],
    /// A row for each of the M pieces. // [M, D]
    mu: &'a [f32],
    /// Which pieces are mixed, and their rank.
    mix: DataMix,
}

impl<'a> Inputs<'a> {
    /// B·T, the rows of all sequences.
    fn count(self) -> usize {
        self.rows.x.len() / self.rows.width
    }

    /// A·R, the low-rank features of a row.
    fn features(self) -> usize {
        self.a.len() / self.count()
    }

    /// The first feature of piece `c`.
    fn first_feature(self, c: usize) -> usize {
        (self.mix.first + c) * self.mix.rank
    }

    /// a_c of `count` rows, every `step`-th from `start` on. // [count, R]
    fn a_of(self, c: usize, start: usize, step: usize, count: usize) -> Mat<'a> {
        let all = self.features();
        let first = &self.a[start * all + self.first_feature(c)..];
        Mat::strided(first, count, self.mix.rank, step * all)
    }

    /// w_c, the map out of piece c's features. // [R, D]
    fn w_of(self, c: usize) -> Mat<'a> {
        let width = self.rows.width;
        Mat::new(&self.w[self.first_feature(c) * width..], self.mix.rank, width)
    }

    /// μ_c, counted from the first of the M pieces. // D
    fn mu_of(self, c: usize) -> &'a [f32] {
        &self.mu[c * self.rows.width..][..self.rows.width]
    }

    /// m_c of the same rows as [`a_of`](Self::a_of). // m [count, D]
    fn weigh(self, c: usize, start: usize, step: usize, m: &mut [f32]) {
        let (width, count) = (self.rows.width, m.len() / self.rows.width);
        m.chunks_exact_mut(width).for_each(|row| row.copy_from_slice(self.mu_of(c)));
        let (a, w) = (self.a_of(c, start, step, count), self.w_of(c));
        product(MatMut::new(m, count, width), Write::Add, a, w, Threads::Here);
    }

    /// The number of rows whose sums one task adds up, a multiple of the rows of a product.
    fn group_rows(self) -> usize {
        self.count().div_ceil(GROUPS).next_multiple_of(ROWS)
    }
}

/// Computes the mixes of every row. // ys [B·T, D] each
fn forward<const M: usize>(inputs: Inputs<'_>, ys: [&mut [f32]; M]) {
    let _timer = clock::start("mix");
    let chunk = ROWS * inputs.rows.width;
    let tasks: Vec<_> = side_by_side(ys, chunk).collect();
    tasks.into_par_iter().enumerate().for_each_init(
        || vec![0.0; chunk],
        |m, (index, ys)| {
            let start = index * ROWS;
            for (c, y) in ys.into_iter().enumerate() {
                let m = &mut m[..y.len()];
                inputs.weigh(c, start, 1, m);
                mix(inputs.rows, m, start, y);
            }
        },
    );
}

/// Iterates over chunks of several slices of equal length side by side, so that one task gets the
/// same rows of all of them.
fn side_by_side<const M: usize>(
    slices: [&mut [f32]; M],
    chunk: usize,
) -> impl Iterator<Item = [&mut [f32]; M]> {
    let count = slices[0].len().div_ceil(chunk);
    let mut chunks = slices.map(|slice| slice.chunks_mut(chunk));
    (0..count).map(move |_| chunks.each_mut().map(|chunks| chunks.next().unwrap_or_default()))
}

/// The gradients of [`forward`] for x, a, w, μ and the row before, each of its input's shape, from
/// those of the mixes. Unused pieces of a and w are not written. // dys [B·T, D] each
fn backward<const M: usize>(
    inputs: Inputs<'_>,
    dys: [&[f32]; M],
    [dx, da, dw, dmu, dbefore]: [&mut [f32]; 5],
) {
    let _timer = clock::start("mix back");
    let (rows, width, rank) = (inputs.group_rows(), inputs.rows.width, inputs.mix.rank);
    let tasks = dx.par_chunks_mut(rows * width).zip(da.par_chunks_mut(rows * inputs.features()));
    let sums = tasks.enumerate().map(|(index, (dx, da))| {
        let mut sums = [vec![0.0; M * rank * width], vec![0.0; M * width]];
        backward_group(inputs, dys, index * rows, [dx, da], &mut sums);
        sums
    });
    let sums: Vec<_> = sums.collect();
    let (ws, mus): (Vec<_>, Vec<_>) = sums.into_iter().map(<(_, _)>::from).unzip();
    add_up(&ws, &mut dw[inputs.first_feature(0) * width..][..M * rank * width]);
    add_up(&mus, dmu);
    backward_before(inputs, dys, dbefore);
}

/// The gradients for the rows from `start` on, as many as `dx` has. Their contributions to the
/// common gradients are added to dw [M·R, D] and dmu [M, D].
fn backward_group<const M: usize>(
    inputs: Inputs<'_>,
    dys: [&[f32]; M],
    start: usize,
    [dx, da]: [&mut [f32]; 2],
    [dw, dmu]: &mut [Vec<f32>; 2],
) {
    let (width, rank, all) = (inputs.rows.width, inputs.mix.rank, inputs.features());
    // A row gets a part of the gradient of the next row, for which it needs that row's weights.
    let (mut m, mut dm) = (vec![0.0; (ROWS + 1) * width], vec![0.0; ROWS * width]);
    let chunks = dx.chunks_mut(ROWS * width).zip(da.chunks_mut(ROWS * all)).enumerate();
    for (index, (dx, da)) in chunks {
        let (start, count) = (start + index * ROWS, dx.len() / width);
        let weighed = (count + 1).min(inputs.count() - start);
        let (m, dm) = (&mut m[..weighed * width], &mut dm[..count * width]);
        let (_, da) = MatMut::new(da, count, all).split_cols(inputs.first_feature(0));
        let (da, _) = da.split_cols(M * rank);
        dx.fill(0.0);
        for (c, (da, dy)) in da.into_cols(rank).into_iter().zip(dys).enumerate() {
            inputs.weigh(c, start, 1, m);
            mix_grad(inputs.rows, m, dy, start, dx, dm, &mut dmu[c * width..][..width]);
            let d = Mat::new(dm, count, width);
            product(da, Write::Replace, d, inputs.w_of(c).t(), Threads::Here);
            let dw = MatMut::new(&mut dw[c * rank * width..][..rank * width], rank, width);
            product(dw, Write::Add, inputs.a_of(c, start, 1, count).t(), d, Threads::Here);
        }
    }
}

/// Σ_c dy_c∘m_c for the first row of each sequence. // dbefore [B, D]
fn backward_before<const M: usize>(inputs: Inputs<'_>, dys: [&[f32]; M], dbefore: &mut [f32]) {
    let (width, tokens) = (inputs.rows.width, inputs.rows.tokens());
    let mut m = vec![0.0; dbefore.len()];
    dbefore.fill(0.0);
    for (c, dy) in dys.into_iter().enumerate() {
        inputs.weigh(c, 0, tokens, &mut m);
        let firsts = dy.chunks(tokens * width).zip(m.chunks(width));
        for (dbefore, (dy, m)) in dbefore.chunks_mut(width).zip(firsts) {
            for ((dbefore, dy), m) in dbefore.iter_mut().zip(dy).zip(m) {
                *dbefore += dy * m;
            }
        }
    }
}

simd! {
    /// Mixes the rows from `start` on, as many as `y` has; m are their weights.
    fn mix<S>(rows: Shifted<'_>, m: &[f32], start: usize, y: &mut [f32]) {
        let outputs = y.chunks_exact_mut(rows.width).zip(m.chunks_exact(rows.width));
        for (i, (y, m)) in outputs.enumerate() {
            let (x, prev) = (rows.row(start + i), rows.prev(start + i));
            each!(<S>(x, prev, m; y) |i| { y[i] = fma::<S>(prev[i] - x[i], m[i], x[i]) });
        }
    }

    /// Gradients for the rows from `start` on, as many as `dx` has; m are their weights, and those
    /// of the next row if there is one. `dm` is overwritten, the others are added to.
    fn mix_grad<S>(
        rows: Shifted<'_>, m: &[f32], dy: &[f32], start: usize, dx: &mut [f32], dm: &mut [f32],
        dmu: &mut [f32],
    ) {
        let width = rows.width;
        let outputs = dx.chunks_exact_mut(width).zip(dm.chunks_exact_mut(width));
        for (i, (dx, dm)) in outputs.enumerate() {
            let at = start + i;
            let (x, prev) = (rows.row(at), rows.prev(at));
            let (here, weight) = (&dy[at * width..][..width], &m[i * width..][..width]);
            let dmu = &mut dmu[..width];
            each!(<S>(here, x, prev, weight; dx, dm, dmu) |i| {
                let slope = here[i] * (prev[i] - x[i]);
                dm[i] = slope;
                dmu[i] += slope;
                dx[i] = fma::<S>(-here[i], weight[i], dx[i] + here[i]);
            });
            if !(at + 1).is_multiple_of(rows.tokens()) {
                let behind = &dy[(at + 1) * width..][..width];
                let weight = &m[(i + 1) * width..][..width];
                each!(<S>(behind, weight; dx) |i| { dx[i] = fma::<S>(behind[i], weight[i], dx[i]) });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use burn_backend::ops::FloatTensorOps;

    use super::super::FusedOps;
    use super::super::tests::{A, F, SIZES, array, assert_same, assert_slope, input};
    use super::*;

    #[test]
    fn data_dependent_shifts_are_the_plain_form() {
        // All pieces except the first; the result depends on both outputs, or on the second alone.
        let op = DataMix { first: 1, rank: 3 };
        let both = |[a, b]: [F; 2]| A::float_add(a, A::float_mul(b.clone(), b));
        let second = |[_, b]: [F; 2]| b;
        for [sequences, tokens, width] in SIZES {
            let rows = sequences * tokens;
            let inputs = [
                input(&[rows, width], 1.0, 1),
                input(&[rows, 9], 1.0, 2),
                input(&[9, width], 1.0, 3),
                input(&[2, width], 1.0, 4),
                input(&[sequences, width], 1.0, 5),
            ];
            for joined in [both as fn([F; 2]) -> F, second] {
                assert_same(
                    &format!("data mix [{sequences} x {tokens}, {width}]"),
                    &inputs,
                    &|x| joined(A::run_multi(op, array::<5>(x))),
                    &|x| joined(op.plain::<A>(array::<5>(x))),
                );
            }
        }
    }

    #[test]
    fn gradients_are_slopes() {
        let inputs = [
            input(&[14, 12], 1.0, 1),
            input(&[14, 6], 1.0, 2),
            input(&[6, 12], 1.0, 3),
            input(&[2, 12], 1.0, 4),
            input(&[2, 12], 1.0, 9),
        ];
        let op = DataMix { first: 0, rank: 3 };
        assert_slope("data mix", &inputs, &|x| {
            let [a, b] = A::run_multi(op, array::<5>(x));
            A::float_mul(a, b)
        });
    }
}
