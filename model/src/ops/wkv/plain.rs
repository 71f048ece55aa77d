//! The recurrence in plain burn tensors, in chunks: matrix products inside chunks, and one step per
//! chunk that carries the state.
//!
//! It defines the operator for tests, and runs on GPUs where the kernels do not support the head
//! size. With Λ the log decays summed from one token to another, a token i of a chunk reads of an
//! earlier token j
//!
//! ```text
//! Σ_c r_ic·k_jc·exp(Λ_c(j+1 … i−1))·v_j
//! ```
//!
//! as a product of matrices: the exponential is split into a factor for r and one for k. That is
//! safe only if neither exponent is large, so sums start anew in each block of [`BLOCK`] tokens.

use crate::ops::project::matmul;
use burn_backend::tensor::FloatTensor;
use burn_backend::{Backend, TensorMetadata};
use burn_tensor::{Bool, Tensor, TensorData};

use crate::ops::operator::{FusedOps, primitive, tensor};
use crate::ops::reduce;

/// The number of tokens between two carried states.
const CHUNK: usize = 64;

/// The number of tokens in a block, in which decays are relative to the middle.
const BLOCK: usize = 8;

/// The smallest log decay, a factor of 1e-7. Half a block of such decays gives e⁶⁴, which f32 can
/// hold; with far smaller ones the sums would cancel.
const LOG_MIN: f32 = -16.0;

/// A constant matrix with ones where `one` is true and zeros elsewhere.
fn pattern<B: Backend>(
    size: usize,
    device: &B::Device,
    one: fn(usize, usize) -> bool,
) -> Tensor<B, 2> {
    let at = |i| if one(i / size, i % size) { 1.0 } else { 0.0 };
    let values: Vec<f32> = (0..size * size).map(at).collect();
    Tensor::from_data(TensorData::new(values, [size, size]), device)
}

/// Sums of the log decays of one block, [G, M, L, K]: G chunks of M blocks of L tokens.
struct Decays<B: Backend> {
    /// Up to and including each token, within its block.
    with: Tensor<B, 4>,
    /// Before each token, within its block.
    before: Tensor<B, 4>,
    /// After each token, within its block.
    after: Tensor<B, 4>,
    /// The sum over each block. // [G, M, K]
    total: Tensor<B, 3>,
}

impl<B: FusedOps> Decays<B> {
    /// The sums of the log decays `log`. // log [G, M, L, K]
    fn new(log: Tensor<B, 4>) -> Self {
        let device = log.device();
        let [chunks, blocks, tokens, size] = log.dims();
        let sum = |one| {
            let pattern = pattern::<B>(tokens, &device, one).unsqueeze::<4>();
            matmul(pattern.expand([chunks, blocks, tokens, tokens]), log.clone())
        };
        let (with, before, after) = (sum(|i, j| j <= i), sum(|i, j| j < i), sum(|i, j| j > i));
        let total = reduce::sum_dim(log, 2).reshape([chunks, blocks, size]);
        Self { with, before, after, total }
    }

    /// For each block, the sum of the totals of the blocks that `one` selects. // [G, M, 1, K]
    fn blocks(&self, one: fn(usize, usize) -> bool) -> Tensor<B, 4> {
        let [chunks, blocks, _] = self.total.dims();
        let pattern = pattern::<B>(blocks, &self.total.device(), one).unsqueeze::<3>();
        matmul(pattern.expand([chunks, blocks, blocks]), self.total.clone()).unsqueeze_dim(2)
    }
}

