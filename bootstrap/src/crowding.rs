//! Limits the inbound connections from one address: an IPv4 address, or an IPv6 network (/64),
//! which is what one customer has. Keys cost nothing, addresses do.
//!
//! Peers on this machine or in its private network are not limited, because there the processes of
//! one owner meet. The relay counts a connection through it against the relay's own limits.
//!
//! The count is kept per connection, not per peer: a peer with many keys in one network meets the
//! same limit as many peers. Connections that this program dials are neither counted nor refused,
//! since it chose them itself.

use std::{
    collections::HashMap,
    convert::Infallible,
    net::{IpAddr, Ipv6Addr},
    task::{Context, Poll},
};

use libp2p::{
    Multiaddr, PeerId,
    core::{Endpoint, transport::PortUse},
    multiaddr::Protocol,
    swarm::{
        ConnectionClosed, ConnectionDenied, ConnectionId, FromSwarm, NetworkBehaviour, THandler,
        THandlerInEvent, THandlerOutEvent, ToSwarm, behaviour::ConnectionEstablished, dummy,
    },
};

use crate::address::{self, Scope};

/// Refuses an inbound connection from a network that has [`CONNECTIONS_MAX`] already.
#[derive(Debug, Default)]
pub struct Crowding {
    /// Inbound connections by network. A network without one has no entry, so the connection limits
    /// bound the map as well.
    open: HashMap<IpAddr, usize>,
}

/// The network that has too many connections.
#[derive(Debug, thiserror::Error)]
#[error("{0} has {max} connections", max = CONNECTIONS_MAX)]
struct Crowded(IpAddr);

impl Crowding {
    /// Called before the handshake and again after it: several handshakes of one network may run at
    /// once, and only established connections are counted.
    fn admit(&self, remote: &Multiaddr) -> Result<(), ConnectionDenied> {
        let Some(network) = network(remote) else { return Ok(()) };
        if self.open.get(&network).is_some_and(|open| *open >= CONNECTIONS_MAX) {
            return Err(ConnectionDenied::new(Crowded(network)));
        }
        Ok(())
    }
}

impl NetworkBehaviour for Crowding {
    type ConnectionHandler = dummy::ConnectionHandler;
    type ToSwarm = Infallible;

    fn handle_pending_inbound_connection(
        &mut self,
        _: ConnectionId,
        _: &Multiaddr,
        remote: &Multiaddr,
    ) -> Result<(), ConnectionDenied> {
        self.admit(remote)
    }

    fn handle_established_inbound_connection(
        &mut self,
        _: ConnectionId,
        _: PeerId,
        _: &Multiaddr,
        remote: &Multiaddr,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        self.admit(remote)?;
        Ok(dummy::ConnectionHandler)
    }

    fn handle_established_outbound_connection(
        &mut self,
        _: ConnectionId,
        _: PeerId,
        _: &Multiaddr,
        _: Endpoint,
        _: PortUse,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        Ok(dummy::ConnectionHandler)
    }

    /// Counts what `admit` compares. Both arms derive the network from the same endpoint,
    /// so a connection is subtracted exactly where it was added.
    fn on_swarm_event(&mut self, event: FromSwarm<'_>) {
        match event {
            FromSwarm::ConnectionEstablished(ConnectionEstablished { endpoint, .. })
                if endpoint.is_listener() =>
            {
                if let Some(network) = network(endpoint.get_remote_address()) {
                    *self.open.entry(network).or_default() += 1;
                }
            }
            FromSwarm::ConnectionClosed(ConnectionClosed { endpoint, .. })
                if endpoint.is_listener() =>
            {
                let network = network(endpoint.get_remote_address());
                let Some(network) = network else { return };
                let open = self.open.remove(&network).unwrap_or_default();
                if open > 1 {
                    self.open.insert(network, open - 1);
                }
            }
            _ => {}
        }
    }

    fn on_connection_handler_event(
        &mut self,
        _: PeerId,
        _: ConnectionId,
        event: THandlerOutEvent<Self>,
    ) {
        match event {}
    }

    fn poll(&mut self, _: &mut Context<'_>) -> Poll<ToSwarm<Infallible, THandlerInEvent<Self>>> {
        Poll::Pending
    }
}

