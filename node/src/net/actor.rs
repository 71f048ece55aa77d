//! The actor: one task that owns the swarm, and does one thing at a time.
//!
//! Calls come from handles, notes from the tasks that serve streams, the rest from the swarm. What
//! they mean is for [`Members`], [`Entries`], [`Run`] and [`Evidence`] to say; the actor hands each
//! to whom it concerns, and has the [`Carrier`] do what comes out.
//!
//! While events wait for the driver the swarm is not polled, so a driver that falls behind slows
//! the network down instead of filling memory; calls are taken all the same.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures::StreamExt as _;
use intellect_bootstrap::{address, discovery::DiscoveryEvent, manifest, streams::Incoming};
use intellect_protocol::id::RunId;
use libp2p::{
    PeerId, autonat, gossipsub, identify,
    identity::Keypair,
    kad::{self, QueryResult},
    ping,
    swarm::{ConnectionId, DialError, SwarmEvent, dial_opts::PeerCondition},
};
use tokio::{
    sync::mpsc,
    time::{Instant, MissedTickBehavior, interval, timeout},
};
use tokio_util::{compat::FuturesAsyncReadCompatExt as _, sync::CancellationToken};

use super::behaviour::{CONTROL, FETCH, NodeEvent, RING};
use super::carrier::Carrier;
use super::dial::{self, RingDial};
use super::enter::{Ask, Entries};
use super::inbox::{Call, Gravity, Note, Responder, Shared};
use super::interface::{ByteStream, Config, Event, GossipToken, NetError, Ring, StreamError};
use super::members::{Members, Output};
use super::peers::{Connection, Peers, Purpose};
use super::reach::{Evidence, Reachability};
use super::run::Run;
use super::{contacts, name};

/// The task that owns the swarm, and all that the node knows of the network.
pub(super) struct Actor {
    carrier: Carrier,
    members: Members,
    entries: Entries,
    run: Option<Run>,
    /// Dials of connections for bulk that are under way.
    dials: HashMap<ConnectionId, RingDial>,
    evidence: Evidence,
    /// What the driver was told last.
    reachability: Reachability,
    /// When to look for relays again.
    relay_at: Instant,
    notes: mpsc::Receiver<Note>,
    calls: mpsc::Receiver<Call>,
    events: mpsc::Sender<Event>,
    outbox: VecDeque<Event>,
    rings: mpsc::Sender<Ring>,
}

