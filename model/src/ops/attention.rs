//! Causal grouped-query attention without a T×T tensor, forward and backward, on slices.
//!
//! With scale c = 1/√K, for each query head and position t (Vaswani et al. 2017; saved statistics
//! as in FlashAttention, Dao et al. 2022):
//!
//! ```text
//! s_tj = c·⟨q_t, k_j⟩,  lse_t = ln Σ_{j≤t} exp s_tj
//! P_tj = exp(s_tj − lse_t),  o_t = Σ_{j≤t} P_tj v_j
//! D_t = ⟨do_t, o_t⟩,  dS_tj = c·P_tj (⟨do_t, v_j⟩ − D_t)
//! dq_t = Σ_j dS_tj k_j,  dk_j = Σ_{t≥j} dS_tj q_t,  dv_j = Σ_{t≥j} P_tj do_t
//! ```
//!
//! Where rows hold several documents, "all earlier keys" (j ≤ t) means those of the query's own
//! document (b_t ≤ j ≤ t): a block of queries leaves out the keys before its first document, and
//! hides those of a document from the queries of the next.
//!
//! One task owns one (sequence, key-value head) and works through blocks of [`BLOCK`] queries:
//! their scores against all earlier keys fit into a cache, a plain softmax normalises them, and
//! only lse is kept for the backward pass, which recomputes P. Memory is O(BLOCK·T) per thread.
//! Query heads that share a key-value head run in the same task, one after the other, so that their
//! gradients add up in a fixed order without locks.
//!
//! Scores are kept with one row per *key*, so that the queries of a block lie side by side in
//! vector registers: maximum and sum need no reduction across lanes, and rows have one length
//! wherever the causal edge is.

use pulp::Simd;
use rayon::prelude::*;

use super::Heads;
use super::clock;
use super::gemm::{Mat, MatMut, Threads, Write, product};
use super::lanes::{dot_lanes, exp, exp_lanes, fma, max_lanes, simd};

/// y += c·x
#[inline(always)]
fn add_scaled<S: Simd>(c: f32, x: &[f32], y: &mut [f32]) {
    for i in 0..y.len() {
        y[i] = fma::<S>(c, x[i], y[i]);
    }
}

/// Queries per block: the scores of a block at T = 256 are 64 KiB, a share of the L2 cache.
const BLOCK: usize = 64;

/// Scores of a block of queries with one key each, or anything else of that shape.
type Row = [f32; BLOCK];

/// What attention reads.
#[derive(Clone, Copy)]
pub(super) struct Inputs<'a> {
    /// [B·T, (H + 2G)·K]
    pub(super) qkv: &'a [f32],
    /// Where each position's document begins. // [B·T]
    pub(super) starts: &'a [u32],
    pub(super) heads: Heads,
}

impl<'a> Inputs<'a> {
    /// One sequence after the other, each with one key-value head after the other.
    fn sequences(self) -> impl Iterator<Item = impl Iterator<Item = Packed<'a>>> {
        let Self { qkv, starts, heads } = self;
        let rows = qkv.chunks(heads.tokens * heads.row()).zip(starts.chunks(heads.tokens));
        rows.map(move |(rows, starts)| {
            (0..heads.kv).map(move |kv_head| Packed { rows, starts, heads, kv_head })
        })
    }
}

/// The packed rows of one sequence, from which one key-value head and its queries are read.
#[derive(Clone, Copy)]
struct Packed<'a> {
    rows: &'a [f32],
    starts: &'a [u32],
    heads: Heads,
    kv_head: usize,
}

/// Queries at `start..end`, and the keys from `first` that one of them at least sees.
#[derive(Clone, Copy)]
struct Block<'a> {
    first: usize,
    start: usize,
    end: usize,
    /// Where each query's document begins.
    starts: &'a [u32],
}

