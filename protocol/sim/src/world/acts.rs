//! What happens to processes from outside: starts, deaths, pauses, partitions.
//!
//! A fault never reaches into a machine. It ends a process, stops it, moves its clock, or changes
//! the network and the rings that cross it; what the machine does then is up to the machine.
//!
//! The start of a process is here too, since it is where a fault shows: the disk is read, the
//! checks compare the result with what the peer has said before, and the machine begins from it.

use super::{
    Anchor, Arc, BTreeMap, BTreeSet, CODEC, Duration, ELEMENTS, Fault, Input, Keypair, Message,
    PeerId, Process, Running, TOKENS, Toy, Voter, holdings, peer, wire,
};
use super::{Happening, LogId, Rule, Time, World, log_id};
use crate::disk::{Damage, Kept};
use crate::liars::Deed;
use crate::report::Count;
use crate::rings::{Loss, Sends};
use intellect_protocol::consensus::epoch::Credentials;
use intellect_protocol::consensus::{epoch, sync};
use intellect_protocol::history::evidence::Evidence;
use intellect_protocol::history::lineage::{Capacity, LocalPeer, Validator};
use intellect_protocol::history::log::Recovered;
use intellect_protocol::holdings::Restored;
use intellect_protocol::manifest::Trust;

/// How often round trips are measured, in milliseconds. Each process begins right after its start.
const MEASURE_MS: u64 = 5_000;

/// How late a liar answers a ping, in milliseconds: just before the ping counts as lost. The view
/// counts no round trip above 4 s, so this must cost no more (G10).
const LATE_MS: u32 = 19_000;

/// A peer replays at most this many updates: few, so that checkpoints are loaded too.
const REPLAY_MAX: usize = 5;

impl World {
    /// Starts a process on a host where none runs, from its disk: with the log that binds it (R20),
    /// or with another one if that is lost (R19), and at the head that can be restored (R21).
    ///
    /// The clock of the process begins at 0, its line is free, and it trains at once. The toy of
    /// each start draws other data.
    pub(crate) fn boot(&mut self, host: usize) {
        if self.hosts[host].process.is_some() {
            return;
        }
        self.script.lying.acting = host;
        let now_ms = self.now_ms;
        let place = &mut self.hosts[host];
        place.incarnation += 1;
        let (name, incarnation, damaged) = (place.name, place.incarnation, place.disk.damaged);
        let (restored, saved, log) = self.restore(host);
        let Restored { recovered, state: anchor, held, .. } = restored;
        let head = anchor.head();
        let mut judged = Process::new(Voter { peer: name, log }, incarnation, now_ms, head);
        judged.notices.extend(self.hosts[host].notices.clone());
        let updates = self.hosts[host].disk.updates();
        let verdict = self.check.restored(&judged, &recovered, &updates, damaged);
        self.judge(verdict);
        let config = holdings::Config {
            peer: self.config(host, log, recovered),
            codec: CODEC,
            newest: head,
            saved: saved.as_ref().map(|saved| saved.head()),
            published: None,
            file: None,
            data: Vec::new(),
            updates: updates.into_iter().map(|(name, _)| name).collect(),
            held: held.into_iter().collect(),
        };
        self.hosts[host].process = Some(Box::new(Running {
            holdings: holdings::State::new(Time::ZERO, config),
            judged,
            toy: Toy::new(anchor, &name, incarnation),
            bytes: BTreeMap::new(),
            rings: BTreeMap::new(),
            states: saved.into_iter().map(|saved| (saved.digest(), saved)).collect(),
            tick_ms: None,
            paused: None,
            training: None,
            orders: 0,
            loads: 0,
            fetches: 0,
            fetching: BTreeMap::new(),
            loading: None,
            joined: BTreeSet::new(),
            withholds: false,
            lies: false,
            sends: Sends::AsItShould,
            settled: None,
            drift_ms: 0,
        }));
        self.hosts[host].line_ms = now_ms;
        self.misbehave(host);
        if let Some(state) = self.hosts[host].disk.received_state() {
            self.feed_peer(host, peer::Input::Partial(state));
        }
        self.report_links(host);
        self.feed(host, Input::Start);
        self.train(host);
        self.push_soon(host, Happening::Measure);
    }

