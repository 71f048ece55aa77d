//! Limits connections: all of them, those of one peer, and the inbound ones from one network. That
//! is an IPv4 address, or an IPv6 network: a customer has a /64, and often a /56 or a /48. Keys
//! cost nothing, addresses do.
//!
//! Peers on this machine or in its private network are not counted by network, because there the
//! processes of one owner meet. The relay counts a connection through it against the relay's own
//! limits.
//!
//! The count by network is kept per connection, not per peer: a peer with many keys in one network
//! meets the same limit as many peers. Connections that this program dials are not refused for
//! their network, since it chose them itself.
//!
//! `libp2p::connection_limits` keeps an entry for each key that was ever connected, so it would not
//! do: a stranger could fill the memory with keys.

use std::{
    collections::{HashMap, HashSet},
    convert::Infallible,
    hash::Hash,
    net::{IpAddr, Ipv6Addr},
    task::{Context, Poll},
};

use libp2p::{
    Multiaddr, PeerId,
    core::{Endpoint, transport::PortUse},
    swarm::{
        ConnectionClosed, ConnectionDenied, ConnectionId, DialFailure, FromSwarm, NetworkBehaviour,
        THandler, THandlerInEvent, THandlerOutEvent, ToSwarm, behaviour::ConnectionEstablished,
        dummy,
    },
};

use crate::address::{self, Scope};

/// Refuses connections above its limits.
#[derive(Debug)]
pub struct Crowding {
    /// The most inbound connections, and the most of both directions.
    most: (usize, usize),
    /// Inbound connections by network, with the length of its prefix. What has none has no entry,
    /// here and below.
    open: HashMap<(IpAddr, u8), usize>,
    /// Connections by peer, of both directions.
    peers: HashMap<PeerId, usize>,
    /// All inbound connections, and those of both directions.
    count: (usize, usize),
    /// Dials that have neither led to a connection nor failed.
    dialling: HashSet<ConnectionId>,
}

/// Why a connection is refused.
#[derive(Debug, thiserror::Error)]
enum Crowded {
    #[error("{0} has {1} connections")]
    Network(IpAddr, usize),
    #[error("the peer has {PER_PEER_MAX} connections")]
    Peer,
    #[error("there are {0} connections")]
    All(usize),
    #[error("{DIALLING_MAX} dials are under way")]
    Dials,
}

impl Crowding {
    /// Allows so many `inbound` connections, and so many in `all`.
    #[must_use]
    pub fn new(inbound: usize, all: usize) -> Self {
        let (open, peers, dialling) = Default::default();
        Self { most: (inbound, all), open, peers, count: (0, 0), dialling }
    }

    /// Called before the handshake and again after it: several handshakes of one network may run at
    /// once, and only established connections are counted.
    fn admit_network(&self, remote: &Multiaddr) -> Result<(), ConnectionDenied> {
        for (prefix, most) in networks(remote) {
            if self.open.get(&prefix).is_some_and(|open| *open >= most) {
                return Err(ConnectionDenied::new(Crowded::Network(prefix.0, most)));
            }
        }
        Ok(())
    }

    /// Whether there is room for a connection of this peer.
    fn admit(&self, peer: &PeerId) -> Result<(), ConnectionDenied> {
        if self.count.1 >= self.most.1 {
            return Err(ConnectionDenied::new(Crowded::All(self.count.1)));
        }
        if self.peers.get(peer).is_some_and(|open| *open >= PER_PEER_MAX) {
            return Err(ConnectionDenied::new(Crowded::Peer));
        }
        Ok(())
    }
}

