//! The kernels of the recurrence on CPUs: states and the tokens of a chunk as rows of whole
//! registers, and the scans over them.
//!
//! A scan goes through the tokens of a chunk, and for each token through a whole state, which fits
//! into the L1 cache. Lanes do not depend on each other, so a scan processes one tile of [`WIDE`]
//! registers after another, whose sums stay in registers.

use std::ops::Range;

use pulp::Simd;

use crate::ops::lanes::{BLOCK, exp, fma, simd, sum_block};

/// One register, aligned so that no load crosses a cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Lanes(pub(super) [f32; BLOCK]);

/// A matrix whose rows are whole registers, padded with zeros. A state has as many rows as lanes.
pub(super) struct PaddedMatrix {
    /// The elements, row by row, in registers of [`BLOCK`].
    pub(super) lanes: Vec<Lanes>,
    /// The number of registers per row.
    pub(super) blocks: usize,
}

impl PaddedMatrix {
    /// `rows` rows of `size` elements each, all zero.
    pub(super) fn zeros(rows: usize, size: usize) -> Self {
        let blocks = size.div_ceil(BLOCK);
        Self { lanes: vec![Lanes([0.0; BLOCK]); rows * blocks], blocks }
    }

    /// `count` states of this head size, all zero.
    pub(super) fn states(count: usize, size: usize) -> Self {
        Self::zeros(count * size.next_multiple_of(BLOCK), size)
    }

    /// A row of whole registers, its padding included.
    pub(super) fn row(&self, index: usize) -> &[Lanes] {
        &self.lanes[index * self.blocks..][..self.blocks]
    }

    /// The same row, to be written; its padding has to stay zero.
    pub(super) fn row_mut(&mut self, index: usize) -> &mut [Lanes] {
        &mut self.lanes[index * self.blocks..][..self.blocks]
    }

    /// Replaces the row `index`; its padding stays zero.
    #[inline(always)]
    pub(super) fn write(&mut self, index: usize, values: &[f32]) {
        let (whole, rest) = values.as_chunks();
        let row = self.row_mut(index);
        // Copied register by register: a copy of unknown length would be a function call.
        for (lanes, values) in row.iter_mut().zip(whole) {
            lanes.0 = *values;
        }
        if !rest.is_empty() {
            row[whole.len()].0[..rest.len()].copy_from_slice(rest);
        }
    }

    /// Copies the row `index` without its padding.
    pub(super) fn read(&self, index: usize, values: &mut [f32]) {
        let (whole, rest) = values.as_chunks_mut();
        let row = self.row(index);
        for (values, lanes) in whole.iter_mut().zip(row) {
            *values = lanes.0;
        }
        if !rest.is_empty() {
            rest.copy_from_slice(&row[whole.len()].0[..rest.len()]);
        }
    }

    /// Writes a state from its K×K elements.
    pub(super) fn write_state(&mut self, state: &[f32], size: usize) {
        for (i, row) in state.chunks_exact(size).enumerate() {
            self.write(i, row);
        }
    }

    /// Writes the transpose of a state from its K×K elements, so that its lanes are keys.
    pub(super) fn write_transposed(&mut self, state: &[f32], size: usize) {
        for (i, row) in state.chunks_exact(size).enumerate() {
            for (j, &value) in row.iter().enumerate() {
                self.row_mut(j)[i / BLOCK].0[i % BLOCK] = value;
            }
        }
    }

    /// Copies a state's K×K elements without padding.
    pub(super) fn read_state(&self, state: &mut [f32], size: usize) {
        for (i, row) in state.chunks_exact_mut(size).enumerate() {
            self.read(i, row);
        }
    }
}

/// The tokens of one chunk of one head. A last chunk may have fewer tokens than rows; the rows
/// behind them are of an earlier chunk and are not used.
pub(super) struct Chunk {
    /// The tokens that are here, at most [`CHUNK`].
    pub(super) tokens: usize,
    /// Receptance, a row for each token.
    pub(super) r: PaddedMatrix,
    /// Keys, one row for each token.
    pub(super) k: PaddedMatrix,
    /// Values, one row for each token.
    pub(super) v: PaddedMatrix,
    /// w as it is loaded, then d = exp(−exp w) in its place.
    pub(super) decay: PaddedMatrix,
    /// d ln d/dw = −exp w, or 0 where the state is lost.
    pub(super) slope: PaddedMatrix,
    /// dL/dy, only in the backward pass.
    pub(super) g: PaddedMatrix,
}

