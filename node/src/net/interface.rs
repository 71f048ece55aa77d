//! The configuration, events, errors and size limits of the network: the types that its parts share
//! with the rest of the node.

use std::{path::PathBuf, time::Duration};

use intellect_bootstrap::{
    address::{self, Scope},
    frame::Reservation,
    streams::OpenError,
    transport::{BuildError, ListenError},
};
use intellect_protocol::{
    access::handshake::{Reception, Visit},
    base::id::PeerId,
};
use libp2p::gossipsub::{MessageId, TopicHash};
use tokio::sync::oneshot;
use tokio_util::compat::Compat;

use super::{address::Address, limits::rate::Urgency, path::Path, reach::Reachability};

/// A stream of bytes to or from one peer. Its end carries no meaning: the reader knows how much is
/// due. Dropping it resets it.
pub(crate) type ByteStream = Compat<libp2p::Stream>;

/// A ring stream that a peer opened.
pub(crate) struct Ring {
    /// The peer at the other end, whose key the connection has proved.
    pub(crate) from: PeerId,
    /// Whether the driver has reported that peer as a member.
    pub(crate) is_member: bool,
    /// The stream, from which no byte was read; its preamble says for which ring it is.
    pub(crate) stream: ByteStream,
}

/// What the network needs at its start, and cannot change later.
#[derive(Debug, Default)]
pub(crate) struct Config {
    /// The seed of the ed25519 key. Two programs with one seed are one peer to all others.
    pub(crate) key_seed: [u8; 32],
    /// Addresses to listen on; with port 0 the system chooses one.
    pub(crate) listen: Vec<Address>,
    /// Addresses at which others reach this node, where it cannot find them out itself.
    pub(crate) external: Vec<Address>,
    /// Entry points; each ends in `/p2p/<peer id>` (`intellect_bootstrap::address::entry`).
    pub(crate) bootstrap: Vec<Address>,
    /// Addresses at which an earlier start reached peers of the run; each ends in `/p2p/<peer id>`.
    pub(crate) contacts: Vec<Address>,
    /// Limit on all bulk and gossip that is sent, in bytes per second; 0 is no limit.
    pub(crate) rate: u64,
    /// The file that shapes the link of a simulated node (`intellect_bootstrap::shaper`).
    pub(crate) line: Option<PathBuf>,
}

impl Config {
    /// The widest scope of the addresses of entry points and of this node.
    pub(super) fn scope(&self) -> Scope {
        let ways_in = if self.bootstrap.is_empty() { &self.contacts } else { &self.bootstrap };
        let known = ways_in.iter().chain(&self.external);
        known.filter_map(address::scope).max().unwrap_or(Scope::Loopback)
    }

    /// A number that differs from node to node; for jitter only.
    pub(super) fn jitter_seed(&self) -> u64 {
        self.key_seed.iter().fold(0, |seed: u64, byte| seed.rotate_left(5) ^ u64::from(*byte))
    }
}

/// Why the network could not start: a mistake of its owner, or another program on the machine.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NetError {
    /// The seed gives no key, which no seed of 32 bytes should do.
    #[error("the seed is no ed25519 key: {0}")]
    Key(#[from] libp2p::identity::DecodingError),
    /// The transport cannot be set up on this machine.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// An address cannot be listened on.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The settings of gossip contradict one another: our own mistake.
    #[error("gossip cannot be set up: {0}")]
    Gossip(&'static str),
}

/// The two kinds of gossip. Heartbeats have a topic of their own, because subscribing to it makes a
/// peer a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Topic {
    /// Heartbeats, and nothing else.
    Beat,
    /// All control messages but heartbeats.
    Ctl,
}

/// By which way a message came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Via {
    /// Over the control stream of `from`.
    Direct,
    /// By gossip, which passes it on only after [`super::Handle::verdict`].
    Gossip(GossipToken),
}

/// Identifies one gossiped message for the verdict on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GossipToken {
    /// BLAKE3 of topic and bytes, by which gossipsub stores the message until the verdict.
    pub(super) id: MessageId,
    /// The peer that brought it. A rejected message lowers its score.
    pub(super) source: libp2p::PeerId,
    /// Its topic, whose neighbours in the mesh would get it.
    pub(super) topic: TopicHash,
    /// Its length, which counts against the rate once for each of these neighbours.
    pub(super) bytes: usize,
}

/// What gossip does with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Passes it on to the neighbours of the mesh.
    Accept,
    /// Drops it without blaming anybody: it is stale or ahead of us.
    Ignore,
    /// Drops it as one that no honest peer passes on. The caller also blames the sender by
    /// [`super::Handle::fault`].
    Reject,
}

/// How a peer of the run is connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Link {
    /// By a direct connection: messages can be sent to this peer alone.
    Direct,
    /// Through a relay, which carries gossip and a few answers, but no rings.
    Relayed,
}

