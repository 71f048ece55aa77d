//! A run's manifest as the node sees it: the settings that the protocol reads, the work that the
//! model reads, and the organiser's signature over both.
//!
//! The two leaves do not know each other; here the work's canonical bytes go from one to the
//! other. A [`Manifest`] exists only verified, wherever its text came from; a [`Draft`] is what an
//! organiser still changes.
//!
//! A text becomes a [`Manifest`] in three steps: `protocol` reads its own tables and hands on the
//! rest, [`Work`] reads `[model]`, `[data]` and `[train]` and makes canonical bytes of them, and
//! `protocol` checks the organiser's signature over both. So neither leaf can be given settings
//! that the other one has not accepted, and the RunId covers all of them.

use std::{
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
};

use intellect_model::{
    config::{Vocabulary, Work},
    outer::Outer,
};
use intellect_protocol::{
    base::{
        id::{PeerId, RunId},
        rule::Rules,
        sign::Keypair,
    },
    history::lineage::Validator,
    manifest::{self, Budget, ManifestError, Run},
    ring::codec::Codec,
};
use intellect_table::Named as _;
use toml::{Table, Value};

use crate::{
    identity::Identity,
    os::{PathError, cannot},
    preset::Preset,
};

/// A manifest whose signature was verified. The only ways to make one are [`Self::parse`] and what
/// ends in it, so code that has one need not check it again.
#[derive(Clone, Debug)]
pub(crate) struct Manifest {
    /// The settings that the protocol reads.
    pub(crate) run: Run,
    /// The settings that the model reads.
    pub(crate) work: Work,
    /// The run's id, made of all settings.
    pub(crate) id: RunId,
    /// The signed text, as it is served and stored. It is never written anew from the fields: each
    /// peer hands on the bytes that it got.
    pub(crate) text: String,
}

/// A manifest that is being written and is not signed yet. It is a plain TOML table, so that
/// `--set` may name any key before anybody knows whether it exists. [`Self::sign`] finds that out.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    table: Table,
}

/// Why a file is not a manifest that can be used. The user who named it can name another one.
/// Nothing has been written or sent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    /// The system cannot read the file.
    #[error(transparent)]
    Io(#[from] PathError),
    /// The file is empty, or is not text. It tells apart what a person confuses easily, such as a
    /// checkpoint, from a manifest with a mistake.
    #[error(
        "{} is not a manifest, for it {what}: make one with `intellect-node manifest new`",
        path.display()
    )]
    NoText {
        /// The file that was read or written.
        path: PathBuf,
        /// Either "is empty" or "is no text".
        what: &'static str,
    },
    /// The file is the organiser's secret key, which lies beside the manifest. Nothing of it is
    /// printed.
    #[error("{} is a key, not a manifest: keep it secret", path.display())]
    Key {
        /// The file that was read or written.
        path: PathBuf,
    },
    /// The text is wrong, or its signature is missing or wrong.
    #[error("{} is not a manifest that can be used: {why}", path.display())]
    Wrong {
        /// The file that was read or written.
        path: PathBuf,
        /// What its author must change.
        why: Box<ReadError>,
    },
}

/// Why a manifest cannot be used. Its author must change it. The author may be a stranger, since
/// entry points hand out manifests of others; `doctor` for one skips those that do not verify.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    /// The text as a whole, or the signature, is wrong.
    #[error(transparent)]
    Run(ManifestError),
    /// A key is missing, does not apply, or has a wrong value.
    #[error(transparent)]
    Table(intellect_table::Error),
    /// A key that no table of a manifest has. Both leaves refuse such keys, and the nearest known
    /// key of either is named.
    #[error("unknown key {key}: {}", suggestion(key))]
    UnknownKey {
        /// The key as written, behind its table.
        key: String,
    },
}

impl From<ManifestError> for ReadError {
    fn from(error: ManifestError) -> Self {
        match error {
            ManifestError::Table(error) => error.into(),
            error => Self::Run(error),
        }
    }
}

impl From<intellect_table::Error> for ReadError {
    fn from(error: intellect_table::Error) -> Self {
        match error {
            intellect_table::Error::UnknownKey { key } => Self::UnknownKey { key },
            error => Self::Table(error),
        }
    }
}

