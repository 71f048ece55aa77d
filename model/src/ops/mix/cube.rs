//! The data-dependent interpolation on GPUs: two launches and one product forward, four launches
//! and three products backward, for any number of pieces. `mix.rs` has the equations.
//!
//! The M pieces are M matrices of one product. So features are cut out of the rows of `a` first,
//! and their gradient is put back at the end.
//!
//! The weights of all pieces, M·N·D numbers, take as much memory as all outputs. They are freed after the
//! forward pass and computed again for the backward pass, as on the CPU.

use burn_backend::tensor::FloatTensor;
use burn_backend::{FloatDType, TensorMetadata as _};
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::super::cube::{
    GpuBackend, OnGpuOfMany, arg, contiguous, count, empty, launch, parts, product, sum_rows,
    turned, units,
};
use super::super::shift::previous;
use super::DataMix;

/// The M mixes and their backward pass; see [`DataMix`] for the inputs. A mix that the loss does
/// not use has no gradient, in place of which zeros are read.
pub(super) fn data_mix<B: GpuBackend, const M: usize>(
    mix: DataMix,
    inputs: [FloatTensor<B>; 5],
) -> OnGpuOfMany<B, 5, M> {
    let [x, a, w, mu, before] = inputs.map(contiguous);
    let [rows, width] = [0, 1].map(|at| x.shape()[at]);
    let tokens = rows / before.shape()[0];
    let features = features::<B>(mix, M, &a);
    let maps =
        B::float_slice(w.clone(), &[(mix.first * mix.rank..(mix.first + M) * mix.rank).into()]);
    let maps = B::float_reshape(contiguous(maps), [M, mix.rank, width].into());
    let ys = empty(&x, [M, rows, width]);
    {
        let weights = product(features.clone(), maps.clone());
        let cubes = units(&x, count(&x));
        launch!(forward, x, cubes, [&x, &before, &weights, &mu, &ys], tokens, width, M);
    }
    let back = move |dys: [Option<FloatTensor<B>>; M]| {
        let none = || B::float_zeros(x.shape(), &B::float_device(&x), FloatDType::F32);
        let dys = dys.map(|dy| contiguous(dy.unwrap_or_else(none)));
        // Computed again: they would be the largest tensors that a block keeps.
        let weights = product(features.clone(), maps.clone());
        let dms = empty(&x, [M, rows, width]);
        let [dx, dbefore] = [&x, &before].map(|x| empty(x, x.shape()));
        launch!(
            backward,
            x,
            units(&x, count(&x)),
            [&x, &before, &weights, &mu],
            dys.iter().map(arg).collect(),
            arg(&dms),
            arg(&dx),
            arg(&dbefore),
            tokens,
            width,
            M,
        );
        let dmu = sum_rows(&dms);
        let dw = product(turned::<B>(features), dms.clone());
        let dw = whole(mix, [1, mix.rank * width], &dw, &w);
        let da = product(dms, turned::<B>(maps));
        let da = whole(mix, [rows, mix.rank], &da, &a);
        [dx, da, dw, dmu, dbefore]
    };
    (parts::<B, M>(ys), Box::new(back))
}

/// The low-rank features of the selected pieces. // a [N, A·R]; result [M, N, R]
fn features<B: GpuBackend>(mix: DataMix, pieces: usize, a: &FloatTensor<B>) -> FloatTensor<B> {
    let [rows, all] = [0, 1].map(|at| a.shape()[at]);
    let y = empty(a, [pieces, rows, mix.rank]);
    let first = mix.first * mix.rank;
    launch!(split, y, units(&y, count(&y)), [a, &y], rows, mix.rank, all, first);
    y
}

/// The gradients of all pieces from those of the selected ones; zero for the others.
/// // part [M, N, R], result [N, A·R] in the shape of `like`
fn whole<R: CubeRuntime>(
    mix: DataMix,
    [rows, rank]: [usize; 2],
    part: &CubeTensor<R>,
    like: &CubeTensor<R>,
) -> CubeTensor<R> {
    let (y, first) = (empty(like, like.shape()), mix.first * rank);
    let all = count(&y) / rows;
    let end = first + count(part) / rows;
    launch!(join, y, units(&y, count(&y)), [part, &y], rows, rank, all, first, end);
    y
}

/// Reorders features from [N, A·R] to [M, N, R], since a product of many matrices needs each by
/// itself.
#[cube(launch_unchecked)]
fn split(a: &Tensor<f32>, y: &mut Tensor<f32>, rows: usize, rank: usize, all: usize, first: usize) {
    let i = ABSOLUTE_POS;
    if i < y.len() {
        let (row, piece) = (i / rank % rows, i / (rank * rows));
        y[i] = a[row * all + first + piece * rank + i % rank];
    }
}

/// The other way, with zeros in the columns of pieces that are not among the M.
#[cube(launch_unchecked)]
fn join(
    part: &Tensor<f32>,
    y: &mut Tensor<f32>,
    rows: usize,
    rank: usize,
    all: usize,
    first: usize,
    end: usize,
) {
    let i = ABSOLUTE_POS;
    if i < y.len() {
        let (row, column) = (i / all, i % all);
        let mut value = 0.0f32;
        if column >= first && column < end {
            let piece = (column - first) / rank;
            value = part[(piece * rows + row) * rank + column % rank];
        }
        y[i] = value;
    }
}

/// The mixes of one element by all pieces: x + (prev(x) − x)∘(m_c + μ_c).
/// // weights m, ys [M, N, D]
#[cube(launch_unchecked)]
fn forward(
    x: &Tensor<f32>,
    before: &Tensor<f32>,
    weights: &Tensor<f32>,
    mu: &Tensor<f32>,
    ys: &mut Tensor<f32>,
    tokens: usize,
    width: usize,
    #[comptime] pieces: usize,
) {
    let i = ABSOLUTE_POS;
    if i < x.len() {
        let back = previous(x, before, i, tokens, width) - x[i];
        for piece in 0..pieces {
            let at = piece * x.len() + i;
            ys[at] = x[i] + back * (weights[at] + mu[piece * width + i % width]);
        }
    }
}

/// The gradients of one element: that of x from its own token and from the next, which reads it as
/// its previous one. // weights, dms [M, N, D], dys [N, D] each
#[cube(launch_unchecked)]
fn backward(
    x: &Tensor<f32>,
    before: &Tensor<f32>,
    weights: &Tensor<f32>,
    mu: &Tensor<f32>,
    dys: &Sequence<Tensor<f32>>,
    dms: &mut Tensor<f32>,
    dx: &mut Tensor<f32>,
    dbefore: &mut Tensor<f32>,
    tokens: usize,
    width: usize,
    #[comptime] pieces: usize,
) {
    let i = ABSOLUTE_POS;
    if i < dx.len() {
        let (row, column) = (i / width, i % width);
        let back = previous(x, before, i, tokens, width) - x[i];
        let mut sum = 0.0f32;
        let mut of_before = 0.0f32;
        #[unroll]
        for piece in 0..pieces {
            let at = piece * dx.len() + i;
            let shift = mu[piece * width + column];
            let dy = dys[piece][i];
            let passed = dy * (weights[at] + shift);
            dms[at] = dy * back;
            sum += dy - passed;
            of_before += passed;
            if (row + 1) % tokens != 0 {
                sum += dys[piece][i + width] * (weights[at + width] + shift);
            }
        }
        dx[i] = sum;
        if row % tokens == 0 {
            dbefore[row / tokens * width + column] = of_before;
        }
    }
}
