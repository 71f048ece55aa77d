//! The loop of a node: clock, network, worker and signals in, [`peer::State`] decides, its outputs
//! are applied, in order, before the next input.
//!
//! The driver owns the protocol state and the bytes that it names: the frozen delta, the updates
//! of the open epoch and of the last few, the newest state. Nothing here waits: what takes long is
//! a job whose end is an input. Whatever a peer sent is verified before the state sees it (D2).
//!
//! What this does not do: compute (`worker`), write (`store`), carry bytes (`net`, `ring`), decide.

mod apply;
mod budget;
mod contacts;
mod finish;
mod outbox;
mod parts;
pub(crate) mod pins;
mod repair;
mod serve;
mod twins;
pub(crate) mod updates;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use intellect_protocol::blocks::Blocks;
use intellect_protocol::id::{Digest, PeerId};
use intellect_protocol::message::{Answer, Ask, Finished, Head};
use intellect_protocol::peer::{self, Input};
use intellect_protocol::sign::Verified;
use intellect_protocol::time::Time;
use intellect_protocol::{message::Message, wire};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::manifest::Manifest;
use crate::net::{self, Net, Reachability, Reply, Verdict, Via};
use crate::os::Interrupts;
use crate::ring;
use crate::rings;
use crate::store::updates::Name;
use crate::store::{Saved, Store, StoreError};
use crate::tell::Teller;
use crate::worker::{self, Report, Snapshot};

pub(crate) use parts::Parts;

use budget::{Budgets, Ruling};
use finish::Finish;
use outbox::{Item, Outbox, Written};
use pins::Pins;
use repair::Repairs;
use twins::Twins;
use updates::{Origin, Steps, Updates};

/// A running node.
pub(crate) struct Driver {
    manifest: Arc<Manifest>,
    key: intellect_protocol::sign::Keypair,
    peer: peer::State,
    began: Instant,
    /// When the open epoch began.
    entered: Instant,
    net: net::Handle,
    worker: worker::Handle,
    store: Arc<Store>,
    outbox: Outbox,
    rings: rings::Rings,
    tell: Teller,

    /// The frozen delta of the open epoch.
    delta: Option<Arc<Vec<f32>>>,
    updates: Updates,
    /// Updates of the open epoch that an earlier start has voted for.
    held: Vec<Digest>,
    steps: Steps,
    /// What rings of the open epoch left.
    repairs: Repairs,
    /// The newest state, and those on disk that are served.
    newest: Arc<Snapshot>,
    saved: VecDeque<Saved>,
    /// The published weights that the run begins with; of no run by themselves.
    published: Option<Saved>,
    pins: Pins,
    saving: bool,
    /// When the state began to stand still, if it does.
    stuck_since: Option<Time>,
    /// Whether a checkpoint that was refused is tried again soon.
    resaving: bool,
    /// A state that was fetched and is not on the disk yet.
    loaded: Option<Head>,
    /// Who may serve the state that is being fetched.
    donors: watch::Sender<Vec<PeerId>>,
    jobs: JoinSet<Done>,
    /// Counts repeats, so that gossip does not drop them.
    repeats: u32,
    budgets: Budgets,
    /// Who was named for speaking another version: once is enough.
    incompatible: BTreeSet<PeerId>,
    twins: Twins,
    finish: Finish,
    stop: CancellationToken,
}

/// Why a node that ran cannot go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DriverError {
    /// The network ended by itself.
    #[error("the network has stopped: start the node again, it will catch up")]
    Network,
    /// A copy of the data folder runs.
    #[error(
        "another program runs with this node's key since {since}, from a copy of its data folder: \
         both would vote; stop the other one and delete its folder, then start this one again"
    )]
    Twin {
        /// The time of day at which it was started.
        since: String,
    },
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
}

