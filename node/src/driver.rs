//! The loop of a node. Clock, network, worker and signals give inputs, and [`holdings::State`] decides.
//! Its outputs are applied in order before the next input.
//!
//! The driver owns the bytes that the state decides about ([`Buffers`]). Nothing here waits: what takes
//! long is a job, and its end is an input. Everything that a peer sends is verified before the state sees
//! it (D2).
//!
//! Left to others: computing (`worker`), writing (`store`), carrying bytes (`net`, `ring`), deciding.

mod access;
mod apply;
mod buffers;
mod clock;
mod config;
mod contacts;
mod disk;
mod donors;
mod finish;
mod leave;
mod receive;
mod serve;
mod shared;
mod twins;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use intellect_bootstrap::discovery::IDENTIFY;
use intellect_model::state::State;
use intellect_protocol::base::blocks::Blocks;
use intellect_protocol::base::id::PeerId;
use intellect_protocol::base::sign::Keypair;
use intellect_protocol::base::time::Time;
use intellect_protocol::history::checkpoint::Table;
use intellect_protocol::holdings::{self, Buffer, Input, Name};
use intellect_protocol::machine::table::PeerRecord;
use intellect_protocol::message::Loss;
use intellect_protocol::peer;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::manifest::Manifest;
use crate::net::{self, Net};
use crate::os::Interrupts;
use crate::ring::pairing;
use crate::store::{Journal, Saved, Store, StoreError};
use crate::tell::Console;
use crate::worker::{self, Report, Snapshot};

pub(crate) use config::Config;

use access::Access;
use buffers::{Buffers, PendingRequests};
use clock::{Clock, TURN_MAX};
use donors::Donors;
use finish::Finish;
use receive::budget::Budgets;
use twins::Twins;

pub(crate) struct Driver {
    /// The manifest of the run. It never changes while the node runs.
    manifest: Arc<Manifest>,
    /// Our key, which signs all that the state decides to say.
    key: Keypair,
    /// The protocol's state. Only [`Driver::input`] changes it, so no lock is needed.
    holdings: holdings::State,
    clock: Clock,
    /// When this node was last Ready, in any epoch.
    readied: Option<Instant>,
    /// How the driver reaches the swarm. No method that the loop calls waits.
    net: net::Handle,
    /// The thread that trains. Its reports come by a channel of their own.
    worker: worker::Orders,
    store: Arc<Store>,
    /// The rings that are under way, each in a task of its own.
    rings: pairing::Rings,
    /// The sentences and events for people. No decision reads from it.
    tell: Console,
    /// The bytes that outputs of the state name.
    buffers: Buffers,
    /// Requests of other peers that the state has not answered yet.
    requests: PendingRequests,
    /// The peers that may serve what is being fetched.
    donors: Donors,
    /// All work that would make the loop wait: reading, writing, fetching and sleeping.
    jobs: JoinSet<Done>,
    /// Counts repeats, which makes them distinct: gossip drops duplicates.
    repeats: u32,
    /// How many messages of each author are read and passed on.
    budgets: Budgets,
    /// Which peers may take part, in a run of invited peers.
    access: Access,
    /// What shows that another program has our key, or another peer's.
    twins: Twins,
    /// How far this node is with its end.
    finish: Finish,
    /// Ends the network once the last messages had time to leave.
    stop: CancellationToken,
}

/// How a node ended without an error.
#[derive(Debug)]
pub(crate) enum Ended {
    /// As its user wanted, which has been reported.
    Reported,
    /// It was led back to an epoch that it had left, and starts again, bound by its log.
    LedBack,
    /// The run has reached its last epoch, with the state `newest`; `before`: an earlier start had reached it.
    Complete { newest: Arc<Snapshot>, before: bool, stored: bool },
}

