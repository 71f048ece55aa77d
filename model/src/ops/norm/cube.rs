//! Norms on GPUs: one launch forward and two backward. A cube normalises one row, or one head of a
//! row. `norm.rs` has the equations.
//!
//! The second launch of the backward pass sums dw and db over rows. Mean and 1/√(var + eps) of each
//! group are kept from the forward pass.
//!
//! A unit takes every n-th channel of its group, where n is the number of units. A sum is made in
//! two steps: each unit adds its channels, and a tree adds the units.
//!
//! One pair of kernels serves all three norms: `NormKernel` says at compile time whether the mean
//! is subtracted and whether there is a gate, and the code of what is not there is left out.

use burn_backend::TensorMetadata as _;
use burn_backend::tensor::FloatTensor;
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::calculate_cube_count_elemwise;
use cubecl::prelude::*;

use super::super::cube::{GpuBackend, OnGpu, contiguous, empty, launch, parts, sigmoid, sum_rows};

/// The form of a norm, a constant of its kernels.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub(super) struct NormKernel {
    /// The number of channels that are normalised together.
    pub(super) group: usize,
    /// Whether the mean is subtracted first and a bias is added.
    pub(super) centred: bool,
    /// Whether the normalised values are multiplied by silu(g).
    pub(super) gated: bool,
}

/// y from x, g, w and b, and its backward pass. A norm without a gate takes any tensor for g, and
/// one without a bias takes any for b; their gradients are then meaningless.
/// // `x, g, y [N, D]; w, b [D]`
pub(super) fn norm<B: GpuBackend>(
    norm: NormKernel,
    eps: f32,
    inputs: [FloatTensor<B>; 4],
) -> OnGpu<B, 4> {
    let [x, g, w, b] = inputs.map(contiguous);
    let [rows, width] = [0, 1].map(|at| x.shape()[at]);
    let groups = rows * (width / norm.group);
    let (y, stats) = (empty(&x, x.shape()), empty(&x, [groups, 2]));
    let each = cubes(&x, groups, norm);
    launch!(forward, x, each, [&x, &g, &w, &b, &y, &stats], groups, width, eps, norm);
    let back = move |dy| {
        let (dy, dx) = (contiguous(dy), empty(&x, x.shape()));
        let dg = if norm.gated { empty(&g, g.shape()) } else { empty(&x, [1]) };
        let terms = empty(&x, [2, rows, width]);
        launch!(
            backward,
            x,
            cubes(&x, groups, norm),
            [&x, &g, &w, &b, &stats, &dy, &dx, &dg, &terms],
            groups,
            width,
            norm,
        );
        let [dw, db] = parts::<B, 2>(sum_rows(&terms));
        [dx, dg, dw, db]
    };
    (y, Box::new(back))
}

/// A cube for each group of channels of each row; surplus cubes repeat the work of the last one.
fn cubes<R: CubeRuntime>(
    x: &CubeTensor<R>,
    groups: usize,
    norm: NormKernel,
) -> (CubeCount, CubeDim) {
    let dim = CubeDim::new_1d(norm.units() as u32);
    (calculate_cube_count_elemwise(&x.client, groups * norm.units(), dim), dim)
}

impl NormKernel {
    /// The number of units in a cube, a power of two from 8 to 256, as the tree in `total` needs.
    fn units(&self) -> usize {
        self.group.next_power_of_two().clamp(8, 256)
    }
}

/// The sum over the units of a cube, the same number for each. A tree of additions, whose order
/// depends only on the number of units.
///
/// All units have to call it, as many times as the others: it waits for them. The first wait lets
/// all of them read the result of an earlier call before `shared` is overwritten.
#[cube]
fn total(x: f32, shared: &mut SharedMemory<f32>, #[comptime] units: usize) -> f32 {
    let unit = UNIT_POS as usize;
    sync_cube();
    shared[unit] = x;
    let mut half = comptime!(units / 2).runtime();
    while half > 0 {
        sync_cube();
        if unit < half {
            shared[unit] += shared[unit + half];
        }
        half /= 2;
    }
    sync_cube();
    shared[0]
}

