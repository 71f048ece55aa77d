//! The simulated world: hosts with one process of the real machine each, a network, and one queue of
//! what happens next.
//!
//! Time is virtual: the queue jumps from one happening to the next, in the order of (time, number), so
//! a seed alone determines a run. A process has its own clock, which starts with it. What a process
//! asks of its node (fetching, the outer step, training) takes time too ([`work`]); what a fault does
//! to it is in [`acts`].

mod acts;
mod look;
mod queue;
pub(super) mod crash;
mod work;
mod mend;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use queue::{Entry, Happening};

use super::check::{Check, Process, Violation};
use super::disk::Disk;
use super::network::Network;
use super::report::{Moment, Report};
use super::rings::{Rings, Sends};
use super::stage::Fate;
use super::toy::{Anchor, CODEC, ELEMENTS, Toy, WEIGHT_MAX};
use intellect_protocol::blocks::Blocks;
use intellect_protocol::epoch::Rule;
use intellect_protocol::event::Event;
use intellect_protocol::fault::Fault;
use intellect_protocol::id::{Digest, LogId, PeerId, RunId};
use intellect_protocol::message::{Answer, Head, Message, Phase, Voter};
use intellect_protocol::peer::{self, Input, Output};
use intellect_protocol::repair::Repair;
use intellect_protocol::rng::Rng;
use intellect_protocol::sign::{Keypair, Verified};
use intellect_protocol::time::Time;
use intellect_protocol::wire;

use crash::Doom;

/// Decides the fate of a message from one host to another.
pub(super) type Filter = Box<dyn FnMut(usize, usize, &Message) -> Fate>;

/// Changes what a host answers to another one.
pub(super) type Forger = Box<dyn FnMut(usize, usize, &mut Answer)>;

/// How a world is set up.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    /// Hosts, running or not.
    pub(super) hosts: usize,
    /// Peers that must be present to found the run.
    pub(super) peers_min: usize,
    /// How many of the hosts are founders under `quorum = "majority"`; 0 is `"available"`.
    pub(super) founders: usize,
    pub(super) heartbeat_ms: u64,
    pub(super) grace_ms: u64,
    pub(super) seed: u64,
    pub(super) without: Option<Rule>,
    /// Distances and jitter of the network, and of the work, in milliseconds.
    pub(super) distance_ms: u64,
    pub(super) jitter_ms: u64,
}

/// One machine of the simulated network.
#[derive(Debug)]
struct Host {
    name: PeerId,
    incarnation: u64,
    /// How long an epoch's training takes, in milliseconds, before jitter.
    training_ms: u64,
    /// How long a checkpoint takes to arrive, in milliseconds; an update takes an eighth.
    loading_ms: u64,
    disk: Disk,
    process: Option<Box<Running>>,
}

/// One process on a host.
#[derive(Debug)]
struct Running {
    machine: peer::State,
    judged: Process,
    toy: Toy,
    /// When the next tick is due.
    tick_ms: Option<u64>,
    /// What happened to it while it was stopped.
    paused: Option<Vec<Happening>>,
    /// When the training under way has used up its budget.
    training: Option<u64>,
    /// Counts fetches: an older one is abandoned, and so is an outer step that waits for its update.
    fetches: u64,
    /// Who serves the updates that are replayed; nobody when none are.
    donors: Vec<PeerId>,
    /// Whether it serves the chunks that it holds.
    withholds: bool,
    /// How it sends in rings.
    sends: Sends,
    /// Updates that are being put together, by roster.
    repairs: BTreeMap<Digest, Repair>,
    /// What the last outer step took as spent or carried: which tokens.
    settled: Option<(Blocks, Vec<Range<u64>>)>,
    /// How far its clock has leapt ahead, in milliseconds.
    leapt_ms: u64,
}

