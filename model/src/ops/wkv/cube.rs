//! The recurrence on GPUs: one launch forward and two backward, time and memory linear in T.
//!
//! This file has the sizes and the launches; `kernels.rs` has the kernels.
//!
//! Between the passes only the inputs and the states before the chunks are stored. The backward
//! pass takes scratch memory for one chunk: a state for each span of it and each head of each
//! sequence, which the kernel writes forward and reads backward. The gradients of u, and of a decay
//! that is the same for all tokens, come as one row for each sequence and are summed by one more
//! launch each, in a fixed order.

mod kernels;

use burn_backend::tensor::FloatTensor;
use burn_backend::{FloatDType, TensorMetadata as _};
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use self::kernels::Cut;
use super::super::cube::{GpuBackend, OnGpuOfMany, contiguous, empty, launch, sum_rows};
use super::SPAN;

/// The number of tokens between kept states. A kept state takes K numbers per channel.
const CHUNK: usize = 64;

/// y, the last state, and the backward pass; `None` where the kernels do not support the head size.
pub(super) fn wkv<B: GpuBackend>(inputs: [FloatTensor<B>; 6]) -> Option<OnGpuOfMany<B, 6, 2>> {
    let shape = Shape::of(&inputs)?;
    let inputs = inputs.map(contiguous);
    let [r, .., state] = &inputs;
    let kept = empty(r, [shape.state() * shape.tokens.div_ceil(CHUNK)]);
    let (y, last) = (empty(r, r.shape()), empty(r, state.shape()));
    forward(shape, &inputs, [&y, &kept, &last]);
    let back = move |[dy, _]: [Option<FloatTensor<B>>; 2]| {
        let [r, _, _, w, u, _] = &inputs;
        let none = || B::float_zeros(r.shape(), &B::float_device(r), FloatDType::F32);
        let dy = contiguous(dy.unwrap_or_else(none));
        let [dr, dk, dv, dw, du, dstate] = backward(shape, &inputs, &kept, &dy);
        // All sequences share the input, and the kernel writes one row for each of them.
        let sum = |x: FloatTensor<B>, like: &FloatTensor<B>| {
            let x = B::float_reshape(x, [1, shape.sequences, shape.width()].into());
            B::float_reshape(sum_rows(&x), like.shape())
        };
        let dw = if shape.cut.by_token { dw } else { sum(dw, w) };
        [dr, dk, dv, dw, sum(du, u), dstate]
    };
    Some(([y, last], Box::new(back)))
}

/// The sizes of one pass: B, T, H, and how a head is cut.
#[derive(Clone, Copy, Debug)]
struct Shape {
    /// B, sequences with a state of their own.
    sequences: usize,
    /// T, the tokens of each sequence.
    tokens: usize,
    /// H, the heads of each sequence.
    heads: usize,
    /// K, and how cubes and chunks divide the work.
    cut: Cut,
}

impl Shape {
    /// The sizes, or `None` if K is not a multiple of 8. A cube has the largest number of units
    /// among 32, 24, 16 and 8 that divides K.
    fn of<R: CubeRuntime>([r, _, _, w, _, state]: &[CubeTensor<R>; 6]) -> Option<Self> {
        let [sequences, heads, size] = [0, 1, 2].map(|i| state.shape()[i]);
        let units = [32, 24, 16, 8].into_iter().find(|units| size.is_multiple_of(*units))?;
        let by_token = w.shape().num_dims() == 2;
        let cut = Cut { size, units, chunk: CHUNK, span: SPAN, by_token };
        Some(Self { sequences, tokens: r.shape()[0] / sequences, heads, cut })
    }

    /// D = H·K, the channels of a row.
    fn width(self) -> usize {
        self.heads * self.cut.size
    }

    /// The number of elements in the states of all heads. // [B, H, K, K]
    fn state(self) -> usize {
        self.sequences * self.width() * self.cut.size
    }

    /// A cube for each part of each head of each sequence.
    fn cubes(self) -> (CubeCount, CubeDim) {
        let Cut { size, units, .. } = self.cut;
        let count =
            CubeCount::Static(self.heads as u32, self.sequences as u32, (size / units) as u32);
        (count, CubeDim::new_1d(units as u32))
    }
}

/// Launches the forward pass. // kept [B, H, chunks, K, K]
fn forward<R: CubeRuntime>(
    shape: Shape,
    [r, k, v, w, u, state]: &[CubeTensor<R>; 6],
    [y, kept, last]: [&CubeTensor<R>; 3],
) {
    launch!(
        kernels::forward<f32>,
        r,
        shape.cubes(),
        [r, k, v, w, u, state, y, kept, last],
        shape.tokens,
        shape.cut,
    );
}

/// dr, dk, dv, dw, du, dstate; du, and dw of a constant decay, have one row per sequence.
/// // du, dw [B, D]
fn backward<R: CubeRuntime>(
    shape: Shape,
    [r, k, v, w, u, state]: &[CubeTensor<R>; 6],
    kept: &CubeTensor<R>,
    dy: &CubeTensor<R>,
) -> [CubeTensor<R>; 6] {
    let Cut { chunk, span, by_token, .. } = shape.cut;
    let [dr, dk, dv] = [r, k, v].map(|x| empty(r, x.shape()));
    let of_sequences = || empty(r, [shape.sequences, shape.width()]);
    let dw = if by_token { empty(r, w.shape()) } else { of_sequences() };
    let (du, dstate) = (of_sequences(), empty(r, state.shape()));
    let states = empty(r, [shape.state() * chunk / span]);
    launch!(
        kernels::backward_values<f32>,
        r,
        shape.cubes(),
        [r, k, w, u, dy, &dv],
        shape.tokens,
        shape.cut,
    );
    launch!(
        kernels::backward_keys<f32>,
        r,
        shape.cubes(),
        [r, k, v, w, u, dy, kept, &states, &dr, &dk, &dw, &du, &dstate],
        shape.tokens,
        shape.cut,
    );
    [dr, dk, dv, dw, du, dstate]
}
