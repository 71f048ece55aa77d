//! The table of peers: the connections of each and their purposes, its membership of our run, its
//! faults, and when to dial it again. No socket is touched here.
//!
//! *Control* connections carry messages and answers, *ring* connections the frames of a ring. A
//! connection that a peer opened counts as control until a ring stream arrives on it. Both sides
//! use the oldest direct control connection. The smaller peer id closes a younger one once it is
//! clear that it stays a control connection.
//!
//! A peer that only a relay reaches is dialled again after 10 s, 20 s, 40 s and then each minute,
//! since each connection through a relay is a new chance to punch a hole.
//!
//! Redial: failure k is followed by a wait of 2^k seconds, at most a minute, spread by a quarter
//! either way, so that peers that lost one another do not dial at the same time. The smaller peer
//! id dials first. After half an hour a peer is forgotten, unless an earlier start reached it: such a
//! peer is dialled every five minutes, since without an entry point nothing else would find it.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use intellect_bootstrap::{address, crowding};
use intellect_protocol::base::rng::Rng;
use libp2p::{Multiaddr, PeerId, core::ConnectedPoint, swarm::ConnectionId};
use tokio::{sync::Semaphore, time::Instant};

use super::{
    address::same,
    control_stream::Quota,
    inbox::Severity,
    interface::Link,
    limits::{answers::RELAYED, bucket::Bucket, source::Source},
};

/// What a connection is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Messages, requests and answers; gossip too.
    Control,
    /// Frames of a ring. Gossip never writes on those that this side dialled.
    Ring,
}

/// A connection as the table keeps it, from its establishment to its end.
#[derive(Debug)]
pub(super) struct Connection {
    /// libp2p's number of it, unique in this process.
    pub(super) id: ConnectionId,
    /// What it is used for; a ring stream that arrives may change it.
    pub(super) purpose: Purpose,
    /// The other end, which may be a relay.
    pub(super) remote: Multiaddr,
    /// Whether this side dialled; the other side counts as the listener.
    pub(super) dialled: bool,
    /// Whether it passes through a relay, which the remote address does not show where the peer
    /// dialled.
    pub(super) relayed: bool,
    /// When it was established, by which the oldest is chosen.
    pub(super) since: Instant,
}

impl Connection {
    /// A connection that has just been established.
    pub(super) fn new(
        id: ConnectionId,
        purpose: Purpose,
        end: &ConnectedPoint,
        now: Instant,
    ) -> Self {
        let (dialled, relayed) = (end.is_dialer(), end.is_relayed());
        Self { id, purpose, remote: end.get_remote_address().clone(), dialled, relayed, since: now }
    }
}

/// Our outgoing control stream to a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ControlStream {
    /// There is none; the next may be opened from this time on.
    Down(Instant),
    /// A request for it is under way on this connection.
    Opening(ConnectionId),
    /// It is open on this connection, and its queue is in [`Shared`](super::inbox::Shared).
    Up(ConnectionId),
}

impl ControlStream {
    /// Whether the stream uses, or is to use, this connection.
    pub(super) fn is_on(self, connection: ConnectionId) -> bool {
        matches!(self, Self::Opening(id) | Self::Up(id) if id == connection)
    }
}

/// What this node knows of one peer.
#[derive(Debug)]
pub(super) struct Peer {
    /// Its connections, bounded by the connection limits (8).
    pub(super) connections: Vec<Connection>,
    /// The listen addresses that it has announced.
    pub(super) addresses: Vec<Multiaddr>,
    /// Worth dialling: it provides our run, or was a member once.
    pub(super) wanted: bool,
    /// An earlier start reached it, so it stays worth dialling, however often that fails.
    known: bool,
    /// Subscribed to the heartbeats of our run.
    pub(super) member: bool,
    /// Our control stream to it. The streams that it opens to us are not counted here.
    pub(super) stream: ControlStream,
    /// Whether it spoke another major version when it identified itself last.
    pub(super) incompatible: bool,
    /// The version of its program, as it said first on the connections that it has.
    pub(super) version: Option<String>,
    /// The link that was reported to the driver last.
    pub(super) shown: Option<Link>,
    /// What it may still bring by gossip.
    pub(super) gossip: Source,
    /// The rate of ring streams that it may open.
    pub(super) rings: Bucket,
    /// Permits for answers to it that are under way.
    pub(super) answers: Arc<Semaphore>,
    /// The permit for our question about its notices.
    pub(super) notices: Arc<Semaphore>,
    /// Permits for control streams that it opens.
    pub(super) control_streams: Arc<Semaphore>,
    /// What it may send on all of them together.
    pub(super) messages: Arc<Mutex<Quota>>,
    /// When it was last knocked at: our heartbeat was sent to it outside gossip.
    pub(super) knocked: Option<Instant>,
    /// Faults so far. They never expire: an honest peer has none.
    faults: u32,
    /// Failed dials in a row, which lengthen the wait.
    failures: u32,
    /// Connections through relays since there was a direct one: as often a hole was to be punched.
    punches: u32,
    /// When it is dialled next, if it is wanted and not connected directly.
    dial_at: Instant,
}

