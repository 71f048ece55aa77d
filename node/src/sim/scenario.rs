//! The scenario file of a simulation: what happens to which peer and when.
//!
//! ```toml
//! allow = ["fork"]        # events that would else fail the simulation: fault, fork, diverged
//!
//! [[step]]
//! do = "kill"             # kill (as kill -9), interrupt (as Ctrl-C), terminate (as kill), start,
//! peer = 2                # stop and continue (as Ctrl-Z and fg); 0 is the first peer
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
//! plus_ms = 200           # … and so much time has passed; also after `epoch`. Or after a roster:
//!                         # plus_share = 0.3, of the time that its rings took so far (their median)
//!
//! [[step]]
//! do = "kill-bootstrap"
//! epoch = 1
//!
//! [[step]]
//! do = "link"             # what joins one peer to the rest; any of:
//! peer = 0
//! up = true               # false: nothing comes or goes
//! rate = 1_000_000        # bytes per second each way, 0 for no limit
//! delay_ms = 20           # each way
//! loss = 0.001            # share of the packets, each way
//! second = 0
//!
//! [[step]]
//! do = "cut"              # off from all the others, not from each other
//! peers = [0, 1]
//! epoch = 4
//!
//! [[step]]
//! do = "black-hole"       # what these two send to each other vanishes; connections stay open
//! peer = 2
//! to = 3
//! one_way = false         # true: only what `peer` sends to `to`
//! epoch = 5
//!
//! [[step]]
//! do = "heal"             # every link up, no cut, no black hole; rate, delay and loss stay
//! epoch = 5
//! plus_ms = 4000
//! ```
//!
//! Every mistake in the file is found before a process starts.

mod text;
mod told;

use std::{fmt, fs, path::PathBuf, time::Duration};

use serde::Serialize;
use serde_json::json;

use crate::os::{PathError, cannot};

use super::{
    links::Change,
    observations::{Allowed, Observations},
};
use text::File;

/// The steps that happen, and the complaints that they may provoke.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Scenario {
    /// The steps in the order of the file, each with whether it was taken.
    steps: Vec<Step>,
    /// What the file says, as it was read.
    file: File,
}

/// One action, which happens once.
#[derive(Clone, Debug, PartialEq)]
struct Step {
    action: Action,
    when: When,
    /// Whether it was done, so that no step is done twice.
    taken: bool,
}

/// What a step does, or what the chaos does.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    /// An action on the process of a peer.
    Peer(PeerAction, usize),
    /// SIGKILL to the bootstrap's process.
    KillBootstrap,
    /// A change of the links between the processes.
    Links(Change),
}

/// What can be done to the process of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PeerAction {
    /// Sends SIGKILL, as `kill -9` does.
    Kill,
    /// Sends SIGINT, as Ctrl-C does.
    Interrupt,
    /// Sends SIGTERM, as `kill` does.
    Terminate,
    /// Sends SIGSTOP: the process stands still.
    Stop,
    /// Sends SIGCONT, as `fg` does.
    Continue,
    /// Starts the process, for the first time or again.
    Start,
}

/// What an action is about; actions on one target happen in the order of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Peer(usize),
    /// The process of the bootstrap.
    Bootstrap,
    /// All links together, since one change may concern several.
    Links,
}

/// The state of a peer's process, as far as the file determines it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProcessState {
    /// It was never started, or it has been ended.
    Absent,
    /// It was started, or continued after a stop.
    Running,
    /// It stands still, and can only be continued or killed.
    Stopped,
}

/// When a step is due: by an epoch, by the clock, or by a ring.
#[derive(Clone, Debug, PartialEq)]
enum When {
    /// So long after a peer first committed this epoch or a later one.
    Epoch { epoch: u64, plus_ms: u64 },
    /// So long after the start of the simulation.
    Elapsed(Duration),
    /// So long after this peer accepted a roster of this epoch or a later one.
    Roster { peer: usize, epoch: u64, plus_ms: u64 },
    /// The same, after this share of the median time from its roster to its commit in earlier epochs.
    Ring { peer: usize, epoch: u64, plus_share: f64 },
}

/// The progress of a simulation, as far as scenarios depend on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment<'a> {
    /// The time since the start of the simulation.
    pub(super) elapsed: Duration,
    /// The time on the clock of the events.
    pub(super) unix_ms: u64,
    /// What the processes have reported.
    pub(super) observations: &'a Observations,
}

