//! The actor: one task that owns the swarm, and does one thing at a time.
//!
//! Commands come from handles, notes from the tasks that serve streams, the rest from the swarm.
//! While events wait for the driver the swarm is not polled, so a driver that falls behind slows
//! the network down instead of filling memory; commands are taken all the same.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{Arc, PoisonError},
    time::Duration,
};

use futures::StreamExt as _;
use intellect_bootstrap::{
    address,
    discovery::DiscoveryEvent,
    frame::FrameError,
    manifest::{self, ServeError},
    streams::Incoming,
    transport::{self, ListenError},
};
use intellect_protocol::id::{PeerId as Peer, RunId};
use libp2p::{
    Multiaddr, PeerId, Swarm, autonat,
    core::transport::ListenerId,
    identify,
    identity::Keypair,
    kad::{self, QueryResult},
    multiaddr::Protocol,
    ping,
    swarm::{ConnectionId, SwarmEvent},
};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval, timeout},
};
use tokio_util::{compat::FuturesAsyncReadCompatExt as _, sync::CancellationToken};

use super::{
    ByteStream, Config, EnterError, Event, FetchError, GossipToken, NetError, Offer, Reachability,
    Ring, RingError, Shared, Topic, Verdict, Via,
    behaviour::{CONTROL, FETCH, Node, NodeEvent, RING},
    dial::Dial,
    enter::{Ask, Entries, collect},
    fetch, line, members, name,
    peers::{Connection, FAULTS_MAX, Peers, Purpose},
    reach::Evidence,
    run::Run,
};

/// From a handle.
pub(crate) enum Command {
    Manifests { run: Option<RunId>, reply: oneshot::Sender<Result<Vec<Offer>, EnterError>> },
    Join { run: RunId, manifest: manifest::File },
    Gossip { topic: Topic, bytes: Vec<u8> },
    Verdict { token: GossipToken, verdict: Verdict },
    SendToAll { peer: Peer, bytes: Vec<u8> },
    Knock { beat: Vec<u8> },
    OpenRing { peer: Peer, reply: oneshot::Sender<Result<ByteStream, RingError>> },
    Fetch { peer: Peer, request: Vec<u8>, reply: oneshot::Sender<Result<Vec<u8>, FetchError>> },
    Fault { peer: Peer, why: String },
    Drop { peer: Peer, why: String },
}

/// From a task that serves a stream.
pub(super) enum Note {
    LineUp { peer: PeerId, connection: ConnectionId, outbox: mpsc::Sender<Vec<u8>> },
    LineDown { peer: PeerId, connection: ConnectionId },
    Message { peer: PeerId, bytes: Vec<u8> },
    Asked { peer: PeerId, request: Vec<u8>, reply: fetch::Reply },
    Fault { peer: PeerId, why: String, weight: u32 },
}

/// See the module.
pub(super) struct Actor {
    pub(super) swarm: Swarm<Node>,
    pub(super) shared: Arc<Shared>,
    pub(super) peers: Peers,
    pub(super) entries: Entries,
    pub(super) run: Option<Run>,
    /// Dials of connections for bulk.
    pub(super) dials: HashMap<ConnectionId, Dial>,
    /// Who is kept out, and until when.
    pub(super) blocked: HashMap<PeerId, Instant>,
    pub(super) evidence: Evidence,
    /// What the driver was told last.
    reachability: Reachability,
    /// Listeners at relays, and when to look for some again.
    pub(super) circuits: HashSet<ListenerId>,
    pub(super) relay_at: Instant,
    pub(super) knock_at: Instant,
    pub(super) tasks: JoinSet<()>,
    pub(super) notes: mpsc::Sender<Note>,
    noted: mpsc::Receiver<Note>,
    commands: mpsc::Receiver<Command>,
    events: mpsc::Sender<Event>,
    outbox: VecDeque<Event>,
    rings: mpsc::Sender<Ring>,
}

