//! What goes into a peer, and what comes out.

use std::sync::Arc;
use std::time::Duration;

use crate::blocks::Blocks;
use crate::epoch::{Apply, Ring, Rule};
use crate::event::Event;
use crate::fault::Fault;
use crate::id::{Digest, LogId, PeerId, RunId};
use crate::log::{Record, Recovered};
use crate::message::{Answer, Ask, Finished, Head, Message, Voter};
use crate::sign::{Keypair, Verified};

/// What a peer must know before it starts; all but the last group is equal for every peer of a run.
#[derive(Clone, Debug)]
pub struct Config {
    /// The run.
    pub run: RunId,
    /// State digest of genesis, epoch 0.
    pub genesis: Digest,
    /// Peers that must be present to found the run.
    pub peers_min: usize,
    /// The voters of genesis under `quorum = "majority"`, which forbids every Regroup; `None` is
    /// `quorum = "available"`.
    pub founders: Option<Vec<Voter>>,
    /// Heartbeat interval.
    pub heartbeat: Duration,
    /// Upper bound of the wait for others to be Ready.
    pub ready_grace: Duration,
    /// How long a voter must be silent before others go on without it.
    pub minority_grace: Duration,
    /// The greatest weight that a Ready may declare, in tokens.
    pub weight_max: u64,
    /// How many times the median weight of the last receipt it may be, where an epoch's budget is time.
    pub weight_medians: Option<u64>,
    /// Elements of the fragment that an epoch updates.
    pub elements: u64,
    /// Bytes of one update, for the ring's deadline.
    pub update_bytes: u64,
    /// Catching up by more updates than this costs more than a checkpoint; at most [`UPDATES_KEPT`].
    pub replay_max: usize,

    /// Our key.
    pub key: Keypair,
    /// The log that binds us.
    pub log: LogId,
    /// Which start of this peer this is: rises with each. On disk before the first message.
    pub incarnation: u64,
    /// What its disk still has of an earlier start, with this very log.
    pub recovered: Option<Recovered>,
    /// A rule that is turned off, to see that tests notice. `None` in every program.
    pub without: Option<Rule>,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// Time has passed.
    Tick,
    /// A control message, whichever way it came.
    Message(Arc<Verified<Message>>),
    /// The last direct connection to a peer closed.
    Unlinked(PeerId),
    /// A round trip to a peer was measured, in milliseconds.
    RoundTrip(PeerId, u32),
    /// Whether bulk can reach us without a relay; until told, it can.
    Reachable(bool),
    /// The epoch's budget is used up, and the delta is frozen until [`Output::Apply`].
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
    /// A fetched update is on disk and flushed; after a start also one that still is there.
    UpdateHeld(Digest),
    /// An update is here, but the disk does not take it: it may be applied, not voted for.
    UpdateUnflushed(Digest),
    /// None of the peers asked delivered the update.
    UpdateMissing(Digest),
    /// The outer step of [`Output::Apply`] gave this state digest.
    Applied {
        /// State digest.
        state: Digest,
    },
    /// The answer to an [`Output::Ask`]; `None` when there was none.
    Answer(PeerId, Option<Arc<Answer>>),
    /// Some of the checkpoint of this state is on disk, from before a restart: if it lies on the way, the
    /// rest of it is fetched rather than a newer one.
    Partial(Digest),
    /// The checkpoint of an [`Output::Fetch`] is loaded, and on disk and flushed.
    Loaded(Head),
    /// It could not be fetched from any of the peers named, or delivered nothing for a while.
    LoadFailed(Head),
    /// The user wants to leave.
    Leave,
}

/// What the caller has to do.
#[derive(Clone, Debug)]
pub enum Output {
    /// Append this to the log, and flush it before the first later output that leaves the machine.
    Log(Record),
    /// Gossip a message; the count tells repeats apart.
    Gossip(Arc<Verified<Message>>),
    /// Send a message directly to a peer; where no stream is open, gossip it with a count.
    Send(PeerId, Arc<Verified<Message>>),
    /// Run the ring of a roster: we hold all its Accepts. Where it keeps chunks, what the ring gives is
    /// the rest: the update is both.
    Ring(Arc<Ring>),
    /// Give up the ring of a roster, if it still runs.
    Abandon(Digest),
    /// Fetch an update by digest from any of these peers, in this order.
    FetchUpdate(Digest, Vec<PeerId>),
    /// Take the outer step of a committed epoch.
    Apply(Arc<Apply>),
    /// Fetch these updates from any of these peers, the first one first, as the `Apply` of each will
    /// follow once that of the one before is done. One that nobody delivers is
    /// [`Input::UpdateMissing`], when its `Apply` has come.
    Replay {
        /// Epoch and digest of each.
        updates: Vec<(u64, Digest)>,
        /// Who serves them.
        donors: Vec<PeerId>,
    },
    /// Ask a peer about its lineage; answer with [`Input::Answer`], at the latest after
    /// [`ASK_TIMEOUT`].
    Ask(PeerId, Ask),
    /// Fetch and load the checkpoint of a verified head from any of these peers. An `Apply` that still
    /// waits for its update is void.
    Fetch {
        /// The head.
        head: Head,
        /// Digest of the receipt that leads to it.
        r: Digest,
        /// Who serves it.
        donors: Vec<PeerId>,
        /// In which blocks some of our unshared work is in it already (R27, R34).
        spent: Blocks,
    },
    /// Train the next epoch, from this many committed tokens on.
    Train {
        /// The epoch to train.
        epoch: u64,
        /// Tokens committed on the lineage so far.
        tokens: u64,
    },
    /// A peer broke a rule: drop it.
    Fault(PeerId, Fault),
    /// Something that people may want to see.
    Event(Event),
    /// We have said farewell: nothing more will come.
    Left,
}

/// Committed updates that a peer keeps for others to replay: a day away at an epoch of 45 minutes.
pub const UPDATES_KEPT: usize = 32;

/// How long the caller waits for an answer before it reports `None`.
pub const ASK_TIMEOUT: Duration = Duration::from_secs(5);
