//! The swarm and the tasks that serve its streams: carries out what the actor has decided.
//!
//! Nothing is decided here. Each stream has a task of its own, which reports to the actor and never
//! touches the swarm, so no lock guards the swarm.

mod gossip;

use std::{
    collections::{BTreeSet, HashSet, VecDeque},
    io,
    sync::Arc,
};

use futures::StreamExt as _;
use intellect_bootstrap::{
    address,
    discovery::Discovery,
    frame::FrameError,
    manifest::{self, ServeError},
    streams::{OpenError, Opening},
    transport,
};
use intellect_protocol::{base::id::RunId, download::Failure};
use libp2p::{
    Multiaddr, PeerId, StreamProtocol, Swarm,
    core::{Endpoint, transport::ListenerId},
    identity::Keypair,
    multiaddr::Protocol,
    swarm::{
        ConnectionId, DialError, FromSwarm, NetworkBehaviour, NewExternalAddrCandidate, SwarmEvent,
        dial_opts::{DialOpts, PeerCondition},
    },
};
use tokio::{
    sync::{Semaphore, mpsc},
    task::JoinSet,
    time::{Duration, Instant, timeout},
};
use tokio_util::compat::FuturesAsyncReadCompatExt as _;

use super::access::allow_list::AllowList;
use super::access::handshake::{self, ADMIT};
use super::access::pending::DueRequest;
use super::behaviour::{CONTROL, FETCH, Node, NodeEvent, RING};
use super::dial::{self, RingDial};
use super::enter::{Ask, Wanted, collect};
use super::inbox::{Responder, Shared, TaskEvent, blame, replace};
use super::interface::{ByteStream, Config, Link, NetError, StreamError};
use super::joined::Joined;
use super::peers::Peer;
use super::ports::{listen, port};
use super::run::Run;
use super::{control_stream, fetch};

/// The swarm and the tasks that serve its streams. The tasks end when this is dropped.
pub(super) struct SwarmTasks {
    swarm: Swarm<Node>,
    /// One task for each stream, request and answer.
    tasks: JoinSet<()>,
    /// Permits for our own requests.
    requests: Arc<Semaphore>,
    /// Permits for our questions about notices, which strangers can cause.
    questions: Arc<Semaphore>,
    shared: Arc<Shared>,
    events: mpsc::Sender<TaskEvent>,
    /// Listeners at relays, which are not reported as lost listeners.
    relay_listeners: HashSet<ListenerId>,
    /// The topics of which gossip is read.
    joined: Joined,
    /// Peers to which nothing is gossiped.
    hushed: HashSet<PeerId>,
    /// Addresses of peers at which another peer has answered, and when; the oldest first, at most
    /// [`WRONG_MAX`].
    wrong: VecDeque<(PeerId, Multiaddr, Instant)>,
}

impl SwarmTasks {
    /// Builds the transport, listens on all addresses, and announces the external ones.
    pub(super) fn new(
        config: &Config,
        key: &Keypair,
        shared: Arc<Shared>,
        events: mpsc::Sender<TaskEvent>,
    ) -> Result<Self, NetError> {
        let (transport, relay) = transport::build(key, config.line.as_deref())?;
        let joined = Joined::default();
        let node = Node::new(key, relay, config.scope(), joined.clone());
        let node = node.map_err(NetError::Gossip)?;
        let me = key.public().to_peer_id();
        let mut swarm = Swarm::new(transport, node, me, transport::swarm_config());
        listen(&mut swarm, &config.listen)?;
        if let Some(reach) = swarm.behaviour_mut().discovery.reach.as_mut() {
            reach.ask(config.bootstrap.iter().filter_map(address::peer));
        }
        for address in &config.external {
            // Others may dial it at once; an entry point is asked to test whether it leads here.
            swarm.add_external_address(address.clone());
            let candidate = NewExternalAddrCandidate { addr: address };
            let reach = &mut swarm.behaviour_mut().discovery.reach;
            reach.on_swarm_event(FromSwarm::NewExternalAddrCandidate(candidate));
        }
        Ok(Self {
            swarm,
            tasks: JoinSet::new(),
            requests: Arc::new(Semaphore::new(REQUESTS_MAX)),
            questions: Arc::new(Semaphore::new(QUESTIONS_MAX)),
            shared,
            events,
            relay_listeners: HashSet::new(),
            joined,
            hushed: HashSet::new(),
            wrong: VecDeque::new(),
        })
    }

