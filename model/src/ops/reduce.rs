//! Sums, means and maxima of the plain forms.
//!
//! cubek-reduce 0.2, which every CubeCL device uses, gives wrong results without an error when a
//! permuted tensor is reduced along an axis of stride > 1. It confuses neighbours in memory with
//! neighbours of the output: its `launch/utils.rs` counts axes that agree after one that does not.
//! So the input of each of our reductions is made contiguous. The sums that burn-autodiff computes
//! where a plain form broadcasts are outside our control; the check of a device at its start would
//! detect errors there.

use burn_backend::Backend;
use burn_tensor::{Int, Tensor, activation};

/// Makes a tensor contiguous: a tensor of one dimension cannot be a permuted view.
fn contiguous<B: Backend, const D: usize>(x: Tensor<B, D>) -> Tensor<B, D> {
    let shape = x.shape();
    x.reshape([shape.num_elements()]).reshape(shape)
}

/// The sum over one dimension, which stays with length 1.
pub(super) fn sum_dim<B: Backend, const D: usize>(x: Tensor<B, D>, dim: usize) -> Tensor<B, D> {
    contiguous(x).sum_dim(dim)
}

/// The mean over one dimension, which stays with length 1.
pub(super) fn mean_dim<B: Backend, const D: usize>(x: Tensor<B, D>, dim: usize) -> Tensor<B, D> {
    contiguous(x).mean_dim(dim)
}

/// The sum of all elements, in a fixed order, which burn's own does not guarantee on a GPU: first
/// over rows of a power of two of elements, at most 4,096, then over these sums.
pub(super) fn sum<B: Backend, const D: usize>(x: Tensor<B, D>) -> Tensor<B, 1> {
    let count = x.shape().num_elements();
    let columns = (1_usize << count.trailing_zeros().min(12)).max(1);
    x.reshape([count])
        .reshape([count / columns, columns])
        .sum_dim(1)
        .reshape([count / columns])
        .sum_dim(0)
}

/// The mean of all elements, in a fixed order.
pub(super) fn mean<B: Backend, const D: usize>(x: Tensor<B, D>) -> Tensor<B, 1> {
    let count = x.shape().num_elements();
    sum(x) / count as f32
}

/// The largest element along one dimension, which stays with length 1.
pub(super) fn max_dim<B: Backend, const D: usize>(x: Tensor<B, D>, dim: usize) -> Tensor<B, D> {
    contiguous(x).max_dim(dim)
}

/// The index of the largest element along one dimension, which stays with length 1.
pub(super) fn argmax<B: Backend, const D: usize>(x: Tensor<B, D>, dim: usize) -> Tensor<B, D, Int> {
    contiguous(x).argmax(dim)
}

/// exp(x)/Σ exp(x) along one dimension; −∞ becomes 0.
pub(super) fn softmax<B: Backend, const D: usize>(x: Tensor<B, D>, dim: usize) -> Tensor<B, D> {
    activation::softmax(contiguous(x), dim)
}

/// x − ln Σ exp(x) along one dimension.
pub(super) fn log_softmax<B: Backend, const D: usize>(x: Tensor<B, D>, dim: usize) -> Tensor<B, D> {
    activation::log_softmax(contiguous(x), dim)
}
