//! What the work is: the tables `[model]`, `[data]` and `[train]` of a run's manifest as typed values.
//!
//! A manifest is written by a person and believed by every peer, so it is parsed once, here, into a
//! type that cannot be wrong: each field has its bounds, a field that does not apply is refused, an
//! unknown key is named together with the nearest known one. The same values become one byte string
//! ([`Work::canonical`]) that the protocol hashes into the run's id without reading it.
//!
//! It also says what the work costs: tokens per step, parameters, memory. It does not know the rest
//! of the manifest, files or devices.

mod data;
mod fields;
mod model;
mod train;

use thiserror::Error;

pub use self::data::{Data, Part, Scheme, Source, Vocabulary};
pub use self::model::{Family, Model};
use crate::data::text::File;
use fields::{Fields, Table};

/// Everything that peers must share to compute the same thing.
#[derive(Clone, Debug, PartialEq)]
pub struct Work {
    /// The architecture and its sizes.
    pub model: Model,
    /// Where tokens come from.
    pub data: Data,
    /// The inner optimisation.
    pub train: Train,
}

/// The inner optimisation: AdamW under a warmup–stable–decay schedule.
#[derive(Clone, Debug, PartialEq)]
pub struct Train {
    /// Sequences per inner step and peer, 1–65,536; cutting it into micro-batches is local.
    pub batch: usize,
    /// Peak learning rate, 1e-9–1.
    pub lr: f64,
    /// Decay of the first moment, 0 to below 1.
    pub beta1: f64,
    /// Decay of the second moment, 0 to below 1.
    pub beta2: f64,
    /// Added to the root of the second moment, 1e-12–1e-2.
    pub eps: f64,
    /// Decoupled decay of all parameters, times the learning rate, 0–1.
    pub weight_decay: f64,
    /// Largest global norm of a gradient, 0–1e6; 0 does not clip.
    pub clip: f64,
    /// Weight of the squared largest logit in the loss, 0–1; 0 leaves it out.
    pub z_loss: f64,
    /// Committed tokens over which the learning rate rises to its peak.
    pub warmup_tokens: u64,
    /// Share of the peak that it rises from, 0–1.
    pub warmup_start: f64,
    /// Committed tokens after that at the peak.
    pub stable_tokens: u64,
    /// Committed tokens after that over which it falls; 0: it never falls.
    pub decay_tokens: u64,
    /// Along which curve it falls.
    pub decay: Decay,
    /// Where it ends and stays, 0 to `lr`.
    pub lr_final: f64,
    /// Steps over which a peer with cold Adam moments raises its own learning rate.
    pub join_ramp_steps: u64,
}

/// The curves along which a learning rate falls, from 1 at x = 0 to 0 at x = 1; the numbers are
/// hashed and never reused.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Decay {
    /// 1 − √x (Hägele et al. 2024, arXiv 2405.18392; INTELLECT-1).
    OneMinusSqrt = 1,
    /// 1 − x.
    Linear = 2,
    /// (1 + cos πx)/2 (Loshchilov & Hutter 2017, arXiv 1608.03983; Eagle and Finch).
    Cosine = 3,
    /// cos(πx/2) (GoldFinch).
    QuarterCosine = 4,
}

/// Why a manifest's work cannot be used: the author of the manifest must change it.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum WorkError {
    /// A whole table is absent, or something else stands in its place.
    #[error("the manifest has no table [{table}]: `manifest new` writes every one")]
    MissingTable {
        /// Name of the table.
        table: &'static str,
    },
    /// A key that nobody knows.
    #[error("unknown key {table}.{key}: the nearest known one is {table}.{nearest}")]
    UnknownKey {
        /// Table that it stands in.
        table: &'static str,
        /// The key as written.
        key: String,
        /// The known key with the smallest edit distance.
        nearest: &'static str,
    },
    /// A field that applies is absent.
    #[error("{table}.{key} is missing: every field that applies must be written out")]
    MissingKey {
        /// Table that it belongs in.
        table: &'static str,
        /// The field.
        key: &'static str,
    },
    /// A field that does not apply is present.
    #[error("{table}.{key} belongs to {only} only: remove it")]
    NotApplicable {
        /// Table that it stands in.
        table: &'static str,
        /// The field.
        key: &'static str,
        /// What it would belong to.
        only: &'static str,
    },
    /// A value of the wrong type.
    #[error("{table}.{key} is {found}: it must be {expected}")]
    WrongType {
        /// Table that it stands in.
        table: &'static str,
        /// The field.
        key: &'static str,
        /// What it must be.
        expected: &'static str,
        /// What it is.
        found: String,
    },
    /// A number outside its bounds.
    #[error("{table}.{key} is {value}: choose {low} to {high}")]
    OutOfBounds {
        /// Table that it stands in.
        table: &'static str,
        /// The field.
        key: &'static str,
        /// As written.
        value: String,
        /// Smallest value allowed.
        low: String,
        /// Largest value allowed.
        high: String,
    },
    /// A name that is not in a closed list.
    #[error("{table}.{key} is \"{value}\": known are {known}")]
    NotOneOf {
        /// Table that it stands in.
        table: &'static str,
        /// The field.
        key: &'static str,
        /// As written.
        value: String,
        /// The closed list.
        known: String,
    },
    /// Two fields that contradict each other.
    #[error("{key} is {value}: {need}")]
    Contradiction {
        /// The field, with its table.
        key: &'static str,
        /// As written.
        value: String,
        /// What must hold, with the other field and its value.
        need: String,
    },
}

