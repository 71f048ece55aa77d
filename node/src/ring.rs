//! The data plane of one ring: runs `protocol`'s exchange over a stream from the predecessor and a
//! stream to the successor.
//!
//! ```text
//! reader (task) ──items──▶ loop (exchange::State) ──items──▶ writer (task)
//!                            │ ▲
//!                         ops│ │replies
//!                            ▼ │
//!                     bench (thread): the update's bytes, arithmetic, hashes
//! ```
//!
//! The machine decides, the bench computes, in the order in which it is asked. Every payload is
//! checked against its label before anyone sees it, and everything that is kept is decoded once:
//! who votes for an update knows that it can be applied.
//!
//! Memory: the update and at most eight frames; every queue is bounded, and the reader stops while
//! the bench is behind, so a fast predecessor is held back by the transport. Sending is paced in
//! slices, so that a slow link still shows life.
//!
//! Chunks that are finished are told of at once: should the ring not end, they are kept (R10).
mod compute;
mod pace;
pub(crate) mod pairing;
mod run;
mod stream;
pub(crate) mod timeouts;

use std::{sync::Arc, time::Duration};

use intellect_protocol::{
    blocks::Blocks,
    codec::Codec,
    fault::Fault,
    id::{Digest, PeerId, RunId},
    message::Member,
    ring::Cut,
    seal::Seal,
    sign::Keypair,
};

use timeouts::Patience;

/// One ring to run.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    /// The run.
    pub(crate) run: RunId,
    /// Digest of the roster.
    pub(crate) roster: Digest,
    /// How the fragment is cut: all of it, or what earlier rings have not finished.
    pub(crate) cut: Cut,
    /// Members with a place, in ring order.
    pub(crate) members: Vec<Member>,
    /// Our position among them.
    pub(crate) position: usize,
    /// How numbers travel.
    pub(crate) codec: Codec,
    /// Our key, to seal the chunk that we own.
    pub(crate) key: Keypair,
    /// Our frozen delta.
    pub(crate) delta: Arc<Vec<f32>>,
    /// The blocks of it that are cut; all of it if `None`.
    pub(crate) redone: Option<Blocks>,
    /// How long neighbours may be silent.
    pub(crate) patience: Patience,
}

impl Job {
    /// Who sends to us.
    pub(crate) fn predecessor(&self) -> PeerId {
        let count = self.members.len();
        self.members[(self.position + count - 1) % count].peer
    }

    /// To whom we send.
    pub(crate) fn successor(&self) -> PeerId {
        self.members[(self.position + 1) % self.members.len()].peer
    }
}

/// What a ring tells on its way.
#[derive(Debug)]
pub(crate) enum News {
    /// A chunk is held whole, with its owner's word.
    Sealed(u32, Seal),
    /// All that the ring computes is held.
    Held(Held),
    /// The ring has ended before; chunks that were told of lie at their places in these bytes.
    Remains(Arc<Vec<u8>>),
}

/// The whole update, or all of it that this ring computes.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    /// Its bytes, every block of which decodes.
    pub(crate) update: Arc<Vec<u8>>,
    /// BLAKE3 of the bytes.
    pub(crate) digest: Digest,
    /// Bytes sent to the successor so far.
    pub(crate) sent_bytes: u64,
    /// Bytes received from the predecessor.
    pub(crate) received_bytes: u64,
    /// Since the start.
    pub(crate) took: Duration,
}

impl Held {
    /// Bytes per second that we sent; 0 when nothing was sent.
    pub(crate) fn send_rate(&self) -> u64 {
        let millis = self.took.as_millis().max(1);
        u64::try_from(u128::from(self.sent_bytes) * 1000 / millis).unwrap_or(u64::MAX)
    }
}

/// Why a ring gave no update.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RingError {
    /// A neighbour is gone, or too slow to be of use.
    #[error("lost {neighbour}: {why}")]
    Lost {
        /// The neighbour.
        neighbour: PeerId,
        /// What was seen.
        why: String,
    },
    /// The predecessor did what no honest member does.
    #[error("{who}: {fault}")]
    Fault {
        /// The predecessor.
        who: PeerId,
        /// What.
        fault: Fault,
    },
    /// The thread that computes is gone: the program is ending.
    #[error("the ring's thread has stopped")]
    Stopped,
    /// Nobody wants it any more.
    #[error("the ring was given up")]
    Abandoned,
}
/// A position or a count of a ring, of at most 256.
fn small(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
