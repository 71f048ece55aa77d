//! The operators that models are made of, as an extension of burn's `Backend`.
//!
//! An operator is a file here, a `mod` line and a `pub use` line. Its file says what it is (the
//! equation and its source), its *plain form* (a few lines of burn tensor code, which define it,
//! and are the oracle of its tests), and the same by hand for CPUs: forward, backward and the
//! kernels under them. On a GPU the plain form runs, or kernels of ours where an operator has some
//! (`cube.rs` beside it). On a CPU plain tensor code loses most of the
//! machine to strided copies; there each operator is one node of burn's autodiff graph over kernels
//! on slices. Finer than a transformer block, coarser than an addition: a model written in these
//! operators still reads as its equations, and coarser operators were measured to be no faster.
//!
//! A model says `B::run(Project, [x, w])`; [`FusedOps`] decides which form runs. There are three
//! kinds: an [`Operator`] has one output, one of [`MultiOutput`] several, and an [`Untracked`] one
//! no gradient by hand.
//!
//! Matrices are rows first: activations [N, D] with N = B·T positions, weights [out, in]. A CPU
//! operator is given contiguous tensors. Saving one for the backward pass keeps a reference. Some
//! operators write over their input, because in a model nobody else holds it; where someone does,
//! copy-on-write makes it merely slower.
//!
//! | file | holds, besides the operators |
//! |---|---|
//! | `operator.rs` | what an operator is |
//! | `fused.rs` | which form a backend runs |
//! | `node.rs` | one autodiff node for all operators |
//! | `reduce.rs` | the sums and maxima of plain forms |
//! | `rows.rs` | how rows are cut into tasks, copied and summed |
//! | `lanes.rs` | what kernels are written in, so that they become vector code |
//! | `gemm.rs` | matrix views and the matrix product |
//! | `buf.rs` | tensors ↔ slices |
//! | `cube.rs`, `cube/` | what kernels for GPUs share; sums over rows, and of many tensors |
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
pub use self::attend::Attend;
pub use self::attention::{Attention, Documents, Heads};
pub use self::gate::{DecayedKeys, GatedAdd, ReluSquare};
pub use self::loss::{CrossEntropy, ZForm, ZLoss};
pub use self::low_rank::{Expand, TanhProject};
pub use self::mix::DataMix;
pub use self::norm::{LayerNorm, NormGate, RmsNorm};
pub use self::operator::{FusedOps, MultiOutput, Operator, Untracked};
pub use self::pack::Pack;
pub use self::project::{Project, ProjectAdd};
pub use self::rope::{Rope, RopeScaling, Rotate};
pub use self::shift::{ShiftMix, Weighs};
pub use self::swiglu::SwiGlu;
pub use self::wkv::{STATE_TOKENS, Wkv};

/// Gives the memory that CPU operators keep for the next step back to the system: for whoever runs
/// a pass whose shapes will not come again.
pub(crate) fn release_memory() {
    buf::release();
}