    /// Waits for the next event of the swarm.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn next(&mut self) -> SwarmEvent<NodeEvent> {
        self.swarm.select_next_some().await
    }

    /// Gives the last messages so much time to leave, then ends all tasks.
    pub(super) async fn flush(&mut self, time: Duration) {
        let drain = async {
            loop {
                self.swarm.select_next_some().await;
            }
        };
        let _: Result<(), _> = timeout(time, drain).await;
        self.shared.close_queues();
        self.tasks.shutdown().await;
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Adds a task. Those of a peer are bounded by its permits, and our own requests by permits of which strangers can
    /// take none.
    fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        while self.tasks.try_join_next().is_some() {}
        self.tasks.spawn(task);
    }

    /// The addresses at which this node listens.
    pub(super) fn listeners(&self) -> impl Iterator<Item = &Multiaddr> {
        self.swarm.listeners()
    }

    /// Tells peers that this node is reached at these addresses.
    pub(super) fn announce(&mut self, addresses: BTreeSet<Multiaddr>) {
        for address in addresses {
            self.swarm.add_external_address(address);
        }
        self.publish_addresses();
    }

    /// Tells peers that this node is reached at these addresses no longer.
    pub(super) fn retract(&mut self, addresses: &BTreeSet<Multiaddr>) {
        for address in addresses {
            self.swarm.remove_external_address(address);
        }
        self.publish_addresses();
    }

    pub(super) fn discovery(&mut self) -> &mut Discovery {
        &mut self.swarm.behaviour_mut().discovery
    }

    pub(super) fn set_allow_list(&mut self, list: AllowList) {
        self.swarm.behaviour_mut().gossip.set_allow_list(list);
    }

    pub(super) fn is_connected(&self, peer: &PeerId) -> bool {
        self.swarm.is_connected(peer)
    }

    /// Closes a connection, if it exists.
    pub(super) fn close(&mut self, connection: ConnectionId) {
        self.swarm.close_connection(connection);
    }

    /// Closes all connections to a peer.
    pub(super) fn disconnect(&mut self, peer: PeerId) {
        // Fails only for a peer that is gone already.
        let _ = self.swarm.disconnect_peer_id(peer);
    }

    /// Announces this node as a member of a run, and looks for others, where that is due.
    pub(super) fn find(&mut self, run: &mut Run, now: Instant) {
        let kademlia = &mut self.swarm.behaviour_mut().discovery.kademlia;
        if run.take_announcement(now)
            && let Err(error) = kademlia.start_providing(run.key.clone())
        {
            tracing::warn!(?error, "this node cannot be announced");
        }
        if run.take_search(now) {
            kademlia.get_providers(run.key.clone());
        }
    }

    /// Closes all connections to a peer, and refuses new ones.
    pub(super) fn block(&mut self, peer: PeerId) {
        let discovery = &mut self.swarm.behaviour_mut().discovery;
        discovery.blocked.block_peer(peer);
        discovery.kademlia.remove_peer(&peer);
    }

    /// Dials, and returns the id that the connection will have.
    pub(super) fn dial(&mut self, options: DialOpts) -> Result<ConnectionId, DialError> {
        let id = options.connection_id();
        self.swarm.dial(options).map(|()| id)
    }

    /// Dials for messages, to the addresses `known` and those that Kademlia has found: in its table,
    /// and in the answers to searches that still run.
    pub(super) fn dial_for_messages(
        &mut self,
        peer: PeerId,
        known: Vec<Multiaddr>,
        condition: PeerCondition,
    ) -> Result<ConnectionId, DialError> {
        // Kademlia only looks them up, so any number of a connection will do.
        let (id, role) = (ConnectionId::new_unchecked(0), Endpoint::Dialer);
        let kademlia = &mut self.discovery().kademlia;
        let found = kademlia.handle_pending_outbound_connection(id, Some(peer), &known, role);
        let is_near = dial::is_near(&known);
        let all = [known, found.unwrap_or_default()].concat();
        let addresses = self.addresses_of(peer, all, Instant::now());
        self.dial(dial::for_messages(peer, addresses, is_near, condition))
    }

    /// The addresses of a peer that are worth a dial: those at which this node does not listen
    /// itself, and where no other peer has answered lately.
    pub(super) fn addresses_of(
        &self,
        peer: PeerId,
        addresses: Vec<Multiaddr>,
        now: Instant,
    ) -> Vec<Multiaddr> {
        let is_late = |at: &Instant| now.saturating_duration_since(*at) < WRONG_TIME;
        let of_peer = self.wrong.iter().filter(|(of, _, at)| *of == peer && is_late(at));
        let wrong = of_peer.map(|(_, address, _)| address);
        dial::elsewhere(addresses, self.swarm.listeners().chain(wrong))
    }

    /// Another peer has answered at an address of this one, which is left out of its dials for a
    /// while: they would end in the same way, whatever other addresses they try.
    pub(super) fn answered_wrong(&mut self, peer: PeerId, address: Multiaddr) {
        self.discovery().kademlia.remove_address(&peer, &address);
        self.wrong.retain(|(of, known, _)| (*of, known) != (peer, &address));
        if self.wrong.len() >= WRONG_MAX {
            self.wrong.pop_front();
        }
        self.wrong.push_back((peer, address, Instant::now()));
    }

    /// Dials a connection for bulk, on which no gossip is written.
    pub(super) fn dial_ring(&mut self, options: DialOpts) -> Option<ConnectionId> {
        let id = self.dial(options).ok()?;
        self.swarm.behaviour_mut().gossip.exclude(id);
        Some(id)
    }

    /// Opens a ring stream on a connection, and hands it to the task that asked for it.
    pub(super) fn open_ring(&mut self, connection: ConnectionId, dial: RingDial) {
        let opening = self.swarm.behaviour_mut().streams.open(dial.peer, connection, RING);
        self.spawn(async move {
            // The negotiated protocol shows the peer what the connection is for.
            let opened = timeout(OPEN_TIMEOUT, open(opening)).await;
            let late = || Err(OpenError::Failed("too slow".into()).into());
            let _ = dial.reply.send(opened.unwrap_or_else(|_| late()));
        });
    }

    /// Opens our outgoing control stream to a peer.
    pub(super) fn open_control_stream(&mut self, peer: PeerId, connection: ConnectionId) {
        let opening = self.swarm.behaviour_mut().streams.open(peer, connection, CONTROL);
        self.spawn(control_stream::send(peer, connection, opening, self.events.clone()));
    }

    /// Writes one message on a stream of its own.
    pub(super) fn send(&mut self, peer: PeerId, connection: ConnectionId, bytes: Vec<u8>) {
        let opening = self.swarm.behaviour_mut().streams.open(peer, connection, CONTROL);
        self.spawn(control_stream::send_once(opening, bytes));
    }

    /// Asks a peer over the connection that messages take, which may lead through a relay.
    pub(super) fn fetch(
        &mut self,
        peer: PeerId,
        used: Option<ConnectionId>,
        request: Vec<u8>,
        mut reply: Responder<Vec<u8>, Failure>,
    ) {
        let permit = Arc::clone(&self.requests).try_acquire_owned();
        let refusal = match (used, permit) {
            (Some(connection), Ok(permit)) => {
                let opening = self.swarm.behaviour_mut().streams.open(peer, connection, FETCH);
                let shared = Arc::clone(&self.shared);
                self.spawn(async move {
                    let _permit = permit;
                    let answer = tokio::select! {
                        answer = fetch::ask(opening, &request, &shared.inflow) => answer,
                        // Nobody waits for the answer any more, so it shall not use the link.
                        () = reply.closed() => return,
                    };
                    let _ = reply.send(answer);
                });
                return;
            }
            (Some(_), Err(_)) => Failure::Busy,
            (None, _) => Failure::Refused,
        };
        let _ = reply.send(Err(refusal));
    }

    /// Sends our admit request to a peer.
    pub(super) fn send_admit_request(&mut self, due: DueRequest) {
        let DueRequest { peer, connection, number, request } = due;
        let opening = self.swarm.behaviour_mut().streams.open(peer, connection, ADMIT);
        self.spawn(handshake::request(peer, opening, request, number, self.events.clone()));
    }

    /// Reads and answers an admit request, unless the peer has too many under way.
    pub(super) fn serve_handshake(&mut self, id: PeerId, peer: &Peer, stream: libp2p::Stream) {
        if let Ok(permit) = peer.answers.clone().try_acquire_owned() {
            self.spawn(handshake::answer(id, stream, self.events.clone(), permit));
        }
    }

    /// Asks a peer for the notices of a run over its control connection, if it has one and no
    /// other such question to it is open.
    pub(super) fn ask_notices(
        &mut self,
        peer: PeerId,
        entry: Option<&Peer>,
        run: RunId,
        reply: Responder<Vec<Vec<u8>>, Failure>,
    ) {
        let permit = |of: &Arc<Semaphore>| Arc::clone(of).try_acquire_owned().ok();
        let ready = entry.and_then(|entry| {
            Some((entry.control()?.id, permit(&entry.notices)?, permit(&self.questions)?))
        });
        let Some((connection, own, all)) = ready else {
            // Fails only where nobody waits any longer.
            let _ = reply.send(Err(Failure::Refused));
            return;
        };
        let opening = self.swarm.behaviour_mut().streams.open(peer, connection, manifest::NOTICES);
        self.spawn(async move {
            let _permits = (own, all);
            let exchange = async {
                let stream = opening.await.ok()?.ok()?;
                manifest::ask_notices(stream, run.0).await.ok()
            };
            let answer = timeout(manifest::TIMEOUT, exchange).await;
            let answer = answer.map_or(Err(Failure::Silent), |a| a.ok_or(Failure::Refused));
            let _ = reply.send(answer);
        });
    }

    /// Asks peers for manifests or notices; `attempts` describes the addresses that failed.
    pub(super) fn ask_offers(
        &mut self,
        ask: Ask,
        asked: Vec<(PeerId, ConnectionId)>,
        attempts: Vec<String>,
    ) {
        let streams = &mut self.swarm.behaviour_mut().streams;
        let protocol = match ask.wanted {
            Wanted::Manifests(_) => manifest::PROTOCOL,
            Wanted::Notices(_) => manifest::NOTICES,
        };
        let open = |(peer, id)| (peer, streams.open(peer, id, protocol.clone()));
        let askings: Vec<_> = asked.into_iter().take(ASKED_MAX).map(open).collect();
        self.spawn(async move {
            let answer = collect(ask.wanted, askings, attempts).await;
            // Fails only where nobody waits any longer.
            let _ = ask.reply.send(answer);
        });
    }

    /// Reads a control stream of a peer, unless the peer has too many.
    pub(super) fn serve_control(&mut self, id: PeerId, peer: &Peer, stream: libp2p::Stream) {
        if let Ok(permit) = peer.control_streams.clone().try_acquire_owned() {
            let (events, shared) = (self.events.clone(), self.shared.clone());
            let (network, quota) = (peer.network(), peer.messages.clone());
            self.spawn(control_stream::receive(id, network, stream, events, shared, quota, permit));
        }
    }

    /// Answers a request of a peer, unless the peer has too many under way.
    pub(super) fn serve_fetch(
        &mut self,
        id: PeerId,
        peer: &Peer,
        stream: libp2p::Stream,
        link: Link,
    ) {
        if let Ok(permit) = peer.answers.clone().try_acquire_owned() {
            let (events, shared) = (self.events.clone(), self.shared.clone());
            let answer = fetch::answer(id, peer.network(), stream, events, shared, link, permit);
            self.spawn(answer);
        }
    }

    /// Serves the manifest of our run, or its notices where the request names the run; unless the peer has
    /// too many answers under way.
    pub(super) fn serve_files(
        &mut self,
        id: PeerId,
        peer: &Peer,
        run: Option<(RunId, manifest::File)>,
        protocol: StreamProtocol,
        stream: libp2p::Stream,
    ) {
        let Ok(permit) = peer.answers.clone().try_acquire_owned() else { return };
        let (events, shared, peer) = (self.events.clone(), Arc::clone(&self.shared), id);
        self.spawn(async move {
            let _permit = permit;
            let answer = manifest::serve(stream, async |asked| {
                let named = |id: &RunId| asked.is_some_and(|asked| asked == id.0);
                match run {
                    Some((id, _)) if protocol == manifest::NOTICES && named(&id) => {
                        shared.notices.borrow().clone()
                    }
                    Some((id, file)) if protocol != manifest::NOTICES => {
                        let chosen = asked.is_none() || named(&id);
                        chosen.then_some(file).into_iter().collect()
                    }
                    Some(_) | None => Vec::new(),
                }
            });
            // Whatever went wrong, the peer sees that its stream has ended.
            if let Ok(Err(
                error
                @ (ServeError::Meaningless(_) | ServeError::Frame(FrameError::TooLong { .. })),
            )) = timeout(manifest::TIMEOUT, answer).await
            {
                blame(&events, peer, format!("a request for manifests: {error}")).await;
            }
        });
    }

    /// Publishes to handles where this node listens and is reached.
    pub(super) fn publish_addresses(&self) {
        let me = *self.swarm.local_peer_id();
        let mut ports: Vec<_> = self.swarm.listeners().filter_map(port).collect();
        ports.sort();
        ports.dedup();
        replace(&self.shared.ports, ports);
        let mut all: Vec<_> = self.swarm.external_addresses().cloned().collect();
        for address in self.swarm.listeners() {
            if !all.contains(address) {
                all.push(address.clone());
            }
        }
        let all = all.into_iter().map(|address| address::with_peer(address, me)).collect();
        self.shared.addresses.send_replace(all);
    }

    /// Whether this node listens on private addresses only.
    pub(super) fn listens_privately(&self) -> bool {
        let is_public =
            |address: &&Multiaddr| address::scope(address) == Some(address::Scope::Public);
        let own = || self.swarm.listeners().filter(|address| !address::is_relayed(address));
        own().next().is_some() && !own().any(|address| is_public(&address))
    }

    /// Whether a reservation at a relay is asked for or in force.
    pub(super) fn is_at_relay(&self) -> bool {
        !self.relay_listeners.is_empty()
    }

    /// Reserves a place at the entry points, through which peers then send messages to this node.
    /// libp2p does not renew a lost reservation, so the caller calls again.
    pub(super) fn listen_at_relays<'a>(&mut self, relays: impl Iterator<Item = &'a Multiaddr>) {
        for address in relays {
            match self.swarm.listen_on(address.clone().with(Protocol::P2pCircuit)) {
                Ok(id) => _ = self.relay_listeners.insert(id),
                Err(error) => tracing::debug!(%error, "no relay"),
            }
        }
    }

    /// A listener has closed. At a relay that is ordinary, and a new reservation is asked for.
    pub(super) fn on_listener_closed(&mut self, id: ListenerId, reason: &io::Result<()>) {
        self.publish_addresses();
        if !self.relay_listeners.remove(&id) {
            tracing::warn!(?reason, "a listener has closed");
        }
    }
}

async fn open(opening: Opening) -> Result<ByteStream, StreamError> {
    let stream = opening.await.map_err(|_| OpenError::Closed)??;
    Ok(stream.compat())
}

const OPEN_TIMEOUT: Duration = Duration::from_secs(5);
/// Requests of ours at a time, far more than all downloads together have.
const REQUESTS_MAX: usize = 2_048;
/// Guess: peers that connect at the same moment; notices come by gossip too.
const QUESTIONS_MAX: usize = 128;
/// Addresses where another peer answered that are remembered, and for how long.
const WRONG_MAX: usize = 64;
const WRONG_TIME: Duration = Duration::from_secs(600);
/// Peers that are asked for manifests at the same time.
const ASKED_MAX: usize = 16;
