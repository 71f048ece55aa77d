//! `invite …`: the organiser decides who may take part in a run of invited peers.
//!
//! Three things are signed here, all by the organiser's key and all for one run: an invite or a
//! ticket (`invite new`, offline), a membership notice (`invite revoke` and `admit`) and an
//! attestation ([`vouch`]). Notices form a chain: each names the one before. So before one is
//! signed the run is asked for those that it has ([`visitor`]), and afterwards the notice is handed
//! to members, who spread it. Nothing here has a vote: when a notice takes effect the voters
//! decide, by a roster that carries it (T5).
//!
//! What was made is noted in two files that a person keeps. `invites.toml` beside the key has the
//! names of invites ([`book`]), and `.notices` beside the manifest has the chain ([`notices`]),
//! from where a bootstrap hands it out.

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
    cli::access::InviteCommand,
    config::LocalError,
    identity::{Identity, IdentityError},
    manifest::{LoadError, Manifest},
    name::PeerName,
    net::NetError,
    os::PathError,
    tools::stored::StoredError,
};

/// Why one of these commands did not succeed. Unless the variant says otherwise, no notice was
/// signed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AccessError {
    /// The command line makes no sense.
    #[error(transparent)]
    Usage(#[from] LocalError),
    /// The organiser's key cannot be read. Its message names the file and how to mend it.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The manifest cannot be read.
    #[error(transparent)]
    Manifest(#[from] LoadError),
    /// The run is open: no peer needs an invite. The level of a run never changes, since it is part
    /// of the RunId; a new run can go on from its state.
    #[error(
        "{} is of an open run, which anybody may join: `intellect-node manifest new --invited` makes a run \
         of invited peers, with --from-run DATA_DIR one that continues this run",
        path.display()
    )]
    Open { path: PathBuf },
    /// The invite cannot be made as it was typed. A label with forbidden letters for example;
    /// nothing was noted.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// An invite for this run has that label already.
    #[error("--label {label}: {} has an invite of that name already: choose another one", path.display())]
    Label { label: String, path: PathBuf },
    /// No invite for this run has that label.
    #[error(
        "--invite {label}: {} has no invite of that name for this run{}; one that was made elsewhere can be \
         named by the 64 digits of its key", path.display(), known(labels)
    )]
    NoInvite {
        label: String,
        path: PathBuf,
        /// The labels that it has for this run.
        labels: Vec<String>,
    },
    /// The peer to revoke is in no receipt. It has not come yet, or its name has a typing error.
    #[error(
        "no receipt in {} names {peer}: compare the name with `intellect-node invite list`, or add --unseen if the \
         peer came after epoch {last}, the last one there, or has not come yet",
        folder.display()
    )]
    Unseen {
        /// The folder of the run, where the receipts are.
        folder: PathBuf,
        peer: PeerName,
        /// The last epoch that they prove.
        last: u64,
    },
    /// The manifest to keep a notice beside is of another run than the folder.
    #[error(
        "--manifest {}: it is of run {of}, and the folder has run {run}: name the manifest of run {run}",
        path.display()
    )]
    OtherManifest { path: PathBuf, of: RunId, run: RunId },
    /// The file to keep a notice in has notices of another run. It was not changed.
    #[error(
        "{} has notices of run {of}, and its place is that of the notices of run {run}: move it beside the \
         manifest of run {of}",
        path.display()
    )]
    OtherNotices { path: PathBuf, of: RunId, run: RunId },
    /// The notice does not fit the chain of the run's notices. It was not stored, and no member has
    /// seen it.
    #[error(transparent)]
    Notice(#[from] NoticeError),
    /// The network cannot be started.
    #[error(transparent)]
    Net(#[from] NetError),
    /// The system refused to create threads.
    #[error("cannot start")]
    Runtime(#[source] io::Error),
    /// The notice was signed and stored, but no member could be reached. It takes effect only once
    /// somebody hands it out.
    #[error(
        "no member of run {run} was reached{}: check that the address is right and that the run goes on. Notice \
         {number} is in {}; an `intellect-bootstrap` with the manifest beside it hands it out",
        why.as_ref().map_or_else(String::new, |why| format!(" ({why})")), notices.display()
    )]
    Nobody {
        run: RunId,
        number: u64,
        /// The error of the entry point, if it gave one.
        why: Option<String>,
        /// The file that has the notice.
        notices: PathBuf,
    },
    /// The members that answered refuse the notice. It is stored all the same; the reason says what
    /// to do.
    #[error("the members of the run refuse notice {number}: {why}")]
    Refused {
        number: u64,
        /// The reason, in the words of one of them.
        why: String,
    },
    /// The lineage has another notice of that number. Ours can never take effect then, and is taken
    /// out of the file again.
    #[error(
        "another notice {number} was signed at the same time and came first: type the same line again"
    )]
    Overtaken { number: u64 },
    /// Members have the notice, but it was not in force before `--wait` was over. Nothing is to be
    /// done but to wait: a later epoch carries it by itself.
    #[error(
        "notice {number} is not in force yet, but the run's members have it, and a later epoch will carry it; the \
         run is at epoch {epoch}. --wait waits longer"
    )]
    Waited {
        number: u64,
        /// The epoch that the run is at.
        epoch: u64,
    },
    /// The key that was typed is not the organiser's.
    #[error(
        "{} is the key of {key}, and only the organiser signs for a run, here {organiser}: use that key",
        path.display()
    )]
    NotTheOrganiser {
        path: PathBuf,
        /// Its public key, 64 hex digits.
        key: String,
        /// The organiser's public key, 64 hex digits.
        organiser: String,
    },
    /// The folder has no such run, or no such state.
    #[error(transparent)]
    Stored(#[from] StoredError),
    /// The folder does not have the epoch that was typed.
    #[error("--epoch {epoch}: the folder has the epochs up to {last}: choose one of them, or wait")]
    NoEpoch {
        epoch: u64,
        /// The last epoch in the folder.
        last: u64,
    },
    /// The folder ends before the epoch that was attested before, so nobody can tell whether it is
    /// on that lineage.
    #[error(
        "the folder ends at epoch {last}, and notice {number} attests epoch {epoch}: start its node, so that it \
         catches up first"
    )]
    Behind {
        /// The last epoch in the folder.
        last: u64,
        /// The number of the earlier attestation.
        number: u64,
        epoch: u64,
    },
    /// The epoch is not later than the one that was attested before. Attested epochs rise.
    #[error(
        "an attestation has to be of a later epoch than the one before, and notice {number} attests epoch \
         {epoch}: choose a later epoch with --epoch, or wait for one"
    )]
    NotLater {
        /// The number of the earlier attestation.
        number: u64,
        epoch: u64,
    },
    /// The folder follows another lineage than the one that was attested before.
    #[error(
        "notice {number} attests another state after epoch {epoch} than this folder has: name the folder of a \
         node that follows it"
    )]
    OtherLineage {
        /// The number of the earlier attestation.
        number: u64,
        epoch: u64,
    },
    /// No member took the notice, and there is no manifest to keep it beside. It exists nowhere
    /// after this error. The same line makes it again.
    #[error(
        "no member has accepted notice {number}: name the run's manifest with --manifest, so that the notice is \
         kept beside it and handed out by its bootstrap"
    )]
    Lost { number: u64 },
    /// The file `invites.toml` makes no sense. A person has changed it, since this program only
    /// appends whole entries.
    #[error(
        "{} cannot be used ({why}): correct that line, or move the file away; its invites can then be revoked \
         only by the digits of their keys",
        path.display()
    )]
    Book { path: PathBuf, why: String },
    /// A file cannot be read or written.
    #[error(transparent)]
    Io(#[from] PathError),
    /// The system has no random numbers.
    #[error("the system gives no random numbers")]
    Random(#[source] io::Error),
    /// Standard output is closed, or its disk is full.
    #[error("cannot write to standard output")]
    Output(#[from] io::Error),
}

/// Runs a subcommand of `invite`. `out` gets a line for each thing that happened, the last one for
/// the person to use.
pub(crate) fn run(command: &InviteCommand, out: &mut dyn Write) -> Result<(), AccessError> {
    match command {
        InviteCommand::New(args) => invite::make(args, out),
        InviteCommand::Revoke(args) => update::revoke(args, out),
        InviteCommand::Admit(args) => update::admit(args, out),
        InviteCommand::List(args) => list::list(args, out),
    }
}

/// The labels that a person may have meant, as the end of a clause.
fn known(labels: &[String]) -> String {
    if labels.is_empty() { String::new() } else { format!(" but {}", labels.join(", ")) }
}

/// Reads a manifest, which must be that of a run of invited peers.
fn invited(path: &Path) -> Result<Manifest, AccessError> {
    let manifest = Manifest::load(path)?;
    match manifest.run.trust.level {
        Level::Open => Err(AccessError::Open { path: path.to_owned() }),
        Level::Invited => Ok(manifest),
    }
}

/// Reads the key at `path`, which must be the organiser's. A notice or an invite by any other key
/// would be refused by every peer, so it is refused here, before anything is signed.
fn organiser(path: &Path, manifest: &Manifest) -> Result<Keypair, AccessError> {
    let key = Identity::load(path)?.keypair();
    if key.peer() == manifest.run.organiser {
        return Ok(key);
    }
    let (key, organiser) = (key.peer().hex(), manifest.run.organiser.hex());
    Err(AccessError::NotTheOrganiser { path: path.to_owned(), key, organiser })
}

#[cfg(test)]
mod tests;