impl Peer {
    /// A peer of which nothing is known but its id.
    fn new(now: Instant) -> Self {
        Self {
            connections: Vec::new(),
            addresses: Vec::new(),
            wanted: false,
            known: false,
            member: false,
            stream: ControlStream::Down(now),
            incompatible: false,
            version: None,
            shown: None,
            rings: Bucket::new(RINGS_PER_SECOND, RINGS_BURST, now),
            gossip: Source::new(now),
            answers: Arc::new(Semaphore::new(ANSWERS_PER_PEER)),
            notices: Arc::new(Semaphore::new(1)),
            control_streams: Arc::new(Semaphore::new(CONTROL_STREAMS_PER_PEER)),
            messages: Arc::new(Mutex::new(Quota::new(now))),
            knocked: None,
            faults: 0,
            failures: 0,
            punches: 0,
            dial_at: now,
        }
    }

    /// The direct connection for messages, on which control streams are opened.
    pub(super) fn control(&self) -> Option<&Connection> {
        self.of(Purpose::Control).min_by_key(|connection| connection.since)
    }

    /// The connection that messages and requests take: one through a relay where there is no direct
    /// one.
    pub(super) fn used(&self) -> Option<ConnectionId> {
        let used = self.control().or_else(|| self.connections.iter().find(|c| c.relayed));
        used.map(|connection| connection.id)
    }

    /// Whether a connection is direct or leads through a relay.
    pub(super) fn link_of(&self, id: ConnectionId) -> Link {
        let relayed = self.connections.iter().any(|c| c.id == id && c.relayed);
        if relayed { Link::Relayed } else { Link::Direct }
    }

    /// The network with which it shares the limits of strangers, if that network has such limits.
    pub(super) fn network(&self) -> Option<IpAddr> {
        let relayed = || self.connections.iter().all(|c| c.relayed).then_some(RELAYED);
        self.connections.iter().find_map(|c| crowding::site(&c.remote)).or_else(relayed)
    }

    /// A ring stream has come on a connection, which is for rings from now on, unless it is the one
    /// in use for messages.
    pub(super) fn assign_to_ring(&mut self, id: ConnectionId) {
        let used = self.control().map(|connection| connection.id);
        for connection in self.connections.iter_mut().filter(|c| c.id == id && used != Some(id)) {
            connection.purpose = Purpose::Ring;
        }
    }

    /// The direct connections of one purpose.
    pub(super) fn of(&self, purpose: Purpose) -> impl Iterator<Item = &Connection> {
        self.connections.iter().filter(move |c| c.purpose == purpose && !c.relayed)
    }

    /// The link that the driver should know. A peer whose control stream is replaced is not lost.
    pub(super) fn link(&self) -> Option<Link> {
        if !self.member {
            return None;
        }
        let up = matches!(self.stream, ControlStream::Up(_)) || self.shown == Some(Link::Direct);
        if up && self.control().is_some() {
            return Some(Link::Direct);
        }
        let relayed = self.connections.iter().any(|connection| connection.relayed);
        relayed.then_some(Link::Relayed)
    }

