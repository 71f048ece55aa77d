//! The settings of a run that all its peers share, their canonical bytes, and the id made of them.
//!
//! A manifest is one signed TOML file. `RunId = BLAKE3::derive_key("intellect-node 1 run", canonical
//! bytes)`, where every field but the signature is hashed in the order of docs/FORMATS.md. So two peers
//! with one id agree on every setting, and a run never depends on a program's defaults: each field
//! that applies must be written out, and one that does not apply is refused.
//!
//! The tables `[model]`, `[data]`, `[train]` belong to the model crate. They pass through unread: the
//! caller turns them into one byte string, `work`, which is hashed in their place.
//!
//! [`parse`] makes an [`Unverified`] of text that anyone may have written. Only
//! [`Unverified::verify`] makes a [`Manifest`]: its organiser signed it, and its id is known.
//!
//! Errors name the key, the value, the bound and what to do. Settings of one machine (address,
//! device, threads) are never here: they are the node's `Local`.

mod tables;

use std::time::Duration;

use intellect_table::Description;
use thiserror::Error;
use toml::Table;

use crate::access::admit::Level;
use crate::base::fault::require;
use crate::base::id::{Digest, PeerId, RunId};
use crate::base::sign::{Keypair, Signature, verify};
use crate::history::lineage::Capacity;
use crate::message::QuorumRule;
use crate::ring::codec::Codec;

pub use self::tables::{Epoch, Members, Outer, Ring, Trust};

/// The format that this program reads and writes.
pub const FORMAT: u64 = 1;

/// Longest manifest, in bytes of text. A text from a stranger is compared with it before it is
/// parsed.
pub const TEXT_BYTES_MAX: usize = 64 << 10;

/// Longest `work` of a manifest, in bytes of text.
pub const WORK_BYTES_MAX: usize = 16 << 10;

/// Every setting that peers share, but the work.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// A name for people: 1–64 of `A-Za-z0-9._-`. Nothing is looked up by it.
    pub name: String,
    /// The peer that signs the manifest.
    pub organiser: PeerId,
    /// Weights, data and everything drawn come from it; below 2^63, as TOML's integers are.
    pub seed: u64,
    /// Committed tokens at which the run is finished; 0: never.
    pub stop_tokens: u64,
    /// The state that the run begins with, as [`Header::published`](crate::history::checkpoint::Header::published)
    /// makes it; absent: weights drawn from the seed.
    pub genesis: Option<Digest>,
    /// How long an epoch is, and how long its phases may take.
    pub epoch: Epoch,
    /// How the averaged delta becomes the next state.
    pub outer: Outer,
    /// How deltas travel round the ring.
    pub ring: Ring,
    /// The peers that take part, and when others go on without one.
    pub members: Members,
    /// The peers that are admitted, and how much a greater head may undo (G11).
    pub trust: Trust,
}

/// What bounds a peer's work in one epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Budget {
    /// Inner steps, the same for all: slow peers make others wait.
    Steps,
    /// Tokens, the same number for all peers.
    Tokens,
    /// Seconds: fast peers do more.
    Seconds,
}

/// What survivors without a majority may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quorum {
    /// Regroup and go on, down to the last peer; a cut may fork the run.
    Available,
    /// Wait for a majority: no forks. The manifest names the founders.
    Majority,
}

/// What the voters of a run outlast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tolerate {
    /// Peers that die: a majority decides.
    Crash,
    /// Fewer than a third of the voters lie: of 3f + 1 voters 2f + 1 decide, and survivors without them wait.
    Liars,
}

impl Default for Trust {
    /// What `manifest new` proposes: an open run, and a minute at an epoch a second or an hour at one a minute to
    /// undo; guess.
    fn default() -> Self {
        Self { level: Level::Open, undo_max: 64 }
    }
}

