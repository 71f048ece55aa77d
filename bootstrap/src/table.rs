//! Kademlia, with a bound on the addresses that it gives to a dial, and on those that it keeps of a peer.
//!
//! A peer that answers a query names addresses of others, up to the size of a packet: thousands. libp2p tries them eight
//! at a time and waits for each, so a few such answers would keep every dial of this program busy for an hour.
//!
//! An answer carries all that the table has of twenty peers. Kademlia enters each address at which a dial has met a
//! server, and a peer chooses at which addresses it is dialled, so without the other bound a few peers would make every
//! answer longer than a packet.

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

use crate::{discovery, providers::Providers};

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

    /// Whenever the table gets an address, also takes out of it what it has too much of that peer.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<ToSwarm<Self::ToSwarm, THandlerInEvent<Self>>> {
        let next = self.0.poll(cx);
        if let Poll::Ready(ToSwarm::GenerateEvent(event)) = &next
            && let kad::Event::RoutingUpdated { peer, addresses, .. } = event
        {
            for (at, address) in addresses.iter().enumerate() {
                if at >= DIALLED_MAX || address.len() > discovery::ADDRESS_BYTES_MAX {
                    self.0.remove_address(peer, address);
                }
            }
        }
        next
    }
}

/// As many as [`crate::discovery::Discovery::learn`] lets the table have of one peer, if no dial adds any.
const DIALLED_MAX: usize = 2 * discovery::ADDRESSES_MAX;

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use libp2p::multiaddr::Protocol;

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

    #[test]
    fn the_table_keeps_few_addresses_of_a_peer_and_no_long_one() {
        let (me, peer) = (PeerId::random(), PeerId::random());
        let mut table = Table(kad::Behaviour::new(me, Providers::new(me)));
        for port in 1..=100 {
            table.add_address(&peer, format!("/ip4/203.0.113.7/tcp/{port}").parse().unwrap());
        }
        let long = Multiaddr::empty()
            .with(Protocol::Dns4("a".repeat(discovery::ADDRESS_BYTES_MAX).into()));
        table.add_address(&PeerId::random(), long);
        while table.poll(&mut Context::from_waker(Waker::noop())).is_ready() {}
        let mut kept = Vec::new();
        for bucket in table.kbuckets() {
            kept.extend(bucket.iter().map(|entry| entry.node.value.len()));
        }
        assert_eq!(kept, [DIALLED_MAX]);
    }
}
