//! Finch, RWKV-6 (Peng et al. 2024, arXiv 2404.05892): Eagle with decays and token shifts that depend
//! on the data, through maps of low rank.
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
//! The rest is Eagle, with shifts by the weight of the past. Documents that share a row are not kept
//! apart.

use burn_backend::tensor::{Device, FloatTensor, IntTensor};

use super::rwkv::{
    BlockState, ChannelMix, Declare, Depth, LowRank, Mixing, Norm, held_per_token, held_states,
    multiplies, step,
};
use crate::config;
use crate::genesis::Spec;
use crate::ops::FusedOps;
use crate::ops::rwkv::{Pieces, Weighs};

/// One state for each block.
pub type State<B> = Vec<BlockState<B>>;

/// The sizes of a Finch.
#[derive(Clone, Debug)]
pub struct FinchConfig {
    model: config::Model,
}

/// A Finch with its weights.
#[derive(Clone, Debug)]
pub struct Finch<B: FusedOps> {
    heads: usize,
    rank: usize,
    /// [V, D]
    embedding: FloatTensor<B>,
    first_norm: Norm<B>,
    blocks: Vec<(TimeMix<B>, ChannelMix<B>)>,
    last_norm: Norm<B>,
    /// [V, D]
    head: FloatTensor<B>,
}

/// The data-dependent token shift: five mixes of each row and the one before it.
#[derive(Clone, Debug)]
pub(super) struct Mixes<B: FusedOps> {
    /// `[D]`
    mu_x: FloatTensor<B>,
    /// [5, D]
    mu: FloatTensor<B>,
    features: LowRank<B>,
}

#[derive(Clone, Debug)]
struct TimeMix<B: FusedOps> {
    norm: Norm<B>,
    mixes: Mixes<B>,
    /// `[D]`
    decay: FloatTensor<B>,
    /// `[D]`
    bonus: FloatTensor<B>,
    decay_map: LowRank<B>,
    /// Of k, v, r, g; [D, D] each
    projections: [FloatTensor<B>; 4],
    head_norm: Norm<B>,
    /// [D, D]
    output: FloatTensor<B>,
}

impl<B: FusedOps> Mixes<B> {
    pub(super) fn take(next: &mut dyn FnMut() -> FloatTensor<B>) -> Self {
        Self { mu_x: next(), mu: next(), features: LowRank::take(next) }
    }

    /// The mixes of h, in the order of the pieces. // h [N, D], before [B, D]
    pub(super) fn apply(
        &self,
        h: &FloatTensor<B>,
        before: &FloatTensor<B>,
        rank: usize,
    ) -> [FloatTensor<B>; 5] {
        let LowRank { inwards, outwards } = self.features.clone();
        let base = B::shift_mix(h.clone(), self.mu_x.clone(), before.clone(), Weighs::Past);
        let map = [B::tanh_project(base, inwards), outwards]; // [N, 5R]
        let pieces = Pieces { first: 0, rank };
        B::data_mix(h.clone(), map, self.mu.clone(), before.clone(), pieces)
    }
}

impl FinchConfig {
    /// For these sizes.
    #[must_use]
    pub fn new(model: &config::Model) -> Self {
        Self { model: model.clone() }
    }

    /// Every parameter under its name in RWKV-LM, in canonical order.
    #[must_use]
    pub fn specs(&self) -> Vec<Spec> {
        self.declare().0
    }

    /// The shapes of the tensors that [`Finch::new`] takes.
    #[must_use]
    pub fn shapes(&self) -> Vec<Vec<usize>> {
        self.declare().1
    }

    fn declare(&self) -> (Vec<Spec>, Vec<Vec<usize>>) {
        let m = &self.model;
        let mut d = Declare::new(m.width);
        d.embedding(m.vocab);
        for layer in 0..m.layers {
            let depth @ Depth { a, b, .. } = Depth::new(layer, m.layers);
            let (block, square) = (format!("blocks.{layer}"), [m.width; 2]);
            let att = format!("{block}.att");
            d.norm(&format!("{block}.ln1"), 1.0);
            d.shift(format!("{att}.time_maa_x"), d.past(b, 0.0));
            let mixes = [
                ("w", d.past(b, 0.0)),
                ("k", d.past(b, 0.0)),
                ("v", d.past(b, 0.3 * a)),
                ("r", d.past(0.5 * b, 0.0)),
                ("g", d.past(0.5 * b, 0.0)),
            ];
            d.shifts(&att, mixes);
            d.low_rank(&format!("{att}.time_maa"), 5, m.mix_rank);
            d.recurrence(&att, vec![1, 1, m.width], m.heads, depth);
            d.low_rank(&format!("{att}.time_decay"), 1, m.decay_rank);
            for (name, gain) in [("key", 0.1), ("value", 1.0), ("receptance", 1.0), ("gate", 0.1)] {
                d.orthogonal(&format!("{att}.{name}"), square, gain);
            }
            d.time_output(&att, depth);
            d.channel_mix(depth, "time_maa", d.past(b * b * b, 0.0), m.ffn);
        }
        d.head(m.vocab);
        d.done()
    }

