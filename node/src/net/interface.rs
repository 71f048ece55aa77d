//! What the network is given, what it says, and how much of each: the words that the rest of the
//! node and the parts of the network share.

use std::{path::PathBuf, time::Duration};

use intellect_bootstrap::{
    address::{self, Scope},
    frame::Place,
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

use super::{address::Address, pace::Urgency, path::Path, reach::Reachability};

/// A stream of bytes to or from one peer. The end of it means nothing: whoever reads knows what is
/// due. Dropped, it is reset.
pub(crate) type ByteStream = Compat<libp2p::Stream>;

/// A ring stream that a peer opened.
pub(crate) type Ring = (PeerId, ByteStream);

/// What the network is given.
#[derive(Debug)]
pub(crate) struct Config {
    /// The seed of the ed25519 key.
    pub(crate) key_seed: [u8; 32],
    /// Where to listen; port 0 lets the system choose.
    pub(crate) listen: Vec<Address>,
    /// Addresses under which others reach this node, if it cannot see them itself.
    pub(crate) external: Vec<Address>,
    /// Where to enter; each ends in `/p2p/<peer id>` (`intellect_bootstrap::address::entry`).
    pub(crate) bootstrap: Vec<Address>,
    /// Where an earlier start reached peers of the run; each ends in `/p2p/<peer id>`.
    pub(crate) contacts: Vec<Address>,
    /// Limit on all bulk and gossip that is sent, bytes per second; 0 is none.
    pub(crate) rate: u64,
    /// The line of a simulation (`intellect_bootstrap::shaper`).
    pub(crate) line: Option<PathBuf>,
}

impl Config {
    /// Whether a way in, or this node, is on the internet.
    pub(super) fn is_far(&self) -> bool {
        self.scope() == Scope::Public
    }

    /// How far the farthest way in is, or this node.
    pub(super) fn scope(&self) -> Scope {
        let ways_in = if self.bootstrap.is_empty() { &self.contacts } else { &self.bootstrap };
        let known = ways_in.iter().chain(&self.external);
        known.filter_map(address::scope).max().unwrap_or(Scope::Loopback)
    }

    /// A number that differs from node to node, for jitter only.
    pub(super) fn jitter_seed(&self) -> u64 {
        self.key_seed.iter().fold(0, |seed: u64, byte| seed.rotate_left(5) ^ u64::from(*byte))
    }
}

/// Why the network could not start. The owner's fault, or of another program on the machine.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NetError {
    /// The seed makes no key.
    #[error("the seed is no ed25519 key: {0}")]
    Key(#[from] libp2p::identity::DecodingError),
    /// No transport.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// An address is not to be had.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// Our own mistake in the settings of gossip.
    #[error("gossip cannot be set up: {0}")]
    Gossip(&'static str),
}

/// A gossip topic of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Topic {
    /// Heartbeats.
    Beat,
    /// All other control messages.
    Ctl,
}

/// How a message came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Via {
    /// Over the control stream of `from`.
    Direct,
    /// By gossip; it is passed on to others only after [`super::Handle::verdict`].
    Gossip(GossipToken),
}

/// Names one gossiped message, for the verdict on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GossipToken {
    pub(super) id: MessageId,
    pub(super) source: libp2p::PeerId,
    pub(super) topic: TopicHash,
    pub(super) bytes: usize,
}

/// What becomes of a gossiped message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The message is good: pass it on.
    Accept,
    /// Not worth passing on, and nobody's fault: stale, or of another time.
    Ignore,
    /// No honest peer passes this on; whoever brought it is at [`super::Handle::fault`] too.
    Reject,
}

/// How a peer is connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Link {
    /// By a connection of its own: messages can be sent to it alone.
    Direct,
    /// Through a relay: gossip reaches it, and a few answers; rings do not.
    Relayed,
}

