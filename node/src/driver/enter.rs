//! From a command line to a running node: manifest, what this machine can do, genesis, the loop.
//!
//! Everything that can be refused is refused here, before anything is downloaded or trained, with
//! the number that is missing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use intellect_model::outer::Outer;
use intellect_model::state::State;
use intellect_model::train::Trainer;
use intellect_model::{arch, data, genesis};
use intellect_protocol::id::RunId;
use intellect_protocol::manifest::{Budget, Quorum};
use intellect_protocol::peer;
use intellect_protocol::time::Time;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::Driver;
use super::budget::Budgets;
use super::finish::Finish;
use super::tell::Teller;
use super::updates::{IN_MEMORY, OPEN, Steps, Updates};
use crate::config::{Local, RunPrefix};
use crate::error::Error;
use crate::events::{self, Sink};
use crate::identity::Home;
use crate::manifest::{Manifest, ReadError};
use crate::name::{Hex, PeerName};
use crate::net::{self, Net};
use crate::os::{self, Interrupts};
use crate::store::updates::Name;
use crate::store::{Start, Store};
use crate::worker::{self, Report, Snapshot};
use crate::{offline, rings};

/// Ring events that may wait: a few per ring, one ring at a time.
const RING_EVENTS: usize = 64;

/// A Ready may declare at most this many times the tokens of one epoch (docs/FORMATS.md).
const WEIGHT_FACTOR: u64 = 8;

/// What the program holds whatever the model: a node with a model of 0.1 M parameters peaked at
/// 37 MB (2026-11).
const PROGRAM_BYTES: u64 = 30_000_000;

/// Checkpoints that the disk must have room for: three kept and one being written.
const CHECKPOINTS_ROOM: u64 = 4;

/// Why this node cannot take part. Nothing was downloaded or trained.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EnterError {
    /// What was handed out is no manifest that this program can use.
    #[error("the manifest from {from} cannot be used")]
    Manifest {
        /// Who handed it out.
        from: String,
        /// What is wrong.
        source: Box<ReadError>,
    },
    /// Nothing that was handed out is the run asked for.
    #[error("nobody offers a run that begins with {prefix}; offered: {offered}")]
    NoSuchRun {
        /// As typed.
        prefix: String,
        /// The runs that are.
        offered: String,
    },
    /// The user must choose.
    #[error("several runs are offered; choose one with --run:\n{offered}")]
    Several {
        /// Id and name of each, a line each.
        offered: String,
    },
    /// Too little memory.
    #[error(
        "this run needs {needed} of memory on this machine and {available} are free: {missing} are \
         missing; close other programs, or choose a smaller --micro-batch"
    )]
    Memory {
        /// In units that people read.
        needed: String,
        /// Likewise.
        available: String,
        /// Likewise.
        missing: String,
    },
    /// Too little disk.
    #[error(
        "{folder} needs {needed} for checkpoints and has {available}: {missing} are missing; free \
         some space, or name another folder with --data-dir"
    )]
    Disk {
        /// The data folder.
        folder: String,
        /// In units that people read.
        needed: String,
        /// Likewise.
        available: String,
        /// Likewise.
        missing: String,
    },
    /// The run's data.
    #[error(transparent)]
    Data(#[from] data::DataError),
    /// Incarnations are counted from then.
    #[error("the clock of this machine is before 1970: set it")]
    Clock,
}

/// Runs a node until it is done.
pub(crate) fn run(local: &Local, home: &Home, events: Option<File>) -> Result<(), Error> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(Error::Runtime)?;
    let result = runtime.block_on(enter(local, home, events));
    // Jobs that still run are nobody's any more.
    runtime.shutdown_background();
    result
}

async fn enter(local: &Local, home: &Home, events: Option<File>) -> Result<(), Error> {
    let interrupts = Interrupts::new().map_err(Error::Runtime)?;
    let sink = Sink::new(events, PeerName::from(home.identity.peer()));
    let mut tell = Teller::new(sink, local.voice);
    let stop = CancellationToken::new();
    let result = join(local, home, &mut tell, interrupts, &stop).await;
    stop.cancel();
    tell.stopped(u8::from(result.is_err()));
    result
}

