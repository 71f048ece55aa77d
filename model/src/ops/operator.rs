//! What an operator is: its plain form, the same by hand for CPUs, and by kernels for GPUs.

use std::fmt::Debug;

use burn_backend::Backend;
use burn_backend::tensor::FloatTensor;
use burn_flex::FlexTensor;
use burn_tensor::{Tensor, TensorPrimitive};

#[cfg(feature = "cube")]
use super::cube::{GpuBackend, OnGpu, OnGpuOfMany};

/// A function of `N` tensors. What is no float tensor stands in the operator itself.
pub trait Operator<const N: usize>: Clone + Debug + Send + 'static {
    /// What the operator is, in burn's tensors.
    fn plain<B: FusedOps>(&self, inputs: [FloatTensor<B>; N]) -> FloatTensor<B>;

    /// What the backward pass needs.
    type Saved: Send + 'static;

    /// The same by hand, on contiguous tensors of the CPU.
    fn forward(&self, inputs: [FlexTensor; N]) -> (FlexTensor, Self::Saved);

    /// The gradient of each input, contiguous, from that of the output.
    fn backward(&self, saved: Self::Saved, gradient: FlexTensor) -> [FlexTensor; N];

    /// The same by kernels of ours on a GPU; nothing where it has none, or not for these sizes:
    /// then the plain form runs.
    #[cfg(feature = "cube")]
    fn on_gpu<B: GpuBackend>(&self, _: [FloatTensor<B>; N]) -> Option<OnGpu<B, N>> {
        None
    }
}

/// An operator with `M` outputs, each with a gradient of its own.
pub trait MultiOutput<const N: usize, const M: usize>: Clone + Debug + Send + 'static {
    /// What the operator is, in burn's tensors.
    fn plain<B: FusedOps>(&self, inputs: [FloatTensor<B>; N]) -> [FloatTensor<B>; M];

    /// What the backward pass needs.
    type Saved: Send + 'static;

    /// The same by hand, on contiguous tensors of the CPU.
    fn forward(&self, inputs: [FlexTensor; N]) -> ([FlexTensor; M], Self::Saved);

    /// The gradient of each input from those of the outputs; an output that took no part has none.
    fn backward(&self, saved: Self::Saved, gradients: [Option<FlexTensor>; M]) -> [FlexTensor; N];

    /// The same by kernels of ours on a GPU, where there are some.
    #[cfg(feature = "cube")]
    fn on_gpu<B: GpuBackend>(&self, _: [FloatTensor<B>; N]) -> Option<OnGpuOfMany<B, N, M>> {
        None
    }
}

/// An operator without a backward pass by hand: where gradients are tracked its plain form runs.
pub trait Untracked<const N: usize, const M: usize> {
    /// What the operator is, in burn's tensors.
    fn plain<B: FusedOps>(&self, inputs: [FloatTensor<B>; N]) -> [FloatTensor<B>; M];

    /// The same by hand, on contiguous tensors of the CPU.
    fn forward(&self, inputs: [FlexTensor; N]) -> [FlexTensor; M];

    /// The same by kernels of ours on a GPU, where there are some.
    #[cfg(feature = "cube")]
    fn on_gpu<B: GpuBackend + FusedOps>(&self, inputs: [FloatTensor<B>; N]) -> [FloatTensor<B>; M] {
        self.plain::<B>(inputs)
    }
}

/// burn's `Backend` with the operators of this crate, in their plain form unless it says otherwise.
pub trait FusedOps: Backend {
    /// Runs an operator.
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

    /// Runs an operator that has no backward pass by hand.
    fn untracked<O: Untracked<N, M>, const N: usize, const M: usize>(
        op: O,
        inputs: [FloatTensor<Self>; N],
    ) -> [FloatTensor<Self>; M] {
        op.plain::<Self>(inputs)
    }

    /// The sum of each tensor and the one at its place in the other list, which is as long.
    fn add_all(
        sums: Vec<FloatTensor<Self>>,
        more: Vec<FloatTensor<Self>>,
    ) -> Vec<FloatTensor<Self>> {
        sums.into_iter().zip(more).map(|(sum, more)| Self::float_add(sum, more)).collect()
    }
}

/// A backend's tensor as burn's, in which plain forms are written.
pub(super) fn tensor<B: Backend, const D: usize>(primitive: FloatTensor<B>) -> Tensor<B, D> {
    Tensor::from_primitive(TensorPrimitive::Float(primitive))
}

/// burn's tensor as the backend's.
pub(super) fn primitive<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> FloatTensor<B> {
    tensor.into_primitive().tensor()
}
