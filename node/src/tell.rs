//! What people and programs learn of a node: sentences on standard output, events in the file.
//!
//! Each thing that happens is reported twice: as a sentence for people, which may change with any
//! version, and as an event for programs, whose keys never change. Nothing here decides anything,
//! and nothing waits for a slow reader.
//!
//! The files of this folder have one subject each; this one has the life of an epoch.
//!
//! The driver calls a method of [`Console`] for what it did itself, and [`Console::event`] for what
//! a machine of the protocol reports. A sentence goes to the printer of the process ([`screen`]).
//! An event goes to the [`Sink`]: as a line into the file, and parsed back from that line into the
//! picture that pages and screens show. So a view of a running node and a replay of its file show
//! the same.

mod arrivals;
mod asleep;
pub(crate) mod connections;
mod disk;
pub(crate) mod ending;
mod epochs;
pub(crate) mod events;
pub(crate) mod fault;
mod forks;
mod later;
mod membership;
mod meter;
mod reason;
mod sample;
pub(crate) mod screen;
mod times;
mod waiting;
mod work;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use intellect_protocol::base::id::{Digest, PeerId};
use intellect_protocol::machine::event::{Committed, Event};
use intellect_protocol::manifest::Run;
use intellect_protocol::message::{Absence, Head};
use intellect_protocol::peer;
use intellect_view::lines;
use intellect_view::picture::{Source, gauge::Gauge};
use intellect_view::stage::{Seen, Stage};

use crate::config::Voice;
use crate::figures::{self, number_of};
use crate::name::PeerName;
use crate::store::{self, Start};
use crate::worker::Snapshot;
use arrivals::Here;
use epochs::{behind, our_part, regrouped};
use events::Sink;
use forks::Forks;
use later::Later;
use times::{Marks, Timing};
use waiting::Waiting;
use work::{Contributed, Trained};

pub(crate) use epochs::contributors;
pub(crate) use meter::{Meter, Progress};
pub(crate) use reason::Reason;
pub(crate) use times::Seat;

/// What a node trains with. Another device or micro batch computes the same steps with other bits.
#[derive(Clone, Debug, Default)]
pub(crate) struct Means {
    /// The device in the form of `--device`.
    pub(crate) device: String,
    /// Sequences that the model takes at a time.
    pub(crate) micro_batch: u64,
}

/// Prints sentences, writes events, and counts what both need.
///
/// A clone shares the file, the picture and the connections, but has counts of its own: a transfer
/// in another task reports by a clone, while the counts of an epoch stay with the driver. No method
/// waits for the terminal, or for a reader of the events.
#[derive(Clone)]
pub(crate) struct Console {
    /// The events file and the picture, shared by all clones.
    sink: Arc<Mutex<Sink>>,
    /// Whether sentences are printed. Events are written in any case.
    voice: Voice,
    /// The data folder as it was typed, for the commands that sentences name.
    data_dir: PathBuf,
    /// The run's folder, which is cut from the paths in sentences.
    folder: String,
    /// What this start trains with, which each `ready` names.
    means: Means,
    /// The epoch of this node's head; the one that is trained comes after it.
    epoch: u64,
    /// Where the time of the open epoch goes.
    timing: Timing,
    /// When the work of the open epoch was frozen.
    ready_at: Option<Instant>,
    /// The mean training loss of that work, in nats per token; `None` once an epoch is committed.
    loss: Option<f64>,
    /// The tokens of the work that was frozen last, which an epoch without it carries on.
    tokens: u64,
    /// Bulk bytes that were sent since the last commit, also in rings that failed.
    sent_bytes: u64,
    /// The same for the bytes that were received.
    received_bytes: u64,
    /// Whether the last update contains work of this node.
    spent: bool,
    /// The steps since the last sentence about them.
    trained: Trained,
    /// What this start has brought into the run.
    contributed: Contributed,
    /// For what the node waits, and since when.
    waiting: Waiting,
    /// Which peers were reported to be here.
    here: Here,
    /// Which forks were reported, and when.
    forks: Forks,
    /// What is reported later than it happens.
    later: Later,
}