impl<'a> Packed<'a> {
    /// The K columns of one head in rows `start..end`.
    fn head(&self, head: usize, start: usize, end: usize) -> Mat<'a> {
        let (row, size) = (self.heads.row(), self.heads.size);
        Mat::strided(&self.rows[start * row + head * size..], end - start, size, row)
    }

    /// Query head `member` of the group. // [end − start, K]
    fn query(&self, member: usize, start: usize, end: usize) -> Mat<'a> {
        self.head(self.kv_head * self.heads.group() + member, start, end)
    }

    /// Keys that a block sees. // [end − first, K]
    fn keys(&self, block: Block<'_>) -> Mat<'a> {
        self.head(self.heads.query + self.kv_head, block.first, block.end)
    }

    /// Their values. // [end − first, K]
    fn values(&self, block: Block<'_>) -> Mat<'a> {
        self.head(self.heads.query + self.heads.kv + self.kv_head, block.first, block.end)
    }

    /// The blocks of queries, in order.
    fn blocks(&self) -> impl DoubleEndedIterator<Item = Block<'a>> {
        let (tokens, starts) = (self.heads.tokens, self.starts);
        (0..tokens.div_ceil(BLOCK)).map(move |index| {
            let (start, end) = (index * BLOCK, tokens.min((index + 1) * BLOCK));
            let starts = &starts[start..end];
            Block { first: starts[0] as usize, start, end, starts }
        })
    }
}

/// Attention of packed rows. // o [B·T, H·K], lse [B, G, H/G, T]
pub(super) fn forward(inputs: Inputs<'_>, o: &mut [f32], lse: &mut [f32]) {
    let _timer = clock::start("attention");
    let heads @ Heads { tokens, query, size, .. } = inputs.heads;
    let sequences = o.chunks_mut(tokens * query * size).zip(inputs.sequences());
    let tasks = sequences.flat_map(|(o, packed)| {
        let windows = MatMut::new(o, tokens, query * size).into_cols(heads.group() * size);
        packed.zip(windows)
    });
    let tasks: Vec<_> = tasks.zip(lse.chunks_mut(heads.group() * tokens)).collect();
    tasks.into_par_iter().for_each_init(
        || vec![[0.0; BLOCK]; tokens],
        |s, ((packed, o), lse)| forward_head(packed, o, lse, s),
    );
}

fn forward_head(packed: Packed<'_>, o: MatMut<'_>, lse: &mut [f32], s: &mut [Row]) {
    let heads @ Heads { tokens, size, .. } = packed.heads;
    let members = o.into_cols(size).into_iter().zip(lse.chunks_mut(tokens)).enumerate();
    for (member, (mut o, lse)) in members {
        for block in packed.blocks() {
            let Block { first, start, end, .. } = block;
            let (s, queries) = (&mut s[..end - first], end - start);
            let q = packed.query(member, start, end);
            let (k, v) = (packed.keys(block), packed.values(block));
            product(writable(s, queries), Write::Replace, k, q.t(), Threads::Here);
            block.hide(s);
            let statistics = softmax(s, heads.scale());
            lse[start..end].copy_from_slice(&statistics[..queries]);
            let p = readable(s, queries);
            product(o.rows_mut(start, end), Write::Replace, p.t(), v, Threads::Here);
        }
    }
}

/// The first `queries` columns. // [keys, queries]
fn readable(scores: &[Row], queries: usize) -> Mat<'_> {
    Mat::strided(scores.as_flattened(), scores.len(), queries, BLOCK)
}

/// The first `queries` columns. // [keys, queries]
fn writable(scores: &mut [Row], queries: usize) -> MatMut<'_> {
    let keys = scores.len();
    MatMut::strided(scores.as_flattened_mut(), keys, queries, BLOCK)
}

/// What a text that goes on attends with and to: queries of its newest tokens, keys and values of all.
#[derive(Clone, Copy)]
pub(super) struct Cached<'a> {
    /// [B·S, H·K]
    pub(super) q: &'a [f32],
    /// [B·T, G·K]
    pub(super) k: &'a [f32],
    /// [B·T, G·K]
    pub(super) v: &'a [f32],
    /// T tokens
    pub(super) heads: Heads,
}