    /// What the disk of a host still proves, its newest checkpoint, and the log that binds its next
    /// process. A log that is lost is replaced by a fresh one with an id of its own (R19), unless
    /// that rule is switched off. If a log is lost, but neither damage nor another lineage explains
    /// that, R19 is broken.
    fn restore(&mut self, host: usize) -> (Restored<Arc<Anchor>>, Option<Arc<Anchor>>, LogId) {
        let reused = !self.setup.rules.keeps(Rule::R19);
        let place = &mut self.hosts[host];
        let (disk, first) = (&mut place.disk, place.incarnation == 1);
        let (restored, saved) = disk.restore(&self.run, &self.genesis);
        let lost = disk.lost_votes || restored.is_lost;
        // On another lineage it may have dropped what it had voted for on the one before.
        let blameless = restored.is_lost && !disk.damaged && !disk.has_rewound();
        if first || (lost && !reused) {
            disk.damage(Damage::Votes);
            disk.logs += 1;
        }
        if !first {
            self.report.count(if lost { Count::Blank } else { Count::Resumed }, 1);
        }
        (disk.lost_votes, disk.damaged) = (false, false);
        let log = log_id(self.setup.seed, host, disk.logs);
        if blameless {
            let what = format!("{} cannot read back what it voted for", self.name(host));
            self.break_with("R19", what);
        }
        (restored, saved, log)
    }

    /// The validation rules of a host's processes. A host that boasts believes any weight, so that
    /// its own passes its own checks.
    pub(super) fn law_of(&self, host: usize) -> Validator {
        let place = &self.hosts[host];
        let (level, organiser) = self.trust(host);
        Validator {
            run: self.run,
            key: Keypair::simulated(place.name),
            peers_min: self.setup.peers_min,
            quorum: self.setup.quorum,
            elements: ELEMENTS as u64,
            capacity: Capacity::Counted(if place.boast.is_some() { u64::MAX } else { TOKENS }),
            level,
            organiser,
            rules: self.setup.rules,
        }
    }

    /// What a process of a host shows in a run of invited peers. Its clock may be off; the ticket
    /// is read once, at the start.
    fn credentials(&self, host: usize) -> Credentials {
        let Some(invited) = &self.script.invited else { return Credentials::default() };
        let off = invited.off.get(&host).copied().unwrap_or_default();
        let unix = invited.unix.saturating_add(self.now_ms / 1_000).saturating_add_signed(off);
        Credentials { ticket: invited.tickets.get(&host).cloned(), unix }
    }

    /// What a process is started with, after what its disk has kept.
    fn config(&self, host: usize, log: LogId, recovered: Recovered) -> peer::Config {
        let (seed, place) = (self.setup.seed, &self.hosts[host]);
        let (undo_max, undo_time) = self.script.undo.unwrap_or((1 << 32, Duration::ZERO));
        let voter = |i: usize| Voter { peer: self.hosts[i].name, log: log_id(seed, i, 1) };
        let encoded = CODEC.encoded_bytes(ELEMENTS) as u64;
        peer::Config {
            validator: self.law_of(host),
            me: LocalPeer { peer: place.name, log, incarnation: place.incarnation },
            epoch: epoch::Config {
                ready_grace: Duration::from_secs(30),
                update_bytes: self.script.update_bytes.unwrap_or(encoded),
                credentials: self.credentials(host),
            },
            sync: sync::Config {
                genesis: self.genesis.digest(),
                founders: (0..self.setup.founders).map(voter).collect(),
                replay_max: REPLAY_MAX,
                undo_max,
                undo_time,
                unix: 1_800_000_000 + self.now_ms / 1_000,
                follow: self.script.follow.get(&host).copied(),
                // Notices are stored beside the manifest, and outlive a process.
                notices: place.notices.clone(),
            },
            heartbeat: Duration::from_millis(self.setup.heartbeat_ms),
            minority_grace: Duration::from_millis(self.setup.grace_ms),
            recovered,
        }
    }

