//! The settings of a run that all its peers share, their canonical bytes, and the id made of them.
//!
//! A manifest is one signed TOML file. `RunId = BLAKE3::derive_key("intellect-node 1 run", canonical
//! bytes)`, where every field but the signature is hashed in the order of docs/FORMATS.md, so two peers
//! with one id agree on every setting, and a run never depends on a program's defaults: each field
//! that applies must be written out, one that does not is refused.
//!
//! The tables `[model]`, `[data]`, `[train]` belong to the model crate. They pass through unread: the
//! caller turns them into one byte string, `work`, which is hashed in their place.
//!
//! [`parse`] makes an [`Unverified`] of text that anyone may have written; only
//! [`Unverified::verify`] makes a [`Manifest`]: the organiser signed it, and this is its id.
//!
//! Errors name the key, the value, the bound and what to do. Settings of one machine (address,
//! device, threads) are never here: they are the node's `Local`.

mod table;
mod text;

use std::time::Duration;

use thiserror::Error;
use toml::Table;

use crate::access::admit::Level;
use crate::base::id::{Digest, PeerId, RunId};
use crate::base::sign::{Keypair, Signature, verify};
use crate::history::lineage::Capacity;
use crate::message::{QuorumRule, Voter};
use crate::ring::codec::Codec;

pub use text::Outer;

/// The format that this program reads and writes.
pub const FORMAT: u64 = 1;

/// Longest manifest, in bytes of text.
pub const TEXT_BYTES_MAX: usize = 64 << 10;

/// Longest `work`, in bytes.
pub const WORK_BYTES_MAX: usize = 16 << 10;

/// Every setting that peers share, but the work.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// For people: 1–64 of `A-Za-z0-9._-`.
    pub name: String,
    /// Who signs the manifest.
    pub organiser: PeerId,
    /// Weights, data and everything drawn come from it; below 2^63, as TOML's integers are.
    pub seed: u64,
    /// Committed tokens at which the run is finished; 0: never.
    pub stop_tokens: u64,
    /// The state that the run begins with, as [`Header::published`](crate::history::checkpoint::Header::published)
    /// makes it; absent: weights drawn from the seed.
    pub genesis: Option<Digest>,
    /// How long an epoch is.
    pub epoch: Epoch,
    /// The outer optimiser.
    pub outer: Outer,
    /// How deltas travel.
    pub codec: Codec,
    /// Who takes part, and when others go on without one.
    pub members: Members,
    /// Whom peers believe.
    pub trust: Trust,
}

/// How long an epoch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch {
    /// What is counted.
    pub budget: Budget,
    /// How much of it each peer does in one epoch.
    pub amount: u64,
    /// Seconds only: tokens that a peer may have behind its work in any epoch. Absent: before the first
    /// receipt anything is possible.
    pub tokens_max: Option<u64>,
}

/// Whom peers believe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trust {
    /// Whether who comes needs an invite. A run never changes it.
    pub level: Level,
    /// Epochs that a greater head may undo of a peer's, however few have signed what came instead; 1–2^32.
    /// Few ask a person to decide after each longer partition; many let two keys undo as much (G11).
    pub undo_max: u64,
}

impl Default for Trust {
    fn default() -> Self {
        Self { level: Level::Open, undo_max: UNDO_MAX }
    }
}

/// What bounds a peer's work in one epoch; the numbers are hashed and never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Budget {
    /// Inner steps, the same for all: slow peers make others wait.
    Steps = 1,
    /// Tokens, the same for all.
    Tokens = 2,
    /// Seconds: fast peers do more.
    Seconds = 3,
}

/// Who takes part, and when others go on without one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Members {
    /// Peers needed to found the run; later the last survivor goes on. 1–256.
    pub min_peers: u64,
    /// What survivors without a majority may do.
    pub quorum: Quorum,
    /// What the voters outlast.
    pub tolerate: Tolerate,
    /// Between two heartbeats; 0.1–10 s. Longer notices deaths later, shorter costs traffic.
    pub heartbeat: Duration,
    /// The longest wait for those who are not Ready; up to a day.
    pub ready_grace: Duration,
    /// Silence after which survivors regroup; at least three times "silent after", up to a day.
    /// Short forks on a hiccup, long makes the survivors wait.
    pub minority_grace: Duration,
}

/// What survivors without a majority may do; `available` is hashed as 1, `majority` as 2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Quorum {
    /// Regroup and go on, down to the last peer; a cut may fork the run.
    Available,
    /// Wait for a majority: no forks.
    Majority {
        /// The voters of genesis, in the order that breaks ties.
        founders: Vec<Voter>,
    },
}

