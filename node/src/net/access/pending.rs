//! Connections of peers that are not on the allow list: how many may wait and for how long, what
//! they may ask for, and to which peers this node has sent its own admit request.
//!
//! Only slots, time and bytes of this node are protected here; what a peer without admission can do
//! to the run is decided by the rosters. A connection that we dialled takes no slot of incoming
//! ones, or unadmitted peers could take all slots.

use std::{
    collections::{HashMap, VecDeque},
    net::IpAddr,
    time::Duration,
};

use intellect_bootstrap::crowding;
use intellect_protocol::access::handshake::{Outcome, Reception};
use libp2p::{PeerId, swarm::ConnectionId};
use tokio::time::Instant;

use super::allow_list::AllowList;
use crate::net::{
    interface::Unanswered,
    limits::bucket::Bucket,
    peers::{Connection, Peers},
};

/// A connection whose peer is not on the allow list.
#[derive(Debug)]
struct PendingConnection {
    /// The peer at the other end, whose key is verified.
    peer: PeerId,
    /// The network that it counts for; `None` where we dialled and it takes no slot, `Some(None)`
    /// where it takes one, but its address is not of the internet.
    network: Option<Option<IpAddr>>,
    /// When the connection is closed unless the peer is allowed meanwhile.
    closes_at: Instant,
    /// Requests that came over it so far.
    requests: u32,
}

/// An admit request that is to be sent now.
#[derive(Debug)]
pub(crate) struct DueRequest {
    /// A connected peer that has not heard our request yet.
    pub(crate) peer: PeerId,
    /// Its best connection, on which the request is sent.
    pub(crate) connection: ConnectionId,
    /// The number of the request among all that this node has had.
    pub(crate) number: u64,
    /// What is sent: our ticket, or the question whether a notice admits us.
    pub(crate) request: Vec<u8>,
}

/// How far a peer is with our admit request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// It may be sent (again) from this time on.
    DueAt(Instant),
    /// It was sent and is not answered yet.
    Sent,
    /// The peer allows us, or does not speak the handshake.
    Settled,
}

/// All pending connections, and our own request.
#[derive(Debug)]
pub(crate) struct Pending {
    /// The allow list as the driver set it last.
    allowed: AllowList,
    /// Pending connections. Incoming ones are bounded by [`SLOTS`], dialled ones by our own dials.
    connections: HashMap<ConnectionId, PendingConnection>,
    /// Requests of each connection in an open run.
    asked: HashMap<ConnectionId, u32>,
    /// What this node shows to be admitted; `None` until the driver or a tool has set it. In an
    /// open run a node sets none.
    request: Option<Vec<u8>>,
    /// How often our request has changed.
    number: u64,
    /// How far each connected peer is with the request. An entry goes with the peer's last
    /// connection.
    progress: HashMap<PeerId, Progress>,
    /// Peers that asked for nothing in time, and until when they are not dialled again.
    ignored: VecDeque<(PeerId, Instant)>,
    /// What all pending connections together may ask for; in an open run, what all may.
    rate: Bucket,
}

