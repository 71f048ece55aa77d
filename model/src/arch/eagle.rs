//! Eagle, RWKV-5 (Peng et al. 2024, arXiv 2404.05892): a recurrence with matrix-valued states whose
//! channels each decay at a rate of their own.
//!
//! ```text
//! x  = ln0(emb[tokens])
//! h  = ln1(x), h_c = h∘μ_c + prev(h)∘(1 − μ_c)            c in r, k, v, g; for each block
//! y  = WKV(h_r·Wrᵀ, h_k·Wkᵀ, h_v·Wvᵀ, time_decay, time_faaaa)
//! x += (norm_by_head(y)∘silu(h_g·Wgᵀ))·Woᵀ
//! x += sigmoid(h'_r·W'rᵀ)∘(max(h'_k·W'kᵀ, 0)²·W'vᵀ)       h' = ln2(x), shifted alike
//! logits = ln_out(x)·Wheadᵀ
//! ```
//!
//! A token sees the past through the state, whose size does not depend on the length of the past.
//! Documents that share a row are not separated.

use burn_backend::tensor::FloatTensor;

use super::family::{Declared, Facts};
use super::rwkv::declare::{self, Declare, Depth};
use super::rwkv::{self, BlockState, Norm, Rwkv, TimeMixing, TimeOutput, held_states, step};
use crate::config;
use crate::ops::{FusedOps, Project, ShiftMix, Weighs};

/// An Eagle with its weights, for one pass.
pub type Eagle<B> = Rwkv<B, TimeMix<B>>;

/// The weights of time mixing in one block, in the order in which they are declared.
#[derive(Clone, Debug)]
pub struct TimeMix<B: FusedOps> {
    /// The norm of the residual stream, before the token shift.
    norm: Norm<B>,
    /// The mixes of r, k, v, g: the weight of the present in each channel. // `[D]` each
    mu: [FloatTensor<B>; 4],
    /// w, from which each channel's decay exp(−exp w) follows. // `[D]`
    decay: FloatTensor<B>,
    /// u, the weight of the present token beside the state. // `[D]`
    bonus: FloatTensor<B>,
    /// The projections of r, k, v, g. // [D, D] each
    projections: [FloatTensor<B>; 4],
    /// What leads from the recurrence back to the residual stream, gated by g.
    output: TimeOutput<B>,
}

/// What [`Arch`](super::Arch) knows of the family. Its state does not grow with the text, so it reads
/// texts of any length.
pub(super) const FACTS: Facts = Facts {
    declare,
    flops_per_token: rwkv::flops_of_all,
    held_per_token,
    reach: |_| None,
    bench: |sizes| sizes,
    model_type: "rwkv-x052",
    words: &[("context", "context_length")],
    describe: rwkv::describe,
    read: rwkv::read,
};

/// The parameters of an Eagle, under their names in RWKV-LM. Mixes start as powers of the channel's
/// share of the width, see `rwkv.rs`.
fn declare(m: &config::Model) -> Declared {
    let time_mix = |d: &mut Declare, att: &str, depth: Depth| {
        for (name, power, more) in
            [("r", 0.5, 0.0), ("k", 1.0, 0.0), ("v", 1.0, 0.3 * depth.a), ("g", 0.5, 0.0)]
        {
            d.shift(format!("{att}.time_mix_{name}"), d.present(power * depth.b, more));
        }
        d.recurrence(att, vec![m.heads, m.head_size()], m.heads, depth);
        for (name, gain) in [("receptance", 1.0), ("key", 0.1), ("value", 1.0), ("gate", 0.1)] {
            d.orthogonal(&format!("{att}.{name}"), [m.width; 2], gain);
        }
    };
    declare::model(m, time_mix, "time_mix", |d, b| d.present(b, 0.0), |_| ())
}

/// Numbers in memory for each token of a training step. Time mixing needs the norm and its input,
/// four mixes and their projections, the recurrence's output, and its norm.
fn held_per_token(m: &config::Model) -> usize {
    m.layers * (12 * m.width + held_states(m)) + rwkv::held_per_token(m)
}

impl<B: FusedOps> TimeMixing<B> for TimeMix<B> {
    const WEIGHS: Weighs = Weighs::Present;

    fn take(next: &mut dyn FnMut() -> FloatTensor<B>) -> Self {
        let norm = Norm::take(next);
        let mu = [next(), next(), next(), next()];
        let (decay, bonus) = (next(), next());
        let projections = [next(), next(), next(), next()];
        Self { norm, mu, decay, bonus, projections, output: TimeOutput::take(next) }
    }

    fn forward(
        &self,
        x: FloatTensor<B>,
        model: &config::Model,
        state: &mut BlockState<B>,
    ) -> FloatTensor<B> {
        let h = self.norm.apply(x.clone());
        let before = step::<B>(&mut state.time, &h);
        let [r, k, v, g] = std::array::from_fn(|c| {
            let shift = ShiftMix { weighs: Self::WEIGHS };
            let mixed = B::run(shift, [h.clone(), self.mu[c].clone(), before.clone()]);
            B::run(Project, [mixed, self.projections[c].clone()])
        });
        let y = state.wkv([r, k, v], self.decay.clone(), self.bonus.clone());
        self.output.write(self.output.norm.apply_by_head(y, g, model.heads), x)
    }
}
