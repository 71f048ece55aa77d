//! Sums of many tensors on GPUs, several per launch: a model has hundreds of small ones.
//!
//! They are the gradients of micro-batches, which are added after each of them. A launch costs much
//! more than the sum of a small tensor, so four pairs share one. It has the units of the largest of
//! the four; those behind the end of a shorter tensor do nothing. Each number is one addition, so
//! the grouping changes no bit.

use burn_backend::tensor::FloatTensor;
use cubecl::prelude::*;

use super::{GpuBackend, contiguous, count, launch, units};

/// Adds a tensor to each sum, in place where no other tensor shares the memory of the sum. The last
/// one to three pairs are added by burn.
pub(in super::super) fn add_all<B: GpuBackend>(
    sums: Vec<FloatTensor<B>>,
    more: Vec<FloatTensor<B>>,
) -> Vec<FloatTensor<B>> {
    // A copy has padded rows on CUDA, and the kernel counts through all numbers.
    let own = |x: FloatTensor<B>| contiguous(if x.can_mut() { x } else { x.copy() });
    let mut sums: Vec<_> = sums.into_iter().map(own).collect();
    let more: Vec<_> = more.into_iter().map(contiguous).collect();
    let whole = sums.len() / 4 * 4;
    for (sums, more) in sums.chunks_exact(4).zip(more.chunks_exact(4)) {
        let ([a, b, c, d], [e, f, g, h]) = (sums, more) else { continue };
        let largest = sums.iter().map(count).max().unwrap_or(0);
        launch!(add_four, a, units(a, largest), [a, b, c, d, e, f, g, h]);
    }
    let rest = sums.split_off(whole).into_iter().zip(more.into_iter().skip(whole));
    sums.extend(rest.map(|(sum, more)| B::float_add(sum, more)));
    sums
}

/// to += from, where the unit has an element. Both have the same length.
#[cube]
fn add(to: &mut Tensor<f32>, from: &Tensor<f32>) {
    if ABSOLUTE_POS < to.len() {
        to[ABSOLUTE_POS] += from[ABSOLUTE_POS];
    }
}

/// Four sums in one launch. It has as many units as the largest tensor has elements.
#[cube(launch_unchecked)]
fn add_four(
    a: &mut Tensor<f32>,
    b: &mut Tensor<f32>,
    c: &mut Tensor<f32>,
    d: &mut Tensor<f32>,
    to_a: &Tensor<f32>,
    to_b: &Tensor<f32>,
    to_c: &Tensor<f32>,
    to_d: &Tensor<f32>,
) {
    add(a, to_a);
    add(b, to_b);
    add(c, to_c);
    add(d, to_d);
}
