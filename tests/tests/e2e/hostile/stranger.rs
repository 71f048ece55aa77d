//! A peer controlled by a story: it speaks the protocols of the network,
//! and sends whatever it likes.
//!
//! It is made of libp2p and the project's libraries, not of the node, so that no rule binds it. Its
//! swarm moves only while a method waits, and every wait has a deadline.

use std::{
    collections::VecDeque,
    pin::pin,
    time::{Duration, Instant},
};

use e2e::Process;
use futures::{AsyncWriteExt as _, StreamExt as _};
use intellect_bootstrap::{address, discovery, frame, manifest, streams, transport};
use intellect_protocol::{
    base::{
        base58,
        id::{PeerId as Name, RunId},
        sign::{Keypair, Verified},
    },
    message::{Heartbeat, Message, wire},
};
use libp2p::{
    Multiaddr, PeerId, Stream, StreamProtocol, Swarm,
    gossipsub::{self, IdentTopic, MessageAuthenticity, MessageId, ValidationMode},
    identify, identity,
    kad::{self, RecordKey, store::MemoryStore},
    swarm::{ConnectionId, NetworkBehaviour, SwarmEvent},
};
use serde_json::Value;
use tokio::{
    runtime::{self, Runtime},
    time::timeout,
};

/// Protocol of control messages to one peer, as the node names it.
pub(super) const CONTROL: StreamProtocol = StreamProtocol::new("/intellect/ctl/1");

/// Protocol of the frames of a ring.
pub(super) const RING: StreamProtocol = StreamProtocol::new("/intellect/ring/1");

/// Protocol of requests about lineages, and of fetches.
pub(super) const FETCH: StreamProtocol = StreamProtocol::new("/intellect/fetch/2");

/// What identify announces for a peer of this version.
pub(super) const VERSION: &str = "/intellect/1";

/// The weight that an honest peer declares in these runs: the tokens of an epoch.
pub(super) const WEIGHT: u64 = 640;

const PATIENCE: Duration = Duration::from_secs(30);

/// How long a question to a node waits for its answer.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);

/// The longest answer that it reads, in bytes.
const ANSWER_BYTES_MAX: u32 = 1 << 20;

/// The stranger: its key, its run, and its side of the network.
pub(super) struct Stranger {
    /// The key that signs its messages.
    pub(super) key: Keypair,
    /// The run for which it signs messages.
    pub(super) run: RunId,
    pub(super) side: Side,
    line: Option<Stream>,
    /// Declared last: the connections end before the runtime that carries them.
    runtime: Runtime,
}

/// Its swarm, topics and connections.
pub(super) struct Side {
    pub(super) swarm: Swarm<Behaviour>,
    /// Topic of heartbeats, and of everything else.
    pub(super) beat: IdentTopic,
    pub(super) control: IdentTopic,
    /// All gossip that reached it, in order.
    pub(super) heard: Vec<Heard>,
    /// The newest connection to each node.
    connections: Vec<(PeerId, ConnectionId)>,
    /// Events during the opening of a stream, which are still to be read.
    unseen: VecDeque<Event>,
}

/// One gossiped message, unopened.
#[derive(Clone)]
pub(super) struct Heard {
    /// Whether it came on the topic of heartbeats.
    pub(super) beat: bool,
    /// The bytes as they came, with their count of repeats.
    pub(super) bytes: Vec<u8>,
}

#[derive(NetworkBehaviour)]
pub(super) struct Behaviour {
    identify: identify::Behaviour,
    gossip: gossipsub::Behaviour,
    table: kad::Behaviour<MemoryStore>,
    streams: streams::Behaviour,
}

/// An event of the stranger's swarm.
pub(super) type Event = SwarmEvent<BehaviourEvent>;

impl Stranger {
    /// A peer that knows the run of `node` and announces this version.
    pub(super) fn new(seed: u8, node: &mut Process, version: &str) -> Self {
        Self::speaking(seed, node, version, &[CONTROL, RING, FETCH])
    }

