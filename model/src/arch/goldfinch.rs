//! GoldFinch (Goldstein et al. 2024, arXiv 2407.12077): Finch blocks below, attention blocks above,
//! and between the two a cache of a few numbers per token that all attention blocks share.
//!
//! ```text
//! x0 = ln0(emb[tokens])
//! Finch-C2 blocks, mixes r, k, v, w, v2 of h = ln1(x) as in Finch:
//!   k  = (h_k·Wkᵀ)∘(1 − exp(−exp w)),  v2 = h_v2·Wvᵀ + tanh(h_v2·V₁)·V₂
//!   x += ln_x(WKV(h_r·Wrᵀ, k, h_v·Wvᵀ, w, 0) + v2)·Woᵀ
//! c  = x·Waᵀ,  K = rms([x0 | c]·Wbᵀ),  E = rms(x0)     only c and the token are kept
//! GOLD blocks:
//!   q  = ln_q(mix(h)·Wqᵀ),  k = ln_k(low_rank(mix(K))),  v = ln_v(low_rank(mix(E)))
//!   x += ln_x(attention(q, k, v))·Woᵀ
//! ```
//!
//! There are no positions. Channel mixing is Finch's. The bonus `time_faaaa` is a parameter of the
//! reference that is not used; its gradient is zero. Documents that share a row are not separated.
//!
//! A prompt passes through the embedding and the Finch blocks only, so every token of it takes the
//! same time. A GOLD block looks at no x but that of its own token and, through two token shifts, of
//! the ones before. So with L_g GOLD blocks the scores of a token need the x of that token and of
//! the 2·L_g before it, and these are all that the GOLD blocks read. Keys and values depend only on
//! the tokens and c: they are expanded from the cache, block by block.

mod cache;
mod gold;
#[cfg(test)]
mod tests;

use burn_backend::TensorMetadata;
use burn_backend::tensor::{Device, FloatTensor, IntTensor};

use super::family::{Arch, Declared, Facts, Pass, Rows, taker};
use super::finch::{Mixes, declare_mixes};
use super::past::{Keep, Scored, last_rows};
use super::rwkv::declare::{self, Declare, Depth};
use super::rwkv::{
    self, BlockState, ChannelMix, LowRank, Norm, TimeOutput, held_states, step, zeros,
};
use crate::config;
use crate::ops::{DecayedKeys, FusedOps, Project, RmsNorm, Weighs};
pub use cache::Cache;
use cache::CacheRows;
use gold::{Gold, Shared};

/// What a GoldFinch keeps of a text.
#[derive(Clone, Debug)]
pub struct State<B: FusedOps> {
    /// The state of every block; attention blocks have shifts only, behind the last token that they
    /// have read.
    pub blocks: Vec<BlockState<B>>,
    /// What is kept of each token, for all attention blocks.
    pub cache: Cache<B>,
    /// x of the last tokens, if the attention blocks have not read them: as many as the scores of
    /// the next token need. // [B, n, D], n ≤ 2·L_g
    unread: Option<FloatTensor<B>>,
}

/// A GoldFinch with its weights, for one pass.
#[derive(Clone, Debug)]
pub struct GoldFinch<B: FusedOps> {
    /// The sizes and settings, as the manifest has them.
    model: config::Model,
    /// A row for each token. // [V, D]
    embedding: FloatTensor<B>,
    /// The norm of the embedding, which makes x0.
    first_norm: Norm<B>,
    /// Finch-C2 blocks, from the lowest.
    below: Vec<(Recur<B>, ChannelMix<B>)>,
    /// GOLD blocks, from the lowest; together with those below they are L.
    above: Vec<(Gold<B>, ChannelMix<B>)>,
    /// Wa, which makes c of x. // [C, D]
    compress: FloatTensor<B>,
    /// Wb, which makes K of x0 and c. // [D, D + C]
    decompress: FloatTensor<B>,
    /// The norm of the last GOLD block's output, before the head.
    last_norm: Norm<B>,
    /// A row of scores for each token. // [V, D]
    head: FloatTensor<B>,
}

/// Time mixing of a Finch-C2 block, in the order in which its tensors are declared.
#[derive(Clone, Debug)]
struct Recur<B: FusedOps> {
    /// The norm of the residual stream, before the token shift.
    norm: Norm<B>,
    /// The token shift of r, k, v, w and v₂, whose weights depend on the token.
    mixes: Mixes<B>,
    /// The part of w that is the same for every token. // `[D]`
    decay: FloatTensor<B>,
    /// A parameter of the reference without an effect. // `[D]`
    unused_bonus: FloatTensor<B>,
    /// The part of w that depends on the token.
    decay_map: LowRank<B>,
    /// The part of v₂ that is added to Wv·h_v2.
    second_value: LowRank<B>,
    /// The projections of r, k, v. // [D, D] each
    projections: [FloatTensor<B>; 3],
    /// What leads from the recurrence back to the residual stream; it has no gate.
    output: TimeOutput<B>,
}

