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
//! In rows with several documents, "all earlier keys" (j ≤ t) means those of the query's own
//! document (b_t ≤ j ≤ t). A block of queries skips the keys before its first document, and masks
//! the keys of a document for queries of the next.
//!
//! One task processes one (sequence, key-value head) in blocks of [`BLOCK`] queries. Their scores
//! against all earlier keys fit into a cache, and a plain softmax normalises them. Only lse is
//! saved for the backward pass, which recomputes P. Memory is O(BLOCK·T) per thread. Query heads
//! that share a key-value head run in the same task, one after the other, so that their gradients
//! are added in a fixed order without locks.
//!
//! Scores have one row per *key*, so that the queries of a block are adjacent in vector registers.
//! Maximum and sum then need no reduction across lanes, and all rows have the same length,
//! independent of the causal mask.

#[cfg(feature = "cube")]
mod cube;

use std::sync::Arc;
#[cfg(feature = "cube")]
use std::sync::OnceLock;

use burn_backend::tensor::FloatTensor;
use burn_backend::{Backend, TensorMetadata};
use burn_flex::FlexTensor;
use burn_tensor::{Bool, Int, Tensor, TensorData};
use rayon::prelude::*;

use super::buf::{floats, floats_mut, make};
use super::clock;
#[cfg(feature = "cube")]
use super::cube::{GpuBackend, OnGpu};
use super::gemm::{Mat, MatMut, Threads, Write, product};
use super::lanes::{dot_lanes, exp, fma, simd};
use super::operator::{FusedOps, Operator, primitive, tensor};
use super::project::matmul;
use super::reduce;

/// The shape of an attention. A packed row is [H query heads | G key heads | G value heads], each K
/// wide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heads {
    /// B, sequences that do not see one another.
    pub sequences: usize,
    /// T, the tokens of each sequence.
    pub tokens: usize,
    /// H, the number of query heads, a multiple of G.
    pub query: usize,
    /// G, the number of key-value heads; query head j reads ⌊j·G/H⌋.
    pub kv: usize,
    /// K, the width of each head, of queries, keys and values.
    pub size: usize,
}

impl Heads {
    /// Width of a packed row, (H + 2G)·K.
    pub fn row(&self) -> usize {
        (self.query + 2 * self.kv) * self.size
    }

    /// Query heads per key-value head, H/G.
    pub fn group(&self) -> usize {
        self.query / self.kv
    }

    /// 1/√K, the factor of all scores.
    pub(super) fn scale(&self) -> f32 {
        1.0 / (self.size as f32).sqrt()
    }

    /// Heads `first..first + count` of packed rows. // [B, T, count, K]
    pub(super) fn of<B: Backend>(
        &self,
        qkv: &Tensor<B, 2>,
        first: usize,
        count: usize,
    ) -> Tensor<B, 4> {
        let columns = qkv.clone().narrow(1, first * self.size, count * self.size);
        columns.reshape([self.sequences, self.tokens, count, self.size])
    }

    /// Repeats each key-value head for every query head of its group.
    /// // x [B, T, G, K] → [B, H, T, K]
    pub(super) fn shared<B: Backend>(&self, x: Tensor<B, 4>) -> Tensor<B, 4> {
        let Self { sequences, tokens, query, kv, size } = *self;
        let x = x.swap_dims(1, 2);
        if self.group() == 1 {
            return x;
        }
        let x = x.reshape([sequences, kv, 1, tokens, size]);
        x.repeat_dim(2, self.group()).reshape([sequences, query, tokens, size])
    }
}

/// The start of each position's document in its row, which attention does not look beyond.
///
/// Several documents in one row are *packed*. Positions count through the whole row, which does not
/// matter, since rotary positions are relative.
#[derive(Clone, Debug)]
pub struct Documents {
    /// Shared by all clones, so that a GPU gets them once.
    starts: Arc<Starts>,
}

