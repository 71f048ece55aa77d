//! The operators that models are made of, as an extension of burn's `Backend`.
//!
//! An operator is a file and a line of the list below. Its file says what it is (the equation and its
//! source), its *plain form* (a few lines of burn tensor code, which define it, are the oracle of its
//! tests, and run on CUDA, where burn fuses them), and the same by hand for CPUs: forward, backward and
//! the kernels under them. On a CPU plain tensor code loses most of the machine to strided copies;
//! there each operator is one node of burn's autodiff graph over kernels on slices. Finer than a
//! transformer block, coarser than an addition: a model written in these operators still reads as its
//! equations, and coarser operators were measured to be no faster.
//!
//! A model says `B::run(Project, [x, w])`; [`FusedOps`] decides which form runs. There are three kinds:
//! an [`Operator`] has one output, a [`Split`] several, and an [`Untracked`] one no gradient by hand.
//!
//! Matrices are rows first: activations [N, D] with N = B·T positions, weights [out, in]. A CPU
//! operator is given contiguous tensors. Saving one for the backward pass keeps a reference. Some
//! operators write over their input, because in a model nobody else holds it; where someone does,
//! copy-on-write makes it merely slower.
//!
//! | file | holds, besides the operators |
//! |---|---|
//! | `node.rs` | one autodiff node for all operators |
//! | `rows.rs` | how rows are cut into tasks, copied and summed |
//! | `lanes.rs` | what kernels are written in, so that they become vector code |
//! | `gemm.rs` | matrix views and the matrix product |
//! | `buf.rs` | tensors ↔ slices |
//! | `clock.rs` | time per kernel |
//!
//! Not here: the embedding (burn's `select` is as fast), bf16 (a cast inside the plain projection,
//! once a GPU runs it).

mod adamw;
mod attend;
mod attention;
mod gate;
mod loss;
mod low_rank;
mod mix;
mod norm;
mod pack;
mod project;
mod rope;
mod shift;
mod swiglu;
mod wkv;

mod buf;
pub mod clock;
mod gemm;
pub(crate) mod lanes;
mod node;
mod rows;
#[cfg(test)]
mod tests;

use std::fmt::Debug;

use burn::tensor::{Tensor, TensorPrimitive};
use burn_autodiff::Autodiff;
use burn_autodiff::checkpoint::strategy::BalancedCheckpointing;
use burn_backend::Backend;
use burn_backend::tensor::FloatTensor;
use burn_flex::{Flex, FlexTensor};

pub use self::adamw::{AdamW, SquareSum};
pub use self::attend::Attend;
pub use self::attention::{Attention, Documents, Heads};
pub use self::gate::{DecayedKeys, GatedAdd, ReluSquare};
pub use self::loss::{CrossEntropy, ZForm, ZLoss};
pub use self::low_rank::{Expand, TanhProject};
pub use self::mix::{DataMix, Pieces};
pub use self::norm::{LayerNorm, NormGate, RmsNorm};
pub use self::pack::Pack;
pub use self::project::{Project, ProjectAdd};
pub use self::rope::{Rope, RopeScaling, Rotate};
pub use self::shift::{ShiftMix, Weighs};
pub use self::swiglu::SwiGlu;
pub use self::wkv::{STATE_TOKENS, Wkv};

use self::buf::contiguous;

/// A function of `N` tensors. What is no float tensor stands in the operator itself.
pub trait Operator<const N: usize>: Clone + Debug + Send + 'static {
    /// What the operator is, in burn's tensors.
    fn plain<B: Backend>(&self, inputs: [FloatTensor<B>; N]) -> FloatTensor<B>;

    /// What the backward pass needs.
    type Saved: Clone + Debug + Send + 'static;

    /// The same by hand.
    fn forward(&self, inputs: [FlexTensor; N]) -> (FlexTensor, Self::Saved);

    /// The gradient of each input, contiguous, from that of the output.
    fn backward(&self, saved: Self::Saved, gradient: FlexTensor) -> [FlexTensor; N];
}

/// An operator with `M` outputs, each with a gradient of its own.
pub trait Split<const N: usize, const M: usize>: Clone + Debug + Send + 'static {
    /// As [`Operator::plain`].
    fn plain<B: Backend>(&self, inputs: [FloatTensor<B>; N]) -> [FloatTensor<B>; M];

    /// As [`Operator::Saved`].
    type Saved: Clone + Debug + Send + 'static;

    /// The same by hand.
    fn forward(&self, inputs: [FlexTensor; N]) -> ([FlexTensor; M], Self::Saved);

    /// The gradient of each input from those of the outputs; an output that took no part has none.
    fn backward(&self, saved: Self::Saved, gradients: [Option<FlexTensor>; M]) -> [FlexTensor; N];
}

/// An operator without a backward pass by hand: where gradients are tracked its plain form runs.
pub trait Untracked<const N: usize, const M: usize> {
    /// As [`Operator::plain`].
    fn plain<B: Backend>(&self, inputs: [FloatTensor<B>; N]) -> [FloatTensor<B>; M];

    /// The same by hand.
    fn forward(&self, inputs: [FlexTensor; N]) -> [FlexTensor; M];
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
    fn split<O: Split<N, M>, const N: usize, const M: usize>(
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

    fn split<O: Split<N, M>, const N: usize, const M: usize>(
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

    fn split<O: Split<N, M>, const N: usize, const M: usize>(
        op: O,
        inputs: [FloatTensor<Self>; N],
    ) -> [FloatTensor<Self>; M] {
        node::apply_split(op, inputs)
    }
}

/// The plain form on the CPU, under the other checkpointing strategy: what tests hold the form by hand
/// against.
impl FusedOps for Autodiff<Flex, BalancedCheckpointing> {}

/// CUDA runs the plain form.
#[cfg(feature = "cuda")]
impl FusedOps for burn_cuda::Cuda<f32, i32> {}

/// CUDA runs the plain form, and burn differentiates it.
#[cfg(feature = "cuda")]
impl FusedOps for Autodiff<burn_cuda::Cuda<f32, i32>> {}

/// Gives the memory that CPU operators keep for the next step back to the system: for whoever runs
/// a pass whose shapes will not come again.
pub(crate) fn release_memory() {
    buf::release();
}

/// A backend's tensor as burn's, in which plain forms are written.
fn tensor<B: Backend, const D: usize>(primitive: FloatTensor<B>) -> Tensor<B, D> {
    Tensor::from_primitive(TensorPrimitive::Float(primitive))
}

/// And back.
fn primitive<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> FloatTensor<B> {
    tensor.into_primitive().tensor()
}
