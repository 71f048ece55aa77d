//! The operators that models are made of, as an extension of burn's `Backend`.
//!
//! Every method of [`FusedOps`] has a default body, the *plain form*: a few lines of burn tensor
//! code that say what the operator is, serve as the oracle of its tests, and run on CUDA, where
//! burn fuses them. On the CPU plain tensor code loses most of the machine to strided copies; there
//! each operator is a hand-written kernel over slices, forward and backward, and one node of burn's
//! autodiff graph. Finer than a transformer block, coarser than an addition: a model written in
//! these operators still reads as its equations, and coarser operators were measured to be no
//! faster.
//!
//! Matrices are rows first: activations [N, D] with N = B·T positions, weights [out, in].
//!
//! | file | holds |
//! |---|---|
//! | `plain.rs` | the plain form |
//! | `node.rs` | one autodiff node for all operators |
//! | `flex.rs` | the operators on CPU tensors: shapes, what is saved, which kernel |
//! | `attention.rs`, `rows.rs` | the kernels, on slices |
//! | `rope.rs` | the angles of rotary positions |
//! | `lanes.rs` | what kernels are written in, so that they become vector code |
//! | `gemm.rs` | matrix views and the matrix product |
//! | `rwkv.rs` | the operators that the RWKV families and GoldFinch add |
//! | `buf.rs` | tensors ↔ slices |
//! | `clock.rs` | time per kernel |
//!
//! Not here: the embedding (burn's `select` is as fast), bf16 (a cast inside the plain projection,
//! once a GPU runs it).

mod attention;
mod buf;
pub mod clock;
mod flex;
mod gemm;
pub(crate) mod lanes;
mod node;
mod plain;
mod rope;
mod rows;
pub mod rwkv;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use burn_autodiff::Autodiff;
use burn_autodiff::checkpoint::strategy::BalancedCheckpointing;
use burn_backend::tensor::{FloatTensor, IntTensor};
use burn_flex::Flex;

pub use self::rope::{Rope, RopeScaling};

use self::flex::{Attention, CrossEntropy, Project, ProjectAdd, RmsNorm, Rotate, SwiGlu, run};
use self::node::apply;
use self::rwkv::RwkvOps;

/// The shape of one attention. A packed row is [H query heads | G key heads | G value heads], each
/// K wide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heads {
    /// B
    pub sequences: usize,
    /// T
    pub tokens: usize,
    /// H, a multiple of G
    pub query: usize,
    /// G; query head j reads key-value head ⌊j·G/H⌋
    pub kv: usize,
    /// K
    pub size: usize,
}

impl Heads {
    /// Width of a packed row, (H + 2G)·K.
    pub fn row(&self) -> usize {
        (self.query + 2 * self.kv) * self.size
    }

    /// Query heads per key-value head, H/G.
    pub fn group(&self) -> usize {
        self.query / self.kv
    }

    /// 1/√K
    fn scale(&self) -> f32 {
        1.0 / (self.size as f32).sqrt()
    }
}

/// Where the document of each position begins in its row: attention does not look further back.
///
/// Several documents in one row are *packed*; positions run on over the row, which a rotation does
/// not notice.
#[derive(Clone, Debug)]
pub struct Documents {
    /// [B·T], rising within a row
    starts: Arc<[u32]>,
}

impl Documents {
    /// Rows of one document each. `positions` is B·T.
    pub fn whole(positions: usize) -> Self {
        Self { starts: vec![0; positions].into() }
    }

    /// From the number of each position's document, in rows of `length`: it changes where another
    /// one begins. // numbers [B·T]
    pub fn packed(numbers: &[i32], length: usize) -> Self {
        let row = |row: &[i32]| {
            let mut start = 0;
            let begins = |at: usize| {
                if at > 0 && row[at] != row[at - 1] {
                    start = at;
                }
                start as u32
            };
            (0..row.len()).map(begins).collect::<Vec<_>>()
        };
        Self { starts: numbers.chunks(length).flat_map(row).collect() }
    }
}

/// Which number the z-loss pulls towards zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZForm {
    /// The largest logit (INTELLECT-1); its gradient goes to the first largest logit only.
    Max,
    /// The logarithm of the partition function (PaLM, Chowdhery et al. 2022).
    LogSumExp,
}

