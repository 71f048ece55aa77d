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
//! has a bias. Queries, keys and values are one matrix, and so are gate and up: the products are
//! larger and the operators read the packed rows by stride. Hugging Face's tensors are adjacent row
//! ranges of these, in canonical order, so that the flat parameters are the same either way.
//!
//! Initial weights are those of INTELLECT-1 (PRIME, which took them from torchtitan). B sequences,
//! T tokens, N = B·T positions, D width, H query heads, G key-value heads, K head width, F hidden
//! width, V vocabulary.

pub mod layout;

use std::sync::OnceLock;

use burn_backend::tensor::{FloatTensor, IntTensor};

use super::Rows;
use crate::config;
use crate::genesis::{Init, Spec};
use crate::ops::{Documents, FusedOps, Heads, Rope};
use crate::optim::Group;

/// The sizes of a Llama and the angles of its positions: all but the weights.
#[derive(Clone, Debug)]
pub struct LlamaConfig {
    model: config::Model,
    /// Made with the first pass: it may be larger than who only counts parameters has memory.
    rope: OnceLock<Rope>,
}

/// A Llama with its weights.
#[derive(Clone, Debug)]
pub struct Llama<B: FusedOps> {
    model: config::Model,
    rope: Rope,
    /// [V, D]
    embedding: FloatTensor<B>,
    blocks: Vec<Block<B>>,
    /// `[D]`
    norm: FloatTensor<B>,
    /// [V, D]
    head: FloatTensor<B>,
}

#[derive(Clone, Debug)]
struct Block<B: FusedOps> {
    /// `[D]`
    attention_norm: FloatTensor<B>,
    /// [(H + 2G)·K, D]: queries, keys, values
    qkv: FloatTensor<B>,
    /// [D, H·K]
    out: FloatTensor<B>,
    /// `[D]`
    mlp_norm: FloatTensor<B>,
    /// [2F, D]: gate, up
    gate_up: FloatTensor<B>,
    /// [D, F]
    down: FloatTensor<B>,
}

impl LlamaConfig {
    /// For sequences of at most `model.context` tokens.
    #[must_use]
    pub fn new(model: &config::Model) -> Self {
        Self { model: model.clone(), rope: OnceLock::new() }
    }

    /// Every parameter under its Hugging Face name, in canonical order.
    #[must_use]
    pub fn specs(&self) -> Vec<Spec> {
        let m = &self.model;
        let small = |std: f64| Init::Normal { std };
        // INTELLECT-1 decays every parameter, norms and embeddings too.
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
            add("input_layernorm", &[m.width], Init::Ones);
            add("self_attn.q_proj", &[m.width, m.width], small(STD));
            add("self_attn.k_proj", &[m.kv_width(), m.width], small(STD));
            add("self_attn.v_proj", &[m.kv_width(), m.width], small(STD));
            add("self_attn.o_proj", &[m.width, m.width], deep);
            add("post_attention_layernorm", &[m.width], Init::Ones);
            add("mlp.gate_proj", &[m.ffn, m.width], small(STD));
            add("mlp.up_proj", &[m.ffn, m.width], deep);
            add("mlp.down_proj", &[m.width, m.ffn], deep);
        }
        specs.push(spec("model.norm.weight".to_owned(), &[m.width], Init::Ones));
        let head = Init::TruncatedNormal { std: (m.width as f64).powf(-0.5), cut: 3.0 };
        specs.push(spec("lm_head.weight".to_owned(), &[m.vocab, m.width], head));
        specs
    }

    /// The shapes of the tensors that [`Llama::new`] takes: canonical order, packed.
    #[must_use]
    pub fn shapes(&self) -> Vec<Vec<usize>> {
        let m = &self.model;
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

    /// Floating-point operations that one token costs in training, forward and backward: 6 per
    /// weight of a matrix, and 12·L·D·T for the scores and mixtures of attention, without a
    /// discount for the causal half (PRIME's count).
    #[must_use]
    pub fn flops_per_token(&self) -> u64 {
        let m = &self.model;
        let matrices = self.specs().into_iter().skip(1).filter(|spec| spec.shape.len() == 2);
        let weights: usize = matrices.map(|spec| spec.len()).sum();
        6 * weights as u64 + 12 * (m.layers * m.width * m.context) as u64
    }
}

