//! Attention backward: dq by tiles of queries, dk and dv by tiles of keys, each element written
//! once, without atomics.
//!
//! Both kernels compute the weights P again from q, k and the kept log Σ exp. One kernel could do
//! with one P, but would add to dq from many cubes, in an order that is not fixed.
//!
//! A cube loads its own rows into shared memory once, and the tiles of the other rows one after the
//! other. A cube of queries begins with the tile of the first key of their documents, and ends at
//! their own last position. A cube of keys begins with the tile of its own first position, and ends
//! where a tile of queries begins in a document that starts behind the keys. Tiles in which every
//! query sees every key are not masked: only those at the diagonal, at the border of a document and
//! at the end of a sequence are.

use cubecl::prelude::*;

use super::tile::*;

/// The query columns of the gradient of the packed rows, and D = ⟨dy, y⟩ for [`backward_keys`],
/// which runs next. // delta [B, H, T]; cubes (tiles, H, B)
#[cube(launch, launch_unchecked)]
pub(super) fn backward_queries<E: Float, N: Size>(
    qkv: &Tensor<Vector<E, N>>,
    starts: &Tensor<u32>,
    y: &Tensor<E>,
    dy: &Tensor<Vector<E, N>>,
    lse: &Tensor<f32>,
    delta: &mut Tensor<f32>,
    dqkv: &mut Tensor<E>,
    tokens: usize,
    kv: usize,
    scale: f32,
    #[comptime] tile: Tile,
) {
    let (heads, head) = (CUBE_COUNT_Y as usize, CUBE_POS_Y as usize);
    let kv_head = head * kv / heads;
    let group = UNIT_POS as usize / 32 * 16;
    let first = (tokens.div_ceil(tile.own) - 1 - CUBE_POS_X as usize) * tile.own;
    let end = min(first + tile.own, tokens);
    let before = CUBE_POS_Z as usize * tokens;
    let width = comptime!(tile.size / tile.vector);
    let step = (heads + 2 * kv) * width;

    let mut q = SharedMemory::<Vector<E, N>>::new_aligned(comptime!(tile.stage(tile.own)), 16usize);
    let mut g = SharedMemory::<Vector<E, N>>::new_aligned(comptime!(tile.stage(tile.own)), 16usize);
    let mut k =
        SharedMemory::<Vector<E, N>>::new_aligned(comptime!(tile.stage(tile.other)), 16usize);
    let mut v =
        SharedMemory::<Vector<E, N>>::new_aligned(comptime!(tile.stage(tile.other)), 16usize);
    let mut spill = SharedMemory::<f32>::new(comptime!(tile.spill()));
    let mut quads = SharedMemory::<f32>::new(comptime!(tile.quads()));
    let at = (before + first) * step + head * width;
    load_rows::<E, N>(qkv, &mut q, at, step, end - first, tile.own, tile);
    let at = ((before + first) * heads + head) * width;
    load_rows::<E, N>(dy, &mut g, at, heads * width, end - first, tile.own, tile);
    sync_cube();

    let row = first + group + UNIT_POS as usize % 32 / 4;
    let of_head = (CUBE_POS_Z as usize * heads + head) * tokens;
    let begins = two::<u32>(starts, before, row, tokens);
    let last_start = usize::cast_from(starts[before + end - 1]);
    let lses = two::<f32>(lse, of_head, row, tokens);
    let mut d = filled(2usize, 0.0f32);
    #[unroll]
    for half in 0..2usize {
        // A quarter of the row: every fourth vector.
        let at = ((before + min(row + 8 * half, tokens - 1)) * heads + head) * tile.size;
        let mut sum = 0.0f32;
        let mut i = UNIT_POS as usize % 4;
        while i < width {
            let four = g[(row - first + 8 * half) * comptime!(tile.stride()) + i];
            #[unroll]
            for e in 0..tile.vector {
                sum += f32::cast_from(four[e]) * f32::cast_from(y[at + i * tile.vector + e]);
            }
            i += 4;
        }
        d[half] = quad(sum, &mut quads, false, tile);
        if UNIT_POS % 4 == 0 && row + 8 * half < tokens {
            delta[of_head + row + 8 * half] = d[half];
        }
    }

    // dS = scale·P∘(dP − D) of each tile of keys, and dq += dS·K.
    let mut dq = filled(comptime!(tile.size / 2), 0.0f32);
    let mut key = usize::cast_from(starts[before + first]) / tile.other * tile.other;
    while key < end {
        let at = (before + key) * step + (heads + kv_head) * width;
        let count = min(tokens - key, tile.other);
        sync_cube();
        load_rows::<E, N>(qkv, &mut k, at, step, count, tile.other, tile);
        load_rows::<E, N>(qkv, &mut v, at + kv * width, step, count, tile.other, tile);
        sync_cube();
        let mut s = filled(comptime!(tile.other / 2), 0.0f32);
        let mut dp = filled(comptime!(tile.other / 2), 0.0f32);
        product_nt::<E, N>(&q, group, &k, &mut s, tile.other, tile);
        product_nt::<E, N>(&g, group, &v, &mut dp, tile.other, tile);
        #[unroll]
        for j in 0..comptime!(tile.other / 8) {
            #[unroll]
            for half in 0..2usize {
                #[unroll]
                for e in 0..2usize {
                    let i = 4 * j + 2 * half + e;
                    s[i] = (s[i] * scale - lses[half]).exp() * (dp[i] - d[half]) * scale;
                }
            }
        }
        if key + tile.other > first || key < last_start {
            hide(&mut s, key, row, &begins, 0.0f32, tile);
        }
        product_nn::<E, N>(&s, group, &k, &mut dq, &mut spill, tile);
        key += tile.other;
    }
    let row_size = (heads + 2 * kv) * tile.size;
    let at = before * row_size + head * tile.size;
    store_rows::<E>(&dq, dqkv, at, row_size, row, tokens, &filled(2usize, 1.0f32), tile);
}

