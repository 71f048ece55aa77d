//! From a command line to a running node: the manifest, what this machine can do, the first weights, the loop.
//!
//! Everything that can be refused is refused here, before anything is downloaded or trained. The error names the
//! number that is missing.
//!
//! Read [`prepare`] first: it is the list of all steps, in the order in which they can fail. Each
//! step that needs more than a few lines has a module of its own. Nothing here takes part in the
//! run; the driver does, once it has all of this.
//!
//! What may take hours (data, published weights) comes after everything that is quick to refuse,
//! and what it has brought is stored piece by piece, so a start that is broken off loses little.
//! The data comes before the weights, since a node without its data cannot train at all.
//!
//! Three things run beside the steps: the network from the first moment, the worker's thread from
//! [`Opened::load`] on, and what shows the node to people.

mod admission;
pub(crate) mod choose;
mod complete;
pub(crate) mod data;
mod error;
pub(crate) mod genesis;
pub(crate) mod machine;
pub(crate) mod needs;
mod recover;
mod remember;
mod tokenizer;

use std::convert::Infallible;
use std::fs::File;
use std::future::pending;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use intellect_model::arch;
use intellect_model::data::Dataset;
use intellect_model::state::State;
use intellect_model::train::Trainer;
use intellect_protocol::base::blocks::Blocks;
use intellect_protocol::base::id::LogId;
use intellect_protocol::consensus::{epoch, sync};
use intellect_protocol::history::checkpoint::Table;
use intellect_protocol::history::lineage::LocalPeer;
use intellect_protocol::holdings::Origin;
use intellect_protocol::message::{Notice, Voter};
use intellect_protocol::peer;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::access::{Admission, unix_seconds};
use crate::config::Local;
use crate::driver::{self, Driver, DriverError, Ended};
use crate::figures;
use crate::identity::{self, Home, Identity};
use crate::manifest::Manifest;
use crate::name::PeerName;
use crate::net::address::Address;
use crate::net::{self, Net};
use crate::os::{self, Interrupts};
use crate::page::Page;
use crate::readers::Readers;
use crate::store::{self, Begun, Store};
use crate::tell::events::Sink;
use crate::tell::{Console, Means};
use crate::worker::{self, Report, Snapshot};
pub(crate) use error::EnterError;
use genesis::{Early, Found};
use machine::Machine;
use recover::{Recovery, Rules};
use remember::{Earlier, known_peers, listen};

/// What follows on a node's end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// The process ends with exit code 0.
    Nothing,
    /// The same program, with the same arguments but its invite.
    StartAgain,
}

/// Runs a node until it is done, or ends with the error that stops it.
///
/// `home` has the identity and the lock of the data folder, and stays with the caller, so the
/// folder is locked until everything here has ended. `events` and `page` were opened before, since
/// a file that cannot be written is a mistake of the command line.
pub(crate) fn run(
    local: &Local,
    home: &Home,
    events: Option<File>,
    page: Option<Page>,
) -> Result<Next, EnterError> {
    let runtime = os::runtime().map_err(EnterError::Runtime)?;
    let result = runtime.block_on(enter(local, home, events, page));
    // Nobody waits for the jobs that still run.
    runtime.shutdown_background();
    result
}

/// Starts what shows the node to people, runs the node, and ends both whatever the outcome.
///
/// The last event, `stopped`, has the exit code. A node that starts again writes none: its file
/// goes on with the next `started`.
async fn enter(
    local: &Local,
    home: &Home,
    events: Option<File>,
    page: Option<Page>,
) -> Result<Next, EnterError> {
    let interrupts = Interrupts::new().map_err(EnterError::Runtime)?;
    let sink = Sink::new(events, PeerName::from(home.identity.peer()));
    let (mut console, seen) = Console::shown(sink, local.voice, local.data_dir.clone());
    let readers = Readers::start(local, page, &seen, &console);
    let stop = CancellationToken::new();
    let result = join(local, home, &mut console, interrupts, &stop).await;
    stop.cancel();
    match &result {
        Ok(Next::Nothing) => console.stopped(0),
        Ok(Next::StartAgain) => {}
        Err(error) => console.stopped(error.exit_code()),
    }
    drop(readers);
    console.take_lines_away();
    result
}

