//! What admits a peer to a run of invited peers, and what the organiser says after the manifest: the bytes, without what they
//! mean. Signing and verifying is in `admit` and `notices`, what follows from them in `ledger`.

use serde::{Deserialize, Serialize};

use crate::base::id::{Digest, PeerId, RunId};
use crate::base::sign::Signature;

/// What an invite allows.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Terms {
    /// The invite's own key, which signs tickets.
    pub key: PeerId,
    /// How many peers it admits, 1–1,000.
    pub uses: u32,
    /// The last epoch that admits by it; 0: any.
    pub until_epoch: u64,
    /// When it expires, in Unix seconds; 0: never. Only who accepts a new ticket looks at it (T4).
    pub expires: u64,
    /// For people: at most 32 bytes of `A-Za-z0-9._-`.
    pub label: String,
}

/// An invite: terms that the organiser of a run has signed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Invite {
    /// The run that it is for.
    pub run: RunId,
    /// What it allows.
    pub terms: Terms,
    /// Of the organiser, over run and terms.
    pub signature: Signature,
}

/// Why a peer may take part. Its name is in it: stolen it is worth nothing.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Ticket {
    /// By an invite. The joiner makes it itself, offline.
    Invited {
        /// The invite.
        invite: Box<Invite>,
        /// Who comes by it.
        peer: PeerId,
        /// By the key of the invite, over run and peer.
        signature: Signature,
    },
    /// Made out to a peer by the organiser.
    Named {
        /// The run that it is for.
        run: RunId,
        /// Who may come.
        peer: PeerId,
        /// The last epoch that admits by it; 0: any.
        until_epoch: u64,
        /// Of the organiser, over run, peer and epoch.
        signature: Signature,
    },
}

/// One change of who is in.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Clause {
    /// The peer is out, from the epoch after the one whose receipt carries this; the invite by which it came admits
    /// nobody any more.
    RevokePeer(PeerId),
    /// The invite of this key admits nobody any more.
    RevokeInvite {
        /// Its key.
        key: PeerId,
        /// Whether those whom it admitted are out as well.
        admitted: bool,
    },
    /// The peer is in, without a ticket, also where it was revoked before.
    Admit(PeerId),
}

/// The organiser's word for a state of the run: its lineage is the run's, whatever another one has (G11).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Attestation {
    /// The epoch after which the state is; greater than that of each attestation before.
    pub epoch: u64,
    /// State digest.
    pub state: Digest,
    /// Digest of the receipt that led to it.
    pub r: Digest,
}

/// What a notice says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Body {
    /// Which lineage is the run's.
    Attestation(Attestation),
    /// Who is in, in this order: of runs of invited peers.
    Membership(Vec<Clause>),
}

/// What the organiser says about a run after its manifest. Notices are a chain: each names the one before.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Notice {
    /// The run.
    pub run: RunId,
    /// Its place in the chain, from 1.
    pub number: u64,
    /// Digest of the one before; zero for the first.
    pub before: Digest,
    /// What it says.
    pub body: Body,
    /// Of the organiser, over all of the above.
    pub signature: Signature,
}

/// What a roster, a receipt or a Regroup says about who is in: absent where it says nothing, and always in
/// open runs.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Admissions {
    /// The next notices, in order.
    pub notices: Vec<Notice>,
    /// Of members that the ledger lacks, rising by peer.
    pub tickets: Vec<Ticket>,
}
