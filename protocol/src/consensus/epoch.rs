//! One epoch: a slot of the replicated log, decided by ballots among its voters.
//!
//! A roster is a Paxos ballot (Lamport 1998) whose value a ring computes. A voter that holds the
//! value votes with `Done`, and Dones from a majority decide. Voters that have lost their majority
//! sign a Regroup and go on as the voters of a new series. The rules are those of
//! `docs/PROTOCOL.md`, without most of those about heads (`sync`) and the disk (`holdings`); a comment
//! names the rule where the code follows it.
//!
//! ```text
//! Idle (Train, Ready) → Accepted → Reduce → Finished → Decided → Applying → Idle of the next epoch
//!        └──────── any of the first four ────────┘ → Recover → Accepted …      (a higher attempt)
//!                                                   → Joined → Idle            (a Regroup)
//! ```
//!
//! The machine is level-triggered: an input only records what it says, then `advance` takes every
//! step whose condition now holds. So no order of messages leaves a state without a next step, and
//! a repeated message has the effect that the first one would have had.
//!
//! Invariants S1, S2, S5, S7 (`docs/PROTOCOL.md`). This machine leaves the bytes of updates to its
//! caller, heads and forks to `sync`, and the question which peers are alive to `view`.

mod interface;
mod facts;
mod open_epoch;
mod slot;
mod series;
mod ballot;
mod ground;
mod updates;
mod chunks;
mod gathering;
mod conduct;
mod reach;
mod seats;
mod attendance;
mod timing;
mod patience;
mod timers;
mod turns;
mod roster;
mod founders;
mod salvage;
mod gate;
mod admission;
mod waited;
mod waits;
mod standing;
mod send;
mod enter;
mod entered;
mod acceptor;
mod proposer;
mod recover;
mod vote;
mod decide;
mod reconfigure;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::access::ledger::Ledger;
use crate::access::notices::Notices;
use crate::base::id::{Digest, PeerId};
use crate::base::rule::Rule;
use crate::base::sign::Verified;
use crate::base::time::Time;
use crate::history::lineage::{LocalPeer, Validator};
use crate::history::log::Votes;
use crate::machine::event::Reason;
use crate::machine::output::Output;
use crate::machine::step::{Ahead, Decision, Extension, Lead, Step};
use crate::message::{Head, Message, Series, Voter, wire};

pub use crate::machine::output::{Apply, Ring};
pub(crate) use interface::Input;
pub use interface::{Config, Credentials, Durability};

use admission::Admission;
use conduct::{Conduct, Halt};
use entered::Entered;
use facts::{Facts, Process, Return};
use open_epoch::Epoch;
use reach::Reach;
use series::{SeriesState, Stage};
use slot::Slot;
use timers::Timer;

/// No stall of a busy machine is taken for a sleep; guess.
const SLEEP_MIN: Duration = Duration::from_secs(4);

/// How long a leaving peer waits for the open ring, within the 5 s that a person waits.
const LEAVE_WAIT: Duration = Duration::from_secs(4);

/// Bounds of what is stored for a series that we have not entered yet: messages of all authors,
/// messages of one author, and bytes of one message. That last one admits all that can be gossiped.
const EARLY_MAX: usize = 1_024;
const EARLY_OF_ONE_MAX: usize = 16;
const EARLY_BYTES_MAX: usize = 64 << 10;

/// The epoch that a machine begins with.
#[derive(Debug)]
pub(crate) struct Start {
    /// The last commit before that epoch.
    pub head: Head,
    /// The peers that decide it; none before the founding.
    pub voters: Vec<Voter>,
    /// Which peers are admitted; `None` in an open run.
    pub ledger: Option<Arc<Ledger>>,
}

/// The machine. What lives as long as an epoch or a series stands in `Slot` and `SeriesState`.
#[derive(Clone, Debug)]
pub(crate) struct State {
    process: Process,
    /// What other peers have cost us.
    conduct: Conduct,
    /// The votes that bind us, as our log records them (R1).
    votes: Votes,
    slot: Slot,
    early: VecDeque<Arc<Verified<Message>>>,
    /// When the last input came. A long gap means that this process was suspended (R12).
    awake: Time,
    entered: Entered,
    left: bool,
}

