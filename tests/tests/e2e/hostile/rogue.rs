//! A stranger that becomes a member: it keeps every rule of the protocol, by the protocol's own
//! state, but sends numbers that are not finite into the ring.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use e2e::Process;
use intellect_bootstrap::frame;
use intellect_protocol::{
    access::admit::Level,
    base::{
        id::{Digest, LogId, PeerId},
        rule::Rules,
        time::Time,
    },
    consensus::{
        epoch::{self, Ring},
        sync,
    },
    history::{
        lineage::{Capacity, LocalPeer, Validator},
        log::Recovered,
    },
    message::{Loss, Message, QuorumRule, wire},
    peer::{Config, Input, Output, State},
    ring::{
        Cut, Half,
        codec::Codec,
        exchange::frame::{Kind, Label, Preamble},
    },
};
use libp2p::{Stream, gossipsub, identity, swarm::SwarmEvent};
use tokio::sync::mpsc;

use super::{
    WEIGHT,
    stranger::{BehaviourEvent, CONTROL, Event, RING, Stranger},
};

/// The stranger with the state of an honest member.
pub(super) struct Rogue {
    pub(super) stranger: Stranger,
    state: State,
    began: Instant,
    parameters: usize,
    /// Counts repeats, which tells them apart.
    repeats: u32,
    /// Messages that others send to it alone.
    inbox: mpsc::Receiver<Vec<u8>>,
    arrivals: mpsc::Sender<Vec<u8>>,
    /// Ring streams: kept open, so that no peer takes it for dead.
    rings: Vec<Stream>,
    /// Rings into which it has sent such numbers.
    pub(super) poisoned: usize,
}

impl Rogue {
    /// A peer of a run that has not begun and waits for it; both nodes know it.
    pub(super) fn join(seed: u8, one: &mut Process, two: &mut Process) -> Self {
        let mut stranger = Stranger::enter(seed, one);
        stranger.dial(two);
        let (_, beat) = super::next_beat(&mut stranger);
        assert_eq!(beat.head.epoch, 0, "the run has begun without it");
        let started = one.wait_for(super::PATIENCE, |event| event["event"] == "started").unwrap();
        let parameters = usize::try_from(started["parameters"].as_u64().unwrap()).unwrap();
        let key = stranger.key.clone();
        let config = Config {
            me: LocalPeer { peer: key.peer(), log: LogId([seed; 16]), incarnation: 1 },
            validator: Validator {
                run: stranger.run,
                key,
                peers_min: 3,
                quorum: QuorumRule::Available,
                elements: parameters as u64,
                capacity: Capacity::Counted(WEIGHT),
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
        let mut rogue = Self {
            stranger,
            state: State::new(Time(0), config),
            began: Instant::now(),
            parameters,
            repeats: 0,
            inbox,
            arrivals,
            rings: Vec::new(),
            poisoned: 0,
        };
        rogue.take_part(Input::Trained { tokens: WEIGHT, norm: 1.0, loss: Loss::NONE });
        rogue
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
                } else {
                    self.rings.push(stream);
                }
            }
            _ => {}
        }
        None
    }

    /// Gives one input to the state and carries out its outputs, except for the numbers.
    fn take_part(&mut self, input: Input) {
        let now = Time(u64::try_from(self.began.elapsed().as_millis()).unwrap());
        let mut out = Vec::new();
        self.state.handle(now, input, &mut out);
        for output in out {
            match output {
                Output::Gossip(message) | Output::Send(_, message) => {
                    // It also gossips direct messages, as a peer without a stream does.
                    self.repeats += 1;
                    let beat = matches!(message.body(), Message::Heartbeat(_));
                    self.stranger.gossip(beat, wire::gossip(self.repeats, &message));
                }
                Output::Ring(ring) => self.poison(&ring),
                _ => {}
            }
        }
    }

    /// The first frame that is due to the successor, well formed except for
    /// the scale of its first block.
    fn poison(&mut self, ring: &Ring) {
        let (position, count) = (ring.index, ring.members.len());
        let successor = ring.members[(position + 1) % count].peer;
        let cut = Cut::new(self.parameters, count);
        // The chunk that begins at this position has the same number.
        let chunk = position;
        let mut payload = vec![0; Codec::Int8.encoded_bytes(cut.frame(chunk, 0).len())];
        payload[..4].copy_from_slice(&f32::NAN.to_le_bytes());
        let small = |number: usize| u32::try_from(number).unwrap();
        let label = Label {
            length: small(payload.len()),
            roster: ring.roster,
            kind: Kind::Frame(Half::Reduce),
            chunk: small(chunk),
            frame: 0,
            payload: Digest(*blake3::hash(&payload).as_bytes()),
        };
        let (run, roster) = (self.stranger.run, ring.roster);
        let preamble = Preamble { run, roster, index: small(position), count: small(count) };
        let bytes = [preamble.to_bytes().as_slice(), &label.to_bytes(), &payload].concat();
        let name = libp2p::PeerId::from_public_key(&public(&successor));
        if let Some(stream) = self.stranger.open_and_write(name, RING, &bytes) {
            self.rings.push(stream);
            self.poisoned += 1;
        }
    }
}

fn public(peer: &PeerId) -> identity::PublicKey {
    identity::ed25519::PublicKey::try_from_bytes(peer.as_bytes()).unwrap().into()
}

/// Longest control message, in bytes.
const LIMIT: u32 = 1 << 20;
