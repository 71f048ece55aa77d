//! Why a peer is not admitted: sentences that name the cause and the remedy.

use thiserror::Error;

use crate::base::id::{PeerId, RunId};
use crate::base::time::utc;

/// Why a peer is not admitted. The sentence is written for the person who wants to join.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Denied {
    /// It shows no ticket, and the ledger does not admit it.
    #[error(
        "this run takes invited peers only: ask its organiser ({organiser}) for an invite, and add --invite CODE"
    )]
    Uninvited {
        /// The key to ask for an invite.
        organiser: PeerId,
    },
    /// The invite is for another run.
    #[error(
        "this invite is for run {of}, not for {run}: take --run {of}, or ask for an invite to {run}"
    )]
    AnotherRun {
        /// The run that the peer wants to join.
        run: RunId,
        /// The run that the invite is for.
        of: RunId,
    },
    /// The ticket is for another peer, or its name was changed.
    #[error(
        "this ticket is for peer {peer}: each peer needs its own, from an invite code or the organiser"
    )]
    AnotherPeer {
        /// The peer for which it was signed.
        peer: PeerId,
    },
    /// The organiser's signature is missing or wrong.
    #[error("the organiser of the run ({organiser}) has not signed this: ask it for a new invite")]
    Unsigned {
        /// The key that should have signed.
        organiser: PeerId,
    },
    /// The invite's key has not signed the ticket.
    #[error(
        "the key of the invite has not signed this ticket: make one from the invite code, with --invite CODE"
    )]
    NotByTheInvite,
    /// The terms are out of their bounds, or the ticket is too long.
    #[error("this invite is malformed: {why}; ask the organiser for a new one")]
    Malformed {
        /// The bound that is broken, as a clause.
        why: &'static str,
    },
    /// As many peers have joined with it as it admits.
    #[error("this invite has been used {spent} of {uses} times: ask for another one")]
    Used {
        /// Peers that have joined with it.
        spent: u32,
        /// How many peers the invite admits.
        uses: u32,
    },
    /// The run has passed its last epoch.
    #[error(
        "this invite was valid until epoch {until_epoch}, and the run is at epoch {epoch}: ask for a new one"
    )]
    Over {
        /// The last epoch in which it admits a peer.
        until_epoch: u64,
        /// The epoch that was to admit the peer.
        epoch: u64,
    },
    /// The clock of a peer has passed its expiry and the slack (T4).
    #[error(
        "this invite expired at {}: ask for a new one, or check this machine's clock", utc(*expires)
    )]
    Expired {
        /// Its expiry, in Unix seconds.
        expires: u64,
    },
    /// The organiser has revoked the invite.
    #[error("this invite was revoked by notice {notice} in epoch {epoch}: ask for a new one")]
    InviteRevoked {
        /// Number of the organiser's notice.
        notice: u64,
        /// The epoch whose receipt carries the notice.
        epoch: u64,
    },
    /// The organiser has revoked the peer.
    #[error(
        "this peer was revoked by notice {notice} in epoch {epoch}: only the organiser can admit it again"
    )]
    PeerRevoked {
        /// Number of the organiser's notice.
        notice: u64,
        /// The epoch whose receipt carries the notice.
        epoch: u64,
    },
    /// The ledger has [`PEERS_MAX`](crate::access::ledger::PEERS_MAX) peers or invites.
    #[error("the run has admitted all the peers that it can: ask its organiser for a new run")]
    Full,
}
