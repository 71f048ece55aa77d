//! What every device must compute, with any backend.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use burn_backend::Backend;
use burn_tensor::{ElementConversion as _, Tensor};
use intellect_model::config::{Family, Work};
use intellect_model::data::{Dataset, Stream};
use intellect_model::train::TrainError;
use intellect_model::{Device, arch, genesis};

use crate::checks::{self, Form, Inner};
use crate::vectors::Vectors;

/// Held by a test that trains: what a device reports is noticed by whichever trainer runs then.
static TRAINING: Mutex<()> = Mutex::new(());

/// The device, if it can be used.
pub(crate) fn usable(device: Device) -> Option<Device> {
    match device.resolve() {
        Ok(device) => Some(device),
        Err(error) => {
            eprintln!("skipped: {error}");
            assert!(std::env::var_os("CI").is_none(), "{error}");
            None
        }
    }
}

/// Fills memory with NaN and releases it, so that later allocations do not find zeros.
fn leave_dirt<B: Backend>() {
    let device = Default::default();
    let held: Vec<_> = (3..23)
        .flat_map(|bits| std::iter::repeat_n(1_usize << bits, 6))
        .map(|size| Tensor::<B, 1>::full([size], f32::NAN, &device))
        .collect();
    assert!(held.into_iter().all(|x| x.sum().into_scalar().elem::<f32>().is_nan()));
}

/// Asserts that every check of a family's file is within its bound, in fresh memory (`false`) and
/// in used memory (`true`).
pub(crate) fn assert_golden<A: Form>(name: &str, dirty: &[bool]) {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared");
    let shared = std::env::var_os("INTELLECT_SHARED").map_or_else(|| beside.into(), PathBuf::from);
    let file = shared.join("golden").join(name);
    if !file.is_file() {
        return eprintln!("skipped: no golden vectors in {}", file.display());
    }
    let vectors = Vectors::read(&file).unwrap();
    for dirty in dirty {
        if *dirty {
            leave_dirt::<Inner<A>>();
        }
        let checks = checks::checks_of::<A>(&vectors).unwrap();
        assert!(checks.len() > 20, "{} checks", checks.len());
        let wrong: Vec<_> = checks.iter().filter(|check| !check.passes()).collect();
        assert!(wrong.is_empty(), "dirty memory: {dirty}; {} wrong: {wrong:#?}", wrong.len());
    }
}

/// The smallest model of a family that has all of its parts.
fn work_of(family: Family) -> Work {
    let mut work = Work::synthetic();
    work.model = family.bench_model();
    (work.model.layers, work.model.context, work.train.batch) = (3, 80, 2);
    work
}

/// Creating a trainer checks the device, and a step on it has the loss of a step on the CPU.
pub(crate) fn assert_every_family_starts_and_learns(device: Device) {
    let _alone = TRAINING.lock().unwrap_or_else(PoisonError::into_inner);
    for family in Family::ALL {
        let work = work_of(family);
        let source = Arc::new(Dataset::open(&work, 5, &[]).unwrap());
        let step = |device| {
            let mut trainer =
                intellect_model::trainer(&work, Arc::clone(&source), device, Some(1)).unwrap();
            trainer.model().load(&genesis::weights(5, &arch::specs(&work.model))).unwrap();
            trainer.step(&Stream { seed: [5; 32], committed: 0 }, 0, 0).unwrap()
        };
        let (expected, found) = (step(Device::Cpu), step(device));
        let apart = (expected.loss - found.loss).abs() / expected.loss;
        assert!(apart < 1e-4, "{}: {expected:?}, {found:?}", family.name());
    }
}

/// CubeCL alone would panic on one of its threads and return whatever was in memory before.
pub(crate) fn assert_an_allocation_that_fails_ends_the_device(device: Device) {
    let _alone = TRAINING.lock().unwrap_or_else(PoisonError::into_inner);
    let mut work = work_of(Family::Llama);
    // Logits of 17 GB: no emulated device has such a large buffer.
    (work.model.vocab, work.model.context, work.train.batch) = (1 << 20, 64, 64);
    work.model.width = 16;
    let source = Arc::new(Dataset::open(&work, 5, &[]).unwrap());
    let mut trainer = intellect_model::trainer(&work, source, device, None).unwrap();
    let stream = Stream { seed: [5; 32], committed: 0 };
    let error = trainer.step(&stream, 0, 0).unwrap_err();
    assert!(matches!(error, TrainError::Lost { .. }), "{error}");
    assert!(error.to_string().contains("--micro-batch"), "{error}");
    let error = trainer.model().store(&mut vec![0.0; 8]).unwrap_err();
    assert!(matches!(error, TrainError::Lost { .. }), "a lost device returns weights: {error}");
}
