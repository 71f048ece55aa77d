//! Keeps gossip off connections that carry bulk, and away from peers that are not on the allow
//! list.
//!
//! Gossipsub lets all connections of a peer compete for its messages, and a heartbeat that a ring
//! connection wins waits behind megabytes. On a ring connection that we dialled its handler
//! therefore never gets a stream to write on; it still reads. The peer's side of that connection
//! carries no bulk towards us and needs no filter.
//!
//! Only streams are held back. What gossipsub has for a peer that is not allowed, which is little
//! more than our subscriptions, waits in gossipsub's own bounded queue for that peer.
//!
//! On connections of a peer that is not allowed the handler is closed: it reads no stream of that
//! peer and opens none. One stream of each direction is stored until the peer is allowed.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    task::{Context, Poll},
};

use libp2p::{
    Multiaddr, PeerId,
    core::{Endpoint, transport::PortUse},
    swarm::{
        ConnectionDenied, ConnectionHandler, ConnectionHandlerEvent, ConnectionId, FromSwarm,
        NetworkBehaviour, NotifyHandler, SubstreamProtocol, THandlerInEvent, ToSwarm,
        handler::{ConnectionEvent, FullyNegotiatedInbound},
    },
};

use super::access::allow_list::AllowList;

/// A behaviour that writes nothing on some connections, and deals only with allowed peers.
pub(super) struct GossipFilter<B> {
    /// The wrapped behaviour, which the actor also uses directly.
    pub(super) inner: B,
    /// Dials of connections for bulk, until they are established or have failed. At most as many as
    /// dials may be under way (64).
    bulk: HashSet<ConnectionId>,
    /// The allow list that new connections are compared with.
    allowed: AllowList,
    /// Connections of peers that are not allowed. Bounded by the connection limits.
    closed: HashMap<ConnectionId, PeerId>,
    /// Connections whose peers have just been allowed.
    opening: VecDeque<(PeerId, ConnectionId)>,
}

impl<B> GossipFilter<B> {
    /// Nobody is allowed until a list is set.
    pub(super) fn new(inner: B) -> Self {
        Self {
            inner,
            bulk: HashSet::new(),
            allowed: AllowList::default(),
            closed: HashMap::new(),
            opening: VecDeque::new(),
        }
    }

    /// Writes nothing on the connection that a dial leads to. The dial may have begun: no
    /// connection is established before the swarm is polled again.
    pub(super) fn exclude(&mut self, dial: ConnectionId) {
        self.bulk.insert(dial);
    }

    /// Replaces the allow list, also for connections that exist. The caller disconnects peers that
    /// are no longer on it.
    pub(super) fn set_allow_list(&mut self, list: AllowList) {
        self.allowed = list;
        let opened = self.closed.extract_if(|_, peer| self.allowed.allows(peer));
        self.opening.extend(opened.map(|(id, peer)| (peer, id)));
    }

    /// Wraps the handler of a new connection. What the connection is for is known here already: a
    /// dial for bulk was announced by [`Self::exclude`].
    fn handler<H: ConnectionHandler>(
        &mut self,
        id: ConnectionId,
        peer: PeerId,
        inner: H,
    ) -> FilterHandler<H> {
        let (bulk, closed) = (self.bulk.remove(&id), !self.allowed.allows(&peer));
        if closed {
            self.closed.insert(id, peer);
        }
        FilterHandler { inner, bulk, closed, request: None, arrived: None }
    }
}

impl<B: NetworkBehaviour> NetworkBehaviour for GossipFilter<B> {
    type ConnectionHandler = FilterHandler<B::ConnectionHandler>;
    type ToSwarm = B::ToSwarm;

    fn handle_pending_inbound_connection(
        &mut self,
        id: ConnectionId,
        local: &Multiaddr,
        remote: &Multiaddr,
    ) -> Result<(), ConnectionDenied> {
        self.inner.handle_pending_inbound_connection(id, local, remote)
    }

    fn handle_established_inbound_connection(
        &mut self,
        id: ConnectionId,
        peer: PeerId,
        local: &Multiaddr,
        remote: &Multiaddr,
    ) -> Result<Self::ConnectionHandler, ConnectionDenied> {
        let inner = self.inner.handle_established_inbound_connection(id, peer, local, remote)?;
        Ok(self.handler(id, peer, inner))
    }

    fn handle_pending_outbound_connection(
        &mut self,
        id: ConnectionId,
        peer: Option<PeerId>,
        addresses: &[Multiaddr],
        role: Endpoint,
    ) -> Result<Vec<Multiaddr>, ConnectionDenied> {
        self.inner.handle_pending_outbound_connection(id, peer, addresses, role)
    }

