//! What the attention kernels share: how the work is divided, and how 32 units hold a block of
//! scores.
//!
//! A cube owns `own` rows (queries, or keys for their gradient), 16 to a *group* of 32 units, and
//! goes over the tiles of `other` rows that these see. A score block of a group lies in the
//! registers of its units as `mma.m16n8k16` lays out an accumulator: number 4j + e of lane l is row
//! l/4 + 8·(e/2), column 8j + 2·(l%4) + e%2. So one source serves tensor cores (CUDA, bf16) and
//! plain multiply-adds (f32 on every device): only `product_nt`, `product_nn` and `quad` differ.

use cubecl::cmma::{MatrixIdent, MmaDefinition};
use cubecl::prelude::*;

/// How a kernel divides its work. It is a constant of the kernel: each tile is compiled by itself.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub(super) struct Tile {
    /// K, a multiple of 8; of 16 with `mma`.
    pub(super) size: usize,
    /// Elements loaded at once as one vector: 1, or 8 with `mma`.
    pub(super) vector: usize,
    /// Rows that a cube owns, 16 per 32 units.
    pub(super) own: usize,
    /// Rows of the other kind that are processed at a time, a multiple of 8; of 16 with `mma`.
    pub(super) other: usize,
    /// Use tensor cores: E is bf16 or f16, and planes have 32 units.
    pub(super) mma: bool,
}

impl Tile {
    /// The units of a cube: two for each row that it owns.
    pub(super) fn units(&self) -> u32 {
        self.own as u32 * 2
    }

    /// Distance between rows in shared memory, in vectors: one more than a row has, so that the
    /// elements of a column lie in different banks.
    pub(super) fn stride(&self) -> usize {
        self.size / self.vector + 1
    }

    /// The number of vectors that `rows` rows occupy.
    pub(super) fn stage(&self, rows: usize) -> usize {
        rows * self.stride()
    }

    /// The size of the scratch memory through which units exchange numbers that registers cannot
    /// carry.
    pub(super) fn spill(&self) -> usize {
        if self.mma { 1 } else { self.own * (self.other + 1) }
    }

    /// The numbers of scratch memory that `quad` needs: one for each unit without tensor cores.
    pub(super) fn quads(&self) -> usize {
        if self.mma { 1 } else { self.own * 2 }
    }
}

/// Used in place of −∞, for which WGSL has no literal.
pub(super) const HIDDEN: f32 = -1e30;

/// A threshold: below every visible score and far above [`HIDDEN`].
pub(super) const LOWEST: f32 = -1e28;

/// Loads `rows` rows of K elements that are `step` vectors apart, beginning at `first`. Only
/// `count` of them exist: the rest repeat the last one, and their results are hidden.
#[cube]
pub(super) fn load_rows<E: Float, N: Size>(
    from: &Tensor<Vector<E, N>>,
    to: &mut SharedMemory<Vector<E, N>>,
    first: usize,
    step: usize,
    count: usize,
    #[comptime] rows: usize,
    #[comptime] tile: Tile,
) {
    let width = comptime!(tile.size / tile.vector);
    let mut i = UNIT_POS as usize;
    while i < comptime!(rows * width) {
        let (row, column) = (i / width, i % width);
        to[row * comptime!(tile.stride()) + column] =
            from[first + min(row, count - 1) * step + column];
        i += comptime!(tile.own * 2);
    }
}

/// `count` registers with the same number.
#[cube]
pub(super) fn filled(#[comptime] count: usize, value: f32) -> Array<f32> {
    let mut x = Array::<f32>::new(count);
    #[unroll]
    for i in 0..count {
        x[i] = value;
    }
    x
}

/// The entries of this unit's two rows, `row` and `row + 8`; zero for rows that do not exist.
#[cube]
pub(super) fn two<T: Numeric>(of: &Tensor<T>, at: usize, row: usize, rows: usize) -> Array<T> {
    let mut x = Array::<T>::new(2usize);
    #[unroll]
    for half in 0..2usize {
        x[half] = T::from_int(0);
        if row + 8 * half < rows {
            x[half] = of[at + row + 8 * half];
        }
    }
    x
}

