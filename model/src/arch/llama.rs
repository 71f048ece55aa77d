//! Llama: the decoder-only transformer of Touvron et al. (2023) with Llama 3's grouped queries.
//!
//! ```text
//! x  = emb[tokens]
//! x += Wo·attention(rope(Wqkv·rms(x, g1)))      for each block: causal, grouped queries
//! x += Wd·swiglu(Wgu·rms(x, g2))
//! logits = Wout·rms(x, g)                       the head is not tied to the embedding
//! ```
//!
//! Positions enter by rotation alone (Su et al. 2021, "half" layout: pairs (i, i + K/2)); no layer
//! has a bias. Queries, keys and values are one matrix, and so are gate and up, because larger
//! products are faster; the operators read the packed rows by stride. Hugging Face's tensors are
//! adjacent row ranges of these, in canonical order, so the flat parameters are the same either
//! way.
//!
//! Initial weights are those of INTELLECT-1 (PRIME, which took them from torchtitan). B sequences,
//! T tokens, N = B·T positions, D width, H query heads, G key-value heads, K head width, F hidden
//! width, V vocabulary.

pub mod layout;

use burn_backend::TensorMetadata;
use burn_backend::tensor::{Device, FloatTensor, IntTensor};
use serde_json::{Value, json};

use super::family::{Arch, Declared, Facts, Pass, Rows, taker};
use super::past::{Keep, Scored};
use crate::config;
use crate::genesis::{Init, Spec};
use crate::hf::conversion::Conversion;
use crate::ops::{
    Append, Attend, Attention, Documents, FusedOps, Heads, Project, ProjectAdd, RmsNorm, Rope,
    RopeScaling, Rotate, SwiGlu,
};
use crate::optim::Group;

/// What a Llama keeps of a text: the keys and values of every token, up to its context.
#[derive(Clone, Debug)]
pub struct State<B: FusedOps> {
    /// B, the texts that are read together.
    sequences: usize,
    /// The number of tokens read in each sequence.
    length: usize,
    /// The cache of each block; `None` before the first token.
    blocks: Vec<Option<Cache<B>>>,
}

/// The keys and values of one block.
#[derive(Clone, Debug)]
struct Cache<B: FusedOps> {
    /// Rotated by their positions, with room for more. // [B, ≥ T, G·K]
    keys: FloatTensor<B>,
    /// The values of the same tokens. // [B, ≥ T, G·K]
    values: FloatTensor<B>,
}

/// A Llama with its weights, for one pass.
#[derive(Clone, Debug)]
pub struct Llama<B: FusedOps> {
    /// The sizes and settings, as the manifest has them.
    model: config::Model,
    /// The angles of all positions.
    rope: Rope,
    /// A row for each token. // [V, D]
    embedding: FloatTensor<B>,
    /// The blocks, from the lowest.
    blocks: Vec<Block<B>>,
    /// The gain of the last norm. // `[D]`
    norm: FloatTensor<B>,
    /// A row of scores for each token. // [V, D]
    head: FloatTensor<B>,
}

/// The weights of one block, in the order in which they are declared.
#[derive(Clone, Debug)]
struct Block<B: FusedOps> {
    /// g1, the gain before attention. // `[D]`
    attention_norm: FloatTensor<B>,
    /// Wqkv: rows of queries, keys and values. // [(H + 2G)·K, D]
    qkv: FloatTensor<B>,
    /// [D, H·K]
    out: FloatTensor<B>,
    /// g2, the gain before the MLP. // `[D]`
    mlp_norm: FloatTensor<B>,
    /// [2F, D]: gate, up
    gate_up: FloatTensor<B>,
    /// [D, F]
    down: FloatTensor<B>,
}

/// What [`Arch`] knows of the family. It has angles for `context` positions and
/// reaches no further.
pub(super) const FACTS: Facts = Facts {
    declare: |m| Declared { specs: specs(m), shapes: shapes(m) },
    flops_per_token: |m, declared| flops_per_token(m, declared),
    held_per_token,
    reach: |m| Some(m.context),
    bench: |sizes| config::Model {
        heads: 8,
        kv_heads: 8,
        ffn: 688,
        rope_theta: 10_000.0,
        norm_eps: 1e-5,
        ..sizes
    },
    model_type: "llama",
    words: &[("heads", "num_attention_heads"), ("context", "max_position_embeddings")],
    describe,
    read,
};