impl Work {
    /// What `manifest new` proposes: a small Llama on the synthetic source. In 20 epochs of 15 steps
    /// four peers end at 0.16 to 0.21 of the unigram's excess, one alone at 0.25 to 0.32 (six
    /// seeds, 2026-11); it takes about 10 seconds of one core.
    #[must_use]
    pub fn synthetic() -> Self {
        let source = Source::Synthetic { symbols: 16, order: 2 };
        let data = Data { source, held_out: 0.1 };
        Self::proposed(data, Sizes { width: 64, ffn: 176, batch: 8 })
    }

    /// What `manifest new` proposes for a text file of `bytes` bytes with this BLAKE3 digest: 0.43
    /// million parameters, and a batch so small that a peer alone learns visibly less.
    #[must_use]
    pub fn text(digest: [u8; 32], bytes: u64) -> Self {
        let source = Source::Text { digest, bytes };
        let data = Data { source, held_out: 0.1 };
        Self::proposed(data, Sizes { width: 128, ffn: 344, batch: 4 })
    }

    /// What `manifest new` proposes for a token file of `bytes` bytes with this BLAKE3 digest: as
    /// for a text.
    #[must_use]
    pub fn tokens(vocabulary: Vocabulary, digest: [u8; 32], bytes: u64) -> Self {
        let data = Data { source: Source::Tokens { digest, bytes, vocabulary }, held_out: 0.1 };
        Self::proposed(data, Sizes { width: 128, ffn: 344, batch: 4 })
    }

    /// What `manifest new` proposes for several token files: all have the same weight, to the end.
    #[must_use]
    pub fn mix(vocabulary: Vocabulary, files: &[File]) -> Self {
        let part = |&File { digest, bytes }: &File| Part {
            digest,
            bytes,
            weight: 1.0,
            anneal_weight: 1.0,
        };
        let parts = files.iter().map(part).collect();
        let source = Source::Mix { vocabulary, parts, anneal_from: TOKENS_MAX };
        Self::proposed(Data { source, held_out: 0.1 }, Sizes { width: 128, ffn: 344, batch: 4 })
    }

    /// Reads `[model]`, `[data]` and `[train]` out of a manifest; its other keys are not ours.
    ///
    /// # Errors
    /// The first thing that is wrong, with what to write instead.
    pub fn parse(manifest: &toml::Table) -> Result<Self, WorkError> {
        // The values differ, the keys are those of every work.
        let [_, data, train] = Self::synthetic().fields();
        let work = Self {
            model: Model::parse(manifest)?,
            data: Data::read(&Fields::new(manifest, &data)?)?,
            train: Train::read(&Fields::new(manifest, &train)?)?,
        };
        let tokens = work.data.tokens();
        if work.model.vocab < tokens {
            return Err(WorkError::Contradiction {
                key: "model.vocab",
                value: work.model.vocab.to_string(),
                need: format!("the data has {tokens} different tokens: choose at least {tokens}"),
            });
        }
        Ok(work)
    }

    /// The three tables with every field that applies, as [`Work::parse`] reads them.
    #[must_use]
    pub fn to_toml(&self) -> toml::Table {
        let mut manifest = toml::Table::new();
        for (name, fields) in self.fields() {
            let mut table = toml::Table::new();
            for (key, field) in fields {
                if let Some(value) = field.to_toml() {
                    table.insert(key.to_owned(), value);
                }
            }
            manifest.insert(name.to_owned(), toml::Value::Table(table));
        }
        manifest
    }

    /// The byte string that is hashed into the run's id: every field in the order of the
    /// manifest's definition; integers, float bits and numbers of enums as u64 little endian,
    /// strings as u32 length and bytes, lists as u64 length and values, what does not apply as zero or empty, or, if it is younger
    /// than the first manifests, as nothing.
    #[must_use]
    pub fn canonical(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (_, fields) in self.fields() {
            for (_, field) in fields {
                field.hash_into(&mut bytes);
            }
        }
        bytes
    }

    /// Tokens that one inner step of one peer trains on.
    #[must_use]
    pub fn tokens_per_step(&self) -> u64 {
        self.train.batch as u64 * self.model.context as u64
    }

    /// Bytes of the agreed state, parameters and outer momentum: what a joiner fetches.
    #[must_use]
    pub fn state_bytes(&self) -> u64 {
        8 * self.model.parameter_count()
    }

    fn proposed(data: Data, sizes: Sizes) -> Self {
        let Sizes { width, ffn, batch } = sizes;
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

    fn fields(&self) -> [Table; 3] {
        [
            ("model", self.model.fields()),
            ("data", self.data.fields()),
            ("train", self.train.fields()),
        ]
    }
}

impl Decay {
    /// As it is written in a manifest.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::OneMinusSqrt => "1-sqrt",
            Self::Linear => "linear",
            Self::Cosine => "cosine",
            Self::QuarterCosine => "quarter-cosine",
        }
    }
}

/// What differs between the proposals.
struct Sizes {
    width: usize,
    ffn: usize,
    batch: usize,
}

/// Every whole number up to here is also a float, and TOML can write it.
const TOKENS_MAX: u64 = 1 << 53;

#[cfg(test)]
mod tests;
