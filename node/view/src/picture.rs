//! The picture of a run: a pure fold of records, and what every reader shows. It reads no clock:
//! its time is that of the newest record. As the answer of `/status` it is read back by
//! [`Mirror`](crate::stage::Mirror), so names of fields are a format.
//!
//! The node is the writer of the first record that says `started`, `committed` or `ready`. Of other
//! writers only the held-out loss, the states and the losses are taken, if they are of the same run.
//! With a record of another run the picture begins anew. Every collection has a bound.
//!
//! A record is taken in three steps, each of which hands on what is not its own: `change` (what the
//! node does), `meet` (peers and ways to them) and `count` (what went wrong). For each record
//! `notice` has a sentence for people. What the events do not say is `None` or absent, never a default that looks
//! measured.
//!
//! Keys of the answer are added and not renamed. A field that an older node lacks has
//! `serde(default)`.

mod agreement;
pub mod gauge;
mod node;
pub(crate) mod notice;
mod pace;
mod peers;
mod public;
mod run;
pub(crate) mod times;
mod waiting;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, VecDeque},
};

use serde::{Deserialize, Serialize};

use crate::record::{Commit, Event, Record, Ring, Text};
use agreement::Agreement;
use gauge::{Gauge, Training};
pub(crate) use node::Node;
use notice::notice;
use pace::Pace;
pub(crate) use peers::Peer;
use run::Run;
use times::{Marks, Times};
pub(crate) use waiting::Waiting;

/// A run as one node has seen it so far.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Picture {
    /// Where the records come from, and whether more will come.
    pub(crate) source: Source,
    /// Unix milliseconds of the newest record or sample; they never go back.
    pub(crate) now_ms: u64,
    /// What the run is, by its manifest.
    pub(crate) run: Run,
    /// The node whose sight this is.
    pub(crate) node: Node,
    /// The newest epoch that this node has committed.
    pub(crate) head: Head,
    /// The epoch after that, and how far this node is with it.
    pub(crate) open: Open,
    /// The last ring that decided, in its order.
    pub(crate) ring: Vec<Seat>,
    /// The last ring of this node that gave an update: its own two edges.
    pub(crate) own_ring: Option<Ring>,
    /// The other peers by their ids, at most `PEERS_MAX` of them.
    pub(crate) peers: BTreeMap<Text, Peer>,
    /// How fast the run goes, over its last epochs.
    pub(crate) pace: Pace,
    /// The steps of the open epoch; only a running node knows them.
    pub(crate) training: Option<Training>,
    /// Signs of life; only a running node knows them.
    pub(crate) life: Option<gauge::Life>,
    /// Why the node does not get on, until it does.
    pub(crate) waiting: Option<Waiting>,
    /// The first epoch of a greater lineage about which a person has to decide.
    #[serde(default)]
    pub(crate) held_fork: Option<u64>,
    /// The first epochs of the lineages that were met, at most `FORKS_MAX`.
    #[serde(skip)]
    forks: BTreeSet<u64>,
    /// What is being fetched; `None` once it is here.
    pub(crate) fetch: Option<Fetch>,
    /// The newest loss on held-out data. Only a simulation measures it.
    pub(crate) held_out: Option<HeldOut>,
    /// Whether all peers have the same states.
    pub(crate) agreement: Agreement,
    pub(crate) counts: Counts,
    /// The newest sentences for people, the oldest first, at most `NOTICES_MAX`.
    pub(crate) notices: VecDeque<Notice>,
}

/// Where the records of a picture come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Source {
    /// Whether the file still grows, so that its time is the time of day.
    pub live: bool,
    /// Seconds of the file in a second of the clock; 0 is all at once.
    pub speed: f64,
    /// Whether the last record has been taken.
    pub ended: bool,
}

/// The last epoch that this node committed in this file: 0 until the first, even if it caught up.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Head {
    /// The number of that epoch; 0 before the first one.
    pub(crate) epoch: u64,
    /// Committed tokens of the run after it.
    pub(crate) tokens: u64,
    /// Unix milliseconds of the commit, by the clock of the node.
    pub(crate) t_ms: u64,
    /// The digest of the state after it.
    pub(crate) state: Option<Text>,
    /// Nats per token over what this node contributed.
    pub(crate) loss: Option<f64>,
    /// The attempt that decided it, from 1 on.
    pub(crate) attempt: u64,
    /// Bulk bytes that this node sent for it, without control messages.
    pub(crate) sent_bytes: u64,
    pub(crate) received_bytes: u64,
    /// The epoch since which another lineage may exist; `None` if none can.
    pub(crate) forkable_since: Option<u64>,
    pub(crate) times: Times,
}

