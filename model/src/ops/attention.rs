//! Causal grouped-query attention without a T×T tensor, forward and backward, on slices.
//!
//! With scale c = 1/√K, for each query head and position t (Vaswani et al. 2017; saved statistics as in
//! FlashAttention, Dao et al. 2022):
//!
//! ```text
//! s_tj = c·⟨q_t, k_j⟩,  lse_t = ln Σ_{j≤t} exp s_tj,  P_tj = exp(s_tj − lse_t),  o_t = Σ_{j≤t} P_tj v_j
//! D_t = ⟨do_t, o_t⟩,  dS_tj = c·P_tj (⟨do_t, v_j⟩ − D_t)
//! dq_t = Σ_j dS_tj k_j,  dk_j = Σ_{t≥j} dS_tj q_t,  dv_j = Σ_{t≥j} P_tj do_t
//! ```
//!
//! One task owns one (sequence, key-value head) and works through blocks of [`BLOCK`] query rows: their scores against
//! all earlier keys fit into a cache, a plain softmax normalises them, and only lse is kept for the backward pass, which
//! recomputes P. Memory is O(BLOCK·T) per thread. Query heads that share a key-value head run in the same task, one
//! after the other, so that their gradients add up in a fixed order without locks.

use pulp::Simd;
use rayon::prelude::*;

use super::Heads;
use super::clock;
use super::gemm::{Mat, MatMut, Threads, Write, product};
use super::lanes::{BLOCK as LINE, dot_lanes, exp, exp_lanes, fma, max_lanes, simd};

/// Query rows per block: the scores of a block at T = 256 are 64 KiB, a share of the L2 cache.
const BLOCK: usize = 64;

/// The packed rows of one sequence, from which one key-value head and its queries are read.
#[derive(Clone, Copy)]
struct Packed<'a> {
    rows: &'a [f32],
    heads: Heads,
    kv_head: usize,
}

impl<'a> Packed<'a> {
    /// Columns `column..column + K` of rows `start..end`.
    fn window(&self, column: usize, start: usize, end: usize) -> Mat<'a> {
        let row = self.heads.row();
        Mat::strided(&self.rows[start * row + column..], end - start, self.heads.size, row)
    }

    /// Query head `member` of the group. // [end − start, K]
    fn query(&self, member: usize, start: usize, end: usize) -> Mat<'a> {
        let head = self.kv_head * self.heads.group() + member;
        self.window(head * self.heads.size, start, end)
    }

    fn keys(&self, end: usize) -> Mat<'a> {
        self.window((self.heads.query + self.kv_head) * self.heads.size, 0, end)
    }

    fn values(&self, end: usize) -> Mat<'a> {
        let head = self.heads.query + self.heads.kv + self.kv_head;
        self.window(head * self.heads.size, 0, end)
    }
}

/// Attention of packed rows. // qkv [B·T, (H + 2G)·K], o [B·T, H·K], lse [B, G, H/G, T]
pub(super) fn forward(qkv: &[f32], heads: Heads, o: &mut [f32], lse: &mut [f32]) {
    let _timer = clock::start("attention");
    let Heads { tokens, query, size, .. } = heads;
    let sequences = o.chunks_mut(tokens * query * size).zip(qkv.chunks(tokens * heads.row()));
    let tasks = sequences.flat_map(|(o, rows)| {
        let windows = MatMut::new(o, tokens, query * size).into_cols(heads.group() * size);
        windows
            .into_iter()
            .enumerate()
            .map(move |(kv_head, o)| (Packed { rows, heads, kv_head }, o))
    });
    let tasks: Vec<_> = tasks.zip(lse.chunks_mut(heads.group() * tokens)).collect();
    tasks.into_par_iter().for_each_init(
        || vec![0.0; BLOCK * tokens],
        |scores, ((packed, o), lse)| forward_head(packed, o, lse, scores),
    );
}

