//! Tests of reading and writing `config.json`.

use super::*;
use crate::config::Work;

fn described(change: &[(&str, Value)]) -> Value {
    let mut config = describe(&Work::synthetic(), Precision::F32);
    for (key, value) in change {
        config[key] = value.clone();
    }
    config
}

fn refused(change: &[(&str, Value)]) -> Vec<String> {
    parse(&described(change)).unwrap_err().iter().map(ToString::to_string).collect()
}

#[test]
fn what_is_described_is_read_again() {
    assert_eq!(read(&described(&[])), Work::synthetic().model);
    let scaling = (Some(8.0), Some(8192));
    let mut work = Work::synthetic();
    (work.model.rope_factor, work.model.rope_original_context) = scaling;
    assert_eq!(read(&describe(&work, Precision::F32)), work.model);
}

fn read(config: &Value) -> Model {
    let Described { model, tied } = parse(config).unwrap();
    assert!(!tied);
    model
}

#[test]
fn a_tied_head_is_reported() {
    let tied = parse(&described(&[(TIED, true.into())])).unwrap();
    assert_eq!(tied, Described { model: Work::synthetic().model, tied: true });
}

/// Older configurations have no key-value heads; newer ones have the angles in a table.
#[test]
fn other_ages_of_transformers_are_read() {
    let model = Work::synthetic().model;
    let old = [("num_key_value_heads", Value::Null), ("rope_theta", Value::Null)];
    let old = read(&described(&old));
    assert_eq!((old.kv_heads, old.rope_theta), (model.heads, 10_000.0));
    let parameters = json!({ "rope_type": "default", "rope_theta": 5e5 });
    let new = [("rope_theta", Value::Null), ("rope_parameters", parameters)];
    assert_eq!(read(&described(&new)).rope_theta, 5e5);
}

/// With any of these the same tensors would compute another function.
#[test]
fn what_is_not_built_here_is_refused_by_name_all_at_once() {
    let all = refused(&[
        ("rope_scaling", json!({ "rope_type": "llama3", "factor": 8.0 })),
        ("rope_parameters", json!({ "rope_type": "yarn", "factor": 8.0 })),
        ("hidden_act", json!("gelu")),
        ("attention_bias", json!(true)),
        ("mlp_bias", json!(true)),
        ("head_dim", json!(128)),
        ("tie_word_embeddings", json!("yes")),
        ("vocab_size", json!("many")),
        ("rms_norm_eps", Value::Null),
    ]);
    let keys = [
        "vocab_size",
        "rms_norm_eps",
        "rope_scaling",
        "rope_parameters",
        "hidden_act",
        "attention_bias",
        "mlp_bias",
        "head_dim",
        "tie_word_embeddings",
    ];
    assert_eq!(all.len(), keys.len(), "{all:#?}");
    for (problem, key) in all.iter().zip(keys) {
        assert!(problem.starts_with(key), "{problem}");
    }
}

#[test]
fn sizes_have_the_bounds_of_a_manifest() {
    let errors = refused(&[("num_hidden_layers", json!(100_000))]);
    assert!(errors[0].contains("model.layers is 100000: choose 1 to 512"), "{errors:?}");
    let errors = refused(&[("num_key_value_heads", json!(3))]);
    assert!(errors[0].contains("model.kv_heads"), "{errors:?}");
    let errors = refused(&[("num_hidden_layers", json!(-1))]);
    assert!(errors[0].contains("model.layers is -1"), "{errors:?}");
}

#[test]
fn another_architecture_is_refused_with_those_that_are_known() {
    for kind in [json!("gpt2"), Value::Null, json!(7)] {
        let errors = refused(&[("model_type", kind)]);
        assert!(errors.len() == 1 && errors[0].contains("llama, rwkv-x052"), "{errors:?}");
    }
    assert!(parse(&json!([])).is_err());
    let errors = refused(&[("model_type", json!("rwkv-x052"))]);
    assert_eq!(errors.len(), 2, "context_length and head_size: {errors:?}");
}
