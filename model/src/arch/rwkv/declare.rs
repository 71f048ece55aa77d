//! The parameters that Eagle, Finch and GoldFinch declare, under their names in RWKV-LM, with the
//! initial values of `super`'s formulas.
//!
//! A [`Declare`] collects them in canonical order. RWKV-LM's shapes stand in the specs, as exports
//! need them; the shapes of our tensors may be flat or packed.

use super::super::family::Declared;
use crate::config;
use crate::genesis::{Curve, Init, Spec};
use crate::optim::Group;

/// A model's parameters: the ends, and for each block the norm before time mixing, the parameters
/// that `time_mix` declares under the given name, its output, and channel mixing. The shifts of
/// channel mixing are called `mu` and start at `shift`. `last` declares what a family has between
/// its blocks and the last norm. Names and order are the format of checkpoints, and the name of a
/// parameter also selects its random numbers at genesis.
pub(in crate::arch) fn model(
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
pub(in crate::arch) struct Declare {
    /// Name, shape and initial values of each parameter, as RWKV-LM has them.
    specs: Vec<Spec>,
    /// The shape of each tensor, in the same order.
    shapes: Vec<Vec<usize>>,
    /// D, the length of most vectors.
    width: usize,
}

/// The numbers on which the initial values of a block depend.
#[derive(Clone, Copy)]
pub(in crate::arch) struct Depth {
    /// l, counted from 0 at the lowest block.
    pub(in crate::arch) layer: usize,
    /// a = l/(L − 1), from 0 to 1; 0 of a single block
    pub(in crate::arch) a: f64,
    /// b = 1 − l/L, from 1 down to 1/L
    pub(in crate::arch) b: f64,
    /// (l + 1)/L, from which the gain of the output's norm follows
    share: f64,
}

impl Depth {
    /// The depth of block `layer` among `layers`, of which there is at least one.
    pub(in crate::arch) fn new(layer: usize, layers: usize) -> Self {
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
    pub(in crate::arch) fn matrix(&mut self, name: &str, shape: [usize; 2], init: Init) {
        self.add(format!("{name}.weight"), shape.to_vec(), init, Group::DECAYED);
    }

    /// Declares a projection [out, in] that starts orthogonal, with this gain.
    pub(in crate::arch) fn orthogonal(&mut self, name: &str, shape: [usize; 2], gain: f64) {
        self.matrix(name, shape, Init::Orthogonal { gain });
    }

    /// Declares a norm, whose weights start at `gain` and its biases at 0.
    pub(in crate::arch) fn norm(&mut self, name: &str, gain: f64) {
        let [weight, bias] = [gain, 0.0].map(Init::Constant);
        self.add(format!("{name}.weight"), vec![self.width], weight, Group::FREE);
        self.add(format!("{name}.bias"), vec![self.width], bias, Group::FREE);
    }

    /// Declares the weights of one token shift.
    pub(in crate::arch) fn shift(&mut self, name: String, curve: Curve) {
        let width = self.width;
        *self.add(name, vec![1, 1, width], Init::Curve(curve), Group::FREE) = vec![width];
    }

    /// Declares the weights of several token shifts, which one tensor holds. // [M, D]
    pub(in crate::arch) fn shifts<const M: usize>(
        &mut self,
        att: &str,
        shifts: [(&str, Curve); M],
    ) {
        for (name, curve) in shifts {
            let shape = vec![1, 1, self.width];
            let (name, init) = (format!("{att}.time_maa_{name}"), Init::Curve(curve));
            self.specs.push(Spec { name, shape, init, group: Group::FREE });
        }
        self.shapes.push(vec![M, self.width]);
    }

    /// Declares a low-rank map in `pieces` of `rank`, which starts as the zero map.
    pub(in crate::arch) fn low_rank(&mut self, name: &str, pieces: usize, rank: usize) {
        let (features, width) = (pieces * rank, self.width);
        self.add(format!("{name}_w1"), vec![width, features], Init::Constant(0.0), Group::FREE);
        let tensor = vec![features, width];
        let shape = if pieces > 1 { vec![pieces, rank, width] } else { tensor.clone() };
        let init = Init::Uniform { bound: LOW_RANK };
        *self.add(format!("{name}_w2"), shape, init, Group::FREE) = tensor;
    }

    /// Declares the decay, slow channels first, and the bonus of the present token.
    pub(in crate::arch) fn recurrence(
        &mut self,
        att: &str,
        shape: Vec<usize>,
        heads: usize,
        depth: Depth,
    ) {
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
    pub(in crate::arch) fn present(&self, exponent: f64, more: f64) -> Curve {
        Curve { offset: more, scale: 1.0, over: self.width as f64, exponent, zigzag: 0.0 }
    }

    /// 1 − (d_i^exponent + more), for weights that weigh the past.
    pub(in crate::arch) fn past(&self, exponent: f64, more: f64) -> Curve {
        Curve { offset: 1.0 - more, scale: -1.0, ..self.present(exponent, 0.0) }
    }

    /// Declares channel mixing: its norm, two shifts, and three projections, two of which start at
    /// zero.
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

/// Largest weight of an embedding at the start (RWKV-LM).
const EMBEDDING: f64 = 1e-4;
/// Largest weight of a low-rank map's second matrix at the start (RWKV-LM).
const LOW_RANK: f64 = 0.01;
