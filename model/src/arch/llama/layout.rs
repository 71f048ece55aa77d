//! Names and layout of Llama's weights in other programs, for import and export.
//!
//! The rotation acts on pairs of a head's K channels. Here, as at Hugging Face, row i of a head's
//! queries and keys is paired with row i + K/2 ("half"); Meta, torchtitan and PRIME pair rows 2i
//! and 2i + 1 ("interleaved"). It is the same model with its rows in another order:
//!
//! ```text
//! half row i = interleaved row 2i,   half row i + K/2 = interleaved row 2i + 1
//! ```
//!
//! Without the conversion the imported model runs, but computes wrong results.

/// The row of interleaved queries or keys, with heads of `size` rows, that is the given row here.
/// Both count through all heads.
pub(crate) fn interleaved_row(row: usize, size: usize) -> usize {
    let (head, row) = (row / size * size, row % size);
    head + 2 * (row % (size / 2)) + row / (size / 2)
}

/// Whether the rotation acts on the rows of this parameter.
pub(crate) fn is_rotated(name: &str) -> bool {
    name.ends_with("q_proj.weight") || name.ends_with("k_proj.weight")
}

/// The name that Meta and PRIME give to the parameter of this Hugging Face name, if a Llama has it.
#[must_use]
pub fn meta_name(name: &str) -> Option<String> {
    let layer = name.strip_prefix("model.layers.").and_then(|rest| rest.split_once('.'));
    let Some((layer, inner)) = layer else {
        let meta = match name {
            "model.embed_tokens.weight" => "tok_embeddings.weight",
            "model.norm.weight" => "norm.weight",
            "lm_head.weight" => "output.weight",
            _ => return None,
        };
        return Some(meta.to_owned());
    };
    let meta = match inner {
        "input_layernorm.weight" => "attention_norm.weight",
        "self_attn.q_proj.weight" => "attention.wq.weight",
        "self_attn.k_proj.weight" => "attention.wk.weight",
        "self_attn.v_proj.weight" => "attention.wv.weight",
        "self_attn.o_proj.weight" => "attention.wo.weight",
        "post_attention_layernorm.weight" => "ffn_norm.weight",
        "mlp.gate_proj.weight" => "feed_forward.w1.weight",
        "mlp.up_proj.weight" => "feed_forward.w3.weight",
        "mlp.down_proj.weight" => "feed_forward.w2.weight",
        _ => return None,
    };
    Some(format!("layers.{layer}.{meta}"))
}

#[cfg(test)]
pub(crate) mod tests;
