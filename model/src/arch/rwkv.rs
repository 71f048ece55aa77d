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

use burn_backend::TensorMetadata;
use burn_backend::tensor::{Device, FloatTensor, IntTensor};

use serde_json::{Value, json};

use super::family::{Arch, Declared, Pass, taker};
use crate::config;
use crate::genesis::{Curve, Init, Spec};
use crate::hf::conversion::Conversion;
use crate::ops::{
    Expand, FusedOps, GatedAdd, LayerNorm, NormGate, Project, ProjectAdd, ReluSquare, STATE_TOKENS,
    ShiftMix, TanhProject, Weighs, Wkv,
};
use crate::optim::Group;

/// Blocks of time and channel mixing between an embedding and a head.
#[derive(Clone, Debug)]
pub struct Rwkv<B: FusedOps, T> {
    model: config::Model,
    /// [V, D]
    embedding: FloatTensor<B>,
    first_norm: Norm<B>,
    blocks: Vec<(T, ChannelMix<B>)>,
    last_norm: Norm<B>,
    /// [V, D]
    head: FloatTensor<B>,
}

/// Time mixing of a block with a recurrence.
pub trait TimeMixing<B: FusedOps> {
    /// Whether the weights of token shifts weigh the present or the past.
    const WEIGHS: Weighs;

    /// Takes the next of the model's tensors.
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

    fn start(model: &config::Model, sequences: usize, device: &Device<B>) -> Self::State {
        vec![BlockState::start(model, sequences, device); model.layers]
    }

    fn extend(&self, tokens: IntTensor<B>, states: &mut Self::State) -> FloatTensor<B> {
        let x = B::float_select(self.embedding.clone(), 0, tokens); // [N, D]
        let mut x = self.first_norm.apply(x);
        for ((time, channel), state) in self.blocks.iter().zip(states) {
            x = time.forward(x, &self.model, state);
            x = channel.forward(x, T::WEIGHS, &mut state.channel);
        }
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
    /// `[D]`
    weight: FloatTensor<B>,
    /// `[D]`
    bias: FloatTensor<B>,
}

impl<B: FusedOps> Norm<B> {
    pub(super) fn take(next: &mut dyn FnMut() -> FloatTensor<B>) -> Self {
        Self { weight: next(), bias: next() }
    }

    /// Norms each row. // x [N, D]
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

/// x + sigmoid(h_r·Wrᵀ)∘(max(h_k·Wkᵀ, 0)²·Wvᵀ), h_r and h_k shifted norms of x.
#[derive(Clone, Debug)]
pub(super) struct ChannelMix<B: FusedOps> {
    norm: Norm<B>,
    /// `[D]`
    mu_k: FloatTensor<B>,
    /// `[D]`
    mu_r: FloatTensor<B>,
    /// [F, D]
    key: FloatTensor<B>,
    /// [D, D]
    receptance: FloatTensor<B>,
    /// [D, F]
    value: FloatTensor<B>,
}

impl<B: FusedOps> ChannelMix<B> {
    pub(super) fn take(next: &mut dyn FnMut() -> FloatTensor<B>) -> Self {
        let norm = Norm::take(next);
        Self { norm, mu_k: next(), mu_r: next(), key: next(), receptance: next(), value: next() }
    }

    /// x [N, D]
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
    /// [D, R]
    pub(super) inwards: FloatTensor<B>,
    /// [R, D]
    pub(super) outwards: FloatTensor<B>,
}

impl<B: FusedOps> LowRank<B> {
    pub(super) fn take(next: &mut dyn FnMut() -> FloatTensor<B>) -> Self {
        Self { inwards: next(), outwards: next() }
    }

    /// x [N, D], base `[D]` or [N, D]
    pub(super) fn add(&self, x: FloatTensor<B>, base: FloatTensor<B>) -> FloatTensor<B> {
        let features = B::run(TanhProject, [x, self.inwards.clone()]);
        B::run(Expand, [features, self.outwards.clone(), base])
    }
}

/// The norm of time mixing's output, and the matrix that writes it to the residual stream.
#[derive(Clone, Debug)]
pub(super) struct TimeOutput<B: FusedOps> {
    pub(super) norm: Norm<B>,
    /// [D, D]
    matrix: FloatTensor<B>,
}

impl<B: FusedOps> TimeOutput<B> {
    pub(super) fn take(next: &mut dyn FnMut() -> FloatTensor<B>) -> Self {
        Self { norm: Norm::take(next), matrix: next() }
    }