    /// Lets every peer undo as much without a person's decision as a node does.
    pub(crate) fn undo_as_nodes(&mut self) {
        self.script.undo = Some((Trust::default().undo_max, sync::UNDO_TIME));
    }

    /// From now on nothing that two peers have committed together may be undone (S14). Nothing sets
    /// this back.
    pub(crate) fn keep_together(&mut self) {
        self.check.together = true;
    }

    /// Ends a process at once; any part of what is not flushed may survive.
    pub(crate) fn stop(&mut self, host: usize) {
        let Kept { votes, receipts, files } = self.hosts[host].disk.unflushed();
        let [votes, receipts, files] = [votes, receipts, files].map(|count| self.some_of(count));
        self.end(host, Kept { votes, receipts, files });
    }

    /// How many of the unflushed writes a power cut leaves, drawn at random.
    fn some_of(&mut self, count: usize) -> usize {
        let some = if count > 0 { self.rng.below(count as u64 + 1) } else { 0 };
        usize::try_from(some).unwrap_or(count)
    }

    /// A process is gone, and its connections close. Other hosts learn of it only where a link
    /// carries both ways, each after the way of one message; the rings that it was in break.
    pub(super) fn vanish(&mut self, host: usize) {
        self.lose(host, Loss::Closed);
        let name = self.hosts[host].name;
        for other in self.running() {
            if self.network.linked(host, other) {
                let delay_ms = self.network.delay_ms(host, other, &mut self.rng);
                self.push_peer(delay_ms, other, peer::Input::Unlinked(name));
            }
        }
    }

    /// Lets a message of any author arrive at a process at once. The checks count it as a lie: they
    /// judge what others do with it.
    pub(crate) fn bring(&mut self, host: usize, author: PeerId, message: Message) {
        self.check.lied(author, &message);
        let sealed = wire::seal(&Keypair::simulated(author), &self.run, message);
        self.push_peer(0, host, peer::Input::Message(Arc::new(sealed)));
    }

    /// Records a blame. Blaming an honest host breaks an invariant;
    /// strangers and liars may be at fault.
    pub(super) fn blame(&mut self, host: usize, who: PeerId, fault: Fault) {
        if self.is_liar(host) {
            return;
        }
        if self.host(&who).is_some_and(|whom| !self.is_liar(whom)) {
            let whom = self.hosts[host].name;
            self.break_with("fault", format!("{whom} says of {who}: {fault}"));
        } else {
            self.report.count(Count::Exposed, u64::from(self.script.lying.drawn));
            self.blamed.push((who, fault));
        }
    }

    /// Records a blame that a host can prove: its messages must prove just that to everybody.
    pub(super) fn convict(&mut self, host: usize, fault: Fault, proof: &Evidence) {
        if self.is_liar(host) {
            return;
        }
        if proof.fault(&self.run) != Some(fault) {
            self.break_with("fault", format!("this does not prove {fault}: {proof:?}"));
        }
        self.report.count(Count::Proven, 1);
        self.blame(host, proof.author(), fault);
    }

    /// Lets a host answer every request for bytes with other bytes, until its process ends. It
    /// counts as no liar otherwise, so its messages are judged.
    pub fn lie(&mut self, host: usize) {
        if let Some(process) = &mut self.hosts[host].process {
            process.lies = true;
        }
    }

    /// Asks a process to leave, as Ctrl-C does. It ends once its machine has said goodbye (R29).
    pub fn leave(&mut self, host: usize) {
        self.push_peer(0, host, peer::Input::Leave);
    }