/// The parameters of a Llama, under their Hugging Face names. Checkpoints and every exchange
/// between peers follow this order, so a parameter more, or another order of two, is
/// another format.
fn specs(m: &config::Model) -> Vec<Spec> {
    let small = |std: f64| Init::Normal { std };
    // INTELLECT-1 decays every parameter, including norms and embeddings.
    let group = Group::DECAYED;
    let spec =
        |name: String, shape: &[usize], init| Spec { name, shape: shape.to_vec(), init, group };
    let embedding = "model.embed_tokens.weight".to_owned();
    let mut specs = vec![spec(embedding, &[m.vocab, m.width], small(1.0))];
    for layer in 0..m.layers {
        // Deeper blocks start closer to the identity.
        let deep = small(STD / (2.0 * (layer + 1) as f64).sqrt());
        let mut add = |name: &str, shape: &[usize], init| {
            specs.push(spec(format!("model.layers.{layer}.{name}.weight"), shape, init));
        };
        add("input_layernorm", &[m.width], Init::Constant(1.0));
        add("self_attn.q_proj", &[m.width, m.width], small(STD));
        add("self_attn.k_proj", &[m.kv_width(), m.width], small(STD));
        add("self_attn.v_proj", &[m.kv_width(), m.width], small(STD));
        add("self_attn.o_proj", &[m.width, m.width], deep);
        add("post_attention_layernorm", &[m.width], Init::Constant(1.0));
        add("mlp.gate_proj", &[m.ffn, m.width], small(STD));
        add("mlp.up_proj", &[m.ffn, m.width], deep);
        add("mlp.down_proj", &[m.width, m.ffn], deep);
    }
    specs.push(spec("model.norm.weight".to_owned(), &[m.width], Init::Constant(1.0)));
    let head = Init::TruncatedNormal { std: libm::pow(m.width as f64, -0.5), cut: 3.0 };
    specs.push(spec("lm_head.weight".to_owned(), &[m.vocab, m.width], head));
    specs
}

/// The shapes of the tensors: queries, keys and values are one, and so are gate and up. The packed
/// parameters are neighbours in [`specs`], so packing moves no number.
fn shapes(m: &config::Model) -> Vec<Vec<usize>> {
    let block = [
        vec![m.width],
        vec![m.width + 2 * m.kv_width(), m.width],
        vec![m.width, m.width],
        vec![m.width],
        vec![2 * m.ffn, m.width],
        vec![m.width, m.ffn],
    ];
    let mut shapes = vec![vec![m.vocab, m.width]];
    shapes.extend((0..m.layers).flat_map(|_| block.clone()));
    shapes.extend([vec![m.width], vec![m.vocab, m.width]]);
    shapes
}

/// Floating-point operations that one token costs in training, forward and backward. A weight of a
/// matrix costs 6. The scores and mixtures of attention cost 12·L·D·T, without a discount for the
/// causal half (as PRIME counts).
fn flops_per_token(m: &config::Model, declared: &Declared) -> u64 {
    let matrices = declared.specs.iter().skip(1).filter(|spec| spec.shape.len() == 2);
    let weights: usize = matrices.map(Spec::len).sum();
    6 * weights as u64 + 12 * (m.layers * m.width * m.context) as u64
}

/// Numbers in memory for each token of a training step. From each block the backward pass needs
/// both sums of the residual stream and their norms, packed queries, keys and values, their mixture
/// and normaliser, gate and up, and the product of both. From the ends it needs the embedding, the
/// last norm and the scores, which become their own gradient. Each of the sizes occurs once more
/// for a gradient.
fn held_per_token(m: &config::Model) -> usize {
    let packed = m.width + 2 * m.kv_width() + 3 * m.ffn;
    let block = 5 * m.width + packed + m.heads + 2;
    let ends = 2 * m.width + m.vocab;
    let gradients = packed + 3 * m.width;
    m.layers * block + ends + gradients
}

/// Describes a model in the words of transformers' `LlamaConfig`.
fn describe(m: &config::Model) -> Value {
    let mut config = json!({
        "architectures": ["LlamaForCausalLM"],
        "num_attention_heads": m.heads,
        "num_key_value_heads": m.kv_heads,
        "head_dim": m.head_size(),
        "max_position_embeddings": m.context,
        "rope_theta": m.rope_theta,
        "rms_norm_eps": m.norm_eps,
        "hidden_act": "silu",
        "attention_bias": false,
        "mlp_bias": false,
        "attention_dropout": 0.0,
        "initializer_range": 0.02,
        "use_cache": true,
    });
    if let Some(RopeScaling { factor, original }) = m.rope_scaling() {
        config["rope_scaling"] = json!({
            "rope_type": LLAMA3,
            "factor": factor,
            "low_freq_factor": RopeScaling::ONCE,
            "high_freq_factor": RopeScaling::OFTEN,
            "original_max_position_embeddings": original,
        });
    }
    config
}

