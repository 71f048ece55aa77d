//! One epoch: a slot of the replicated log, decided by ballots among its voters.
//!
//! A roster is a Paxos ballot (Lamport 1998) whose value a ring computes. A voter that holds the
//! value votes with `Done`, and Dones from a majority decide. Voters that have lost their majority
//! sign a Regroup and go on as the voters of a new series. The rules are R1–R18, R22, R29–R31 and
//! R34–R39 of `docs/PROTOCOL.md`; a comment names the rule where the code follows it.
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
mod known;
mod admission;
mod standing;
mod send;
mod enter;
mod acceptor;
mod proposer;
mod recover;
mod decide;
mod reconfigure;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::access::ledger::Ledger;
use crate::access::notices::Notices;
use crate::base::id::Digest;
use crate::base::rule::Rule;
use crate::base::sign::Verified;
use crate::base::time::Time;
use crate::history::lineage::{LocalPeer, Validator};
use crate::history::log::Votes;
use crate::machine::event::Reason;
use crate::machine::output::Output;
use crate::machine::step::{Ahead, Lead, Step};
use crate::message::wire;
use crate::message::{Head, Message, Series, Voter};

pub use crate::machine::output::{Apply, Ring};
pub use interface::{Config, Credentials, Durability, Input};

use ballot::Ballot;
use conduct::{Conduct, Halt};
use facts::Facts;
use known::Admission;
use reach::Reach;
use series::Stage;
use slot::Slot;

/// Bounds of what is stored for a series that we have not entered yet: messages of all authors,
/// messages of one author, and bytes of one message. That last one admits all that can be gossiped.
const EARLY_MAX: usize = 1_024;
const EARLY_OF_ONE_MAX: usize = 16;
const EARLY_BYTES_MAX: usize = 64 << 10;

/// The machine. Its own fields live as long as the process; those of an epoch or a series live
/// as long as it, in `Slot` and `SeriesState`.
#[derive(Clone, Debug)]
pub struct State {
    validator: Validator,
    me: LocalPeer,
    config: Config,
    /// The votes that bind us, as our log records them (R1).
    votes: Votes,
    slot: Slot,
    /// The median time to Ready in the last epoch in which half of the voters were Ready.
    ready_median: Option<Duration>,
    /// The greatest weight that a Ready may declare (G11).
    weight_max: u64,
    early: VecDeque<Arc<Verified<Message>>>,
    started: Time,
    /// Whether this start continues from a log in which we voted (R20).
    restarted: bool,
    /// When the last input came. A long gap means that this process was suspended (R12).
    awake: Time,
    /// What other peers have cost us.
    conduct: Conduct,
    /// Which peers direct connections join (R41, R42).
    reach: Reach,
    /// Which peers may take part; `None` in open runs (T1).
    admission: Option<Admission>,
    behind: bool,
    /// Whether another peer has a greater head and may lead us there. Until then we do not regroup
    /// (R12).
    ahead: Ahead,
    leaving: Option<Time>,
    left: bool,
}

impl State {
    /// A machine whose head is `head`. `voters` decide the epoch after it, `ledger` says which
    /// peers are admitted, and `notices` are those of the organiser.
    #[must_use]
    pub fn new(
        now: Time,
        validator: Validator,
        me: LocalPeer,
        config: Config,
        (head, voters, ledger): (Head, Vec<Voter>, Option<Arc<Ledger>>),
        notices: &Notices,
    ) -> Self {
        let (notices, credentials) = (notices.clone(), config.credentials.clone());
        Self {
            admission: ledger.map(|ledger| Admission::new(now, ledger, notices, credentials)),
            weight_max: validator.capacity.weight_max(None),
            validator,
            me,
            config,
            votes: Votes::default(),
            slot: Slot::new(now, head, voters),
            ready_median: None,
            early: VecDeque::new(),
            started: now,
            restarted: false,
            awake: now,
            conduct: Conduct::default(),
            reach: Reach::default(),
            behind: false,
            ahead: Ahead::Nobody,
            leaving: None,
            left: false,
        }
    }

    /// Takes one input, then every step whose condition holds.
    pub fn handle(&mut self, step: &mut Step<'_>, input: Input) {
        if self.left {
            return;
        }
        self.wake(step);
        self.follow_series(step);
        match input {
            Input::Tick => {}
            Input::Heard(peer) => {
                self.learn_ticket(step, peer);
                self.learn_ready(step, peer);
                self.learn_links(step, peer);
                if let Some(seen) = step.table.peers.get(&peer)
                    && seen.beat.series == self.series()
                {
                    self.note_reached(peer, seen.beat.attempt);
                }
            }
            Input::Message(message) => self.on_message(step, &message),
            Input::Trained { tokens, norm } => self.on_trained(step, tokens, norm),
            Input::RingFinished { roster, update } => self.on_ring_finished(roster, update),
            Input::RingStopped { roster, lost, hops } => {
                self.on_ring_stopped(step, roster, Halt { lost, hops });
            }
            Input::ChunkHeld(finished) => self.slot.chunks.insert(finished),
            Input::ChunkMissing(ring, chunk) => self.on_chunk_missing(step, ring, chunk),
            Input::ChunksGone(roster) => self.slot.chunks.remove_ring(roster),
            Input::UpdateHeld(update, kept) => self.on_update_held(update, kept),
            Input::UpdateMissing(update) => self.on_update_missing(step, update),
            Input::Applied(state) => self.on_applied(step, state),
            Input::Lead(lead) => self.on_lead(step, lead),
            Input::Ahead(ahead) => self.ahead = ahead,
            Input::Linked(peer, linked) => self.reach.set_linked(step, peer, linked),
            Input::Reachable(dialable) => self.reach.set_dialable(dialable),
            Input::Leave => self.on_leave(step),
        }
        self.advance(step);
    }