    /// Stops a process without ending it: its connections stay open, and it answers nothing. Its
    /// rings break as if their frames had stopped. A second pause changes nothing.
    pub fn pause(&mut self, host: usize) {
        let now_ms = self.now_ms;
        let Some(process) = &mut self.hosts[host].process else { return };
        process.paused.get_or_insert_with(|| (now_ms, Vec::new()));
        self.lose(host, Loss::Stalled);
    }

    /// Lets a stopped process go on: everything that has come meanwhile reaches it at once. The
    /// order in which that came is kept. As in a node, its clock has stood still, but for a turn.
    pub fn resume(&mut self, host: usize) {
        let (now_ms, turn_ms) = (self.now_ms, self.setup.heartbeat_ms);
        let Some(process) = &mut self.hosts[host].process else { return };
        let Some((since_ms, backlog)) = process.paused.take() else { return };
        let slept_ms = (now_ms - since_ms).saturating_sub(turn_ms);
        process.drift_ms -= slept_ms.cast_signed();
        process.tick_ms = None;
        self.hosts[host].busy_ms = now_ms;
        self.push_peer(0, host, peer::Input::Woke(Duration::from_millis(slept_ms)));
        for happening in backlog {
            self.push(0, host, happening);
        }
    }

    /// Lets the clock of a process leap ahead by `length_ms`, and by so much more that
    /// this differs from mere slowness.
    pub(crate) fn leap(&mut self, host: usize, length_ms: u64) {
        let least_ms = 5 * self.setup.heartbeat_ms;
        let Some(process) = &mut self.hosts[host].process else { return };
        process.drift_ms += (least_ms + length_ms).cast_signed();
        self.push_peer(0, host, peer::Input::Tick);
    }

    /// Puts hosts on another side of a partition. Rings with neighbours on two sides break, as if
    /// their frames had stopped.
    pub fn cut(&mut self, hosts: &[usize], side: u32) {
        hosts.iter().for_each(|host| self.network.side[*host] = side);
        self.part(Loss::Stalled);
    }

    /// Breaks the link from one host to another, in this direction; streams over it close.
    pub fn break_link(&mut self, from: usize, to: usize) {
        self.network.broken.insert((from, to));
        self.part(Loss::Closed);
    }

    /// Swallows what is sent from one host to another; their streams stay open.
    pub(crate) fn swallow(&mut self, from: usize, to: usize) {
        self.network.swallows.insert((from, to));
        self.part(Loss::Stalled);
    }

    /// Reports a process its round trips to all others, and does so again after a while. Hosts that
    /// no link joins both ways answer no ping, and their last sample stands.
    pub(super) fn measure(&mut self, host: usize) {
        for other in 0..self.hosts.len() {
            let lives = self.hosts[other].process.is_some() || self.is_liar(other);
            if lives && other != host && self.network.linked(host, other) {
                let late = self.does(other, Deed::PingsLate);
                let usual_ms = self.network.round_trip_ms(host, other);
                let sample_ms = if late { LATE_MS } else { usual_ms };
                let sample = peer::Input::RoundTrip(self.hosts[other].name, sample_ms);
                self.feed_peer(host, sample);
            }
        }
        self.push(MEASURE_MS, host, Happening::Measure);
    }

    /// Breaks the rings that cross a link which the network has lost.
    pub(super) fn part(&mut self, loss: Loss) {
        let network = &self.network;
        self.rings.now_ms = self.now_ms;
        let due = self.rings.part(loss, |a, b| network.joins(a, b));
        self.notify(due);
    }

    /// Breaks the rings of a host that has stopped or stalled.
    fn lose(&mut self, host: usize, loss: Loss) {
        self.rings.now_ms = self.now_ms;
        let due = self.rings.lose(host, loss, None);
        self.notify(due);
    }
}
