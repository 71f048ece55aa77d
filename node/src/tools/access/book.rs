//! `invites.toml`, beside an organiser's key: the invites that it has made, so that a person can
//! name one.
//!
//! It contains nothing secret: labels and public keys, what each invite allows, and for which run.
//! A lost code cannot be made again from it. Entries are only ever appended.
//!
//! One file serves all runs of a key, so each entry names its run and a label is unique only within
//! one. The run itself knows an invite by its public key; a label in the terms is signed with it,
//! but only this file finds the key by the label before somebody has used the invite.

use std::{
    collections::BTreeSet,
    fs::OpenOptions,
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use intellect_protocol::{
    base::id::{PeerId, RunId},
    message::Terms,
};
use serde::Deserialize;

use super::AccessError;
use crate::os::{cannot, unless_missing};

/// The list of invites beside a key.
#[derive(Debug)]
pub(super) struct Book {
    /// The file, which need not exist yet.
    path: PathBuf,
    /// The entries of all runs, in the order in which they were noted.
    entries: Vec<Entry>,
}

/// One invite, as a table of the file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    /// RunId of the run that it is for, 64 hex digits.
    run: String,
    /// Its label, unique among the invites of the run in this file.
    pub(super) label: String,
    /// Its public key, 64 hex digits.
    key: String,
    /// How many peers may join by it.
    pub(super) uses: u32,
    /// When it expires, in Unix seconds; 0 for never.
    pub(super) expires: u64,
    /// The last epoch in which it admits a peer; 0 for any.
    pub(super) until_epoch: u64,
}

/// The whole file, as TOML reads it.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entries {
    #[serde(default)]
    invite: Vec<Entry>,
}

impl Book {
    /// The list in the folder of `key`; without a file it is empty.
    ///
    /// # Errors
    /// [`AccessError::Book`] if a person has damaged it: to go on without it could give two invites
    /// one label.
    pub(super) fn beside(key: &Path) -> Result<Self, AccessError> {
        let path = key.with_file_name("invites.toml");
        let text = unless_missing(std::fs::read_to_string(&path)).map_err(cannot("read", &path))?;
        let read = toml::from_str::<Entries>(&text.unwrap_or_default());
        let Entries { invite: entries } = read.map_err(|error| AccessError::Book {
            path: path.clone(),
            why: error.message().to_owned(),
        })?;
        Ok(Self { path, entries })
    }

    /// The path of the file, for sentences about it.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The invites for one run, in the order in which they were noted.
    pub(super) fn of(&self, run: RunId) -> impl Iterator<Item = &Entry> {
        let run = run.hex();
        self.entries.iter().filter(move |entry| entry.run == run)
    }

    /// A label that no invite for `run` has: the one that was typed, or one with the next free
    /// number. Whether its letters are allowed is checked with the other terms. A revoked invite
    /// keeps its label, so that a label always means the same one.
    pub(super) fn label(&self, run: RunId, wanted: Option<&str>) -> Result<String, AccessError> {
        let taken: BTreeSet<&str> = self.of(run).map(|entry| entry.label.as_str()).collect();
        let Some(label) = wanted else {
            let mut labels = (1..=taken.len() + 1).map(|number| format!("invite-{number}"));
            let free = labels.find(|label| !taken.contains(label.as_str()));
            return Ok(free.unwrap_or_default());
        };
        if taken.contains(label) {
            return Err(AccessError::Label { label: label.to_owned(), path: self.path.clone() });
        }
        Ok(label.to_owned())
    }

    /// Appends an invite, unless it is there already; it is flushed when this returns. The caller
    /// prints the code only afterwards: an invite that is handed out can be revoked by its label,
    /// also after a power cut.
    pub(super) fn note(&mut self, run: RunId, terms: &Terms) -> Result<(), AccessError> {
        let entry = Entry::of(run, terms);
        if self.entries.contains(&entry) {
            return Ok(());
        }
        let append = || -> io::Result<()> {
            let mut open = OpenOptions::new();
            let mut file = open.append(true).create(true).mode(0o600).open(&self.path)?;
            // One write, so that two programs do not write into each other's entries.
            file.write_all(entry.to_text().as_bytes())?;
            file.sync_all()
        };
        append().map_err(cannot("write", &self.path))?;
        self.entries.push(entry);
        Ok(())
    }
}

impl Entry {
    /// The entry of an invite with these terms.
    pub(super) fn of(run: RunId, terms: &Terms) -> Self {
        let Terms { key, uses, until_epoch, expires, label } = terms.clone();
        Self { run: run.hex(), label, key: key.hex(), uses, expires, until_epoch }
    }

    /// The invite's public key; `None` if a person has damaged it. Such an entry is listed nowhere,
    /// and names no invite.
    pub(super) fn key(&self) -> Option<PeerId> {
        PeerId::from_hex(&self.key)
    }

    /// The entry as text, on lines of its own even if a person has taken the last line's end away.
    /// No value needs escapes, since labels and digits have no quotation marks.
    fn to_text(&self) -> String {
        let Self { run, label, key, uses, expires, until_epoch } = self;
        format!(
            "\n[[invite]]\nrun = \"{run}\"\nlabel = \"{label}\"\nkey = \"{key}\"\nuses = {uses}\n\
             expires = {expires}\nuntil_epoch = {until_epoch}\n"
        )
    }
}
