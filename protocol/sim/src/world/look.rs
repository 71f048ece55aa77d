//! What can be seen of a simulated world: which processes run, and where each of them stands.
//!
//! Nothing here changes the world, apart from the closing of its counts at the end. Heads are those
//! that the checks have seen committed, loaded or restored, and not what a machine says of itself.

use intellect_protocol::machine::wait::Wait;

use super::{Count, Head, PeerId, Phase, Rank, Report, World};

impl World {
    /// Hosts with a process, stopped or not, in the order of their indices.
    pub(crate) fn running(&self) -> Vec<usize> {
        (0..self.hosts.len()).filter(|host| self.hosts[*host].process.is_some()).collect()
    }

    /// Those of them that do not lie and are not revoked: the peers of which progress is required.
    pub(crate) fn honest(&self) -> Vec<usize> {
        let counts =
            |host: &usize| !self.is_liar(*host) && !self.script.revoking.revoked.contains(host);
        self.running().into_iter().filter(counts).collect()
    }

    /// The head of a host's process; `None` if no process runs.
    pub fn head(&self, host: usize) -> Option<Head> {
        self.hosts[host].process.as_ref().map(|process| process.judged.head)
    }

    /// The rank of a head among all, by what the organiser has attested so far.
    pub(crate) fn rank(&self, head: &Head) -> Rank {
        self.check.lineage.rank(&self.script.attesting.notices, head)
    }

    /// The phase and attempt of a host's process in its open epoch.
    pub fn phase(&self, host: usize) -> Option<(Phase, u64)> {
        self.hosts[host].process.as_ref().map(|process| process.holdings.peer().phase())
    }

    /// What a host's process waits for; `None` if it trains, applies an update, or does not run.
    pub fn wait(&self, host: usize) -> Option<Wait> {
        let peer = self.hosts[host].process.as_ref()?.holdings.peer();
        peer.wait(self.clock(host), self.hosts.len() > 1)
    }

    /// The peer that a host is, by its key.
    pub fn name(&self, host: usize) -> PeerId {
        self.hosts[host].name
    }

    /// The host of a peer; `None` for a stranger.
    pub fn host(&self, name: &PeerId) -> Option<usize> {
        self.names.get(name).copied()
    }

    /// Whether the heads of two hosts lie on one lineage. A host without a process agrees with all.
    pub(crate) fn agree(&self, a: usize, b: usize) -> bool {
        match (self.head(a), self.head(b)) {
            (Some(a), Some(b)) => self.check.one_lineage(&a, &b),
            _ => true,
        }
    }

    /// The position of a host's process, for the reader of a failure.
    pub(crate) fn describe(&self, host: usize) -> String {
        let Some(process) = &self.hosts[host].process else { return format!("{host}: none") };
        let (head, (series, voters)) = (process.judged.head, process.holdings.peer().series());
        let (phase, attempt) = process.holdings.peer().phase();
        format!(
            "{host}: {}/{} {phase:?} {attempt} in {:?} of {} voters",
            head.epoch,
            head.state,
            series.regroup,
            voters.len()
        )
    }

    /// The liars and their behaviours, for the reader of a failure.
    pub(crate) fn describe_liars(&self) -> String {
        let mut text = String::new();
        for (host, place) in self.hosts.iter().enumerate() {
            let Some(liar) = &place.liar else { continue };
            let how: Vec<&str> = liar.behaviours.iter().map(|behaviour| behaviour.name).collect();
            let kind = if place.process.is_some() { "" } else { " has no machine and" };
            text += &format!("; {host}{kind} {}", how.join(" and "));
        }
        text
    }

    /// Closes the counts, at the end of a run.
    pub(crate) fn into_report(mut self) -> Report {
        self.report.virtual_ms = self.now_ms;
        self.report.count(Count::Regroups, self.check.votes.opened_count());
        self.report.count(Count::Split, self.check.votes.split_count());
        self.report.count(Count::Forgone, self.check.forgone);
        self.report
    }
}
