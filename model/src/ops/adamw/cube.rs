//! The update on GPUs: one launch for a parameter. [`optim`](crate::optim) has the equations.
//!
//! The plain form launches a kernel for each of its steps, and each of them reads and writes whole
//! tensors. Here every number is read once and written once. A parameter or moment that another
//! tensor shares is copied before the launch, so that the other one keeps its numbers.

use burn_backend::tensor::FloatTensor;
use cubecl::prelude::*;

use super::super::cube::{GpuBackend, contiguous, count, launch, units};
use super::AdamW;

/// The new p, m and v, written in place where no other tensor shares their memory.
pub(super) fn adamw<B: GpuBackend>(
    step: AdamW,
    [p, g, m, v]: [FloatTensor<B>; 4],
) -> [FloatTensor<B>; 3] {
    // A copy has padded rows on CUDA, and the kernel counts through all numbers.
    let own = |x: FloatTensor<B>| contiguous(if x.can_mut() { x } else { x.copy() });
    let ([p, m, v], g) = ([p, m, v].map(own), contiguous(g));
    launch!(
        update,
        p,
        units(&p, count(&p)),
        [&p, &g, &m, &v],
        step.gradient_scale,
        step.beta1,
        step.beta2,
        1.0 - step.learning_rate * step.weight_decay,
        step.learning_rate / step.correction1,
        1.0 / step.correction2.sqrt(),
        step.eps,
    );
    [p, m, v]
}

/// One element of p, m and v. Factors that are the same for all are computed by the caller: `keep`
/// = 1 − η·λ, `rate` = η/(1 − β₁ᵗ), `root` = 1/√(1 − β₂ᵗ).
#[cube(launch_unchecked)]
fn update(
    p: &mut Tensor<f32>,
    g: &Tensor<f32>,
    m: &mut Tensor<f32>,
    v: &mut Tensor<f32>,
    gradient_scale: f32,
    beta1: f32,
    beta2: f32,
    keep: f32,
    rate: f32,
    root: f32,
    eps: f32,
) {
    let i = ABSOLUTE_POS;
    if i < p.len() {
        let gradient = g[i] * gradient_scale;
        let mean = beta1 * m[i] + (1.0f32 - beta1) * gradient;
        let square = beta2 * v[i] + (1.0f32 - beta2) * gradient * gradient;
        m[i] = mean;
        v[i] = square;
        p[i] = p[i] * keep - rate * mean / (square.sqrt() * root + eps);
    }
}
