//! The WKV recurrence on slices, forward and backward, in time linear in T.
//!
//! With the decay d = exp(lw), lw = −exp(w), for each head (Peng et al. 2024):
//!
//! ```text
//! y_t = r_t·S_{t−1} + ⟨r_t∘u, k_t⟩·v_t        S_t = diag(d_t)·S_{t−1} + k_tᵀv_t
//!
//! G_{t−1} = diag(d_t)·G_t + r_tᵀg_t            g = dL/dy, G_t = dL/dS_t, nothing beyond the last
//! dr_t = S_{t−1}·g_t + u∘k_t·⟨v_t, g_t⟩        du   = Σ_t r_t∘k_t·⟨v_t, g_t⟩
//! dk_t = G_t·v_t     + u∘r_t·⟨v_t, g_t⟩        dw_t = lw_t∘q_t
//! dv_t = k_t·G_t     + ⟨r_t∘u, k_t⟩·g_t        dS_{−1} = G_{−1}
//! ```
//!
//! q_t = d_t∘rowsum(G_t∘S_{t−1}) would need both states of a token at once. With p_t =
//! rowsum(G_t∘S_t), the two recurrences give
//!
//! ```text
//! q_t = p_t − k_t∘(G_t·v_t)        p_{t−1} = q_t + r_t∘(S_{t−1}·g_t)
//! ```
//!
//! (the form of Yang et al. 2023, arXiv 2312.06635, appendix C, token by token). So each state is
//! processed separately, and p is recomputed from both after each span of [`SPAN`] tokens, before
//! rounding errors accumulate.
//!
//! Time is divided into chunks of [`CHUNK`] tokens. The forward pass saves the state before each
//! chunk, and the backward pass runs from there forward once more and then back. Inside a chunk the
//! recurrence runs token by token. On a CPU, whose L1 cache holds a head's state, that costs 3·K
//! operations per channel, fewer than the matrix products of a form without states inside the
//! chunk. Its exponents are never above zero, for any decay, so it needs no clamp.
//!
//! A state is needed in both orientations. As rows of keys its lanes are values, which suits `q·S`;
//! as rows of values its lanes are keys, which suits `S·x`. Where both are needed, both are
//! updated, since an update is cheaper than a sum across lanes. Lanes are padded to whole
//! registers.
//!
//! One task processes one (sequence, head); sums over tasks are added in a fixed order.

#[cfg(feature = "cube")]
mod cube;
mod plain;
mod scan;
#[cfg(test)]
pub(super) mod tests;

use burn_backend::TensorMetadata;
use burn_backend::tensor::FloatTensor;
use burn_flex::FlexTensor;
use rayon::prelude::*;

pub use self::scan::STATE_TOKENS;

use self::scan::{
    CHUNK, Chunk, Order, Orientation, PaddedMatrix, Scan, add_bonus, add_rows, decay, finish, load,
    scan, sum_of_products,
};
use super::buf::{contiguous, floats, floats_mut, make};
use super::clock;
#[cfg(feature = "cube")]
use super::cube::{GpuBackend, OnGpuOfMany};
use super::gemm::MatMut;
use super::operator::{FusedOps, MultiOutput};
use super::rows::add_up;

/// The recurrence. Inputs: receptance, keys and values r, k, v [B·T, D]; the raw decay w of every
/// token [B·T, D] or of all \[D\]; the bonus u \[D\] of the present token; and the state before the
/// first token, H heads of key × value. Per token a state decays by exp(−exp w). Returns y [B·T, D]
/// and the last state, through which no gradient flows. // state [B, H, K, K]
#[derive(Clone, Copy, Debug)]
pub struct Wkv;

impl MultiOutput<6, 2> for Wkv {
    fn plain<B: FusedOps>(&self, inputs: [FloatTensor<B>; 6]) -> [FloatTensor<B>; 2] {
        plain::wkv::<B>(inputs)
    }

    /// The inputs, and the states before the chunks.
    type Saved = ([FlexTensor; 6], FlexTensor);

    fn forward(&self, inputs: [FlexTensor; 6]) -> ([FlexTensor; 2], Self::Saved) {
        let shape = Shape::of(&inputs);
        let mut kept = make([shape.kept_in_all()], |_| ());
        let mut last = make(inputs[5].shape(), |_| ());
        let y = make(inputs[0].shape(), |y| {
            let outputs = [y, floats_mut(&mut kept), floats_mut(&mut last)];
            forward(Inputs::of(&inputs), shape, outputs);
        });
        ([y, last], (inputs, kept))
    }