/// Adds the product of the 16×16 blocks a and b to two 16×8 blocks of accumulators, number `j` and
/// the next. The instruction adds 16×8 at a time.
#[cube]
pub(super) fn mma_two<E: Float>(
    a: &Array<Vector<E, Const<2>>>,
    b: &Array<Vector<E, Const<2>>>,
    acc: &mut Array<f32>,
    j: usize,
) {
    let def = MmaDefinition::<E, E, f32>::new(16usize, 8usize, 16usize);
    #[unroll]
    for half in 0..2usize {
        let at = 4 * (j + half);
        let mut b1 = Array::<Vector<E, Const<2>>>::new(2usize);
        b1[0] = b[2 * half];
        b1[1] = b[2 * half + 1];
        let mut c = Array::<Vector<f32, Const<2>>>::new(2usize);
        let (mut low, mut high) =
            (Vector::<f32, Const<2>>::empty(), Vector::<f32, Const<2>>::empty());
        low[0] = acc[at];
        low[1] = acc[at + 1];
        high[0] = acc[at + 2];
        high[1] = acc[at + 3];
        c[0] = low;
        c[1] = high;
        let d = def.execute(a, &b1, &c);
        acc[at] = d[0][0];
        acc[at + 1] = d[0][1];
        acc[at + 2] = d[1][0];
        acc[at + 3] = d[1][1];
    }
}

/// acc [16, rows] += A·Bᵀ: 16 rows of `a` from `row` on, `rows` rows of `b`. Each unit adds to its
/// own accumulators, so no sum is shared.
///
/// With tensor cores or without, a unit has the same elements: of the rows lane/4 and lane/4 + 8
/// the columns 8·j + 2·(lane mod 4) and those after them.
#[cube]
pub(super) fn product_nt<E: Float, N: Size>(
    a: &SharedMemory<Vector<E, N>>,
    row: usize,
    b: &SharedMemory<Vector<E, N>>,
    acc: &mut Array<f32>,
    #[comptime] rows: usize,
    #[comptime] tile: Tile,
) {
    let lane = UNIT_POS as usize % 32;
    let stride = comptime!(tile.stride());
    if comptime!(tile.mma) {
        let def = MmaDefinition::<E, E, f32>::new(16usize, 8usize, 16usize);
        #[unroll]
        for k in 0..comptime!(tile.size / 16) {
            let at = (row + lane % 16) * stride + k * 2 + lane / 16;
            let fa = def.load_matrix::<Vector<E, N>, Const<2>>(
                &a.slice(at, at + 1),
                MatrixIdent::A,
                4usize,
                false,
            );
            #[unroll]
            for j in 0..comptime!(rows / 16) {
                let at = (j * 16 + lane / 16 * 8 + lane % 8) * stride + k * 2 + lane / 8 % 2;
                let fb = def.load_matrix::<Vector<E, N>, Const<2>>(
                    &b.slice(at, at + 1),
                    MatrixIdent::B,
                    4usize,
                    false,
                );
                mma_two::<E>(&fa, &fb, acc, 2 * j);
            }
        }
    } else {
        let (first, column) = (row + lane / 4, lane % 4 * 2);
        for k in 0..comptime!(tile.size) {
            let low = f32::cast_from(a[first * stride + k][0]);
            let high = f32::cast_from(a[(first + 8) * stride + k][0]);
            #[unroll]
            for j in 0..comptime!(rows / 8) {
                let at = (8 * j + column) * stride + k;
                let (left, right) = (f32::cast_from(b[at][0]), f32::cast_from(b[at + stride][0]));
                acc[4 * j] += low * left;
                acc[4 * j + 1] += low * right;
                acc[4 * j + 2] += high * left;
                acc[4 * j + 3] += high * right;
            }
        }
    }
}

