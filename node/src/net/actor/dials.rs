//! Dialling: entry points, members, and connections for bulk.

use libp2p::{
    PeerId,
    swarm::{ConnectionId, DialError, dial_opts::PeerCondition},
};
use tokio::time::Instant;

use super::super::dial::{self, RingDial};
use super::super::inbox::Responder;
use super::super::interface::{ByteStream, StreamError};
use super::super::peers::Purpose;
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
                Err(error) => self.entries.failed(&peer, error, now),
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

    /// Opens a ring stream on a connection of its own; an earlier one to this peer is closed, since
    /// whoever asks for another has no more use for it.
    pub(super) fn open_ring(&mut self, peer: PeerId, reply: Responder<ByteStream, StreamError>) {
        let Some(entry) = self.members.peers.get(&peer).filter(|peer| peer.control().is_some())
        else {
            // Nobody waits any longer, if this fails.
            let _ = reply.send(Err(StreamError::NotConnected));
            return;
        };
        for connection in entry.of(Purpose::Ring).filter(|connection| connection.dialled) {
            self.carrier.swarm.close_connection(connection.id);
        }
        self.dial_ring(RingDial::new(peer, entry.direct_addresses(), reply));
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
        let Some(peer) = peer.filter(|peer| !self.carrier.swarm.is_connected(peer)) else { return };
        tracing::debug!(%peer, %error, "cannot dial");
        self.members.peers.failed(&peer, now);
        self.entries.failed(&peer, error, now);
    }
}
