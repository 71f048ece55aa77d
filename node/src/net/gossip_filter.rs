//! Keeps gossip off the connections that carry bulk, and away from peers that are not let in.
//!
//! Gossipsub lets all connections of a peer compete for its messages, and a heartbeat that a ring
//! connection wins waits behind megabytes. So on a ring connection that we dialled its handler is
//! never given a stream to write on; it still reads. The peer's side of that connection carries no
//! bulk towards us and needs no such care.
//!
//! To a peer that is not let in the handler is shut: neither is a stream of that peer read, nor one
//! opened to it. Both are kept for the moment at which it is let in, one of each.

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

use super::access::allow_list::Door;

/// A behaviour that writes nothing on some connections, and is shut to some peers.
pub(super) struct Mute<B> {
    /// The behaviour itself.
    pub(super) inner: B,
    /// Dials whose connections are to be muted, until they are established or have failed.
    muted: HashSet<ConnectionId>,
    door: Door,
    /// Connections on which it is shut. Bounded by the connection limits.
    shut: HashMap<ConnectionId, PeerId>,
    /// Those that are to be opened.
    opening: VecDeque<(PeerId, ConnectionId)>,
}

impl<B> Mute<B> {
    /// Mutes nothing yet, and lets nobody in.
    pub(super) fn new(inner: B) -> Self {
        Self {
            inner,
            muted: HashSet::new(),
            door: Door::default(),
            shut: HashMap::new(),
            opening: VecDeque::new(),
        }
    }

    /// Mutes the connection that a dial leads to.
    pub(super) fn mute(&mut self, dial: ConnectionId) {
        self.muted.insert(dial);
    }

    /// From now on those are let in whom `door` lets in, also on connections that are there. Whoever
    /// no longer is has to be disconnected.
    pub(super) fn set_door(&mut self, door: Door) {
        self.door = door;
        let opened = self.shut.extract_if(|_, peer| self.door.lets_in(peer));
        self.opening.extend(opened.map(|(id, peer)| (peer, id)));
    }

    fn handler<H: ConnectionHandler>(
        &mut self,
        id: ConnectionId,
        peer: PeerId,
        inner: H,
    ) -> MuteHandler<H> {
        let (mute, shut) = (self.muted.remove(&id), !self.door.lets_in(&peer));
        if shut {
            self.shut.insert(id, peer);
        }
        MuteHandler { inner, mute, shut, request: None, arrived: None }
    }
}

impl<B: NetworkBehaviour> NetworkBehaviour for Mute<B> {
    type ConnectionHandler = MuteHandler<B::ConnectionHandler>;
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
                self.muted.remove(&failure.connection_id);
                self.shut.remove(&failure.connection_id);
            }
            FromSwarm::ListenFailure(failure) => _ = self.shut.remove(&failure.connection_id),
            FromSwarm::ConnectionClosed(closed) => _ = self.shut.remove(&closed.connection_id),
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
            return Poll::Ready(ToSwarm::NotifyHandler { peer_id, handler, event: Word::Open });
        }
        self.inner.poll(cx).map(|event| event.map_in(Word::Inner))
    }
}

/// From the behaviour to the part in a connection.
#[derive(Debug)]
pub(super) enum Word<T> {
    /// The peer is let in.
    Open,
    /// For what is inside.
    Inner(T),
}

/// The part that lives in a connection.
pub(super) struct MuteHandler<H: ConnectionHandler> {
    inner: H,
    mute: bool,
    shut: bool,
    /// A stream that it wanted to open while it was shut.
    request: Option<SubstreamProtocol<H::OutboundProtocol, H::OutboundOpenInfo>>,
    /// The last one that the peer opened meanwhile.
    arrived: Option<FullyNegotiatedInbound<H::InboundProtocol, H::InboundOpenInfo>>,
}

