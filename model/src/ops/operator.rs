//! The traits of operators: a plain form, a hand-written form for CPUs, and kernels for GPUs.
//!
//! A new operator implements one of the three traits in a file of its own. Its fields are settings
//! that are not differentiated, such as a shape or an epsilon. The tests of its file compare the
//! forms, and gradients with the slopes of the plain form.

use std::fmt::Debug;

use burn_backend::Backend;
use burn_backend::tensor::FloatTensor;
use burn_flex::FlexTensor;
use burn_tensor::{Tensor, TensorPrimitive};

#[cfg(feature = "cube")]
use super::cube::{GpuBackend, OnGpu, OnGpuOfMany};

/// A function of `N` float tensors. All other arguments are fields of the operator.
pub trait Operator<const N: usize>: Clone + Debug + Send + 'static {
    /// What the operator is, in burn's tensors. burn differentiates it where gradients are tracked,
    /// so every step in it has to be one that burn can differentiate.
    fn plain<B: FusedOps>(&self, inputs: [FloatTensor<B>; N]) -> FloatTensor<B>;

    /// The data that the backward pass needs. It lives from the forward pass to the backward pass
    /// of the same micro-batch, so its size is part of the memory of a step.
    type Saved: Send + 'static;

    /// The hand-written form, on contiguous tensors of the CPU. It is called outside training too;
    /// what it saved is dropped then.
    fn forward(&self, inputs: [FlexTensor; N]) -> (FlexTensor, Self::Saved);

    /// The contiguous gradient of each input, from the contiguous one of the output. It runs at
    /// most once.
    fn backward(&self, saved: Self::Saved, gradient: FlexTensor) -> [FlexTensor; N];

    /// The form by our own kernels on a GPU; `None` where there are none for these sizes, so that
    /// the plain form runs.
    #[cfg(feature = "cube")]
    fn on_gpu<B: GpuBackend>(&self, _: [FloatTensor<B>; N]) -> Option<OnGpu<B, N>> {
        None
    }
}

/// An operator with `M` outputs, each with a gradient of its own. It is a trait of its own because
/// a node of burn's graph has one output.
pub trait MultiOutput<const N: usize, const M: usize>: Clone + Debug + Send + 'static {
    /// What the operator is, in burn's tensors.
    fn plain<B: FusedOps>(&self, inputs: [FloatTensor<B>; N]) -> [FloatTensor<B>; M];

    /// The data that the backward pass needs, until it has run.
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

/// An operator without a hand-written backward pass, for generation, measurement and the optimiser.
/// If gradients are tracked, its plain form runs.
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

/// burn's `Backend` with the operators of this crate, by default in their plain form. `fused.rs`
/// overrides the methods for each backend that has a faster form.
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

    /// Maps each item, and keeps their order. A CPU does so on all its threads, for work whose
    /// operators are too small to be divided.
    fn map_each<T: Send, R: Send>(items: Vec<T>, map: impl Fn(T) -> R + Send + Sync) -> Vec<R> {
        items.into_iter().map(map).collect()
    }

    /// Adds the tensors of two lists of equal length pairwise, as the gradients of two
    /// micro-batches.
    fn add_all(
        sums: Vec<FloatTensor<Self>>,
        more: Vec<FloatTensor<Self>>,
    ) -> Vec<FloatTensor<Self>> {
        sums.into_iter().zip(more).map(|(sum, more)| Self::float_add(sum, more)).collect()
    }
}

/// Converts a backend's tensor to burn's, in which plain forms are written. `D` has to be its
/// number of dimensions.
pub(super) fn tensor<B: Backend, const D: usize>(primitive: FloatTensor<B>) -> Tensor<B, D> {
    Tensor::from_primitive(TensorPrimitive::Float(primitive))
}

/// Converts burn's tensor to the backend's.
pub(super) fn primitive<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> FloatTensor<B> {
    tensor.into_primitive().tensor()
}
