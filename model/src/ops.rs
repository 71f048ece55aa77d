//! The operators that models are made of, as an extension of burn's `Backend`.
//!
//! An operator is a file here, a `mod` line and a `pub use` line. Its file has the equation and its
//! source, a *plain form* and a hand-written form for CPUs. The plain form is a few lines of burn
//! tensor code that define the operator and are the reference of its tests. The hand-written form
//! has a forward and a backward pass, and the kernels that both use. On a GPU the plain form runs,
//! or our own kernels where an operator has some (its `cube.rs`). On a CPU plain tensor code loses
//! most of the performance to strided copies, so there each operator is one node of burn's autodiff
//! graph over kernels on slices. An operator is smaller than a transformer block and larger than an
//! addition: a model still reads as its equations, and larger operators were measured to be no
//! faster.
//!
//! A model calls `B::run(Project, [x, w])`, and [`FusedOps`] decides which form runs. There are
//! three kinds: an [`Operator`] has one output, a [`MultiOutput`] several, and an [`Untracked`] has
//! no hand-written gradient.
//!
//! Matrices are row-major: activations [N, D] with N = B·T positions, weights [out, in]. A CPU
//! operator gets contiguous tensors. Saving one for the backward pass keeps a reference. Some
//! operators overwrite their input, because in a model it has no other owner; if it has one,
//! copy-on-write makes the operator correct but slower.
//!
//! | file | owns, besides the operators |
//! |---|---|
//! | `operator.rs` | the traits of operators |
//! | `fused.rs` | the choice of the form that a backend runs |
//! | `node.rs` | one autodiff node for all operators |
//! | `reduce.rs` | the sums and maxima of plain forms |
//! | `rows.rs` | dividing rows into tasks, copying and summing them |
//! | `lanes.rs` | the building blocks of kernels, which compile to vector code |
//! | `gemm.rs` | matrix views and the matrix product |
//! | `buf.rs` | tensors ↔ slices |
//! | `cube.rs`, `cube/` | the common part of GPU kernels; sums over rows, and of many tensors |
//! | `clock.rs` | time per kernel |
//!
//! Not here: the embedding (burn's `select` is as fast) and products in bf16 (a cast inside the plain
//! projection on a GPU).

mod adamw;
mod attend;
mod attend_block;
mod attention;
mod gate;
mod judge;
mod loss;
mod low_rank;
mod mix;
mod narrow;
mod norm;
mod pack;
mod project;
mod rope;
mod shift;
mod swiglu;
mod wkv;

mod buf;
pub mod clock;
#[cfg(feature = "cube")]
mod cube;
mod fused;
mod gemm;
pub(crate) mod lanes;
mod node;
mod operator;
mod reduce;
mod rows;
#[cfg(test)]
mod tests;

pub use self::adamw::{AdamW, SquareSum};
pub use self::attend::{Append, Attend};
pub use self::attend_block::AttendBlock;
pub use self::attention::{Attention, Documents, Heads};
pub use self::gate::{DecayedKeys, GatedAdd, ReluSquare};
pub use self::judge::Judged;
pub(crate) use self::judge::{judge, judge_there};
pub use self::loss::{CrossEntropy, ZForm, ZLoss};
pub use self::low_rank::{Expand, TanhProject};
pub use self::mix::DataMix;
pub use self::narrow::{Narrow, Widen};
pub use self::norm::{LayerNorm, NormGate, RmsNorm};
pub use self::operator::{FusedOps, MultiOutput, Operator, Untracked};
pub use self::pack::Pack;
pub use self::project::{Project, ProjectAdd};
pub use self::rope::{Rope, RopeScaling, Rotate};
pub use self::shift::{ShiftMix, Weighs};
pub use self::swiglu::SwiGlu;
pub use self::wkv::{STATE_TOKENS, Wkv};

/// Returns the memory that CPU operators keep for the next step to the system. For use after a pass
/// whose shapes will not recur.
pub(crate) fn release_memory() {
    buf::release();
}