/// acc [16, K] += P·B: P [16, other] in the registers of the group that owns rows from `row` on,
/// `other` rows of `b`.
///
/// A unit needs all numbers of its rows of P, of which three other units hold most. Tensor cores
/// take them from the registers; otherwise they go through `spill`.
#[cube]
pub(super) fn product_nn<E: Float, N: Size>(
    p: &Array<f32>,
    row: usize,
    b: &SharedMemory<Vector<E, N>>,
    acc: &mut Array<f32>,
    spill: &mut SharedMemory<f32>,
    #[comptime] tile: Tile,
) {
    let lane = UNIT_POS as usize % 32;
    let stride = comptime!(tile.stride());
    if comptime!(tile.mma) {
        let def = MmaDefinition::<E, E, f32>::new(16usize, 8usize, 16usize);
        #[unroll]
        for k in 0..comptime!(tile.other / 16) {
            // Two adjacent accumulator blocks form one block of the left matrix.
            let mut fa = Array::<Vector<E, Const<2>>>::new(4usize);
            #[unroll]
            for i in 0..4usize {
                let mut pair = Vector::<E, Const<2>>::empty();
                pair[0] = E::cast_from(p[8 * k + 2 * i]);
                pair[1] = E::cast_from(p[8 * k + 2 * i + 1]);
                fa[i] = pair;
            }
            #[unroll]
            for j in 0..comptime!(tile.size / 16) {
                let at = (k * 16 + lane % 16) * stride + j * 2 + lane / 16;
                let fb = def.load_matrix::<Vector<E, N>, Const<2>>(
                    &b.slice(at, at + 1),
                    MatrixIdent::B,
                    4usize,
                    true,
                );
                mma_two::<E>(&fa, &fb, acc, 2 * j);
            }
        }
    } else {
        let (first, column) = (row + lane / 4, lane % 4 * 2);
        let wide = comptime!(tile.other + 1);
        sync_cube();
        #[unroll]
        for j in 0..comptime!(tile.other / 8) {
            let at = first * wide + 8 * j + column;
            spill[at] = p[4 * j];
            spill[at + 1] = p[4 * j + 1];
            spill[at + 8 * wide] = p[4 * j + 2];
            spill[at + 8 * wide + 1] = p[4 * j + 3];
        }
        sync_cube();
        for k in 0..comptime!(tile.other) {
            let (low, high) = (spill[first * wide + k], spill[(first + 8) * wide + k]);
            #[unroll]
            for j in 0..comptime!(tile.size / 8) {
                let at = k * stride + 8 * j + column;
                let (left, right) = (f32::cast_from(b[at][0]), f32::cast_from(b[at + 1][0]));
                acc[4 * j] += low * left;
                acc[4 * j + 1] += low * right;
                acc[4 * j + 2] += high * left;
                acc[4 * j + 3] += high * right;
            }
        }
    }
}

/// The maximum (`most`) or the sum over the four units that share a row; all four get it. Without
/// tensor cores all units of the cube have to call it together, since it waits for them.
#[cube]
pub(super) fn quad(
    value: f32,
    quads: &mut SharedMemory<f32>,
    #[comptime] most: bool,
    #[comptime] tile: Tile,
) -> f32 {
    if comptime!(tile.mma) {
        if comptime!(most) {
            let value = max(value, plane_shuffle_xor(value, 1));
            max(value, plane_shuffle_xor(value, 2))
        } else {
            let value = value + plane_shuffle_xor(value, 1);
            value + plane_shuffle_xor(value, 2)
        }
    } else {
        let at = UNIT_POS as usize / 4 * 4;
        quads[UNIT_POS as usize] = value;
        sync_cube();
        let (a, b, c, d) = (quads[at], quads[at + 1], quads[at + 2], quads[at + 3]);
        sync_cube();
        if comptime!(most) { max(max(a, b), max(c, d)) } else { (a + b) + (c + d) }
    }
}

/// Replaces by `value` the scores of keys, counted from `key`, that come after the unit's two rows
/// or before their documents. Scores are hidden by [`HIDDEN`] before a softmax, and weights by 0
/// after it. Keys behind the end of the sequence come after every row that exists, and are hidden
/// as well.
#[cube]
pub(super) fn hide(
    s: &mut Array<f32>,
    key: usize,
    row: usize,
    starts: &Array<u32>,
    value: f32,
    #[comptime] tile: Tile,
) {
    #[unroll]
    for j in 0..comptime!(tile.other / 8) {
        #[unroll]
        for half in 0..2usize {
            #[unroll]
            for e in 0..2usize {
                let at = key + 8 * j + UNIT_POS as usize % 4 * 2 + e;
                let seen = at <= row + 8 * half && at >= usize::cast_from(starts[half]);
                s[4 * j + 2 * half + e] = select(seen, s[4 * j + 2 * half + e], value);
            }
        }
    }
}

/// Stores the two rows of the [16, K] accumulators that a unit holds, scaled, if they exist. Each
/// element has one owner, so the units need not wait for each other.
#[cube]
pub(super) fn store_rows<E: Float>(
    acc: &Array<f32>,
    to: &mut Tensor<E>,
    first: usize,
    step: usize,
    row: usize,
    rows: usize,
    scales: &Array<f32>,
    #[comptime] tile: Tile,
) {
    #[unroll]
    for half in 0..2usize {
        if row + 8 * half < rows {
            let at = first + (row + 8 * half) * step + UNIT_POS as usize % 4 * 2;
            #[unroll]
            for j in 0..comptime!(tile.size / 8) {
                to[at + 8 * j] = E::cast_from(acc[4 * j + 2 * half] * scales[half]);
                to[at + 8 * j + 1] = E::cast_from(acc[4 * j + 2 * half + 1] * scales[half]);
            }
        }
    }
}