/// The epoch that is under way at this node. Without an accepted roster `attempt` is 0.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Open {
    pub(crate) epoch: u64,
    pub(crate) phase: Phase,
    /// Unix milliseconds at which the phase began.
    pub(crate) since_ms: u64,
    pub(crate) attempt: u64,
    /// The members with a position in the roster that was accepted last, in the order of the ring. If none has one, as
    /// where an earlier value is adopted, all members.
    pub(crate) roster: Vec<Text>,
    #[serde(skip)]
    /// When its events came, from which its times follow.
    marks: Marks,
}

/// What the node does, as far as its events say. Time alone never changes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Phase {
    /// Nothing has been read that says what the node does.
    #[default]
    Unknown,
    /// It takes inner steps, or is about to.
    Training,
    /// Its own work is frozen, and no roster is accepted.
    Ready,
    /// A roster is accepted: the ring runs, or its votes.
    Ring,
    /// A later state comes in from other peers.
    Fetching,
    /// The node has left, or its process has ended.
    Stopped,
}

/// A position in a ring and its weight: the tokens that the member's delta was trained on.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Seat {
    pub(crate) peer: Text,
    pub(crate) tokens: u64,
}

/// A state that comes in, or without epochs a file of data. The rate is bytes a second.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Fetch {
    pub(crate) from_epoch: Option<u64>,
    pub(crate) to_epoch: Option<u64>,
    pub(crate) have_bytes: u64,
    pub(crate) want_bytes: u64,
    pub(crate) rate: Option<f64>,
}

/// What was measured on held-out data, in nats per token. Only a synthetic source has a floor.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct HeldOut {
    pub(crate) epoch: u64,
    pub(crate) loss: Option<f64>,
    pub(crate) floor: Option<f64>,
    pub(crate) excess: Option<f64>,
    /// The standard error of the loss.
    pub(crate) error: Option<f64>,
    /// The losses of the best guess from no token, and from the last one.
    pub(crate) unigram: Option<f64>,
    pub(crate) bigram: Option<f64>,
}

/// How often things happened since the file began; the counters of `/metrics`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Counts {
    /// Epochs that were committed live, those without this node's delta included.
    pub(crate) commits: u64,
    /// Epochs that were committed without this node's delta.
    pub(crate) left_out: u64,
    /// Lineages that were met, each counted once by its first epoch.
    pub(crate) forks: u64,
    /// Epochs that this node took back for a greater lineage.
    pub(crate) undone_epochs: u64,
    /// Regroups that it joined after voters were gone.
    pub(crate) regroups: u64,
    /// Peers that were dropped for what no honest peer does.
    pub(crate) faults: u64,
    /// Files that could not be read or written.
    pub(crate) disk: u64,
    /// Peers that were not let into a run of invited peers.
    pub(crate) refused: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) received_bytes: u64,
    /// Attempts that ended without a decision, by where they ended.
    pub(crate) aborted: BTreeMap<Text, u64>,
}

/// Something that a person may want to read; `notice` has the kinds and the sentences.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Notice {
    pub(crate) t_ms: u64,
    pub(crate) epoch: Option<u64>,
    pub(crate) kind: Cow<'static, str>,
    pub(crate) text: String,
}

impl Picture {
    /// Adds one record to the picture. Records of one writer come in the order of its file.
    pub fn take(&mut self, record: &Record) {
        let acts = matches!(
            record.event,
            Event::Started { .. }
                | Event::Watching { .. }
                | Event::Committed(_)
                | Event::Ready { .. }
        );
        if self.node.peer.is_none() && acts {
            self.node.peer = Some(record.peer.clone());
        }
        if self.node.peer.as_ref().is_some_and(|peer| *peer != record.peer) {
            return self.take_of_another(record);
        }
        self.now_ms = self.now_ms.max(record.t_ms);
        if self.is_of_another_run(record) {
            let node = Node { peer: self.node.peer.take(), ..Node::default() };
            *self = Self { source: self.source, now_ms: self.now_ms, node, ..Self::default() };
        }
        if record.run.is_some() {
            self.run.id.clone_from(&record.run);
        }
        self.change(record);
        if let Some((kind, text)) = notice(&record.event) {
            let (t_ms, epoch, kind) = (record.t_ms, record.epoch, kind.into());
            self.notices.push_back(Notice { t_ms, epoch, kind, text });
            shorten(&mut self.notices, NOTICES_MAX);
        }
    }