    /// Addresses for a new direct connection: first those by TCP, then those by other transports.
    pub(super) fn direct_addresses(&self) -> Vec<Multiaddr> {
        let reached = self.connections.iter().filter(|c| c.dialled).map(|c| &c.remote);
        let mut found: Vec<Multiaddr> = Vec::new();
        for address in reached.chain(&self.addresses) {
            if !address::is_relayed(address) && !found.iter().any(|known| same(known, address)) {
                found.push(address.clone());
            }
        }
        found.sort_by_key(|address| !address::is_tcp(address));
        found
    }

    /// Addresses to dial next: those by TCP; every second time, or where only a relay reaches it,
    /// all.
    pub(super) fn next_addresses(&self) -> Vec<Multiaddr> {
        let (tcp, rest): (Vec<_>, Vec<_>) =
            self.addresses.iter().cloned().partition(address::is_tcp);
        let relayed = self.connections.iter().any(|connection| connection.relayed);
        let only_tcp = !tcp.is_empty() && !relayed && self.failures.is_multiple_of(2);
        if only_tcp { tcp } else { [tcp, rest].concat() }
    }

    /// The remote address of a connection.
    pub(super) fn remote(&self, id: ConnectionId) -> Option<&Multiaddr> {
        self.connections.iter().find(|connection| connection.id == id).map(|c| &c.remote)
    }

    /// Whether nothing is known of it but its name, and a dial has failed.
    fn is_unmet(&self) -> bool {
        self.failures > 0 && !self.known && self.addresses.is_empty() && self.connections.is_empty()
    }

    /// Counts a fault; true when the peer has too many.
    pub(super) fn fault(&mut self, severity: Severity) -> bool {
        let weight = match severity {
            Severity::Minor => 1,
            Severity::Grave => FAULTS_MAX,
        };
        self.faults = self.faults.saturating_add(weight);
        self.faults >= FAULTS_MAX
    }
}

/// All peers that this node has heard of, within bounds.
pub(super) struct Peers {
    /// Our own id, which decides the ties between two peers.
    me: PeerId,
    /// All entries. Connected ones are bounded by the connection limits, wanted ones by
    /// [`WANTED_MAX`].
    table: HashMap<PeerId, Peer>,
    /// For jitter only, so a weak generator is enough.
    rng: Rng,
}

impl Peers {
    /// An empty table; `seed` is for jitter only.
    pub(super) fn new(me: PeerId, seed: u64) -> Self {
        Self { me, table: HashMap::new(), rng: Rng::new(seed) }
    }

    /// The entry of a peer, while it is connected or wanted.
    pub(super) fn get(&self, peer: &PeerId) -> Option<&Peer> {
        self.table.get(peer)
    }

    /// The same entry, for a change of it.
    pub(super) fn get_mut(&mut self, peer: &PeerId) -> Option<&mut Peer> {
        self.table.get_mut(peer)
    }

    /// The id of [`Peer::control`], if there is one.
    pub(super) fn control(&self, peer: &PeerId) -> Option<ConnectionId> {
        self.get(peer)?.control().map(|connection| connection.id)
    }

    /// The id of [`Peer::used`], if there is one.
    pub(super) fn used(&self, peer: &PeerId) -> Option<ConnectionId> {
        self.get(peer)?.used()
    }

    /// Whether any connection to the peer is open, through a relay or not.
    pub(super) fn is_connected(&self, peer: &PeerId) -> bool {
        self.get(peer).is_some_and(|peer| !peer.connections.is_empty())
    }

    /// The peers of the run that messages reach.
    pub(super) fn found(&self) -> impl Iterator<Item = &PeerId> {
        let found = |(_, peer): &(&PeerId, &Peer)| peer.wanted && peer.used().is_some();
        self.table.iter().filter(found).map(|(peer, _)| peer)
    }

    /// All connected peers, each with its best connection.
    pub(super) fn connected_ones(&self) -> impl Iterator<Item = (PeerId, ConnectionId)> {
        self.table.iter().filter_map(|(peer, entry)| {
            let best = entry.control().or_else(|| entry.connections.first())?;
            Some((*peer, best.id))
        })
    }

