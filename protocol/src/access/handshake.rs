//! The admission handshake of a run of invited peers: one [`Visit`] from the peer that connects,
//! one [`Reception`] back, both in canonical bytes. Nothing else is said before a peer is admitted.
//!
//! A joiner shows its ticket. Anyone with a notice that the organiser has signed can hand it
//! to any member without being a peer of the run; the member spreads it, and the sender asks
//! until the notice is in force.
//!
//! Both are bounded in bytes. How many connections may wait for an answer, and for how long, is up
//! to the caller (`node/src/net/access/`).

use serde::{Deserialize, Serialize};

use crate::access::admit::NOTICE_BYTES_MAX;
use crate::base::id::Digest;
use crate::message::{Notice, Ticket, wire};

/// Longest [`Visit`] in bytes; a longer one is not read.
pub const VISIT_BYTES_MAX: usize = NOTICE_BYTES_MAX + 16;

/// Longest [`Reception`] in bytes; a longer one is not read.
pub const RECEPTION_BYTES_MAX: usize = 1_024;

/// Longest sentence of a refusal, in bytes. The rest of a longer one is cut off.
pub const SENTENCE_BYTES_MAX: usize = 512;

/// What the peer that connects asks for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Visit {
    /// To be admitted, by this ticket or by what the ledger already says about it.
    Enter(Option<Ticket>),
    /// To hand over a notice, which the member spreads.
    Hand(Notice),
    /// The state of the run, and nothing else. It admits nobody.
    Ask,
}

/// The member's answer to a [`Visit`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Reception {
    /// Whether the visit was accepted; [`Outcome::Welcome`] for a mere question.
    pub outcome: Outcome,
    /// The epoch of the member's head.
    pub epoch: u64,
    /// The last notice in force at that member; `None` before the first.
    pub notice: Option<InForce>,
}

/// Whether a visit was accepted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Outcome {
    /// The peer is admitted, or what it handed over was taken.
    Welcome,
    /// It was not; the sentence names the cause and the remedy.
    Refused(String),
}

/// A notice that a receipt of the lineage carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct InForce {
    /// Its number in the chain of notices.
    pub number: u64,
    /// Its digest, which tells it from another one of the same number.
    pub digest: Digest,
    /// The first epoch for which it is in force.
    pub since: u64,
}

impl Visit {
    /// The canonical bytes, at most [`VISIT_BYTES_MAX`].
    pub fn to_bytes(&self) -> Vec<u8> {
        wire::canonical(self)
    }

    /// Reads a visit; `None` if the bytes are too long or not canonical.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        (bytes.len() <= VISIT_BYTES_MAX).then(|| wire::from_canonical(bytes)).flatten()
    }
}

impl Reception {
    /// The canonical bytes, at most [`RECEPTION_BYTES_MAX`].
    pub fn to_bytes(&self) -> Vec<u8> {
        wire::canonical(self)
    }

    /// Reads a reception; `None` if the bytes are too long or not canonical, or if its sentence is too
    /// long or could move the cursor of the terminal that shows it.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let read = (bytes.len() <= RECEPTION_BYTES_MAX).then(|| wire::from_canonical(bytes));
        read.flatten().filter(|reception: &Self| match &reception.outcome {
            Outcome::Welcome => true,
            Outcome::Refused(why) => {
                why.len() <= SENTENCE_BYTES_MAX && !why.chars().any(char::is_control)
            }
        })
    }
}

impl Outcome {
    /// A refusal with this sentence, cut to [`SENTENCE_BYTES_MAX`].
    #[must_use]
    pub fn refused(why: &impl ToString) -> Self {
        let mut sentence = why.to_string();
        sentence.truncate(sentence.floor_char_boundary(SENTENCE_BYTES_MAX));
        Self::Refused(sentence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_of_a_stranger_is_one_short_line() {
        let reception = |why: &str| {
            let outcome = Outcome::Refused(why.to_owned());
            Reception { outcome, epoch: 3, notice: None }
        };
        let read = |why: &str| Reception::from_bytes(&reception(why).to_bytes()).is_some();
        assert!(read("the invite has no use left") && read(&"é".repeat(SENTENCE_BYTES_MAX / 2)));
        for why in ["\x1b[2J", "two\nlines", &"x".repeat(SENTENCE_BYTES_MAX + 1)] {
            assert!(!read(why), "{why:?}");
        }
        assert_eq!(Outcome::refused(&"x".repeat(600)), reception(&"x".repeat(512)).outcome);
    }
}
