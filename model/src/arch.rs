//! The closed list of architectures.
//!
//! An architecture is three things: the list of its parameters (names, shapes, how they start), the
//! tensors that it keeps them in, and a function from tokens to logits. The weights themselves are
//! a plain list of tensors in canonical order, owned by whoever trains or evaluates them; for one
//! pass the list becomes a typed model. So there is no other order of parameters than the one that
//! `specs` and `shapes` state, and training, with its copy of the list that burn tracks, needs no
//! second model.

pub mod eagle;
pub mod finch;
pub mod goldfinch;
pub mod llama;
pub mod rwkv;

use burn_backend::tensor::{Device, FloatTensor, IntTensor};

use self::eagle::{Eagle, EagleConfig};
use self::finch::{Finch, FinchConfig};
use self::goldfinch::{GoldFinch, GoldFinchConfig};
use self::llama::{Llama, LlamaConfig};
use self::rwkv::BlockState;
use crate::config::{self, Family};
use crate::genesis::Spec;
use crate::ops::{Documents, FusedOps};
use crate::optim::Group;

/// An architecture with its sizes.
#[derive(Clone, Debug)]
pub enum Arch {
    /// [`llama`]
    Llama(LlamaConfig),
    /// [`eagle`]
    Eagle(EagleConfig),
    /// [`finch`]
    Finch(FinchConfig),
    /// [`goldfinch`]
    GoldFinch(GoldFinchConfig),
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
        match model.family {
            Family::Llama => Self::Llama(LlamaConfig::new(model)),
            Family::Eagle => Self::Eagle(EagleConfig::new(model)),
            Family::Finch => Self::Finch(FinchConfig::new(model)),
            Family::GoldFinch => Self::GoldFinch(GoldFinchConfig::new(model)),
        }
    }

    /// Every parameter under its public name, in canonical order.
    #[must_use]
    pub fn specs(&self) -> Vec<Spec> {
        match self {
            Self::Llama(config) => config.specs(),
            Self::Eagle(config) => config.specs(),
            Self::Finch(config) => config.specs(),
            Self::GoldFinch(config) => config.specs(),
        }
    }

    /// The shapes of the tensors that hold them: the same numbers in the same order, but some
    /// neighbours packed.
    #[must_use]
    pub fn shapes(&self) -> Vec<Vec<usize>> {
        match self {
            Self::Llama(config) => config.shapes(),
            Self::Eagle(config) => config.shapes(),
            Self::Finch(config) => config.shapes(),
            Self::GoldFinch(config) => config.shapes(),
        }
    }

    /// How the optimiser treats each of those tensors.
    ///
    /// # Panics
    /// When a tensor packs parameters of different groups: a mistake of the architecture.
    #[must_use]
    pub fn groups(&self) -> Vec<Group> {
        let mut specs = self.specs().into_iter();
        let mut group_of = |shape: &Vec<usize>| {
            let (mut packed, mut group) = (0, None);
            while packed < shape.iter().product() {
                let Some(spec) = specs.next() else { break };
                assert_eq!(group.unwrap_or(spec.group), spec.group, "{} is packed", spec.name);
                (packed, group) = (packed + spec.len(), Some(spec.group));
            }
            group.unwrap_or(Group::DECAYED)
        };
        self.shapes().iter().map(&mut group_of).collect()
    }

    /// Floating-point operations that training costs per token.
    #[must_use]
    pub fn flops_per_token(&self) -> u64 {
        match self {
            Self::Llama(config) => config.flops_per_token(),
            Self::Eagle(config) => config.flops_per_token(),
            Self::Finch(config) => config.flops_per_token(),
            Self::GoldFinch(config) => config.flops_per_token(),
        }
    }

    /// Numbers that a training step holds for each token at its peak: what the backward pass needs of
    /// the forward pass, and the largest gradients beside it.
    #[must_use]
    pub fn held_per_token(&self) -> u64 {
        match self {
            Self::Llama(config) => config.held_per_token(),
            Self::Eagle(config) => config.held_per_token(),
            Self::Finch(config) => config.held_per_token(),
            Self::GoldFinch(config) => config.held_per_token(),
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
        let device = B::float_device(&parameters[0]);
        let (sequences, parameters) = (rows.sequences, parameters.iter().cloned());
        match self {
            Self::Llama(config) => Llama::<B>::new(config, parameters).logits(tokens, rows),
            Self::Eagle(config) => {
                let state = &mut config.state(sequences, &device);
                Eagle::<B>::new(config, parameters).logits(tokens, state)
            }
            Self::Finch(config) => {
                let state = &mut config.state(sequences, &device);
                Finch::<B>::new(config, parameters).logits(tokens, state)
            }
            Self::GoldFinch(config) => {
                let state = &mut config.state(sequences, &device);
                GoldFinch::<B>::new(config, parameters).logits(tokens, state)
            }
        }
    }

    /// Before the first token.
    #[must_use]
    pub fn state<B: FusedOps>(&self, sequences: usize, device: &Device<B>) -> State<B> {
        match self {
            Self::Llama(config) => State::Llama(config.state(sequences)),
            Self::Eagle(config) => State::Blocks(config.state(sequences, device)),
            Self::Finch(config) => State::Blocks(config.state(sequences, device)),
            Self::GoldFinch(config) => State::GoldFinch(config.state(sequences, device)),
        }
    }

    /// Tokens that a state holds at most; none where that is no matter.
    #[must_use]
    pub fn reach(&self) -> Option<usize> {
        match self {
            Self::Llama(config) => Some(config.reach()),
            Self::Eagle(_) | Self::Finch(_) | Self::GoldFinch(_) => None,
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
        let parameters = parameters.iter().cloned();
        match (self, state) {
            (Self::Eagle(config), State::Blocks(state)) => {
                Eagle::<B>::new(config, parameters).logits(tokens, state)
            }
            (Self::Finch(config), State::Blocks(state)) => {
                Finch::<B>::new(config, parameters).logits(tokens, state)
            }
            (Self::GoldFinch(config), State::GoldFinch(state)) => {
                GoldFinch::<B>::new(config, parameters).logits(tokens, state)
            }
            (Self::Llama(config), State::Llama(state)) => {
                Llama::<B>::new(config, parameters).extend(tokens, state)
            }
            (_, State::Blocks(_) | State::GoldFinch(_) | State::Llama(_)) => {
                unreachable!("a state of another architecture")
            }
        }
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
