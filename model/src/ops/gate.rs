//! Gates and other elementwise maps of the RWKV families and GoldFinch.

use burn::tensor::activation::{relu, sigmoid};
use burn_backend::tensor::FloatTensor;
use burn_backend::{Backend, TensorMetadata};
use burn_flex::FlexTensor;
use pulp::Simd;
use rayon::prelude::*;

use super::buf::{floats, floats_mut, make};
use super::lanes::{blocks, exp, fma, simd};
use super::operator::{Operator, primitive, tensor};
use super::{clock, lanes};

/// y = max(x, 0)². // any shape
#[derive(Clone, Copy, Debug)]
pub struct ReluSquare;

impl Operator<1> for ReluSquare {
    fn plain<B: Backend>(&self, [x]: [FloatTensor<B>; 1]) -> FloatTensor<B> {
        let x = relu(tensor::<B, 2>(x));
        primitive(x.clone() * x)
    }

    /// y, which the product behind it holds as well: x is not needed any more
    type Saved = FlexTensor;

    fn forward(&self, [mut y]: [FlexTensor; 1]) -> (FlexTensor, Self::Saved) {
        let _timer = clock::start("gate");
        floats_mut(&mut y).par_chunks_mut(ELEMENTS).for_each(relu_square);
        (y.clone(), y)
    }

    /// dx = dy∘2√y
    fn backward(&self, y: Self::Saved, mut d: FlexTensor) -> [FlexTensor; 1] {
        let _timer = clock::start("gate back");
        let chunks = floats(&y).par_chunks(ELEMENTS);
        chunks
            .zip(floats_mut(&mut d).par_chunks_mut(ELEMENTS))
            .for_each(|(y, d)| relu_square_grad(y, d));
        [d]
    }
}

/// y = residual + sigmoid(r)∘x, of r, x and the residual. // all [N, D]
#[derive(Clone, Copy, Debug)]
pub struct GatedAdd;

impl Operator<3> for GatedAdd {
    fn plain<B: Backend>(&self, [r, x, residual]: [FloatTensor<B>; 3]) -> FloatTensor<B> {
        primitive(tensor::<B, 2>(residual) + sigmoid(tensor::<B, 2>(r)) * tensor(x))
    }

    /// r, x
    type Saved = [FlexTensor; 2];

    fn forward(&self, [r, x, residual]: [FlexTensor; 3]) -> (FlexTensor, Self::Saved) {
        let _timer = clock::start("gate");
        let y = make(x.shape(), |y| {
            let inputs = floats(&r).par_chunks(ELEMENTS).zip(floats(&x).par_chunks(ELEMENTS));
            let inputs = inputs.zip(floats(&residual).par_chunks(ELEMENTS));
            let chunks = inputs.zip(y.par_chunks_mut(ELEMENTS));
            chunks.for_each(|(((r, x), residual), y)| gated_add(r, x, residual, y));
        });
        (y, [r, x])
    }

    fn backward(&self, [r, x]: Self::Saved, dy: FlexTensor) -> [FlexTensor; 3] {
        let _timer = clock::start("gate back");
        let mut dr = make(r.shape(), |_| ());
        let dx = make(x.shape(), |dx| {
            let inputs = floats(&r).par_chunks(ELEMENTS).zip(floats(&x).par_chunks(ELEMENTS));
            let inputs = inputs.zip(floats(&dy).par_chunks(ELEMENTS));
            let outputs = floats_mut(&mut dr).par_chunks_mut(ELEMENTS);
            let chunks = inputs.zip(outputs.zip(dx.par_chunks_mut(ELEMENTS)));
            chunks.for_each(|(((r, x), dy), (dr, dx))| gated_add_grad(r, x, dy, dr, dx));
        });
        [dr, dx, dy]
    }
}

/// y = k∘(1 − exp(−exp w)): keys that enter a state as strongly as it forgets (GoldFinch).
/// // k, w, y [N, D]
#[derive(Clone, Copy, Debug)]
pub struct DecayedKeys;

impl Operator<2> for DecayedKeys {
    fn plain<B: Backend>(&self, [k, w]: [FloatTensor<B>; 2]) -> FloatTensor<B> {
        let factor = tensor::<B, 2>(w).exp().neg().exp();
        primitive(tensor::<B, 2>(k) * (factor.neg() + 1.0))
    }

    /// k, w
    type Saved = [FlexTensor; 2];

    fn forward(&self, [k, w]: [FlexTensor; 2]) -> (FlexTensor, Self::Saved) {
        let _timer = clock::start("gate");
        let y = make(k.shape(), |y| {
            let inputs = floats(&k).par_chunks(ELEMENTS).zip(floats(&w).par_chunks(ELEMENTS));
            inputs.zip(y.par_chunks_mut(ELEMENTS)).for_each(|((k, w), y)| decayed(k, w, y));
        });
        (y, [k, w])
    }

