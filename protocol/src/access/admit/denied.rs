//! Why somebody is not let in: sentences that name the cause and what to do.

use thiserror::Error;

use crate::base::id::{PeerId, RunId};

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
    /// The organiser has not signed it.
    #[error("the organiser of the run ({organiser}) has not signed this: ask it for a new invite")]
    Unsigned {
        /// Who should have.
        organiser: PeerId,
    },
    /// The invite's key has not signed the ticket.
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
    /// The invite was revoked.
    #[error("this invite was revoked by notice {notice} in epoch {epoch}: ask for a new one")]
    InviteRevoked {
        /// By which notice.
        notice: u64,
        /// In whose receipt.
        epoch: u64,
    },
    /// The peer was revoked.
    #[error(
        "this peer was revoked by notice {notice} in epoch {epoch}: only the organiser can let it in again"
    )]
    PeerRevoked {
        /// By which notice.
        notice: u64,
        /// In whose receipt.
        epoch: u64,
    },
    /// The ledger has no room.
    #[error("the run has had as many peers as it can have: ask its organiser for another run")]
    Full,
}