/// Why a running node cannot go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DriverError {
    /// The network ended by itself.
    #[error("the network has stopped: start the node again, it will catch up")]
    Network,
    /// Another program uses a copy of the key, since this time of day.
    #[error(
        "another program runs with this node's key since {since}, from a copy of identity.key or of \
         the whole data folder: stop one of the two; if both are to take part, delete identity.key \
         in one folder, and runs too if it was copied, and that one becomes a peer of its own"
    )]
    Twin { since: String },
    /// No member of the run admits this node.
    #[error("{0}")]
    Refused(String),
    /// The worker has failed for good.
    #[error("training cannot go on: {0}")]
    Worker(String),
    /// A decided update was not stored here, and no other peer has it any more.
    #[error(
        "the update of epoch {epoch} was lost, and nobody serves it: start the node again, it \
         fetches the state"
    )]
    UpdateLost { epoch: u64 },
    /// The record of its votes is gone, so this node must not send another message.
    #[error(
        "{} was removed while this node ran: it cannot keep its word without it; start it again, it \
         fetches the state and votes as another voter", .0.display()
    )]
    Removed(PathBuf),
    /// The folder of the run is gone, as with a disk that was unplugged.
    #[error(
        "{} is gone: if its disk was unplugged, put it back and start the node again; if it was \
         deleted, start it with the organiser's whole line (--bootstrap …): it fetches the state and \
         votes as another voter", .0.display()
    )]
    Gone(PathBuf),
    /// A job has panicked: an error of this program.
    #[error("a part of this program has failed ({0}): start the node again, and report this")]
    Job(String),
}

/// The end of a job. The loop turns each into an input of the state, or into a report for people.
enum Done {
    /// The result is an input for the state.
    Input(Box<Input>),
    /// Bytes that have come, and the input that reports them.
    Came { bytes: Buffer, content: Arc<Vec<u8>>, input: Box<Input> },
    /// The result of writing records.
    Written(Box<Journal>, Result<(), StoreError>),
    /// The result of storing an update.
    Kept(Name, Result<(), StoreError>),
    /// Notices that a peer has served.
    Notices(Vec<Vec<u8>>),
    /// The result of storing notices.
    NoticesKept(Result<(), StoreError>),
    /// The result of storing a state.
    Saved(Result<Saved, StoreError>),
    /// A fetched state, which contains our work in these blocks.
    Loaded(Table, Box<State>, Blocks),
    /// An epoch is trained, and [`EPOCH_MIN`] has passed since the last Ready.
    Trained { epoch: u64, tokens: u64, loss: f64, norm: f32 },
    /// A job without a result for the loop.
    Nothing,
}

