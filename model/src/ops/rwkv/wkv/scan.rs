//! The kernels of the recurrence: states and the tokens of a chunk as rows of whole registers, and the
//! scans over them.
//!
//! A scan goes through the tokens once, and for each through a whole state, which lies in the L1
//! cache. Its lanes do not depend on each other, so it works on tiles of [`WIDE`] registers, one after
//! the other, whose sums stay in registers.

use pulp::Simd;

use super::super::super::lanes::{BLOCK, exp, fma, simd};
use super::CHUNK;

/// One register, at an address that a load does not straddle.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Lanes(pub(super) [f32; BLOCK]);

/// A matrix whose rows are whole registers; what pads them is zero. A state has as many rows as
/// lanes.
pub(super) struct Rows {
    pub(super) lanes: Vec<Lanes>,
    /// Registers per row.
    pub(super) blocks: usize,
}

impl Rows {
    pub(super) fn zeros(rows: usize, size: usize) -> Self {
        let blocks = size.div_ceil(BLOCK);
        Self { lanes: vec![Lanes([0.0; BLOCK]); rows * blocks], blocks }
    }

    /// As many states of this head size.
    pub(super) fn states(count: usize, size: usize) -> Self {
        Self::zeros(count * size.next_multiple_of(BLOCK), size)
    }

    pub(super) fn row(&self, index: usize) -> &[Lanes] {
        &self.lanes[index * self.blocks..][..self.blocks]
    }

    pub(super) fn row_mut(&mut self, index: usize) -> &mut [Lanes] {
        &mut self.lanes[index * self.blocks..][..self.blocks]
    }

    pub(super) fn write(&mut self, index: usize, values: &[f32]) {
        for (lanes, values) in self.row_mut(index).iter_mut().zip(values.chunks(BLOCK)) {
            lanes.0[..values.len()].copy_from_slice(values);
        }
    }

    pub(super) fn read(&self, index: usize, values: &mut [f32]) {
        for (lanes, values) in self.row(index).iter().zip(values.chunks_mut(BLOCK)) {
            values.copy_from_slice(&lanes.0[..values.len()]);
        }
    }

    /// A state from its K×K elements.
    pub(super) fn write_state(&mut self, state: &[f32], size: usize) {
        for (i, row) in state.chunks_exact(size).enumerate() {
            self.write(i, row);
        }
    }

    pub(super) fn write_transposed(&mut self, state: &[f32], size: usize) {
        for (i, row) in state.chunks_exact(size).enumerate() {
            for (j, &value) in row.iter().enumerate() {
                self.row_mut(j)[i / BLOCK].0[i % BLOCK] = value;
            }
        }
    }

    pub(super) fn read_state(&self, state: &mut [f32], size: usize) {
        for (i, row) in state.chunks_exact_mut(size).enumerate() {
            self.read(i, row);
        }
    }
}

/// The tokens of one chunk of one head.
pub(super) struct Chunk {
    pub(super) tokens: usize,
    pub(super) r: Rows,
    pub(super) k: Rows,
    pub(super) v: Rows,
    /// w, then d = exp(−exp w)
    pub(super) decay: Rows,
    /// dd/dw = lw·d
    pub(super) slope: Rows,
    /// dL/dy
    pub(super) g: Rows,
}

impl Chunk {
    pub(super) fn new(size: usize) -> Self {
        let rows = || Rows::zeros(CHUNK, size);
        let (r, k, v, decay, slope, g) = (rows(), rows(), rows(), rows(), rows(), rows());
        Self { tokens: 0, r, k, v, decay, slope, g }
    }
}

/// sum += the first `count` rows of x.
pub(super) fn add_rows(sum: &mut [Lanes], x: &Rows, count: usize) {
    for i in 0..count {
        for (sum, x) in sum.iter_mut().zip(x.row(i)) {
            for l in 0..BLOCK {
                sum.0[l] += x.0[l];
            }
        }
    }
}

/// Which way time runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Forth,
    Back,
}

/// The tokens of a [`scan`]: out_t = read_t·S, then S becomes diag(decay_t)·S + rows_tᵀ·lanes_t.
#[derive(Clone, Copy)]
pub(super) struct Scan<'a> {
    pub(super) read: &'a Rows,
    pub(super) decay: &'a Rows,
    pub(super) rows: &'a Rows,
    pub(super) lanes: &'a Rows,
}

