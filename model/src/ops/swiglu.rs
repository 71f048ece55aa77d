//! SwiGLU: y = silu(gate)∘up, silu(g) = g·s, s = 1/(1 + e⁻ᵍ) (Shazeer 2020, arXiv 2002.05202).
//!
//! ```text
//! silu'(g) = s + g·s·(1 − s)
//! dgate = dy∘up∘silu'(gate),   dup = dy∘silu(gate)
//! ```
//!
//! Gate and up are the two halves of each row, as one projection makes them, and so are their
//! gradients. The output of the projection is saved as it is: silu is computed again backward.

#[cfg(feature = "cube")]
mod cube;

use burn_backend::TensorMetadata;
use burn_backend::tensor::FloatTensor;
use burn_flex::FlexTensor;
use burn_tensor::activation::silu;
use rayon::prelude::*;

use super::buf::{floats, make};
use super::clock;
#[cfg(feature = "cube")]
use super::cube::{GpuBackend, OnGpu};
use super::lanes::{each, fma, sigmoid, simd};
use super::operator::{FusedOps, Operator, primitive, tensor};
use super::rows::ROWS;

/// y = silu(gate)∘up. // gate_up [N, 2F] as [gate | up], y [N, F]
#[derive(Clone, Copy, Debug)]
pub struct SwiGlu;

impl Operator<1> for SwiGlu {
    fn plain<B: FusedOps>(&self, [gate_up]: [FloatTensor<B>; 1]) -> FloatTensor<B> {
        let gate_up = tensor::<B, 2>(gate_up);
        let width = gate_up.dims()[1] / 2;
        let gate = gate_up.clone().narrow(1, 0, width);
        primitive(silu(gate) * gate_up.narrow(1, width, width))
    }

    /// gate_up, as its projection made it.
    type Saved = FlexTensor;

    fn forward(&self, [gate_up]: [FlexTensor; 1]) -> (FlexTensor, Self::Saved) {
        let _timer = clock::start("swiglu");
        let [rows, width] = [gate_up.shape()[0], gate_up.shape()[1] / 2];
        let y = make([rows, width], |y| {
            let inputs = floats(&gate_up).par_chunks(ROWS * 2 * width);
            let tasks = inputs.zip(y.par_chunks_mut(ROWS * width));
            tasks.for_each(|(gate_up, y)| swiglu_rows(gate_up, width, y));
        });
        (y, gate_up)
    }

    fn backward(&self, gate_up: Self::Saved, dy: FlexTensor) -> [FlexTensor; 1] {
        let _timer = clock::start("swiglu back");
        let width = gate_up.shape()[1] / 2;
        let dx = make(gate_up.shape(), |dx| {
            let inputs = floats(&gate_up).par_chunks(ROWS * 2 * width);
            let inputs = inputs.zip(floats(&dy).par_chunks(ROWS * width));
            let tasks = inputs.zip(dx.par_chunks_mut(ROWS * 2 * width));
            tasks.for_each(|((gate_up, dy), dx)| swiglu_grad_rows(gate_up, dy, width, dx));
        });
        [dx]
    }

    #[cfg(feature = "cube")]
    fn on_gpu<B: GpuBackend>(&self, inputs: [FloatTensor<B>; 1]) -> Option<OnGpu<B, 1>> {
        Some(cube::swiglu::<B>(inputs))
    }
}

simd! {
    /// y = silu(g)∘u, row by row. // gate_up [N, 2F], y [N, F]
    fn swiglu_rows<S>(gate_up: &[f32], width: usize, y: &mut [f32]) {
        for (x, y) in gate_up.chunks_exact(2 * width).zip(y.chunks_exact_mut(width)) {
            let (g, u) = x.split_at(width);
            each!(<S>(g, u; y) |i| { y[i] = g[i] * sigmoid::<S>(g[i]) * u[i] });
        }
    }

    /// The gradients of gate and up, side by side as the inputs are. // dx [N, 2F]
    fn swiglu_grad_rows<S>(gate_up: &[f32], dy: &[f32], width: usize, dx: &mut [f32]) {
        let rows = gate_up.chunks_exact(2 * width).zip(dy.chunks_exact(width));
        for ((x, dy), dx) in rows.zip(dx.chunks_exact_mut(2 * width)) {
            let ((g, u), (dg, du)) = (x.split_at(width), dx.split_at_mut(width));
            each!(<S>(g, u, dy; dg, du) |i| {
                let s = sigmoid::<S>(g[i]);
                let a = g[i] * s;
                du[i] = dy[i] * a;
                dg[i] = dy[i] * u[i] * fma::<S>(a, 1.0 - s, s);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Upstream, assert_plain, assert_slopes, input, results};
    use super::*;

    #[test]
    fn it_is_the_plain_form() {
        for (rows, width) in [(1, 1), (3, 7), (130, 64), (65, 43)] {
            assert_plain(SwiGlu, [input(&[rows, 2 * width], 6.0, 1)]);
        }
        assert_slopes(SwiGlu, [input(&[5, 8], 1.0, 1)]);
    }

    /// Gates far outside the range of f32's exponential.
    #[test]
    fn extreme_gates_stay_finite() {
        let gate_up = (vec![-1e4, 1e4, -200.0, 3.0, 2.0, 1.0, 1.0, 1.0], vec![1, 8]);
        let found = results(SwiGlu, [gate_up], Upstream::Random);
        assert!(found.iter().flatten().all(|x| x.is_finite()), "{found:?}");
    }
}