impl Driver {
    /// Runs until the last epoch, Ctrl-C, or an error that cannot be repaired.
    pub(crate) async fn run(
        mut self,
        mut net: Net,
        mut reports: mpsc::Receiver<Report>,
        mut ring_events: mpsc::Receiver<pairing::Event>,
        mut interrupts: Interrupts,
    ) -> Result<Ended, DriverError> {
        if let Some(state) = self.store.partial() {
            self.input(Input::Peer(peer::Input::Partial(state)));
        }
        self.resume_admission()?;
        self.begin();
        while !self.finish.is_over(Instant::now()) {
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
                Some(ring) = net.rings.recv() => self.rings.arrive(ring),
                event = net.events.recv() => match event {
                    Some(event) => self.on_net(event),
                    None => return Err(DriverError::Network),
                },
                // The next turn fires what is due.
                () = tokio::time::sleep_until(deadline.into()) => {}
            }
            if let Some(epoch) = self.finish.lost {
                return Err(DriverError::UpdateLost { epoch });
            }
            self.update_admission()?;
            self.consider_finishing();
            if let Some(since) = self.twins.since() {
                return Err(DriverError::Twin { since });
            }
        }
        match self.close(net).await {
            // Ctrl-C came while this start was closed.
            Ended::LedBack
                if tokio::time::timeout(Duration::ZERO, interrupts.next()).await.is_ok() =>
            {
                Ok(Ended::Reported)
            }
            ended => Ok(ended),
        }
    }

    /// Goes on from the head, which is genesis or the head of an earlier start.
    fn begin(&mut self) {
        let head = self.holdings.peer().head();
        self.reach(true);
        self.ask_notices(None);
        self.train(head.epoch.saturating_add(1), head.tokens);
        self.input(Input::Start);
    }

    /// The time of the state, which stands still while the process sleeps.
    fn now(&self) -> Time {
        self.clock.now()
    }

    /// Fires the timers of the state that are due, before each event of the loop: the loop takes the first
    /// event that is ready, so a peer that sends without pause would keep it from its timers.
    fn keep_time(&mut self) {
        if let Some(slept) = self.clock.turn() {
            self.tell.woke(slept, self.now());
            self.peer_input(peer::Input::Woke(slept.saturating_sub(TURN_MAX)));
        }
        self.sample();
        let due = self.holdings.deadline().is_some_and(|at| at <= self.now());
        if due && self.clock.moves() {
            self.peer_input(peer::Input::Tick);
            self.note_who_lives();
        }
    }

    /// Gives the network the members, and the silent peers, to which only heartbeats are sent.
    fn note_who_lives(&self) {
        let (peer, now) = (self.holdings.peer(), self.now());
        self.net.note_members(peer.members().collect());
        let table = peer.table();
        let silent = |(who, seen): (&PeerId, &PeerRecord)| {
            (!seen.has_left() && !table.alive(who, now)).then_some(*who)
        };
        self.net.note_silent(table.peers.iter().filter_map(silent).collect());
    }

    /// When the loop must turn next, even if nothing happens: for a timer of the state, for the end
    /// of the node, or after [`IDLE`].
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
        for output in out {
            self.apply(output);
        }
    }

    /// Gives one input to the peer of the state.
    fn peer_input(&mut self, input: peer::Input) {
        self.input(Input::Peer(input));
    }

    /// Takes one event of the network. Only messages and requests carry bytes that a peer chose;
    /// each of them is decoded and verified before the state sees it.
    fn on_net(&mut self, event: net::Event) {
        match event {
            net::Event::Message { from, via, bytes, reserved } => {
                self.on_message(from, via, &bytes);
                drop(reserved);
            }
            net::Event::Fetch { from, request, reply } => self.on_request(from, &request, reply),
            net::Event::Disconnected { peer, cause } => {
                self.tell.disconnected(peer, &cause);
                if let Some(admission) = &mut self.access.admission {
                    admission.unlinked(&peer);
                }
                self.peer_input(peer::Input::Unlinked(peer));
            }
            net::Event::RoundTrip { peer, length } => {
                let ms = u32::try_from(length.as_millis()).unwrap_or(u32::MAX).max(1);
                self.peer_input(peer::Input::RoundTrip(peer, ms));
            }
            net::Event::Connected { peer, link } => {
                self.tell.connected(peer, link);
                self.peer_input(peer::Input::Linked(peer, link == net::Link::Direct));
                if link == net::Link::Direct {
                    self.ask_notices(Some(peer));
                }
            }
            net::Event::AdmitRequest { from, request, reply } => {
                self.on_admit_request(from, *request, reply);
            }
            net::Event::AdmitReply { peer, reply } => self.on_admit_reply(peer, reply),
            net::Event::Listening => self.tell.listening(&self.net.addresses()),
            net::Event::Reachability(state) => {
                self.tell.reachability(&state);
                self.peer_input(peer::Input::Reachable(state.is_direct()));
            }
            net::Event::Path(path) => self.tell.path(&path),
            net::Event::Version { peer, version } => self.tell.version(peer, version),
            net::Event::Incompatible { peer, version } => {
                self.incompatible(peer, version, IDENTIFY);
            }
            net::Event::Fault { peer, why } => self.tell.fault(peer, &why),
            net::Event::Impostor { address, found } => self.tell.impostor(&address, &found),
            net::Event::EntryPoint { address, answers } => {
                self.tell.entry_point(&address, answers);
            }
        }
    }

    /// Takes one report of the worker. A delta for another epoch than the open one is dropped: the
    /// run went on without it, and the worker keeps the work for the next one.
    fn on_report(&mut self, report: Report) -> Result<(), DriverError> {
        match report {
            Report::Step { loss, tokens } => self.tell.step(loss, tokens),
            Report::Trained { epoch, tokens, loss, norm, delta } => {
                if epoch != self.holdings.peer().head().epoch + 1 {
                    return Ok(());
                }
                self.buffers.delta = Some(delta);
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

    /// How long the next Ready must wait for [`EPOCH_MIN`], which includes the ring between the two.
    fn early(&self) -> Duration {
        self.readied.map_or(Duration::ZERO, |at| EPOCH_MIN.saturating_sub(at.elapsed()))
    }

    /// Takes a new state of the worker. The state of the protocol hears of it only if it was asked
    /// for: genesis has no origin.
    fn on_state(&mut self, snapshot: Arc<Snapshot>, origin: Option<holdings::Origin>) {
        let head = snapshot.head();
        (self.buffers.newest, self.buffers.delta) = (snapshot, None);
        if let Some(origin) = origin {
            self.input(Input::State(head, origin));
        }
    }

    /// Takes one event of a ring. Bytes are stored under their name before the state hears of them,
    /// so every name that it knows can be looked up.
    fn on_ring(&mut self, event: pairing::Event) {
        match event {
            pairing::Event::Sealed(finished) => self.input(Input::Sealed(finished)),
            pairing::Event::Salvaged(roster, bytes) => {
                self.buffers.bytes.insert(Buffer::Ring(roster), bytes);
                self.input(Input::RingEnded(roster));
            }
            pairing::Event::Held(roster, held) => {
                self.tell.ring(roster, held.sent_bytes, held.received_bytes, held.took);
                let (update, send_rate) = (held.digest, held.send_rate());
                self.buffers.bytes.insert(Buffer::Ring(roster), Arc::clone(&held.update));
                self.buffers.bytes.insert(Buffer::Update(update), held.update);
                self.input(Input::RingHeld { roster, update, send_rate });
            }
            pairing::Event::Carried { sent_bytes, received_bytes } => {
                self.tell.carried(sent_bytes, received_bytes);
            }
            pairing::Event::Stopped { roster, lost, hops } => {
                self.peer_input(peer::Input::RingStopped { roster, lost, hops });
            }
            pairing::Event::Fault { roster, who, fault, hops } => {
                self.tell.fault(who, &fault.to_string());
                self.net.drop_peer(who, fault.to_string());
                self.peer_input(peer::Input::RingStopped { roster, lost: Some(who), hops });
            }
        }
    }

    /// Takes the result of a job. Only a lost log ends the node: without it the node could vote
    /// twice.
    fn on_done(&mut self, done: Done) -> Result<(), DriverError> {
        match done {
            Done::Input(input) => self.input(*input),
            Done::Came { bytes, content, input } => {
                self.buffers.bytes.insert(bytes, content);
                self.input(*input);
            }
            Done::Written(_, Err(StoreError::Removed { path })) => {
                let folder = path.parent().filter(|folder| !folder.exists()).map(Path::to_owned);
                return Err(folder.map_or(DriverError::Removed(path), DriverError::Gone));
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
                // A node that catches up with the last epoch has begun to train before it knows.
                let wanted = !self.finish.is_reached() && self.buffers.delta.is_some();
                if wanted && epoch == self.holdings.peer().head().epoch + 1 {
                    self.readied = Some(Instant::now());
                    self.tell.ready(epoch, tokens, loss, norm);
                    #[expect(
                        clippy::cast_possible_truncation,
                        reason = "six digits are enough for people"
                    )]
                    let named = Loss(loss as f32);
                    self.peer_input(peer::Input::Trained { tokens, norm, loss: named });
                }
            }
            Done::Nothing => {}
        }
        Ok(())
    }
}

/// The result of a job. A panic ends the node with its message: after a write that was lost the node would
/// train on and never vote again.
fn ended(job: Result<Done, JoinError>) -> Result<Done, DriverError> {
    job.map_err(|error| DriverError::Job(error.to_string()))
}

/// The least time between two Readys of this node. A peer's messages of two epochs a second stay well below
/// [`receive::budget::MESSAGES_PER_S`], so no honest peer looks like a flood, however small its model. A
/// majority of the Ready peers decides an epoch, and two majorities share a peer, so the run is no faster.
const EPOCH_MIN: Duration = Duration::from_millis(500);

/// The longest time between two turns of the loop.
const IDLE: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests;
