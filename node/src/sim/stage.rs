//! The processes of a simulation: started, watched, stopped as the scenario says.
//!
//! One thread looks at everything every 20 ms: events, exits, the scenario, the watchdog. Nothing
//! blocks it, and whichever way it is left, no process stays behind.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use intellect_model::Device;

use crate::{
    identity::{self, Identity, IdentityError},
    manifest::Manifest,
};

use super::{
    ledger::{Ledger, Outcome},
    process::{Exit, Process, Tail, wait_for_line},
    scenario::{Action, Moment, Scenario},
};

/// What is to be simulated.
#[derive(Debug)]
pub(super) struct Plan {
    /// Nodes.
    pub(super) peers: usize,
    /// Epochs to commit.
    pub(super) epochs: u64,
    /// The run.
    pub(super) manifest: Manifest,
    /// Its text.
    pub(super) data: Option<PathBuf>,
    /// Of the keys.
    pub(super) seed: u64,
    /// Limit on what each node sends, in bytes per second; 0 is none.
    pub(super) rate: u64,
    /// Threads that compute in each node.
    pub(super) threads: usize,
    /// What the nodes train on.
    pub(super) device: Device,
    /// Where everything is written.
    pub(super) folder: PathBuf,
}

/// Why a simulation could not begin or go on; what the nodes did wrong is not here.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StageError {
    /// A file or folder.
    #[error("cannot use {}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A simulated key cannot be written.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The bootstrap does not start.
    #[error("the bootstrap did not start; its log is {}", log.display())]
    Bootstrap {
        /// Where it says why.
        log: PathBuf,
        /// What it printed.
        source: io::Error,
    },
}

/// Everything that runs.
#[derive(Debug)]
pub(super) struct Stage<'a> {
    plan: &'a Plan,
    scenario: Scenario,
    ledger: Ledger,
    bootstrap: Process,
    /// Whether the scenario has killed the bootstrap.
    bootstrap_killed: bool,
    /// Where nodes enter.
    entry: String,
    seats: Vec<Seat>,
    started: Instant,
    started_ms: u64,
    last_commit: Instant,
}

/// The place of one peer, whichever process has it.
#[derive(Debug)]
struct Seat {
    folder: PathBuf,
    tail: Tail,
    process: Option<Process>,
    /// Whether the scenario has killed the process.
    killed: bool,
}

/// Whether there is anything left to watch.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Somebody runs.
    Running,
    /// All processes have ended.
    Ended,
    /// It cannot succeed any more.
    Failed(String),
}

impl<'a> Stage<'a> {
    /// Writes keys and manifest, starts the bootstrap, then every peer that does not start later.
    pub(super) fn open(plan: &'a Plan, scenario: Scenario) -> Result<Self, StageError> {
        let write = |path: PathBuf, text: &str| {
            fs::write(&path, text).map_err(|source| StageError::Io { path, source })
        };
        let entry_folder = plan.folder.join("bootstrap");
        create(&entry_folder)?;
        let manifest = plan.folder.join("run.toml");
        write(manifest.clone(), &plan.manifest.text)?;
        let mut seats = Vec::new();
        for index in 0..plan.peers {
            let folder = plan.folder.join(format!("peer-{index}"));
            let data = folder.join("data");
            create(&data)?;
            Identity::simulated(plan.seed, index as u64).create(&data.join(identity::FILE_NAME))?;
            let tail = Tail::new(folder.join("events.jsonl"));
            seats.push(Seat { folder, tail, process: None, killed: false });
        }
        let (bootstrap, entry) = start_bootstrap(&entry_folder, &manifest)?;
        let started = Instant::now();
        let mut stage = Self {
            ledger: Ledger::new(plan.peers),
            plan,
            scenario,
            bootstrap,
            bootstrap_killed: false,
            entry,
            seats,
            started,
            started_ms: unix_ms(),
            last_commit: started,
        };
        for index in 0..plan.peers {
            if !stage.scenario.starts_later(index) {
                stage.start(index)?;
            }
        }
        Ok(stage)
    }

