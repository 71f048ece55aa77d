//! `config.json` and `generation_config.json`: a model's sizes in the words of those who load it,
//! both ways.
//!
//! A Llama is written in the words of transformers' `LlamaConfig`. The others carry RWKV-LM's names
//! of their architectures (x052, x060) and no class of transformers: their tensors have RWKV-LM's
//! names, and a loader that expected others would fill in random ones.

use intellect_table::Table as _;
use serde_json::{Value, json};

use super::Precision;
use super::conversion::{Conversion, Problem};
use crate::config::{Family, Model, Work};

/// What `config.json` says of the model of this work.
#[must_use]
pub fn describe(work: &Work, precision: Precision) -> Value {
    let model = &work.model;
    let mut config = json!({
        "model_type": model.family.facts().model_type,
        "tie_word_embeddings": false,
        // Null where there is none, so that no reader takes its own default for a token of ours.
        "bos_token_id": work.data.vocabulary().map(|vocabulary| vocabulary.bos),
        "eos_token_id": null,
        "pad_token_id": null,
        // The older name and the newer one.
        "torch_dtype": precision.name(),
        "dtype": precision.name(),
    });
    let facts = model.family.facts();
    let sizes = model.to_toml();
    for (key, theirs) in COMMON.iter().chain(facts.words) {
        config[theirs] = json!(sizes.get(*key).and_then(toml::Value::as_integer));
    }
    let mut more = (facts.describe)(model);
    if let (Some(config), Some(more)) = (config.as_object_mut(), more.as_object_mut()) {
        config.append(more);
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

/// Reads a `config.json`.
///
/// # Errors
/// Everything that is wrong with it.
pub(super) fn parse(config: &Value) -> Result<Described, Vec<Problem>> {
    let named = |family: &Family| config["model_type"] == family.facts().model_type;
    let Some(family) = Family::ALL.into_iter().find(named) else {
        let supported = Family::ALL.map(|family| family.facts().model_type).join(", ");
        let found = config["model_type"].clone();
        return Err(vec![Problem::Unsupported { key: "model_type", found, supported }]);
    };
    let mut conversion = Conversion { config, table: toml::Table::new(), problems: Vec::new() };
    conversion.table.insert("family".to_owned(), family.name().into());
    for (key, theirs) in COMMON.iter().chain(family.facts().words) {
        conversion.count(key, theirs);
    }
    (family.facts().read)(&mut conversion);
    let may_tie = family == Family::Llama;
    conversion.expect(TIED, &[false.into(), true.into()][..if may_tie { 2 } else { 1 }]);
    let tied = may_tie && config[TIED] == true;
    let Conversion { table, problems, .. } = conversion;
    if !problems.is_empty() {
        return Err(problems);
    }
    let manifest = toml::Table::from_iter([("model".to_owned(), table.into())]);
    let model = Model::parse(&manifest).map_err(|error| vec![Problem::Bounds(error)])?;
    Ok(Described { model, tied })
}

/// Sizes that every family has: in a manifest, and in a `config.json`.
const COMMON: [(&str, &str); 4] = [
    ("layers", "num_hidden_layers"),
    ("width", "hidden_size"),
    ("ffn", "intermediate_size"),
    ("vocab", "vocab_size"),
];

/// What tells that a model's head is its embedding.
const TIED: &str = "tie_word_embeddings";

#[cfg(test)]
mod tests;
