//! AdamW with a bound on the gradient's global norm.
//!
//! Loshchilov & Hutter 2019, with g already clipped (Pascanu et al. 2013), t counted from 1:
//!
//! ```text
//! g ← g · min(1, c / ‖g‖)           over all parameters together; c = 0 leaves g alone
//! m ← β₁m + (1 − β₁)g,  v ← β₂v + (1 − β₂)g²
//! θ ← θ − η·λ·θ − η · m/(1 − β₁ᵗ) / (√(v/(1 − β₂ᵗ)) + ε)
//! ```
//!
//! A parameter's [`Group`], which its architecture declares, multiplies η and may omit λ. The
//! moments are on the device, start at zero with the first step, and survive any replacement of the
//! parameters: an outer step changes θ and keeps m and v. A gradient that is not finite changes
//! nothing and is an error.
//!
//! The caller chooses the learning rate ([`schedule`](crate::schedule)).

use burn_backend::TensorMetadata;
use burn_backend::tensor::{Device, FloatTensor};
use thiserror::Error;

use crate::config::Train;
use crate::ops::{AdamW, FusedOps, SquareSum};
use crate::params::{self, ParamsError};

/// Adam's moments, and the settings of their updates.
#[derive(Debug)]
pub struct Optimizer<B: FusedOps> {
    /// The settings, such as β₁, β₂, ε and the bound of the gradient's norm.
    train: Train,
    /// How each parameter is treated, in canonical order.
    groups: Vec<Group>,
    /// m and v of each parameter; empty before the first step.
    moments: Vec<[FloatTensor<B>; 2]>,
    /// t, the steps since the moments were zero; a refused step does not count.
    steps: u64,
}

/// How the optimiser treats one parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Group {
    /// Factor of the learning rate; 1 is the common rate. It also scales the weight decay, which is
    /// multiplied by the rate.
    pub lr_factor: f64,
    /// Whether the weight decay λ applies.
    pub decays: bool,
}

/// Why a step was not taken. Parameters and moments are as before.
#[derive(Debug, Error)]
pub enum OptimError {
    /// The training has diverged: the learning rate is too high, or a batch is abnormal. The caller
    /// may go on from other weights, but the same step would fail again.
    #[error("the gradient is not finite (norm {norm}) in step {step} of this process")]
    NotFinite {
        /// √Σ g² over all parameters, before clipping.
        norm: f64,
        /// The step of this process, counted from 1.
        step: u64,
    },
    /// The device failed to return a number.
    #[error(transparent)]
    Params(#[from] ParamsError),
}

impl Group {
    /// The common learning rate and weight decay, as for a matrix.
    pub const DECAYED: Self = Self { lr_factor: 1.0, decays: true };
    /// The common learning rate without weight decay, as for a norm or a vector of mixes.
    pub const FREE: Self = Self { lr_factor: 1.0, decays: false };

    /// The update of a parameter of this group.
    fn of(self, update: AdamW) -> AdamW {
        AdamW {
            learning_rate: update.learning_rate * self.lr_factor as f32,
            weight_decay: if self.decays { update.weight_decay } else { 0.0 },
            ..update
        }
    }
}

impl<B: FusedOps> Optimizer<B> {
    /// An optimiser that has no moments yet, with one group for each tensor of parameters.
    #[must_use]
    pub fn new(train: &Train, groups: Vec<Group>) -> Self {
        Self { train: train.clone(), groups, moments: Vec::new(), steps: 0 }
    }

    /// Steps taken since the moments were zero.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Updates `parameters` by `gradients`, which are in the same order, and returns the norm of
    /// the gradients before clipping.
    ///
    /// # Errors
    /// Any of [`OptimError`]; nothing has changed then.
    ///
    /// # Panics
    /// If there is not one gradient and one group for each parameter.
    pub fn step(
        &mut self,
        parameters: &mut Vec<FloatTensor<B>>,
        gradients: Vec<FloatTensor<B>>,
        learning_rate: f64,
    ) -> Result<f64, OptimError> {
        assert_eq!(parameters.len(), gradients.len(), "a gradient for every parameter");
        assert_eq!(parameters.len(), self.groups.len(), "a group for every parameter");
        let step = self.steps + 1;
        let norm = global_norm::<B>(&gradients)?;
        if !norm.is_finite() {
            return Err(OptimError::NotFinite { norm, step });
        }
        if self.moments.is_empty() {
            self.moments = parameters.iter().map(zero_moments::<B>).collect();
        }
        let update = update(&self.train, norm, learning_rate, step);
        // Moved out of their lists and back: only a tensor without other owners is updated in
        // place.
        let old = std::mem::take(parameters).into_iter().zip(std::mem::take(&mut self.moments));
        for (((p, [m, v]), g), group) in old.zip(gradients).zip(&self.groups) {
            let [p, m, v] = B::untracked(group.of(update), [p, g, m, v]);
            parameters.push(p);
            self.moments.push([m, v]);
        }
        self.steps = step;
        Ok(norm)
    }
}

/// The constants of step `step`, counted from 1, for gradients of this norm. Powers are taken in
/// f64: in f32 1 − β₂ᵗ would lose digits in the first steps.
fn update(train: &Train, norm: f64, learning_rate: f64, step: u64) -> AdamW {
    let clips = train.clip > 0.0 && norm > train.clip;
    let scale = if clips { train.clip / norm } else { 1.0 };
    let t = step as f64;
    AdamW {
        learning_rate: learning_rate as f32,
        beta1: train.beta1 as f32,
        beta2: train.beta2 as f32,
        eps: train.eps as f32,
        weight_decay: train.weight_decay as f32,
        correction1: (1.0 - libm::pow(train.beta1, t)) as f32,
        correction2: (1.0 - libm::pow(train.beta2, t)) as f32,
        gradient_scale: scale as f32,
    }
}

/// √Σ g², with a single read from the device: each read would wait for all that was begun.
fn global_norm<B: FusedOps>(gradients: &[FloatTensor<B>]) -> Result<f64, ParamsError> {
    let sums = gradients.iter().flat_map(|gradient| B::untracked(SquareSum, [gradient.clone()]));
    let sums = params::values::<B>(B::float_cat(sums.collect(), 0))?;
    Ok(sums.iter().map(|&sum| f64::from(sum)).sum::<f64>().sqrt())
}

/// m and v before the first step, in the parameter's shape and on its device.
fn zero_moments<B: FusedOps>(parameter: &FloatTensor<B>) -> [FloatTensor<B>; 2] {
    let device: Device<B> = B::float_device(parameter);
    let zeros = || B::float_zeros(parameter.shape(), &device, parameter.dtype().into());
    [zeros(), zeros()]
}

#[cfg(test)]
mod tests {
    use burn_flex::Flex;