/// The starts of all rows, and their copy on a GPU.
#[derive(Debug)]
struct Starts {
    /// [B·T], rising within a row
    numbers: Vec<u32>,
    /// The same in the memory of the GPU, uploaded at first use.
    #[cfg(feature = "cube")]
    on_gpu: OnceLock<cubecl::server::Handle>,
}

impl Documents {
    /// Documents with these starts, which are not on a GPU yet.
    fn new(numbers: Vec<u32>) -> Self {
        let starts = Starts {
            numbers,
            #[cfg(feature = "cube")]
            on_gpu: OnceLock::new(),
        };
        Self { starts: Arc::new(starts) }
    }

    /// Rows that consist of one document each. `positions` is B·T.
    pub fn whole(positions: usize) -> Self {
        Self::new(vec![0; positions])
    }

    /// Built from the document number of each position, in rows of `length`; the number changes
    /// where a document begins. // numbers [B·T]
    pub fn packed(numbers: &[i32], length: usize) -> Self {
        let row = |row: &[i32]| {
            let mut start = 0;
            let begins = |at: usize| {
                if at > 0 && row[at] != row[at - 1] {
                    start = at;
                }
                start as u32
            };
            (0..row.len()).map(begins).collect::<Vec<_>>()
        };
        Self::new(numbers.chunks(length).flat_map(row).collect())
    }
}

/// y = softmax(mask(q·kᵀ/√K))·v, head by head; the mask hides later positions and other documents.
/// // qkv [B·T, (H + 2G)·K], y [B·T, H·K]
#[derive(Clone, Debug)]
pub struct Attention {
    /// The shape of the packed rows.
    pub heads: Heads,
    /// The documents, beyond which no query looks.
    pub documents: Documents,
}

impl Operator<1> for Attention {
    fn plain<B: FusedOps>(&self, [qkv]: [FloatTensor<B>; 1]) -> FloatTensor<B> {
        let Heads { sequences, tokens, query, kv, size } = self.heads;
        let qkv = tensor::<B, 2>(qkv);
        let q = self.heads.of(&qkv, 0, query).swap_dims(1, 2); // [B, H, T, K]
        let [k, v] =
            [query, query + kv].map(|first| self.heads.shared(self.heads.of(&qkv, first, kv)));
        let scores = matmul(q, k.swap_dims(2, 3)) * self.heads.scale(); // [B, H, T, T]
        let later = Tensor::<B, 2, Bool>::tril_mask([tokens, tokens], 0, &qkv.device());
        let scores = scores.mask_fill(later.unsqueeze::<4>(), f32::NEG_INFINITY);
        let starts: Vec<i32> =
            self.documents.starts.numbers.iter().map(|start| *start as i32).collect();
        let starts = TensorData::new(starts, [sequences, 1, tokens, 1]);
        let starts = Tensor::<B, 4, Int>::from_data(starts, &qkv.device()).repeat_dim(3, tokens);
        let keys = Tensor::<B, 1, Int>::arange(0..tokens as i64, &qkv.device());
        let earlier = keys.reshape([1, 1, 1, tokens as i32]).lower(starts); // [B, 1, T, T]
        let weights = reduce::softmax(scores.mask_fill(earlier, f32::NEG_INFINITY), 3);
        primitive(matmul(weights, v).swap_dims(1, 2).reshape([sequences * tokens, query * size]))
    }

    #[cfg(feature = "cube")]
    fn on_gpu<B: GpuBackend>(&self, [qkv]: [FloatTensor<B>; 1]) -> Option<OnGpu<B, 1>> {
        cube::attention::<B>(self, qkv)
    }

    /// qkv, y, log Σ exp of each row of scores
    type Saved = [FlexTensor; 3];

    fn forward(&self, [qkv]: [FlexTensor; 1]) -> (FlexTensor, Self::Saved) {
        let Heads { sequences, tokens, query, size, .. } = self.heads;
        let mut lse = make([sequences * query * tokens], |_| ());
        let y = make([sequences * tokens, query * size], |y| {
            forward(self.inputs(&qkv), y, floats_mut(&mut lse));
        });
        (y.clone(), [qkv, y, lse])
    }