    /// All peers, in no particular order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&PeerId, &Peer)> {
        self.table.iter()
    }

    /// Notes a peer of our run. False where it was known, and is only dialled sooner, or there is
    /// no room. A peer that was only heard of, and could not be reached most often, makes room: one
    /// lying answer names hundreds of them.
    pub(super) fn want(&mut self, peer: PeerId, now: Instant) -> bool {
        if peer == self.me {
            return false;
        }
        let wanted = self.table.values().filter(|peer| peer.wanted).count();
        if let Some(known) = self.table.get_mut(&peer).filter(|peer| peer.wanted) {
            // A peer that has just started could not be reached a moment ago.
            if known.failures < HASTY_FAILURES {
                known.dial_at = known.dial_at.min(now + REDIAL_MIN);
            }
            return false;
        }
        if wanted >= WANTED_MAX {
            let unmet = self.table.values_mut().filter(|peer| peer.wanted && peer.is_unmet());
            let Some(unmet) = unmet.max_by_key(|peer| peer.failures) else { return false };
            unmet.wanted = false;
        }
        let patience = if self.me.to_bytes() < peer.to_bytes() { Duration::ZERO } else { COURTESY };
        let entry = self.table.entry(peer).or_insert_with(|| Peer::new(now));
        entry.wanted = true;
        entry.dial_at = now + patience;
        true
    }

    /// Notes where an earlier start reached a peer. That peer does not know of our return, so we
    /// dial at once, even with the greater id.
    pub(super) fn know(&mut self, peer: PeerId, address: Multiaddr, now: Instant) {
        self.want(peer, now);
        if let Some(entry) = self.table.get_mut(&peer) {
            entry.addresses.push(address);
            (entry.known, entry.dial_at) = (true, now);
        }
    }

    /// Notes a new connection. One through a relay is a chance to punch a hole, so the next dial
    /// waits until that has succeeded or failed.
    pub(super) fn connected(&mut self, peer: PeerId, connection: Connection) -> &mut Peer {
        let now = connection.since;
        let entry = self.table.entry(peer).or_insert_with(|| Peer::new(now));
        entry.failures = 0;
        if !connection.relayed {
            entry.punches = 0;
        } else if entry.control().is_none() {
            let wait = PUNCHED.saturating_mul(1 << entry.punches.min(6)).min(REDIAL_MAX);
            entry.dial_at = now + spread(&mut self.rng, wait);
            entry.punches = entry.punches.saturating_add(1);
        }
        entry.connections.push(connection);
        entry
    }

    /// A connection has closed. [`Self::sweep`] removes the entry if the peer is not worth
    /// dialling.
    pub(super) fn closed(&mut self, peer: &PeerId, id: ConnectionId, now: Instant) {
        let Some(entry) = self.table.get_mut(peer) else { return };
        entry.connections.retain(|connection| connection.id != id);
        if entry.stream.is_on(id) {
            entry.stream = ControlStream::Down(now);
        }
        if entry.connections.is_empty() {
            // It may come back with another program.
            (entry.member, entry.version) = (false, None);
            entry.dial_at = now + spread(&mut self.rng, REDIAL_MIN);
        }
    }

    /// Removes peers that are neither connected nor wanted, nor known to the driver as connected.
    pub(super) fn sweep(&mut self) {
        self.table
            .retain(|_, peer| !peer.connections.is_empty() || peer.wanted || peer.shown.is_some());
    }

    /// A dial of a peer failed. A peer that fails for long is forgotten; if it lives, its provider
    /// record brings it back. One that an earlier start reached is only dialled more seldom.
    pub(super) fn failed(&mut self, peer: &PeerId, now: Instant) {
        let Some(entry) = self.table.get_mut(peer) else { return };
        entry.failures += 1;
        let mut wait = REDIAL_MIN.saturating_mul(1 << entry.failures.min(6)).min(REDIAL_MAX);
        if entry.failures >= FAILURES_MAX {
            entry.wanted &= entry.known;
            wait = REDIAL_KNOWN;
        }
        entry.dial_at = now + spread(&mut self.rng, wait);
    }

    /// A peer could not be dialled just now, through no fault of its own.
    pub(super) fn put_off(&mut self, peer: &PeerId, now: Instant) {
        let Some(entry) = self.table.get_mut(peer) else { return };
        entry.dial_at = now + spread(&mut self.rng, REDIAL_MIN);
    }

    /// Peers to dial now: those that no direct connection reaches. Their next dial is put off, so
    /// that none is dialled twice.
    pub(super) fn due(&mut self, now: Instant) -> Vec<PeerId> {
        let mut due = Vec::new();
        for (peer, entry) in &mut self.table {
            let waits = entry.wanted && entry.control().is_none() && entry.dial_at <= now;
            if waits && due.len() < DIALS_PER_TICK {
                entry.dial_at = now + REDIAL_MAX;
                due.push(*peer);
            }
        }
        due
    }

    /// Sets the listen addresses of a peer. One that only a relay reaches is dialled at new ones at
    /// once.
    pub(super) fn listens(&mut self, peer: &PeerId, addresses: Vec<Multiaddr>, now: Instant) {
        let Some(entry) = self.table.get_mut(peer) else { return };
        let is_new = |a: &Multiaddr| !address::is_relayed(a) && !entry.addresses.contains(a);
        if entry.control().is_none() && addresses.iter().any(is_new) {
            entry.dial_at = entry.dial_at.min(now);
        }
        entry.addresses = addresses;
    }

    /// Superfluous connections for messages that this side has to close.
    pub(super) fn duplicates(&self, now: Instant) -> Vec<ConnectionId> {
        let mine = |peer: &PeerId| self.me.to_bytes() < peer.to_bytes();
        let settled = |connection: &Connection| now - connection.since >= SETTLED;
        let mut found = Vec::new();
        for (_, peer) in self.table.iter().filter(|(peer, _)| mine(peer)) {
            let spare =
                peer.of(Purpose::Control).filter(|c| Some(c.id) != peer.used() && settled(c));
            found.extend(spare.map(|connection| connection.id));
            // By then the hole is punched, or cannot be.
            let relayed = peer.connections.iter().filter(|c| c.relayed).skip(1);
            let over = relayed.filter(|c| now - c.since >= 2 * PUNCHED);
            found.extend(over.map(|connection| connection.id));
        }
        found
    }
}