impl State {
    /// A machine that begins with an epoch; `notices` are those of the organiser.
    pub(crate) fn new(
        now: Time,
        validator: Validator,
        me: LocalPeer,
        config: Config,
        start: Start,
        notices: &Notices,
    ) -> Self {
        let Start { head, voters, ledger } = start;
        let (notices, credentials) = (notices.clone(), config.credentials.clone());
        let next = head.epoch.saturating_add(1);
        let process = Process {
            admission: ledger.map(|ledger| Admission::new(now, next, ledger, notices, credentials)),
            weight_max: validator.capacity.weight_max(None),
            validator,
            me,
            config,
            ready_median: None,
            started: now,
            returned: None,
            reach: Reach::default(),
            behind: false,
            ahead: Ahead::Nobody,
            leaving: None,
        };
        let mut entered = Entered::default();
        entered.note(Series::after(&head));
        Self {
            process,
            conduct: Conduct::default(),
            votes: Votes::default(),
            slot: Slot::new(now, head, voters),
            early: VecDeque::new(),
            awake: now,
            entered,
            left: false,
        }
    }

    /// Binds a peer that has just started by the votes that its log still has: it lacks those of epochs up to
    /// `forgotten`.
    pub(crate) fn bound_by(
        mut self,
        step: &mut Step<'_>,
        votes: Votes,
        forgotten: u64,
        median: Option<u64>,
    ) -> Self {
        self.entered.forget(forgotten);
        let before = votes.series().filter(|series| series.epoch <= self.slot.head.epoch);
        before.for_each(|series| _ = self.entered.note(series));
        self.votes = votes;
        self.votes.forget(self.slot.head.epoch);
        self.process.limit_weight(median);
        enter::resume(&mut self.epoch(step));
        // A peer with another log is another voter, and has left nobody behind.
        if self.facts(step).is_voter() {
            let (since, wait) = (self.process.started, founders::return_wait(self.facts(step)));
            self.process.returned = Some(Return { since, until: since + wait });
        }
        self
    }

    /// Takes one input, then every step whose condition holds.
    pub(crate) fn handle(&mut self, step: &mut Step<'_>, input: Input) {
        if self.left {
            return;
        }
        self.note_gap(step);
        let SeriesState { name, voters, .. } = &self.slot.series;
        self.process.reach.follow(step.table, *name, voters);
        match input {
            Input::Tick => {}
            Input::Woke(slept) => self.wake(step, slept),
            Input::Heard(peer) => self.on_heard(step, peer),
            Input::Message(message) => self.on_message(step, &message),
            Input::Trained { tokens, norm, loss } => {
                enter::freeze(&mut self.epoch(step), tokens, norm, loss);
            }
            Input::RingFinished { roster, update } => self.slot.end_ring(roster, update),
            Input::RingStopped { roster, lost, hops } => {
                recover::on_ring_stopped(&mut self.epoch(step), roster, Halt { lost, hops });
            }
            Input::ChunkHeld(finished) => self.slot.chunks.insert(finished),
            Input::ChunkMissing(ring, chunk) => {
                recover::on_chunk_missing(&mut self.epoch(step), ring, chunk);
            }
            Input::ChunksGone(roster) => self.slot.chunks.remove_ring(roster),
            Input::UpdateHeld(update, kept) => self.slot.hold(update, kept),
            Input::UpdateMissing(update) => decide::miss_update(&mut self.epoch(step), update),
            Input::Applied(state) => self.on_applied(step, state),
            Input::Lead(lead) => self.on_lead(step, lead),
            Input::Ahead(ahead) => self.process.ahead = ahead,
            Input::Linked(peer, linked) => self.process.reach.set_linked(step, peer, linked),
            Input::Reachable(dialable) => self.process.reach.set_dialable(dialable),
            Input::Leave => {
                self.process.leaving.get_or_insert(step.now + LEAVE_WAIT);
            }
        }
        if !self.left {
            self.advance(step);
        }
    }

