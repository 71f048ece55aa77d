//! Names of things: 32-byte identifiers that cannot be mistaken for one another.
//!
//! Their text form is lower-case hex: [`Digest::hex`] gives all of it, and `Display` the first eight
//! characters, for a screen. How a [`PeerId`] is shown to people, as libp2p prints it, is in `base58`.

use std::cmp::Ordering;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Two lower-case hexadecimal digits for each byte.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads lower-case hex of exactly `N` bytes; `None` for anything else.
pub(crate) fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let lower = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if text.len() != 2 * N || !text.bytes().all(lower) {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}

/// The `N` bytes from `start` on. The caller has checked that there are that many: with fewer this
/// panics, so no length from a peer may reach it unchecked.
pub(crate) fn array<const N: usize>(bytes: &[u8], start: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[start..start + N]);
    array
}

macro_rules! identifier {
    ($(#[$doc:meta])* $name:ident, $bytes:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub struct $name(pub [u8; $bytes]);

        impl $name {
            /// The raw bytes, as they are signed and sent.
            pub fn as_bytes(&self) -> &[u8; $bytes] {
                &self.0
            }

            /// All bytes as lower-case hex.
            pub fn hex(&self) -> String {
                hex(&self.0)
            }

            /// Reads the whole lower- or upper-case hex form; `None` for anything else.
            pub fn from_hex(text: &str) -> Option<Self> {
                unhex(&text.to_ascii_lowercase()).map(Self)
            }
        }

        impl Ord for $name {
            /// The order of the bytes. Identifiers are keys and hashes, so the first eight
            /// bytes nearly always decide.
            #[inline]
            fn cmp(&self, other: &Self) -> Ordering {
                let first = |id: &Self| id.0.first_chunk().map(|first| u64::from_be_bytes(*first));
                first(self).cmp(&first(other)).then_with(|| self.0.cmp(&other.0))
            }
        }

        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                Some(self.cmp(other))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&hex(&self.0[..4]))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{self}")
            }
        }
    };
}

identifier!(
    /// A peer: its ed25519 public key.
    PeerId,
    32
);
identifier!(
    /// A run: the digest of its manifest's canonical bytes. Every
    /// setting that peers share is in it.
    RunId,
    32
);
identifier!(
    /// A BLAKE3 digest. The name of the field or variable says of what.
    Digest,
    32
);
identifier!(
    /// The name of one log of votes. A peer that loses its log draws
    /// another, and is another voter (R19).
    LogId,
    16
);

impl Digest {
    /// Stands for "none": `r` of the genesis state, or the notice before the first.
    pub const ZERO: Self = Self([0; 32]);

    /// BLAKE3 of `bytes` under a domain of its own.
    #[must_use]
    pub fn derive(domain: &str, bytes: &[u8]) -> Self {
        Self(blake3::derive_key(domain, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_round_trips_and_refuses_other_text() {
        let digest = Digest::derive("test", b"x");
        assert_eq!(Digest::from_hex(&digest.hex()), Some(digest));
        assert_eq!(Digest::from_hex(&digest.hex()[1..]), None);
        assert_eq!(Digest::from_hex(&"+1".repeat(32)), None);
        assert_eq!(digest.to_string(), digest.hex()[..8]);
    }
}
