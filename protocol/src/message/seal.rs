//! The signature with which an owner seals a finished chunk (R30). It is passed on verbatim behind the chunk's last
//! frame, and stored, because a later roster may keep the chunk (R32).
//!
//! ```text
//! signed   roster digest [32] ‖ chunk u32 LE ‖ chunk digest [32], under the tag "chunk"
//! sent     chunk digest [32] ‖ signature [64]
//! ```

use serde::{Deserialize, Serialize};

use crate::base::id::{Digest, PeerId, RunId, array};
use crate::base::sign::{Keypair, Signature};

/// The statement of an owner that it has finished a chunk with these bytes. One owner that signs
/// two digests for one chunk has computed two values, and nothing shows which is right (R11).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Seal {
    /// BLAKE3 of the chunk's encoded bytes.
    pub digest: Digest,
    /// The owner's signature over (roster digest, chunk, chunk digest).
    pub signature: Signature,
}

/// The length of a [`Seal`] as it is sent, in bytes.
pub const SEAL_BYTES: usize = 32 + 64;

const TAG: &str = "chunk";

impl Seal {
    /// Seals the chunk of that number in the ring of a roster.
    #[must_use]
    pub fn new(key: &Keypair, run: &RunId, roster: &Digest, chunk: u32, digest: Digest) -> Self {
        Self { digest, signature: key.sign(TAG, run, &signed(roster, chunk, &digest)) }
    }

    /// Whether `owner` sealed that chunk of that roster with these bytes. It does not look at the
    /// bytes of the chunk: the caller compares their digest with [`Self::digest`].
    #[must_use]
    pub fn is_of(
        &self,
        owner: &PeerId,
        key: &Keypair,
        run: &RunId,
        roster: &Digest,
        chunk: u32,
    ) -> bool {
        let body = || signed(roster, chunk, &self.digest);
        key.check(owner, TAG, run, body, &self.signature)
    }

    /// The bytes as they are sent behind the last frame.
    pub fn to_bytes(&self) -> [u8; SEAL_BYTES] {
        array(&[&self.digest.0[..], &self.signature.0].concat(), 0)
    }

    /// Reads a seal as it was received; `None` if the length differs.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (digest, rest) = bytes.split_first_chunk()?;
        Some(Self { digest: Digest(*digest), signature: Signature(rest.try_into().ok()?) })
    }
}

fn signed(roster: &Digest, chunk: u32, digest: &Digest) -> Vec<u8> {
    [&roster.0[..], &chunk.to_le_bytes(), &digest.0].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_bytes_are_golden() {
        let seal = Seal { digest: Digest([5; 32]), signature: Signature([6; 64]) };
        assert_eq!(seal.to_bytes(), [[5; 32].as_slice(), &[6; 64]].concat()[..]);
        assert_eq!(Seal::from_bytes(&seal.to_bytes()), Some(seal));
        assert_eq!((Seal::from_bytes(&[0; 95]), Seal::from_bytes(&[0; 97])), (None, None));
    }

    /// The signature is over ring, chunk and bytes, so it proves nothing else.
    #[test]
    fn r30_it_holds_for_one_owner_ring_chunk_and_digest() {
        let (key, run, roster) = (Keypair::from_seed(&[1; 32]), RunId([2; 32]), Digest([3; 32]));
        let (me, other) = (key.peer(), Keypair::from_seed(&[9; 32]).peer());
        let seal = Seal::new(&key, &run, &roster, 4, Digest([5; 32]));
        assert!(seal.is_of(&me, &key, &run, &roster, 4));
        assert!(!seal.is_of(&other, &key, &run, &roster, 4));
        assert!(!seal.is_of(&me, &key, &RunId([8; 32]), &roster, 4));
        assert!(!seal.is_of(&me, &key, &run, &Digest([8; 32]), 4));
        assert!(!seal.is_of(&me, &key, &run, &roster, 5));
        let forged = Seal { digest: Digest([8; 32]), ..seal };
        assert!(!forged.is_of(&me, &key, &run, &roster, 4));
    }
}
