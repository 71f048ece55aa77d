//! The simulated world: hosts with one process of the real machine each, a network, and
//! one queue of what happens next.
//!
//! Time is virtual: the queue jumps from one event to the next in the order of (time, number),
//! so a seed alone determines a run. A process has its own clock, which starts with it. The
//! requests of a process to its machine take time too ([`work`], [`ring`], [`fetch`]);
//! [`acts`] holds what faults do to it.
//!
//! Each output of a machine is carried out at once or becomes an entry of the queue, and each entry
//! becomes an input. Every input goes through `feed` in `crash`, where a crash can strike between
//! two outputs. The checks see a message when it is sent, an event when it comes out.
//!
//! A message takes this way: `apply` takes it from the machine of its author, `say` checks that it
//! is lawful and on disk, the network or a scene decides its fate, and the queue brings it to the
//! machine of each receiver. A liar's own messages join it behind the checks (`lie`).
//!
//! The world has one source of chance, and each draw moves it. So a draw that is added, left out or
//! made earlier changes all that a seed does afterwards. What is planned before the run (faults,
//! attestations, revocations), liars and the data of toys have sources of their own.

mod acts;
mod look;
mod queue;
pub(super) mod crash;
mod work;
mod fetch;
mod ring;
mod say;
mod links;
mod lie;
pub mod invited;
mod organiser;
pub mod scene;

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use fetch::{Asking, Fetch, Questions, Wanted};
use queue::{Entry, Happening};

use super::check::{Check, Process, Violation};
use super::disk::{Disk, PlannedCrash};
use super::liars::Liar;
use super::network::{Fate, Network};
use super::report::{Count, Moment, Report};
use super::rings::{Rings, Sends};
use super::script::Script;
use super::toy::{Anchor, CODEC, ELEMENTS, TOKENS, Toy};
use intellect_protocol::base::blocks::Blocks;
use intellect_protocol::base::fault::Fault;
use intellect_protocol::base::id::{Digest, LogId, PeerId, RunId};
use intellect_protocol::base::rng::Rng;
use intellect_protocol::base::rule::{Rule, Rules};
use intellect_protocol::base::sign::{Keypair, Verified};
use intellect_protocol::base::time::Time;
use intellect_protocol::holdings::{self, Buffer, Input, Output};
use intellect_protocol::machine::event::Event;
use intellect_protocol::message::wire;
use intellect_protocol::message::{
    Answer, Head, Message, Notice, Phase, QuorumRule, Rank, Series, Voter,
};
use intellect_protocol::peer;

/// The longest time without a reason, in milliseconds, beside that of an outer step.
const IDLE_MS: u64 = 5_000;
/// How often a process that does not train is asked for its reason, in milliseconds.
const LOOK_MS: u64 = 1_000;

/// How a world is set up before its first event.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    /// Number of hosts, with a process or without. Strangers are the last of them.
    pub(super) hosts: usize,
    /// Peers that must be present to found the run (R15). Fewer never begin.
    pub(super) peers_min: usize,
    /// How many voters decide, and whether fewer may go on.
    pub(super) quorum: QuorumRule,
    /// How many of the hosts are founders; 0: the run is founded by a Regroup.
    pub(super) founders: usize,
    /// The run's heartbeat interval, in milliseconds. Most timers of the rules follow from it.
    pub(super) heartbeat_ms: u64,
    /// The run's `minority_grace`, in milliseconds.
    pub(super) grace_ms: u64,
    /// Determines names, distances and everything that is drawn later.
    pub(super) seed: u64,
    /// The rules that hold. All of them do, unless a test looks whether the checks notice.
    pub(super) rules: Rules,
    /// The greatest distance of a host from the middle of the network, in milliseconds.
    pub(super) distance_ms: u64,
    /// The greatest jitter of a message, in milliseconds; with 0 there is none. Training, flushes
    /// and checkpoints have multiples or parts of it.
    pub(super) jitter_ms: u64,
}

/// One host of the simulated network.
struct Host {
    /// The key of its peer, which all its processes share.
    name: PeerId,
    /// How many processes have started here; 0 of a stranger.
    incarnation: u64,
    /// How long an epoch's training takes, in milliseconds, before jitter.
    training_ms: u64,
    /// How long a checkpoint takes to arrive, in milliseconds; an update takes an eighth.
    loading_ms: u64,
    /// Until when its link is busy with what it fetches.
    line_ms: u64,
    /// How long a flush takes, in milliseconds, before jitter.
    flush_ms: u64,
    /// How long an outer step takes, in milliseconds, before jitter.
    apply_ms: u64,
    /// How it lies, if it does. A liar may be blamed, and what it blames others for does not count.
    liar: Option<Box<Liar>>,
    /// The tokens that it claims for each epoch's training, if it exaggerates.
    boast: Option<u64>,
    /// When its process was last seen to train or to name what it waits for.
    busy_ms: u64,
    /// What outlives its processes.
    disk: Disk,
    /// The notices that it knows, as they are stored beside the manifest.
    notices: Vec<Notice>,
    /// The process that runs now, if one does.
    process: Option<Box<Running>>,
}

