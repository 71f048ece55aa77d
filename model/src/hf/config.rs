//! `config.json` and `generation_config.json`: a model's sizes in the words of those who load it.
//!
//! A Llama is written in the words of transformers' `LlamaConfig`. The others carry RWKV-LM's names of
//! their architectures (x052, x060) and no class of transformers: their tensors have RWKV-LM's names,
//! and a loader that expected others would fill in random ones.

use serde_json::{Value, json};

use super::Format;
use crate::config::{Family, Model};

/// What `config.json` says of this model.
#[must_use]
pub fn describe(model: &Model, format: Format) -> Value {
    let mut config = json!({
        "model_type": model_type(model.family),
        "hidden_size": model.width,
        "intermediate_size": model.ffn,
        "num_hidden_layers": model.layers,
        "vocab_size": model.vocab,
        "tie_word_embeddings": false,
        // Null, so that no reader takes its own default for a token of ours.
        "bos_token_id": null,
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
    for more in [own, ranks] {
        if let (Value::Object(config), Value::Object(more)) = (&mut config, more) {
            config.extend(more);
        }
    }
    config
}

/// What `generation_config.json` says: how `sample` draws, and that no token ends a text.
#[must_use]
pub fn generation(model: &Model) -> Value {
    json!({
        "do_sample": true,
        "temperature": 0.8,
        "top_p": 0.95,
        "max_length": model.context,
        "bos_token_id": null,
        "eos_token_id": null,
        "pad_token_id": null,
    })
}

/// How others name a family.
pub(super) fn model_type(family: Family) -> &'static str {
    match family {
        Family::Llama => "llama",
        Family::Eagle => "rwkv-x052",
        Family::Finch => "rwkv-x060",
        Family::GoldFinch => "goldfinch",
    }
}
