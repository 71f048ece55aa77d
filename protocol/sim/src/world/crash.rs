//! Disks and crashes: what a process writes, when it is flushed, and what a power cut leaves of it.
//!
//! What goes to the log is flushed before the next output that leaves the machine, and an update before
//! it counts as held. A crash is aimed: it strikes a host at the n-th point at which something could have
//! been lost, and those are before and after each flush, and between any two outputs of one step.

use std::sync::Arc;

use super::{Happening, Input, Message, Output, World};
use crate::disk::{Damage, File, Kept};
use intellect_protocol::epoch::Rule;
use intellect_protocol::id::Digest;
use intellect_protocol::log::Record;

/// A crash that is to come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doom {
    pub(crate) host: usize,
    /// How many points pass before.
    pub(crate) points: u64,
    /// Which of the writes that were not flushed are kept, if there are as many; else all.
    pub(crate) kept: Kept,
}

impl World {
    /// Hands one input to a process and applies what comes out, in order.
    pub(super) fn feed(&mut self, host: usize, input: Input) {
        let mut out = std::mem::take(&mut self.spare);
        let (clock, start) = (self.clock(host), self.hosts[host].incarnation);
        if let Some(process) = &mut self.hosts[host].process {
            process.machine.handle(clock, input, &mut out);
        }
        for output in out.drain(..) {
            if !self.is_running(host, start) {
                continue;
            }
            if let Output::Log(record) = output {
                self.log(host, record);
            } else if !leaves(&output) || self.flush(host) {
                self.apply(host, output);
            }
            self.pass(host);
        }
        self.spare = out;
        self.schedule_tick(host);
    }

    fn log(&mut self, host: usize, record: Record) {
        if let (Record::Joined { regroup, .. }, Some(process)) =
            (&record, &self.hosts[host].process)
        {
            let verdict = self.check.joins(self.now_ms, &process.judged, regroup);
            self.judge(verdict);
        }
        self.hosts[host].disk.append(record);
    }

    /// R1, R13, R16: what binds its author is on disk before it is said.
    pub(super) fn check_flushed(&mut self, host: usize, message: &Message) {
        if self.setup.without.is_none() && !self.hosts[host].disk.proves(&self.run, message) {
            let what = format!("{} says what is not on its disk: {message:?}", self.name(host));
            self.break_with("R1", what);
        }
    }

    /// Whether the process that started as `incarnation` still runs.
    fn is_running(&self, host: usize, incarnation: u64) -> bool {
        let place = &self.hosts[host];
        place.process.is_some() && place.incarnation == incarnation
    }

    /// Flushes what is written; false if the host does not live to see it.
    fn flush(&mut self, host: usize) -> bool {
        if self.hosts[host].disk.is_flushed() {
            return true;
        }
        if self.pass(host) {
            self.hosts[host].disk.flush();
            return self.pass(host);
        }
        false
    }

    /// A point at which a crash may strike; false if it does.
    fn pass(&mut self, host: usize) -> bool {
        let Some(doom) = self.doom.as_mut().filter(|doom| doom.host == host) else { return true };
        if self.hosts[host].process.is_none() {
            return false;
        }
        if doom.points > 0 {
            doom.points -= 1;
            return true;
        }
        let kept = doom.kept;
        self.doom = None;
        self.report.crashes += 1;
        self.crashed.push(host);
        self.end(host, kept);
        false
    }

    /// Dooms a host: it crashes at a point to come.
    pub(crate) fn doom(&mut self, doom: Option<Doom>) {
        self.doom = doom;
    }

    /// Hosts that have crashed since this was asked last.
    pub(crate) fn crashed(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.crashed)
    }

    /// Ends a process at once; of what is not flushed this much is on its disk.
    pub(super) fn end(&mut self, host: usize, kept: Kept) {
        if self.hosts[host].process.is_none() {
            return;
        }
        let lies = self.setup.without == Some(Rule::Durable);
        let disk = &mut self.hosts[host].disk;
        disk.crash(kept);
        if lies {
            disk.forget_votes();
        }
        self.vanish(host);
    }

    /// Loses some of what a host has on disk. Only while no process runs there.
    pub(crate) fn damage(&mut self, host: usize, damage: Damage) {
        assert!(self.hosts[host].process.is_none(), "its owner has locked it");
        self.hosts[host].disk.damage(damage);
    }

    /// Has an update on disk, and flushed; nothing if the host crashes meanwhile.
    pub(super) fn keep_update(&mut self, host: usize, bytes: Arc<Vec<u8>>) -> Option<Digest> {
        let digest = Digest(*blake3::hash(&bytes).as_bytes());
        let place = &mut self.hosts[host];
        let epoch = place.process.as_ref()?.judged.head().epoch + 1;
        place.disk.write(File::Update(digest, epoch, Arc::clone(&bytes)));
        if !self.flush(host) {
            return None;
        }
        self.hosts[host].process.as_mut()?.toy.updates.insert(digest, bytes);
        Some(digest)
    }

    /// Writes the state as a checkpoint. That of a fetched one is flushed at once: nothing leads to it.
    pub(super) fn checkpoint(&mut self, host: usize, fetched: bool) {
        let place = &mut self.hosts[host];
        let Some(process) = &place.process else { return };
        let anchor = Arc::clone(&process.toy.anchor);
        if fetched || (anchor.epoch + host as u64).is_multiple_of(CHECKPOINT_EPOCHS) {
            place.disk.write(File::Checkpoint(anchor));
            if fetched {
                self.flush(host);
            }
        }
    }

    /// Tells a process which updates its disk still has.
    pub(super) fn show_updates(&mut self, host: usize, updates: Vec<(Digest, Arc<Vec<u8>>)>) {
        let Some(process) = &mut self.hosts[host].process else { return };
        let held: Vec<Digest> = updates.iter().map(|(digest, _)| *digest).collect();
        process.toy.updates.extend(updates);
        for update in held {
            self.push(0, host, Happening::Input(Input::UpdateHeld(update)));
        }
    }
}

/// Whether somebody else can learn of it.
fn leaves(output: &Output) -> bool {
    match output {
        Output::Gossip(_)
        | Output::Send(..)
        | Output::Ring(_)
        | Output::FetchUpdate(..)
        | Output::Ask(..)
        | Output::Fetch { .. }
        | Output::Replay { .. }
        | Output::Left => true,
        Output::Log(_)
        | Output::Abandon(_)
        | Output::Apply(_)
        | Output::Train { .. }
        | Output::Fault(..)
        | Output::Event(_) => false,
    }
}

/// Every how many epochs a host writes a checkpoint.
const CHECKPOINT_EPOCHS: u64 = 3;
