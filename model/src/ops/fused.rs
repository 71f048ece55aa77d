//! Which form of an operator a backend runs.

use burn_autodiff::Autodiff;
use burn_autodiff::checkpoint::strategy::BalancedCheckpointing;
use burn_backend::Backend;
use burn_backend::tensor::FloatTensor;
use burn_flex::{Flex, FlexTensor};

use super::buf::contiguous;
use super::node;
use super::operator::{MultiOutput, Operator, Untracked};

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
}

impl FusedOps for Flex {
    fn run<O: Operator<N>, const N: usize>(op: O, inputs: [FlexTensor; N]) -> FlexTensor {
        op.forward(inputs.map(contiguous)).0
    }

    fn run_multi<O: MultiOutput<N, M>, const N: usize, const M: usize>(
        op: O,
        inputs: [FlexTensor; N],
    ) -> [FlexTensor; M] {
        op.forward(inputs.map(contiguous)).0
    }

    fn untracked<O: Untracked<N, M>, const N: usize, const M: usize>(
        op: O,
        inputs: [FlexTensor; N],
    ) -> [FlexTensor; M] {
        op.forward(inputs.map(contiguous))
    }
}

impl FusedOps for Autodiff<Flex> {
    fn run<O: Operator<N>, const N: usize>(
        op: O,
        inputs: [FloatTensor<Self>; N],
    ) -> FloatTensor<Self> {
        node::apply(op, inputs)
    }

    fn run_multi<O: MultiOutput<N, M>, const N: usize, const M: usize>(
        op: O,
        inputs: [FloatTensor<Self>; N],
    ) -> [FloatTensor<Self>; M] {
        node::apply_multi(op, inputs)
    }
}

/// The plain form on the CPU, under the other checkpointing strategy: what tests hold the form by
/// hand against.
impl FusedOps for Autodiff<Flex, BalancedCheckpointing> {}

/// GPUs run the plain form.
#[cfg(feature = "cuda")]
impl FusedOps for burn_cuda::Cuda<f32, i32> {}

/// GPUs run the plain form, and burn differentiates it.
#[cfg(feature = "cuda")]
impl FusedOps for Autodiff<burn_cuda::Cuda<f32, i32>> {}

/// GPUs run the plain form.
#[cfg(feature = "wgpu")]
impl FusedOps for burn_wgpu::Wgpu<f32, i32> {}

/// GPUs run the plain form, and burn differentiates it.
#[cfg(feature = "wgpu")]
impl FusedOps for Autodiff<burn_wgpu::Wgpu<f32, i32>> {}