    fn backward(&self, [qkv, y, lse]: Self::Saved, dy: FlexTensor) -> [FlexTensor; 1] {
        let saved = [&y, &lse, &dy].map(floats);
        [make(qkv.shape(), |dqkv| backward(self.inputs(&qkv), saved, dqkv))]
    }
}

impl Attention {
    /// The inputs as slices; nothing is copied.
    fn inputs<'a>(&'a self, qkv: &'a FlexTensor) -> Inputs<'a> {
        Inputs { qkv: floats(qkv), starts: &self.documents.starts.numbers, heads: self.heads }
    }
}

/// Queries per block: the scores of a block at T = 256 are 64 KiB, a share of the L2 cache.
const BLOCK: usize = 64;

/// One number for each query of a block, such as its score with one key.
type Row = [f32; BLOCK];

/// What the kernels on slices read.
#[derive(Clone, Copy)]
struct Inputs<'a> {
    /// The packed rows. // [B·T, (H + 2G)·K]
    qkv: &'a [f32],
    /// The start of each position's document. // [B·T]
    starts: &'a [u32],
    /// The shape of the packed rows.
    heads: Heads,
}

impl<'a> Inputs<'a> {
    /// Iterates over the sequences, and for each over its key-value heads.
    fn sequences(self) -> impl Iterator<Item = impl Iterator<Item = Packed<'a>>> {
        let Self { qkv, starts, heads } = self;
        let rows = qkv.chunks(heads.tokens * heads.row()).zip(starts.chunks(heads.tokens));
        rows.map(move |(rows, starts)| {
            (0..heads.kv).map(move |kv_head| Packed { rows, starts, heads, kv_head })
        })
    }
}

/// One key-value head in the packed rows of one sequence, with its queries.
#[derive(Clone, Copy)]
struct Packed<'a> {
    /// The rows of the sequence. // [T, (H + 2G)·K]
    rows: &'a [f32],
    /// The start of each token's document. // `[T]`
    starts: &'a [u32],
    /// The shape of the packed rows.
    heads: Heads,
    /// The key-value head, counted from 0.
    kv_head: usize,
}

/// Queries `start..end`, and the keys from `first` on, which at least one of them sees.
#[derive(Clone, Copy)]
struct Block<'a> {
    /// The first key that one of the queries sees.
    first: usize,
    /// The first query of the block, a multiple of [`BLOCK`].
    start: usize,
    /// One behind the last query, and so behind the last key.
    end: usize,
    /// The start of each query's document.
    starts: &'a [u32],
}

