//! The checks that only the vectors of Llama allow: packed documents and both z-losses.

use anyhow::{Result, ensure};
use burn_backend::tensor::FloatTensor;
use intellect_model::arch::Rows;
use intellect_model::config::{Model, Work};
use intellect_model::ops::{Documents, ZForm, ZLoss};

use crate::checks::{Form, Inner, LOGITS, LOSS, NO_Z, Pass, Subject, difference, distance};
use crate::vectors::{Vectors, number, size};

/// Reads the model from a `LlamaConfig` of transformers.
pub(crate) fn model(vectors: &Vectors) -> Result<Model> {
    let config = vectors.config()?;
    ensure!(config["tie_word_embeddings"] != true, "tied embeddings are not supported");
    let [_, length] = vectors.ints("in/ids")?.shape[..] else {
        anyhow::bail!("in/ids is not of shape [B, T]");
    };
    let model = Model {
        layers: size(&config, "num_hidden_layers")?,
        width: size(&config, "hidden_size")?,
        heads: size(&config, "num_attention_heads")?,
        kv_heads: size(&config, "num_key_value_heads")?,
        ffn: size(&config, "intermediate_size")?,
        context: size(&config, "max_position_embeddings")?.max(length),
        vocab: size(&config, "vocab_size")?,
        rope_theta: number(&config, "rope_theta")?,
        norm_eps: number(&config, "rms_norm_eps")?,
        ..Work::synthetic().model
    };
    let (heads, groups) = (model.heads, model.kv_heads);
    ensure!(model.width.is_multiple_of(2 * heads), "{heads} heads do not divide {}", model.width);
    ensure!(heads.is_multiple_of(groups), "{groups} kv heads do not divide {heads} heads");
    Ok(model)
}

pub(crate) fn check<A: Form>(
    subject: &Subject<'_>,
    parameters: &[FloatTensor<Inner<A>>],
    pass: &Pass,
    add: &mut dyn FnMut(&str, f64, f64),
) -> Result<()> {
    let vectors = subject.vectors;
    if vectors.has("out/logits_packed") {
        let numbers = &vectors.ints("in/doc_ids")?.values;
        let documents = Documents::packed(numbers, subject.rows.length);
        let rows = Rows { documents, ..subject.rows.clone() };
        let packed = subject.pass::<A>(parameters, &rows, NO_Z)?;
        let expected = &vectors.floats("out/logits_packed")?.values;
        add("packed logits", difference(&packed.logits, expected)?, LOGITS);
    }
    for (form, name) in [(ZForm::Max, "max"), (ZForm::LogSumExp, "lse")] {
        if !vectors.has(&format!("out/z_loss_{name}")) {
            continue;
        }
        let weight: f32 = vectors.text("z_weight")?.parse()?;
        // With weight 1, so that rounding of the cross entropy, which is in both, matters little.
        let with = subject.pass::<A>(parameters, &subject.rows, ZLoss { weight: 1.0, form })?;
        let z_loss = weight * (with.loss - pass.loss);
        let expected = &vectors.floats(&format!("out/z_loss_{name}"))?.values;
        add(&format!("z-loss ({name})"), difference(&[z_loss], expected)?, LOSS);
        for ((spec, with), (_, without)) in
            subject.named(&with.gradient).zip(subject.named(&pass.gradient))
        {
            let key = format!("grad_z_{name}/{}", spec.name);
            if vectors.has(&key) {
                let found: Vec<_> =
                    with.iter().zip(without).map(|(a, b)| weight * (a - b)).collect();
                let (error, bound) = distance(&found, &vectors.floats(&key)?.values)?;
                add(&format!("z-loss ({name}) gradient of {}", spec.name), error, bound);
            }
        }
    }
    Ok(())
}
