//! What goes into a peer, and what it must know at its start.
//!
//! Nothing here carries bulk bytes. An input names an update, a chunk or a state that the caller
//! already has or lacks, and the caller has checked its digest.

use std::sync::Arc;
use std::time::Duration;

use crate::base::id::{Digest, PeerId};
use crate::base::sign::Verified;
use crate::consensus::epoch::{self, Durability};
use crate::consensus::sync;
use crate::history::lineage::{LocalPeer, Validator};
use crate::history::log::Recovered;
use crate::message::{Answer, Finished, Head, Loss, Message, Notice};

/// What a peer must know before it starts. All but `me`, the key and what is recovered must be
/// equal for every peer of a run.
#[derive(Clone, Debug)]
pub struct Config {
    /// The run, our key, and the rules that make a link valid in this run. Peers with other rules
    /// refuse our messages.
    pub validator: Validator,
    /// Our key, the id of our log, and our incarnation, which must rise with every start.
    pub me: LocalPeer,
    /// The settings of the machine that decides an epoch.
    pub epoch: epoch::Config,
    /// The settings of the machine that follows heads.
    pub sync: sync::Config,
    /// The interval between heartbeats. A peer counts as silent after about four of them: short ones
    /// cost traffic, long ones let each lost peer stop the run for longer.
    pub heartbeat: Duration,
    /// How long a voter must be silent before the others may go on without it (R12). Too short, and
    /// a brief split of the network forks the run; too long, and survivors wait for a dead peer.
    pub minority_grace: Duration,
    /// What our disk still has of an earlier start, with this very log.
    pub recovered: Recovered,
}

/// What happened. The caller reports it once, in order.
#[derive(Clone, Debug)]
pub enum Input {
    /// Time has passed; due at [`State::deadline`](super::State::deadline).
    Tick,
    /// This process did not run for a while: it was stopped, or the machine slept. So much time passed
    /// that the times of the inputs do not contain.
    Woke(Duration),
    /// A verified control message, gossiped or sent directly.
    Message(Arc<Verified<Message>>),
    /// The last connection to a peer closed, in whichever direction it was dialled. It ages the
    /// peer, so that one more missing heartbeat makes it lost.
    Unlinked(PeerId),
    /// A round trip to a peer was measured, in milliseconds. Only a measurement of our own counts;
    /// what a heartbeat says of round trips is not given here.
    RoundTrip(PeerId, u32),
    /// Whether a direct connection joins a peer with us, in whichever direction it was dialled.
    Linked(PeerId, bool),
    /// Whether any peer can dial us. Until this or [`Input::Linked`] is reported, all peers count
    /// as joined with us.
    Reachable(bool),
    /// The epoch's budget is used up, and the delta is frozen until
    /// [`crate::machine::output::Output::Apply`].
    Trained {
        /// Tokens behind the delta, those carried from earlier epochs included. Never 0.
        tokens: u64,
        /// Norm of the delta, for people only.
        norm: f32,
        /// Mean loss of the training behind it, for people only.
        loss: Loss,
    },
    /// The ring of a roster computed the whole update, and its bytes are on disk and flushed.
    RingFinished {
        /// Digest of the roster whose ring it was.
        roster: Digest,
        /// Digest of the update's bytes.
        update: Digest,
        /// Bytes per second that we sent in this ring; others set their deadlines by it.
        send_rate: u64,
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
    /// A chunk of a ring is stored whole, with its owner's seal. It stays stored until it is
    /// reported as gone or another epoch begins (R10).
    ChunkHeld(Finished),
    /// The chunks of this roster's ring are no longer stored.
    ChunksGone(Digest),
    /// None of its holders delivered a chunk that a roster keeps: that roster, and (roster, number)
    /// of the chunk.
    ChunkMissing(Digest, (Digest, u32)),
    /// A fetched update is stored; after a start, also one that is still on the disk.
    UpdateHeld(Digest, Durability),
    /// None of the peers asked delivered the update; or it was stored, and had to give way to
    /// others.
    UpdateMissing(Digest),
    /// The outer step of [`crate::machine::output::Output::Apply`] gave this state digest.
    Applied {
        /// Digest of the state after the step.
        state: Digest,
    },
    /// The answer to an [`crate::machine::output::Output::Ask`]; `None` if there was none.
    Answer(PeerId, Option<Arc<Answer>>),
    /// Part of the checkpoint of this state is on disk, from before a restart. If it lies on the
    /// way, the rest of it is fetched rather than a newer one.
    Partial(Digest),
    /// The newest checkpoint on disk, which others may fetch, is of this epoch.
    Saved(u64),
    /// The checkpoint of an [`crate::machine::output::Output::Fetch`] is loaded, and on disk and
    /// flushed.
    Loaded(Head),
    /// That checkpoint could not be fetched from any of the peers named, or nothing of it arrived
    /// for a while.
    LoadFailed {
        /// The head that was to be reached.
        head: Head,
        /// Whether more of it is stored than before: then it is the next one to be tried.
        kept: bool,
    },
    /// A notice that came with the manifest, or from a peer that need not be in the run. If the
    /// organiser has signed it and it fits those known, it is reported by
    /// [`Event::Notice`](crate::machine::event::Event::Notice) and passed on.
    Notice(Box<Notice>),
    /// The user wants to leave the run. What is open may still end, for at most 4 s; then
    /// [`Output::Left`](crate::machine::output::Output::Left) follows (R29).
    Leave,
}

/// How long the caller waits for an answer before it reports `None`. An answer of 1 MiB needs 1.7
/// Mbit/s in this time. A peer that does not answer is left alone for a grace, and asked after
/// others.
pub const ASK_TIMEOUT: Duration = Duration::from_secs(5);