impl Console {
    /// A console before a run is chosen. Times are counted from this call on.
    pub(crate) fn new(sink: Sink, voice: Voice, data_dir: PathBuf) -> Self {
        Self {
            sink: Arc::new(Mutex::new(sink)),
            voice,
            data_dir,
            folder: String::new(),
            means: Means::default(),
            epoch: 0,
            timing: Timing::new(Instant::now()),
            ready_at: None,
            loss: None,
            tokens: 0,
            sent_bytes: 0,
            received_bytes: 0,
            spent: false,
            trained: Trained::new(0),
            contributed: Contributed::default(),
            waiting: Waiting::default(),
            here: Here::new(Instant::now()),
            forks: Forks::default(),
            later: Later::default(),
        }
    }

    /// The same, with a picture of all that is reported, for those who look at the node.
    pub(crate) fn shown(sink: Sink, voice: Voice, data_dir: PathBuf) -> (Self, Seen) {
        let (stage, seen) = Stage::new(Source { live: true, ..Source::default() });
        (Self::new(sink.staged(stage), voice, data_dir), seen)
    }

    /// From now on events name this run, and sentences leave its folder out of paths: they become
    /// short, and a log that a user shows to others does not say where the data are.
    pub(crate) fn set_run(&mut self, run: intellect_protocol::base::id::RunId) {
        self.folder = format!("{}/", store::run_folder(&self.data_dir, run).display());
        self.sink().set_run(run.into());
    }

    /// Shows again what an earlier start has written of this run to the file at `path`.
    pub(crate) fn recall(&self, path: &Path) {
        self.sink().recall(path);
    }

    /// The events file and the picture. A panic of another user leaves them usable: at worst a line is missing.
    fn sink(&self) -> MutexGuard<'_, Sink> {
        self.sink.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Prints a sentence, unless the node is to be quiet. It never waits for the terminal.
    pub(crate) fn say(&self, sentence: &str) {
        if self.voice != Voice::Quiet {
            screen::say(sentence);
        }
    }

    /// Prints a sentence that the next one replaces, on a terminal. It has to fit in one row there.
    /// Where nothing can be replaced, as in a log, [`Self::say`] is the right one.
    pub(crate) fn say_over(&self, sentence: &str) {
        if self.voice != Voice::Quiet {
            screen::say_over(sentence);
        }
    }

    /// Reports the state that this start resumes from, and what it trains with. A run that begins
    /// names no epoch, as there is no state before its first one.
    pub(crate) fn started(&mut self, newest: &Snapshot, means: Means, start: Start) {
        let header = newest.table.header();
        self.epoch = header.epoch;
        self.timing.marks = Marks::new(Instant::now());
        self.means = means.clone();
        if header.epoch > 0 {
            let (epoch, state) = (header.epoch, newest.table.state());
            self.say(&format!("resuming at epoch {epoch} with state {state} from the disk"));
        }
        let event = events::Event::Started {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            device: means.device,
            micro_batch: means.micro_batch,
            parameters: header.parameters,
            incarnation: start.incarnation,
            log: start.log.hex(),
            tokens: header.tokens,
        };
        self.emit((header.epoch > 0).then_some(header.epoch), event);
    }

    /// Lets readers see what was reported, and draws the lines where they can be drawn. Readers get
    /// a copy of the picture, so that this is called a few times a second and not for each event.
    pub(crate) fn publish(&self, seen: &Seen) {
        if let Some(stage) = self.sink().stage() {
            stage.publish();
        }
        if self.voice != Voice::Quiet && screen::can_draw() {
            let columns = screen::columns().saturating_sub(1);
            let lines = lines::lines(&seen.picture.borrow(), columns);
            screen::live(lines.into());
        }
    }

    /// Takes the lines away, for the end.
    pub(crate) fn take_lines_away(&self) {
        screen::live(Vec::new());
    }

    /// One line in the events file, folded into the picture as well. A failure is a warning for the
    /// user, and never one of the caller: a run does not end because nobody can record it.
    pub(crate) fn emit(&self, epoch: Option<u64>, event: events::Event) {
        if let Err(error) = self.sink().emit(epoch, event) {
            // Only the first failure is an error; every later event is tried again.
            screen::warn(format!("warning: events are not written: {error}\n").as_bytes());
        }
    }

