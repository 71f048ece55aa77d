//! What goes into a peer with its holdings, and what comes out.
//!
//! To drive it: give [`Input::Start`] once, then one input for each thing that happens, and carry
//! out every output in order. Each write, read and fetch that an output asks for is answered by one
//! input, in any order.

use std::ops::Range;
use std::sync::Arc;

use crate::base::blocks::Blocks;
use crate::base::fault::Fault;
use crate::base::id::{Digest, PeerId};
use crate::base::sign::Verified;
use crate::consensus::epoch::{Apply, Ring};
use crate::history::evidence::Evidence;
use crate::history::log::Record;
use crate::machine::event::Event;
use crate::message::{Ask, Finished, Head, Message, Request};
use crate::peer;
use crate::ring::codec::Codec;

/// What must be known before a start.
#[derive(Clone, Debug)]
pub struct Config {
    /// The settings of the peer inside.
    pub peer: peer::Config,
    /// The codec of the run, which determines the length of an update.
    pub codec: Codec,
    /// The head, whose state is in memory.
    pub newest: Head,
    /// The newest complete checkpoint on disk, if there is one.
    pub saved: Option<Head>,
    /// The published weights with which the run begins, which are on disk.
    pub published: Option<Digest>,
    /// The run's tokenizer, if it has one; it is on disk.
    pub file: Option<Digest>,
    /// The files of the run's data that are handed out, if its manifest
    /// allows that; they are on disk.
    pub data: Vec<Digest>,
    /// Every update on disk, the oldest first.
    pub updates: Vec<Name>,
    /// The updates of the open epoch that the log of votes names.
    pub held: Vec<Digest>,
}

/// The name of an update, and of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    /// The epoch whose value it may be.
    pub epoch: u64,
    /// BLAKE3 of the update's bytes.
    pub digest: Digest,
}

/// The name of a chunk: the roster that computed it, and its number there.
pub type Chunk = (Digest, u32);

/// Bytes that the caller has in memory, until they are released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Buffer {
    /// A whole update, by its digest.
    Update(Digest),
    /// Everything that the ring of this roster has computed.
    Ring(Digest),
    /// A chunk that another peer has sent.
    Chunk(Chunk),
}

/// A buffer in memory, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The buffer that holds the bytes.
    pub buffer: Buffer,
    /// The range of bytes that is meant; `None` means all of them.
    pub range: Option<Range<usize>>,
}

/// The chunks of a roster that its ring did not compute, and the location of each.
pub type Slices = Vec<(Chunk, Slice)>;

/// Where something that another peer has requested is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// In memory, in these bytes of a buffer.
    Memory(Slice),
    /// On disk, in the file of this update.
    Update(Name),
    /// The newest state, in memory.
    Newest,
    /// A state on disk, by its digest.
    Checkpoint(Digest),
    /// The file of the run's tokenizer.
    File,
    /// On disk, in a file of the run's data.
    Data,
    /// Our lineage, or what we say of the run, as it is now ([`peer::State::answer`], [`peer::State::picture`]).
    Now,
}

/// The number that the caller has given to a request of another peer. Every [`Input::Asked`] is
/// answered exactly once, by [`Output::Serve`] or [`Output::Refuse`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Inquiry(pub u64);

/// How a write to the disk has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disk {
    /// It is on disk, and was flushed.
    Took,
    /// It is not on disk: the disk is full or failed.
    Refused,
}

/// How a new state was obtained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It is the result of an outer step.
    Applied,
    /// It was fetched from other peers.
    Loaded,
}

/// What happened to the peer or its caller.
#[derive(Clone, Debug)]
pub enum Input {
    /// The peer begins, at the head that was restored; once. Inputs before this, about a partial
    /// state or about reachability, are only recorded.
    Start,
    /// An input for the peer that concerns no holdings: a message, the time, an answer, a frozen
    /// delta, a lost ring neighbour, a state that nobody serves, the wish to leave.
    Peer(peer::Input),
    /// The outcome of the last [`Output::Write`].
    Written(Disk),
    /// The outcome of an [`Output::Keep`].
    Kept(Name, Disk),
    /// The update of a read or fetch is in memory; it has its digest, and can be applied.
    UpdateCame(Name),
    /// That update cannot be read, or no peer delivers it.
    UpdateMissed(Name),
    /// The chunk of an [`Output::FetchChunk`] is in memory, and matches its seal.
    ChunkCame {
        /// Roster of the ring that it is for.
        ring: Digest,
        /// The chunk, with its owner's seal.
        finished: Finished,
    },
    /// No peer delivers the chunk of an [`Output::FetchChunk`].
    ChunkMissed {
        /// Roster of the ring that it is for.
        ring: Digest,
        /// The chunk, with its owner's seal.
        finished: Finished,
    },
    /// A chunk of a ring of ours is finished and sealed by its owner.
    Sealed(Finished),
    /// A ring has ended before it had computed everything; its results are
    /// in memory as [`Buffer::Ring`].
    RingEnded(Digest),
    /// A ring has computed everything; it is in memory as [`Buffer::Ring`] and [`Buffer::Update`].
    RingHeld {
        /// Digest of the roster of the ring.
        roster: Digest,
        /// Digest of the update's bytes.
        update: Digest,
        /// Bytes per second that we sent in it.
        send_rate: u64,
    },
    /// The update of an [`Output::Join`] is in memory; `None` if its parts do not fit together.
    Joined {
        /// Digest of the roster of the update.
        roster: Digest,
        /// Digest of the update's bytes.
        update: Option<Digest>,
    },
    /// This is the newest state now, and it is in memory.
    State(Head, Origin),
    /// The outcome of the last [`Output::Save`].
    Saved(Disk),
    /// Another peer requests something.
    Asked(Inquiry, Request),
}

