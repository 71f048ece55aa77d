//! The swarm and the tasks that serve its streams: what the actor has decided is carried out here.

use std::{collections::HashSet, io, sync::Arc};

use intellect_bootstrap::{
    address,
    frame::FrameError,
    manifest::{self, ServeError},
    streams::{OpenError, Opening},
    transport::{self, ListenError},
};
use intellect_protocol::{base::id::RunId, download::Failure};
use libp2p::{
    Multiaddr, PeerId, StreamProtocol, Swarm,
    core::transport::ListenerId,
    gossipsub::{MessageAcceptance, TopicHash},
    identity::Keypair,
    multiaddr::Protocol,
    swarm::{
        ConnectionId, DialError, FromSwarm, NetworkBehaviour as _, NewExternalAddrCandidate,
        dial_opts::DialOpts,
    },
};
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{Duration, Instant, timeout},
};
use tokio_util::compat::FuturesAsyncReadCompatExt as _;

use super::behaviour::{CONTROL, FETCH, HUSHED, Node, RING, topic_score};
use super::dial::RingDial;
use super::enter::{Ask, Wanted, collect};
use super::inbox::{Gravity, Note, Responder, Shared};
use super::interface::{
    ByteStream, Config, GossipToken, Link, NetError, StreamError, Topic, Verdict,
};
use super::lobby::Due;
use super::peers::Peer;
use super::ports::port;
use super::run::Run;
use super::visit::ADMIT;
use super::{fetch, line, visit};

/// The swarm, and the tasks that serve its streams; a task ends with this.
pub(super) struct Carrier {
    pub(super) swarm: Swarm<Node>,
    pub(super) tasks: JoinSet<()>,
    pub(super) shared: Arc<Shared>,
    notes: mpsc::Sender<Note>,
    /// Listeners at relays.
    circuits: HashSet<ListenerId>,
    /// To whom nothing goes by gossip.
    hushed: HashSet<PeerId>,
}

impl Carrier {
    /// Listens as `config` says.
    pub(super) fn new(
        config: &Config,
        key: &Keypair,
        shared: Arc<Shared>,
        notes: mpsc::Sender<Note>,
    ) -> Result<Self, NetError> {
        let (transport, relay) = transport::build(key, config.line.as_deref())?;
        let node = Node::new(key, relay, config.scope()).map_err(NetError::Gossip)?;
        let me = key.public().to_peer_id();
        let mut swarm = Swarm::new(transport, node, me, transport::swarm_config());
        listen(&mut swarm, &config.listen)?;
        for address in &config.external {
            // Others may try it at once; whether it leads here an entry point is asked to find out.
            swarm.add_external_address(address.clone());
            let candidate = NewExternalAddrCandidate { addr: address };
            let reach = &mut swarm.behaviour_mut().discovery.reach;
            reach.on_swarm_event(FromSwarm::NewExternalAddrCandidate(candidate));
        }
        let (tasks, circuits, hushed) = (JoinSet::new(), HashSet::new(), HashSet::new());
        Ok(Self { swarm, tasks, shared, notes, circuits, hushed })
    }

