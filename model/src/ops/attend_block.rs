//! Attention to a cache that is read block by block, so that only one block of keys and values is
//! in memory at a time: an online softmax (Milakov & Gimelshein 2018, arXiv 1805.02867; as in
//! FlashAttention, Dao et al. 2022).
//!
//! For each query and head it keeps the largest score m so far, the sum l of the weights and the
//! mixture o. With s_j = ⟨q, k_j⟩/√K a block J of keys changes them to
//!
//! ```text
//! m' = max(m, max_{j∈J} s_j),  p_j = exp(s_j − m')
//! l' = l·exp(m − m') + Σ_{j∈J} p_j,  o' = o·exp(m − m') + Σ_{j∈J} p_j v_j
//! ```
//!
//! and y = o/l after the last block. Blocks come in the order of positions, so that every query
//! sees a key of the first one.

use burn_backend::tensor::FloatTensor;
use burn_backend::{FloatDType, TensorMetadata, bf16};
use burn_flex::FlexTensor;
use burn_tensor::{Bool, Tensor};
use rayon::prelude::*;

use super::attend::add_scaled;
use super::attention::Heads;
use super::buf::{floats, floats_mut};
use super::clock;
use super::gemm::{Mat, MatMut, Threads, Write, product};
use super::lanes::{dot_lanes, exp_lanes, max_lanes, simd};
use super::narrow::{Widen, widen};
use super::operator::{FusedOps, Untracked, primitive, tensor};
use super::project::matmul;
use super::reduce;

/// Adds a block of n keys and values to a causal attention of the newest S positions. Inputs: q, k,
/// v, m, l, o; outputs: m, l, o. Keys and values may be bf16.
/// // q, o [B·S, H·K]; k, v [B·n, G·K]; m, l [B·S, H]
#[derive(Clone, Copy, Debug)]
pub struct AttendBlock {
    /// The shape, with the n tokens of the block.
    pub heads: Heads,
    /// The position of the first key.
    pub key: usize,
    /// The position of the first query.
    pub query: usize,
}

impl AttendBlock {
    /// m, l and o before the first block: nothing seen, so no weight and no mixture.
    /// // q [B·S, H·K]
    pub fn begin<B: FusedOps>(q: &FloatTensor<B>, heads: usize) -> [FloatTensor<B>; 3] {
        let [rows, width] = q.shape().dims();
        let device = B::float_device(q);
        let zeros = |width: usize| B::float_zeros([rows, width].into(), &device, FloatDType::F32);
        let lowest = B::float_add_scalar(zeros(heads), LOWEST.into());
        [lowest, zeros(heads), zeros(width)]
    }

    /// y = o/l after the last block. // [B·S, H·K]
    pub fn end<B: FusedOps>([_, l, o]: [FloatTensor<B>; 3]) -> FloatTensor<B> {
        let (l, o) = (tensor::<B, 2>(l), tensor::<B, 2>(o));
        let ([rows, heads], [_, width]) = (l.dims(), o.dims());
        let mixed = o.reshape([rows, heads, width / heads]) / l.reshape([rows, heads, 1]);
        primitive(mixed.reshape([rows, width]))
    }

    /// How many keys of the block query number `row` sees: those up to its own position.
    fn seen(&self, row: usize) -> usize {
        (self.query + row + 1).saturating_sub(self.key).min(self.heads.tokens)
    }
}

