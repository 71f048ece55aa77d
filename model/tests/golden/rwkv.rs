//! The checks that only the vectors of RWKV families and GoldFinch allow: states and continuations
//! from them, the cache, L2Wrap, and the recurrence alone.

use anyhow::{Context, Result, bail, ensure};
use burn_backend::tensor::FloatTensor;
use burn_backend::{TensorData, TensorMetadata};
use intellect_model::arch::goldfinch::GoldFinch;
use intellect_model::arch::rwkv::BlockState;
use intellect_model::arch::{Arch, Keep, Pass, Scored, State};
use intellect_model::config::{Family, Model};
use intellect_model::ops::{Wkv, ZForm, ZLoss};

use crate::checks::{Form, Inner, LOGITS, Subject, difference, distance, values};
use crate::vectors::{Vectors, size};

/// Reads the model from a configuration of RWKV-LM or GoldFinch-paper.
pub(crate) fn model(vectors: &Vectors, family: Family) -> Result<Model> {
    let config = vectors.config()?;
    let [_, length] = vectors.ints("in/ids")?.shape[..] else {
        bail!("in/ids is not of shape [B, T]");
    };
    // The ranks of the low-rank maps can be read only from shapes.
    let rank = |name: &str, from_end: usize| {
        let shape = &vectors.floats(&format!("param/blocks.{name}"))?.shape;
        let at =
            shape.len().checked_sub(from_end).with_context(|| format!("{name} is a scalar"))?;
        Ok::<_, anyhow::Error>(shape[at])
    };
    let (width, head) = (size(&config, "n_embd")?, size(&config, "head_size")?);
    ensure!(width.is_multiple_of(head), "heads of {head} channels do not divide {width}");
    let mut model = Model {
        family,
        layers: size(&config, "n_layer")?,
        width,
        heads: width / head,
        ffn: size(&config, "dim_ffn")?,
        context: length,
        vocab: size(&config, "vocab_size")?,
        ..Model::NONE
    };
    if matches!(family, Family::Finch | Family::GoldFinch) {
        model.mix_rank = rank("0.att.time_maa_w2", 2)?;
        model.decay_rank = rank("0.att.time_decay_w1", 1)?;
    }
    if family == Family::GoldFinch {
        let first = size(&config, "first_gold_layer")?;
        ensure!(first < model.layers, "the model has no block with attention");
        model.gold_layers = model.layers - first;
        model.value_rank = rank(&format!("{first}.att.time_key_w1"), 1)?;
        model.compression = size(&config, "kv_cache_compression_ratio")?;
    }
    Ok(model)
}

pub(crate) fn check<A: Form>(
    subject: &Subject<'_>,
    parameters: &[FloatTensor<Inner<A>>],
    add: &mut dyn FnMut(&str, f64, f64),
) -> Result<()> {
    check_states::<A>(subject, parameters, add)?;
    let vectors = subject.vectors;
    if vectors.names("grad_l2wrap/").next().is_some() {
        // L2Wrap adds m·1e-4/(B·T) to the gradient: the z-loss of the maximum with half that
        // weight.
        let z_loss = ZLoss { weight: 0.5e-4, form: ZForm::Max };
        let pass = subject.pass::<A>(parameters, &subject.rows, z_loss)?;
        for (spec, found) in subject.named(&pass.gradient) {
            let key = format!("grad_l2wrap/{}", spec.name);
            if vectors.has(&key) {
                let (error, bound) = distance(found, &vectors.floats(&key)?.values)?;
                add(&format!("L2Wrap gradient of {}", spec.name), error, bound);
            }
        }
    }
    if vectors.has("op/y") { check_operator::<A>(vectors, add) } else { Ok(()) }
}