    /// Reports that a peer speaks another version than `ours`; the caller does so once for each peer.
    pub(crate) fn incompatible(&self, peer: PeerId, version: String, ours: &str) {
        let who = PeerName::from(peer);
        let remedy = "update the older of the two programs".to_owned();
        let speaks = format!("peer {} speaks protocol version {version}", who.short());
        self.say(&format!("{speaks}, this program {ours}: {remedy}"));
        self.emit(None, events::Event::Incompatible { who, version, remedy });
    }

    /// A peer asked for admission and is refused, for a reason that it learns too.
    pub(crate) fn refused(&self, peer: PeerId, why: &str) {
        let who = PeerName::from(peer);
        self.say(&format!("peer {} is not admitted: {why}", who.short()));
        self.emit(None, events::Event::Refused { who, why: why.to_owned() });
    }

    /// Two programs run with the key of `peer`, which may be this node's own. Both would sign in
    /// its name, so that one has to end.
    pub(crate) fn twin(&self, peer: PeerId) {
        let who = PeerName::from(peer);
        let peer = who.short();
        self.say(&format!("peer {peer}: two programs run with its key; the one that was started first is notified and ends"));
        self.emit(None, events::Event::DuplicateIdentity { who });
    }

    /// Reports what a peer did wrong. The network drops it, if it does so, on its own account.
    pub(crate) fn fault(&self, peer: PeerId, why: &str) {
        self.proven(peer, why, None);
    }

    /// The same, with what proves it to everybody, in hex.
    pub(crate) fn proven(&self, peer: PeerId, why: &str, proof: Option<Vec<String>>) {
        let who = PeerName::from(peer);
        self.say(&format!("peer {} misbehaves: {why}", who.short()));
        self.emit(None, events::Event::Fault { who, why: why.to_owned(), proof });
    }

    /// Counts an inner step of `tokens` tokens, whose mean loss is `loss` nats per token. A long
    /// epoch gets a sentence about its steps every few seconds.
    pub(crate) fn step(&mut self, loss: f64, tokens: u64) {
        self.timing.sampler.step(Instant::now(), self.epoch + 1, loss, tokens);
        if let Some(sentence) = self.trained.step(self.epoch + 1, loss, tokens) {
            self.say(&sentence);
        }
    }

    /// Whether a sample for the picture is due, which the caller then takes.
    pub(crate) fn is_sample_due(&mut self, now: Instant) -> bool {
        self.timing.sampler.is_due(now)
    }

    /// Gives the picture what no event says; `silence` is the time since the last heartbeat of another peer.
    pub(crate) fn sample(&self, now: Instant, run: &Run, silence: Option<Duration>) {
        let (epoch, grace) = (self.epoch + 1, run.members.minority_grace);
        let gauge = self.timing.sampler.gauge(now, epoch, run.epoch, grace, silence);
        let gauge = Gauge { waits: self.waiting.waits(), ..gauge };
        if let Some(stage) = self.sink().stage() {
            stage.measure(gauge);
        }
    }

    /// Reports frozen work. Its tokens count as contributed once an update contains them. `loss` is
    /// the mean over these tokens, and `norm` the L2 norm of the delta. The time to the commit is
    /// counted from here.
    pub(crate) fn ready(&mut self, epoch: u64, tokens: u64, loss: f64, norm: f32) {
        let now = Instant::now();
        self.timing.marks.ready(now);
        self.ready_at = Some(now);
        self.loss = Some(loss);
        self.tokens = tokens;
        let Means { device, micro_batch } = self.means.clone();
        let (loss, norm) = (Some(loss), Some(f64::from(norm)));
        let event = events::Event::Ready { tokens, loss, norm, device, micro_batch };
        self.emit(Some(epoch), event);
    }

    /// Training gave a loss or a delta that is no number. Nothing of it leaves this node. To
    /// programs it is an attempt that ended, with number 0, as it is none of the attempts of the
    /// protocol.
    pub(crate) fn training_diverged(&mut self, epoch: u64, why: &str) {
        self.timing.sampler.forget_steps();
        self.say(&format!(
            "epoch {epoch}: training gave no finite number ({why}); it is repeated with other data"
        ));
        let reason = why.to_owned();
        let phase = "train".to_owned();
        self.emit(Some(epoch), events::Event::Aborted { attempt: 0, phase, reason });
    }