/// What [`Arch`] knows of the family. Its cache has no last position, so it reads texts of any
/// length; the time of a token grows with them.
pub(super) const FACTS: Facts = Facts {
    declare,
    flops_per_token,
    held_per_token,
    reach: |_| None,
    bench: |sizes| config::Model {
        mix_rank: 32,
        decay_rank: 64,
        gold_layers: 2,
        value_rank: 64,
        compression: 16,
        ..sizes
    },
    model_type: "goldfinch",
    words: &[
        ("context", "context_length"),
        ("mix_rank", "mix_rank"),
        ("decay_rank", "decay_rank"),
        ("gold_layers", "gold_layers"),
        ("value_rank", "value_rank"),
        ("compression", "compression"),
    ],
    describe: rwkv::describe,
    read: rwkv::read,
};

/// The parameters of a GoldFinch, under their names in the reference: Finch-C2 blocks, GOLD blocks,
/// the two maps of the cache, and the ends.
fn declare(m: &config::Model) -> Declared {
    let time_mix = |d: &mut Declare, att: &str, depth: Depth| {
        if depth.layer < m.layers - m.gold_layers {
            declare_recur(m, d, att, depth);
        } else {
            declare_attend(m, d, att, depth);
        }
    };
    let cache = |d: &mut Declare| {
        let compressed = m.width / m.compression;
        d.orthogonal("w_kv_cache_a", [compressed, m.width], 1.0);
        d.orthogonal("w_kv_cache_b", [m.width, m.width + compressed], 1.0);
    };
    declare::model(m, time_mix, "time_maa", |d, b| d.past(b, 0.0), cache)
}

/// Time mixing of a Finch-C2 block, in the order of [`Recur`].
fn declare_recur(m: &config::Model, d: &mut Declare, att: &str, depth: Depth) {
    let Depth { a, b, .. } = depth;
    let mixes = [
        ("r", d.past(0.5 * b, 0.0)),
        ("k", d.past(b, 0.0)),
        ("v", d.past(b, 0.3 * a)),
        ("w", d.past(b, 0.0)),
        ("v2", d.past(b, 0.3 * a)),
    ];
    declare_mixes(d, m, att, b, mixes);
    d.recurrence(att, vec![1, 1, m.width], m.heads, depth);
    d.low_rank(&format!("{att}.time_decay"), 1, m.decay_rank);
    d.low_rank(&format!("{att}.time_value2"), 1, m.decay_rank);
    for (name, gain) in [("receptance", 1.0), ("key", 0.1), ("value", 1.0)] {
        d.orthogonal(&format!("{att}.{name}"), [m.width; 2], gain);
    }
}

/// Time mixing of a GOLD block, in the order of [`Gold`].
fn declare_attend(m: &config::Model, d: &mut Declare, att: &str, Depth { a, b, .. }: Depth) {
    d.shift(format!("{att}.time_maa_x"), d.past(b, 0.0));
    d.shifts(att, [("q", d.past(0.5 * b, 0.0))]);
    d.shifts(att, [("k", d.past(b, 0.0))]);
    d.shifts(att, [("v", d.past(b, 0.3 * a))]);
    d.shift(format!("{att}.time_maa_v_cache"), d.past(b, 0.0));
    d.low_rank(&format!("{att}.time_maa_q"), 1, m.mix_rank);
    d.low_rank(&format!("{att}.time_maa_kv"), 2, m.mix_rank);
    d.low_rank(&format!("{att}.time_key"), 1, m.value_rank);
    d.low_rank(&format!("{att}.time_value"), 1, m.value_rank);
    d.orthogonal(&format!("{att}.query"), [m.width; 2], 1.0);
    for name in ["ln_q", "ln_k", "ln_v"] {
        d.norm(&format!("{att}.{name}"), 1.0);
    }
}

/// Floating-point operations that one token costs in training: as in the other families, but the
/// values of a Finch-C2 block count twice, and each attention adds 12·D·T, without a discount for
/// the causal half.
fn flops_per_token(m: &config::Model, declared: &Declared) -> u64 {
    let below = m.layers - m.gold_layers;
    let twice = 6 * below * m.width * m.width;
    let attention = 12 * m.gold_layers * m.width * m.context;
    rwkv::flops_per_token(m, declared, below) + (twice + attention) as u64
}

