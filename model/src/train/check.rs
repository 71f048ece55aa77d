//! Whether a device computes the same as the CPU.
//!
//! Tests run on a software device and on emulated kernels, which say nothing about a contributor's
//! GPU and its driver. So each start on a GPU takes one step of a small model of the run's family
//! there and on the CPU, and compares the logits, the loss, the gradients and the updated weights.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use burn_autodiff::Autodiff;
use burn_flex::Flex;

use super::{Inner, Model, Place, Session, Stream, TrainBackend, TrainError};
use crate::arch::specs;
use crate::config::{self, Family, Work};
use crate::data::{Dataset, draw::Draw};
use crate::device::DeviceError;
use crate::genesis;
use crate::optim::Optimizer;
use crate::params;

/// The largest error of logits, loss and gradients, as a share of the largest value. Gradients that
/// nearly cancel differ by a thousandth in f32; a fault shows in the first digits.
const BOUND: f32 = 0.01;
/// The largest mean error of an update, as a share of the learning rate. Adam divides a gradient by
/// its size, so tiny gradients of uncertain sign cause full steps.
const MOVED: f32 = 0.1;
/// The learning rate of the one step.
const LEARNING_RATE: f64 = 1e-3;
/// The seed of the weights, the noise and the tokens.
const SEED: u64 = 1;
/// The width of the noise on each weight.
const NOISE: f32 = 0.1;

