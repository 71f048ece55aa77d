//! The names of peers and digests in output: peers as libp2p prints them, digests as hex.
//!
//! In the protocol they are 32 bytes ([`PeerId`], [`Digest`]). These two types are what events and
//! sentences have, so that a peer is written one way everywhere. They are read back too, from
//! events of another process, and then they may be any text: no method here relies on their form.

use std::fmt;

use intellect_protocol::base::{
    base58,
    id::{Digest, PeerId, RunId},
};
use serde::{Deserialize, Serialize};

/// A peer as text: `12D3KooW…`.
/// It is the base58 form of libp2p's id of the key, 52 characters for an ed25519 key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct PeerName(String);

impl PeerName {
    /// The name as it is printed, for comparisons.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The last six characters, which tell the peers of one screen apart. The first eight are the same for every peer.
    pub(crate) fn short(&self) -> &str {
        self.0.get(self.0.len().saturating_sub(6)..).unwrap_or(&self.0)
    }
}

impl From<PeerId> for PeerName {
    fn from(peer: PeerId) -> Self {
        Self(base58::encode(&peer))
    }
}

impl fmt::Display for PeerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A digest, key or run id as 64 lower-case hex digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Hex(String);

impl Hex {
    /// All 64 digits, as they are written.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The first eight digits, as sentences show them.
    pub(crate) fn short(&self) -> &str {
        self.0.get(..8).unwrap_or(&self.0)
    }
}

impl From<Digest> for Hex {
    fn from(digest: Digest) -> Self {
        Self(digest.hex())
    }
}

impl From<RunId> for Hex {
    fn from(run: RunId) -> Self {
        Self(run.hex())
    }
}

impl From<PeerId> for Hex {
    /// The key itself, as a manifest writes its `organiser`.
    fn from(peer: PeerId) -> Self {
        Self(peer.hex())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_on_a_screen() {
        let peer = PeerName::from(PeerId([7; 32]));
        assert!(peer.as_str().starts_with("12D3KooW") && peer.as_str().ends_with(peer.short()));
        assert_eq!(peer.short().len(), 6);
        assert_eq!(Hex::from(Digest([0xab; 32])).short(), "abababab");
        let damaged: PeerName = serde_json::from_str("\"aé\"").unwrap();
        assert_eq!(damaged.short(), "aé");
    }
}
