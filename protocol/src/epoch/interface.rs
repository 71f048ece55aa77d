//! What goes into the machine of an epoch, and what comes out.

use std::sync::Arc;
use std::time::Duration;

use crate::blocks::Blocks;
use crate::event::Event;
use crate::fault::Fault;
use crate::id::{Digest, LogId, PeerId, RunId};
use crate::lineage::Law;
use crate::log::Record;
use crate::message::{Finished, Head, Keep, Link, Member, Message, Opening, Receipt, Voter};
use crate::ring::Layout;
use crate::rule::Rule;
use crate::sign::Verified;
use crate::wire;

/// What the machine must know.
#[derive(Clone, Debug)]
pub struct Config {
    /// Run, key, and what is lawful in it.
    pub law: Law,
    /// Us.
    pub me: PeerId,
    /// The log that binds us.
    pub log: LogId,
    /// Which start of ours this is.
    pub incarnation: u64,
    /// Upper bound of the wait for others to be Ready.
    pub ready_grace: Duration,
    /// The greatest weight that a Ready may declare, in tokens.
    pub weight_max: u64,
    /// How many times the median weight of the last receipt it may be, where an epoch's budget is time.
    pub weight_medians: Option<u64>,
    /// Bytes of one update.
    pub update_bytes: u64,
    /// A rule that is turned off; `None` in every program.
    pub without: Option<Rule>,
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
    /// A chunk that a roster keeps is not to be had: the roster, and (roster, number) of the chunk.
    ChunkMissing(Digest, (Digest, u32)),
    /// An update is here.
    UpdateHeld(Digest, Kept),
    /// An update could not be fetched.
    UpdateMissing(Digest),
    /// The outer step is taken.
    Applied(Digest),
    /// A link of this epoch that somebody served.
    Link(PeerId, Box<Link>),
    /// Regroups of this epoch that somebody served.
    Openings(PeerId, Vec<Opening>),
    /// Whether a greater head is being fetched.
    Behind(bool),
    /// Whether somebody alive has a greater head that we have not given up.
    Ahead(bool),
    /// A checkpoint is loaded: go on from there.
    Enter {
        /// The head.
        head: Head,
        /// Its voters.
        voters: Vec<Voter>,
        /// The median weight in its receipt.
        median: Option<u64>,
    },
    /// The user wants to leave.
    Leave,
}

/// How safe an update is that is here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// It survives a power cut, and may be voted for (R5).
    Flushed,
    /// The disk does not take it: once decided by others it is applied, and that is all.
    InMemory,
}

/// What the caller has to do.
#[derive(Clone, Debug)]
pub enum Output {
    /// Have this on disk before any later output leaves the machine.
    Log(Record),
    /// Gossip a message.
    Gossip(Arc<Verified<Message>>),
    /// Send a message directly.
    Send(PeerId, Arc<Verified<Message>>),
    /// Run a ring.
    Ring(Arc<Ring>),
    /// Give up the ring of a roster.
    Abandon(Digest),
    /// Fetch an update from any of these.
    FetchUpdate(Digest, Vec<PeerId>),
    /// Take the outer step.
    Apply(Arc<Apply>),
    /// An epoch is committed.
    Committed {
        /// The new head.
        head: Head,
        /// What proves it.
        link: Box<Link>,
        /// Whether somebody else's `Commit` decided it for us.
        by_commit: bool,
    },
    /// Train the epoch after this head.
    Train(Head),
    /// A peer broke a rule.
    Fault(PeerId, Fault),
    /// Something to see.
    Event(Event),
    /// Farewell is said.
    Left,
}

/// A ring to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ring {
    /// Digest of the roster.
    pub roster: Digest,
    /// Members with a place, in ring order.
    pub members: Vec<Member>,
    /// Our position among them.
    pub index: usize,
    /// How it lies in the fragment.
    pub layout: Layout,
    /// The rest of the update, computed by earlier rings: to be fetched where it is not held.
    pub keep: Vec<Keep>,
}

/// An outer step to take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Apply {
    /// The epoch that is committed.
    pub epoch: u64,
    /// Digest of its receipt.
    pub r: Digest,
    /// Tokens committed on the lineage, this epoch included.
    pub tokens: u64,
    /// Digest of the update's bytes, which are held.
    pub update: Digest,
    /// In which blocks our frozen delta is in it (R34). In the others it is carried.
    pub spent: Blocks,
}

impl Apply {
    /// The outer step of `receipt`, which follows on the head `before`.
    pub(crate) fn of(run: &RunId, before: &Head, receipt: &Receipt, spent: Blocks) -> Self {
        Self {
            epoch: receipt.series.epoch,
            r: wire::receipt_digest(run, receipt),
            tokens: before.tokens.saturating_add(receipt.tokens()),
            update: receipt.update,
            spent,
        }
    }
}
