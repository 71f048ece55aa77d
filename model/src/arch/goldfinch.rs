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
//! Keys and values depend only on the tokens and c, so they are recomputed from the cache for every
//! new token, which trades time for memory. There are no positions. Channel mixing is Finch's. The
//! bonus `time_faaaa` is a parameter of the reference that is not used; its gradient is zero.
//! Documents that share a row are not separated.

use burn_backend::TensorMetadata;
use burn_backend::tensor::{Device, FloatTensor, IntTensor};

use super::family::{Arch, Declared, Facts, Pass, taker};
use super::finch::{Mixes, declare_mixes};
use super::rwkv::{
    self, BlockState, ChannelMix, Declare, Depth, LowRank, Norm, TimeOutput, held_states, step,
    zeros,
};
use crate::config;
use crate::ops::{
    Attend as FromCache, Attention, DataMix, DecayedKeys, Documents, FusedOps, Heads, Pack,
    Project, RmsNorm, ShiftMix, TanhProject, Weighs,
};

/// What a GoldFinch keeps of a text.
#[derive(Clone, Debug)]
pub struct State<B: FusedOps> {
    /// The state of every block; attention blocks have shifts only.
    pub blocks: Vec<BlockState<B>>,
    /// `None` before the first token was read.
    pub cache: Option<Cache<B>>,
}

/// What a GoldFinch keeps of each token.
#[derive(Clone, Debug)]
pub struct Cache<B: FusedOps> {
    /// [B, T]
    pub tokens: IntTensor<B>,
    /// c [B, T, C]
    pub compressed: FloatTensor<B>,
}

/// A GoldFinch with its weights, for one pass.
#[derive(Clone, Debug)]
pub struct GoldFinch<B: FusedOps> {
    model: config::Model,
    /// [V, D]
    embedding: FloatTensor<B>,
    first_norm: Norm<B>,
    below: Vec<(Recur<B>, ChannelMix<B>)>,
    above: Vec<(Attend<B>, ChannelMix<B>)>,
    /// [C, D]
    compress: FloatTensor<B>,
    /// [D, D + C]
    decompress: FloatTensor<B>,
    last_norm: Norm<B>,
    /// [V, D]
    head: FloatTensor<B>,
}

/// Time mixing of a Finch-C2 block.
#[derive(Clone, Debug)]
struct Recur<B: FusedOps> {
    norm: Norm<B>,
    mixes: Mixes<B>,
    /// `[D]`
    decay: FloatTensor<B>,
    /// `[D]`
    unused_bonus: FloatTensor<B>,
    decay_map: LowRank<B>,
    second_value: LowRank<B>,
    /// The projections of r, k, v; [D, D] each
    projections: [FloatTensor<B>; 3],
    output: TimeOutput<B>,
}

/// Time mixing of a GOLD block.
#[derive(Clone, Debug)]
struct Attend<B: FusedOps> {
    norm: Norm<B>,
    /// The mixes of the base of q, of q, of k, of v and of the base of k and v; bases `[D]`, others
    /// [1, D]
    mu: [FloatTensor<B>; 5],
    query_mix: LowRank<B>,
    /// One map in two pieces, for k and v.
    cache_mix: LowRank<B>,
    key_map: LowRank<B>,
    value_map: LowRank<B>,
    /// [D, D]
    query: FloatTensor<B>,
    query_norm: Norm<B>,
    key_norm: Norm<B>,
    value_norm: Norm<B>,
    output: TimeOutput<B>,
}

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

/// The parameters of a GoldFinch, under their names in the reference.
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
    rwkv::declare(m, time_mix, "time_maa", |d, b| d.past(b, 0.0), cache)
}

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

impl<B: FusedOps> Cache<B> {
    fn after(self, past: Option<Self>) -> Self {
        let Some(past) = past else { return self };
        Self {
            tokens: B::int_cat(vec![past.tokens, self.tokens], 1),
            compressed: B::float_cat(vec![past.compressed, self.compressed], 1),
        }
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
            (0..model.gold_layers).map(|_| (Attend::take(next), ChannelMix::take(next))).collect();
        let (compress, decompress) = (next(), next());
        let (last_norm, head) = (Norm::take(next), next());
        Self { model, embedding, first_norm, below, above, compress, decompress, last_norm, head }
    }

    fn start(m: &config::Model, sequences: usize, device: &Device<B>) -> State<B> {
        let block = |layer| {
            let state = BlockState::start(m, sequences, device);
            let kv = if layer < m.layers - m.gold_layers { state.kv } else { None };
            BlockState { kv, ..state }
        };
        State { blocks: (0..m.layers).map(block).collect(), cache: None }
    }

    fn extend(&self, tokens: IntTensor<B>, state: &mut State<B>) -> FloatTensor<B> {
        let (below, _) = state.blocks.split_at_mut(self.below.len());
        let mut x = self.embed(tokens.clone()); // [N, D]
        for ((time, channel), state) in self.below.iter().zip(below) {
            x = time.forward(x, &self.model, state);
            x = channel.forward(x, Weighs::Past, &mut state.channel);
        }
        let compressed = B::run(Project, [x.clone(), self.compress.clone()]); // [N, C]
        let sequences = state.blocks[0].time.shape().dims::<2>()[0];
        let [rows, width] = compressed.shape().dims();
        let length = rows / sequences;
        let cache = Cache {
            tokens: B::int_reshape(tokens, [sequences, length].into()),
            compressed: B::float_reshape(compressed, [sequences, length, width].into()),
        };
        let cache = cache.after(state.cache.take());
        let [values, keys] = [self.shared_values(&cache), self.shared_keys(&cache)];
        state.cache = Some(cache);
        let (_, above) = state.blocks.split_at_mut(self.below.len());
        for ((time, channel), state) in self.above.iter().zip(above) {
            x = time.forward(x, &keys, &values, &self.model, state);
            x = channel.forward(x, Weighs::Past, &mut state.channel);
        }
        B::run(Project, [self.last_norm.apply(x), self.head.clone()])
    }
}