/// The network that connections from an address are counted for; `None` where there is no limit.
#[must_use]
pub fn network(remote: &Multiaddr) -> Option<IpAddr> {
    if address::is_relayed(remote) || address::scope(remote) != Some(Scope::Public) {
        return None;
    }
    match remote.iter().next()? {
        Protocol::Ip4(ip) => Some(IpAddr::V4(ip)),
        Protocol::Ip6(ip) => {
            let [a, b, c, d, ..] = ip.segments();
            Some(IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0)))
        }
        _ => None,
    }
}

/// Enough for a computer room behind one router, whose machines have one connection each and a few
/// more for bulk.
const CONNECTIONS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use libp2p::core::ConnectedPoint;

    use super::*;

    fn come(behaviour: &mut Crowding, from: &str) -> bool {
        let (id, peer) = (ConnectionId::new_unchecked(1), PeerId::random());
        let (local, remote): (Multiaddr, Multiaddr) =
            ("/ip4/203.0.113.9/tcp/1".parse().unwrap(), from.parse().unwrap());
        let pending = behaviour.handle_pending_inbound_connection(id, &local, &remote);
        let admitted = behaviour.handle_established_inbound_connection(id, peer, &local, &remote);
        assert_eq!(pending.is_ok(), admitted.is_ok());
        if admitted.is_ok() {
            let endpoint = &ConnectedPoint::Listener { local_addr: local, send_back_addr: remote };
            behaviour.on_swarm_event(FromSwarm::ConnectionEstablished(ConnectionEstablished {
                peer_id: peer,
                connection_id: id,
                endpoint,
                failed_addresses: &[],
                other_established: 0,
            }));
        }
        admitted.is_ok()
    }

    fn go(behaviour: &mut Crowding, from: &str) {
        let endpoint = &ConnectedPoint::Listener {
            local_addr: "/ip4/203.0.113.9/tcp/1".parse().unwrap(),
            send_back_addr: from.parse().unwrap(),
        };
        behaviour.on_swarm_event(FromSwarm::ConnectionClosed(ConnectionClosed {
            peer_id: PeerId::random(),
            connection_id: ConnectionId::new_unchecked(1),
            endpoint,
            cause: None,
            remaining_established: 0,
        }));
    }

    /// Without the limit one machine took all connections that the program may have.
    #[test]
    fn an_address_has_so_many_connections_and_another_one_its_own() {
        let mut behaviour = Crowding::default();
        for port in 1..=CONNECTIONS_MAX {
            assert!(come(&mut behaviour, &format!("/ip4/203.0.113.7/tcp/{port}")));
            // In one /64 an address is as cheap as a port.
            assert!(come(&mut behaviour, &format!("/ip6/2001:db8:1:2::{port:x}/udp/1/quic-v1")));
        }
        assert!(!come(&mut behaviour, "/ip4/203.0.113.7/tcp/9999"));
        assert!(!come(&mut behaviour, "/ip6/2001:db8:1:2:3::1/tcp/1"));
        assert!(come(&mut behaviour, "/ip4/203.0.113.8/tcp/1"));
        assert!(come(&mut behaviour, "/ip6/2001:db8:1:3::1/tcp/1"));
        go(&mut behaviour, "/ip4/203.0.113.7/tcp/1");
        assert!(come(&mut behaviour, "/ip4/203.0.113.7/tcp/9999"));
        assert!(!come(&mut behaviour, "/ip4/203.0.113.7/tcp/9998"));
        for _ in 0..=CONNECTIONS_MAX {
            go(&mut behaviour, "/ip4/203.0.113.7/tcp/1");
        }
        assert_eq!(behaviour.open.get(&IpAddr::from([203, 0, 113, 7])), None);
    }

    #[test]
    fn processes_of_one_machine_and_circuits_are_not_counted() {
        let mut behaviour = Crowding::default();
        let relay = PeerId::random();
        let circuit = format!("/ip4/203.0.113.7/tcp/1/p2p/{relay}/p2p-circuit");
        for _ in 0..1_000 {
            for from in ["/ip4/127.0.0.1/tcp/1", "/ip4/10.0.0.1/tcp/1", "/ip6/::1/tcp/1", &circuit]
            {
                assert!(come(&mut behaviour, from), "{from}");
            }
        }
        assert!(behaviour.open.is_empty());
    }
}
