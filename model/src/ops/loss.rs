//! The loss: cross entropy, and the z-loss that keeps logits from drifting.
//!
//! ```text
//! y = mean(lse(x) − x[target]) + weight·mean z²        lse(x) = ln Σ exp x
//! dx = (softmax(x) − onehot(target))/N + weight·d(mean z²)/dx
//! ```
//!
//! Positions are summed in f64. N is the number of positions of this call: a micro-batch, whose
//! mean the trainer weighs.

use std::sync::Arc;

use burn_backend::TensorMetadata;
use burn_backend::tensor::FloatTensor;
use burn_flex::FlexTensor;
use burn_tensor::{Int, Tensor, TensorData};
use rayon::prelude::*;

use super::buf::{floats, floats_mut, make};
use super::clock;
use super::lanes::{exp_lanes, max_lanes, simd};
use super::operator::{FusedOps, Operator, primitive, tensor};
use super::reduce;
use super::rows::{ELEMENTS, ROWS};

/// The number that the z-loss pulls towards zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZForm {
    /// The largest logit (INTELLECT-1); its gradient goes to the first largest logit only.
    Max,
    /// The logarithm of the partition function (PaLM, Chowdhery et al. 2022).
    LogSumExp,
}

/// An addition to the cross entropy: weight × mean z².
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ZLoss {
    /// The factor of the mean; 0 turns the z-loss off.
    pub weight: f32,
    /// How z is made from the logits of a position.
    pub form: ZForm,
}

/// Mean of −log softmax(logits)\[target\] over all positions, plus the z-loss.
/// // `logits [N, V], y [1]`
#[derive(Clone, Debug)]
pub struct CrossEntropy {
    /// The token that each position should predict, below V. // `[N]`
    pub targets: Arc<[i32]>,
    /// The addition to the cross entropy.
    pub z_loss: ZLoss,
}

impl Operator<1> for CrossEntropy {
    fn plain<B: FusedOps>(&self, [logits]: [FloatTensor<B>; 1]) -> FloatTensor<B> {
        let logits = tensor::<B, 2>(logits);
        let targets = TensorData::new(self.targets.to_vec(), [self.targets.len(), 1]);
        let targets = Tensor::<B, 2, Int>::from_data(targets, &logits.device());
        let log_p = reduce::log_softmax(logits.clone(), 1);
        let loss = reduce::mean(log_p.clone().gather(1, targets)).neg();
        if self.z_loss.weight == 0.0 {
            return primitive(loss);
        }
        let z = match self.z_loss.form {
            ZForm::Max => {
                let at = reduce::argmax(logits.clone().detach(), 1); // [N, 1]
                logits.gather(1, at)
            }
            // In any column log softmax(x) = x − lse.
            ZForm::LogSumExp => logits.narrow(1, 0, 1) - log_p.narrow(1, 0, 1),
        };
        primitive(loss + reduce::mean(z.clone() * z) * self.z_loss.weight)
    }

    /// The gradient of the logits, which replaces them: it is almost free while the loss is
    /// computed.
    type Saved = FlexTensor;

    fn forward(&self, [mut logits]: [FlexTensor; 1]) -> (FlexTensor, Self::Saved) {
        let _timer = clock::start("loss");
        let (vocabulary, count) = (logits.shape()[1], self.targets.len());
        let scale = 1.0 / count as f32;
        let chunks = floats_mut(&mut logits).par_chunks_mut(ROWS * vocabulary);
        let partial = chunks.zip(self.targets.par_chunks(ROWS)).map(|(logits, targets)| {
            let rows = logits.chunks_exact_mut(vocabulary).zip(targets);
            rows.map(|(x, &target)| position_loss(x, target, scale, self.z_loss)).sum()
        });
        let partial: Vec<f64> = partial.collect();
        let loss = (partial.into_iter().sum::<f64>() / count as f64) as f32;
        (make([1], |y| y.fill(loss)), logits)
    }

