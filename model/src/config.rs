//! What the work is: the tables `[model]`, `[data]` and `[train]` of a run's manifest as typed
//! values.
//!
//! A manifest is written by a person and believed by every peer, so it is parsed once, here, into a
//! type that cannot be wrong: each field has its bounds, a field that does not apply is refused,
//! and so is an unknown one. The same values become one byte string ([`Work::canonical`]) that the
//! protocol hashes into the run's id without reading it. So no field may be a matter of one peer
//! alone: micro-batch and device are options of the node.
//!
//! It also says what the work costs: tokens per step, parameters, memory. It does not know the rest
//! of the manifest, files or devices. Each table is declared by `table!`,
//! one line for each key.

mod canonical;
mod data;
pub(crate) mod digest;
mod hints;
mod model;
mod train;
mod vocabulary;

use intellect_table::{Description, Error, Table as _};

pub use self::data::{Component, Data, Fingerprint, Source};
pub use self::hints::Hints;
pub(crate) use self::model::with_families;
pub use self::model::{Family, Model};
use self::train::TOKENS_MAX;
pub use self::train::{Decay, Train};
pub use self::vocabulary::{Scheme, Vocabulary, Width};

/// Everything that peers must share to compute the same thing.
#[derive(Clone, Debug, PartialEq)]
pub struct Work {
    /// The architecture and its sizes.
    pub model: Model,
    /// The source of the tokens, and the share of it that is held out.
    pub data: Data,
    /// The inner optimiser and its schedule.
    pub train: Train,
}

impl Work {
    /// What `manifest new` proposes: a small Llama on the synthetic source. In 20 epochs of 15
    /// steps four peers end at 0.16 to 0.21 of the unigram's excess, one alone at 0.25 to 0.32 (six
    /// seeds, 2026-11); it takes about 10 seconds of one core.
    #[must_use]
    pub fn synthetic() -> Self {
        Self::proposed(Source::Synthetic { symbols: 16, order: 2 })
    }

    /// What `manifest new` proposes for a text file: 0.43 million parameters, and a batch so small
    /// that a peer alone learns visibly less.
    #[must_use]
    pub fn text(file: Fingerprint) -> Self {
        Self::proposed(Source::Text(file))
    }

    /// What `manifest new` proposes for a token file: the same model as for a text.
    #[must_use]
    pub fn tokens(vocabulary: Vocabulary, file: Fingerprint) -> Self {
        Self::proposed(Source::Tokens { file, vocabulary })
    }

    /// What `manifest new` proposes for several token files: all keep the same weight to the end.
    #[must_use]
    pub fn mix(vocabulary: Vocabulary, files: &[Fingerprint]) -> Self {
        let component = |&file| Component { file, weight: 1.0, anneal_weight: 1.0 };
        let components = files.iter().map(component).collect();
        Self::proposed(Source::Mix { vocabulary, components, anneal_from: TOKENS_MAX })
    }

    /// Reads `[model]`, `[data]` and `[train]` out of a manifest, and no other key.
    ///
    /// # Errors
    /// The first thing that is wrong, with what to write instead.
    pub fn parse(manifest: &toml::Table) -> Result<Self, Error> {
        let work = Self {
            model: Model::parse(manifest)?,
            data: Data::parse(manifest)?,
            train: Train::parse(manifest)?,
        };
        let tokens = work.data.tokens();
        if work.model.vocab < tokens {
            let need = format!("the data has {tokens} different tokens: choose at least {tokens}");
            return Err(Error::value("model.vocab", work.model.vocab, need));
        }
        Ok(work)
    }

    /// The three tables with every field that applies, as [`Work::parse`] reads them.
    #[must_use]
    pub fn to_toml(&self) -> toml::Table {
        let tables = [
            ("model", self.model.to_toml()),
            ("data", self.data.written().to_toml()),
            ("train", self.train.to_toml()),
        ];
        tables.map(|(name, table)| (name.to_owned(), table.into())).into_iter().collect()
    }

    /// The byte string that is hashed into the run's id: the tables one after another, each key in
    /// the order of its table. A key more, or another order, gives all runs other ids.
    #[must_use]
    pub fn canonical(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        canonical::append(&self.model, &mut bytes);
        canonical::append(&self.data.written(), &mut bytes);
        canonical::append(&self.train, &mut bytes);
        bytes
    }

    /// Describes each key of the three tables, with the value that `manifest new` proposes.
    #[must_use]
    pub fn keys() -> Vec<Description> {
        let Self { model, data, train } = Self::synthetic();
        [model.described(), data.written().described(), train.described()].concat()
    }

    /// Tokens that one inner step of one peer trains on.
    #[must_use]
    pub fn tokens_per_step(&self) -> u64 {
        self.train.batch as u64 * self.model.context as u64
    }

    /// What `manifest new` proposes for this source: a small Llama, wider for a file than for the
    /// synthetic source.
    fn proposed(source: Source) -> Self {
        let (width, ffn, batch) = match source {
            Source::Synthetic { .. } => (64, 176, 8),
            Source::Text(_) | Source::Tokens { .. } | Source::Mix { .. } => (128, 344, 4),
        };
        let data = Data { source, held_out: 0.1, hints: Hints::default(), share: false };
        let model = Model {
            family: Family::Llama,
            layers: 2,
            width,
            heads: 4,
            kv_heads: 2,
            ffn,
            context: 64,
            vocab: data.tokens(),
            rope_theta: 10_000.0,
            norm_eps: 1e-5,
            ..Model::NONE
        };
        let train = Train {
            batch,
            lr: 3e-3,
            beta1: 0.9,
            beta2: 0.95,
            eps: 1e-8,
            weight_decay: 0.1,
            clip: 1.0,
            z_loss: 0.0,
            // The tokens of 40 steps of one peer.
            warmup_tokens: 40 * (batch * model.context) as u64,
            warmup_start: 0.0,
            stable_tokens: TOKENS_MAX,
            decay_tokens: 0,
            decay: Decay::OneMinusSqrt,
            lr_final: 0.0,
            join_ramp_steps: 20,
        };
        Self { model, data, train }
    }
}

#[cfg(test)]
mod tests;