    use super::*;
    use crate::config::Work;

    fn train(clip: f64) -> Train {
        let train = Work::synthetic().train;
        Train { beta1: 0.9, beta2: 0.95, eps: 1e-8, weight_decay: 0.1, clip, ..train }
    }

    /// The groups of the two tensors of the tests.
    const GROUPS: [Group; 2] = [Group::DECAYED, Group { lr_factor: 2.0, decays: false }];

    fn tensors(values: &[f32]) -> Vec<FloatTensor<Flex>> {
        params::upload::<Flex>(&[vec![2], vec![1, 2]], values, &Default::default()).unwrap()
    }

    fn values(tensors: &[FloatTensor<Flex>]) -> [f32; 4] {
        let mut values = [0.0; 4];
        params::download::<Flex>(tensors, &mut values).unwrap();
        values
    }

    /// Compares the optimiser with the module's equations in f64, over three steps of changing
    /// size.
    #[test]
    fn it_follows_the_equations() {
        let mut optimizer = Optimizer::<Flex>::new(&train(1.0), GROUPS.to_vec());
        let mut theta = tensors(&[0.5, -1.0, 2.0, 0.0]);
        let (mut p, mut m, mut v) = ([0.5, -1.0, 2.0, 0.0_f64], [0.0; 4], [0.0; 4]);
        for (t, size) in [(1, 4.0), (2, 0.1), (3, 1.0)] {
            let gradient = [0.3, -0.2, 0.9, -0.4].map(|g| g * size);
            let expected = gradient.iter().map(|g| g * g).sum::<f64>().sqrt();
            let eta = 0.01 * f64::from(t);
            let norm = optimizer.step(&mut theta, tensors(&gradient.map(|g| g as f32)), eta);
            assert!((norm.unwrap() - expected).abs() < 1e-6);
            for i in 0..4 {
                let g = gradient[i] * (1.0 / expected).min(1.0);
                m[i] = 0.9 * m[i] + 0.1 * g;
                v[i] = 0.95 * v[i] + 0.05 * g * g;
                let (m, v) = (m[i] / (1.0 - 0.9_f64.powi(t)), v[i] / (1.0 - 0.95_f64.powi(t)));
                let (factor, decay) = if i < 2 { (1.0, 0.1) } else { (2.0, 0.0) };
                p[i] -= factor * eta * (decay * p[i] + m / (v.sqrt() + 1e-8));
            }
            for (found, expected) in values(&theta).into_iter().zip(p) {
                assert!((f64::from(found) - expected).abs() < 1e-6, "step {t}: {found} {expected}");
            }
        }
        assert_eq!(optimizer.steps(), 3);
    }

    #[test]
    fn a_gradient_that_is_not_finite_changes_nothing() {
        let mut optimizer = Optimizer::<Flex>::new(&train(1.0), GROUPS.to_vec());
        let mut theta = tensors(&[0.5, -1.0, 2.0, 0.0]);
        optimizer.step(&mut theta, tensors(&[0.1; 4]), 0.1).unwrap();
        let before = values(&theta);
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let result = optimizer.step(&mut theta, tensors(&[0.1, 0.1, bad, 0.1]), 0.1);
            assert!(matches!(result, Err(OptimError::NotFinite { step: 2, .. })));
        }
        assert_eq!((values(&theta), optimizer.steps()), (before, 1));
        optimizer.step(&mut theta, tensors(&[0.1; 4]), 0.1).unwrap();
        assert!(values(&theta).iter().all(|x| x.is_finite()));
    }

    #[test]
    fn without_a_bound_the_norm_does_not_matter() {
        let step = |clip: f64| {
            let mut optimizer = Optimizer::<Flex>::new(&train(clip), GROUPS.to_vec());
            let mut theta = tensors(&[0.5, -1.0, 2.0, 0.0]);
            for size in [1.0, 50.0] {
                optimizer.step(&mut theta, tensors(&[size; 4]), 0.1).unwrap();
            }
            values(&theta)
        };
        assert_eq!(step(0.0), step(1e6));
        assert_ne!(step(0.0), step(1.0));
    }
}