/// y, and mean and scale of each group. The variance is summed from differences to the mean, as on
/// the CPU. // x, g, y [N, D], w, b D, stats [groups, 2]; a cube for each group
#[cube(launch_unchecked)]
fn forward(
    x: &Tensor<f32>,
    g: &Tensor<f32>,
    w: &Tensor<f32>,
    b: &Tensor<f32>,
    y: &mut Tensor<f32>,
    stats: &mut Tensor<f32>,
    groups: usize,
    width: usize,
    eps: f32,
    #[comptime] norm: NormKernel,
) {
    let (unit, units) = (UNIT_POS as usize, comptime!(norm.units()));
    // Surplus cubes repeat the last group, and write the same numbers once more.
    let group = min(CUBE_POS, groups - 1);
    let (first, size) = (group * norm.group, f32::cast_from(norm.group));
    let mut shared = SharedMemory::<f32>::new(units);
    let mut mean = 0.0f32;
    if comptime!(norm.centred) {
        let mut sum = 0.0f32;
        let mut i = unit;
        while i < norm.group {
            sum += x[first + i];
            i += units;
        }
        mean = total(sum, &mut shared, units) / size;
    }
    let mut sum = 0.0f32;
    let mut i = unit;
    while i < norm.group {
        let centred = x[first + i] - mean;
        sum += centred * centred;
        i += units;
    }
    let scale = 1.0f32 / (total(sum, &mut shared, units) / size + eps).sqrt();
    if unit == 0 {
        stats[2 * group] = mean;
        stats[2 * group + 1] = scale;
    }
    i = unit;
    while i < norm.group {
        let (at, channel) = (first + i, (first + i) % width);
        let mut value = (x[at] - mean) * scale * w[channel];
        if comptime!(norm.centred) {
            value += b[channel];
        }
        if comptime!(norm.gated) {
            value *= g[at] * sigmoid(g[at]);
        }
        y[at] = value;
        i += units;
    }
}

/// Writes dx, and dw and db of each row into `terms`. Each unit reads only elements of `terms` that
/// it wrote itself.
///
/// dx = scale·(dx̂ − mean dx̂ − x̂·mean(dx̂∘x̂)), dx̂ = w∘dy; a norm that does not centre lacks the
/// first mean. // terms [2, N, D]
#[cube(launch_unchecked)]
fn backward(
    x: &Tensor<f32>,
    g: &Tensor<f32>,
    w: &Tensor<f32>,
    b: &Tensor<f32>,
    stats: &Tensor<f32>,
    dy: &Tensor<f32>,
    dx: &mut Tensor<f32>,
    dg: &mut Tensor<f32>,
    terms: &mut Tensor<f32>,
    groups: usize,
    width: usize,
    #[comptime] norm: NormKernel,
) {
    let (unit, units) = (UNIT_POS as usize, comptime!(norm.units()));
    let group = min(CUBE_POS, groups - 1);
    let (first, size) = (group * norm.group, f32::cast_from(norm.group));
    let (mean, scale) = (stats[2 * group], stats[2 * group + 1]);
    let mut shared = SharedMemory::<f32>::new(units);
    let mut sum = 0.0f32;
    let mut slope = 0.0f32;
    let mut i = unit;
    while i < norm.group {
        let (at, channel) = (first + i, (first + i) % width);
        let hat = (x[at] - mean) * scale;
        let mut upstream = dy[at];
        if comptime!(norm.gated) {
            let open = sigmoid(g[at]);
            let swish = g[at] * open;
            dg[at] = upstream * (hat * w[channel] + b[channel]) * (swish * (1.0f32 - open) + open);
            upstream *= swish;
        }
        terms[at] = upstream * hat;
        terms[groups * norm.group + at] = upstream;
        sum += upstream * w[channel];
        slope += upstream * w[channel] * hat;
        i += units;
    }
    if comptime!(norm.centred) {
        sum = total(sum, &mut shared, units) / size;
    } else {
        sum = 0.0f32;
    }
    slope = total(slope, &mut shared, units) / size;
    i = unit;
    while i < norm.group {
        let (at, channel) = (first + i, (first + i) % width);
        let upstream = terms[groups * norm.group + at];
        dx[at] = scale * (upstream * w[channel] - sum - (x[at] - mean) * scale * slope);
        i += units;
    }
}