/// `wait`, up to a quarter more or less.
fn spread(rng: &mut Rng, wait: Duration) -> Duration {
    wait.mul_f64(0.75 + 0.5 * rng.unit())
}

/// How long the greater peer id waits for the smaller one's dial.
const COURTESY: Duration = Duration::from_millis(500);
/// How long it takes to punch a hole, or to find that it cannot be; guess: libp2p tries three
/// times.
const PUNCHED: Duration = Duration::from_secs(10);
/// The wait after a connection was lost, which each failed dial doubles, and the longest wait.
const REDIAL_MIN: Duration = Duration::from_secs(1);
const REDIAL_MAX: Duration = Duration::from_secs(60);
/// With fewer failed dials a peer is dialled again as soon as it is found again.
const HASTY_FAILURES: u32 = 6;
/// Together these dials take half an hour.
const FAILURES_MAX: u32 = 30;
/// The wait after that: with all contacts of an earlier start about one dial a second.
const REDIAL_KNOWN: Duration = Duration::from_secs(5 * 60);
/// A second connection may still turn out to be for a ring, whose stream is opened at once: five
/// seconds are two slow round trips and the handshakes.
const SETTLED: Duration = Duration::from_secs(5);
/// Twice the members of a roster.
const WANTED_MAX: usize = 512;
/// Few dials at a time leave room for those of discovery.
const DIALS_PER_TICK: usize = 16;
/// Undecodable or unverifiable messages that a peer may bring: an honest peer brings none.
pub(super) const FAULTS_MAX: u32 = 8;
/// One stream for each attempt at a ring: a ring lasts for seconds at least, but attempts may
/// follow one another faster for a while.
const RINGS_PER_SECOND: u32 = 2;
const RINGS_BURST: u32 = 8;
/// Answers to one peer at a time: to requests, admit requests, and questions for manifests and
/// notices. A further stream is reset, and its sender may ask again.
const ANSWERS_PER_PEER: usize = 16;
/// One, one that is being replaced, and streams of single messages (a knock, and its echo); twice
/// all of that where two programs have one key. What they carry together is bounded by the bucket.
const CONTROL_STREAMS_PER_PEER: usize = 8;

#[cfg(test)]
mod tests;
