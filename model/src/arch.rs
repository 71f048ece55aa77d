//! The closed list of architectures.
//!
//! An architecture is three things: the list of its parameters (names, shapes, how they start), the
//! tensors that it keeps them in, and a function from tokens to logits. The weights themselves are
//! a plain list of tensors in canonical order, owned by whoever trains or evaluates them; for one
//! pass the list becomes a typed model. So there is no other order of parameters than the one that
//! is [`Declared`], and training, with its copy of the list that burn tracks, needs no second model.
//!
//! Each family's file has the same four: `declare`, `flops_per_token`, `held_per_token`, and the model.

pub mod eagle;
pub mod finch;
pub mod goldfinch;
pub mod llama;
pub mod rwkv;

use std::sync::OnceLock;

use burn_backend::tensor::{Device, FloatTensor, IntTensor};

use self::eagle::Eagle;
use self::finch::Finch;
use self::goldfinch::GoldFinch;
use self::llama::Llama;
use self::rwkv::BlockState;
use crate::config::{self, Family};
use crate::genesis::Spec;
use crate::ops::{Documents, FusedOps, Rope};
use crate::optim::Group;

/// An architecture with its sizes.
#[derive(Clone, Debug)]
pub struct Arch {
    model: config::Model,
    /// Of a Llama, made with the first pass: it may be larger than who only counts parameters has
    /// memory.
    rope: OnceLock<Rope>,
}

/// The parameters of a model, and the tensors that hold them.
#[derive(Debug)]
struct Declared {
    /// Every parameter under its public name, in canonical order.
    specs: Vec<Spec>,
    /// The same numbers in the same order, but some neighbours packed.
    shapes: Vec<Vec<usize>>,
}

/// What a model keeps of the text before, so that it need not be read again.
#[derive(Clone, Debug)]
pub enum State<B: FusedOps> {
    /// Of Eagle and Finch: as large after a book as after a word.
    Blocks(Vec<BlockState<B>>),
    /// Of GoldFinch: the same, and a cache.
    GoldFinch(goldfinch::State<B>),
    /// Of Llama: a cache alone.
    Llama(llama::State<B>),
}