async fn join(
    local: &Local,
    home: &Home,
    tell: &mut Teller,
    mut interrupts: Interrupts,
    stop: &CancellationToken,
) -> Result<(), Error> {
    let net = net::start(
        net::Config {
            key_seed: home.identity.seed(),
            listen: local.listen.clone(),
            external: local.external.clone(),
            bootstrap: local.bootstrap.clone(),
            rate: local.rate.map_or(0, Into::into),
        },
        stop.clone(),
    )?;
    tell.say(&format!("I am {}; looking for the run", PeerName::from(home.identity.peer())));
    let manifest = tokio::select! {
        manifest = choose(&net, local.run.as_ref(), tell) => Arc::new(manifest?),
        () = interrupts.next() => return Ok(()),
    };
    tell.set_run(manifest.id);
    check_machine(local, &manifest, tell)?;
    let store = Store::open(&local.data_dir, manifest.id)?;
    store.save_manifest(&manifest.text)?;
    let start = store.begin(home.identity.log_id(), unix_ms()?)?;
    let device = local.device.resolve().map_err(intellect_model::train::TrainError::from);
    let device = device.map_err(|error| Error::Worker(error.to_string()))?;
    let source = tokio::select! {
        source = open_data(local, &manifest) => source?,
        () = interrupts.next() => return Ok(()),
    };
    let (worker, mut reports) = start_worker(local, home, &manifest, source)?;
    let genesis = tokio::select! {
        genesis = genesis_of(&mut reports) => genesis?,
        () = interrupts.next() => return Ok(()),
    };
    let parameters = manifest.work.model.parameter_count();
    tell.emit(
        None,
        events::Event::Started {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            device: device.to_string(),
            parameters,
            incarnation: start.incarnation,
        },
    );
    net.handle
        .join(manifest.id, manifest.text.clone().into_bytes())
        .await
        .map_err(|_| Error::Network)?;
    tell.say(&format!(
        "training {} parameters on {device} with {} threads",
        offline::count(parameters),
        local.threads
    ));
    let stop = stop.clone();
    let found = store.updates()?;
    let parts = Parts { local, home, manifest, start, store, found, worker, genesis, stop };
    let (driver, ring_events) = parts.driver(&net, tell.clone());
    driver.run(net, reports, ring_events, interrupts).await
}

/// The manifest of the run: every one that is offered is verified, whoever offers it.
async fn choose(net: &Net, prefix: Option<&RunPrefix>, tell: &Teller) -> Result<Manifest, Error> {
    let offers = net.handle.manifests(None).await?;
    let mut found: BTreeMap<RunId, (Manifest, String)> = BTreeMap::new();
    let mut wrong = None;
    for offer in offers {
        match Manifest::parse(&String::from_utf8_lossy(&offer.bytes)) {
            Ok(manifest) => {
                found.entry(manifest.id).or_insert((manifest, offer.from));
            }
            Err(source) => {
                let error = EnterError::Manifest { from: offer.from, source: Box::new(source) };
                tell.say(&format!("ignored: {error}"));
                wrong.get_or_insert(error);
            }
        }
    }
    let list = |found: &BTreeMap<RunId, (Manifest, String)>| {
        let lines = found.iter().map(|(id, (m, _))| format!("  {} {}", id.hex(), m.run.name));
        lines.collect::<Vec<_>>().join("\n")
    };
    let all = list(&found);
    if let Some(prefix) = prefix {
        found.retain(|run, _| prefix.matches(run));
    }
    if found.len() > 1 {
        return Err(EnterError::Several { offered: list(&found) }.into());
    }
    let Some((_, (manifest, from))) = found.pop_first() else {
        return Err(match (wrong, prefix) {
            (_, Some(prefix)) if !all.is_empty() => {
                let prefix = prefix.as_str().to_owned();
                EnterError::NoSuchRun { prefix, offered: format!("\n{all}") }.into()
            }
            (Some(wrong), _) => wrong.into(),
            _ => Error::Network,
        });
    };
    tell.say(&format!(
        "run {} \"{}\", signed by {}",
        manifest.id,
        manifest.run.name,
        &manifest.run.organiser.hex()[..8]
    ));
    let (name, organiser) = (manifest.run.name.clone(), Hex::from(manifest.run.organiser));
    tell.emit(None, events::Event::Manifest { name, organiser, from });
    Ok(manifest)
}

