//! The network of one node: an actor that owns the libp2p swarm, and the handle to it.
//!
//! Messages are opaque bytes here but for their length. The actor finds the peers of a run, keeps
//! connected to them, carries gossip, direct messages, requests and ring streams, and notices
//! misbehaviour that shows without understanding: lengths above the limit, floods. What only the
//! driver can judge (an envelope that does not decode or verify) it reports with
//! [`Handle::verdict`] and [`Handle::fault`], and who has misbehaved enough is dropped and kept out
//! for ten minutes.
//!
//! Tasks: the actor, and one per control stream, request and answer, all of them in the actor's
//! set, ended with it. Every queue has a bound: commands [`COMMANDS`], events [`EVENTS`] (the actor
//! stops reading the network while they are full, and never stops taking commands, so driver and
//! actor cannot wait for each other), ring streams [`RINGS`].
//!
//! It decides nothing about epochs and reads no message.

mod actor;
pub(crate) mod address;
mod behaviour;
mod contacts;
mod dial;
mod enter;
mod fetch;
mod line;
mod members;
mod mute;
mod name;
mod pace;
mod peers;
mod reach;
mod run;

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use intellect_bootstrap::{
    streams::OpenError,
    transport::{BuildError, ListenError},
};
use intellect_protocol::id::{PeerId, RunId};
use libp2p::{gossipsub::MessageId, identity::Keypair};
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinHandle,
    time::Instant,
};
use tokio_util::{compat::Compat, sync::CancellationToken};

use self::{
    actor::{Actor, Command},
    address::Address,
    pace::{Inflow, Pace, Urgency},
};

pub(crate) use self::{
    enter::{EnterError, Offer},
    fetch::{FetchError, Reply, TIMEOUT as FETCH_TIMEOUT},
    peers::Link,
    reach::Reachability,
};

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
    /// Limit on all bulk that is sent, bytes per second; 0 is none.
    pub(crate) rate: u64,
    /// The line of a simulation (`intellect_bootstrap::shaper`).
    pub(crate) line: Option<PathBuf>,
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

/// A running network.
pub(crate) struct Net {
    /// To talk to it.
    pub(crate) handle: Handle,
    /// What happens; to be read all the time.
    pub(crate) events: mpsc::Receiver<Event>,
    /// Ring streams that peers open. One that finds the queue full is reset.
    pub(crate) rings: mpsc::Receiver<Ring>,
    /// Ends soon after `stop` was cancelled: the last messages get [`actor::FLUSH`] to leave.
    pub(crate) task: JoinHandle<()>,
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
    /// By gossip; it is passed on to others only after [`Handle::verdict`].
    Gossip(GossipToken),
}

/// Names one gossiped message, for the verdict on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GossipToken {
    id: MessageId,
    source: libp2p::PeerId,
}

/// What becomes of a gossiped message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is good: pass it on.
    Accept,
    /// Not worth passing on, and nobody's fault: stale, or of another time.
    Ignore,
    /// No honest peer passes this on; whoever brought it is at [`Handle::fault`] too.
    Reject,
}

