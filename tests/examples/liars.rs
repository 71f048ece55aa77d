//! The cost of one liar to six honest nodes: each way to lie for a
//! while, after an equally long calm.
//!
//!     cargo build --release && cargo run --release -p e2e --example liars [seconds] [words of a way …]
//!
//! The liar is a stranger with a real connection to every node. It says that it is
//! Ready and lies as in the simulator (`protocol/sim/src/liars.rs`), or floods. Each
//! way gets a new run. The table has
//!
//! - pace: epochs committed under attack / epochs committed in the calm before;
//! - CPU: use of the six processes under attack − in the calm, per process and second;
//! - named: how many of the six reported a fault of the liar;
//! - harmed: faults and losses that an honest node reported of an honest one. There must be none.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a campaign prints its results")]
#![allow(clippy::expect_used, clippy::panic, reason = "as in the stories, whose stranger this is")]
#![allow(dead_code, reason = "the stories play more with a stranger")]

#[path = "../tests/e2e/hostile/stranger.rs"]
mod stranger;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use e2e::{Process, Programs, Story};
use intellect_protocol::{
    base::{
        base58,
        id::{LogId, PeerId},
        sign::Keypair,
    },
    message::{Heartbeat, Message, Query, Voter, wire},
};
use intellect_protocol_sim::liars::{self, Cue, Facts, Liar, Lie, Stand};
use stranger::Stranger;

/// Honest nodes, all of them founders. The liar is the seventh peer and no voter at the founding.
const PEERS: usize = 6;
/// How often a liar acts without a message, as in the simulator.
const LOOK: Duration = Duration::from_millis(250);
/// The least pace, as a share of the calm one. It leaves room for the noise of a busy machine.
const PACE_MIN: f64 = 0.8;
/// How long a founding and two epochs may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// The names of the floods in the table.
const FLOODS: [&str; 2] = ["floods with heartbeats", "floods with long messages"];

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let seconds = arguments.next().map_or(Ok(60), |text| text.parse::<u64>())?;
    let wanted: Vec<String> = arguments.collect();
    let chosen =
        |way: &&str| wanted.is_empty() || wanted.iter().any(|words| way.contains(&**words));
    println!(
        "{:<36} {:>5} {:>6} {:>5} {:>9} {:>6} {:>6}",
        "way", "calm", "attack", "pace", "CPU ms/s", "named", "harmed"
    );
    let mut failed = Vec::new();
    for way in liars::spoken().chain(FLOODS).filter(chosen) {
        let cost = play(way, Duration::from_secs(seconds))?;
        let pace = cost.attack as f64 / cost.calm.max(1) as f64;
        println!(
            "{way:<36} {:>5} {:>6} {:>4.0} % {:>9.1} {:>6} {:>6}",
            cost.calm,
            cost.attack,
            100.0 * pace,
            1_000.0 * cost.cpu,
            cost.named,
            cost.harmed
        );
        if pace < PACE_MIN || cost.harmed > 0 {
            failed.push(way);
        }
    }
    ensure!(
        failed.is_empty(),
        "below {:.0} % of the pace, or harmed: {failed:?}",
        100.0 * PACE_MIN
    );
    Ok(())
}

/// The result of one way to lie.
struct Cost {
    /// Epochs that the first node committed in the calm.
    calm: u64,
    /// Epochs that it committed in an equally long time under attack.
    attack: u64,
    /// CPU seconds that a process used more per second under attack.
    cpu: f64,
    /// How many nodes reported a fault of the liar.
    named: usize,
    /// How often a node reported a fault or a loss of an honest one.
    harmed: usize,
}

/// Plays one way in a run of its own: a calm of this length, and then an equally long attack.
fn play(way: &'static str, length: Duration) -> Result<Cost> {
    let story = Story::begin(Programs::built()?)?;
    let founders = format!("members.min_peers={PEERS}");
    let manifest = story.manifest("run.toml", &["members.heartbeat_ms=200", &founders])?;
    let (_bootstrap, entry) = story.start_bootstrap(&[manifest])?;
    let names: Vec<String> = (0..PEERS).map(|peer| format!("peer-{peer}")).collect();
    let start = |name: &String| story.start_node(name, &entry, &[]);
    let mut nodes = names.iter().map(start).collect::<Result<Vec<_>>>()?;
    for node in &mut nodes {
        node.wait_for_commit(2, PATIENCE)?;
    }
    let count = |nodes: &[Process]| -> Result<(u64, f64)> {
        let cpu = nodes.iter().map(Process::cpu_seconds).sum::<Result<f64>>()?;
        Ok((newest(&nodes[0])?, cpu))
    };
    let before = count(&nodes)?;
    std::thread::sleep(length);
    let between = count(&nodes)?;
    let mut attacker = Attacker::enter(way, &mut nodes);
    attacker.attack(length);
    let after = count(&nodes)?;
    let who = attacker.stranger.name();
    let honest: BTreeSet<String> = nodes.iter().map(name_of).collect::<Result<_>>()?;
    let (mut named, mut harmed) = (0, 0);
    for node in &nodes {
        let events = node.events()?;
        let told = |event: &&serde_json::Value| {
            ["fault", "peer-lost"].iter().any(|kind| event["event"] == **kind)
        };
        let about =
            |event: &serde_json::Value| event["who"].as_str().unwrap_or_default().to_owned();
        named += usize::from(
            events.iter().any(|event| event["event"] == "fault" && about(event) == who),
        );
        harmed += events.iter().filter(told).filter(|event| honest.contains(&about(event))).count();
    }
    let cpu = (after.1 - between.1) - (between.1 - before.1);
    let cpu = cpu / PEERS as f64 / length.as_secs_f64();
    Ok(Cost { calm: between.0 - before.0, attack: after.0 - between.0, cpu, named, harmed })
}

