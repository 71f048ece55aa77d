//! What goes into a peer with its holdings, and what comes out.

use std::ops::Range;
use std::sync::Arc;

use crate::base::blocks::Blocks;
use crate::base::fault::Fault;
use crate::base::id::{Digest, PeerId};
use crate::base::sign::Verified;
use crate::consensus::epoch::{Apply, Ring};
use crate::history::log::Record;
use crate::machine::event::Event;
use crate::message::{Ask, Finished, Head, Message, Request};
use crate::peer;
use crate::ring::codec::Codec;

/// What must be known before a start.
#[derive(Clone, Debug)]
pub struct Config {
    /// The settings of the peer.
    pub peer: peer::Config,
    /// How deltas travel.
    pub codec: Codec,
    /// The state at the head, which is in memory.
    pub newest: Head,
    /// The newest whole checkpoint on disk, if there is one.
    pub saved: Option<Head>,
    /// The published weights that the run begins with, which are on disk.
    pub published: Option<Digest>,
    /// The run's tokenizer, if there is one; it is on disk.
    pub file: Option<Digest>,
    /// The files of the run's data that are handed out, where its manifest allows it; they are on disk.
    pub data: Vec<Digest>,
    /// Every update on disk, the oldest first.
    pub updates: Vec<Name>,
    /// The updates of the open epoch that the log of votes names.
    pub held: Vec<Digest>,
}

/// Which update a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    /// The epoch that it may be the result of.
    pub epoch: u64,
    /// The digest of its bytes.
    pub digest: Digest,
}

/// A chunk: by the roster that computed it, and its number there.
pub type Chunk = (Digest, u32);

/// Bytes that the caller has in memory, until they are released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Buffer {
    /// A whole update.
    Update(Digest),
    /// All that the ring of a roster has computed.
    Ring(Digest),
    /// A chunk that another peer has sent.
    Chunk(Chunk),
}

/// Bytes in memory, or some of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Which.
    pub buffer: Buffer,
    /// The part of it that is meant; all of it if `None`.
    pub range: Option<Range<usize>>,
}

/// The chunks of a roster that its ring did not compute, and where each one is.
pub type Slices = Vec<(Chunk, Slice)>;

/// Where something lies that another peer has asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// These bytes in memory.
    Memory(Slice),
    /// A file with an update.
    Update(Name),
    /// The newest state, in memory.
    Newest,
    /// A state on disk.
    Checkpoint(Digest),
    /// The file of the run's tokenizer.
    File,
    /// A file of the run's data.
    Data,
    /// In our lineage, as it is now ([`peer::State::answer`]).
    Lineage,
}

/// The number that the caller has given to a question of another peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Inquiry(pub u64);

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disk {
    /// It is on the disk, and flushed.
    Took,
    /// It is not on the disk.
    Refused,
}

/// Where a state comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// An outer step gave it.
    Applied,
    /// It was fetched from other peers.
    Loaded,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// The peer begins, at the head that was restored; once. What the peer is told before, of a partial
    /// state or of its reach, is only noted.
    Start,
    /// Something for the peer that concerns nothing held: a message, the time, an answer, a delta that
    /// is frozen, a neighbour that a ring has lost, a state that cannot be had, the wish to leave.
    Peer(peer::Input),
    /// What became of the records of the last [`Output::Write`].
    Written(Disk),
    /// What became of the update of an [`Output::Keep`].
    Kept(Name, Disk),
    /// An update that was to be read or fetched is in memory; it has its digest, and can be applied.
    UpdateCame(Name),
    /// That update cannot be read, or nobody delivers it.
    UpdateMissed(Name),
    /// The chunk of an [`Output::FetchChunk`] is in memory, and is the one that was sealed.
    ChunkCame {
        /// The ring that it is for.
        ring: Digest,
        /// The chunk.
        finished: Finished,
    },
    /// Nobody delivers the chunk of an [`Output::FetchChunk`].
    ChunkMissed {
        /// The ring that it is for.
        ring: Digest,
        /// The chunk.
        finished: Finished,
    },
    /// A chunk of a ring of ours is finished, with its owner's word.
    Sealed(Finished),
    /// A ring has ended before it had computed everything; what it has is in memory as
    /// [`Buffer::Ring`].
    RingEnded(Digest),
    /// A ring has computed everything; it is in memory as [`Buffer::Ring`] and [`Buffer::Update`].
    RingHeld {
        /// Digest of the roster.
        roster: Digest,
        /// Digest of the bytes.
        update: Digest,
        /// Bytes per second that we sent.
        send_rate: u64,
    },
    /// The update of an [`Output::Join`] is in memory; `None` if its parts do not fit together.
    Joined {
        /// Digest of the roster.
        roster: Digest,
        /// Digest of its bytes.
        update: Option<Digest>,
    },
    /// This is the newest state now, and in memory.
    State(Head, Origin),
    /// What became of the state of the last [`Output::Save`].
    Saved(Disk),
    /// Another peer asks for something.
    Asked(Inquiry, Request),
}

/// What the caller has to do.
#[derive(Clone, Debug)]
pub enum Output {
    /// Append these to the log and flush it. One write at a time.
    Write(Arc<Vec<Record>>),
    /// Have the update that is in memory on disk, flushed.
    Keep(Name),
    /// Read an update into memory.
    Read(Name),
    /// Fetch an update into memory from any of these peers, in this order.
    FetchUpdate(Name, Vec<PeerId>),
    /// Fetch a chunk that a roster keeps into memory.
    FetchChunk {
        /// The ring that it is for.
        ring: Digest,
        /// The chunk.
        finished: Finished,
        /// Its length in bytes.
        length: usize,
        /// Who holds it.
        holders: Vec<PeerId>,
    },
    /// Put the update of a roster together, of the bytes of its ring and the chunks that it keeps.
    Join {
        /// The roster's ring.
        ring: Arc<Ring>,
        /// Where each kept chunk is.
        parts: Slices,
    },
    /// These updates are needed no more, in memory and on disk.
    Drop(Vec<Name>),
    /// These bytes are needed in memory no more.
    Release(Buffer),
    /// Write the newest state to disk, and flush it. One write at a time.
    Save(Head),
    /// This state is served from disk no more.
    Retire(Digest),
    /// Answer a question with what lies there.
    Serve(Inquiry, Location),
    /// Let a question go unanswered.
    Refuse(Inquiry),
    /// Gossip a message.
    Gossip(Arc<Verified<Message>>),
    /// Send a message directly to a peer; where no stream is open, gossip it with a count.
    Send(PeerId, Arc<Verified<Message>>),
    /// Run the ring of a roster: we hold all its Accepts. Where it keeps chunks, it computes the rest.
    Ring(Arc<Ring>),
    /// Give up the ring of a roster, if it still runs.
    Abandon(Digest),
    /// Take the outer step of a committed epoch; its update is in memory.
    Apply(Arc<Apply>),
    /// Ask a peer about its lineage.
    Ask(PeerId, Ask),
    /// Fetch and load the checkpoint of a verified head from any of these peers. An outer step that has
    /// not begun is void.
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
    /// The peers that serve that checkpoint, as far as they are known now; those that are alive
    /// come first.
    Donors(Vec<PeerId>),
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
    /// Nobody delivers the update of this decided epoch: the process has to end, and to fetch the state
    /// when it starts again.
    Lost {
        /// The epoch.
        epoch: u64,
    },
}