/// What happens on the network.
#[derive(Debug)]
pub(crate) enum Event {
    /// The node listens at one more address; [`super::Handle::addresses`] has them all.
    Listening,
    /// Whether others can reach the node has changed; `Display` is a sentence for its owner.
    Reachability(Reachability),
    /// A step on the way to others or of theirs to this node; `Display` is a sentence. At most one a
    /// second for long.
    Path(Path),
    /// A peer of the run is there, or its link has changed.
    Connected {
        /// The peer that is there.
        peer: PeerId,
        /// How it is connected now.
        link: Link,
    },
    /// A peer of the run is gone, and is dialled again if it was not dropped.
    Disconnected {
        /// The peer that is gone.
        peer: PeerId,
        /// Why, for people.
        cause: String,
    },
    /// A round trip to a peer of the run was measured; every few seconds.
    RoundTrip {
        /// The peer at the other end.
        peer: PeerId,
        /// How long it took, on the connection that carries messages.
        length: Duration,
    },
    /// A message, at most [`MESSAGE_BYTES_MAX`] long (by gossip [`GOSSIP_BYTES_MAX`]).
    Message {
        /// Whose connection brought it; not its author.
        from: PeerId,
        /// How it came.
        via: Via,
        /// The envelope.
        bytes: Vec<u8>,
        /// What it takes of the memory for frames, until it is dropped.
        place: Place,
    },
    /// A request, at most [`REQUEST_BYTES_MAX`] long.
    Fetch {
        /// The peer that asks.
        from: PeerId,
        /// What is asked for.
        request: Vec<u8>,
        /// Takes the answer, at most [`ANSWER_BYTES_MAX`] long; dropped, it refuses.
        reply: Reply,
    },
    /// Somebody has come to the lobby.
    Visit {
        /// The owner of the connection.
        from: PeerId,
        /// What it wants.
        visit: Box<Visit>,
        /// Takes the answer; dropped, there is none.
        reply: oneshot::Sender<Reception>,
    },
    /// What a peer answered to what this node shows.
    Received {
        /// The peer.
        peer: PeerId,
        /// Its answer.
        reception: Reception,
    },
    /// A peer speaks another major version. No fault of it.
    Incompatible {
        /// The peer that speaks it.
        peer: PeerId,
        /// What it speaks.
        version: String,
    },
    /// Where an entry point was named somebody else answers; once for each.
    Impostor {
        /// Where.
        address: String,
        /// Who, as libp2p prints it.
        found: String,
    },
    /// A peer did what no honest peer does; [`Event::Disconnected`] follows if it was dropped.
    Fault {
        /// The peer that did it.
        peer: PeerId,
        /// What, for people.
        why: String,
    },
}

/// Why a message was not taken. It is the sender's to repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SendError {
    /// No control stream to that peer: use gossip.
    #[error("no direct control stream to the peer")]
    NoStream,
    /// Too many messages wait already.
    #[error("too many messages wait")]
    Full,
    /// Longer than the limit.
    #[error("the message is too long")]
    TooLong,
    /// The network has stopped.
    #[error("the network has stopped")]
    Stopped,
}

/// Why there is no ring stream.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StreamError {
    /// No direct connection to the peer: bulk never goes over a relay.
    #[error("not connected to the peer directly")]
    NotConnected,
    /// No stream to the peer.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The network has stopped.
    #[error("the network has stopped")]
    Stopped,
}

/// What came of a visit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Response {
    /// The peer lets us in.
    Welcome,
    /// It does not.
    Refused,
    /// It has not said.
    Silent,
    /// It has no lobby.
    Unknown,
}

/// Where the answer to a request goes; dropped, it refuses.
#[derive(Debug)]
pub(crate) struct Reply(oneshot::Sender<(Vec<u8>, Urgency)>);

impl Reply {
    /// With the end that waits.
    pub(crate) fn new() -> (Self, Answered) {
        let (sender, answered) = oneshot::channel();
        (Self(sender), answered)
    }

    /// Answers, at most [`ANSWER_BYTES_MAX`], to somebody who catches up.
    pub(crate) fn send(self, answer: Vec<u8>) {
        // Whoever asked may be gone.
        let _ = self.0.send((answer, Urgency::Transfer));
    }

    /// Answers to somebody whom the end of an epoch waits for.
    pub(crate) fn send_at_once(self, answer: Vec<u8>) {
        // Whoever asked may be gone.
        let _ = self.0.send((answer, Urgency::Epoch));
    }
}

/// The end of a [`Reply`] that waits.
pub(crate) type Answered = oneshot::Receiver<(Vec<u8>, Urgency)>;

/// Most bytes of a message to one peer (docs/FORMATS.md).
pub(crate) const MESSAGE_BYTES_MAX: u32 = 1024 * 1024;

/// Most bytes of a gossiped message (docs/FORMATS.md).
pub(crate) const GOSSIP_BYTES_MAX: usize = 64 * 1024;

/// Most bytes of a request.
pub(crate) const REQUEST_BYTES_MAX: u32 = 64 * 1024;

/// Most bytes of an answer: a piece of 1 MiB and what frames it.
pub(crate) const ANSWER_BYTES_MAX: u32 = 1024 * 1024 + 4 * 1024;
