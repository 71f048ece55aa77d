//! The processes of a simulation: started, watched and stopped as the scenario says.
//!
//! One thread polls everything every 20 ms: events, exits, scenario, chaos, watchdog. Nothing blocks it, and however it
//! ends, no process stays behind.
//!
//! Numbers of peers come from the scenario, which was checked against the plan, and from the chaos,
//! which chooses among peers that run. So they index the slots. What was done is listed with its
//! time, for the report; what the peers make of it is in the observations.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use crate::{
    identity::{self, Identity},
    os::cannot,
    tell::events::unix_ms,
};

use super::chaos::Chaos;
use super::chaos::cost::ChaosCost;
use super::error::SimError;
use super::judge::{self, Outcome};
use super::observations::Observations;
use super::peer_slot::PeerSlot;
use super::plan::Plan;
use super::process::{Process, wait_for_line};
use super::scenario::{Action, Moment, PeerAction, Scenario};

/// All processes of a simulation, and what is known of them.
#[derive(Debug)]
pub(super) struct ProcessGroup<'a> {
    /// What was typed, and where everything is.
    plan: &'a Plan,
    /// The steps that are still to be taken.
    scenario: Scenario,
    /// The random harm, if it was asked for.
    chaos: Option<Chaos>,
    /// What was counted of the harm so far.
    cost: ChaosCost,
    /// What the processes have reported.
    pub(super) observations: Observations,
    /// The process of the bootstrap, which nothing starts again.
    bootstrap: Process,
    /// Whether the scenario has killed the bootstrap.
    bootstrap_killed: bool,
    /// The address of the bootstrap, where nodes enter.
    entry: String,
    /// The peers by their numbers, from 0.
    slots: Vec<PeerSlot>,
    /// The start on the clock of this process, for scenarios.
    pub(super) started: Instant,
    /// Start of the simulation on the clock of the events.
    pub(super) started_ms: u64,
    /// When any peer committed an epoch last, for the watchdog.
    last_commit: Instant,
    /// What was done to processes and links, and when.
    done: Vec<(u64, Action)>,
}

/// The results of a simulation.
#[derive(Debug)]
pub(super) struct Closed {
    /// All that the processes reported.
    pub(super) observations: Observations,
    /// How each peer's last process ended.
    pub(super) outcomes: Vec<Outcome>,
    /// Why the simulation failed; empty if it succeeded.
    pub(super) reasons: Vec<String>,
    /// What scenario and chaos did, and when in Unix milliseconds.
    pub(super) done: Vec<(u64, Action)>,
    /// Start of the simulation on the clock of the events.
    pub(super) started_ms: u64,
    /// What the chaos cost, if there was any.
    pub(super) cost: Option<ChaosCost>,
}

/// Why there is nothing left to watch.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// No process runs and none will be started. Whether all is well is left to the judgement.
    Ended,
    /// The simulation cannot succeed any more, for this reason.
    Failed(String),
    /// The user asked the simulation to end.
    Interrupted,
}

impl<'a> ProcessGroup<'a> {
    /// Writes keys and manifest, starts the bootstrap, and every peer that does not start later. It
    /// waits for the bootstrap's address, and not for the peers, which wait for one another by
    /// themselves.
    ///
    /// # Errors
    /// A file cannot be written, or a program does not start. What was started is killed.
    pub(super) fn open(plan: &'a Plan, scenario: Scenario) -> Result<Self, SimError> {
        let create = |folder: &Path| fs::create_dir_all(folder).map_err(cannot("use", folder));
        let entry_folder = plan.folder.join("bootstrap");
        create(&entry_folder)?;
        let manifest = plan.folder.join("run.toml");
        fs::write(&manifest, &plan.manifest.text).map_err(cannot("use", &manifest))?;
        let mut slots = Vec::new();
        for index in 0..plan.peers {
            let folder = plan.folder.join(format!("peer-{index}"));
            let data = folder.join("data");
            create(&data)?;
            Identity::simulated(plan.seed, index as u64).create(&data.join(identity::FILE_NAME))?;
            slots.push(PeerSlot::new(folder));
        }
        let (bootstrap, entry) = start_bootstrap(plan, &entry_folder, &manifest)?;
        let chaos = plan.chaos.clone().map(|chaos| Chaos::new(chaos, plan.seed, plan.epochs));
        let started = Instant::now();
        let mut group = Self {
            observations: Observations::new(plan.peers),
            plan,
            scenario,
            chaos,
            cost: ChaosCost::default(),
            bootstrap,
            bootstrap_killed: false,
            entry,
            slots,
            started,
            started_ms: unix_ms(),
            last_commit: started,
            done: Vec::new(),
        };
        for index in 0..plan.peers {
            if !group.scenario.starts_later(index) {
                group.start(index)?;
            }
        }
        Ok(group)
    }