/// Everything that is simulated.
pub(super) struct World {
    setup: Setup,
    run: RunId,
    genesis: Arc<Anchor>,
    pub(super) now_ms: u64,
    queue: BinaryHeap<Reverse<Entry>>,
    number: u64,
    pub(super) rng: Rng,
    hosts: Vec<Host>,
    names: BTreeMap<PeerId, usize>,
    pub(super) network: Network,
    pub(super) rings: Rings,
    check: Check,
    pub(super) report: Report,
    /// What hosts have just done: (host, epoch, moment).
    pub(super) moments: Vec<(usize, u64, Moment)>,
    /// What hosts have told, when somebody wants to read it.
    pub(super) told: Option<Vec<(usize, Event)>>,
    pub(super) filter: Option<Filter>,
    pub(super) forger: Option<Forger>,
    /// Who that is nobody here was found at fault.
    pub(super) blamed: Vec<(PeerId, Fault)>,
    broken: Option<Violation>,
    doom: Option<Doom>,
    /// Hosts that have crashed, until somebody asks.
    crashed: Vec<usize>,
    spare: Vec<Output>,
}

impl World {
    /// A world in which no process runs yet.
    pub(super) fn new(setup: Setup) -> Self {
        let mut rng = Rng::new(setup.seed);
        let network = Network::new(setup.hosts, setup.distance_ms, setup.jitter_ms, &mut rng);
        let genesis = Arc::new(Anchor::genesis(setup.seed));
        let run = RunId(derive("run", setup.seed, 0, 0));
        let hosts: Vec<Host> = (0..setup.hosts)
            .map(|index| {
                let name = PeerId(derive("peer", setup.seed, index, 0));
                let training_ms = 400 + rng.below(20 * setup.jitter_ms);
                let disk = Disk::default();
                Host { name, incarnation: 0, training_ms, loading_ms: 0, disk, process: None }
            })
            .collect();
        let names = hosts.iter().enumerate().map(|(index, host)| (host.name, index)).collect();
        let head = Head { epoch: 0, tokens: 0, state: genesis.digest() };
        let founders: Vec<Voter> = (0..setup.founders)
            .map(|i| Voter { peer: hosts[i].name, log: log_id(setup.seed, i, 1) })
            .collect();
        let check = Check::new(run, head, founders, setup.grace_ms);
        Self {
            run,
            genesis,
            now_ms: 0,
            queue: BinaryHeap::new(),
            number: 0,
            rng,
            hosts,
            names,
            network,
            rings: Rings::default(),
            check,
            report: Report::new(setup.seed),
            moments: Vec::new(),
            told: None,
            filter: None,
            forger: None,
            blamed: Vec::new(),
            broken: None,
            doom: None,
            crashed: Vec::new(),
            spare: Vec::new(),
            setup,
        }
    }

    /// Lets the next thing happen; `Ok(false)` when nothing is due up to `until_ms`.
    pub(super) fn step(&mut self, until_ms: u64) -> Result<bool, Violation> {
        match self.queue.peek() {
            Some(Reverse(entry)) if entry.at_ms <= until_ms => {}
            _ => {
                self.now_ms = self.now_ms.max(until_ms);
                return Ok(false);
            }
        }
        let Some(Reverse(entry)) = self.queue.pop() else { return Ok(false) };
        self.now_ms = self.now_ms.max(entry.at_ms);
        self.happen(entry.host, entry.incarnation, entry.happening);
        self.broken.take().map_or(Ok(true), Err)
    }

    fn happen(&mut self, host: usize, incarnation: u64, happening: Happening) {
        let now_ms = self.now_ms;
        let current = self.hosts[host].incarnation == incarnation;
        let Some(process) = self.hosts[host].process.as_mut().filter(|_| current) else { return };
        if let Some(backlog) = &mut process.paused {
            backlog.push(happening);
            return;
        }
        match happening {
            Happening::Input(input) => {
                if let Input::Message(message) = &input {
                    process.judged.hears(now_ms, message);
                }
                self.feed(host, input);
            }
            Happening::Tick => {
                let due = process.tick_ms.is_some_and(|at| at <= now_ms);
                if due {
                    process.tick_ms = None;
                    self.feed(host, Input::Tick);
                }
            }
            Happening::Measure => self.measure(host),
            Happening::Trained { epoch } => self.on_trained(host, epoch),
            Happening::Step { serial, apply } => self.on_step(host, serial, apply),
            Happening::TryChunk { ring, finished, holders } => {
                self.on_try_chunk(host, ring, finished, holders);
            }
            Happening::TryUpdate { update, donors } => self.on_try_update(host, update, donors),
            Happening::TryStep { serial, apply, donors } => {
                self.on_try_step(host, serial, apply, donors);
            }
            Happening::TryLoad { serial, head, r, donors, spent } => {
                self.on_try_load(host, serial, head, r, donors, spent);
            }
            Happening::Load { serial, head, anchor, spent } => {
                self.on_load(host, serial, head, anchor, spent);
            }
            Happening::Asked { donor, ask } => self.on_asked(host, donor, &ask),
            Happening::Ringing { roster, notice } => self.on_ringing(host, roster, &notice),
        }
    }