/// What is wrong with a scenario file. Nothing has been started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ScenarioError {
    /// The system refused to read the file.
    #[error(transparent)]
    Read(#[from] PathError),
    /// The file is not TOML, or has an unknown key.
    #[error("{}: {source}", path.display())]
    Syntax {
        path: PathBuf,
        /// Line, column and what was expected.
        source: Box<toml::de::Error>,
    },
    /// A step is wrong by itself, or cannot follow the one before.
    #[error("step {number} of the scenario: {why}")]
    Step {
        /// The number of the step, counted from 1.
        number: usize,
        /// What is wrong, and what to write.
        why: String,
    },
    /// A process stays stopped at the end of the file, so it would never end.
    #[error("peer {peer} stays stopped: continue it, or kill it, in a later step")]
    StaysStopped { peer: usize },
    /// No peer is left to reach the last epoch.
    #[error("the scenario stops every peer: leave or restart at least one, to see the run go on")]
    NobodyLeft,
}

impl Scenario {
    /// Reads the scenario of a simulation with `peers` peers.
    pub(crate) fn load(path: &std::path::Path, peers: usize) -> Result<Self, ScenarioError> {
        let text = fs::read_to_string(path).map_err(cannot("read the scenario", path))?;
        let file = toml::from_str(&text).map_err(|source| ScenarioError::Syntax {
            path: path.to_owned(),
            source: Box::new(source),
        })?;
        Self::check(file, peers)
    }

    /// Checks each step by itself, then the steps of each peer in order, then whether any peer can
    /// reach the end.
    fn check(file: File, peers: usize) -> Result<Self, ScenarioError> {
        let mut steps = Vec::new();
        for (index, raw) in file.step.iter().enumerate() {
            let wrong = |why| ScenarioError::Step { number: index + 1, why };
            let (action, when) = raw.parse(peers).map_err(wrong)?;
            steps.push(Step { action, when, taken: false });
        }
        let scenario = Self { steps, file };
        for peer in 0..peers {
            if scenario.check_order(peer)? == ProcessState::Stopped {
                return Err(ScenarioError::StaysStopped { peer });
            }
        }
        if (0..peers).all(|peer| !scenario.survives(peer)) {
            return Err(ScenarioError::NobodyLeft);
        }
        Ok(scenario)
    }

    /// The state of `peer` at the end of the file, if each of its steps can follow the one before.
    fn check_order(&self, peer: usize) -> Result<ProcessState, ScenarioError> {
        let mut state =
            if self.starts_later(peer) { ProcessState::Absent } else { ProcessState::Running };
        for (number, action) in self.actions(peer) {
            state = state.after(action).map_err(|state| ScenarioError::Step {
                number,
                why: format!("peer {peer} {state} at this point of the file"),
            })?;
        }
        Ok(state)
    }

    /// What is done to the process of `peer`, with the numbers of the steps.
    fn actions(&self, peer: usize) -> impl Iterator<Item = (usize, PeerAction)> {
        self.steps.iter().enumerate().filter_map(move |(index, step)| match step.action {
            Action::Peer(action, one) if one == peer => Some((index + 1, action)),
            Action::Peer(..) | Action::KillBootstrap | Action::Links(_) => None,
        })
    }

    /// Whether the first step about `peer` is its start.
    pub(crate) fn starts_later(&self, peer: usize) -> bool {
        self.actions(peer).next().is_some_and(|(_, action)| action == PeerAction::Start)
    }

    /// Whether `peer` is expected to reach the last epoch.
    pub(crate) fn survives(&self, peer: usize) -> bool {
        let last = self.actions(peer).last();
        last.is_none_or(|(_, action)| matches!(action, PeerAction::Start | PeerAction::Continue))
    }

    /// Whether any step is about the process of `peer`.
    pub(crate) fn concerns(&self, peer: usize) -> bool {
        self.actions(peer).next().is_some()
    }

    /// Whether any step is about links.
    pub(crate) fn has_links(&self) -> bool {
        self.steps.iter().any(|step| matches!(step.action, Action::Links(_)))
    }

    /// Whether this kind of complaint is no failure here.
    pub(crate) fn allows(&self, event: Allowed) -> bool {
        self.file.allow.contains(&event)
    }