/// Starts the network, prepares everything, and runs the loop. Ctrl-C ends it at any point before
/// the loop; from then on the driver takes it.
///
/// Two futures run until the loop ends: the driver, and the fetch of the run's tokenizer, which
/// nothing waits for. `pending` keeps the end of the second one from ending the `select!`.
async fn join(
    local: &Local,
    home: &Home,
    console: &mut Console,
    mut interrupts: Interrupts,
    stop: &CancellationToken,
) -> Result<Next, EnterError> {
    let known = known_peers(local, console);
    let before = Earlier::read(local, console);
    let with = local.with(&before.stored.options);
    if before.run.is_some() && known.is_empty() && with.options.bootstrap.is_empty() {
        console.say(
            "no other peer is known: waiting to be found; name an entry point with --bootstrap",
        );
    }
    let config = net_config(&with, home, known, console);
    let mut net = net::start(config, stop.clone())?;
    let (config, source, reports, tokenizer) = tokio::select! {
        prepared = prepare(local, before, home, &mut net, console, stop) => prepared?,
        () = interrupts.next() => {
            console.say(if store::runs(&local.data_dir).is_ok_and(|runs| runs.is_empty()) {
                "left before training began; nothing has come yet: start again with the same line"
            } else {
                "left before training began; the next start goes on with what has come"
            });
            return Ok(Next::Nothing);
        }
    };
    let manifest = Arc::clone(&config.manifest);
    console.follows(local.follow);
    let (driver, ring_events) = Driver::new(config);
    let ended = tokio::select! {
        ended = driver.run(net, reports, ring_events, interrupts) => ended?,
        never = async { tokenizer.await; pending::<Infallible>().await } => match never {},
    };
    match ended {
        Ended::Reported => Ok(Next::Nothing),
        Ended::LedBack => Ok(Next::StartAgain),
        Ended::Complete { newest, before, stored } => {
            let run = complete::Complete { manifest, source, newest, before, stored };
            run.report(local, console).await;
            Ok(Next::Nothing)
        }
    }
}

/// What [`prepare`] leaves to be run: the driver's config, the data, the worker's reports, and the future that
/// fetches the run's tokenizer meanwhile.
type Prepared<B> = (driver::Config, Arc<Dataset>, mpsc::Receiver<Report>, B);