/// The process that runs on a host, with everything that a crash would lose.
#[derive(Debug)]
struct Running {
    /// The real machine, with all that it decides.
    holdings: holdings::State,
    /// What the checks remember of this process.
    judged: Process,
    /// What stands in for the model, its data and its training.
    toy: Toy,
    /// Bytes in memory for which the machine has a name, until it releases them.
    bytes: BTreeMap<Buffer, Arc<Vec<u8>>>,
    /// The bytes of running rings of which a chunk is sealed, by their rosters. A ring that ends
    /// gives them to `bytes`.
    rings: BTreeMap<Digest, Arc<Vec<u8>>>,
    /// States on disk that it serves.
    states: BTreeMap<Digest, Arc<Anchor>>,
    /// When the next tick is planned, if one is.
    tick_ms: Option<u64>,
    /// When it was stopped, and the entries of the queue that it has missed since. They come all at
    /// once when it goes on.
    paused: Option<(u64, Vec<Happening>)>,
    /// When the current training has used up its budget. `None` if it does not train.
    training: Option<u64>,
    /// Counts orders to train and changes of the state: training that
    /// began before either is obsolete.
    orders: u64,
    /// Counts fetches of a state: an older one is abandoned, and so is an
    /// outer step that has not begun.
    loads: u64,
    /// The transfers so far; the last one has this number.
    fetches: u64,
    /// The transfers that have not ended, by number.
    fetching: BTreeMap<u64, Fetch>,
    /// A fetched state that is not on disk: the blocks whose work it
    /// contains, and the unspent tokens.
    loading: Option<Settled>,
    /// Regroups that it has joined.
    joined: BTreeSet<Digest>,
    /// Whether it does not serve the chunks that it has.
    withholds: bool,
    /// Whether it serves other bytes than it is asked for.
    lies: bool,
    /// How it sends in the rings whose rosters it accepts.
    sends: Sends,
    /// The blocks and tokens that the last outer step took as spent or carried.
    settled: Option<(Blocks, Vec<Range<u64>>)>,
    /// How far its clock is ahead, in milliseconds: it leaps ahead, and stands still while the
    /// process is stopped.
    drift_ms: i64,
}

/// A head, the blocks in which it contains our work, and the unspent tokens of each block before.
/// With these the checks find what the process has given up for that head (S4, R27).
type Settled = (Head, Blocks, Vec<Range<u64>>);