    /// The file as data, with the keys that it has; nothing where there is no step and nothing is allowed.
    pub(super) fn told(&self) -> serde_json::Value {
        if self.file == File::default() {
            return serde_json::Value::Null;
        }
        let mut told = json!(self.file);
        let steps = told["step"].as_array_mut().into_iter().flatten();
        for step in steps.filter_map(serde_json::Value::as_object_mut) {
            step.retain(|_, value| !value.is_null());
        }
        told
    }

    /// Takes the steps that are due and not taken yet, in the order of the file.
    pub(crate) fn take_due(&mut self, moment: Moment<'_>) -> Vec<Action> {
        let mut waiting = Vec::new();
        let mut due = Vec::new();
        for step in self.steps.iter_mut().filter(|step| !step.taken) {
            // Steps about one target happen in the order of the file.
            if waiting.contains(&step.action.target()) || !step.when.has_come(moment) {
                waiting.push(step.action.target());
            } else {
                step.taken = true;
                due.push(step.action.clone());
            }
        }
        due
    }

    /// The numbers, from 1, of the steps that are not taken yet.
    pub(crate) fn pending(&self) -> Vec<usize> {
        let steps = self.steps.iter().enumerate();
        steps.filter(|(_, step)| !step.taken).map(|(index, _)| index + 1).collect()
    }
}

impl Action {
    /// What the action is about, which decides its order.
    fn target(&self) -> Target {
        match self {
            Self::Peer(_, peer) => Target::Peer(*peer),
            Self::KillBootstrap => Target::Bootstrap,
            Self::Links(_) => Target::Links,
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Peer(PeerAction::Kill, peer) => write!(f, "kill -9 peer {peer}"),
            Self::Peer(PeerAction::Interrupt, peer) => write!(f, "Ctrl-C to peer {peer}"),
            Self::Peer(PeerAction::Terminate, peer) => write!(f, "SIGTERM to peer {peer}"),
            Self::Peer(PeerAction::Stop, peer) => write!(f, "stop peer {peer}"),
            Self::Peer(PeerAction::Continue, peer) => write!(f, "continue peer {peer}"),
            Self::Peer(PeerAction::Start, peer) => write!(f, "start peer {peer}"),
            Self::KillBootstrap => f.write_str("kill -9 the bootstrap"),
            Self::Links(change) => write!(f, "{change}"),
        }
    }
}

impl ProcessState {
    /// The state of the process after this action, or why the action is impossible.
    fn after(self, action: PeerAction) -> Result<Self, &'static str> {
        match (self, action) {
            (Self::Absent, PeerAction::Start) | (Self::Stopped, PeerAction::Continue) => {
                Ok(Self::Running)
            }
            (Self::Running, PeerAction::Stop) => Ok(Self::Stopped),
            (Self::Running, PeerAction::Kill | PeerAction::Interrupt | PeerAction::Terminate)
            | (Self::Stopped, PeerAction::Kill) => Ok(Self::Absent),
            (Self::Absent, _) => Err("does not run"),
            (Self::Running, PeerAction::Start) => Err("runs already"),
            (Self::Running, PeerAction::Continue) => Err("is not stopped"),
            (Self::Stopped, _) => Err("is stopped (continue it first, or kill it)"),
        }
    }
}

impl When {
    /// Whether the time of a step has come.
    fn has_come(&self, moment: Moment<'_>) -> bool {
        let Moment { elapsed, unix_ms, observations } = moment;
        let passed = |at: Option<u64>, plus_ms: u64| {
            at.is_some_and(|at| unix_ms >= at.saturating_add(plus_ms))
        };
        match *self {
            // The state that the run begins with counts as committed from the start.
            Self::Epoch { epoch: 0, plus_ms } => elapsed >= Duration::from_millis(plus_ms),
            Self::Epoch { epoch, plus_ms } => passed(observations.commit_ms(epoch), plus_ms),
            Self::Elapsed(since) => elapsed >= since,
            Self::Roster { peer, epoch, plus_ms } => {
                passed(observations.roster_ms(peer, epoch), plus_ms)
            }
            Self::Ring { peer, epoch, plus_share } => {
                let Some(ring_ms) = observations.ring_ms(peer, epoch) else { return false };
                let plus = Duration::from_millis(ring_ms).mul_f64(plus_share);
                let plus_ms = u64::try_from(plus.as_millis()).unwrap_or(u64::MAX);
                passed(observations.roster_ms(peer, epoch), plus_ms)
            }
        }
    }
}

#[cfg(test)]
mod tests;