    /// The same, which takes streams of these protocols.
    pub(super) fn speaking(
        seed: u8,
        node: &mut Process,
        version: &str,
        protocols: &[StreamProtocol],
    ) -> Self {
        let mut threads = runtime::Builder::new_multi_thread();
        let runtime = threads.worker_threads(1).enable_all().build().unwrap();
        let run = run_of(node);
        let side = runtime.block_on(async { Side::new(seed, run, version, protocols) });
        Self { key: Keypair::from_seed(&[seed; 32]), run, side, line: None, runtime }
    }

    /// A peer that looks like a member of the run to `node`.
    pub(super) fn enter(seed: u8, node: &mut Process) -> Self {
        let mut stranger = Self::new(seed, node, VERSION);
        stranger.meet(node);
        stranger
    }

    /// Dials a node, and waits until gossip flows.
    pub(super) fn meet(&mut self, node: &mut Process) {
        let host = self.dial(node);
        let beat = self.side.beat.hash();
        let (mut subscribed, mut greeted) = (false, false);
        self.until("a welcome", |event| {
            match event {
                SwarmEvent::Behaviour(BehaviourEvent::Gossip(gossipsub::Event::Subscribed {
                    peer_id,
                    topic,
                })) => subscribed |= *peer_id == host && *topic == beat,
                SwarmEvent::Behaviour(BehaviourEvent::Streams(incoming)) => {
                    greeted |= incoming.peer == host && incoming.protocol == CONTROL;
                }
                _ => {}
            }
            (subscribed && greeted).then_some(())
        });
    }

    /// Dials a node; the connection comes later.
    pub(super) fn dial(&mut self, node: &mut Process) -> PeerId {
        let address = address_of(node);
        let Self { side, runtime, .. } = self;
        runtime.block_on(async { side.swarm.dial(address.clone()) }).unwrap();
        address::peer(&address).unwrap()
    }

    /// Lets an entry point name it to those who look for peers of the run.
    pub(super) fn announce(&mut self, entry: &str) {
        let address: Multiaddr = entry.parse().unwrap();
        let host = address::peer(&address).unwrap();
        let own = self.until("an address", |event| match event {
            SwarmEvent::NewListenAddr { address, .. } => Some(address.clone()),
            _ => None,
        });
        let key = [b"intellect-node 1 find".as_slice(), self.run.as_bytes()].concat();
        let key = RecordKey::new(blake3::hash(&key).as_bytes());
        let Self { side, runtime, .. } = self;
        runtime.block_on(async {
            side.swarm.add_external_address(own);
            let table = &mut side.swarm.behaviour_mut().table;
            table.add_address(&host, address);
            table.start_providing(key).unwrap();
        });
        self.until("being noted", |event| match event {
            SwarmEvent::Behaviour(BehaviourEvent::Table(kad::Event::OutboundQueryProgressed {
                result,
                ..
            })) => matches!(result, kad::QueryResult::StartProviding(Ok(_))).then_some(()),
            _ => None,
        });
    }

    /// Opens as many streams for manifests as a bootstrap accepts, and says nothing on them.
    pub(super) fn occupy(&mut self, entry: &str) {
        let address: Multiaddr = entry.parse().unwrap();
        let host = address::peer(&address).unwrap();
        let Self { side, runtime, .. } = self;
        runtime.block_on(async { side.swarm.dial(address) }).unwrap();
        let opened = |event: &Event| match event {
            SwarmEvent::ConnectionEstablished { peer_id, connection_id, .. } => {
                (*peer_id == host).then_some(*connection_id)
            }
            _ => None,
        };
        let connection = self.until("the bootstrap", opened);
        let streams = &mut self.side.swarm.behaviour_mut().streams;
        let openings: Vec<_> =
            (0..100).map(|_| streams.open(host, connection, manifest::PROTOCOL)).collect();
        self.spawn(async move {
            let _silent = futures::future::join_all(openings).await;
            std::future::pending::<()>().await;
        });
        self.live(Duration::from_secs(1));
    }