/// Everything that is simulated, and the checks over it.
///
/// A seed drives it by its story in `lib.rs`, a scene by the methods in [`scene`] and those of the
/// other files that are public. In both cases each step may end with a [`Violation`], after which
/// the world is of no further use.
pub struct World {
    /// What it was begun with. Only a scene changes it, before the first process starts.
    setup: Setup,
    /// The id of the simulated run.
    pub run: RunId,
    /// The state from which every process without a disk starts.
    genesis: Arc<Anchor>,
    /// Virtual time in milliseconds.
    pub now_ms: u64,
    /// What happens next, the earliest first.
    queue: BinaryHeap<Reverse<Entry>>,
    /// Entries so far, which orders those of one time.
    number: u64,
    /// The source of chance, apart from those of liars, faults, toys and the organiser.
    pub(super) rng: Rng,
    /// All hosts. A host is named by its index here, which never changes.
    hosts: Vec<Host>,
    /// The host of each peer, by its key.
    names: BTreeMap<PeerId, usize>,
    /// How messages travel, and what is wrong with that now.
    pub(super) network: Network,
    /// The rings under way, of all processes together.
    pub(super) rings: Rings,
    /// The invariants, and the history that they need.
    check: Check,
    /// The counts of this run so far.
    pub report: Report,
    /// What hosts have just done: (host, epoch, moment). The director of the faults takes them
    /// after each step; else they are cleared, so that the list stays short.
    pub(super) moments: Vec<(usize, u64, Moment)>,
    /// The events of all hosts, when a scene wants to read them. `None` in a seed, where there are
    /// too many.
    pub(super) events: Option<Vec<(usize, Event)>>,
    /// What a scene or a class of faults has planned.
    pub(super) script: Script,
    /// The peers that were found at fault, and why: liars and strangers only, since to blame an
    /// honest peer is a violation.
    pub blamed: Vec<(PeerId, Fault)>,
    /// The first violation, until the step in which it came ends.
    broken: Option<Violation>,
    /// The requests of all processes that no donor has answered.
    questions: Questions,
    /// An empty list, reused by each call of a machine.
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
                Host {
                    name,
                    incarnation: 0,
                    training_ms,
                    loading_ms: 0,
                    line_ms: 0,
                    flush_ms: 0,
                    apply_ms: 0,
                    liar: None,
                    boast: None,
                    busy_ms: 0,
                    disk,
                    notices: Vec::new(),
                    process: None,
                }
            })
            .collect();
        let names = hosts.iter().enumerate().map(|(index, host)| (host.name, index)).collect();
        let head = Head { epoch: 0, tokens: 0, state: genesis.digest() };
        let founders: Vec<Voter> = (0..setup.founders)
            .map(|i| Voter { peer: hosts[i].name, log: log_id(setup.seed, i, 1) })
            .collect();
        let check = Check::new(run, head, founders, setup.quorum, setup.grace_ms);
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
            events: None,
            script: Script::default(),
            blamed: Vec::new(),
            broken: None,
            questions: Questions::default(),
            spare: Vec::new(),
            setup,
        }
    }

    /// Lets the next event happen; `Ok(false)` if none is due up to `until_ms`. Then the time is
    /// `until_ms`.
    ///
    /// # Errors
    /// The first violation of this event. All outputs of the event were carried out.
    pub(super) fn step(&mut self, until_ms: u64) -> Result<bool, Violation> {
        let next = self.queue.peek_mut().filter(|entry| entry.0.at_ms <= until_ms);
        let Some(Reverse(entry)) = next.map(PeekMut::pop) else {
            self.now_ms = self.now_ms.max(until_ms);
            return Ok(false);
        };
        self.now_ms = self.now_ms.max(entry.at_ms);
        self.happen(entry.host, entry.incarnation, entry.happening);
        self.broken.take().map_or(Ok(true), Err)
    }

    /// Lets one thing happen to a host, unless the process that it was meant for has ended. A
    /// paused process takes it when it goes on.
    fn happen(&mut self, host: usize, incarnation: u64, happening: Happening) {
        if matches!(happening, Happening::LookUp) {
            return self.on_look_up();
        }
        let now_ms = self.now_ms;
        let current = self.hosts[host].incarnation == incarnation;
        self.script.lying.acting = host;
        let (Some(process), true) = (&mut self.hosts[host].process, current) else { return };
        if let Some((_, backlog)) = &mut process.paused {
            backlog.push(happening);
            return;
        }
        match happening {
            Happening::Input(input) => {
                if let Input::Peer(peer::Input::Message(message)) = &input {
                    process.judged.hears(now_ms, message);
                }
                self.feed(host, input);
            }
            Happening::Tick => {
                if process.tick_ms.take_if(|at_ms| *at_ms <= now_ms).is_some() {
                    self.feed_peer(host, peer::Input::Tick);
                    self.judge_idle(host);
                }
            }
            Happening::Restart => {
                self.end(host, super::disk::Kept::ALL);
                // On another lineage it may have dropped what it had voted for: then its log is
                // lost (R19).
                self.hosts[host].disk.damaged = true;
                self.boot(host);
            }
            Happening::Measure => self.measure(host),
            Happening::Trained { order } => self.on_trained(host, order),
            Happening::Step { serial, apply } => self.on_step(host, serial, &apply),
            Happening::Written => self.on_written(host),
            Happening::Kept(name) => self.on_kept(host, name),
            Happening::Saved(anchor) => self.on_saved(host, anchor),
            Happening::Came { bytes, content, input } => {
                process.bytes.insert(bytes, content);
                self.feed(host, input);
            }
            Happening::Ask(donor, asking) => self.on_ask(host, donor, asking),
            Happening::Unanswered(ticket) => self.on_unanswered(host, ticket),
            Happening::Fetch(wanted, donors) => self.fetch(host, wanted, donors),
            Happening::LookUp => {}
            Happening::Look(fetch) => self.on_look(host, fetch),
            Happening::Part { fetch, number, answer } => self.on_part(host, fetch, number, answer),
            Happening::Ringing { roster, notice } => self.on_ringing(host, roster, &notice),
            Happening::BreaksOff(roster) => self.break_off(host, roster),
        }
    }

    /// Plans the next Tick at the deadline that the machine names, if none is planned before it.
    fn schedule_tick(&mut self, host: usize) {
        let now_ms = self.now_ms;
        let Some(process) = &mut self.hosts[host].process else { return };
        let Some(deadline) = process.holdings.deadline() else { return };
        // A deadline that a Tick did not move is late by a millisecond, so that time always passes.
        let due_ms = process.judged.started_ms + deadline.0;
        let at_ms = due_ms.saturating_add_signed(-process.drift_ms).max(now_ms + 1);
        if process.tick_ms.is_none_or(|tick| at_ms < tick) {
            process.tick_ms = Some(at_ms);
            self.push(at_ms - now_ms, host, Happening::Tick);
        }
    }

    /// Carries out one output of a host's machine. What takes time becomes an entry of the queue;
    /// nothing here waits.
    fn apply(&mut self, host: usize, output: Output) {
        match output {
            Output::Write(records) => self.write(host, &records),
            Output::Keep(name) => self.keep(host, name),
            Output::Read(name) => self.read(host, name),
            Output::FetchUpdate(name, donors) => {
                self.fetch_soon(host, Wanted::Update(name), donors);
            }
            Output::UpdateDonors(update, donors) => {
                let is_it = |wanted: &Wanted| matches!(wanted, Wanted::Update(name) if name.digest == update);
                self.welcome(host, is_it, &donors);
            }
            Output::FetchChunk { ring, finished, holders, length } => {
                self.fetch_soon(host, Wanted::Chunk { ring, finished, length }, holders);
            }
            Output::Join { ring, parts } => self.join(host, &ring, &parts),
            Output::Drop(names) => self.drop_updates(host, &names),
            Output::Release(bytes) => {
                if let Some(process) = &mut self.hosts[host].process {
                    process.bytes.remove(&bytes);
                }
            }
            Output::Save(_) => self.save(host),
            Output::Retire(state) => {
                if let Some(process) = &mut self.hosts[host].process {
                    process.states.remove(&state);
                }
            }
            Output::Serve(ticket, place) => self.serve(host, ticket, &place),
            Output::Refuse(ticket) => self.refuse(ticket),
            Output::Gossip(message) => self.send(host, None, &message),
            Output::Send(to, message) => self.send(host, Some(to), &message),
            Output::Ring(ring) => self.ring(host, &ring),
            Output::Abandon(roster) => self.abandon(host, roster),
            Output::Apply(apply) => self.step_soon(host, apply),
            Output::Ask(donor, ask) => {
                self.push_soon(host, Happening::Ask(donor, Asking::Lineage(ask)));
            }
            Output::Fetch { head, r, donors, spent } => {
                let Some(process) = &mut self.hosts[host].process else { return };
                process.loads += 1;
                process.judged.set_out = process.judged.notices.len();
                let serial = process.loads;
                self.fetch_soon(host, Wanted::State { serial, head, r, spent }, donors);
            }
            Output::Donors(donors) => {
                self.welcome(host, |wanted| matches!(wanted, Wanted::State { .. }), &donors);
            }
            Output::Train { .. } => self.train(host),
            Output::Fault(who, fault) => self.blame(host, who, fault),
            Output::Proven(fault, proof) => self.convict(host, fault, &proof),
            Output::Event(event) => self.on_event(host, event),
            Output::Left => self.end(host, super::disk::Kept::ALL),
            Output::Restart => self.push(0, host, Happening::Restart),
            Output::Lost { epoch } => {
                self.break_with("L1", format!("nobody has the update of epoch {epoch}"));
            }
        }
    }

    /// Shows an event of a host to the checker, which may find a violation. Before that it counts
    /// what the class of faults must have shown.
    fn on_event(&mut self, host: usize, event: Event) {
        let Some(process) = &mut self.hosts[host].process else { return };
        let mut update = None;
        match &event {
            Event::Committed(committed) => {
                update = process.bytes.get(&Buffer::Update(committed.receipt.update)).cloned();
                self.report.count_commit(self.now_ms, committed);
                self.moments.push((host, committed.head.epoch, Moment::Committed));
            }
            Event::Fork { undone, .. } => self.report.count(Count::Forks, u64::from(*undone > 0)),
            Event::Notice { notice, in_force: None } => {
                self.hosts[host].notices.push(notice.as_ref().clone());
            }
            Event::Stuck { .. } => self.report.count(Count::Stuck, 1),
            Event::Replayed { .. } => self.report.count(Count::Replayed, 1),
            _ => {}
        }
        if let (Event::Committed(committed), false) = (&event, self.is_liar(host)) {
            self.judge_part(committed);
            self.judge_ledger(host, committed.head);
        }
        let Some(process) = &mut self.hosts[host].process else { return };
        let settled = process.settled.as_ref();
        let verdict = self.check.on_event(&mut process.judged, &event, update.as_ref(), settled);
        self.judge(verdict);
        if let Some(events) = &mut self.events {
            events.push((host, event));
        }
    }

    /// Records a violation, unless the host that acted is a liar. Only the first of a step stands,
    /// since later ones may follow from it.
    fn judge(&mut self, verdict: Result<(), Violation>) {
        if self.hosts[self.script.lying.acting].liar.is_some() {
            return;
        }
        if let (Err(violation), None) = (verdict, &self.broken) {
            self.script.owed_end.0 = false;
            self.broken = Some(violation);
        }
    }

    /// No state lasts five seconds without a reason: a process trains, takes an outer step, or says
    /// what it waits for.
    fn judge_idle(&mut self, host: usize) {
        let Host { process: Some(process), apply_ms, busy_ms, .. } = &self.hosts[host] else {
            return;
        };
        let (now_ms, idle_ms, most_ms) = (self.now_ms, self.now_ms - busy_ms, IDLE_MS + apply_ms);
        let trains = process.training.is_some_and(|until_ms| until_ms > now_ms);
        if trains || (idle_ms >= LOOK_MS && self.wait(host).is_some()) {
            self.hosts[host].busy_ms = now_ms;
        } else if idle_ms > most_ms {
            self.break_with("wait", format!("{} for no reason", self.describe(host)));
        }
    }

    /// Ends the run with a violation; the first one stands.
    fn break_with(&mut self, invariant: &'static str, what: String) {
        self.judge(Err(Violation { invariant, what }));
    }

    /// The time by the process' own clock. It begins at 0 with each start, as a node's does.
    fn clock(&self, host: usize) -> Time {
        let process = self.hosts[host].process.as_ref();
        process.map_or(Time::ZERO, |process| {
            let real_ms = self.now_ms - process.judged.started_ms;
            Time(real_ms.saturating_add_signed(process.drift_ms))
        })
    }

    /// Plans something on the host itself, after a millisecond and some jitter.
    fn push_soon(&mut self, host: usize, happening: Happening) {
        let delay_ms = 1 + self.rng.below(self.setup.jitter_ms);
        self.push(delay_ms, host, happening);
    }

    /// Plans an input for the peer of the process that runs on a host now.
    fn push_peer(&mut self, delay_ms: u64, host: usize, input: peer::Input) {
        self.push(delay_ms, host, Happening::Input(Input::Peer(input)));
    }

    /// Plans something for the process that runs on a host now; a later incarnation never sees it.
    fn push(&mut self, delay_ms: u64, host: usize, happening: Happening) {
        self.number += 1;
        let (at_ms, number) = (self.now_ms + delay_ms, self.number);
        let incarnation = self.hosts[host].incarnation;
        self.queue.push(Reverse(Entry { at_ms, number, host, incarnation, happening }));
    }
}