impl Chunk {
    /// Memory for [`CHUNK`] tokens of a head of K = `size` channels.
    pub(super) fn new(size: usize) -> Self {
        let rows = || PaddedMatrix::zeros(CHUNK, size);
        let (r, k, v, decay, slope, g) = (rows(), rows(), rows(), rows(), rows(), rows());
        Self { tokens: 0, r, k, v, decay, slope, g }
    }
}

/// sum += the first `count` rows of x.
pub(super) fn add_rows(sum: &mut [Lanes], x: &PaddedMatrix, count: usize) {
    for i in 0..count {
        for (sum, x) in sum.iter_mut().zip(x.row(i)) {
            for l in 0..BLOCK {
                sum.0[l] += x.0[l];
            }
        }
    }
}

/// The direction in which a scan goes through the tokens.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// From the first token to the last.
    Forth,
    /// From the last token to the first.
    Back,
}

/// The tokens of a [`scan`]: out_t = read_t·S, then S decays and rows_tᵀ·lanes_t is added.
#[derive(Clone, Copy)]
pub(super) struct Scan<'a> {
    /// What the state is multiplied by from the left.
    pub(super) read: &'a PaddedMatrix,
    /// The factor of what is added that runs along the state's rows.
    pub(super) rows: &'a PaddedMatrix,
    /// The factor of what is added that runs along its lanes.
    pub(super) lanes: &'a PaddedMatrix,
    /// The decays, which belong to keys.
    pub(super) decay: &'a PaddedMatrix,
    /// Which dimension of the state has the decays.
    pub(super) orientation: Orientation,
}

/// The layout of a state: which dimension is along a register.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Orientation {
    /// Rows are keys and lanes are values.
    RowsAreKeys,
    /// Lanes are keys and rows are values.
    LanesAreKeys,
}

/// [`scan`] of one tile of W registers of lanes, which do not depend on the others. For each token,
/// ⟨read, S⟩ goes to `out`, and then S becomes decay∘S + rows·lanes.
#[inline(always)]
fn scan_tile<S: Simd, const W: usize>(
    scan: Scan<'_>,
    times: impl Iterator<Item = usize>,
    tile: usize,
    state: &mut PaddedMatrix,
    out: &mut PaddedMatrix,
) {
    let blocks = state.blocks;
    for t in times {
        let lanes = tile_of::<W>(scan.lanes.row(t), tile);
        let decays = tile_of::<W>(scan.decay.row(t), tile);
        let mut sums = [[0.0; BLOCK]; W];
        for block in 0..blocks {
            let read = scan.read.row(t)[block].0;
            let decay = scan.decay.row(t)[block].0;
            let rows = scan.rows.row(t)[block].0;
            for l in 0..BLOCK {
                let state = &mut state.lanes[(block * BLOCK + l) * blocks + tile * W..][..W];
                for b in 0..W {
                    for i in 0..BLOCK {
                        let decay = if scan.orientation == Orientation::RowsAreKeys {
                            decay[l]
                        } else {
                            decays[b][i]
                        };
                        let s = &mut state[b].0[i];
                        sums[b][i] = fma::<S>(read[l], *s, sums[b][i]);
                        *s = fma::<S>(decay, *s, rows[l] * lanes[b][i]);
                    }
                }
            }
        }
        store_tile(out.row_mut(t), tile, sums);
    }
}

/// [`sum_of_products`] of one tile of W registers of lanes.
#[inline(always)]
fn sum_tile<S: Simd, const W: usize>(a: &[Lanes], b: &[Lanes], tile: usize, sum: &mut [Lanes]) {
    let mut sums = [[0.0; BLOCK]; W];
    for (a, b) in a.chunks_exact(sum.len()).zip(b.chunks_exact(sum.len())) {
        let (a, b) = (tile_of::<W>(a, tile), tile_of::<W>(b, tile));
        for j in 0..W {
            for i in 0..BLOCK {
                sums[j][i] = fma::<S>(a[j][i], b[j][i], sums[j][i]);
            }
        }
    }
    store_tile(sum, tile, sums);
}

/// The registers of a row that belong to a tile, by value, so that they stay in registers.
#[inline(always)]
fn tile_of<const W: usize>(row: &[Lanes], tile: usize) -> [[f32; BLOCK]; W] {
    let row = &row[tile * W..][..W];
    // `from_fn` would be a function call for each register.
    let mut values = [[0.0; BLOCK]; W];
    for b in 0..W {
        values[b] = row[b].0;
    }
    values
}

