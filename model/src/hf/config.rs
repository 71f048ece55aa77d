//! `config.json` and `generation_config.json`: a model's sizes in the words of those who load it, both
//! ways.
//!
//! A Llama is written in the words of transformers' `LlamaConfig`. The others carry RWKV-LM's names of
//! their architectures (x052, x060) and no class of transformers: their tensors have RWKV-LM's names,
//! and a loader that expected others would fill in random ones.

use serde_json::{Value, json};
use thiserror::Error;

use super::Format;
use crate::config::{Family, Model, Work, WorkError};
use crate::ops::RopeScaling;

/// What is wrong with a `config.json`.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum Problem {
    /// A key without which there is no model, or of another type.
    #[error("{key} is {found}: it must be {expected}")]
    Key {
        /// The key.
        key: &'static str,
        /// As written, or `null`.
        found: Value,
        /// What it must be.
        expected: &'static str,
    },
    /// A feature that is not built here; without it the model would compute something else.
    #[error("{key} is {found}: only {supported} is supported")]
    Unsupported {
        /// The key.
        key: &'static str,
        /// As written.
        found: Value,
        /// What would be read.
        supported: String,
    },
    /// Sizes that no manifest may have.
    #[error(transparent)]
    Bounds(WorkError),
}

/// What `config.json` says of the model of this work.
#[must_use]
pub fn describe(work: &Work, format: Format) -> Value {
    let model = &work.model;
    let mut config = json!({
        "model_type": model_type(model.family),
        "hidden_size": model.width,
        "intermediate_size": model.ffn,
        "num_hidden_layers": model.layers,
        "vocab_size": model.vocab,
        "tie_word_embeddings": false,
        // Null where there is none, so that no reader takes its own default for a token of ours.
        "bos_token_id": work.data.vocabulary().map(|vocabulary| vocabulary.bos),
        "eos_token_id": null,
        "pad_token_id": null,
        // The older name and the newer one.
        "torch_dtype": format.name(),
        "dtype": format.name(),
    });
    let own = match model.family {
        Family::Llama => json!({
            "architectures": ["LlamaForCausalLM"],
            "num_attention_heads": model.heads,
            "num_key_value_heads": model.kv_heads,
            "head_dim": model.head_size(),
            "max_position_embeddings": model.context,
            "rope_theta": model.rope_theta,
            "rms_norm_eps": model.norm_eps,
            "hidden_act": "silu",
            "attention_bias": false,
            "mlp_bias": false,
            "attention_dropout": 0.0,
            "initializer_range": 0.02,
            "use_cache": true,
        }),
        Family::Eagle | Family::Finch | Family::GoldFinch => json!({
            "context_length": model.context,
            "head_size": model.head_size(),
        }),
    };
    let ranks = match model.family {
        Family::Llama | Family::Eagle => json!({}),
        Family::Finch => json!({ "mix_rank": model.mix_rank, "decay_rank": model.decay_rank }),
        Family::GoldFinch => json!({
            "mix_rank": model.mix_rank,
            "decay_rank": model.decay_rank,
            "gold_layers": model.gold_layers,
            "value_rank": model.value_rank,
            "compression": model.compression,
        }),
    };
    let scaling = model.rope_scaling.map_or_else(
        || json!({}),
        |RopeScaling { factor, original }| {
            json!({ "rope_scaling": {
                "rope_type": LLAMA3,
                "factor": factor,
                "low_freq_factor": RopeScaling::ONCE,
                "high_freq_factor": RopeScaling::OFTEN,
                "original_max_position_embeddings": original,
            } })
        },
    );
    for more in [own, ranks, scaling] {
        if let (Value::Object(config), Value::Object(more)) = (&mut config, more) {
            config.extend(more);
        }
    }
    config
}

