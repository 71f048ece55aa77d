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
//! What a token knows of the past is in the state, whose size does not depend on how long the past
//! is: [`State`] goes in before a text and comes out after it. Documents that share a row are not
//! kept apart.

use burn_backend::tensor::{Device, FloatTensor, IntTensor};

use super::rwkv::{
    BlockState, ChannelMix, Declare, Depth, Mixing, Norm, held_per_token, held_states, step,
};
use crate::config;
use crate::genesis::Spec;
use crate::ops::FusedOps;
use crate::ops::rwkv::Weighs;

/// One state for each block.
pub type State<B> = Vec<BlockState<B>>;

/// The sizes of an Eagle.
#[derive(Clone, Debug)]
pub struct EagleConfig {
    model: config::Model,
}

/// An Eagle with its weights.
#[derive(Clone, Debug)]
pub struct Eagle<B: FusedOps> {
    heads: usize,
    /// [V, D]
    embedding: FloatTensor<B>,
    first_norm: Norm<B>,
    blocks: Vec<(TimeMix<B>, ChannelMix<B>)>,
    last_norm: Norm<B>,
    /// [V, D]
    head: FloatTensor<B>,
}

#[derive(Clone, Debug)]
struct TimeMix<B: FusedOps> {
    norm: Norm<B>,
    /// Of r, k, v, g; `[D]` each
    mu: [FloatTensor<B>; 4],
    /// `[D]`
    decay: FloatTensor<B>,
    /// `[D]`
    bonus: FloatTensor<B>,
    /// Of r, k, v, g; [D, D] each
    projections: [FloatTensor<B>; 4],
    head_norm: Norm<B>,
    /// [D, D]
    output: FloatTensor<B>,
}

impl EagleConfig {
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

    /// The shapes of the tensors that [`Eagle::new`] takes.
    #[must_use]
    pub fn shapes(&self) -> Vec<Vec<usize>> {
        self.declare().1
    }

    fn declare(&self) -> (Vec<Spec>, Vec<Vec<usize>>) {
        let m = &self.model;
        let mut d = Declare::new(m.width);
        d.embedding(m.vocab);
        for layer in 0..m.layers {
            let depth = Depth::new(layer, m.layers);
            let (block, square) = (format!("blocks.{layer}"), [m.width; 2]);
            let att = format!("{block}.att");
            d.norm(&format!("{block}.ln1"), 1.0);
            for (name, power, more) in
                [("r", 0.5, 0.0), ("k", 1.0, 0.0), ("v", 1.0, 0.3 * depth.a), ("g", 0.5, 0.0)]
            {
                d.shift(format!("{att}.time_mix_{name}"), d.present(power * depth.b, more));
            }
            d.recurrence(&att, vec![m.heads, m.head_size()], m.heads, depth);
            for (name, gain) in [("receptance", 1.0), ("key", 0.1), ("value", 1.0), ("gate", 0.1)] {
                d.orthogonal(&format!("{att}.{name}"), square, gain);
            }
            d.time_output(&att, depth);
            d.channel_mix(depth, "time_mix", d.present(depth.b, 0.0), m.ffn);
        }
        d.head(m.vocab);
        d.done()
    }

    /// Floating-point operations that one token costs in training, forward and backward: 6 per
    /// weight of a matrix, and 12·K·D for each block's recurrence.
    #[must_use]
    pub fn flops_per_token(&self) -> u64 {
        let m = &self.model;
        let matrices = self.specs().into_iter().skip(1).filter(|spec| spec.group.decays);
        let weights: usize = matrices.map(|spec| spec.len()).sum();
        6 * weights as u64 + 12 * (m.head_size() * m.width * m.layers) as u64
    }

    /// Numbers that a training step holds for each token.
    pub(super) fn held_per_token(&self) -> u64 {
        let m = &self.model;
        // Norm and its input, four mixes and what they become, the recurrence's output, and its norm.
        let time_mix = 12 * m.width + held_states(m);
        (m.layers * time_mix + held_per_token(m)) as u64
    }

    /// Before the first token.
    #[must_use]
    pub fn state<B: FusedOps>(&self, sequences: usize, device: &Device<B>) -> State<B> {
        let start = || BlockState::start(&self.model, Mixing::Recurrence, sequences, device);
        (0..self.model.layers).map(|_| start()).collect()
    }
}

impl<B: FusedOps> Eagle<B> {
    /// A model from its tensors, as [`EagleConfig::shapes`] lists them.
    ///
    /// # Panics
    /// When there are fewer tensors than that.
    #[must_use]
    pub fn new(config: &EagleConfig, tensors: impl IntoIterator<Item = FloatTensor<B>>) -> Self {
        let mut tensors = tensors.into_iter();
        #[expect(clippy::expect_used, reason = "the caller counted by `shapes`")]
        let next = &mut || tensors.next().expect("a tensor for every shape");
        let (embedding, first_norm) = (next(), Norm::take(next));
        let block = |_| (TimeMix::take(next), ChannelMix::take(next));
        let blocks = (0..config.model.layers).map(block).collect();
        let (last_norm, head) = (Norm::take(next), next());
        Self { heads: config.model.heads, embedding, first_norm, blocks, last_norm, head }
    }

    /// Scores of every next token; the state moves on. // tokens [B·T], result [B·T, V]
    #[must_use]
    pub fn logits(&self, tokens: IntTensor<B>, state: &mut State<B>) -> FloatTensor<B> {
        let x = B::float_select(self.embedding.clone(), 0, tokens); // [N, D]
        let mut x = self.first_norm.apply(x);
        for ((time, channel), state) in self.blocks.iter().zip(state) {
            x = time.forward(x, self.heads, state);
            x = channel.forward(x, Weighs::Present, &mut state.channel);
        }
        B::project(self.last_norm.apply(x), self.head.clone())
    }
}

impl<B: FusedOps> TimeMix<B> {
    fn take(next: &mut dyn FnMut() -> FloatTensor<B>) -> Self {
        let norm = Norm::take(next);
        let mu = [next(), next(), next(), next()];
        let (decay, bonus) = (next(), next());
        let projections = [next(), next(), next(), next()];
        let head_norm = Norm::take(next);
        Self { norm, mu, decay, bonus, projections, head_norm, output: next() }
    }

    /// x [N, D]
    fn forward(
        &self,
        x: FloatTensor<B>,
        heads: usize,
        state: &mut BlockState<B>,
    ) -> FloatTensor<B> {
        let h = self.norm.apply(x.clone());
        let before = step::<B>(&mut state.time, &h);
        let [r, k, v, g] = std::array::from_fn(|c| {
            let mixed =
                B::shift_mix(h.clone(), self.mu[c].clone(), before.clone(), Weighs::Present);
            B::project(mixed, self.projections[c].clone())
        });
        let y = state.wkv([r, k, v], self.decay.clone(), self.bonus.clone());
        let y = self.head_norm.apply_by_head(y, g, heads);
        B::project_add(y, self.output.clone(), x)
    }
}