/// The chunked form: matrix products inside chunks, and one step per chunk that carries the state.
/// Decays are summed inside a block and combined from totals, so that every exponent is a sum of
/// non-positive terms, except in the diagonal blocks, where it is bounded.
pub(super) fn wkv<B: FusedOps>([r, k, v, w, u, state]: [FloatTensor<B>; 6]) -> [FloatTensor<B>; 2] {
    let state = tensor::<B, 4>(state);
    let [sequences, heads, size, _] = state.dims();
    let [rows, width] = r.shape().dims();
    let tokens = rows / sequences;
    let (chunks, heads_in_all) = (tokens.div_ceil(CHUNK), sequences * heads);
    let chunked = |x: Tensor<B, 2>| {
        let x = x.reshape([sequences, tokens, heads, size]).swap_dims(1, 2);
        let rest = chunks * CHUNK - tokens;
        let zeros = Tensor::zeros([sequences, heads, rest, size], &x.device());
        let padded = if rest > 0 { Tensor::cat(vec![x, zeros], 2) } else { x };
        padded.reshape([heads_in_all * chunks, CHUNK / BLOCK, BLOCK, size]) // [G, M, L, K]
    };
    let [r, k, v] = [r, k, v].map(|x| chunked(tensor(x)));
    let w: Tensor<B, 2> = match w.shape().num_dims() {
        1 => tensor::<B, 1>(w).unsqueeze::<2>().expand([rows, width]),
        _ => tensor(w),
    };
    let decays = Decays::new(chunked(w.exp().neg().clamp_min(LOG_MIN)));
    let u = tensor::<B, 1>(u).reshape([1, heads, 1, size]);
    let u = u.expand([sequences, heads, chunks, size]).reshape([heads_in_all * chunks, 1, 1, size]);

    // What a chunk adds to the state, and the states before each chunk.
    let flat = |x: Tensor<B, 4>| x.reshape([heads_in_all * chunks, CHUNK, size]);
    let stored = k.clone() * (decays.after.clone() + decays.blocks(|i, j| j > i)).exp();
    let added = matmul(flat(stored).swap_dims(1, 2), flat(v.clone())); // [G, K, K]
    let kept = reduce::sum_dim(decays.total.clone(), 1).exp();
    // A swap followed by a reshape would give wrong values on CubeCL: `split_strides` of burn-std
    // 0.21 mishandles the unit dimension.
    let kept = kept.reshape([heads_in_all * chunks, size, 1]); // [G, K, 1]
    let by_head = |x: Tensor<B, 3>, columns| x.reshape([heads_in_all, chunks, size, columns]);
    let (added, kept) = (by_head(added, size), by_head(kept, 1));
    let mut state = state.reshape([heads_in_all, 1, size, size]);
    let mut states = Vec::with_capacity(chunks);
    for chunk in 0..chunks {
        states.push(state.clone());
        state = state * kept.clone().narrow(1, chunk, 1) + added.clone().narrow(1, chunk, 1);
    }
    let states = Tensor::cat(states, 1).reshape([heads_in_all * chunks, size, size]);

    let reading = r.clone() * (decays.before.clone() + decays.blocks(|i, j| j < i)).exp();
    let from_state = matmul(flat(reading), states).reshape(v.dims());
    let bonus = reduce::sum_dim(r.clone() * u * k.clone(), 3) * v.clone();
    let y = from_state + within_chunks(r, k, v, &decays) + bonus;
    let y = y.reshape([sequences, heads, chunks * CHUNK, size]).narrow(2, 0, tokens);
    let state = state.reshape([sequences, heads, size, size]).detach();
    [primitive(y.swap_dims(1, 2).reshape([rows, width])), primitive(state)]
}

/// What the tokens of a chunk read from earlier tokens of the same chunk. // [G, M, L, K]
fn within_chunks<B: FusedOps>(
    r: Tensor<B, 4>,
    k: Tensor<B, 4>,
    v: Tensor<B, 4>,
    decays: &Decays<B>,
) -> Tensor<B, 4> {
    let later = Tensor::<B, 2, Bool>::tril_mask([BLOCK, BLOCK], -1, &r.device()).unsqueeze::<4>();
    let middle = decays.with.clone().narrow(2, BLOCK / 2 - 1, 1);
    let reading = r.clone() * (decays.before.clone() - middle.clone()).exp();
    let stored = k.clone() * (middle - decays.with.clone()).exp();
    // Above the diagonal a product may be infinite, so it is replaced, not multiplied by zero.
    let scores = matmul(reading, stored.swap_dims(2, 3)).mask_fill(later, 0.0); // [G, M, L, L]
    let own = matmul(scores, v.clone());

    let (reading, stored) = (r * decays.before.clone().exp(), k * decays.after.clone().exp());
    let block = |x: &Tensor<B, 4>, index| x.clone().narrow(1, index, 1); // [G, 1, L, K]
    let mut others = vec![block(&own, 0).zeros_like()];
    for i in 1..CHUNK / BLOCK {
        let mut sum = block(&own, i).zeros_like();
        let mut gap = decays.total.clone().narrow(1, i, 1).zeros_like().unsqueeze_dim::<4>(2);
        for j in (0..i).rev() {
            let stored = block(&stored, j) * gap.clone().exp();
            sum = sum + matmul(matmul(block(&reading, i), stored.swap_dims(2, 3)), block(&v, j));
            gap = gap + decays.total.clone().narrow(1, j, 1).unsqueeze_dim::<4>(2);
        }
        others.push(sum);
    }
    own + Tensor::cat(others, 1)
}