    fn schedule_tick(&mut self, host: usize) {
        let now_ms = self.now_ms;
        let Some(process) = &mut self.hosts[host].process else { return };
        let Some(deadline) = process.machine.deadline() else { return };
        // A deadline that a Tick did not move is late by a millisecond, so that time always passes.
        let due_ms = process.judged.started_ms + deadline.0;
        let at_ms = due_ms.saturating_sub(process.leapt_ms).max(now_ms + 1);
        if process.tick_ms.is_none_or(|tick| at_ms < tick) {
            process.tick_ms = Some(at_ms);
            self.push(at_ms - now_ms, host, Happening::Tick);
        }
    }

    fn apply(&mut self, host: usize, output: Output) {
        match output {
            // Written before it comes to this.
            Output::Log(_) => {}
            Output::Gossip(message) => {
                self.note_sent(host, &message);
                self.gossip(host, &message);
            }
            Output::Send(to, message) => {
                self.note_sent(host, &message);
                match self.host(&to) {
                    Some(to) if !self.network.is_open(host, to) => self.gossip(host, &message),
                    Some(to) if self.network.carries(host, to) => {
                        self.deliver(host, to, 1, &message);
                    }
                    Some(_) => {}
                    None => {}
                }
            }
            Output::Ring(ring) => self.ring(host, &ring),
            Output::Abandon(roster) => {
                self.give_up_repair(host, &roster);
                let due = self.rings.lose(host, super::rings::Loss::Closed, Some(roster));
                self.notify(due);
            }
            Output::FetchUpdate(update, donors) => self.fetch_update(host, update, donors),
            Output::Apply(apply) => self.step_soon(host, apply),
            Output::Ask(donor, ask) => self.push_soon(host, Happening::Asked { donor, ask }),
            Output::Fetch { head, r, donors, spent } => {
                self.load(host, head, r, donors, spent);
            }
            Output::Replay { donors, .. } => {
                if let Some(process) = &mut self.hosts[host].process {
                    process.donors = donors;
                }
            }
            Output::Train { .. } => self.train(host),
            Output::Fault(who, fault) => self.blame(host, who, fault),
            Output::Event(event) => self.on_event(host, event),
            Output::Left => self.end(host, super::disk::Kept::ALL),
        }
    }

    fn gossip(&mut self, from: usize, message: &Arc<Verified<Message>>) {
        let running = self.running();
        for to in running.iter().copied().filter(|to| *to != from) {
            if let Some(hops) = self.network.hops(from, to, &running) {
                self.deliver(from, to, hops, message);
            }
        }
    }

    fn deliver(&mut self, from: usize, to: usize, hops: u64, message: &Arc<Verified<Message>>) {
        let fate = match &mut self.filter {
            Some(filter) => filter(from, to, message.body()),
            None => Fate::Deliver,
        };
        let (first_ms, again_ms) = match fate {
            Fate::Drop => return,
            Fate::Deliver => (0, None),
            Fate::Delay(ms) => (ms, None),
            Fate::Again(ms) => (0, Some(ms)),
        };
        for delay_ms in self.network.arrivals(from, to, hops, &mut self.rng).into_iter().flatten() {
            for later_ms in again_ms.into_iter().chain([first_ms]) {
                self.report.messages += 1;
                let input = Input::Message(Arc::clone(message));
                self.push(delay_ms + later_ms, to, Happening::Input(input));
            }
        }
    }