/// The identity of a host's log: a host that loses its disk begins another one.
fn log_id(seed: u64, host: usize, number: u64) -> LogId {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&derive("log", seed, host, number)[..16]);
    LogId(bytes)
}

/// Bytes that kind, seed, host and incarnation alone determine. Names that are derived and not
/// drawn move no source of chance.
fn derive(kind: &str, seed: u64, host: usize, incarnation: u64) -> [u8; 32] {
    Digest::derive(
        "intellect-node 1 simulated",
        format!("{kind} {seed} {host} {incarnation}").as_bytes(),
    )
    .0
}

#[cfg(test)]
mod tests {
    use super::World;

    /// A process whose training is lost would stand in the phase of training for ever.
    #[test]
    fn a_process_without_a_reason_breaks_an_invariant() {
        let mut world = World::scene(2, 0, None);
        world.start(&[0, 1]);
        assert_eq!(world.until(60_000, |world| world.epoch(0) > 0), Ok(true));
        world.train_in(1, 60_000);
        let process = world.hosts[0].process.as_mut().unwrap();
        (process.training, process.orders) = (None, process.orders + 1);
        world.play(4_000).unwrap();
        let broken = world.play(2_000).unwrap_err();
        assert!(broken.invariant == "wait" && broken.what.starts_with("0: "), "{broken:?}");
    }

    #[test]
    fn a_scene_has_to_be_ended() {
        assert!(std::panic::catch_unwind(|| drop(World::scene(1, 0, None))).is_err());
        World::scene(1, 0, None).finish();
    }
}
