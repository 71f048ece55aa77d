//! The closed list of architectures.
//!
//! A family is a file here and a line of the list in `config/model.rs`. Its file has the
//! [`Facts`] about it (the list of its parameters with their names, shapes and starts,
//! what a token costs, its words elsewhere) and its model, a [`Pass`]. The weights themselves are
//! a plain list of tensors in canonical order, owned by whoever trains or evaluates them; for one
//! pass the list becomes a typed model. So there is no other order of parameters than the one that
//! is declared, and training, with its copy of the list that burn tracks, needs no second model.

pub mod eagle;
mod family;
pub mod finch;
pub mod goldfinch;
pub mod llama;
pub mod rwkv;

use burn_backend::tensor::{Device, FloatTensor, IntTensor};

pub use self::family::{Arch, Pass, Rows};

use self::family::{Declared, Facts};
use crate::config::{Family, Model, Work, with_families};
use crate::genesis::Spec;
use crate::ops::FusedOps;
use crate::optim::Group;

/// Chooses the family's code.
macro_rules! families {
    ($($name:ident = $number:literal, $module:ident, $keys:tt;)*) => {
        impl Family {
            pub(crate) fn facts(self) -> &'static Facts {
                match self {
                    $(Self::$name => &$module::FACTS,)*
                }
            }
        }

        /// What a model keeps of the text before.
        #[derive(Clone, Debug)]
        pub enum State<B: FusedOps> {
            $(#[doc = concat!("Of [`", stringify!($module), "`].")]
            $name(<$module::$name<B> as Pass<B>>::State),)*
        }

        impl Arch {
            /// Scores of every next token. // tokens [B·T]; result [B·T, V]
            #[must_use]
            pub fn logits<B: FusedOps>(
                &self,
                parameters: &[FloatTensor<B>],
                tokens: IntTensor<B>,
                rows: &Rows,
            ) -> FloatTensor<B> {
                match self.model().family {
                    $(Family::$name => $module::$name::<B>::new(self, parameters)
                        .logits(self.model(), tokens, rows),)*
                }
            }

            /// The state before the first token, of so many texts that are read side by side.
            #[must_use]
            pub fn state<B: FusedOps>(&self, sequences: usize, device: &Device<B>) -> State<B> {
                match self.model().family {
                    $(Family::$name => State::$name(<$module::$name<B> as Pass<B>>::start(
                        self.model(), sequences, device,
                    )),)*
                }
            }

            /// [`logits`](Self::logits) of what comes after the state, which moves on.
            /// // tokens [B·T]; result [B·T, V]
            ///
            /// # Panics
            /// When the state is another architecture's, or would hold more than its
            /// [`reach`](Self::reach).
            #[must_use]
            pub fn extend<B: FusedOps>(
                &self,
                parameters: &[FloatTensor<B>],
                tokens: IntTensor<B>,
                state: &mut State<B>,
            ) -> FloatTensor<B> {
                match state {
                    $(State::$name(state) => {
                        assert_eq!(self.model().family, Family::$name, "a state of another family");
                        $module::$name::<B>::new(self, parameters).extend(tokens, state)
                    })*
                }
            }
        }
    };
}

with_families!(families);

impl Arch {
    fn declare(&self) -> Declared {
        (self.model().family.facts().declare)(self.model())
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

    /// How the optimiser treats each of the tensors, in the order of [`shapes`](Self::shapes).
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
        (self.model().family.facts().flops_per_token)(self.model(), &self.declare())
    }

    /// Numbers that a training step holds for each token at its peak: what the backward pass needs
    /// of the forward pass, and the largest gradients beside it.
    #[must_use]
    pub fn held_per_token(&self) -> u64 {
        (self.model().family.facts().held_per_token)(self.model()) as u64
    }

    /// Tokens of a text that a state holds at most; none where it holds any number.
    #[must_use]
    pub fn reach(&self) -> Option<usize> {
        (self.model().family.facts().reach)(self.model())
    }
}

impl Family {
    /// The sizes with which `bench train` measures it: those of all families, and its own.
    #[must_use]
    pub fn bench_model(self) -> Model {
        let sizes = Model {
            family: self,
            layers: 6,
            width: 256,
            heads: 4,
            ffn: 896,
            context: 256,
            vocab: 512,
            ..Model::NONE
        };
        (self.facts().bench)(sizes)
    }
}

impl Model {
    /// Parameters of the whole model.
    #[must_use]
    pub fn parameter_count(&self) -> u64 {
        specs(self).iter().map(|spec| spec.len() as u64).sum()
    }
}

impl Work {
    /// Bytes of the agreed state, parameters and outer momentum: what a joiner fetches.
    #[must_use]
    pub fn state_bytes(&self) -> u64 {
        8 * self.model.parameter_count()
    }
}

/// The parameters of a model, as genesis makes them.
#[must_use]
pub fn specs(model: &Model) -> Vec<Spec> {
    Arch::new(model).specs()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Work;

    #[test]
    fn tensors_hold_the_parameters_and_no_more() {
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