    /// Notes what a running node measures between two records; steps count only while it trains.
    pub fn measure(&mut self, gauge: Gauge) {
        self.now_ms = self.now_ms.max(gauge.t_ms);
        self.life = Some(gauge.life);
        if !gauge.waits {
            self.waiting.take_if(|waiting| !waiting.holds(gauge.t_ms));
        }
        if self.open.phase == Phase::Training {
            self.training = gauge.training;
        }
    }

    /// Whether a record is of another run, as far as it and the picture name one.
    pub(crate) fn is_of_another_run(&self, record: &Record) -> bool {
        self.run.id.as_ref().zip(record.run.as_ref()).is_some_and(|(id, other)| id != other)
    }

    /// A record of another writer in the same file or set of files, such as another peer of a
    /// simulation. Only what can be compared or measured from outside is taken.
    fn take_of_another(&mut self, record: &Record) {
        let epoch = record.epoch.unwrap_or_default();
        match &record.event {
            _ if self.is_of_another_run(record) => {}
            Event::Evaluated { .. } => {
                self.now_ms = self.now_ms.max(record.t_ms);
                self.change(record);
            }
            Event::Committed(commit) => {
                self.peer(&record.peer).loss = commit.loss;
                self.agreement.note_other(epoch, commit);
            }
            _ => {}
        }
    }

    /// What the node itself does. An event that is not here may still be one that `meet` or `count`
    /// takes.
    fn change(&mut self, record: &Record) {
        let (t_ms, epoch) = (record.t_ms, record.epoch);
        match &record.event {
            Event::Started { version, device, micro_batch, parameters, tokens } => {
                self.node.version = Some(version.clone());
                self.node.device = Some(device.clone());
                self.node.micro_batch = Some(*micro_batch);
                self.run.parameters = Some(*parameters);
                self.node.watches = false;
                self.start(t_ms);
                self.resume(epoch.unwrap_or(self.head.epoch), *tokens, t_ms);
            }
            Event::Watching { version } => {
                (self.node.watches, self.node.version) = (true, Some(version.clone()));
                self.start(t_ms);
            }
            Event::Waiting { reason, text, cure } => {
                let (reason, text, cure) = (reason.clone(), text.clone(), cure.clone());
                self.waiting = Some(Waiting { reason, text, cure, t_ms });
            }
            Event::Manifest(settings) => self.run.learn(settings),
            &Event::Sync { from_epoch, to_epoch, have_bytes, want_bytes, rate } => {
                self.phase(Phase::Fetching, t_ms);
                let (from_epoch, to_epoch) = (Some(from_epoch), Some(to_epoch));
                self.fetch = Some(Fetch { from_epoch, to_epoch, have_bytes, want_bytes, rate });
            }
            &Event::Data { have_bytes, want_bytes, rate } => {
                let fetch =
                    Fetch { from_epoch: None, to_epoch: None, have_bytes, want_bytes, rate };
                self.fetch = (have_bytes < want_bytes).then_some(fetch);
            }
            Event::CaughtUp { tokens } => {
                // Earlier epochs were not taken when they were decided.
                self.pace = Pace::default();
                self.resume(epoch.unwrap_or_default(), *tokens, t_ms);
            }
            Event::Ready { .. } => {
                self.open.epoch = epoch.unwrap_or(self.open.epoch);
                self.open.marks.ready_ms = Some(t_ms);
                self.training = None;
                self.phase(Phase::Ready, t_ms);
            }
            Event::Roster { attempt, members, weights } => {
                self.roster(record, *attempt, &members.0, &weights.0);
            }
            Event::Regroup { members, .. } => {
                self.go_on(members.0.len(), t_ms);
                self.counts.regroups += 1;
            }
            Event::Committed(commit) => self.commit(epoch.unwrap_or_default(), t_ms, commit),
            &Event::Evaluated { loss, floor, excess, error, unigram, bigram } => {
                let epoch = epoch.unwrap_or_default();
                let held_out = HeldOut { epoch, loss, floor, excess, error, unigram, bigram };
                self.held_out = Some(held_out);
            }
            Event::Leaving {} | Event::Stopped { .. } => self.phase(Phase::Stopped, t_ms),
            _ => self.meet(record),
        }
    }