impl<H: ConnectionHandler> ConnectionHandler for MuteHandler<H> {
    type FromBehaviour = Word<H::FromBehaviour>;
    type ToBehaviour = H::ToBehaviour;
    type InboundProtocol = H::InboundProtocol;
    type OutboundProtocol = H::OutboundProtocol;
    type InboundOpenInfo = H::InboundOpenInfo;
    type OutboundOpenInfo = H::OutboundOpenInfo;

    fn listen_protocol(&self) -> SubstreamProtocol<H::InboundProtocol, H::InboundOpenInfo> {
        self.inner.listen_protocol()
    }

    fn connection_keep_alive(&self) -> bool {
        !self.mute && self.inner.connection_keep_alive()
    }

    fn on_behaviour_event(&mut self, word: Word<H::FromBehaviour>) {
        match word {
            Word::Inner(event) => self.inner.on_behaviour_event(event),
            Word::Open => {
                self.shut = false;
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
        if let Some(protocol) = self.request.take_if(|_| !self.shut) {
            return Poll::Ready(ConnectionHandlerEvent::OutboundSubstreamRequest { protocol });
        }
        loop {
            match self.inner.poll(cx) {
                // It waits for this one for ever, and takes no message out of the queue meanwhile.
                Poll::Ready(ConnectionHandlerEvent::OutboundSubstreamRequest { .. })
                    if self.mute => {}
                Poll::Ready(ConnectionHandlerEvent::OutboundSubstreamRequest { protocol })
                    if self.shut =>
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
            // The one before it is reset.
            ConnectionEvent::FullyNegotiatedInbound(arrived) if self.shut => {
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

    type Gossip = Swarm<Mute<gossipsub::Behaviour>>;

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
        Swarm::new(transport, Mute::new(gossip), me, transport::swarm_config())
    }

    /// Both swarms run until the dialler's message has arrived, or not within the time given.
    async fn arrives(mute: bool, doors: [Door; 2], patience: Duration) -> bool {
        exchange(mute, doors, false, patience).await
    }

    /// The same where both let the other in half a second later.
    async fn arrives_late(doors: [Door; 2]) -> bool {
        exchange(false, doors, true, LONG).await
    }

    async fn exchange(mute: bool, doors: [Door; 2], late: bool, patience: Duration) -> bool {
        let (mut one, mut two) = (swarm(), swarm());
        for (swarm, door) in [&mut one, &mut two].into_iter().zip(doors) {
            swarm.behaviour_mut().set_door(door);
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
        if mute {
            one.behaviour_mut().mute(dial.connection_id());
        }
        one.dial(dial).unwrap();
        let exchange = async {
            loop {
                tokio::select! {
                    event = one.select_next_some() => {
                        // The muted side still reads, so it learns that somebody listens.
                        let gossip = &mut one.behaviour_mut().inner;
                        if let SwarmEvent::Behaviour(gossipsub::Event::Subscribed { topic, .. }) =
                            event
                        {
                            gossip.publish(topic, b"x").unwrap();
                        }
                    }
                    () = &mut opens, if late && !opens.is_elapsed() => {
                        // Both have long opened their streams, or would have.
                        one.behaviour_mut().set_door(Door::Open);
                        two.behaviour_mut().set_door(Door::Open);
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
    async fn a_muted_connection_carries_no_gossip_from_the_dialler() {
        let open = || [Door::Open, Door::Open];
        assert!(arrives(false, open(), LONG).await);
        assert!(!arrives(true, open(), Duration::from_secs(2)).await);
    }

    /// Neither what a stranger says is read, nor is anything said to it; once it is let in, both are,
    /// on the same connection.
    #[tokio::test]
    async fn gossip_begins_when_both_sides_let_the_other_in() {
        let doors = || {
            [[Door::Open, Door::Closed], [Door::Closed, Door::Open], [Door::Closed, Door::Closed]]
        };
        for doors in doors() {
            assert!(!arrives(false, doors, Duration::from_secs(2)).await);
        }
        for doors in doors() {
            assert!(arrives_late(doors).await);
        }
    }
}