impl<B: FusedOps> GoldFinch<B> {
    /// K of every token, from its cache entry. // [B·T, D]
    #[must_use]
    pub fn shared_keys(&self, cache: &Cache<B>) -> FloatTensor<B> {
        let [sequences, length, width] = cache.compressed.shape().dims();
        let compressed =
            B::float_reshape(cache.compressed.clone(), [sequences * length, width].into());
        let both = B::float_cat(vec![self.embed_all(cache), compressed], 1); // [B·T, D + C]
        self.unit(B::run(Project, [both, self.decompress.clone()]))
    }

    /// E of every token. // [B·T, D]
    fn shared_values(&self, cache: &Cache<B>) -> FloatTensor<B> {
        self.unit(self.embed_all(cache))
    }

    fn embed_all(&self, cache: &Cache<B>) -> FloatTensor<B> {
        let count = cache.tokens.shape().num_elements();
        self.embed(B::int_reshape(cache.tokens.clone(), [count].into()))
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

    /// x [N, D]
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

impl<B: FusedOps> Attend<B> {
    fn take(next: &mut dyn FnMut() -> FloatTensor<B>) -> Self {
        // The fields are in the order of the tensors.
        Self {
            norm: Norm::take(next),
            mu: [next(), next(), next(), next(), next()],
            query_mix: LowRank::take(next),
            cache_mix: LowRank::take(next),
            key_map: LowRank::take(next),
            value_map: LowRank::take(next),
            query: next(),
            query_norm: Norm::take(next),
            key_norm: Norm::take(next),
            value_norm: Norm::take(next),
            output: TimeOutput::take(next),
        }
    }

    /// x [B·T, D] of the newest tokens, keys K and values E [B·S, D] of all of them
    fn forward(
        &self,
        x: FloatTensor<B>,
        keys: &FloatTensor<B>,
        values: &FloatTensor<B>,
        model: &config::Model,
        state: &mut BlockState<B>,
    ) -> FloatTensor<B> {
        let q = self.queries(x.clone(), model.mix_rank, state);
        let [k, v] = self.keys_and_values(keys, values, model.mix_rank, &state.time);
        let [sequences, _] = state.time.shape().dims();
        let ([new, _], [all, _]) = (q.shape().dims::<2>(), k.shape().dims::<2>());
        let (heads, size) = (model.heads, model.head_size());
        let heads = Heads { sequences, tokens: all / sequences, query: heads, kv: heads, size };
        let mixed = if new == all {
            let documents = Documents::whole(all);
            B::run(Attention { heads, documents }, [B::run(Pack, [q, k, v])])
        } else {
            let [mixed] = B::untracked(FromCache { heads }, [q, k, v]);
            mixed
        };
        self.output.write(self.output.norm.apply(mixed), x)
    }

    /// [B·T, D]
    fn queries(&self, x: FloatTensor<B>, rank: usize, state: &mut BlockState<B>) -> FloatTensor<B> {
        let [mu_x, mu_q, ..] = self.mu.clone();
        let h = self.norm.apply(x);
        let before = step::<B>(&mut state.time, &h);
        let mixes = Mixes { mu_x, mu: mu_q, features: self.query_mix.clone() };
        let [mixed] = mixes.apply(&h, &before, rank);
        self.query_norm.apply(B::run(Project, [mixed, self.query.clone()]))
    }

    /// [B·S, D] each; `row` is a tensor [B, D], of which only shape and device are used
    fn keys_and_values(
        &self,
        keys: &FloatTensor<B>,
        values: &FloatTensor<B>,
        rank: usize,
        row: &FloatTensor<B>,
    ) -> [FloatTensor<B>; 2] {
        let [_, _, mu_k, mu_v, mu_cache] = self.mu.clone();
        let before = zeros::<B>(&row.shape().dims::<2>(), &B::float_device(row));
        let shift = ShiftMix { weighs: Weighs::Past };
        let base = B::run(shift, [values.clone(), mu_cache, before.clone()]);
        let LowRank { inwards, outwards } = self.cache_mix.clone();
        let features = B::run(TanhProject, [base, inwards]); // [B·S, 2R]
        let mix = |x: &FloatTensor<B>, mu, first| {
            let mix = DataMix { first, rank };
            B::run_multi(mix, [x.clone(), features.clone(), outwards.clone(), mu, before.clone()])
        };
        let ([k], [v]) = (mix(keys, mu_k, 0), mix(values, mu_v, 1));
        let k = self.key_norm.apply(self.key_map.add(k.clone(), k));
        let v = self.value_norm.apply(self.value_map.add(v.clone(), v));
        [k, v]
    }
}

/// The square of the number that the reference adds to a root mean square.
const UNIT_EPS: f32 = 1e-16;
