//! Sums, means and maxima of the plain forms.
//!
//! cubek-reduce 0.2, which every CubeCL device runs, takes neighbours in memory for neighbours of
//! the output when a permuted tensor is reduced along an axis of stride > 1 (its `launch/utils.rs`
//! counts axes that agree after one that does not), and says nothing. So the input of each reduce
//! that we ask for is contiguous. What burn-autodiff sums where a plain form broadcast is out of
//! reach here; the check of a device at its start is what finds that.

use burn_backend::Backend;
use burn_tensor::{Int, Tensor, activation};

/// The same values in the order of their indices: one dimension cannot be a permuted view.
fn contiguous<B: Backend, const D: usize>(x: Tensor<B, D>) -> Tensor<B, D> {
    let shape = x.shape();
    x.reshape([shape.num_elements()]).reshape(shape)
}

pub(super) fn sum_dim<B: Backend, const D: usize>(x: Tensor<B, D>, dim: usize) -> Tensor<B, D> {
    contiguous(x).sum_dim(dim)
}

pub(super) fn mean_dim<B: Backend, const D: usize>(x: Tensor<B, D>, dim: usize) -> Tensor<B, D> {
    contiguous(x).mean_dim(dim)
}

/// Of all elements, in a fixed order: burn's own adds them as they come on a GPU.
pub(super) fn sum<B: Backend, const D: usize>(x: Tensor<B, D>) -> Tensor<B, 1> {
    let count = x.shape().num_elements();
    let columns = (1_usize << count.trailing_zeros().min(12)).max(1);
    x.reshape([count])
        .reshape([count / columns, columns])
        .sum_dim(1)
        .reshape([count / columns])
        .sum_dim(0)
}

/// Of all elements.
pub(super) fn mean<B: Backend, const D: usize>(x: Tensor<B, D>) -> Tensor<B, 1> {
    let count = x.shape().num_elements();
    sum(x) / count as f32
}

pub(super) fn argmax<B: Backend, const D: usize>(x: Tensor<B, D>, dim: usize) -> Tensor<B, D, Int> {
    contiguous(x).argmax(dim)
}

pub(super) fn softmax<B: Backend, const D: usize>(x: Tensor<B, D>, dim: usize) -> Tensor<B, D> {
    activation::softmax(contiguous(x), dim)
}

pub(super) fn log_softmax<B: Backend, const D: usize>(x: Tensor<B, D>, dim: usize) -> Tensor<B, D> {
    activation::log_softmax(contiguous(x), dim)
}