    /// Floating-point operations that one token costs in training, forward and backward: 6 per
    /// weight of a matrix, the low-rank maps too, and 12·K·D for each block's recurrence.
    #[must_use]
    pub fn flops_per_token(&self) -> u64 {
        let m = &self.model;
        let weights: usize =
            self.specs().iter().skip(1).filter(|s| multiplies(s)).map(Spec::len).sum();
        6 * weights as u64 + 12 * (m.head_size() * m.width * m.layers) as u64
    }

    /// Numbers that a training step holds for each token.
    pub(super) fn held_per_token(&self) -> u64 {
        let m = &self.model;
        // Norm and its input, six mixes, what they become, the recurrence's output, and its norm.
        let low_rank = 5 * m.mix_rank + m.decay_rank;
        let time_mix = 15 * m.width + low_rank + held_states(m);
        (m.layers * time_mix + held_per_token(m)) as u64
    }

    /// Before the first token.
    #[must_use]
    pub fn state<B: FusedOps>(&self, sequences: usize, device: &Device<B>) -> State<B> {
        let start = || BlockState::start(&self.model, Mixing::Recurrence, sequences, device);
        (0..self.model.layers).map(|_| start()).collect()
    }
}

impl<B: FusedOps> Finch<B> {
    /// A model from its tensors, as [`FinchConfig::shapes`] lists them.
    ///
    /// # Panics
    /// When there are fewer tensors than that.
    #[must_use]
    pub fn new(config: &FinchConfig, tensors: impl IntoIterator<Item = FloatTensor<B>>) -> Self {
        let mut tensors = tensors.into_iter();
        #[expect(clippy::expect_used, reason = "the caller counted by `shapes`")]
        let next = &mut || tensors.next().expect("a tensor for every shape");
        let (embedding, first_norm) = (next(), Norm::take(next));
        let block = |_| (TimeMix::take(next), ChannelMix::take(next));
        let blocks = (0..config.model.layers).map(block).collect();
        let (last_norm, head) = (Norm::take(next), next());
        let (heads, rank) = (config.model.heads, config.model.mix_rank);
        Self { heads, rank, embedding, first_norm, blocks, last_norm, head }
    }

    /// Scores of every next token; the state moves on. // tokens [B·T], result [B·T, V]
    #[must_use]
    pub fn logits(&self, tokens: IntTensor<B>, state: &mut State<B>) -> FloatTensor<B> {
        let x = B::float_select(self.embedding.clone(), 0, tokens); // [N, D]
        let mut x = self.first_norm.apply(x);
        for ((time, channel), state) in self.blocks.iter().zip(state) {
            x = time.forward(x, self.heads, self.rank, state);
            x = channel.forward(x, Weighs::Past, &mut state.channel);
        }
        B::project(self.last_norm.apply(x), self.head.clone())
    }
}

impl<B: FusedOps> TimeMix<B> {
    fn take(next: &mut dyn FnMut() -> FloatTensor<B>) -> Self {
        let (norm, mixes) = (Norm::take(next), Mixes::take(next));
        let (decay, bonus, decay_map) = (next(), next(), LowRank::take(next));
        let projections = [next(), next(), next(), next()];
        let head_norm = Norm::take(next);
        Self { norm, mixes, decay, bonus, decay_map, projections, head_norm, output: next() }
    }

    /// x [N, D]
    fn forward(
        &self,
        x: FloatTensor<B>,
        heads: usize,
        rank: usize,
        state: &mut BlockState<B>,
    ) -> FloatTensor<B> {
        let h = self.norm.apply(x.clone());
        let before = step::<B>(&mut state.time, &h);
        let [h_w, h_k, h_v, h_r, h_g] = self.mixes.apply(&h, &before, rank);
        let [key, value, receptance, gate] = self.projections.clone();
        let rkv = [(h_r, receptance), (h_k, key), (h_v, value)].map(|(h, w)| B::project(h, w));
        let w = self.decay_map.add(h_w, self.decay.clone()); // [N, D]
        let y = state.wkv(rkv, w, self.bonus.clone());
        let y = self.head_norm.apply_by_head(y, B::project(h_g, gate), heads);
        B::project_add(y, self.output.clone(), x)
    }
}