/// [`scan`] of W registers of lanes: they do not depend on the others.
#[inline(always)]
fn scan_tile<S: Simd, const W: usize>(
    scan: Scan<'_>,
    times: impl Iterator<Item = usize>,
    tile: usize,
    state: &mut Rows,
    out: &mut Rows,
) {
    let blocks = state.blocks;
    for t in times {
        let lanes = tile_of::<W>(scan.lanes.row(t), tile);
        let mut sums = [[0.0; BLOCK]; W];
        for block in 0..blocks {
            let read = scan.read.row(t)[block].0;
            let decay = scan.decay.row(t)[block].0;
            let rows = scan.rows.row(t)[block].0;
            for l in 0..BLOCK {
                let state = &mut state.lanes[(block * BLOCK + l) * blocks + tile * W..][..W];
                for b in 0..W {
                    for i in 0..BLOCK {
                        let s = &mut state[b].0[i];
                        sums[b][i] = fma::<S>(read[l], *s, sums[b][i]);
                        *s = fma::<S>(decay[l], *s, rows[l] * lanes[b][i]);
                    }
                }
            }
        }
        store_tile(out.row_mut(t), tile, sums);
    }
}

#[inline(always)]
fn tile_of<const W: usize>(row: &[Lanes], tile: usize) -> [[f32; BLOCK]; W] {
    std::array::from_fn(|b| row[tile * W + b].0)
}

#[inline(always)]
fn store_tile<const W: usize>(row: &mut [Lanes], tile: usize, values: [[f32; BLOCK]; W]) {
    for (b, values) in values.into_iter().enumerate() {
        row[tile * W + b] = Lanes(values);
    }
}

/// [`replay`] of W registers of lanes.
#[inline(always)]
fn replay_tile<S: Simd, const W: usize>(
    chunk: &Chunk,
    tile: usize,
    history: &mut Rows,
    out: &mut Rows,
) {
    let blocks = history.blocks;
    let state = blocks * BLOCK * blocks;
    for t in 0..chunk.tokens {
        let decay = tile_of::<W>(chunk.decay.row(t), tile);
        let k = tile_of::<W>(chunk.k.row(t), tile);
        let mut sums = [[0.0; BLOCK]; W];
        let (before, after) = history.lanes[t * state..][..2 * state].split_at_mut(state);
        for block in 0..blocks {
            let (g, v) = (chunk.g.row(t)[block].0, chunk.v.row(t)[block].0);
            for l in 0..BLOCK {
                let at = (block * BLOCK + l) * blocks + tile * W;
                let (before, after) = (&before[at..][..W], &mut after[at..][..W]);
                for b in 0..W {
                    for i in 0..BLOCK {
                        let s = before[b].0[i];
                        sums[b][i] = fma::<S>(g[l], s, sums[b][i]);
                        after[b].0[i] = fma::<S>(decay[b][i], s, v[l] * k[b][i]);
                    }
                }
            }
        }
        store_tile(out.row_mut(t), tile, sums);
    }
}

/// [`rewind`] of W registers of lanes.
#[inline(always)]
fn rewind_tile<S: Simd, const W: usize>(
    chunk: &Chunk,
    tile: usize,
    history: &Rows,
    turned: &mut Rows,
    [of_k, of_w]: [&mut Rows; 2],
) {
    let blocks = history.blocks;
    let state = blocks * BLOCK * blocks;
    for t in (0..chunk.tokens).rev() {
        let decay = tile_of::<W>(chunk.decay.row(t), tile);
        let r = tile_of::<W>(chunk.r.row(t), tile);
        let (mut keys, mut decays) = ([[0.0; BLOCK]; W], [[0.0; BLOCK]; W]);
        let before = &history.lanes[t * state..][..state];
        for block in 0..blocks {
            let (g, v) = (chunk.g.row(t)[block].0, chunk.v.row(t)[block].0);
            for l in 0..BLOCK {
                let at = (block * BLOCK + l) * blocks + tile * W;
                let (before, turned) = (&before[at..][..W], &mut turned.lanes[at..][..W]);
                for b in 0..W {
                    for i in 0..BLOCK {
                        let s = &mut turned[b].0[i];
                        keys[b][i] = fma::<S>(v[l], *s, keys[b][i]);
                        decays[b][i] = fma::<S>(before[b].0[i], *s, decays[b][i]);
                        *s = fma::<S>(decay[b][i], *s, g[l] * r[b][i]);
                    }
                }
            }
        }
        store_tile(of_k.row_mut(t), tile, keys);
        store_tile(of_w.row_mut(t), tile, decays);
    }
}

/// ⟨a∘b, c⟩
#[inline(always)]
fn dot3<S: Simd>(a: &[Lanes], b: &[Lanes], c: &[Lanes]) -> f32 {
    let mut sums = [0.0; BLOCK];
    for j in 0..a.len() {
        let (a, b, c) = (&a[j].0, &b[j].0, &c[j].0);
        for i in 0..BLOCK {
            sums[i] = fma::<S>(a[i] * b[i], c[i], sums[i]);
        }
    }
    let mut four = [0.0; 4];
    for i in 0..4 {
        four[i] = (sums[i] + sums[i + 4]) + (sums[i + 8] + sums[i + 12]);
    }
    (four[0] + four[1]) + (four[2] + four[3])
}

