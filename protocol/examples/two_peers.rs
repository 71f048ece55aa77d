//! Two peers found a run and commit two epochs, driven by hand: an
//! example of how to use this crate.
//!
//!     cargo run --release -p intellect-protocol --example two_peers
//!
//! A peer is a [`State`] without clock, socket or thread. Its caller calls `handle` with what
//! happened, carries out the outputs in order, and calls again at `deadline`. Here the clock is a
//! number, the network a queue of bytes, and the model four numbers: one peer trains them towards
//! 1, the other towards −1, with three times the tokens. Their agreed average moves towards −0.5.
#![expect(clippy::print_stdout, reason = "a reader wants to see what happens")]

use std::collections::BTreeMap;
use std::time::Duration;

use intellect_protocol::access::admit::Level;
use intellect_protocol::base::id::{Digest, LogId, PeerId, RunId};
use intellect_protocol::base::rule::Rules;
use intellect_protocol::base::sign::Keypair;
use intellect_protocol::base::time::Time;
use intellect_protocol::consensus::epoch::{self, Ring};
use intellect_protocol::consensus::sync;
use intellect_protocol::history::lineage::{Capacity, LocalPeer, Validator};
use intellect_protocol::history::log::Recovered;
use intellect_protocol::machine::event::Event;
use intellect_protocol::message::wire::{self, GOSSIP_BYTES_MAX};
use intellect_protocol::message::{Head, Loss, QuorumRule};
use intellect_protocol::peer::{Config, Input, Output, State};
use intellect_protocol::ring::codec::Codec;

const RUN: RunId = RunId([7; 32]);
const NUMBERS: usize = 4;
const TOKENS: [u64; 2] = [100, 300];

/// One peer, and what its node would store for it.
struct Peer {
    name: PeerId,
    machine: State,
    /// The agreed parameters θ, and the delta frozen for the open epoch.
    theta: [f32; NUMBERS],
    delta: [f32; NUMBERS],
    /// The bytes of updates, by digest.
    updates: BTreeMap<Digest, Vec<u8>>,
}

/// What is on its way to a peer: bytes from the other peer, or an input from its own node.
enum Due {
    Bytes(Vec<u8>),
    News(Input),
}

struct World {
    now_ms: u64,
    peers: Vec<Peer>,
    /// Ordered by time, and then by the order of sending.
    queue: BTreeMap<(u64, usize), (usize, Due)>,
    sent: usize,
    /// The peers that have opened the ring of a roster.
    rings: BTreeMap<Digest, Vec<usize>>,
}

fn peer(index: u8) -> Peer {
    let key = Keypair::from_seed(&[index; 32]);
    let (name, theta) = (key.peer(), [0.0; NUMBERS]);
    let config = Config {
        validator: Validator {
            run: RUN,
            key,
            peers_min: 2,
            quorum: QuorumRule::Available,
            elements: 1,
            capacity: Capacity::Counted(125),
            level: Level::Open,
            organiser: PeerId([9; 32]),
            rules: Rules::ALL,
        },
        me: LocalPeer { peer: name, log: LogId([index; 16]), incarnation: 1 },
        epoch: epoch::Config {
            ready_grace: Duration::from_secs(30),
            update_bytes: Codec::F32.encoded_bytes(NUMBERS) as u64,
            credentials: epoch::Credentials::default(),
        },
        sync: sync::Config {
            genesis: state_digest(&theta, &Digest::ZERO),
            founders: Vec::new(),
            replay_max: 0,
            undo_max: 64,
            undo_time: sync::UNDO_TIME,
            unix: 0,
            follow: None,
            notices: Vec::new(),
        },
        heartbeat: Duration::from_millis(500),
        minority_grace: Duration::from_secs(8),
        recovered: Recovered::default(),
    };
    let machine = State::new(Time::ZERO, config);
    Peer { name, machine, theta, delta: theta, updates: BTreeMap::new() }
}

/// The digest on which both must agree: of the parameters, and of the receipt that led there.
fn state_digest(theta: &[f32], r: &Digest) -> Digest {
    let numbers = theta.iter().flat_map(|value| value.to_le_bytes());
    Digest::derive("two_peers state", &numbers.chain(r.0).collect::<Vec<u8>>())
}

impl World {
    fn send(&mut self, delay_ms: u64, to: usize, due: Due) {
        self.sent += 1;
        self.queue.insert((self.now_ms + delay_ms, self.sent), (to, due));
    }

    /// Trains for a tenth of a second: half the way to this peer's own target.
    fn train(&mut self, who: usize) {
        let liked = [1.0, -1.0][who];
        let peer = &mut self.peers[who];
        peer.delta = peer.theta.map(|value| (value - liked) / 2.0);
        let trained = Input::Trained { tokens: TOKENS[who], norm: 1.0, loss: Loss::NONE };
        self.send(100, who, Due::News(trained));
    }

    /// Gives one input to a machine, and carries out its outputs.
    fn handle(&mut self, who: usize, input: Input) {
        let mut out = Vec::new();
        self.peers[who].machine.handle(Time(self.now_ms), input, &mut out);
        for output in out {
            self.apply(who, output);
        }
    }

