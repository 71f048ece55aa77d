//! What the processes of a simulation report that they did.
//!
//! It takes events, knows nothing of files and processes, and can be asked at any time.
//!
//! Events of one peer come in the order in which it wrote them; those of several peers in any
//! order, by their own clocks. They are believed here; the held-out loss is measured without them.
//! Memory grows by the epochs and peers of the run.

pub(super) mod branch;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{
    figures::number_of,
    name::{Hex, PeerName},
    tell::events::{Event, Record},
};

use branch::{Branch, Share};

/// A complaint that a scenario may provoke on purpose, by the words of its key `allow`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Allowed {
    /// A peer was dropped for what it did.
    Fault,
    /// Two lineages of the run met.
    Fork,
    /// Equal receipts gave different states.
    Diverged,
}

/// Everything that was reported so far.
#[derive(Debug, Default)]
pub(super) struct Observations {
    /// What each peer has reported, by its number.
    peers: Vec<Peer>,
    /// The committed epochs, by number.
    pub(super) epochs: BTreeMap<u64, Epoch>,
    /// Events that fail the simulation, unless the scenario provokes them.
    pub(super) complaints: Vec<(Allowed, String)>,
    /// Counts of what did not go smoothly.
    pub(super) tally: Tally,
    /// Sentences that were not taken yet.
    news: Vec<String>,
    /// States that were reported first since they were last asked for, with their epochs.
    fresh: Vec<(u64, Hex)>,
    /// How many peers were last said to be here, and with how many the run was founded.
    founding: (usize, usize),
}

/// What did not go smoothly, counted once whichever peers reported it.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    /// Attempts that ended without a decision.
    pub(super) aborted: BTreeSet<(u64, u64)>,
    /// Regroups that do not found the run: the epoch, and the peers that went on.
    pub(super) regroups: BTreeSet<(u64, Vec<PeerName>)>,
    /// Times that a peer met another lineage.
    pub(super) forks: u64,
    /// Times that an epoch was committed without a peer's work.
    pub(super) left_out: u64,
}

/// What one peer has reported of itself, through all processes that it has had.
#[derive(Clone, Debug, Default)]
struct Peer {
    /// Its name, from its first event.
    name: Option<PeerName>,
    /// Whether it has begun to take part.
    has_started: bool,
    /// Its greatest head: epoch and state digest.
    head: Option<(u64, Hex)>,
    /// The state that it has committed or taken over last.
    last: Option<(u64, Hex)>,
    /// When it first accepted a roster of each epoch, in Unix milliseconds.
    rosters: BTreeMap<u64, u64>,
    /// How long it then took to commit that epoch, in milliseconds.
    rings: BTreeMap<u64, u64>,
    /// Bulk bytes that it sent for epochs that it committed.
    sent_bytes: u64,
    /// Bulk bytes that it received for them.
    received_bytes: u64,
}

/// One epoch, as all processes together reported it.
#[derive(Clone, Debug, Default)]
pub(super) struct Epoch {
    /// The states that were reported.
    pub(super) branches: BTreeMap<Hex, Branch>,
    /// Unix milliseconds of the first report.
    pub(super) first_ms: u64,
    /// Tokens that its first reported receipt counts.
    pub(super) tokens: u64,
}

impl Epoch {
    /// What is known of this state of epoch `number`. A state that is not known yet is added to `fresh`.
    fn branch(&mut self, number: u64, state: Hex, fresh: &mut Vec<(u64, Hex)>) -> &mut Branch {
        self.branches.entry(state).or_insert_with_key(|state| {
            fresh.push((number, state.clone()));
            Branch::default()
        })
    }

    /// The state digest that most processes reported, and how many did.
    pub(super) fn state(&self) -> Option<(&Hex, usize)> {
        let counts = self.branches.iter().map(|(state, branch)| (state, branch.by.len()));
        counts.max_by_key(|(_, count)| *count)
    }

    /// How many different states were reported: each is of a lineage that has not met the others.
    pub(super) fn lineages(&self) -> usize {
        self.branches.len()
    }

    /// How many processes reported the epoch.
    pub(super) fn reports(&self) -> usize {
        self.branches.values().map(|branch| branch.by.len()).sum()
    }
}

impl Observations {
    /// The epoch with which a run of so many tokens is complete, if it has come that far; 0 tokens
    /// are no end. If an epoch has several receipts, the one that was reported first counts.
    pub(super) fn completed(&self, stop_tokens: u64) -> Option<u64> {
        if stop_tokens == 0 {
            return None;
        }
        let mut sum = 0_u64;
        let last = self.epochs.iter().find(|(_, entry)| {
            sum = sum.saturating_add(entry.tokens);
            sum >= stop_tokens
        });
        last.map(|(epoch, _)| *epoch)
    }