    /// Listens to the gossip of a run. Returns the peers that are known to listen to its
    /// heartbeats.
    pub(super) fn subscribe(&mut self, run: &Run) -> Vec<PeerId> {
        let gossip = &mut self.swarm.behaviour_mut().gossip.inner;
        for topic in [Topic::Beat, Topic::Ctl].map(|topic| run.topic(topic)) {
            // Both fail only where a filter or other scores are configured, which they are not.
            let _ = gossip.subscribe(&topic);
            let _ = gossip.set_topic_params(topic, topic_score());
        }
        let beat = run.beat();
        let listeners = gossip.all_peers().filter(|(_, topics)| topics.contains(&&beat));
        listeners.map(|(peer, _)| *peer).collect()
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

    /// Gives a message to everybody who listens to a topic, at once; it counts against the rate.
    pub(super) fn publish(&mut self, topic: TopicHash, bytes: Vec<u8>) {
        let gossip = &mut self.swarm.behaviour_mut().gossip.inner;
        let hears = |(peer, topics): &(&PeerId, Vec<&TopicHash>)| {
            topics.contains(&&topic) && !self.hushed.contains(*peer)
        };
        let listeners = gossip.all_peers().filter(hears).count();
        self.shared.limiter.note(listeners.saturating_mul(bytes.len()), Instant::now());
        // Nobody there yet, said before, queues full: all ordinary, and repeated by the protocol.
        if let Err(error) = gossip.publish(topic, bytes) {
            tracing::debug!(%error, "not gossiped");
        }
    }

    /// From now on nothing goes by gossip to these, and to nobody else. What waited for a peer that reads
    /// nothing would be old when it does; and it would be told of as if it were ours to mend.
    pub(super) fn hush(&mut self, peers: HashSet<PeerId>) {
        let gossip = &mut self.swarm.behaviour_mut().gossip.inner;
        for peer in peers.symmetric_difference(&self.hushed) {
            gossip.set_application_score(peer, if peers.contains(peer) { HUSHED } else { 0.0 });
        }
        self.hushed = peers;
    }

    /// Says what becomes of a gossiped message. What is passed on counts against the rate, of which a
    /// part is for that.
    pub(super) fn judge(&mut self, token: &GossipToken, verdict: Verdict) {
        let gossip = &mut self.swarm.behaviour_mut().gossip.inner;
        let acceptance = match verdict {
            Verdict::Accept => {
                let heirs = gossip.mesh_peers(&token.topic).count();
                let (bytes, now) = (heirs.saturating_mul(token.bytes), Instant::now());
                if self.shared.limiter.passes_on(bytes, now) {
                    self.shared.limiter.note(bytes, now);
                    MessageAcceptance::Accept
                } else {
                    MessageAcceptance::Ignore
                }
            }
            Verdict::Ignore => MessageAcceptance::Ignore,
            Verdict::Reject => MessageAcceptance::Reject,
        };
        gossip.report_message_validation_result(&token.id, &token.source, acceptance);
    }

    /// Closes all connections to a peer, and refuses others.
    pub(super) fn block(&mut self, peer: PeerId) {
        let discovery = &mut self.swarm.behaviour_mut().discovery;
        discovery.blocked.block_peer(peer);
        discovery.kademlia.remove_peer(&peer);
    }

    /// Dials, and says what the connection will be called.
    pub(super) fn dial(&mut self, options: DialOpts) -> Result<ConnectionId, DialError> {
        let id = options.connection_id();
        self.swarm.dial(options).map(|()| id)
    }

    /// Dials a connection for bulk, on which there is no gossip.
    pub(super) fn dial_ring(&mut self, options: DialOpts) -> Option<ConnectionId> {
        let id = self.dial(options).ok()?;
        self.swarm.behaviour_mut().gossip.mute(id);
        Some(id)
    }

    /// Opens a ring stream on a connection, and hands it to whoever waits for it.
    pub(super) fn open_ring(&mut self, connection: ConnectionId, dial: RingDial) {
        let opening = self.swarm.behaviour_mut().streams.open(dial.peer, connection, RING);
        self.tasks.spawn(async move {
            // The negotiation tells the peer what the connection is for.
            let opened = timeout(OPEN_TIMEOUT, open(opening)).await;
            let late = || Err(OpenError::Failed("too slow".into()).into());
            let _ = dial.reply.send(opened.unwrap_or_else(|_| late()));
        });
    }

    /// Opens our control stream to a peer.
    pub(super) fn open_line(&mut self, peer: PeerId, connection: ConnectionId) {
        let opening = self.swarm.behaviour_mut().streams.open(peer, connection, CONTROL);
        self.tasks.spawn(line::send(peer, connection, opening, self.notes.clone()));
    }

    /// Writes one message on a stream of its own.
    pub(super) fn send(&mut self, peer: PeerId, connection: ConnectionId, bytes: Vec<u8>) {
        let opening = self.swarm.behaviour_mut().streams.open(peer, connection, CONTROL);
        self.tasks.spawn(line::send_once(opening, bytes));
    }

    /// Asks a peer over the connection that messages take, which may lead through a relay.
    pub(super) fn fetch(
        &mut self,
        peer: PeerId,
        used: Option<ConnectionId>,
        request: Vec<u8>,
        mut reply: Responder<Vec<u8>, Failure>,
    ) {
        let refusal = match used {
            Some(connection) if self.tasks.len() < TASKS_MAX => {
                let opening = self.swarm.behaviour_mut().streams.open(peer, connection, FETCH);
                let shared = Arc::clone(&self.shared);
                self.tasks.spawn(async move {
                    let answer = tokio::select! {
                        answer = fetch::ask(opening, &request, &shared.inflow) => answer,
                        // Nobody waits for it any more: it shall not fill the line.
                        () = reply.closed() => return,
                    };
                    let _ = reply.send(answer);
                });
                return;
            }
            Some(_) => Failure::Busy,
            None => Failure::Refused,
        };
        let _ = reply.send(Err(refusal));
    }

    /// Brings a visit of ours, if there is room.
    pub(super) fn visit(&mut self, due: Due) {
        let Due { peer, connection, number, visit } = due;
        let opening = self.swarm.behaviour_mut().streams.open(peer, connection, ADMIT);
        self.tasks.spawn(visit::pay(peer, opening, visit, number, self.notes.clone()));
    }

    /// Listens to the visit of a peer, unless it has too many.
    pub(super) fn serve_visit(&mut self, id: PeerId, peer: &Peer, stream: libp2p::Stream) {
        if let Ok(permit) = peer.answers.clone().try_acquire_owned() {
            self.tasks.spawn(visit::receive(id, stream, self.notes.clone(), permit));
        }
    }

    /// Asks a peer for the notices of a run over its control connection, if there is one.
    pub(super) fn ask_notices(
        &mut self,
        peer: PeerId,
        control: Option<ConnectionId>,
        run: RunId,
        reply: Responder<Vec<Vec<u8>>, Failure>,
    ) {
        let Some(connection) = control.filter(|_| self.tasks.len() < TASKS_MAX) else {
            // Nobody waits any longer, if this fails.
            let _ = reply.send(Err(Failure::Refused));
            return;
        };
        let opening = self.swarm.behaviour_mut().streams.open(peer, connection, manifest::NOTICES);
        self.tasks.spawn(async move {
            let exchange = async {
                let stream = opening.await.ok()?.ok()?;
                manifest::ask_notices(stream, run.0).await.ok()
            };
            let answer = timeout(manifest::TIMEOUT, exchange).await;
            let answer = answer.map_or(Err(Failure::Silent), |a| a.ok_or(Failure::Refused));
            let _ = reply.send(answer);
        });
    }

    /// Asks peers for manifests; `attempts` is what came of those that cannot be asked.
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
        self.tasks.spawn(async move {
            let answer = collect(ask.wanted, askings, attempts).await;
            // Nobody waits any longer.
            let _ = ask.reply.send(answer);
        });
    }

