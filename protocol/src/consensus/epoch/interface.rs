//! What goes into the machine of an epoch.

use std::sync::Arc;
use std::time::Duration;

use crate::base::id::{Digest, PeerId};
use crate::base::sign::Verified;
use crate::machine::step::{Ahead, Lead};
use crate::message::{Finished, Loss, Message, Ticket};

/// What the machine must know. It is derived from the manifest, but for `credentials`, which are
/// ours.
#[derive(Clone, Debug)]
pub struct Config {
    /// How long voters wait for others to be Ready while no earlier epoch gives a measure (R36).
    /// Too short, and slow peers get no ring position in the first epoch; too long, and one absent
    /// peer delays it.
    pub ready_grace: Duration,
    /// Bytes of one update. The deadlines of rings and votes grow with it.
    pub update_bytes: u64,
    /// What admits us to a run of invited peers; the default in open runs.
    pub credentials: Credentials,
}

/// What a peer brings to a run of invited peers.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    /// Our own ticket; needed until the ledger admits us.
    pub ticket: Option<Ticket>,
    /// The time at the start in Unix seconds; it decides whether a new ticket has expired (T4).
    pub unix: u64,
}

/// What happened, as `peer` reports it.
#[derive(Clone, Debug)]
pub(crate) enum Input {
    /// Time has passed, or the peer table has changed.
    Tick,
    /// This process did not run for so long, which the time of the inputs does not contain.
    Woke(Duration),
    /// A heartbeat of this peer was taken.
    Heard(PeerId),
    /// A verified message of this epoch, or of the next one.
    Message(Arc<Verified<Message>>),
    /// Training has ended, and the delta is frozen.
    Trained {
        /// Tokens that the delta was trained on, which are its weight.
        tokens: u64,
        /// Norm of the delta, for people only.
        norm: f32,
        /// Mean loss of the training behind it, for people only.
        loss: Loss,
    },
    /// The ring of a roster computed the whole update, which is flushed.
    RingFinished {
        /// Digest of the roster whose ring it was.
        roster: Digest,
        /// Digest of the bytes of the update.
        update: Digest,
    },
    /// The ring of a roster stopped before its end, by itself or because we gave it up.
    RingStopped {
        /// Digest of the roster whose ring it was.
        roster: Digest,
        /// The neighbour whose connection failed, if that was the reason.
        lost: Option<PeerId>,
        /// Hops whose chunk arrived whole, of 2(n − 1).
        hops: u32,
    },
    /// A chunk of a ring is stored whole, with its owner's seal.
    ChunkHeld(Finished),
    /// The chunks of this roster's ring are no longer stored.
    ChunksGone(Digest),
    /// Nobody delivers a chunk that a roster keeps: that roster, and (roster, number) of the chunk.
    ChunkMissing(Digest, (Digest, u32)),
    /// An update is stored here, and how safely.
    UpdateHeld(Digest, Durability),
    /// None of the peers asked delivered this update.
    UpdateMissing(Digest),
    /// The outer step is taken, and gave this state.
    Applied(Digest),
    /// What `sync` reports of greater heads.
    Lead(Lead),
    /// Whether a live peer has a greater head that we have not given up.
    Ahead(Ahead),
    /// Whether a direct connection joins a peer with us.
    Linked(PeerId, bool),
    /// Whether any peer can dial us.
    Reachable(bool),
    /// The user wants to leave the run.
    Leave,
}

/// How safely an update is stored; the safer one is the greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// The disk does not take it. It is served, and applied once others have decided it, but not
    /// voted for.
    InMemory,
    /// It survives a power cut, and may be voted for (R5).
    Flushed,
}