impl Pending {
    /// Nobody is allowed yet, and no request is set.
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            allowed: AllowList::default(),
            connections: HashMap::new(),
            asked: HashMap::new(),
            request: None,
            number: 0,
            progress: HashMap::new(),
            ignored: VecDeque::new(),
            rate: Bucket::new(REQUESTS_PER_S, REQUESTS_BURST, now),
        }
    }

    /// Whether the peer is on the allow list.
    pub(crate) fn allows(&self, peer: &PeerId) -> bool {
        self.allowed.allows(peer)
    }

    /// Replaces the allow list, and returns the peers that are no longer on it. Other connected
    /// peers that are not on it, except `is_entry`, get the time of a new pending connection.
    pub(crate) fn set_allow_list(
        &mut self,
        list: AllowList,
        peers: &Peers,
        is_entry: impl Fn(&PeerId) -> bool,
        now: Instant,
    ) -> Vec<PeerId> {
        let before = std::mem::replace(&mut self.allowed, list);
        let mut removed = Vec::new();
        for (peer, entry) in peers.iter() {
            if self.allowed.allows(peer) {
                self.connections.retain(|_, connection| connection.peer != *peer);
            } else if before.allows(peer) {
                removed.push(*peer);
            } else if self.allowed.is_restricted() && !before.is_restricted() && !is_entry(peer) {
                for connection in &entry.connections {
                    let pending = PendingConnection::new(*peer, None, now);
                    self.connections.insert(connection.id, pending);
                }
            }
        }
        removed
    }

    /// A connection was established; false where there is no slot for it.
    pub(crate) fn connected(&mut self, peer: PeerId, connection: &Connection) -> bool {
        if !self.allowed.is_restricted() || self.allowed.allows(&peer) {
            return true;
        }
        let network = (!connection.dialled).then(|| crowding::network(&connection.remote));
        if let Some(network) = network {
            let all: Vec<_> = self.connections.values().filter_map(|c| c.network).collect();
            let near = all.iter().filter(|other| network.is_some() && **other == network);
            if all.len() >= SLOTS || near.count() >= SLOTS_PER_NETWORK {
                return false;
            }
        }
        let pending = PendingConnection::new(peer, network, connection.since);
        self.connections.insert(connection.id, pending);
        true
    }

    /// A connection has closed; `last`: its peer has no other one.
    pub(crate) fn closed(&mut self, peer: &PeerId, id: ConnectionId, last: bool) {
        self.connections.remove(&id);
        self.asked.remove(&id);
        if last {
            self.progress.remove(peer);
        }
    }

    /// Whether a request over this connection is read. Above the limits it is not, and its stream
    /// is reset without a fault: the peer may ask again later. The first request extends the
    /// connection by the time that an answer takes.
    pub(crate) fn takes_request(&mut self, id: ConnectionId, now: Instant) -> bool {
        let requests = match (self.connections.get_mut(&id), &self.allowed) {
            (Some(pending), _) => {
                pending.requests += 1;
                if pending.requests == 1 {
                    pending.closes_at = now + ANSWER_TIMEOUT;
                }
                pending.requests
            }
            (None, AllowList::Nobody) => return false,
            // In an open run anybody may be the organiser with a notice.
            (None, AllowList::Everybody) => {
                let requests = self.asked.entry(id).or_default();
                *requests = requests.saturating_add(1);
                *requests
            }
            (None, AllowList::Only(_)) => return true,
        };
        requests <= REQUESTS_PER_CONNECTION && self.rate.take(now)
    }

    /// Connections whose time is over, which the caller closes. Their peers are ignored for a
    /// while, or each of our dials would bring such a connection back.
    pub(crate) fn over(&mut self, now: Instant) -> Vec<ConnectionId> {
        let over: Vec<_> = self.connections.extract_if(|_, it| it.closes_at <= now).collect();
        for (_, pending) in &over {
            self.ignored.push_back((pending.peer, now + IGNORED_FOR));
        }
        while self.ignored.len() > IGNORED_MAX
            || self.ignored.front().is_some_and(|(_, until)| *until <= now)
        {
            self.ignored.pop_front();
        }
        over.into_iter().map(|(id, _)| id).collect()
    }

    /// Whether a peer may be dialled. One that asked for nothing in time is left alone for a
    /// while.
    pub(crate) fn may_dial(&self, peer: &PeerId) -> bool {
        self.allows(peer) || self.ignored.iter().all(|(known, _)| known != peer)
    }

    /// Replaces our request, which then goes to every connected peer.
    pub(crate) fn set_request(&mut self, request: Vec<u8>) {
        self.request = Some(request);
        self.number += 1;
        self.progress.clear();
    }

    /// The connected peers that our request goes to now; it then counts as sent.
    pub(crate) fn take_due(&mut self, peers: &Peers, now: Instant) -> Vec<DueRequest> {
        let (Some(request), number) = (&self.request, self.number) else { return Vec::new() };
        let mut due = Vec::new();
        for (peer, connection) in peers.connected_ones() {
            let progress = self.progress.entry(peer).or_insert(Progress::DueAt(now));
            if matches!(*progress, Progress::DueAt(at) if at <= now) && due.len() < SENT_AT_ONCE {
                *progress = Progress::Sent;
                due.push(DueRequest { peer, connection, number, request: request.clone() });
            }
        }
        due
    }

    /// Notes the result of a request; false where it is out of date: the peer has disconnected
    /// since, or our request has changed.
    pub(crate) fn note(
        &mut self,
        peer: PeerId,
        number: u64,
        answer: &Result<Reception, Unanswered>,
        now: Instant,
    ) -> bool {
        let Some(progress) = self.progress.get_mut(&peer) else { return false };
        if *progress != Progress::Sent || number != self.number {
            return false;
        }
        *progress = match answer.as_ref().map(|reply| &reply.outcome) {
            Ok(Outcome::Welcome) | Err(Unanswered::Unknown) => Progress::Settled,
            Ok(Outcome::Refused(_)) => Progress::DueAt(now + REFUSED_AGAIN),
            Err(Unanswered::Silent) => Progress::DueAt(now + AGAIN),
        };
        true
    }
}

impl PendingConnection {
    /// A connection that has asked for nothing yet.
    fn new(peer: PeerId, network: Option<Option<IpAddr>>, now: Instant) -> Self {
        Self { peer, network, closes_at: now + REQUEST_TIMEOUT, requests: 0 }
    }
}

/// Incoming connections that may be pending at once, and those of one network: an IPv4 address or
/// an IPv6 /64 (docs/FORMATS.md). Connections in one house or machine are not counted by network.
const SLOTS: usize = 16;
const SLOTS_PER_NETWORK: usize = 2;
/// Time for the first request, and from then on until it is answered: a busy driver and a slow
/// link.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Requests of one connection, and those a second of all together: each costs a few signatures.
const REQUESTS_PER_CONNECTION: u32 = 8;
const REQUESTS_PER_S: u32 = 64;
const REQUESTS_BURST: u32 = 64;
/// A peer that did not answer was busy starting; one that refused may learn of a notice.
const AGAIN: Duration = Duration::from_secs(1);
const REFUSED_AGAIN: Duration = Duration::from_secs(10);
/// Requests that are sent at a time; the next tick sends more, so that a node with hundreds of
/// connections does not open as many streams at once.
const SENT_AT_ONCE: usize = 16;
/// A peer that asked for nothing will dial us itself once it has a ticket.
const IGNORED_FOR: Duration = Duration::from_secs(15);
/// Ignored peers that are remembered; the oldest is forgotten first, and may then be dialled too
/// soon.
const IGNORED_MAX: usize = 256;

#[cfg(test)]
mod tests;
