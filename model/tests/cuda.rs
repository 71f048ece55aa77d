//! The models on the CUDA backend: on an NVIDIA GPU, or under `tests/emucuda/run.sh`, whose driver
//! runs the same kernel source on the CPU, in memory filled with NaN.
//!
//! The tests need a build with `--features intellect-model/cuda`. Without a driver they print that
//! they are skipped and pass; with `CI` set they fail.

#![cfg(feature = "cuda")]
#![expect(clippy::print_stderr, reason = "a skipped test must say so")]
#![expect(clippy::unwrap_used, reason = "clippy does not see that helpers of a test are tests")]

#[path = "device/budgets.rs"]
mod budgets;
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
#[path = "golden/llama.rs"]
mod llama;
#[path = "golden/rwkv.rs"]
mod rwkv;
#[path = "device/tensor_cores.rs"]
mod tensor_cores;
#[path = "golden/vectors.rs"]
mod vectors;

use burn_autodiff::Autodiff;
use intellect_model::Device;

type Cuda = Autodiff<burn_cuda::Cuda<f32, i32>>;

fn is_here() -> bool {
    promises::usable(Device::Cuda(0)).is_some()
}

fn assert_golden(name: &str) {
    if is_here() {
        promises::assert_golden::<Cuda>(name, &[false]);
    }
}

#[test]
fn llama_is_the_reference() {
    assert_golden("llama.safetensors");
}

#[test]
fn finch_is_the_reference() {
    assert_golden("rwkv6.safetensors");
}

#[test]
fn eagle_is_the_reference() {
    assert_golden("rwkv5.safetensors");
}

#[test]
fn goldfinch_is_the_reference() {
    assert_golden("goldfinch.safetensors");
}

#[test]
fn attention_is_its_definition() {
    if is_here() {
        kernels::assert_attention_is_its_definition::<Cuda>();
    }
}

#[test]
fn the_recurrence_is_its_definition() {
    if is_here() {
        kernels::assert_the_recurrence_is_its_definition::<Cuda>();
    }
}

#[test]
fn operators_are_those_of_the_cpu() {
    if is_here() {
        operators::assert_operators_are_those_of_the_cpu::<Cuda>();
    }
}

#[test]
fn products_are_their_definition() {
    if is_here() {
        kernels::assert_products_are_their_definition::<Cuda>();
    }
}

#[test]
fn attention_on_tensor_cores_is_its_definition() {
    if is_here() {
        tensor_cores::assert_attention_is_its_definition();
    }
}

/// The driver of `tests/emucuda` provides 4 GiB of memory.
#[test]
fn an_allocation_that_fails_is_an_error_and_ends_the_device() {
    if is_here() {
        promises::assert_an_allocation_that_fails_ends_the_device(Device::Cuda(0));
    }
}

#[test]
fn every_family_starts_and_learns() {
    if is_here() {
        promises::assert_every_family_starts_and_learns(Device::Cuda(0));
    }
}

/// Runs only under `tests/emucuda/count.sh`, whose driver counts requests instead of computing.
#[test]
fn a_step_asks_no_more_of_a_gpu_than_it_did() {
    match std::env::var("EMUCUDA_PRESET") {
        Ok(preset) => budgets::assert_budget(&preset),
        Err(_) => eprintln!("skipped: EMUCUDA_PRESET names no preset"),
    }
}
