//! Gates on GPUs: one launch forward and one backward. `gate.rs` has the equations; a unit computes
//! one element.
//!
//! The number of units is rounded up to whole cubes, so each kernel compares its position with the
//! length of what it writes. Inputs are made contiguous first, since an index is the same element
//! in all of them.

use burn_backend::TensorMetadata as _;
use burn_backend::tensor::FloatTensor;
use cubecl::prelude::*;

use super::super::cube::{
    GpuBackend, OnGpu, contiguous, count, empty, exp_of, launch, sigmoid, units,
};

/// y = max(x, 0)². Only y is kept for the backward pass, as on the CPU.
pub(super) fn relu_square<B: GpuBackend>([x]: [FloatTensor<B>; 1]) -> OnGpu<B, 1> {
    let (x, y) = (contiguous(x.clone()), empty(&x, x.shape()));
    launch!(squares, x, units(&x, count(&x)), [&x, &y]);
    let saved = y.clone();
    let back = move |dy| {
        let (dy, dx) = (contiguous(dy), empty(&saved, saved.shape()));
        launch!(squares_back, dx, units(&dx, count(&dx)), [&saved, &dy, &dx]);
        [dx]
    };
    (y, Box::new(back))
}

/// y = residual + σ(r)∘x; the residual's gradient is dy itself.
pub(super) fn gated_add<B: GpuBackend>(inputs: [FloatTensor<B>; 3]) -> OnGpu<B, 3> {
    let [r, x, residual] = inputs.map(contiguous);
    let y = empty(&x, x.shape());
    launch!(gate, x, units(&x, count(&x)), [&r, &x, &residual, &y]);
    let back = move |dy| {
        let dy = contiguous(dy);
        let [dr, dx] = [&r, &x].map(|x| empty(x, x.shape()));
        launch!(gate_back, x, units(&x, count(&x)), [&r, &x, &dy, &dr, &dx]);
        [dr, dx, dy]
    };
    (y, Box::new(back))
}

/// y = k∘(1 − exp(−exp w)), with k and w kept for the backward pass.
pub(super) fn decayed_keys<B: GpuBackend>(inputs: [FloatTensor<B>; 2]) -> OnGpu<B, 2> {
    let [k, w] = inputs.map(contiguous);
    let y = empty(&k, k.shape());
    launch!(decay, k, units(&k, count(&k)), [&k, &w, &y]);
    let back = move |dy| {
        let dy = contiguous(dy);
        let [dk, dw] = [&k, &w].map(|x| empty(x, x.shape()));
        launch!(decay_back, k, units(&k, count(&k)), [&k, &w, &dy, &dk, &dw]);
        [dk, dw]
    };
    (y, Box::new(back))
}

/// One element of y = max(x, 0)².
#[cube(launch_unchecked)]
fn squares(x: &Tensor<f32>, y: &mut Tensor<f32>) {
    let i = ABSOLUTE_POS;
    if i < y.len() {
        let positive = max(x[i], 0.0f32.runtime());
        y[i] = positive * positive;
    }
}

/// One element of dx = dy∘2√y.
#[cube(launch_unchecked)]
fn squares_back(y: &Tensor<f32>, dy: &Tensor<f32>, dx: &mut Tensor<f32>) {
    let i = ABSOLUTE_POS;
    if i < dx.len() {
        dx[i] = dy[i] * 2.0f32 * y[i].sqrt();
    }
}

/// One element of residual + σ(r)∘x.
#[cube(launch_unchecked)]
fn gate(r: &Tensor<f32>, x: &Tensor<f32>, residual: &Tensor<f32>, y: &mut Tensor<f32>) {
    let i = ABSOLUTE_POS;
    if i < y.len() {
        y[i] = residual[i] + sigmoid(r[i]) * x[i];
    }
}

/// One element of dr and of dx.
#[cube(launch_unchecked)]
fn gate_back(
    r: &Tensor<f32>,
    x: &Tensor<f32>,
    dy: &Tensor<f32>,
    dr: &mut Tensor<f32>,
    dx: &mut Tensor<f32>,
) {
    let i = ABSOLUTE_POS;
    if i < dx.len() {
        let open = sigmoid(r[i]);
        let slope = dy[i] * open;
        dx[i] = slope;
        dr[i] = slope * x[i] * (1.0f32 - open);
    }
}

/// exp w. Beyond 10 the outer exponential is 0 whatever w is, and its slope must not be ∞·0.
#[cube]
fn rate_of(w: f32) -> f32 {
    select(w < 10.0f32, w, 10.0f32).exp()
}

/// One element of k∘(1 − exp(−exp w)); see `exp_of` for the outer exponential.
#[cube(launch_unchecked)]
fn decay(k: &Tensor<f32>, w: &Tensor<f32>, y: &mut Tensor<f32>) {
    let i = ABSOLUTE_POS;
    if i < y.len() {
        y[i] = k[i] * (1.0f32 - exp_of(0.0f32 - rate_of(w[i])));
    }
}

/// One element of dk and of dw.
#[cube(launch_unchecked)]
fn decay_back(
    k: &Tensor<f32>,
    w: &Tensor<f32>,
    dy: &Tensor<f32>,
    dk: &mut Tensor<f32>,
    dw: &mut Tensor<f32>,
) {
    let i = ABSOLUTE_POS;
    if i < dk.len() {
        let rate = rate_of(w[i]);
        let factor = exp_of(0.0f32 - rate);
        dk[i] = dy[i] * (1.0f32 - factor);
        dw[i] = dy[i] * k[i] * rate * factor;
    }
}