/// A job that has ended.
enum Done {
    Answer(PeerId, Option<Answer>),
    /// An update was fetched or read, or was not.
    Update {
        name: Name,
        found: Option<Arc<Vec<u8>>>,
    },
    /// An update is on disk, or is not.
    Kept {
        name: Name,
        origin: Origin,
        result: Result<(), StoreError>,
    },
    /// The pause is over, after an update could not be written.
    Keep {
        name: Name,
        origin: Origin,
    },
    Checkpoint(
        Head,
        Blocks,
        Option<Box<(intellect_protocol::checkpoint::Table, intellect_model::state::State)>>,
    ),
    Saved(Result<Saved, StoreError>),
    /// Records are on the disk, or are not.
    Written(Box<Written>),
    /// An epoch that was trained faster than [`EPOCH_MIN`] has waited.
    Trained {
        epoch: u64,
        tokens: u64,
        loss: f64,
        norm: f32,
    },
    /// A question whose turn has come.
    Asked(Ask, Reply),
    /// The pause is over, after a fetched state could not be written.
    Resave,
    /// The pause is over, after an update could not be had.
    Refetch,
    /// What a ring redoes of the delta.
    Gathered(Box<ring::Job>),
    /// A kept chunk, for the ring of a roster.
    Chunk {
        ring: Digest,
        finished: Finished,
        found: Option<Arc<Vec<u8>>>,
    },
    /// An update that was put together.
    Repaired(Digest, Option<ring::Held>),
    /// Somebody waits for a chunk of a ring that is ending.
    ChunkAsked {
        from: PeerId,
        chunk: (Digest, u32),
        offset: u64,
        asked: u32,
        reply: Reply,
    },
    Progress,
}