/// Attention of the newest tokens, one query of one head at a time. // o [B·S, H·K]
pub(super) fn attend(cached: Cached<'_>, o: &mut [f32]) {
    let _timer = clock::start("attention");
    let Cached { q, k, v, heads } = cached;
    let Heads { sequences, tokens, query, kv, size } = heads;
    let (new, step) = (q.len() / (sequences * query * size), kv * size);
    let outputs = o.par_chunks_mut(size).zip(q.par_chunks(size)).enumerate();
    outputs.for_each_init(
        || vec![0.0; tokens],
        |scores, (index, (o, q))| {
            let (row, head) = (index / query, index % query);
            // The newest sees all, the one before it all but one.
            let seen = tokens - new + row % new + 1;
            let first = row / new * tokens * step + head / heads.group() * size;
            attend_one(q, [&k[first..], &v[first..]], step, heads.scale(), &mut scores[..seen], o);
        },
    );
}

/// What the forward pass left, and the gradient of its output.
#[derive(Clone, Copy)]
pub(super) struct Saved<'a> {
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
pub(super) fn backward(inputs: Inputs<'_>, saved: Saved<'_>, dqkv: &mut [f32]) {
    let _timer = clock::start("attention back");
    let heads @ Heads { tokens, query, kv, size, .. } = inputs.heads;
    let group = heads.group();
    let mut tasks = Vec::with_capacity(heads.sequences * kv);
    let packed = inputs.sequences().zip(dqkv.chunks_mut(tokens * heads.row()));
    let outputs =
        saved.o.chunks(tokens * query * size).zip(saved.d_o.chunks(tokens * query * size));
    let sequences = packed.zip(outputs).zip(saved.lse.chunks(query * tokens));
    for (((packed, dqkv), (o, d_o)), lse) in sequences {
        let (dq, rest) = MatMut::new(dqkv, tokens, heads.row()).split_cols(query * size);
        let (dk, dv) = rest.split_cols(kv * size);
        let keys = dk.into_cols(size).into_iter().zip(dv.into_cols(size));
        let queries = dq.into_cols(group * size).into_iter().zip(lse.chunks(group * tokens));
        for (packed, ((dq, lse), (dk, dv))) in packed.zip(queries.zip(keys)) {
            tasks.push(Task { packed, o, d_o, lse, dq, dk, dv });
        }
    }
    tasks.into_par_iter().for_each_init(
        || (vec![[0.0; BLOCK]; tokens], vec![[0.0; BLOCK]; tokens]),
        |(s, dp), task| backward_head(task, s, dp),
    );
}

fn backward_head(task: Task<'_>, s: &mut [Row], dp: &mut [Row]) {
    let Task { packed, o, d_o, lse, dq, mut dk, mut dv } = task;
    let heads @ Heads { tokens, size, query, .. } = packed.heads;
    // The last block writes dK and dV of every key that it sees; the others add to them, and to the
    // zeros of keys in earlier documents.
    let seen = packed.blocks().next_back().map_or(0, |block| block.first);
    for gradient in [&mut dk, &mut dv] {
        gradient.rows_mut(0, seen).zero();
    }
    let mut write = Write::Replace;
    let members = dq.into_cols(size).into_iter().zip(lse.chunks(tokens)).enumerate();
    for (member, (mut dq, lse)) in members {
        let column = (packed.kv_head * heads.group() + member) * size;
        for block in packed.blocks().rev() {
            let Block { first, start, end, .. } = block;
            let (s, dp, queries) = (&mut s[..end - first], &mut dp[..end - first], end - start);
            let at = start * query * size + column;
            let (o, d_o) = (&o[at..], &d_o[at..]);
            let g = Mat::strided(d_o, queries, size, query * size);
            let q = packed.query(member, start, end);
            let (k, v) = (packed.keys(block), packed.values(block));

            product(writable(s, queries), Write::Replace, k, q.t(), Threads::Here);
            product(writable(dp, queries), Write::Replace, v, g.t(), Threads::Here);
            let mut block_lse = [0.0; BLOCK];
            block_lse[..queries].copy_from_slice(&lse[start..end]);
            let d = row_dots(o, d_o, query * size, size, queries);
            block.hide(s);
            softmax_grad(s, dp, heads.scale(), &block_lse, &d);
            let (p, ds) = (readable(s, queries), readable(dp, queries));
            product(dq.rows_mut(start, end), Write::Replace, ds.t(), k, Threads::Here);
            product(dv.rows_mut(first, end), write, p, g, Threads::Here);
            product(dk.rows_mut(first, end), write, ds, q, Threads::Here);
            write = Write::Add;
        }
    }
}

