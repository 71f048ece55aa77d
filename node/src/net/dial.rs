//! Dialling: entry points, lost members, and connections of their own for bulk.
//!
//! A connection for bulk is tried over TCP first, where a killed process is noticed at once, then
//! over QUIC; where neither can be had (two peers behind routers that only a punched path joins)
//! the direct connection that is there carries the stream too. A relay never does.

use std::{io, sync::Arc, time::Duration};

use intellect_bootstrap::{
    address::{self, Scope},
    streams::{OpenError, Opening},
};
use libp2p::{
    Multiaddr, PeerId,
    core::transport::ListenerId,
    multiaddr::Protocol,
    swarm::{
        ConnectionId, DialError,
        dial_opts::{DialOpts, PeerCondition},
    },
};
use tokio::{
    sync::oneshot,
    time::{Instant, timeout},
};
use tokio_util::compat::FuturesAsyncReadCompatExt as _;

use super::{
    ByteStream, FetchError, RingError,
    actor::Actor,
    behaviour::{FETCH, RING},
    fetch,
    peers::Purpose,
};

/// A dial of a connection for a ring that is under way.
pub(super) struct Dial {
    peer: PeerId,
    /// Where to try if this fails.
    next: Vec<Multiaddr>,
    reply: oneshot::Sender<Result<ByteStream, RingError>>,
}

impl Actor {
    /// Dials the entry points and members that are due.
    pub(super) fn redial(&mut self, now: Instant) {
        for (peer, addresses) in self.entries.due(now) {
            let condition = PeerCondition::DisconnectedAndNotDialing;
            match self.dial(peer, addresses, condition) {
                Ok(_) => {}
                // It was found in another way meanwhile.
                Err(DialError::DialPeerConditionFalse(_)) => self.entries.up(&peer),
                Err(error) => self.entries.failed(&peer, error, now),
            }
        }
        for peer in self.peers.due(now) {
            if self.blocked.contains_key(&peer) {
                continue;
            }
            let known = self.peers.get(&peer).map(|peer| peer.next_addresses());
            // A ring connection may have outlived the one for messages.
            match self.dial(peer, known.unwrap_or_default(), PeerCondition::NotDialing) {
                Ok(_) | Err(DialError::DialPeerConditionFalse(_)) => {}
                Err(_) => self.peers.failed(&peer, now),
            }
        }
    }

    /// Dials a peer. On this machine or network a port of its own is taken: both sides reusing
    /// their listening ports would meet in a TCP simultaneous open, in which both are the dialler.
    fn dial(
        &mut self,
        peer: PeerId,
        addresses: Vec<Multiaddr>,
        condition: PeerCondition,
    ) -> Result<ConnectionId, DialError> {
        let near = addresses.iter().all(|a| address::scope(a).is_none_or(|s| s < Scope::Public));
        let options = DialOpts::peer_id(peer).condition(condition);
        let options = match (addresses.is_empty(), near) {
            (true, _) => options.build(),
            (false, true) => options
                .addresses(addresses)
                .extend_addresses_through_behaviour()
                .allocate_new_port()
                .build(),
            (false, false) => {
                options.addresses(addresses).extend_addresses_through_behaviour().build()
            }
        };
        let id = options.connection_id();
        self.swarm.dial(options)?;
        Ok(id)
    }

    /// Opens a ring stream on a connection of its own; an earlier one to this peer is closed, since
    /// whoever asks for another has no more use for it.
    pub(super) fn open_ring(
        &mut self,
        peer: PeerId,
        reply: oneshot::Sender<Result<ByteStream, RingError>>,
    ) {
        let Some(entry) = self.peers.get(&peer).filter(|peer| peer.control().is_some()) else {
            // Nobody waits any longer, if this fails.
            let _ = reply.send(Err(RingError::NotConnected));
            return;
        };
        let (tcp, rest) = entry.direct_addresses();
        let old: Vec<_> =
            entry.of(Purpose::Ring).filter(|c| c.dialled).map(|connection| connection.id).collect();
        for connection in old {
            self.swarm.close_connection(connection);
        }
        let (now, next) = if tcp.is_empty() { (rest, tcp) } else { (tcp, rest) };
        self.dial_ring(now, Dial { peer, next, reply });
    }

    fn dial_ring(&mut self, addresses: Vec<Multiaddr>, dial: Dial) {
        if addresses.is_empty() {
            return self.ring_on_control(dial);
        }
        let options = DialOpts::peer_id(dial.peer)
            .condition(PeerCondition::Always)
            .addresses(addresses)
            .allocate_new_port()
            .build();
        let id = options.connection_id();
        if self.swarm.dial(options).is_ok() {
            self.swarm.behaviour_mut().gossip.mute(id);
            self.dials.insert(id, dial);
        } else {
            self.ring_on_control(dial);
        }
    }