impl Driver {
    /// Runs until the last epoch, Ctrl-C, or something that cannot be mended.
    pub(crate) async fn run(
        mut self,
        mut net: Net,
        mut reports: mpsc::Receiver<Report>,
        mut ring_events: mpsc::Receiver<rings::Event>,
        mut interrupts: Interrupts,
    ) -> Result<(), DriverError> {
        if let Some(state) = self.store.partial() {
            self.input(Input::Partial(state));
        }
        self.begin();
        loop {
            if self.finish.is_over(Instant::now()) {
                break;
            }
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
                    if let Ok(done) = done {
                        self.on_done(done)?;
                    }
                }
                Some((from, stream)) = net.rings.recv() => self.rings.arrive(from, stream),
                event = net.events.recv() => match event {
                    Some(event) => self.on_net(event),
                    None => return Err(DriverError::Network),
                },
                () = tokio::time::sleep_until(deadline.into()) => self.input(Input::Tick),
            }
            self.note_donors();
            self.consider_finishing();
            self.tell_waiting();
            self.twins.check()?;
        }
        self.close(net).await;
        Ok(())
    }

    /// Goes on from the head, which is genesis or what an earlier start left.
    fn begin(&mut self) {
        let head = self.peer.head();
        self.reach();
        self.worker_train(head.epoch.saturating_add(1), head.tokens);
        for update in std::mem::take(&mut self.held) {
            self.input(Input::UpdateHeld(update));
        }
        self.input(Input::Tick);
        self.save();
    }

    fn now(&self) -> Time {
        let elapsed = self.began.elapsed().as_millis();
        Time(u64::try_from(elapsed).unwrap_or(u64::MAX))
    }

    fn next_deadline(&self) -> Instant {
        let now = self.now();
        let due = self.peer.deadline().filter(|_| !self.outbox.is_stuck());
        let due = due.map_or(IDLE, |at| at.since(now));
        // Below a millisecond the clock of the state would not have moved.
        let due = Instant::now() + due.clamp(Duration::from_millis(1), IDLE);
        let others = [self.finish.deadline(), self.outbox.deadline()];
        others.into_iter().flatten().fold(due, Instant::min)
    }

    /// Gives one input to the state and does what it decides. While the disk takes nothing, and as much
    /// waits for it as may, what others say is not heard and time does not pass: the state stands
    /// still, like that of a process that was stopped.
    fn input(&mut self, input: Input) {
        let mut out = Vec::new();
        let now = self.now();
        self.stuck_since = self.stuck_since.or(Some(now)).filter(|_| self.outbox.is_stuck());
        if self.stuck_since.is_none() || !matches!(input, Input::Message(_) | Input::Tick) {
            self.peer.handle(self.stuck_since.unwrap_or(now), input, &mut out);
        }
        for output in out {
            self.apply(output);
        }
        self.write_log();
    }

    fn on_net(&mut self, event: net::Event) {
        match event {
            net::Event::Message { from, via, bytes } => self.on_message(from, via, &bytes),
            net::Event::Fetch { from, request, reply } => self.serve(from, &request, reply),
            net::Event::Disconnected { peer, cause } => {
                self.tell.disconnected(peer, &cause);
                self.input(Input::Unlinked(peer));
            }
            net::Event::RoundTrip { peer, length } => {
                let ms = u32::try_from(length.as_millis()).unwrap_or(u32::MAX).max(1);
                self.input(Input::RoundTrip(peer, ms));
            }
            net::Event::Connected { peer, link } => self.tell.connected(peer, &link),
            net::Event::Listening => self.tell.listening(&self.net.addresses()),
            net::Event::Reachability(state) => {
                self.tell.reachability(&state);
                let direct = !matches!(state, Reachability::Relayed | Reachability::Closed);
                self.input(Input::Reachable(direct));
            }
            net::Event::Incompatible { peer, version } => self.incompatible(peer, version),
            net::Event::Fault { peer, why } => self.tell.fault(peer, &why),
        }
    }

    /// D1, D2: counts, decodes, verifies, then believes. What is wrong with a message is blamed on
    /// `from`, whose connection brought it: before the signature holds, its author is hearsay.
    fn on_message(&mut self, from: PeerId, via: Via, bytes: &[u8]) {
        let gossip = matches!(via, Via::Gossip(_));
        let envelope = if gossip { bytes.get(4..).unwrap_or_default() } else { bytes };
        let author = wire::claimed_author(envelope).unwrap_or(from);
        match self.budgets.take(author, from, Instant::now()) {
            Ruling::Read => {}
            Ruling::Ignore => return self.verdict(via, Verdict::Ignore),
            Ruling::Fault => {
                self.net.fault(from, "more messages than anybody needs to send");
                return self.verdict(via, Verdict::Ignore);
            }
        }
        let run = self.manifest.id;
        let opened = if gossip {
            wire::open_gossip(&run, bytes)
        } else {
            wire::open(&run, bytes, wire::DIRECT_BYTES_MAX)
        };
        match opened {
            // A repeat of ours that somebody else made: passed on by us, it would count as ours.
            Ok(message) => {
                let (ours, message) = (message.author() == self.key.peer(), Arc::new(message));
                self.verdict(via, if ours { Verdict::Ignore } else { Verdict::Accept });
                self.meet_twin(from, &message);
                if !ours {
                    self.input(Input::Message(message));
                }
            }
            Err(wire::OpenError::Version(version)) => {
                self.verdict(via, Verdict::Ignore);
                self.incompatible(from, version.to_string());
            }
            Err(error) => {
                self.verdict(via, Verdict::Reject);
                self.net.fault(from, error.to_string());
            }
        }
    }

    fn verdict(&self, via: Via, verdict: Verdict) {
        if let Via::Gossip(token) = via {
            self.net.verdict(token, verdict);
        }
    }

    fn incompatible(&mut self, peer: PeerId, version: String) {
        if self.incompatible.len() < INCOMPATIBLE_MAX && self.incompatible.insert(peer) {
            self.tell.incompatible(peer, version);
        }
    }

    fn on_report(&mut self, report: Report) -> Result<(), DriverError> {
        match report {
            Report::Step { loss, tokens } => self.tell.step(loss, tokens),
            Report::Trained { epoch, tokens, loss, norm, delta } => {
                if epoch != self.peer.head().epoch + 1 {
                    return Ok(());
                }
                self.delta = Some(delta);
                let early = EPOCH_MIN.saturating_sub(self.entered.elapsed());
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

    fn on_state(&mut self, snapshot: Arc<Snapshot>, origin: worker::Origin) {
        let header = *snapshot.table.header();
        let state = snapshot.table.state();
        self.newest = snapshot;
        self.delta = None;
        self.steps.taken();
        self.entered = Instant::now();
        match origin {
            worker::Origin::Genesis => {}
            worker::Origin::Applied => self.input(Input::Applied { state }),
            worker::Origin::Loaded => {
                self.loaded = Some(Head { epoch: header.epoch, tokens: header.tokens, state });
                self.note_loaded();
            }
        }
        self.save();
    }

    fn on_ring(&mut self, event: rings::Event) {
        match event {
            rings::Event::Sealed(finished) => self.on_sealed(finished),
            rings::Event::Remains(roster, bytes) => self.on_remains(roster, bytes),
            rings::Event::Held(roster, held) => self.on_ring_ended(roster, held),
            rings::Event::Lost { roster, neighbour } => {
                self.input(Input::RingLost { roster, neighbour });
            }
            rings::Event::Fault { roster, who, fault } => {
                self.tell.fault(who, &fault.to_string());
                self.net.drop_peer(who, fault.to_string());
                self.input(Input::RingLost { roster, neighbour: who });
            }
        }
    }

    fn on_done(&mut self, done: Done) -> Result<(), DriverError> {
        match done {
            Done::Answer(peer, answer) => {
                self.input(Input::Answer(peer, answer.map(Arc::new)));
            }
            Done::Update { name, found } => self.on_update(name, found)?,
            Done::Kept { name, origin, result } => self.on_kept(name, origin, result)?,
            Done::Keep { name, origin } => self.keep_again(name, origin),
            Done::Asked(ask, reply) => self.decide(Item::Answer(ask, reply)),
            Done::Written(written) => self.on_written(*written),
            Done::Refetch => self.fetch_unapplied(),
            Done::Checkpoint(_, spent, Some(found)) => {
                let (table, state) = *found;
                let state = Box::new(state);
                self.command(worker::Command::Load { table, state, spent });
            }
            Done::Checkpoint(head, _, None) => self.input(Input::LoadFailed(head)),
            Done::Saved(result) => self.on_saved(result),
            Done::Resave => {
                self.resaving = false;
                self.save();
            }
            Done::Trained { epoch, tokens, loss, norm } => {
                // Who catches up with the last epoch has begun to train before it knows.
                let wanted = !self.finish.is_reached() && self.delta.is_some();
                if wanted && epoch == self.peer.head().epoch + 1 {
                    self.tell.ready(epoch, tokens, loss, norm);
                    self.input(Input::Trained { tokens, norm });
                }
            }
            Done::Gathered(job) => self.on_gathered(*job),
            Done::Chunk { ring, finished, found } => self.on_chunk(ring, finished, found),
            Done::Repaired(roster, held) => self.on_repaired(roster, held),
            Done::ChunkAsked { from, chunk, offset, asked, reply } => {
                self.serve_chunk(from, chunk, offset, asked, reply);
            }
            Done::Progress => {}
        }
        Ok(())
    }

    fn command(&mut self, command: worker::Command) {
        if !self.worker.command(command) {
            // The loop hears of its end by the channel of reports.
            tracing::error!("the worker takes no command");
        }
    }

    fn worker_train(&mut self, epoch: u64, tokens: u64) {
        if !self.finish.is_reached() {
            self.command(worker::Command::Train { epoch, tokens });
        }
    }

    fn gossip(&mut self, repeat: u32, message: &Verified<Message>) {
        let beat = matches!(message.body(), Message::Heartbeat(_));
        if beat {
            self.net.knock(wire::envelope(message));
        }
        let topic = if beat { net::Topic::Beat } else { net::Topic::Ctl };
        if let Err(error) = self.net.gossip(topic, wire::gossip(repeat, message)) {
            tracing::debug!(%error, "not gossiped");
        }
    }
}

/// An epoch lasts at least so long: a peer's messages of one epoch, times two a second, stay well
/// below [`budget::MESSAGES_PER_S`], so that no honest peer looks like a flood, however small its
/// model.
const EPOCH_MIN: Duration = Duration::from_millis(500);

/// Peers of another version that are named; more of them say nothing new.
const INCOMPATIBLE_MAX: usize = 256;

/// The loop looks around at least so often.
const IDLE: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests;