/// Why a draft cannot become a manifest. Nothing has been written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DraftError {
    /// The argument does not have the form key=value.
    #[error("--set {text}: write it as key=value, as in --set model.layers=6")]
    Assignment {
        /// The text as it was typed.
        text: String,
    },
    /// The key stands below something that is not a table.
    #[error("--set {text}: {part} has no keys below it")]
    NoTable {
        /// The text as it was typed.
        text: String,
        /// The part of the key that is not a table.
        part: String,
    },
    /// The manifest names another organiser than the owner of the key.
    #[error("the manifest names another organiser than {peer}, whose key is to sign it")]
    Organiser {
        /// The key's owner, as a manifest writes it.
        peer: String,
    },
    /// The values do not make a manifest.
    #[error(transparent)]
    Read(#[from] ReadError),
}

impl Manifest {
    /// The outer optimiser, as the model crate computes it. The two crates do not know each other,
    /// so each has a type of these three numbers.
    pub(crate) fn outer(&self) -> Outer {
        let manifest::Outer { lr, momentum, momentum_ramp_epochs } = self.run.outer;
        Outer { lr, momentum, momentum_ramp_epochs }
    }

    /// What every check of a message or a link needs to know about the run; `key` is this node's. A
    /// program that only verifies may give any key, since nothing is signed by a check.
    pub(crate) fn validator(&self, key: Keypair) -> Validator {
        let Run { members, trust, organiser, .. } = &self.run;
        Validator {
            run: self.id,
            key,
            peers_min: usize::try_from(members.min_peers).unwrap_or(usize::MAX),
            quorum: members.rule(),
            elements: self.work.model.parameter_count(),
            capacity: self.run.capacity(self.work.tokens_per_step()),
            level: trust.level,
            organiser: *organiser,
            rules: Rules::ALL,
        }
    }

    /// Reads and verifies a manifest that anybody may have written.
    ///
    /// # Errors
    /// The first mistake that is found; see [`ReadError`]. The signature is checked last, for it
    /// covers the other bytes.
    pub(crate) fn parse(text: &str) -> Result<Self, ReadError> {
        let unverified = manifest::parse(text)?;
        let work = Work::parse(unverified.table())?;
        let verified = unverified.verify(&work.canonical())?;
        let (run, id) = (verified.run().clone(), verified.id());
        Ok(Self { run, work, id, text: text.to_owned() })
    }

    /// The tokenizer that the run's token files were made with; `None` where it has no such files.
    pub(crate) fn vocabulary(&self) -> Option<&Vocabulary> {
        self.work.data.vocabulary()
    }

    /// Reads and verifies the manifest in a file. At most one byte more than a manifest may have is
    /// read.
    ///
    /// # Errors
    /// See [`LoadError`]. A secret key is recognised before anything of the file is quoted.
    pub(crate) fn load(path: &Path) -> Result<Self, LoadError> {
        let path = path.to_owned();
        let mut bytes = Vec::new();
        // One byte more than a manifest may have: the name may lead to an endless file.
        let limit = manifest::TEXT_BYTES_MAX as u64 + 1;
        let read = File::open(&path).and_then(|file| file.take(limit).read_to_end(&mut bytes));
        match read.map_err(cannot("read the manifest", &path))? {
            0 => return Err(LoadError::NoText { path, what: "is empty" }),
            read if read > manifest::TEXT_BYTES_MAX => {
                let why = Box::new(ManifestError::TooLong.into());
                return Err(LoadError::Wrong { path, why });
            }
            _ => {}
        }
        let Ok(text) = String::from_utf8(bytes) else {
            return Err(LoadError::NoText { path, what: "is no text" });
        };
        // This comes before any message that quotes a value of the file.
        if Identity::is_meant(&text) {
            return Err(LoadError::Key { path });
        }
        Self::parse(&text).map_err(|why| LoadError::Wrong { path, why: Box::new(why) })
    }
}

impl Draft {
    /// A draft with all fields of `run` and `work`. So `manifest new` writes every setting, and a
    /// manifest has no default that another version of the program could understand otherwise.
    pub(crate) fn new(run: &Run, work: &Work) -> Result<Self, ReadError> {
        let text = run.to_toml(&work.to_toml(), None);
        Ok(Self { table: manifest::parse(&text)?.table().clone() })
    }

    /// Takes over what a preset says, but for a vocabulary that is too small for data of `tokens`
    /// different tokens.
    pub(crate) fn begin_with(&mut self, preset: Preset, tokens: usize) -> Result<(), ReadError> {
        let syntax = |error| ManifestError::syntax(preset.text, &error);
        self.table.extend(preset.table().map_err(syntax)?);
        let model = self.table.get_mut("model").and_then(Value::as_table_mut);
        let vocab = model.and_then(|model| model.get_mut("vocab"));
        let needed = i64::try_from(tokens).unwrap_or(i64::MAX);
        if let Some(vocab) = vocab.filter(|vocab| vocab.as_integer() < Some(needed)) {
            *vocab = needed.into();
        }
        Ok(())
    }