    /// x + y·Wᵀ, where y is normed. // x, y [N, D]
    pub(super) fn write(&self, y: FloatTensor<B>, x: FloatTensor<B>) -> FloatTensor<B> {
        B::run(ProjectAdd, [y, self.matrix.clone(), x])
    }
}

/// A model's parameters: the ends, and for each block the norm before time mixing, the parameters
/// that `time_mix` declares under the given name, its output, and channel mixing. The shifts of
/// channel mixing are called `mu` and start at `shift`.
pub(super) fn declare(
    m: &config::Model,
    time_mix: impl Fn(&mut Declare, &str, Depth),
    mu: &str,
    shift: fn(&Declare, f64) -> Curve,
    last: impl FnOnce(&mut Declare),
) -> Declared {
    let mut d = Declare { specs: Vec::new(), shapes: Vec::new(), width: m.width };
    d.matrix("emb", [m.vocab, m.width], Init::Uniform { bound: EMBEDDING });
    d.norm("blocks.0.ln0", 1.0);
    for layer in 0..m.layers {
        let (depth, att) = (Depth::new(layer, m.layers), format!("blocks.{layer}.att"));
        d.norm(&format!("blocks.{layer}.ln1"), 1.0);
        time_mix(&mut d, &att, depth);
        d.norm(&format!("{att}.ln_x"), libm::pow(depth.share, 0.7));
        d.matrix(&format!("{att}.output"), [m.width; 2], Init::Constant(0.0));
        d.channel_mix(depth, mu, shift(&d, depth.b), m.ffn);
    }
    last(&mut d);
    d.norm("ln_out", 1.0);
    let wide = (m.vocab as f64 / m.width as f64).sqrt().max(1.0);
    d.orthogonal("head", [m.vocab, m.width], 0.5 * wide);
    Declared { specs: d.specs, shapes: d.shapes }
}

/// The parameters declared so far, in canonical order, and the tensors that hold them.
pub(super) struct Declare {
    specs: Vec<Spec>,
    shapes: Vec<Vec<usize>>,
    width: usize,
}

/// The numbers on which the initial values of a block depend.
#[derive(Clone, Copy)]
pub(super) struct Depth {
    pub(super) layer: usize,
    /// a = l/(L − 1)
    pub(super) a: f64,
    /// b = 1 − l/L
    pub(super) b: f64,
    /// (l + 1)/L
    share: f64,
}

impl Depth {
    pub(super) fn new(layer: usize, layers: usize) -> Self {
        let (l, all) = (layer as f64, layers as f64);
        let a = if layers > 1 { l / (all - 1.0) } else { 0.0 };
        Self { layer, a, b: 1.0 - l / all, share: (l + 1.0) / all }
    }
}

impl Declare {
    /// Declares one parameter, which has this shape in RWKV-LM. Returns the shape of its tensor,
    /// which is the same unless the caller changes it.
    fn add(
        &mut self,
        name: String,
        shape: Vec<usize>,
        init: Init,
        group: Group,
    ) -> &mut Vec<usize> {
        self.shapes.push(shape.clone());
        self.specs.push(Spec { name, shape, init, group });
        let last = self.shapes.len() - 1;
        &mut self.shapes[last]
    }

    /// Declares a projection [out, in], with weight decay.
    pub(super) fn matrix(&mut self, name: &str, shape: [usize; 2], init: Init) {
        self.add(format!("{name}.weight"), shape.to_vec(), init, Group::DECAYED);
    }

    pub(super) fn orthogonal(&mut self, name: &str, shape: [usize; 2], gain: f64) {
        self.matrix(name, shape, Init::Orthogonal { gain });
    }

    /// Declares a norm, whose weights start at `gain` and its biases at 0.
    pub(super) fn norm(&mut self, name: &str, gain: f64) {
        let [weight, bias] = [gain, 0.0].map(Init::Constant);
        self.add(format!("{name}.weight"), vec![self.width], weight, Group::FREE);
        self.add(format!("{name}.bias"), vec![self.width], bias, Group::FREE);
    }

