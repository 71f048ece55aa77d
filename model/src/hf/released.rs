//! RWKV-5 and RWKV-6 as they were released: the names of their parameters, and sizes from shapes.
//!
//! | | here and in BlinkDL's files | in transformers' files |
//! |---|---|---|
//! | ends | `emb`, `blocks.0.ln0`, `ln_out`, `head` | `rwkv.embeddings`, `rwkv.blocks.0.pre_ln`, `rwkv.ln_out`, `head` |
//! | block i | `blocks.i.att`, `blocks.i.ffn` | `rwkv.blocks.i.attention`, `rwkv.blocks.i.feed_forward` |
//! | shifts of RWKV-5 | `time_mix_k`, `_v`, `_r`, `_g` | `time_mix_key`, `_value`, `_receptance`, `_gate` |
//!
//! The bonus of the present token is `time_faaaa`, in a few files `time_first`. What is one number for
//! each channel may be `[D]`, `[1, 1, D]` or `[H, K]`: it is the same numbers in the same order.
//!
//! No file beside a `.pth` says how large the model is, but the shapes do. The World models of both
//! generations were trained with 4,096 tokens of context, a number that no tensor shows.
//!
//! RWKV-4, RWKV-5.0, RWKV-5.1 and RWKV-7 have many names in common with these two. So the
//! generation is decided by names and shapes that only one of them has, and every other one is
//! refused by its name, instead of by a list of the tensors that are missing.

use intellect_table::Table as _;

use super::error::ReleasedError;
use super::input::Input;
use crate::config::{Family, Model};

/// The convention by which the parameters of a released RWKV are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Words {
    /// Those of RWKV-LM, which this crate has as well.
    Blink,
    /// Those of the classes that were published for transformers.
    Transformers,
}

impl Words {
    /// The convention of this model's names.
    fn of(input: &Input) -> Self {
        let theirs = input.tensor(&Self::Transformers.name("emb.weight")).is_some();
        if theirs { Self::Transformers } else { Self::Blink }
    }

    /// The name of the parameter with this public name.
    pub(crate) fn name(self, public: &str) -> String {
        match self {
            Self::Blink => public.to_owned(),
            Self::Transformers => transformers_name(public),
        }
    }

    /// The same in this model, which may have the older name of the bonus.
    pub(crate) fn name_in(self, input: &Input, public: &str) -> String {
        let name = self.name(public);
        match name.strip_suffix("time_faaaa").map(|block| format!("{block}time_first")) {
            Some(older) if input.tensor(&name).is_none() && input.tensor(&older).is_some() => older,
            Some(_) | None => name,
        }
    }
}

/// The name of a parameter in the files for transformers, by its public one.
fn transformers_name(public: &str) -> String {
    if public.starts_with("head.") {
        return public.to_owned();
    }
    let name = match public.strip_prefix("emb.") {
        Some(rest) => format!("rwkv.embeddings.{rest}"),
        None => format!("rwkv.{public}"),
    };
    let name = name.replace(".ln0.", ".pre_ln.");
    let name = name.replace(".att.", ".attention.").replace(".ffn.", ".feed_forward.");
    let Some((block, channel)) = name.rsplit_once("time_mix_") else { return name };
    let channel = match channel {
        "k" => "key",
        "v" => "value",
        "r" => "receptance",
        "g" => "gate",
        other => other,
    };
    format!("{block}time_mix_{channel}")
}

/// Whether a tensor of the shape `found` has the numbers of a parameter of the shape `expected` in
/// their order: sizes of 1 do not matter, and numbers of channels may be in one row or by heads.
pub(crate) fn same_order(name: &str, found: &[usize], expected: &[usize]) -> bool {
    if name.ends_with(".weight") || name.ends_with(".bias") {
        return found == expected;
    }
    let [found, expected] = [found, expected].map(wide);
    let count =
        |sizes: &[usize]| sizes.iter().try_fold(1_usize, |all, size| all.checked_mul(*size));
    let one_row = found.len() == 1 || expected.len() == 1;
    found == expected || (one_row && count(&found) == count(&expected))
}