    /// A ring of this node begins. Only the ring that was opened last is reported when it has its
    /// update.
    pub(crate) fn ring_opened(&mut self, seat: Seat) {
        self.timing.seat = Some(seat);
    }

    /// A ring has computed its update, in the time that it `took` from its first byte. Its bytes
    /// count in any case; if another ring was opened since, there is no event.
    pub(crate) fn ring(&mut self, roster: Digest, sent: u64, received: u64, took: Duration) {
        self.carried(sent, received);
        self.timing.marks.held(Instant::now());
        let Some(seat) = self.timing.seat.clone().filter(|seat| seat.roster == roster) else {
            return;
        };
        let event = events::Event::Ring {
            roster: roster.into(),
            position: seat.position as u64 + 1,
            of: seat.of as u64,
            to: seat.to.into(),
            took_ms: times::ms(took),
            sent_bytes: sent,
            received_bytes: received,
        };
        self.emit(Some(self.epoch + 1), event);
    }

    /// Counts bytes of a ring, which may have failed, for the epoch that is committed next.
    pub(crate) fn carried(&mut self, sent: u64, received: u64) {
        self.sent_bytes += sent;
        self.received_bytes += received;
    }

    /// The epoch is decided, and its update is being applied. `spent` says whether it contains work
    /// of this node.
    pub(crate) fn applied(&mut self, spent: bool) {
        self.timing.marks.decided(Instant::now());
        self.spent = spent;
    }

    /// Reports what the node waits for, if it waits. The driver calls it often; [`waiting`] decides
    /// when it is time for a sentence or an event.
    pub(crate) fn waiting(&mut self, reason: Option<Reason>) {
        let due = self.waiting.note(Instant::now(), reason.as_ref());
        let Some(reason) = reason else { return };
        if due.sentence {
            self.say(&format!("{reason}; {}", reason.cure()));
        }
        if due.event {
            let (name, text) = (reason.kind().0.to_owned(), reason.to_string());
            let cure = reason.cure().to_owned();
            self.emit(None, events::Event::Waiting { reason: name, text, cure });
        }
    }

    /// Reports when the run is expected to begin, and with how many peers.
    pub(crate) fn beginning(&mut self, wait: Duration, peers: usize) {
        if let Some(sentence) = self.later.beginning.note(wait, peers) {
            self.say(&sentence);
        }
    }

    /// An error and its cause on one line, with the run's files named without their folder.
    fn explain(&self, error: &dyn std::error::Error) -> String {
        self.without_folder(figures::explain(error, ": "))
    }

    /// The text without the folder of the run, wherever it occurs in it.
    fn without_folder(&self, text: String) -> String {
        if self.folder.is_empty() { text } else { text.replace(&self.folder, "") }
    }

    /// The last event of a process that ends by itself, with its exit code.
    pub(crate) fn stopped(&self, code: u8) {
        self.emit(None, events::Event::Stopped { code });
    }

    /// Reports a commit: what the epoch was for this node, where its time went, and what its
    /// receipt says. The counts of the epoch begin anew, and so do its marks. Where lines beneath
    /// show the epochs, few commits are a sentence.
    fn committed(&mut self, committed: &Committed) {
        self.waiting.commit();
        let head = committed.head;
        let ranked = committed.receipt.members.iter().filter(|m| m.weight > 0);
        let sync = self.ready_at.take().map(|at| at.elapsed());
        self.epoch = head.epoch;
        let times = self.timing.marks.end(Instant::now());
        if self.spent {
            self.contributed.epochs += 1;
            self.contributed.tokens += self.tokens;
        }
        let trained = self.loss.take();
        let loss = if self.spent { trained } else { None };
        let left_out = std::mem::take(&mut self.later.left_out);
        let shown = our_part(loss, left_out || self.timing.sampler.trains(head.epoch));
        let waited =
            sync.map_or(String::new(), |sync| format!(" sync {:.1} s,", sync.as_secs_f64()));
        let (epoch, ring, state) = (head.epoch, ranked.count(), head.state);
        if !screen::can_draw() || self.later.commits.is_due(Instant::now(), ring, loss.is_some()) {
            self.say(&format!("epoch {epoch}: ring of {ring}, {shown},{waited} state {state}"));
        }
        let members = contributors(&committed.receipt);
        let event = events::Event::Committed {
            attempt: committed.attempt,
            members: members.iter().map(|(peer, _)| (*peer).into()).collect(),
            weights: members.iter().map(|(_, weight)| *weight).collect(),
            state: head.state.into(),
            update: committed.receipt.update.into(),
            tokens: head.tokens,
            loss,
            sync_ms: times::ms(sync.unwrap_or_default()),
            sent_bytes: self.sent_bytes,
            received_bytes: self.received_bytes,
            forkable_since: committed.forkable_since,
            times,
        };
        self.emit(Some(head.epoch), event);
        (self.sent_bytes, self.received_bytes) = (0, 0);
    }