/// Does everything before the loop: the run, what this machine can do, the files, the weights, the device.
/// If it is dropped on the way, the next start repairs what it leaves.
///
/// The order of its steps: which run; what this machine has; the run's folder; tokenizer and data
/// that are here; admission; the options are stored; data and weights that are missing; the logs
/// and their incarnation; the worker; the network joins the run. The incarnation is begun last
/// before the worker, because each one is written to the disk and binds this start.
async fn prepare(
    typed: &Local,
    before: Earlier,
    home: &Home,
    net: &mut Net,
    console: &mut Console,
    stop: &CancellationToken,
) -> Result<Prepared<impl Future<Output = ()> + use<>>, EnterError> {
    console.say(&format!("I am {}; looking for the run", PeerName::from(home.identity.peer())));
    let has_entries = !before.stored.options.bootstrap.is_empty();
    let known = if has_entries { before.run } else { None };
    let (manifest, reached) = choose::manifest(net, typed, known, console).await?;
    let manifest = Arc::new(manifest);
    console.set_run(manifest.id);
    let stored = before.of(typed, manifest.id, console);
    let local = &typed.with(&stored.options);
    let machine = Machine::check(local, &manifest, console)?;
    let store = Store::open(&local.data_dir, manifest.id)?;
    let store = Arc::new(store.keeping(local.keep));
    store.save_manifest(&manifest.text)?;
    let wanted = tokenizer::wanted(manifest.vocabulary(), local.tokenizer.as_deref(), &store)?;
    let data = data::look(local, &manifest, &store, console).await?;
    let identity = &home.identity;
    let ticket = admission::ticket(local, identity, &manifest, &store)?;
    let mut admission = Admission::new(&manifest, identity.peer(), ticket);
    if let Some(admission) = &admission {
        admission::seek(admission, &manifest, home, net, &store).await?;
    }
    // Data and weights may take hours to come: a start that ends before has its options remembered.
    let mut options = typed.options.clone();
    if reached == choose::Reached::None && !stored.options.bootstrap.is_empty() {
        // The entry points that an earlier start stored may be good.
        options.bootstrap.clear();
    }
    if let Err(error) = stored.save(&options, &store) {
        console.disk(&error);
    }
    let mut early = Early {
        net: &mut *net,
        manifest: &manifest,
        admission: &mut admission,
        console,
        found: Found::default(),
    };
    let source = match data {
        data::Files::All(source) => source,
        data::Files::Missing(missing) => {
            let handle = early.net.handle.clone();
            let fetched = data::fetch_missing(&handle, local, &manifest, &store, missing, console);
            early.among_peers(fetched).await?
        }
    };
    let found = early.find_weights(local, &store).await?;
    let begun = store.begin(first_log(identity, &manifest), identity.origin, unix_ms()?)?;
    let measured = Arc::clone(&source);
    let opened = Opened { local, home, machine, manifest, store: Arc::clone(&store), source };
    let (mut config, reports) =
        opened.load(begun, found, admission, net.handle.clone(), console, stop).await?;
    let Machine { device, micro_batch } = machine;
    let means = Means { device: device.to_string(), micro_batch: micro_batch as u64 };
    config.tell.started(&config.newest, means, config.journal.start());
    let manifest = &config.manifest;
    let joined = net.handle.join(manifest.id, manifest.text.clone().into_bytes()).await;
    joined.map_err(|_| DriverError::Network)?;
    console.say(&format!(
        "ready to train {} parameters on {device} with {}",
        figures::count(manifest.work.model.parameter_count()),
        figures::number_of(local.options.threads().get(), "thread")
    ));
    os::notify_ready();
    let first = home.identity.peer().as_bytes()[0];
    let tokenizer =
        tokenizer::fetch_wanted(wanted, net.handle.clone(), store, console.clone(), first);
    Ok((config, measured, reports, tokenizer))
}

/// What this start has opened for the run on this machine.
pub(crate) struct Opened<'a> {
    /// What the user typed, with what an earlier start stored.
    pub(crate) local: &'a Local,
    /// The identity and the lock on the data folder.
    pub(crate) home: &'a Home,
    /// The device and the micro-batch, which are known to fit.
    pub(crate) machine: Machine,
    /// The verified manifest of the run.
    pub(crate) manifest: Arc<Manifest>,
    /// The run's folder, in which the worker's state is looked for.
    pub(crate) store: Arc<Store>,
    /// The open token files. Their digests are checked already.
    pub(crate) source: Arc<Dataset>,
}

