//! The actor: one task that owns the swarm, and does one thing at a time.
//!
//! Commands come from handles, task events from the tasks that serve streams, the rest from the
//! swarm. [`Members`], [`Entries`], [`Pending`], [`Run`] and [`Evidence`] decide what they mean;
//! the actor hands each event to the one it concerns, and has [`SwarmTasks`] carry out the result.
//!
//! While [`OUTBOX`] events wait for the driver the swarm is not polled, so a slow driver slows the
//! network down instead of filling memory; commands are taken all the same.

mod access;
mod dials;
mod turn;
pub(super) mod way;

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use futures::FutureExt as _;
use intellect_bootstrap::{address, manifest, streams::Incoming};
use intellect_protocol::base::id::{PeerId as Peer, RunId};
use libp2p::{
    PeerId, gossipsub,
    identity::Keypair,
    swarm::{ConnectionId, SwarmEvent},
};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, MissedTickBehavior, interval},
};
use tokio_util::{compat::FuturesAsyncReadCompatExt as _, sync::CancellationToken};

use super::access::allow_list::AllowList;
use super::access::handshake::ADMIT;
use super::access::pending::Pending;
use super::behaviour::{CONTROL, NodeEvent, RING};
use super::dial::{Dial, Dialled};
use super::enter::{Ask, Entries};
use super::inbox::{Command, Severity, Shared, TaskEvent, replace};
use super::interface::{Config, Event, GossipToken, NetError, Ring};
use super::members::{Members, Output};
use super::path::Trail;
use super::peers::{Connection, Peers, Purpose};
use super::reach::{Evidence, Reachability, uplink};
use super::run::Run;
use super::swarm::SwarmTasks;
use super::{contacts, name};
use crate::wake::Turns;

/// The task that owns the swarm, and all that the node knows of the network.
pub(super) struct Actor {
    /// The sockets, and one task for each stream.
    swarm: SwarmTasks,
    /// All peers, and which of them are members of the run.
    members: Members,
    /// The entry points, and the callers that wait for what they serve.
    entries: Entries,
    /// The peers that are not let in yet, and our own request to be let in.
    pending: Pending,
    /// The allow list, which the driver sets through its handle.
    allowed: watch::Receiver<AllowList>,
    /// The peers that the driver does not hear any more.
    silent: watch::Receiver<BTreeSet<Peer>>,
    /// Shows whether this process slept before a turn.
    turns: Turns,
    /// The run that this node has joined, or whose peers it looks for. It is never replaced.
    run: Option<Run>,
    /// Our dials under way, each until its connection is established or has failed.
    dials: HashMap<ConnectionId, Dial>,
    /// Which peers a dial for a ring has reached before.
    reached: Dialled,
    /// What shows whether others can dial this node.
    evidence: Evidence,
    /// The state that was reported last.
    reachability: Reachability,
    /// Which steps towards connections were reported.
    trail: Trail,
    /// The time at which to ask relays again.
    relays: dials::Retry,
    /// What the tasks of streams report.
    task_events: mpsc::Receiver<TaskEvent>,
    /// What handles ask for. Its end ends the network.
    commands: mpsc::Receiver<Command>,
    /// The way to the driver. A permit is taken before an event, so none is lost.
    events: mpsc::Sender<Event>,
    /// Events that wait for that permit. See [`OUTBOX`] for its bound.
    outbox: VecDeque<Event>,
    /// Ring streams of other peers, which go past the queue of events.
    rings: mpsc::Sender<Ring>,
}

impl Actor {
    /// Builds the swarm and listens. Contacts of an earlier start become peers that are worth
    /// dialling.
    pub(super) fn new(
        config: Config,
        key: &Keypair,
        shared: Arc<Shared>,
        commands: mpsc::Receiver<Command>,
        events: mpsc::Sender<Event>,
        rings: mpsc::Sender<Ring>,
    ) -> Result<Self, NetError> {
        let now = Instant::now();
        // Whether an entry point or this node is on the internet.
        let far = config.scope() == address::Scope::Public;
        let (noting, task_events) = mpsc::channel(TASK_EVENTS);
        let swarm = SwarmTasks::new(&config, key, shared, noting)?;
        let mut peers = Peers::new(key.public().to_peer_id(), config.jitter_seed());
        for contact in &config.contacts {
            if let Some(peer) = address::peer(contact) {
                peers.know(peer, contact.clone(), now);
            }
        }
        swarm.shared().contacts.send_replace(config.contacts);
        let allowed = swarm.shared().allowed.subscribe();
        let silent = swarm.shared().silent.subscribe();
        Ok(Self {
            swarm,
            members: Members::new(peers, now),
            entries: Entries::new(config.bootstrap, now),
            pending: Pending::new(now),
            allowed,
            silent,
            turns: Turns::new(),
            run: None,
            dials: HashMap::new(),
            reached: Dialled::default(),
            evidence: Evidence::new(far, now),
            reachability: Reachability::Unknown,
            trail: Trail::new(far, now),
            relays: dials::Retry::new(now),
            task_events,
            commands,
            events,
            outbox: VecDeque::new(),
            rings,
        })
    }