    /// Reads a heartbeat: what it shows, and what a lost message would have said.
    fn on_heard(&mut self, step: &mut Step<'_>, peer: PeerId) {
        let series = self.slot.series.name;
        if let Some(admission) = &mut self.process.admission {
            admission.learn_ticket(step, series.epoch, peer);
        }
        enter::learn_ready(&mut self.epoch(step), peer);
        let Some(seen) = step.table.peers.get(&peer) else { return };
        self.process.reach.hear(step.table, peer, &seen.beat);
        if seen.beat.series == series {
            self.slot.series.note_reached(peer, seen.beat.attempt);
        }
    }

    /// What `sync` has decided about the head, or found about this epoch.
    fn on_lead(&mut self, step: &mut Step<'_>, lead: Lead) {
        match lead {
            Lead::Behind(behind) => {
                self.process.behind = behind;
                // The state must not move in two ways at once, even if it was about to move anyway.
                let stage = &self.slot.series.stage;
                if behind && matches!(stage, Stage::Open { .. } | Stage::Decided(_)) {
                    recover::recover(&mut self.epoch(step), Reason::Behind);
                }
            }
            Lead::Notices(notices) => {
                let epoch = self.slot.series.name.epoch;
                if let Some(admission) = &mut self.process.admission {
                    admission.notices = *notices;
                    admission.look_ahead(step, epoch);
                }
            }
            Lead::Link(from, link) => decide::on_link(&mut self.epoch(step), from, *link),
            Lead::Openings(from, openings) => {
                for opening in reconfigure::follow_on(&mut self.epoch(step), from, &openings) {
                    if !reconfigure::follow(&mut self.epoch(step), opening) {
                        break;
                    }
                    self.replay_early(step);
                }
            }
            Lead::Enter { head, voters, median, ledger } => {
                self.process.limit_weight(median);
                self.take_ledger(step, ledger);
                // Cleared only here: nothing may move between the old epoch and the new head.
                self.process.behind = false;
                // The trainer gets back what was frozen.
                self.slot.abort(step, Reason::AnotherHead);
                self.slot.frozen = None;
                self.enter(step, head, voters);
            }
        }
    }

    /// R18: the outer step is taken: the epoch is committed, and the members of its receipt vote on
    /// the next one, which begins.
    fn on_applied(&mut self, step: &mut Step<'_>, state: Digest) {
        let committed = decide::commit(&mut self.epoch(step), state);
        let Some((head, link, by_commit)) = committed else { return };
        let (voters, ledger) = self.process.after(&link.receipt);
        let named = link.certificate.roster.voters();
        let voters = if self.process.keeps(Rule::R18) { voters } else { named };
        self.take_ledger(step, ledger);
        self.process.limit_weight(link.receipt.median_weight());
        let link = Box::new(link);
        step.out.push(Decision::Extend(Extension { head, link, by_commit }));
        self.enter(step, head, voters);
    }

    /// Takes the ledger after a receipt; in an open run there is none.
    fn take_ledger(&mut self, step: &mut Step<'_>, ledger: Option<Arc<Ledger>>) {
        if let Some((admission, ledger)) = self.process.admission.as_mut().zip(ledger) {
            admission.take_ledger(step, ledger);
        }
    }

    /// Begins the epoch after `head`, with nothing known of it.
    fn enter(&mut self, step: &mut Step<'_>, head: Head, voters: Vec<Voter>) {
        if self.entered.note(Series::after(&head)) {
            // What we have declared and signed there is forgotten here, and binds us: the log still has it (R20).
            self.left = true;
            return step.put(Output::Restart);
        }
        let median = patience::median_time_to_ready(self.facts(step));
        self.process.ready_median = median.or(self.process.ready_median);
        let apart = patience::epochs_between_waits(self.process.ready_median);
        self.conduct.next_epoch(&self.process.validator, &self.slot, apart);
        self.votes.forget(head.epoch);
        // The log may bind us in several epochs (R20), and what it names is read at the start only.
        let mut updates = std::mem::take(&mut self.slot.updates);
        updates.keep(&self.votes.updates().collect());
        self.slot = Slot { updates, ..Slot::new(step.now, head, voters) };
        self.early.retain(|m| m.body().series().is_some_and(|s| s.epoch > head.epoch));
        enter::resume(&mut self.epoch(step));
        let epoch = head.epoch.saturating_add(1);
        step.put(Output::Train { epoch, tokens: head.tokens });
        if let Some(admission) = &mut self.process.admission {
            admission.look_ahead(step, epoch);
        }
        let live = step.table.live(step.now);
        live.for_each(|(peer, _)| enter::learn_ready(&mut self.epoch(step), *peer));
        self.replay_early(step);
    }

