//! Whom a node lets in: to its gossip, its control messages, its rings, and what it serves.
//!
//! In an open run that is everybody. In a run of invited peers the driver says who has a place or a
//! ticket that holds; whoever else connects is in the lobby ([`super::lobby`]).

use std::{collections::HashSet, sync::Arc};

use intellect_protocol::base::id::PeerId as Name;
use libp2p::PeerId;

use super::name;

/// Whom a node lets in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Door {
    /// Nobody: it is in no run yet.
    #[default]
    Closed,
    /// Everybody.
    Open,
    /// These only.
    Invited(Arc<HashSet<Name>>),
}

impl Door {
    /// Whether it lets a peer in.
    pub(super) fn lets_in(&self, peer: &PeerId) -> bool {
        match self {
            Self::Closed => false,
            Self::Open => true,
            Self::Invited(these) => {
                name::from_libp2p(peer).is_some_and(|peer| these.contains(&peer))
            }
        }
    }

    /// Whether it has a lobby.
    pub(super) fn is_watched(&self) -> bool {
        matches!(self, Self::Invited(_))
    }
}
