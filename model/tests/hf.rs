//! Exported models loaded by the original programs of their families, and a model saved by such a
//! program loaded here: `tests/peers/logits.py` loads or makes the folder. Logits may differ by at
//! most 1e-4.
//!
//! `INTELLECT_PYTHON` names a Python in which `tests/peers/requirements.txt` is installed. If it is
//! not set, the tests print that they are skipped and pass.

#![expect(clippy::print_stderr, reason = "a skipped test must say so")]
#![expect(clippy::unwrap_used, reason = "clippy does not see that helpers of a test are tests")]

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::Command;

use burn_backend::TensorData;
use burn_backend::ops::IntTensorOps;
use burn_flex::Flex;
use intellect_model::arch::{Arch, Rows};
use intellect_model::config::{Family, Fingerprint, Model, Work};
use intellect_model::genesis::{self, Init};
use intellect_model::hf::{
    Precision,
    export::Export,
    import::{self, Imported},
};
use intellect_model::params;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};

/// A model on bytes with three blocks, in which no two sizes are equal.
fn work(family: Family) -> Work {
    let mut work = Work::text(Fingerprint { digest: [0; 32], bytes: 1 });
    let sizes = Model {
        family,
        layers: 3,
        width: 96,
        heads: 6,
        ffn: 136,
        context: 64,
        vocab: 256,
        ..Model::NONE
    };
    work.model = match family {
        Family::Llama => Model {
            kv_heads: 2,
            rope_theta: 5e3,
            // Over 32 tokens some pairs of channels turn often, some rarely and some in between.
            rope_factor: Some(4.0),
            rope_original_context: Some(32),
            norm_eps: 1e-6,
            ..sizes
        },
        Family::Eagle => sizes,
        // The package `rwkv` reads ranks from shapes; for the mixes it supports only 32 and 64.
        Family::Finch => Model { mix_rank: 32, decay_rank: 24, ..sizes },
        Family::GoldFinch => Model {
            mix_rank: 32,
            decay_rank: 24,
            gold_layers: 1,
            value_rank: 16,
            compression: 8,
            ..sizes
        },
    };
    work
}

/// Initial weights with noise: parameters that are all zero or one would hide a mix-up.
fn theta(arch: &Arch) -> Vec<f32> {
    let mut specs = arch.specs();
    let mut theta = genesis::weights(11, &specs);
    for spec in &mut specs {
        spec.init = Init::Normal { std: 0.1 };
    }
    theta.iter_mut().zip(genesis::weights(12, &specs)).for_each(|(x, noise)| *x += noise);
    theta
}

/// The logits of this crate. // [T, V]
fn logits(arch: &Arch, theta: &[f32], tokens: &[i32]) -> Vec<f32> {
    let device = Default::default();
    let parameters = params::upload::<Flex>(&arch.shapes(), theta, &device).unwrap();
    let data = TensorData::new(tokens.to_vec(), [tokens.len()]);
    let tokens_on_device = Flex::int_from_data(data, &device);
    let logits = arch.logits::<Flex>(&parameters, tokens_on_device, &Rows::whole(1, tokens.len()));
    let mut values = vec![0.0; tokens.len() * 256];
    params::download::<Flex>(&[logits], &mut values).unwrap();
    values
}

fn write_ours(path: &Path, tokens: &[i32], logits: &[f32]) {
    let tokens_bytes: Vec<_> =
        tokens.iter().flat_map(|token| i64::from(*token).to_le_bytes()).collect();
    let logits_bytes: Vec<_> = logits.iter().flat_map(|logit| logit.to_le_bytes()).collect();
    let count = tokens.len();
    let view = |dtype, shape, bytes| TensorView::new(dtype, shape, bytes).unwrap();
    let both = [
        ("tokens", view(Dtype::I64, vec![count], &tokens_bytes)),
        ("logits", view(Dtype::F32, vec![count, logits.len() / count], &logits_bytes)),
    ];
    safetensors::serialize_to_file(both, None, path).unwrap();
}

fn python() -> Option<OsString> {
    let python = std::env::var_os("INTELLECT_PYTHON");
    if python.is_none() {
        eprintln!("skipped: INTELLECT_PYTHON does not name a Python that loads models");
    }
    python
}

/// Runs the script, which must succeed, and returns its output.
fn script(python: &OsStr, arguments: &[&OsStr]) -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/peers/logits.py");
    let output = Command::new(python).arg(script).args(arguments).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

fn assert_same_logits_elsewhere(family: Family, shard_bytes: u64) {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (model, ours) = (folder.path().join("model"), folder.path().join("ours.safetensors"));
    let work = work(family);
    let arch = Arch::new(&work.model);
    let theta = theta(&arch);
    let export = Export {
        work: &work,
        theta: &theta,
        tokenizer: None,
        precision: Precision::F32,
        shard_bytes,
    };
    export.write(&model).unwrap();
    let tokens: Vec<_> = (0..64).map(|t| (t * t * 37 + t) % 256).collect();
    write_ours(&ours, &tokens, &logits(&arch, &theta, &tokens));

    eprint!("{}", script(&python, &[model.as_os_str(), ours.as_os_str()]));
}

#[test]
fn transformers_computes_the_same_logits_of_a_llama() {
    assert_same_logits_elsewhere(Family::Llama, 1 << 40);
}

/// The model is written to a dozen files with an index.
#[test]
fn transformers_loads_a_llama_of_many_files() {
    assert_same_logits_elsewhere(Family::Llama, 50_000);
}

#[test]
fn rwkv_computes_the_same_logits_of_an_eagle() {
    assert_same_logits_elsewhere(Family::Eagle, 1 << 40);
}

#[test]
fn rwkv_computes_the_same_logits_of_a_finch() {
    assert_same_logits_elsewhere(Family::Finch, 200_000);
}

#[test]
fn a_llama_that_transformers_saved_computes_the_same_logits_here() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (model, theirs) = (folder.path().join("model"), folder.path().join("theirs.safetensors"));
    script(&python, &[OsStr::new("--make"), model.as_os_str(), theirs.as_os_str()]);
    let Imported { model, theta, untied } = import::read(&model).unwrap();
    assert_eq!((model.kv_heads, model.context, model.rope_theta), (3, 64, 2e4));
    assert_eq!((model.rope_factor, model.rope_original_context), (Some(8.0), Some(16)));
    assert!(untied);

    let bytes = std::fs::read(theirs).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let data = |name| tensors.tensor(name).unwrap().data();
    let tokens = data("tokens").as_chunks().0.iter().map(|word| i64::from_le_bytes(*word));
    let tokens: Vec<_> = tokens.map(|token| i32::try_from(token).unwrap()).collect();
    let expected = data("logits").as_chunks().0.iter().map(|word| f32::from_le_bytes(*word));
    let found = logits(&Arch::new(&model), &theta, &tokens);
    let apart = found.iter().zip(expected).map(|(x, y)| (x - y).abs()).fold(0.0, f32::max);
    eprintln!("transformers' Llama here: logits at most {apart:e} apart");
    assert!(found.len() == 64 * 256 && apart <= 1e-4, "{apart}");
}