    /// A long time without an input, in which this process was suspended.
    fn note_gap(&mut self, step: &Step<'_>) {
        let gap = step.now.since(self.awake);
        if gap > 4 * step.table.heartbeat {
            self.come_back(step, gap);
        }
        self.awake = step.now;
    }

    /// This process did not run for a time that our clock lacks. In a short one nobody has left us behind; a machine that
    /// often stalls must not put off each Regroup.
    fn wake(&mut self, step: &Step<'_>, slept: Duration) {
        if slept >= step.table.grace / 2 {
            self.come_back(step, slept);
        }
        if let Some(admission) = &mut self.process.admission {
            admission.sleep(slept);
        }
    }

    /// R12, R20: a process that was suspended heard nobody meanwhile, and must not conclude anything from that silence.
    /// Half a grace is enough for the others to go on without a voter. A wait that is under way gets no longer, so that a
    /// machine that stalls often ends it too.
    fn come_back(&mut self, step: &Step<'_>, gone: Duration) {
        self.slot.series.entered = step.now;
        self.slot.series.gathering.held_since = None;
        if gone >= SLEEP_MIN.max(step.table.grace / 2) && self.facts(step).is_voter() {
            // What came meanwhile is read within that time.
            let since = step.now + 2 * step.table.heartbeat;
            let until = self.process.returned.map(|returned| returned.until);
            let until = until.unwrap_or(step.now + founders::RETURN_WAIT);
            self.process.returned = Some(Return { since, until });
        }
    }

    /// When a condition can change without an input.
    pub(crate) fn deadline(&self, step: &Step<'_>) -> Option<Time> {
        timers::deadline(self.facts(step))
    }

    /// Takes every step that the state allows. The order matters: a decision comes before timers
    /// that would give an attempt up, and a Regroup opens only once nothing else moves. Messages
    /// are repeated after all steps, about the state that came out.
    fn advance(&mut self, step: &mut Step<'_>) {
        if self.process.returned.is_some() && !founders::awaits_news(self.facts(step)) {
            self.process.returned = None;
        }
        // Each step leaves its condition false; the bound is many times the longest chain of steps.
        for _ in 0..64 {
            let epoch = &mut self.epoch(step);
            patience::note_wait(epoch);
            let left = reconfigure::leave(epoch);
            let moved = vote::advance_roster(epoch)
                || decide::decide(epoch)
                || decide::apply_when_copied(epoch)
                || recover::time_out(epoch)
                || recover::follow_others(epoch)
                || recover::begin_wait(epoch)
                || acceptor::answer_query(epoch)
                || proposer::finish_asking(epoch)
                || proposer::ask(epoch)
                || proposer::propose_first(epoch)
                || reconfigure::regroup(epoch);
            let opens = !moved && reconfigure::open_joined(epoch);
            self.left |= left;
            if opens {
                self.replay_early(step);
            }
            if !(moved || opens) {
                break;
            }
        }
        if !self.left && timers::is_over(self.facts(step), Timer::Repeat) {
            let facts = self.facts(step);
            let (repeats, interval) = (send::repeats(facts), facts.repeat_interval());
            self.slot.series.repeat_at = step.now + interval;
            step.put_all(repeats);
        }
        self.assert_sound();
    }

    /// What holds between two inputs, whatever others send.
    fn assert_sound(&self) {
        let Slot { openings, chain, base, series, .. } = &self.slot;
        let entered = openings.last().map_or(base, |opening| &opening.regroup.members);
        let of_series = chain.len() == openings.len() + 1 && chain.last() == Some(&series.name);
        let as_many = series.voters.len() == entered.len();
        assert!(of_series && as_many, "S6: voters are of their series");
        let follows = series.name.epoch == self.slot.head.epoch.saturating_add(1);
        assert!(follows, "S3: an epoch follows on its head");
        if let Stage::Open { roster, .. } = &series.stage {
            assert!(self.slot.roster(roster).is_some(), "R3: what is under way is known");
        }
        assert!(self.early.len() <= EARLY_MAX, "D1: what comes early is bounded");
    }

