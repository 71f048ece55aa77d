//! The data plane of one ring: runs `protocol`'s exchange over a stream from the predecessor and a stream to
//! the successor ([`run`]). [`pairing`] finds the two streams of each roster.
//!
//! ```text
//! reader (task) ──items──▶ loop (exchange::State) ──items──▶ writer (task)
//!                            │ ▲
//!                         ops│ │replies
//!                            ▼ │
//!                     ComputeThread: the update's bytes, arithmetic, hashes
//! ```
//!
//! The machine decides, and the thread computes in the order in which it is asked. Every payload is checked
//! against its label first, and all that is stored is decoded once: a peer that votes for an update knows
//! that it can be applied.
//!
//! Memory: the update and at most eight frames. Every queue is bounded, and the reader stops while the thread
//! is behind, so that the transport slows a fast predecessor down. What is sent is cut into slices, so that a
//! slow link still shows that we live.
//!
//! Finished chunks are reported at once: if the ring does not end, they are salvaged (R10).

mod compute;
mod pace;
pub(crate) mod pairing;
mod run;
mod stream;
pub(crate) mod timeouts;

use std::{sync::Arc, time::Duration};

use intellect_protocol::{
    base::{
        blocks::Blocks,
        fault::Fault,
        id::{Digest, PeerId, RunId},
        sign::Keypair,
    },
    message::{Member, seal::Seal},
    ring::{Cut, codec::Codec},
};

use timeouts::Timeouts;

/// The roster, keys and data of one ring to run.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    /// The run, whose id stands in every preamble and seal.
    pub(crate) run: RunId,
    /// The digest of the roster, by which both neighbours know the ring.
    pub(crate) roster: Digest,
    /// How the fragment is cut: all of it, or the part that earlier rings have not finished.
    pub(crate) cut: Cut,
    /// The members with a position, in ring order.
    pub(crate) members: Vec<Member>,
    /// Our position among the members.
    pub(crate) position: usize,
    /// How numbers are written and summed; the manifest chooses it for the whole run.
    pub(crate) codec: Codec,
    /// Our key, which seals the chunk that we own.
    pub(crate) key: Keypair,
    /// The frozen delta, one value for each element of the fragment. It is multiplied by our weight
    /// on the way.
    pub(crate) delta: Arc<Vec<f32>>,
    /// The blocks of the delta that are computed again; all of it if `None`.
    pub(crate) recomputed: Option<Blocks>,
    /// How long the neighbours may be silent.
    pub(crate) timeouts: Timeouts,
}

impl Job {
    /// The member that sends to us.
    pub(crate) fn predecessor(&self) -> PeerId {
        let count = self.members.len();
        self.members[(self.position + count - 1) % count].peer
    }

    /// The member to which we send.
    pub(crate) fn successor(&self) -> PeerId {
        self.members[(self.position + 1) % self.members.len()].peer
    }
}

/// What a ring reports before it ends.
#[derive(Debug)]
pub(crate) enum News {
    /// A chunk is complete, with the seal of its owner.
    Sealed(u32, Seal),
    /// The update of the ring is complete.
    Held(Held),
    /// The ring has failed; the chunks that were reported lie at their ranges in these bytes.
    Salvaged(Arc<Vec<u8>>),
    /// The ring has ended after this many hops, of 2(n − 1). The bytes are those since the update, or all
    /// of them if there is none.
    Ended { hops: u32, sent_bytes: u64, received_bytes: u64 },
}

/// The complete update, or all of it that this ring computes.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    /// The bytes of the update, every block of which decodes.
    pub(crate) update: Arc<Vec<u8>>,
    pub(crate) digest: Digest,
    /// Bytes sent to the successor so far.
    pub(crate) sent_bytes: u64,
    /// Bytes received from the predecessor.
    pub(crate) received_bytes: u64,
    /// The time since the start of the ring.
    pub(crate) took: Duration,
}

impl Held {
    /// Bytes per second that we sent; 0 if we sent nothing.
    pub(crate) fn send_rate(&self) -> u64 {
        let millis = self.took.as_millis().max(1);
        u64::try_from(u128::from(self.sent_bytes) * 1000 / millis).unwrap_or(u64::MAX)
    }
}

/// Why a ring ended early. Only [`RingError::Fault`] accuses anybody: a silent neighbour may itself
/// wait for another one.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RingError {
    /// The connection with a neighbour has failed.
    #[error("lost {neighbour}: {why}")]
    Lost { neighbour: PeerId, why: String },
    /// A neighbour sends or takes nothing. It may wait for its own neighbour.
    #[error("{neighbour} stands still: {why}")]
    Quiet { neighbour: PeerId, why: String },
    /// The predecessor did what no honest member does.
    #[error("{who}: {fault}")]
    Fault { who: PeerId, fault: Fault },
    /// The compute thread has ended: the program is ending.
    #[error("the ring's thread has stopped")]
    Stopped,
    /// The node has given the ring up.
    #[error("the ring was given up")]
    Abandoned,
}
/// A position or a count of a ring, of at most 256.
fn small(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
