//! `sim`: a whole run on this machine, with real processes and a judgement.
//!
//! One bootstrap and N nodes, all of them this very program, train until the last epoch; a scenario
//! file may kill, stop and start them on the way, and spoil the links between them. What they did is read from their events files,
//! and how good the model became is measured here, from checkpoint files. The simulation succeeds
//! only if every process ended as it should, all committed the same states, and the held-out loss
//! fell.
//!
//! It shares no code path with what it judges but the formats of events and checkpoints.

mod folder;
mod journal;
mod ledger;
mod links;
mod network;
mod observer;
mod process;
mod report;
mod scenario;
mod seat;
mod shaping;
mod stage;
mod stop;
mod storm;
mod swarm;
mod table;
mod toll;

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write},
    num::{NonZeroU64, NonZeroUsize},
    path::{Path, PathBuf},
    time::Duration,
};

use intellect_model::{
    config::Hints,
    data::{DataError, Entropies},
    eval::{self, Evaluation},
};
use intellect_protocol::{manifest::Run, message::MEMBERS_MAX};

use crate::{
    checkpoint::Front,
    cli::SimArgs,
    config::{self, LocalError},
    gauge::{Gauge, GaugeError, REPORT_TOKENS},
    identity::Identity,
    manifest::{Draft, DraftError, LoadError, Manifest},
    os,
    preset::Preset,
    tools,
};

use folder::Folder;
use journal::Journal;
use ledger::Ledger;
use network::Network;
use observer::{Answer, Observer, Request};
use process::POLL;
use scenario::{Scenario, ScenarioError};
use stage::{Plan, Progress, Stage, StageError};
use stop::Stop;
use storm::{Forecast, ForecastError};

