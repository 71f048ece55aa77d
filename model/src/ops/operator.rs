//! The traits of operators: a plain form, a hand-written form for CPUs, and kernels for GPUs.

use std::fmt::Debug;

use burn_backend::Backend;
use burn_backend::tensor::FloatTensor;
use burn_flex::FlexTensor;
use burn_tensor::{Tensor, TensorPrimitive};

#[cfg(feature = "cube")]
use super::cube::{GpuBackend, OnGpu, OnGpuOfMany};

/// A function of `N` float tensors. All other arguments are fields of the operator.
pub trait Operator<const N: usize>: Clone + Debug + Send + 'static {
    /// What the operator is, in burn's tensors.
    fn plain<B: FusedOps>(&self, inputs: [FloatTensor<B>; N]) -> FloatTensor<B>;

    /// The data that the backward pass needs.
    type Saved: Send + 'static;

    /// The hand-written form, on contiguous tensors of the CPU.
    fn forward(&self, inputs: [FlexTensor; N]) -> (FlexTensor, Self::Saved);

    /// The contiguous gradient of each input, from that of the output.
    fn backward(&self, saved: Self::Saved, gradient: FlexTensor) -> [FlexTensor; N];

    /// The form by our own kernels on a GPU; `None` where there are none for these sizes, so that
    /// the plain form runs.
    #[cfg(feature = "cube")]
    fn on_gpu<B: GpuBackend>(&self, _: [FloatTensor<B>; N]) -> Option<OnGpu<B, N>> {
        None
    }
}

/// An operator with `M` outputs, each with a gradient of its own.
pub trait MultiOutput<const N: usize, const M: usize>: Clone + Debug + Send + 'static {
    /// What the operator is, in burn's tensors.
    fn plain<B: FusedOps>(&self, inputs: [FloatTensor<B>; N]) -> [FloatTensor<B>; M];

    /// The data that the backward pass needs.
    type Saved: Send + 'static;

    /// The hand-written form, on contiguous tensors of the CPU.
    fn forward(&self, inputs: [FlexTensor; N]) -> ([FlexTensor; M], Self::Saved);

    /// The gradient of each input from those of the outputs; an unused output has none.
    fn backward(&self, saved: Self::Saved, gradients: [Option<FlexTensor>; M]) -> [FlexTensor; N];

    /// The form by our own kernels on a GPU, where there are some.
    #[cfg(feature = "cube")]
    fn on_gpu<B: GpuBackend>(&self, _: [FloatTensor<B>; N]) -> Option<OnGpuOfMany<B, N, M>> {
        None
    }
}

/// An operator without a hand-written backward pass. If gradients are tracked, its plain form runs.
pub trait Untracked<const N: usize, const M: usize> {
    /// What the operator is, in burn's tensors.
    fn plain<B: FusedOps>(&self, inputs: [FloatTensor<B>; N]) -> [FloatTensor<B>; M];

    /// The hand-written form, on contiguous tensors of the CPU.
    fn forward(&self, inputs: [FlexTensor; N]) -> [FlexTensor; M];

    /// The form by our own kernels on a GPU, where there are some.
    #[cfg(feature = "cube")]
    fn on_gpu<B: GpuBackend + FusedOps>(&self, inputs: [FloatTensor<B>; N]) -> [FloatTensor<B>; M] {
        self.plain::<B>(inputs)
    }
}

/// burn's `Backend` with the operators of this crate, by default in their plain form.
pub trait FusedOps: Backend {
    /// Runs an operator with one output.
    fn run<O: Operator<N>, const N: usize>(
        op: O,
        inputs: [FloatTensor<Self>; N],
    ) -> FloatTensor<Self> {
        op.plain::<Self>(inputs)
    }

    /// Runs an operator with several outputs.
    fn run_multi<O: MultiOutput<N, M>, const N: usize, const M: usize>(
        op: O,
        inputs: [FloatTensor<Self>; N],
    ) -> [FloatTensor<Self>; M] {
        op.plain::<Self>(inputs)
    }

    /// Runs an operator that has no hand-written backward pass.
    fn untracked<O: Untracked<N, M>, const N: usize, const M: usize>(
        op: O,
        inputs: [FloatTensor<Self>; N],
    ) -> [FloatTensor<Self>; M] {
        op.plain::<Self>(inputs)
    }

    /// Maps each item. A CPU does so on all its threads, for work whose operators are too small to
    /// be divided.
    fn map_each<T: Send, R: Send>(items: Vec<T>, map: impl Fn(T) -> R + Send + Sync) -> Vec<R> {
        items.into_iter().map(map).collect()
    }

    /// Adds the tensors of two lists of equal length pairwise.
    fn add_all(
        sums: Vec<FloatTensor<Self>>,
        more: Vec<FloatTensor<Self>>,
    ) -> Vec<FloatTensor<Self>> {
        sums.into_iter().zip(more).map(|(sum, more)| Self::float_add(sum, more)).collect()
    }
}

/// Converts a backend's tensor to burn's, in which plain forms are written.
pub(super) fn tensor<B: Backend, const D: usize>(primitive: FloatTensor<B>) -> Tensor<B, D> {
    Tensor::from_primitive(TensorPrimitive::Float(primitive))
}

/// Converts burn's tensor to the backend's.
pub(super) fn primitive<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> FloatTensor<B> {
    tensor.into_primitive().tensor()
}
