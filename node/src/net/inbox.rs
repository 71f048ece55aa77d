//! What reaches the actor: commands of handles and events of the tasks that serve streams; and what
//! handles and tasks read without asking it.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{PoisonError, RwLock, RwLockReadGuard},
    time::Duration,
};

use intellect_bootstrap::{frame::Room, manifest};
use intellect_protocol::{
    access::handshake::Reception,
    base::id::{PeerId as Peer, RunId},
    download::Failure,
};
use libp2p::{PeerId, swarm::ConnectionId};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::access::allow_list::AllowList;
use super::address::Address;
use super::enter::{Offer, OfferError, Offerers, Wanted};
use super::interface::{
    ByteStream, Event, GossipToken, SendError, StreamError, Topic, Unanswered, Verdict,
};
use super::limits::answers::Answers;
use super::limits::rate::{Inflow, RateLimiter, Receiver};
use super::limits::strangers::Strangers;

/// Where the answer to a command goes. It may be sent although nobody waits any longer.
pub(super) type Responder<T, E> = oneshot::Sender<Result<T, E>>;

/// What a holder of a handle asks the actor to do.
pub(super) enum Command {
    /// See [`super::Handle::manifests`] and [`super::Handle::entry_notices`].
    Offers { wanted: Wanted, of: Offerers, reply: Responder<Vec<Offer>, OfferError> },
    /// See [`super::Handle::join`].
    Join { run: RunId, manifest: manifest::File },
    /// See [`super::Handle::seek`].
    Seek { run: RunId, most: usize },
    /// See [`super::Handle::sought`].
    Sought { reply: Responder<Vec<Peer>, SendError> },
    /// See [`super::Handle::set_admit_request`].
    SetAdmitRequest { request: Vec<u8> },
    /// See [`super::Handle::notices`].
    Notices { peer: Peer, run: RunId, reply: Responder<Vec<Vec<u8>>, Failure> },
    /// See [`super::Handle::gossip`].
    Gossip { topic: Topic, bytes: Vec<u8> },
    /// See [`super::Handle::verdict`].
    Verdict { token: GossipToken, verdict: Verdict },
    /// See [`super::Handle::send_to_all`].
    SendToAll { peer: Peer, bytes: Vec<u8> },
    /// See [`super::Handle::knock`].
    Knock { beat: Vec<u8> },
    /// See [`super::Handle::spoke`].
    Spoke { peer: Peer },
    /// See [`super::Handle::open_ring`].
    OpenRing { peer: Peer, reply: Responder<ByteStream, StreamError> },
    /// See [`super::Handle::fetch`].
    Fetch { peer: Peer, request: Vec<u8>, reply: Responder<Vec<u8>, Failure> },
    /// See [`super::Handle::fault`].
    Fault { peer: Peer, why: String },
    /// See [`super::Handle::drop_peer`].
    Drop { peer: Peer, why: String },
}

/// What a task that serves a stream reports.
pub(super) enum TaskEvent {
    /// Our control stream to a peer is open, and takes what is put into `outbox`.
    StreamUp { peer: PeerId, connection: ConnectionId, outbox: mpsc::Sender<Vec<u8>> },
    /// Our control stream to a peer could not be opened, or has ended.
    StreamDown { peer: PeerId, connection: ConnectionId },
    /// The driver is to hear of this.
    Emit(Event),
    /// The result of our admit request.
    Answered { peer: PeerId, number: u64, answer: Result<Reception, Unanswered> },
    /// A peer has misbehaved on its stream.
    Fault { peer: PeerId, why: String, severity: Severity },
}

/// How heavily a fault counts against a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Severity {
    /// After a few of these a peer is dropped.
    Minor,
    /// One is enough: no version of this program can do it.
    Grave,
}