    /// Its name, as events of nodes write it.
    pub(super) fn name(&self) -> String {
        self.side.swarm.local_peer_id().to_string()
    }

    /// A message of its own, signed for its run.
    pub(super) fn seal(&self, message: Message) -> Verified<Message> {
        wire::seal(&self.key, &self.run, message)
    }

    /// Publishes bytes among the heartbeats, or else among all other messages.
    pub(super) fn gossip(&mut self, beat: bool, bytes: Vec<u8>) {
        let Self { side, runtime, .. } = self;
        runtime.block_on(async { side.publish(beat, bytes) });
    }

    /// Sends a message to `node` alone, as a frame.
    pub(super) fn tell(&mut self, node: &mut Process, bytes: &[u8]) {
        let framed = [&u32::try_from(bytes.len()).unwrap().to_le_bytes(), bytes].concat();
        self.write(node, &framed);
    }

    /// Writes bytes to its control stream to `node`, unchanged.
    pub(super) fn write(&mut self, node: &mut Process, bytes: &[u8]) {
        let host = address::peer(&address_of(node)).unwrap();
        let Self { side, runtime, line, .. } = self;
        runtime.block_on(async {
            if line.is_none() {
                *line = timeout(PATIENCE, side.open(host, CONTROL)).await.expect("a stream");
            }
            let Some(line) = line else { return };
            // Fails once it has been dropped, for which the story looks.
            let _ = timeout(PATIENCE, async {
                line.write_all(bytes).await?;
                line.flush().await
            })
            .await;
        });
    }

    /// Lives on until `node` has written an event for which `accepts` is true.
    pub(super) fn sees(
        &mut self,
        node: &mut Process,
        what: &str,
        accepts: impl Fn(&Value) -> bool,
    ) -> Value {
        let start = Instant::now();
        loop {
            self.live(Duration::from_millis(50));
            if let Some(event) = node.events().unwrap().into_iter().find(&accepts) {
                return event;
            }
            assert!(start.elapsed() < PATIENCE, "{what}: {:#?}", rare_events(node));
        }
    }

    /// Moves its swarm for this long.
    pub(super) fn live(&mut self, length: Duration) {
        let Self { side, runtime, .. } = self;
        let life = async {
            loop {
                side.next().await;
            }
        };
        let _: Result<(), _> = runtime.block_on(async { timeout(length, life).await });
    }

    /// Waits until a node has closed the connection, then checks that it accepts no new one.
    pub(super) fn expect_to_be_kept_out(&mut self, node: &mut Process) {
        let host = address::peer(&address_of(node)).unwrap();
        let gone = |event: &Event| match event {
            SwarmEvent::ConnectionClosed { peer_id, num_established: 0, .. } => {
                (*peer_id == host).then_some(())
            }
            SwarmEvent::OutgoingConnectionError { peer_id, .. } => {
                (*peer_id == Some(host)).then_some(())
            }
            _ => None,
        };
        // Streams that the node opened before it dropped this peer may still arrive.
        if self.side.swarm.is_connected(&host) {
            self.until("being thrown out", gone);
        }
        self.line = None;
        self.dial(node);
        self.until("being kept out", |event| match event {
            SwarmEvent::Behaviour(BehaviourEvent::Streams(incoming)) if incoming.peer == host => {
                panic!("it is welcome")
            }
            other => gone(other),
        });
    }

    /// Lives on until an event comes that `pick` takes.
    pub(super) fn until<T>(&mut self, what: &str, mut pick: impl FnMut(&Event) -> Option<T>) -> T {
        let Self { side, runtime, .. } = self;
        let wait = async {
            loop {
                if let Some(picked) = pick(&side.next().await) {
                    return picked;
                }
            }
        };
        runtime.block_on(async { timeout(PATIENCE, wait).await }).expect(what)
    }