/// Reads what [`describe`] writes. A key that older configurations lack has the default of
/// transformers.
fn read(config: &mut Conversion<'_>) {
    match &config.config["num_key_value_heads"] {
        Value::Null => config.count("kv_heads", "num_attention_heads"),
        _ => config.count("kv_heads", "num_key_value_heads"),
    }
    match config.config["rms_norm_eps"].as_f64() {
        Some(eps) => config.put("norm_eps", eps),
        None => config.wrong("rms_norm_eps", "a number"),
    }
    // Since transformers 5 the key is within `rope_parameters`.
    let found = [&config.config["rope_theta"], &config.config["rope_parameters"]["rope_theta"]];
    match found.into_iter().find(|theta| !theta.is_null()).map(Value::as_f64) {
        None => config.put("rope_theta", 10_000.0),
        Some(Some(theta)) => config.put("rope_theta", theta),
        Some(None) => config.wrong("rope_theta", "a number"),
    }
    read_scaling(config, "rope_scaling");
    read_scaling(config, "rope_parameters");
    // Other values of these keys are another architecture, whose results would differ.
    config.expect("hidden_act", &["silu".into()]);
    config.expect("attention_bias", &[false.into()]);
    config.expect("mlp_bias", &[false.into()]);
    let sizes = ["hidden_size", "num_attention_heads"].map(|key| config.config[key].as_u64());
    if let [Some(width), Some(heads @ 1..)] = sizes {
        config.expect("head_dim", &[(width / heads).into()]);
    }
}

/// Reads the scaling of the frequencies, if there is any. Only Llama 3's with its usual bounds is
/// done here. Any other one is refused instead of ignored: the model would run, and be wrong at the
/// positions behind the context of its first training.
fn read_scaling(config: &mut Conversion<'_>, key: &'static str) {
    let found = &config.config[key];
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
            config.put("rope_factor", factor);
            config.put("rope_original_context", original);
        }
        _ => {
            let supported = format!(
                "rope_type \"default\", or \"{LLAMA3}\" with a factor, the original context, \
                 low_freq_factor {:?} and high_freq_factor {:?}",
                RopeScaling::ONCE,
                RopeScaling::OFTEN
            );
            config.refuse(key, supported);
        }
    }
}

impl<B: FusedOps> Pass<B> for Llama<B> {
    type State = State<B>;

    fn new(arch: &Arch, parameters: &[FloatTensor<B>]) -> Self {
        let (model, mut next) = (arch.model(), taker::<B>(parameters));
        let embedding = next();
        let mut block = |_| Block {
            attention_norm: next(),
            qkv: next(),
            out: next(),
            mlp_norm: next(),
            gate_up: next(),
            down: next(),
        };
        let blocks = (0..model.layers).map(&mut block).collect();
        let (norm, head) = (next(), next());
        Self { model: model.clone(), rope: arch.rope(), embedding, blocks, norm, head }
    }

    fn start(model: &config::Model, sequences: usize, _: Keep, _: &Device<B>) -> State<B> {
        State { sequences, length: 0, blocks: vec![None; model.layers] }
    }

    /// Whole rows need no cache, and may hold several documents.
    fn logits(&self, _: &config::Model, tokens: IntTensor<B>, rows: &Rows) -> FloatTensor<B> {
        let heads = self.heads(rows.sequences, rows.length);
        let x = self.forward(tokens, |_, qkv| {
            let qkv = B::run(Rotate { heads, rope: self.rope.clone() }, [qkv]);
            B::run(Attention { heads, documents: rows.documents.clone() }, [qkv])
        });
        self.head(x)
    }

    fn extend(
        &self,
        tokens: IntTensor<B>,
        scored: Scored,
        state: &mut State<B>,
    ) -> Option<FloatTensor<B>> {
        let (sequences, past) = (state.sequences, state.length);
        let new = tokens.shape().num_elements() / sequences;
        state.length += new;
        let rope = self.rope.starting_at(past);
        let heads = self.heads(sequences, new);
        let x = self.forward(tokens, |block, qkv| {
            let qkv = B::run(Rotate { heads, rope: rope.clone() }, [qkv]);
            Cache::attend(&mut state.blocks[block], qkv, heads, past)
        });
        scored.rows::<B>(x, sequences).map(|x| self.head(x))
    }