/// An addition to the cross entropy: weight × mean z².
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ZLoss {
    /// 0 turns it off.
    pub weight: f32,
    /// What z is.
    pub form: ZForm,
}

/// The numbers of one AdamW update (Loshchilov & Hutter 2019).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    /// η
    pub learning_rate: f32,
    /// β₁, decay of the first moment
    pub beta1: f32,
    /// β₂, decay of the second moment
    pub beta2: f32,
    /// Added to √v̂
    pub eps: f32,
    /// λ; the parameter shrinks by η·λ of itself
    pub weight_decay: f32,
    /// 1 − β₁ᵗ
    pub correction1: f32,
    /// 1 − β₂ᵗ
    pub correction2: f32,
    /// Multiplies the gradient first: clipping, and the mean over micro-batches
    pub gradient_scale: f32,
}

/// Gives the memory that CPU operators keep for the next step back to the system: for whoever runs
/// a pass whose shapes will not come again.
pub(crate) fn release_memory() {
    buf::release();
}

/// burn's `Backend` with the operators of this crate: these, and those that the RWKV families add.
pub trait FusedOps: RwkvOps {
    /// y = x / √(mean(x²) + eps) ∘ w. // `x, y [N, D]; w [D]`
    fn rms_norm(x: FloatTensor<Self>, w: FloatTensor<Self>, eps: f32) -> FloatTensor<Self> {
        plain::rms_norm::<Self>(x, w, eps)
    }

    /// y = x·Wᵀ. // x [N, I], w [O, I], y [N, O]
    fn project(x: FloatTensor<Self>, w: FloatTensor<Self>) -> FloatTensor<Self> {
        plain::project::<Self>(x, w)
    }

    /// y = r + x·Wᵀ. // x [N, I], w [O, I], r, y [N, O]
    fn project_add(
        x: FloatTensor<Self>,
        w: FloatTensor<Self>,
        r: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        plain::project_add::<Self>(x, w, r)
    }

    /// Turns the query and key heads of packed rows by the angles of their positions.
    /// // qkv, y [B·T, (H + 2G)·K]
    fn rotate(qkv: FloatTensor<Self>, heads: Heads, rope: &Rope) -> FloatTensor<Self> {
        plain::rotate::<Self>(qkv, heads, rope)
    }

    /// y = softmax(mask(q·kᵀ/√K))·v, head by head; the mask hides later positions and other
    /// documents. // qkv [B·T, (H + 2G)·K], y [B·T, H·K]
    fn causal_attention(
        qkv: FloatTensor<Self>,
        heads: Heads,
        documents: &Documents,
    ) -> FloatTensor<Self> {
        plain::causal_attention::<Self>(qkv, heads, documents)
    }

    /// Causal attention of the newest S of the `heads.tokens` positions of each sequence, for going on
    /// from a cache of keys and values. Where a gradient is tracked always the plain form.
    /// // q, y [B·S, H·K]; k, v [B·T, G·K]
    fn attend(
        q: FloatTensor<Self>,
        k: FloatTensor<Self>,
        v: FloatTensor<Self>,
        heads: Heads,
    ) -> FloatTensor<Self> {
        plain::attend::<Self>([q, k, v], heads)
    }

    /// y = silu(gate)∘up. // gate_up [N, 2F] as [gate | up], y [N, F]
    fn swiglu(gate_up: FloatTensor<Self>) -> FloatTensor<Self> {
        plain::swiglu::<Self>(gate_up)
    }

    /// Mean of −log softmax(logits)\[target\] over all positions, plus the z-loss.
    /// // `logits [N, V], targets [N] below V, y [1]`
    fn cross_entropy(
        logits: FloatTensor<Self>,
        targets: IntTensor<Self>,
        z_loss: ZLoss,
    ) -> FloatTensor<Self> {
        plain::cross_entropy::<Self>(logits, targets, z_loss)
    }

    /// Σ x², for the global norm of a gradient. Not differentiated. // `y [1]`
    fn square_sum(x: FloatTensor<Self>) -> FloatTensor<Self> {
        plain::square_sum::<Self>(x)
    }