    /// No observations yet, of `peers` peers.
    pub(super) fn new(peers: usize) -> Self {
        Self { peers: vec![Peer::default(); peers], ..Self::default() }
    }

    /// Takes one event of peer `index`. Events that do not matter for table, judgement and report
    /// are left aside.
    pub(super) fn record(&mut self, index: usize, record: Record) {
        let Some(peer) = self.peers.get_mut(index) else { return };
        let epoch = record.epoch.unwrap_or(0);
        peer.name.get_or_insert(record.peer);
        match record.event {
            Event::Committed {
                attempt,
                members,
                weights,
                state,
                loss,
                sync_ms,
                sent_bytes,
                received_bytes,
                times,
                ..
            } => {
                peer.sent_bytes += sent_bytes;
                peer.received_bytes += received_bytes;
                let parent = peer.last.take().filter(|(last, _)| last + 1 == epoch);
                peer.advance(epoch, &state);
                if let Some(since) = peer.rosters.get(&epoch) {
                    peer.rings.insert(epoch, record.t_ms.saturating_sub(*since));
                }
                let entry = self.epochs.entry(epoch).or_default();
                let branch = entry.branch(epoch, state, &mut self.fresh);
                let share = Share { loss, sync_ms, sent_bytes, received_bytes, times };
                branch.commit(index, share, attempt, record.t_ms, &members, &weights);
                branch.follow(parent);
                let tokens = branch.tokens();
                if entry.first_ms == 0 {
                    (entry.first_ms, entry.tokens) = (record.t_ms, tokens);
                }
                entry.first_ms = entry.first_ms.min(record.t_ms);
            }
            Event::CaughtUp { state, .. } => {
                peer.advance(epoch, &state);
                // The peer did not commit it itself, but it must have the state that the others committed.
                if let Some(entry) = self.epochs.get_mut(&epoch) {
                    entry.branch(epoch, state, &mut self.fresh).by.insert(index);
                }
            }
            Event::Started { .. } => peer.has_started = true,
            Event::Roster { .. } => {
                peer.rosters.entry(epoch).or_insert(record.t_ms);
            }
            Event::Fault { who, why, .. } => {
                let text = format!("peer {index} dropped {}: {why}", who.short());
                self.complaints.push((Allowed::Fault, text));
            }
            Event::Fork { first_epoch, undone, .. } => self.meet(index, first_epoch, undone),
            Event::Diverged { who, mine, theirs } => {
                let (mine, theirs, who) = (mine.short(), theirs.short(), who.short());
                let text = format!("peer {index} has state {mine} where {who} has {theirs}");
                self.complaints.push((Allowed::Diverged, text));
            }
            Event::Aborted { attempt, .. } => {
                self.tally.aborted.insert((epoch, attempt));
            }
            Event::Regroup { members, absent, .. } if epoch > 1 => {
                self.regroup(epoch, members, &absent);
            }
            Event::Regroup { members, .. } => self.found(members.len()),
            Event::LeftOut { .. } => self.tally.left_out += 1,
            _ => {}
        }
    }

    /// Peer `index` has met another lineage, and undoes so many epochs.
    fn meet(&mut self, index: usize, first_epoch: u64, undone: u64) {
        if undone > 0 {
            let undone = number_of(undone, "epoch");
            self.news.push(format!("peer {index} meets a greater lineage: {undone} undone"));
        }
        let text = format!("peer {index} met a fork that began with epoch {first_epoch}");
        self.complaints.push((Allowed::Fork, text));
        self.tally.forks += 1;
    }

    /// Some peers go on without others. Each member reports it; one sentence is enough.
    fn regroup(&mut self, epoch: u64, mut members: Vec<PeerName>, absent: &[PeerName]) {
        members.sort();
        let list = |names: &[PeerName]| {
            let mut numbers: Vec<usize> =
                names.iter().filter_map(|name| self.index(name)).collect();
            numbers.sort_unstable();
            let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
            let noun = if names.len() == 1 { "peer" } else { "peers" };
            format!("{noun} {}", numbers.join(", "))
        };
        let verb = if members.len() == 1 { "goes" } else { "go" };
        let (some, others) = (list(&members), list(absent));
        let news =
            format!("{some} {verb} on without {others}: the run may fork from epoch {epoch} on");
        if self.tally.regroups.insert((epoch, members)) {
            self.news.push(news);
        }
    }

    /// So many peers found the run. Each member reports it; one sentence is enough.
    fn found(&mut self, members: usize) {
        if std::mem::replace(&mut self.founding.1, members) != members {
            self.news.push(format!("founded: the run begins with {}", number_of(members, "peer")));
        }
    }

