//! The messages that prove a vote or a ring, by signatures of others (R5, R8, R32).

use serde::{Deserialize, Serialize};

use super::record::{Roster, Series, Voted};
use crate::base::id::{Digest, PeerId};
use crate::base::sign::Signature;

/// "I accepted this free roster, and hold the whole update of its ring", as `prepare` in PBFT. Where a third may lie, a
/// vote needs a quorum of these for its value (R5). A voter sends it once per attempt.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Prepared {
    /// The series that the roster is in.
    pub series: Series,
    /// The digest of the accepted roster.
    pub roster: Digest,
    /// BLAKE3 of the bytes of the update.
    pub update: Digest,
}

/// The proof of a vote that a [`Status`](super::Status) or a [`Join`](super::Join) names. It is sent to the peers that
/// must believe the vote, and is valid from any sender (R8).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Ground {
    /// The open series of the author.
    pub series: Series,
    /// The vote, and what proves it.
    pub voted: Voted,
}

/// The proof that the ring of a roster started, of which a later roster keeps chunks (R32).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Opened {
    /// The open series of the author.
    pub series: Series,
    /// The roster whose ring started, of this series or of one that it descends from.
    pub roster: Roster,
    /// Each member that accepted it, with the signature over its [`Accept`](super::Accept).
    pub accepts: Vec<(PeerId, Signature)>,
}