    /// The saved gradient, times that of the loss, which is 1 where nothing scales the loss.
    fn backward(&self, mut dx: Self::Saved, dy: FlexTensor) -> [FlexTensor; 1] {
        let factor = floats(&dy)[0];
        if factor != 1.0 {
            let chunks = floats_mut(&mut dx).par_chunks_mut(ELEMENTS);
            chunks.for_each(|x| scale_assign(x, factor));
        }
        [dx]
    }
}

/// The loss of one position in nats. Its logits are replaced by their gradient, times `scale`,
/// which is one over the number of positions.
///
/// # Panics
/// If the target is not below the length of x.
fn position_loss(x: &mut [f32], target: i32, scale: f32, z_loss: ZLoss) -> f64 {
    let target = target as usize;
    assert!(target < x.len(), "target {target} is beyond a vocabulary of {}", x.len());
    let goal = f64::from(x[target]);
    let largest = (z_loss.weight != 0.0 && z_loss.form == ZForm::Max).then(|| first_max(x));
    let (max, sum) = cross_entropy_row(x, target, scale);
    let lse = libm::log(f64::from(sum)) + f64::from(max);
    let mut loss = lse - goal;
    let weight = z_loss.weight;
    if let Some(at) = largest {
        loss += f64::from(weight) * f64::from(max) * f64::from(max);
        x[at] += 2.0 * weight * max * scale;
    } else if weight != 0.0 {
        loss += f64::from(weight) * lse * lse;
        // d(lse²)/dx = 2·lse·softmax(x), and x holds scale·(softmax − one-hot).
        let factor = 2.0 * weight * lse as f32;
        x[target] += scale;
        scale_assign(x, 1.0 + factor);
        x[target] -= scale;
    }
    loss
}

/// The index of the first largest element; 0 if all are NaN.
pub(super) fn first_max(x: &[f32]) -> usize {
    let mut best = 0;
    for (i, value) in x.iter().enumerate() {
        if *value > x[best] {
            best = i;
        }
    }
    best
}

simd! {
    /// Replaces a row of logits by `scale` × d(−log softmax(x)\[target\])/dx. Returns the maximum
    /// and Σ exp(x − max).
    fn cross_entropy_row<S>(x: &mut [f32], target: usize, scale: f32) -> (f32, f32) {
        let max = max_lanes(x);
        let sum = exp_lanes::<S>(x, 1.0, max);
        let k = scale / sum;
        for x in x.iter_mut() {
            *x *= k;
        }
        x[target] -= scale;
        (max, sum)
    }

    /// Multiplies each element by the factor.
    fn scale_assign<S>(x: &mut [f32], factor: f32) {
        for x in x {
            *x *= factor;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Upstream, assert_plain, assert_slopes, input, results};
    use super::*;

    const NONE: ZLoss = ZLoss { weight: 0.0, form: ZForm::Max };

    #[test]
    fn cross_entropy_is_the_plain_form() {
        let weight = 2e-2;
        let forms = [ZForm::Max, ZForm::LogSumExp].map(|form| ZLoss { weight, form });
        for (rows, vocabulary) in [(1, 2), (3, 7), (130, 64), (65, 257)] {
            let targets: Arc<[i32]> = (0..rows).map(|i| (i * 31 % vocabulary) as i32).collect();
            for z_loss in [NONE, forms[0], forms[1]] {
                let op = CrossEntropy { targets: targets.clone(), z_loss };
                assert_plain(op, [input(&[rows, vocabulary], 8.0, 1)]);
            }
        }
        for form in [ZForm::Max, ZForm::LogSumExp] {
            let z_loss = ZLoss { weight: 0.1, form };
            let op = CrossEntropy { targets: [1, 7, 0, 3, 3].into(), z_loss };
            assert_slopes(op, [input(&[5, 8], 1.0, 1)]);
        }
    }

    /// Logits far outside the range of f32's exponential.
    #[test]
    fn extreme_logits_stay_finite() {
        let logits = (vec![1e4, -1e4, 0.0, 1e4, -1e4, 0.0], vec![2, 3]);
        let op = CrossEntropy { targets: [0, 1].into(), z_loss: NONE };
        let found = results(op, [logits], Upstream::Expanded);
        assert!(found.iter().flatten().all(|x| x.is_finite()), "{found:?}");
        assert_eq!(found[0], [1e4]);
    }
}