/// What the caller has to do, in order.
#[derive(Clone, Debug)]
pub enum Output {
    /// Append these records to the log and flush it. One write at a time. The outcome is
    /// [`Input::Written`]; a batch that was refused is handed out again.
    Write(Arc<Vec<Record>>),
    /// Write the update that is in memory to disk, and flush it. The outcome is [`Input::Kept`].
    Keep(Name),
    /// Read an update from disk into memory. The outcome is [`Input::UpdateCame`] or
    /// [`Input::UpdateMissed`].
    Read(Name),
    /// Fetch an update into memory from any of these peers, trying them in this order.
    FetchUpdate(Name, Vec<PeerId>),
    /// These peers have the update that is being fetched, if it still is.
    UpdateDonors(Digest, Vec<PeerId>),
    /// Fetch a chunk that a roster keeps into memory.
    FetchChunk {
        /// Roster of the ring that it is for.
        ring: Digest,
        /// The chunk, with its owner's seal.
        finished: Finished,
        /// The length of the chunk in bytes.
        length: usize,
        /// The peers that claim to hold it.
        holders: Vec<PeerId>,
    },
    /// Put the update of a roster together from the bytes of its ring and the chunks that it keeps.
    Join {
        /// The ring, with its layout and the chunks kept.
        ring: Arc<Ring>,
        /// The location of each kept chunk.
        parts: Slices,
    },
    /// Remove these updates from memory and from disk.
    Drop(Vec<Name>),
    /// Remove these bytes from memory.
    Release(Buffer),
    /// Write the newest state to disk, and flush it. One write at a time.
    Save(Head),
    /// This state is served from disk no more; its file may go.
    Retire(Digest),
    /// Answer a request with what is stored there.
    Serve(Inquiry, Location),
    /// Answer a request with a refusal.
    Refuse(Inquiry),
    /// Gossip a message to all peers.
    Gossip(Arc<Verified<Message>>),
    /// Send a message directly to a peer; where no stream is open, gossip it with a count.
    Send(PeerId, Arc<Verified<Message>>),
    /// Run the ring of a roster, all of whose Accepts we hold. If it keeps
    /// chunks, the ring computes the rest.
    Ring(Arc<Ring>),
    /// Stop the ring of this roster, if it still runs.
    Abandon(Digest),
    /// Take the outer step of a committed epoch; its update is in memory.
    Apply(Arc<Apply>),
    /// Ask a peer about its lineage.
    Ask(PeerId, Ask),
    /// Fetch and load the checkpoint of a verified head from any of these peers. An outer step
    /// that has not begun becomes void.
    Fetch {
        /// The head whose state is wanted.
        head: Head,
        /// Digest of the receipt that leads to the head.
        r: Digest,
        /// The peers that may serve it, living ones first.
        donors: Vec<PeerId>,
        /// The blocks in which the checkpoint already contains some of
        /// our unshared work (R27, R34).
        spent: Blocks,
    },
    /// The peers that serve that checkpoint, as far as they are known now, living ones first.
    Donors(Vec<PeerId>),
    /// Train the next epoch, from this many committed tokens on.
    Train {
        /// The epoch that is trained: the head's plus 1.
        epoch: u64,
        /// Tokens committed on the lineage so far.
        tokens: u64,
    },
    /// A peer broke a rule: close its connections and report it.
    Fault(PeerId, Fault),
    /// The same, where two messages of the peer prove it to everybody: report these too.
    Proven(Fault, Evidence),
    /// Something that a person may want to see.
    Event(Event),
    /// The farewell was sent: this peer gives no more outputs.
    Left,
    /// We were led back to an epoch in which we have been. The process has to start again, bound by
    /// its log (R20).
    Restart,
    /// No peer delivers the update of this decided epoch. The process has to end, and fetches
    /// the state when it starts again.
    Lost {
        /// The epoch whose update is lost.
        epoch: u64,
    },
}
