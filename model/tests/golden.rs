//! Llama against trusted outputs: logits, loss and every gradient of transformers'
//! `LlamaForCausalLM`, both z-losses, and ten AdamW steps of an f64 reference; with the fused
//! operators and with the plain form.
//!
//! The vectors are read from `INTELLECT_SHARED` or the folder `shared` beside the checkout. Where
//! that is absent the tests say so and pass.

#![expect(clippy::print_stderr, reason = "a skipped test must say so")]
#![expect(clippy::unwrap_used, reason = "clippy does not see that helpers of a test are tests")]

use std::collections::HashMap;
use std::path::PathBuf;

use burn_autodiff::Autodiff;
use burn_autodiff::checkpoint::strategy::BalancedCheckpointing;
use burn_backend::tensor::{FloatTensor, IntTensor};
use burn_backend::{AutodiffBackend, Backend, TensorData};
use burn_flex::Flex;
use intellect_model::arch::Arch;
use intellect_model::config::{Model, Work};
use intellect_model::ops::{FusedOps, ZForm, ZLoss};
use intellect_model::optim::{Optimizer, Settings};
use intellect_model::params;
use safetensors::SafeTensors;

type Fused = Autodiff<Flex>;
type Plain = Autodiff<Flex, BalancedCheckpointing>;

/// Bounds of the vectors' README: ten times what f32 references differ by from f64.
const LOGITS: f32 = 1e-4;
const LOSS: f32 = 1e-5;
const GRADIENT: f32 = 1e-4;
const CURVE: f64 = 1e-3;

/// z-loss weight that the vectors were made with.
const Z_WEIGHT: f32 = 2e-4;

const NO_Z: ZLoss = ZLoss { weight: 0.0, form: ZForm::Max };

struct Golden {
    arch: Arch,
    floats: HashMap<String, Vec<f32>>,
    ints: HashMap<String, Vec<i32>>,
}

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

impl Golden {
    fn read(folder: &std::path::Path) -> Self {
        let bytes = std::fs::read(folder.join("llama.safetensors")).unwrap();
        let (_, metadata) = SafeTensors::read_metadata(&bytes).unwrap();
        let config = &metadata.metadata().as_ref().unwrap()["config"];
        let config: serde_json::Value = serde_json::from_str(config).unwrap();
        let size = |key: &str| config[key].as_u64().unwrap() as usize;
        let model = Model {
            layers: size("num_hidden_layers"),
            width: size("hidden_size"),
            heads: size("num_attention_heads"),
            kv_heads: size("num_key_value_heads"),
            ffn: size("intermediate_size"),
            context: size("max_position_embeddings"),
            vocab: size("vocab_size"),
            rope_theta: config["rope_theta"].as_f64().unwrap(),
            norm_eps: config["rms_norm_eps"].as_f64().unwrap(),
            ..Work::synthetic().model
        };
        let (mut floats, mut ints) = (HashMap::new(), HashMap::new());
        for (name, tensor) in SafeTensors::deserialize(&bytes).unwrap().tensors() {
            let data = tensor.data();
            if tensor.dtype() == safetensors::Dtype::I64 {
                let words = data.chunks_exact(8);
                let values = words.map(|w| i64::from_le_bytes(w.try_into().unwrap()) as i32);
                ints.insert(name, values.collect());
            } else {
                let words = data.chunks_exact(4);
                let values = words.map(|w| f32::from_le_bytes(w.try_into().unwrap()));
                floats.insert(name, values.collect());
            }
        }
        Self { arch: Arch::new(&model), floats, ints }
    }

    /// All tensors with this prefix as one slice in canonical order.
    fn flat(&self, prefix: &str) -> Vec<f32> {
        let specs = self.arch.specs();
        specs.iter().flat_map(|s| self.floats[&format!("{prefix}/{}", s.name)].clone()).collect()
    }

    fn ids<B: Backend>(&self, name: &str) -> IntTensor<B> {
        let ids = self.ints[name].clone();
        let count = ids.len();
        B::int_from_data(TensorData::new(ids, [count]), &Default::default())
    }

