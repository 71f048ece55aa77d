//! The models and the tokenizers compared with trusted outputs: every check of `golden/checks.rs`,
//! and the ids of `golden/tokenizers.rs`, on the vectors in the folder that `INTELLECT_SHARED`
//! names, or in the folder `shared` next to the checkout. Without that folder the tests print that
//! they are skipped and pass. `examples/golden.rs` makes the same checks for any file.

#![expect(clippy::print_stderr, reason = "a skipped test must say so")]
#![expect(clippy::unwrap_used, reason = "clippy does not see that helpers of a test are tests")]

#[path = "golden/checks.rs"]
mod checks;
#[path = "golden/llama.rs"]
mod llama;
#[path = "golden/merge.rs"]
mod merge;
#[path = "golden/rwkv.rs"]
mod rwkv;
#[path = "golden/spectrum.rs"]
mod spectrum;
#[path = "golden/tokenizers.rs"]
mod tokenizers;
#[path = "golden/vectors.rs"]
mod vectors;

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use vectors::Vectors;

fn folder() -> Option<PathBuf> {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared");
    let shared = std::env::var_os("INTELLECT_SHARED").map_or_else(|| beside.into(), PathBuf::from);
    let folder = shared.join("golden");
    if folder.is_dir() {
        return Some(folder);
    }
    eprintln!("skipped: no golden vectors in {}", folder.display());
    None
}

/// Held by the test that trains. burn-autodiff 0.21 may lose a gradient where two threads of one
/// process train (tracel-ai/burn#5573); a node has one thread that does.
static TRAINING: Mutex<()> = Mutex::new(());

/// Asserts that a file leads to checks of all `kinds`, and that every check is within its bound.
fn assert_golden(name: &str, kinds: &[&str]) {
    let Some(folder) = folder() else { return };
    let _alone = TRAINING.lock().unwrap_or_else(PoisonError::into_inner);
    let vectors = Vectors::read(&folder.join(name)).unwrap();
    let others = merge::checks(&vectors).unwrap().or_else(|| spectrum::checks(&vectors).unwrap());
    let checks = others.unwrap_or_else(|| checks::checks(&vectors).unwrap());
    for kind in kinds {
        assert!(checks.iter().any(|check| check.name.contains(kind)), "no check of {kind}");
    }
    let wrong: Vec<_> = checks.iter().filter(|check| !check.passes()).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn llama_is_the_reference() {
    let kinds = ["logits", "loss", "gradient of lm_head", "packed", "(max)", "(lse)", "training"];
    assert_golden("llama.safetensors", &kinds);
}

/// The checks of every RWKV family.
const RWKV: [&str; 9] = [
    "logits",
    "loss",
    "gradient of head",
    "x_prev",
    "att.kv",
    "token by token",
    "start of",
    "wrong group",
    "training",
];

#[test]
fn eagle_is_the_reference() {
    assert_golden("rwkv5.safetensors", &RWKV);
    assert_golden("rwkv5.safetensors", &["L2Wrap", "op/grad_w", "op/s_last"]);
}

#[test]
fn finch_is_the_reference() {
    assert_golden("rwkv6.safetensors", &RWKV);
    assert_golden("rwkv6.safetensors", &["L2Wrap", "op/grad_w", "op/s_last"]);
}

#[test]
fn goldfinch_is_the_reference() {
    assert_golden("goldfinch.safetensors", &RWKV);
    assert_golden("goldfinch.safetensors", &["compressed_cache", "k_cache"]);
}

#[test]
fn merges_are_mergekits() {
    let kinds = ["linear_norm", "task", "ties", "dare", "breadcrumbs", "stock_rows", "nuslerp"];
    assert_golden("merges.safetensors", &kinds);
    assert_golden("merges.safetensors", &["passthrough", "slerp_flipped", "op/magnitude"]);
    assert_golden("sec_merge.safetensors", &["embed_tokens", "lm_head", "layers.4.mlp.up_proj"]);
}

#[test]
fn spectrum_is_the_reference() {
    let kinds = ["snr", "values", "edge", "list of 25", "list of 50", "input_layernorm"];
    assert_golden("spectrum.safetensors", &kinds);
}
