//! AdamW in one pass over parameter, gradient and moments (Loshchilov & Hutter 2019), and the
//! square of a gradient's norm. [`optim`](crate::optim) has the equations.

#[cfg(feature = "cube")]
mod cube;

use burn_backend::tensor::FloatTensor;
use burn_backend::{Backend, TensorMetadata};
use burn_flex::FlexTensor;
use rayon::prelude::*;

use super::buf::{floats, floats_mut, make};
use super::clock;
#[cfg(feature = "cube")]
use super::cube::GpuBackend;
use super::lanes::{dot_lanes, fma, simd};
use super::operator::{FusedOps, Untracked, primitive, tensor};
use super::reduce;

/// Σ x², a part of the square of the gradient's norm, by which gradients are clipped. // `y [1]`
#[derive(Clone, Copy, Debug)]
pub struct SquareSum;

impl Untracked<1, 1> for SquareSum {
    fn plain<B: FusedOps>(&self, [x]: [FloatTensor<B>; 1]) -> [FloatTensor<B>; 1] {
        let x = tensor::<B, 1>(flat::<B>(x));
        [primitive(reduce::sum(x.clone() * x))]
    }

    /// Chunks are summed in f32, and the chunks in f64, in their order. So the result does not
    /// depend on the number of threads.
    fn forward(&self, [x]: [FlexTensor; 1]) -> [FlexTensor; 1] {
        let _timer = clock::start("gradient norm");
        let chunks = floats(&x).par_chunks(ELEMENTS);
        let partial: Vec<f64> = chunks.map(|x| f64::from(square_sum(x))).collect();
        [make([1], |y| y.fill(partial.into_iter().sum::<f64>() as f32))]
    }
}

/// One update of a parameter p by its gradient g and its moments m, v; returns the new p, m, v.
///
/// The caller computes what is the same for all parameters of a step. `weight_decay` and
/// `learning_rate` may differ between parameters. // all of the parameter's shape
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    /// η, the learning rate of this step for this parameter.
    pub learning_rate: f32,
    /// β₁, the decay of the first moment.
    pub beta1: f32,
    /// β₂, the decay of the second moment.
    pub beta2: f32,
    /// ε, which is added to √v̂, so that a parameter whose gradient is always zero stays as it is.
    pub eps: f32,
    /// λ; the parameter shrinks by a share of η·λ.
    pub weight_decay: f32,
    /// 1 − β₁ᵗ, the bias of the first moment at the t-th step; it must not be 0.
    pub correction1: f32,
    /// 1 − β₂ᵗ, the bias of the second moment; it must not be 0.
    pub correction2: f32,
    /// The factor of the gradient, below 1 where its norm is clipped.
    pub gradient_scale: f32,
}

impl Untracked<4, 3> for AdamW {
    fn plain<B: FusedOps>(&self, inputs: [FloatTensor<B>; 4]) -> [FloatTensor<B>; 3] {
        let shape = inputs[0].shape();
        let [p, g, m, v] = inputs.map(|x| tensor::<B, 1>(flat::<B>(x)));
        let g = g * self.gradient_scale;
        let m = m * self.beta1 + g.clone() * (1.0 - self.beta1);
        let v = v * self.beta2 + g.clone() * g * (1.0 - self.beta2);
        let root = (v.clone() / self.correction2).sqrt();
        let update = m.clone() / self.correction1 / (root + self.eps);
        let p = p * (1.0 - self.learning_rate * self.weight_decay) - update * self.learning_rate;
        [p, m, v].map(|x| B::float_reshape(primitive(x), shape.clone()))
    }

    /// Overwrites p, m and v where they have no other owner.
    fn forward(&self, [mut p, g, mut m, mut v]: [FlexTensor; 4]) -> [FlexTensor; 3] {
        let _timer = clock::start("adamw");
        let [ps, ms, vs] = [&mut p, &mut m, &mut v].map(|x| floats_mut(x).par_chunks_mut(ELEMENTS));
        let tasks = (ps, floats(&g).par_chunks(ELEMENTS), ms, vs).into_par_iter();
        tasks.for_each(|(p, g, m, v)| adamw(p, g, m, v, *self));
        [p, m, v]
    }

    #[cfg(feature = "cube")]
    fn on_gpu<B: GpuBackend + FusedOps>(&self, inputs: [FloatTensor<B>; 4]) -> [FloatTensor<B>; 3] {
        cube::adamw::<B>(*self, inputs)
    }
}

/// Reshapes a tensor to one dimension.
fn flat<B: Backend>(x: FloatTensor<B>) -> FloatTensor<B> {
    let count = x.shape().num_elements();
    B::float_reshape(x, [count].into())
}

simd! {
    /// Σ xᵢ² of one task's elements, in f32.
    fn square_sum<S>(x: &[f32]) -> f32 {
        dot_lanes::<S>(x, x)
    }

    /// One task's part of the update. Divisions by the corrections are multiplications here, so the
    /// last bits differ from the plain form's.
    fn adamw<S>(p: &mut [f32], g: &[f32], m: &mut [f32], v: &mut [f32], step: AdamW) {
        let keep = 1.0 - step.learning_rate * step.weight_decay;
        let rate = step.learning_rate / step.correction1;
        let root = 1.0 / step.correction2.sqrt();
        for (((p, &g), m), v) in p.iter_mut().zip(g).zip(m).zip(v) {
            let g = g * step.gradient_scale;
            *m = fma::<S>(step.beta1, *m, (1.0 - step.beta1) * g);
            *v = fma::<S>(step.beta2, *v, (1.0 - step.beta2) * g * g);
            *p = *p * keep - rate * *m / fma::<S>(v.sqrt(), root, step.eps);
        }
    }
}

/// Elements that one task updates. Of four slices they take 512 KiB.
const ELEMENTS: usize = 1 << 15;

#[cfg(test)]
mod tests {
    use burn_flex::Flex;
    use burn_tensor::{Tensor, TensorData};

    use super::super::FusedOps;
    use super::super::tests::{distance, random};
    use super::*;

    #[test]
    fn adamw_and_square_sum_are_the_plain_form() {
        let step = AdamW {
            learning_rate: 3e-3,
            beta1: 0.9,
            beta2: 0.95,
            eps: 1e-8,
            weight_decay: 0.1,
            correction1: 0.19,
            correction2: 0.0975,
            gradient_scale: 0.4,
        };
        for count in [1, 65, 40_000] {
            let tensor = |seed: u64, offset: f32| {
                let values: Vec<f32> =
                    random(count, 1.0, seed).iter().map(|x| x + offset).collect();
                let data = TensorData::new(values, [count]);
                Tensor::<Flex, 1>::from_data(data, &Default::default()).into_primitive().tensor()
            };
            let inputs =
                || [(1, 0.0), (2, 0.0), (3, 0.0), (4, 1.0)].map(|(seed, by)| tensor(seed, by));
            let fused = Flex::untracked(step, inputs());
            for (fused, plain) in fused.iter().zip(&step.plain::<Flex>(inputs())) {
                assert!(distance(floats(fused), floats(plain)) < 1e-6);
            }
            let [fused] = Flex::untracked(SquareSum, [tensor(1, 0.0)]);
            let [plain] = SquareSum.plain::<Flex>([tensor(1, 0.0)]);
            assert!(distance(floats(&fused), floats(&plain)) < 1e-5);
        }
    }
}
