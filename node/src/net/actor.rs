//! The actor: one task that owns the swarm, and does one thing at a time.
//!
//! Calls come from handles, notes from the tasks that serve streams, the rest from the swarm. What
//! they mean is for [`Members`], [`Entries`], [`Lobby`], [`Run`] and [`Evidence`] to say; the actor hands each
//! to whom it concerns, and has the [`Carrier`] do what comes out.
//!
//! While events wait for the driver the swarm is not polled, so a driver that falls behind slows
//! the network down instead of filling memory; calls are taken all the same.

mod dials;
mod hall;
mod turn;
mod way;

use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use futures::StreamExt as _;
use intellect_bootstrap::{address, discovery::DiscoveryEvent, manifest, streams::Incoming};
use intellect_protocol::base::id::{PeerId as Peer, RunId};
use libp2p::{
    PeerId, autonat, gossipsub, identify,
    identity::Keypair,
    kad::{self, QueryResult},
    ping,
    swarm::{ConnectionId, SwarmEvent},
};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, MissedTickBehavior, interval, timeout},
};
use tokio_util::{compat::FuturesAsyncReadCompatExt as _, sync::CancellationToken};

use super::behaviour::{CONTROL, NodeEvent, RING};
use super::carrier::Carrier;
use super::dial::{Dialled, RingDial};
use super::door::Door;
use super::enter::{Ask, Entries};
use super::inbox::{Call, Gravity, Note, Shared};
use super::interface::{Config, Event, GossipToken, NetError, Ring};
use super::lobby::Lobby;
use super::members::{Members, Output};
use super::path::Trail;
use super::peers::{Connection, Peers, Purpose};
use super::reach::{Evidence, Reachability};
use super::run::Run;
use super::visit::ADMIT;
use super::{contacts, name};
use crate::wake::Turns;

/// The task that owns the swarm, and all that the node knows of the network.
pub(super) struct Actor {
    carrier: Carrier,
    members: Members,
    entries: Entries,
    lobby: Lobby,
    door: watch::Receiver<Door>,
    silent: watch::Receiver<BTreeSet<Peer>>,
    turns: Turns,
    run: Option<Run>,
    /// Dials of connections for bulk that are under way.
    dials: HashMap<ConnectionId, RingDial>,
    /// Dials that no ring waits for.
    trials: HashSet<ConnectionId>,
    reached: Dialled,
    evidence: Evidence,
    /// What the driver was told last.
    reachability: Reachability,
    /// What was told of the way to others.
    trail: Trail,
    /// When to look for relays again.
    relays: dials::Retry,
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
        let carrier = Carrier::new(&config, key, shared, noting)?;
        let evidence = Evidence::new(far, now);
        let mut peers = Peers::new(key.public().to_peer_id(), config.jitter_seed());
        for contact in &config.contacts {
            if let Some(peer) = address::peer(contact) {
                peers.know(peer, contact.clone(), now);
            }
        }
        carrier.shared.contacts.send_replace(config.contacts);
        let door = carrier.shared.door.subscribe();
        let silent = carrier.shared.silent.subscribe();
        Ok(Self {
            carrier,
            members: Members::new(peers, now),
            entries: Entries::new(config.bootstrap, now),
            lobby: Lobby::new(now),
            door,
            silent,
            turns: Turns::new(),
            run: None,
            dials: HashMap::new(),
            trials: HashSet::new(),
            reached: Dialled::default(),
            evidence,
            reachability: Reachability::Unknown,
            trail: Trail::new(far, now),
            relays: dials::Retry::new(now),
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
                    Some(call) => self.turn(|all, now| all.on_call(call, now)),
                    None => break,
                },
                Ok(()) = self.door.changed() => self.turn(Self::on_door),
                Ok(()) = self.silent.changed() => self.turn(|all, _| all.hush()),
                Some(note) = self.notes.recv(), if room => {
                    self.turn(|all, now| all.on_note(note, now));
                }
                _ = tick.tick() => self.turn(Self::on_tick),
                event = self.carrier.swarm.select_next_some(), if room => {
                    self.turn(|all, now| all.on_event(event, now));
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
            Call::Offers { wanted, of, reply } => {
                self.entries.ask(Ask { wanted, of, reply, since: now });
                return self.on_tick(now);
            }
            Call::Join { run, manifest } => return self.join(run, manifest, now),
            Call::Seek { run } => return self.seek(run, now),
            Call::Show { visit } => return self.show(visit, now),
            Call::Notices { peer, run, reply } => {
                let peer = name::to_libp2p(peer);
                let control = self.members.peers.control(&peer);
                return self.carrier.ask_notices(peer, control, run, reply);
            }
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
                let used = self.members.peers.used(&peer);
                return self.carrier.fetch(peer, used, request, reply);
            }
            Call::Knock { beat } => {
                let spared = |peer: &_| self.entries.contains(peer) || !self.lobby.lets_in(peer);
                self.members.knock(&beat, spared, now)
            }
            Call::SendToAll { peer, bytes } => {
                let peer = Some(name::to_libp2p(peer)).filter(|peer| self.lobby.lets_in(peer));
                peer.into_iter().flat_map(|peer| self.members.send_to_all(peer, &bytes)).collect()
            }
            Call::Spoke { peer } => self.members.spoke(name::to_libp2p(peer), now),
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
            Note::Visited { peer, number, response, reception } => {
                if self.lobby.note(peer, number, response, now) {
                    let told = name::from_libp2p(&peer).zip(reception);
                    let told = told.map(|(peer, reception)| Event::Received { peer, reception });
                    told.into_iter().for_each(|event| self.emit(event));
                }
            }
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
        // Where nobody has said otherwise, everybody may take part.
        self.carrier.shared.door.send_if_modified(|door| {
            let unsaid = *door == Door::Closed;
            if unsaid {
                *door = Door::Open;
            }
            unsaid
        });
        self.on_door(now);
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
        self.attend(now);
        self.hush();
        self.redial(now);
        let outputs = self.members.tick(now);
        self.carry_out(outputs);
        for ask in self.entries.settled(now) {
            let asked = self.entries.asked(ask.of, self.members.peers.connected_ones());
            self.carrier.ask_offers(ask, asked, self.entries.attempts());
        }
        self.settle_reachability(now);
        self.carrier.shared.contacts.send_if_modified(|known| {
            let new = contacts::list(&self.members.peers, known);
            let changed = *known != new;
            *known = new;
            changed
        });
    }

