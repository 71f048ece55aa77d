//! Finch, RWKV-6 (Peng et al. 2024, arXiv 2404.05892): Eagle with decays and token shifts that
//! depend on the data, through maps of low rank.
//!
//! ```text
//! h   = ln1(x), δ = prev(h) − h
//! A   = tanh((h + δ∘μ_x)·W₁)                       five pieces, of w, k, v, r, g
//! h_c = h + δ∘(μ_c + A_c·W₂[c])                    c in w, k, v, r, g
//! w   = time_decay + tanh(h_w·D₁)·D₂
//! y   = WKV(h_r·Wrᵀ, h_k·Wkᵀ, h_v·Wvᵀ, w, time_faaaa)
//! x  += (norm_by_head(y)∘silu(h_g·Wgᵀ))·Woᵀ
//! ```
//!
//! The rest is Eagle, except that the weights of its shifts weigh the past. Documents that share a
//! row are not separated.

use burn_backend::tensor::FloatTensor;

use super::family::{Declared, Facts};
use super::rwkv::declare::{self, Declare, Depth};
use super::rwkv::{
    self, BlockState, LowRank, Norm, Rwkv, TimeMixing, TimeOutput, held_states, step,
};
use crate::config;
use crate::genesis::Curve;
use crate::ops::{DataMix, FusedOps, Project, ShiftMix, TanhProject, Weighs};

/// A Finch with its weights, for one pass.
pub type Finch<B> = Rwkv<B, DynamicTimeMix<B>>;

/// The data-dependent token shift: M mixes of each row and the one before it.
#[derive(Clone, Debug)]
pub(super) struct Mixes<B: FusedOps> {
    /// The mix of the input of the low-rank features. // `[D]`
    pub(super) mu_x: FloatTensor<B>,
    /// A row for each mix, to which the low-rank map adds. // [M, D]
    pub(super) mu: FloatTensor<B>,
    /// The map from h to the features of all mixes, and out of them. // ranks M·R
    pub(super) features: LowRank<B>,
}

/// The weights of time mixing in one block, in the order in which they are declared.
#[derive(Clone, Debug)]
pub struct DynamicTimeMix<B: FusedOps> {
    /// The norm of the residual stream, before the token shift.
    norm: Norm<B>,
    /// The token shift, whose weights depend on the token.
    mixes: Mixes<B>,
    /// The part of w that is the same for every token. // `[D]`
    decay: FloatTensor<B>,
    /// u, the weight of the present token beside the state. // `[D]`
    bonus: FloatTensor<B>,
    /// The part of w that depends on the token.
    decay_map: LowRank<B>,
    /// The projections of k, v, r, g. // [D, D] each
    projections: [FloatTensor<B>; 4],
    /// What leads from the recurrence back to the residual stream, gated by g.
    output: TimeOutput<B>,
}

impl<B: FusedOps> Mixes<B> {
    /// Takes the next tensors, in the order of `declare_mixes`.
    pub(super) fn take(next: &mut dyn FnMut() -> FloatTensor<B>) -> Self {
        Self { mu_x: next(), mu: next(), features: LowRank::take(next) }
    }

    /// The mixes of h, in the order of the pieces. // h [N, D], before [B, D]
    pub(super) fn apply<const M: usize>(
        &self,
        h: &FloatTensor<B>,
        before: &FloatTensor<B>,
        rank: usize,
    ) -> [FloatTensor<B>; M] {
        let LowRank { inwards, outwards } = self.features.clone();
        let shift = ShiftMix { weighs: Weighs::Past };
        let base = B::run(shift, [h.clone(), self.mu_x.clone(), before.clone()]);
        let features = B::run(TanhProject, [base, inwards]); // [N, M·R]
        let mix = DataMix { first: 0, rank };
        B::run_multi(mix, [h.clone(), features, outwards, self.mu.clone(), before.clone()])
    }
}