impl Members {
    /// How many voters decide, and whether fewer may go on.
    pub fn rule(&self) -> QuorumRule {
        match (self.tolerate, self.quorum) {
            (Tolerate::Liars, _) => QuorumRule::Byzantine,
            (Tolerate::Crash, Quorum::Available) => QuorumRule::Available,
            (Tolerate::Crash, Quorum::Majority) => QuorumRule::Majority,
        }
    }
}

/// A manifest that was read, and whose signature has not been checked yet. It may be read and
/// shown; no peer joins a run by it.
#[derive(Clone, Debug, PartialEq)]
pub struct Unverified {
    run: Run,
    table: Table,
    signature: Option<Signature>,
}

/// A manifest that its organiser signed. Only [`Unverified::verify`] makes one, so a function that
/// takes one need not ask who wrote it.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    run: Run,
    id: RunId,
}

/// Why a text is not a manifest that can be used. Its author must change it.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum ManifestError {
    /// The text is longer than [`TEXT_BYTES_MAX`] and was not read.
    #[error("the manifest has more than {TEXT_BYTES_MAX} bytes")]
    TooLong,
    /// The text of the manifest is not TOML.
    #[error("line {line} of the manifest is not TOML: {why}")]
    Syntax {
        /// The line of the first error, counted from 1.
        line: usize,
        /// What the parser expected there.
        why: String,
    },
    /// The manifest has a format that this program does not know, so its keys may have another meaning.
    #[error(
        "the manifest has format {found}, this program reads {FORMAT}: \
         it was made by a newer version, update intellect-node"
    )]
    Newer {
        /// The format that the manifest has.
        found: i64,
    },
    /// A key is unknown, missing or wrong.
    #[error(transparent)]
    Table(#[from] intellect_table::Error),
    /// The caller's `work` is longer than a manifest may say.
    #[error("the work takes {bytes} bytes: at most {WORK_BYTES_MAX} are allowed")]
    Work {
        /// The length of the caller's bytes.
        bytes: usize,
    },
    /// The manifest has no key `signature`.
    #[error("the manifest is not signed: `intellect-node manifest new --key FILE` signs one")]
    Unsigned,
    /// A signature that is not the organiser's over this manifest.
    #[error(
        "the signature is not the organiser's over this manifest: it was changed after signing, \
         and a change takes a new one, by `intellect-node manifest new`"
    )]
    Signature,
}

/// Reads a manifest, of which the signature is not verified yet.
///
/// # Errors
/// The first thing that is wrong, with what to write instead.
pub fn parse(text: &str) -> Result<Unverified, ManifestError> {
    require(text.len() <= TEXT_BYTES_MAX, ManifestError::TooLong)?;
    let table: Table = text.parse().map_err(|error| ManifestError::syntax(text, &error))?;
    // This comes first, because a newer format may have other keys.
    let format = table.get("format").and_then(toml::Value::as_integer);
    if let Some(found) = format.filter(|format| u64::try_from(*format).is_ok_and(|f| f > FORMAT)) {
        return Err(ManifestError::Newer { found });
    }
    let (run, signature) = tables::read(&table)?;
    Ok(Unverified { run, table, signature })
}

/// Describes each key, except those of the work, with what `manifest new` proposes for organiser and seed 0.
pub fn keys() -> Vec<Description> {
    tables::described(&Run::new(PeerId([0; 32]), 0))
}

impl ManifestError {
    /// The error of a parser about this text, without its excerpt of the text.
    #[must_use]
    pub fn syntax(text: &str, error: &toml::de::Error) -> Self {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let line = 1 + before.matches('\n').count();
        Self::Syntax { line, why: error.message().to_owned() }
    }
}