/// Whether memory and disk suffice; says what the run takes.
fn check_machine(local: &Local, manifest: &Manifest, tell: &Teller) -> Result<(), EnterError> {
    let work = &manifest.work;
    let micro = local.micro_batch.map_or(work.train.batch, Into::into);
    let parameters = work.model.parameter_count();
    // The agreed state, the next one, and one that is being written; local weights, those at Ready,
    // and the frozen delta, or the decoded update, or what goes to the device. Encoded: the updates
    // that are served, and those of two attempts.
    let update = usize::try_from(parameters).unwrap_or(usize::MAX);
    let update = manifest.run.codec.encoded_bytes(update) as u64;
    let node = 3 * work.state_bytes() + 3 * 4 * parameters + (IN_MEMORY as u64 + 2) * update;
    // Of 17 M parameters it says 1.04 GB with int8 and 1.35 with f32; nodes of a ring of two
    // peaked at 0.97 and 1.25 (CPU, 2026-11).
    let needed = PROGRAM_BYTES.saturating_add(node).saturating_add(work.trainer_bytes(micro));
    let updates = (peer::UPDATES_KEPT + OPEN) as u64;
    let disk = CHECKPOINTS_ROOM * work.state_bytes() + updates * update;
    tell.say(&format!(
        "this run takes {} of memory and {} of disk; its state is {}",
        offline::bytes(needed),
        offline::bytes(disk),
        offline::bytes(work.state_bytes())
    ));
    if let Some(available) = os::memory_available_bytes().filter(|free| *free < needed) {
        return Err(EnterError::Memory {
            needed: offline::bytes(needed),
            available: offline::bytes(available),
            missing: offline::bytes(needed - available),
        });
    }
    let folder: &Path = &local.data_dir;
    if let Some(available) = os::disk_available_bytes(folder).filter(|free| *free < disk) {
        return Err(EnterError::Disk {
            folder: folder.display().to_string(),
            needed: offline::bytes(disk),
            available: offline::bytes(available),
            missing: offline::bytes(disk - available),
        });
    }
    Ok(())
}

/// Reads the whole file of a run on a text, to compare its digest.
async fn open_data(local: &Local, manifest: &Arc<Manifest>) -> Result<Arc<data::Source>, Error> {
    let (manifest, path) = (Arc::clone(manifest), local.data.clone());
    let open = move || data::Source::open(&manifest.work, manifest.run.seed, path.as_deref());
    let source = tokio::task::spawn_blocking(open).await;
    let source = source.map_err(|error| Error::Worker(error.to_string()))?;
    Ok(Arc::new(source.map_err(EnterError::Data)?))
}

fn start_worker(
    local: &Local,
    home: &Home,
    manifest: &Manifest,
    source: Arc<data::Source>,
) -> Result<(worker::Handle, mpsc::Receiver<Report>), Error> {
    let seed = manifest.run.seed;
    let outer = manifest.run.outer;
    let config = worker::Config {
        run: manifest.id,
        me: home.identity.peer(),
        epoch: manifest.run.epoch,
        weight_max: weight_max(manifest),
        codec: manifest.run.codec,
        outer: Outer {
            lr: outer.lr,
            momentum: outer.momentum,
            momentum_ramp_epochs: outer.momentum_ramp_epochs,
        },
    };
    let (work, device) = (manifest.work.clone(), local.device);
    let (threads, micro_batch) = (local.threads.get(), local.micro_batch.map(Into::into));
    let make = move || -> Result<(Box<dyn Trainer>, State), String> {
        intellect_model::use_threads(threads);
        let trainer = intellect_model::trainer(&work, source, device, micro_batch)
            .map_err(|error| error.to_string())?;
        let weights = genesis::weights(seed, &arch::specs(&work.model));
        Ok((trainer, State::genesis(weights)))
    };
    worker::start(config, make).map_err(Error::Runtime)
}