impl Untracked<6, 3> for AttendBlock {
    fn plain<B: FusedOps>(&self, inputs: [FloatTensor<B>; 6]) -> [FloatTensor<B>; 3] {
        let Heads { sequences, tokens, query, kv, size } = self.heads;
        let [q, k, v, m, l, o] = inputs;
        let [k, v] = [k, v].map(|x| {
            let [x] = Widen.plain::<B>([x]);
            self.heads.shared(tensor::<B, 2>(x).reshape([sequences, tokens, kv, size]))
        });
        let [rows, width] = q.shape().dims();
        let new = rows / sequences;
        let by_head = |x: FloatTensor<B>, size: usize| {
            tensor::<B, 2>(x).reshape([sequences, new, query, size]).swap_dims(1, 2)
        };
        let flat = |x: Tensor<B, 4>, width: usize| {
            primitive::<B, 2>(x.swap_dims(1, 2).reshape([rows, width]))
        };
        let scores = matmul(by_head(q, size), k.swap_dims(2, 3)) * self.heads.scale(); // [B, H, S, n]
        let ahead = self.query as i64 - self.key as i64;
        let later = Tensor::<B, 2, Bool>::tril_mask([new, tokens], ahead, &scores.device());
        let scores = scores.mask_fill(later.unsqueeze::<4>(), f32::NEG_INFINITY);
        let before = by_head(m, 1);
        let most = reduce::max_dim(scores.clone(), 3).max_pair(before.clone()); // [B, H, S, 1]
        let kept = (before - most.clone()).exp();
        let weights = (scores - most.clone()).exp();
        let l = by_head(l, 1) * kept.clone() + reduce::sum_dim(weights.clone(), 3);
        let o = by_head(o, size) * kept + matmul(weights, v);
        [flat(most, query), flat(l, query), flat(o, width)]
    }

    /// One task processes one head of a sequence.
    fn forward(&self, inputs: [FlexTensor; 6]) -> [FlexTensor; 3] {
        let _timer = clock::start("attention");
        let Heads { sequences, tokens, query, size, .. } = self.heads;
        let [q, k, v, mut m, mut l, mut o] = inputs;
        let new = q.shape()[0] / sequences;
        let (queries, [k, v]) = (floats(&q), [&k, &v].map(Entries::of));
        let ms = floats_mut(&mut m).chunks_mut(new * query);
        let ls = floats_mut(&mut l).chunks_mut(new * query);
        let os = floats_mut(&mut o).chunks_mut(new * query * size);
        let tasks = ms.zip(ls).zip(os).enumerate().flat_map(|(sequence, ((m, l), o))| {
            let [m, l] = [m, l].map(|x| MatMut::new(x, new, query).into_cols(1));
            let o = MatMut::new(o, new, query * size).into_cols(size);
            let heads = m.into_iter().zip(l).zip(o).enumerate();
            heads.map(move |(head, ((m, l), o))| Running { sequence, head, m, l, o })
        });
        let tasks: Vec<_> = tasks.collect();
        tasks.into_par_iter().for_each_init(
            || Scratch::new(new, tokens, size),
            |scratch, task| self.attend(task, queries, [k, v], scratch),
        );
        [m, l, o]
    }
}

impl AttendBlock {
    /// One head of one sequence. Keys and values of the block are copied side by side first, in
    /// f32. From [`FEW`] queries on the scores and the mixture are matrix products; below, each is
    /// a loop over keys.
    fn attend(&self, task: Running<'_>, q: &[f32], kv: [Entries<'_>; 2], scratch: &mut Scratch) {
        let Running { sequence, head, mut m, mut l, mut o } = task;
        let Scratch { keys, values, scores } = scratch;
        let Heads { tokens, query, kv: kv_heads, size, .. } = self.heads;
        let (new, step) = (o.rows(), kv_heads * size);
        let first = sequence * tokens * step + head / self.heads.group() * size;
        for (entries, copy) in kv.into_iter().zip([&mut *keys, &mut *values]) {
            for (at, row) in copy.chunks_exact_mut(size).enumerate() {
                entries.copy(first + at * step, row);
            }
        }
        let q = &q[sequence * new * query * size + head * size..];
        let few = new < FEW;
        if !few {
            let (q, k) = (Mat::strided(q, new, size, query * size), Mat::new(keys, tokens, size));
            let scores = MatMut::new(scores, new, tokens);
            product(scores, Write::Replace, q, k.t(), Threads::Here);
        }
        for row in 0..new {
            let scores = &mut scores[row * tokens..][..tokens];
            let (scores, later) = scores.split_at_mut(self.seen(row));
            later.fill(0.0);
            if scores.is_empty() {
                continue;
            }
            if few {
                score(&q[row * query * size..][..size], keys, scores);
            }
            let before = m.row_mut(row)[0];
            let [most, sum] = weigh(scores, self.heads.scale(), before);
            let kept = (before - most).exp();
            m.row_mut(row)[0] = most;
            l.row_mut(row)[0] = l.row_mut(row)[0] * kept + sum;
            o.row_mut(row).iter_mut().for_each(|x| *x *= kept);
            if few {
                add_values(scores, values, o.row_mut(row));
            }
        }
        if !few {
            let (p, v) = (Mat::new(scores, new, tokens), Mat::new(values, tokens, size));
            product(o, Write::Add, p, v, Threads::Here);
        }
    }
}