fn newest(node: &Process) -> Result<u64> {
    let events = node.events()?;
    let committed = events.iter().filter(|event| event["event"] == "committed");
    Ok(committed.filter_map(|event| event["epoch"].as_u64()).max().unwrap_or_default())
}

fn name_of(node: &Process) -> Result<String> {
    let events = node.events()?;
    Ok(events.first().and_then(|event| event["peer"].as_str()).unwrap_or_default().to_owned())
}

/// A stranger with one way to lie.
struct Attacker {
    /// The name of the way, as in the table.
    way: &'static str,
    /// Its connections to all nodes.
    stranger: Stranger,
    /// The behaviour of the simulator; `None` for a flood.
    liar: Option<Liar>,
    /// How many of the messages that came were read.
    read: usize,
    /// Counts its messages: a repeat has another number, so that gossip carries it again.
    repeats: u32,
    /// The positions of the honest nodes, by their heartbeats.
    stands: BTreeMap<PeerId, Stand>,
    /// The last heartbeat of an honest node, which a flood imitates.
    newest: Option<Heartbeat>,
    /// The members of the last roster that was gossiped.
    voters: Vec<Voter>,
    /// The keys of the nodes, whose messages alone are read.
    honest: BTreeSet<PeerId>,
    /// Lies that are to be sent later, and when.
    later: Vec<(Instant, Lie)>,
    /// The keys of a flood, which nobody has heard of before.
    flood: Vec<Keypair>,
}

impl Attacker {
    fn enter(way: &'static str, nodes: &mut [Process]) -> Self {
        let mut stranger = Stranger::enter(210, &mut nodes[0]);
        for node in nodes.iter_mut().skip(1) {
            stranger.dial(node);
        }
        let names = nodes.iter().map(|node| base58::decode(&name_of(node).unwrap()));
        let honest = names.map(Option::unwrap).collect();
        let key = |number: u16| {
            let mut seed = [0xcc; 32];
            seed[..2].copy_from_slice(&number.to_le_bytes());
            Keypair::from_seed(&seed)
        };
        let flood = (0..400).map(key).collect();
        Self {
            way,
            stranger,
            liar: Liar::named(way, 1),
            read: 0,
            repeats: 0,
            stands: BTreeMap::new(),
            newest: None,
            voters: Vec::new(),
            honest,
            later: Vec::new(),
            flood,
        }
    }

    /// Hears and lies for so long. It acts on each message, and every [`LOOK`] without one.
    fn attack(&mut self, length: Duration) {
        let end = Instant::now() + length;
        let mut look = Instant::now();
        while Instant::now() < end {
            self.stranger.live(Duration::from_millis(5));
            for message in self.hear() {
                self.act(Cue::Hears(&message));
            }
            if Instant::now() >= look {
                look = Instant::now() + LOOK;
                match self.liar {
                    Some(_) => self.act(Cue::Look),
                    None => self.flood(),
                }
            }
            let now = Instant::now();
            for (_, lie) in self.later.extract_if(.., |(at, _)| *at <= now).collect::<Vec<_>>() {
                self.say(lie.author, lie.message);
            }
        }
    }

    /// The messages gossiped since the last call; also records the positions of their authors.
    fn hear(&mut self) -> Vec<Message> {
        let run = self.stranger.run;
        let new = self.stranger.side.heard.iter().skip(self.read);
        let opened: Vec<_> =
            new.filter_map(|heard| wire::open_gossip(&run, &heard.bytes).ok()).collect();
        self.read = self.stranger.side.heard.len();
        let mut said = Vec::new();
        for message in opened {
            if !self.honest.contains(&message.author()) {
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

    /// Sends as much as its link carries, from many keys that all say that they are Ready.
    fn flood(&mut self) {
        let Some(newest) = self.newest.clone() else { return };
        let run = self.stranger.run;
        let long = self.way.contains("long");
        let keys: Vec<Keypair> =
            self.flood.iter().take(if long { 8 } else { 400 }).cloned().collect();
        let lost: Vec<PeerId> = self.flood.iter().map(Keypair::peer).cycle().take(1_900).collect();
        for key in &keys {
            self.repeats += 1;
            let (count, log) = (self.repeats.into(), LogId([9; 16]));
            let beat = Heartbeat { count, log, incarnation: 1, ready: 640, ..newest.clone() };
            let beat = Message::Heartbeat(beat);
            self.stranger.gossip(true, wire::gossip(self.repeats, &wire::seal(key, &run, beat)));
            if long {
                let query = Query { series: newest.series, attempt: 1, lost: lost.clone() };
                let sealed = wire::seal(key, &run, Message::Query(query));
                self.stranger.gossip(false, wire::gossip(self.repeats, &sealed));
            }
        }
    }
}
