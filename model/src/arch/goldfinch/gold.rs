//! Time mixing of a GOLD block: attention whose keys and values come from the shared K and E, not
//! from its own x. Where a text is read on, they are expanded from the cache block by block, and the
//! softmax is summed up over the blocks.

use burn_backend::TensorMetadata;
use burn_backend::tensor::FloatTensor;

use super::GoldFinch;
use super::cache::{BLOCK, Cache};
use crate::arch::finch::Mixes;
use crate::arch::rwkv::{BlockState, LowRank, Norm, TimeOutput, step, zeros};
use crate::config;
use crate::ops::{
    AttendBlock, Attention, DataMix, Documents, FusedOps, Heads, Pack, Project, ShiftMix,
    TanhProject, Weighs,
};

/// Time mixing of a GOLD block, in the order in which its tensors are declared.
#[derive(Clone, Debug)]
pub(super) struct Gold<B: FusedOps> {
    /// The norm of the residual stream, before the token shift.
    norm: Norm<B>,
    /// The mixes of the base of q, of q, of k, of v and of the base of k and v; bases `[D]`, others
    /// [1, D]
    mu: [FloatTensor<B>; 5],
    /// The features of the mix of q, which depend on x.
    query_mix: LowRank<B>,
    /// One map in two pieces, for k and v.
    cache_mix: LowRank<B>,
    /// Added to the mixed K, which gives k before its norm.
    key_map: LowRank<B>,
    /// The same of the mixed E, for v.
    value_map: LowRank<B>,
    /// Wq, of the mixed x. // [D, D]
    query: FloatTensor<B>,
    /// The norm of q, over all its channels.
    query_norm: Norm<B>,
    /// The norm of k, over all its channels.
    key_norm: Norm<B>,
    /// The norm of v, over all its channels.
    value_norm: Norm<B>,
    /// What leads from attention back to the residual stream.
    output: TimeOutput<B>,
}

/// K and E of some tokens, and of the token before them.
pub(super) struct Shared<B: FusedOps> {
    /// [B·n, D] each
    pub(super) rows: [FloatTensor<B>; 2],
    /// [B, D] each
    pub(super) before: [FloatTensor<B>; 2],
}

impl<B: FusedOps> Gold<B> {
    /// Takes the next tensors, in the order of the fields.
    pub(super) fn take(next: &mut dyn FnMut() -> FloatTensor<B>) -> Self {
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

    /// The pass that trains. // x, keys K and values E [B·T, D]
    pub(super) fn forward(
        &self,
        x: FloatTensor<B>,
        keys: &FloatTensor<B>,
        values: &FloatTensor<B>,
        model: &config::Model,
        state: &mut BlockState<B>,
    ) -> FloatTensor<B> {
        let q = self.queries(x.clone(), model.mix_rank, state);
        let [sequences, width] = state.time.shape().dims();
        let zeros = zeros::<B>(&[sequences, width], &B::float_device(&state.time));
        let before = [zeros.clone(), zeros];
        let [k, v] = self.keys_and_values(keys, values, model.mix_rank, before);
        let all = q.shape().dims::<2>()[0];
        let (heads, size) = (model.heads, model.head_size());
        let heads = Heads { sequences, tokens: all / sequences, query: heads, kv: heads, size };
        let documents = Documents::whole(all);
        let mixed = B::run(Attention { heads, documents }, [B::run(Pack, [q, k, v])]);
        self.output.write(self.output.norm.apply(mixed), x)
    }

    /// The newest tokens of a text, whose c are in the cache; this is attention block number
    /// `layer` of the model. // x [B·S, D]
    pub(super) fn extend(
        &self,
        x: FloatTensor<B>,
        layer: usize,
        model: &GoldFinch<B>,
        cache: &mut Cache<B>,
        state: &mut BlockState<B>,
    ) -> FloatTensor<B> {
        let config::Model { heads, mix_rank, .. } = model.model;
        let q = self.queries(x.clone(), mix_rank, state);
        let sequences = state.time.shape().dims::<2>()[0];
        let new = q.shape().dims::<2>()[0] / sequences;
        let (query, size) = (cache.length() - new, model.model.head_size());
        let mut sums = AttendBlock::begin::<B>(&q, heads);
        for at in 0..cache.blocks() {
            let [k, v] = cache.expanded(layer, at, |rows| {
                let Shared { rows: [keys, values], before } = model.shared(rows, sequences);
                self.keys_and_values(&keys, &values, mix_rank, before)
            });
            let tokens = k.shape().dims::<2>()[0] / sequences;
            let heads = Heads { sequences, tokens, query: heads, kv: heads, size };
            let block = AttendBlock { heads, key: at * BLOCK, query };
            let [m, l, o] = sums;
            sums = B::untracked(block, [q.clone(), k, v, m, l, o]);
        }
        let mixed = AttendBlock::end::<B>(sums);
        self.output.write(self.output.norm.apply(mixed), x)
    }

    /// q of x; the token shift goes on from the state. // x, result [B·T, D]
    fn queries(&self, x: FloatTensor<B>, rank: usize, state: &mut BlockState<B>) -> FloatTensor<B> {
        let [mu_x, mu_q, ..] = self.mu.clone();
        let h = self.norm.apply(x);
        let before = step::<B>(&mut state.time, &h);
        let mixes = Mixes { mu_x, mu: mu_q, features: self.query_mix.clone() };
        let [mixed] = mixes.apply(&h, &before, rank);
        self.query_norm.apply(B::run(Project, [mixed, self.query.clone()]))
    }

    /// k and v; `before` are K and E of the token before the first. // [B·n, D]; before [B, D]
    fn keys_and_values(
        &self,
        keys: &FloatTensor<B>,
        values: &FloatTensor<B>,
        rank: usize,
        [before_key, before_value]: [FloatTensor<B>; 2],
    ) -> [FloatTensor<B>; 2] {
        let [_, _, mu_k, mu_v, mu_cache] = self.mu.clone();
        let shift = ShiftMix { weighs: Weighs::Past };
        let base = B::run(shift, [values.clone(), mu_cache, before_value.clone()]);
        let LowRank { inwards, outwards } = self.cache_mix.clone();
        let features = B::run(TanhProject, [base, inwards]); // [B·n, 2R]
        let mix = |x: &FloatTensor<B>, mu, first, before| {
            let mix = DataMix { first, rank };
            B::run_multi(mix, [x.clone(), features.clone(), outwards.clone(), mu, before])
        };
        let [k] = mix(keys, mu_k, 0, before_key);
        let [v] = mix(values, mu_v, 1, before_value);
        let k = self.key_norm.apply(self.key_map.add(k.clone(), k));
        let v = self.value_norm.apply(self.value_map.add(v.clone(), v));
        [k, v]
    }
}
