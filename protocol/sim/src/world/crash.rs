//! Steps of a process, and crashes between them.
//!
//! A crash is aimed: it strikes a host at the n-th point at which something could have been lost.
//! Those points are before and after each flush, and between any two outputs of one step.
//!
//! A machine decides a list of outputs at once, and a node carries them out one after another. A
//! power cut may strike between any two: so all that an earlier output has done must be lawful
//! without those after it. This is what such a crash tests.

use super::{Input, Message, Output, World, peer};
use crate::disk::{Damage, Kept, PlannedCrash};
use crate::report::Count;
use intellect_protocol::history::log::Record;
use intellect_protocol::message::Regroup;
use intellect_protocol::message::wire;

impl World {
    /// Gives an input to the peer of a process at once, past the queue.
    pub(super) fn feed_peer(&mut self, host: usize, input: peer::Input) {
        self.feed(host, Input::Peer(input));
    }

    /// Gives an input to a process, and carries out its outputs in order. A crash, or the end of
    /// the process, drops the outputs that are left. Nothing else gives the machine an input.
    ///
    /// Carrying out an output may feed another process, or this one again. The outputs that are
    /// left come after that. `acting` is the host whose act is judged meanwhile; it is set back at
    /// the end.
    pub(super) fn feed(&mut self, host: usize, input: Input) {
        let mut out = std::mem::take(&mut self.spare);
        let before = std::mem::replace(&mut self.script.lying.acting, host);
        let (clock, start) = (self.clock(host), self.hosts[host].incarnation);
        if let Some(process) = &mut self.hosts[host].process {
            process.holdings.handle(clock, input, &mut out);
        }
        self.judge_joins(host, &out);
        for output in out.drain(..) {
            if self.is_running(host, start) {
                self.apply(host, output);
                self.pass(host);
            }
        }
        self.spare = out;
        self.schedule_tick(host);
        self.script.lying.acting = before;
    }

    /// S7: a process binds itself by a record, whether or not it survives to send the Join. Records
    /// that the machine has not yet given to the disk count too; each Regroup is judged once.
    fn judge_joins(&mut self, host: usize, out: &[Output]) {
        let Some(process) = &mut self.hosts[host].process else { return };
        let written = out.iter().filter_map(|output| match output {
            Output::Write(records) => Some(records.iter()),
            _ => None,
        });
        let records = written.flatten().chain(process.holdings.unwritten());
        let joined: Vec<Regroup> = records
            .filter_map(|record| match record {
                Record::Joined { regroup, .. } => Some(regroup.clone()),
                _ => None,
            })
            .collect();
        for regroup in joined {
            let Some(process) = &mut self.hosts[host].process else { return };
            if process.joined.insert(wire::regroup_digest(&self.run, &regroup)) {
                self.report.count(
                    Count::MuteLeft,
                    super::Check::mute(&regroup) * u64::from(self.script.lying.drawn),
                );
                let verdict = self.check.joins(self.now_ms, &process.judged, &regroup);
                self.judge(verdict);
            }
        }
    }

    /// R1, R13, R16, R21: a message leaves only after its records are on disk. Heartbeats may leave
    /// before votes, but not before the head that they name.
    pub(super) fn check_flushed(&mut self, host: usize, message: &Message) {
        if !self.hosts[host].disk.proves(&self.run, message) {
            let what = format!("{} says what is not on its disk: {message:?}", self.name(host));
            self.break_with("durable", what);
        }
    }

    /// Whether the process that started as `incarnation` still runs.
    fn is_running(&self, host: usize, incarnation: u64) -> bool {
        let place = &self.hosts[host];
        place.process.is_some() && place.incarnation == incarnation
    }

    /// A point at which a crash may strike; false if it does. It is called before and after each
    /// flush and after each output.
    pub(super) fn pass(&mut self, host: usize) -> bool {
        if self.hosts[host].process.is_none() {
            return false;
        }
        let planned = self.script.planned_crash.as_mut();
        let Some(planned) = planned.filter(|planned| planned.host == host) else { return true };
        if planned.points > 0 {
            planned.points -= 1;
            return true;
        }
        let kept = planned.kept;
        self.script.planned_crash = None;
        self.report.count(Count::Crashes, 1);
        self.script.crashed.push(host);
        self.end(host, kept);
        false
    }

    /// Plans a crash of a host, or cancels it. It replaces one that was planned before, also of
    /// another host.
    pub(crate) fn plan_crash(&mut self, crash: Option<PlannedCrash>) {
        self.script.planned_crash = crash;
    }

    /// Hosts that have crashed since this was last called, in that order. Only planned crashes
    /// count; none of them has been restarted here.
    pub fn crashed(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.script.crashed)
    }

    /// Ends a process at once; `kept` says which unflushed writes survive.
    pub(super) fn end(&mut self, host: usize, kept: Kept) {
        if self.hosts[host].process.take().is_some() {
            self.hosts[host].disk.crash(kept);
            self.vanish(host);
        }
    }

    /// Loses part of a host's disk, while no process runs there. The next start finds what is left,
    /// and may be at an earlier head than the peer had said.
    pub fn damage(&mut self, host: usize, damage: Damage) {
        assert!(self.hosts[host].process.is_none(), "its owner has locked it");
        self.hosts[host].disk.damage(damage);
    }
}