    fn handle_established_outbound_connection(
        &mut self,
        id: ConnectionId,
        peer: PeerId,
        remote: &Multiaddr,
        role: Endpoint,
        port: PortUse,
    ) -> Result<Self::ConnectionHandler, ConnectionDenied> {
        let inner =
            self.inner.handle_established_outbound_connection(id, peer, remote, role, port)?;
        Ok(self.handler(id, peer, inner))
    }

    fn on_swarm_event(&mut self, event: FromSwarm<'_>) {
        match &event {
            FromSwarm::DialFailure(failure) => {
                self.bulk.remove(&failure.connection_id);
                self.closed.remove(&failure.connection_id);
            }
            FromSwarm::ListenFailure(failure) => _ = self.closed.remove(&failure.connection_id),
            FromSwarm::ConnectionClosed(closed) => _ = self.closed.remove(&closed.connection_id),
            _ => {}
        }
        self.inner.on_swarm_event(event);
    }

    fn on_connection_handler_event(
        &mut self,
        peer: PeerId,
        id: ConnectionId,
        event: <B::ConnectionHandler as ConnectionHandler>::ToBehaviour,
    ) {
        self.inner.on_connection_handler_event(peer, id, event);
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<ToSwarm<Self::ToSwarm, THandlerInEvent<Self>>> {
        if let Some((peer_id, id)) = self.opening.pop_front() {
            let handler = NotifyHandler::One(id);
            return Poll::Ready(ToSwarm::NotifyHandler {
                peer_id,
                handler,
                event: FilterCommand::Open,
            });
        }
        self.inner.poll(cx).map(|event| event.map_in(FilterCommand::Inner))
    }
}

/// From the behaviour to its handler in a connection.
#[derive(Debug)]
pub(super) enum FilterCommand<T> {
    /// The peer is allowed now: what was held back goes on.
    Open,
    /// A command of the wrapped behaviour.
    Inner(T),
}

/// The handler of one connection, with what it holds back.
pub(super) struct FilterHandler<H: ConnectionHandler> {
    /// The handler of the wrapped behaviour.
    inner: H,
    /// Whether the connection carries bulk, so that gossip must not write on it.
    bulk: bool,
    /// Whether the peer is not allowed yet.
    closed: bool,
    /// A stream that it wanted to open while it was closed. It asks for one at a time, so one is
    /// enough.
    request: Option<SubstreamProtocol<H::OutboundProtocol, H::OutboundOpenInfo>>,
    /// The last stream that the peer opened meanwhile.
    arrived: Option<FullyNegotiatedInbound<H::InboundProtocol, H::InboundOpenInfo>>,
}

impl<H: ConnectionHandler> ConnectionHandler for FilterHandler<H> {
    type FromBehaviour = FilterCommand<H::FromBehaviour>;
    type ToBehaviour = H::ToBehaviour;
    type InboundProtocol = H::InboundProtocol;
    type OutboundProtocol = H::OutboundProtocol;
    type InboundOpenInfo = H::InboundOpenInfo;
    type OutboundOpenInfo = H::OutboundOpenInfo;

    fn listen_protocol(&self) -> SubstreamProtocol<H::InboundProtocol, H::InboundOpenInfo> {
        self.inner.listen_protocol()
    }

    /// A ring connection ends some time after its last stream: gossip does not keep it alive, as it
    /// does with a neighbour in its mesh.
    fn connection_keep_alive(&self) -> bool {
        !self.bulk && self.inner.connection_keep_alive()
    }