impl Actor {
    pub(super) fn new(
        config: Config,
        key: &Keypair,
        shared: Arc<Shared>,
        commands: mpsc::Receiver<Command>,
        events: mpsc::Sender<Event>,
        rings: mpsc::Sender<Ring>,
    ) -> Result<Self, NetError> {
        let now = Instant::now();
        let me = key.public().to_peer_id();
        let ways_in =
            if config.bootstrap.is_empty() { &config.contacts } else { &config.bootstrap };
        let far = ways_in
            .iter()
            .chain(&config.external)
            .any(|address| address::scope(address) == Some(address::Scope::Public));
        let (transport, relay) = transport::build(key, config.line.as_deref())?;
        let node = Node::new(key, relay, far).map_err(NetError::Gossip)?;
        let mut swarm = Swarm::new(transport, node, me, transport::swarm_config());
        listen(&mut swarm, &config.listen)?;
        let mut evidence = Evidence::new(far, now);
        for address in config.external {
            // The owner's word: libp2p confirms it to its own behaviours only.
            evidence.confirmed(&address);
            swarm.add_external_address(address);
        }
        let (notes, noted) = mpsc::channel(NOTES);
        let seed = config
            .key_seed
            .iter()
            .fold(0, |seed: u64, byte| seed.rotate_left(5) ^ u64::from(*byte));
        let mut actor = Self {
            swarm,
            shared,
            peers: Peers::new(me, seed),
            entries: Entries::new(config.bootstrap, now),
            run: None,
            dials: HashMap::new(),
            blocked: HashMap::new(),
            evidence,
            reachability: Reachability::Unknown,
            circuits: HashSet::new(),
            relay_at: now,
            knock_at: now,
            tasks: JoinSet::new(),
            notes,
            noted,
            commands,
            events,
            outbox: VecDeque::new(),
            rings,
        };
        actor.know(&config.contacts, now);
        Ok(actor)
    }

