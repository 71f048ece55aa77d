//! The bytes of invites, tickets and notices. `admit` and `notices` sign and verify them; `ledger` says what follows
//! from them.
//!
//! Nothing here changes who may take part. A ticket or a notice takes effect when a receipt carries
//! it, so that all peers of a lineage see it in the same epoch (T1).

use serde::{Deserialize, Serialize};

use crate::base::id::{Digest, PeerId, RunId};
use crate::base::sign::Signature;

/// The terms of an invite, which the organiser signs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Terms {
    /// The key of the invite, which signs tickets.
    pub key: PeerId,
    /// The number of peers that it admits, 1–1,000. The ledger counts them over the receipts of the
    /// lineage, so the number is exact without a server (T3).
    pub uses: u32,
    /// The last epoch that admits by it; 0 means any.
    pub until_epoch: u64,
    /// The time at which it expires, in Unix seconds; 0 means never. Only peers that name or accept a new ticket
    /// look at it (T4). Clocks may differ by an hour: see
    /// [`EXPIRY_SLACK`](crate::access::admit::EXPIRY_SLACK).
    pub expires: u64,
    /// A name for people: at most 32 bytes of `A-Za-z0-9._-`.
    pub label: String,
}

/// An invite: terms that the organiser of a run has signed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Invite {
    /// The run that it admits peers to.
    pub run: RunId,
    /// How many peers it admits, and until when.
    pub terms: Terms,
    /// The organiser's signature over run and terms.
    pub signature: Signature,
}

/// A proof that a peer may take part. It names that peer, so nobody else can use it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Ticket {
    /// A ticket by an invite. The joiner makes it itself, offline.
    Invited {
        /// The invite that admits the peer.
        invite: Box<Invite>,
        /// The peer that joins by it, and no other.
        peer: PeerId,
        /// The signature of the invite's key over run and peer.
        signature: Signature,
    },
    /// A ticket that the organiser signs for a named peer.
    Named {
        /// The run that it admits a peer to.
        run: RunId,
        /// The peer that joins by it, and no other.
        peer: PeerId,
        /// The last epoch that admits by it; 0 means any.
        until_epoch: u64,
        /// The organiser's signature over run, peer and epoch.
        signature: Signature,
    },
}

/// One change of the set of admitted peers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Clause {
    /// Revokes a peer, from the epoch after the one whose receipt carries this. The invite by which it came admits
    /// nobody any more.
    RevokePeer(PeerId),
    /// Revokes an invite: it admits nobody any more.
    RevokeInvite {
        /// The key of the revoked invite.
        key: PeerId,
        /// Whether the peers that it admitted are revoked as well.
        admitted: bool,
    },
    /// Admits a peer without a ticket, also if it was revoked before.
    Admit(PeerId),
}

/// A state that the organiser attests: its lineage is the run's, however many tokens another one has (G11).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Attestation {
    /// The epoch that led to the state; greater than that of each attestation before.
    pub epoch: u64,
    /// The digest of the attested state.
    pub state: Digest,
    /// The digest of the receipt that led to it.
    pub r: Digest,
}

/// What the organiser states with a notice.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Body {
    /// Says which lineage is the run's.
    Attestation(Attestation),
    /// Changes the set of admitted peers, in this order; only in runs of invited peers.
    Membership(Vec<Clause>),
}

/// A statement of the organiser after the manifest. Notices are a chain: each names the one before.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Notice {
    /// The run that the notice is about.
    pub run: RunId,
    /// Its number in the chain, from 1.
    pub number: u64,
    /// The digest of the one before; zero for the first.
    pub before: Digest,
    /// An attestation or a membership update.
    pub body: Body,
    /// The organiser's signature over all of the above.
    pub signature: Signature,
}

/// The trust part of a roster, a receipt or a Regroup: what it brings along about admission. It is absent where it would
/// be empty, and in open runs.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Admissions {
    /// The next notices, in order, at most 4.
    pub notices: Vec<Notice>,
    /// The tickets of members that the ledger lacks, at most 64, rising by peer.
    pub tickets: Vec<Ticket>,
}