/// What `generation_config.json` says: how `sample` draws, and that no token ends a text.
#[must_use]
pub fn generation(work: &Work) -> Value {
    json!({
        "do_sample": true,
        "temperature": 0.8,
        "top_p": 0.95,
        "max_length": work.model.context,
        "bos_token_id": work.data.vocabulary().map(|vocabulary| vocabulary.bos),
        "eos_token_id": null,
        "pad_token_id": null,
    })
}

/// What a `config.json` describes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Described {
    pub(super) model: Model,
    /// Its head has no tensor: it is the embedding.
    pub(super) tied: bool,
}

/// Reads it.
///
/// # Errors
/// Everything that is wrong with it.
pub(super) fn parse(config: &Value) -> Result<Described, Vec<Problem>> {
    let named = |family: &Family| config["model_type"] == model_type(*family);
    let Some(family) = Family::ALL.into_iter().find(named) else {
        let supported = Family::ALL.map(model_type).join(", ");
        let found = config["model_type"].clone();
        return Err(vec![Problem::Unsupported { key: "model_type", found, supported }]);
    };
    let mut reader = Reader { config, table: toml::Table::new(), problems: Vec::new() };
    reader.table.insert("family".to_owned(), family.name().into());
    for (key, theirs) in COMMON.iter().chain(own(family)) {
        reader.count(key, theirs);
    }
    let tied = config[TIED] == true && family == Family::Llama;
    match family {
        Family::Llama => {
            reader.llama();
            reader.expect(TIED, &[false.into(), true.into()]);
        }
        Family::Eagle | Family::Finch | Family::GoldFinch => {
            reader.heads();
            reader.expect(TIED, &[false.into()]);
        }
    }
    Ok(Described { model: reader.model()?, tied })
}

/// A `config.json` on its way into the table `[model]` of a manifest.
struct Reader<'a> {
    config: &'a Value,
    table: toml::Table,
    problems: Vec<Problem>,
}

