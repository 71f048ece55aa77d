//! `invite …`: who may take part in a run of invited peers, as its organiser decides it.

mod book;
mod invite;
mod list;
mod notices;
mod update;
mod visitor;
pub(crate) mod vouch;

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use intellect_protocol::{
    access::{
        admit::{Denied, Level},
        notices::NoticeError,
    },
    base::{id::RunId, sign::Keypair},
};

use crate::{
    cli::admit::InviteCommand,
    config::LocalError,
    identity::{Identity, IdentityError},
    manifest::{LoadError, Manifest},
    net::NetError,
    os::PathError,
    tools::stored::StoredError,
};

/// Why one of these commands did not succeed. Nothing has been decided.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AdmitError {
    /// Something on the command line cannot be meant.
    #[error(transparent)]
    Usage(#[from] LocalError),
    /// The key cannot be read.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The manifest cannot be read.
    #[error(transparent)]
    Manifest(#[from] LoadError),
    /// Nobody needs an invite.
    #[error(
        "{} is of an open run, which anybody may join: `intellect-node manifest new --invited` makes a run \
         of invited peers, with --from-run DATA_DIR one that goes on with this run",
        path.display()
    )]
    Open {
        /// The manifest.
        path: PathBuf,
    },
    /// There is no such invite, or it cannot be used so.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// Two invites of one name could not be told apart.
    #[error("--label {label}: {} has an invite of that name already: choose another one", path.display())]
    Label {
        /// The name.
        label: String,
        /// The book.
        path: PathBuf,
    },
    /// No such invite.
    #[error(
        "--invite {label}: {} has no invite of that name for this run{}; one that was made elsewhere can be \
         named by the 64 digits of its key", path.display(), known(labels)
    )]
    NoInvite {
        /// What was typed.
        label: String,
        /// The book.
        path: PathBuf,
        /// What it has.
        labels: Vec<String>,
    },
    /// The notice cannot be.
    #[error(transparent)]
    Notice(#[from] NoticeError),
    /// The network cannot be used.
    #[error(transparent)]
    Net(#[from] NetError),
    /// The system refused a thread or signals.
    #[error("cannot start")]
    Runtime(#[source] io::Error),
    /// Nobody takes it.
    #[error(
        "no member of run {run} was reached{}: see that the address is right and the run goes on. Notice \
         {number} lies in {}; an `intellect-bootstrap` with the manifest beside it hands it out",
        why.as_ref().map_or_else(String::new, |why| format!(" ({why})")), notices.display()
    )]
    Nobody {
        /// The run.
        run: RunId,
        /// Its number.
        number: u64,
        /// What the entry point said.
        why: Option<String>,
        /// Where it is kept.
        notices: PathBuf,
    },
    /// Those who were asked refuse it.
    #[error("the members of the run do not take notice {number}: {why}")]
    Refused {
        /// Its number.
        number: u64,
        /// In the words of one of them.
        why: String,
    },
    /// Another notice of that number is in the lineage.
    #[error(
        "notice {number} of the run is another one, signed at the same time: type the same line again"
    )]
    Overtaken {
        /// Its number.
        number: u64,
    },
    /// It takes long.
    #[error(
        "notice {number} is not in force yet, but the run's members have it, and a later epoch carries it; the \
         run is at epoch {epoch}. --wait waits longer"
    )]
    Waited {
        /// Its number.
        number: u64,
        /// Where the run is.
        epoch: u64,
    },
    /// Whoever signs has no say.
    #[error(
        "{} is the key of {key}, and only the organiser signs for a run, here {organiser}: take that key",
        path.display()
    )]
    NotTheOrganiser {
        /// The file.
        path: PathBuf,
        /// Its public key.
        key: String,
        /// The organiser's.
        organiser: String,
    },
    /// No such run in the folder, or no such state.
    #[error(transparent)]
    Stored(#[from] StoredError),
    /// The folder does not have the epoch.
    #[error("--epoch {epoch}: the folder has the epochs up to {last}: choose one of them, or wait")]
    NoEpoch {
        /// What was asked for.
        epoch: u64,
        /// Its last one.
        last: u64,
    },
    /// The folder is of another lineage than the one that was attested.
    #[error(
        "notice {number} attests another state after epoch {epoch} than this folder has: name the folder of a \
         node that follows it"
    )]
    OtherLineage {
        /// The number of the attestation before.
        number: u64,
        /// Its epoch.
        epoch: u64,
    },
    /// Nobody takes it, and nobody keeps it.
    #[error(
        "no member takes notice {number}: name the run's manifest with --manifest, so that it is kept \
         beside it and handed out by its bootstrap"
    )]
    Lost {
        /// Its number.
        number: u64,
    },
    /// The book of invites is damaged.
    #[error(
        "{} cannot be used ({why}): mend that line, or move the file away; what it lists can then be \
         revoked by the digits of its key only",
        path.display()
    )]
    Book {
        /// The book.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A file cannot be read or written.
    #[error(transparent)]
    Io(#[from] PathError),
    /// The system has no random numbers.
    #[error("the system gives no random numbers")]
    Random(#[source] io::Error),
    /// Standard output is gone or full.
    #[error("cannot write to standard output")]
    Output(#[from] io::Error),
}

/// Runs one of them.
pub(crate) fn run(command: &InviteCommand, out: &mut dyn Write) -> Result<(), AdmitError> {
    match command {
        InviteCommand::New(args) => invite::make(args, out),
        InviteCommand::Revoke(args) => update::revoke(args, out),
        InviteCommand::Admit(args) => update::admit(args, out),
        InviteCommand::List(args) => list::list(args, out),
    }
}

fn known(labels: &[String]) -> String {
    if labels.is_empty() { String::new() } else { format!(" but {}", labels.join(", ")) }
}

/// A run of invited peers.
fn invited(path: &Path) -> Result<Manifest, AdmitError> {
    let manifest = Manifest::load(path)?;
    match manifest.run.trust.level {
        Level::Open => Err(AdmitError::Open { path: path.to_owned() }),
        Level::Invited => Ok(manifest),
    }
}

/// The organiser's key, which is in `path`.
fn organiser(path: &Path, manifest: &Manifest) -> Result<Keypair, AdmitError> {
    let key = Identity::load(path)?.keypair();
    if key.peer() == manifest.run.organiser {
        return Ok(key);
    }
    let (key, organiser) = (key.peer().hex(), manifest.run.organiser.hex());
    Err(AdmitError::NotTheOrganiser { path: path.to_owned(), key, organiser })
}

#[cfg(test)]
mod tests;
