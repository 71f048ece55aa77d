//! Writes and reads `config.json` and `generation_config.json`: a model's sizes, under the names of
//! the programs that load it.
//!
//! A Llama is described by the keys of transformers' `LlamaConfig`. The other families carry
//! RWKV-LM's names of their architectures (x052, x060) and no class of transformers: their tensors
//! have RWKV-LM's names, and a loader that expected other names would fill in random tensors.

use intellect_table::Table as _;
use serde_json::{Value, json};

use super::Precision;
use super::conversion::{Conversion, Problem};
use crate::config::{Family, Model, Work};

/// The `config.json` of the model of this work.
#[must_use]
pub fn describe(work: &Work, precision: Precision) -> Value {
    let model = &work.model;
    let mut config = json!({
        "model_type": model.family.facts().model_type,
        "tie_word_embeddings": false,
        // Null where there is none, so that no reader assumes its own default.
        "bos_token_id": work.data.vocabulary().map(|vocabulary| vocabulary.bos),
        // What the model learnt to write at the end of a document is the begin of the next one.
        "eos_token_id": work.data.vocabulary().map(|vocabulary| vocabulary.bos),
        "pad_token_id": null,
        // The older and the newer name of the same key.
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

/// The `generation_config.json`: the options of `sample`, and that a text ends where the
/// next document would begin.
#[must_use]
pub fn generation(work: &Work) -> Value {
    json!({
        "do_sample": true,
        "temperature": 0.8,
        "top_p": 0.95,
        "max_length": work.model.context,
        "bos_token_id": work.data.vocabulary().map(|vocabulary| vocabulary.bos),
        "eos_token_id": work.data.vocabulary().map(|vocabulary| vocabulary.bos),
        "pad_token_id": null,
    })
}

/// The model that a `config.json` describes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Described {
    /// The architecture and its sizes, within the bounds of a manifest.
    pub(super) model: Model,
    /// Whether the head has no tensor of its own, but is the embedding.
    pub(super) tied: bool,
}

/// Reads a `config.json`. A key that would change results and is not implemented here is refused;
/// others are passed over.
///
/// # Errors
/// All problems of the file.
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

/// Sizes that every family has: the key in a manifest, and that in a `config.json`.
const COMMON: [(&str, &str); 4] = [
    ("layers", "num_hidden_layers"),
    ("width", "hidden_size"),
    ("ffn", "intermediate_size"),
    ("vocab", "vocab_size"),
];

/// The key that says whether a model's head is its embedding.
const TIED: &str = "tie_word_embeddings";

#[cfg(test)]
mod tests;