    /// The next event, if one comes within this time.
    pub(super) fn happens(&mut self, within: Duration) -> Option<Event> {
        let Self { side, runtime, .. } = self;
        runtime.block_on(async { timeout(within, side.next()).await.ok() })
    }

    /// Opens a stream to a node and writes to it; `None` if the node does not accept it any more.
    pub(super) fn open_and_write(
        &mut self,
        to: PeerId,
        protocol: StreamProtocol,
        bytes: &[u8],
    ) -> Option<Stream> {
        let Self { side, runtime, .. } = self;
        runtime.block_on(async {
            let mut stream = timeout(PATIENCE, side.open(to, protocol)).await.ok()??;
            stream.write_all(bytes).await.ok()?;
            stream.flush().await.ok()?;
            Some(stream)
        })
    }

    /// Asks a node on a stream of its own; `None` if no answer comes.
    pub(super) fn ask(
        &mut self,
        to: PeerId,
        protocol: StreamProtocol,
        question: &[u8],
    ) -> Option<Vec<u8>> {
        let Self { side, runtime, .. } = self;
        let exchange = async {
            let mut stream = side.open(to, protocol).await?;
            let answer = async {
                frame::write(&mut stream, question).await.ok()?;
                stream.close().await.ok()?;
                frame::read(&mut stream, ANSWER_BYTES_MAX).await.ok()?
            };
            side.meanwhile(answer).await
        };
        runtime.block_on(async { timeout(ANSWER_PATIENCE, exchange).await.ok()? })
    }

    /// Runs other work at the same time.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(work);
    }
}

impl Side {
    /// Must be called inside a runtime.
    fn new(seed: u8, run: RunId, version: &str, protocols: &[StreamProtocol]) -> Self {
        let key = identity::Keypair::ed25519_from_bytes([seed; 32]).unwrap();
        let (transport, _) = transport::build(&key, None).unwrap();
        let topic = |name| IdentTopic::new(format!("/intellect/1/{}/{name}", run.hex()));
        let (beat, control) = (topic("beat"), topic("ctl"));
        let config = gossipsub::ConfigBuilder::default()
            .validation_mode(ValidationMode::Anonymous)
            .message_id_fn(message_id)
            .max_transmit_size(128 * 1024)
            .build()
            .unwrap();
        let mut gossip = gossipsub::Behaviour::new(MessageAuthenticity::Anonymous, config).unwrap();
        for topic in [&beat, &control] {
            gossip.subscribe(topic).unwrap();
        }
        let me = key.public().to_peer_id();
        let behaviour = Behaviour {
            identify: identify::Behaviour::new(identify::Config::new(
                version.to_owned(),
                key.public(),
            )),
            gossip,
            table: kad::Behaviour::with_config(
                me,
                MemoryStore::new(me),
                kad::Config::new(discovery::KADEMLIA),
            ),
            streams: streams::Behaviour::new(protocols),
        };
        let mut swarm = Swarm::new(transport, behaviour, me, transport::swarm_config());
        swarm.listen_on("/ip4/127.0.0.1/tcp/0".parse().unwrap()).unwrap();
        let (heard, connections, unseen) = (Vec::new(), Vec::new(), VecDeque::new());
        Self { swarm, beat, control, heard, connections, unseen }
    }

    /// The next event of its swarm.
    pub(super) async fn next(&mut self) -> Event {
        match self.unseen.pop_front() {
            Some(event) => event,
            None => self.drive().await,
        }
    }