impl Actor {
    pub(super) fn new(
        config: Config,
        key: &Keypair,
        shared: Arc<Shared>,
        calls: mpsc::Receiver<Call>,
        events: mpsc::Sender<Event>,
        rings: mpsc::Sender<Ring>,
    ) -> Result<Self, NetError> {
        let now = Instant::now();
        let far = config.is_far();
        let (noting, notes) = mpsc::channel(NOTES);
        let carrier = Carrier::new(&config, key, far, shared, noting)?;
        let mut evidence = Evidence::new(far, now);
        // The owner's word: libp2p confirms it to its own behaviours only.
        config.external.iter().for_each(|address| evidence.confirmed(address));
        let mut peers = Peers::new(key.public().to_peer_id(), config.jitter_seed());
        for contact in &config.contacts {
            if let Some(peer) = address::peer(contact) {
                peers.know(peer, contact.clone(), now);
            }
        }
        carrier.shared.contacts.send_replace(config.contacts);
        Ok(Self {
            carrier,
            members: Members::new(peers, now),
            entries: Entries::new(config.bootstrap, now),
            run: None,
            dials: HashMap::new(),
            evidence,
            reachability: Reachability::Unknown,
            relay_at: now,
            notes,
            calls,
            events,
            outbox: VecDeque::new(),
            rings,
        })
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
                Some(_) = self.carrier.tasks.join_next() => {}
                permit = events.reserve(), if !self.outbox.is_empty() => match permit {
                    Ok(permit) => if let Some(event) = self.outbox.pop_front() {
                        permit.send(event);
                    },
                    Err(_) => break,
                },
                call = self.calls.recv() => match call {
                    Some(call) => self.on_call(call, Instant::now()),
                    None => break,
                },
                Some(note) = self.notes.recv(), if room => self.on_note(note, Instant::now()),
                _ = tick.tick() => self.on_tick(Instant::now()),
                event = self.carrier.swarm.select_next_some(), if room => {
                    self.on_event(event, Instant::now());
                }
            }
        }
        self.flush().await;
    }

    async fn flush(&mut self) {
        while let Ok(call) = self.calls.try_recv() {
            self.on_call(call, Instant::now());
        }
        let drain = async {
            loop {
                self.carrier.swarm.select_next_some().await;
            }
        };
        let _: Result<(), _> = timeout(FLUSH, drain).await;
        self.carrier.shared.close_lines();
        self.carrier.tasks.shutdown().await;
    }

    fn emit(&mut self, event: Event) {
        self.outbox.push_back(event);
    }

    fn carry_out(&mut self, outputs: impl IntoIterator<Item = Output>) {
        for output in outputs {
            match output {
                Output::Tell(event) => self.emit(event),
                Output::Close(connection) => _ = self.carrier.swarm.close_connection(connection),
                Output::OpenLine { peer, connection } => self.carrier.open_line(peer, connection),
                Output::Send { peer, connection, bytes } => {
                    self.carrier.send(peer, connection, bytes);
                }
                Output::Line { peer, queue } => self.carrier.shared.set_line(peer, queue),
                Output::Judge(token, verdict) => self.carrier.judge(&token, verdict),
                Output::Block(peer) => self.carrier.block(peer),
                Output::Unblock(peer) => {
                    let discovery = &mut self.carrier.swarm.behaviour_mut().discovery;
                    discovery.blocked.unblock_peer(peer);
                }
            }
        }
    }

    fn on_call(&mut self, call: Call, now: Instant) {
        let outputs = match call {
            Call::Manifests { run, of, reply } => {
                self.entries.ask(Ask { run, of, reply, since: now });
                return self.on_tick(now);
            }
            Call::Join { run, manifest } => return self.join(run, manifest, now),
            Call::Gossip { topic, bytes } => {
                let Some(run) = &self.run else { return };
                return self.carrier.publish(run.topic(topic).hash(), bytes);
            }
            Call::Verdict { token, verdict } => return self.carrier.judge(&token, verdict),
            Call::OpenRing { peer, reply } => {
                return self.open_ring(name::to_libp2p(peer), reply);
            }
            Call::Fetch { peer, request, reply } => {
                let peer = name::to_libp2p(peer);
                let control = self.members.peers.control(&peer);
                return self.carrier.fetch(peer, control, request, reply);
            }
            Call::Knock { beat } => {
                self.members.knock(&beat, |peer| self.entries.contains(peer), now)
            }
            Call::SendToAll { peer, bytes } => {
                self.members.send_to_all(name::to_libp2p(peer), &bytes)
            }
            Call::Fault { peer, why } => {
                self.members.fault(name::to_libp2p(peer), why, Gravity::Minor, now)
            }
            Call::Drop { peer, why } => self.members.drop_peer(name::to_libp2p(peer), &why, now),
        };
        self.carry_out(outputs);
    }

    fn on_note(&mut self, note: Note, now: Instant) {
        match note {
            Note::LineUp { peer, connection, outbox } => {
                let outputs = self.members.line_up(peer, connection, outbox, now);
                self.carry_out(outputs);
            }
            Note::LineDown { peer, connection } => {
                let output = self.members.line_down(peer, connection, now);
                self.carry_out(output);
            }
            Note::Tell(event) => self.emit(event),
            Note::Fault { peer, why, gravity } => {
                let outputs = self.members.fault(peer, why, gravity, now);
                self.carry_out(outputs);
            }
        }
    }

    /// Once and for good: a node is in one run.
    fn join(&mut self, id: RunId, manifest: manifest::File, now: Instant) {
        if self.run.is_some() {
            return;
        }
        let run = self.run.insert(Run::new(id, manifest, now));
        let listeners = self.carrier.subscribe(run);
        self.carrier.find(run, now);
        let outputs = self.members.joined(run.beat(), &listeners, now);
        self.carry_out(outputs);
    }

    fn on_tick(&mut self, now: Instant) {
        if let Some(run) = &mut self.run {
            self.carrier.find(run, now);
        }
        self.redial(now);
        let outputs = self.members.tick(now);
        self.carry_out(outputs);
        for ask in self.entries.settled(now) {
            let asked = self.entries.asked(ask.of, self.members.peers.connected_ones());
            self.carrier.ask_manifests(ask, asked, self.entries.attempts());
        }
        self.settle_reachability(now);
        self.carrier.shared.contacts.send_if_modified(|known| {
            let new = contacts::list(&self.members.peers, known);
            let changed = *known != new;
            *known = new;
            changed
        });
    }

    fn settle_reachability(&mut self, now: Instant) {
        let state = self.evidence.conclude(now);
        let enclosed = matches!(state, Reachability::Closed | Reachability::Relayed);
        if enclosed && !self.carrier.is_at_relay() && self.relay_at <= now {
            self.relay_at = now + RELAY_WAIT;
            self.carrier.listen_at_relays(self.entries.addresses());
        }
        if state == self.reachability {
            return;
        }
        self.reachability = state.clone();
        self.carrier.swarm.behaviour_mut().discovery.serve_table(state.is_direct());
        self.emit(Event::Reachability(state));
    }

    /// Dials the entry points and members that are due.
    fn redial(&mut self, now: Instant) {
        for (peer, addresses) in self.entries.due(now) {
            let condition = PeerCondition::DisconnectedAndNotDialing;
            match self.carrier.dial(dial::for_messages(peer, addresses, condition)) {
                Ok(_) => {}
                // It was found in another way meanwhile.
                Err(DialError::DialPeerConditionFalse(_)) => self.entries.up(&peer),
                Err(error) => self.entries.failed(&peer, error, now),
            }
        }
        for (peer, addresses) in self.members.due(now) {
            // A ring connection may have outlived the one for messages.
            let condition = PeerCondition::NotDialing;
            match self.carrier.dial(dial::for_messages(peer, addresses, condition)) {
                Ok(_) | Err(DialError::DialPeerConditionFalse(_)) => {}
                Err(_) => self.members.peers.failed(&peer, now),
            }
        }
    }

    /// Opens a ring stream on a connection of its own; an earlier one to this peer is closed, since
    /// whoever asks for another has no more use for it.
    fn open_ring(&mut self, peer: PeerId, reply: Responder<ByteStream, StreamError>) {
        let Some(entry) = self.members.peers.get(&peer).filter(|peer| peer.control().is_some())
        else {
            // Nobody waits any longer, if this fails.
            let _ = reply.send(Err(StreamError::NotConnected));
            return;
        };
        for connection in entry.of(Purpose::Ring).filter(|connection| connection.dialled) {
            self.carrier.swarm.close_connection(connection.id);
        }
        self.dial_ring(RingDial::new(peer, entry.direct_addresses(), reply));
    }

    /// Tries what has not been tried yet; the connection for messages is the last resort.
    fn dial_ring(&mut self, mut dial: RingDial) {
        while let Some(options) = dial.next() {
            if let Some(id) = self.carrier.dial_ring(options) {
                self.dials.insert(id, dial);
                return;
            }
        }
        match self.members.peers.control(&dial.peer) {
            Some(connection) => self.carrier.open_ring(connection, dial),
            None => _ = dial.reply.send(Err(StreamError::NotConnected)),
        }
    }

    fn on_event(&mut self, event: SwarmEvent<NodeEvent>, now: Instant) {
        match event {
            SwarmEvent::Behaviour(NodeEvent::Discovery(event)) => self.on_discovery(event, now),
            SwarmEvent::Behaviour(NodeEvent::Gossip(event)) => self.on_gossip(event, now),
            SwarmEvent::Behaviour(NodeEvent::Streams(incoming)) => self.on_stream(incoming, now),
            SwarmEvent::ConnectionEstablished { peer_id, connection_id, endpoint, .. } => {
                self.carrier.swarm.behaviour_mut().discovery.connected(peer_id);
                let ring = self.dials.contains_key(&connection_id);
                let purpose = if ring { Purpose::Ring } else { Purpose::Control };
                let connection = Connection::new(connection_id, purpose, &endpoint, now);
                self.on_connected(peer_id, connection);
            }
            SwarmEvent::ConnectionClosed { peer_id, connection_id, cause, .. } => {
                self.carrier.swarm.behaviour_mut().discovery.closed(&peer_id);
                let outputs = self.members.closed(peer_id, connection_id, cause, now);
                if !self.members.peers.is_connected(&peer_id) {
                    self.entries.down(&peer_id, now);
                }
                self.carry_out(outputs);
            }
            SwarmEvent::OutgoingConnectionError { connection_id, peer_id, error } => {
                self.on_dial_failed(connection_id, peer_id, error, now);
            }
            SwarmEvent::NewListenAddr { .. } => {
                self.carrier.publish_addresses();
                self.emit(Event::Listening);
            }
            SwarmEvent::ExpiredListenAddr { .. } => self.carrier.publish_addresses(),
            SwarmEvent::ListenerClosed { listener_id, reason, .. } => {
                self.carrier.on_listener_closed(listener_id, &reason);
            }
            SwarmEvent::ExternalAddrConfirmed { address } => {
                self.evidence.confirmed(&address);
                self.carrier.publish_addresses();
                self.announce_soon(now);
            }
            SwarmEvent::ExternalAddrExpired { address } => {
                self.evidence.expired(&address, now);
                self.carrier.publish_addresses();
            }
            _ => {}
        }
    }

    fn announce_soon(&mut self, now: Instant) {
        if let Some(run) = &mut self.run {
            run.announce_soon(now);
        }
    }

    fn on_connected(&mut self, peer: PeerId, connection: Connection) {
        let (id, now) = (connection.id, connection.since);
        if name::from_libp2p(&peer).is_none() {
            // No peer of ours has such a key.
            self.carrier.swarm.close_connection(id);
            return;
        }
        let outputs = self.members.connected(peer, connection);
        if self.entries.contains(&peer) {
            self.entries.up(&peer);
            self.announce_soon(now);
        }
        if let Some(dial) = self.dials.remove(&id) {
            self.carrier.open_ring(id, dial);
        }
        self.carry_out(outputs);
    }

    fn on_dial_failed(
        &mut self,
        connection: ConnectionId,
        peer: Option<PeerId>,
        error: DialError,
        now: Instant,
    ) {
        if let Some(dial) = self.dials.remove(&connection) {
            tracing::debug!(%error, "no connection for a ring");
            return self.dial_ring(dial);
        }
        let Some(peer) = peer.filter(|peer| !self.carrier.swarm.is_connected(peer)) else { return };
        tracing::debug!(%peer, %error, "cannot dial");
        self.members.peers.failed(&peer, now);
        self.entries.failed(&peer, error, now);
    }

    fn on_discovery(&mut self, event: DiscoveryEvent, now: Instant) {
        match event {
            DiscoveryEvent::Identify(identify::Event::Received {
                peer_id: peer,
                connection_id,
                info,
            }) => {
                let entry = self.members.peers.get(&peer);
                let Some(seen) = entry.and_then(|peer| peer.remote(connection_id)) else { return };
                let discovery = &mut self.carrier.swarm.behaviour_mut().discovery;
                let addresses = discovery.learn(peer, &info, seen);
                let output = self.members.identified(peer, addresses, &info.protocol_version);
                self.carry_out(output);
            }
            DiscoveryEvent::Kademlia(kad::Event::OutboundQueryProgressed {
                result:
                    QueryResult::GetProviders(Ok(kad::GetProvidersOk::FoundProviders {
                        providers, ..
                    })),
                ..
            }) => {
                for peer in providers {
                    self.members.peers.want(peer, now);
                }
                // While the query runs, Kademlia knows where they are.
                self.redial(now);
            }
            DiscoveryEvent::Ping(ping::Event { peer, connection, result: Ok(length) }) => {
                let output = self.members.round_trip(peer, connection, length);
                self.carry_out(output);
            }
            DiscoveryEvent::Reach(autonat::v2::client::Event { result: Err(_), .. }) => {
                self.evidence.probe_failed();
            }
            _ => {}
        }
    }

    fn on_gossip(&mut self, event: gossipsub::Event, now: Instant) {
        let outputs = match event {
            gossipsub::Event::Message { propagation_source: source, message_id, message } => {
                let gossipsub::Message { topic, data, .. } = message;
                let token = GossipToken { id: message_id, source, topic, bytes: data.len() };
                let alive = self.carrier.shared.alive.load(Ordering::Relaxed);
                self.members.gossiped(token, data, alive, now)
            }
            gossipsub::Event::Subscribed { peer_id, topic } => {
                self.members.subscribed(peer_id, &topic, true, now)
            }
            gossipsub::Event::Unsubscribed { peer_id, topic } => {
                self.members.subscribed(peer_id, &topic, false, now)
            }
            _ => return,
        };
        self.carry_out(outputs);
    }

    /// A stream that cannot be served now is dropped, which resets it.
    fn on_stream(&mut self, incoming: Incoming, now: Instant) {
        let Incoming { peer, connection, protocol, stream } = incoming;
        let Some(entry) = self.members.peers.get_mut(&peer) else { return };
        if protocol == RING {
            entry.assign(connection, Purpose::Ring);
            let fair = entry.rings.take(now);
            if let (true, Some(from)) = (fair, name::from_libp2p(&peer)) {
                // A full queue resets the stream: its opener loses us for this attempt at a ring,
                // and another attempt comes.
                let _ = self.rings.try_send((from, stream.compat()));
            }
        } else if protocol == CONTROL {
            self.carrier.serve_control(peer, entry, stream);
        } else if protocol == FETCH {
            self.carrier.serve_fetch(peer, entry, stream);
        } else {
            let offered = self.run.as_ref().map(|run| (run.id, run.manifest.clone()));
            self.carrier.serve_manifest(peer, offered, stream);
        }
    }
}

/// How long the last messages get to leave.
pub(super) const FLUSH: Duration = Duration::from_millis(250);
const TICK: Duration = Duration::from_millis(250);
const RELAY_WAIT: Duration = Duration::from_secs(30);
/// Notes of tasks that wait; a task whose note finds no room reads no further.
const NOTES: usize = 256;
/// Events that wait for room in the driver's queue: what one poll of the swarm and one note of
/// each task can add stays below twice this.
const OUTBOX: usize = 256;
