//! Why somebody is not let in, or a decree is none: sentences that name the cause and what to do.

use thiserror::Error;

use super::DECREE_BYTES_MAX;
use crate::id::{PeerId, RunId};

/// Why a peer is not let in by what it shows. The sentence is for whoever wants to join.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Denied {
    /// It shows nothing.
    #[error(
        "this run takes invited peers only: ask its organiser ({organiser}) for an invite, and add --invite CODE"
    )]
    Uninvited {
        /// Whom to ask.
        organiser: PeerId,
    },
    /// An invite for another run.
    #[error(
        "this invite is for run {of}, not for {run}: take --run {of}, or ask for an invite to {run}"
    )]
    AnotherRun {
        /// The run that is to be joined.
        run: RunId,
        /// The run of the invite.
        of: RunId,
    },
    /// A ticket that somebody else has made, or that is made out to somebody else.
    #[error(
        "this ticket is made out to {peer}: each peer needs its own, from an invite code or the organiser"
    )]
    AnotherPeer {
        /// Whose it is.
        peer: PeerId,
    },
    /// Fewer signatures than it takes.
    #[error(
        "{found} of the run's authorities have signed this, {needed} must: ask its organiser for a new invite"
    )]
    Unsigned {
        /// Good signatures.
        found: usize,
        /// As many as it takes.
        needed: usize,
    },
    /// The invite's key has not signed the ticket, or the invite under it.
    #[error(
        "the key of the invite has not signed this ticket: make one from the invite code, with --invite CODE"
    )]
    NotByTheInvite,
    /// No invite can be so.
    #[error("this invite cannot be: {why}; ask the organiser for a new one")]
    Malformed {
        /// What is wrong.
        why: &'static str,
    },
    /// As many have come by it as may.
    #[error("this invite has been used {spent} of {uses} times: ask for another one")]
    Used {
        /// How many came.
        spent: u32,
        /// How many may.
        uses: u32,
    },
    /// Too late, by the run's epochs.
    #[error(
        "this invite was good until epoch {until_epoch}, and the run is at {epoch}: ask for a new one"
    )]
    Over {
        /// The last epoch.
        until_epoch: u64,
        /// The epoch that was to admit it.
        epoch: u64,
    },
    /// Too late, by the clock.
    #[error(
        "this invite expired at {expires} (Unix seconds): ask for a new one, or check this machine's clock"
    )]
    Expired {
        /// When.
        expires: u64,
    },
    /// The invite, or the one it is under, was revoked.
    #[error("this invite was revoked by decree {decree} in epoch {epoch}: ask for a new one")]
    InviteRevoked {
        /// By which decree.
        decree: u64,
        /// In whose receipt.
        epoch: u64,
    },
    /// The peer was revoked.
    #[error(
        "this peer was revoked by decree {decree} in epoch {epoch}: only the organiser can lift that"
    )]
    PeerRevoked {
        /// By which decree.
        decree: u64,
        /// In whose receipt.
        epoch: u64,
    },
    /// The ledger has no room.
    #[error("the run's ledger is full: its organiser has to forget peers that are gone")]
    Full,
}

/// Why a decree is none. Its author must change it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum DecreeError {
    /// For another run.
    #[error("the decree is for run {of}, not for {run}: sign one for this run")]
    AnotherRun {
        /// This run.
        run: RunId,
        /// The decree's.
        of: RunId,
    },
    /// Another place in the chain.
    #[error(
        "the decree has number {found}, the next one is {next}: fetch the run's decrees, and sign anew"
    )]
    Number {
        /// Its number.
        found: u64,
        /// The number that follows.
        next: u64,
    },
    /// It follows on another decree than the one before.
    #[error(
        "decree {number} follows on another one than the run's: fetch the run's decrees, and sign anew"
    )]
    Before {
        /// Its number.
        number: u64,
    },
    /// Fewer signatures than it takes.
    #[error(
        "{found} of the run's authorities have signed decree {number}, {needed} must: let others sign it too"
    )]
    Unsigned {
        /// Its number.
        number: u64,
        /// Good signatures.
        found: usize,
        /// As many as it takes.
        needed: usize,
    },
    /// Too long.
    #[error(
        "the decree has {bytes} bytes, at most {DECREE_BYTES_MAX} are allowed: split it into two"
    )]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// A clause that cannot be.
    #[error("decree {number} {why}")]
    Clause {
        /// Its number.
        number: u64,
        /// What is wrong, and what to do.
        why: &'static str,
    },
}