impl LlamaConfig {
    /// Numbers that a training step holds for each token. Of a block the backward pass needs both
    /// sums of the residual stream and their norms, packed queries, keys and values, their mixture and
    /// normaliser, gate and up, and the product of both; of the ends the embedding, the last norm and
    /// the scores, which become their own gradient. Gradients come once more in each of these sizes.
    pub(super) fn held_per_token(&self) -> u64 {
        let m = &self.model;
        let packed = m.width + 2 * m.kv_width() + 3 * m.ffn;
        let block = 5 * m.width + packed + m.heads + 2;
        let ends = 2 * m.width + m.vocab;
        let gradients = packed + 3 * m.width;
        (m.layers * block + ends + gradients) as u64
    }
}

impl<B: FusedOps> Llama<B> {
    /// A model from its tensors, as [`LlamaConfig::shapes`] lists them.
    ///
    /// # Panics
    /// When there are fewer tensors than that.
    #[must_use]
    pub fn new(config: &LlamaConfig, tensors: impl IntoIterator<Item = FloatTensor<B>>) -> Self {
        let mut tensors = tensors.into_iter();
        #[expect(clippy::expect_used, reason = "the caller counted by `shapes`")]
        let mut next = || tensors.next().expect("a tensor for every shape");
        let embedding = next();
        let mut block = |_| Block {
            attention_norm: next(),
            qkv: next(),
            out: next(),
            mlp_norm: next(),
            gate_up: next(),
            down: next(),
        };
        let blocks = (0..config.model.layers).map(&mut block).collect();
        let (norm, head) = (next(), next());
        let model = config.model.clone();
        let make = || Rope::new(model.context, model.head_size(), model.rope_theta);
        let rope = config.rope.get_or_init(make).clone();
        Self { model, rope, embedding, blocks, norm, head }
    }

    /// Scores of every next token. // tokens [B·T], below V, T at most the context; result [B·T, V]
    #[must_use]
    pub fn logits(&self, tokens: IntTensor<B>, rows: &Rows) -> FloatTensor<B> {
        let m = &self.model;
        let (query, kv, size) = (m.heads, m.kv_heads, m.head_size());
        let heads = Heads { sequences: rows.sequences, tokens: rows.length, query, kv, size };
        let eps = m.norm_eps as f32;
        let mut x = B::float_select(self.embedding.clone(), 0, tokens); // [N, D]
        for block in &self.blocks {
            x = block.attention(x, heads, &rows.documents, &self.rope, eps);
            x = block.mlp(x, eps);
        }
        B::project(B::rms_norm(x, self.norm.clone(), eps), self.head.clone())
    }
}

impl<B: FusedOps> Block<B> {
    /// x + Wo·attention(rope(Wqkv·rms(x))). // x [N, D]
    fn attention(
        &self,
        x: FloatTensor<B>,
        heads: Heads,
        documents: &Documents,
        rope: &Rope,
        eps: f32,
    ) -> FloatTensor<B> {
        let h = B::rms_norm(x.clone(), self.attention_norm.clone(), eps);
        let qkv = B::project(h, self.qkv.clone()); // [N, (H + 2G)·K]
        let qkv = B::rotate(qkv, heads, rope);
        let mixed = B::causal_attention(qkv, heads, documents); // [N, H·K]
        B::project_add(mixed, self.out.clone(), x)
    }

    /// x + Wd·swiglu(Wgu·rms(x)). // x [N, D]
    fn mlp(&self, x: FloatTensor<B>, eps: f32) -> FloatTensor<B> {
        let h = B::rms_norm(x.clone(), self.mlp_norm.clone(), eps);
        let h = B::swiglu(B::project(h, self.gate_up.clone())); // [N, F]
        B::project_add(h, self.down.clone(), x)
    }
}

/// Of projections that do not write to the residual stream (torchtitan; PRIME).
const STD: f64 = 0.02;
