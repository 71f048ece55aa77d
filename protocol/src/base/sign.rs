//! Authorship: ed25519 signatures over domain-tagged bytes, and [`Verified`], the proof of a check.
//!
//! Signed bytes are `"intellect-node/1/<tag>\0" ‖ run ‖ body`, so a signature made for one kind of
//! message, or in one run, is invalid for any other. A state machine takes only
//! `Verified<Message>`. Only `message::wire` makes one, and `history::lineage` of what a proof carries.

use ed25519_dalek::{Signer as _, SigningKey, VerifyingKey};
use serde::{Deserialize, Serialize};

use crate::base::id::{PeerId, RunId, array};

/// An ed25519 signature: R, then s, 32 bytes each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Signature(pub [u8; 64]);

impl Serialize for Signature {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // serde derives arrays of at most 32 elements.
        let halves: [[u8; 32]; 2] = std::array::from_fn(|half| array(&self.0, 32 * half));
        halves.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Signature {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let halves = <[[u8; 32]; 2]>::deserialize(deserializer)?;
        Ok(Self(array(halves.as_flattened(), 0)))
    }
}

/// A peer's private key. Its `Debug` form shows the public key only.
#[derive(Clone)]
pub struct Keypair(Scheme);

#[derive(Clone)]
enum Scheme {
    Ed25519(Box<SigningKey>),
    /// The simulator's: any signature by this peer passes, since checking
    /// ed25519 would take all its time.
    Simulated(PeerId),
}

impl Keypair {
    /// The key whose secret is `seed`.
    #[must_use]
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self(Scheme::Ed25519(Box::new(SigningKey::from_bytes(seed))))
    }

    /// A key for simulated peers: its signatures are zeros, and it accepts every signature. Only
    /// `protocol/sim` may name it (tidy).
    #[must_use]
    pub fn simulated(peer: PeerId) -> Self {
        Self(Scheme::Simulated(peer))
    }

    /// The public key, which is the peer's name.
    pub fn peer(&self) -> PeerId {
        match &self.0 {
            Scheme::Ed25519(key) => PeerId(key.verifying_key().to_bytes()),
            Scheme::Simulated(peer) => *peer,
        }
    }

    /// Signs `body` as a message of kind `tag` in `run`.
    #[must_use]
    pub fn sign(&self, tag: &str, run: &RunId, body: &[u8]) -> Signature {
        match &self.0 {
            Scheme::Ed25519(key) => Signature(key.sign(&signed_bytes(tag, run, body)).to_bytes()),
            Scheme::Simulated(_) => Signature([0; 64]),
        }
    }

    /// [`Self::sign`] over bytes that are made only if they are needed: a simulated key needs none.
    pub(crate) fn sign_with(
        &self,
        tag: &str,
        run: &RunId,
        body: impl FnOnce() -> Vec<u8>,
    ) -> Signature {
        match &self.0 {
            Scheme::Ed25519(_) => self.sign(tag, run, &body()),
            Scheme::Simulated(_) => Signature([0; 64]),
        }
    }

    /// Whether `signature` is `author`'s over `body`, by the scheme that this key belongs to.
    /// `body` makes the bytes; a simulated key needs none.
    #[must_use]
    pub fn check(
        &self,
        author: &PeerId,
        tag: &str,
        run: &RunId,
        body: impl FnOnce() -> Vec<u8>,
        signature: &Signature,
    ) -> bool {
        match &self.0 {
            Scheme::Ed25519(_) => verify(author, tag, run, &body(), signature),
            Scheme::Simulated(_) => true,
        }
    }
}

impl std::fmt::Debug for Keypair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Keypair({})", self.peer())
    }
}

/// Whether `signature` is `author`'s ed25519 signature over `body`, sent as `tag` in `run`.
///
/// The strict form of verification refuses keys of small order, for which one signature fits many bodies.
/// Bytes that are no key at all are no error: such an author has signed nothing.
#[must_use]
pub fn verify(author: &PeerId, tag: &str, run: &RunId, body: &[u8], signature: &Signature) -> bool {
    let signature = ed25519_dalek::Signature::from_bytes(&signature.0);
    VerifyingKey::from_bytes(&author.0)
        .and_then(|key| key.verify_strict(&signed_bytes(tag, run, body), &signature))
        .is_ok()
}

/// What a signature covers: the tag and the run keep a signature from meaning anything elsewhere.
fn signed_bytes(tag: &str, run: &RunId, body: &[u8]) -> Vec<u8> {
    [b"intellect-node/1/", tag.as_bytes(), b"\0", run.as_bytes(), body].concat()
}

/// A value whose author's signature was checked, or which this peer signed itself. No other module
/// can make one, so a function that takes it need not ask who wrote the value (D2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified<T> {
    author: PeerId,
    signature: Signature,
    body: T,
}

impl<T> Verified<T> {
    /// Only `message::wire` and the validator of `history::lineage` call this, after they have
    /// checked or made the signature.
    pub(crate) fn new(author: PeerId, signature: Signature, body: T) -> Self {
        Self { author, signature, body }
    }

    /// The peer whose signature was checked.
    pub fn author(&self) -> PeerId {
        self.author
    }

    /// The signature itself, which certificates and grounds carry.
    pub fn signature(&self) -> Signature {
        self.signature
    }

    /// The value that was signed, decoded.
    pub fn body(&self) -> &T {
        &self.body
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_holds_for_one_author_tag_run_and_body_only() {
        let (key, other) = (Keypair::from_seed(&[1; 32]), Keypair::from_seed(&[2; 32]));
        let (run, body) = (RunId([3; 32]), b"body");
        let signature = key.sign("done", &run, body);
        assert!(verify(&key.peer(), "done", &run, body, &signature));
        assert!(!verify(&other.peer(), "done", &run, body, &signature));
        assert!(!verify(&key.peer(), "join", &run, body, &signature));
        assert!(!verify(&key.peer(), "done", &RunId([4; 32]), body, &signature));
        assert!(!verify(&key.peer(), "done", &run, b"other", &signature));
        assert!(!verify(&PeerId([0xff; 32]), "done", &run, body, &signature));
    }
}