/// The key and value columns of the gradient of the packed rows: a cube goes over the queries of
/// the heads that share its keys, one head after another. // cubes (tiles, G, B)
#[cube(launch, launch_unchecked)]
pub(super) fn backward_keys<E: Float, N: Size>(
    qkv: &Tensor<Vector<E, N>>,
    starts: &Tensor<u32>,
    dy: &Tensor<Vector<E, N>>,
    lse: &Tensor<f32>,
    delta: &Tensor<f32>,
    dqkv: &mut Tensor<E>,
    tokens: usize,
    heads: usize,
    scale: f32,
    #[comptime] tile: Tile,
) {
    let (kv, kv_head) = (CUBE_COUNT_Y as usize, CUBE_POS_Y as usize);
    let group = UNIT_POS as usize / 32 * 16;
    let first = CUBE_POS_X as usize * tile.own;
    let end = min(first + tile.own, tokens);
    let before = CUBE_POS_Z as usize * tokens;
    let width = comptime!(tile.size / tile.vector);
    let step = (heads + 2 * kv) * width;

    let mut k = SharedMemory::<Vector<E, N>>::new_aligned(comptime!(tile.stage(tile.own)), 16usize);
    let mut v = SharedMemory::<Vector<E, N>>::new_aligned(comptime!(tile.stage(tile.own)), 16usize);
    let mut q =
        SharedMemory::<Vector<E, N>>::new_aligned(comptime!(tile.stage(tile.other)), 16usize);
    let mut g =
        SharedMemory::<Vector<E, N>>::new_aligned(comptime!(tile.stage(tile.other)), 16usize);
    let mut spill = SharedMemory::<f32>::new(comptime!(tile.spill()));
    // For each query of the current tile: log Σ exp, D, and the start of its document.
    let mut lses = SharedMemory::<f32>::new(tile.other);
    let mut deltas = SharedMemory::<f32>::new(tile.other);
    let mut begins = SharedMemory::<u32>::new(tile.other);
    let at = (before + first) * step + (heads + kv_head) * width;
    load_rows::<E, N>(qkv, &mut k, at, step, end - first, tile.own, tile);
    load_rows::<E, N>(qkv, &mut v, at + kv * width, step, end - first, tile.own, tile);

    let row = first + group + UNIT_POS as usize % 32 / 4;
    let mut dk = filled(comptime!(tile.size / 2), 0.0f32);
    let mut dv = filled(comptime!(tile.size / 2), 0.0f32);
    for member in 0..heads / kv {
        let head = kv_head * (heads / kv) + member;
        let of_head = (CUBE_POS_Z as usize * heads + head) * tokens;
        let mut query = first / tile.other * tile.other;
        // Starts never decrease: once the document of a tile's first query starts after these
        // keys, so do those of all later queries.
        let mut seen = true;
        // P and dS of each tile of queries, with keys as rows: dv += P·dy and dk += dS·q.
        while seen {
            let count = min(tokens - query, tile.other);
            sync_cube();
            let at = (before + query) * step + head * width;
            load_rows::<E, N>(qkv, &mut q, at, step, count, tile.other, tile);
            let at = ((before + query) * heads + head) * width;
            load_rows::<E, N>(dy, &mut g, at, heads * width, count, tile.other, tile);
            let mut i = UNIT_POS as usize;
            while i < tile.other {
                let at = query + min(i, count - 1);
                lses[i] = lse[of_head + at];
                deltas[i] = delta[of_head + at];
                begins[i] = starts[before + at];
                i += comptime!(tile.own * 2);
            }
            sync_cube();
            let mut s = filled(comptime!(tile.other / 2), 0.0f32);
            let mut dp = filled(comptime!(tile.other / 2), 0.0f32);
            product_nt::<E, N>(&k, group, &q, &mut s, tile.other, tile);
            product_nt::<E, N>(&v, group, &g, &mut dp, tile.other, tile);
            let last_start = usize::cast_from(begins[tile.other - 1]);
            let edge = query < end || query + tile.other > tokens || last_start > first;
            #[unroll]
            for j in 0..comptime!(tile.other / 8) {
                #[unroll]
                for e in 0..2usize {
                    let column = 8 * j + UNIT_POS as usize % 4 * 2 + e;
                    let (l, d) = (lses[column], deltas[column]);
                    #[unroll]
                    for half in 0..2usize {
                        let i = 4 * j + 2 * half + e;
                        let mut p = (s[i] * scale - l).exp();
                        if edge {
                            let key = row + 8 * half;
                            let start = usize::cast_from(begins[column]);
                            let sees = key <= query + column && key >= start;
                            p = select(sees && query + column < tokens, p, 0.0f32);
                        }
                        s[i] = p;
                        dp[i] = p * (dp[i] - d) * scale;
                    }
                }
            }
            product_nn::<E, N>(&s, group, &g, &mut dv, &mut spill, tile);
            product_nn::<E, N>(&dp, group, &q, &mut dk, &mut spill, tile);
            query += tile.other;
            seen = query < tokens;
            if seen {
                seen = usize::cast_from(starts[before + query]) < end;
            }
        }
    }
    let row_size = (heads + 2 * kv) * tile.size;
    let at = before * row_size + (heads + kv_head) * tile.size;
    let ones = filled(2usize, 1.0f32);
    store_rows::<E>(&dk, dqkv, at, row_size, row, tokens, &ones, tile);
    store_rows::<E>(&dv, dqkv, at + kv * tile.size, row_size, row, tokens, &ones, tile);
}