fn forward_head(packed: Packed<'_>, o: MatMut<'_>, lse: &mut [f32], scores: &mut [f32]) {
    let Heads { tokens, size, .. } = packed.heads;
    let heads = o.into_cols(size).into_iter().zip(lse.chunks_mut(tokens)).enumerate();
    for (member, (mut o, lse)) in heads {
        for start in (0..tokens).step_by(BLOCK) {
            let end = tokens.min(start + BLOCK);
            let scores = &mut scores[..(end - start) * end];
            let (q, k, v) =
                (packed.query(member, start, end), packed.keys(end), packed.values(end));
            let s = MatMut::new(scores, end - start, end);
            product(s, Write::Replace, q, k.t(), Threads::Here);
            let scale = packed.heads.scale();
            causal_softmax(scores, end, start, scale, &mut lse[start..end]);
            let p = Mat::new(scores, end - start, end);
            product(o.rows_mut(start, end), Write::Replace, p, v, Threads::Here);
        }
    }
}

/// What the forward pass left, and the gradient of its output.
#[derive(Clone, Copy)]
pub(super) struct Saved<'a> {
    /// [B·T, (H + 2G)·K]
    pub(super) qkv: &'a [f32],
    /// [B·T, H·K]
    pub(super) o: &'a [f32],
    /// [B, G, H/G, T]
    pub(super) lse: &'a [f32],
    /// [B·T, H·K]
    pub(super) d_o: &'a [f32],
}

/// One task of the backward pass: a key-value head of a sequence and the windows of its gradients.
struct Task<'a> {
    packed: Packed<'a>,
    /// Outputs, statistics and incoming gradients of the sequence.
    o: &'a [f32],
    d_o: &'a [f32],
    lse: &'a [f32],
    /// [T, H/G·K], [T, K], [T, K]
    dq: MatMut<'a>,
    dk: MatMut<'a>,
    dv: MatMut<'a>,
}

/// Gradient of the packed rows. // dqkv [B·T, (H + 2G)·K]
pub(super) fn backward(saved: Saved<'_>, heads: Heads, dqkv: &mut [f32]) {
    let _timer = clock::start("attention back");
    let Heads { tokens, query, kv, size, .. } = heads;
    let group = heads.group();
    let mut tasks = Vec::with_capacity(heads.sequences * kv);
    let packed = saved.qkv.chunks(tokens * heads.row()).zip(dqkv.chunks_mut(tokens * heads.row()));
    let outputs =
        saved.o.chunks(tokens * query * size).zip(saved.d_o.chunks(tokens * query * size));
    let sequences = packed.zip(outputs).zip(saved.lse.chunks(query * tokens));
    for (((rows, dqkv), (o, d_o)), lse) in sequences {
        let (dq, rest) = MatMut::new(dqkv, tokens, heads.row()).split_cols(query * size);
        let (dk, dv) = rest.split_cols(kv * size);
        let keys = dk.into_cols(size).into_iter().zip(dv.into_cols(size));
        let queries = dq.into_cols(group * size).into_iter().zip(lse.chunks(group * tokens));
        for (kv_head, ((dq, lse), (dk, dv))) in queries.zip(keys).enumerate() {
            let packed = Packed { rows, heads, kv_head };
            tasks.push(Task { packed, o, d_o, lse, dq, dk, dv });
        }
    }
    tasks.into_par_iter().for_each_init(
        || (vec![0.0; BLOCK * tokens], vec![0.0; BLOCK * tokens]),
        |(s, dp), task| backward_head(task, s, dp),
    );
}

fn backward_head(task: Task<'_>, s: &mut [f32], dp: &mut [f32]) {
    let Task { packed, o, d_o, lse, dq, mut dk, mut dv } = task;
    let heads @ Heads { tokens, size, query, .. } = packed.heads;
    // The last block sees every key, so it writes all of dK and dV; the others add to them.
    let mut write = Write::Replace;
    let members = dq.into_cols(size).into_iter().zip(lse.chunks(tokens)).enumerate();
    for (member, (mut dq, lse)) in members {
        let column = (packed.kv_head * heads.group() + member) * size;
        let mut d = vec![0.0; tokens];
        column_dots(o, d_o, query * size, column, size, &mut d);
        let statistics: Vec<_> = lse.iter().zip(&d).map(|(&lse, &d)| [lse, d]).collect();
        for start in (0..tokens).step_by(BLOCK).rev() {
            let end = tokens.min(start + BLOCK);
            let block = end - start;
            let (s, dp) = (&mut s[..block * end], &mut dp[..block * end]);
            let (q, k, v) =
                (packed.query(member, start, end), packed.keys(end), packed.values(end));
            let g = &d_o[start * query * size + column..];
            let g = Mat::strided(g, block, size, query * size);

            product(MatMut::new(s, block, end), Write::Replace, q, k.t(), Threads::Here);
            product(MatMut::new(dp, block, end), Write::Replace, g, v.t(), Threads::Here);
            let statistics = &statistics[start..end];
            causal_softmax_grad(s, dp, end, start, heads.scale(), statistics);
            let (p, ds) = (Mat::new(s, block, end), Mat::new(dp, block, end));
            product(dq.rows_mut(start, end), Write::Replace, ds, k, Threads::Here);
            product(dv.rows_mut(0, end), write, p.t(), g, Threads::Here);
            product(dk.rows_mut(0, end), write, ds.t(), q, Threads::Here);
            write = Write::Add;
        }
    }
}

