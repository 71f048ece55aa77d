//! What reaches the actor: the calls of handles and the notes of the tasks that serve streams; and
//! what handles and tasks read without asking it.

use std::{
    collections::{BTreeSet, HashMap},
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

use super::address::Address;
use super::door::Door;
use super::enter::{Offer, OfferError, Offerers, Wanted};
use super::interface::{ByteStream, Event, GossipToken, Response, StreamError, Topic, Verdict};
use super::pace::{Inflow, RateLimiter};

/// Where the answer to a call goes. That nobody waits for it any longer is no error.
pub(super) type Responder<T, E> = oneshot::Sender<Result<T, E>>;

/// What somebody with a handle wants.
pub(super) enum Call {
    /// See [`super::Handle::manifests`] and [`super::Handle::entry_notices`].
    Offers { wanted: Wanted, of: Offerers, reply: Responder<Vec<Offer>, OfferError> },
    /// See [`super::Handle::join`].
    Join { run: RunId, manifest: manifest::File },
    /// See [`super::Handle::seek`].
    Seek { run: RunId },
    /// See [`super::Handle::show`].
    Show { visit: Vec<u8> },
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

/// What a task that serves a stream has to say.
pub(super) enum Note {
    /// Our control stream to a peer is open, and takes what is put into `outbox`.
    LineUp { peer: PeerId, connection: ConnectionId, outbox: mpsc::Sender<Vec<u8>> },
    /// Our control stream to a peer could not be opened, or has ended.
    LineDown { peer: PeerId, connection: ConnectionId },
    /// Something for the driver has come.
    Tell(Event),
    /// What came of a visit of ours.
    Visited { peer: PeerId, number: u64, response: Response, reception: Option<Reception> },
    /// The peer has misbehaved.
    Fault { peer: PeerId, why: String, gravity: Gravity },
}

/// How bad a fault is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gravity {
    /// A few of these cost a peer its place.
    Minor,
    /// One is enough: no program of ours can do it, whatever its version.
    Grave,
}

/// What handles and tasks read without asking the actor.
pub(super) struct Shared {
    /// The limit on all that is sent.
    pub(super) limiter: RateLimiter,
    /// The limit on all answers that go through relays, which are others' lines.
    pub(super) relayed: RateLimiter,
    /// Where frames are read, of all control streams and requests together.
    pub(super) room: Room,
    /// How fast answers come in, of all fetches together.
    pub(super) inflow: Inflow,
    /// The members of the run, as far as the driver has said.
    pub(super) members: watch::Sender<BTreeSet<Peer>>,
    /// Who is not heard any more, as far as the driver has said.
    pub(super) silent: watch::Sender<BTreeSet<Peer>>,
    /// Where this node listens and is reached.
    pub(super) addresses: watch::Sender<Vec<Address>>,
    /// The ports of this node's sockets.
    pub(super) ports: watch::Sender<Vec<Address>>,
    /// Where peers of the run are reached.
    pub(super) contacts: watch::Sender<Vec<Address>>,
    /// Whom this node lets in.
    pub(super) door: watch::Sender<Door>,
    /// The notices that it hands out.
    pub(super) notices: watch::Sender<Vec<manifest::File>>,
    /// The queue of each open control stream.
    lines: RwLock<HashMap<Peer, mpsc::Sender<Vec<u8>>>>,
}

impl Shared {
    /// Nobody is there yet; `rate` as in [`super::Config`].
    pub(super) fn new(rate: u64) -> Self {
        Self {
            limiter: RateLimiter::new(rate),
            relayed: RateLimiter::new(RELAYED_RATE),
            room: Room::new(ROOM_BYTES, FRAME_TIMEOUT),
            inflow: Inflow::default(),
            members: watch::Sender::default(),
            silent: watch::Sender::default(),
            addresses: watch::Sender::default(),
            ports: watch::Sender::default(),
            contacts: watch::Sender::default(),
            door: watch::Sender::default(),
            notices: watch::Sender::default(),
            lines: RwLock::default(),
        }
    }

    /// The queues of open control streams.
    pub(super) fn lines(&self) -> RwLockReadGuard<'_, HashMap<Peer, mpsc::Sender<Vec<u8>>>> {
        self.lines.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on messages to a peer go into this queue; without one they have nowhere to go.
    pub(super) fn set_line(&self, peer: Peer, queue: Option<mpsc::Sender<Vec<u8>>>) {
        let mut lines = self.lines.write().unwrap_or_else(PoisonError::into_inner);
        match queue {
            Some(queue) => lines.insert(peer, queue),
            None => lines.remove(&peer),
        };
    }

    /// Closes all control streams, by ending their queues.
    pub(super) fn close_lines(&self) {
        self.lines.write().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// Bytes per second (R45): a model of ten million numbers follows a run whose epochs last some minutes.
const RELAYED_RATE: u64 = 64_000;

/// Bytes of long frames that are in memory at once, half read or waiting for the driver.
const ROOM_BYTES: usize = 64 << 20;

/// A megabyte over a bad home line takes as long.
const FRAME_TIMEOUT: Duration = Duration::from_secs(10);