/// y += c·a∘b
#[inline(always)]
fn add_product<S: Simd>(y: &mut [Lanes], c: f32, a: &[Lanes], b: &[Lanes]) {
    for j in 0..y.len() {
        let (y, a, b) = (&mut y[j].0, &a[j].0, &b[j].0);
        for i in 0..BLOCK {
            y[i] = fma::<S>(c * a[i], b[i], y[i]);
        }
    }
}

/// Registers that a tile of a wide head has: enough independent sums to hide their latency, few
/// enough to stay in registers.
const WIDE: usize = 4;

simd! {
    /// w becomes d = exp(−exp w), and slope dd/dw = lw·d.
    pub(super) fn decay<S>(w: &mut [Lanes], slope: &mut [Lanes]) {
        for (w, slope) in w.iter_mut().zip(slope) {
            for i in 0..BLOCK {
                let log = -exp::<S>(w.0[i]);
                w.0[i] = exp::<S>(log);
                slope.0[i] = w.0[i] * log;
            }
        }
    }

    pub(super) fn scan<S>(scan: Scan<'_>, tokens: usize, order: Order, state: &mut Rows, out: &mut Rows) {
        let times = (0..tokens).map(|t| match order {
            Order::Forth => t,
            Order::Back => tokens - 1 - t,
        });
        if state.blocks.is_multiple_of(WIDE) {
            for tile in 0..state.blocks / WIDE {
                scan_tile::<S, WIDE>(scan, times.clone(), tile, state, out);
            }
        } else {
            for tile in 0..state.blocks {
                scan_tile::<S, 1>(scan, times.clone(), tile, state, out);
            }
        }
    }

    /// Runs Sᵀ through a chunk from `history`'s first state and keeps each; out_t = S_{t−1}·g_t.
    pub(super) fn replay<S>(chunk: &Chunk, history: &mut Rows, out: &mut Rows) {
        if history.blocks.is_multiple_of(WIDE) {
            for tile in 0..history.blocks / WIDE {
                replay_tile::<S, WIDE>(chunk, tile, history, out);
            }
        } else {
            for tile in 0..history.blocks {
                replay_tile::<S, 1>(chunk, tile, history, out);
            }
        }
    }

    /// Runs Gᵀ back through a chunk: of_k = G_t·v_t, of_w = rowsum(G_t∘S_{t−1}).
    pub(super) fn rewind<S>(
        chunk: &Chunk, history: &Rows, turned: &mut Rows, of_k: &mut Rows, of_w: &mut Rows,
    ) {
        if history.blocks.is_multiple_of(WIDE) {
            for tile in 0..history.blocks / WIDE {
                rewind_tile::<S, WIDE>(chunk, tile, history, turned, [of_k, of_w]);
            }
        } else {
            for tile in 0..history.blocks {
                rewind_tile::<S, 1>(chunk, tile, history, turned, [of_k, of_w]);
            }
        }
    }

    /// y_t += ⟨r_t∘u, k_t⟩·v_t
    pub(super) fn add_bonus<S>(chunk: &Chunk, u: &[Lanes], y: &mut Rows) {
        for t in 0..chunk.tokens {
            let weight = dot3::<S>(chunk.r.row(t), u, chunk.k.row(t));
            for (y, v) in y.row_mut(t).iter_mut().zip(chunk.v.row(t)) {
                for i in 0..BLOCK {
                    y.0[i] = fma::<S>(weight, v.0[i], y.0[i]);
                }
            }
        }
    }

    /// What the present token adds to each gradient, and the chain from the decay to w.
    pub(super) fn finish<S>(chunk: &Chunk, u: &[Lanes], out: &mut [Rows; 4], du: &mut [Lanes]) {
        let one = [Lanes([1.0; BLOCK])];
        for t in 0..chunk.tokens {
            let (r, k, v, g) = (chunk.r.row(t), chunk.k.row(t), chunk.v.row(t), chunk.g.row(t));
            let weight = dot3::<S>(r, u, k);
            let mut vg = 0.0;
            for j in 0..v.len() {
                vg += dot3::<S>(&v[j..=j], &g[j..=j], &one);
            }
            add_product::<S>(out[0].row_mut(t), vg, u, k);
            add_product::<S>(out[1].row_mut(t), vg, u, r);
            add_product::<S>(du, vg, r, k);
            for (of_w, slope) in out[2].row_mut(t).iter_mut().zip(chunk.slope.row(t)) {
                for i in 0..BLOCK {
                    of_w.0[i] *= slope.0[i];
                }
            }
            for (of_v, g) in out[3].row_mut(t).iter_mut().zip(g) {
                for i in 0..BLOCK {
                    of_v.0[i] = fma::<S>(weight, g.0[i], of_v.0[i]);
                }
            }
        }
    }
}
