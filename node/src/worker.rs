//! The thread that owns the device, the model and the agreed state, and does nothing but compute.
//!
//! It trains inner steps until the epoch's budget is used up, and freezes the delta
//! Δ = θ_anchor − θ_local (R31). It takes the outer step of a committed epoch, and moves the local weights by
//! the additive rule θ_local ← θ_new + (θ_local − what was spent) (docs/MATH.md): work that no receipt has
//! spent stays in them and is offered again.
//!
//! It reads its inbox between two inner steps, so a command waits for one step at most. The thread is never
//! joined: at exit it is abandoned, perhaps inside a step.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use intellect_model::data::Stream;
use intellect_model::optim::OptimError;
use intellect_model::outer::Outer;
use intellect_model::state::State;
use intellect_model::train::{TrainError, Trainer};
use intellect_protocol::base::assign::stream_seed;
use intellect_protocol::base::blocks::Blocks;
use intellect_protocol::base::id::{Digest, PeerId, RunId};
use intellect_protocol::history::checkpoint::{Header, Table};
use intellect_protocol::holdings::Origin;
use intellect_protocol::manifest::{Budget, Epoch};
use intellect_protocol::message::Head;
use intellect_protocol::ring::codec::{Codec, DecodeError, EncodeError};
use tokio::sync::mpsc as tasks;

use crate::os::{self, Priority};

/// Commands that may wait: the driver has at most one of each kind under way.
const COMMANDS: usize = 8;

/// How often in a row training may give no finite number: a bad batch does so once, too high a learning rate
/// every time.
const FAILURES_MAX: u32 = 3;

/// A fetched state that is further than so many epochs from ours takes no work of ours along (guess): that was
/// done on a model that nobody has any more. A newcomer's first work is on genesis.
const STALE_AFTER: u64 = 4;

/// Reports that may wait. The worker stops while the driver is this far behind.
const REPORTS: usize = 64;

/// The settings of a worker, which are the same for the whole run.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// The run whose id seeds the data stream of every epoch.
    pub(crate) run: RunId,
    /// Our peer, so that each peer trains on other data.
    pub(crate) me: PeerId,
    /// When an epoch's training ends.
    pub(crate) epoch: Epoch,
    /// The greatest weight that other peers accept, in tokens.
    pub(crate) weight_max: u64,
    /// How updates are encoded; also decodes those that are applied.
    pub(crate) codec: Codec,
    /// Learning rate and momentum of the outer step.
    pub(crate) outer: Outer,
}

/// What the driver asks the worker to compute.
#[derive(Debug)]
pub(crate) enum Command {
    /// Train this epoch until its budget is used up; the run has committed so many tokens.
    Train { epoch: u64, tokens: u64 },
    /// Take the outer step that leads to the state of `header`. The update is encoded; `spent` are the blocks
    /// in which it contains the frozen delta.
    Apply { header: Header, update: Arc<Vec<u8>>, spent: Blocks },
    /// Go on from a fetched state (θ and v); `spent` are the blocks in which it contains pending work of this
    /// peer.
    Load { table: Table, state: Box<State>, spent: Blocks },
}

/// What the worker reports to the driver.
#[derive(Debug)]
pub(crate) enum Report {
    /// An inner step is done, with the loss and the tokens of its batch.
    Step { loss: f64, tokens: u64 },
    /// The delta is frozen. `tokens` are those behind it, carried ones included; `loss` is their mean loss.
    Trained { epoch: u64, tokens: u64, loss: f64, norm: f32, delta: Arc<Vec<f32>> },
    /// The outer step is taken, or the fetched state is loaded; without an origin it is genesis.
    State(Arc<Snapshot>, Option<Origin>),
    /// Training gave no finite number, and restarts from the agreed weights.
    Diverged { epoch: u64, why: String },
    /// The worker has ended with this error.
    Failed(String),
}

/// A committed state, to be stored and served.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) table: Arc<Table>,
    /// θ and v, shared with the worker, which never writes to them.
    pub(crate) state: Arc<State>,
}

impl Snapshot {
    /// The head that has this state.
    pub(crate) fn head(&self) -> Head {
        self.table.head()
    }
}

