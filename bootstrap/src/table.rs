//! Kademlia, with a bound on the addresses that it gives to a dial.
//!
//! A peer that answers a query names addresses of others, up to the size of a packet: thousands. libp2p tries them eight
//! at a time and waits for each, so a few such answers would keep every dial of this program busy for an hour.

use std::{
    ops::{Deref, DerefMut},
    task::{Context, Poll},
};

use libp2p::{
    Multiaddr, PeerId,
    core::{Endpoint, transport::PortUse},
    kad,
    swarm::{
        ConnectionDenied, ConnectionId, FromSwarm, NetworkBehaviour, THandler, THandlerInEvent,
        THandlerOutEvent, ToSwarm,
    },
};

use crate::{discovery::ADDRESSES_MAX, providers::Providers};

/// The distributed table. It dereferences to libp2p's behaviour.
pub struct Table(pub(crate) kad::Behaviour<Providers>);

impl Deref for Table {
    type Target = kad::Behaviour<Providers>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Table {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl NetworkBehaviour for Table {
    type ConnectionHandler = THandler<kad::Behaviour<Providers>>;
    type ToSwarm = kad::Event;

    /// The addresses of our own table come first, those of running queries after them.
    fn handle_pending_outbound_connection(
        &mut self,
        id: ConnectionId,
        peer: Option<PeerId>,
        given: &[Multiaddr],
        role: Endpoint,
    ) -> Result<Vec<Multiaddr>, ConnectionDenied> {
        let mut found = self.0.handle_pending_outbound_connection(id, peer, given, role)?;
        found.truncate(DIALLED_MAX);
        Ok(found)
    }

    fn handle_established_inbound_connection(
        &mut self,
        id: ConnectionId,
        peer: PeerId,
        local: &Multiaddr,
        remote: &Multiaddr,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        self.0.handle_established_inbound_connection(id, peer, local, remote)
    }

    fn handle_established_outbound_connection(
        &mut self,
        id: ConnectionId,
        peer: PeerId,
        remote: &Multiaddr,
        role: Endpoint,
        port: PortUse,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        self.0.handle_established_outbound_connection(id, peer, remote, role, port)
    }

    fn on_swarm_event(&mut self, event: FromSwarm<'_>) {
        self.0.on_swarm_event(event);
    }

    fn on_connection_handler_event(
        &mut self,
        peer: PeerId,
        id: ConnectionId,
        event: THandlerOutEvent<Self>,
    ) {
        self.0.on_connection_handler_event(peer, id, event);
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<ToSwarm<Self::ToSwarm, THandlerInEvent<Self>>> {
        self.0.poll(cx)
    }
}

/// As many as [`crate::discovery::Discovery::learn`] lets the table have of one peer.
const DIALLED_MAX: usize = 2 * ADDRESSES_MAX;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_of_a_thousand_addresses_is_dialled_at_a_few() {
        let (me, peer) = (PeerId::random(), PeerId::random());
        let mut table = Table(kad::Behaviour::new(me, Providers::new(me)));
        for port in 1..=1_000 {
            table.add_address(&peer, format!("/ip4/203.0.113.7/tcp/{port}").parse().unwrap());
        }
        let id = ConnectionId::new_unchecked(1);
        let dialled =
            table.handle_pending_outbound_connection(id, Some(peer), &[], Endpoint::Dialer);
        assert_eq!(dialled.unwrap().len(), DIALLED_MAX);
    }
}
