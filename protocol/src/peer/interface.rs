//! What goes into a peer.

use std::sync::Arc;
use std::time::Duration;

use crate::base::id::{Digest, PeerId};
use crate::base::sign::Verified;
use crate::consensus::epoch::{self, Durability};
use crate::consensus::sync;
use crate::history::lineage::{Law, Me};
use crate::history::log::Recovered;
use crate::message::{Answer, Finished, Head, Message, Notice};

/// What a peer must know before it starts. All but `me`, the key and what is recovered is equal for every
/// peer of a run.
#[derive(Clone, Debug)]
pub struct Config {
    /// Run, key, and what is lawful in it.
    pub law: Law,
    /// Who we are.
    pub me: Me,
    /// What decides an epoch.
    pub epoch: epoch::Config,
    /// Where lineages begin, and which way is short.
    pub sync: sync::Config,
    /// Heartbeat interval.
    pub heartbeat: Duration,
    /// How long a voter must be silent before others go on without it.
    pub minority_grace: Duration,
    /// What its disk still has of an earlier start, with this very log.
    pub recovered: Recovered,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// Time has passed.
    Tick,
    /// A control message, whichever way it came.
    Message(Arc<Verified<Message>>),
    /// The last connection to a peer closed, whichever way it led.
    Unlinked(PeerId),
    /// A round trip to a peer was measured, in milliseconds.
    RoundTrip(PeerId, u32),
    /// Whether a direct connection joins a peer with us, whoever dialled it.
    Linked(PeerId, bool),
    /// Whether anybody can dial us. Until this or [`Input::Linked`] is told, everybody is joined with us.
    Reachable(bool),
    /// The epoch's budget is used up, and the delta is frozen until [`crate::machine::output::Output::Apply`].
    Trained {
        /// Tokens behind the delta, those carried from earlier epochs included. Never 0.
        tokens: u64,
        /// Norm of the delta, for people.
        norm: f32,
    },
    /// The ring of a roster gave the whole update, and its bytes are on disk and flushed.
    RingFinished {
        /// Digest of the roster.
        roster: Digest,
        /// Digest of the update's bytes.
        update: Digest,
        /// Bytes per second that we sent.
        send_rate: u64,
    },
    /// The ring of a roster lost a neighbour.
    RingLost {
        /// Digest of the roster.
        roster: Digest,
        /// The neighbour.
        neighbour: PeerId,
    },
    /// A chunk of a ring is held whole, with its owner's word, and stays held until it is said to be
    /// gone or another epoch begins (R10).
    ChunkHeld(Finished),
    /// The chunks of the ring of a roster are held no more.
    ChunksGone(Digest),
    /// None of its holders delivered a chunk that a roster keeps: that roster, and (roster, number) of
    /// the chunk.
    ChunkMissing(Digest, (Digest, u32)),
    /// A fetched update is here; after a start also one that still is on the disk.
    UpdateHeld(Digest, Durability),
    /// None of the peers asked delivered the update; or it was held, and had to give way to others.
    UpdateMissing(Digest),
    /// The outer step of [`crate::machine::output::Output::Apply`] gave this state digest.
    Applied {
        /// State digest.
        state: Digest,
    },
    /// The answer to an [`crate::machine::output::Output::Ask`]; `None` when there was none.
    Answer(PeerId, Option<Arc<Answer>>),
    /// Some of the checkpoint of this state is on disk, from before a restart: if it lies on the way, the
    /// rest of it is fetched rather than a newer one.
    Partial(Digest),
    /// The newest checkpoint on disk, which others may fetch, is of this epoch.
    Saved(u64),
    /// The checkpoint of an [`crate::machine::output::Output::Fetch`] is loaded, and on disk and flushed.
    Loaded(Head),
    /// That checkpoint could not be fetched from any of the peers named, or nothing of it came for
    /// a while.
    LoadFailed(Head),
    /// A notice that came with the manifest, or that somebody brought, who need not be in the run: one that the
    /// organiser has signed, and that fits those known, is told by [`Event::Notice`](crate::machine::event::Event::Notice) and
    /// passed on.
    Notice(Box<Notice>),
    /// The user wants to leave.
    Leave,
}

/// How long the caller waits for an answer before it reports `None`.
pub const ASK_TIMEOUT: Duration = Duration::from_secs(5);