impl<B: FusedOps> State<B> {
    /// Of each block that has more than a cache.
    #[must_use]
    pub fn blocks(&self) -> &[BlockState<B>] {
        match self {
            Self::Blocks(blocks) => blocks,
            Self::GoldFinch(state) => &state.blocks,
            Self::Llama(_) => &[],
        }
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

impl Arch {
    /// What the manifest asks for.
    #[must_use]
    pub fn new(model: &config::Model) -> Self {
        Self { model: model.clone(), rope: OnceLock::new() }
    }

    /// Its sizes.
    #[must_use]
    pub fn model(&self) -> &config::Model {
        &self.model
    }

    fn declare(&self) -> Declared {
        match self.model.family {
            Family::Llama => llama::declare(&self.model),
            Family::Eagle => eagle::declare(&self.model),
            Family::Finch => finch::declare(&self.model),
            Family::GoldFinch => goldfinch::declare(&self.model),
        }
    }

    /// Every parameter under its public name, in canonical order.
    #[must_use]
    pub fn specs(&self) -> Vec<Spec> {
        self.declare().specs
    }

    /// The shapes of the tensors that hold them: the same numbers in the same order, but some
    /// neighbours packed.
    #[must_use]
    pub fn shapes(&self) -> Vec<Vec<usize>> {
        self.declare().shapes
    }

    /// How the optimiser treats each of those tensors.
    ///
    /// # Panics
    /// When a tensor packs parameters of different groups: a mistake of the architecture.
    #[must_use]
    pub fn groups(&self) -> Vec<Group> {
        let Declared { specs, shapes } = self.declare();
        let mut specs = specs.into_iter();
        let mut group_of = |shape: &Vec<usize>| {
            let (mut packed, mut group) = (0, None);
            while packed < shape.iter().product() {
                let Some(spec) = specs.next() else { break };
                assert_eq!(group.unwrap_or(spec.group), spec.group, "{} is packed", spec.name);
                (packed, group) = (packed + spec.len(), Some(spec.group));
            }
            group.unwrap_or(Group::DECAYED)
        };
        shapes.iter().map(&mut group_of).collect()
    }

    /// Floating-point operations that training costs per token.
    #[must_use]
    pub fn flops_per_token(&self) -> u64 {
        match self.model.family {
            Family::Llama => llama::flops_per_token(&self.model),
            Family::Eagle => eagle::flops_per_token(&self.model),
            Family::Finch => finch::flops_per_token(&self.model),
            Family::GoldFinch => goldfinch::flops_per_token(&self.model),
        }
    }

    /// Numbers that a training step holds for each token at its peak: what the backward pass needs of
    /// the forward pass, and the largest gradients beside it.
    #[must_use]
    pub fn held_per_token(&self) -> u64 {
        match self.model.family {
            Family::Llama => llama::held_per_token(&self.model),
            Family::Eagle => eagle::held_per_token(&self.model),
            Family::Finch => finch::held_per_token(&self.model),
            Family::GoldFinch => goldfinch::held_per_token(&self.model),
        }
    }

    /// Scores of every next token. // tokens [B·T]; result [B·T, V]
    #[must_use]
    pub fn logits<B: FusedOps>(
        &self,
        parameters: &[FloatTensor<B>],
        tokens: IntTensor<B>,
        rows: &Rows,
    ) -> FloatTensor<B> {
        match self.model.family {
            // Whole rows need no cache, and may hold several documents.
            Family::Llama => self.llama::<B>(parameters).logits(tokens, rows),
            Family::Eagle | Family::Finch | Family::GoldFinch => {
                let device = B::float_device(&parameters[0]);
                let mut state = self.state::<B>(rows.sequences, &device);
                self.extend(parameters, tokens, &mut state)
            }
        }
    }

    /// Before the first token.
    #[must_use]
    pub fn state<B: FusedOps>(&self, sequences: usize, device: &Device<B>) -> State<B> {
        let model = &self.model;
        match model.family {
            Family::Llama => State::Llama(llama::State::start(model, sequences)),
            Family::Eagle | Family::Finch => {
                State::Blocks(BlockState::start_all(model, sequences, device))
            }
            Family::GoldFinch => {
                State::GoldFinch(goldfinch::State::start(model, sequences, device))
            }
        }
    }

    /// Tokens that a state holds at most; none where that is no matter.
    #[must_use]
    pub fn reach(&self) -> Option<usize> {
        match self.model.family {
            Family::Llama => Some(self.model.context),
            Family::Eagle | Family::Finch | Family::GoldFinch => None,
        }
    }

    /// [`logits`](Self::logits) of what comes after the state, which moves on.
    /// // tokens [B·T]; result [B·T, V]
    ///
    /// # Panics
    /// When the state is another architecture's, or would hold more than its [`reach`](Self::reach).
    #[must_use]
    pub fn extend<B: FusedOps>(
        &self,
        parameters: &[FloatTensor<B>],
        tokens: IntTensor<B>,
        state: &mut State<B>,
    ) -> FloatTensor<B> {
        let model = &self.model;
        let tensors = parameters.iter().cloned();
        match (model.family, state) {
            (Family::Llama, State::Llama(state)) => {
                self.llama::<B>(parameters).extend(tokens, state)
            }
            (Family::Eagle, State::Blocks(state)) => {
                Eagle::<B>::new(model, tensors).extend(tokens, state)
            }
            (Family::Finch, State::Blocks(state)) => {
                Finch::<B>::new(model, tensors).extend(tokens, state)
            }
            (Family::GoldFinch, State::GoldFinch(state)) => {
                GoldFinch::<B>::new(model, tensors).extend(tokens, state)
            }
            (_, State::Blocks(_) | State::GoldFinch(_) | State::Llama(_)) => {
                unreachable!("a state of another architecture")
            }
        }
    }

    fn llama<B: FusedOps>(&self, parameters: &[FloatTensor<B>]) -> Llama<B> {
        let rope = self.rope.get_or_init(|| llama::rope(&self.model)).clone();
        Llama::new(&self.model, rope, parameters.iter().cloned())
    }
}

/// The parameters of a model, as genesis makes them.
#[must_use]
pub fn specs(model: &config::Model) -> Vec<Spec> {
    Arch::new(model).specs()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Work;

    #[test]
    fn specs_shapes_and_the_formula_count_the_same_parameters() {
        let mut model = Work::synthetic().model;
        (model.kv_heads, model.ffn, model.layers) = (1, 72, 3);
        let arch = Arch::new(&model);
        let specs: usize = arch.specs().iter().map(Spec::len).sum();
        let shapes: usize = arch.shapes().iter().map(|shape| shape.iter().product::<usize>()).sum();
        assert_eq!(specs, shapes);
        assert_eq!(specs as u64, model.parameter_count());
    }

    /// 75.03 GFLOP per token at 8,192 tokens: INTELLECT-1's sizes and PRIME's formula.
    #[test]
    fn intellect_1_costs_75_gflop_per_token() {
        let mut model = Work::synthetic().model;
        (model.layers, model.width, model.heads, model.kv_heads) = (42, 4096, 32, 8);
        (model.ffn, model.context, model.vocab) = (14_336, 8192, 128_256);
        let arch = Arch::new(&model);
        assert_eq!(model.parameter_count(), 10_211_381_248);
        let published = 75.03e9;
        assert!((arch.flops_per_token() as f64 / published - 1.0).abs() < 1e-4);
    }
}
