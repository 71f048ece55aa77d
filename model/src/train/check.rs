//! Whether a device computes what the CPU computes.
//!
//! Tests run on a software device and on emulated kernels; what a contributor's GPU and its driver compute, only
//! that machine can show. So each start on a GPU takes one step of a small model of the run's family there and on
//! the CPU, and compares logits, loss, gradients and the weights after it.

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

/// Of the largest value. Gradients that nearly cancel differ by a thousandth in f32; a fault is in the first digits.
const BOUND: f32 = 0.01;
/// Of the learning rate, in the mean: Adam divides a gradient by its size, and tiny ones have either sign.
const MOVED: f32 = 0.1;
const LEARNING_RATE: f64 = 1e-3;
const SEED: u64 = 1;
const NOISE: f32 = 0.1;

/// The devices and families that were checked in this process.
static CHECKED: Mutex<BTreeSet<(String, &'static str)>> = Mutex::new(BTreeSet::new());

/// Checks a device with a model of this family, once.
///
/// # Errors
/// [`DeviceError::Wrong`], [`TrainError::Lost`]
pub(crate) fn device<A: TrainBackend>(place: &Place<A>, family: Family) -> Result<(), TrainError> {
    let key = (place.name.to_string(), family.name());
    let checked = || CHECKED.lock().unwrap_or_else(PoisonError::into_inner);
    if checked().contains(&key) {
        return Ok(());
    }
    let work = work(family);
    let cpu = Place::<Autodiff<Flex>>::new(Default::default(), crate::Device::Cpu);
    let (expected, found) = (step(&work, cpu)?, step(&work, place.clone())?);
    if let Some(what) = difference(&work, &expected, &found) {
        return Err(DeviceError::Wrong { asked: place.name, what }.into());
    }
    checked().insert(key);
    Ok(())
}

/// Longer than a chunk of the recurrence, and no multiple of one.
fn work(family: Family) -> Work {
    let model = config::Model { context: 96, layers: 3, ..family.bench_model() };
    let mut work = Work { model, ..Work::synthetic() };
    work.train.batch = 2;
    work
}

/// What one step computes.
struct Computed {
    logits: Vec<f32>,
    loss: f64,
    /// In canonical order, as the weights.
    gradient: Vec<f32>,
    weights: Vec<f32>,
}

fn step<A: TrainBackend>(work: &Work, place: Place<A>) -> Result<Computed, TrainError> {
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

/// No weight is zero, or gradients behind it would be.
fn weights_of(specs: &[genesis::Spec]) -> Vec<f32> {
    let mut draw = Draw::new(&[SEED as u8; 32], 0, 0);
    let mut noise = || NOISE * (draw.unit() as f32 - 0.5);
    genesis::weights(SEED, specs).into_iter().map(|x| x + noise()).collect()
}

/// What is off by the largest multiple of its bound, if anything is off by more than that.
fn difference(work: &Work, expected: &Computed, found: &Computed) -> Option<String> {
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
    // What is not a number is no less than its bound either.
    let wrong = all.into_iter().filter(|(apart, bound, ..)| !(apart <= bound));
    let times = |(apart, bound, ..): &(f32, f32, String, &str)| apart / bound;
    let worst = wrong.max_by(|a, b| times(a).total_cmp(&times(b)));
    worst.map(|(apart, _, what, of)| format!("{what} is off by {:.1} % {of}", 100.0 * apart))
}

/// The largest difference over the largest value; rounding of what is zero counts for nothing.
fn distance(expected: &[f32], found: &[f32]) -> f32 {
    let largest = expected.iter().fold(1e-6, |most: f32, x| most.max(x.abs()));
    let apart = expected.iter().zip(found).map(|(a, b)| (a - b).abs() / largest);
    // `max` would drop what is not a number.
    apart.fold(0.0, |most, d| if d > most || d.is_nan() { d } else { most })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn computed(work: &Work) -> Computed {
        step(work, Place::<Autodiff<Flex>>::new(Default::default(), crate::Device::Cpu)).unwrap()
    }

    #[test]
    fn the_worst_of_what_is_off_is_named() {
        let work = work(Family::Llama);
        let (expected, mut found) = (computed(&work), computed(&work));
        assert_eq!(difference(&work, &expected, &found), None);
        found.loss *= 1.02;
        let what = difference(&work, &expected, &found).unwrap();
        assert_eq!(what, "the loss is off by 2.0 % of its value");
        *found.gradient.last_mut().unwrap() = f32::NAN;
        let what = difference(&work, &expected, &found).unwrap();
        assert!(what.starts_with("the gradient of lm_head.weight is off by NaN"), "{what}");
        let (end, lr) = (specs(&work.model)[0].len(), LEARNING_RATE as f32);
        found = computed(&work);
        found.weights[..end].iter_mut().for_each(|x| *x += lr);
        let what = difference(&work, &expected, &found).unwrap();
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
                // In GoldFinch one takes no part, and a bias of all keys changes no softmax.
                let idle = [".time_faaaa", ".att.ln_k.bias"];
                let idle = idle.iter().any(|name| spec.name.ends_with(name));
                let idle = idle && family == Family::GoldFinch;
                assert!(some || idle, "{}: {}", family.name(), spec.name);
            }
        }
    }
}