/// What the voters of a run outlast; only `liars` is hashed, as 2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tolerate {
    /// Peers that die: a majority decides.
    #[default]
    Crash = 1,
    /// Fewer than a third of the voters lie: of 3f + 1 voters 2f + 1 decide, and survivors without them wait.
    Liars = 2,
}

impl Members {
    /// How many voters decide, and whether fewer may go on.
    #[must_use]
    pub fn rule(&self) -> QuorumRule {
        match (self.tolerate, &self.quorum) {
            (Tolerate::Liars, _) => QuorumRule::Byzantine,
            (Tolerate::Crash, Quorum::Available) => QuorumRule::Available,
            (Tolerate::Crash, Quorum::Majority { .. }) => QuorumRule::Majority,
        }
    }
}

/// A manifest that was read, and that nobody has vouched for yet.
#[derive(Clone, Debug, PartialEq)]
pub struct Unverified {
    run: Run,
    table: Table,
    signature: Option<Signature>,
}

/// A manifest that its organiser signed.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    run: Run,
    id: RunId,
}

/// Why a text is not a manifest that can be used. Its author must change it.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum ManifestError {
    /// Too much text to look at.
    #[error("the manifest has more than {TEXT_BYTES_MAX} bytes")]
    TooLong,
    /// Not TOML.
    #[error("line {line} of the manifest is not TOML: {why}")]
    Syntax {
        /// Counted from 1.
        line: usize,
        /// What is wrong.
        why: String,
    },
    /// Another format.
    #[error(
        "the manifest has format {found}, this program reads {FORMAT}: \
         it was made by a newer version, update intellect-node"
    )]
    Newer {
        /// The format that it has.
        found: i64,
    },
    /// A key that nobody knows.
    #[error("unknown key {key}")]
    UnknownKey {
        /// The key as written.
        key: String,
    },
    /// A field that applies is absent.
    #[error("{key} is missing: every field that applies must be written out ({told})")]
    MissingKey {
        /// The field.
        key: String,
        /// Its bounds and what it means.
        told: String,
    },
    /// A field that does not apply is present.
    #[error("{key} belongs to {only} only: remove it")]
    NotApplicable {
        /// The field.
        key: String,
        /// What it would belong to.
        only: &'static str,
    },
    /// A value of the wrong type or form.
    #[error("{key} is {found}: it must be {expected}")]
    WrongType {
        /// The field.
        key: String,
        /// What it must be.
        expected: &'static str,
        /// What it is.
        found: String,
    },
    /// A number outside its bounds.
    #[error("{key} is {value}: choose {low} to {high}")]
    OutOfBounds {
        /// The field.
        key: String,
        /// As written.
        value: String,
        /// Smallest value allowed.
        low: String,
        /// Largest value allowed.
        high: String,
    },
    /// A name that is not in a closed list.
    #[error("{key} is \"{value}\": known are {known}")]
    NotOneOf {
        /// The field.
        key: String,
        /// As written.
        value: String,
        /// The closed list.
        known: String,
    },
    /// A value that a later version will support.
    #[error("{key} is {value}: more than {supported} is not supported yet, set it to {supported}")]
    NotYet {
        /// The field.
        key: &'static str,
        /// As written.
        value: u64,
        /// What this version does.
        supported: u64,
    },
    /// The caller's `work` is longer than a manifest may say.
    #[error("the work takes {bytes} bytes: at most {WORK_BYTES_MAX} are allowed")]
    Work {
        /// Its length.
        bytes: usize,
    },
    /// No signature.
    #[error("the manifest is not signed: `intellect-node manifest new --key FILE` signs one")]
    Unsigned,
    /// A signature that is not the organiser's over this manifest.
    #[error(
        "the signature is not the organiser's over this manifest: it was changed after signing, \
         and a change takes a new one, by `intellect-node manifest new`"
    )]
    Signature,
}

/// Reads a manifest.
///
/// # Errors
/// The first thing that is wrong, with what to write instead.
pub fn parse(text: &str) -> Result<Unverified, ManifestError> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(ManifestError::TooLong);
    }
    let table: Table = text.parse().map_err(|error| ManifestError::syntax(text, &error))?;
    // First of all: a newer format may have other keys.
    let format = table.get("format").and_then(toml::Value::as_integer);
    if let Some(found) = format.filter(|format| u64::try_from(*format).is_ok_and(|f| f > FORMAT)) {
        return Err(ManifestError::Newer { found });
    }
    let (run, signature) = text::read(&table)?;
    Ok(Unverified { run, table, signature })
}

/// Describes each key, except those of the work: its full name, what `manifest new` proposes for
/// organiser and seed 0, its bounds, and what it means.
#[must_use]
pub fn keys() -> Vec<[String; 4]> {
    text::Tables::of(&Run::new(PeerId([0; 32]), 0), None).described()
}