    /// Logits, loss, and gradients in canonical order.
    fn run<A>(&self, parameters: &[FloatTensor<A::InnerBackend>], z: ZLoss) -> [Vec<f32>; 3]
    where
        A: FusedOps + AutodiffBackend,
    {
        let leaf = |p: &FloatTensor<A::InnerBackend>| {
            A::float_set_require_grad(A::from_inner(p.clone()), true)
        };
        let leaves: Vec<_> = parameters.iter().map(leaf).collect();
        let sequences = 2;
        let length = self.ints["in/ids"].len() / sequences;
        let ids = self.ids::<A>("in/ids");
        let logits = self.arch.logits::<A>(&leaves, ids, sequences, length);
        let logits_out = values::<A>(std::slice::from_ref(&logits));
        let loss = A::cross_entropy(logits, self.ids::<A>("in/targets"), z);
        let loss_out = values::<A>(std::slice::from_ref(&loss));
        let mut gradients = A::backward(loss);
        let gradients: Vec<_> =
            leaves.iter().map(|leaf| A::grad_remove(leaf, &mut gradients).unwrap()).collect();
        [logits_out, loss_out, values::<A::InnerBackend>(&gradients)]
    }

    fn parameters<B: Backend>(&self) -> Vec<FloatTensor<B>> {
        let theta = self.flat("param");
        params::upload::<B>(&self.arch.shapes(), &theta, &Default::default()).unwrap()
    }
}

fn values<B: Backend>(tensors: &[FloatTensor<B>]) -> Vec<f32> {
    use burn_backend::TensorMetadata;
    let count = tensors.iter().map(|tensor| tensor.shape().num_elements()).sum();
    let mut values = vec![0.0; count];
    params::download::<B>(tensors, &mut values).unwrap();
    values
}

fn largest_difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

/// Each named tensor's largest difference, over its largest value.
fn assert_gradients(golden: &Golden, found: &[f32], expected: &[f32]) {
    let mut at = 0;
    for spec in golden.arch.specs() {
        let (found, expected) = (&found[at..at + spec.len()], &expected[at..at + spec.len()]);
        let largest = expected.iter().fold(0.0_f32, |m, x| m.max(x.abs()));
        let difference = largest_difference(found, expected) / largest;
        assert!(difference < GRADIENT, "gradient of {} is {difference:e} away", spec.name);
        at += spec.len();
    }
}

fn outputs_and_gradients_are_the_reference<A: FusedOps + AutodiffBackend>() {
    let Some(folder) = folder() else { return };
    let golden = Golden::read(&folder);
    let [logits, loss, gradients] = golden.run::<A>(&golden.parameters::<A::InnerBackend>(), NO_Z);
    assert!(largest_difference(&logits, &golden.floats["out/logits"]) < LOGITS);
    assert!(largest_difference(&loss, &golden.floats["out/loss"]) < LOSS);
    assert_gradients(&golden, &gradients, &golden.flat("grad"));

    let head = golden.floats["grad/lm_head.weight"].len();
    for (form, name) in [(ZForm::Max, "max"), (ZForm::LogSumExp, "lse")] {
        let z_loss = ZLoss { weight: Z_WEIGHT, form };
        let parameters = golden.parameters::<A::InnerBackend>();
        let [_, with_z, with_z_gradients] = golden.run::<A>(&parameters, z_loss);
        let expected = loss[0] + golden.floats[&format!("out/z_loss_{name}")][0];
        assert!((with_z[0] - expected).abs() < LOSS, "{form:?}");
        let cross_entropy = &golden.floats["grad/lm_head.weight"];
        let z = &golden.floats[&format!("grad_z_{name}/lm_head.weight")];
        let expected: Vec<f32> = cross_entropy.iter().zip(z).map(|(a, b)| a + b).collect();
        let found = &with_z_gradients[with_z_gradients.len() - head..];
        let largest = z.iter().fold(0.0_f32, |m, x| m.max(x.abs()));
        // Of the z-loss's own gradient, which is far smaller than the whole.
        assert!(largest_difference(found, &expected) < 1e-2 * largest, "{form:?}");
    }
}