/// One connection less of `key`, which is forgotten with its last one.
pub(crate) fn less<K: Eq + Hash>(map: &mut HashMap<K, usize>, key: K) {
    let open = map.remove(&key).unwrap_or_default();
    if open > 1 {
        map.insert(key, open - 1);
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
        self.admit_network(remote)
    }

    fn handle_established_inbound_connection(
        &mut self,
        _: ConnectionId,
        peer: PeerId,
        _: &Multiaddr,
        remote: &Multiaddr,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        self.admit_network(remote)?;
        if self.count.0 >= self.most.0 {
            return Err(ConnectionDenied::new(Crowded::All(self.count.0)));
        }
        self.admit(&peer)?;
        Ok(dummy::ConnectionHandler)
    }

    fn handle_pending_outbound_connection(
        &mut self,
        id: ConnectionId,
        _: Option<PeerId>,
        _: &[Multiaddr],
        _: Endpoint,
    ) -> Result<Vec<Multiaddr>, ConnectionDenied> {
        if self.dialling.len() >= DIALLING_MAX {
            return Err(ConnectionDenied::new(Crowded::Dials));
        }
        self.dialling.insert(id);
        Ok(Vec::new())
    }

    fn handle_established_outbound_connection(
        &mut self,
        id: ConnectionId,
        peer: PeerId,
        _: &Multiaddr,
        _: Endpoint,
        _: PortUse,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        self.dialling.remove(&id);
        self.admit(&peer)?;
        Ok(dummy::ConnectionHandler)
    }

    /// Counts what is compared above. Both arms derive the networks from the same endpoint,
    /// so a connection is subtracted exactly where it was added.
    fn on_swarm_event(&mut self, event: FromSwarm<'_>) {
        match event {
            FromSwarm::ConnectionEstablished(ConnectionEstablished {
                peer_id, endpoint, ..
            }) => {
                *self.peers.entry(peer_id).or_default() += 1;
                self.count.1 += 1;
                if endpoint.is_listener() {
                    self.count.0 += 1;
                    for (network, _) in networks(endpoint.get_remote_address()) {
                        *self.open.entry(network).or_default() += 1;
                    }
                }
            }
            FromSwarm::ConnectionClosed(ConnectionClosed { peer_id, endpoint, .. }) => {
                less(&mut self.peers, peer_id);
                self.count.1 = self.count.1.saturating_sub(1);
                if endpoint.is_listener() {
                    self.count.0 = self.count.0.saturating_sub(1);
                    for (network, _) in networks(endpoint.get_remote_address()) {
                        less(&mut self.open, network);
                    }
                }
            }
            FromSwarm::DialFailure(DialFailure { connection_id, .. }) => {
                self.dialling.remove(&connection_id);
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
    networks(remote).next().map(|((network, _), _)| network)
}

/// The largest network that connections from an address are counted for: of IPv6 the /48, since a household may have that
/// much; `None` where there is no limit.
#[must_use]
pub fn site(remote: &Multiaddr) -> Option<IpAddr> {
    networks(remote).last().map(|((network, _), _)| network)
}

/// The networks that an address lies in, the smallest one first, each with the connections that it
/// may have.
fn networks(remote: &Multiaddr) -> impl Iterator<Item = ((IpAddr, u8), usize)> {
    let is_counted = !address::is_relayed(remote) && address::scope(remote) == Some(Scope::Public);
    let ip = if is_counted { address::ip(remote) } else { None };
    let v4 = ip.filter(IpAddr::is_ipv4).map(|ip| ((ip, 32), CONNECTIONS_MAX));
    let v6 = match ip {
        Some(IpAddr::V6(ip)) => Some(ip.to_bits()),
        _ => None,
    };
    let prefixes = [(64, CONNECTIONS_MAX), (56, 2 * CONNECTIONS_MAX), (48, 4 * CONNECTIONS_MAX)];
    let v6 = prefixes.into_iter().filter_map(move |(length, most)| {
        let network = Ipv6Addr::from_bits(v6? >> (128 - length) << (128 - length));
        Some(((IpAddr::V6(network), length), most))
    });
    v4.into_iter().chain(v6)
}

/// Enough for a computer room behind one router, whose machines have one connection each and a few
/// more for bulk.
const CONNECTIONS_MAX: usize = 64;

/// Control, ring and fetch in both directions, a duplicate of each for a while, and a circuit.
const PER_PEER_MAX: usize = 8;

/// Dials that may be under way at once: several queries of the table with 20 each, and our own.
const DIALLING_MAX: usize = 256;

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
        let mut behaviour = Crowding::new(10_000, 10_000);
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
        assert_eq!(behaviour.open.get(&(IpAddr::from([203, 0, 113, 7]), 32)), None);
    }

    #[test]
    fn processes_of_one_machine_and_circuits_are_not_counted() {
        let mut behaviour = Crowding::new(10_000, 10_000);
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

    /// One home line may have 65,536 networks of the smallest kind.
    #[test]
    fn a_customer_with_many_networks_has_so_many_connections_in_all() {
        let mut behaviour = Crowding::new(10_000, 10_000);
        let mut come_from = |subnet: usize| {
            let from = |port| format!("/ip6/2001:db8:7:{subnet:x}::{port:x}/tcp/1");
            (0..CONNECTIONS_MAX).filter(|port| come(&mut behaviour, &from(*port))).count()
        };
        // Two of the smallest fill a /56, and two of those a /48.
        assert_eq!([1, 2, 3].map(&mut come_from), [CONNECTIONS_MAX, CONNECTIONS_MAX, 0]);
        assert_eq!([0x101, 0x102].map(&mut come_from), [CONNECTIONS_MAX; 2]);
        assert_eq!(come_from(0x201), 0);
        assert!(come(&mut behaviour, "/ip6/2001:db8:8::1/tcp/1"));
    }

    #[test]
    fn a_peer_and_a_program_have_so_many_connections_and_nobody_is_remembered() {
        let mut behaviour = Crowding::new(100, 100);
        let (id, here) = (ConnectionId::new_unchecked(1), "/ip4/10.0.0.1/tcp/1".parse().unwrap());
        let endpoint = ConnectedPoint::Listener {
            local_addr: here,
            send_back_addr: "/ip4/10.0.0.2/tcp/1".parse().unwrap(),
        };
        let remote = endpoint.get_remote_address().clone();
        let connect = |behaviour: &mut Crowding, peer| {
            let one = behaviour.handle_established_inbound_connection(id, peer, &remote, &remote);
            let event = ConnectionEstablished {
                peer_id: peer,
                connection_id: id,
                endpoint: &endpoint,
                failed_addresses: &[],
                other_established: 0,
            };
            if one.is_ok() {
                behaviour.on_swarm_event(FromSwarm::ConnectionEstablished(event));
            }
            one.is_ok()
        };
        let first = PeerId::random();
        assert_eq!((0..20).filter(|_| connect(&mut behaviour, first)).count(), PER_PEER_MAX);
        let others: Vec<PeerId> = (0..200).map(|_| PeerId::random()).collect();
        let came: Vec<_> = others.iter().filter(|peer| connect(&mut behaviour, **peer)).collect();
        assert_eq!(came.len(), 100 - PER_PEER_MAX);
        for peer in came.into_iter().chain([&first; PER_PEER_MAX]) {
            behaviour.on_swarm_event(FromSwarm::ConnectionClosed(ConnectionClosed {
                peer_id: *peer,
                connection_id: id,
                endpoint: &endpoint,
                cause: None,
                remaining_established: 0,
            }));
        }
        assert!(behaviour.peers.is_empty() && behaviour.open.is_empty());
        assert_eq!(behaviour.count, (0, 0));
    }

    #[test]
    fn so_many_dials_are_under_way_at_once() {
        let mut behaviour = Crowding::new(100, 100);
        let dial = |behaviour: &mut Crowding, id| {
            let id = ConnectionId::new_unchecked(id);
            behaviour.handle_pending_outbound_connection(id, None, &[], Endpoint::Dialer).is_ok()
        };
        assert_eq!((0..1_000).filter(|id| dial(&mut behaviour, *id)).count(), DIALLING_MAX);
        let error = &libp2p::swarm::DialError::Aborted;
        let connection_id = ConnectionId::new_unchecked(3);
        behaviour.on_swarm_event(FromSwarm::DialFailure(DialFailure {
            peer_id: None,
            error,
            connection_id,
        }));
        assert!(dial(&mut behaviour, 2_000) && !dial(&mut behaviour, 2_001));
    }
}
