//! What proves a vote or a ring: signatures of others, passed on (R5, R8, R32).

use serde::{Deserialize, Serialize};

use super::record::{Roster, Series, Voted};
use crate::base::id::{Digest, PeerId};
use crate::base::sign::Signature;

/// "I accepted this free roster, and hold the whole update of its ring": where a third may lie, a vote needs a quorum of
/// these for its value (R5). Said once for each attempt.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Prepared {
    /// The series.
    pub series: Series,
    /// Digest of the roster.
    pub roster: Digest,
    /// BLAKE3 of the update's bytes.
    pub update: Digest,
}

/// What proves a vote that a [`Status`](super::Status) or a [`Join`](super::Join) names: sent to whoever has to believe it, and believed of anybody.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Ground {
    /// The series that the author is in.
    pub series: Series,
    /// The vote.
    pub voted: Voted,
}

/// What proves that the ring of a roster opened, of which a later roster keeps chunks (R32).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Opened {
    /// The series that the author is in.
    pub series: Series,
    /// The roster whose ring opened, of this series or one that it descends from.
    pub roster: Roster,
    /// The peers that accepted it, with the signature over their [`Accept`](super::Accept).
    pub accepts: Vec<(PeerId, Signature)>,
}