fn weight_max(manifest: &Manifest) -> u64 {
    let epoch = manifest.run.epoch_tokens(manifest.work.tokens_per_step());
    // Where seconds bound an epoch, the last receipt does; sums of 256 weights still fit.
    epoch.map_or(u64::MAX >> 16, |tokens| tokens.saturating_mul(WEIGHT_FACTOR))
}

async fn genesis_of(reports: &mut mpsc::Receiver<Report>) -> Result<Arc<Snapshot>, Error> {
    match reports.recv().await {
        Some(Report::State(snapshot, worker::Origin::Genesis)) => Ok(snapshot),
        Some(Report::Failed(why)) => Err(Error::Worker(why)),
        _ => Err(Error::Worker("the worker thread is gone".to_owned())),
    }
}

fn unix_ms() -> Result<u64, EnterError> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).map_err(|_| EnterError::Clock)?;
    u64::try_from(since.as_millis()).map_err(|_| EnterError::Clock)
}

/// What a driver is made of.
struct Parts<'a> {
    local: &'a Local,
    home: &'a Home,
    manifest: Arc<Manifest>,
    start: Start,
    store: Store,
    /// Updates on disk.
    found: Vec<Name>,
    worker: worker::Handle,
    genesis: Arc<Snapshot>,
    stop: CancellationToken,
}

impl Parts<'_> {
    fn driver(self, net: &Net, tell: Teller) -> (Driver, mpsc::Receiver<rings::Event>) {
        let (ring_outbox, ring_events) = mpsc::channel(RING_EVENTS);
        let config = self.peer_config();
        let run = &self.manifest.run;
        let stop_tokens = (run.stop_tokens > 0).then_some(run.stop_tokens);
        let driver = Driver {
            key: self.home.identity.keypair(),
            peer: peer::State::new(Time::ZERO, config),
            began: Instant::now(),
            entered: Instant::now(),
            net: net.handle.clone(),
            worker: self.worker,
            store: Arc::new(self.store),
            rings: rings::Rings::new(net.handle.clone(), ring_outbox),
            tell,
            delta: None,
            updates: Updates::new(self.found),
            steps: Steps::default(),
            newest: self.genesis,
            saved: VecDeque::new(),
            saving: false,
            jobs: JoinSet::new(),
            repeats: 0,
            budgets: Budgets::default(),
            incompatible: BTreeSet::new(),
            finish: Finish::new(self.local.epochs.map(Into::into), stop_tokens),
            stop: self.stop,
            manifest: self.manifest,
        };
        (driver, ring_events)
    }

    fn peer_config(&self) -> peer::Config {
        let run = &self.manifest.run;
        let members = &run.members;
        let founders = match &members.quorum {
            Quorum::Available => None,
            Quorum::Majority { founders } => Some(founders.clone()),
        };
        let elements = self.genesis.state.theta().len();
        peer::Config {
            run: self.manifest.id,
            genesis: self.genesis.table.state(),
            peers_min: usize::try_from(members.min_peers).unwrap_or(usize::MAX),
            founders,
            heartbeat: members.heartbeat,
            ready_grace: members.ready_grace,
            minority_grace: members.minority_grace,
            weight_max: weight_max(&self.manifest),
            weight_medians: (run.epoch.budget == Budget::Seconds).then_some(WEIGHT_FACTOR),
            elements: elements as u64,
            update_bytes: run.codec.encoded_bytes(elements) as u64,
            replay_max: 8 * elements / run.codec.encoded_bytes(elements),
            key: self.home.identity.keypair(),
            log: self.start.log,
            incarnation: self.start.incarnation,
            recovered: None,
            without: None,
        }
    }
}

#[cfg(test)]
mod tests;
