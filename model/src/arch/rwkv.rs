//! What Eagle, Finch and GoldFinch share: the model around the blocks, the state of a block, norms
//! with a bias, channel mixing, and the initial values of their parameters.
//!
//! Let l be the index of one of L blocks, a = l/(L − 1), b = 1 − l/L and d_i = i/D for channel i
//! (RWKV-LM). The token shift of channel i starts at d_i to a power of b, so that early channels
//! look back and late ones at the present, and deeper blocks look back less far. Matrices that
//! write to the residual stream start at zero, so every block starts as the identity.
//!
//! The parameters have the names and the layout of RWKV-LM: projections are [out, in], the low-rank
//! maps `_w1`, `_w2` are [in, out].

pub(super) mod declare;

use burn_backend::TensorMetadata;
use burn_backend::tensor::{Device, FloatTensor, IntTensor};
use serde_json::{Value, json};

use super::family::{Arch, Declared, Pass, Rows, taker};
use super::past::{Keep, Scored};
use crate::config;
use crate::genesis::Spec;
use crate::hf::conversion::Conversion;
use crate::ops::{
    Expand, FusedOps, GatedAdd, LayerNorm, NormGate, Project, ProjectAdd, ReluSquare, STATE_TOKENS,
    ShiftMix, TanhProject, Weighs, Wkv,
};

/// Blocks of time and channel mixing between an embedding and a head.
#[derive(Clone, Debug)]
pub struct Rwkv<B: FusedOps, T> {
    /// The sizes and settings, as the manifest has them.
    model: config::Model,
    /// A row for each token. // [V, D]
    embedding: FloatTensor<B>,
    /// The norm of the embedding, before the first block.
    first_norm: Norm<B>,
    /// Time and channel mixing of each block, from the lowest.
    blocks: Vec<(T, ChannelMix<B>)>,
    /// The norm of the last block's output, before the head.
    last_norm: Norm<B>,
    /// A row of scores for each token. // [V, D]
    head: FloatTensor<B>,
}

/// Time mixing of a block with a recurrence.
pub trait TimeMixing<B: FusedOps> {
    /// Whether the weights of token shifts weigh the present or the past.
    const WEIGHS: Weighs;

    /// Takes the next of the model's tensors, as many as it has, in the order in which they are
    /// declared.
    fn take(next: &mut dyn FnMut() -> FloatTensor<B>) -> Self;

    /// Returns x plus the output of time mixing; advances the state. // x [N, D]
    fn forward(
        &self,
        x: FloatTensor<B>,
        model: &config::Model,
        state: &mut BlockState<B>,
    ) -> FloatTensor<B>;
}

impl<B: FusedOps, T: TimeMixing<B>> Pass<B> for Rwkv<B, T> {
    type State = Vec<BlockState<B>>;

    fn new(arch: &Arch, parameters: &[FloatTensor<B>]) -> Self {
        let (model, next) = (arch.model(), &mut taker::<B>(parameters));
        let (embedding, first_norm) = (next(), Norm::take(next));
        let blocks = (0..model.layers).map(|_| (T::take(next), ChannelMix::take(next))).collect();
        let (last_norm, head) = (Norm::take(next), next());
        Self { model: model.clone(), embedding, first_norm, blocks, last_norm, head }
    }

    fn start(model: &config::Model, sequences: usize, _: Keep, device: &Device<B>) -> Self::State {
        vec![BlockState::start(model, sequences, device); model.layers]
    }

    fn extend(
        &self,
        tokens: IntTensor<B>,
        scored: Scored,
        states: &mut Self::State,
    ) -> Option<FloatTensor<B>> {
        let x = self.blocks(tokens, states);
        let sequences = states[0].time.shape().dims::<2>()[0];
        scored.rows::<B>(x, sequences).map(|x| self.head(x))
    }

    fn logits(&self, model: &config::Model, tokens: IntTensor<B>, rows: &Rows) -> FloatTensor<B> {
        let mut states = Self::start(model, rows.sequences, Keep::EXACT, &B::int_device(&tokens));
        self.head(self.blocks(tokens, &mut states))
    }