    /// Reads a message of the open series. `Commit` and `Ready` are about the epoch, so those of
    /// its other series are read too. What another series sends is stored, if we may enter that
    /// series.
    fn on_message(&mut self, step: &mut Step<'_>, message: &Arc<Verified<Message>>) {
        let Some(series) = message.body().series() else { return };
        let commit = matches!(message.body(), Message::Commit(_) | Message::Ready(_));
        if series != self.slot.series.name && !(commit && series.is_beside(&self.slot.series.name))
        {
            self.keep_early(series, message);
            return;
        }
        let from = message.author();
        if let Some(fault) = gate::fault_of(self.facts(step), from, message.body()) {
            return step.put(Output::Fault(from, fault));
        }
        if !gate::is_read(self.facts(step), &from, message.body()) {
            return;
        }
        let epoch = &mut self.epoch(step);
        match message.body() {
            Message::Ready(ready) => enter::on_ready(epoch, from, ready),
            Message::Query(query) => acceptor::on_query(epoch, from, query),
            Message::Status(status) => proposer::on_status(epoch, message, status),
            Message::Report(report) => proposer::on_report(epoch, from, report),
            Message::Ground(ground) => acceptor::on_ground(epoch, from, ground),
            Message::Opened(opened) => acceptor::on_opened(epoch, from, opened),
            Message::Prepared(prepared) => acceptor::on_prepared(epoch, message, prepared),
            Message::Roster(roster) => acceptor::on_roster(epoch, message, roster),
            Message::Accept(accept) => vote::on_accept(epoch, message, accept),
            Message::Refuse(refuse) => recover::on_refuse(epoch, from, refuse),
            Message::Stalled(stalled) => recover::on_stalled(epoch, from, stalled),
            Message::Done(done) => vote::on_done(epoch, message, done),
            Message::Commit(commit) => decide::on_commit(epoch, from, commit),
            Message::Regroup(regroup) => reconfigure::on_regroup(epoch, message, regroup),
            Message::Join(join) => reconfigure::on_join(epoch, message, join),
            Message::Heartbeat(_) | Message::Leaving(_) | Message::Notice(_) => {}
        }
    }

    /// Stores a message of a series that we may enter soon. The second half of the places is for
    /// voters, since keys cost nothing.
    fn keep_early(&mut self, series: Series, message: &Arc<Verified<Message>>) {
        let next = series.epoch == self.slot.series.name.epoch.saturating_add(1);
        let beside = series.is_beside(&self.slot.series.name) && series.regroup.is_some();
        let same = |m: &&Arc<Verified<Message>>| m.author() == message.author();
        let voter = self.slot.series.names_voter(&message.author());
        if (next || beside)
            && self.early.len() < if voter { EARLY_MAX } else { EARLY_MAX / 2 }
            && self.early.iter().filter(same).count() < EARLY_OF_ONE_MAX
            && wire::envelope_bytes(message) <= EARLY_BYTES_MAX
        {
            self.early.push_back(Arc::clone(message));
        }
    }

    /// Reads what was stored for the series that has opened; the rest is stored again.
    fn replay_early(&mut self, step: &mut Step<'_>) {
        for message in std::mem::take(&mut self.early) {
            self.on_message(step, &message);
        }
    }

    /// What a rule may look at in this step.
    fn facts<'a>(&'a self, step: &'a Step<'_>) -> Facts<'a> {
        let Self { process, conduct, votes, slot, .. } = self;
        Facts { process, conduct, votes, slot, step }
    }

    /// The open epoch, as a rule may change it in this step.
    fn epoch<'a>(&'a mut self, step: &'a mut Step<'_>) -> Epoch<'a> {
        let Self { process, conduct, votes, slot, .. } = self;
        let Step { now, table, out } = step;
        Epoch::new(process, conduct, votes, slot, Step { now: *now, table, out })
    }
}
