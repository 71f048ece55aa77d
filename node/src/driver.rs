//! The loop of a node. Clock, network, worker and signals give inputs; [`holdings::State`] decides;
//! its outputs are applied, in order, before the next input.
//!
//! The driver owns the bytes that are decided about ([`Bulk`]). Nothing here waits: what takes long
//! is a job, and its end is an input. Whatever a peer sent is verified before the state sees it
//! (D2).
//!
//! What this does not do: compute (`worker`), write (`store`), carry bytes (`net`, `ring`), decide.

mod apply;
mod budget;
mod bulk;
mod contacts;
mod disk;
mod finish;
mod forward;
mod gate;
mod hear;
mod leave;
mod lobby;
mod parts;
mod questions;
mod serve;
mod shared;
mod twins;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use intellect_model::state::State;
use intellect_protocol::base::blocks::Blocks;
use intellect_protocol::base::id::PeerId;
use intellect_protocol::base::sign::Keypair;
use intellect_protocol::base::time::Time;
use intellect_protocol::history::checkpoint::Table;
use intellect_protocol::holdings::{self, Buffer, Input, Name};
use intellect_protocol::machine::table::Seen;
use intellect_protocol::peer;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::manifest::Manifest;
use crate::net::{self, Net};
use crate::os::Interrupts;
use crate::rings;
use crate::store::{Journal, Saved, Store, StoreError};
use crate::tell::Console;
use crate::wake::Turns;
use crate::worker::{self, Report, Snapshot};

pub(crate) use parts::Parts;

use budget::Budgets;
use bulk::Bulk;
use finish::Finish;
use gate::Gate;
use questions::Questions;
use twins::Twins;

/// A running node.
pub(crate) struct Driver {
    manifest: Arc<Manifest>,
    key: Keypair,
    holdings: holdings::State,
    clock: Clock,
    /// When this node last said that it is Ready, in whichever epoch.
    readied: Option<Instant>,
    net: net::Handle,
    worker: worker::Orders,
    store: Arc<Store>,
    rings: rings::Rings,
    tell: Console,
    bulk: Bulk,
    questions: Questions,
    /// Who may serve the state that is being fetched.
    donors: watch::Sender<Vec<PeerId>>,
    jobs: JoinSet<Done>,
    /// Counts repeats, so that gossip does not drop them.
    repeats: u32,
    budgets: Budgets,
    gate: Gate,
    twins: Twins,
    finish: Finish,
    stop: CancellationToken,
}

/// How a node ended that has nothing to complain of.
#[derive(Debug)]
pub(crate) enum Ended {
    /// As its user wanted, and it has said so.
    Told,
    /// The run has its last epoch.
    Complete {
        /// The last state.
        newest: Arc<Snapshot>,
        /// Whether it was here before this start.
        before: bool,
    },
}

/// Why a node that ran cannot go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DriverError {
    /// The network ended by itself.
    #[error("the network has stopped: start the node again, it will catch up")]
    Network,
    /// A copy of the key is in use.
    #[error(
        "another program runs with this node's key since {since}, from a copy of identity.key or of \
         the whole data folder: stop one of the two; if both are to take part, delete identity.key \
         in one folder, and runs too if it was copied, and that one becomes a peer of its own"
    )]
    Twin {
        /// The time of day at which it was started.
        since: String,
    },
    /// Nobody lets it in.
    #[error("{0}")]
    Refused(String),
    /// Nothing more can be computed.
    #[error("training cannot go on: {0}")]
    Worker(String),
    /// A decided update was not kept, and nobody else has it any more.
    #[error(
        "the update of epoch {epoch} was lost, and nobody serves it: start the node again, it \
         fetches the state"
    )]
    UpdateLost {
        /// The epoch.
        epoch: u64,
    },
    /// What this node has said is not kept: it must say nothing more.
    #[error(
        "{} was removed while this node ran: it cannot keep its word without it; start it again, it \
         fetches the state and votes as another voter", .0.display()
    )]
    Removed(PathBuf),
    /// A job of this program has failed in a way that nobody has thought of.
    #[error("a part of this program has failed ({0}): start the node again, and report this")]
    Job(String),
}

