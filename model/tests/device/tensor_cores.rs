//! The attention kernels in bf16, where tensor cores compute the products.

#[path = "../../src/ops/attention/cube/backward.rs"]
mod backward;
#[path = "../../src/ops/attention/cube/forward.rs"]
mod forward;
#[path = "../../src/ops/attention/cube/tile.rs"]
mod tile;

use cubecl::cuda::CudaRuntime;
use cubecl::prelude::*;
use cubecl::server::Handle;
use half::bf16;
use intellect_model::ops::Heads;

use self::tile::Tile;
use crate::definition;
use crate::kernels::{distance, random};

/// Tiles for tensor cores: of the forward pass, of the gradient of queries and of the gradient of
/// keys.
fn tiles(size: usize) -> [Tile; 3] {
    let tile = |own, other| Tile { size, vector: 8, own, other, mma: true };
    [tile(64, 64), tile(64, 64), tile(64, 32)]
}

fn arg(handle: &Handle, count: usize) -> TensorArg<CudaRuntime> {
    #[expect(unsafe_code, reason = "the handle holds `count` elements")]
    unsafe {
        TensorArg::from_raw_parts(handle.clone(), [1].into(), [count].into())
    }
}

fn cubes(heads: Heads, tile: Tile, count: usize) -> (CubeCount, CubeDim) {
    let tiles = heads.tokens.div_ceil(tile.own) as u32;
    let count = CubeCount::Static(tiles, count as u32, heads.sequences as u32);
    (count, CubeDim::new_1d(tile.units()))
}

fn assert_attention(heads: Heads, document: usize) {
    let Heads { sequences, tokens, query, kv, size } = heads;
    let client = CudaRuntime::client(&Default::default());
    let rows = sequences * tokens;
    let (packed, outputs) = (rows * heads.row(), rows * query * size);
    let short = |x: Vec<f32>| x.into_iter().map(bf16::from_f32).collect::<Vec<_>>();
    let long = |x: &[bf16]| x.iter().map(|x| x.to_f32()).collect::<Vec<_>>();
    let (qkv, dy) = (short(random(packed, 2.0, 7)), short(random(outputs, 1.0, 8)));
    let starts: Vec<_> = (0..rows).map(|at| (at % tokens / document * document) as u32).collect();
    let expected = definition::attention(heads, &starts, &long(&qkv), &long(&dy));
    let put = |x: &[bf16]| client.create_from_slice(bf16::as_bytes(x));
    let (qkv, dy) = (put(&qkv), put(&dy));
    let starts = client.create_from_slice(u32::as_bytes(&starts));
    let [y, dqkv] = [outputs, packed].map(|count| client.empty(2 * count));
    let [lse, delta] = [(); 2].map(|()| client.empty(4 * rows * query));
    let scale = 1.0 / (size as f32).sqrt();
    let [of_forward, of_queries, of_keys] = tiles(size);
    let (count, dim) = cubes(heads, of_forward, query);
    #[expect(unsafe_code, reason = "every index is clamped, or compared with these sizes")]
    unsafe {
        forward::forward::launch_unchecked::<bf16, CudaRuntime>(
            &client,
            count,
            dim,
            of_forward.vector,
            arg(&qkv, packed),
            arg(&starts, rows),
            arg(&y, outputs),
            arg(&lse, rows * query),
            tokens,
            kv,
            scale,
            of_forward,
        );
    }
    let (count, dim) = cubes(heads, of_queries, query);
    #[expect(unsafe_code, reason = "every index is clamped, or compared with these sizes")]
    unsafe {
        backward::backward_queries::launch_unchecked::<bf16, CudaRuntime>(
            &client,
            count,
            dim,
            of_queries.vector,
            arg(&qkv, packed),
            arg(&starts, rows),
            arg(&y, outputs),
            arg(&dy, outputs),
            arg(&lse, rows * query),
            arg(&delta, rows * query),
            arg(&dqkv, packed),
            tokens,
            kv,
            scale,
            of_queries,
        );
    }
    let (count, dim) = cubes(heads, of_keys, kv);
    #[expect(unsafe_code, reason = "every index is clamped, or compared with these sizes")]
    unsafe {
        backward::backward_keys::launch_unchecked::<bf16, CudaRuntime>(
            &client,
            count,
            dim,
            of_keys.vector,
            arg(&qkv, packed),
            arg(&starts, rows),
            arg(&dy, outputs),
            arg(&lse, rows * query),
            arg(&delta, rows * query),
            arg(&dqkv, packed),
            tokens,
            query,
            scale,
            of_keys,
        );
    }
    let get = |handle| long(bf16::from_bytes(&client.read_one_unchecked(handle)));
    for (found, expected) in [get(y), get(dqkv)].iter().zip(&expected) {
        let off = distance(found, expected);
        // bf16 has a precision of 8 bits, a relative error of 2e-3.
        assert!(off < 1e-2, "{heads:?}, documents of {document}: {off:.1e}");
    }
}

/// Sequences of one token and of many, heads that share keys, documents of one token and of all
/// tokens.
pub(crate) fn assert_attention_is_its_definition() {
    for ([sequences, tokens, query, kv, size], document) in [
        ([1, 1, 1, 1, 16], 9),
        ([2, 5, 4, 2, 32], 2),
        ([1, 130, 2, 1, 64], 1000),
        ([1, 70, 6, 2, 32], 7),
        ([1, 129, 4, 4, 64], 50),
        ([1, 200, 2, 1, 128], 1000),
    ] {
        assert_attention(Heads { sequences, tokens, query, kv, size }, document);
    }
}
