//! A stranger that lies as in the simulator, or does what takes real connections: it answers late
//! or falsely, keeps rings waiting, floods, and occupies sockets.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{ErrorKind, Read as _},
    net::{SocketAddr, TcpStream},
    sync::mpsc,
    time::{Duration, Instant},
};

use e2e::Process;
use futures::{AsyncReadExt as _, AsyncWriteExt as _};
use intellect_bootstrap::frame;
use intellect_protocol::{
    base::{
        base58,
        id::{Digest, LogId, PeerId},
        sign::Keypair,
    },
    message::{Heartbeat, Message, Report, Roster, Voter, wire},
    ring::{Cut, exchange::frame::PREAMBLE_BYTES},
};
use intellect_protocol_sim::liars::{self, Cue, Facts, Liar, Lie, Stand};
use libp2p::{Stream, StreamProtocol};

use super::{
    rogue::first_frame,
    run::name_of,
    stranger::{BehaviourEvent, CONTROL, Event, FETCH, RING, Stranger, VERSION, host_of},
};

/// How often a liar acts without a message, as in the simulator.
const LOOK: Duration = Duration::from_millis(250);

/// How long a node may take to say where it listens.
const PATIENCE: Duration = Duration::from_secs(30);

/// Protocol of pings, which libp2p's own behaviour would answer at once.
const PING: StreamProtocol = StreamProtocol::new("/ipfs/ping/1.0.0");
/// How late a ping is answered, as in the simulator: libp2p waits for 20 s.
const PONG_LATE: Duration = Duration::from_secs(19);

/// Bytes of a ring that a crawling member sends at a time, and the pause between two times.
const CRAWL_BYTES: usize = 4;
const CRAWL_PAUSE: Duration = Duration::from_millis(200);

/// Questions about its lineage that wait for their answers, and the longest that is read.
const QUESTIONS_MAX: usize = 16;
const QUESTION_BYTES_MAX: u32 = 1 << 10;

/// Silent connections to each node: as many as once kept every peer out of a bootstrap.
const SILENT: usize = 64;

const PINGS_LATE: &str = "answers pings late";
const NEVER_SENDS: &str = "never sends in a ring";
const CRAWLS: &str = "crawls in a ring";
const OCCUPIES: &str = "connects and says nothing";

/// Deeds of the simulator's liars, and the lie without which no peer would notice them. There is one
/// more, "serves no chunk", for which a stranger would need a chunk that a ring has finished.
static DEEDS: [(&str, &str); 6] = [
    (PINGS_LATE, "accepts and does no more"),
    (NEVER_SENDS, "accepts and does no more"),
    (CRAWLS, "accepts and does no more"),
    ("forges chains", "tells of a greater head"),
    ("forges links", "tells of a greater head"),
    ("leads nowhere", "tells of a greater head"),
];

/// Many keys that send heartbeats at the position of an honest node.
struct Flood {
    way: &'static str,
    keys: u16,
    /// Heartbeats that are sent every [`LOOK`], by one key after the other.
    at_once: u16,
    /// What they say that they weigh: never the same in two heartbeats, or always this.
    weight: Option<u64>,
    /// Whether a question of the greatest length goes with each.
    long: bool,
}

/// The floods by what each is to exhaust: verification, bandwidth, the attention for news, and the
/// room for peers that are heard. The last one stays below what a neighbour may pass on.
static FLOODS: [Flood; 4] = [
    Flood {
        way: "floods with heartbeats",
        keys: 400,
        at_once: 400,
        weight: Some(640),
        long: false,
    },
    Flood { way: "floods with long messages", keys: 8, at_once: 8, weight: Some(640), long: true },
    Flood { way: "floods with news", keys: 1_000, at_once: 300, weight: None, long: false },
    Flood {
        way: "fills the table of peers",
        keys: 1_100,
        at_once: 4,
        weight: Some(640),
        long: false,
    },
];

/// All ways in which a stranger does harm.
pub(super) fn ways() -> impl Iterator<Item = &'static str> {
    let deeds = DEEDS.iter().map(|(way, _)| *way);
    liars::spoken().chain(deeds).chain(FLOODS.iter().map(|flood| flood.way)).chain([OCCUPIES])
}