    /// The last resort.
    fn ring_on_control(&mut self, dial: Dial) {
        let control = self.peers.get(&dial.peer).and_then(|peer| peer.control().map(|c| c.id));
        match control {
            Some(connection) => self.open_ring_on(connection, dial),
            None => {
                let _ = dial.reply.send(Err(RingError::NotConnected));
            }
        }
    }

    fn open_ring_on(&mut self, connection: ConnectionId, dial: Dial) {
        let opening = self.swarm.behaviour_mut().streams.open(dial.peer, connection, RING);
        self.tasks.spawn(async move {
            // The negotiation tells the peer what the connection is for.
            let opened = timeout(OPEN_TIMEOUT, open(opening)).await;
            let late = || Err(OpenError::Failed("too slow".into()).into());
            let _ = dial.reply.send(opened.unwrap_or_else(|_| late()));
        });
    }

    /// A connection is there: perhaps the one that a ring waits for.
    pub(super) fn on_dialled(&mut self, connection: ConnectionId) {
        if let Some(dial) = self.dials.remove(&connection) {
            self.open_ring_on(connection, dial);
        }
    }

    pub(super) fn on_dial_failed(
        &mut self,
        connection: ConnectionId,
        peer: Option<PeerId>,
        error: DialError,
        now: Instant,
    ) {
        if let Some(mut dial) = self.dials.remove(&connection) {
            tracing::debug!(%error, "no connection for a ring");
            let next = std::mem::take(&mut dial.next);
            return self.dial_ring(next, dial);
        }
        let Some(peer) = peer else { return };
        if self.swarm.is_connected(&peer) {
            return;
        }
        tracing::debug!(%peer, %error, "cannot dial");
        self.peers.failed(&peer, now);
        self.entries.failed(&peer, error, now);
    }

    /// Asks a peer over its control connection.
    pub(super) fn fetch(
        &mut self,
        peer: PeerId,
        request: Vec<u8>,
        mut reply: oneshot::Sender<Result<Vec<u8>, FetchError>>,
    ) {
        let control = self.peers.get(&peer).and_then(|peer| peer.control().map(|c| c.id));
        let refusal = match control {
            Some(connection) if self.tasks.len() < TASKS_MAX => {
                let opening = self.swarm.behaviour_mut().streams.open(peer, connection, FETCH);
                let shared = Arc::clone(&self.shared);
                self.tasks.spawn(async move {
                    let answer = tokio::select! {
                        answer = fetch::ask(opening, &request, &shared.inflow) => answer,
                        // Nobody waits for it any more: it shall not fill the line.
                        () = reply.closed() => return,
                    };
                    let _ = reply.send(answer);
                });
                return;
            }
            Some(_) => FetchError::Busy,
            None => FetchError::NotConnected,
        };
        let _ = reply.send(Err(refusal));
    }

    pub(super) fn publish_addresses(&mut self) {
        let me = *self.swarm.local_peer_id();
        let mut all: Vec<_> = self.swarm.external_addresses().cloned().collect();
        for address in self.swarm.listeners() {
            if !all.contains(address) {
                all.push(address.clone());
            }
        }
        let all = all.into_iter().map(|address| address::with_peer(address, me)).collect();
        self.shared.addresses.send_replace(all);
    }

    /// Lets peers reach this node through the entry points, for messages.
    /// libp2p does not renew a reservation that was lost, so this is called again then.
    pub(super) fn listen_at_relays(&mut self, now: Instant) {
        self.relay_at = now + RELAY_WAIT;
        let addresses: Vec<_> = self.entries.addresses().cloned().collect();
        for address in addresses {
            let circuit = address.with(Protocol::P2pCircuit);
            match self.swarm.listen_on(circuit) {
                Ok(id) => {
                    self.circuits.insert(id);
                }
                Err(error) => tracing::debug!(%error, "no relay"),
            }
        }
    }

    pub(super) fn on_listener_closed(&mut self, id: ListenerId, reason: &io::Result<()>) {
        self.publish_addresses();
        if !self.circuits.remove(&id) {
            tracing::warn!(?reason, "a listener has closed");
        }
    }
}

async fn open(opening: Opening) -> Result<ByteStream, RingError> {
    let stream = opening.await.map_err(|_| OpenError::Closed)??;
    Ok(stream.compat())
}

const OPEN_TIMEOUT: Duration = Duration::from_secs(5);
/// Tasks above which no more requests are taken: a hundred pieces from each of a few donors.
const TASKS_MAX: usize = 2_048;
const RELAY_WAIT: Duration = Duration::from_secs(30);