    /// Looks once: reads events, does what the scenario says now, and tells each thing that was
    /// done to a process.
    pub(super) fn step(&mut self, tell: &mut dyn FnMut(Action)) -> Result<Progress, StageError> {
        let committed = self.ledger.committed();
        for index in 0..self.seats.len() {
            if let Some(why) = self.read_events(index) {
                return Ok(Progress::Failed(why));
            }
        }
        if self.ledger.committed() > committed {
            self.last_commit = Instant::now();
        }
        if let Some(why) = self.ledger.disagreement(&self.scenario) {
            return Ok(Progress::Failed(why));
        }
        let mut scenario = std::mem::take(&mut self.scenario);
        let due = scenario.take_due(self);
        self.scenario = scenario;
        for action in due {
            self.perform(action)?;
            tell(action);
        }
        Ok(self.progress())
    }

    /// What has been heard.
    pub(super) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Since the start.
    pub(super) fn wall(&self) -> Duration {
        self.started.elapsed()
    }

    /// Start of the simulation on the clock of the events.
    pub(super) fn started_ms(&self) -> u64 {
        self.started_ms
    }

    /// Nodes that run now.
    pub(super) fn running(&mut self) -> usize {
        let processes = self.seats.iter_mut().filter_map(|seat| seat.process.as_mut());
        processes.filter_map(|process| process.exit().is_none().then_some(())).count()
    }

    /// A file that holds the state of `epoch`, if some node has written it.
    pub(super) fn checkpoint(&self, epoch: u64) -> Option<PathBuf> {
        let run = self.plan.manifest.id.hex();
        let inner = format!("data/runs/{run}/checkpoints/{epoch}.ckpt");
        self.seats.iter().map(|seat| seat.folder.join(&inner)).find(|path| path.exists())
    }

    /// Ends everything that still runs. How each peer ended, and why that is not good.
    pub(super) fn close(mut self) -> (Ledger, Vec<Outcome>, Vec<String>) {
        for index in 0..self.seats.len() {
            // Unreadable events were a reason to stop already.
            let _ = self.read_events(index);
        }
        let outcomes: Vec<_> = self
            .seats
            .iter_mut()
            .map(|seat| Outcome {
                exit: seat.process.as_mut().and_then(Process::exit),
                killed: seat.killed,
            })
            .collect();
        let mut reasons = self.ledger.judge(&outcomes, &self.scenario, self.plan.epochs);
        if !self.bootstrap_killed && self.bootstrap.exit().is_some() {
            reasons.push("the bootstrap ended by itself".to_owned());
        }
        (self.ledger, outcomes, reasons)
    }

    fn progress(&mut self) -> Progress {
        for (index, seat) in self.seats.iter_mut().enumerate() {
            let exit = seat.process.as_mut().and_then(Process::exit);
            let log = seat.folder.join("log.txt");
            match exit {
                Some(Exit::Code(0)) | None => {}
                Some(_) if seat.killed => {}
                Some(exit) => {
                    let last = last_line(&log);
                    return Progress::Failed(format!("peer {index} failed ({exit:?}): {last}"));
                }
            }
        }
        if self.last_commit.elapsed() > WATCHDOG {
            let seconds = WATCHDOG.as_secs();
            return Progress::Failed(format!("nobody committed anything for {seconds} s"));
        }
        // Although nobody runs, the scenario may start somebody by the clock.
        let resumes =
            !self.scenario.pending().is_empty() && self.ledger.committed() < self.plan.epochs;
        if self.running() > 0 || resumes { Progress::Running } else { Progress::Ended }
    }

