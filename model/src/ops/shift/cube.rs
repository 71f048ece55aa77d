//! Token shifts on GPUs: one launch forward and two backward. `shift.rs` has the equations.
//!
//! A unit computes one element and writes it alone. Only dμ is a sum over rows, for which each
//! row's part is kept until the second launch.
//!
//! An element of x counts in two rows of y: in its own, and in the next one of its sequence, which
//! reads it as its previous row. The unit of that element adds both parts of its gradient, so no
//! two units write to one number.

use burn_backend::TensorMetadata as _;
use burn_backend::tensor::FloatTensor;
use cubecl::prelude::*;

use super::super::cube::{GpuBackend, OnGpu, contiguous, count, empty, launch, sum_rows, units};
use super::Weighs;

/// y and its backward pass, which keeps the inputs. The second launch backward sums dμ over rows.
/// // x, y [B·T, D], mu `[D]`, before [B, D]
pub(super) fn shift_mix<B: GpuBackend>(weighs: Weighs, inputs: [FloatTensor<B>; 3]) -> OnGpu<B, 3> {
    let [x, mu, before] = inputs.map(contiguous);
    let [rows, width] = [0, 1].map(|at| x.shape()[at]);
    let tokens = rows / before.shape()[0];
    let present = weighs == Weighs::Present;
    let y = empty(&x, x.shape());
    let cubes = units(&x, count(&x));
    launch!(forward, x, cubes, [&x, &mu, &before, &y], tokens, width, present);
    let back = move |dy| {
        let dy = contiguous(dy);
        let [dx, dbefore, slopes] =
            [x.shape(), before.shape(), [1, rows, width].into()].map(|shape| empty(&x, shape));
        launch!(
            backward,
            x,
            units(&x, count(&x)),
            [&x, &mu, &before, &dy, &dx, &dbefore, &slopes],
            tokens,
            width,
            present,
        );
        [dx, B::float_reshape(sum_rows(&slopes), [width].into()), dbefore]
    };
    (y, Box::new(back))
}

/// The same channel of the previous token: of the row before in the sequence, or of `before` for a
/// first token. // x [B·T, D], before [B, D]
#[cube]
pub(in super::super) fn previous(
    x: &Tensor<f32>,
    before: &Tensor<f32>,
    i: usize,
    tokens: usize,
    width: usize,
) -> f32 {
    let row = i / width;
    let mut found = before[row / tokens * width + i % width];
    if row % tokens != 0 {
        found = x[i - width];
    }
    found
}

/// y = x + (prev(x) − x)∘p, where p is μ, or 1 − μ if `present`. A unit computes one element.
#[cube(launch_unchecked)]
fn forward(
    x: &Tensor<f32>,
    mu: &Tensor<f32>,
    before: &Tensor<f32>,
    y: &mut Tensor<f32>,
    tokens: usize,
    width: usize,
    #[comptime] present: bool,
) {
    let i = ABSOLUTE_POS;
    if i < y.len() {
        let mut past = mu[i % width];
        if comptime!(present) {
            past = 1.0f32 - past;
        }
        y[i] = x[i] + (previous(x, before, i, tokens, width) - x[i]) * past;
    }
}

/// Writes dx, and dμ of each row into `slopes`. The first row of a sequence also gives `dbefore`.
/// An element of x gets dy∘(1 − p) of its own row, and dy∘p of the next row unless the sequence
/// ends with its own. // slopes [B·T, D]
#[cube(launch_unchecked)]
fn backward(
    x: &Tensor<f32>,
    mu: &Tensor<f32>,
    before: &Tensor<f32>,
    dy: &Tensor<f32>,
    dx: &mut Tensor<f32>,
    dbefore: &mut Tensor<f32>,
    slopes: &mut Tensor<f32>,
    tokens: usize,
    width: usize,
    #[comptime] present: bool,
) {
    let i = ABSOLUTE_POS;
    if i < dx.len() {
        let mut past = mu[i % width];
        let mut slope = dy[i] * (previous(x, before, i, tokens, width) - x[i]);
        if comptime!(present) {
            past = 1.0f32 - past;
            slope = 0.0f32 - slope;
        }
        slopes[i] = slope;
        let row = i / width;
        let mut sum = dy[i] - dy[i] * past;
        if (row + 1) % tokens != 0 {
            sum += dy[i + width] * past;
        }
        dx[i] = sum;
        if row % tokens == 0 {
            dbefore[row / tokens * width + i % width] = dy[i] * past;
        }
    }
}
