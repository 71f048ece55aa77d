//! One peer of a simulation, through all processes that it has.
//!
//! A peer has at most one process at a time, and all of them share its folder: a new one goes on
//! from what the last one has written. Events and log are appended to by each.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rustix::process::Signal;

use super::{
    process::{Exit, Process, Tail},
    scenario::PeerAction,
};

/// The folder of a peer, its events, and its current process.
#[derive(Debug)]
pub(super) struct PeerSlot {
    /// The peer's folder, with its data, events and log.
    folder: PathBuf,
    /// Reads the events that the process appends.
    pub(super) tail: Tail,
    /// The process that was started last, running or ended.
    process: Option<Process>,
    /// Whether the scenario or the chaos has killed the process.
    pub(super) killed: bool,
}

impl PeerSlot {
    /// A peer that has no process yet; its folder exists.
    pub(super) fn new(folder: PathBuf) -> Self {
        let tail = Tail::new(folder.join("events.jsonl"));
        Self { folder, tail, process: None, killed: false }
    }

    /// The path of a file or folder of this peer.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The path of the log of its processes.
    pub(super) fn log(&self) -> PathBuf {
        self.path("log.txt")
    }

    /// Takes the process that was just started. One that was there before is killed, should it
    /// still run.
    pub(super) fn take(&mut self, process: Process) {
        self.process = Some(process);
        self.killed = false;
    }

    /// Does this to its process. A process that is gone has ended by itself, and is judged for that.
    pub(super) fn perform(&mut self, action: PeerAction) {
        let Some(process) = &mut self.process else { return };
        match action {
            PeerAction::Kill if process.exit().is_none() => {
                process.kill();
                self.killed = true;
            }
            PeerAction::Interrupt => process.signal(Signal::INT),
            PeerAction::Terminate => process.signal(Signal::TERM),
            PeerAction::Stop => process.signal(Signal::STOP),
            PeerAction::Continue => process.signal(Signal::CONT),
            PeerAction::Kill | PeerAction::Start => {}
        }
    }

    /// How its last process ended, if it has ended; `None` also for a peer that was never started.
    pub(super) fn exit(&mut self) -> Option<Exit> {
        self.process.as_mut().and_then(Process::exit)
    }

    /// Whether it has a process that has not ended.
    pub(super) fn is_running(&mut self) -> bool {
        self.process.as_mut().is_some_and(|process| process.exit().is_none())
    }

    /// The failure of its last process, if it ended and should not have, with the last line of its
    /// log: that is mostly the message of its error. A process that was killed on purpose has not
    /// failed.
    pub(super) fn failure(&mut self) -> Option<String> {
        match self.exit()? {
            Exit::Code(0) => None,
            _ if self.killed => None,
            exit => Some(format!("failed ({exit:?}): {}", last_line(&self.log()))),
        }
    }
}

/// The last line that a process printed.
fn last_line(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing").to_owned()
}
