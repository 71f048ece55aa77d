//! How a peer is written for people and programs: as libp2p prints it, `12D3KooW…`.
//!
//! libp2p's name of an ed25519 key is a multihash of kind *identity* over the protobuf form of the
//! key, `00 24 08 01 12 20 ‖ key`, in base 58 (Bitcoin's alphabet, which has no 0, O, I or l). A
//! manifest lists founders in this form, so the core must read it; it knows libp2p no further.

use crate::id::PeerId;

const ALPHABET: &[u8; 58] = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";

/// Identity multihash of 36 bytes: key type 1 (ed25519), then 32 bytes of key.
const PREFIX: [u8; 6] = [0x00, 0x24, 0x08, 0x01, 0x12, 0x20];

/// Bytes behind the text.
const BYTES: usize = PREFIX.len() + 32;

/// Digits that these bytes take at most: 38 · log 256 / log 58.
const DIGITS_MAX: usize = 52;

/// The text of a peer.
#[must_use]
pub fn encode(peer: &PeerId) -> String {
    let bytes = PREFIX.iter().chain(peer.as_bytes());
    // Little-endian digits of the number that the bytes are.
    let mut digits: Vec<u8> = Vec::with_capacity(DIGITS_MAX);
    for byte in bytes {
        let mut carry = u32::from(*byte);
        for digit in &mut digits {
            carry += u32::from(*digit) << 8;
            *digit = (carry % 58).to_le_bytes()[0];
            carry /= 58;
        }
        while carry > 0 {
            digits.push((carry % 58).to_le_bytes()[0]);
            carry /= 58;
        }
    }
    // The one zero byte in front is no part of the number: base 58 writes it as a digit zero.
    digits.push(0);
    digits.iter().rev().map(|digit| char::from(ALPHABET[usize::from(*digit)])).collect()
}

/// The peer of a text; `None` for anything that [`encode`] does not write.
#[must_use]
pub fn decode(text: &str) -> Option<PeerId> {
    if text.len() > DIGITS_MAX + 1 {
        return None;
    }
    let mut bytes = [0; BYTES];
    for digit in text.bytes() {
        let value = ALPHABET.iter().position(|known| *known == digit)?;
        let mut carry = u32::try_from(value).ok()?;
        for byte in bytes.iter_mut().rev() {
            carry += u32::from(*byte) * 58;
            *byte = carry.to_le_bytes()[0];
            carry >>= 8;
        }
        if carry > 0 {
            return None;
        }
    }
    let peer = PeerId(*bytes.strip_prefix(&PREFIX)?.first_chunk()?);
    (encode(&peer) == text).then_some(peer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sign::Keypair;

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