    fn apply(&mut self, who: usize, output: Output) {
        let other = 1 - who;
        match output {
            // With two peers, gossip reaches the same one as a direct message.
            Output::Gossip(message) | Output::Send(_, message) => {
                self.send(1, other, Due::Bytes(wire::envelope(&message)));
            }
            Output::Train { .. } => self.train(who),
            Output::Ring(ring) => {
                let open = self.rings.entry(ring.roster).or_default();
                open.push(who);
                if open.len() == ring.members.len() {
                    self.reduce(&ring);
                }
            }
            Output::Apply(apply) => {
                let peer = &mut self.peers[who];
                let mut mean = [0.0; NUMBERS];
                let update = peer.updates.get(&apply.update).map(Vec::as_slice);
                if Codec::F32.decode(update.unwrap_or_default(), &mut mean).is_ok() {
                    peer.theta.iter_mut().zip(mean).for_each(|(theta, d)| *theta -= d);
                    let state = state_digest(&peer.theta, &apply.r);
                    self.send(1, who, Due::News(Input::Applied { state }));
                }
            }
            Output::Event(event) => self.tell(who, &event),
            Output::Fault(peer, fault) => println!("peer {who} says of {peer}: {fault}"),
            Output::Proven(fault, proof) => {
                println!("peer {who} proves of {}: {fault}", proof.author());
            }
            // Nothing is fetched, given up or left in this example; a node carries these out too.
            Output::Abandon(_) | Output::Left | Output::Restart => {}
            Output::Log(_) | Output::FetchUpdate(..) | Output::Ask(..) => {}
            Output::Fetch { .. } | Output::Replay(_) => {}
        }
    }

    /// The ring: Σ w·Δ / Σ w over its members, which all get the result.
    /// A node sends frames instead.
    fn reduce(&mut self, ring: &Ring) {
        let total: u64 = ring.members.iter().map(|member| member.weight).sum();
        let mut mean = [0.0; NUMBERS];
        for member in &ring.members {
            let share = member.weight as f32 / total as f32;
            let known = self.peers.iter().find(|peer| peer.name == member.peer);
            let deltas = known.into_iter().flat_map(|peer| peer.delta);
            mean.iter_mut().zip(deltas).for_each(|(sum, delta)| *sum += share * delta);
        }
        let mut bytes = vec![0; Codec::F32.encoded_bytes(NUMBERS)];
        if Codec::F32.encode(&mean, &mut bytes).is_err() {
            return;
        }
        let (roster, update) = (ring.roster, Digest(*blake3::hash(&bytes).as_bytes()));
        for who in 0..self.peers.len() {
            self.peers[who].updates.insert(update, bytes.clone());
            let finished = Input::RingFinished { roster, update, send_rate: 1_000_000 };
            self.send(20, who, Due::News(finished));
        }
    }

    fn tell(&self, who: usize, event: &Event) {
        print!("{:>6} ms  peer {who} ", self.now_ms);
        match event {
            Event::PeerFound { who } => println!("finds {who}"),
            Event::Regroup { members, .. } => println!("founds the run with {members:?}"),
            Event::Roster { epoch, attempt, members, .. } => {
                println!("takes part in attempt {attempt} of epoch {epoch}: {members:?}");
            }
            Event::Committed(committed) => {
                let Head { epoch, tokens, state } = committed.head;
                let theta = self.peers[who].theta[0];
                println!("commits epoch {epoch}: {tokens} tokens, θ = {theta}, state {state}");
            }
            other => println!("{other:?}"),
        }
    }

    /// Lets one millisecond pass: what is due arrives, and a peer whose
    /// deadline has come is called.
    fn step(&mut self) {
        // A deadline lies in the future, so it is read before time passes.
        let deadlines = |peer: &Peer| peer.machine.deadline();
        let deadlines: Vec<Option<Time>> = self.peers.iter().map(deadlines).collect();
        self.now_ms += 1;
        while let Some(next) = self.queue.first_entry().filter(|e| e.key().0 <= self.now_ms) {
            match next.remove() {
                (who, Due::News(input)) => self.handle(who, input),
                // No unsigned message is accepted: `open` verifies it and returns its author.
                (who, Due::Bytes(bytes)) => match wire::open(&RUN, &bytes, GOSSIP_BYTES_MAX) {
                    Ok(message) => self.handle(who, Input::Message(message.into())),
                    Err(why) => println!("peer {who} drops a message: {why}"),
                },
            }
        }
        for (who, at) in deadlines.into_iter().enumerate() {
            if at.is_some_and(|at| at <= Time(self.now_ms)) {
                self.handle(who, Input::Tick);
            }
        }
    }
}

fn main() {
    let (queue, rings) = (BTreeMap::new(), BTreeMap::new());
    let mut world = World { now_ms: 0, peers: vec![peer(1), peer(2)], queue, sent: 0, rings };
    (0..2).for_each(|who| world.train(who));
    while world.now_ms < 60_000 && world.peers.iter().any(|peer| peer.machine.head().epoch < 2) {
        world.step();
    }
    let [one, other] = [0, 1].map(|who| world.peers[who].machine.head());
    println!("{} messages and news; one head: {}", world.sent, one == other);
}