/// One head of a sequence, with views of what it has so far.
struct Running<'a> {
    /// The sequence, counted from 0 in the batch.
    sequence: usize,
    /// The query head, counted from 0 in the sequence.
    head: usize,
    /// The largest score so far, of each query. // [S, 1]
    m: MatMut<'a>,
    /// The sum of the weights so far, relative to m. // [S, 1]
    l: MatMut<'a>,
    /// The weighted sum of values so far, relative to m. // [S, K]
    o: MatMut<'a>,
}

/// The memory of a thread: keys and values of one head, and the scores of its queries.
struct Scratch {
    /// Keys of one head, side by side. // [n, K]
    keys: Vec<f32>,
    /// Values of one head, side by side. // [n, K]
    values: Vec<f32>,
    /// Scores, then weights, of each query. // [S, n]
    scores: Vec<f32>,
}

impl Scratch {
    /// Memory for `new` queries and a block of `tokens` keys of width `size`.
    fn new(new: usize, tokens: usize, size: usize) -> Self {
        let [keys, values] = [(); 2].map(|()| vec![0.0; tokens * size]);
        Self { keys, values, scores: vec![0.0; new * tokens] }
    }
}

/// The elements of keys or values in either format.
#[derive(Clone, Copy)]
enum Entries<'a> {
    /// Elements that the cache keeps in f32.
    Full(&'a [f32]),
    /// Elements that the cache keeps in bf16, and that are widened before use.
    Half(&'a [bf16]),
}

impl<'a> Entries<'a> {
    /// Reads the format of the tensor; any other one than bf16 has to be f32.
    fn of(tensor: &'a FlexTensor) -> Self {
        tensor.as_slice::<bf16>().map_or_else(|| Self::Full(floats(tensor)), Self::Half)
    }

    /// Copies the elements from `first` on, as many as there is room for.
    fn copy(self, first: usize, to: &mut [f32]) {
        match self {
            Self::Full(numbers) => to.copy_from_slice(&numbers[first..][..to.len()]),
            Self::Half(halves) => widen(&halves[first..][..to.len()], to),
        }
    }
}

simd! {
    /// The scores of the first keys, as many as `scores` has, before they are scaled.
    /// // `q [K]`, k [n, K]
    fn score<S>(q: &[f32], k: &[f32], scores: &mut [f32]) {
        for (score, k) in scores.iter_mut().zip(k.chunks_exact(q.len())) {
            *score = dot_lanes::<S>(q, k);
        }
    }

    /// Turns scores into weights; returns the largest score, if it is above `most`, and their sum.
    fn weigh<S>(scores: &mut [f32], scale: f32, most: f32) -> [f32; 2] {
        let top = scale * max_lanes(scores);
        let most = if top > most { top } else { most };
        [most, exp_lanes::<S>(scores, scale, most)]
    }

    /// o += Σ_j weights_j·v_j. // v [n, K], `o [K]`
    fn add_values<S>(weights: &[f32], v: &[f32], o: &mut [f32]) {
        let width = o.len();
        for (weight, v) in weights.iter().zip(v.chunks_exact(width)) {
            add_scaled::<S>(*weight, v, o);
        }
    }
}

/// Below every score; an infinite one would not be subtracted safely on every GPU.
const LOWEST: f64 = -1e30;
/// Below so many queries the products are computed one query at a time: a guess.
const FEW: usize = 8;

#[cfg(test)]
mod tests {
    use burn_backend::ops::FloatTensorOps;
    use burn_flex::Flex;
    use burn_tensor::TensorData;

    use super::super::buf::contiguous;
    use super::super::tests::{BOUND, distance, heads, random};
    use super::super::{Attend, Narrow};
    use super::*;

    fn matrix(rows: usize, width: usize, seed: u64) -> FlexTensor {
        let data = TensorData::new(random(rows * width, 2.0, seed), [rows, width]);
        Flex::float_from_data(data, &Default::default())
    }

    /// Rows `from..to` of every sequence.
    fn part(x: &FlexTensor, sequences: usize, from: usize, to: usize) -> FlexTensor {
        let [rows, width] = x.shape().dims();
        let x = Flex::float_reshape(x.clone(), [sequences, rows / sequences, width].into());
        let part = [(0..sequences).into(), (from..to).into(), (0..width).into()];
        let part = contiguous(Flex::float_slice(x, &part));
        Flex::float_reshape(part, [sequences * (to - from), width].into())
    }

    fn numbers(x: FlexTensor) -> Vec<f32> {
        floats(&contiguous(x)).to_vec()
    }

    /// With a single query, few and many; blocks that divide the tokens and those that do not; heads
    /// that share keys; a block that some of the queries do not see.
    #[test]
    fn block_by_block_is_the_softmax_over_all() {
        for ([sequences, tokens, query, kv, size], new, block) in [
            ([1, 1, 1, 1, 2], 1, 4),
            ([2, 9, 4, 2, 6], 1, 4),
            ([3, 70, 6, 2, 33], 7, 16),
            ([1, 64, 2, 2, 64], 5, 2),
            ([2, 50, 4, 4, 16], 50, 8),
            ([1, 600, 3, 3, 8], 300, 256),
        ] {
            let whole = heads([sequences, tokens, query, kv, size]);
            let q = matrix(sequences * new, query * size, 1);
            let [k, v] = [2, 3].map(|seed| matrix(sequences * tokens, kv * size, seed));
            let [keys, values] = [&k, &v]
                .map(|x| Flex::float_reshape(x.clone(), [sequences, tokens, kv * size].into()));
            let [expected] = Flex::untracked(Attend { heads: whole }, [q.clone(), keys, values]);
            let expected = numbers(expected);
            let mut fused = AttendBlock::begin::<Flex>(&q, query);
            let mut plain = AttendBlock::begin::<Flex>(&q, query);
            for first in (0..tokens).step_by(block) {
                let end = tokens.min(first + block);
                let heads = Heads { tokens: end - first, ..whole };
                let op = AttendBlock { heads, key: first, query: tokens - new };
                let [k, v] = [&k, &v].map(|x| part(x, sequences, first, end));
                let [m, l, o] = fused;
                fused = Flex::untracked(op, [q.clone(), k.clone(), v.clone(), m, l, o]);
                let [m, l, o] = plain;
                plain = op.plain::<Flex>([q.clone(), k, v, m, l, o]);
            }
            for found in [fused, plain].map(|sums| numbers(AttendBlock::end::<Flex>(sums))) {
                let far = distance(&found, &expected);
                assert!(far < BOUND, "{whole:?}, {new} new, blocks of {block}: {far:e}");
            }
        }
    }

    /// The same as if the keys and values had been rounded before.
    #[test]
    fn keys_and_values_of_sixteen_bits_are_read_as_they_are() {
        let heads = heads([1, 20, 4, 2, 6]);
        let q = matrix(3, 24, 1);
        let halves = [2, 3].map(|seed| {
            let [x] = Flex::untracked(Narrow, [matrix(20, 12, seed)]);
            x
        });
        let wide = halves.clone().map(|x| {
            let [x] = Flex::untracked(Widen, [x]);
            x
        });
        let [found, expected] = [halves, wide].map(|[k, v]| {
            let [m, l, o] = AttendBlock::begin::<Flex>(&q, 4);
            let op = AttendBlock { heads, key: 0, query: 17 };
            let sums = Flex::untracked(op, [q.clone(), k, v, m, l, o]);
            numbers(AttendBlock::end::<Flex>(sums))
        });
        assert_eq!(found, expected);
    }
}
