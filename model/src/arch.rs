//! The closed list of architectures.
//!
//! A family is a file here and a line of the list in `config/model.rs`. Its file has the [`Facts`]
//! about it (its parameters with their names, shapes and initial values, the cost of a token, its
//! names in other programs) and its model, a [`Pass`]. The weights themselves are a plain list of
//! tensors in canonical order, owned by the trainer or evaluator; for one pass the list becomes a
//! typed model. So the declared order of parameters is the only one, and training, which has a
//! second list that burn tracks, needs no second model.
//!
//! Start with `family.rs`, which has both, then read `eagle.rs`: it is the shortest family.
//! `rwkv.rs` is what the recurrent families share, and `past.rs` how a text is read on.

pub mod eagle;
mod family;
pub mod finch;
pub mod goldfinch;
pub mod llama;
mod past;
pub mod rwkv;

use burn_backend::tensor::{Device, FloatTensor, IntTensor};

pub use self::family::{Arch, Pass, Rows};
pub use self::past::{EXPANDED_BYTES, Keep, Scored};

use self::family::{Declared, Facts};
use crate::config::{Family, Model, Work, with_families};
use crate::genesis::Spec;
use crate::ops::FusedOps;
use crate::optim::Group;

/// Dispatches a call to the family's code.
macro_rules! families {
    ($($name:ident = $number:literal, $module:ident, $keys:tt;)*) => {
        impl Family {
            pub(crate) fn facts(self) -> &'static Facts {
                match self {
                    $(Self::$name => &$module::FACTS,)*
                }
            }
        }

        /// What a model keeps of the preceding text.
        #[derive(Clone, Debug)]
        pub enum State<B: FusedOps> {
            $(#[doc = concat!("The state of [`", stringify!($module), "`].")]
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

            /// The state before the first token, for `sequences` texts that are read in parallel.
            #[must_use]
            pub fn state<B: FusedOps>(
                &self,
                sequences: usize,
                keep: Keep,
                device: &Device<B>,
            ) -> State<B> {
                match self.model().family {
                    $(Family::$name => State::$name(<$module::$name<B> as Pass<B>>::start(
                        self.model(), sequences, keep, device,
                    )),)*
                }
            }

            /// Reads tokens that follow the state, which is advanced, and returns the scores of the
            /// token after each of the last R tokens of a sequence, those that are to be scored;
            /// `None` where none is. // tokens [B·S]; result [B·R, V]
            ///
            /// # Panics
            /// If the state belongs to another architecture, or would exceed its
            /// [`reach`](Self::reach).
            #[must_use]
            pub fn extend<B: FusedOps>(
                &self,
                parameters: &[FloatTensor<B>],
                tokens: IntTensor<B>,
                scored: Scored,
                state: &mut State<B>,
            ) -> Option<FloatTensor<B>> {
                match state {
                    $(State::$name(state) => {
                        assert_eq!(self.model().family, Family::$name, "a state of another family");
                        $module::$name::<B>::new(self, parameters).extend(tokens, scored, state)
                    })*
                }
            }

            /// Reads one token of each of several texts, each with a state of its own, and advances
            /// the states. All families but GoldFinch do it in one pass over the weights.
            /// // tokens `[B]`; result [B, V]
            ///
            /// # Panics
            /// If a state belongs to another architecture, or would exceed its
            /// [`reach`](Self::reach).
            #[must_use]
            pub fn extend_each<B: FusedOps>(
                &self,
                parameters: &[FloatTensor<B>],
                tokens: IntTensor<B>,
                states: Vec<&mut State<B>>,
            ) -> FloatTensor<B> {
                let count = states.len();
                match self.model().family {
                    $(Family::$name => {
                        let own = states.into_iter().filter_map(|state| {
                            if let State::$name(state) = state { Some(state) } else { None }
                        });
                        let mut own: Vec<_> = own.collect();
                        assert_eq!(own.len(), count, "a state of another family");
                        $module::$name::<B>::new(self, parameters).extend_each(tokens, &mut own)
                    })*
                }
            }
        }
    };
}

with_families!(families);

impl Arch {
    /// The parameters of this architecture, made anew for each call.
    fn declare(&self) -> Declared {
        (self.model().family.facts().declare)(self.model())
    }

    /// Every parameter under its public name, in canonical order. Checkpoints, genesis and exports
    /// follow this order.
    #[must_use]
    pub fn specs(&self) -> Vec<Spec> {
        self.declare().specs
    }

    /// The shapes of the tensors that hold the parameters: the same numbers in the same order, but
    /// some neighbours packed into one tensor, so that one product serves for all of them.
    #[must_use]
    pub fn shapes(&self) -> Vec<Vec<usize>> {
        self.declare().shapes
    }

    /// How the optimiser treats each of the tensors, in the order of [`shapes`](Self::shapes).
    ///
    /// # Panics
    /// If a tensor packs parameters of different groups, which is a mistake of the architecture.
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

    /// Floating-point operations that training costs per token, forward and backward. A multiply
    /// and an add count as two.
    #[must_use]
    pub fn flops_per_token(&self) -> u64 {
        (self.model().family.facts().flops_per_token)(self.model(), &self.declare())
    }

    /// Numbers in memory for each token at the peak of a training step: those that the backward
    /// pass needs from the forward pass, and the largest gradients.
    #[must_use]
    pub fn held_per_token(&self) -> u64 {
        (self.model().family.facts().held_per_token)(self.model()) as u64
    }

    /// The most tokens of a text that a state can hold; `None` where there is no limit. A Llama's
    /// is its context, since it has no angles for later positions.
    #[must_use]
    pub fn reach(&self) -> Option<usize> {
        (self.model().family.facts().reach)(self.model())
    }
}

impl Family {
    /// The sizes with which `bench train` measures the family: the common ones, and its own.
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
    /// The number of parameters of the whole model, as its declarations sum up.
    #[must_use]
    pub fn parameter_count(&self) -> u64 {
        specs(self).iter().map(|spec| spec.len() as u64).sum()
    }
}

impl Work {
    /// Bytes of the agreed state, parameters and outer momentum in f32, which a joining peer
    /// downloads.
    #[must_use]
    pub fn state_bytes(&self) -> u64 {
        8 * self.model.parameter_count()
    }
}

/// The parameters of a model, as genesis creates them.
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

    /// INTELLECT-1's sizes and PRIME's formula give 75.03 GFLOP per token at 8,192 tokens.
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
