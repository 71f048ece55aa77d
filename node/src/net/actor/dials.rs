//! Dialling: entry points, members, and connections for bulk.

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
            match self.carrier.dial(dial::for_messages(peer, addresses, condition)) {
                Ok(_) => {}
                // It was found in another way meanwhile.
                Err(DialError::DialPeerConditionFalse(_)) => self.entries.up(&peer),
                Err(error) => _ = self.entries.failed(&peer, error, now),
            }
        }
        let due = self.members.due(now);
        for (peer, addresses) in due.into_iter().filter(|(peer, _)| self.lobby.may_dial(peer)) {
            // A ring connection may have outlived the one for messages.
            let condition = PeerCondition::NotDialing;
            match self.carrier.dial(dial::for_messages(peer, addresses, condition)) {
                Ok(_) | Err(DialError::DialPeerConditionFalse(_)) => {}
                Err(_) => self.members.peers.failed(&peer, now),
            }
        }
    }

    /// Opens a ring stream on a connection of its own where one can be had (R41); an earlier one to this peer is
    /// closed, since whoever asks for another has no more use for it.
    pub(super) fn open_ring(&mut self, peer: PeerId, reply: Responder<ByteStream, StreamError>) {
        let Some(entry) = self.members.peers.get(&peer).filter(|peer| peer.control().is_some())
        else {
            // Nobody waits any longer, if this fails.
            let _ = reply.send(Err(StreamError::NotConnected));
            return;
        };
        for connection in entry.of(Purpose::Ring).filter(|connection| connection.dialled) {
            self.carrier.close(connection.id);
        }
        let (ways, none) = (entry.direct_addresses(), (Vec::new(), Vec::new()));
        let way = self.reached.way(peer, Instant::now());
        if way == Way::Tried {
            let trial = self.carrier.dial_ring(RingDial::trial(peer, ways.clone()));
            self.trials.extend(trial);
        }
        self.dial_ring(RingDial::new(peer, if way == Way::Own { ways } else { none }, reply));
    }

    /// Tries what has not been tried yet; the connection for messages is the last resort.
    pub(super) fn dial_ring(&mut self, mut dial: RingDial) {
        while let Some(options) = dial.next() {
            if let Some(id) = self.carrier.dial_ring(options) {
                self.dials.insert(id, dial);
                return;
            }
        }
        match self.members.peers.control(&dial.peer) {
            Some(connection) => self.carrier.open_ring(connection, dial),
            None => _ = dial.reply.send(Err(StreamError::NotConnected)),
        }
    }

    /// Looks for a relay where one is needed, and tells what has changed.
    pub(super) fn settle_reachability(&mut self, now: Instant) {
        let state = self.evidence.conclude(now);
        // Whoever listens on private addresses only will need a relay, and gains nothing by waiting (R43).
        let enclosed = match state {
            Reachability::Closed | Reachability::Relayed => true,
            Reachability::Unknown => self.carrier.listens_privately(),
            Reachability::Local | Reachability::Open(_) => false,
        };
        if enclosed && !self.carrier.is_at_relay() && self.relays.is_due(now) {
            self.carrier.listen_at_relays(self.entries.addresses());
        }
        if state == self.reachability {
            return;
        }
        if state == Reachability::Relayed {
            self.relays = Retry::new(now);
        }
        self.reachability = state.clone();
        self.carrier.discovery().serve_table(state.is_direct());
        self.emit(Event::Reachability(state));
    }

    /// A connection for rings was established, or tried for: later ones will be.
    pub(super) fn on_ring_connection(&mut self, peer: PeerId, id: ConnectionId) -> bool {
        let tried = self.trials.remove(&id);
        let ring = tried || self.dials.contains_key(&id);
        if ring {
            self.reached.succeeded(peer);
        }
        if tried {
            self.carrier.close(id);
        }
        ring
    }

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
        let Some(peer) = peer.filter(|peer| !self.carrier.is_connected(peer)) else { return };
        tracing::debug!(%peer, %error, "cannot dial");
        self.members.peers.failed(&peer, now);
        if let Some((address, found)) = self.entries.failed(&peer, error, now) {
            self.emit(Event::Impostor { address: address.to_string(), found: found.to_string() });
        }
    }
}

/// When to ask for a relay again: the first time may be before an entry point is connected.
pub(super) struct Retry {
    at: Instant,
    wait: Duration,
}

impl Retry {
    pub(super) fn new(now: Instant) -> Self {
        Self { at: now, wait: RETRY_MIN }
    }

    /// Whether a try is due; the next one is then so much later.
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