    /// Polls once: reads events, does what is due, and passes each action that was done to `report`. Returns nothing
    /// while there is something to watch.
    ///
    /// Events are read before anything is done, so that a step that waits for an epoch is due in
    /// the same call that learns of it. Replicas that differ end the simulation at once, unless the
    /// scenario provokes them: what comes after says nothing more.
    pub(super) fn step(
        &mut self,
        report: &mut dyn FnMut(Action),
    ) -> Result<Option<Ending>, SimError> {
        let committed = self.observations.committed();
        for index in 0..self.slots.len() {
            if let Some(why) = self.read_events(index) {
                return Ok(Some(Ending::Failed(why)));
            }
        }
        if self.observations.committed() > committed {
            self.last_commit = Instant::now();
        }
        if let Some(why) = judge::disagreement(&self.observations, &self.scenario) {
            return Ok(Some(Ending::Failed(why)));
        }
        let (elapsed, committed) = (self.started.elapsed(), self.observations.committed());
        let moment = Moment { elapsed, unix_ms: unix_ms(), observations: &self.observations };
        let mut due = self.scenario.take_due(moment);
        if let Some(chaos) = &mut self.chaos {
            let running = occupied(&mut self.slots);
            let spared =
                (0..self.slots.len()).filter(|peer| self.scenario.concerns(*peer)).collect();
            due.extend(chaos.take_due(elapsed, committed, &running, &spared));
        }
        for action in due {
            self.perform(&action)?;
            self.done.push((unix_ms(), action.clone()));
            report(action);
        }
        self.dismiss_late();
        Ok(self.ending())
    }

    /// How many peers have a running process.
    pub(super) fn running(&mut self) -> usize {
        occupied(&mut self.slots).len()
    }

    /// The checkpoint of `epoch` of some node that has written it. A node may remove it at any
    /// time, when it has newer ones.
    pub(super) fn checkpoint(&self, epoch: u64) -> Option<PathBuf> {
        let run = self.plan.manifest.id.hex();
        let inner = format!("data/runs/{run}/checkpoints/{epoch}.ckpt");
        self.slots.iter().map(|slot| slot.path(&inner)).find(|path| path.exists())
    }

    /// Judges what happened, and kills what still runs. The last events are read first: a process
    /// writes some while it ends. Exits are those from before the kill, so that a process that did
    /// not end by itself is seen.
    pub(super) fn close(mut self) -> Closed {
        for index in 0..self.slots.len() {
            // Unreadable events were a reason to stop already.
            let _ = self.read_events(index);
        }
        let outcomes: Vec<_> = self
            .slots
            .iter_mut()
            .map(|slot| Outcome { exit: slot.exit(), killed: slot.killed })
            .collect();
        let mut reasons =
            judge::reasons(&self.observations, &outcomes, &self.scenario, self.last_epoch());
        if !self.bootstrap_killed && self.bootstrap.exit().is_some() {
            reasons.push("the bootstrap ended by itself".to_owned());
        }
        let cost = self.chaos.map(|chaos| {
            [self.cost.kills, self.cost.stops, self.cost.cuts] = chaos.counts();
            self.cost.count(&self.observations);
            self.cost
        });
        let (done, started_ms) = (self.done, self.started_ms);
        Closed { observations: self.observations, outcomes, reasons, done, started_ms, cost }
    }

    /// The epoch at which each peer ends: the last one that was asked for, or the one that completes the run.
    fn last_epoch(&self) -> u64 {
        let completed = self.observations.completed(self.plan.manifest.run.stop_tokens);
        completed.map_or(self.plan.epochs, |epoch| epoch.min(self.plan.epochs))
    }

    /// Kills the peers that chaos has delayed, once every other peer has reached the end: no peer is left that could tell
    /// them the last epochs.
    fn dismiss_late(&mut self) {
        let last = self.last_epoch();
        let Some(chaos) = &self.chaos else { return };
        let late = |peer: &usize| {
            let head = self.observations.head(*peer).map_or(0, |(epoch, _)| *epoch);
            head < last && chaos.has_hurt(*peer)
        };
        if self.observations.committed() < last {
            return;
        }
        let running = occupied(&mut self.slots);
        if running.iter().all(late) {
            for index in running {
                self.slots[index].perform(PeerAction::Kill);
                self.cost.late.push(index);
            }
        }
    }