/// What happens on the network.
#[derive(Debug)]
pub(crate) enum Event {
    /// The node listens at one more address; [`Handle::addresses`] has them all.
    Listening,
    /// Whether others can reach the node has changed; `Display` is a sentence for its owner.
    Reachability(Reachability),
    /// A peer of the run is there, or its link has changed.
    Connected {
        /// Who.
        peer: PeerId,
        /// How.
        link: Link,
    },
    /// A peer of the run is gone, and is dialled again if it was not dropped.
    Disconnected {
        /// Who.
        peer: PeerId,
        /// Why, for people.
        cause: String,
    },
    /// A round trip to a peer of the run was measured; every few seconds.
    RoundTrip {
        /// Who.
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
    },
    /// A request, at most [`REQUEST_BYTES_MAX`] long.
    Fetch {
        /// Who asks.
        from: PeerId,
        /// What is asked for.
        request: Vec<u8>,
        /// Takes the answer, at most [`ANSWER_BYTES_MAX`] long; dropped, it refuses.
        reply: Reply,
    },
    /// A peer speaks another major version. No fault of it.
    Incompatible {
        /// Who.
        peer: PeerId,
        /// What it speaks.
        version: String,
    },
    /// A peer did what no honest peer does; [`Event::Disconnected`] follows if it was dropped.
    Fault {
        /// Who.
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
pub(crate) enum RingError {
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

/// Starts the network on the current tokio runtime; it ends when `stop` is cancelled or all
/// handles are dropped.
///
/// # Errors
/// See [`NetError`]; nothing is left running then.
pub(crate) fn start(config: Config, stop: CancellationToken) -> Result<Net, NetError> {
    let key = Keypair::ed25519_from_bytes(config.key_seed)?;
    let (commands, inbox) = mpsc::channel(COMMANDS);
    let (outbox, events) = mpsc::channel(EVENTS);
    let (arrivals, rings) = mpsc::channel(RINGS);
    let shared = Arc::new(Shared {
        pace: Pace::new(config.rate),
        inflow: Inflow::default(),
        lines: RwLock::default(),
        addresses: watch::Sender::default(),
        contacts: watch::Sender::default(),
    });
    let actor = Actor::new(config, &key, shared.clone(), inbox, outbox, arrivals)?;
    let task = tokio::spawn(actor.run(stop));
    Ok(Net { handle: Handle { commands, shared }, events, rings, task })
}

/// Talks to the network. Cheap to clone; nothing here waits for the network but where it says so.
#[derive(Clone)]
pub(crate) struct Handle {
    commands: mpsc::Sender<Command>,
    shared: Arc<Shared>,
}

/// What handles read without asking the actor.
pub(crate) struct Shared {
    pace: Pace,
    /// Of answers, of all fetches together.
    inflow: Inflow,
    /// The queue of each open control stream.
    lines: RwLock<HashMap<PeerId, mpsc::Sender<Vec<u8>>>>,
    addresses: watch::Sender<Vec<Address>>,
    contacts: watch::Sender<Vec<Address>>,
}

impl Handle {
    /// Every signed manifest that entry points and connected peers hand out, of `run` or of all.
    /// Waits 25 s at most.
    ///
    /// # Errors
    /// See [`EnterError`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn manifests(&self, run: Option<RunId>) -> Result<Vec<Offer>, EnterError> {
        let (reply, answer) = oneshot::channel();
        self.commands
            .send(Command::Manifests { run, reply })
            .await
            .map_err(|_| EnterError::Stopped)?;
        answer.await.unwrap_or(Err(EnterError::Stopped))
    }

    /// Joins a run: listens to its gossip, announces itself and finds others, and hands out its
    /// manifest. Once and for good; a second call changes nothing.
    ///
    /// # Errors
    /// [`SendError::Stopped`] only.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn join(&self, run: RunId, manifest: Vec<u8>) -> Result<(), SendError> {
        let command = Command::Join { run, manifest: manifest.into() };
        self.commands.send(command).await.map_err(|_| SendError::Stopped)
    }

    /// The members of the run that a control stream is open to.
    pub(crate) fn members(&self) -> Vec<PeerId> {
        let lines = self.shared.lines.read().unwrap_or_else(PoisonError::into_inner);
        lines.keys().copied().collect()
    }

    /// Gives a message to everybody in the run. That nobody is there yet is no error.
    ///
    /// # Errors
    /// See [`SendError`].
    pub(crate) fn gossip(&self, topic: Topic, bytes: Vec<u8>) -> Result<(), SendError> {
        if bytes.len() > GOSSIP_BYTES_MAX {
            return Err(SendError::TooLong);
        }
        self.command(Command::Gossip { topic, bytes })
    }

    /// Gives a message to one peer.
    ///
    /// # Errors
    /// See [`SendError`].
    pub(crate) fn send(&self, peer: PeerId, bytes: Vec<u8>) -> Result<(), SendError> {
        if u32::try_from(bytes.len()).map_or(true, |length| length > MESSAGE_BYTES_MAX) {
            return Err(SendError::TooLong);
        }
        let lines = self.shared.lines.read().unwrap_or_else(PoisonError::into_inner);
        lines.get(&peer).ok_or(SendError::NoStream)?.try_send(bytes).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => SendError::Full,
            mpsc::error::TrySendError::Closed(_) => SendError::NoStream,
        })
    }

    /// Says what becomes of a gossiped message; without it, it is not passed on.
    pub(crate) fn verdict(&self, token: GossipToken, verdict: Verdict) {
        // A verdict that is lost costs one forwarding.
        let _ = self.command(Command::Verdict { token, verdict });
    }

    /// Opens a stream of bytes to a peer on a connection of its own, by TCP if that can be had. The
    /// one before it to the same peer is closed. Waits 20 s at most.
    ///
    /// # Errors
    /// See [`RingError`].
    ///
    /// # Cancel safety
    /// Cancel safe; the stream is reset.
    pub(crate) async fn open_ring(&self, peer: PeerId) -> Result<ByteStream, RingError> {
        let (reply, answer) = oneshot::channel();
        let command = Command::OpenRing { peer, reply };
        self.commands.send(command).await.map_err(|_| RingError::Stopped)?;
        answer.await.unwrap_or(Err(RingError::Stopped))
    }

    /// Asks a peer, and waits 30 s at most for its answer.
    ///
    /// # Errors
    /// See [`FetchError`].
    ///
    /// # Cancel safety
    /// Cancel safe; the request may have reached the peer.
    pub(crate) async fn fetch(
        &self,
        peer: PeerId,
        request: Vec<u8>,
    ) -> Result<Vec<u8>, FetchError> {
        let (reply, answer) = oneshot::channel();
        let command = Command::Fetch { peer, request, reply };
        self.commands.send(command).await.map_err(|_| FetchError::Stopped)?;
        answer.await.unwrap_or(Err(FetchError::Stopped))
    }

    /// Whether answers come in about as fast as they ever have: no other donor would bring them sooner.
    pub(crate) fn is_line_full(&self) -> bool {
        self.shared.inflow.is_full(Instant::now())
    }

    /// Waits until `bytes` more of bulk may be sent under the rate limit. Answers to requests do it
    /// by themselves; whoever writes to a ring stream does it with this.
    ///
    /// # Cancel safety
    /// Cancel safe; the bytes count as sent.
    pub(crate) async fn pace(&self, bytes: usize) {
        self.shared.pace.take(bytes, Urgency::Ring).await;
    }

    /// Into slices of how many bytes a sender cuts what it sends, where it would take `most`: so that
    /// others get their turn under a low rate, and whoever reads hears of us all the time.
    pub(crate) fn slice(&self, most: usize) -> usize {
        self.shared.pace.slice(most)
    }

    /// Counts a fault against the peer whose connection brought something that does not decode or
    /// verify, and tells of it by [`Event::Fault`]. One too many and the peer is dropped.
    pub(crate) fn fault(&self, peer: PeerId, why: impl Into<String>) {
        let _ = self.command(Command::Fault { peer, why: why.into() });
    }

    /// Disconnects a peer and keeps it out for ten minutes.
    pub(crate) fn drop_peer(&self, peer: PeerId, why: impl Into<String>) {
        let _ = self.command(Command::Drop { peer, why: why.into() });
    }

    /// Where this node listens and is reached, `/p2p/…` included.
    #[must_use]
    pub(crate) fn addresses(&self) -> Vec<Address> {
        self.shared.addresses.borrow().clone()
    }

    /// Where peers of the run are reached, `/p2p/…` included, the best first.
    pub(crate) fn contacts(&self) -> watch::Receiver<Vec<Address>> {
        self.shared.contacts.subscribe()
    }

    fn command(&self, command: Command) -> Result<(), SendError> {
        self.commands.try_send(command).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => SendError::Full,
            mpsc::error::TrySendError::Closed(_) => SendError::Stopped,
        })
    }
}

/// Most bytes of a message to one peer (docs/FORMATS.md).
pub(crate) const MESSAGE_BYTES_MAX: u32 = 1024 * 1024;

/// Most bytes of a gossiped message (docs/FORMATS.md).
pub(crate) const GOSSIP_BYTES_MAX: usize = 64 * 1024;

/// Most bytes of a request.
pub(crate) const REQUEST_BYTES_MAX: u32 = 64 * 1024;

/// Most bytes of an answer: a piece of 1 MiB and what frames it.
pub(crate) const ANSWER_BYTES_MAX: u32 = 1024 * 1024 + 4 * 1024;

/// Commands that wait: a second of everybody's messages in a run of a few hundred.
const COMMANDS: usize = 1_024;

/// Events that wait for the driver. 256 of them may hold a megabyte each.
const EVENTS: usize = 256;

/// Ring streams that wait to be taken, which the driver does at once: eight peers may open at the
/// same moment as many as they may.
const RINGS: usize = 64;

#[cfg(test)]
mod tests;