    /// One AdamW update of a parameter and its moments m, v. Not differentiated.
    /// // all of the parameter's shape
    fn adamw(
        parameter: &mut FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        moments: &mut [FloatTensor<Self>; 2],
        step: AdamW,
    ) {
        plain::adamw::<Self>(parameter, gradient, moments, step);
    }
}

impl FusedOps for Flex {
    fn rms_norm(x: FloatTensor<Self>, w: FloatTensor<Self>, eps: f32) -> FloatTensor<Self> {
        run(RmsNorm { eps }, [x, w])
    }

    fn project(x: FloatTensor<Self>, w: FloatTensor<Self>) -> FloatTensor<Self> {
        run(Project, [x, w])
    }

    fn project_add(
        x: FloatTensor<Self>,
        w: FloatTensor<Self>,
        r: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        run(ProjectAdd, [x, w, r])
    }

    fn rotate(qkv: FloatTensor<Self>, heads: Heads, rope: &Rope) -> FloatTensor<Self> {
        run(Rotate { heads, rope: rope.clone() }, [qkv])
    }

    fn causal_attention(
        qkv: FloatTensor<Self>,
        heads: Heads,
        documents: &Documents,
    ) -> FloatTensor<Self> {
        run(Attention { heads, documents: documents.clone() }, [qkv])
    }

    fn attend(
        q: FloatTensor<Self>,
        k: FloatTensor<Self>,
        v: FloatTensor<Self>,
        heads: Heads,
    ) -> FloatTensor<Self> {
        flex::attend([q, k, v], heads)
    }

    fn swiglu(gate_up: FloatTensor<Self>) -> FloatTensor<Self> {
        run(SwiGlu, [gate_up])
    }

    fn cross_entropy(
        logits: FloatTensor<Self>,
        targets: IntTensor<Self>,
        z_loss: ZLoss,
    ) -> FloatTensor<Self> {
        run(CrossEntropy { targets, z_loss }, [logits])
    }

    fn square_sum(x: FloatTensor<Self>) -> FloatTensor<Self> {
        flex::square_sum(x)
    }

    fn adamw(
        parameter: &mut FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        moments: &mut [FloatTensor<Self>; 2],
        step: AdamW,
    ) {
        flex::adamw(parameter, gradient, moments, step);
    }
}

/// The plain form on the CPU, under the other checkpointing strategy: what tests hold the fused
/// form against.
impl FusedOps for Autodiff<Flex, BalancedCheckpointing> {}

impl FusedOps for Autodiff<Flex> {
    fn rms_norm(x: FloatTensor<Self>, w: FloatTensor<Self>, eps: f32) -> FloatTensor<Self> {
        apply(RmsNorm { eps }, [x, w])
    }

    fn project(x: FloatTensor<Self>, w: FloatTensor<Self>) -> FloatTensor<Self> {
        apply(Project, [x, w])
    }

    fn project_add(
        x: FloatTensor<Self>,
        w: FloatTensor<Self>,
        r: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        apply(ProjectAdd, [x, w, r])
    }

    fn rotate(qkv: FloatTensor<Self>, heads: Heads, rope: &Rope) -> FloatTensor<Self> {
        apply(Rotate { heads, rope: rope.clone() }, [qkv])
    }

    fn causal_attention(
        qkv: FloatTensor<Self>,
        heads: Heads,
        documents: &Documents,
    ) -> FloatTensor<Self> {
        apply(Attention { heads, documents: documents.clone() }, [qkv])
    }

    fn swiglu(gate_up: FloatTensor<Self>) -> FloatTensor<Self> {
        apply(SwiGlu, [gate_up])
    }

    fn cross_entropy(
        logits: FloatTensor<Self>,
        targets: IntTensor<Self>,
        z_loss: ZLoss,
    ) -> FloatTensor<Self> {
        apply(CrossEntropy { targets, z_loss }, [logits])
    }
}

/// CUDA runs the plain form.
#[cfg(feature = "cuda")]
impl FusedOps for burn_cuda::Cuda<f32, i32> {}

/// CUDA runs the plain form, and burn differentiates it.
#[cfg(feature = "cuda")]
impl FusedOps for Autodiff<burn_cuda::Cuda<f32, i32>> {}
