//! What goes into the machine of an epoch.

use std::sync::Arc;
use std::time::Duration;

use crate::base::id::{Digest, PeerId};
use crate::base::sign::Verified;
use crate::machine::step::{Ahead, Lead};
use crate::message::{Finished, Message, Ticket};

/// What the machine must know.
#[derive(Clone, Debug)]
pub struct Config {
    /// Upper bound of the wait for others to be Ready.
    pub ready_grace: Duration,
    /// Bytes of one update.
    pub update_bytes: u64,
    /// What lets us into a run of invited peers; the default in open runs.
    pub credentials: Credentials,
}

/// What a peer brings to a run of invited peers.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    /// Our own ticket; needed until the ledger has us.
    pub ticket: Option<Ticket>,
    /// The time at the start in Unix seconds, by which a new ticket may have expired (T4).
    pub unix: u64,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// Time has passed, or the roll has changed.
    Tick,
    /// A peer was heard, by its heartbeat.
    Heard(PeerId),
    /// A verified message of this epoch, or of the next.
    Message(Arc<Verified<Message>>),
    /// The delta is frozen.
    Trained {
        /// Tokens behind it.
        tokens: u64,
        /// Its norm.
        norm: f32,
    },
    /// The ring of a roster gave the whole update.
    RingFinished {
        /// Digest of the roster.
        roster: Digest,
        /// Digest of the update.
        update: Digest,
    },
    /// The ring of a roster lost a neighbour.
    RingLost {
        /// Digest of the roster.
        roster: Digest,
        /// The neighbour.
        neighbour: PeerId,
    },
    /// A chunk of a ring is held whole, with its owner's word.
    ChunkHeld(Finished),
    /// The chunks of the ring of a roster are held no more.
    ChunksGone(Digest),
    /// Nobody delivers a chunk that a roster keeps: that roster, and (roster, number) of the chunk.
    ChunkMissing(Digest, (Digest, u32)),
    /// An update is here.
    UpdateHeld(Digest, Durability),
    /// An update could not be fetched.
    UpdateMissing(Digest),
    /// The outer step is taken.
    Applied(Digest),
    /// What `sync` tells of greater heads.
    Lead(Lead),
    /// Whether somebody alive has a greater head that we have not given up.
    Ahead(Ahead),
    /// Whether a direct connection joins a peer with us.
    Linked(PeerId, bool),
    /// Whether anybody can dial us.
    Reachable(bool),
    /// The user wants to leave.
    Leave,
}

/// How safe an update is that is here; the safer one is the greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// The disk does not take it: once decided by others it is applied, and that is all.
    InMemory,
    /// It survives a power cut, and may be voted for (R5).
    Flushed,
}
