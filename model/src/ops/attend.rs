//! A cache of keys and values that grows with a text, and attention of the newest tokens to it.
//!
//! It serves generation, so it has no gradient. [`AttendBlock`](super::AttendBlock) is for caches
//! whose keys are computed when they are read.
//!
//! On a CPU a cache has room for more tokens than it holds, so that a new token is written behind the others
//! and none of these is copied; a GPU copies it for each token. When it is full it grows to the next multiple of [`GROWTH`] tokens.
//! Two texts that began alike may share a cache; the one that writes first gets a copy of its own.

use burn_backend::TensorMetadata;
use burn_backend::tensor::FloatTensor;
use burn_flex::FlexTensor;
use burn_tensor::{Bool, Tensor};
use pulp::Simd;
use rayon::prelude::*;

use super::attention::Heads;
use super::buf::{floats, floats_mut, make};
use super::clock;
use super::lanes::{dot_lanes, exp_lanes, fma, max_lanes, simd};
use super::operator::{FusedOps, Untracked, primitive, tensor};
use super::project::matmul;
use super::reduce;

/// Writes keys or values behind the `length` tokens that a cache holds. Inputs: the cache, the new
/// tokens; output: the cache, which may have room for more tokens than it holds.
/// // cache [B, ≥ T, W], new [B, S, W]
#[derive(Clone, Copy, Debug)]
pub struct Append {
    /// T, the tokens of each sequence that the cache holds.
    pub length: usize,
}

impl Untracked<2, 1> for Append {
    /// A new cache of exactly the tokens that it holds.
    fn plain<B: FusedOps>(&self, [cache, new]: [FloatTensor<B>; 2]) -> [FloatTensor<B>; 1] {
        let held = tensor::<B, 3>(cache).narrow(1, 0, self.length);
        [primitive(Tensor::cat(vec![held, tensor(new)], 1))]
    }

    /// Writes in place, unless there is no room, or another text began with the same tokens.
    fn forward(&self, [mut cache, new]: [FlexTensor; 2]) -> [FlexTensor; 1] {
        let ([sequences, room, width], [_, count, _]) = (cache.shape().dims(), new.shape().dims());
        let length = self.length + count;
        if room < length {
            let grown = length.next_multiple_of(GROWTH);
            cache = make([sequences, grown, width], |to| {
                let rows = to.chunks_mut(grown * width).zip(floats(&cache).chunks(room * width));
                for (to, from) in rows {
                    let (held, free) = to.split_at_mut(self.length * width);
                    held.copy_from_slice(&from[..held.len()]);
                    free.fill(0.0);
                }
            });
        }
        let room = cache.shape()[1];
        let rows = floats_mut(&mut cache).chunks_mut(room * width);
        for (cache, new) in rows.zip(floats(&new).chunks(count * width)) {
            cache[self.length * width..][..new.len()].copy_from_slice(new);
        }
        [cache]
    }
}

/// Causal attention of q for the newest S of the `heads.tokens` positions of each sequence, to a
/// cache of keys and values that may have room for more. // q, y [B·S, H·K]; k, v [B, ≥ T, G·K]
#[derive(Clone, Copy, Debug)]
pub struct Attend {
    /// The shape, with the T tokens that the cache holds.
    pub heads: Heads,
}

impl Untracked<3, 1> for Attend {
    /// The softmax over all T scores of each query, with later tokens hidden.
    fn plain<B: FusedOps>(&self, [q, k, v]: [FloatTensor<B>; 3]) -> [FloatTensor<B>; 1] {
        let Heads { sequences, tokens, query, kv, size } = self.heads;
        let q = tensor::<B, 2>(q);
        let [rows, width] = q.dims();
        let new = rows / sequences;
        let q = q.reshape([sequences, new, query, size]).swap_dims(1, 2); // [B, H, S, K]
        let [k, v] = [k, v].map(|x| {
            let held = tensor::<B, 3>(x).narrow(1, 0, tokens);
            self.heads.shared(held.reshape([sequences, tokens, kv, size]))
        });
        let scores = matmul(q, k.swap_dims(2, 3)) * self.heads.scale(); // [B, H, S, T]
        let past = (tokens - new) as i64;
        let later = Tensor::<B, 2, Bool>::tril_mask([new, tokens], past, &scores.device());
        let weights =
            reduce::softmax(scores.mask_fill(later.unsqueeze::<4>(), f32::NEG_INFINITY), 3);
        [primitive(matmul(weights, v).swap_dims(1, 2).reshape([rows, width]))]
    }

    /// A task processes several heads of one query, so that it reads keys in the order of memory.
    /// It takes as many as leave each thread a task.
    fn forward(&self, inputs: [FlexTensor; 3]) -> [FlexTensor; 1] {
        let _timer = clock::start("attention");
        let heads @ Heads { sequences, tokens, query, kv, size } = self.heads;
        let [q, k, v] = inputs.each_ref().map(floats);
        let (rows, room) = (q.len() / (query * size), inputs[1].shape()[1]);
        let new = rows / sequences;
        // Halves of the heads of a query, until each thread has a task or their number is odd.
        let mut together = query;
        while rows * query / together < rayon::current_num_threads() && together % 2 == 0 {
            together /= 2;
        }
        let y = make(inputs[0].shape(), |y| {
            let width = together * size;
            let outputs = y.par_chunks_mut(width).zip(q.par_chunks(width)).enumerate();
            outputs.for_each_init(
                || vec![0.0; together * tokens],
                |scores, (index, (y, q))| {
                    let (row, head) = (index * together / query, index * together % query);
                    // The newest token sees all T, the one before it all but one.
                    let seen = tokens - new + row % new + 1;
                    let first = row / new * room * kv * size;
                    let kv = [k, v].map(|x| &x[first..][..seen * kv * size]);
                    attend_row(Query { q, head, heads }, kv, &mut scores[..together * seen], y);
                },
            );
        });
        [y]
    }
}