#[test]
fn fused_llama_is_the_reference() {
    outputs_and_gradients_are_the_reference::<Fused>();
}

#[test]
fn plain_llama_is_the_reference() {
    outputs_and_gradients_are_the_reference::<Plain>();
}

/// Ten steps of the whole optimiser, clipping included (the first norm is 2.98, the bound 1).
#[test]
fn ten_adamw_steps_are_the_reference() {
    let Some(folder) = folder() else { return };
    let golden = Golden::read(&folder);
    let reference = std::fs::read_to_string(folder.join("train.json")).unwrap();
    let reference: serde_json::Value = serde_json::from_str(&reference).unwrap();
    let number = |key: &str| reference[key].as_f64().unwrap();
    let settings = Settings {
        beta1: reference["betas"][0].as_f64().unwrap(),
        beta2: reference["betas"][1].as_f64().unwrap(),
        eps: number("eps"),
        weight_decay: number("weight_decay"),
        clip: number("clip_global_norm"),
    };
    let curve = |key: &str| -> Vec<f64> {
        let values = reference["llama"][key].as_array().unwrap();
        values.iter().map(|value| value.as_f64().unwrap()).collect()
    };
    let mut optimizer = Optimizer::<Flex>::new(settings);
    let mut parameters = golden.parameters::<Flex>();
    for (step, (loss, norm)) in curve("loss").into_iter().zip(curve("grad_norm")).enumerate() {
        let [_, found, gradients] = golden.run::<Fused>(&parameters, NO_Z);
        assert!((f64::from(found[0]) - loss).abs() < CURVE, "loss {} at step {step}", found[0]);
        let shapes = golden.arch.shapes();
        let gradients = params::upload::<Flex>(&shapes, &gradients, &Default::default()).unwrap();
        let found = optimizer.step(&mut parameters, gradients, number("lr")).unwrap();
        assert!((found - norm).abs() < CURVE, "norm {found} at step {step}");
    }
}

/// The gradient along a random direction is the slope of the loss: no reference program, no folder
/// needed.
#[test]
fn the_gradient_is_the_slope_of_the_loss() {
    let mut model = Work::synthetic().model;
    (model.layers, model.width, model.heads, model.kv_heads) = (2, 48, 4, 2);
    (model.ffn, model.context, model.vocab) = (72, 96, 64);
    let arch = Arch::new(&model);
    let shapes = arch.shapes();
    // Large enough weights that no part of the model is nearly linear.
    let specs = arch.specs();
    let mut theta = intellect_model::genesis::weights(7, &specs);
    theta.iter_mut().for_each(|x| *x *= if x.abs() < 0.2 { 8.0 } else { 1.0 });
    let ids: Vec<i32> = (0..96).map(|i| i * i % 61).collect();
    let golden = Golden {
        arch,
        floats: HashMap::new(),
        ints: HashMap::from([("in/ids".to_owned(), ids.clone()), ("in/targets".to_owned(), ids)]),
    };
    let run = |theta: &[f32]| {
        let parameters = params::upload::<Flex>(&shapes, theta, &Default::default()).unwrap();
        let z_loss = ZLoss { weight: 1e-2, form: ZForm::LogSumExp };
        golden.run::<Fused>(&parameters, z_loss)
    };
    let [_, _, gradient] = run(&theta);
    let mut at = 0;
    for spec in specs {
        let part = at..at + spec.len();
        at = part.end;
        // Along the gradient of this tensor: the slope there is its length.
        let length =
            gradient[part.clone()].iter().map(|g| f64::from(*g).powi(2)).sum::<f64>().sqrt();
        let moved = |distance: f64| {
            let mut theta = theta.clone();
            for (x, g) in theta[part.clone()].iter_mut().zip(&gradient[part.clone()]) {
                *x += (distance * f64::from(*g) / length) as f32;
            }
            let [_, loss, _] = run(&theta);
            f64::from(loss[0])
        };
        let h = 2e-3 / length.max(0.05);
        let slope = (moved(h) - moved(-h)) / (2.0 * h);
        assert!((slope / length - 1.0).abs() < 1e-2, "{}: {slope} against {length}", spec.name);
    }
}
