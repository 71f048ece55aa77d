//! Names of things: 32-byte identifiers that cannot be mistaken for one another.
//!
//! Text form is lower-case hex, whole with [`Digest::hex`] and shortened to eight characters on a
//! screen with
//! `Display`. How a [`PeerId`] is shown to people (libp2p's base58) is the node's concern.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! identifier {
    ($(#[$doc:meta])* $name:ident, $bytes:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name(pub [u8; $bytes]);

        impl $name {
            /// The raw bytes.
            #[must_use]
            pub fn as_bytes(&self) -> &[u8; $bytes] {
                &self.0
            }

            /// All bytes as lower-case hex.
            #[must_use]
            pub fn hex(&self) -> String {
                self.0.iter().map(|b| format!("{b:02x}")).collect()
            }

            /// Reads the whole lower- or upper-case hex form; `None` for anything else.
            #[must_use]
            pub fn from_hex(text: &str) -> Option<Self> {
                let mut bytes = [0; $bytes];
                let digits = text.as_bytes();
                if digits.len() != 2 * $bytes {
                    return None;
                }
                for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
                    let pair = std::str::from_utf8(pair).ok().filter(|p| !p.starts_with('+'))?;
                    *byte = u8::from_str_radix(pair, 16).ok()?;
                }
                Some(Self(bytes))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().take(4).try_for_each(|b| write!(f, "{b:02x}"))
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
    /// A run: the digest of its manifest's canonical bytes.
    RunId,
    32
);
identifier!(
    /// A BLAKE3 digest of something whose kind the field's name tells.
    Digest,
    32
);
identifier!(
    /// One file of votes. A peer that loses its votes draws another, and is another voter (R19).
    LogId,
    16
);

impl Digest {
    /// The digest that stands for "none": `r` of the genesis state.
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