/// What [`Arch`](super::Arch) knows of the family. Its state does not grow with the text, so it reads
/// texts of any length.
pub(super) const FACTS: Facts = Facts {
    declare,
    flops_per_token: rwkv::flops_of_all,
    held_per_token,
    reach: |_| None,
    bench: |sizes| config::Model { mix_rank: 32, decay_rank: 64, ..sizes },
    model_type: "rwkv-x060",
    words: &[("context", "context_length"), ("mix_rank", "mix_rank"), ("decay_rank", "decay_rank")],
    describe: rwkv::describe,
    read: rwkv::read,
};

/// The parameters of a Finch, under their names in RWKV-LM.
fn declare(m: &config::Model) -> Declared {
    let time_mix = |d: &mut Declare, att: &str, depth @ Depth { a, b, .. }: Depth| {
        let mixes = [
            ("w", d.past(b, 0.0)),
            ("k", d.past(b, 0.0)),
            ("v", d.past(b, 0.3 * a)),
            ("r", d.past(0.5 * b, 0.0)),
            ("g", d.past(0.5 * b, 0.0)),
        ];
        declare_mixes(d, m, att, b, mixes);
        d.recurrence(att, vec![1, 1, m.width], m.heads, depth);
        d.low_rank(&format!("{att}.time_decay"), 1, m.decay_rank);
        for (name, gain) in [("key", 0.1), ("value", 1.0), ("receptance", 1.0), ("gate", 0.1)] {
            d.orthogonal(&format!("{att}.{name}"), [m.width; 2], gain);
        }
    };
    declare::model(m, time_mix, "time_maa", |d, b| d.past(b * b * b, 0.0), |_| ())
}

/// Declares the data-dependent token shift, in the order of [`Mixes`].
pub(super) fn declare_mixes(
    d: &mut Declare,
    m: &config::Model,
    att: &str,
    b: f64,
    mixes: [(&str, Curve); 5],
) {
    d.shift(format!("{att}.time_maa_x"), d.past(b, 0.0));
    d.shifts(att, mixes);
    d.low_rank(&format!("{att}.time_maa"), 5, m.mix_rank);
}

/// Numbers in memory for each token of a training step. Time mixing needs the norm and its input,
/// six mixes, their projections, the recurrence's output, and its norm.
fn held_per_token(m: &config::Model) -> usize {
    let low_rank = 5 * m.mix_rank + m.decay_rank;
    m.layers * (15 * m.width + low_rank + held_states(m)) + rwkv::held_per_token(m)
}

impl<B: FusedOps> TimeMixing<B> for DynamicTimeMix<B> {
    const WEIGHS: Weighs = Weighs::Past;

    fn take(next: &mut dyn FnMut() -> FloatTensor<B>) -> Self {
        let (norm, mixes) = (Norm::take(next), Mixes::take(next));
        let (decay, bonus, decay_map) = (next(), next(), LowRank::take(next));
        let projections = [next(), next(), next(), next()];
        let output = TimeOutput::take(next);
        Self { norm, mixes, decay, bonus, decay_map, projections, output }
    }

    fn forward(
        &self,
        x: FloatTensor<B>,
        model: &config::Model,
        state: &mut BlockState<B>,
    ) -> FloatTensor<B> {
        let h = self.norm.apply(x.clone());
        let before = step::<B>(&mut state.time, &h);
        let [h_w, h_k, h_v, h_r, h_g] = self.mixes.apply(&h, &before, model.mix_rank);
        let [key, value, receptance, gate] = self.projections.clone();
        let rkv =
            [(h_r, receptance), (h_k, key), (h_v, value)].map(|(h, w)| B::run(Project, [h, w]));
        let w = self.decay_map.add(h_w, self.decay.clone()); // [N, D]
        let y = state.wkv(rkv, w, self.bonus.clone());
        let gate = B::run(Project, [h_g, gate]);
        self.output.write(self.output.norm.apply_by_head(y, gate, model.heads), x)
    }
}
