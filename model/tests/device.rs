//! The models on a device that CubeCL drives: the vectors of every family, views that burn reduces
//! incorrectly, and failures of the device.
//!
//! The tests need a build with `--features intellect-model/wgpu` and run on the first GPU that
//! Vulkan or Metal reports: in CI that is Mesa's llvmpipe, which emulates one. Without a GPU they
//! print that they are skipped and pass; with `CI` set they fail.

#![cfg(feature = "wgpu")]
#![expect(clippy::print_stderr, reason = "a skipped test must say so")]
#![expect(clippy::unwrap_used, reason = "clippy does not see that helpers of a test are tests")]

#[path = "golden/checks.rs"]
mod checks;
#[path = "device/promises.rs"]
mod promises;
#[path = "device/definition.rs"]
mod definition;
#[path = "device/kernels.rs"]
mod kernels;
#[path = "device/operators.rs"]
mod operators;
#[expect(dead_code, reason = "the tests of operators use more of it")]
#[path = "../src/ops/reduce.rs"]
mod reduce;
#[path = "golden/llama.rs"]
mod llama;
#[path = "golden/rwkv.rs"]
mod rwkv;
#[path = "golden/vectors.rs"]
mod vectors;

use burn_autodiff::Autodiff;
use burn_backend::Backend;
use burn_flex::Flex;
use burn_tensor::{ElementConversion as _, Tensor, TensorData};
use intellect_model::Device;
use proptest::prelude::*;

type Gpu = burn_wgpu::Wgpu<f32, i32>;

/// The first GPU, if there is one.
fn device() -> Option<Device> {
    promises::usable(Device::Gpu(Some(0)))
}

/// Checks the vectors of a family in fresh memory and in memory that was used before.
fn assert_golden(name: &str) {
    if device().is_some() {
        promises::assert_golden::<Autodiff<Gpu>>(name, &[false, true]);
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

#[test]
fn attention_is_its_definition() {
    if device().is_some() {
        kernels::assert_attention_is_its_definition::<Autodiff<Gpu>>();
    }
}

#[test]
fn the_recurrence_is_its_definition() {
    if device().is_some() {
        kernels::assert_the_recurrence_is_its_definition::<Autodiff<Gpu>>();
    }
}

#[test]
fn operators_are_those_of_the_cpu() {
    if device().is_some() {
        operators::assert_operators_are_those_of_the_cpu::<Autodiff<Gpu>>();
    }
}

#[test]
fn products_are_their_definition() {
    if device().is_some() {
        kernels::assert_products_are_their_definition::<Autodiff<Gpu>>();
    }
}

#[test]
fn every_family_starts_and_learns() {
    if let Some(device) = device() {
        promises::assert_every_family_starts_and_learns(device);
    }
}

#[test]
fn an_allocation_that_fails_is_an_error_and_ends_the_device() {
    if let Some(device) = device() {
        promises::assert_an_allocation_that_fails_ends_the_device(device);
    }
}

/// All reductions of a permuted tensor along each axis.
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

/// burn's own `sum_dim(0)` gives a wrong result for the first of these tensors.
#[test]
fn a_swapped_tensor_is_summed_along_every_axis() {
    if device().is_some() {
        assert_same([2, 4, 16, 48], [0, 1, 3, 2]);
        assert_same([4, 1, 8, 1], [0, 2, 1, 3]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Unit axes and multiples of four are the cases that burn gets wrong.
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
