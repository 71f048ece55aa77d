//! Gates and other elementwise maps of the RWKV families and GoldFinch.
//!
//! ```text
//! relu²    y = max(x, 0)²                 dx = dy∘2√y
//! gate     y = z + σ(r)∘x                 dx = dy∘σ(r),  dr = dx∘x∘(1 − σ(r)),  dz = dy
//! decayed  y = k∘(1 − exp(−exp w))        dk = dy∘(1 − e),  dw = dy∘k∘exp(w)∘e,  e = exp(−exp w)
//! ```
//!
//! Each is one pass over memory, where plain tensor code would pass once for each of its steps.

#[cfg(feature = "cube")]
mod cube;

use burn_backend::TensorMetadata;
use burn_backend::tensor::FloatTensor;
use burn_flex::FlexTensor;
use burn_tensor::activation;
use rayon::prelude::*;

use super::buf::{floats, floats_mut, make};
use super::clock;
#[cfg(feature = "cube")]
use super::cube::{GpuBackend, OnGpu};
use super::lanes::{exp, fma, sigmoid};
use super::operator::{FusedOps, Operator, primitive, tensor};
use super::rows::elementwise;

/// y = max(x, 0)², the activation of RWKV's channel mix (So et al. 2021, arXiv 2109.08668).
/// // [N, F]
#[derive(Clone, Copy, Debug)]
pub struct ReluSquare;

impl Operator<1> for ReluSquare {
    fn plain<B: FusedOps>(&self, [x]: [FloatTensor<B>; 1]) -> FloatTensor<B> {
        let x = activation::relu(tensor::<B, 2>(x));
        primitive(x.clone() * x)
    }

    /// y, which the following product saves as well; x is not needed any more.
    type Saved = FlexTensor;

    fn forward(&self, [mut y]: [FlexTensor; 1]) -> (FlexTensor, Self::Saved) {
        let _timer = clock::start("gate");
        relu_square(floats_mut(&mut y));
        (y.clone(), y)
    }

    /// dx = dy∘2√y: where x was negative y is 0, and so is the gradient.
    fn backward(&self, y: Self::Saved, mut d: FlexTensor) -> [FlexTensor; 1] {
        let _timer = clock::start("gate back");
        relu_square_grad(floats(&y), floats_mut(&mut d));
        [d]
    }

    #[cfg(feature = "cube")]
    fn on_gpu<B: GpuBackend>(&self, inputs: [FloatTensor<B>; 1]) -> Option<OnGpu<B, 1>> {
        Some(cube::relu_square::<B>(inputs))
    }
}

/// y = residual + sigmoid(r)∘x; inputs r, x and the residual. // all [N, D]
#[derive(Clone, Copy, Debug)]
pub struct GatedAdd;

impl Operator<3> for GatedAdd {
    fn plain<B: FusedOps>(&self, [r, x, residual]: [FloatTensor<B>; 3]) -> FloatTensor<B> {
        primitive(tensor::<B, 2>(residual) + activation::sigmoid(tensor::<B, 2>(r)) * tensor(x))
    }

    /// r and x; the residual's gradient is dy itself.
    type Saved = [FlexTensor; 2];

    fn forward(&self, [r, x, residual]: [FlexTensor; 3]) -> (FlexTensor, Self::Saved) {
        let _timer = clock::start("gate");
        let y = make(x.shape(), |y| gated_add(floats(&r), floats(&x), floats(&residual), y));
        (y, [r, x])
    }

    fn backward(&self, [r, x]: Self::Saved, dy: FlexTensor) -> [FlexTensor; 3] {
        let _timer = clock::start("gate back");
        let mut dr = make(r.shape(), |_| ());
        let dx = make(x.shape(), |dx| {
            gated_add_grad(floats(&r), floats(&x), floats(&dy), floats_mut(&mut dr), dx);
        });
        [dr, dx, dy]
    }

    #[cfg(feature = "cube")]
    fn on_gpu<B: GpuBackend>(&self, inputs: [FloatTensor<B>; 3]) -> Option<OnGpu<B, 3>> {
        Some(cube::gated_add::<B>(inputs))
    }
}

/// y = k∘(1 − exp(−exp w)): keys enter a state as strongly as it forgets (GoldFinch).
/// // k, w, y [N, D]
#[derive(Clone, Copy, Debug)]
pub struct DecayedKeys;

impl Operator<2> for DecayedKeys {
    fn plain<B: FusedOps>(&self, [k, w]: [FloatTensor<B>; 2]) -> FloatTensor<B> {
        let factor = tensor::<B, 2>(w).exp().neg().exp();
        primitive(tensor::<B, 2>(k) * (factor.neg() + 1.0))
    }

    /// k and w, from which the factor is computed again.
    type Saved = [FlexTensor; 2];

    fn forward(&self, [k, w]: [FlexTensor; 2]) -> (FlexTensor, Self::Saved) {
        let _timer = clock::start("gate");
        let y = make(k.shape(), |y| decayed(floats(&k), floats(&w), y));
        (y, [k, w])
    }

    fn backward(&self, [k, w]: Self::Saved, dy: FlexTensor) -> [FlexTensor; 2] {
        let _timer = clock::start("gate back");
        let mut dw = make(w.shape(), |_| ());
        let dk = make(k.shape(), |dk| {
            decayed_grad(floats(&k), floats(&w), floats(&dy), dk, floats_mut(&mut dw));
        });
        [dk, dw]
    }

    #[cfg(feature = "cube")]
    fn on_gpu<B: GpuBackend>(&self, inputs: [FloatTensor<B>; 2]) -> Option<OnGpu<B, 2>> {
        Some(cube::decayed_keys::<B>(inputs))
    }
}

elementwise! {
    /// x becomes max(x, 0)², in place.
    fn relu_square(; x) |i| {
        let positive = if x[i] > 0.0 { x[i] } else { 0.0 };
        x[i] = positive * positive;
    }

    /// d becomes d∘2√y, in place; y is the output.
    fn relu_square_grad(y; d) |i| {
        d[i] *= 2.0 * y[i].sqrt();
    }

    /// y = residual + σ(r)∘x.
    fn gated_add<S>(r, x, residual; y) |i| {
        y[i] = fma::<S>(sigmoid::<S>(r[i]), x[i], residual[i]);
    }

    /// dx = dy∘σ(r) and dr = dx∘x∘(1 − σ(r)).
    fn gated_add_grad<S>(r, x, dy; dr, dx) |i| {
        let s = sigmoid::<S>(r[i]);
        dx[i] = dy[i] * s;
        dr[i] = dx[i] * x[i] * (1.0 - s);
    }

    /// y = k∘(1 − exp(−exp w)).
    fn decayed<S>(k, w; y) |i| {
        y[i] = k[i] * (1.0 - exp::<S>(-exp::<S>(w[i])));
    }

    /// dk and dw, by d(1 − exp(−eʷ))/dw = eʷ·exp(−eʷ).
    fn decayed_grad<S>(k, w, dy; dk, dw) |i| {
        let rate = exp::<S>(w[i]);
        let factor = exp::<S>(-rate);
        dk[i] = dy[i] * (1.0 - factor);
        dw[i] = dy[i] * k[i] * rate * factor;
    }
}

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