    /// Notes who is here, and the way to them.
    fn meet(&mut self, record: &Record) {
        match &record.event {
            Event::Listening { addresses } => self.node.listens(addresses),
            Event::Reachability { state, addresses } => {
                self.node.reach(state, addresses, &record.peer);
            }
            Event::Member(member) => {
                if self.node.peer.as_ref() != Some(&member.who) {
                    self.peer(&member.who).say(member);
                }
            }
            Event::Ring(ring) => self.own_ring = Some(Ring::clone(ring)),
            Event::Path { step, error, .. } => self.node.path = Some((step.clone(), error.clone())),
            Event::PeerFound { who, direct } => {
                self.peer(who).come(*direct);
                self.waiting.take_if(|waiting| waiting.ends_with_a_peer());
            }
            Event::PeerLost { who, cause } => {
                self.peer(who).lose(cause.clone());
            }
            _ => self.count(&record.event, record.t_ms),
        }
    }

    /// A process begins to write. What lies between two starts is no pace, and whoever was here has
    /// to come again.
    fn start(&mut self, t_ms: u64) {
        self.source.ended = false;
        (self.pace, self.held_fork) = (Pace::default(), None);
        self.waiting.take_if(|waiting| !waiting.holds(t_ms));
        peers::lose_all(&mut self.peers);
    }

    /// A roster is accepted: its ring is next.
    fn roster(&mut self, record: &Record, attempt: u64, members: &[Text], weights: &[u64]) {
        self.open.epoch = record.epoch.unwrap_or(self.open.epoch);
        let first = self.open.marks.roster_ms.map_or(record.t_ms, |(first, _)| first);
        self.open.marks.roster_ms = Some((first, record.t_ms));
        self.open.attempt = attempt;
        // Voters that are gone, or have no work, are members of it too.
        let adopts = weights.iter().all(|weight| *weight == 0);
        let seated = |(at, _): &(usize, &Text)| adopts || weights.get(*at) != Some(&0);
        let ring = members.iter().enumerate().filter(seated).map(|(_, member)| member.clone());
        self.open.roster = ring.collect();
        self.go_on(1, record.t_ms);
        self.phase(Phase::Ring, record.t_ms);
    }

    /// Counts what went wrong. Other events leave nothing in the picture but their notice.
    fn count(&mut self, event: &Event, t_ms: u64) {
        let counts = &mut self.counts;
        match event {
            Event::Aborted { phase, .. } => {
                if counts.aborted.len() < PHASES_MAX || counts.aborted.contains_key(phase) {
                    *counts.aborted.entry(phase.clone()).or_default() += 1;
                }
                if self.open.phase == Phase::Ring {
                    self.phase(Phase::Ready, t_ms);
                }
            }
            Event::Fork { first_epoch, undone, held } => {
                // One that lasts is reported again each minute.
                counts.forks += u64::from(self.forks.insert(*first_epoch));
                if self.forks.len() > FORKS_MAX {
                    self.forks.pop_first();
                }
                counts.undone_epochs = counts.undone_epochs.saturating_add(*undone);
                if *held || *undone > 0 {
                    self.held_fork = held.then_some(*first_epoch);
                }
            }
            Event::LeftOut { .. } => counts.left_out += 1,
            Event::Diverged { mine, .. } => self.agreement.note_diverged(mine.as_ref()),
            Event::ForkExcluded { .. } => {
                (self.head.forkable_since, self.held_fork) = (None, None);
            }
            // The organiser has decided in place of this node's owner.
            Event::Attested { .. } => self.held_fork = None,
            Event::Fault { .. } => counts.faults += 1,
            Event::Disk { .. } => counts.disk += 1,
            Event::Refused { .. } => counts.refused += 1,
            _ => {}
        }
    }

