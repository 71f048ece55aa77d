//! Two forms of a peer id: the protocol's 32 bytes of an ed25519 key, and libp2p's `PeerId`, which
//! is the same key behind a six-byte prefix (the identity multihash of its protobuf form).

use intellect_protocol::base::id::PeerId;

/// Multihash `identity`, 36 bytes; protobuf: key type ed25519, 32 bytes of key.
const PREFIX: [u8; 6] = [0x00, 0x24, 0x08, 0x01, 0x12, 0x20];

/// libp2p's id of a peer of the protocol. Every 32 bytes give one, also such as are no point of the
/// curve: nobody can connect under those.
pub(super) fn to_libp2p(peer: PeerId) -> libp2p::PeerId {
    #[expect(clippy::expect_used, reason = "an identity multihash of 36 bytes is a valid peer id")]
    libp2p::PeerId::from_bytes(&[&PREFIX[..], peer.as_bytes()].concat()).expect("valid by PREFIX")
}

/// The protocol's id of a peer; `None` where its key is not an ed25519 key, as those of a run's
/// peers are.
pub(super) fn from_libp2p(peer: &libp2p::PeerId) -> Option<PeerId> {
    let bytes = peer.to_bytes();
    Some(PeerId(bytes.strip_prefix(&PREFIX)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_name_one_key() {
        let key = libp2p::identity::Keypair::ed25519_from_bytes([7; 32]).unwrap();
        let libp2p = key.public().to_peer_id();
        let ours = from_libp2p(&libp2p).unwrap();
        assert_eq!(ours.0, key.try_into_ed25519().unwrap().public().to_bytes());
        assert_eq!(to_libp2p(ours), libp2p);
        assert_eq!(libp2p.to_string(), intellect_protocol::base::base58::encode(&ours));
    }

    #[test]
    fn both_forms_sort_alike() {
        let (low, high) = (PeerId([1; 32]), PeerId([2; 32]));
        assert!(to_libp2p(low).to_bytes() < to_libp2p(high).to_bytes());
    }
}
