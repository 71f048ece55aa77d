//! Maps of low rank, base + tanh(x·W₁)·W₂: the way into the rank and the way out of it.
//!
//! Their matrices are [in, out], as RWKV-LM has them.

use burn::tensor::Tensor;
use burn_backend::tensor::FloatTensor;
use burn_backend::{Backend, TensorMetadata};
use burn_flex::FlexTensor;
use pulp::Simd;
use rayon::prelude::*;

use super::buf::{floats, floats_mut, make};
use super::gemm::{Mat, MatMut, Threads, Write, product};
use super::lanes::{blocks, fma, simd, tanh};
use super::operator::{Operator, primitive, tensor};
use super::{clock, rows};

/// y = tanh(x·W), the way into a low rank. // x [N, I], w [I, O], y [N, O]
#[derive(Clone, Copy, Debug)]
pub struct TanhProject;

impl Operator<2> for TanhProject {
    fn plain<B: Backend>(&self, [x, w]: [FloatTensor<B>; 2]) -> FloatTensor<B> {
        primitive(tensor::<B, 2>(x).matmul(tensor(w)).tanh())
    }

    /// x, w, y
    type Saved = [FlexTensor; 3];

    fn forward(&self, [x, w]: [FlexTensor; 2]) -> (FlexTensor, Self::Saved) {
        let y = make([x.shape()[0], w.shape()[1]], |y| {
            multiply(y, Write::Replace, &x, &w);
            let _timer = clock::start("gate");
            y.par_chunks_mut(ELEMENTS).for_each(tanh_all);
        });
        (y.clone(), [x, w, y])
    }

    fn backward(&self, [x, w, y]: Self::Saved, mut d: FlexTensor) -> [FlexTensor; 2] {
        let timer = clock::start("gate back");
        let chunks =
            floats(&y).par_chunks(ELEMENTS).zip(floats_mut(&mut d).par_chunks_mut(ELEMENTS));
        chunks.for_each(|(y, d)| tanh_grad(y, d));
        drop(timer);
        multiply_grad(&x, &w, &d)
    }
}

/// y = base + a·W, the way out of a low rank; a base of one row is added to every row.
/// // `a [N, I], w [I, O], base [O] or [N, O], y [N, O]`
#[derive(Clone, Copy, Debug)]
pub struct Expand;

impl Operator<3> for Expand {
    fn plain<B: Backend>(&self, [a, w, base]: [FloatTensor<B>; 3]) -> FloatTensor<B> {
        let base: Tensor<B, 2> = match base.shape().num_dims() {
            1 => tensor::<B, 1>(base).unsqueeze(),
            _ => tensor(base),
        };
        primitive(tensor::<B, 2>(a).matmul(tensor(w)) + base)
    }

    /// a, w, and how many dimensions the base has
    type Saved = ([FlexTensor; 2], usize);

    fn forward(&self, [a, w, base]: [FlexTensor; 3]) -> (FlexTensor, Self::Saved) {
        let rank = base.shape().num_dims();
        let y = make([a.shape()[0], w.shape()[1]], |y| {
            match rank {
                1 => rows::repeat(y, floats(&base)),
                _ => rows::copy(y, floats(&base)),
            }
            multiply(y, Write::Add, &a, &w);
        });
        (y, ([a, w], rank))
    }

    fn backward(&self, ([a, w], rank): Self::Saved, dy: FlexTensor) -> [FlexTensor; 3] {
        let [da, dw] = multiply_grad(&a, &w, &dy);
        let dbase = match rank {
            1 => make([w.shape()[1]], |d| rows::sum_rows(floats(&dy), d)),
            _ => dy,
        };
        [da, dw, dbase]
    }
}

/// y = x·W or y += x·W. // x [N, I], w [I, O], y [N, O]
fn multiply(y: &mut [f32], write: Write, x: &FlexTensor, w: &FlexTensor) {
    let _timer = clock::start("low rank");
    let [rows, inputs, outputs] = [x.shape()[0], w.shape()[0], w.shape()[1]];
    let (x, w) = (Mat::new(floats(x), rows, inputs), Mat::new(floats(w), inputs, outputs));
    product(MatMut::new(y, rows, outputs), write, x, w, Threads::Pool);
}

/// Gradients of x and W in y = x·W.
fn multiply_grad(x: &FlexTensor, w: &FlexTensor, dy: &FlexTensor) -> [FlexTensor; 2] {
    let _timer = clock::start("low rank back");
    let [rows, inputs, outputs] = [x.shape()[0], w.shape()[0], w.shape()[1]];
    let d = Mat::new(floats(dy), rows, outputs);
    let dx = make(x.shape(), |dx| {
        let w = Mat::new(floats(w), inputs, outputs);
        product(MatMut::new(dx, rows, inputs), Write::Replace, d, w.t(), Threads::Pool);
    });
    let dw = make(w.shape(), |dw| {
        let x = Mat::new(floats(x), rows, inputs);
        product(MatMut::new(dw, inputs, outputs), Write::Replace, x.t(), d, Threads::Pool);
    });
    [dx, dw]
}

#[inline(always)]
fn tanh_block<S: Simd>(y: &mut [f32]) {
    for y in y {
        *y = tanh::<S>(*y);
    }
}

/// d becomes d∘(1 − y²).
#[inline(always)]
fn tanh_grad_block<S: Simd>(y: &[f32], d: &mut [f32]) {
    for i in 0..d.len() {
        d[i] *= fma::<S>(-y[i], y[i], 1.0);
    }
}

simd! {
    fn tanh_all<S>(y: &mut [f32]) {
        blocks!(tanh_block::<S>(; y));
    }

    fn tanh_grad<S>(y: &[f32], d: &mut [f32]) {
        blocks!(tanh_grad_block::<S>(y; d));
    }
}

/// Elements per task.
const ELEMENTS: usize = 1 << 14;

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_plain, assert_slopes, input};
    use super::*;

    #[test]
    fn low_rank_maps_are_the_plain_form() {
        for (rows, width, rank) in [(1, 1, 1), (5, 7, 3), (130, 64, 32)] {
            let x = input(&[rows, width], 1.0, 1);
            assert_plain(TanhProject, [x, input(&[width, rank], 1.0, 2)]);
            let [a, w] = [input(&[rows, rank], 1.0, 1), input(&[rank, width], 1.0, 3)];
            for base in [vec![width], vec![rows, width]] {
                assert_plain(Expand, [a.clone(), w.clone(), input(&base, 1.0, 4)]);
            }
        }
    }

    #[test]
    fn gradients_are_slopes() {
        let [x, w] = [input(&[14, 12], 1.0, 1), input(&[12, 4], 0.3, 2)];
        assert_slopes(TanhProject, [x, w]);
        let [a, w] = [input(&[14, 4], 1.0, 1), input(&[4, 12], 1.0, 3)];
        assert_slopes(Expand, [a, w, input(&[14, 12], 1.0, 4)]);
    }
}