    fn backward(
        &self,
        (inputs, kept): Self::Saved,
        [dy, _]: [Option<FlexTensor>; 2],
    ) -> [FlexTensor; 6] {
        let none = || make(inputs[0].shape(), |dy| dy.fill(0.0));
        let dy = dy.map_or_else(none, contiguous);
        let mut gradients = inputs.each_ref().map(|input| make(input.shape(), |_| ()));
        let outputs = gradients.each_mut().map(floats_mut);
        backward(Inputs::of(&inputs), Shape::of(&inputs), floats(&kept), floats(&dy), outputs);
        gradients
    }

    #[cfg(feature = "cube")]
    fn on_gpu<B: GpuBackend>(&self, inputs: [FloatTensor<B>; 6]) -> Option<OnGpuOfMany<B, 6, 2>> {
        cube::wkv::<B>(inputs)
    }
}

/// Tokens over which p is carried. With 8 the gradient of w is off by 3.1e-6 from the reference,
/// with the plain form by 2.3e-6, and with 32 by 1.3e-5 (the vectors of Finch, 2026-11).
const SPAN: usize = 8;

/// The sizes of all tensors in one pass.
#[derive(Clone, Copy, Debug)]
struct Shape {
    /// B, each with a state of its own.
    sequences: usize,
    /// T, the tokens of each sequence.
    tokens: usize,
    /// H, which do not depend on each other.
    heads: usize,
    /// K, the width of a head: its state is K × K.
    size: usize,
}

impl Shape {
    /// Reads B, H and K off the state, and T off r.
    fn of([r, .., state]: &[FlexTensor; 6]) -> Self {
        let [sequences, heads, size] = [0, 1, 2].map(|i| state.shape()[i]);
        Self { sequences, tokens: r.shape()[0] / sequences, heads, size }
    }

    /// D = H·K, the channels of a row.
    fn width(self) -> usize {
        self.heads * self.size
    }

    /// Elements of the states of one head before each chunk.
    fn kept(self) -> usize {
        self.tokens.div_ceil(CHUNK) * self.size * self.size
    }

    /// Elements of the states before every chunk of every head. // [B, H, chunks, K, K]
    fn kept_in_all(self) -> usize {
        self.sequences * self.heads * self.kept()
    }
}

/// The inputs as slices. A `w` of D numbers is a decay that is the same for every token.
/// // r, k, v [B·T, D], w [B·T, D] or `[D]`, u `[D]`, state [B, H, K, K]
#[derive(Clone, Copy)]
struct Inputs<'a> {
    /// Receptance, by which the state is read. // [B·T, D]
    r: &'a [f32],
    /// Keys, one for each token. // [B·T, D]
    k: &'a [f32],
    /// Values, one for each token. // [B·T, D]
    v: &'a [f32],
    /// The logarithm of the decay's rate: d = exp(−exp w). // [B·T, D] or `[D]`
    w: &'a [f32],
    /// The weight of the present token beside the state. // `[D]`
    u: &'a [f32],
    /// The states before the first token. // [B, H, K, K]
    state: &'a [f32],
}

impl<'a> Inputs<'a> {
    /// The inputs as slices; nothing is copied.
    fn of(inputs: &'a [FlexTensor; 6]) -> Self {
        let [r, k, v, w, u, state] = inputs.each_ref().map(floats);
        Self { r, k, v, w, u, state }
    }
}

/// One head of one sequence, the unit of a task.
#[derive(Clone, Copy)]
struct Head<'a> {
    /// The inputs of all heads, of which this one reads its columns.
    inputs: Inputs<'a>,
    /// The sizes of the whole pass.
    shape: Shape,
    /// The sequence, counted from 0 in the batch.
    sequence: usize,
    /// The head, counted from 0 in the sequence.
    head: usize,
}

impl<'a> Head<'a> {
    /// All heads of all sequences, in the order of the states in memory.
    fn all(inputs: Inputs<'a>, shape: Shape) -> impl Iterator<Item = Self> {
        (0..shape.sequences).flat_map(move |sequence| {
            (0..shape.heads).map(move |head| Self { inputs, shape, sequence, head })
        })
    }

    /// Copies this head's channels of the tokens from `start` on from a matrix [B·T, D].
    fn copy(&self, matrix: &[f32], start: usize, count: usize, rows: &mut PaddedMatrix) {
        let Shape { tokens, size, .. } = self.shape;
        let width = self.shape.width();
        let first = (self.sequence * tokens + start) * width + self.head * size;
        load(rows, count, &matrix[first..], size, width);
    }