impl<'a> Packed<'a> {
    /// The K columns of a head in rows `start..end`.
    fn head(&self, head: usize, start: usize, end: usize) -> Mat<'a> {
        let (row, size) = (self.heads.row(), self.heads.size);
        Mat::strided(&self.rows[start * row + head * size..], end - start, size, row)
    }

    /// Query head `member` of the group. // [end − start, K]
    fn query(&self, member: usize, start: usize, end: usize) -> Mat<'a> {
        self.head(self.kv_head * self.heads.group() + member, start, end)
    }

    /// The keys that a block sees. // [end − first, K]
    fn keys(&self, block: Block<'_>) -> Mat<'a> {
        self.head(self.heads.query + self.kv_head, block.first, block.end)
    }

    /// The values of these keys. // [end − first, K]
    fn values(&self, block: Block<'_>) -> Mat<'a> {
        self.head(self.heads.query + self.heads.kv + self.kv_head, block.first, block.end)
    }

    /// All blocks of queries, in order.
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
fn forward(inputs: Inputs<'_>, o: &mut [f32], lse: &mut [f32]) {
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

/// One key-value head with its query heads, block by block. `s` is scratch for T rows of scores.
fn forward_head(packed: Packed<'_>, o: MatMut<'_>, lse: &mut [f32], s: &mut [Row]) {
    let heads @ Heads { tokens, size, .. } = packed.heads;
    let members = o.into_cols(size).into_iter().zip(lse.chunks_mut(tokens)).enumerate();
    for (member, (mut o, lse)) in members {
        for block in packed.blocks() {
            let Block { first, start, end, .. } = block;
            let (s, queries) = (&mut s[..end - first], end - start);
            let q = packed.query(member, start, end);
            let (k, v) = (packed.keys(block), packed.values(block));
            // Keys are the rows, so that the softmax of each query is in a lane of its own.
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

/// One task of the backward pass: a key-value head of a sequence, and views of its gradients.
struct Task<'a> {
    /// The inputs of this head, from which P is computed again.
    packed: Packed<'a>,
    /// The outputs of all heads of the sequence. // [T, H·K]
    o: &'a [f32],
    /// The incoming gradients of these outputs. // [T, H·K]
    d_o: &'a [f32],
    /// log Σ exp of the queries of this key-value head. // [H/G, T]
    lse: &'a [f32],
    /// The gradient of the queries of the group, which is written once. // [T, H/G·K]
    dq: MatMut<'a>,
    /// The gradient of the keys, summed over blocks and query heads. // [T, K]
    dk: MatMut<'a>,
    /// The gradient of the values, summed alike. // [T, K]
    dv: MatMut<'a>,
}

/// Gradient of the packed rows. // o, d_o [B·T, H·K], lse [B, G, H/G, T], dqkv [B·T, (H + 2G)·K]
fn backward(inputs: Inputs<'_>, [o, lse, d_o]: [&[f32]; 3], dqkv: &mut [f32]) {
    let _timer = clock::start("attention back");
    let heads @ Heads { tokens, query, kv, size, .. } = inputs.heads;
    let group = heads.group();
    let mut tasks = Vec::with_capacity(heads.sequences * kv);
    let packed = inputs.sequences().zip(dqkv.chunks_mut(tokens * heads.row()));
    let outputs = o.chunks(tokens * query * size).zip(d_o.chunks(tokens * query * size));
    let sequences = packed.zip(outputs).zip(lse.chunks(query * tokens));
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

/// The gradients of one task; `s` and `dp` are scratch for T rows each.
fn backward_head(task: Task<'_>, s: &mut [Row], dp: &mut [Row]) {
    let Task { packed, o, d_o, lse, dq, mut dk, mut dv } = task;
    let heads @ Heads { tokens, size, query, .. } = packed.heads;
    // The last block overwrites dK and dV of every key that it sees; keys in earlier documents
    // start at zero. The other blocks add to both.
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

            // s and dP, with keys as rows; then P and dS, and from these dq, dv and dk.
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
    /// Masks keys for earlier queries and for queries of later documents. // [end − first]
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
    /// ⟨a, b⟩ of the first `size` columns of `count` rows, one row every `row` elements.
    fn row_dots<S>(a: &[f32], b: &[f32], row: usize, size: usize, count: usize) -> Row {
        let mut dots = [0.0; BLOCK];
        for (i, dot) in dots[..count].iter_mut().enumerate() {
            let at = i * row..i * row + size;
            *dot = dot_lanes::<S>(&a[at.clone()], &b[at]);
        }
        dots
    }

    /// Replaces scores by the weights of a softmax over the keys. Returns lse, the logarithm of
    /// each query's normaliser.
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
            lse[i] = shift[i] + libm::logf(sums[i]);
            sums[i] = 1.0 / sums[i];
        }
        for row in scores.iter_mut() {
            for i in 0..BLOCK {
                row[i] *= sums[i];
            }
        }
        lse
    }

    /// For the gradient: replaces s by P = exp(scale·s − lse), and dp by dS = scale·P∘(dP − D).
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

#[cfg(test)]
mod tests;