    /// Opens the handler, or hands a command on. The stream that the peer opened meanwhile is
    /// handed over: on it gossipsub reads the topics of the peer.
    fn on_behaviour_event(&mut self, command: FilterCommand<H::FromBehaviour>) {
        match command {
            FilterCommand::Inner(event) => self.inner.on_behaviour_event(event),
            FilterCommand::Open => {
                self.closed = false;
                if let Some(arrived) = self.arrived.take() {
                    let event = ConnectionEvent::FullyNegotiatedInbound(arrived);
                    self.inner.on_connection_event(event);
                }
            }
        }
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<ConnectionHandlerEvent<H::OutboundProtocol, H::OutboundOpenInfo, H::ToBehaviour>>
    {
        if let Some(protocol) = self.request.take_if(|_| !self.closed) {
            return Poll::Ready(ConnectionHandlerEvent::OutboundSubstreamRequest { protocol });
        }
        loop {
            match self.inner.poll(cx) {
                // It never gets this stream, and takes no message out of the queue meanwhile.
                Poll::Ready(ConnectionHandlerEvent::OutboundSubstreamRequest { .. })
                    if self.bulk => {}
                Poll::Ready(ConnectionHandlerEvent::OutboundSubstreamRequest { protocol })
                    if self.closed =>
                {
                    self.request = Some(protocol);
                }
                other => return other,
            }
        }
    }

    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<Option<H::ToBehaviour>> {
        self.inner.poll_close(cx)
    }

    fn on_connection_event(
        &mut self,
        event: ConnectionEvent<
            '_,
            H::InboundProtocol,
            H::OutboundProtocol,
            H::InboundOpenInfo,
            H::OutboundOpenInfo,
        >,
    ) {
        match event {
            // This resets the stream before it.
            ConnectionEvent::FullyNegotiatedInbound(arrived) if self.closed => {
                self.arrived = Some(arrived);
            }
            event => self.inner.on_connection_event(event),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::StreamExt as _;
    use intellect_bootstrap::transport;
    use libp2p::{
        Swarm,
        gossipsub::{self, IdentTopic, MessageAuthenticity, ValidationMode},
        identity::Keypair,
        swarm::{SwarmEvent, dial_opts::DialOpts},
    };
    use tokio::time::timeout;

    use super::*;

    type Gossip = Swarm<GossipFilter<gossipsub::Behaviour>>;

    fn swarm() -> Gossip {
        let key = Keypair::generate_ed25519();
        let (transport, _) = transport::build(&key, None).unwrap();
        let config = gossipsub::ConfigBuilder::default()
            .validation_mode(ValidationMode::Anonymous)
            .build()
            .unwrap();
        let mut gossip = gossipsub::Behaviour::new(MessageAuthenticity::Anonymous, config).unwrap();
        gossip.subscribe(&IdentTopic::new("topic")).unwrap();
        let me = key.public().to_peer_id();
        Swarm::new(transport, GossipFilter::new(gossip), me, transport::swarm_config())
    }

    /// Whether the dialler's message arrives within the time given.
    async fn arrives(bulk: bool, lists: [AllowList; 2], patience: Duration) -> bool {
        exchange(bulk, lists, false, patience).await
    }

    /// The same where both allow the other half a second later.
    async fn arrives_late(lists: [AllowList; 2]) -> bool {
        exchange(false, lists, true, LONG).await
    }

    async fn exchange(bulk: bool, lists: [AllowList; 2], late: bool, patience: Duration) -> bool {
        let (mut one, mut two) = (swarm(), swarm());
        for (swarm, list) in [&mut one, &mut two].into_iter().zip(lists) {
            swarm.behaviour_mut().set_allow_list(list);
        }
        let opens = tokio::time::sleep(Duration::from_millis(500));
        tokio::pin!(opens);
        two.listen_on("/ip4/127.0.0.1/tcp/0".parse().unwrap()).unwrap();
        let address = loop {
            if let SwarmEvent::NewListenAddr { address, .. } = two.select_next_some().await {
                break address;
            }
        };
        let dial = DialOpts::peer_id(*two.local_peer_id()).addresses(vec![address]).build();
        if bulk {
            one.behaviour_mut().exclude(dial.connection_id());
        }
        one.dial(dial).unwrap();
        let exchange = async {
            loop {
                tokio::select! {
                    event = one.select_next_some() => {
                        // The dialler still reads, so it learns that somebody listens.
                        let gossip = &mut one.behaviour_mut().inner;
                        if let SwarmEvent::Behaviour(gossipsub::Event::Subscribed { topic, .. }) =
                            event
                        {
                            gossip.publish(topic, b"x").unwrap();
                        }
                    }
                    () = &mut opens, if late && !opens.is_elapsed() => {
                        // Both have long opened their streams, or would have.
                        one.behaviour_mut().set_allow_list(AllowList::Everybody);
                        two.behaviour_mut().set_allow_list(AllowList::Everybody);
                    }
                    event = two.select_next_some() => {
                        if let SwarmEvent::Behaviour(gossipsub::Event::Message { .. }) = event {
                            return;
                        }
                    }
                }
            }
        };
        timeout(patience, exchange).await.is_ok()
    }

    const LONG: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn a_bulk_connection_carries_no_gossip_from_the_dialler() {
        let open = || [AllowList::Everybody, AllowList::Everybody];
        assert!(arrives(false, open(), LONG).await);
        assert!(!arrives(true, open(), Duration::from_secs(2)).await);
    }

    /// Nothing of a peer that is not allowed is read, and nothing is written to it; once it is
    /// allowed, both happen on the same connection.
    #[tokio::test]
    async fn gossip_begins_when_both_sides_allow_the_other() {
        let lists = || {
            [
                [AllowList::Everybody, AllowList::Nobody],
                [AllowList::Nobody, AllowList::Everybody],
                [AllowList::Nobody, AllowList::Nobody],
            ]
        };
        for lists in lists() {
            assert!(!arrives(false, lists, Duration::from_secs(2)).await);
        }
        for lists in lists() {
            assert!(arrives_late(lists).await);
        }
    }
}