/// Writes the registers of a tile back into a row.
#[inline(always)]
fn store_tile<const W: usize>(row: &mut [Lanes], tile: usize, values: [[f32; BLOCK]; W]) {
    for (b, values) in values.into_iter().enumerate() {
        row[tile * W + b] = Lanes(values);
    }
}

/// ⟨a∘b, c⟩ in the order of [`sum_block`].
#[inline(always)]
fn dot3<S: Simd>(a: &[Lanes], b: &[Lanes], c: &[Lanes]) -> f32 {
    let mut sums = [0.0; BLOCK];
    for j in 0..a.len() {
        let (a, b, c) = (&a[j].0, &b[j].0, &c[j].0);
        for i in 0..BLOCK {
            sums[i] = fma::<S>(a[i] * b[i], c[i], sums[i]);
        }
    }
    sum_block(&sums)
}

/// ⟨a, b⟩ in the order of [`sum_block`].
#[inline(always)]
fn dot<S: Simd>(a: &[Lanes], b: &[Lanes]) -> f32 {
    let mut sums = [0.0; BLOCK];
    for j in 0..a.len() {
        let (a, b) = (&a[j].0, &b[j].0);
        for i in 0..BLOCK {
            sums[i] = fma::<S>(a[i], b[i], sums[i]);
        }
    }
    sum_block(&sums)
}

/// y += c·a∘b. This and the functions below are separate because the compiler knows only of
/// function arguments that they do not overlap; without that it does not vectorise the loop.
#[inline(always)]
fn add_product<S: Simd>(y: &mut [Lanes], c: f32, a: &[Lanes], b: &[Lanes]) {
    for j in 0..y.len() {
        let (a, b, mut sums) = (a[j].0, b[j].0, y[j].0);
        for i in 0..BLOCK {
            sums[i] = fma::<S>(c * a[i], b[i], sums[i]);
        }
        y[j].0 = sums;
    }
}

/// y += c·x; see [`add_product`].
#[inline(always)]
fn add_scaled<S: Simd>(y: &mut [Lanes], c: f32, x: &[Lanes]) {
    for j in 0..y.len() {
        let (x, mut sums) = (x[j].0, y[j].0);
        for i in 0..BLOCK {
            sums[i] = fma::<S>(c, x[i], sums[i]);
        }
        y[j].0 = sums;
    }
}

/// Computes dw of a token from p after the token, and turns p into its value before the token.
#[inline(always)]
fn step_back<S: Simd>(p: &mut [Lanes], dw: &mut [Lanes], of: OfToken<'_>) {
    for j in 0..p.len() {
        let (k, of_k, r, of_r) = (of.k[j].0, of.of_k[j].0, of.r[j].0, of.of_r[j].0);
        let (slope, mut dws, mut after) = (of.slope[j].0, dw[j].0, p[j].0);
        for i in 0..BLOCK {
            let q = fma::<S>(-k[i], of_k[i], after[i]);
            dws[i] = slope[i] * q;
            after[i] = fma::<S>(r[i], of_r[i], q);
        }
        (dw[j].0, p[j].0) = (dws, after);
    }
}

/// The inputs of [`step_back`] for one token.
#[derive(Clone, Copy)]
struct OfToken<'a> {
    /// The row of keys, of which lanes are channels.
    k: &'a [Lanes],
    /// G_t·v_t, as `of_keys` left it in the output for k.
    of_k: &'a [Lanes],
    /// The row of receptance, with the same lanes.
    r: &'a [Lanes],
    /// S_{t−1}·g_t, as `states` left it in the output for r.
    of_r: &'a [Lanes],
    /// d ln d/dw of the token, as [`Chunk::slope`] has it.
    slope: &'a [Lanes],
}

/// The number of tokens between two states that the recurrence keeps for its backward pass. With
/// heads of 64 channels the kept states take as much memory as two activations. The states of all
/// tokens between two of them take 512 KiB of cache.
pub const STATE_TOKENS: usize = 32;

/// The number of tokens between two states that the forward pass keeps.
pub(super) const CHUNK: usize = STATE_TOKENS;

/// A log decay below this leaves no trace of the state in f32, so nothing depends on w: its q, a
/// difference of sums, would be nothing but rounding.
const LOST: f32 = -17.0;

/// The number of registers in a tile of a wide head: enough independent sums to hide their latency,
/// few enough to stay in registers.
const WIDE: usize = 4;