/// What the network reports to the driver.
#[derive(Debug)]
pub(crate) enum Event {
    /// The node listens on one more address; [`super::Handle::addresses`] has them all.
    Listening,
    /// The reachability of the node has changed; `Display` is a sentence for its owner.
    Reachability(Reachability),
    /// A step towards connecting to others, or of others to this node; `Display` is a sentence. On
    /// average at most one a second.
    Path(Path),
    /// A peer of the run has connected, or its link has changed.
    Connected { peer: PeerId, link: Link },
    /// A peer of the run has disconnected; it is dialled again, unless it was dropped.
    Disconnected {
        peer: PeerId,
        /// The reason, as a clause for people.
        cause: String,
    },
    /// A peer of the run has said which version of this program it runs, in at most 32 plain characters. Nobody can
    /// check it. It comes behind each [`Event::Connected`], once it is known.
    Version { peer: PeerId, version: String },
    /// A round trip to a peer of the run was measured; every few seconds.
    RoundTrip {
        peer: PeerId,
        /// Measured on the connection that carries messages.
        length: Duration,
    },
    /// A message, at most [`MESSAGE_BYTES_MAX`] long (by gossip [`GOSSIP_BYTES_MAX`]).
    Message {
        /// The peer whose connection brought it, which need not be its author.
        from: PeerId,
        via: Via,
        bytes: Vec<u8>,
        /// The part of the memory for frames that it takes, until this is dropped.
        reserved: Reservation,
    },
    /// A request, at most [`REQUEST_BYTES_MAX`] long.
    Fetch {
        from: PeerId,
        request: Vec<u8>,
        /// Takes the answer, at most [`ANSWER_BYTES_MAX`] long; dropping it refuses.
        reply: Reply,
    },
    /// A peer asks to be admitted, hands over a notice, or asks what is in force.
    AdmitRequest {
        from: PeerId,
        request: Box<Visit>,
        /// Takes the answer; if it is dropped, the peer gets none.
        reply: oneshot::Sender<Reception>,
    },
    /// The reply of a peer to our admit request.
    AdmitReply { peer: PeerId, reply: Reception },
    /// A peer speaks another major version, which is no fault.
    Incompatible { peer: PeerId, version: String },
    /// Another peer answers at the address of an entry point; reported once for each entry point.
    Impostor {
        address: String,
        /// The id of that peer, as libp2p prints it.
        found: String,
    },
    /// An entry point has not answered for minutes, or `answers` again.
    EntryPoint {
        /// One of its addresses, as it was typed.
        address: String,
        answers: bool,
    },
    /// A peer did what no honest peer does; [`Event::Disconnected`] follows if it was dropped.
    Fault {
        peer: PeerId,
        /// The reason, as a clause for people.
        why: String,
    },
}

/// Why a message was not taken. The sender repeats it where it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SendError {
    /// There is no control stream to the peer, but gossip may reach it.
    #[error("no direct control stream to the peer")]
    NoStream,
    /// The queue is full: the peer reads slowly, or the actor is busy.
    #[error("too many messages wait")]
    Full,
    /// Above [`MESSAGE_BYTES_MAX`], or above [`GOSSIP_BYTES_MAX`] for gossip.
    #[error("the message is too long")]
    TooLong,
    /// The actor has ended, so the node is ending.
    #[error("the network has stopped")]
    Stopped,
}

/// Why there is no ring stream.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StreamError {
    /// There is no direct connection, and bulk never goes through a relay.
    #[error("not connected to the peer directly")]
    NotConnected,
    /// The stream could not be opened on any connection.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The actor has ended, so the node is ending.
    #[error("the network has stopped")]
    Stopped,
}

/// Why a peer gave no reply to our admit request. Neither is a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unanswered {
    /// It has not answered in time.
    Silent,
    /// It does not speak the handshake.
    Unknown,
}

/// Takes the answer to a request; dropping it refuses.
#[derive(Debug)]
pub(crate) struct Reply(oneshot::Sender<(Vec<u8>, Urgency)>);

impl Reply {
    /// A reply and the end that waits for it.
    pub(crate) fn new() -> (Self, Answered) {
        let (sender, answered) = oneshot::channel();
        (Self(sender), answered)
    }

    /// Answers a peer that catches up, with at most [`ANSWER_BYTES_MAX`].
    pub(crate) fn send(self, answer: Vec<u8>) {
        // Fails only where the peer has disconnected.
        let _ = self.0.send((answer, Urgency::Transfer));
    }

    /// Answers a peer that the end of an epoch waits for.
    pub(crate) fn send_at_once(self, answer: Vec<u8>) {
        // Fails only where the peer has disconnected.
        let _ = self.0.send((answer, Urgency::Epoch));
    }
}

/// The end of a [`Reply`] that waits.
pub(crate) type Answered = oneshot::Receiver<(Vec<u8>, Urgency)>;

/// Most bytes of a message to one peer (docs/FORMATS.md).
pub(crate) const MESSAGE_BYTES_MAX: u32 = 1024 * 1024;

/// Most bytes of a gossiped message (docs/FORMATS.md).
pub(crate) const GOSSIP_BYTES_MAX: usize = 64 * 1024;

/// Most bytes of a request to one peer.
pub(crate) const REQUEST_BYTES_MAX: u32 = 1024;

/// Most bytes of an answer: a piece of 1 MiB and its header.
pub(crate) const ANSWER_BYTES_MAX: u32 = 1024 * 1024 + 4 * 1024;
