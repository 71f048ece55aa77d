//! What a family of architectures is: the facts about it, and its model.

use std::fmt::Debug;
use std::sync::OnceLock;

use burn_backend::tensor::{Device, FloatTensor, IntTensor};
use serde_json::Value;

use crate::config;
use crate::genesis::Spec;
use crate::hf::conversion::Conversion;
use crate::ops::{Documents, FusedOps, Rope};

/// What others need to know of a family, apart from its model.
pub(crate) struct Facts {
    /// Its parameters.
    pub(super) declare: fn(&config::Model) -> Declared,
    /// Floating-point operations that one token costs in training, forward and backward.
    pub(super) flops_per_token: fn(&config::Model, &Declared) -> u64,
    /// Numbers that a training step holds for each token at its peak.
    pub(super) held_per_token: fn(&config::Model) -> usize,
    /// The most tokens that a state holds; none if it holds any number.
    pub(super) reach: fn(&config::Model) -> Option<usize>,
    /// Completes the sizes with which every family is measured: adds those that only it has, and
    /// changes those that it wants otherwise.
    pub(super) bench: fn(config::Model) -> config::Model,
    /// How others name it, in `config.json`.
    pub(crate) model_type: &'static str,
    /// Its sizes: each key of `[model]`, and its name in `config.json`.
    pub(crate) words: &'static [(&'static str, &'static str)],
    /// What else `config.json` says of it.
    pub(crate) describe: fn(&config::Model) -> Value,
    /// Reads what `describe` writes, and refuses what is not built here.
    pub(crate) read: fn(&mut Conversion<'_>),
}

/// A model with its weights, for one pass.
pub trait Pass<B: FusedOps>: Sized {
    /// What it keeps of the text before, so that it need not be read again.
    type State: Clone + Debug;

    /// The model that these tensors make, in the order in which its family declares them.
    ///
    /// # Panics
    /// When there are fewer tensors than that.
    fn new(arch: &Arch, parameters: &[FloatTensor<B>]) -> Self;

    /// The state before the first token.
    fn start(model: &config::Model, sequences: usize, device: &Device<B>) -> Self::State;

    /// Scores of every next token; the state moves on. // tokens [B·T]; result [B·T, V]
    ///
    /// # Panics
    /// When the state would hold more than it can.
    fn extend(&self, tokens: IntTensor<B>, state: &mut Self::State) -> FloatTensor<B>;

    /// The same of whole rows.
    fn logits(&self, model: &config::Model, tokens: IntTensor<B>, rows: &Rows) -> FloatTensor<B> {
        let mut state = Self::start(model, rows.sequences, &B::int_device(&tokens));
        self.extend(tokens, &mut state)
    }
}

/// An architecture with its sizes.
#[derive(Clone, Debug)]
pub struct Arch {
    model: config::Model,
    /// Made with the first pass: it may be large, and counting parameters does not need it.
    rope: OnceLock<Rope>,
}

/// The parameters of a model, and the tensors that hold them.
#[derive(Debug)]
pub(crate) struct Declared {
    /// Every parameter under its public name, in canonical order.
    pub(super) specs: Vec<Spec>,
    /// The same numbers in the same order, but some neighbours packed.
    pub(super) shapes: Vec<Vec<usize>>,
}

impl Arch {
    /// The architecture that a manifest asks for.
    #[must_use]
    pub fn new(model: &config::Model) -> Self {
        Self { model: model.clone(), rope: OnceLock::new() }
    }

    /// Its sizes.
    #[must_use]
    pub fn model(&self) -> &config::Model {
        &self.model
    }

    /// The angles of all positions, for a family that rotates by them.
    pub(super) fn rope(&self) -> Rope {
        let model = &self.model;
        let make =
            || Rope::new(model.context, model.head_size(), model.rope_theta, model.rope_scaling());
        self.rope.get_or_init(make).clone()
    }
}

/// How tokens lie in rows.
#[derive(Clone, Debug)]
pub struct Rows {
    /// B
    pub sequences: usize,
    /// T
    pub length: usize,
    /// The documents of each row.
    pub documents: Documents,
}

impl Rows {
    /// `sequences` rows of one document each.
    #[must_use]
    pub fn whole(sequences: usize, length: usize) -> Self {
        Self { sequences, length, documents: Documents::whole(sequences * length) }
    }
}

/// The next tensor of a list that is as long as it was declared.
pub(super) fn taker<B: FusedOps>(parameters: &[FloatTensor<B>]) -> impl FnMut() -> FloatTensor<B> {
    let mut tensors = parameters.iter().cloned();
    #[expect(clippy::expect_used, reason = "the caller counted by `declare`")]
    move || tensors.next().expect("a tensor for every shape")
}