impl Opened<'_> {
    /// Starts the worker and brings it to the state that an earlier start left.
    ///
    /// First it waits for genesis, which the worker computes or is given: without it not even the
    /// head of a new run has a digest. Then the disk is read, and the worker loads what that gave.
    /// The outer steps that the disk holds beyond its last checkpoint are repeated on the host, not
    /// by the worker.
    pub(crate) async fn load(
        self,
        begun: Begun,
        found: Found,
        admission: Option<Admission>,
        net: net::Handle,
        console: &Console,
        stop: &CancellationToken,
    ) -> Result<(driver::Config, mpsc::Receiver<Report>), EnterError> {
        let Self { local, home, machine, manifest, store, source } = self;
        let (theta, published) = found.published.map(|found| (found.theta, found.saved)).unzip();
        let files = Arc::clone(&source);
        let (worker, mut reports) = start_worker(local, machine, home, &manifest, source, theta)?;
        let first = state_of(&mut reports);
        let genesis = console.announced("building the model and its first weights", first).await?;
        let recovery = recover(&store, &manifest, &genesis, begun, console).await?;
        let last = resume(&worker, &mut reports, &recovery.snapshot);
        let newest = console.announced("loading the newest state", last).await?;
        let kept = store.notices()?;
        let kept = kept.iter().filter_map(|bytes| Notice::from_bytes(bytes)).collect();
        let credentials = epoch::Credentials {
            ticket: admission.as_ref().and_then(Admission::ticket).cloned(),
            unix: unix_seconds(),
        };
        let config = driver::Config {
            peer: peer_config(local, home, &manifest, &genesis, &recovery, kept, credentials),
            manifest,
            source: files,
            net,
            reachability: found.reachability,
            linked: found.linked,
            worker,
            store,
            data_dir: local.data_dir.clone(),
            journal: recovery.journal,
            updates: recovery.updates,
            held: recovery.held,
            newest,
            saved: recovery.saved,
            published,
            admission,
            epochs: local.epochs,
            tell: console.clone(),
            stop: stop.clone(),
        };
        Ok((config, reports))
    }
}

/// What the network needs of this node's settings. Without `--rate` nothing is limited.
fn net_config(
    local: &Local,
    home: &Home,
    contacts: Vec<Address>,
    console: &Console,
) -> net::Config {
    net::Config {
        key_seed: home.identity.seed,
        listen: listen(local, console),
        external: local.external.clone(),
        bootstrap: local.options.bootstrap.clone(),
        contacts,
        rate: local.options.rate.unwrap_or(0),
        line: local.part.line.clone(),
    }
}

/// Does slow work on a thread of its own, so that the loop of events goes on.
///
/// # Errors
/// The work has panicked.
async fn off_loop<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, DriverError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| DriverError::Worker(error.to_string()))
}

/// Starts the worker's thread, which builds the model and draws genesis if no weights are given.
/// An error is that no thread could be made. That the model cannot be built comes as a report.
fn start_worker(
    local: &Local,
    machine: Machine,
    home: &Home,
    manifest: &Manifest,
    source: Arc<Dataset>,
    theta: Option<Vec<f32>>,
) -> Result<(worker::Orders, mpsc::Receiver<Report>), EnterError> {
    let seed = manifest.run.seed;
    let config = worker::Config {
        run: manifest.id,
        me: home.identity.peer(),
        epoch: manifest.run.epoch,
        weight_max: weight_max(manifest),
        codec: manifest.run.ring.codec,
        outer: manifest.outer(),
    };
    let (work, threads) = (manifest.work.clone(), local.options.threads().get());
    let Machine { device, micro_batch } = machine;
    let make = move || -> Result<(Box<dyn Trainer>, State), String> {
        intellect_model::use_threads(threads);
        let trainer = intellect_model::trainer(&work, source, device, Some(micro_batch))
            .map_err(|error| error.to_string())?;
        let drawn = || intellect_model::genesis::weights(seed, &arch::specs(&work.model));
        Ok((trainer, State::genesis(theta.unwrap_or_else(drawn))))
    };
    worker::start(config, make).map_err(EnterError::Runtime)
}

/// The id of this node's first log, where it is fixed before there is one: by the simulation that made the key,
/// or by the manifest, which names its founders with their logs.
/// In every other case the store draws one for the folder.
fn first_log(identity: &Identity, manifest: &Manifest) -> Option<LogId> {
    let (peer, log) = (identity.peer(), identity.log_id);
    let named = manifest.run.members.founders.contains(&Voter { peer, log });
    (named || identity.origin == identity::Origin::Simulated).then_some(log)
}