/// Compares the state after the batch, and the logits of the continuation, read at once and token
/// by token.
fn check_states<A: Form>(
    subject: &Subject<'_>,
    parameters: &[FloatTensor<Inner<A>>],
    add: &mut dyn FnMut(&str, f64, f64),
) -> Result<()> {
    let (vectors, arch) = (subject.vectors, &subject.arch);
    let parameters: Vec<_> = parameters.iter().map(|p| A::from_inner(p.clone())).collect();
    let sequences = subject.rows.sequences;
    let mut state = arch.state::<A>(sequences, Keep::EXACT, &Default::default());
    read::<A>(arch, &parameters, vectors, "in/ids", 0..subject.rows.length, &mut state)?;
    let blocks: &[BlockState<A>] = match &state {
        State::Llama(_) => &[],
        State::Eagle(blocks) | State::Finch(blocks) => blocks,
        State::GoldFinch(state) => &state.blocks,
    };
    for (i, block) in blocks.iter().enumerate() {
        let BlockState { time, kv, channel } = block;
        let named =
            [("att.x_prev", Some(time)), ("att.kv", kv.as_ref()), ("ffn.x_prev", Some(channel))];
        for (name, found) in named {
            let Some(found) = found else { continue };
            let name = format!("state/blocks.{i}.{name}");
            if vectors.has(&name) {
                let found = values::<Inner<A>>(&[A::inner(found.clone())])?;
                let (error, bound) = distance(&found, &vectors.floats(&name)?.values)?;
                add(&name, error, bound);
            }
        }
    }
    if let State::GoldFinch(state) = &state {
        let (tokens, compressed) = state.cache.whole().context("the cache is empty")?;
        let [sequences, length, width] = compressed.shape().dims();
        let tokens = A::int_reshape(tokens, [sequences * length].into());
        let compressed = A::float_reshape(compressed, [sequences * length, width].into());
        let model = GoldFinch::<A>::new(arch, &parameters);
        let keys = model.shared_keys(tokens, compressed.clone());
        for (name, found) in [("compressed_cache", compressed), ("k_cache", keys)] {
            let expected = &vectors.floats(&format!("out/{name}"))?.values;
            add(name, difference(&values::<Inner<A>>(&[A::inner(found)])?, expected)?, LOGITS);
        }
    }
    if !vectors.has("in/ids_cont") {
        return Ok(());
    }
    let expected = &vectors.floats("out/logits_cont")?.values;
    let length = vectors.ints("in/ids_cont")?.values.len() / sequences;
    let mut whole = state.clone();
    let range = 0..length;
    let found = read::<A>(arch, &parameters, vectors, "in/ids_cont", range, &mut whole)?;
    add("continued logits", difference(&found, expected)?, LOGITS);
    let vocabulary = expected.len() / (sequences * length);
    let mut error = 0.0_f64;
    for t in 0..length {
        let found = read::<A>(arch, &parameters, vectors, "in/ids_cont", t..t + 1, &mut state)?;
        for (row, found) in found.chunks(vocabulary).enumerate() {
            let expected = &expected[(row * length + t) * vocabulary..][..vocabulary];
            error = error.max(difference(found, expected)?);
        }
    }
    add("continued logits, token by token", error, LOGITS);
    Ok(())
}

/// The logits of the tokens in columns `range`. // [B·T, V]
fn read<A: Form>(
    arch: &Arch,
    parameters: &[FloatTensor<A>],
    vectors: &Vectors,
    name: &str,
    range: std::ops::Range<usize>,
    state: &mut State<A>,
) -> Result<Vec<f32>> {
    let ids = vectors.ints(name)?;
    let [_, length] = ids.shape[..] else { bail!("{name} is not of shape [B, T]") };
    let rows = ids.values.chunks(length);
    let ids: Vec<i32> = rows.flat_map(|row| row[range.clone()].to_vec()).collect();
    let count = ids.len();
    let ids = A::int_from_data(TensorData::new(ids, [count]), &Default::default());
    let scores = arch.extend::<A>(parameters, ids, Scored::All, state).context("some tokens")?;
    values::<Inner<A>>(&[A::inner(scores)])
}

/// Compares the recurrence alone: y, the last state, and the gradients for the gradient `gy` of y.
fn check_operator<A: Form>(vectors: &Vectors, add: &mut dyn FnMut(&str, f64, f64)) -> Result<()> {
    let shape = &vectors.floats("op/r")?.shape;
    let [sequences, tokens, heads, size] = shape[..] else { bail!("op/r is not [B, T, H, K]") };
    let (rows, width) = (sequences * tokens, heads * size);
    let names = ["r", "k", "v", "w", "u", "s0"];
    let mut leaves = Vec::new();
    for name in names {
        let values = vectors.floats(&format!("op/{name}"))?.values.clone();
        let shape = match name {
            "s0" => vec![sequences, heads, size, size],
            _ if values.len() == width => vec![width],
            _ => vec![rows, width],
        };
        let tensor = A::float_from_data(TensorData::new(values, shape), &Default::default());
        leaves.push(A::float_set_require_grad(tensor, true));
    }
    let inputs: [FloatTensor<A>; 6] = leaves.clone().try_into().ok().context("six inputs")?;
    let [y, last] = A::run_multi(Wkv, inputs);
    let mut compare = |name: &str, found: FloatTensor<Inner<A>>| {
        let expected = &vectors.floats(&format!("op/{name}"))?.values;
        let largest = expected.iter().fold(0.0, |most, x| f64::from(x.abs()).max(most));
        let error = difference(&values::<Inner<A>>(&[found])?, expected)? / largest;
        add(&format!("op/{name}"), error, OPERATOR);
        Ok::<_, anyhow::Error>(())
    };
    compare("y", A::inner(y.clone()))?;
    compare("s_last", A::inner(last))?;
    let gy = TensorData::new(vectors.floats("op/gy")?.values.clone(), y.shape());
    let gy = A::float_from_data(gy, &Default::default());
    let mut gradients = A::backward(A::float_sum(A::float_mul(y, gy)));
    for (name, leaf) in names.into_iter().zip(&leaves) {
        let gradient = A::grad_remove(leaf, &mut gradients).context("a gradient of each input")?;
        compare(&format!("grad_{name}"), gradient)?;
    }
    Ok(())
}

/// The bound of the README of the vectors, relative to the largest value.
const OPERATOR: f64 = 1e-5;
