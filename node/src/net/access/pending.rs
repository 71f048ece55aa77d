//! Connections of peers that are not on the allow list: how many may wait and for how long, what they
//! may ask for, and to which peers this node has sent its own admit request.
//!
//! Only slots, time and bytes of this node are protected here; what a peer without admission can do to
//! the run is decided by the rosters. A connection that we dialled takes no slot of incoming ones, or
//! unadmitted peers could take all slots.

use std::{
    collections::{HashMap, VecDeque},
    net::IpAddr,
    time::Duration,
};

use intellect_bootstrap::crowding;
use libp2p::{PeerId, swarm::ConnectionId};
use tokio::time::Instant;

use super::allow_list::AllowList;
use crate::net::{
    interface::Response,
    limits::bucket::Bucket,
    peers::{Connection, Peers},
};

/// A connection whose peer is not on the allow list.
#[derive(Debug)]
struct PendingConnection {
    /// The peer at the other end, whose key is verified.
    peer: PeerId,
    /// The network that it counts for; `None` where we dialled and it takes no slot.
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
    /// What this node shows to be admitted; `None` until the driver has set it.
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

    /// Replaces the allow list, and returns the peers that are no longer on it. Other connected peers
    /// that are not on it, except `is_entry`, get the time of a new pending connection.
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
        if last {
            self.progress.remove(peer);
        }
    }

    /// Whether a request over this connection is read. The first one extends the connection by the time
    /// that an answer takes. In an open run, where anybody may be the organiser with a notice, all share one rate.
    pub(crate) fn takes_request(&mut self, id: ConnectionId, now: Instant) -> bool {
        let Some(pending) = self.connections.get_mut(&id) else {
            return self.allowed.is_restricted() || self.rate.take(now);
        };
        pending.requests += 1;
        if pending.requests == 1 {
            pending.closes_at = now + ANSWER_TIMEOUT;
        }
        pending.requests <= REQUESTS_PER_CONNECTION && self.rate.take(now)
    }

    /// Connections whose time is over.
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

    /// Notes the result of a request; false where it is out of date: the peer has disconnected since, or
    /// our request has changed.
    pub(crate) fn note(
        &mut self,
        peer: PeerId,
        number: u64,
        response: Response,
        now: Instant,
    ) -> bool {
        let Some(progress) = self.progress.get_mut(&peer) else { return false };
        if *progress != Progress::Sent || number != self.number {
            return false;
        }
        *progress = match response {
            Response::Welcome | Response::Unknown => Progress::Settled,
            Response::Silent => Progress::DueAt(now + AGAIN),
            Response::Refused => Progress::DueAt(now + REFUSED_AGAIN),
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

/// Incoming connections that may be pending at once, and those of one network.
const SLOTS: usize = 16;
const SLOTS_PER_NETWORK: usize = 2;
/// Time for the first request, and from then on until it is answered: a busy driver and a slow link.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Requests of one connection, and those a second of all together: each costs a few signatures.
const REQUESTS_PER_CONNECTION: u32 = 8;
const REQUESTS_PER_S: u32 = 64;
const REQUESTS_BURST: u32 = 64;
/// A peer that did not answer was busy starting; one that refused may learn of a notice.
const AGAIN: Duration = Duration::from_secs(1);
const REFUSED_AGAIN: Duration = Duration::from_secs(10);
const SENT_AT_ONCE: usize = 16;
/// A peer that asked for nothing will dial us itself once it has a ticket.
const IGNORED_FOR: Duration = Duration::from_secs(15);
const IGNORED_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, sync::Arc};

    use intellect_protocol::base::id::PeerId as Name;
    use libp2p::Multiaddr;

    use super::*;
    use crate::net::{name, peers::Purpose};

    fn peer(seed: u8) -> PeerId {
        name::to_libp2p(Name([seed; 32]))
    }

    fn connection(number: usize, remote: &str, dialled: bool, since: Instant) -> Connection {
        let (id, purpose) = (ConnectionId::new_unchecked(number), Purpose::Control);
        let remote: Multiaddr = remote.parse().unwrap();
        Connection { id, purpose, remote, dialled, relayed: false, since }
    }

    fn invited(seeds: &[u8]) -> AllowList {
        let these: HashSet<_> = seeds.iter().map(|seed| Name([*seed; 32])).collect();
        AllowList::Only(Arc::new(these))
    }

    fn pending(now: Instant) -> (Pending, Peers) {
        let peers = Peers::new(peer(255), 1);
        let mut pending = Pending::new(now);
        assert!(pending.set_allow_list(invited(&[1]), &peers, |_| false, now).is_empty());
        (pending, peers)
    }

    #[test]
    fn pending_connections_take_sixteen_slots_and_two_of_one_address() {
        let now = Instant::now();
        let (mut pending, _) = pending(now);
        let mut come = |number: usize, remote: &str, dialled| {
            let seed = u8::try_from(number).unwrap();
            pending.connected(peer(seed), &connection(number, remote, dialled, now))
        };
        assert!(come(2, "/ip4/203.0.113.1/tcp/1", false));
        assert!(come(3, "/ip4/203.0.113.1/tcp/2", false));
        assert!(!come(4, "/ip4/203.0.113.1/tcp/3", false));
        assert!(come(5, "/ip6/2001:4860:0:1::1/tcp/1", false));
        assert!(come(6, "/ip6/2001:4860:0:1:2::1/tcp/1", false));
        assert!(!come(7, "/ip6/2001:4860:0:1:3::1/tcp/1", false), "the same /64");
        for number in 8..20 {
            assert!(come(number, &format!("/ip4/203.0.113.{number}/tcp/1"), false), "{number}");
        }
        assert!(!come(20, "/ip4/203.0.113.20/tcp/1", false), "the seventeenth");
        // Peers that we dial or allow take none.
        assert!(come(21, "/ip4/203.0.113.1/tcp/1", true));
        assert!(come(1, "/ip4/203.0.113.1/tcp/1", false));
    }

    #[test]
    fn a_connection_without_a_request_is_closed_after_five_seconds_and_not_dialled_for_a_while() {
        let now = Instant::now();
        let (mut pending, _) = pending(now);
        let (silent, talks) = (connection(2, "/ip4/10.0.0.2/tcp/1", false, now), 3);
        assert!(pending.connected(peer(2), &silent));
        assert!(pending.connected(peer(3), &connection(talks, "/ip4/10.0.0.3/tcp/1", false, now)));
        assert!(pending.connected(peer(1), &connection(1, "/ip4/10.0.0.1/tcp/1", false, now)));
        let talks = ConnectionId::new_unchecked(talks);
        let late = now + REQUEST_TIMEOUT - Duration::from_millis(1);
        assert!(pending.over(late).is_empty());
        assert!((0..8).all(|_| pending.takes_request(talks, late)));
        assert!(!pending.takes_request(talks, late), "the ninth request");
        let late = now + REQUEST_TIMEOUT;
        assert_eq!(pending.over(late), [silent.id]);
        assert!(!pending.may_dial(&peer(2)) && pending.may_dial(&peer(3)));
        assert_eq!(pending.over(late + ANSWER_TIMEOUT), [talks], "however often it talks");
        assert!(pending.over(late + IGNORED_FOR + ANSWER_TIMEOUT).is_empty());
        assert!(pending.may_dial(&peer(2)));
    }

    #[test]
    fn all_pending_connections_share_one_rate() {
        let now = Instant::now();
        let (mut pending, _) = pending(now);
        let mut taken = 0;
        for number in 2..200_u8 {
            let remote = format!("/ip4/203.0.113.{number}/tcp/1");
            let connection = connection(number.into(), &remote, true, now);
            assert!(pending.connected(peer(number), &connection));
            taken += (0..8).filter(|_| pending.takes_request(connection.id, now)).count();
        }
        assert_eq!(taken, 64);
        // A peer on the allow list is not limited.
        assert!(pending.takes_request(ConnectionId::new_unchecked(1), now));
    }

    #[test]
    fn all_connections_to_an_open_run_share_one_rate() {
        let now = Instant::now();
        let mut open = Pending::new(now);
        let taken =
            |open: &mut Pending, id| open.takes_request(ConnectionId::new_unchecked(id), now);
        assert_eq!((0..200).filter(|id| taken(&mut open, id % 5)).count(), 64);
    }

    #[test]
    fn a_removed_peer_is_returned_and_a_connected_one_gets_its_time() {
        let now = Instant::now();
        let mut pending = Pending::new(now);
        let mut peers = Peers::new(peer(255), 1);
        for seed in 1..=4_u8 {
            let connection = connection(seed.into(), "/ip4/10.0.0.1/tcp/1", false, now);
            assert!(pending.connected(peer(seed), &connection), "there is no list yet");
            peers.connected(peer(seed), connection);
        }
        let entry = |asked: &PeerId| *asked == peer(4);
        assert!(pending.set_allow_list(invited(&[1, 2]), &peers, entry, now).is_empty());
        assert_eq!(pending.set_allow_list(invited(&[1]), &peers, entry, now), [peer(2)]);
        assert_eq!(pending.over(now + REQUEST_TIMEOUT), [ConnectionId::new_unchecked(3)]);
        // A pending connection whose peer is allowed meanwhile stays.
        let late = connection(5, "/ip4/10.0.0.1/tcp/1", false, now);
        assert!(pending.connected(peer(5), &late));
        peers.connected(peer(5), late);
        pending.set_allow_list(invited(&[1, 5]), &peers, entry, now);
        assert!(pending.over(now + REQUEST_TIMEOUT).is_empty());
    }

    #[test]
    fn our_request_is_sent_until_it_is_answered() {
        let now = Instant::now();
        let (mut pending, mut peers) = pending(now);
        for seed in 1..=3_u8 {
            peers.connected(peer(seed), connection(seed.into(), "/ip4/10.0.0.1/tcp/1", true, now));
        }
        let due = |pending: &mut Pending, at| pending.take_due(&peers, at).len();
        assert_eq!(due(&mut pending, now), 0, "no request");
        pending.set_request(b"a ticket".to_vec());
        assert_eq!(due(&mut pending, now), 3);
        assert_eq!(due(&mut pending, now + IGNORED_FOR), 0, "not answered yet");
        assert!(pending.note(peer(1), 1, Response::Welcome, now));
        assert!(pending.note(peer(2), 1, Response::Silent, now));
        assert!(pending.note(peer(3), 1, Response::Refused, now));
        assert_eq!(due(&mut pending, now + AGAIN), 1);
        assert!(pending.note(peer(2), 1, Response::Unknown, now));
        assert_eq!(due(&mut pending, now + REFUSED_AGAIN), 1);
        pending.set_request(b"another".to_vec());
        assert_eq!(due(&mut pending, now), 3);
        assert!(!pending.note(peer(1), 1, Response::Welcome, now), "of the request before");
        // Nor does an answer count for a new connection.
        pending.closed(&peer(1), ConnectionId::new_unchecked(1), true);
        assert!(!pending.note(peer(1), 2, Response::Welcome, now));
        assert_eq!(due(&mut pending, now), 1);
    }
}
