//! Dialling of entry points and members, of connections for bulk, and the search for relays.

use std::time::Duration;

use intellect_bootstrap::address::is_tcp;
use libp2p::{
    PeerId,
    swarm::{ConnectionId, DialError, dial_opts::PeerCondition},
};
use tokio::time::Instant;

use super::super::dial::{Dial, RingDial, Way};
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
            match self.swarm.dial_for_messages(peer, addresses, condition) {
                Ok(id) => _ = self.dials.insert(id, Dial::Messages),
                // It is connected already, in another way.
                Err(DialError::DialPeerConditionFalse(_)) if self.swarm.is_connected(&peer) => {
                    self.entries.up(&peer);
                }
                // Kademlia dials it, which may fail, or too many others are dialled.
                Err(DialError::DialPeerConditionFalse(_) | DialError::Denied { .. }) => {
                    self.entries.put_off(&peer, now);
                }
                Err(error) => _ = self.entries.failed(&peer, error, now),
            }
        }
        let due = self.members.due(now);
        for (peer, addresses) in due.into_iter().filter(|(peer, _)| self.pending.may_dial(peer)) {
            // A ring connection may have outlived the one for messages.
            let condition = PeerCondition::NotDialing;
            match self.swarm.dial_for_messages(peer, addresses, condition) {
                Ok(id) => _ = self.dials.insert(id, Dial::Messages),
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
        let addresses = self.swarm.addresses_of(peer, entry.direct_addresses(), Instant::now());
        let (tcp, quic) = addresses.into_iter().partition(is_tcp);
        let mut ways = [tcp, quic];
        let way = self.reached.way(peer, Instant::now());
        if way == Way::Tried {
            let trial = self.swarm.dial_ring(RingDial::trial(peer, ways.concat()));
            self.dials.extend(trial.map(|id| (id, Dial::Trial)));
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
                self.dials.insert(id, Dial::Ring(dial));
                return;
            }
        }
        match self.members.peers.control(&dial.peer) {
            Some(connection) => self.swarm.open_ring(connection, dial),
            None => _ = dial.reply.send(Err(StreamError::NotConnected)),
        }
    }

    /// Asks for a relay where one is needed, and reports a change of reachability. A node that
    /// others can dial serves the table of peers. Where no entry point is left every node does:
    /// nobody tests then whether it can be dialled, and a newcomer enters by a member.
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
        let serves = state.is_direct() || self.entries.are_gone(now);
        self.swarm.discovery().serve_table(serves);
        if state == self.reachability {
            return;
        }
        if state == Reachability::Relayed {
            self.relays = Retry::new(now);
        }
        self.reachability = state.clone();
        self.emit(Event::Reachability(state));
    }

    /// Whether a new connection is one for rings. If it is, later dials to the peer are expected to
    /// succeed too.
    pub(super) fn on_ring_connection(&mut self, peer: PeerId, id: ConnectionId) -> bool {
        match self.dials.get(&id) {
            None | Some(Dial::Messages) => return false,
            Some(Dial::Ring(_)) => {}
            Some(Dial::Trial) => self.swarm.close(id),
        }
        self.reached.succeeded(peer);
        true
    }

    /// Takes a failed dial, of Kademlia or of ours: the ring that waits for it tries the next way,
    /// and a peer is dialled again later.
    pub(super) fn on_dial_failed(
        &mut self,
        connection: ConnectionId,
        peer: Option<PeerId>,
        error: DialError,
        now: Instant,
    ) {
        if let (Some(peer), DialError::WrongPeerId { address, .. }) = (peer, &error) {
            self.swarm.answered_wrong(peer, address.clone());
        }
        match self.dials.remove(&connection) {
            Some(Dial::Ring(dial)) => {
                tracing::debug!(%error, "no connection for a ring");
                return self.dial_ring(dial);
            }
            Some(Dial::Trial) => {
                tracing::debug!(%error, "rings share the connection for messages");
                return;
            }
            // Kademlia dials so often that, if its failures counted, our dials would never be due.
            None => return,
            Some(Dial::Messages) => {}
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use libp2p::{Multiaddr, identity::Keypair, swarm::dial_opts::DialOpts};
    use tokio::sync::mpsc;

    use super::*;
    use crate::net::{inbox::Shared, interface::Config};

    /// A node that listens nowhere, and its only entry point, which does not answer.
    fn actor() -> (Actor, PeerId, Multiaddr) {
        let entry = PeerId::random();
        let address: Multiaddr = format!("/ip4/127.0.0.1/tcp/1/p2p/{entry}").parse().unwrap();
        let config = Config { bootstrap: vec![address.clone()], ..Config::default() };
        let (key, shared) = (Keypair::generate_ed25519(), Arc::new(Shared::new(0)));
        let (commands, events, rings) =
            (mpsc::channel(1).1, mpsc::channel(1).0, mpsc::channel(1).0);
        (Actor::new(config, &key, shared, commands, events, rings).unwrap(), entry, address)
    }

    /// In a small run Kademlia dials the same peer at each search.
    #[tokio::test]
    async fn how_the_dials_of_kademlia_end_puts_none_of_ours_off() {
        let (mut actor, entry, _) = actor();
        let [ours, other] = [1, 2].map(ConnectionId::new_unchecked);
        let start = Instant::now();
        let mut last = start;
        for second in 0..600 {
            let now = start + Duration::from_secs(second);
            if second % 30 == 0 {
                actor.on_dial_failed(other, Some(entry), DialError::Aborted, now);
            }
            for (peer, _) in actor.entries.due(now) {
                actor.dials.insert(ours, Dial::Messages);
                actor.on_dial_failed(ours, Some(peer), DialError::Aborted, now);
                last = now;
            }
            assert!(now - last < Duration::from_secs(120), "not dialled for two minutes");
        }
        assert!(actor.dials.is_empty() && last > start);
    }

    #[tokio::test]
    async fn while_kademlia_dials_an_entry_point_it_has_not_answered() {
        let (mut actor, entry, address) = actor();
        let late = Instant::now() + Duration::from_secs(600);
        assert_eq!(actor.entries.news(late).len(), 1, "it is silent");
        let options = DialOpts::peer_id(entry).addresses(vec![address]).build();
        actor.swarm.dial(options).unwrap();
        actor.redial(late);
        assert!(actor.entries.news(late).is_empty(), "it is silent still");
        assert!(actor.dials.is_empty() && actor.entries.due(late).is_empty());
        assert_eq!(actor.entries.due(late + Duration::from_secs(2)).len(), 1);
    }

    /// The query of a table may name it again and again.
    #[tokio::test]
    async fn an_address_where_another_peer_answers_is_left_out_for_a_while() {
        let (mut actor, ..) = actor();
        let (peer, obtained) = (PeerId::random(), PeerId::random());
        let [wrong, right] = ["172.17.0.1", "192.168.1.5"]
            .map(|ip| format!("/ip4/{ip}/tcp/1").parse::<Multiaddr>().unwrap());
        for _ in 0..100 {
            let address = wrong.clone().with_p2p(peer).unwrap();
            let error = DialError::WrongPeerId { obtained, address };
            let id = ConnectionId::new_unchecked(1);
            actor.on_dial_failed(id, Some(peer), error, Instant::now());
        }
        let all = vec![wrong.clone(), right.clone()];
        let left = |all: &[Multiaddr], now| actor.swarm.addresses_of(peer, all.to_vec(), now);
        let now = Instant::now();
        assert_eq!(left(&all, now), [right]);
        assert_eq!(left(&all[..1], now), [wrong], "there is no other");
        assert_eq!(left(&all, now + Duration::from_secs(601)), all, "it may be right again");
    }
}