/// A stranger with one way to lie.
pub(super) struct Attacker {
    /// The name of the way, as in the table.
    way: &'static str,
    /// Its connections to all nodes.
    stranger: Stranger,
    /// The behaviour of the simulator; `None` for a flood.
    liar: Option<Liar>,
    /// Counts its messages: a repeat has another number, so that gossip carries it again.
    repeats: u32,
    /// The positions of the honest nodes, by their heartbeats.
    stands: BTreeMap<PeerId, Stand>,
    /// The last heartbeat of an honest node, which a flood imitates.
    newest: Option<Heartbeat>,
    /// The members of the last roster that was gossiped.
    voters: Vec<Voter>,
    /// The nodes and the ports at which they listen. Only their messages are read.
    honest: BTreeMap<PeerId, u16>,
    /// Lies that are to be sent later, and when.
    later: Vec<(Instant, Lie)>,
    /// The keys of a flood, which nobody has heard of before.
    keys: Vec<Keypair>,
    /// The key of the flood that speaks next.
    next: usize,
    /// Parameters of the model, which a ring averages.
    parameters: usize,
    /// Questions about its lineage that have been read, and the streams for their answers.
    questions: mpsc::Receiver<(Vec<u8>, Stream)>,
    asked: mpsc::SyncSender<(Vec<u8>, Stream)>,
    /// Streams of its predecessors in rings, which it leaves open.
    rings: Vec<Stream>,
    /// The last ring in which it crawls.
    crawls: Option<Digest>,
    /// Silent connections, by the port of the node.
    silent: Vec<(u16, TcpStream)>,
}

impl Attacker {
    pub(super) fn enter(way: &'static str, nodes: &mut [Process]) -> Self {
        let mut protocols = vec![CONTROL, RING, FETCH];
        if way == PINGS_LATE {
            protocols.push(PING);
        }
        let mut stranger = Stranger::speaking(210, &mut nodes[0], VERSION, &protocols);
        stranger.meet(&mut nodes[0]);
        for node in nodes.iter_mut().skip(1) {
            stranger.dial(node);
        }
        let started = nodes[0].wait_for(PATIENCE, |event| event["event"] == "started").unwrap();
        let said = DEEDS.iter().find(|(deed, _)| *deed == way).map_or(way, |(_, said)| *said);
        let flood = FLOODS.iter().find(|flood| flood.way == way);
        let (asked, questions) = mpsc::sync_channel(QUESTIONS_MAX);
        let key = |number: u16| {
            let mut seed = [0xcc; 32];
            seed[..2].copy_from_slice(&number.to_le_bytes());
            Keypair::from_seed(&seed)
        };
        Self {
            way,
            stranger,
            liar: Liar::named(said, 1),
            repeats: 0,
            stands: BTreeMap::new(),
            newest: None,
            voters: Vec::new(),
            honest: nodes.iter_mut().map(|node| (peer_of(node), port_of(node))).collect(),
            later: Vec::new(),
            keys: (0..flood.map_or(0, |flood| flood.keys)).map(key).collect(),
            next: 0,
            parameters: usize::try_from(started["parameters"].as_u64().unwrap()).unwrap(),
            questions,
            asked,
            rings: Vec::new(),
            crawls: None,
            silent: Vec::new(),
        }
    }

    /// Its name, as events of nodes write it.
    pub(super) fn name(&self) -> String {
        self.stranger.name()
    }

    /// Hears and lies for so long. It acts on each message, and every [`LOOK`] without one.
    pub(super) fn attack(&mut self, length: Duration) {
        let end = Instant::now() + length;
        let mut look = Instant::now();
        while Instant::now() < end {
            self.live(Duration::from_millis(5));
            for message in self.hear() {
                self.act(Cue::Hears(&message));
                if let (CRAWLS, Message::Roster(roster)) = (self.way, &message) {
                    self.crawl(roster);
                }
            }
            while let Ok((question, stream)) = self.questions.try_recv() {
                self.answer(&question, stream);
            }
            if Instant::now() >= look {
                look = Instant::now() + LOOK;
                self.look();
            }
            let now = Instant::now();
            for (_, lie) in self.later.extract_if(.., |(at, _)| *at <= now).collect::<Vec<_>>() {
                self.say(lie.author, lie.message);
            }
        }
    }

    /// What it does without a message.
    fn look(&mut self) {
        if self.liar.is_some() {
            self.act(Cue::Look);
        } else if let Some(flood) = FLOODS.iter().find(|flood| flood.way == self.way) {
            self.flood(flood);
        } else {
            self.occupy();
        }
    }