    /// Whether there is a reason to stop: a peer failed, nothing was committed for too long, or
    /// nothing runs and nothing will be started.
    fn ending(&mut self) -> Option<Ending> {
        for (index, slot) in self.slots.iter_mut().enumerate() {
            if let Some(why) = slot.failure() {
                return Some(Ending::Failed(format!("peer {index} {why}")));
            }
        }
        let watchdog = self.plan.watchdog();
        if self.last_commit.elapsed() > watchdog {
            let seconds = watchdog.as_secs();
            return Some(Ending::Failed(format!("no peer committed an epoch for {seconds} s")));
        }
        // Although no process runs, the scenario may start one by the clock.
        let resumes = !self.scenario.pending().is_empty()
            && self.observations.committed() < self.last_epoch();
        if self.running() > 0 || resumes { None } else { Some(Ending::Ended) }
    }

    /// Reads the new events of one peer. An unreadable line ends the simulation, since it would be
    /// judged on half of the facts.
    fn read_events(&mut self, index: usize) -> Option<String> {
        let slot = self.slots.get_mut(index)?;
        match slot.tail.read() {
            Ok(records) => {
                for record in records {
                    self.observations.record(index, record);
                }
                None
            }
            Err(error) => Some(format!("the events of peer {index} cannot be read: {error}")),
        }
    }

    /// Carries out one action on a process or on the links.
    fn perform(&mut self, action: &Action) -> Result<(), SimError> {
        match action {
            Action::Peer(PeerAction::Start, index) => return self.start(*index),
            Action::Peer(action, index) => self.slots[*index].perform(*action),
            Action::KillBootstrap => {
                self.bootstrap.kill();
                self.bootstrap_killed = true;
            }
            Action::Links(change) => {
                let plan = self.plan;
                plan.network.apply(change).map_err(cannot("use", &plan.folder))?;
            }
        }
        Ok(())
    }

    /// Starts the process of a peer, unless it runs. Its arguments are the same at each start, so a
    /// restart resumes from its folder.
    fn start(&mut self, index: usize) -> Result<(), SimError> {
        let slot = &mut self.slots[index];
        if slot.is_running() {
            return Ok(());
        }
        if slot.killed {
            self.cost.restarts += 1;
        }
        let plan = self.plan;
        let mut arguments = vec!["run".to_owned(), "--simulated".to_owned()];
        let mut add = |flag: &str, value: String| arguments.extend([flag.to_owned(), value]);
        add("--bootstrap", self.entry.clone());
        add("--listen", plan.network.listen(index));
        add("--data-dir", text(&slot.path("data")));
        add("--events", text(&slot.path("events.jsonl")));
        add("--epochs", plan.epochs.to_string());
        add("--threads", plan.threads.to_string());
        add("--rate", plan.rate.to_string());
        add("--device", plan.device(index).to_string());
        add("--log", "info".to_owned());
        for data in &plan.data {
            add("--data", text(data));
        }
        if let (Some(genesis), 0) = (&plan.genesis, index) {
            add("--genesis", text(genesis));
        }
        arguments.extend(plan.network.arguments(index));
        let log = slot.log();
        let process = plan
            .network
            .inside(index, || Process::start(&arguments, &log))
            .map_err(cannot("use", &log))?;
        slot.take(process);
        Ok(())
    }
}

/// The peers that have a running process.
fn occupied(slots: &mut [PeerSlot]) -> BTreeSet<usize> {
    let slots = slots.iter_mut().enumerate();
    slots.filter_map(|(index, slot)| slot.is_running().then_some(index)).collect()
}

/// Starts the bootstrap and waits until it prints its address: the word after `--bootstrap` in the
/// line that it prints for people to copy.
fn start_bootstrap(
    plan: &Plan,
    folder: &Path,
    manifest: &Path,
) -> Result<(Process, String), SimError> {
    let log = folder.join("log.txt");
    let (manifest, data) = (text(manifest), text(&folder.join("data")));
    let listen = plan.network.listen(plan.peers);
    let arguments =
        ["bootstrap", "--manifest", &manifest, "--listen", &listen, "--data-dir", &data];
    let mut arguments = arguments.map(str::to_owned).to_vec();
    arguments.extend(plan.network.arguments(plan.peers));
    let started = plan.network.inside(plan.peers, || Process::start(&arguments, &log));
    let mut process = started.map_err(cannot("use", &log))?;
    let entry = wait_for_line(&log, &mut process, BOOTSTRAP_PATIENCE, |line| {
        line.split_once(" --bootstrap ")?.1.split(' ').next().map(str::to_owned)
    })
    .map_err(|source| SimError::Bootstrap { log, source })?;
    Ok((process, entry))
}

/// A path as an argument of a process.
fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// A bootstrap that has not printed its address by then has failed.
const BOOTSTRAP_PATIENCE: Duration = Duration::from_secs(20);
