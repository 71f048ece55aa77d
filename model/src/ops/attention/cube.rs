//! Attention on GPUs: no T×T in memory, one launch forward and two back.
//!
//! This file chooses tiles and launches. `tile.rs` has what the kernels share, `forward.rs` and
//! `backward.rs` the kernels. All tiles here use plain multiply-adds in f32 (`mma: false`).

mod backward;
mod forward;
mod tile;

use burn_backend::tensor::FloatTensor;
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;
use cubecl::server::Handle;

use self::tile::Tile;
use super::super::cube::{GpuBackend, OnGpu, arg, contiguous, empty, launch};
use super::{Attention, Documents, Heads};

/// y and its backward pass; `None` where the kernels do not support the heads: K is not a multiple
/// of 8, or a tile does not fit into the shared memory of a cube.
pub(super) fn attention<B: GpuBackend>(op: &Attention, qkv: FloatTensor<B>) -> Option<OnGpu<B, 1>> {
    let heads = op.heads;
    let tiles = Tiles::of(&qkv.client, heads.size)?;
    let qkv = contiguous(qkv);
    let starts = op.documents.on_gpu(&qkv.client);
    let rows = heads.sequences * heads.tokens;
    let y = empty(&qkv, [rows, heads.query * heads.size]);
    let lse = empty(&qkv, [heads.query * rows]);
    forward(heads, tiles.forward, &starts, [&qkv, &y, &lse]);
    let output = y.clone();
    let back = move |dy| [backward(heads, tiles, &starts, [&qkv, &y, &lse, &contiguous(dy)])];
    Some((output, Box::new(back)))
}

/// The tile of each kernel, for one width of heads.
#[derive(Clone, Copy, Debug)]
struct Tiles {
    /// A cube owns queries, and passes over keys.
    forward: Tile,
    /// The same for the gradient of queries.
    of_queries: Tile,
    /// A cube owns keys, and passes over queries.
    of_keys: Tile,
}

/// The largest number of units in a cube.
const UNITS: u32 = 256;

/// The most shared memory that a cube uses, in bytes: CUDA grants this much by default.
const SHARED: usize = 48 << 10;

impl Tiles {
    /// The largest tiles that the device has memory for; `None` if not even the smallest fits.
    /// `size` is K. A larger tile reads each key and value less often. The choice depends only on
    /// the device and K, so the sums of a run on one device always have the same order.
    fn of<R: CubeRuntime>(client: &ComputeClient<R>, size: usize) -> Option<Self> {
        let hardware = &client.properties().hardware;
        let shared = hardware.max_shared_memory_size.min(SHARED);
        let units = hardware.max_units_per_cube.min(UNITS);
        if !size.is_multiple_of(8) {
            return None;
        }
        // The largest tile with `matrices` matrices of own rows and two of other rows.
        let fit = |matrices: usize| {
            let sizes = [(64, 32), (32, 32), (32, 16), (16, 16), (16, 8)];
            let tiles = sizes.map(|(own, other)| Tile { size, vector: 1, own, other, mma: false });
            tiles.into_iter().find(|tile| {
                let Tile { own, other, .. } = *tile;
                // Rows of matrices, then what `spill` and `quads` take, then three numbers for each
                // other row.
                let floats =
                    (own * matrices + other * 2) * (size + 1) + own * (other + 3) + 3 * other;
                4 * floats <= shared && tile.units() <= units
            })
        };
        Some(Self { forward: fit(1)?, of_queries: fit(2)?, of_keys: fit(2)? })
    }
}

/// One cube for each tile of each of `heads` heads of each sequence.
fn cubes(shape: Heads, tile: Tile, heads: usize) -> (CubeCount, CubeDim) {
    let tiles = shape.tokens.div_ceil(tile.own);
    let count = CubeCount::Static(tiles as u32, heads as u32, shape.sequences as u32);
    (count, CubeDim::new_1d(tile.units()))
}

/// The starts as a kernel's argument. // [B·T]
fn starts_arg<R: CubeRuntime>(starts: &Handle, heads: Heads) -> TensorArg<R> {
    #[expect(unsafe_code, reason = "the handle holds one start for each position")]
    unsafe {
        TensorArg::from_raw_parts(
            starts.clone(),
            [1].into(),
            [heads.sequences * heads.tokens].into(),
        )
    }
}

/// Launches the kernel for y and lse. // lse [B, H, T]
fn forward<R: CubeRuntime>(
    heads: Heads,
    tile: Tile,
    starts: &Handle,
    [qkv, y, lse]: [&CubeTensor<R>; 3],
) {
    launch!(
        forward::forward<f32>,
        qkv,
        cubes(heads, tile, heads.query),
        tile.vector,
        arg(qkv),
        starts_arg(starts, heads),
        arg(y),
        arg(lse),
        heads.tokens,
        heads.kv,
        heads.scale(),
        tile,
    );
}

/// dqkv, by two kernels one after the other: the first leaves D = ⟨dy, y⟩ for the second. They
/// write different columns of dqkv, and together all of them. // delta [B, H, T]
fn backward<R: CubeRuntime>(
    heads: Heads,
    tiles: Tiles,
    starts: &Handle,
    [qkv, y, lse, dy]: [&CubeTensor<R>; 4],
) -> CubeTensor<R> {
    let Tiles { of_queries, of_keys, .. } = tiles;
    let dqkv = empty(qkv, qkv.meta.shape().clone());
    let delta = empty(qkv, lse.meta.shape().clone());
    launch!(
        backward::backward_queries<f32>,
        qkv,
        cubes(heads, of_queries, heads.query),
        of_queries.vector,
        arg(qkv),
        starts_arg(starts, heads),
        arg(y),
        arg(dy),
        arg(lse),
        arg(&delta),
        arg(&dqkv),
        heads.tokens,
        heads.kv,
        heads.scale(),
        of_queries,
    );
    launch!(
        backward::backward_keys<f32>,
        qkv,
        cubes(heads, of_keys, heads.kv),
        of_keys.vector,
        arg(qkv),
        starts_arg(starts, heads),
        arg(dy),
        arg(lse),
        arg(&delta),
        arg(&dqkv),
        heads.tokens,
        heads.query,
        heads.scale(),
        of_keys,
    );
    dqkv
}

impl Documents {
    /// The starts in the memory of the GPU, copied there at the first call.
    fn on_gpu<R: CubeRuntime>(&self, client: &ComputeClient<R>) -> Handle {
        let copy = || client.create_from_slice(u32::as_bytes(&self.starts.numbers));
        self.starts.on_gpu.get_or_init(copy).clone()
    }
}