/// The devices and families that were checked in this process.
static CHECKED: Mutex<BTreeSet<(String, &'static str)>> = Mutex::new(BTreeSet::new());

/// Checks a GPU with a model of this family, once. The CPU is the reference, and is not checked.
///
/// # Errors
/// [`DeviceError::Wrong`], [`TrainError::Lost`]
pub(crate) fn device<A: TrainBackend>(place: &Place<A>, family: Family) -> Result<(), TrainError> {
    if !place.name.is_gpu() {
        return Ok(());
    }
    let key = (place.name.to_string(), family.name());
    let checked = || CHECKED.lock().unwrap_or_else(PoisonError::into_inner);
    if checked().contains(&key) {
        return Ok(());
    }
    let work = work(family);
    let (expected, found) = (step(&work, cpu())?, step(&work, place.clone())?);
    let Farthest { of_bound, what } = farthest(&work, &expected, &found);
    if is_more(of_bound, 1.0) {
        return Err(DeviceError::Wrong { asked: place.name, what }.into());
    }
    checked().insert(key);
    Ok(())
}

/// The reference for all devices.
pub(crate) fn cpu() -> Place<Autodiff<Flex>> {
    Place::new(Default::default(), crate::Device::Cpu)
}

/// A small model whose context is longer than a chunk of the recurrence, and no multiple of one.
pub(crate) fn work(family: Family) -> Work {
    let model = config::Model { context: 96, layers: 3, ..family.bench_model() };
    let mut work = Work { model, ..Work::synthetic() };
    work.train.batch = 2;
    work
}

/// The results of one step: everything that a fault of a kernel could change.
#[derive(Clone, Debug)]
pub(crate) struct Computed {
    /// Scores before the step. // [B·T, V]
    logits: Vec<f32>,
    /// The loss of the batch, in nats per token.
    loss: f64,
    /// In canonical order, like the weights.
    gradient: Vec<f32>,
    /// The weights after the update.
    weights: Vec<f32>,
}

impl Computed {
    /// Whether every bit is the same.
    pub(crate) fn same_bits(&self, other: &Self) -> bool {
        let all = |x: &Self| [x.logits.clone(), x.gradient.clone(), x.weights.clone()];
        self.loss.to_bits() == other.loss.to_bits() && same_bits(&all(self), &all(other))
    }
}

/// Whether every bit of two lists of tensors is the same.
pub(crate) fn same_bits(a: &[Vec<f32>], b: &[Vec<f32>]) -> bool {
    let same = |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits();
    a.len() == b.len()
        && a.iter().zip(b).all(|(a, b)| a.len() == b.len() && a.iter().zip(b).all(same))
}

/// The quantity with the largest error relative to its bound.
#[derive(Clone, Debug)]
pub(crate) struct Farthest {
    /// The error over the bound; up to 1 is accepted.
    pub(crate) of_bound: f32,
    /// The name of the quantity and its error.
    pub(crate) what: String,
}

/// One step of the small model with Adam's update, always on the same weights and data. So two
/// calls on one device have to give the same bits. It runs the kernels of training themselves, with
/// the optimiser, and not copies of them. A kernel that is wrong only at other sizes is not seen, nor is the sum of
/// several micro-batches or the border between two documents: the batch is one piece of random tokens.
pub(crate) fn step<A: TrainBackend>(work: &Work, place: Place<A>) -> Result<Computed, TrainError> {
    let source = Dataset::open(work, SEED, &[])?;
    let stream = Stream { seed: [SEED as u8; 32], committed: 0 };
    let batch = source.batch(&stream, 0, 0..work.train.batch)?;
    let mut session = Session::new(work, place.clone())?;
    let specs = specs(&work.model);
    session.load(&weights_of(&specs))?;
    let logits = session.logits(&batch.inputs, batch.sequences)?;
    let count = specs.iter().map(genesis::Spec::len).sum();
    let (mut gradient, mut weights) = (vec![0.0; count], vec![0.0; count]);
    let mut optimizer = Optimizer::<Inner<A>>::new(&work.train, session.arch.groups());
    let loss = place.over(|| {
        let (loss, gradients) = session.gradients(&batch, 1.0)?;
        params::download::<Inner<A>>(&gradients, &mut gradient)?;
        optimizer.step(&mut session.parameters, gradients, LEARNING_RATE)?;
        Ok(loss)
    })?;
    session.store(&mut weights)?;
    Ok(Computed { logits, loss, gradient, weights })
}

/// Weights with noise, because a zero weight would make the gradients that pass through it zero.
fn weights_of(specs: &[genesis::Spec]) -> Vec<f32> {
    let mut draw = Draw::new(&[SEED as u8; 32], 0, 0);
    let mut noise = || NOISE * (draw.unit() as f32 - 0.5);
    genesis::weights(SEED, specs).into_iter().map(|x| x + noise()).collect()
}

/// The quantity in `found` with the largest error relative to its bound.
pub(crate) fn farthest(work: &Work, expected: &Computed, found: &Computed) -> Farthest {
    let largest = "of the largest value";
    let mut all = vec![
        (distance(&expected.logits, &found.logits), BOUND, "a logit".to_owned(), largest),
        (
            ((expected.loss - found.loss).abs() / expected.loss) as f32,
            BOUND,
            "the loss".to_owned(),
            "of its value",
        ),
    ];
    let mut end = 0;
    for spec in specs(&work.model) {
        end += spec.len();
        let at = end - spec.len()..end;
        let apart = distance(&expected.gradient[at.clone()], &found.gradient[at.clone()]);
        all.push((apart, BOUND, format!("the gradient of {}", spec.name), largest));
        let pairs = expected.weights[at.clone()].iter().zip(&found.weights[at]);
        let apart = pairs.map(|(a, b)| (a - b).abs()).sum::<f32>() / spec.len() as f32;
        let apart = apart / (LEARNING_RATE * spec.group.lr_factor) as f32;
        all.push((apart, MOVED, format!("the update of {}", spec.name), "of the learning rate"));
    }
    let said = all.into_iter().map(|(apart, bound, what, of)| Farthest {
        of_bound: apart / bound,
        what: format!("{what} is off by {:.1} % {of}", 100.0 * apart),
    });
    let none = Farthest { of_bound: 0.0, what: String::new() };
    // NaN is farther than any number.
    said.fold(none, |most, x| if is_more(x.of_bound, most.of_bound) { x } else { most })
}

/// Whether x is larger, where NaN counts as the largest: a comparison with NaN would be false, and
/// hide it.
fn is_more(x: f32, most: f32) -> bool {
    x > most || (x.is_nan() && !most.is_nan())
}

/// The largest of `numbers`, where NaN is larger than any number.
pub(crate) fn largest(numbers: impl Iterator<Item = f32>) -> f32 {
    numbers.fold(0.0, |most, x| if is_more(x, most) { x } else { most })
}

/// The largest difference over the largest value. Rounding of all-zero values is ignored.
pub(crate) fn distance(expected: &[f32], found: &[f32]) -> f32 {
    let largest = expected.iter().fold(1e-6, |most: f32, x| most.max(x.abs()));
    self::largest(expected.iter().zip(found).map(|(a, b)| (a - b).abs() / largest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn computed(work: &Work) -> Computed {
        step(work, cpu()).unwrap()
    }

    #[test]
    fn the_worst_of_what_is_off_is_named() {
        let work = work(Family::Llama);
        let (expected, mut found) = (computed(&work), computed(&work));
        let difference = |found: &Computed| {
            let Farthest { of_bound, what } = farthest(&work, &expected, found);
            is_more(of_bound, 1.0).then_some(what)
        };
        assert_eq!(difference(&found), None);
        assert!(found.same_bits(&expected));
        found.loss *= 1.02;
        let what = difference(&found).unwrap();
        assert_eq!(what, "the loss is off by 2.0 % of its value");
        *found.gradient.last_mut().unwrap() = f32::NAN;
        let what = difference(&found).unwrap();
        assert!(what.starts_with("the gradient of lm_head.weight is off by NaN"), "{what}");
        let (end, lr) = (specs(&work.model)[0].len(), LEARNING_RATE as f32);
        found = computed(&work);
        found.weights[..end].iter_mut().for_each(|x| *x += lr);
        let what = difference(&found).unwrap();
        assert!(
            what.contains("the update of model.embed_tokens.weight is off by 100.0 %"),
            "{what}"
        );
    }

    #[test]
    fn no_gradient_of_the_small_model_is_nothing() {
        for family in Family::ALL {
            let work = work(family);
            let gradient = computed(&work).gradient;
            let mut end = 0;
            for spec in specs(&work.model) {
                end += spec.len();
                let some = gradient[end - spec.len()..end].iter().any(|g| g.abs() > 1e-7);
                // In GoldFinch one parameter is unused, and a bias of all keys changes no softmax.
                let idle = [".time_faaaa", ".att.ln_k.bias"];
                let idle = idle.iter().any(|name| spec.name.ends_with(name));
                let idle = idle && family == Family::GoldFinch;
                assert!(some || idle, "{}: {}", family.name(), spec.name);
            }
        }
    }
}
