//! Maps of low rank on GPUs: matrix products, and one launch for the elementwise part.
//! `low_rank.rs` has the operators.
//!
//! The elementwise part cannot be a part of the product, which is a kernel of cubek. So it writes a
//! second tensor, and that of the product is freed when the forward pass returns.

use burn_backend::TensorMetadata as _;
use burn_backend::tensor::FloatTensor;
use cubecl::prelude::*;

use super::super::cube::{
    GpuBackend, OnGpu, contiguous, count, empty, launch, product, sum_rows, turned, units,
};

/// y = tanh(x·W) and its backward pass, which keeps y.
pub(super) fn tanh_project<B: GpuBackend>([x, w]: [FloatTensor<B>; 2]) -> OnGpu<B, 2> {
    let z = product(x.clone(), w.clone());
    let y = empty(&z, z.shape());
    launch!(squash, y, units(&y, count(&y)), [&z, &y]);
    let saved = y.clone();
    let back = move |dy| {
        let (dy, dz) = (contiguous(dy), empty(&saved, saved.shape()));
        launch!(squash_back, dz, units(&dz, count(&dz)), [&saved, &dy, &dz]);
        [product(dz.clone(), turned::<B>(w)), product(turned::<B>(x), dz)]
    };
    (y, Box::new(back))
}

/// y = base + a·W and its backward pass. A base of one row gets the sum of dy over rows.
pub(super) fn expand<B: GpuBackend>([a, w, base]: [FloatTensor<B>; 3]) -> OnGpu<B, 3> {
    let z = product(a.clone(), w.clone());
    let (base, y) = (contiguous(base), empty(&z, z.shape()));
    launch!(add, y, units(&y, count(&y)), [&z, &base, &y], count(&base));
    let of_one_row = base.shape().num_dims() == 1;
    let back = move |dy: FloatTensor<B>| {
        let dy = contiguous(dy);
        let [rows, width] = [0, 1].map(|at| dy.shape()[at]);
        let da = product(dy.clone(), turned::<B>(w));
        let dw = product(turned::<B>(a), dy.clone());
        let dbase = if of_one_row {
            let sums = sum_rows(&B::float_reshape(dy, [1, rows, width].into()));
            B::float_reshape(sums, [width].into())
        } else {
            dy
        };
        [da, dw, dbase]
    };
    (y, Box::new(back))
}

// Not `tanh`: a kernel of that name would shadow the function of WGSL and CUDA.
/// One element of y = tanh x.
#[cube(launch_unchecked)]
fn squash(x: &Tensor<f32>, y: &mut Tensor<f32>) {
    let i = ABSOLUTE_POS;
    if i < y.len() {
        y[i] = x[i].tanh();
    }
}

/// One element of dz = dy∘(1 − y²).
#[cube(launch_unchecked)]
fn squash_back(y: &Tensor<f32>, dy: &Tensor<f32>, dx: &mut Tensor<f32>) {
    let i = ABSOLUTE_POS;
    if i < dx.len() {
        dx[i] = dy[i] * (1.0f32 - y[i] * y[i]);
    }
}

/// y = x + base, where base is repeated to the length of x.
#[cube(launch_unchecked)]
fn add(x: &Tensor<f32>, base: &Tensor<f32>, y: &mut Tensor<f32>, period: usize) {
    let i = ABSOLUTE_POS;
    if i < y.len() {
        y[i] = x[i] + base[i % period];
    }
}