    /// Reads the control stream of a peer, unless it has too many.
    pub(super) fn serve_control(&mut self, id: PeerId, peer: &Peer, stream: libp2p::Stream) {
        if let Ok(permit) = peer.lines.clone().try_acquire_owned() {
            let (notes, room) = (self.notes.clone(), self.shared.room.clone());
            let quota = peer.messages.clone();
            self.tasks.spawn(line::receive(id, stream, notes, (room, quota), permit));
        }
    }

    /// Answers a request of a peer, unless it has too many.
    pub(super) fn serve_fetch(
        &mut self,
        id: PeerId,
        peer: &Peer,
        (stream, link): (libp2p::Stream, Link),
    ) {
        if let Ok(permit) = peer.answers.clone().try_acquire_owned() {
            let (notes, shared) = (self.notes.clone(), self.shared.clone());
            self.tasks.spawn(fetch::answer(id, stream, notes, (shared, link), permit));
        }
    }

    /// Hands out the manifest of our run, if there is one, or its notices to who names it; unless the
    /// peer has too many answers under way.
    pub(super) fn serve_files(
        &mut self,
        id: PeerId,
        peer: &Peer,
        (run, protocol): (Option<(RunId, manifest::File)>, StreamProtocol),
        stream: libp2p::Stream,
    ) {
        let permit = peer.answers.clone().try_acquire_owned();
        let Some(permit) = permit.ok().filter(|_| self.tasks.len() < TASKS_MAX) else { return };
        let (notes, shared, peer) = (self.notes.clone(), Arc::clone(&self.shared), id);
        self.tasks.spawn(async move {
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
            // Whatever went wrong, the asker sees that its stream has ended.
            if let Ok(Err(
                error
                @ (ServeError::Meaningless(_) | ServeError::Frame(FrameError::TooLong { .. })),
            )) = timeout(manifest::TIMEOUT, answer).await
            {
                let why = format!("a request for manifests: {error}");
                let _ = notes.send(Note::Fault { peer, why, gravity: Gravity::Grave }).await;
            }
        });
    }

