//! Byte streams of our own protocols, opened on a connection that the caller chooses.
//!
//! Control and bulk must not share a TCP connection: a megabyte in the send buffer delays a
//! heartbeat by the time that it takes to send. libp2p's generic stream behaviour picks any
//! connection to the peer, so this one takes a [`ConnectionId`]. Each request carries its reply
//! channel through the negotiation, so requests run in parallel and need no table.
//!
//! Frames, limits and deadlines are left to the caller. A stream that is dropped unread is reset.
//!
//! The behaviour knows no peer and no message, so it does not judge whether a stream is wanted.
//! The programs that use it decide which streams they answer, and how many.

use std::{
    collections::VecDeque,
    convert::Infallible,
    future::{Ready, ready},
    task::{Context, Poll},
    time::Duration,
};

use futures::channel::oneshot;
use libp2p::{
    Multiaddr, PeerId, Stream, StreamProtocol,
    core::{
        Endpoint,
        transport::PortUse,
        upgrade::{InboundUpgrade, ReadyUpgrade, UpgradeInfo},
    },
    swarm::{
        ConnectionDenied, ConnectionHandler, ConnectionHandlerEvent, ConnectionId, FromSwarm,
        NetworkBehaviour, NotifyHandler, StreamUpgradeError, SubstreamProtocol, ToSwarm,
        handler::{ConnectionEvent, DialUpgradeError, FullyNegotiatedInbound},
    },
};

/// A stream that a peer opened to us.
#[derive(Debug)]
pub struct Incoming {
    /// The peer at the other end, authenticated by the connection.
    pub peer: PeerId,
    /// The connection that carries the stream.
    pub connection: ConnectionId,
    /// The negotiated protocol, one of those given to [`Behaviour::new`].
    pub protocol: StreamProtocol,
    /// The stream, from which no byte was read yet.
    pub stream: Stream,
}

/// Why a stream could not be opened.
#[derive(Debug, Clone, thiserror::Error)]
pub enum OpenError {
    /// The connection closed before the request reached it.
    #[error("the connection is closed")]
    Closed,
    /// The peer does not speak this protocol.
    #[error("the peer does not speak {0}")]
    Unsupported(StreamProtocol),
    /// The negotiation took longer than 5 s, or the connection failed meanwhile.
    #[error("no stream: {0}")]
    Failed(String),
}

/// Receives the answer to [`Behaviour::open`]; cancelled when the connection has closed.
pub type Opening = oneshot::Receiver<Result<Stream, OpenError>>;

/// Opens streams on chosen connections, and reports the streams that peers open.
pub struct Behaviour {
    /// What peers may open to us. A stream of another protocol is refused during its negotiation.
    protocols: Vec<StreamProtocol>,
    /// Events and requests that the swarm has not fetched yet. Requests are bounded by the caller,
    /// and arrivals by each handler.
    outbox: VecDeque<ToSwarm<Incoming, Request>>,
}

impl Behaviour {
    /// Accepts streams of the given protocols; streams of any protocol can be opened.
    #[must_use]
    pub fn new(protocols: &[StreamProtocol]) -> Self {
        Self { protocols: protocols.to_vec(), outbox: VecDeque::new() }
    }

    /// Requests a stream on one connection. The answer comes through the receiver: a stream, an
    /// [`OpenError`], or the receiver's cancellation if the connection closed first. The caller
    /// bounds the number of open requests.
    pub fn open(
        &mut self,
        peer: PeerId,
        connection: ConnectionId,
        protocol: StreamProtocol,
    ) -> Opening {
        let (reply, opening) = oneshot::channel();
        self.outbox.push_back(ToSwarm::NotifyHandler {
            peer_id: peer,
            handler: NotifyHandler::One(connection),
            event: Request { protocol, reply },
        });
        opening
    }

    /// A handler for a new connection; every connection gets the same list of protocols.
    fn handler(&self) -> Handler {
        Handler { protocols: self.protocols.clone(), ..Handler::default() }
    }
}

impl NetworkBehaviour for Behaviour {
    type ConnectionHandler = Handler;
    type ToSwarm = Incoming;

    fn handle_established_inbound_connection(
        &mut self,
        _: ConnectionId,
        _: PeerId,
        _: &Multiaddr,
        _: &Multiaddr,
    ) -> Result<Handler, ConnectionDenied> {
        Ok(self.handler())
    }

    fn handle_established_outbound_connection(
        &mut self,
        _: ConnectionId,
        _: PeerId,
        _: &Multiaddr,
        _: Endpoint,
        _: PortUse,
    ) -> Result<Handler, ConnectionDenied> {
        Ok(self.handler())
    }