    /// Moves the swarm until an event comes.
    async fn drive(&mut self) -> Event {
        let event = self.swarm.select_next_some().await;
        match &event {
            SwarmEvent::ConnectionEstablished { peer_id, connection_id, .. } => {
                self.connections.push((*peer_id, *connection_id));
            }
            SwarmEvent::ConnectionClosed { connection_id, .. } => {
                self.connections.retain(|(_, id)| id != connection_id);
            }
            SwarmEvent::Behaviour(BehaviourEvent::Gossip(gossipsub::Event::Message {
                message,
                ..
            })) => {
                let beat = message.topic == self.beat.hash();
                self.heard.push(Heard { beat, bytes: message.data.clone() });
            }
            _ => {}
        }
        event
    }

    pub(super) fn publish(&mut self, beat: bool, bytes: Vec<u8>) {
        let topic = if beat { &self.beat } else { &self.control };
        // A stranger that has been dropped has no peer to send to, for which the story looks.
        let _ = self.swarm.behaviour_mut().gossip.publish(topic.clone(), bytes);
    }

    /// Opens a stream on the oldest connection to a node.
    async fn open(&mut self, to: PeerId, protocol: StreamProtocol) -> Option<Stream> {
        let (_, connection) = *self.connections.iter().find(|(peer, _)| *peer == to)?;
        let opening = self.swarm.behaviour_mut().streams.open(to, connection, protocol);
        self.meanwhile(opening).await.ok()?.ok()
    }

    /// Moves the swarm until other work is done. Its events are read later.
    async fn meanwhile<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return done,
                event = self.drive() => self.unseen.push_back(event),
            }
        }
    }
}

/// The next heartbeat of an honest node that the stranger hears, with its author.
pub(super) fn next_beat(stranger: &mut Stranger) -> (Name, Heartbeat) {
    beat_within(stranger, PATIENCE).expect("no heartbeat in 30 s")
}

/// The same, or `None`: no peer sends anything to a stranger that was dropped.
pub(super) fn beat_within(
    stranger: &mut Stranger,
    patience: Duration,
) -> Option<(Name, Heartbeat)> {
    let seen = stranger.side.heard.len();
    let until = Instant::now() + patience;
    while Instant::now() < until {
        stranger.live(Duration::from_millis(50));
        let run = stranger.run;
        let new = stranger.side.heard.iter().skip(seen).rev().filter(|heard| heard.beat);
        let opened = new.filter_map(|heard| wire::open_gossip(&run, &heard.bytes).ok());
        for message in opened {
            if let Message::Heartbeat(beat) = message.body() {
                return Some((message.author(), beat.clone()));
            }
        }
    }
    None
}

/// The name of a peer in libp2p, by which it is dialled and asked.
pub(super) fn host_of(peer: &Name) -> PeerId {
    base58::encode(peer).parse().unwrap()
}

/// The message id that nodes use, so that both sides agree on what is wanted.
fn message_id(message: &gossipsub::Message) -> MessageId {
    let topic = message.topic.as_str().as_bytes();
    let length = u64::try_from(topic.len()).unwrap().to_le_bytes();
    let bytes = [length.as_slice(), topic, &message.data].concat();
    MessageId::new(blake3::hash(&bytes).as_bytes())
}

/// The address at which a node listens.
fn address_of(node: &mut Process) -> Multiaddr {
    let event = node.wait_for(PATIENCE, |event| event["event"] == "listening").unwrap();
    event["addresses"][0].as_str().unwrap().parse().unwrap()
}

/// The run that a node has started.
fn run_of(node: &mut Process) -> RunId {
    let event = node.wait_for(PATIENCE, |event| event["run"].is_string()).unwrap();
    RunId::from_hex(event["run"].as_str().unwrap()).unwrap()
}

/// What a failed story shows: all events of a node but its routine ones.
fn rare_events(node: &Process) -> Vec<String> {
    let daily = ["ready", "roster", "committed"];
    let events = node.events().unwrap();
    let rare = events.iter().filter(|e| !daily.iter().any(|kind| e["event"] == **kind));
    rare.map(ToString::to_string).collect()
}