    /// What peers did of themselves since the last call, in sentences.
    pub(super) fn news(&mut self) -> Vec<String> {
        let here = self.peers.iter().filter(|peer| peer.has_started).count();
        let (said, founders) = self.founding;
        if founders == 0 && here != said && self.epochs.is_empty() {
            self.founding.0 = here;
            self.news.push(format!("founding: {here} of {} here", self.peers.len()));
        }
        std::mem::take(&mut self.news)
    }

    /// The states that were reported first since the last call, in the order of their reports.
    pub(super) fn fresh(&mut self) -> Vec<(u64, Hex)> {
        std::mem::take(&mut self.fresh)
    }

    /// Whether a peer that had this state has come to a later epoch.
    pub(super) fn is_past(&self, epoch: u64, state: &Hex) -> bool {
        let branch = self.epochs.get(&epoch).and_then(|entry| entry.branches.get(state));
        let is_later = |peer: &usize| self.head(*peer).is_some_and(|(head, _)| *head > epoch);
        branch.is_some_and(|branch| branch.by.iter().any(is_later))
    }

    /// Milliseconds from the state before `branch` to it. Those of the first epoch count from `started_ms`, and those of
    /// a state whose parent nobody reported from the first commit of the epoch before.
    pub(super) fn took_ms(&self, epoch: u64, branch: &Branch, started_ms: u64) -> u64 {
        let before = self.epochs.range(..epoch).next_back().map(|(_, entry)| entry);
        let parent = before.and_then(|entry| entry.branches.get(branch.parent.as_ref()?));
        let parent_ms = parent.map(|parent| parent.first_ms).filter(|ms| *ms > 0);
        let since = parent_ms.or_else(|| before.map(|entry| entry.first_ms)).unwrap_or(started_ms);
        branch.first_ms.saturating_sub(since)
    }

    /// The greatest epoch that any peer has committed; 0 before the first.
    pub(super) fn committed(&self) -> u64 {
        self.epochs.last_key_value().map_or(0, |(epoch, _)| *epoch)
    }

    /// When a peer first committed `epoch` or a later one, in Unix milliseconds.
    pub(super) fn commit_ms(&self, epoch: u64) -> Option<u64> {
        self.epochs.range(epoch..).map(|(_, entry)| entry.first_ms).min()
    }

    /// When `peer` first accepted a roster of `epoch` or a later one, in Unix milliseconds.
    pub(super) fn roster_ms(&self, peer: usize, epoch: u64) -> Option<u64> {
        self.peers.get(peer)?.rosters.range(epoch..).next().map(|(_, at)| *at)
    }

    /// The median time from the roster to the commit of `peer` in epochs before `epoch`, in
    /// milliseconds; `None` if it has committed none of them after a roster of its own.
    pub(super) fn ring_ms(&self, peer: usize, epoch: u64) -> Option<u64> {
        let mut times: Vec<u64> =
            self.peers.get(peer)?.rings.range(..epoch).map(|(_, time)| *time).collect();
        times.sort_unstable();
        times.get(times.len() / 2).copied()
    }

    /// Bulk bytes that `peer` sent and received for the epochs that it committed.
    pub(super) fn bytes(&self, peer: usize) -> (u64, u64) {
        self.peers.get(peer).map_or((0, 0), |peer| (peer.sent_bytes, peer.received_bytes))
    }

    /// The number of the peer of this name; `None` before its first event.
    pub(super) fn index(&self, name: &PeerName) -> Option<usize> {
        self.peers.iter().position(|peer| peer.name.as_ref() == Some(name))
    }

    /// The greatest head that `peer` has reported.
    pub(super) fn head(&self, peer: usize) -> Option<&(u64, Hex)> {
        self.peers.get(peer)?.head.as_ref()
    }

    /// The first epoch that two processes committed differently, if there is one, as a sentence
    /// with all states.
    pub(super) fn disagreement(&self) -> Option<String> {
        let (epoch, entry) = self.epochs.iter().find(|(_, entry)| entry.branches.len() > 1)?;
        let by = |(state, branch): (&Hex, &Branch)| format!("{} by {:?}", state.short(), branch.by);
        let states: Vec<_> = entry.branches.iter().map(by).collect();
        Some(format!("epoch {epoch} was committed with different states: {}", states.join(", ")))
    }
}

impl Peer {
    /// Notes a state that the peer has now. Its greatest head stays, even if it goes back.
    fn advance(&mut self, epoch: u64, state: &Hex) {
        if self.head.as_ref().is_none_or(|(head, _)| *head <= epoch) {
            self.head = Some((epoch, state.clone()));
        }
        self.last = Some((epoch, state.clone()));
    }
}

#[cfg(test)]
pub(super) mod tests;