/// A job that has ended.
enum Done {
    /// What the state has to hear.
    Input(Box<Input>),
    /// Bytes are here, and the state has to hear it.
    Came {
        bytes: Buffer,
        content: Arc<Vec<u8>>,
        input: Box<Input>,
    },
    /// Records are on the disk, or are not.
    Written(Box<Journal>, Result<(), StoreError>),
    /// An update is on the disk, or is not.
    Kept(Name, Result<(), StoreError>),
    /// Notices have come.
    Notices(Vec<Vec<u8>>),
    /// Notices are on the disk, or are not.
    NoticesKept(Result<(), StoreError>),
    /// A state is on the disk, or is not.
    Saved(Result<Saved, StoreError>),
    /// A state was fetched; it contains our work in these blocks.
    Loaded(Table, Box<State>, Blocks),
    /// An epoch that was trained within [`EPOCH_MIN`] of the Ready before has waited for the rest of it.
    Trained {
        epoch: u64,
        tokens: u64,
        loss: f64,
        norm: f32,
    },
    Nothing,
}

impl Driver {
    /// Runs until the last epoch, Ctrl-C, or something that cannot be mended.
    pub(crate) async fn run(
        mut self,
        mut net: Net,
        mut reports: mpsc::Receiver<Report>,
        mut ring_events: mpsc::Receiver<rings::Event>,
        mut interrupts: Interrupts,
    ) -> Result<Ended, DriverError> {
        if let Some(state) = self.store.partial() {
            self.input(Input::Peer(peer::Input::Partial(state)));
        }
        self.admit()?;
        self.begin();
        loop {
            if self.finish.is_over(Instant::now()) {
                break;
            }
            self.keep_time();
            let deadline = self.next_deadline();
            tokio::select! {
                biased;
                () = interrupts.next() => {
                    if !self.interrupt() {
                        break;
                    }
                }
                report = reports.recv() => match report {
                    Some(report) => self.on_report(report)?,
                    None => return Err(DriverError::Worker("the worker thread is gone".to_owned())),
                },
                Some(event) = ring_events.recv() => self.on_ring(event),
                Some(done) = self.jobs.join_next(), if !self.jobs.is_empty() => {
                    self.on_done(ended(done)?)?;
                }
                Some((from, stream)) = net.rings.recv() => self.rings.arrive(from, stream),
                event = net.events.recv() => match event {
                    Some(event) => self.on_net(event),
                    None => return Err(DriverError::Network),
                },
                () = tokio::time::sleep_until(deadline.into()) => self.hear(peer::Input::Tick),
            }
            if let Some(epoch) = self.finish.lost {
                return Err(DriverError::UpdateLost { epoch });
            }
            self.attend()?;
            self.consider_finishing();
            self.tell_waiting();
            if let Some(since) = self.twins.since() {
                return Err(DriverError::Twin { since });
            }
        }
        Ok(self.close(net).await)
    }

    /// Goes on from the head, which is genesis or what an earlier start left.
    fn begin(&mut self) {
        let head = self.holdings.peer().head();
        self.reach(true);
        self.ask_notices(None);
        self.train(head.epoch.saturating_add(1), head.tokens);
        self.input(Input::Start);
    }

    fn now(&self) -> Time {
        self.clock.now()
    }

    /// Lets the state look at the time where that is due. Before each thing that happens: of two that
    /// are ready the loop takes the first, so whoever sends without pause would keep it from its
    /// timers.
    fn keep_time(&mut self) {
        if let Some(slept) = self.clock.turn() {
            self.tell.woke(slept);
        }
        let due = self.holdings.deadline().is_some_and(|at| at <= self.now());
        if due && self.clock.moves() {
            self.hear(peer::Input::Tick);
            self.note_who_lives();
        }
    }

    /// Tells the network who are the members, and to whom it is to say nothing but that we live.
    fn note_who_lives(&self) {
        let (peer, now) = (self.holdings.peer(), self.now());
        self.net.note_members(peer.members().collect());
        let roll = peer.roll();
        let silent = |(who, seen): (&PeerId, &Seen)| {
            (!seen.has_left() && !roll.alive(who, now)).then_some(*who)
        };
        self.net.note_silent(roll.peers.iter().filter_map(silent).collect());
    }