/// Why an update could not be applied, which ends the worker.
#[derive(Debug, thiserror::Error)]
enum ApplyError {
    #[error("the update does not decode: {0}")]
    Decode(#[from] DecodeError),
    #[error("the new state cannot be kept: {0}")]
    State(#[from] EncodeError),
    #[error(transparent)]
    Train(#[from] TrainError),
}

/// The end of the worker to which commands go, without waiting: a full inbox amounts to a worker that has ended.
/// Dropping it ends the thread.
pub(crate) type Orders = SyncSender<Command>;

/// Starts the thread, in which `make` builds trainer and genesis, since that takes long.
pub(crate) fn start<F>(
    config: Config,
    make: F,
) -> std::io::Result<(Orders, tasks::Receiver<Report>)>
where
    F: FnOnce() -> Result<(Box<dyn Trainer>, State), String> + Send + 'static,
{
    let (commands, inbox) = mpsc::sync_channel(COMMANDS);
    let (reports, outbox) = tasks::channel(REPORTS);
    thread::Builder::new().name("worker".to_owned()).spawn(move || {
        os::lower_thread_priority(Priority::Compute);
        let made = make().and_then(|(trainer, state)| {
            Worker::new(config, trainer, state, reports.clone()).map_err(|e| e.to_string())
        });
        match made {
            Ok(mut worker) => worker.run(&inbox),
            Err(why) => drop(reports.blocking_send(Report::Failed(why))),
        }
    })?;
    Ok((commands, outbox))
}

/// The thread's own state. Nothing else reads it; snapshots share only the agreed state.
struct Worker {
    config: Config,
    /// The model and its optimiser, on the device.
    trainer: Box<dyn Trainer>,
    /// The last committed state, and its epoch. Deltas are measured from its θ.
    agreed: Arc<State>,
    epoch: u64,
    /// θ_local on the host. It equals the trainer's weights only after `store` or `load`.
    local: Vec<f32>,
    /// The value of θ_local when the delta was frozen.
    at_ready: Option<Vec<f32>>,
    /// The epoch that is being trained; `None` while the worker waits for a command.
    training: Option<Training>,
    /// The part of the budget that was done when an epoch was committed without us. The next epoch goes on
    /// from there, or a slow peer would never complete one.
    carried: Done,
    /// Tokens that no receipt has spent, and the sum of their losses.
    unspent: u64,
    /// Losses times tokens, so that the mean weighs each batch by its size.
    unspent_loss: f64,
    /// How often in a row training has given no finite number.
    failures: u32,
    /// Where steps, deltas and states go. The worker waits if the driver is behind.
    reports: tasks::Sender<Report>,
}

/// The training of one epoch since its command came.
struct Training {
    epoch: u64,
    /// The data of this peer in this epoch.
    stream: Stream,
    /// The next step of this epoch's stream.
    step: u64,
    /// What counts since the command or the last restart of the epoch, after what was carried over from an
    /// epoch that was committed without us. Its time is only what was carried over.
    done: Done,
    /// When the command came, or the epoch was restarted.
    began: Instant,
}

/// Work that counts towards the budget of an epoch.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    /// Inner steps that gave a finite loss.
    steps: u64,
    tokens: u64,
    /// Time of training, for a budget in seconds.
    length: Duration,
}

impl Training {
    /// All that counts towards the budget so far, what was carried over included.
    fn done(&self) -> Done {
        Done { length: self.done.length + self.began.elapsed(), ..self.done }
    }
}

impl Worker {
    /// Loads genesis into the model, and reports it as the first state.
    fn new(
        config: Config,
        mut trainer: Box<dyn Trainer>,
        agreed: State,
        reports: tasks::Sender<Report>,
    ) -> Result<Self, ApplyError> {
        trainer.model().load(agreed.theta())?;
        let local = agreed.theta().to_vec();
        let header = Header {
            run: config.run,
            epoch: 0,
            tokens: 0,
            r: Digest::ZERO,
            parameters: agreed.theta().len() as u64,
        };
        let worker = Self {
            config,
            trainer,
            agreed: Arc::new(agreed),
            epoch: 0,
            local,
            at_ready: None,
            training: None,
            carried: Done::default(),
            unspent: 0,
            unspent_loss: 0.0,
            failures: 0,
            reports,
        };
        worker.publish(header, None)?;
        Ok(worker)
    }

    /// Trains while there is something to train, and waits for a command otherwise. A failure is
    /// reported, and ends the thread.
    fn run(&mut self, inbox: &Receiver<Command>) {
        loop {
            let received = match self.training {
                Some(_) => inbox.try_recv(),
                None => inbox.recv().map_err(TryRecvError::from),
            };
            let done = match received {
                Ok(command) => self.execute(command).map_err(|error| error.to_string()),
                Err(TryRecvError::Empty) if self.has_done_all() => self.freeze(),
                Err(TryRecvError::Empty) => self.step(),
                Err(TryRecvError::Disconnected) => return,
            };
            if let Err(why) = done {
                self.report(Report::Failed(why));
                return;
            }
        }
    }

    /// Gives a report to the driver; waits while its queue is full.
    fn report(&self, report: Report) {
        // Fails only where the driver has ended.
        drop(self.reports.blocking_send(report));
    }

    /// Carries out one command. A new [`Command::Train`] replaces the epoch under way, whose work
    /// stays in the local weights.
    fn execute(&mut self, command: Command) -> Result<(), ApplyError> {
        match command {
            Command::Train { epoch, tokens } => {
                let seed = stream_seed(&self.config.run, epoch, &self.config.me);
                let stream = Stream { seed, committed: tokens };
                let (began, done) = (Instant::now(), std::mem::take(&mut self.carried));
                self.training = Some(Training { epoch, stream, step: 0, done, began });
                Ok(())
            }
            Command::Apply { header, update, spent } => self.apply(header, &update, &spent),
            Command::Load { table, state, spent } => {
                let header = *table.header();
                self.carry();
                let is_stale = header.epoch.abs_diff(self.epoch) > STALE_AFTER;
                let spent = if is_stale { self.forget() } else { spent };
                self.move_to(*state, &spent)?;
                self.epoch = header.epoch;
                self.publish(header, Some(Origin::Loaded))
            }
        }
    }

    /// Whether the budget of the epoch is used up. A step may last longer than an epoch of the others, so the
    /// delta is frozen only once no command waits.
    fn has_done_all(&self) -> bool {
        let Some(training) = &self.training else { return false };
        let done = training.done();
        let done = match self.config.epoch.budget {
            Budget::Steps => done.steps,
            Budget::Tokens => done.tokens,
            Budget::Seconds => done.length.as_secs(),
        };
        self.unspent > 0 && done >= self.config.epoch.amount
    }

    /// Takes one inner step, if an epoch is being trained.
    fn step(&mut self) -> Result<(), String> {
        let Some(training) = &mut self.training else { return Ok(()) };
        let position = training.stream.committed.saturating_add(self.unspent);
        match self.trainer.step(&training.stream, training.step, position) {
            Ok(step) => {
                training.step += 1;
                training.done.steps += 1;
                training.done.tokens += step.tokens;
                self.unspent = self.unspent.saturating_add(step.tokens);
                #[expect(clippy::cast_precision_loss, reason = "a mean for people")]
                let weight = step.tokens as f64;
                self.unspent_loss += step.loss * weight;
                self.report(Report::Step { loss: step.loss, tokens: step.tokens });
                Ok(())
            }
            Err(TrainError::Optim(error @ OptimError::NotFinite { .. })) => {
                self.restart_epoch(&error.to_string())
            }
            Err(error) => Err(error.to_string()),
        }
    }

    /// Freezes the delta for the ring. Its weight is capped at what other peers accept; the tokens
    /// above the cap are trained, but not counted.
    fn freeze(&mut self) -> Result<(), String> {
        let Some(training) = &self.training else { return Ok(()) };
        let epoch = training.epoch;
        self.trainer.model().store(&mut self.local).map_err(|error| error.to_string())?;
        let anchor = self.agreed.theta();
        let delta: Vec<f32> = anchor.iter().zip(&self.local).map(|(a, l)| a - l).collect();
        let norm = delta.iter().map(|d| f64::from(*d) * f64::from(*d)).sum::<f64>().sqrt();
        let tokens = self.unspent.min(self.config.weight_max);
        #[expect(clippy::cast_precision_loss, reason = "an order of magnitude")]
        let sent = norm * tokens as f64;
        // In a ring the delta travels times its weight.
        if !sent.is_finite() || sent > f64::from(f32::MAX) / 2.0 {
            return self.restart_epoch("the delta is not finite");
        }
        (self.training, self.failures) = (None, 0);
        self.at_ready = Some(self.local.clone());
        #[expect(clippy::cast_precision_loss, reason = "a mean for people")]
        let loss = self.unspent_loss / self.unspent.max(1) as f64;
        #[expect(clippy::cast_possible_truncation, reason = "a norm for people")]
        let norm = norm as f32;
        self.report(Report::Trained { epoch, tokens, loss, norm, delta: Arc::new(delta) });
        Ok(())
    }

    /// Discards the training since the anchor, and trains the epoch again from the next step of its stream on,
    /// since the data may be the cause. After too many restarts it ends the node.
    fn restart_epoch(&mut self, why: &str) -> Result<(), String> {
        let Some(training) = &mut self.training else { return Ok(()) };
        let epoch = training.epoch;
        self.failures += 1;
        if self.failures >= FAILURES_MAX {
            return Err(format!(
                "epoch {epoch}: {FAILURES_MAX} times in a row it gave no finite number ({why}). \
                 The learning rate of this run (train.lr) is too high, or its data is damaged: \
                 only its organiser can change that, with another manifest"
            ));
        }
        training.step += 1;
        (training.done, training.began) = (Done::default(), Instant::now());
        self.local.copy_from_slice(self.agreed.theta());
        self.trainer.model().load(&self.local).map_err(|error| error.to_string())?;
        (self.unspent, self.unspent_loss) = (0, 0.0);
        self.report(Report::Diverged { epoch, why: why.to_owned() });
        Ok(())
    }

    /// Ends the training under way. What it has done counts for the next epoch, however many are committed before
    /// that.
    fn carry(&mut self) {
        if let Some(training) = self.training.take() {
            self.carried = training.done();
        }
    }

    /// Takes the outer step of a committed epoch.
    fn apply(&mut self, header: Header, update: &[u8], spent: &Blocks) -> Result<(), ApplyError> {
        self.carry();
        let mut delta = vec![0.0; self.local.len()];
        self.config.codec.decode(update, &mut delta)?;
        let mut state = State::clone(&self.agreed);
        state.step(&self.config.outer, header.epoch, &delta);
        drop(delta);
        self.move_to(state, spent)?;
        self.epoch = header.epoch;
        self.publish(header, Some(Origin::Applied))
    }

    /// Gives up all work that no receipt has spent. Returns the blocks for which the next state replaces it.
    fn forget(&mut self) -> Blocks {
        self.at_ready = None;
        Blocks::all(self.local.len() as u64)
    }

    /// The additive rule, block by block (R34): local weights keep the work that the new state has not spent.
    fn move_to(&mut self, state: State, spent: &Blocks) -> Result<(), TrainError> {
        self.trainer.model().store(&mut self.local)?;
        let elements = self.local.len() as u64;
        let at_ready = self.at_ready.take();
        for range in spent.elements(elements) {
            let local = &mut self.local[range.clone()];
            match &at_ready {
                Some(at_ready) => advance(local, &at_ready[range.clone()], &state.theta()[range]),
                // A part was spent on another lineage, and training has gone on since. The two cannot be
                // separated, and losing all of it is better than counting some twice.
                None => local.copy_from_slice(&state.theta()[range]),
            }
        }
        for range in spent.rest(elements).elements(elements) {
            let old = &self.agreed.theta()[range.clone()];
            advance(&mut self.local[range.clone()], old, &state.theta()[range]);
        }
        self.trainer.model().load(&self.local)?;
        self.agreed = Arc::new(state);
        if !spent.is_empty() {
            (self.unspent, self.unspent_loss, self.carried) = (0, 0.0, Done::default());
        }
        Ok(())
    }

    /// Hashes the agreed state and reports it. The driver stores and serves the snapshot while
    /// training goes on.
    fn publish(&self, header: Header, origin: Option<Origin>) -> Result<(), ApplyError> {
        let table = Table::of(header, self.agreed.theta(), self.agreed.momentum())?;
        let snapshot = Snapshot { table: Arc::new(table), state: Arc::clone(&self.agreed) };
        self.report(Report::State(Arc::new(snapshot), origin));
        Ok(())
    }
}

/// θ_local ← θ_new + (θ_local − from).
fn advance(local: &mut [f32], from: &[f32], new: &[f32]) {
    for ((local, from), new) in local.iter_mut().zip(from).zip(new) {
        *local = new + (*local - from);
    }
}

#[cfg(test)]
mod tests;