    fn backward(&self, [k, w]: Self::Saved, dy: FlexTensor) -> [FlexTensor; 2] {
        let _timer = clock::start("gate back");
        let mut dw = make(w.shape(), |_| ());
        let dk = make(k.shape(), |dk| {
            let inputs = floats(&k).par_chunks(ELEMENTS).zip(floats(&w).par_chunks(ELEMENTS));
            let inputs = inputs.zip(floats(&dy).par_chunks(ELEMENTS));
            let outputs = dk.par_chunks_mut(ELEMENTS);
            let chunks = inputs.zip(outputs.zip(floats_mut(&mut dw).par_chunks_mut(ELEMENTS)));
            chunks.for_each(|(((k, w), dy), (dk, dw))| decayed_grad(k, w, dy, dk, dw));
        });
        [dk, dw]
    }
}

#[inline(always)]
fn relu_square_block(x: &mut [f32]) {
    for x in x {
        let positive = if *x > 0.0 { *x } else { 0.0 };
        *x = positive * positive;
    }
}

#[inline(always)]
fn relu_square_grad_block(y: &[f32], d: &mut [f32]) {
    for i in 0..d.len() {
        d[i] *= 2.0 * y[i].sqrt();
    }
}

#[inline(always)]
fn gated_add_block<S: Simd>(r: &[f32], x: &[f32], residual: &[f32], y: &mut [f32]) {
    for i in 0..y.len() {
        y[i] = fma::<S>(lanes::sigmoid::<S>(r[i]), x[i], residual[i]);
    }
}

#[inline(always)]
fn gated_add_grad_block<S: Simd>(r: &[f32], x: &[f32], dy: &[f32], dr: &mut [f32], dx: &mut [f32]) {
    for i in 0..dx.len() {
        let s = lanes::sigmoid::<S>(r[i]);
        dx[i] = dy[i] * s;
        dr[i] = dx[i] * x[i] * (1.0 - s);
    }
}

#[inline(always)]
fn decayed_block<S: Simd>(k: &[f32], w: &[f32], y: &mut [f32]) {
    for i in 0..y.len() {
        y[i] = k[i] * (1.0 - exp::<S>(-exp::<S>(w[i])));
    }
}

/// d(1 − exp(−eʷ))/dw = eʷ·exp(−eʷ)
#[inline(always)]
fn decayed_grad_block<S: Simd>(k: &[f32], w: &[f32], dy: &[f32], dk: &mut [f32], dw: &mut [f32]) {
    for i in 0..dk.len() {
        let rate = exp::<S>(w[i]);
        let factor = exp::<S>(-rate);
        dk[i] = dy[i] * (1.0 - factor);
        dw[i] = dy[i] * k[i] * rate * factor;
    }
}

simd! {
    fn relu_square<S>(x: &mut [f32]) {
        blocks!(relu_square_block(; x));
    }

    fn relu_square_grad<S>(y: &[f32], d: &mut [f32]) {
        blocks!(relu_square_grad_block(y; d));
    }

    fn gated_add<S>(r: &[f32], x: &[f32], residual: &[f32], y: &mut [f32]) {
        blocks!(gated_add_block::<S>(r, x, residual; y));
    }

    fn gated_add_grad<S>(r: &[f32], x: &[f32], dy: &[f32], dr: &mut [f32], dx: &mut [f32]) {
        blocks!(gated_add_grad_block::<S>(r, x, dy; dr, dx));
    }

    fn decayed<S>(k: &[f32], w: &[f32], y: &mut [f32]) {
        blocks!(decayed_block::<S>(k, w; y));
    }

    fn decayed_grad<S>(k: &[f32], w: &[f32], dy: &[f32], dk: &mut [f32], dw: &mut [f32]) {
        blocks!(decayed_grad_block::<S>(k, w, dy; dk, dw));
    }
}

/// Elements per task.
const ELEMENTS: usize = 1 << 14;

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_plain, assert_slopes, input};
    use super::*;

    #[test]
    fn gates_are_the_plain_form() {
        for (rows, width) in [(1, 1), (5, 7), (130, 64), (300, 65)] {
            let [r, x, residual] = [1, 2, 3].map(|seed| input(&[rows, width], 3.0, seed));
            assert_plain(ReluSquare, [x.clone()]);
            assert_plain(DecayedKeys, [x.clone(), r.clone()]);
            assert_plain(GatedAdd, [r, x, residual]);
        }
    }

    #[test]
    fn gradients_are_slopes() {
        let [r, x, residual] = [1, 2, 3].map(|seed| input(&[14, 12], 1.0, seed));
        assert_slopes(ReluSquare, [x.clone()]);
        assert_slopes(DecayedKeys, [x.clone(), r.clone()]);
        assert_slopes(GatedAdd, [r, x, residual]);
    }
}