    /// The states are stacked for the pass: copying them costs little beside reading the weights.
    fn extend_each(&self, tokens: IntTensor<B>, states: &mut [&mut Self::State]) -> FloatTensor<B> {
        let layer = |layer: usize| {
            let blocks: Vec<&BlockState<B>> = states.iter().map(|state| &state[layer]).collect();
            BlockState::stacked(&blocks)
        };
        let mut stacked: Vec<BlockState<B>> = (0..self.blocks.len()).map(layer).collect();
        let scores = self.head(self.blocks(tokens, &mut stacked));
        for (at, state) in states.iter_mut().enumerate() {
            **state = stacked.iter().map(|block| block.row(at)).collect();
        }
        scores
    }
}

impl<B: FusedOps, T: TimeMixing<B>> Rwkv<B, T> {
    /// The output of the last block. // [N, D]
    fn blocks(&self, tokens: IntTensor<B>, states: &mut [BlockState<B>]) -> FloatTensor<B> {
        let x = B::float_select(self.embedding.clone(), 0, tokens); // [N, D]
        let mut x = self.first_norm.apply(x);
        for ((time, channel), state) in self.blocks.iter().zip(states) {
            x = time.forward(x, &self.model, state);
            x = channel.forward(x, T::WEIGHS, &mut state.channel);
        }
        x
    }

    /// The scores of the next tokens. // x [N, D], result [N, V]
    fn head(&self, x: FloatTensor<B>) -> FloatTensor<B> {
        B::run(Project, [self.last_norm.apply(x), self.head.clone()])
    }
}

/// The state of one block between two tokens. // D numbers for each shift, N·D for the recurrence
#[derive(Clone, Debug)]
pub struct BlockState<B: FusedOps> {
    /// The last normed input of time mixing. // [B, D]
    pub time: FloatTensor<B>,
    /// The state of the recurrence, where the block has one. // [B, H, K, K], key × value
    pub kv: Option<FloatTensor<B>>,
    /// The last normed input of channel mixing. // [B, D]
    pub channel: FloatTensor<B>,
}

impl<B: FusedOps> BlockState<B> {
    /// The state of a block with a recurrence before the first token, all zeros.
    pub(super) fn start(model: &config::Model, sequences: usize, device: &Device<B>) -> Self {
        let (row, size) = ([sequences, model.width], model.head_size());
        let kv = zeros::<B>(&[sequences, model.heads, size, size], device);
        Self { time: zeros::<B>(&row, device), kv: Some(kv), channel: zeros::<B>(&row, device) }
    }

    /// The states of several texts as one. // [1, …] each; result [B, …]
    fn stacked(states: &[&Self]) -> Self {
        let kv = states.iter().map(|state| state.kv.clone()).collect::<Option<Vec<_>>>();
        Self {
            time: B::float_cat(states.iter().map(|state| state.time.clone()).collect(), 0),
            kv: kv.map(|kv| B::float_cat(kv, 0)),
            channel: B::float_cat(states.iter().map(|state| state.channel.clone()).collect(), 0),
        }
    }

    /// The state of one of several texts. // [B, …]; result [1, …]
    fn row(&self, at: usize) -> Self {
        let row = |x: &FloatTensor<B>| B::float_slice(x.clone(), &[(at..at + 1).into()]);
        Self { time: row(&self.time), kv: self.kv.as_ref().map(row), channel: row(&self.channel) }
    }

    /// Continues the recurrence from this state.
    ///
    /// # Panics
    /// If the block has no recurrence.
    pub(super) fn wkv(
        &mut self,
        [r, k, v]: [FloatTensor<B>; 3],
        w: FloatTensor<B>,
        u: FloatTensor<B>,
    ) -> FloatTensor<B> {
        #[expect(clippy::expect_used, reason = "an architecture knows which blocks have one")]
        let state = self.kv.take().expect("the state of a recurrence");
        let [y, state] = B::run_multi(Wkv, [r, k, v, w, u, state]);
        self.kv = Some(state);
        y
    }
}

