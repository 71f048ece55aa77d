//! A training step gives the same result on every x86 processor with FMA (docs/adr/0014). The tests
//! take 15 steps of every family, with contractions longer than one slab of the matrix product.
//! These have a golden digest on 1, 2 and 7 threads, and in a process that does not see the AVX-512
//! of the machine.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![expect(clippy::expect_used, reason = "helpers of a test fail the test")]
#![expect(clippy::print_stderr, reason = "a skipped test must say so")]

#[path = "replay/masked.rs"]
mod masked;

use std::process::Command;
use std::sync::Arc;

use intellect_model::config::{Family, Model, Work};
use intellect_model::data::{Dataset, Stream};
use intellect_model::{Device, arch, genesis, trainer};
use rayon::ThreadPoolBuilder;

/// The first bytes of the BLAKE3 digest of the losses, the gradient norms, and the weights after
/// the last step.
const GOLDEN: [(Family, &str); 4] = [
    (Family::Llama, "4e34bfb05d47f804"),
    (Family::Eagle, "e2f7f1f34de11c5d"),
    (Family::Finch, "3f53bbd08de26e1a"),
    (Family::GoldFinch, "0c913ea5e6f25c08"),
];

/// A work whose matrix products sum over 768 rows and over 640 hidden elements.
fn work(family: Family) -> Work {
    let mut work = Work::synthetic();
    work.train.batch = 12;
    let llama = Model { layers: 2, width: 32, ffn: 640, ..work.model };
    let recurrent =
        Model { family, kv_heads: 0, rope_theta: 0.0, norm_eps: 0.0, layers: 3, ..llama.clone() };
    let finch = Model { mix_rank: 4, decay_rank: 8, ..recurrent.clone() };
    work.model = match family {
        Family::Llama => llama,
        Family::Eagle => recurrent,
        Family::Finch => finch,
        Family::GoldFinch => Model { gold_layers: 1, value_rank: 8, compression: 8, ..finch },
    };
    work
}

/// Takes 15 steps from the initial weights of seed 1, and returns their digest as `GOLDEN` has it.
fn digest(family: Family) -> String {
    let work = work(family);
    assert!(work.tokens_per_step() > 512 && work.model.ffn > 512);
    let source = Arc::new(Dataset::open(&work, 1, &[]).expect("opens"));
    let mut trainer = trainer(&work, source, Device::Cpu, None).expect("a trainer");
    let mut theta = genesis::weights(1, &arch::specs(&work.model));
    trainer.model().load(&theta).expect("loaded");
    let mut hasher = blake3::Hasher::new();
    for step in 0..15 {
        let stream = Stream { seed: [7; 32], committed: 0 };
        let done = trainer.step(&stream, step, step * work.tokens_per_step()).expect("a step");
        hasher.update(&done.loss.to_le_bytes()).update(&done.grad_norm.to_le_bytes());
    }
    trainer.model().store(&mut theta).expect("stored");
    theta.iter().for_each(|weight| _ = hasher.update(&weight.to_le_bytes()));
    hasher.finalize().to_hex()[..16].to_owned()
}

/// Asserts the golden digests of all families on `threads` threads.
fn assert_golden(threads: usize) {
    let pool = ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
    let found = pool.install(|| GOLDEN.map(|(family, _)| (family, digest(family))));
    assert_eq!(
        found.each_ref().map(|(family, hex)| (*family, &**hex)),
        GOLDEN,
        "{threads} threads"
    );
}

/// Whether the processor multiplies and adds in one instruction, as x86 processors since 2013 do;
/// without it, steps differ.
fn has_fma() -> bool {
    let has = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
    if !has {
        eprintln!("skipped: this processor has no FMA");
    }
    has
}

#[test]
fn fifteen_steps_are_golden_on_any_number_of_threads() {
    if has_fma() {
        for threads in [1, 2, 7] {
            assert_golden(threads);
        }
    }
}

/// The test runs itself again in a process in which `cpuid` reports no AVX-512 and the C library
/// does not use its fast variants.
#[test]
fn fifteen_steps_are_golden_without_avx_512() {
    const CHILD: &str = "INTELLECT_MASKED";
    if std::env::var_os(CHILD).is_some() {
        if masked::hide_avx_512() {
            assert!(!is_x86_feature_detected!("avx512f"), "AVX-512 was seen before it was hidden");
            assert_golden(2);
        } else {
            eprintln!("skipped: this processor cannot hide its features");
        }
        return;
    }
    if !has_fma() {
        return;
    }
    let name = "fifteen_steps_are_golden_without_avx_512";
    let child = Command::new(std::env::current_exe().expect("a path"))
        .args(["--exact", name, "--nocapture"])
        .env(CHILD, "1")
        .env("GLIBC_TUNABLES", "glibc.cpu.hwcaps=-AVX512F,-AVX2,-FMA,-FMA4")
        .status();
    assert!(child.expect("a process").success(), "see above");
}