    /// This head's part of a vector of all channels. // D to K
    fn channels<'b>(&self, vector: &'b [f32]) -> &'b [f32] {
        &vector[self.head * self.shape.size..][..self.shape.size]
    }

    /// This head's u, padded to whole registers.
    fn bonus(&self) -> PaddedMatrix {
        let mut u = PaddedMatrix::zeros(1, self.shape.size);
        u.write(0, self.channels(self.inputs.u));
        u
    }

    /// Loads the tokens from `start` on, at most a chunk.
    fn load(&self, chunk: &mut Chunk, start: usize) {
        let Inputs { r, k, v, w, .. } = self.inputs;
        chunk.tokens = CHUNK.min(self.shape.tokens - start);
        for (rows, matrix) in [(&mut chunk.r, r), (&mut chunk.k, k), (&mut chunk.v, v)] {
            self.copy(matrix, start, chunk.tokens, rows);
        }
        if w.len() == self.shape.width() {
            load(&mut chunk.decay, chunk.tokens, self.channels(w), self.shape.size, 0);
        } else {
            self.copy(w, start, chunk.tokens, &mut chunk.decay);
        }
        decay(&mut chunk.decay.lanes, &mut chunk.slope.lanes);
    }
}

/// The columns of each head in each sequence's rows.
fn windows(matrix: &mut [f32], shape: Shape) -> impl Iterator<Item = MatMut<'_>> {
    let (tokens, width) = (shape.tokens, shape.width());
    let sequences = matrix.chunks_mut(tokens * width);
    sequences.flat_map(move |rows| MatMut::new(rows, tokens, width).into_cols(shape.size))
}

/// Runs the recurrence over every head, and writes y [B·T, D], the states before the chunks, and
/// the last state [B, H, K, K].
fn forward(inputs: Inputs<'_>, shape: Shape, [y, kept, last]: [&mut [f32]; 3]) {
    let _timer = clock::start("wkv");
    let size = shape.size;
    let states = inputs.state.chunks(size * size).zip(last.chunks_mut(size * size));
    let states = states.zip(kept.chunks_mut(shape.kept()));
    let tasks: Vec<_> = Head::all(inputs, shape).zip(windows(y, shape)).zip(states).collect();
    tasks.into_par_iter().for_each_init(
        || (Chunk::new(size), PaddedMatrix::zeros(CHUNK, size)),
        |(chunk, y), ((head, mut window), ((before, last), kept))| {
            let mut state = PaddedMatrix::states(1, size);
            state.write_state(before, size);
            let u = head.bonus();
            let starts = (0..shape.tokens).step_by(CHUNK);
            for (start, kept) in starts.zip(kept.chunks_exact_mut(size * size)) {
                state.read_state(kept, size);
                head.load(chunk, start);
                let Chunk { r, k, v, decay, .. } = &*chunk;
                let orientation = Orientation::RowsAreKeys;
                let tokens = Scan { read: r, rows: k, lanes: v, decay, orientation };
                scan(tokens, 0..chunk.tokens, Order::Forth, &mut state, y);
                add_bonus(chunk, u.row(0), y);
                for t in 0..chunk.tokens {
                    y.read(t, window.row_mut(start + t));
                }
            }
            state.read_state(last, size);
        },
    );
}

/// The outputs of the backward pass for one head.
struct HeadGradients<'a> {
    /// The columns of this head in dr, dk and dv. // [T, K] each
    r: MatMut<'a>,
    /// dk: what later tokens read of this key, and what its own token reads.
    k: MatMut<'a>,
    /// dv, of the same two parts as dk.
    v: MatMut<'a>,
    /// [T, K]; for a constant decay, one row that is summed over sequences
    w: MatMut<'a>,
    /// du of one sequence, to be summed over sequences. // `[K]`
    u: &'a mut [f32],
    /// The gradient of the state before the first token. // [K, K]
    state: &'a mut [f32],
}

/// The gradients of [`forward`], each of its input's shape, from the gradient `g` of y and the
/// `kept` states.
fn backward(
    inputs: Inputs<'_>,
    shape: Shape,
    kept: &[f32],
    g: &[f32],
    [dr, dk, dv, dw, du, ds]: [&mut [f32]; 6],
) {
    let _timer = clock::start("wkv back");
    let Shape { sequences, size, .. } = shape;
    let width = shape.width();
    let constant = inputs.w.len() == width;
    // Gradients of parameters that the sequences share, first computed for each sequence.
    let mut u = vec![0.0; sequences * width];
    let mut w = vec![0.0; if constant { sequences * width } else { 0 }];
    let decays: Vec<_> = if constant {
        w.chunks_mut(size).map(|row| MatMut::new(row, 1, size)).collect()
    } else {
        windows(&mut *dw, shape).collect()
    };
    let rkv = windows(dr, shape).zip(windows(dk, shape));
    let rkv = rkv.zip(windows(dv, shape)).zip(decays);
    let rest = u.chunks_mut(size).zip(ds.chunks_mut(size * size));
    let parts =
        rkv.zip(rest).map(|((((r, k), v), w), (u, state))| HeadGradients { r, k, v, w, u, state });
    let tasks: Vec<_> =
        Head::all(inputs, shape).zip(parts).zip(kept.chunks(shape.kept())).collect();
    tasks.into_par_iter().for_each_init(
        || Back::new(size),
        |back, ((head, gradients), kept)| back.head(head, g, kept, gradients),
    );
    add_up(&[u], du);
    if constant {
        add_up(&[w], dw);
    }
}

