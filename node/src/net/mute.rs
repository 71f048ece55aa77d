//! Keeps gossip off the connections that carry bulk.
//!
//! Gossipsub lets all connections of a peer compete for its messages, and a heartbeat that a ring
//! connection wins waits behind megabytes. So on a ring connection that we dialled its handler is
//! never given a stream to write on; it still reads. The peer's side of that connection carries no
//! bulk towards us and needs no such care.

use std::{
    collections::HashSet,
    task::{Context, Poll},
};

use libp2p::{
    Multiaddr, PeerId,
    core::{Endpoint, transport::PortUse},
    swarm::{
        ConnectionDenied, ConnectionHandler, ConnectionHandlerEvent, ConnectionId, FromSwarm,
        NetworkBehaviour, SubstreamProtocol, THandlerInEvent, ToSwarm, handler::ConnectionEvent,
    },
};

/// A behaviour that writes nothing on some connections.
pub(super) struct Mute<B> {
    /// The behaviour itself.
    pub(super) inner: B,
    /// Dials whose connections are to be muted, until they are established or have failed.
    muted: HashSet<ConnectionId>,
}

impl<B> Mute<B> {
    /// Mutes nothing yet.
    pub(super) fn new(inner: B) -> Self {
        Self { inner, muted: HashSet::new() }
    }

    /// Mutes the connection that a dial leads to.
    pub(super) fn mute(&mut self, dial: ConnectionId) {
        self.muted.insert(dial);
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
        Ok(MuteHandler { inner, mute: false })
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
        let mute = self.muted.remove(&id);
        let inner =
            self.inner.handle_established_outbound_connection(id, peer, remote, role, port)?;
        Ok(MuteHandler { inner, mute })
    }

    fn on_swarm_event(&mut self, event: FromSwarm<'_>) {
        if let FromSwarm::DialFailure(failure) = &event {
            self.muted.remove(&failure.connection_id);
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
        self.inner.poll(cx)
    }
}

/// The part that lives in a connection.
pub(super) struct MuteHandler<H> {
    inner: H,
    mute: bool,
}

impl<H: ConnectionHandler> ConnectionHandler for MuteHandler<H> {
    type FromBehaviour = H::FromBehaviour;
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

    fn on_behaviour_event(&mut self, event: H::FromBehaviour) {
        self.inner.on_behaviour_event(event);
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<ConnectionHandlerEvent<H::OutboundProtocol, H::OutboundOpenInfo, H::ToBehaviour>>
    {
        loop {
            match self.inner.poll(cx) {
                // It waits for this one for ever, and takes no message out of the queue meanwhile.
                Poll::Ready(ConnectionHandlerEvent::OutboundSubstreamRequest { .. })
                    if self.mute => {}
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
        self.inner.on_connection_event(event);
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
    async fn arrives(mute: bool, patience: Duration) -> bool {
        let (mut one, mut two) = (swarm(), swarm());
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

    #[tokio::test]
    async fn a_muted_connection_carries_no_gossip_from_the_dialler() {
        assert!(arrives(false, Duration::from_secs(30)).await);
        assert!(!arrives(true, Duration::from_secs(2)).await);
    }
}