impl Reader<'_> {
    fn put(&mut self, key: &str, value: impl Into<toml::Value>) {
        self.table.insert(key.to_owned(), value.into());
    }

    fn wrong(&mut self, key: &'static str, expected: &'static str) {
        self.problems.push(Problem::Key { key, found: self.config[key].clone(), expected });
    }

    /// A whole number, which has the name `theirs` there and `key` here.
    fn count(&mut self, key: &str, theirs: &'static str) {
        match self.config[theirs].as_i64() {
            Some(count) => self.put(key, count),
            None => self.wrong(theirs, "a whole number"),
        }
    }

    /// Refuses what is neither absent nor one of `allowed`.
    fn expect(&mut self, key: &'static str, allowed: &[Value]) {
        let found = &self.config[key];
        if !found.is_null() && !allowed.contains(found) {
            let supported = allowed.iter().map(Value::to_string).collect::<Vec<_>>().join(" or ");
            self.problems.push(Problem::Unsupported { key, found: found.clone(), supported });
        }
    }

    /// What only a Llama has. Its older configurations lack some keys, whose meaning is transformers'.
    fn llama(&mut self) {
        match &self.config["num_key_value_heads"] {
            Value::Null => self.count("kv_heads", "num_attention_heads"),
            _ => self.count("kv_heads", "num_key_value_heads"),
        }
        match self.config["rms_norm_eps"].as_f64() {
            Some(eps) => self.put("norm_eps", eps),
            None => self.wrong("rms_norm_eps", "a number"),
        }
        // Within `rope_parameters` since transformers 5.
        let places = [&self.config["rope_theta"], &self.config["rope_parameters"]["rope_theta"]];
        match places.into_iter().find(|place| !place.is_null()).map(Value::as_f64) {
            None => self.put("rope_theta", 10_000.0),
            Some(Some(theta)) => self.put("rope_theta", theta),
            Some(None) => self.wrong("rope_theta", "a number"),
        }
        self.scaling("rope_scaling");
        self.scaling("rope_parameters");
        self.expect("hidden_act", &["silu".into()]);
        self.expect("attention_bias", &[false.into()]);
        self.expect("mlp_bias", &[false.into()]);
        let sizes = ["hidden_size", "num_attention_heads"].map(|key| self.config[key].as_u64());
        if let [Some(width), Some(heads @ 1..)] = sizes {
            self.expect("head_dim", &[(width / heads).into()]);
        }
    }

    /// How frequencies are scaled, if they are.
    fn scaling(&mut self, key: &'static str) {
        let found = &self.config[key];
        let kind = [&found["rope_type"], &found["type"]].into_iter().find(|kind| !kind.is_null());
        if found.is_null() || kind.is_some_and(|kind| kind == "default") {
            return;
        }
        let number = |key| found[key].as_f64();
        let bounds = ["low_freq_factor", "high_freq_factor"].map(number);
        let expected = [RopeScaling::ONCE, RopeScaling::OFTEN];
        let usual = bounds == expected.map(|bound| Some(f64::from(bound)));
        let original = found["original_max_position_embeddings"].as_i64();
        match (number("factor"), original) {
            (Some(factor), Some(original)) if usual && kind.is_some_and(|kind| kind == LLAMA3) => {
                self.put("rope_factor", factor);
                self.put("rope_original_context", original);
            }
            _ => {
                let supported = format!(
                    "rope_type \"default\", or \"{LLAMA3}\" with a factor, the original context, \
                     low_freq_factor {:?} and high_freq_factor {:?}",
                    RopeScaling::ONCE,
                    RopeScaling::OFTEN
                );
                self.problems.push(Problem::Unsupported { key, found: found.clone(), supported });
            }
        }
    }

    /// Heads are counted here and measured there.
    fn heads(&mut self) {
        let sizes = ["hidden_size", "head_size"].map(|key| self.config[key].as_i64());
        match sizes {
            [Some(width), Some(size @ 1..)] if width % size == 0 => self.put("heads", width / size),
            _ => self.wrong("head_size", "a divisor of hidden_size"),
        }
    }

    fn model(mut self) -> Result<Model, Vec<Problem>> {
        if !self.problems.is_empty() {
            return Err(self.problems);
        }
        let manifest = toml::Table::from_iter([("model".to_owned(), self.table.into())]);
        Model::parse(&manifest).map_err(|error| {
            self.problems.push(Problem::Bounds(error));
            self.problems
        })
    }
}

/// Sizes that every family has: in a manifest, and in a `config.json`.
const COMMON: [(&str, &str); 4] = [
    ("layers", "num_hidden_layers"),
    ("width", "hidden_size"),
    ("ffn", "intermediate_size"),
    ("vocab", "vocab_size"),
];

/// Likewise of one family.
fn own(family: Family) -> &'static [(&'static str, &'static str)] {
    match family {
        Family::Llama => {
            &[("heads", "num_attention_heads"), ("context", "max_position_embeddings")]
        }
        Family::Eagle => &[("context", "context_length")],
        Family::Finch => {
            &[("context", "context_length"), ("mix_rank", "mix_rank"), ("decay_rank", "decay_rank")]
        }
        Family::GoldFinch => &[
            ("context", "context_length"),
            ("mix_rank", "mix_rank"),
            ("decay_rank", "decay_rank"),
            ("gold_layers", "gold_layers"),
            ("value_rank", "value_rank"),
            ("compression", "compression"),
        ],
    }
}

/// What tells that a model's head is its embedding.
const TIED: &str = "tie_word_embeddings";
/// transformers' name of the one way to scale frequencies that is read.
const LLAMA3: &str = "llama3";

/// How others name a family.
fn model_type(family: Family) -> &'static str {
    match family {
        Family::Llama => "llama",
        Family::Eagle => "rwkv-x052",
        Family::Finch => "rwkv-x060",
        Family::GoldFinch => "goldfinch",
    }
}

#[cfg(test)]
mod tests;