    fn next_deadline(&self) -> Instant {
        let now = self.now();
        let due = self.holdings.deadline().map_or(IDLE, |at| at.since(now));
        // Below a millisecond the clock of the state would not have moved.
        let due = Instant::now() + due.clamp(Duration::from_millis(1), IDLE);
        self.finish.deadline().map_or(due, |at| at.min(due))
    }

    /// Gives one input to the state and does what it decides.
    fn input(&mut self, input: Input) {
        let mut out = Vec::new();
        self.holdings.handle(self.now(), input, &mut out);
        out.into_iter().for_each(|output| self.apply(output));
    }

    /// Lets the peer hear something.
    fn hear(&mut self, input: peer::Input) {
        self.input(Input::Peer(input));
    }

    fn on_net(&mut self, event: net::Event) {
        match event {
            net::Event::Message { from, via, bytes, place } => {
                self.on_message(from, via, &bytes);
                drop(place);
            }
            net::Event::Fetch { from, request, reply } => self.on_request(from, &request, reply),
            net::Event::Disconnected { peer, cause } => {
                self.tell.disconnected(peer, &cause);
                if let Some(admission) = &mut self.gate.admission {
                    admission.unlinked(&peer);
                }
                self.hear(peer::Input::Unlinked(peer));
            }
            net::Event::RoundTrip { peer, length } => {
                let ms = u32::try_from(length.as_millis()).unwrap_or(u32::MAX).max(1);
                self.hear(peer::Input::RoundTrip(peer, ms));
            }
            net::Event::Connected { peer, link } => {
                self.tell.connected(peer, link);
                self.hear(peer::Input::Linked(peer, link == net::Link::Direct));
                if link == net::Link::Direct {
                    self.ask_notices(Some(peer));
                }
            }
            net::Event::Visit { from, visit, reply } => self.on_visit(from, *visit, reply),
            net::Event::Received { peer, reception } => self.on_received(peer, reception),
            net::Event::Listening => self.tell.listening(&self.net.addresses()),
            net::Event::Reachability(state) => {
                self.tell.reachability(&state);
                self.hear(peer::Input::Reachable(state.is_direct()));
            }
            net::Event::Path(path) => self.tell.path(&path),
            net::Event::Incompatible { peer, version } => self.incompatible(peer, version),
            net::Event::Fault { peer, why } => self.tell.fault(peer, &why),
            net::Event::Impostor { address, found } => self.tell.impostor(&address, &found),
        }
    }

    fn on_report(&mut self, report: Report) -> Result<(), DriverError> {
        match report {
            Report::Step { loss, tokens } => self.tell.step(loss, tokens),
            Report::Trained { epoch, tokens, loss, norm, delta } => {
                if epoch != self.holdings.peer().head().epoch + 1 {
                    return Ok(());
                }
                self.bulk.delta = Some(delta);
                let early = self.early();
                self.jobs.spawn(async move {
                    tokio::time::sleep(early).await;
                    Done::Trained { epoch, tokens, loss, norm }
                });
            }
            Report::State(snapshot, origin) => self.on_state(snapshot, origin),
            Report::Diverged { epoch, why } => self.tell.training_diverged(epoch, &why),
            Report::Failed(why) => return Err(DriverError::Worker(why)),
        }
        Ok(())
    }

    /// How long the next Ready must wait for [`EPOCH_MIN`]: whatever came between the two, the ring
    /// included, counts.
    fn early(&self) -> Duration {
        self.readied.map_or(Duration::ZERO, |at| EPOCH_MIN.saturating_sub(at.elapsed()))
    }

    fn on_state(&mut self, snapshot: Arc<Snapshot>, origin: Option<holdings::Origin>) {
        let head = snapshot.head();
        (self.bulk.newest, self.bulk.delta) = (snapshot, None);
        if let Some(origin) = origin {
            self.input(Input::State(head, origin));
        }
    }