/// Numbers in memory for each token of a training step. A block below needs those of a Finch block,
/// with second values instead of the gate; an attention block needs those of its two sides.
fn held_per_token(m: &config::Model) -> usize {
    let below = 16 * m.width + 5 * m.mix_rank + 2 * m.decay_rank + held_states(m);
    let above = 14 * m.width + 3 * m.mix_rank + 2 * m.value_rank + m.heads;
    let cache = 10 * m.width + 2 * m.width / m.compression;
    let below = (m.layers - m.gold_layers) * below;
    below + m.gold_layers * above + cache + rwkv::held_per_token(m)
}

impl<B: FusedOps> State<B> {
    /// B, the number of texts that are read.
    fn sequences(&self) -> usize {
        self.blocks[0].time.shape().dims::<2>()[0]
    }

    /// The x that the attention blocks must read so that the last `count` tokens get scores, after
    /// the tokens of x; if none does, keeps what a later token needs. `reach` is 2·L_g.
    /// // x [B·S, D], result [B·R, D]
    fn due(&mut self, x: FloatTensor<B>, count: usize, reach: usize) -> Option<FloatTensor<B>> {
        let (sequences, [rows, width]) = (self.sequences(), x.shape().dims());
        let x = B::float_reshape(x, [sequences, rows / sequences, width].into());
        let x = match self.unread.take() {
            Some(unread) => B::float_cat(vec![unread, x], 1),
            None => x,
        };
        let length = x.shape().dims::<3>()[1];
        let kept = length.min(reach + count);
        let x = B::float_reshape(x, [sequences * length, width].into());
        let x = last_rows::<B>(x, sequences, kept);
        if count > 0 {
            return Some(x);
        }
        self.unread = Some(B::float_reshape(x, [sequences, kept, width].into()));
        None
    }
}

impl<B: FusedOps> Pass<B> for GoldFinch<B> {
    type State = State<B>;

    fn new(arch: &Arch, parameters: &[FloatTensor<B>]) -> Self {
        let (model, next) = (arch.model().clone(), &mut taker::<B>(parameters));
        let (embedding, first_norm) = (next(), Norm::take(next));
        let below = (0..model.layers - model.gold_layers)
            .map(|_| (Recur::take(next), ChannelMix::take(next)))
            .collect();
        let above =
            (0..model.gold_layers).map(|_| (Gold::take(next), ChannelMix::take(next))).collect();
        let (compress, decompress) = (next(), next());
        let (last_norm, head) = (Norm::take(next), next());
        Self { model, embedding, first_norm, below, above, compress, decompress, last_norm, head }
    }

    fn start(m: &config::Model, sequences: usize, keep: Keep, device: &Device<B>) -> State<B> {
        let block = |layer| {
            let state = BlockState::start(m, sequences, device);
            let kv = if layer < m.layers - m.gold_layers { state.kv } else { None };
            BlockState { kv, ..state }
        };
        let blocks = (0..m.layers).map(block).collect();
        State { blocks, cache: Cache::new(m.gold_layers, keep), unread: None }
    }

    fn extend(
        &self,
        tokens: IntTensor<B>,
        scored: Scored,
        state: &mut State<B>,
    ) -> Option<FloatTensor<B>> {
        let sequences = state.sequences();
        let (x, compressed) = self.below(tokens.clone(), &mut state.blocks);
        let [rows, width] = compressed.shape().dims();
        let length = rows / sequences;
        let tokens = B::int_reshape(tokens, [sequences, length].into());
        let compressed = B::float_reshape(compressed, [sequences, length, width].into());
        state.cache.append(&tokens, compressed);
        let count = scored.count(length);
        let mut x = state.due(x, count, 2 * self.above.len())?;
        let (_, above) = state.blocks.split_at_mut(self.below.len());
        let blocks = self.above.iter().zip(above).enumerate();
        for (layer, ((time, channel), block)) in blocks {
            x = time.extend(x, layer, self, &mut state.cache, block);
            x = channel.forward(x, Weighs::Past, &mut block.channel);
        }
        Some(self.score(last_rows::<B>(x, sequences, count)))
    }

    fn logits(&self, m: &config::Model, tokens: IntTensor<B>, rows: &Rows) -> FloatTensor<B> {
        let device = B::int_device(&tokens);
        let mut state = Self::start(m, rows.sequences, Keep::EXACT, &device);
        let (mut x, compressed) = self.below(tokens.clone(), &mut state.blocks);
        let values = self.unit(self.embed(tokens.clone()));
        let keys = self.shared_keys(tokens, compressed);
        let (_, above) = state.blocks.split_at_mut(self.below.len());
        for ((time, channel), state) in self.above.iter().zip(above) {
            x = time.forward(x, &keys, &values, &self.model, state);
            x = channel.forward(x, Weighs::Past, &mut state.channel);
        }
        self.score(x)
    }
}