/// Floating-point operations that one token costs in training, forward and backward: 6 per weight
/// of a matrix (a projection or a low-rank map, but not the embedding), and 12·K·D for each
/// recurrence.
pub(super) fn flops_per_token(
    model: &config::Model,
    declared: &Declared,
    recurrences: usize,
) -> u64 {
    let multiplies = |spec: &&Spec| {
        spec.group.decays || spec.name.ends_with("_w1") || spec.name.ends_with("_w2")
    };
    let weights: usize = declared.specs.iter().skip(1).filter(multiplies).map(Spec::len).sum();
    (6 * weights + 12 * recurrences * model.width * model.head_size()) as u64
}

/// The same for a family whose blocks all have a recurrence.
pub(super) fn flops_of_all(model: &config::Model, declared: &Declared) -> u64 {
    flops_per_token(model, declared, model.layers)
}

/// The entries of `config.json` besides the family's own sizes, under their names in RWKV-LM.
pub(super) fn describe(model: &config::Model) -> Value {
    json!({ "head_size": model.head_size() })
}

/// Reads the size of a head, from which the number of heads in a manifest follows.
pub(super) fn read(config: &mut Conversion<'_>) {
    let sizes = ["hidden_size", "head_size"].map(|key| config.config[key].as_i64());
    match sizes {
        [Some(width), Some(size @ 1..)] if width % size == 0 => config.put("heads", width / size),
        _ => config.wrong("head_size", "a divisor of hidden_size"),
    }
}

/// Numbers in memory for each token of a training step, without time mixing. The channel mixing of
/// each block keeps the norm and its input, two mixes, the inputs of the gate, and the squared
/// hidden channels. The ends keep the embedding, the norms and the logits. The largest gradients
/// are added.
pub(super) fn held_per_token(model: &config::Model) -> usize {
    let channel_mix = 6 * model.width + model.ffn;
    let ends = 3 * model.width + model.vocab;
    let gradients = 6 * model.width + 2 * model.ffn;
    model.layers * channel_mix + ends + gradients
}

/// The states that a recurrence keeps for its backward pass, per token.
pub(super) fn held_states(model: &config::Model) -> usize {
    model.width * model.head_size() / STATE_TOKENS
}

/// A tensor of zeros in f32 on a device.
pub(super) fn zeros<B: FusedOps>(shape: &[usize], device: &Device<B>) -> FloatTensor<B> {
    B::float_zeros(shape.to_vec().into(), device, burn_backend::FloatDType::F32)
}

/// Replaces the row before each sequence by the sequence's last row, and returns the old one.
/// // x [B·T, D], before [B, D]
pub(super) fn step<B: FusedOps>(before: &mut FloatTensor<B>, x: &FloatTensor<B>) -> FloatTensor<B> {
    let [sequences, width] = before.shape().dims();
    let tokens = x.shape().num_elements() / (sequences * width);
    let rows = B::float_reshape(x.clone(), [sequences, tokens * width].into());
    let last = [(0..sequences).into(), ((tokens - 1) * width..tokens * width).into()];
    std::mem::replace(before, B::float_slice(rows, &last))
}

/// A norm over all channels, with a weight and a bias.
#[derive(Clone, Debug)]
pub(super) struct Norm<B: FusedOps> {
    /// The gain of each channel. // `[D]`
    weight: FloatTensor<B>,
    /// What is added to each channel. // `[D]`
    bias: FloatTensor<B>,
}

impl<B: FusedOps> Norm<B> {
    /// Takes the next two tensors: weight and bias.
    pub(super) fn take(next: &mut dyn FnMut() -> FloatTensor<B>) -> Self {
        Self { weight: next(), bias: next() }
    }

    /// Norms each row over all its channels. // x [N, D]
    pub(super) fn apply(&self, x: FloatTensor<B>) -> FloatTensor<B> {
        B::run(LayerNorm { eps: EPS }, [x, self.weight.clone(), self.bias.clone()])
    }

    /// Norms each head of each row, and multiplies by silu of the gate. // x, gate [N, D]
    pub(super) fn apply_by_head(
        &self,
        x: FloatTensor<B>,
        gate: FloatTensor<B>,
        heads: usize,
    ) -> FloatTensor<B> {
        let norm = NormGate { heads, eps: HEAD_EPS };
        B::run(norm, [x, gate, self.weight.clone(), self.bias.clone()])
    }
}

