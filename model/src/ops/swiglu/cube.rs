//! SwiGLU on GPUs: one launch forward and one backward. `swiglu.rs` has the equations.
//!
//! A unit computes one element of y forward, and the two elements of dx that belong to it backward.
//! The sigmoid of the gate is computed again in the backward pass, so that only x has to be stored.

use burn_backend::TensorMetadata as _;
use burn_backend::tensor::FloatTensor;
use cubecl::prelude::*;

use super::super::cube::{GpuBackend, OnGpu, contiguous, count, empty, launch, sigmoid, units};

/// y and its backward pass, which keeps x. // x [N, 2F], y [N, F]
pub(super) fn swiglu<B: GpuBackend>([x]: [FloatTensor<B>; 1]) -> OnGpu<B, 1> {
    let x = contiguous(x);
    let [rows, width] = [x.shape()[0], x.shape()[1] / 2];
    let y = empty(&x, [rows, width]);
    launch!(forward, x, units(&y, count(&y)), [&x, &y], width);
    let back = move |dy| {
        let (dy, dx) = (contiguous(dy), empty(&x, x.shape()));
        launch!(backward, x, units(&dy, count(&dy)), [&x, &dy, &dx], width);
        [dx]
    };
    (y, Box::new(back))
}

/// One element of y. A row of x has the gate in its first F columns and up in the others.
#[cube(launch_unchecked)]
fn forward(x: &Tensor<f32>, y: &mut Tensor<f32>, width: usize) {
    let i = ABSOLUTE_POS;
    if i < y.len() {
        let at = i / width * 2 * width + i % width;
        y[i] = x[at] * sigmoid(x[at]) * x[at + width];
    }
}

/// One element of dgate and the element of dup beside it.
#[cube(launch_unchecked)]
fn backward(x: &Tensor<f32>, dy: &Tensor<f32>, dx: &mut Tensor<f32>, width: usize) {
    let i = ABSOLUTE_POS;
    if i < dy.len() {
        let at = i / width * 2 * width + i % width;
        let (gate, up) = (x[at], x[at + width]);
        let open = sigmoid(gate);
        let swish = gate * open;
        dx[at] = dy[i] * up * (swish * (1.0f32 - open) + open);
        dx[at + width] = dy[i] * swish;
    }
}