/// What handles and tasks read without asking the actor.
pub(super) struct Shared {
    /// The limit on all bulk and gossip that is sent.
    pub(super) limiter: RateLimiter,
    /// The limit on all answers that go through relays, which use the relays' bandwidth.
    pub(super) relayed: RateLimiter,
    /// The memory for frames of all control streams and requests of members together.
    members_room: Room,
    /// The same for all other peers, so that frames that never end keep out no member.
    strangers_room: Room,
    /// The rate at which the answers of all fetches arrive.
    pub(super) inflow: Inflow,
    /// The memory for answers that wait until their peers have read them.
    pub(super) answers: Answers,
    /// The rate of the messages of all peers that are no members.
    pub(super) strangers: Strangers,
    /// The members of the run, as the driver has reported them.
    pub(super) members: watch::Sender<BTreeSet<Peer>>,
    /// Peers that are not heard any more, as the driver has reported them.
    pub(super) silent: watch::Sender<BTreeSet<Peer>>,
    /// Peers that are kept out for their faults, and until when.
    pub(super) blocked: watch::Sender<BTreeMap<Peer, Instant>>,
    /// Where this node listens and is reached.
    pub(super) addresses: watch::Sender<Vec<Address>>,
    /// The ports of this node's sockets, for its next start.
    pub(super) ports: watch::Sender<Vec<Address>>,
    /// Where peers of the run are reached.
    pub(super) contacts: watch::Sender<Vec<Address>>,
    /// The allow list, which the actor follows.
    pub(super) allowed: watch::Sender<AllowList>,
    /// The notices that this node serves.
    pub(super) notices: watch::Sender<Vec<manifest::File>>,
    /// The queue of each open control stream.
    queues: RwLock<HashMap<Peer, mpsc::Sender<Vec<u8>>>>,
}

impl Shared {
    /// With no peers; `rate` as in [`super::Config`].
    pub(super) fn new(rate: u64) -> Self {
        Self {
            limiter: RateLimiter::new(rate),
            relayed: RateLimiter::new(RELAYED_RATE),
            members_room: Room::new(2 * STRANGERS_BYTES, FRAME_TIMEOUT),
            strangers_room: Room::new(STRANGERS_BYTES, FRAME_TIMEOUT),
            inflow: Inflow::default(),
            answers: Answers::default(),
            strangers: Strangers::default(),
            members: watch::Sender::default(),
            silent: watch::Sender::default(),
            blocked: watch::Sender::default(),
            addresses: watch::Sender::default(),
            ports: watch::Sender::default(),
            contacts: watch::Sender::default(),
            allowed: watch::Sender::default(),
            notices: watch::Sender::default(),
            queues: RwLock::default(),
        }
    }

    /// Whether the driver has reported a peer as a member.
    pub(super) fn is_member(&self, peer: &Peer) -> bool {
        self.members.borrow().contains(peer)
    }

    /// The memory for the next frame of a peer.
    pub(super) fn room(&self, peer: &Peer) -> &Room {
        if self.is_member(peer) { &self.members_room } else { &self.strangers_room }
    }

    /// What a peer is to the limit on bulk.
    pub(super) fn receiver(&self, peer: &Peer) -> Receiver {
        if self.is_member(peer) { Receiver::Member } else { Receiver::Stranger }
    }

    /// The queues, for reading. A panic elsewhere does not make them unusable, because no writer
    /// leaves them half changed.
    pub(super) fn queues(&self) -> RwLockReadGuard<'_, HashMap<Peer, mpsc::Sender<Vec<u8>>>> {
        self.queues.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the queue for messages to a peer; without one they cannot be sent.
    pub(super) fn set_queue(&self, peer: Peer, queue: Option<mpsc::Sender<Vec<u8>>>) {
        let mut queues = self.queues.write().unwrap_or_else(PoisonError::into_inner);
        match queue {
            Some(queue) => queues.insert(peer, queue),
            None => queues.remove(&peer),
        };
    }

    /// Closes all control streams, by ending their queues.
    pub(super) fn close_queues(&self) {
        self.queues.write().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// Reports that a peer has sent what no honest program sends.
pub(super) async fn blame(events: &mpsc::Sender<TaskEvent>, peer: PeerId, why: String) {
    let _ = events.send(TaskEvent::Fault { peer, why, severity: Severity::Grave }).await;
}

/// Sets a value, and wakes its readers only where that changes it.
pub(super) fn replace<T: PartialEq>(value: &watch::Sender<T>, new: T) {
    value.send_if_modified(|known| {
        let changed = *known != new;
        *known = new;
        changed
    });
}

/// Bytes per second (R45): enough for a model of ten million parameters to follow a run with epochs
/// of some minutes.
const RELAYED_RATE: u64 = 64_000;

/// Bytes of long frames of strangers that are in memory at once, partly read or waiting for the
/// driver. Members have twice as many.
const STRANGERS_BYTES: usize = 32 << 20;

/// A megabyte over a bad home link takes as long.
const FRAME_TIMEOUT: Duration = Duration::from_secs(10);