/// x + sigmoid(h_r·Wrᵀ)∘(max(h_k·Wkᵀ, 0)²·Wvᵀ), h_r and h_k shifted norms of x. It is the recurrent
/// families' MLP.
#[derive(Clone, Debug)]
pub(super) struct ChannelMix<B: FusedOps> {
    /// The norm of the residual stream, before the token shift.
    norm: Norm<B>,
    /// The mix of h_k, of the hidden channels. // `[D]`
    mu_k: FloatTensor<B>,
    /// The mix of h_r, of the gate. // `[D]`
    mu_r: FloatTensor<B>,
    /// Wk, into the hidden channels. // [F, D]
    key: FloatTensor<B>,
    /// Wr, which makes the gate. // [D, D]
    receptance: FloatTensor<B>,
    /// Wv, out of the hidden channels. // [D, F]
    value: FloatTensor<B>,
}

impl<B: FusedOps> ChannelMix<B> {
    /// Takes the next tensors, in the order of the fields.
    pub(super) fn take(next: &mut dyn FnMut() -> FloatTensor<B>) -> Self {
        let norm = Norm::take(next);
        Self { norm, mu_k: next(), mu_r: next(), key: next(), receptance: next(), value: next() }
    }

    /// x plus the output; `before` is the last normed row, and is advanced. // x [N, D]
    pub(super) fn forward(
        &self,
        x: FloatTensor<B>,
        weighs: Weighs,
        before: &mut FloatTensor<B>,
    ) -> FloatTensor<B> {
        let h = self.norm.apply(x.clone());
        let before = step::<B>(before, &h);
        let shift = ShiftMix { weighs };
        let h_k = B::run(shift, [h.clone(), self.mu_k.clone(), before.clone()]);
        let h_r = B::run(shift, [h, self.mu_r.clone(), before]);
        let k = B::run(ReluSquare, [B::run(Project, [h_k, self.key.clone()])]);
        let v = B::run(Project, [k, self.value.clone()]);
        B::run(GatedAdd, [B::run(Project, [h_r, self.receptance.clone()]), v, x])
    }
}

/// A low-rank map: base + tanh(x·W₁)·W₂.
#[derive(Clone, Debug)]
pub(super) struct LowRank<B: FusedOps> {
    /// W₁, into the low rank. // [D, R]
    pub(super) inwards: FloatTensor<B>,
    /// W₂, out of the low rank. // [R, D]
    pub(super) outwards: FloatTensor<B>,
}

impl<B: FusedOps> LowRank<B> {
    /// Takes the next two tensors: W₁, then W₂.
    pub(super) fn take(next: &mut dyn FnMut() -> FloatTensor<B>) -> Self {
        Self { inwards: next(), outwards: next() }
    }

    /// base + tanh(x·W₁)·W₂. // x [N, D], base `[D]` or [N, D]
    pub(super) fn add(&self, x: FloatTensor<B>, base: FloatTensor<B>) -> FloatTensor<B> {
        let features = B::run(TanhProject, [x, self.inwards.clone()]);
        B::run(Expand, [features, self.outwards.clone(), base])
    }
}

/// The norm of time mixing's output, and the matrix that writes it to the residual stream.
#[derive(Clone, Debug)]
pub(super) struct TimeOutput<B: FusedOps> {
    /// The norm of what the recurrence or the attention gives.
    pub(super) norm: Norm<B>,
    /// Wo, to the residual stream; zero at genesis. // [D, D]
    matrix: FloatTensor<B>,
}

impl<B: FusedOps> TimeOutput<B> {
    /// Takes the next tensors: norm, then matrix.
    pub(super) fn take(next: &mut dyn FnMut() -> FloatTensor<B>) -> Self {
        Self { norm: Norm::take(next), matrix: next() }
    }

    /// x + y·Wᵀ, where y is normed. // x, y [N, D]
    pub(super) fn write(&self, y: FloatTensor<B>, x: FloatTensor<B>) -> FloatTensor<B> {
        B::run(ProjectAdd, [y, self.matrix.clone(), x])
    }
}

/// Added to the variance in a norm over all channels (PyTorch's default).
const EPS: f32 = 1e-5;
/// Added to the variance in a norm over a head: RWKV-LM divides by 8 first and then adds 1e-5.
const HEAD_EPS: f32 = 64e-5;