    /// Reports a Regroup that this node has joined, and why voters are left out of it.
    fn regroup(
        &self,
        epoch: u64,
        number: u64,
        proposer: PeerId,
        members: Vec<PeerId>,
        absent: Vec<(PeerId, Absence)>,
    ) {
        let (absent, reasons): (Vec<_>, Vec<_>) = absent.into_iter().unzip();
        self.say(&regrouped(epoch, members.len(), &reasons));
        let (members, absent, proposer) = (names(members), names(absent), proposer.into());
        let event = events::Event::Regroup { number, proposer, members, absent };
        self.emit(Some(epoch), event);
    }

    /// Reports that the head is up to date again. The epochs between have no lines of their own.
    fn caught_up(&mut self, head: Head) {
        self.epoch = head.epoch;
        self.timing.marks = Marks::new(Instant::now());
        // The work that was ready belonged to an epoch that is over.
        self.ready_at = None;
        self.say(&format!("caught up: epoch {}, state {}", head.epoch, head.state));
        let event = events::Event::CaughtUp { state: head.state.into(), tokens: head.tokens };
        self.emit(Some(head.epoch), event);
    }

    /// Reports an event of the protocol. `peer` says what is known of the peers that it names.
    ///
    /// Each variant is named, so that a new one does not compile until somebody has decided what
    /// people and programs learn of it. Some have no sentence, as people need not act on them.
    pub(crate) fn event(&mut self, event: Event, peer: &peer::State) {
        match event {
            Event::Committed(committed) => {
                self.committed(&committed);
                self.greet(&committed.receipt, peer.table());
            }
            Event::CaughtUp { head } => self.caught_up(head),
            Event::PeerFound { who } => self.peer_came(who, peer),
            Event::PeerLost { who, cause } => self.peer_went(who, cause),
            Event::Replayed { head, to_epoch } => {
                self.epoch = head.epoch;
                self.say(&format!("replayed epoch {} of {to_epoch}", head.epoch));
            }
            Event::LeftOut { epoch } => {
                self.later.left_out = true;
                let carried_tokens = self.tokens;
                self.emit(Some(epoch), events::Event::LeftOut { carried_tokens });
            }
            Event::Behind { from_epoch, to_epoch, donors } => {
                self.say(&behind(from_epoch, to_epoch, donors.len()));
            }
            Event::Roster { epoch, attempt, members, weights, adopt, kept } => {
                self.timing.marks.roster(Instant::now());
                let (members, adopt) = (names(members), adopt.map(Into::into));
                let kept_chunks = kept as u64;
                let event = events::Event::Roster { attempt, members, adopt, kept_chunks, weights };
                self.emit(Some(epoch), event);
            }
            Event::Regroup { epoch, number, proposer, members, absent } => {
                self.regroup(epoch, number, proposer, members, absent);
            }
            Event::Aborted { epoch, attempt, phase, reason } => {
                let (phase, reason) = (phase.to_string(), reason.to_string());
                self.emit(Some(epoch), events::Event::Aborted { attempt, phase, reason });
            }
            Event::Diverged { who, mine, theirs } => {
                let who = PeerName::from(who);
                self.say(&format!("peer {} has a different state of the same epoch", who.short()));
                let (mine, theirs) = (mine.into(), theirs.into());
                self.emit(None, events::Event::Diverged { who, mine, theirs });
            }
            Event::Fork { first_epoch, mine, theirs, undone, held } => {
                self.fork(forks::Fork { first_epoch, mine, theirs, undone, held });
            }
            Event::ForkExcluded { first_epoch } => self.fork_excluded(first_epoch),
            Event::Admitted { who, invite, epoch } => {
                self.admitted(who, invite, epoch, peer.ledger().map(AsRef::as_ref));
            }
            Event::Revoked { who, notice, epoch } => self.revoked(who, notice, epoch),
            Event::Refused { who, why } => self.refused(who, &why.to_string()),
            Event::Notice { notice, in_force } => {
                self.notice(&notice, in_force, peer.ledger().map(AsRef::as_ref));
            }
            Event::Stuck { epoch, attempts } => {
                let number = number_of(attempts, "attempt");
                self.say(&format!("epoch {epoch}: {number} without a decision"));
                self.emit(Some(epoch), events::Event::Stuck { attempts });
            }
            Event::Leaving => self.emit(None, events::Event::Leaving),
        }
        self.awake(peer);
    }
}