    /// Counts and judges a message at its author's.
    fn note_sent(&mut self, host: usize, message: &Arc<Verified<Message>>) {
        self.report.bytes += wire::envelope(message).len() as u64;
        let Some(process) = &self.hosts[host].process else { return };
        let frozen = process.toy.frozen.as_ref();
        let verdict = self.check.sent(&process.judged, message.body(), frozen);
        self.judge(verdict);
        self.check_flushed(host, message.body());
        self.note_moment(host, message.body());
    }

    fn note_moment(&mut self, host: usize, message: &Message) {
        let moment = match message {
            Message::Ready(_) => Moment::Ready,
            Message::Roster(roster) => {
                self.report.count_roster(&wire::roster_digest(&self.run, roster), roster);
                Moment::Roster
            }
            Message::Accept(_) => Moment::Accepted,
            Message::Done(_) => Moment::Finished,
            Message::Query(_) => Moment::Asking,
            Message::Join(_) => Moment::Regrouping,
            Message::Heartbeat(_)
            | Message::Status(_)
            | Message::Refuse(_)
            | Message::Lost(_)
            | Message::Commit(_)
            | Message::Regroup(_)
            | Message::Leaving(_) => return,
        };
        let epoch = message.series().map_or(0, |series| series.epoch);
        self.moments.push((host, epoch, moment));
    }

    fn on_event(&mut self, host: usize, event: Event) {
        let Some(process) = &mut self.hosts[host].process else { return };
        let mut update = None;
        match &event {
            Event::Committed(committed) => {
                update = process.toy.updates.get(&committed.receipt.update).cloned();
                self.report.count_commit(committed);
                self.moments.push((host, committed.head.epoch, Moment::Committed));
            }
            Event::Fork { undone, .. } => self.report.forks += u64::from(*undone > 0),
            Event::Stuck { .. } => self.report.stuck += 1,
            Event::Replayed { .. } => self.report.replayed += 1,
            Event::PeerFound { .. }
            | Event::PeerLost { .. }
            | Event::Roster { .. }
            | Event::Regroup { .. }
            | Event::Aborted { .. }
            | Event::LeftOut { .. }
            | Event::Behind { .. }
            | Event::CaughtUp { .. }
            | Event::Diverged { .. }
            | Event::ForkExcluded { .. }
            | Event::Leaving => {}
        }
        let settled = process.settled.as_ref();
        let verdict = self.check.told(&mut process.judged, &event, update.as_ref(), settled);
        self.judge(verdict);
        if let Some(told) = &mut self.told {
            told.push((host, event));
        }
    }

    fn judge(&mut self, verdict: Result<(), Violation>) {
        if let (Err(violation), None) = (verdict, &self.broken) {
            self.broken = Some(violation);
        }
    }

    fn break_with(&mut self, invariant: &'static str, what: String) {
        self.judge(Err(Violation { invariant, what }));
    }

    /// A process' own clock.
    fn clock(&self, host: usize) -> Time {
        let process = self.hosts[host].process.as_ref();
        process.map_or(Time(0), |p| Time(self.now_ms - p.judged.started_ms + p.leapt_ms))
    }

    fn push_soon(&mut self, host: usize, happening: Happening) {
        let delay_ms = 1 + self.rng.below(self.setup.jitter_ms);
        self.push(delay_ms, host, happening);
    }

    fn push(&mut self, delay_ms: u64, host: usize, happening: Happening) {
        self.number += 1;
        let (at_ms, number) = (self.now_ms + delay_ms, self.number);
        let incarnation = self.hosts[host].incarnation;
        self.queue.push(Reverse(Entry { at_ms, number, host, incarnation, happening }));
    }
}

fn log_id(seed: u64, host: usize, number: u64) -> LogId {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&derive("log", seed, host, number)[..16]);
    LogId(bytes)
}

/// Bytes that seed, host and incarnation alone determine.
fn derive(kind: &str, seed: u64, host: usize, incarnation: u64) -> [u8; 32] {
    Digest::derive(
        "intellect-node 1 simulated",
        format!("{kind} {seed} {host} {incarnation}").as_bytes(),
    )
    .0
}