    fn on_ring(&mut self, event: rings::Event) {
        match event {
            rings::Event::Sealed(finished) => self.input(Input::Sealed(finished)),
            rings::Event::Remains(roster, bytes) => {
                self.bulk.bytes.insert(Buffer::Ring(roster), bytes);
                self.input(Input::RingEnded(roster));
            }
            rings::Event::Held(roster, held) => {
                self.tell.ring(held.sent_bytes, held.received_bytes);
                let (update, send_rate) = (held.digest, held.send_rate());
                self.bulk.bytes.insert(Buffer::Ring(roster), Arc::clone(&held.update));
                self.bulk.bytes.insert(Buffer::Update(update), held.update);
                self.input(Input::RingHeld { roster, update, send_rate });
            }
            rings::Event::Lost { roster, neighbour } => {
                self.hear(peer::Input::RingLost { roster, neighbour });
            }
            rings::Event::Fault { roster, who, fault } => {
                self.tell.fault(who, &fault.to_string());
                self.net.drop_peer(who, fault.to_string());
                self.hear(peer::Input::RingLost { roster, neighbour: who });
            }
        }
    }

    fn on_done(&mut self, done: Done) -> Result<(), DriverError> {
        match done {
            Done::Input(input) => self.input(*input),
            Done::Came { bytes, content, input } => {
                self.bulk.bytes.insert(bytes, content);
                self.input(*input);
            }
            Done::Written(_, Err(StoreError::Removed { path })) => {
                return Err(DriverError::Removed(path));
            }
            Done::Written(journal, result) => self.on_written(*journal, result),
            Done::Kept(name, result) => self.on_kept(name, result),
            Done::Notices(notices) => self.on_notices(&notices),
            Done::NoticesKept(result) => self.on_notices_kept(result),
            Done::Saved(result) => self.on_saved(result),
            Done::Loaded(table, state, spent) => {
                self.command(worker::Command::Load { table, state, spent });
            }
            Done::Trained { epoch, tokens, loss, norm } => {
                // Who catches up with the last epoch has begun to train before it knows.
                let wanted = !self.finish.is_reached() && self.bulk.delta.is_some();
                if wanted && epoch == self.holdings.peer().head().epoch + 1 {
                    self.readied = Some(Instant::now());
                    self.tell.ready(epoch, tokens, loss, norm);
                    self.hear(peer::Input::Trained { tokens, norm });
                }
            }
            Done::Nothing => {}
        }
        Ok(())
    }
}

/// The time of the state: milliseconds since the driver was made, but for those in which it did not run. A
/// clock that jumped would show everybody else silent who was only not heard.
struct Clock {
    /// What it showed at the last turn of the loop.
    shown: Duration,
    turned: Instant,
    turns: Turns,
    /// When the state looked at it last.
    looked: Time,
}

impl Clock {
    fn new() -> Self {
        let (shown, turned) = (Duration::ZERO, Instant::now());
        Self { shown, turned, turns: Turns::new(), looked: Time::ZERO }
    }

    fn elapsed(&self) -> Duration {
        self.shown + self.turned.elapsed().min(TURN_MAX)
    }

    fn now(&self) -> Time {
        Time(u64::try_from(self.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    /// The loop turns: how long this process was asleep, if it was.
    fn turn(&mut self) -> Option<Duration> {
        (self.shown, self.turned) = (self.elapsed(), Instant::now());
        self.turns.turn()
    }

    /// Whether it shows another time than when the state looked last; it has looked then.
    fn moves(&mut self) -> bool {
        let now = self.now();
        std::mem::replace(&mut self.looked, now) < now
    }
}

/// What a job came to. A job that has panicked ends the node, which says what it was: after a write
/// that was swallowed the node would train on and never vote again.
fn ended(job: Result<Done, JoinError>) -> Result<Done, DriverError> {
    job.map_err(|error| DriverError::Job(error.to_string()))
}

/// From one Ready of this node to its next one at least so much time passes: a peer's messages of one
/// epoch, times two a second, stay well below [`budget::MESSAGES_PER_S`], so that no honest peer looks
/// like a flood, however small its model. An epoch is decided by a majority of those who are Ready, and
/// two majorities share a peer, so the run as a whole goes no faster either.
const EPOCH_MIN: Duration = Duration::from_millis(500);

/// The longest time between two turns of the loop.
const IDLE: Duration = Duration::from_millis(500);

/// What the clock of the state shows of it at most.
const TURN_MAX: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