    /// Runs until `stop`, or until nobody holds a handle; then lets the last messages leave.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        let events = self.events.clone();
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let room = self.outbox.len() < OUTBOX;
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(_) = self.tasks.join_next() => {}
                permit = events.reserve(), if !self.outbox.is_empty() => match permit {
                    Ok(permit) => if let Some(event) = self.outbox.pop_front() {
                        permit.send(event);
                    },
                    Err(_) => break,
                },
                command = self.commands.recv() => match command {
                    Some(command) => self.on_command(command),
                    None => break,
                },
                Some(note) = self.noted.recv(), if room => self.on_note(note),
                _ = tick.tick() => self.on_tick(Instant::now()),
                event = self.swarm.select_next_some(), if room => self.on_event(event),
            }
        }
        self.flush().await;
    }

    async fn flush(&mut self) {
        while let Ok(command) = self.commands.try_recv() {
            self.on_command(command);
        }
        let drain = async {
            loop {
                self.swarm.select_next_some().await;
            }
        };
        let _: Result<(), _> = timeout(FLUSH, drain).await;
        self.lines_mut(HashMap::clear);
        self.tasks.shutdown().await;
    }

    pub(super) fn emit(&mut self, event: Event) {
        self.outbox.push_back(event);
    }

    /// Changes the queues that handles write to.
    pub(super) fn lines_mut<T>(
        &self,
        change: impl FnOnce(&mut HashMap<Peer, mpsc::Sender<Vec<u8>>>) -> T,
    ) -> T {
        change(&mut self.shared.lines.write().unwrap_or_else(PoisonError::into_inner))
    }

    fn on_command(&mut self, command: Command) {
        let now = Instant::now();
        match command {
            Command::Manifests { run, reply } => {
                self.entries.ask(Ask { run, reply, since: now });
                self.on_tick(now);
            }
            Command::Join { run, manifest } => self.join(run, manifest, now),
            Command::Gossip { topic, bytes } => self.publish(topic, bytes),
            Command::Verdict { token, verdict } => self.on_verdict(token, verdict),
            Command::Knock { beat } => self.knock(&beat, now),
            Command::SendToAll { peer, bytes } => self.send_to_all(name::to_libp2p(peer), &bytes),
            Command::OpenRing { peer, reply } => self.open_ring(name::to_libp2p(peer), reply),
            Command::Fetch { peer, request, reply } => {
                self.fetch(name::to_libp2p(peer), request, reply);
            }
            Command::Fault { peer, why } => self.fault(name::to_libp2p(peer), why, 1),
            Command::Drop { peer, why } => self.drop_peer(name::to_libp2p(peer), &why),
        }
    }

    fn on_note(&mut self, note: Note) {
        match note {
            Note::LineUp { peer, connection, outbox } => self.line_up(peer, connection, outbox),
            Note::LineDown { peer, connection } => self.line_down(peer, connection),
            Note::Message { peer, bytes } => {
                if let Some(from) = name::from_libp2p(&peer) {
                    self.emit(Event::Message { from, via: Via::Direct, bytes });
                }
            }
            Note::Asked { peer, request, reply } => {
                if let Some(from) = name::from_libp2p(&peer) {
                    self.emit(Event::Fetch { from, request, reply });
                }
            }
            Note::Fault { peer, why, weight } => self.fault(peer, why, weight),
        }
    }

    fn on_tick(&mut self, now: Instant) {
        self.find(now);
        self.redial(now);
        for connection in self.peers.duplicates(now) {
            self.swarm.close_connection(connection);
        }
        for ask in self.entries.settled(now) {
            self.ask_manifests(ask);
        }
        let over: Vec<_> = self
            .blocked
            .iter()
            .filter(|(_, until)| **until <= now)
            .map(|(peer, _)| *peer)
            .collect();
        for peer in over {
            self.blocked.remove(&peer);
            self.swarm.behaviour_mut().discovery.blocked.unblock_peer(peer);
        }
        self.settle_reachability(now);
        self.retry_lines(now);
        self.peers.sweep();
        self.note_contacts();
    }

    fn ask_manifests(&mut self, ask: Ask) {
        let streams = &mut self.swarm.behaviour_mut().streams;
        let askings = self.peers.iter().filter_map(|(peer, entry)| {
            let any = entry.control().or_else(|| entry.connections.first())?;
            Some((*peer, any.id))
        });
        let askings: Vec<_> = askings
            .take(ASKED_MAX)
            .map(|(peer, id)| (peer, streams.open(peer, id, manifest::PROTOCOL)))
            .collect();
        let attempts = self.entries.attempts();
        self.tasks.spawn(async move {
            let answer = collect(ask.run, askings, attempts).await;
            // Nobody waits any longer.
            let _ = ask.reply.send(answer);
        });
    }

    fn settle_reachability(&mut self, now: Instant) {
        let state = self.evidence.conclude(now);
        let enclosed = matches!(state, Reachability::Closed | Reachability::Relayed);
        if enclosed && self.circuits.is_empty() && self.relay_at <= now {
            self.listen_at_relays(now);
        }
        if state == self.reachability {
            return;
        }
        self.reachability = state.clone();
        self.swarm.behaviour_mut().discovery.serve_table(state.is_direct());
        self.emit(Event::Reachability(state));
    }

    fn on_event(&mut self, event: SwarmEvent<NodeEvent>) {
        let now = Instant::now();
        match event {
            SwarmEvent::Behaviour(NodeEvent::Discovery(event)) => self.on_discovery(event, now),
            SwarmEvent::Behaviour(NodeEvent::Gossip(event)) => self.on_gossip(event, now),
            SwarmEvent::Behaviour(NodeEvent::Streams(incoming)) => self.on_stream(incoming),
            SwarmEvent::ConnectionEstablished { peer_id, connection_id, endpoint, .. } => {
                let ring = self.dials.contains_key(&connection_id);
                let purpose = if ring { Purpose::Ring } else { Purpose::Control };
                let connection = Connection {
                    id: connection_id,
                    purpose,
                    remote: endpoint.get_remote_address().clone(),
                    dialled: endpoint.is_dialer(),
                    relayed: endpoint.is_relayed(),
                    since: now,
                };
                self.on_connected(peer_id, connection);
            }
            SwarmEvent::ConnectionClosed { peer_id, connection_id, cause, .. } => {
                let cause = members::explain(cause);
                self.on_closed(peer_id, connection_id, cause, now);
            }
            SwarmEvent::OutgoingConnectionError { connection_id, peer_id, error } => {
                self.on_dial_failed(connection_id, peer_id, error, now);
            }
            SwarmEvent::NewListenAddr { .. } => {
                self.publish_addresses();
                self.emit(Event::Listening);
            }
            SwarmEvent::ExpiredListenAddr { .. } => self.publish_addresses(),
            SwarmEvent::ListenerClosed { listener_id, reason, .. } => {
                self.on_listener_closed(listener_id, &reason);
            }
            SwarmEvent::ExternalAddrConfirmed { address } => {
                self.evidence.confirmed(&address);
                self.publish_addresses();
                self.provide_soon(now);
            }
            SwarmEvent::ExternalAddrExpired { address } => {
                self.evidence.expired(&address, now);
                self.publish_addresses();
            }
            _ => {}
        }
    }

    fn on_discovery(&mut self, event: DiscoveryEvent, now: Instant) {
        match event {
            DiscoveryEvent::Identify(identify::Event::Received {
                peer_id,
                connection_id,
                info,
            }) => {
                self.on_identified(peer_id, connection_id, &info);
            }
            DiscoveryEvent::Kademlia(kad::Event::OutboundQueryProgressed {
                result:
                    QueryResult::GetProviders(Ok(kad::GetProvidersOk::FoundProviders {
                        key,
                        providers,
                    })),
                ..
            }) if self.run.as_ref().is_some_and(|run| run.key == key) => {
                for peer in providers {
                    self.peers.want(peer, now);
                }
                // While the query runs, Kademlia knows where they are.
                self.redial(now);
            }
            DiscoveryEvent::Ping(ping::Event { peer, connection, result: Ok(length) }) => {
                self.on_round_trip(peer, connection, length);
            }
            DiscoveryEvent::Reach(autonat::v2::client::Event { result: Err(_), .. }) => {
                self.evidence.probe_failed();
            }
            _ => {}
        }
    }

    /// A stream that cannot be served now is dropped, which resets it.
    fn on_stream(&mut self, incoming: Incoming) {
        let Incoming { peer, connection, protocol, stream } = incoming;
        let Some(entry) = self.peers.get(&peer) else { return };
        let notes = self.notes.clone();
        if protocol == RING {
            entry.assign(connection, Purpose::Ring);
            let fair = entry.rings.take(Instant::now());
            if let (true, Some(from)) = (fair, name::from_libp2p(&peer)) {
                // A full queue resets the stream: its opener loses us for this attempt at a ring, and
                // another attempt comes.
                let _ = self.rings.try_send((from, stream.compat()));
            }
        } else if protocol == CONTROL {
            if let Ok(permit) = entry.lines.clone().try_acquire_owned() {
                self.tasks.spawn(line::receive(
                    peer,
                    stream,
                    notes,
                    entry.messages.clone(),
                    permit,
                ));
            }
        } else if protocol == FETCH {
            if let Ok(permit) = entry.answers.clone().try_acquire_owned() {
                let shared = self.shared.clone();
                self.tasks.spawn(fetch::answer(peer, stream, notes, shared, permit));
            }
        } else if self.tasks.len() < TASKS_MAX {
            let offered = self.run.as_ref().map(|run| (run.id, run.manifest.clone()));
            self.tasks.spawn(async move {
                let answer = manifest::serve(stream, |asked| {
                    let chosen = |(id, _): &(RunId, _)| asked.is_none_or(|asked| asked == id.0);
                    offered.into_iter().filter(chosen).map(|(_, file)| file).collect()
                });
                // Whatever went wrong, the asker sees that its stream has ended.
                if let Ok(Err(
                    error @ (ServeError::Meaningless(_)
                    | ServeError::Frame(FrameError::TooLong { .. })),
                )) = timeout(manifest::TIMEOUT, answer).await
                {
                    let why = format!("a request for manifests: {error}");
                    let _ = notes.send(Note::Fault { peer, why, weight: FAULTS_MAX }).await;
                }
            });
        }
    }
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

/// How long the last messages get to leave.
pub(super) const FLUSH: Duration = Duration::from_millis(250);
const TICK: Duration = Duration::from_millis(250);
/// Notes of tasks that wait; a task whose note finds no room reads no further.
const NOTES: usize = 256;
/// Events that wait for room in the driver's queue: what one poll of the swarm and one note of
/// each task can add stays below twice this.
const OUTBOX: usize = 256;
/// Tasks above which no more manifests are handed out.
pub(super) const TASKS_MAX: usize = 2_048;
/// Peers that are asked for manifests at once.
const ASKED_MAX: usize = 16;
