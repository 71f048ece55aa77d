//! The peers with which a node exchanges gossip, control messages and rings, and which it serves.
//!
//! In an open run this is everybody. In a run of invited peers the driver names the peers that are
//! in the ledger or have a valid ticket; connections of other peers are pending
//! ([`super::pending`]).

use std::{collections::HashSet, sync::Arc};

use intellect_protocol::base::id::PeerId as Name;
use libp2p::PeerId;

use crate::net::name;

/// Which peers may do more than show themselves. The driver sets it, and the actor hands a copy to
/// gossip and to the pending connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum AllowList {
    /// The node has not joined a run yet.
    #[default]
    Nobody,
    /// The run is open to every peer.
    Everybody,
    /// The run is for invited peers.
    Only(Arc<HashSet<Name>>),
}

impl AllowList {
    /// Whether this node deals with a peer. A peer whose key is not ed25519 is on no list but
    /// [`Self::Everybody`].
    pub(crate) fn allows(&self, peer: &PeerId) -> bool {
        match self {
            Self::Nobody => false,
            Self::Everybody => true,
            Self::Only(these) => name::from_libp2p(peer).is_some_and(|peer| these.contains(&peer)),
        }
    }

    /// Whether other peers may ask to be allowed.
    pub(crate) fn is_restricted(&self) -> bool {
        matches!(self, Self::Only(_))
    }
}