    /// Sets one field to a value that needs no reading.
    pub(crate) fn put(&mut self, key: &str, value: impl Into<Value>) {
        self.table.insert(key.to_owned(), value.into());
    }

    /// Takes over the model of `work`. It replaces all of `[model]`, also what a preset has put
    /// there.
    pub(crate) fn put_model(&mut self, work: &Work) {
        let model = work.to_toml().remove("model");
        self.table.extend(model.map(|model| ("model".to_owned(), model)));
    }

    /// Sets one field from `key=value`, where `key` is written with dots and `value` as TOML; a
    /// value that is not TOML is text. Signing checks whether the field exists and the value fits.
    pub(crate) fn set(&mut self, assignment: &str) -> Result<(), DraftError> {
        let wrong = || DraftError::Assignment { text: assignment.to_owned() };
        let (key, value) = assignment.split_once('=').ok_or_else(wrong)?;
        let (key, value) = (key.trim(), value.trim());
        let mut path = key.split('.');
        let last = path.next_back().unwrap_or_default();
        if last.is_empty() {
            return Err(wrong());
        }
        let mut table = &mut self.table;
        for part in path {
            let below = table.entry(part).or_insert_with(|| Table::new().into());
            table = below.as_table_mut().ok_or_else(|| DraftError::NoTable {
                text: assignment.to_owned(),
                part: part.to_owned(),
            })?;
        }
        table.insert(last.to_owned(), read_value(value));
        Ok(())
    }

    /// Checks every field and signs. The result is parsed again from the text that is signed, so
    /// what this returns is what every peer will read. For epochs of so many seconds without
    /// `epoch.tokens_max` the most that a peer could train in that time is written as that bound.
    ///
    /// # Errors
    /// [`DraftError::Organiser`] if `--set organiser=…` names another key; else what a reader of
    /// the manifest would say.
    pub(crate) fn sign(self, organiser: &Keypair) -> Result<Manifest, DraftError> {
        let text = self.table.to_string();
        let unsigned = manifest::parse(&text).map_err(ReadError::from)?;
        let work = Work::parse(unsigned.table()).map_err(ReadError::from)?;
        let mut run = unsigned.run().clone();
        if let (Budget::Seconds, None) = (run.epoch.budget, run.epoch.tokens_max) {
            let most = run.epoch.amount.saturating_mul(manifest::TOKENS_PER_SECOND_MAX);
            run.epoch.tokens_max = Some(most);
        }
        let peer: PeerId = organiser.peer();
        if run.organiser != peer {
            return Err(DraftError::Organiser { peer: peer.hex() });
        }
        let signature = run.sign(&work.canonical(), organiser);
        Ok(Manifest::parse(&run.to_toml(&work.to_toml(), Some(&signature)))?)
    }
}

/// The name of a codec in a manifest. Sentences for people use the same word.
pub(crate) fn codec_name(codec: Codec) -> &'static str {
    codec.entry().0
}

/// What the author of an unknown key may have meant: the nearest known one. The last part counts
/// first, so that `layers` finds `model.layers`. A suggestion that differs in more than half of the
/// letters of that part is none.
fn suggestion(key: &str) -> String {
    let last = |key: &str| key.rsplit('.').next().unwrap_or_default().to_owned();
    let away = |known: &String| {
        (strsim::levenshtein(&last(known), &last(key)), strsim::levenshtein(known, key))
    };
    let keys = manifest::keys().into_iter().chain(Work::keys()).map(|known| known.key);
    let known = keys.chain(manifest::TABLES.map(str::to_owned));
    match known.min_by_key(away) {
        Some(near) if 2 * away(&near).0 <= last(key).len() => format!("did you mean {near}?"),
        _ => "`manifest new` writes every key that there is".to_owned(),
    }
}

/// Reads a value as TOML, or else as text, so that `--set ring.codec=f32` needs no quotes.
fn read_value(text: &str) -> Value {
    let line = format!("value = {text}");
    let read = line.parse::<Table>().ok().and_then(|mut table| table.remove("value"));
    read.unwrap_or_else(|| Value::String(text.to_owned()))
}

#[cfg(test)]
mod tests;
