//! The operators that the RWKV families and GoldFinch add: recurrence, token shift, low-rank maps,
//! norms with a bias, gates.
//!
//! They have the shape of the other operators (a plain form as default, kernels on the CPU) and are
//! a trait of their own only so that either list can be read at once.
//!
//! | file | holds |
//! |---|---|
//! | `rwkv/plain.rs` | the plain form; the recurrence in chunks |
//! | `rwkv/flex.rs` | the operators on CPU tensors |
//! | `rwkv/wkv.rs` | the recurrence, on slices |
//! | `rwkv/mix.rs` | Finch's interpolation, on slices |
//! | `rwkv/rows.rs` | norms and token shift, on slices |
//! | `rwkv/gates.rs` | gates and other elementwise maps, on slices |
//!
//! What came before the first token is an input like any other: zeros in training, the last state
//! in generation. So the same operators read a whole text and go on from it token by token.

mod flex;
mod gates;
mod mix;
mod plain;
mod rows;
#[cfg(test)]
mod tests;
mod wkv;

use burn_autodiff::Autodiff;
use burn_autodiff::checkpoint::strategy::BalancedCheckpointing;
use burn_backend::Backend;
use burn_backend::tensor::FloatTensor;
use burn_flex::Flex;

use self::flex::{
    DataMix, DecayedKeys, Expand, GatedAdd, LayerNorm, NormGate, Pack, ReluSquare, ShiftMix,
    TanhProject, Wkv,
};
use super::flex::run;
use super::node::{apply, apply_both, apply_split};

/// Tokens between two states that the recurrence keeps for its backward pass: with heads of 64
/// channels they weigh as much as two activations, and the states of all tokens between two of them
/// take 512 KiB of cache.
pub const STATE_TOKENS: usize = 32;

/// What the weight of a token shift weighs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weighs {
    /// The present token: h = x∘μ + prev(x)∘(1 − μ) (Eagle).
    Present,
    /// The token before: h = x + (prev(x) − x)∘μ (Finch).
    Past,
}

/// Which of the low-rank features belong to the pieces of an interpolation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pieces {
    /// The first of them, counted from 0.
    pub first: usize,
    /// Features of each, R.
    pub rank: usize,
}

/// Inputs of one pass of the recurrence. Rows are positions, H heads of K channels side by side.
#[derive(Clone, Debug)]
pub struct WkvInputs<B: Backend> {
    /// Receptance [B·T, D]
    pub r: FloatTensor<B>,
    /// Keys [B·T, D]
    pub k: FloatTensor<B>,
    /// Values [B·T, D]
    pub v: FloatTensor<B>,
    /// Raw decay: a state keeps exp(−exp w) of itself per token. \[D\] of every token the same, or
    /// [B·T, D]
    pub w: FloatTensor<B>,
    /// Bonus of the present token \[D\]
    pub u: FloatTensor<B>,
    /// Before the first token [B, H, K, K], key × value
    pub state: FloatTensor<B>,
}

/// burn's `Backend` with the operators of the RWKV families.
pub trait RwkvOps: Backend {
    /// y = (x − mean x)/√(var x + eps) ∘ w + b, over each row. // `x, y [N, D]; w, b [D]`
    fn norm(
        x: FloatTensor<Self>,
        w: FloatTensor<Self>,
        b: FloatTensor<Self>,
        eps: f32,
    ) -> FloatTensor<Self> {
        plain::norm::<Self>(x, w, b, eps)
    }

    /// y = norm(x)∘silu(g), the norm over each of `heads` groups of channels, with one affine map
    /// for all. // `x, g, y [N, D]; w, b [D]`
    fn norm_gate(
        [x, g]: [FloatTensor<Self>; 2],
        w: FloatTensor<Self>,
        b: FloatTensor<Self>,
        heads: usize,
        eps: f32,
    ) -> FloatTensor<Self> {
        plain::norm_gate::<Self>([x, g], w, b, heads, eps)
    }

    /// A mean of each row and the one before it in its sequence, by weights per channel; `before`
    /// stands before the first. // `x, y [B·T, D]; mu [D]; before [B, D]`
    fn shift_mix(
        x: FloatTensor<Self>,
        mu: FloatTensor<Self>,
        before: FloatTensor<Self>,
        weighs: Weighs,
    ) -> FloatTensor<Self> {
        plain::shift_mix::<Self>(x, mu, before, weighs)
    }

    /// x + (prev(x) − x)∘(μ_c + a_c·w_c) for each of M neighbours among A pieces, which have R columns of a,
    /// R rows of w and a row of μ: the data-dependent interpolation of Finch.
    /// // x, y [B·T, D]; a [B·T, A·R]; w [A·R, D]; mu [M, D]; before [B, D]
    fn data_mix<const M: usize>(
        x: FloatTensor<Self>,
        [a, w]: [FloatTensor<Self>; 2],
        mu: FloatTensor<Self>,
        before: FloatTensor<Self>,
        pieces: Pieces,
    ) -> [FloatTensor<Self>; M] {
        plain::data_mix::<Self, M>(x, [a, w], mu, before, pieces)
    }

    /// y = tanh(x·W), the way into a low rank. // x [N, I], w [I, O], y [N, O]
    fn tanh_project(x: FloatTensor<Self>, w: FloatTensor<Self>) -> FloatTensor<Self> {
        plain::tanh_project::<Self>(x, w)
    }

