//! How a peer is written for people and programs: as libp2p prints it, `12D3KooW…`.
//!
//! libp2p's name of an ed25519 key is a multihash of kind *identity* over the protobuf form of the
//! key, `00 24 08 01 12 20 ‖ key`, in base 58 (Bitcoin's alphabet, which has no 0, O, I or l). A
//! manifest lists founders in this form, so the core must read it; it knows libp2p no further.

use crate::base::id::PeerId;

const ALPHABET: &[u8; 58] = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";

/// Identity multihash of 36 bytes: key type 1 (ed25519), then 32 bytes of key.
const PREFIX: [u8; 6] = [0x00, 0x24, 0x08, 0x01, 0x12, 0x20];

const BYTES: usize = PREFIX.len() + 32;

/// The text form of a peer, 52 characters for an ed25519 key.
#[must_use]
pub fn encode(peer: &PeerId) -> String {
    text(&[&PREFIX, peer.as_bytes().as_slice()].concat())
}

/// The peer of a text; `None` for anything that [`encode`] does not write.
#[must_use]
pub fn decode(text: &str) -> Option<PeerId> {
    let bytes = bytes(text, BYTES).filter(|bytes| bytes.len() == BYTES)?;
    bytes.strip_prefix(&PREFIX)?.first_chunk().map(|key| PeerId(*key))
}

/// Bytes in base 58: one big-endian number, after a digit zero for each leading zero byte.
#[must_use]
pub fn text(bytes: &[u8]) -> String {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    // Little-endian digits of the number that the bytes are.
    let mut digits: Vec<u8> = Vec::with_capacity(digits_max(bytes.len()));
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
    digits.extend(std::iter::repeat_n(0, zeros));
    digits.iter().rev().map(|digit| char::from(ALPHABET[usize::from(*digit)])).collect()
}

/// The bytes of a text; `None` for anything that [`text`] does not write for at most `most` bytes.
#[must_use]
pub fn bytes(text: &str, most: usize) -> Option<Vec<u8>> {
    if text.len() > digits_max(most) {
        return None;
    }
    // Little-endian bytes of the number that the digits are.
    let mut bytes: Vec<u8> = Vec::with_capacity(text.len());
    for digit in text.bytes() {
        let value = ALPHABET.iter().position(|known| *known == digit)?;
        let mut carry = u32::try_from(value).ok()?;
        for byte in &mut bytes {
            carry += u32::from(*byte) * 58;
            *byte = carry.to_le_bytes()[0];
            carry >>= 8;
        }
        if carry > 0 {
            bytes.push(carry.to_le_bytes()[0]);
        }
    }
    let zeros = text.bytes().take_while(|digit| *digit == ALPHABET[0]).count();
    bytes.extend(std::iter::repeat_n(0, zeros));
    bytes.reverse();
    (bytes.len() <= most).then_some(bytes)
}

/// An upper bound of the digits for that many bytes: log 256 / log 58 is 1.366 for each.
const fn digits_max(bytes: usize) -> usize {
    bytes * 137 / 100 + 1
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
