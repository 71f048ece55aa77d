//! The closed list of architectures.
//!
//! An architecture is three things: the list of its parameters (names, shapes, how they start), the
//! tensors that it keeps them in, and a function from tokens to logits. The weights themselves are
//! a plain list of tensors in canonical order, owned by whoever trains or evaluates them; for one
//! pass the list becomes a typed model. So there is no other order of parameters than the one that
//! `specs` and `shapes` state, and training, with its copy of the list that burn tracks, needs no
//! second model.

pub mod llama;

use burn_backend::tensor::{FloatTensor, IntTensor};

use self::llama::{Llama, LlamaConfig};
use crate::config::{self, Family};
use crate::genesis::Spec;
use crate::ops::FusedOps;

/// An architecture with its sizes.
#[derive(Clone, Debug)]
pub enum Arch {
    /// [`llama`]
    Llama(LlamaConfig),
}

impl Arch {
    /// What the manifest asks for.
    #[must_use]
    pub fn new(model: &config::Model) -> Self {
        match model.family {
            Family::Llama => Self::Llama(LlamaConfig::new(model)),
        }
    }

    /// Every parameter under its public name, in canonical order.
    #[must_use]
    pub fn specs(&self) -> Vec<Spec> {
        match self {
            Self::Llama(config) => config.specs(),
        }
    }

    /// The shapes of the tensors that hold them: the same numbers in the same order, but some
    /// neighbours packed.
    #[must_use]
    pub fn shapes(&self) -> Vec<Vec<usize>> {
        match self {
            Self::Llama(config) => config.shapes(),
        }
    }

    /// Floating-point operations that training costs per token.
    #[must_use]
    pub fn flops_per_token(&self) -> u64 {
        match self {
            Self::Llama(config) => config.flops_per_token(),
        }
    }

    /// Scores of every next token. // tokens [B·T]; result [B·T, V]
    #[must_use]
    pub fn logits<B: FusedOps>(
        &self,
        parameters: &[FloatTensor<B>],
        tokens: IntTensor<B>,
        sequences: usize,
        length: usize,
    ) -> FloatTensor<B> {
        let parameters = parameters.iter().cloned();
        match self {
            Self::Llama(config) => {
                Llama::<B>::new(config, parameters).logits(tokens, sequences, length)
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