    fn on_lead(&mut self, step: &mut Step<'_>, lead: Lead) {
        match lead {
            Lead::Behind(behind) => {
                self.behind = behind;
                // The state must not move in two ways at once, even if it was about to move anyway.
                let moves =
                    matches!(self.slot.series.stage, Stage::Open { .. } | Stage::Decided(_));
                if behind && moves {
                    self.recover(step, Reason::Behind);
                }
            }
            Lead::Notices(notices) => self.take_notices(step, *notices),
            Lead::Link(from, link) => self.on_link(step, from, *link),
            Lead::Openings(from, openings) => self.on_openings(step, from, &openings),
            Lead::Enter { head, voters, median, ledger } => {
                self.limit_weight(median);
                self.take_ledger(step, ledger);
                // Cleared only here: nothing may move between the old epoch and the new head.
                self.behind = false;
                // The trainer gets back what was frozen.
                self.abort(step, Reason::AnotherHead);
                self.slot.frozen = None;
                self.enter(step, head, voters);
            }
        }
    }

    /// R12: a process that was suspended heard nobody meanwhile, and must not conclude anything
    /// from that silence.
    fn wake(&mut self, step: &Step<'_>) {
        if step.now.since(self.awake) > 4 * step.table.heartbeat {
            self.slot.series.entered = step.now;
            self.slot.series.gathering.held_since = None;
        }
        self.awake = step.now;
    }

    /// When a condition can change without an input.
    #[must_use]
    pub fn deadline(&self, step: &Step<'_>) -> Option<Time> {
        timers::deadline(self.facts(step))
    }

    fn advance(&mut self, step: &mut Step<'_>) {
        // Each step leaves its condition false; the bound is many times the longest chain of steps.
        for _ in 0..64 {
            let moved = self.leave(step)
                || self.settle(step)
                || self.decide(step)
                || self.conclude(step)
                || self.time_out(step)
                || self.follow_others(step)
                || self.answer_query(step)
                || self.finish_asking(step)
                || self.ask(step)
                || self.propose_first(step)
                || self.regroup(step)
                || self.open_joined(step);
            if !moved {
                break;
            }
        }
        self.repeat(step);
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

    fn on_message(&mut self, step: &mut Step<'_>, message: &Arc<Verified<Message>>) {
        let Some(series) = message.body().series() else { return };
        let commit = matches!(message.body(), Message::Commit(_) | Message::Ready(_));
        if series != self.series() && !(commit && series.is_beside(&self.series())) {
            self.keep_early(series, message);
            return;
        }
        let from = message.author();
        if let Some(fault) = gate::fault_of(self.facts(step), from, message.body()) {
            step.put(Output::Fault(from, fault));
            return;
        }
        if !gate::is_read(self.facts(step), &from, message.body()) {
            return;
        }
        match message.body() {
            Message::Ready(ready) => self.on_ready(step, from, ready),
            Message::Query(query) => self.on_query(step, from, query),
            Message::Status(status) => self.on_status(step, message, status),
            Message::Report(report) => self.on_report(step, from, report),
            Message::Ground(ground) => self.on_ground(step, from, ground),
            Message::Opened(opened) => self.on_opened(step, from, opened),
            Message::Prepared(prepared) => self.on_prepared(step, message, prepared),
            Message::Roster(roster) => self.on_roster(step, message, roster),
            Message::Accept(accept) => self.on_accept(step, message, accept),
            Message::Refuse(refuse) => self.on_refuse(step, from, refuse),
            Message::Stalled(stalled) => self.on_stalled(step, from, stalled),
            Message::Done(done) => self.on_done(step, message, done),
            Message::Commit(commit) => self.on_commit(step, from, commit),
            Message::Regroup(regroup) => self.on_regroup(step, message, regroup),
            Message::Join(join) => self.on_join(step, message, join),
            Message::Heartbeat(_) | Message::Leaving(_) | Message::Notice(_) => {}
        }
    }

    /// Stores a message of a series that we may enter soon.
    fn keep_early(&mut self, series: Series, message: &Arc<Verified<Message>>) {
        let next = series.epoch == self.series().epoch.saturating_add(1);
        let beside = series.is_beside(&self.series()) && series.regroup.is_some();
        let same = |m: &&Arc<Verified<Message>>| m.author() == message.author();
        if (next || beside)
            && self.early.len() < EARLY_MAX
            && self.early.iter().filter(same).count() < EARLY_OF_ONE_MAX
            && wire::envelope(message).len() <= EARLY_BYTES_MAX
        {
            self.early.push_back(Arc::clone(message));
        }
    }

    fn ballot(&mut self, digest: Digest) -> &mut Ballot {
        self.slot.ballot(&self.me.peer, digest)
    }

    fn keeps(&self, rule: Rule) -> bool {
        self.validator.keeps(rule)
    }
}