impl Block<'_> {
    /// Hides keys from the queries before them and from those of later documents. // [end − first]
    fn hide(self, scores: &mut [Row]) {
        for (i, row) in scores[self.start - self.first..].iter_mut().enumerate() {
            row[..i].fill(f32::NEG_INFINITY);
        }
        let last = self.starts.last().map_or(0, |start| *start as usize);
        for (key, row) in (self.first..last).zip(scores) {
            let seen = self.starts.partition_point(|start| *start as usize <= key);
            row[seen..].fill(f32::NEG_INFINITY);
        }
    }
}

simd! {
    /// o = softmax(scale·k·q)·v, of keys and values one row every `step` elements, as many as scores.
    /// // `q, o [K]`
    fn attend_one<S>(
        q: &[f32], kv: [&[f32]; 2], step: usize, scale: f32, scores: &mut [f32], o: &mut [f32],
    ) {
        let [k, v] = kv;
        for (score, k) in scores.iter_mut().zip(k.chunks(step)) {
            *score = dot_lanes::<S>(q, &k[..q.len()]);
        }
        let shift = scale * max_lanes(scores);
        let sum = exp_lanes::<S>(scores, scale, shift);
        o.fill(0.0);
        for (weight, v) in scores.iter().zip(v.chunks(step)) {
            add_scaled::<S>(weight / sum, &v[..q.len()], o);
        }
    }

    /// ⟨a, b⟩ of the first `size` columns of each of `count` rows, one every `row` elements.
    fn row_dots<S>(a: &[f32], b: &[f32], row: usize, size: usize, count: usize) -> Row {
        let mut dots = [0.0; BLOCK];
        for (i, dot) in dots[..count].iter_mut().enumerate() {
            let at = i * row..i * row + size;
            *dot = dot_lanes::<S>(&a[at.clone()], &b[at]);
        }
        dots
    }

    /// Scores become the weights of a softmax over the keys. Returns lse, the logarithm of each
    /// query's normaliser.
    fn softmax<S>(scores: &mut [Row], scale: f32) -> Row {
        let mut shift = [f32::NEG_INFINITY; BLOCK];
        for row in scores.iter() {
            for i in 0..BLOCK {
                shift[i] = if row[i] > shift[i] { row[i] } else { shift[i] };
            }
        }
        for shift in &mut shift {
            *shift *= scale;
        }
        let mut sums = [0.0; BLOCK];
        for row in scores.iter_mut() {
            for i in 0..BLOCK {
                row[i] = exp::<S>(fma::<S>(row[i], scale, -shift[i]));
                sums[i] += row[i];
            }
        }
        let mut lse = [0.0; BLOCK];
        for i in 0..BLOCK {
            lse[i] = shift[i] + sums[i].ln();
            sums[i] = 1.0 / sums[i];
        }
        for row in scores.iter_mut() {
            for i in 0..BLOCK {
                row[i] *= sums[i];
            }
        }
        lse
    }

    /// The same for the gradient: s becomes P = exp(scale·s − lse), dp becomes
    /// dS = scale·P∘(dP − D).
    fn softmax_grad<S>(s: &mut [Row], dp: &mut [Row], scale: f32, lse: &Row, d: &Row) {
        for (s, dp) in s.iter_mut().zip(dp) {
            for i in 0..BLOCK {
                let p = exp::<S>(fma::<S>(s[i], scale, -lse[i]));
                s[i] = p;
                dp[i] = p * (dp[i] - d[i]) * scale;
            }
        }
    }
}
