//! Bounds the addresses at which peers say that they have seen us, and which AutoNAT is to test.
//!
//! AutoNAT keeps each such address for good, and any peer may report new ones as often as it likes
//! (identify's push). A machine has few addresses, and the first ones come from the entry point
//! that it dials. It may have others once it listens on another network, or its provider gives it
//! another address.
//!
//! Only entry points are asked. AutoNAT would ask any peer that was dialled, and believe whoever
//! says that it has dialled back.

use std::{
    collections::BTreeSet,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use either::Either;
use libp2p::{
    Multiaddr, PeerId,
    autonat::v2::client::Behaviour,
    core::{Endpoint, transport::PortUse},
    swarm::{
        ConnectionDenied, ConnectionId, FromSwarm, NetworkBehaviour, THandler, THandlerInEvent,
        THandlerOutEvent, ToSwarm, dummy,
    },
};

use crate::address;

/// AutoNAT's client, which hears of at most [`CANDIDATES_MAX`] addresses on each network and in
/// each hour.
#[derive(Default)]
pub struct Candidates {
    inner: Behaviour,
    /// The peers that are asked to test an address.
    testers: BTreeSet<PeerId>,
    /// The addresses that it has heard of in this hour, or since this machine came to this network.
    told: BTreeSet<Multiaddr>,
    /// When this hour began; `None` before the first address.
    since: Option<Instant>,
}

impl Candidates {
    /// From the next connection on these peers are asked.
    pub fn ask(&mut self, testers: impl IntoIterator<Item = PeerId>) {
        self.testers.extend(testers);
    }

    /// Whether AutoNAT is to hear of an address. One that it knows may be reported again.
    fn takes(&mut self, address: &Multiaddr, now: Instant) -> bool {
        if now.duration_since(*self.since.get_or_insert(now)) >= PERIOD {
            self.told.clear();
            self.since = Some(now);
        }
        if self.told.len() < CANDIDATES_MAX && address::scope(address).is_some() {
            self.told.insert(address.clone());
        }
        self.told.contains(address)
    }
}

impl NetworkBehaviour for Candidates {
    type ConnectionHandler = Either<THandler<Behaviour>, dummy::ConnectionHandler>;
    type ToSwarm = <Behaviour as NetworkBehaviour>::ToSwarm;

    fn handle_established_inbound_connection(
        &mut self,
        id: ConnectionId,
        peer: PeerId,
        local: &Multiaddr,
        remote: &Multiaddr,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        self.inner.handle_established_inbound_connection(id, peer, local, remote).map(Either::Left)
    }

    fn handle_established_outbound_connection(
        &mut self,
        id: ConnectionId,
        peer: PeerId,
        remote: &Multiaddr,
        role: Endpoint,
        port: PortUse,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        if !self.testers.contains(&peer) {
            return Ok(Either::Right(dummy::ConnectionHandler));
        }
        self.inner
            .handle_established_outbound_connection(id, peer, remote, role, port)
            .map(Either::Left)
    }

    fn on_swarm_event(&mut self, event: FromSwarm<'_>) {
        match &event {
            FromSwarm::NewExternalAddrCandidate(candidate)
                if !self.takes(candidate.addr, Instant::now()) =>
            {
                return;
            }
            FromSwarm::NewListenAddr(_) => self.told.clear(),
            _ => {}
        }
        self.inner.on_swarm_event(event);
    }

    fn on_connection_handler_event(
        &mut self,
        peer: PeerId,
        id: ConnectionId,
        event: THandlerOutEvent<Self>,
    ) {
        match event {
            Either::Left(event) => self.inner.on_connection_handler_event(peer, id, event),
            Either::Right(never) => match never {},
        }
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<ToSwarm<Self::ToSwarm, THandlerInEvent<Self>>> {
        self.inner.poll(cx).map(|action| action.map_in(Either::Left))
    }
}

/// Room for a few networks, both families and both transports.
const CANDIDATES_MAX: usize = 16;
/// After this time as many other addresses may be tested.
const PERIOD: Duration = Duration::from_secs(60 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_reports_ever_new_addresses_fills_no_memory() {
        let mut candidates = Candidates::default();
        let long = Multiaddr::from(libp2p::multiaddr::Protocol::Unix("a".repeat(3_900).into()));
        let now = Instant::now();
        assert!(!candidates.takes(&long, now));
        let at = |port: u16| format!("/ip4/203.0.113.7/tcp/{port}").parse().unwrap();
        let mut taken = |now| (1..=1_000).filter(|port| candidates.takes(&at(*port), now)).count();
        assert_eq!((taken(now), taken(now)), (CANDIDATES_MAX, CANDIDATES_MAX), "known ones again");
        assert!(candidates.takes(&at(2_000), now + PERIOD), "there may be a new one later");
    }
}