    fn on_event(&mut self, event: SwarmEvent<NodeEvent>, now: Instant) {
        match event {
            SwarmEvent::Behaviour(NodeEvent::Discovery(event)) => self.on_discovery(event, now),
            SwarmEvent::Behaviour(NodeEvent::Gossip(event)) => self.on_gossip(event, now),
            SwarmEvent::Behaviour(NodeEvent::Streams(incoming)) => self.on_stream(incoming, now),
            SwarmEvent::ConnectionEstablished { peer_id, connection_id, endpoint, .. } => {
                self.carrier.swarm.behaviour_mut().discovery.connected(peer_id);
                let ring = self.on_ring_connection(peer_id, connection_id);
                let purpose = if ring { Purpose::Ring } else { Purpose::Control };
                let connection = Connection::new(connection_id, purpose, &endpoint, now);
                self.on_connected(peer_id, connection);
            }
            SwarmEvent::ConnectionClosed { peer_id, connection_id, cause, .. } => {
                self.carrier.swarm.behaviour_mut().discovery.closed(&peer_id);
                let outputs = self.members.closed(peer_id, connection_id, cause, now);
                let last = !self.members.peers.is_connected(&peer_id);
                self.lobby.closed(&peer_id, connection_id, last);
                if last {
                    self.reached.forget(&peer_id);
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
        let entry = self.entries.contains(&peer);
        if !entry && !self.lobby.connected(peer, &connection) {
            self.carrier.swarm.close_connection(id);
        }
        let outputs = self.members.connected(peer, connection);
        if entry {
            self.entries.up(&peer);
            self.announce_soon(now);
        }
        if let Some(dial) = self.dials.remove(&id) {
            self.carrier.open_ring(id, dial);
        }
        self.carry_out(outputs);
    }

    fn on_discovery(&mut self, event: DiscoveryEvent, now: Instant) {
        self.trace(&event, now);
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
                let output = self.members.identified(peer, addresses, &info.protocol_version, now);
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
                let named = self.carrier.shared.members.borrow();
                self.members.gossiped(token, data, &named, now)
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

    /// A stream that cannot be served now, or that its peer may not open yet, is dropped, which resets
    /// it.
    fn on_stream(&mut self, incoming: Incoming, now: Instant) {
        let Incoming { peer, connection, protocol, stream } = incoming;
        let Some(entry) = self.members.peers.get_mut(&peer) else { return };
        if protocol == ADMIT {
            if self.lobby.takes_visit(connection, now) {
                self.carrier.serve_visit(peer, entry, stream);
            }
        } else if protocol == manifest::PROTOCOL || protocol == manifest::NOTICES {
            let run = self.run.as_ref().and_then(Run::offered);
            self.carrier.serve_files(peer, entry, (run, protocol), stream);
        } else if !self.lobby.lets_in(&peer) {
            tracing::debug!(%peer, %protocol, "a stream of a peer that is not let in");
        } else if protocol == RING {
            entry.assign(connection, Purpose::Ring);
            let fair = entry.rings.take(now);
            if let (true, Some(from)) = (fair, name::from_libp2p(&peer)) {
                // A full queue resets the stream: its opener loses us for this attempt at a ring,
                // and another attempt comes.
                let _ = self.rings.try_send((from, stream.compat()));
            }
        } else if protocol == CONTROL {
            self.carrier.serve_control(peer, entry, stream);
        } else {
            let link = entry.link_of(connection);
            self.carrier.serve_fetch(peer, entry, (stream, link));
        }
    }
}

/// How long the last messages get to leave.
pub(super) const FLUSH: Duration = Duration::from_millis(250);
const TICK: Duration = Duration::from_millis(250);
/// Notes of tasks that wait; a task whose note finds no room reads no further.
const NOTES: usize = 256;
/// Events that wait for room in the driver's queue: what one poll of the swarm and one note of
/// each task can add stays below twice this.
const OUTBOX: usize = 256;