    /// An epoch is decided and applied: the head, the counts and the pace take it, and the next
    /// epoch opens.
    fn commit(&mut self, epoch: u64, t_ms: u64, commit: &Commit) {
        let marks = if self.open.epoch == epoch { self.open.marks } else { Marks::default() };
        let times = Times::of(&marks, commit, t_ms);
        self.head = Head {
            epoch,
            tokens: commit.tokens,
            t_ms,
            state: Some(commit.state.clone()),
            loss: commit.loss,
            attempt: commit.attempt,
            sent_bytes: commit.sent_bytes,
            received_bytes: commit.received_bytes,
            forkable_since: commit.forkable_since,
            times,
        };
        let weights = commit.weights.0.iter().copied().chain(std::iter::repeat(0));
        // A voter without a position is a member of weight 0: it was in no ring.
        let seats = commit.members.0.iter().zip(weights).filter(|(_, tokens)| *tokens > 0);
        self.ring = seats.map(|(peer, tokens)| Seat { peer: peer.clone(), tokens }).collect();
        if epoch == 1 {
            // The file counts from the beginning again, as one does in which a watcher starts again.
            peers::count_again(&mut self.peers);
        }
        for seat in &self.ring {
            let peer = peers::row(&mut self.peers, &seat.peer);
            peer.epochs += 1;
            peer.tokens = peer.tokens.saturating_add(seat.tokens);
            peer.last_epoch = epoch;
        }
        let others = self.ring.iter().filter(|seat| Some(&seat.peer) != self.node.peer.as_ref());
        let together = others.count() > usize::from(self.node.watches);
        self.agreement.note_own(epoch, commit, together);
        self.counts.commits += 1;
        self.counts.sent_bytes = self.counts.sent_bytes.saturating_add(commit.sent_bytes);
        self.counts.received_bytes =
            self.counts.received_bytes.saturating_add(commit.received_bytes);
        self.pace.note(t_ms, commit.tokens);
        self.go_on(self.ring.len(), t_ms);
        self.begin(epoch.saturating_add(1), t_ms);
    }

    /// Goes on from a state that this file has not seen committed.
    fn resume(&mut self, epoch: u64, tokens: Option<u64>, t_ms: u64) {
        if epoch != self.head.epoch {
            self.head = Head { epoch, tokens: tokens.unwrap_or_default(), t_ms, ..Head::default() };
        }
        self.waiting.take_if(|waiting| !waiting.holds(t_ms));
        self.begin(epoch.saturating_add(1), t_ms);
    }

    /// What was waited for has come at `t_ms`. That the node trains on alone is said once a minute,
    /// and holds until so many peers together go on, or another one is found.
    fn go_on(&mut self, together: usize, t_ms: u64) {
        self.waiting
            .take_if(|waiting| !waiting.holds(t_ms) && (together > 1 || !waiting.goes_on_alone()));
    }

    /// Opens an epoch, and forgets what belonged to the one before.
    fn begin(&mut self, epoch: u64, t_ms: u64) {
        (self.fetch, self.training) = (None, None);
        self.open = Open { epoch, phase: Phase::Training, since_ms: t_ms, ..Open::default() };
        self.open.marks.began_ms = Some(t_ms);
    }

    /// The other peers that count as present, by their names.
    pub(crate) fn others(&self) -> impl Iterator<Item = (&Text, &Peer)> {
        let own = self.node.peer.as_ref();
        self.peers.iter().filter(move |(name, peer)| peer.here == Some(true) && Some(*name) != own)
    }

    /// The row of a peer, which may take the place of an older one.
    fn peer(&mut self, name: &Text) -> &mut Peer {
        peers::row(&mut self.peers, name)
    }

    /// Enters a phase; in the same phase the time of its beginning stays.
    fn phase(&mut self, phase: Phase, t_ms: u64) {
        if self.open.phase != phase {
            (self.open.phase, self.open.since_ms) = (phase, t_ms);
        }
    }
}

/// Drops the oldest entries beyond a bound.
pub(crate) fn shorten<T>(queue: &mut VecDeque<T>, most: usize) {
    while queue.len() > most {
        queue.pop_front();
    }
}

/// More than a page shows at a time; older ones are in the file.
const NOTICES_MAX: usize = 64;
/// Lineages by which a repeated report is known. Beyond it the lowest epoch may be counted again.
const FORKS_MAX: usize = 64;
/// More than there are phases, so that a hostile file cannot add labels to a metric.
const PHASES_MAX: usize = 16;

#[cfg(test)]
mod tests;