    /// Runs until `stop`, or until the last handle is dropped; then lets the last messages leave.
    /// The swarm comes last, so that no flood from the network delays a command or the tick. Where
    /// the driver is slow, there may always be a task event that takes the room that it has made.
    /// So the swarm has a turn after every few of them.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        let (events, mut noted) = (self.events.clone(), 0_u32);
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let room = self.outbox.len() < OUTBOX;
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                permit = events.reserve(), if !self.outbox.is_empty() => match permit {
                    Ok(permit) => if let Some(event) = self.outbox.pop_front() {
                        permit.send(event);
                    },
                    Err(_) => break,
                },
                call = self.commands.recv() => match call {
                    Some(call) => self.turn(|all, now| all.on_command(call, now)),
                    None => break,
                },
                Ok(()) = self.allowed.changed() => self.turn(Self::on_allow_list),
                Ok(()) = self.silent.changed() => self.turn(|all, _| all.hush()),
                _ = tick.tick() => self.turn(Self::on_tick),
                Some(note) = self.task_events.recv(), if room => {
                    self.turn(|all, now| all.on_task_event(note, now));
                    noted = (noted + 1) % NOTES_IN_A_ROW;
                    if noted == 0 && let Some(event) = self.swarm.next().now_or_never() {
                        self.turn(|all, now| all.on_event(event, now));
                    }
                }
                event = self.swarm.next(), if room => {
                    self.turn(|all, now| all.on_event(event, now));
                }
            }
        }
        // What was asked before the end is still carried out. Usually the last of it is the
        // goodbye.
        while let Ok(call) = self.commands.try_recv() {
            self.on_command(call, Instant::now());
        }
        self.swarm.flush(FLUSH).await;
    }

    /// Reports an event to the driver, after those that wait already.
    fn emit(&mut self, event: Event) {
        self.outbox.push_back(event);
    }

    /// Carries out what [`Members`] has decided, in its order: the queue of a peer is changed
    /// before the driver hears that its link has changed.
    fn carry_out(&mut self, outputs: impl IntoIterator<Item = Output>) {
        for output in outputs {
            match output {
                Output::Emit(event) => self.emit(event),
                Output::Close(connection) => self.swarm.close(connection),
                Output::OpenControlStream { peer, connection } => {
                    self.swarm.open_control_stream(peer, connection);
                }
                Output::Send { peer, connection, bytes } => {
                    self.swarm.send(peer, connection, bytes);
                }
                Output::Queue { peer, queue } => self.swarm.shared().set_queue(peer, queue),
                Output::Judge(token, verdict) => self.swarm.judge(&token, verdict),
                Output::Block(peer) => {
                    self.swarm.block(peer);
                    self.show_blocked();
                }
                Output::Unblock(peer) => {
                    self.swarm.discovery().blocked.unblock_peer(peer);
                    self.show_blocked();
                }
            }
        }
    }

    /// Lets the driver see which peers are kept out, and until when.
    fn show_blocked(&self) {
        replace(&self.swarm.shared().blocked, self.members.blocked());
    }

    /// Takes one command. It is no error if nobody waits for its answer any longer.
    fn on_command(&mut self, call: Command, now: Instant) {
        let outputs = match call {
            Command::Offers { wanted, of, reply } => {
                self.entries.ask(Ask { wanted, of, reply, since: now });
                return self.on_tick(now);
            }
            Command::Join { run, manifest } => return self.join(run, manifest, now),
            Command::Seek { run, most } => return self.seek(run, most, now),
            Command::Sought { reply } => {
                let found = self.members.peers.found().filter_map(name::from_libp2p).collect();
                // Fails only where nobody waits any longer.
                let _ = reply.send(Ok(found));
                return;
            }
            Command::SetAdmitRequest { request } => return self.set_admit_request(request, now),
            Command::Notices { peer, run, reply } => {
                let peer = name::to_libp2p(peer);
                let entry = self.members.peers.get(&peer);
                return self.swarm.ask_notices(peer, entry, run, reply);
            }
            Command::Gossip { topic, bytes } => {
                let Some(run) = &self.run else { return };
                return self.swarm.publish(run.topic(topic).hash(), bytes);
            }
            Command::Verdict { token, verdict } => return self.swarm.judge(&token, verdict),
            Command::OpenRing { peer, reply } => {
                return self.open_ring(name::to_libp2p(peer), reply);
            }
            Command::Fetch { peer, request, reply } => {
                let peer = name::to_libp2p(peer);
                let used = self.members.peers.used(&peer);
                return self.swarm.fetch(peer, used, request, reply);
            }
            Command::Knock { beat } => {
                let spared = |peer: &_| self.entries.contains(peer) || !self.pending.allows(peer);
                self.members.knock(&beat, spared, now)
            }
            Command::SendToAll { peer, bytes } => {
                let peer = Some(name::to_libp2p(peer)).filter(|peer| self.pending.allows(peer));
                peer.into_iter().flat_map(|peer| self.members.send_to_all(peer, &bytes)).collect()
            }
            Command::Spoke { peer } => self.members.spoke(name::to_libp2p(peer), now),
            Command::Fault { peer, why } => {
                self.members.fault(name::to_libp2p(peer), why, Severity::Minor, now)
            }
            Command::Drop { peer, why } => self.members.drop_peer(name::to_libp2p(peer), &why, now),
        };
        self.carry_out(outputs);
    }

    /// Takes what the task of a stream reports. An answer to an older admit request is dropped.
    fn on_task_event(&mut self, note: TaskEvent, now: Instant) {
        let outputs = match note {
            TaskEvent::StreamUp { peer, connection, outbox } => {
                self.members.stream_up(peer, connection, outbox, now)
            }
            TaskEvent::StreamDown { peer, connection } => {
                self.members.stream_down(peer, connection, now).into_iter().collect()
            }
            TaskEvent::Emit(event) => return self.emit(event),
            TaskEvent::Answered { peer, number, answer } => {
                if self.pending.note(peer, number, &answer, now)
                    && let (Some(peer), Ok(reply)) = (name::from_libp2p(&peer), answer)
                {
                    self.emit(Event::AdmitReply { peer, reply });
                }
                return;
            }
            TaskEvent::Fault { peer, why, severity } => {
                self.members.fault(peer, why, severity, now)
            }
        };
        self.carry_out(outputs);
    }

    /// Joins a run. A list of invited peers was set before; where none was, the run is open to
    /// everybody.
    fn join(&mut self, id: RunId, manifest: manifest::File, now: Instant) {
        if self.run.is_some() {
            return;
        }
        // Without an allow list the run is open.
        self.swarm.shared().allowed.send_if_modified(|list| {
            let unset = *list == AllowList::Nobody;
            if unset {
                *list = AllowList::Everybody;
            }
            unset
        });
        self.on_allow_list(now);
        let run = self.run.insert(Run::new(id, manifest, now));
        let listeners = self.swarm.subscribe(run);
        self.swarm.find(run, now);
        let outputs = self.members.joined(run.beat(), &listeners, now);
        self.carry_out(outputs);
    }

    /// Does what is due by time: dials, announcements, searches and timeouts.
    fn on_tick(&mut self, now: Instant) {
        if let Some(run) = &mut self.run {
            self.swarm.find(run, now);
        }
        self.tend_pending(now);
        self.hush();
        self.redial(now);
        let outputs = self.members.tick(now);
        self.carry_out(outputs);
        self.report_entries(now);
        self.settle_asks(now);
        self.settle_reachability(now);
        let known = &self.swarm.shared().contacts;
        let list = contacts::list(&self.members.peers, &known.borrow());
        replace(known, list);
    }

    /// Takes one event of the swarm. A new connection is one for a ring only if it was dialled for
    /// that; any other carries messages until a ring stream comes on it.
    fn on_event(&mut self, event: SwarmEvent<NodeEvent>, now: Instant) {
        match event {
            SwarmEvent::Behaviour(NodeEvent::Discovery(event)) => self.on_discovery(event, now),
            SwarmEvent::Behaviour(NodeEvent::Gossip(event)) => self.on_gossip(event, now),
            SwarmEvent::Behaviour(NodeEvent::Streams(incoming)) => self.on_stream(incoming, now),
            SwarmEvent::ConnectionEstablished { peer_id, connection_id, endpoint, .. } => {
                self.swarm.discovery().connected(peer_id);
                let ring = self.on_ring_connection(peer_id, connection_id);
                let purpose = if ring { Purpose::Ring } else { Purpose::Control };
                let connection = Connection::new(connection_id, purpose, &endpoint, now);
                self.on_connected(peer_id, connection);
            }
            SwarmEvent::ConnectionClosed { peer_id, connection_id, cause, .. } => {
                self.swarm.discovery().closed(&peer_id);
                let outputs = self.members.closed(peer_id, connection_id, cause, now);
                let last = !self.members.peers.is_connected(&peer_id);
                self.pending.closed(&peer_id, connection_id, last);
                if last {
                    self.reached.forget(&peer_id);
                    self.entries.down(&peer_id, Vec::new(), now);
                }
                self.carry_out(outputs);
            }
            SwarmEvent::OutgoingConnectionError { connection_id, peer_id, error } => {
                self.on_dial_failed(connection_id, peer_id, error, now);
            }
            SwarmEvent::NewListenAddr { address, .. } => {
                self.swarm.announce(self.evidence.returns(&address));
                self.emit(Event::Listening);
            }
            SwarmEvent::ExpiredListenAddr { address, .. } => self.stops_listening(&address, now),
            SwarmEvent::ListenerClosed { listener_id, reason, .. } => {
                self.swarm.on_listener_closed(listener_id, &reason);
            }
            SwarmEvent::ExternalAddrConfirmed { address } => {
                self.evidence.confirmed(&address, uplink());
                self.swarm.publish_addresses();
                self.announce_soon(now);
            }
            SwarmEvent::ExternalAddrExpired { address } => {
                self.evidence.expired(&address, now);
                self.swarm.publish_addresses();
            }
            _ => {}
        }
    }

    /// Has the run announced and searched anew soon, if there is one.
    fn announce_soon(&mut self, now: Instant) {
        if let Some(run) = &mut self.run {
            run.announce_soon(now);
        }
    }

    /// Takes a new connection. One without a slot is closed at once; it is noted all the same,
    /// since the swarm reports its end too.
    fn on_connected(&mut self, peer: PeerId, connection: Connection) {
        let (id, now) = (connection.id, connection.since);
        let dial = self.dials.remove(&id);
        if name::from_libp2p(&peer).is_none() {
            // Peers of a run have ed25519 keys.
            self.swarm.close(id);
            return;
        }
        let entry = self.entries.contains(&peer);
        if !entry && !self.pending.connected(peer, &connection) {
            self.swarm.close(id);
        }
        let outputs = self.members.connected(peer, connection);
        if entry {
            self.entries.up(&peer);
            self.announce_soon(now);
        }
        if let Some(Dial::Ring(dial)) = dial {
            self.swarm.open_ring(id, dial);
        }
        self.carry_out(outputs);
    }

    /// Takes one event of gossip. A message goes to the driver only if its source is within its
    /// limits.
    fn on_gossip(&mut self, event: gossipsub::Event, now: Instant) {
        let outputs = match event {
            gossipsub::Event::Message { propagation_source: source, message_id, message } => {
                let gossipsub::Message { topic, data, .. } = message;
                let token = GossipToken { id: message_id, source, topic, bytes: data.len() };
                let shared = self.swarm.shared();
                self.members.gossiped(token, data, &shared.members.borrow(), &shared.strangers, now)
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

    /// Serves a stream that a peer has opened. One that cannot be served, or that the peer may not
    /// open yet, is dropped, which resets it. Manifests and notices are served to everybody.
    /// Streams of rings are bounded by a rate and a queue, all others by permits of their peer.
    fn on_stream(&mut self, incoming: Incoming, now: Instant) {
        let Incoming { peer, connection, protocol, stream } = incoming;
        let Some(entry) = self.members.peers.get_mut(&peer) else { return };
        if protocol == ADMIT {
            if self.pending.takes_request(connection, now) {
                self.swarm.serve_handshake(peer, entry, stream);
            }
        } else if protocol == manifest::PROTOCOL || protocol == manifest::NOTICES {
            let run = self.run.as_ref().and_then(Run::offered);
            self.swarm.serve_files(peer, entry, run, protocol, stream);
        } else if !self.pending.allows(&peer) {
            tracing::debug!(%peer, %protocol, "a stream of a peer that is not allowed");
        } else if protocol == RING {
            entry.assign_to_ring(connection);
            let fair = entry.rings.take(now);
            if let (true, Some(from)) = (fair, name::from_libp2p(&peer)) {
                let is_member = self.swarm.shared().is_member(&from);
                // A full queue resets the stream; the next attempt at the ring opens another one.
                if is_member || 2 * self.rings.capacity() > self.rings.max_capacity() {
                    let _ = self.rings.try_send(Ring { from, is_member, stream: stream.compat() });
                }
            }
        } else if protocol == CONTROL {
            self.swarm.serve_control(peer, entry, stream);
        } else {
            let link = entry.link_of(connection);
            self.swarm.serve_fetch(peer, entry, stream, link);
        }
    }
}

/// Time for the last messages to leave. All of it passes, since nothing says when they have left.
pub(super) const FLUSH: Duration = Duration::from_millis(250);
/// What the tables of peers and entry points have due is done at a tick, so up to this much late.
const TICK: Duration = Duration::from_millis(250);
/// Task events that may wait; a task that finds no room stops reading its stream.
const TASK_EVENTS: usize = 256;
/// Task events after which the swarm is polled without waiting.
const NOTES_IN_A_ROW: u32 = 4;
/// Events above which nothing that adds more is read. With what one poll of the swarm and one event
/// of each task add, fewer than twice as many wait.
const OUTBOX: usize = 256;