    /// Tells handles where this node listens and is reached.
    pub(super) fn publish_addresses(&self) {
        let me = *self.swarm.local_peer_id();
        let mut ports: Vec<_> = self.swarm.listeners().filter_map(port).collect();
        ports.sort();
        ports.dedup();
        self.shared.ports.send_if_modified(|known| {
            let changed = *known != ports;
            *known = ports;
            changed
        });
        let mut all: Vec<_> = self.swarm.external_addresses().cloned().collect();
        for address in self.swarm.listeners() {
            if !all.contains(address) {
                all.push(address.clone());
            }
        }
        let all = all.into_iter().map(|address| address::with_peer(address, me)).collect();
        self.shared.addresses.send_replace(all);
    }

    /// Whether this node listens, and on no address that all the internet can reach.
    pub(super) fn listens_privately(&self) -> bool {
        let is_public =
            |address: &&Multiaddr| address::scope(address) == Some(address::Scope::Public);
        let own = || self.swarm.listeners().filter(|address| !address::is_relayed(address));
        own().next().is_some() && !own().any(|address| is_public(&address))
    }

    /// Whether this node listens at a relay.
    pub(super) fn is_at_relay(&self) -> bool {
        !self.circuits.is_empty()
    }

    /// Lets peers reach this node through the entry points, for messages.
    /// libp2p does not renew a reservation that was lost, so this is called again then.
    pub(super) fn listen_at_relays<'a>(&mut self, relays: impl Iterator<Item = &'a Multiaddr>) {
        for address in relays {
            match self.swarm.listen_on(address.clone().with(Protocol::P2pCircuit)) {
                Ok(id) => _ = self.circuits.insert(id),
                Err(error) => tracing::debug!(%error, "no relay"),
            }
        }
    }

    /// A listener has closed.
    pub(super) fn on_listener_closed(&mut self, id: ListenerId, reason: &io::Result<()>) {
        self.publish_addresses();
        if !self.circuits.remove(&id) {
            tracing::warn!(?reason, "a listener has closed");
        }
    }
}

async fn open(opening: Opening) -> Result<ByteStream, StreamError> {
    let stream = opening.await.map_err(|_| OpenError::Closed)??;
    Ok(stream.compat())
}

/// Listens at all addresses. A machine without IPv6 may be asked to listen on all of it, as a node
/// is by default, if there is another address.
fn listen(swarm: &mut Swarm<Node>, addresses: &[Multiaddr]) -> Result<(), ListenError> {
    let any_v6 = |address: &Multiaddr| {
        address.iter().next() == Some(Protocol::Ip6(std::net::Ipv6Addr::UNSPECIFIED))
    };
    let spare = !addresses.iter().all(any_v6);
    for address in addresses {
        match transport::listen(swarm, address) {
            Err(error @ ListenError::Refused { .. }) if spare && any_v6(address) => {
                tracing::info!(%error, "no IPv6");
            }
            Ok(_) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

const OPEN_TIMEOUT: Duration = Duration::from_secs(5);
/// Tasks above which no more requests are taken, and no manifests handed out: a hundred pieces from
/// each of a few donors.
const TASKS_MAX: usize = 2_048;
/// Peers that are asked for manifests at once.
const ASKED_MAX: usize = 16;