impl Unverified {
    /// The settings, which anyone may have written.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// The whole file as it was read, for the reader of `[model]`, `[data]`, `[train]`.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Checks the organiser's signature; `work` stands for the tables that are not read here.
    ///
    /// # Errors
    /// No signature, or one that is not the organiser's over these very settings and this work.
    pub fn verify(self, work: &[u8]) -> Result<Manifest, ManifestError> {
        let signature = self.signature.ok_or(ManifestError::Unsigned)?;
        let bytes = work.len();
        require(bytes <= WORK_BYTES_MAX, ManifestError::Work { bytes })?;
        let (id, bytes) = self.run.identify(work);
        let signed = verify(&self.run.organiser, TAG, &id, &bytes, &signature);
        require(signed, ManifestError::Signature)?;
        Ok(Manifest { run: self.run, id })
    }
}

impl Manifest {
    /// The settings that the organiser signed.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// The id of the run with these settings.
    pub fn id(&self) -> RunId {
        self.id
    }
}

impl Run {
    /// The settings that `manifest new` proposes.
    #[must_use]
    pub fn new(organiser: PeerId, seed: u64) -> Self {
        Self {
            name: "demo".to_owned(),
            organiser,
            seed,
            stop_tokens: 0,
            genesis: None,
            epoch: Epoch::new(Budget::Steps, 15),
            // Those of MuLoCo (arXiv 2505.23725); the ramp is a guess. docs/MATH.md has others.
            outer: Outer { lr: 0.7, momentum: 0.6, momentum_ramp_epochs: 10 },
            ring: Ring { codec: Codec::Int8 },
            members: Members {
                min_peers: 2,
                quorum: Quorum::Available,
                founders: Vec::new(),
                tolerate: Tolerate::Crash,
                heartbeat: Duration::from_millis(500),
                ready_grace: Duration::from_secs(30),
                minority_grace: Duration::from_secs(8),
            },
            trust: Trust::default(),
        }
    }

    /// The id of a run with these settings and this work.
    pub fn id(&self, work: &[u8]) -> RunId {
        self.identify(work).0
    }

    /// The organiser's signature under a manifest with this work. It signs whatever the settings
    /// are; [`parse`] and [`Unverified::verify`] check the result like that of anybody else.
    #[must_use]
    pub fn sign(&self, work: &[u8], organiser: &Keypair) -> Signature {
        let (id, bytes) = self.identify(work);
        organiser.sign(TAG, &id, &bytes)
    }

    /// The manifest as text, every field written out; `tables` holds `[model]`, `[data]`, `[train]`.
    pub fn to_toml(&self, tables: &Table, signature: Option<&Signature>) -> String {
        tables::to_text(self, tables, signature)
    }

    /// Tokens of one epoch's budget, for a model that takes `tokens_per_step` in an inner step;
    /// `None` when seconds bound it.
    pub fn epoch_tokens(&self, tokens_per_step: u64) -> Option<u64> {
        match self.epoch.budget {
            Budget::Steps => Some(self.epoch.amount.saturating_mul(tokens_per_step)),
            Budget::Tokens => Some(self.epoch.amount),
            Budget::Seconds => None,
        }
    }

    /// What one peer can do in an epoch, for a model that takes `tokens_per_step` in an inner step.
    /// It bounds each weight that a peer may declare, at eight epochs' work (G11).
    pub fn capacity(&self, tokens_per_step: u64) -> Capacity {
        let Epoch { tokens_max, .. } = self.epoch;
        self.epoch_tokens(tokens_per_step).map_or(Capacity::Timed { tokens_max }, Capacity::Counted)
    }

    /// The id, and the bytes that it is made of.
    fn identify(&self, work: &[u8]) -> (RunId, Vec<u8>) {
        let bytes = tables::canonical(self, work);
        (RunId(Digest::derive("intellect-node 1 run", &bytes).0), bytes)
    }
}

/// The domain tag of the organiser's signature.
const TAG: &str = "manifest";

/// The names of a manifest's tables, in their order.
pub const TABLES: [&str; 8] =
    ["model", "data", "train", "epoch", "outer", "ring", "members", "trust"];

/// Tokens that `manifest new` lets a peer have for each second of an epoch: far above what any machine trains
/// on today; guess.
pub const TOKENS_PER_SECOND_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests;
