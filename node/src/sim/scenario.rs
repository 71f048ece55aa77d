//! What happens to whom and when: the scenario file of a simulation.
//!
//! ```toml
//! allow = ["fork"]        # events that would else fail the simulation: fault, fork, diverged
//!
//! [[step]]
//! do = "kill"             # kill (as kill -9), interrupt (as Ctrl-C), start, kill-bootstrap
//! peer = 2                # 0 is the first; not with kill-bootstrap
//! epoch = 3               # when anybody has committed epoch 3
//!
//! [[step]]
//! do = "start"            # a peer whose first step is a start does not run before it
//! peer = 2
//! second = 12.5           # so long after the start of the simulation
//!
//! [[step]]
//! do = "kill"
//! peer = 1
//! roster = 5              # when peer 1 has accepted a roster of epoch 5 or a later one …
//! plus_ms = 200           # … and so much time has passed: in the middle of the ring
//! ```
//!
//! Everything that can be wrong is found before a process starts.

use std::{fs, io, path::PathBuf, time::Duration};

use serde::Deserialize;

/// What is to happen, and what it may provoke.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Scenario {
    steps: Vec<Step>,
    allowed: Vec<Allowed>,
}

/// One thing that happens once.
#[derive(Clone, Debug, PartialEq)]
struct Step {
    action: Action,
    when: When,
    progress: Progress,
}

/// Whether a step has been taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Pending,
    Done,
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// SIGKILL to a peer.
    Kill(usize),
    /// SIGINT to a peer.
    Interrupt(usize),
    /// Starts a peer, for the first time or again.
    Start(usize),
    /// SIGKILL to the bootstrap.
    KillBootstrap,
}

/// When it is done.
#[derive(Clone, Debug, PartialEq)]
enum When {
    /// Anybody has committed this epoch.
    Epoch(u64),
    /// So long after the start.
    Elapsed(Duration),
    /// So long after this peer accepted a roster of this epoch or a later one.
    Roster { peer: usize, epoch: u64, plus_ms: u64 },
}

/// An event that a scenario can provoke on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Allowed {
    /// A peer was dropped for what it did.
    Fault,
    /// Two lineages met.
    Fork,
    /// Equal receipts gave different states.
    Diverged,
}

/// Where a simulation stands, as far as a scenario looks.
pub(crate) trait Moment {
    /// Since the start.
    fn elapsed(&self) -> Duration;
    /// The clock of the events.
    fn unix_ms(&self) -> u64;
    /// The greatest epoch that anybody has committed.
    fn committed(&self) -> u64;
    /// When `peer` first accepted a roster of `epoch` or a later one, in Unix milliseconds.
    fn roster_ms(&self, peer: usize, epoch: u64) -> Option<u64>;
}