impl<B: FusedOps> GoldFinch<B> {
    /// The output of the last Finch block, and c. // [N, D]; [N, C]
    fn below(
        &self,
        tokens: IntTensor<B>,
        blocks: &mut [BlockState<B>],
    ) -> (FloatTensor<B>, FloatTensor<B>) {
        let mut x = self.embed(tokens); // [N, D]
        for ((time, channel), state) in self.below.iter().zip(blocks) {
            x = time.forward(x, &self.model, state);
            x = channel.forward(x, Weighs::Past, &mut state.channel);
        }
        let compressed = B::run(Project, [x.clone(), self.compress.clone()]);
        (x, compressed)
    }

    /// The scores of the next tokens. // x [N, D], result [N, V]
    fn score(&self, x: FloatTensor<B>) -> FloatTensor<B> {
        B::run(Project, [self.last_norm.apply(x), self.head.clone()])
    }

    /// K of tokens. // tokens `[N]`, compressed [N, C], result [N, D]
    #[must_use]
    pub fn shared_keys(&self, tokens: IntTensor<B>, compressed: FloatTensor<B>) -> FloatTensor<B> {
        self.keys_of(self.embed(tokens), compressed)
    }

    /// K of x0 and c. // x0 [N, D], compressed [N, C], result [N, D]
    fn keys_of(&self, x0: FloatTensor<B>, compressed: FloatTensor<B>) -> FloatTensor<B> {
        let both = B::float_cat(vec![x0, compressed], 1); // [N, D + C]
        self.unit(B::run(Project, [both, self.decompress.clone()]))
    }

    /// K and E of tokens in the cache, and of the token before them: zeros before the first of a
    /// text.
    fn shared(&self, rows: CacheRows<B>, sequences: usize) -> Shared<B> {
        let CacheRows { tokens, compressed, is_led } = rows;
        let x0 = self.embed(tokens);
        let both = [self.keys_of(x0.clone(), compressed), self.unit(x0)];
        if !is_led {
            let zeros = zeros::<B>(&[sequences, self.model.width], &B::float_device(&both[0]));
            return Shared { rows: both, before: [zeros.clone(), zeros] };
        }
        let [all, width] = both[0].shape().dims();
        let length = all / sequences;
        let before = both.clone().map(|x| {
            let x = B::float_reshape(x, [sequences, length * width].into());
            B::float_slice(x, &[(0..sequences).into(), (0..width).into()])
        });
        let rows = both.map(|x| last_rows::<B>(x, sequences, length - 1));
        Shared { rows, before }
    }

    /// x0. // tokens `[N]`, result [N, D]
    fn embed(&self, tokens: IntTensor<B>) -> FloatTensor<B> {
        self.first_norm.apply(B::float_select(self.embedding.clone(), 0, tokens))
    }

    /// x over its root mean square. The reference adds 1e-8 to the root; this adds its square
    /// inside.
    fn unit(&self, x: FloatTensor<B>) -> FloatTensor<B> {
        let shape = [self.model.width].into();
        let ones = B::float_ones(shape, &B::float_device(&x), burn_backend::FloatDType::F32);
        B::run(RmsNorm { eps: UNIT_EPS }, [x, ones])
    }
}

impl<B: FusedOps> Recur<B> {
    fn take(next: &mut dyn FnMut() -> FloatTensor<B>) -> Self {
        let (norm, mixes) = (Norm::take(next), Mixes::take(next));
        let (decay, unused_bonus) = (next(), next());
        let (decay_map, second_value) = (LowRank::take(next), LowRank::take(next));
        let projections = [next(), next(), next()];
        let output = TimeOutput::take(next);
        Self { norm, mixes, decay, unused_bonus, decay_map, second_value, projections, output }
    }

    /// x plus the output of time mixing; advances the state. // x [N, D]
    fn forward(
        &self,
        x: FloatTensor<B>,
        model: &config::Model,
        state: &mut BlockState<B>,
    ) -> FloatTensor<B> {
        let h = self.norm.apply(x.clone());
        let before = step::<B>(&mut state.time, &h);
        let [h_r, h_k, h_v, h_w, h_v2] = self.mixes.apply(&h, &before, model.mix_rank);
        let [receptance, key, value] = self.projections.clone();
        let w = self.decay_map.add(h_w, self.decay.clone()); // [N, D]
        let k = B::run(DecayedKeys, [B::run(Project, [h_k, key]), w.clone()]);
        let second = B::run(Project, [h_v2.clone(), value.clone()]);
        let second = self.second_value.add(h_v2, second);
        let rkv = [B::run(Project, [h_r, receptance]), k, B::run(Project, [h_v, value])];
        let no_bonus = B::float_mul_scalar(self.unused_bonus.clone(), 0.0.into());
        let y = B::float_add(state.wkv(rkv, w, no_bonus), second);
        self.output.write(self.output.norm.apply(y), x)
    }
}

/// The square of the number that the reference adds to a root mean square.
const UNIT_EPS: f32 = 1e-16;