simd! {
    /// Turns w into d = exp(lw), and sets `slope` to d ln d/dw = lw = −exp(w), or to 0 below
    /// [`LOST`].
    pub(super) fn decay<S>(w: &mut [Lanes], slope: &mut [Lanes]) {
        for (w, slope) in w.iter_mut().zip(slope) {
            let (mut decays, mut slopes) = (w.0, slope.0);
            for i in 0..BLOCK {
                let log = -exp::<S>(decays[i]);
                slopes[i] = if log < LOST { 0.0 } else { log };
                decays[i] = exp::<S>(log);
            }
            (w.0, slope.0) = (decays, slopes);
        }
    }

    /// Fills the first `count` rows of `to`, each with `size` elements, from rows of `from` that
    /// are `step` elements apart.
    pub(super) fn load<S>(to: &mut PaddedMatrix, count: usize, from: &[f32], size: usize, step: usize) {
        for i in 0..count {
            to.write(i, &from[i * step..][..size]);
        }
    }

    /// Scans `tokens` in the given order: out_t = read_t·S, then the state takes its next value. In
    /// the order `Back` the next value is that of the token before.
    pub(super) fn scan<S>(
        scan: Scan<'_>, tokens: Range<usize>, order: Order, state: &mut PaddedMatrix, out: &mut PaddedMatrix,
    ) {
        let Range { start, end } = tokens;
        let times = (start..end).map(|t| match order {
            Order::Forth => t,
            Order::Back => start + end - 1 - t,
        });
        // Each arm compiles to its own loop without a branch inside.
        match (scan.orientation, state.blocks.is_multiple_of(WIDE)) {
            (Orientation::RowsAreKeys, true) => {
                let scan = Scan { orientation: Orientation::RowsAreKeys, ..scan };
                for tile in 0..state.blocks / WIDE {
                    scan_tile::<S, WIDE>(scan, times.clone(), tile, state, out);
                }
            }
            (Orientation::LanesAreKeys, true) => {
                let scan = Scan { orientation: Orientation::LanesAreKeys, ..scan };
                for tile in 0..state.blocks / WIDE {
                    scan_tile::<S, WIDE>(scan, times.clone(), tile, state, out);
                }
            }
            (Orientation::RowsAreKeys | Orientation::LanesAreKeys, false) => {
                for tile in 0..state.blocks {
                    scan_tile::<S, 1>(scan, times.clone(), tile, state, out);
                }
            }
        }
    }

    /// sum = Σ of the rows of a∘b, two states with the same layout.
    pub(super) fn sum_of_products<S>(a: &[Lanes], b: &[Lanes], sum: &mut [Lanes]) {
        if sum.len().is_multiple_of(WIDE) {
            // Loops, because the body of a closure is not always compiled for the instruction set.
            for tile in 0..sum.len() / WIDE {
                sum_tile::<S, WIDE>(a, b, tile, sum);
            }
        } else {
            for tile in 0..sum.len() {
                sum_tile::<S, 1>(a, b, tile, sum);
            }
        }
    }

    /// y_t += ⟨r_t∘u, k_t⟩·v_t, what the present token adds to its own output.
    pub(super) fn add_bonus<S>(chunk: &Chunk, u: &[Lanes], y: &mut PaddedMatrix) {
        for t in 0..chunk.tokens {
            let weight = dot3::<S>(chunk.r.row(t), u, chunk.k.row(t));
            add_scaled::<S>(y.row_mut(t), weight, chunk.v.row(t));
        }
    }

    /// Computes dw of the tokens of one span from the sums p after its last token, turns p into the
    /// sums before its first one, and adds what the current token contributes to each gradient.
    pub(super) fn finish<S>(
        chunk: &Chunk, tokens: Range<usize>, u: &[Lanes], p: &mut [Lanes], out: &mut [PaddedMatrix; 4],
        du: &mut [Lanes],
    ) {
        for t in tokens.rev() {
            let (r, k, v, g) = (chunk.r.row(t), chunk.k.row(t), chunk.v.row(t), chunk.g.row(t));
            let [of_r, of_k, of_w, _] = &mut *out;
            let slope = chunk.slope.row(t);
            let of = OfToken { k, of_k: of_k.row(t), r, of_r: of_r.row(t), slope };
            step_back::<S>(p, of_w.row_mut(t), of);
            let weight = dot3::<S>(r, u, k);
            let vg = dot::<S>(v, g);
            add_product::<S>(out[0].row_mut(t), vg, u, k);
            add_product::<S>(out[1].row_mut(t), vg, u, r);
            add_product::<S>(du, vg, r, k);
            add_scaled::<S>(out[3].row_mut(t), weight, g);
        }
    }
}