    /// Declares the weights of one token shift.
    pub(super) fn shift(&mut self, name: String, curve: Curve) {
        let width = self.width;
        *self.add(name, vec![1, 1, width], Init::Curve(curve), Group::FREE) = vec![width];
    }

    /// Declares the weights of several token shifts, which one tensor holds. // [M, D]
    pub(super) fn shifts<const M: usize>(&mut self, att: &str, shifts: [(&str, Curve); M]) {
        for (name, curve) in shifts {
            let shape = vec![1, 1, self.width];
            let (name, init) = (format!("{att}.time_maa_{name}"), Init::Curve(curve));
            self.specs.push(Spec { name, shape, init, group: Group::FREE });
        }
        self.shapes.push(vec![M, self.width]);
    }

    /// Declares a low-rank map in `pieces` of `rank`, which starts as the zero map.
    pub(super) fn low_rank(&mut self, name: &str, pieces: usize, rank: usize) {
        let (features, width) = (pieces * rank, self.width);
        self.add(format!("{name}_w1"), vec![width, features], Init::Constant(0.0), Group::FREE);
        let tensor = vec![features, width];
        let shape = if pieces > 1 { vec![pieces, rank, width] } else { tensor.clone() };
        let init = Init::Uniform { bound: LOW_RANK };
        *self.add(format!("{name}_w2"), shape, init, Group::FREE) = tensor;
    }

    /// Declares the decay, slow channels first, and the bonus of the present token.
    pub(super) fn recurrence(&mut self, att: &str, shape: Vec<usize>, heads: usize, depth: Depth) {
        let (width, over) = (self.width, (self.width - 1) as f64);
        let exponent = 0.7 + 1.3 * depth.a;
        let decay = Init::Curve(Curve { offset: -6.0, scale: 5.0, over, exponent, zigzag: 0.0 });
        let twice = Group { lr_factor: 2.0, decays: false };
        *self.add(format!("{att}.time_decay"), shape, decay, twice) = vec![width];
        let (offset, scale) = (depth.a, -depth.a);
        let bonus = Init::Curve(Curve { offset, scale, over, exponent: 1.0, zigzag: 0.1 });
        let by_head = vec![heads, width / heads];
        *self.add(format!("{att}.time_faaaa"), by_head, bonus, Group::FREE) = vec![width];
    }

    /// d_i^exponent + more, for weights that weigh the present.
    pub(super) fn present(&self, exponent: f64, more: f64) -> Curve {
        Curve { offset: more, scale: 1.0, over: self.width as f64, exponent, zigzag: 0.0 }
    }

    /// 1 − (d_i^exponent + more), for weights that weigh the past.
    pub(super) fn past(&self, exponent: f64, more: f64) -> Curve {
        Curve { offset: 1.0 - more, scale: -1.0, ..self.present(exponent, 0.0) }
    }

    fn channel_mix(&mut self, depth: Depth, mu: &str, curve: Curve, ffn: usize) {
        let (width, block) = (self.width, format!("blocks.{}", depth.layer));
        self.norm(&format!("{block}.ln2"), 1.0);
        self.shift(format!("{block}.ffn.{mu}_k"), curve);
        self.shift(format!("{block}.ffn.{mu}_r"), curve);
        self.orthogonal(&format!("{block}.ffn.key"), [ffn, width], 1.0);
        self.matrix(&format!("{block}.ffn.receptance"), [width; 2], Init::Constant(0.0));
        self.matrix(&format!("{block}.ffn.value"), [width, ffn], Init::Constant(0.0));
    }
}

/// Added to the variance in a norm over all channels (PyTorch's default).
const EPS: f32 = 1e-5;
/// Added to the variance in a norm over a head: RWKV-LM divides by 8 first and then adds 1e-5.
const HEAD_EPS: f32 = 64e-5;
/// Largest weight of an embedding at the start (RWKV-LM).
const EMBEDDING: f64 = 1e-4;
/// Largest weight of a low-rank map's second matrix at the start (RWKV-LM).
const LOW_RANK: f64 = 0.01;
