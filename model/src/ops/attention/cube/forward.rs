//! Attention forward: a cube owns a tile of queries of one head.
//!
//! It passes over the keys that they see, and keeps for each query the largest score, the sum of
//! the weights and the mixture so far, in registers: the online softmax of `attend_block.rs`. A
//! unit holds two rows, `row` and `row + 8`, and in each a quarter of the columns.
//!
//! The sums are relative to the largest score so far. When a tile has a larger one, what was summed
//! before is multiplied by the exponential of the difference, so no exponent is ever above zero.
//! The sums of the four units that share a row are added at the end only; the largest score has to
//! be exchanged for each tile.

use cubecl::prelude::*;

use super::tile::*;

/// y and log Σ exp.
/// // qkv [B·T, H + 2G, K], starts [B·T], y [B·T, H, K], lse [B, H, T]; cubes (tiles, H, B)
#[cube(launch, launch_unchecked)]
pub(super) fn forward<E: Float, N: Size>(
    qkv: &Tensor<Vector<E, N>>,
    starts: &Tensor<u32>,
    y: &mut Tensor<E>,
    lse: &mut Tensor<f32>,
    tokens: usize,
    kv: usize,
    scale: f32,
    #[comptime] tile: Tile,
) {
    let (heads, head) = (CUBE_COUNT_Y as usize, CUBE_POS_Y as usize);
    let kv_head = head * kv / heads;
    let group = UNIT_POS as usize / 32 * 16;
    // The last queries see the most keys, so their tiles are started first.
    let first = (tokens.div_ceil(tile.own) - 1 - CUBE_POS_X as usize) * tile.own;
    let end = min(first + tile.own, tokens);
    let before = CUBE_POS_Z as usize * tokens;
    let width = comptime!(tile.size / tile.vector);
    let step = (heads + 2 * kv) * width;

    let mut q = SharedMemory::<Vector<E, N>>::new_aligned(comptime!(tile.stage(tile.own)), 16usize);
    let mut k =
        SharedMemory::<Vector<E, N>>::new_aligned(comptime!(tile.stage(tile.other)), 16usize);
    let mut v =
        SharedMemory::<Vector<E, N>>::new_aligned(comptime!(tile.stage(tile.other)), 16usize);
    let mut spill = SharedMemory::<f32>::new(comptime!(tile.spill()));
    let mut quads = SharedMemory::<f32>::new(comptime!(tile.quads()));
    let at = (before + first) * step + head * width;
    load_rows::<E, N>(qkv, &mut q, at, step, end - first, tile.own, tile);

    let row = first + group + UNIT_POS as usize % 32 / 4;
    let begins = two::<u32>(starts, before, row, tokens);
    // Keys from here to `first` are seen by all queries of the tile.
    let last_start = usize::cast_from(starts[before + end - 1]);
    // Each unit's part: mixtures, largest scores, and its own share of the sums.
    let mut o = filled(comptime!(tile.size / 2), 0.0f32);
    let mut most = filled(2usize, HIDDEN.runtime());
    let mut sums = filled(2usize, 0.0f32);
    let mut key = usize::cast_from(starts[before + first]) / tile.other * tile.other;
    while key < end {
        let at = (before + key) * step + (heads + kv_head) * width;
        let count = min(tokens - key, tile.other);
        sync_cube();
        load_rows::<E, N>(qkv, &mut k, at, step, count, tile.other, tile);
        load_rows::<E, N>(qkv, &mut v, at + kv * width, step, count, tile.other, tile);
        sync_cube();
        let mut s = filled(comptime!(tile.other / 2), 0.0f32);
        product_nt::<E, N>(&q, group, &k, &mut s, tile.other, tile);
        if key + tile.other > first || key < last_start {
            hide(&mut s, key, row, &begins, HIDDEN.runtime(), tile);
        }
        #[unroll]
        for half in 0..2usize {
            let mut new = most[half];
            #[unroll]
            for j in 0..comptime!(tile.other / 8) {
                new = max(new, max(s[4 * j + 2 * half], s[4 * j + 2 * half + 1]));
            }
            new = quad(new, &mut quads, true, tile);
            // The factor that makes the earlier sums relative to the new maximum.
            let kept = ((most[half] - new) * scale).exp();
            most[half] = new;
            // A row that has seen no key yet keeps a sum of zero.
            let shift = max(new, LOWEST.runtime());
            let mut sum = sums[half] * kept;
            #[unroll]
            for j in 0..comptime!(tile.other / 8) {
                #[unroll]
                for e in 0..2usize {
                    let p = ((s[4 * j + 2 * half + e] - shift) * scale).exp();
                    s[4 * j + 2 * half + e] = p;
                    sum += p;
                }
            }
            sums[half] = sum;
            #[unroll]
            for j in 0..comptime!(tile.size / 8) {
                o[4 * j + 2 * half] *= kept;
                o[4 * j + 2 * half + 1] *= kept;
            }
        }
        product_nn::<E, N>(&s, group, &v, &mut o, &mut spill, tile);
        key += tile.other;
    }

    let of_head = (CUBE_POS_Z as usize * heads + head) * tokens;
    #[unroll]
    for half in 0..2usize {
        let sum = quad(sums[half], &mut quads, false, tile);
        if UNIT_POS % 4 == 0 && row + 8 * half < tokens {
            lse[of_head + row + 8 * half] = most[half] * scale + sum.ln();
        }
        sums[half] = 1.0f32 / sum;
    }
    let at = (before * heads + head) * tile.size;
    store_rows::<E>(&o, y, at, heads * tile.size, row, tokens, &sums, tile);
}
