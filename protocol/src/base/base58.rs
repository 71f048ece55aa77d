//! How a peer is written for people and programs: as libp2p prints it, `12D3KooW…`.
//!
//! libp2p's name of an ed25519 key is a multihash of kind *identity* over the protobuf form of the
//! key, `00 24 08 01 12 20 ‖ key`, in base 58 (Bitcoin's alphabet, which has no 0, O, I or l). A
//! manifest lists founders in this form, so the core must read it; it knows libp2p no further.

use crate::base::id::PeerId;

/// Identity multihash of 36 bytes: key type 1 (ed25519), then 32 bytes of key.
const PREFIX: [u8; 6] = [0x00, 0x24, 0x08, 0x01, 0x12, 0x20];

/// The text form of a peer, 52 characters for an ed25519 key.
pub fn encode(peer: &PeerId) -> String {
    bs58::encode([&PREFIX, peer.as_bytes().as_slice()].concat()).into_string()
}

/// Reads a peer; `None` for anything that [`encode`] does not write. The text is untrusted: a
/// manifest or a command line has it.
pub fn decode(text: &str) -> Option<PeerId> {
    // The buffer bounds the work: a longer text is refused as soon as the buffer is full.
    let mut bytes = [0; PREFIX.len() + 32];
    let length = bs58::decode(text).onto(&mut bytes[..]).ok()?;
    bytes[..length].strip_prefix(&PREFIX)?.try_into().ok().map(PeerId)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::sign::Keypair;

    /// What libp2p prints for the ed25519 key whose secret is 32 bytes of 1.
    #[test]
    fn libp2p_prints_the_same() {
        let peer = Keypair::from_seed(&[1; 32]).peer();
        assert_eq!(encode(&peer), "12D3KooWK99VoVxNE7XzyBwXEzW7xhK7Gpv85r9F3V3fyKSUKPH5");
    }

    #[test]
    fn text_round_trips_and_other_text_is_refused() {
        for seed in 0..64 {
            let peer = Keypair::from_seed(&[seed; 32]).peer();
            let text = encode(&peer);
            assert_eq!(decode(&text), Some(peer));
            assert_eq!(decode(&text[1..]), None);
            assert_eq!(decode(&format!("1{text}")), None);
            assert_eq!(decode(&text.replace('W', "0")), None);
            assert_eq!(decode(&text.replace("12D", "13D")), None);
        }
        for extreme in [PeerId([0; 32]), PeerId([0xff; 32])] {
            assert_eq!(decode(&encode(&extreme)), Some(extreme));
        }
        assert_eq!(decode(""), None);
        assert_eq!(decode(&"z".repeat(53)), None);
        assert_eq!(decode(&"z".repeat(1 << 20)), None);
    }
}