/// What is wrong with a scenario file. Nothing has been started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ScenarioError {
    /// It cannot be read.
    #[error("cannot read the scenario {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is no TOML, or has an unknown key.
    #[error("{}: {source}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Line, column and what was expected.
        source: Box<toml::de::Error>,
    },
    /// A step that cannot be meant.
    #[error("step {number} of the scenario: {why}")]
    Step {
        /// Counted from 1.
        number: usize,
        /// What is wrong, and what to write.
        why: String,
    },
    /// Every peer is stopped for good.
    #[error("the scenario stops every peer: leave or restart at least one, to see the run go on")]
    NobodyLeft,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    allow: Vec<Allowed>,
    #[serde(default)]
    step: Vec<RawStep>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawStep {
    r#do: Verb,
    peer: Option<usize>,
    epoch: Option<u64>,
    second: Option<f64>,
    roster: Option<u64>,
    plus_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Verb {
    Kill,
    Interrupt,
    Start,
    KillBootstrap,
}

impl Scenario {
    /// Reads a scenario for `peers` peers.
    pub(crate) fn load(path: &std::path::Path, peers: usize) -> Result<Self, ScenarioError> {
        let text = fs::read_to_string(path)
            .map_err(|source| ScenarioError::Read { path: path.to_owned(), source })?;
        let file = toml::from_str(&text).map_err(|source| ScenarioError::Syntax {
            path: path.to_owned(),
            source: Box::new(source),
        })?;
        Self::check(file, peers)
    }

    fn check(file: File, peers: usize) -> Result<Self, ScenarioError> {
        let mut steps = Vec::new();
        for (index, raw) in file.step.iter().enumerate() {
            let wrong = |why| ScenarioError::Step { number: index + 1, why };
            let action = raw.action(peers).map_err(wrong)?;
            let when = raw.when().map_err(wrong)?;
            steps.push(Step { action, when, progress: Progress::Pending });
        }
        let scenario = Self { steps, allowed: file.allow };
        for peer in 0..peers {
            scenario.check_order(peer)?;
        }
        if (0..peers).all(|peer| !scenario.survives(peer)) {
            return Err(ScenarioError::NobodyLeft);
        }
        Ok(scenario)
    }

    /// A peer is started when it does not run, and stopped when it does.
    fn check_order(&self, peer: usize) -> Result<(), ScenarioError> {
        let mut running = !self.starts_later(peer);
        for (index, step) in self.steps.iter().enumerate() {
            let (concerned, starts) = match step.action {
                Action::Start(one) => (one == peer, true),
                Action::Kill(one) | Action::Interrupt(one) => (one == peer, false),
                Action::KillBootstrap => (false, false),
            };
            if !concerned {
                continue;
            }
            if starts == running {
                let state = if running { "runs already" } else { "does not run" };
                let why = format!("peer {peer} {state} at this point of the file");
                return Err(ScenarioError::Step { number: index + 1, why });
            }
            running = starts;
        }
        Ok(())
    }

    /// Whether the first thing that happens to `peer` is its start.
    pub(crate) fn starts_later(&self, peer: usize) -> bool {
        let first = self.steps.iter().find(|step| step.action.peer() == Some(peer));
        first.is_some_and(|step| step.action == Action::Start(peer))
    }

    /// Whether `peer` is meant to reach the end.
    pub(crate) fn survives(&self, peer: usize) -> bool {
        let last = self.steps.iter().rfind(|step| step.action.peer() == Some(peer));
        last.is_none_or(|step| step.action == Action::Start(peer))
    }

    /// Whether such an event is no failure here.
    pub(crate) fn allows(&self, event: Allowed) -> bool {
        self.allowed.contains(&event)
    }

    /// The steps whose moment has come and that have not been taken yet, in the order of the file.
    pub(crate) fn take_due(&mut self, moment: &impl Moment) -> Vec<Action> {
        let mut waiting = Vec::new();
        let mut due = Vec::new();
        for step in self.steps.iter_mut().filter(|step| step.progress == Progress::Pending) {
            // What happens to one peer happens in the order of the file.
            if waiting.contains(&step.action.peer()) || !step.when.has_come(moment) {
                waiting.push(step.action.peer());
            } else {
                step.progress = Progress::Done;
                due.push(step.action);
            }
        }
        due
    }

    /// Steps, counted from 1, whose moment has not come.
    pub(crate) fn pending(&self) -> Vec<usize> {
        let steps = self.steps.iter().enumerate();
        steps
            .filter(|(_, step)| step.progress == Progress::Pending)
            .map(|(index, _)| index + 1)
            .collect()
    }
}

impl Action {
    /// The peer that it happens to.
    fn peer(self) -> Option<usize> {
        match self {
            Self::Kill(peer) | Self::Interrupt(peer) | Self::Start(peer) => Some(peer),
            Self::KillBootstrap => None,
        }
    }
}

impl When {
    fn has_come(&self, moment: &impl Moment) -> bool {
        match *self {
            Self::Epoch(epoch) => moment.committed() >= epoch,
            Self::Elapsed(since) => moment.elapsed() >= since,
            Self::Roster { peer, epoch, plus_ms } => moment
                .roster_ms(peer, epoch)
                .is_some_and(|at| moment.unix_ms() >= at.saturating_add(plus_ms)),
        }
    }
}

impl RawStep {
    fn action(&self, peers: usize) -> Result<Action, String> {
        let peer = match (self.r#do, self.peer) {
            (Verb::KillBootstrap, None) => return Ok(Action::KillBootstrap),
            (Verb::KillBootstrap, Some(_)) => {
                return Err("kill-bootstrap has no `peer`: remove it".to_owned());
            }
            (_, None) => return Err("say which `peer`; 0 is the first".to_owned()),
            (_, Some(peer)) => peer,
        };
        if peer >= peers {
            return Err(format!(
                "there is no peer {peer}: with {peers} they are 0 to {}",
                peers - 1
            ));
        }
        Ok(match self.r#do {
            Verb::Kill => Action::Kill(peer),
            Verb::Interrupt => Action::Interrupt(peer),
            Verb::Start => Action::Start(peer),
            Verb::KillBootstrap => Action::KillBootstrap,
        })
    }

    fn when(&self) -> Result<When, String> {
        if self.plus_ms.is_some() && self.roster.is_none() {
            return Err("`plus_ms` belongs to `roster`".to_owned());
        }
        match (self.epoch, self.second, self.roster) {
            (Some(epoch), None, None) => Ok(When::Epoch(epoch)),
            (None, Some(second), None) => Duration::try_from_secs_f64(second)
                .map(When::Elapsed)
                .map_err(|_| format!("`second = {second}` is no time after the start")),
            (None, None, Some(epoch)) => {
                let peer = self.peer.ok_or("only a peer has a `roster`")?;
                let plus_ms = self.plus_ms.unwrap_or(0);
                Ok(When::Roster { peer, epoch, plus_ms })
            }
            _ => Err("say when with exactly one of `epoch`, `second`, `roster`".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests;
