//! Sums over rows on GPUs: those of biases, gains and mixes.
//!
//! Each column is summed by one cube alone, in an order that depends only on the number of rows.
//! Atomic additions would be shorter to write, but their order, and so the bits, could differ each
//! time.

use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{empty, launch};

/// The number of columns that a cube sums.
const COLUMNS: usize = 32;

/// The number of rows that a cube adds in parallel. Lane l takes rows l, l + 8, l + 16 and so on.
const LANES: usize = 8;

/// The number of rows that are summed before the sum is added to the total: rounding errors then
/// grow more slowly with the number of rows.
const RUN: usize = 32;

/// The sum of the rows of each matrix. // x [M, N, D]; result [M, D]
pub(in super::super) fn sum_rows<R: CubeRuntime>(x: &CubeTensor<R>) -> CubeTensor<R> {
    let shape = x.meta.shape();
    let [matrices, rows, width] = [0, 1, 2].map(|at| shape[at]);
    let y = empty(x, [matrices, width]);
    let count = CubeCount::Static(width.div_ceil(COLUMNS) as u32, matrices as u32, 1);
    let cubes = (count, CubeDim::new_2d(COLUMNS as u32, LANES as u32));
    launch!(sums, x, cubes, [x, &y], rows, width);
    y
}

/// The sums of 32 columns of one matrix: each lane sums its rows in runs, and the first lane adds
/// the lanes up. Columns beyond the width repeat the last one and are not stored.
/// // cubes (⌈D/32⌉, M)
#[cube(launch_unchecked)]
fn sums(x: &Tensor<f32>, y: &mut Tensor<f32>, rows: usize, width: usize) {
    let (lane, matrix) = (UNIT_POS_Y as usize, CUBE_POS_Y as usize);
    let column = CUBE_POS_X as usize * COLUMNS + UNIT_POS_X as usize;
    let at = min(column, width - 1);
    let mut lanes = SharedMemory::<f32>::new(COLUMNS * LANES);
    let mut sum = 0.0f32;
    let mut row = lane;
    while row < rows {
        let end = min(row + LANES * RUN, rows);
        let mut run = 0.0f32;
        while row < end {
            run += x[(matrix * rows + row) * width + at];
            row += LANES;
        }
        sum += run;
    }
    lanes[UNIT_POS as usize] = sum;
    sync_cube();
    if lane == 0 && column < width {
        let mut total = 0.0f32;
        for other in 0..LANES {
            total += lanes[other * COLUMNS + UNIT_POS_X as usize];
        }
        y[matrix * width + column] = total;
    }
}
