//! A stranger that becomes a member: it keeps every rule of the protocol, by the protocol's own
//! state, but computes nothing. It votes for what the others have computed, and says that it has
//! the state that they have. If a story trains it, it sends numbers that are not finite into the
//! ring; else it is never Ready.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use e2e::Process;
use intellect_bootstrap::frame;
use intellect_protocol::{
    access::admit::Level,
    base::{
        id::{Digest, LogId, PeerId, RunId},
        rule::Rules,
        time::Time,
    },
    consensus::{
        epoch::{self, Durability, Ring},
        sync,
    },
    history::{
        lineage::{Capacity, LocalPeer, Validator},
        log::Recovered,
    },
    message::{Loss, Message, QuorumRule, Request, wire},
    peer::{Config, Input, Output, State},
    ring::{
        Cut, Half,
        codec::Codec,
        exchange::frame::{Kind, Label, Preamble},
    },
};
use libp2p::{Stream, gossipsub, swarm::SwarmEvent};
use tokio::sync::mpsc;

use super::stranger::{
    BehaviourEvent, CONTROL, Event, FETCH, RING, Stranger, WEIGHT, host_of, next_beat,
};

/// How long a node may take to start.
const PATIENCE: Duration = Duration::from_secs(60);

/// Heads that are remembered: a rogue is never so far behind that it needs an older one.
const HEADS_MAX: usize = 64;

/// The stranger with the state of an honest member.
pub(super) struct Rogue {
    pub(super) stranger: Stranger,
    pub(super) state: State,
    began: Instant,
    parameters: usize,
    /// Counts repeats, which tells them apart.
    repeats: u32,
    /// Messages that others send to it alone.
    inbox: mpsc::Receiver<Vec<u8>>,
    arrivals: mpsc::Sender<Vec<u8>>,
    /// Ring streams: kept open, so that no peer takes it for dead.
    rings: Vec<Stream>,
    /// The states that others have committed, by epoch.
    heads: BTreeMap<u64, Digest>,
    /// The epoch whose outer step is due, if one is.
    applying: Option<u64>,
    /// Rings into which it has sent such numbers.
    pub(super) poisoned: usize,
}

