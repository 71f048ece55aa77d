//! The models on a device that CubeCL drives: every family's vectors, views that burn gets wrong, and what fails.
//!
//! Of a build with `--features intellect-model/wgpu`, on the GPU that Vulkan or Metal show first: in CI it is
//! Mesa's llvmpipe, a program. Where there is none the tests say so and pass; with `CI` set they fail.

#![cfg(feature = "wgpu")]
#![expect(clippy::print_stderr, reason = "a skipped test must say so")]
#![expect(clippy::unwrap_used, reason = "clippy does not see that helpers of a test are tests")]

#[path = "golden/checks.rs"]
mod checks;
#[expect(dead_code, reason = "operators use more of it")]
#[path = "../src/ops/reduce.rs"]
mod reduce;
#[path = "golden/llama.rs"]
mod llama;
#[path = "golden/rwkv.rs"]
mod rwkv;
#[path = "golden/vectors.rs"]
mod vectors;

use std::path::PathBuf;
use std::sync::Arc;

use burn_autodiff::Autodiff;
use burn_backend::Backend;
use burn_flex::Flex;
use burn_tensor::{ElementConversion, Tensor, TensorData};
use intellect_model::config::{Family, Work};
use intellect_model::data::{Dataset, Stream};
use intellect_model::train::TrainError;
use intellect_model::{Device, arch, genesis};
use proptest::prelude::*;
use vectors::Vectors;

type Gpu = burn_wgpu::Wgpu<f32, i32>;

/// The first GPU, if there is one.
fn device() -> Option<Device> {
    match Device::Gpu(Some(0)).resolve() {
        Ok(device) => Some(device),
        Err(error) => {
            eprintln!("skipped: {error}");
            assert!(std::env::var_os("CI").is_none(), "{error}");
            None
        }
    }
}

/// What is allocated later finds no zeros.
fn leave_dirt() {
    let device = Default::default();
    let held: Vec<_> = (3..23)
        .flat_map(|bits| std::iter::repeat_n(1_usize << bits, 6))
        .map(|size| Tensor::<Gpu, 1>::full([size], f32::NAN, &device))
        .collect();
    assert!(held.into_iter().all(|x| x.sum().into_scalar().is_nan()));
}

/// Nothing of a family's file is past its bound, in fresh memory and in used.
fn assert_golden(name: &str) {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared");
    let shared = std::env::var_os("INTELLECT_SHARED").map_or_else(|| beside.into(), PathBuf::from);
    let file = shared.join("golden").join(name);
    if device().is_none() {
        return;
    }
    if !file.is_file() {
        return eprintln!("skipped: no golden vectors in {}", file.display());
    }
    let vectors = Vectors::read(&file).unwrap();
    for dirty in [false, true] {
        if dirty {
            leave_dirt();
        }
        let checks = checks::checks_of::<Autodiff<Gpu>>(&vectors).unwrap();
        assert!(checks.len() > 20, "{} checks", checks.len());
        let wrong: Vec<_> = checks.iter().filter(|check| !check.passes()).collect();
        assert!(wrong.is_empty(), "dirty memory: {dirty}; {} wrong: {wrong:#?}", wrong.len());
    }
}

#[test]
fn llama_is_the_reference() {
    assert_golden("llama.safetensors");
}

#[test]
fn eagle_is_the_reference() {
    assert_golden("rwkv5.safetensors");
}

#[test]
fn finch_is_the_reference() {
    assert_golden("rwkv6.safetensors");
}

#[test]
fn goldfinch_is_the_reference() {
    assert_golden("goldfinch.safetensors");
}

/// A model of a family, as small as one can be that has everything.
fn work_of(family: Family) -> Work {
    let mut work = Work::synthetic();
    work.model = family.bench_model();
    (work.model.layers, work.model.context, work.train.batch) = (3, 80, 2);
    work
}

/// The start on a device checks it; a step on it is a step.
#[test]
fn every_family_starts_and_learns() {
    let Some(device) = device() else { return };
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

/// CubeCL's own answer is a panic on a thread of its own, and numbers of what was in memory before.
#[test]
fn an_allocation_that_fails_is_an_error_and_ends_the_device() {
    let Some(device) = device() else { return };
    let mut work = work_of(Family::Llama);
    // Logits of 17 GB: no software device has a buffer like that.
    (work.model.vocab, work.model.context, work.train.batch) = (1 << 20, 64, 64);
    work.model.width = 16;
    let source = Arc::new(Dataset::open(&work, 5, &[]).unwrap());
    let mut trainer = intellect_model::trainer(&work, source, device, None).unwrap();
    let stream = Stream { seed: [5; 32], committed: 0 };
    let error = trainer.step(&stream, 0, 0).unwrap_err();
    assert!(matches!(error, TrainError::Lost { .. }), "{error}");
    assert!(error.to_string().contains("--micro-batch"), "{error}");
    let error = trainer.model().store(&mut vec![0.0; 8]).unwrap_err();
    assert!(matches!(error, TrainError::Lost { .. }), "what it holds is handed out: {error}");
}

/// The axes of a permuted tensor that are to be reduced, one after the other.
fn reduced<B: Backend>(shape: [usize; 4], order: [usize; 4]) -> Vec<Vec<f32>> {
    let count = shape.iter().product();
    let values: Vec<f32> = (0..count).map(|i| ((7 * i + 3) % 31) as f32 - 15.0).collect();
    let x = TensorData::new(values, shape);
    let x = Tensor::<B, 4>::from_data(x, &Default::default()).permute(order.map(|at| at as isize));
    let read = |x: Tensor<B, 4>| x.into_data().to_vec::<f32>().unwrap();
    let all = |dim| {
        [reduce::sum_dim, reduce::mean_dim, reduce::softmax].map(|reduce| reduce(x.clone(), dim))
    };
    let mut out: Vec<_> = (0..4).flat_map(all).map(read).collect();
    out.push(reduce::sum(x.clone()).into_data().to_vec().unwrap());
    out.push(
        (0..4)
            .map(|dim| reduce::argmax(x.clone(), dim).sum().into_scalar().elem::<f32>())
            .collect(),
    );
    out
}

fn assert_same(shape: [usize; 4], order: [usize; 4]) {
    let (expected, found) = (reduced::<Flex>(shape, order), reduced::<Gpu>(shape, order));
    for (at, (expected, found)) in expected.iter().zip(&found).enumerate() {
        let off = expected.iter().zip(found).any(|(a, b)| (a - b).abs() > 1e-4 * a.abs().max(1.0));
        assert!(!off && expected.len() == found.len(), "{shape:?} as {order:?}, reduction {at}");
    }
}

/// burn's own `sum_dim(0)` of this one is wrong.
#[test]
fn a_swapped_tensor_is_summed_along_every_axis() {
    if device().is_some() {
        assert_same([2, 4, 16, 48], [0, 1, 3, 2]);
        assert_same([4, 1, 8, 1], [0, 2, 1, 3]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Unit axes and multiples of four are what goes wrong.
    #[test]
    fn every_permuted_tensor_is_reduced_as_on_the_cpu(
        shape in prop::array::uniform4(prop::sample::select(vec![1_usize, 1, 2, 3, 4, 8, 16])),
        order in Just([0_usize, 1, 2, 3]).prop_shuffle(),
    ) {
        if device().is_some() {
            assert_same(shape, order);
        }
    }
}
