//! What defines a family of architectures: the facts about it, and its model.
//!
//! Facts are functions of the sizes alone and need no backend. A [`Pass`] is generic over it. The
//! two are apart because most callers, such as genesis, exports and estimates of memory, have no
//! device.

use std::fmt::Debug;
use std::sync::OnceLock;

use burn_backend::tensor::{Device, FloatTensor, IntTensor};
use serde_json::Value;

use super::past::{Keep, Scored};
use crate::config;
use crate::genesis::Spec;
use crate::hf::conversion::Conversion;
use crate::ops::{Documents, FusedOps, Rope};

/// What other modules need to know about a family, apart from its model.
pub(crate) struct Facts {
    /// Its parameters, and the tensors that hold them.
    pub(super) declare: fn(&config::Model) -> Declared,
    /// Floating-point operations that one token costs in training, forward and backward.
    pub(super) flops_per_token: fn(&config::Model, &Declared) -> u64,
    /// Numbers in memory for each token at the peak of a training step; an estimate that
    /// `train/memory.rs` compares with measurements.
    pub(super) held_per_token: fn(&config::Model) -> usize,
    /// The most tokens that a state can hold; `None` where there is no limit.
    pub(super) reach: fn(&config::Model) -> Option<usize>,
    /// Completes the sizes with which every family is measured: adds those that only this family
    /// has, and changes those that do not suit it.
    pub(super) bench: fn(config::Model) -> config::Model,
    /// The name of the family in `config.json`.
    pub(crate) model_type: &'static str,
    /// The sizes of the family: each key of `[model]`, and its name in `config.json`.
    pub(crate) words: &'static [(&'static str, &'static str)],
    /// The other entries of `config.json`.
    pub(crate) describe: fn(&config::Model) -> Value,
    /// Reads what `describe` writes, and refuses variants that are not implemented here.
    pub(crate) read: fn(&mut Conversion<'_>),
}

/// A model with its weights, for one pass. It is made for each call: it clones tensors, which share
/// their memory.
pub trait Pass<B: FusedOps>: Sized {
    /// What the model keeps of the preceding text, so that it need not be read again. A clone
    /// continues the same text in another way.
    type State: Clone + Debug;

    /// Assembles the model from these tensors, in the order in which its family declares them.
    ///
    /// # Panics
    /// If there are fewer tensors than declared.
    fn new(arch: &Arch, parameters: &[FloatTensor<B>]) -> Self;

    /// The state before the first token.
    fn start(
        model: &config::Model,
        sequences: usize,
        keep: Keep,
        device: &Device<B>,
    ) -> Self::State;

    /// Reads tokens that follow the state, which is advanced. Returns the scores of the token after
    /// each of the last R tokens of a sequence, those that are to be scored; `None` where none is.
    /// // tokens [B·S]; result [B·R, V]
    ///
    /// # Panics
    /// If the state would hold more tokens than it can.
    fn extend(
        &self,
        tokens: IntTensor<B>,
        scored: Scored,
        state: &mut Self::State,
    ) -> Option<FloatTensor<B>>;

    /// Reads one token of each of several texts, and advances their states. Unless a family says
    /// otherwise, one text is read after the other. // tokens `[B]`; result [B, V]
    ///
    /// # Panics
    /// If a state would hold more tokens than it can.
    fn extend_each(&self, tokens: IntTensor<B>, states: &mut [&mut Self::State]) -> FloatTensor<B> {
        let scores = states.iter_mut().enumerate().filter_map(|(at, state)| {
            let token = B::int_slice(tokens.clone(), &[(at..at + 1).into()]);
            self.extend(token, Scored::Last, state)
        });
        B::float_cat(scores.collect(), 0)
    }

    /// Scores of every next token of whole rows, without a preceding text: the pass that trains.
    /// // tokens [B·T]; result [B·T, V]
    fn logits(&self, model: &config::Model, tokens: IntTensor<B>, rows: &Rows) -> FloatTensor<B>;
}

/// An architecture with its sizes.
#[derive(Clone, Debug)]
pub struct Arch {
    /// The sizes, with zero for those that the family does not have.
    model: config::Model,
    /// Computed at the first pass: it may be large, and counting parameters does not need it.
    rope: OnceLock<Rope>,
}

/// The parameters of a model, and the tensors that hold them.
#[derive(Debug)]
pub(crate) struct Declared {
    /// Every parameter under its public name, in canonical order.
    pub(super) specs: Vec<Spec>,
    /// The same numbers in the same order, but some neighbours packed into one tensor.
    pub(super) shapes: Vec<Vec<usize>>,
}

impl Arch {
    /// The architecture that a manifest describes.
    #[must_use]
    pub fn new(model: &config::Model) -> Self {
        Self { model: model.clone(), rope: OnceLock::new() }
    }

    /// The sizes of the architecture.
    #[must_use]
    pub fn model(&self) -> &config::Model {
        &self.model
    }

    /// The angles of all positions, for a family with rotary positions.
    pub(super) fn rope(&self) -> Rope {
        let model = &self.model;
        let make =
            || Rope::new(model.context, model.head_size(), model.rope_theta, model.rope_scaling());
        self.rope.get_or_init(make).clone()
    }
}

/// How a list of tokens is divided into rows, which follow one another.
#[derive(Clone, Debug)]
pub struct Rows {
    /// B, the number of rows in the list.
    pub sequences: usize,
    /// T, the number of tokens of each row.
    pub length: usize,
    /// Which tokens of a row belong to the same document.
    pub documents: Documents,
}

impl Rows {
    /// `sequences` rows of `length` tokens that consist of one document each.
    #[must_use]
    pub fn whole(sequences: usize, length: usize) -> Self {
        Self { sequences, length, documents: Documents::whole(sequences * length) }
    }
}

/// Returns the tensors one after the other; the list must be as long as declared.
pub(super) fn taker<B: FusedOps>(parameters: &[FloatTensor<B>]) -> impl FnMut() -> FloatTensor<B> {
    let mut tensors = parameters.iter().cloned();
    #[expect(clippy::expect_used, reason = "the caller counted by `declare`")]
    move || tensors.next().expect("a tensor for every shape")
}