/// The memory of one thread's backward pass.
struct Back {
    /// The inputs of the chunk that is worked on.
    chunk: Chunk,
    /// Sᵀ, the state with keys as lanes.
    state: PaddedMatrix,
    /// Its value after each span, from which p is computed.
    after: [PaddedMatrix; CHUNK / SPAN],
    /// S_{t−1}·g_t, G_t·v_t, nothing, k_t·G_t; then dr, dk, dw, dv
    out: [PaddedMatrix; 4],
}

impl Back {
    /// Memory for heads of K = `size` channels.
    fn new(size: usize) -> Self {
        let rows = || PaddedMatrix::zeros(CHUNK, size);
        let out = [rows(), rows(), rows(), rows()];
        let state = || PaddedMatrix::states(1, size);
        let after = std::array::from_fn(|_| state());
        Self { chunk: Chunk::new(size), state: state(), after, out }
    }

    /// The gradients of one head. Chunks go from the last to the first. In each, S runs forward
    /// from the state that was kept, and then G backward, in both orientations.
    fn head(&mut self, head: Head<'_>, g: &[f32], kept: &[f32], mut gradients: HeadGradients<'_>) {
        let Self { chunk, state, after, out } = self;
        let size = head.shape.size;
        let u = head.bonus();
        let row = || PaddedMatrix::zeros(1, size);
        let (mut du, mut constant_dw, mut p) = (row(), row(), row());
        let (mut forth, mut turned) =
            (PaddedMatrix::states(1, size), PaddedMatrix::states(1, size)); // G, Gᵀ
        let chunks = (0..head.shape.tokens).step_by(CHUNK).zip(kept.chunks_exact(size * size));
        for (start, kept) in chunks.rev() {
            head.load(chunk, start);
            head.copy(g, start, chunk.tokens, &mut chunk.g);
            state.write_transposed(kept, size);
            let Chunk { r, k, v, decay, g, tokens, .. } = &*chunk;
            let spans = (0..*tokens).step_by(SPAN).map(|start| start..*tokens.min(&(start + SPAN)));
            // S_{t−1}·g_t for dr, and the state behind each span.
            let states =
                Scan { read: g, rows: v, lanes: k, decay, orientation: Orientation::LanesAreKeys };
            for (span, after) in spans.clone().zip(&mut *after) {
                scan(states, span, Order::Forth, state, &mut out[0]);
                after.lanes.copy_from_slice(&state.lanes);
            }
            // k_t·G_t, the part of dv that comes from later tokens.
            let of_values =
                Scan { read: k, rows: r, lanes: g, decay, orientation: Orientation::RowsAreKeys };
            scan(of_values, 0..*tokens, Order::Back, &mut forth, &mut out[3]);
            // G_t·v_t for dk, span by span from the last. Each span begins with a p that is
            // computed anew, so that errors do not grow over a chunk.
            let of_keys =
                Scan { read: v, rows: g, lanes: r, decay, orientation: Orientation::LanesAreKeys };
            for (span, after) in spans.zip(&*after).rev() {
                sum_of_products(&turned.lanes, &after.lanes, p.row_mut(0));
                scan(of_keys, span.clone(), Order::Back, &mut turned, &mut out[1]);
                finish(chunk, span, u.row(0), p.row_mut(0), out, du.row_mut(0));
            }
            for i in 0..chunk.tokens {
                out[0].read(i, gradients.r.row_mut(start + i));
                out[1].read(i, gradients.k.row_mut(start + i));
                out[3].read(i, gradients.v.row_mut(start + i));
            }
            if gradients.w.rows() == 1 {
                add_rows(constant_dw.row_mut(0), &out[2], chunk.tokens);
                constant_dw.read(0, gradients.w.row_mut(0));
            } else {
                for i in 0..chunk.tokens {
                    out[2].read(i, gradients.w.row_mut(start + i));
                }
            }
        }
        du.read(0, gradients.u);
        forth.read_state(gradients.state, size);
    }
}
