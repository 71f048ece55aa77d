//! What is said in the lobby of a run of invited peers, before anybody is let in: one [`Visit`], one
//! [`Reception`], in canonical bytes.
//!
//! Whoever connects shows its ticket. Whoever has a notice that the organiser has signed, and need be no
//! peer of the run for that, hands it to any member, which spreads it; and asks until it is in force.

use serde::{Deserialize, Serialize};

use crate::access::admit::NOTICE_BYTES_MAX;
use crate::base::id::Digest;
use crate::message::wire;
use crate::message::{Notice, Ticket};

/// Longest visit, in bytes.
pub const VISIT_BYTES_MAX: usize = NOTICE_BYTES_MAX + 16;

/// Longest reception, in bytes.
pub const RECEPTION_BYTES_MAX: usize = 1_024;

/// Longest sentence of a refusal, in bytes; what is longer is cut.
pub const SENTENCE_BYTES_MAX: usize = 512;

/// What somebody wants who comes to the lobby.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Visit {
    /// To be let in: by a ticket, or by what the run knows of it.
    Enter(Option<Ticket>),
    /// To hand over a notice.
    Hand(Notice),
    /// To know how far the run is.
    Ask,
}

/// The answer to a visit.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Reception {
    /// What becomes of it; of a question nothing.
    pub outcome: Outcome,
    /// The head's epoch.
    pub epoch: u64,
    /// The last notice that is in force.
    pub notice: Option<InForce>,
}

/// What becomes of a visit.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Outcome {
    /// Who came is let in; what it brought is taken.
    Welcome,
    /// It is not, for this reason, in a sentence with what to do.
    Refused(String),
}

/// A notice of the lineage.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct InForce {
    /// Its number.
    pub number: u64,
    /// Its digest.
    pub digest: Digest,
    /// The first epoch that it rules.
    pub since: u64,
}

impl Visit {
    /// Its bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        wire::canonical(self)
    }

    /// Reads one; `None` if it is not one.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        (bytes.len() <= VISIT_BYTES_MAX).then(|| wire::from_canonical(bytes)).flatten()
    }
}

impl Reception {
    /// Its bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        wire::canonical(self)
    }

    /// Reads one; `None` if it is not one.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        (bytes.len() <= RECEPTION_BYTES_MAX).then(|| wire::from_canonical(bytes)).flatten()
    }
}

impl Outcome {
    /// Refuses with a sentence.
    #[must_use]
    pub fn refused(why: &impl ToString) -> Self {
        let mut sentence = why.to_string();
        sentence.truncate(sentence.floor_char_boundary(SENTENCE_BYTES_MAX));
        Self::Refused(sentence)
    }
}