/// y += c·x, for slices of equal length.
#[inline(always)]
pub(super) fn add_scaled<S: Simd>(c: f32, x: &[f32], y: &mut [f32]) {
    for i in 0..y.len() {
        y[i] = fma::<S>(c, x[i], y[i]);
    }
}

/// Some heads of one query: as many as fit its row.
#[derive(Clone, Copy)]
struct Query<'a> {
    /// The numbers of these heads. // `[h·K]`
    q: &'a [f32],
    /// The number of its first head.
    head: usize,
    /// The sizes of all heads, not of these alone.
    heads: Heads,
}

impl Query<'_> {
    /// Number of each head here, and where its keys begin in a row of keys.
    fn columns(&self) -> impl Iterator<Item = (usize, usize)> {
        let Heads { size, .. } = self.heads;
        let group = self.heads.group();
        (0..self.q.len() / size).map(move |at| (at, (self.head + at) / group * size))
    }
}

simd! {
    /// o = softmax(scale·k·q)·v of each head. Keys are read once for all heads of the task.
    /// // k, v [T, G·K], scores [h, T], `o [h·K]`
    fn attend_row<S>(query: Query<'_>, kv: [&[f32]; 2], scores: &mut [f32], o: &mut [f32]) {
        let Heads { kv: kv_heads, size, .. } = query.heads;
        let step = kv_heads * size;
        let tokens = kv[0].len() / step;
        for (token, k) in kv[0].chunks_exact(step).enumerate() {
            for (at, column) in query.columns() {
                let q = &query.q[at * size..][..size];
                scores[at * tokens + token] = dot_lanes::<S>(q, &k[column..][..size]);
            }
        }
        let scale = query.heads.scale();
        for scores in scores.chunks_exact_mut(tokens) {
            let shift = scale * max_lanes(scores);
            let sum = exp_lanes::<S>(scores, scale, shift);
            scores.iter_mut().for_each(|weight| *weight /= sum);
        }
        o.fill(0.0);
        for (token, v) in kv[1].chunks_exact(step).enumerate() {
            for (at, column) in query.columns() {
                let o = &mut o[at * size..][..size];
                add_scaled::<S>(scores[at * tokens + token], &v[column..][..size], o);
            }
        }
    }
}

/// Tokens for which a cache that is full gets room: a guess.
const GROWTH: usize = 128;

#[cfg(test)]
mod tests {
    use burn_backend::ops::FloatTensorOps;
    use burn_flex::Flex;
    use burn_tensor::TensorData;

    use super::super::FusedOps;
    use super::super::buf::contiguous;
    use super::super::tests::{BOUND, distance, heads, random};
    use super::*;

    /// With one new token and several, and with heads that share keys.
    #[test]
    fn attention_from_a_cache_is_the_plain_form() {
        for ([sequences, tokens, query, kv, size], new) in [
            ([1, 1, 1, 1, 2], 1),
            ([2, 9, 4, 2, 6], 1),
            ([3, 70, 6, 2, 33], 7),
            ([1, 5, 2, 2, 64], 5),
        ] {
            let op = Attend { heads: heads([sequences, tokens, query, kv, size]) };
            let tensor = |rows: usize, width: usize, seed| {
                let data = TensorData::new(random(rows * width, 2.0, seed), [rows, width]);
                Flex::float_from_data(data, &Default::default())
            };
            let q = tensor(sequences * new, query * size, 1);
            let [k, v] = [2, 3].map(|seed| {
                let cache = tensor(sequences * (tokens + 2), kv * size, seed);
                Flex::float_reshape(cache, [sequences, tokens + 2, kv * size].into())
            });
            let [fused] = Flex::untracked(op, [q.clone(), k.clone(), v.clone()]);
            let [plain] = op.plain::<Flex>([q, k, v]);
            let [fused, plain] = [fused, plain].map(|y| floats(&contiguous(y)).to_vec());
            assert!(distance(&fused, &plain) < BOUND, "{op:?}, {new} new");
        }
    }

    /// Token by token and several at once, over the end of its room; a text that shares its begin
    /// with another does not change it.
    #[test]
    fn a_cache_grows_as_if_all_tokens_had_come_at_once() {
        let (sequences, width) = (2, 3);
        let random = |tokens: usize, seed| {
            let numbers = random(sequences * tokens * width, 2.0, seed);
            let data = TensorData::new(numbers, [sequences, tokens, width]);
            Flex::float_from_data(data, &Default::default())
        };
        let held = |cache: &FlexTensor, tokens: usize| {
            let held = tensor::<Flex, 3>(cache.clone()).narrow(1, 0, tokens);
            held.into_data().into_vec::<f32>().unwrap()
        };
        let (mut cache, mut plain, mut length) = (random(2, 1), random(2, 1), 2);
        for (seed, count) in (2..).zip([1, GROWTH, 1, 2 * GROWTH + 5, 1]) {
            let (op, new) = (Append { length }, random(count, seed));
            let before = (cache.clone(), held(&cache, length));
            [cache] = Flex::untracked(op, [cache, new.clone()]);
            [plain] = op.plain::<Flex>([plain, new.clone()]);
            assert_eq!(held(&before.0, length), before.1);
            drop(before);
            let [again] = Flex::untracked(op, [cache.clone(), new]);
            length += count;
            assert_eq!(held(&cache, length), held(&plain, length));
            assert_eq!(held(&again, length), held(&plain, length));
        }
    }
}