/// The peers as events name them, in the same order.
fn names(peers: Vec<PeerId>) -> Vec<PeerName> {
    peers.into_iter().map(Into::into).collect()
}

#[cfg(test)]
mod tests {
    use intellect_protocol::message::{Receipt, Series};

    use super::*;

    /// A ring may fail before the work of the next epoch is frozen, and go on once it has its update.
    #[test]
    fn an_epoch_counts_the_bytes_of_all_rings_since_the_one_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.jsonl");
        let sink = Sink::open(Some(&path), PeerId([1; 32]).into()).unwrap();
        let mut console = Console::new(sink, Voice::Quiet, PathBuf::new());
        let head = Head { epoch: 1, tokens: 9, state: Digest::ZERO };
        let (series, members, parts) = (Series::after(&head), Vec::new(), Vec::new());
        let receipt = Receipt { series, trust: None, update: Digest::ZERO, members, parts };
        let (attempt, regrouped, forkable_since, by_commit) = (2, false, None, false);
        let committed = Committed { head, attempt, receipt, regrouped, forkable_since, by_commit };
        console.carried(1_000, 100);
        console.ready(1, 9, 2.0, 1.0);
        console.carried(200, 20);
        console.ring(Digest::ZERO, 30, 3, Duration::ZERO);
        console.committed(&committed);
        console.committed(&committed);
        let text = std::fs::read_to_string(path).unwrap();
        let parse = |line| serde_json::from_str::<events::Record>(line).unwrap().event;
        let counts = text.lines().map(parse).filter_map(|event| match event {
            events::Event::Committed { sent_bytes, received_bytes, .. } => {
                Some((sent_bytes, received_bytes))
            }
            _ => None,
        });
        assert_eq!(counts.collect::<Vec<_>>(), [(1_230, 123), (0, 0)]);
    }

    #[test]
    fn an_epoch_without_this_node_is_one_sentence() {
        assert_eq!(our_part(Some(2.0), true), "loss 2.000");
        assert_eq!(our_part(None, true), "without us, nothing is lost");
        assert_eq!(our_part(None, false), "without us");
    }

    #[test]
    fn a_node_with_more_epochs_than_the_others_is_not_behind_the_run() {
        assert_eq!(behind(3, 7, 2), "behind: the run is at epoch 7, we are at 3; 2 donors");
        let longer = behind(857, 846, 1);
        assert!(longer.contains("follow a greater lineage, at epoch 846, "), "{longer}");
    }

    #[test]
    fn a_regroup_says_why_it_leaves_each_voter_out() {
        use Absence::{Elsewhere, Left, Mute, OtherLog, Revoked, Silent};
        assert_eq!(regrouped(7, 1, &[Left]), "regrouped: 1 peer without 1 that left");
        assert_eq!(
            regrouped(7, 3, &[Silent, Left, Silent]),
            "regrouped: 3 peers without 1 that left and 2 that are silent"
        );
        assert_eq!(regrouped(7, 1, &[Revoked]), "regrouped: 1 peer without 1 that is revoked");
        assert_eq!(
            regrouped(7, 2, &[Mute, Elsewhere, OtherLog, Mute]),
            "regrouped: 2 peers without 1 that joined other peers and 1 that lost its votes and 2 that give no answer"
        );
        assert_eq!(regrouped(1, 2, &[]), "founded: the run begins with 2 peers");
    }
}
