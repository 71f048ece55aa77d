//! What admits a peer to a run of invited peers, and what its authorities decree: the bytes, without what they
//! mean. Signing and verifying is in `admit`, what follows from them in `ledger`.

use serde::{Deserialize, Serialize};

use crate::id::{Digest, PeerId, RunId};
use crate::sign::Signature;

/// A key with its signature over what this stands beside.
pub type Signed = (PeerId, Signature);

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
    /// Whether its key may sign invites of its own, which use up this one's uses (T13).
    pub may_invite: bool,
    /// For people: at most 32 bytes of `A-Za-z0-9._-`.
    pub label: String,
}

/// An invite: terms that the authorities of a run have signed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Invite {
    /// The run that it is for.
    pub run: RunId,
    /// What it allows.
    pub terms: Terms,
    /// Of `trust.threshold` authorities, over run and terms.
    pub signatures: Vec<Signed>,
    /// An invite under this one, signed by its key: who has that one comes by it (T13).
    pub branch: Option<Branch>,
}

/// An invite that the key of another one has signed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Branch {
    /// What it allows, within what the other one does.
    pub terms: Terms,
    /// By the key of the other one, over run, that key, and these terms.
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
        /// By the key of the invite, or of its branch, over run and peer.
        signature: Signature,
    },
    /// Made out to a peer by the authorities.
    Named {
        /// The run that it is for.
        run: RunId,
        /// Who may come.
        peer: PeerId,
        /// The last epoch that admits by it; 0: any.
        until_epoch: u64,
        /// Of `trust.threshold` authorities, over run, peer and epoch.
        signatures: Vec<Signed>,
    },
}

/// What authorities decide about who is in.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Clause {
    /// The peer is out, from the epoch after the one whose receipt carries this.
    RevokePeer(PeerId),
    /// The invite of this key admits nobody any more, nor do those under it.
    RevokeInvite {
        /// Its key.
        key: PeerId,
        /// Whether those whom it admitted are out as well.
        admitted: bool,
    },
    /// The peer is in, without a ticket.
    Admit(PeerId),
    /// Takes back what revoked the peer, or the invite of that key.
    Lift(PeerId),
    /// From the next decree on others sign; invites of those who are none any more admit nobody.
    Authorities {
        /// Who they are, 1–8.
        keys: Vec<PeerId>,
        /// How many of them must sign, 1 to all.
        threshold: u8,
    },
    /// These voters go on after that state, whatever the old voters do.
    Rescue {
        /// The epoch that they decide.
        epoch: u64,
        /// The state before it.
        parent: Digest,
        /// Who votes.
        voters: Vec<PeerId>,
    },
    /// Frees what the ledger keeps of a peer that is not revoked and no voter; its invite's use stays spent.
    Forget(PeerId),
}

/// A decision of the authorities. Decrees are a chain: each names the one before.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Decree {
    /// The run.
    pub run: RunId,
    /// Its place in the chain, from 1.
    pub number: u64,
    /// Digest of the one before; zero for the first.
    pub before: Digest,
    /// What is decided, in this order.
    pub clauses: Vec<Clause>,
    /// Of `trust.threshold` authorities, over all of the above.
    pub signatures: Vec<Signed>,
}

/// What a roster, a receipt or a Regroup says about who is in: absent where it says nothing, and always in
/// open runs.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Admissions {
    /// The next decrees, in order.
    pub decrees: Vec<Decree>,
    /// Of members that the ledger lacks, rising by peer.
    pub tickets: Vec<Ticket>,
}