/// A shape without its sizes of 1.
fn wide(shape: &[usize]) -> Vec<usize> {
    shape.iter().copied().filter(|size| *size != 1).collect()
}

/// The model that these tensors are, by their names and shapes, and how they are named.
///
/// # Errors
/// If they are of another generation, or a tensor that tells a size is missing or of another shape.
pub(crate) fn sizes(input: &Input) -> Result<(Model, Words), ReleasedError> {
    let words = Words::of(input);
    let family = generation(input, words)?;
    let shape = |public: &str, size| {
        let name = words.name_in(input, public);
        let Some(tensor) = input.tensor(&name) else { return Err(ReleasedError::Missing(name)) };
        let [rows, columns] = tensor.shape[..] else {
            return Err(ReleasedError::Shape { name, shape: tensor.shape.clone(), size });
        };
        Ok([rows, columns])
    };
    let [vocab, width] = shape("emb.weight", "the vocabulary")?;
    let [heads, _] = shape("blocks.0.att.time_faaaa", "the number of heads")?;
    let [ffn, _] = shape("blocks.0.ffn.key.weight", "the hidden width")?;
    let mut sizes = vec![
        ("layers", layers(input, words)),
        ("vocab", vocab),
        ("width", width),
        ("heads", heads),
        ("ffn", ffn),
        ("context", CONTEXT),
    ];
    if family == Family::Finch {
        let [_, mixes] = shape("blocks.0.att.time_maa_w1", "the rank of the shifts")?;
        let [_, decays] = shape("blocks.0.att.time_decay_w1", "the rank of the decay")?;
        sizes.extend([("mix_rank", mixes / 5), ("decay_rank", decays)]);
    }
    let mut table = toml::Table::from_iter([("family".to_owned(), family.name().into())]);
    for (key, size) in sizes {
        table.insert(key.to_owned(), i64::try_from(size).unwrap_or(i64::MAX).into());
    }
    let manifest = toml::Table::from_iter([("model".to_owned(), table.into())]);
    let model = Model::parse(&manifest).map_err(ReleasedError::Bounds)?;
    Ok((model, words))
}

/// Which generation the names belong to.
fn generation(input: &Input, words: Words) -> Result<Family, ReleasedError> {
    let tensor = |public: &str| input.tensor(&words.name_in(input, public));
    let other = |name| Err(ReleasedError::Generation(name));
    let names: Vec<_> = input.tensors().into_iter().map(|(name, _)| name).collect();
    if names.iter().any(|name| name.ends_with(".r_k")) {
        return other("RWKV-7");
    }
    if names.iter().any(|name| name.starts_with("model.layers.0.attn.")) {
        return other("a model of flash-linear-attention, whose names are not known here");
    }
    for public in ["emb.weight", "blocks.0.ffn.key.weight", "blocks.0.att.time_decay"] {
        if tensor(public).is_none() {
            return Err(ReleasedError::Missing(words.name(public)));
        }
    }
    if tensor("blocks.0.att.ln_x.weight").is_none() {
        return other("RWKV-4");
    }
    if tensor("blocks.0.att.time_maa_x").is_some() {
        return Ok(Family::Finch);
    }
    if tensor("blocks.0.att.gate.weight").is_none() {
        return other("RWKV-5.0");
    }
    // Earlier, all channels of a head decayed alike.
    let count = |public| Some(tensor(public)?.shape.iter().product::<usize>());
    if count("blocks.0.att.time_decay") != count("blocks.0.ln1.weight") {
        return other("RWKV-5.1");
    }
    Ok(Family::Eagle)
}

/// How many blocks the names count.
fn layers(input: &Input, words: Words) -> usize {
    let before = words.name("blocks.");
    let number = |name: &str| name.strip_prefix(&before)?.split('.').next()?.parse::<usize>().ok();
    let last = input.tensors().into_iter().filter_map(|(name, _)| number(name)).max();
    last.map_or(0, |last| last.saturating_add(1))
}

/// Tokens that the World models of RWKV-5 and RWKV-6 read at once in training.
const CONTEXT: usize = 4096;

#[cfg(test)]
mod tests;