/// Upper bound of a peer's weight in any epoch of this run.
/// Other peers refuse a greater one, so the worker caps its own.
fn weight_max(manifest: &Manifest) -> u64 {
    manifest.run.capacity(manifest.work.tokens_per_step()).weight_max(Some(u64::MAX))
}

/// Reads what an earlier start left, on a thread of its own.
async fn recover(
    store: &Arc<Store>,
    manifest: &Manifest,
    genesis: &Arc<Snapshot>,
    begun: Begun,
    console: &Console,
) -> Result<Recovery, EnterError> {
    let rules = Rules {
        run: manifest.id,
        codec: manifest.run.ring.codec,
        outer: manifest.outer(),
        genesis: Arc::clone(genesis),
    };
    let (store, console) = (Arc::clone(store), console.clone());
    Ok(off_loop(move || recover::recover(&store, &rules, begun, &console)).await??)
}

/// Loads a recovered state into the worker.
/// Genesis is there already, and is not loaded a second time.
async fn resume(
    worker: &worker::Orders,
    reports: &mut mpsc::Receiver<Report>,
    snapshot: &Snapshot,
) -> Result<Arc<Snapshot>, EnterError> {
    if snapshot.table.header().epoch > 0 {
        let (table, state) = (Table::clone(&snapshot.table), State::clone(&snapshot.state));
        // The end of the worker is in its reports.
        let _ = worker.try_send(worker::Command::Load {
            table,
            state: Box::new(state),
            spent: Blocks::default(),
        });
        return state_of(reports).await;
    }
    Ok(Arc::new(snapshot.clone()))
}

/// The next state that the worker reports.
/// It is called before any training was asked for, so every other report means that something is
/// wrong.
async fn state_of(reports: &mut mpsc::Receiver<Report>) -> Result<Arc<Snapshot>, EnterError> {
    match reports.recv().await {
        Some(Report::State(snapshot, None | Some(Origin::Loaded))) => Ok(snapshot),
        Some(Report::Failed(why)) => Err(DriverError::Worker(why).into()),
        _ => Err(DriverError::Worker("the worker thread is gone".to_owned()).into()),
    }
}

/// The time in the unit of incarnations. A clock before 1970 is refused, because a start could not
/// be numbered.
fn unix_ms() -> Result<u64, EnterError> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).map_err(|_| EnterError::Clock)?;
    u64::try_from(since.as_millis()).map_err(|_| EnterError::Clock)
}

/// The configuration of the protocol's state machine.
///
/// `replay_max` bounds how many epochs a peer that is behind repeats from updates before it fetches
/// a checkpoint instead: as many as have the bytes of one checkpoint, 8 for each parameter.
fn peer_config(
    local: &Local,
    home: &Home,
    manifest: &Manifest,
    genesis: &Snapshot,
    recovery: &Recovery,
    notices: Vec<Notice>,
    credentials: epoch::Credentials,
) -> peer::Config {
    let run = &manifest.run;
    let members = &run.members;
    let unix = credentials.unix;
    let elements = genesis.state.theta().len();
    let start = recovery.journal.start();
    let key = home.identity.keypair();
    peer::Config {
        me: LocalPeer { peer: key.peer(), log: start.log, incarnation: start.incarnation },
        validator: manifest.validator(key),
        epoch: epoch::Config {
            ready_grace: members.ready_grace,
            update_bytes: run.ring.codec.encoded_bytes(elements) as u64,
            credentials,
        },
        sync: sync::Config {
            genesis: genesis.table.state(),
            founders: members.founders.clone(),
            replay_max: 8 * elements / run.ring.codec.encoded_bytes(elements),
            undo_max: run.trust.undo_max,
            undo_time: sync::UNDO_TIME,
            unix,
            follow: local.follow,
            notices,
        },
        heartbeat: members.heartbeat,
        minority_grace: members.minority_grace,
        recovered: recovery.recovered.clone(),
    }
}