/// Why a simulation did not succeed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SimError {
    /// Something on the command line cannot be meant.
    #[error(transparent)]
    Usage(#[from] LocalError),
    /// The manifest waits for more peers than there will be.
    #[error(
        "the manifest wants {needed} peers before it begins (members.min_peers): \
         start as many with --peers {needed}"
    )]
    TooFew {
        /// `members.min_peers`.
        needed: u64,
    },
    /// More than take part in one run.
    #[error(
        "--peers {peers}: a run has {MEMBERS_MAX} members at most; this machine has {cores} cores"
    )]
    TooMany {
        /// As typed.
        peers: usize,
        /// Of this machine.
        cores: usize,
    },
    /// No such preset.
    #[error("--preset {text}: choose one of {}", Preset::names())]
    Preset {
        /// As typed.
        text: String,
    },
    /// The one without the other.
    #[error(
        "a manifest of `manifest new --from-hf` and the weights beside it go together: name them with \
         --manifest and --genesis"
    )]
    Genesis,
    /// Old results are not mixed with new ones.
    #[error("--out {} is not empty: choose another folder, or empty this one", folder.display())]
    NotEmpty {
        /// The folder.
        folder: PathBuf,
    },
    /// The scenario file.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// The rules of the storm.
    #[error(transparent)]
    Chaos(#[from] ForecastError),
    /// The links cannot be what the scenario wants.
    #[error(
        "cannot make links bad: to emulate them needs Linux, root and /dev/net/tun; \
         try --links shaped"
    )]
    Links(#[source] io::Error),
    /// The manifest cannot be read.
    #[error(transparent)]
    Manifest(#[from] LoadError),
    /// The manifest cannot be made.
    #[error(transparent)]
    Draft(#[from] DraftError),
    /// The text cannot be read.
    #[error(transparent)]
    Data(#[from] DataError),
    /// Nothing can be measured.
    #[error(transparent)]
    Gauge(#[from] GaugeError),
    /// The processes cannot be run.
    #[error(transparent)]
    Stage(#[from] StageError),
    /// A folder of the simulation cannot be used.
    #[error("cannot use {}", path.display())]
    Folder {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// No range of seeds.
    #[error("--seeds {text}: write A..B, as in --seeds 0..64; B is not among them")]
    Seeds {
        /// As typed.
        text: String,
    },
    /// No class of faults.
    #[error("--faults {text}: choose clean, lossy, churn, blackhole, partition or mixed")]
    Faults {
        /// As typed.
        text: String,
    },
    /// Some virtual runs broke an invariant, or a class did not show what it should.
    #[error("{failed} of the classes failed; the lines above name the seeds")]
    Swarm {
        /// Classes.
        failed: usize,
    },
    /// It ran, and was not as it should be.
    #[error("the simulation failed: {}\n  everything that was written is in {}", reasons.join("; "), folder.display())]
    Failed {
        /// Why, the gravest first.
        reasons: Vec<String>,
        /// Where to look.
        folder: PathBuf,
    },
    /// Ctrl-C, a polite `kill`, or a terminal that was closed.
    #[error(
        "interrupted after epoch {epoch}; {}",
        folder.as_ref().map_or_else(
            || "its files are removed".to_owned(),
            |folder| format!("what was written until then is in {}", folder.display())
        )
    )]
    Interrupted {
        /// The last epoch that was committed.
        epoch: u64,
        /// Where its files are, if they are kept.
        folder: Option<PathBuf>,
    },
    /// The system takes no handler of signals.
    #[error("cannot start")]
    Signals(#[source] io::Error),
    /// Standard output is gone or full.
    #[error("cannot write to standard output")]
    Output(#[from] io::Error),
}

/// Held-out losses before and after, and what they are compared with.
#[derive(Debug)]
struct Measured {
    before: Option<Evaluation>,
    after: Option<Evaluation>,
    entropies: Entropies,
}

/// `sim`.
pub(crate) fn run(args: &SimArgs, out: &mut dyn Write) -> Result<(), SimError> {
    if let Some(peers) = args.peers.map(NonZeroUsize::get).filter(|peers| *peers > MEMBERS_MAX) {
        return Err(SimError::TooMany { peers, cores: os::cores() });
    }
    if args.in_virtual_time { swarm::run(args, out) } else { run_processes(args, out) }
}

fn run_processes(args: &SimArgs, out: &mut dyn Write) -> Result<(), SimError> {
    let mut folder = Folder::make(args)?;
    let mut stop = Stop::listen().map_err(SimError::Signals)?;
    let (plan, scenario) = plan(args, &folder.path)?;
    let gauge = Gauge::open(plan.manifest.clone(), &plan.data, plan.device)?;
    let entropies = gauge.entropies();
    table::introduce(&plan, &entropies, out)?;
    let folder_error = |source| SimError::Folder { path: plan.folder.clone(), source };
    let observer = Observer::start(gauge).map_err(folder_error)?;
    let begin = Request { epoch: 0, path: plan.genesis.clone(), tokens: REPORT_TOKENS };
    let before = observer.measure(begin, MEASURE_PATIENCE, &mut stop);
    let mut journal = Journal::open(&plan, entropies.floor).map_err(folder_error)?;
    journal.write(0, before);
    if stop.is_wanted_within(Duration::from_millis(1)) {
        return Err(SimError::Interrupted { epoch: 0, folder: folder.kept() });
    }

    let mut stage = Stage::open(&plan, scenario)?;
    let (evaluations, end) = watch(&mut stage, &observer, &mut journal, &mut stop, out)?;
    let wall = stage.wall();
    let last = stage.ledger().committed();
    let after = match &end {
        // The newest that there is.
        End::Interrupted => evaluations.last_key_value().map(|(_, evaluation)| *evaluation),
        End::Ended | End::Failed(_) => stage.checkpoint(last).and_then(|path| {
            let request = Request { epoch: last, path: Some(path), tokens: REPORT_TOKENS };
            observer.measure(request, MEASURE_PATIENCE, &mut stop)
        }),
    };
    let weights = stage.checkpoint(last).and_then(|path| weights(&plan.manifest, &path));
    let mut closed = stage.close();

    let measured = Measured { before, after, entropies };
    let interrupted = matches!(end, End::Interrupted);
    if interrupted {
        closed.reasons = vec![format!("interrupted after epoch {last}")];
    } else {
        journal.write(last, after);
        closed.reasons.splice(0..0, end.failure());
        closed.reasons.extend(measured.complaint());
    }
    report::write(&plan, &closed, &evaluations, &measured, weights, wall).map_err(folder_error)?;
    let told = table::conclude(&plan, &closed, &measured, wall, out);
    if interrupted {
        // Where the terminal was closed nobody reads it.
        return Err(SimError::Interrupted { epoch: last, folder: folder.kept() });
    }
    told?;
    if let Some(folder) = folder.kept() {
        writeln!(out, "report, events, logs and checkpoints are in {}", folder.display())?;
    }
    if !closed.reasons.is_empty() {
        return Err(SimError::Failed { reasons: closed.reasons, folder: folder.keep() });
    }
    Ok(())
}

/// The digest of the weights in a checkpoint that can be read.
fn weights(manifest: &Manifest, path: &Path) -> Option<String> {
    let theta = Front::of(path, manifest).ok()?.theta().ok()?;
    tools::stored::weights(&theta).ok()
}

/// How the watching ended.
enum End {
    /// Every process did.
    Ended,
    /// It cannot succeed any more.
    Failed(String),
    /// The user wishes it.
    Interrupted,
}

impl End {
    fn failure(self) -> Option<String> {
        match self {
            Self::Failed(why) => Some(why),
            Self::Ended | Self::Interrupted => None,
        }
    }
}

/// Everything that is checked before a process starts.
fn plan(args: &SimArgs, folder: &Path) -> Result<(Plan, Scenario), SimError> {
    let peers = args.peers.map_or(PEERS_DEFAULT, NonZeroUsize::get);
    let scenario = match &args.scenario {
        Some(path) => Scenario::load(path, peers)?,
        None => Scenario::default(),
    };
    let chaos = args.chaos.as_deref().map(str::parse::<Forecast>).transpose()?;
    let manifest = match &args.manifest {
        Some(path) => Manifest::load(path)?,
        None => built_in_manifest(args, peers)?,
    };
    let needed = manifest.run.members.min_peers;
    if u64::try_from(peers).is_ok_and(|peers| peers < needed) {
        return Err(SimError::TooFew { needed });
    }
    if manifest.run.genesis.is_some() != args.genesis.is_some() {
        return Err(SimError::Genesis);
    }
    let wanted = scenario.has_links() || chaos.as_ref().is_some_and(Forecast::has_links);
    let absolute = |path: &Path| {
        fs::canonicalize(path).map_err(|source| SimError::Folder { path: path.to_owned(), source })
    };
    let network = match wanted {
        true => Network::with_links(args.links, peers + 1, args.seed, folder)
            .map_err(SimError::Links)?,
        false => Network::Loopback,
    };
    let plan = Plan {
        peers,
        epochs: args.epochs.map_or(EPOCHS_DEFAULT, NonZeroU64::get),
        manifest,
        data: args.data.iter().map(|path| absolute(path)).collect::<Result<_, _>>()?,
        genesis: args.genesis.as_deref().map(absolute).transpose()?,
        seed: args.seed,
        rate: args.rate,
        threads: (os::cores() / peers).max(1),
        device: config::parse_device(&args.device)?,
        chaos,
        network,
        folder: folder.to_owned(),
    };
    Ok((plan, scenario))
}

/// The manifest that `manifest new` would write, with the seed of the simulation.
fn built_in_manifest(args: &SimArgs, peers: usize) -> Result<Manifest, SimError> {
    let organiser = Identity::simulated(args.seed, u64::MAX).keypair();
    // Below 2^63, as TOML's integers are, and another one for each small seed.
    let mut run = Run::new(organiser.peer(), args.seed & (u64::MAX >> 1));
    run.name = "sim".to_owned();
    run.members.min_peers = run.members.min_peers.min(peers as u64);
    let mut work = tools::manifest::work(&args.data)?;
    // They change the run's id, and with it what is drawn.
    work.data.hints = Hints::default();
    let mut draft = Draft::new(&run, &work).map_err(DraftError::from)?;
    if let Some(name) = &args.preset {
        let preset = Preset::find(name).ok_or_else(|| SimError::Preset { text: name.clone() })?;
        draft.begin_with(preset, work.data.tokens()).map_err(DraftError::from)?;
    }
    if args.set.iter().any(|assignment| assignment.trim_end().ends_with("quorum=majority")) {
        // The simulated peers, whom nobody could list by hand; an explicit list comes later.
        let peers = 0..peers as u64;
        let founders = peers.map(|peer| Identity::simulated(args.seed, peer).founder());
        draft.set(&format!("members.founders={:?}", founders.collect::<Vec<_>>()))?;
    }
    for assignment in &args.set {
        draft.set(assignment)?;
    }
    Ok(draft.sign(&organiser)?)
}

/// Looks at the stage until nothing runs or it cannot succeed any more, and prints each epoch once
/// it is complete. Returns what was measured, and how it ended.
fn watch(
    stage: &mut Stage<'_>,
    observer: &Observer,
    journal: &mut Journal,
    stop: &mut Stop,
    out: &mut dyn Write,
) -> Result<(BTreeMap<u64, Evaluation>, End), SimError> {
    let mut evaluations = BTreeMap::new();
    let (mut asked, mut printed) = (0, 0);
    writeln!(out, "{}", table::HEADER)?;
    loop {
        let mut done = Vec::new();
        let progress = stage.step(&mut |action| done.push(action))?;
        let news = stage.news();
        for line in done.iter().map(ToString::to_string).chain(news) {
            writeln!(out, "{:>6}  {line}", "")?;
        }
        while let Some(Answer { epoch, result, .. }) = observer.answer() {
            match result {
                Ok(evaluation) => {
                    journal.write(epoch, Some(evaluation));
                    evaluations.insert(epoch, evaluation);
                }
                // The file was pruned under way; the next epoch will do.
                Err(error) => tracing::debug!(epoch, %error, "not measured"),
            }
        }
        let committed = stage.ledger().committed();
        if asked < committed
            && let Some(path) = stage.checkpoint(committed)
        {
            let (path, tokens) = (Some(path), eval::GLANCE_TOKENS);
            if observer.ask(Request { epoch: committed, path, tokens }) {
                asked = committed;
            }
        }
        let running = stage.running();
        while printed < committed && is_complete(stage.ledger(), printed + 1, running, &evaluations)
        {
            printed += 1;
            print_row(stage, printed, &evaluations, out)?;
        }
        let end = match progress {
            Progress::Failed(why) => End::Failed(why),
            Progress::Running if !stop.is_wanted_within(POLL) => continue,
            Progress::Ended if !stop.is_wanted_within(Duration::from_millis(1)) => End::Ended,
            // A terminal tells the nodes as well, and they leave.
            Progress::Running | Progress::Ended => End::Interrupted,
        };
        for epoch in printed + 1..=committed {
            print_row(stage, epoch, &evaluations, out)?;
        }
        return Ok((evaluations, end));
    }
}

/// Whether nothing more is to be expected of an epoch's line.
fn is_complete(
    ledger: &Ledger,
    number: u64,
    running: usize,
    evaluations: &BTreeMap<u64, Evaluation>,
) -> bool {
    let reports = ledger.epochs().get(&number).map_or(0, ledger::Epoch::reports);
    let measured = evaluations.range(number..).next().is_some();
    (reports >= running && measured) || ledger.committed() > number + 1
}

fn print_row(
    stage: &Stage<'_>,
    number: u64,
    evaluations: &BTreeMap<u64, Evaluation>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let epochs = stage.ledger().epochs();
    let Some(epoch) = epochs.get(&number) else { return Ok(()) };
    let before =
        epochs.range(..number).next_back().map_or_else(|| stage.started_ms(), |(_, e)| e.first_ms);
    let since_ms = epoch.first_ms.saturating_sub(before);
    writeln!(out, "{}", table::row(number, epoch, since_ms, evaluations.get(&number)))?;
    out.flush()
}

impl Measured {
    /// Why the measurement is a reason to fail, if it is.
    fn complaint(&self) -> Option<String> {
        match (&self.before, &self.after) {
            (Some(before), Some(after)) if after.loss < before.loss => None,
            (Some(before), Some(after)) => Some(format!(
                "the held-out loss did not fall: {:.4} before, {:.4} after",
                before.loss, after.loss
            )),
            (None, _) => Some("the first weights could not be measured".to_owned()),
            (_, None) => Some("there is no checkpoint of the last epoch to measure".to_owned()),
        }
    }
}

/// Nodes of a simulation that names no number.
const PEERS_DEFAULT: usize = 4;

/// Epochs of a simulation that names no number: sized with the built-in manifest.
const EPOCHS_DEFAULT: u64 = 20;

/// A measurement takes about a second; a busy machine may need much longer.
const MEASURE_PATIENCE: Duration = Duration::from_secs(120);