    /// Moves its swarm for this long, and takes the streams that nodes open.
    fn live(&mut self, length: Duration) {
        let until = Instant::now() + length;
        while Instant::now() < until {
            let left = until.saturating_duration_since(Instant::now());
            let Some(event) = self.stranger.happens(left) else { return };
            if let Event::Behaviour(BehaviourEvent::Streams(incoming)) = event {
                self.take(incoming.protocol, incoming.stream);
            }
        }
    }

    /// Takes a stream, if its way needs one; all others are dropped.
    fn take(&mut self, protocol: StreamProtocol, mut stream: Stream) {
        let in_rings = [NEVER_SENDS, CRAWLS].contains(&self.way);
        if protocol == PING {
            self.stranger.spawn(answer_late(stream));
        } else if protocol == RING && in_rings {
            self.rings.push(stream);
        } else if protocol == FETCH && DEEDS.iter().any(|(deed, _)| *deed == self.way) {
            let asked = self.asked.clone();
            self.stranger.spawn(async move {
                if let Ok(Some(question)) = frame::read(&mut stream, QUESTION_BYTES_MAX).await {
                    // What comes while so many wait is not answered.
                    let _ = asked.try_send((question, stream));
                }
            });
        }
    }

    /// Answers a question as an honest node does, and changes the answer as the simulator's liar.
    fn answer(&mut self, question: &[u8], mut stream: Stream) {
        let (liar, honest) = (Liar::named(self.way, 1), self.honest.keys().next().map(host_of));
        let (Some(liar), Some(honest)) = (liar, honest) else { return };
        let answer = self.stranger.ask(honest, FETCH, question);
        let Some(mut answer) = answer.and_then(|bytes| wire::open_answer(&bytes)) else { return };
        liar.forge(&mut answer);
        self.stranger.spawn(async move {
            if frame::write(&mut stream, &wire::answer(&answer)).await.is_ok() {
                // Without this the answer would be lost with the stream.
                let _ = stream.close().await;
            }
        });
    }

    /// The messages gossiped since the last call; also records the positions of their authors.
    fn hear(&mut self) -> Vec<Message> {
        let run = self.stranger.run;
        let new = std::mem::take(&mut self.stranger.side.heard);
        let opened = new.iter().filter_map(|heard| wire::open_gossip(&run, &heard.bytes).ok());
        let mut said = Vec::new();
        for message in opened {
            if !self.honest.contains_key(&message.author()) {
                continue;
            }
            match message.body() {
                Message::Heartbeat(beat) => self.note(message.author(), beat),
                Message::Roster(roster) => {
                    self.voters = roster.voters();
                    said.push(message.body().clone());
                }
                other => said.push(other.clone()),
            }
        }
        said
    }

    fn note(&mut self, author: PeerId, beat: &Heartbeat) {
        self.newest = Some(beat.clone());
        let stand = Stand {
            voter: Voter { peer: author, log: beat.log },
            incarnation: beat.incarnation,
            head: beat.head,
            series: beat.series,
            voters: self.voters.clone(),
            ready: beat.ready,
            lies: false,
        };
        self.stands.insert(author, stand);
    }

    fn act(&mut self, cue: Cue<'_>) {
        let Some(liar) = &mut self.liar else { return };
        let stands: Vec<Stand> = self.stands.values().cloned().collect();
        let me = Voter { peer: self.stranger.key.peer(), log: LogId([9; 16]) };
        let facts = Facts { run: self.stranger.run, me, is_stranger: true, stands: &stands };
        let (lies, _) = liar.act(&facts, cue);
        let now = Instant::now();
        // A heartbeat goes to all peers here, so one is enough.
        let mut beating = BTreeSet::new();
        for lie in lies {
            let beats = matches!(lie.message, Message::Heartbeat(_));
            if !beats || beating.insert(lie.author) {
                self.later.push((now + Duration::from_millis(lie.delay_ms), lie));
            }
        }
    }

    /// Sends a lie to all nodes. A fresh key of the behaviours is the seed of a key pair here,
    /// since real messages need a real signature.
    fn say(&mut self, author: PeerId, message: Message) {
        let own = &self.stranger.key;
        let fresh = (author != own.peer()).then(|| Keypair::from_seed(&author.0));
        let beat = matches!(message, Message::Heartbeat(_));
        self.repeats += 1;
        let sealed = wire::seal(fresh.as_ref().unwrap_or(own), &self.stranger.run, message);
        self.stranger.gossip(beat, wire::gossip(self.repeats, &sealed));
    }