/// Splits a row after the first `seen` elements, rounded up to whole blocks where the row is that long; what was
/// rounded up to is overwritten with `filler`.
#[inline(always)]
fn whole_blocks(row: &mut [f32], seen: usize, filler: f32) -> (&mut [f32], &mut [f32]) {
    let whole = seen.next_multiple_of(LINE).min(row.len());
    row[seen..whole].fill(filler);
    row.split_at_mut(whole)
}

/// P = exp(scale·s − lse) over s, dS = scale·P∘(dP − D) over dP.
#[inline(always)]
fn softmax_grad_block<S: Simd>(s: &mut [f32], dp: &mut [f32], scale: f32, lse: f32, d: f32) {
    for i in 0..s.len() {
        let p = exp::<S>(fma::<S>(s[i], scale, -lse));
        s[i] = p;
        dp[i] = p * (dp[i] - d) * scale;
    }
}

simd! {
    /// dots[t] = ⟨a, b⟩ of the `size` columns from `column` of row t.
    fn column_dots<S>(a: &[f32], b: &[f32], row: usize, column: usize, size: usize, dots: &mut [f32]) {
        for (t, dot) in dots.iter_mut().enumerate() {
            let at = t * row + column;
            *dot = dot_lanes::<S>(&a[at..at + size], &b[at..at + size]);
        }
    }

    /// Scores of queries `start..` against keys `0..width` become the weights of a causal softmax: zero beyond the
    /// query's own position. lse[i] is the logarithm of the normaliser.
    fn causal_softmax<S>(scores: &mut [f32], width: usize, start: usize, scale: f32, lse: &mut [f32]) {
        for (i, (row, lse)) in scores.chunks_exact_mut(width).zip(lse).enumerate() {
            let (seen, later) = whole_blocks(row, start + i + 1, f32::NEG_INFINITY);
            later.fill(0.0);
            let max = max_lanes(seen) * scale;
            let sum = exp_lanes::<S>(seen, scale, max);
            *lse = max + sum.ln();
            let normaliser = 1.0 / sum;
            for x in seen {
                *x *= normaliser;
            }
        }
    }

    /// The same for the gradient: s becomes P = exp(scale·s − lse), dp becomes dS = scale·P∘(dP − D).
    fn causal_softmax_grad<S>(
        s: &mut [f32], dp: &mut [f32], width: usize, start: usize, scale: f32, statistics: &[[f32; 2]],
    ) {
        let rows = s.chunks_exact_mut(width).zip(dp.chunks_exact_mut(width));
        for (i, ((s, dp), &[lse, d])) in rows.zip(statistics).enumerate() {
            let (s, s_later) = whole_blocks(s, start + i + 1, f32::NEG_INFINITY);
            let (dp, dp_later) = whole_blocks(dp, start + i + 1, 0.0);
            s_later.fill(0.0);
            dp_later.fill(0.0);
            let ((s, s_rest), (dp, dp_rest)) = (s.as_chunks_mut::<LINE>(), dp.as_chunks_mut::<LINE>());
            for i in 0..s.len() {
                softmax_grad_block::<S>(&mut s[i], &mut dp[i], scale, lse, d);
            }
            softmax_grad_block::<S>(s_rest, dp_rest, scale, lse, d);
        }
    }
}