    /// y = base + a·W, the way out of a low rank; a base of one row is added to every row.
    /// // `a [N, I], w [I, O], base [O] or [N, O], y [N, O]`
    fn expand(
        a: FloatTensor<Self>,
        w: FloatTensor<Self>,
        base: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        plain::expand::<Self>(a, w, base)
    }

    /// The WKV recurrence, head by head (Peng et al. 2024, equations of Eagle and Finch):
    ///
    /// ```text
    /// y_t = r_t·(S_{t−1} + diag(u)·k_tᵀv_t),   S_t = diag(exp(−exp w_t))·S_{t−1} + k_tᵀv_t
    /// ```
    ///
    /// Returns y [B·T, D] and the last state [B, H, K, K], through which no gradient flows.
    fn wkv(inputs: WkvInputs<Self>) -> [FloatTensor<Self>; 2] {
        plain::wkv::<Self>(inputs)
    }

    /// y = k∘(1 − exp(−exp w)): keys that enter a state as strongly as it forgets (GoldFinch).
    /// // k, w, y [N, D]
    fn decayed_keys(k: FloatTensor<Self>, w: FloatTensor<Self>) -> FloatTensor<Self> {
        plain::decayed_keys::<Self>(k, w)
    }

    /// y = max(x, 0)². // any shape
    fn relu_square(x: FloatTensor<Self>) -> FloatTensor<Self> {
        plain::relu_square::<Self>(x)
    }

    /// y = residual + sigmoid(r)∘x. // all [N, D]
    fn gated_add(
        r: FloatTensor<Self>,
        x: FloatTensor<Self>,
        residual: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        plain::gated_add::<Self>(r, x, residual)
    }

    /// The rows of three matrices side by side, as attention reads them. // [N, D] each; y [N, 3D]
    fn pack(parts: [FloatTensor<Self>; 3]) -> FloatTensor<Self> {
        plain::pack::<Self>(parts)
    }
}

/// The operators by hand: `$run` makes one tensor, `$both` two, `$split` any number.
macro_rules! by_hand {
    ($backend:ty, $run:path, $both:path, $split:path) => {
        impl RwkvOps for $backend {
            fn norm(
                x: FloatTensor<Self>,
                w: FloatTensor<Self>,
                b: FloatTensor<Self>,
                eps: f32,
            ) -> FloatTensor<Self> {
                $run(LayerNorm { eps }, [x, w, b])
            }

            fn norm_gate(
                [x, g]: [FloatTensor<Self>; 2],
                w: FloatTensor<Self>,
                b: FloatTensor<Self>,
                heads: usize,
                eps: f32,
            ) -> FloatTensor<Self> {
                $run(NormGate { heads, eps }, [x, g, w, b])
            }

            fn shift_mix(
                x: FloatTensor<Self>,
                mu: FloatTensor<Self>,
                before: FloatTensor<Self>,
                weighs: Weighs,
            ) -> FloatTensor<Self> {
                $run(ShiftMix { weighs }, [x, mu, before])
            }

            fn data_mix<const M: usize>(
                x: FloatTensor<Self>,
                [a, w]: [FloatTensor<Self>; 2],
                mu: FloatTensor<Self>,
                before: FloatTensor<Self>,
                pieces: Pieces,
            ) -> [FloatTensor<Self>; M] {
                $split(DataMix::<M> { pieces }, [x, a, w, mu, before])
            }

            fn tanh_project(x: FloatTensor<Self>, w: FloatTensor<Self>) -> FloatTensor<Self> {
                $run(TanhProject, [x, w])
            }

            fn expand(
                a: FloatTensor<Self>,
                w: FloatTensor<Self>,
                base: FloatTensor<Self>,
            ) -> FloatTensor<Self> {
                $run(Expand, [a, w, base])
            }

            fn wkv(inputs: WkvInputs<Self>) -> [FloatTensor<Self>; 2] {
                let WkvInputs { r, k, v, w, u, state } = inputs;
                $both(Wkv, [r, k, v, w, u, state])
            }

            fn decayed_keys(k: FloatTensor<Self>, w: FloatTensor<Self>) -> FloatTensor<Self> {
                $run(DecayedKeys, [k, w])
            }

            fn relu_square(x: FloatTensor<Self>) -> FloatTensor<Self> {
                $run(ReluSquare, [x])
            }

            fn gated_add(
                r: FloatTensor<Self>,
                x: FloatTensor<Self>,
                residual: FloatTensor<Self>,
            ) -> FloatTensor<Self> {
                $run(GatedAdd, [r, x, residual])
            }

            fn pack(parts: [FloatTensor<Self>; 3]) -> FloatTensor<Self> {
                $run(Pack, parts)
            }
        }
    };
}

by_hand!(Flex, run, flex::run_both, flex::run_split);
by_hand!(Autodiff<Flex>, apply, apply_both, apply_split);

/// The plain form on the CPU: what tests hold the fused form against.
impl RwkvOps for Autodiff<Flex, BalancedCheckpointing> {}

/// CUDA runs the plain form.
#[cfg(feature = "cuda")]
impl RwkvOps for burn_cuda::Cuda<f32, i32> {}

/// CUDA runs the plain form, and burn differentiates it.
#[cfg(feature = "cuda")]
impl RwkvOps for Autodiff<burn_cuda::Cuda<f32, i32>> {}