    /// Begins to send in a ring that names it, a few bytes at a time.
    fn crawl(&mut self, roster: &Roster) {
        let (run, me) = (self.stranger.run, self.stranger.key.peer());
        let digest = wire::roster_digest(&run, roster);
        let ring: Vec<PeerId> = roster.ring().map(|member| member.peer).collect();
        let Some(position) = ring.iter().position(|peer| *peer == me) else { return };
        if self.crawls.replace(digest) == Some(digest) {
            return;
        }
        let successor = host_of(&ring[(position + 1) % ring.len()]);
        let cut = Cut::new(self.parameters, ring.len());
        let mut bytes = first_frame(run, digest, position, cut, 0.0);
        let rest = bytes.split_off(PREAMBLE_BYTES);
        let Some(mut stream) = self.stranger.open_and_write(successor, RING, &bytes) else {
            return;
        };
        self.stranger.spawn(async move {
            for part in rest.chunks(CRAWL_BYTES) {
                if stream.write_all(part).await.is_err() || stream.flush().await.is_err() {
                    return;
                }
                tokio::time::sleep(CRAWL_PAUSE).await;
            }
        });
    }

    /// Sends the next heartbeats of a flood.
    fn flood(&mut self, flood: &Flood) {
        let Some(newest) = self.newest.clone() else { return };
        let run = self.stranger.run;
        let present: Vec<PeerId> = match flood.long {
            true => self.keys.iter().map(Keypair::peer).cycle().take(1_900).collect(),
            false => Vec::new(),
        };
        for _ in 0..flood.at_once {
            let key = &self.keys[self.next % self.keys.len()];
            self.next += 1;
            self.repeats += 1;
            let (count, log) = (self.repeats.into(), LogId([9; 16]));
            let ready = flood.weight.unwrap_or_else(|| 1 + u64::from(self.repeats) % 7);
            let beat = Heartbeat { count, log, incarnation: 1, ready, ..newest.clone() };
            let sealed = wire::seal(key, &run, Message::Heartbeat(beat));
            self.stranger.gossip(true, wire::gossip(self.repeats, &sealed));
            if flood.long {
                let (series, present) = (newest.series, present.clone());
                let report =
                    Report { series, attempt: 1, chunks: Vec::new(), ready: None, present };
                let sealed = wire::seal(key, &run, Message::Report(report));
                self.stranger.gossip(false, wire::gossip(self.repeats, &sealed));
            }
        }
    }

    /// Opens silent connections to each node, again where it has closed them.
    fn occupy(&mut self) {
        self.silent.retain(|(_, stream)| is_open(stream));
        for port in self.honest.values().copied() {
            let open = self.silent.iter().filter(|(other, _)| *other == port).count();
            for _ in open..SILENT {
                let target = SocketAddr::from(([127, 0, 0, 1], port));
                let Ok(stream) = TcpStream::connect_timeout(&target, LOOK) else { break };
                stream.set_nonblocking(true).unwrap();
                self.silent.push((port, stream));
            }
        }
    }
}

/// Answers the pings of a stream, each much later.
async fn answer_late(mut stream: Stream) {
    let mut ping = [0; 32];
    while stream.read_exact(&mut ping).await.is_ok() {
        tokio::time::sleep(PONG_LATE).await;
        if stream.write_all(&ping).await.is_err() || stream.flush().await.is_err() {
            return;
        }
    }
}

/// Whether the other side has not closed it; bytes that it sends are thrown away.
fn is_open(stream: &TcpStream) -> bool {
    let mut stream = stream;
    match stream.read(&mut [0; 1024]) {
        Ok(bytes) => bytes > 0,
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    }
}

fn peer_of(node: &Process) -> PeerId {
    base58::decode(&name_of(node).unwrap()).unwrap()
}

/// The port at which a node listens.
fn port_of(node: &mut Process) -> u16 {
    let event = node.wait_for(PATIENCE, |event| event["event"] == "listening").unwrap();
    let address = event["addresses"][0].as_str().unwrap();
    address.split('/').nth(4).unwrap().parse().unwrap()
}