    fn read_events(&mut self, index: usize) -> Option<String> {
        let seat = self.seats.get_mut(index)?;
        match seat.tail.read() {
            Ok(records) => {
                for record in records {
                    self.ledger.record(index, record);
                }
                None
            }
            Err(error) => Some(format!("the events of peer {index} cannot be read: {error}")),
        }
    }

    fn perform(&mut self, action: Action) -> Result<(), StageError> {
        match action {
            Action::Start(index) => return self.start(index),
            Action::KillBootstrap => {
                self.bootstrap.kill();
                self.bootstrap_killed = true;
            }
            Action::Kill(index) | Action::Interrupt(index) => {
                let Some(seat) = self.seats.get_mut(index) else { return Ok(()) };
                let Some(process) = &mut seat.process else { return Ok(()) };
                // One that is gone already ended by itself, and is judged for that.
                if process.exit().is_none() {
                    if action == Action::Kill(index) {
                        process.kill();
                        seat.killed = true;
                    } else {
                        process.interrupt();
                    }
                }
            }
        }
        Ok(())
    }

    fn start(&mut self, index: usize) -> Result<(), StageError> {
        let Some(seat) = self.seats.get_mut(index) else { return Ok(()) };
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let mut arguments: Vec<String> = [
            "run",
            "--simulated",
            "--bootstrap",
            &self.entry,
            "--listen",
            LISTEN,
            "--data-dir",
            &text(&seat.folder.join("data")),
            "--events",
            &text(&seat.folder.join("events.jsonl")),
            "--epochs",
            &self.plan.epochs.to_string(),
            "--threads",
            &self.plan.threads.to_string(),
            "--rate",
            &self.plan.rate.to_string(),
            "--device",
            &self.plan.device.to_string(),
            "--log",
            "info",
        ]
        .map(str::to_owned)
        .to_vec();
        if let Some(data) = &self.plan.data {
            arguments.extend(["--data".to_owned(), text(data)]);
        }
        let log = seat.folder.join("log.txt");
        let process = Process::start(&arguments, &log)
            .map_err(|source| StageError::Io { path: log, source })?;
        seat.process = Some(process);
        seat.killed = false;
        Ok(())
    }
}

impl Moment for Stage<'_> {
    fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    fn unix_ms(&self) -> u64 {
        unix_ms()
    }

    fn committed(&self) -> u64 {
        self.ledger.committed()
    }

    fn roster_ms(&self, peer: usize, epoch: u64) -> Option<u64> {
        self.ledger.roster_ms(peer, epoch)
    }
}

/// Starts the entry point and waits until it says where it is.
fn start_bootstrap(folder: &Path, manifest: &Path) -> Result<(Process, String), StageError> {
    let log = folder.join("log.txt");
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let arguments = [
        "bootstrap",
        "--manifest",
        &text(manifest),
        "--listen",
        LISTEN,
        "--data-dir",
        &text(&folder.join("data")),
    ]
    .map(str::to_owned);
    let mut process = Process::start(&arguments, &log)
        .map_err(|source| StageError::Io { path: log.clone(), source })?;
    let entry = wait_for_line(&log, &mut process, BOOTSTRAP_PATIENCE, |line| {
        line.strip_prefix("intellect-node --bootstrap ").map(str::to_owned)
    })
    .map_err(|source| StageError::Bootstrap { log, source })?;
    Ok((process, entry))
}

fn create(folder: &Path) -> Result<(), StageError> {
    fs::create_dir_all(folder).map_err(|source| StageError::Io { path: folder.to_owned(), source })
}

/// What a process said last.
fn last_line(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing").to_owned()
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Where simulated processes listen: a port that the system chooses, reachable by nobody else.
const LISTEN: &str = "/ip4/127.0.0.1/tcp/0";

/// A simulation in which nobody commits for so long has failed (docs/OPERATING.md).
const WATCHDOG: Duration = Duration::from_secs(60);

/// A bootstrap that is not there after so long does not come.
const BOOTSTRAP_PATIENCE: Duration = Duration::from_secs(20);
