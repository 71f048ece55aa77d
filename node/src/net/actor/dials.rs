//! Dialling of entry points and members, of connections for bulk, and the search for relays.

use std::time::Duration;

use libp2p::{
    PeerId,
    swarm::{ConnectionId, DialError, dial_opts::PeerCondition},
};
use tokio::time::Instant;

use super::super::dial::{self, RingDial, Way};
use super::super::inbox::Responder;
use super::super::interface::{ByteStream, Event, StreamError};
use super::super::peers::Purpose;
use super::super::reach::Reachability;
use super::Actor;

impl Actor {
    /// Dials the entry points and members that are due.
    pub(super) fn redial(&mut self, now: Instant) {
        for (peer, addresses) in self.entries.due(now) {
            let condition = PeerCondition::DisconnectedAndNotDialing;
            match self.swarm.dial(dial::for_messages(peer, addresses, condition)) {
                Ok(_) => {}
                // It is connected already, in another way.
                Err(DialError::DialPeerConditionFalse(_)) => self.entries.up(&peer),
                Err(error) => _ = self.entries.failed(&peer, error, now),
            }
        }
        let due = self.members.due(now);
        for (peer, addresses) in due.into_iter().filter(|(peer, _)| self.pending.may_dial(peer)) {
            // A ring connection may have outlived the one for messages.
            let condition = PeerCondition::NotDialing;
            match self.swarm.dial(dial::for_messages(peer, addresses, condition)) {
                Ok(_) => {}
                // Another dial of it is under way, whose end may say nothing of this one, or too many of others are.
                Err(DialError::DialPeerConditionFalse(_) | DialError::Denied { .. }) => {
                    self.members.peers.put_off(&peer, now);
                }
                Err(_) => self.members.peers.failed(&peer, now),
            }
        }
    }

    /// Opens a ring stream, on a connection of its own where possible (R41), and closes an earlier one to
    /// this peer, which is of no more use.
    pub(super) fn open_ring(&mut self, peer: PeerId, reply: Responder<ByteStream, StreamError>) {
        let Some(entry) = self.members.peers.get(&peer).filter(|peer| peer.control().is_some())
        else {
            // Fails only where nobody waits any longer.
            let _ = reply.send(Err(StreamError::NotConnected));
            return;
        };
        for connection in entry.of(Purpose::Ring).filter(|connection| connection.dialled) {
            self.swarm.close(connection.id);
        }
        let mut ways: [_; 2] = entry.direct_addresses().into();
        let way = self.reached.way(peer, Instant::now());
        if way == Way::Tried {
            let trial = self.swarm.dial_ring(RingDial::trial(peer, ways.concat()));
            self.trials.extend(trial);
        }
        if way != Way::Own {
            ways = Default::default();
        }
        self.dial_ring(RingDial::new(peer, ways, reply));
    }

    /// Tries the next addresses; the connection for messages is the last resort.
    pub(super) fn dial_ring(&mut self, mut dial: RingDial) {
        while let Some(options) = dial.next() {
            if let Some(id) = self.swarm.dial_ring(options) {
                self.dials.insert(id, dial);
                return;
            }
        }
        match self.members.peers.control(&dial.peer) {
            Some(connection) => self.swarm.open_ring(connection, dial),
            None => _ = dial.reply.send(Err(StreamError::NotConnected)),
        }
    }

    /// Asks for a relay where one is needed, and reports a change of reachability.
    pub(super) fn settle_reachability(&mut self, now: Instant) {
        let state = self.evidence.conclude(now);
        // A node on private addresses only will need a relay, and gains nothing by waiting (R43).
        let enclosed = match state {
            Reachability::Closed | Reachability::Relayed => true,
            Reachability::Unknown => self.swarm.listens_privately(),
            Reachability::Local | Reachability::Open(_) => false,
        };
        if enclosed && !self.swarm.is_at_relay() && self.relays.is_due(now) {
            self.swarm.listen_at_relays(self.entries.addresses());
        }
        if state == self.reachability {
            return;
        }
        if state == Reachability::Relayed {
            self.relays = Retry::new(now);
        }
        self.reachability = state.clone();
        self.swarm.discovery().serve_table(state.is_direct());
        self.emit(Event::Reachability(state));
    }

    /// Whether a new connection is one for rings. If it is, later dials to the peer are expected to
    /// succeed too.
    pub(super) fn on_ring_connection(&mut self, peer: PeerId, id: ConnectionId) -> bool {
        let tried = self.trials.remove(&id);
        let ring = tried || self.dials.contains_key(&id);
        if ring {
            self.reached.succeeded(peer);
        }
        if tried {
            self.swarm.close(id);
        }
        ring
    }

    /// Takes a failed dial: the ring that waits for it tries the next way, and a peer is dialled
    /// again later.
    pub(super) fn on_dial_failed(
        &mut self,
        connection: ConnectionId,
        peer: Option<PeerId>,
        error: DialError,
        now: Instant,
    ) {
        if let Some(dial) = self.dials.remove(&connection) {
            tracing::debug!(%error, "no connection for a ring");
            return self.dial_ring(dial);
        }
        if self.trials.remove(&connection) {
            tracing::debug!(%error, "rings share the connection for messages");
            return;
        }
        let Some(peer) = peer.filter(|peer| !self.swarm.is_connected(peer)) else { return };
        tracing::debug!(%peer, %error, "cannot dial");
        self.members.peers.failed(&peer, now);
        if let Some((address, found)) = self.entries.failed(&peer, error, now) {
            self.emit(Event::Impostor { address: address.to_string(), found: found.to_string() });
        }
    }

    /// Asks the peers for what callers want whose wait for entry points is over.
    pub(super) fn settle_asks(&mut self, now: Instant) {
        for ask in self.entries.settled(now) {
            let asked = self.entries.asked(ask.of, self.members.peers.connected_ones());
            self.swarm.ask_offers(ask, asked, self.entries.attempts());
        }
    }

    /// Reports the entry points that have fallen silent, or answer again.
    pub(super) fn report_entries(&mut self, now: Instant) {
        for (address, answers) in self.entries.news(now) {
            self.emit(Event::EntryPoint { address: address.to_string(), answers });
        }
    }
}

/// When to ask for a relay again. The first time may be before an entry point is connected.
pub(super) struct Retry {
    /// The earliest time of the next try.
    at: Instant,
    /// How long the try after that waits; it doubles up to [`RETRY_MAX`].
    wait: Duration,
}

impl Retry {
    /// The first try is due at once.
    pub(super) fn new(now: Instant) -> Self {
        Self { at: now, wait: RETRY_MIN }
    }

    /// Whether a try is due; the wait for the next one then doubles.
    fn is_due(&mut self, now: Instant) -> bool {
        let due = self.at <= now;
        if due {
            self.at = now + self.wait;
            self.wait = (2 * self.wait).min(RETRY_MAX);
        }
        due
    }
}

const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(30);