    /// The texts differ in length, so each attends to its own cache at its own position. Everything
    /// with weights is one product for all of them.
    fn extend_each(&self, tokens: IntTensor<B>, states: &mut [&mut State<B>]) -> FloatTensor<B> {
        let heads = self.heads(1, 1);
        let x = self.forward(tokens, |block, qkv| {
            let mix = |(at, state): (usize, &mut &mut State<B>)| {
                let past = state.length;
                let qkv = B::float_slice(qkv.clone(), &[(at..at + 1).into()]); // [1, (H + 2G)·K]
                let qkv = B::run(Rotate { heads, rope: self.rope.starting_at(past) }, [qkv]);
                Cache::attend(&mut state.blocks[block], qkv, heads, past)
            };
            B::float_cat(B::map_each(states.iter_mut().enumerate().collect(), mix), 0)
        });
        for state in states.iter_mut() {
            state.length += 1;
        }
        self.head(x)
    }
}

impl<B: FusedOps> Llama<B> {
    /// The output of the last block; `mix` maps a block's packed queries, keys and values to the
    /// output of its attention. // [N, D]
    fn forward(
        &self,
        tokens: IntTensor<B>,
        mut mix: impl FnMut(usize, FloatTensor<B>) -> FloatTensor<B>,
    ) -> FloatTensor<B> {
        let norm = RmsNorm { eps: self.model.norm_eps as f32 };
        let mut x = B::float_select(self.embedding.clone(), 0, tokens); // [N, D]
        for (index, block) in self.blocks.iter().enumerate() {
            x = block.attention(x, |qkv| mix(index, qkv), norm);
            x = block.mlp(x, norm);
        }
        x
    }

    /// The scores of the next tokens. // x [N, D], result [N, V]
    fn head(&self, x: FloatTensor<B>) -> FloatTensor<B> {
        let norm = RmsNorm { eps: self.model.norm_eps as f32 };
        B::run(Project, [B::run(norm, [x, self.norm.clone()]), self.head.clone()])
    }

    /// The sizes that attention needs, for a batch of this shape.
    fn heads(&self, sequences: usize, tokens: usize) -> Heads {
        let m = &self.model;
        Heads { sequences, tokens, query: m.heads, kv: m.kv_heads, size: m.head_size() }
    }
}

impl<B: FusedOps> Cache<B> {
    /// Attention of the newest tokens, whose keys and values are appended to the `past` tokens of
    /// the cache. // qkv [B·S, (H + 2G)·K], result [B·S, H·K]
    fn attend(
        cache: &mut Option<Self>,
        qkv: FloatTensor<B>,
        new: Heads,
        past: usize,
    ) -> FloatTensor<B> {
        let Heads { sequences, tokens, query, kv, size } = new;
        let columns = |first: usize, heads: usize| {
            let columns = first * size..(first + heads) * size;
            B::float_slice(qkv.clone(), &[(0..sequences * tokens).into(), columns.into()])
        };
        let rows = |x| B::float_reshape(x, [sequences, tokens, kv * size].into());
        let [keys, values] = [query, query + kv].map(|first| rows(columns(first, kv)));
        let Some(held) = cache.take() else {
            *cache = Some(Self { keys, values });
            let documents = Documents::whole(sequences * tokens);
            return B::run(Attention { heads: new, documents }, [qkv]);
        };
        let append = |held, new| B::untracked(Append { length: past }, [held, new]);
        let ([keys], [values]) = (append(held.keys, keys), append(held.values, values));
        let heads = Heads { tokens: past + tokens, ..new };
        let inputs = [columns(0, query), keys.clone(), values.clone()];
        let [mixed] = B::untracked(Attend { heads }, inputs);
        *cache = Some(Self { keys, values });
        mixed
    }
}

impl<B: FusedOps> Block<B> {
    /// x + Wo·mix(Wqkv·rms(x)), mix = attention∘rope. // x [N, D]
    fn attention(
        &self,
        x: FloatTensor<B>,
        mix: impl FnOnce(FloatTensor<B>) -> FloatTensor<B>,
        norm: RmsNorm,
    ) -> FloatTensor<B> {
        let h = B::run(norm, [x.clone(), self.attention_norm.clone()]);
        let qkv = B::run(Project, [h, self.qkv.clone()]); // [N, (H + 2G)·K]
        B::run(ProjectAdd, [mix(qkv), self.out.clone(), x])
    }

    /// x + Wd·swiglu(Wgu·rms(x)). // x [N, D]
    fn mlp(&self, x: FloatTensor<B>, norm: RmsNorm) -> FloatTensor<B> {
        let h = B::run(norm, [x.clone(), self.mlp_norm.clone()]);
        let h = B::run(SwiGlu, [B::run(Project, [h, self.gate_up.clone()])]); // [N, F]
        B::run(ProjectAdd, [h, self.down.clone(), x])
    }
}

/// Standard deviation of projections that do not write to the residual stream (torchtitan; PRIME).
const STD: f64 = 0.02;
/// transformers' name of the only scaling of frequencies that is supported here.
const LLAMA3: &str = "llama3";