impl ManifestError {
    /// What a parser said of this text, without its excerpt.
    #[must_use]
    pub fn syntax(text: &str, error: &toml::de::Error) -> Self {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let line = 1 + before.matches('\n').count();
        Self::Syntax { line, why: error.message().to_owned() }
    }
}

impl Unverified {
    /// What it says.
    #[must_use]
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// All of it as it was read, for the reader of `[model]`, `[data]`, `[train]`.
    #[must_use]
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Checks the organiser's signature; `work` stands for the tables that are not read here.
    ///
    /// # Errors
    /// No signature, or one that is not the organiser's over these very settings and this work.
    pub fn verify(self, work: &[u8]) -> Result<Manifest, ManifestError> {
        let signature = self.signature.ok_or(ManifestError::Unsigned)?;
        if work.len() > WORK_BYTES_MAX {
            return Err(ManifestError::Work { bytes: work.len() });
        }
        let (id, bytes) = self.run.identify(work);
        if !verify(&self.run.organiser, TAG, &id, &bytes, &signature) {
            return Err(ManifestError::Signature);
        }
        Ok(Manifest { run: self.run, id })
    }
}

impl Manifest {
    /// The settings.
    #[must_use]
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// The id that they make.
    #[must_use]
    pub fn id(&self) -> RunId {
        self.id
    }
}

impl Run {
    /// What `manifest new` proposes.
    #[must_use]
    pub fn new(organiser: PeerId, seed: u64) -> Self {
        Self {
            name: "demo".to_owned(),
            organiser,
            seed,
            stop_tokens: 0,
            genesis: None,
            epoch: Epoch { budget: Budget::Steps, amount: 15, tokens_max: None },
            // MuLoCo's (arXiv 2505.23725); the ramp is a guess. docs/MATH.md has others'.
            outer: Outer { lr: 0.7, momentum: 0.6, momentum_ramp_epochs: 10 },
            codec: Codec::Int8,
            members: Members {
                tolerate: Tolerate::Crash,
                min_peers: 2,
                quorum: Quorum::Available,
                heartbeat: Duration::from_millis(500),
                ready_grace: Duration::from_secs(30),
                minority_grace: Duration::from_secs(8),
            },
            trust: Trust::default(),
        }
    }

    /// The id of a run with these settings and this work.
    #[must_use]
    pub fn id(&self, work: &[u8]) -> RunId {
        self.identify(work).0
    }

    /// The organiser's signature under a manifest with this work.
    #[must_use]
    pub fn sign(&self, work: &[u8], organiser: &Keypair) -> Signature {
        let (id, bytes) = self.identify(work);
        organiser.sign(TAG, &id, &bytes)
    }

    /// The manifest as text, every field written out; `tables` holds `[model]`, `[data]`, `[train]`.
    #[must_use]
    pub fn to_toml(&self, tables: &Table, signature: Option<&Signature>) -> String {
        text::Tables::of(self, signature).to_toml(tables)
    }

    /// Tokens of one epoch's budget, for a model that takes `tokens_per_step` in an inner step;
    /// `None` when seconds bound it.
    #[must_use]
    pub fn epoch_tokens(&self, tokens_per_step: u64) -> Option<u64> {
        match self.epoch.budget {
            Budget::Steps => Some(self.epoch.amount.saturating_mul(tokens_per_step)),
            Budget::Tokens => Some(self.epoch.amount),
            Budget::Seconds => None,
        }
    }

    /// What one peer can do in an epoch, for a model that takes `tokens_per_step` in an inner step.
    #[must_use]
    pub fn capacity(&self, tokens_per_step: u64) -> Capacity {
        let Epoch { tokens_max, .. } = self.epoch;
        self.epoch_tokens(tokens_per_step).map_or(Capacity::Timed { tokens_max }, Capacity::Counted)
    }

    /// The id, and the bytes that it is made of.
    fn identify(&self, work: &[u8]) -> (RunId, Vec<u8>) {
        let bytes = text::Tables::of(self, None).canonical(work);
        (RunId(Digest::derive("intellect-node 1 run", &bytes).0), bytes)
    }
}

/// The domain tag of the organiser's signature.
const TAG: &str = "manifest";

/// The tables of a manifest, in their order.
pub const TABLES: [&str; 8] =
    ["model", "data", "train", "epoch", "outer", "ring", "members", "trust"];

/// What [`Trust::undo_max`] is where no manifest says so: a minute at an epoch a second, an hour at one a
/// minute; guess.
const UNDO_MAX: u64 = 64;

/// Tokens that `manifest new` lets a peer have for each second of an epoch: far above what any machine trains
/// on today; guess.
pub const TOKENS_PER_SECOND_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests;
