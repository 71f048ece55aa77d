//! `invite …`: who may take part in a run of invited peers, as its authorities decide it.

mod book;
mod invite;

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use intellect_protocol::{
    admit::{Authorities, Denied},
    id::RunId,
    manifest::Level,
    sign::Keypair,
};

use crate::{
    cli::admit::InviteCommand,
    config::{LocalError, code::GivenError},
    identity::{Identity, IdentityError},
    manifest::{LoadError, Manifest},
    os::PathError,
};

/// Why one of these commands did not succeed. Nothing has been decided.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AdmitError {
    /// Something on the command line cannot be meant.
    #[error(transparent)]
    Usage(#[from] LocalError),
    /// A code that was given cannot be read.
    #[error(transparent)]
    Given(#[from] GivenError),
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
    /// Whoever signs has no say.
    #[error(
        "{} is the key of {key}, which is none of the {count} authorities of run {run}: take the key of one \
         that `intellect-node manifest show` names",
        path.display()
    )]
    NoAuthority {
        /// The file.
        path: PathBuf,
        /// Its public key.
        key: String,
        /// As many are named.
        count: usize,
        /// The run.
        run: RunId,
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
    /// The book of invites is damaged.
    #[error(
        "{} cannot be used ({why}): mend that line, or move the file away; what it lists can then be \
         revoked by its key only, as `intellect-node invite list` tells it",
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
    }
}

/// A run of invited peers, and who signs for it by its manifest.
fn invited(path: &Path) -> Result<(Manifest, Authorities), AdmitError> {
    let manifest = Manifest::load(path)?;
    match &manifest.run.trust.level {
        Level::Open => Err(AdmitError::Open { path: path.to_owned() }),
        Level::Invited(authorities) => {
            let authorities = authorities.clone();
            Ok((manifest, authorities))
        }
    }
}

/// The key in `path`, of one of the authorities.
fn authority(
    path: &Path,
    manifest: &Manifest,
    authorities: &Authorities,
) -> Result<Keypair, AdmitError> {
    let key = Identity::load(path)?.keypair();
    if authorities.keys.contains(&key.peer()) {
        return Ok(key);
    }
    Err(AdmitError::NoAuthority {
        path: path.to_owned(),
        key: key.peer().hex(),
        count: authorities.keys.len(),
        run: manifest.id,
    })
}

#[cfg(test)]
mod tests;