    fn on_swarm_event(&mut self, _: FromSwarm<'_>) {}

    fn on_connection_handler_event(
        &mut self,
        peer: PeerId,
        connection: ConnectionId,
        (protocol, stream): (StreamProtocol, Stream),
    ) {
        let arrival = Incoming { peer, connection, protocol, stream };
        self.outbox.push_back(ToSwarm::GenerateEvent(arrival));
    }

    fn poll(&mut self, _: &mut Context<'_>) -> Poll<ToSwarm<Incoming, Request>> {
        self.outbox.pop_front().map_or(Poll::Pending, Poll::Ready)
    }
}

/// A request for a stream, from the behaviour to the handler of one connection.
#[derive(Debug)]
pub struct Request {
    /// The protocol that the stream is negotiated for.
    protocol: StreamProtocol,
    reply: Reply,
}

/// Where the result of one negotiation goes.
type Reply = oneshot::Sender<Result<Stream, OpenError>>;

/// The part of the behaviour that belongs to one connection.
#[derive(Default)]
pub struct Handler {
    protocols: Vec<StreamProtocol>,
    /// Requests that have not begun their negotiation. The caller of [`Behaviour::open`] bounds
    /// them.
    requests: VecDeque<Request>,
    /// Streams that a peer has opened, until the behaviour takes them. At most [`ARRIVALS_MAX`].
    arrived: VecDeque<(StreamProtocol, Stream)>,
}

impl ConnectionHandler for Handler {
    type FromBehaviour = Request;
    type ToBehaviour = (StreamProtocol, Stream);
    type InboundProtocol = AnyOf;
    type InboundOpenInfo = ();
    type OutboundProtocol = ReadyUpgrade<StreamProtocol>;
    type OutboundOpenInfo = (StreamProtocol, Reply);

    fn listen_protocol(&self) -> SubstreamProtocol<AnyOf> {
        SubstreamProtocol::new(AnyOf(self.protocols.clone()), ())
    }

    fn on_behaviour_event(&mut self, request: Request) {
        self.requests.push_back(request);
    }

    fn poll(
        &mut self,
        _: &mut Context<'_>,
    ) -> Poll<
        ConnectionHandlerEvent<
            Self::OutboundProtocol,
            Self::OutboundOpenInfo,
            (StreamProtocol, Stream),
        >,
    > {
        if let Some(arrival) = self.arrived.pop_front() {
            return Poll::Ready(ConnectionHandlerEvent::NotifyBehaviour(arrival));
        }
        if let Some(Request { protocol, reply }) = self.requests.pop_front() {
            let upgrade = ReadyUpgrade::new(protocol.clone());
            let protocol =
                SubstreamProtocol::new(upgrade, (protocol, reply)).with_timeout(OPEN_TIMEOUT);
            return Poll::Ready(ConnectionHandlerEvent::OutboundSubstreamRequest { protocol });
        }
        Poll::Pending
    }

    fn on_connection_event(
        &mut self,
        event: ConnectionEvent<'_, AnyOf, Self::OutboundProtocol, (), Self::OutboundOpenInfo>,
    ) {
        // A reply cannot be sent if the caller has dropped the receiver; the stream is then reset.
        match event {
            ConnectionEvent::FullyNegotiatedInbound(FullyNegotiatedInbound {
                protocol: arrival,
                ..
            }) if self.arrived.len() < ARRIVALS_MAX => self.arrived.push_back(arrival),
            ConnectionEvent::FullyNegotiatedOutbound(opened) => {
                let (_, reply) = opened.info;
                let _ = reply.send(Ok(opened.protocol));
            }
            ConnectionEvent::DialUpgradeError(DialUpgradeError {
                info: (protocol, reply),
                error,
            }) => {
                let _ = reply.send(Err(match error {
                    StreamUpgradeError::NegotiationFailed => OpenError::Unsupported(protocol),
                    other => OpenError::Failed(other.to_string()),
                }));
            }
            _ => {}
        }
    }
}

/// Accepts any protocol of a list, and returns the one that was negotiated.
pub struct AnyOf(Vec<StreamProtocol>);

impl UpgradeInfo for AnyOf {
    type Info = StreamProtocol;
    type InfoIter = std::vec::IntoIter<StreamProtocol>;

    fn protocol_info(&self) -> Self::InfoIter {
        self.0.clone().into_iter()
    }
}

impl InboundUpgrade<Stream> for AnyOf {
    type Output = (StreamProtocol, Stream);
    type Error = Infallible;
    type Future = Ready<Result<Self::Output, Infallible>>;

    fn upgrade_inbound(self, stream: Stream, protocol: StreamProtocol) -> Self::Future {
        ready(Ok((protocol, stream)))
    }
}

/// Longer than a round trip over a busy home line (1.3 s were measured), shorter than the silence
/// after which a member is declared lost.
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);

/// Streams of one connection that wait for the behaviour; further ones are reset. libp2p's own
/// limit on parallel negotiations (64, see `transport`) makes more of them impossible.
const ARRIVALS_MAX: usize = 64;