impl Rogue {
    /// A peer of an open run that has not begun and waits for it. All nodes know it. `peers_min` and
    /// `capacity` are those of the run.
    pub(super) fn join<'a>(
        seed: u8,
        nodes: impl IntoIterator<Item = &'a mut Process>,
        peers_min: usize,
        capacity: Capacity,
    ) -> Self {
        let mut nodes = nodes.into_iter();
        let one = nodes.next().unwrap();
        let mut stranger = Stranger::enter(seed, one);
        for node in nodes {
            stranger.dial(node);
        }
        let (_, beat) = next_beat(&mut stranger);
        assert_eq!(beat.head.epoch, 0, "the run has begun without it");
        let started = one.wait_for(PATIENCE, |event| event["event"] == "started").unwrap();
        let parameters = usize::try_from(started["parameters"].as_u64().unwrap()).unwrap();
        let key = stranger.key.clone();
        let config = Config {
            me: LocalPeer { peer: key.peer(), log: LogId([seed; 16]), incarnation: 1 },
            validator: Validator {
                run: stranger.run,
                key,
                peers_min,
                quorum: QuorumRule::Available,
                elements: parameters as u64,
                capacity,
                level: Level::Open,
                organiser: PeerId([9; 32]),
                rules: Rules::ALL,
            },
            epoch: epoch::Config {
                ready_grace: Duration::from_secs(30),
                update_bytes: u64::try_from(Codec::Int8.encoded_bytes(parameters)).unwrap(),
                credentials: epoch::Credentials::default(),
            },
            sync: sync::Config {
                genesis: beat.head.state,
                founders: Vec::new(),
                replay_max: 32,
                undo_max: 64,
                undo_time: Duration::ZERO,
                unix: 0,
                follow: None,
                notices: Vec::new(),
            },
            heartbeat: Duration::from_millis(200),
            minority_grace: Duration::from_secs(8),
            recovered: Recovered::default(),
        };
        let (arrivals, inbox) = mpsc::channel(256);
        Self {
            stranger,
            state: State::new(Time(0), config),
            began: Instant::now(),
            parameters,
            repeats: 0,
            inbox,
            arrivals,
            rings: Vec::new(),
            heads: BTreeMap::new(),
            applying: None,
            poisoned: 0,
        }
    }

    /// Says that it is Ready in the open epoch.
    pub(super) fn train(&mut self) {
        self.take_part(Input::Trained { tokens: WEIGHT, norm: 1.0, loss: Loss::NONE });
    }

    /// Takes part in the run for this long.
    pub(super) fn live(&mut self, length: Duration) {
        let until = Instant::now() + length;
        while Instant::now() < until {
            let mut heard = vec![Input::Tick];
            if let Some(event) = self.stranger.happens(Duration::from_millis(20)) {
                heard.extend(self.on_event(event));
            }
            while let Ok(bytes) = self.inbox.try_recv() {
                let opened = wire::open(&self.stranger.run, &bytes, wire::DIRECT_BYTES_MAX);
                heard.extend(opened.ok().map(|message| Input::Message(Arc::new(message))));
            }
            self.stranger.side.heard.clear();
            for input in heard {
                self.take_part(input);
            }
        }
    }

    fn on_event(&mut self, event: Event) -> Option<Input> {
        match event {
            SwarmEvent::Behaviour(BehaviourEvent::Gossip(gossipsub::Event::Message {
                message,
                ..
            })) => {
                let opened = wire::open_gossip(&self.stranger.run, &message.data);
                return Some(Input::Message(Arc::new(opened.ok()?)));
            }
            SwarmEvent::Behaviour(BehaviourEvent::Streams(incoming)) => {
                let (mut stream, arrivals) = (incoming.stream, self.arrivals.clone());
                if incoming.protocol == CONTROL {
                    self.stranger.spawn(async move {
                        while let Ok(Some(bytes)) = frame::read(&mut stream, LIMIT).await {
                            if arrivals.send(bytes).await.is_err() {
                                return;
                            }
                        }
                    });
                } else if incoming.protocol == RING {
                    self.rings.push(stream);
                }
            }
            _ => {}
        }
        None
    }

    /// Gives one input to the state, and then whatever follows from it.
    fn take_part(&mut self, input: Input) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            if let Input::Message(message) = &input
                && let Message::Heartbeat(beat) = message.body()
            {
                self.heads.insert(beat.head.epoch, beat.head.state);
                if self.heads.len() > HEADS_MAX {
                    self.heads.pop_first();
                }
            }
            let now = Time(u64::try_from(self.began.elapsed().as_millis()).unwrap());
            let mut out = Vec::new();
            self.state.handle(now, input, &mut out);
            for output in out {
                inputs.extend(self.carry_out(output));
            }
            inputs.extend(self.applied());
        }
    }

    /// Carries out one output, as far as that takes no computing. Returns the input that ends it.
    fn carry_out(&mut self, output: Output) -> Option<Input> {
        match output {
            Output::Gossip(message) | Output::Send(_, message) => {
                // It also gossips direct messages, as a peer without a stream does.
                self.repeats += 1;
                let beat = matches!(message.body(), Message::Heartbeat(_));
                self.stranger.gossip(beat, wire::gossip(self.repeats, &message));
                None
            }
            Output::Ring(ring) => {
                self.poison(&ring);
                None
            }
            Output::FetchUpdate(update, _) => Some(Input::UpdateHeld(update, Durability::Flushed)),
            Output::Apply(apply) => {
                self.applying = Some(apply.epoch);
                None
            }
            Output::Fetch { head, .. } => {
                self.applying = None;
                Some(Input::Loaded(head))
            }
            Output::Ask(peer, ask) => {
                let question = wire::request(&Request::Ask(ask));
                let answer = self.stranger.ask(host_of(&peer), FETCH, &question);
                let answer = answer.and_then(|bytes| wire::open_answer(&bytes));
                Some(Input::Answer(peer, answer.map(Arc::new)))
            }
            _ => None,
        }
    }

    /// The result of the outer step that is due, once another peer has named it.
    fn applied(&mut self) -> Option<Input> {
        let state = *self.heads.get(&self.applying?)?;
        self.applying = None;
        Some(Input::Applied { state })
    }

    /// The first frame that is due to the successor, well formed except for
    /// the scale of its first block.
    fn poison(&mut self, ring: &Ring) {
        let (position, count) = (ring.index, ring.members.len());
        let successor = host_of(&ring.members[(position + 1) % count].peer);
        let cut = Cut::new(self.parameters, count);
        let bytes = first_frame(self.stranger.run, ring.roster, position, cut, f32::NAN);
        if let Some(stream) = self.stranger.open_and_write(successor, RING, &bytes) {
            self.rings.push(stream);
            self.poisoned += 1;
        }
    }
}

/// What a member at this position sends first to its successor: which ring it is, and the first
/// frame that is due. All its numbers are zero, except for the scale of the first block.
pub(super) fn first_frame(
    run: RunId,
    roster: Digest,
    position: usize,
    cut: Cut,
    scale: f32,
) -> Vec<u8> {
    // The chunk that begins at this position has the same number.
    let chunk = position;
    let mut payload = vec![0; Codec::Int8.encoded_bytes(cut.frame(chunk, 0).len())];
    payload[..4].copy_from_slice(&scale.to_le_bytes());
    let small = |number: usize| u32::try_from(number).unwrap();
    let label = Label {
        length: small(payload.len()),
        roster,
        kind: Kind::Frame(Half::Reduce),
        chunk: small(chunk),
        frame: 0,
        payload: Digest(*blake3::hash(&payload).as_bytes()),
    };
    let preamble = Preamble { run, roster, index: small(position), count: small(cut.members()) };
    [preamble.to_bytes().as_slice(), &label.to_bytes(), &payload].concat()
}

/// Longest control message, in bytes.
const LIMIT: u32 = 1 << 20;
