//! Heads, forks, and catching up: which lineage to follow, and what proves it (R14, R16, R23–R28).
//!
//! Heads are ordered by what the organiser has attested (`attested`), then by committed tokens,
//! then by the smaller digest. The greatest head whose links verify is followed. One question is
//! open at a time (`catch_up`), to the peer that is likeliest to be right (`choose_peer`): first
//! for the links after the last common epoch, and if they do not fit on ours, for the chain, to
//! find where the two lineages part. Updates or a checkpoint are fetched only once every link to
//! them is verified (`apply`).
//!
//! What belongs together has a type of its own, and [`State`] owns them: our `lineage`, the
//! `candidate` that is verified, the `path` to it once it is, the `requests` and what they have led
//! to, the `fork`s that people know of. Rules that only look are methods of what they look at.
//!
//! Votes are left to `epoch`, the bytes of checkpoints and updates to the caller.

mod interface;
mod lineage;
mod attested;
mod forkable;
mod requests;
mod candidate;
mod marks;
mod fork;
mod choose_peer;
mod catch_up;
mod path;
mod apply;

use std::sync::Arc;
use std::time::Duration;

use crate::access::notices::NoticeError;
use crate::base::fault::{CertificateFault, Fault};
use crate::base::id::{Digest, PeerId};
use crate::base::time::Time;
use crate::history::lineage::{LocalPeer, Validator};
use crate::history::log::{Mark, Record};
use crate::machine::event::{Committed, Event};
use crate::machine::output::Output;
use crate::machine::step::{Ahead, Extension, Lead, Step};
use crate::message::{Head, Link, Message, Notice};

pub use candidate::LINKS_BYTES_MAX;
pub use interface::Config;
pub(crate) use interface::{Input, Open};
pub use lineage::LINKS_KEPT;

use attested::Passed;
use catch_up::CatchUp;
use choose_peer::{Choice, Missed, USUAL_WAIT};
use fork::Forks;
use forkable::Forkable;
use lineage::Lineage;
use requests::Requests;

/// The machine of heads and lineages.
#[derive(Clone, Debug)]
pub(crate) struct State {
    ours: Lineage,
    /// The voters that may still hold another one.
    forkable: Forkable,
    /// Notices that were sent to others.
    passed: Passed,
    requests: Requests,
    forks: Forks,
    catch_up: Option<CatchUp>,
    /// Answers to the open question and to those that followed from it.
    rounds: u32,
    /// Changes with each question, so that chance chooses anew.
    draws: u64,
    /// Since when a peer has been ahead, while our head stands still.
    ahead_since: Option<Time>,
    /// [`Config::replay_max`], at most [`UPDATES_KEPT`].
    replay_max: usize,
    /// Set until we report that we have caught up: the most updates that the next path may replay.
    catching_up: Option<usize>,
    /// A state of whose checkpoint a part is stored.
    partial: Option<Digest>,
}

/// [`Config::undo_time`] of every program; guess: within it two friends notice that they train
/// apart.
pub const UNDO_TIME: Duration = Duration::from_secs(marks::RECENT_S);

/// Committed updates that a peer stores for others to replay: a day away at an epoch of 45 minutes.
/// Fewer make more peers fetch a whole checkpoint; more cost disk.
pub const UPDATES_KEPT: usize = 32;

impl State {
    /// A machine at the end of `lineage`, which starts at genesis.
    pub(crate) fn new(
        now: Time,
        validator: Validator,
        me: LocalPeer,
        config: Config,
        lineage: Vec<(Head, Link)>,
        marks: Vec<Mark>,
    ) -> Self {
        let reached = lineage.last().map_or(0, |(head, _)| head.epoch);
        let mut state = Self {
            requests: Requests::new(validator.rules),
            forks: Forks::new(now, &config, marks, reached),
            replay_max: config.replay_max.min(UPDATES_KEPT),
            ours: Lineage::new(validator, me, config),
            forkable: Forkable::default(),
            passed: Passed::default(),
            catch_up: None,
            rounds: 0,
            draws: 0,
            ahead_since: None,
            catching_up: None,
            partial: None,
        };
        for (head, link) in lineage {
            state.push(Arc::new(link), head);
        }
        state
    }

    /// Takes one input, given what the open epoch shows.
    pub(crate) fn handle(&mut self, step: &mut Step<'_>, open: Open<'_>, input: Input) {
        match input {
            Input::Tick => self.on_tick(step, open),
            Input::Woke(slept) => self.forks.marks.sleep(slept),
            Input::Answer { from, answer, majority } => {
                self.on_answer(step, open, from, answer.as_deref(), majority);
            }
            Input::Frozen => self.ours.note_frozen(),
            Input::Extend(extension) => self.on_committed(step, extension),
            Input::Applied(state) => self.on_applied(step, state),
            Input::UpdateMissing(update) => self.on_update_missing(step, &update),
            Input::Partial(state) => self.partial = Some(state),
            Input::Loaded(head) => self.on_loaded(step, head),
            Input::LoadFailed { head, kept } => self.on_load_failed(step, head, kept),
            Input::Notice(notice, from) => self.on_notice(step, &notice, from),
        }
        self.forkable.note_returned(step, &self.ours);
    }

    /// Goes on with the open question, or asks the next one.
    fn on_tick(&mut self, step: &mut Step<'_>, open: Open<'_>) {
        self.requests.forget(step);
        self.ours.wait_for_attested(step);
        self.passed.pass(step, &self.ours);
        if self.catch_up.is_some() || open.applying {
            return;
        }
        self.rounds = 0;
        let head = self.ours.head;
        if self.catching_up.is_some() && !self.choice(step, open).is_behind() {
            self.catching_up = None;
            step.put(Output::Event(Event::CaughtUp { head }));
        }
        let mut ahead = self.choice(step, open).ahead();
        if ahead.is_empty() {
            self.ahead_since = None;
        }
        ahead.retain(|(claim, _)| !self.requests.asked_lately(step, &claim.peer));
        if ahead.is_empty() {
            match self.choice(step, open).missed(&self.forks) {
                Some(Missed::Regroup(claim)) => self.ask_lineage(step, head.epoch, claim),
                Some(Missed::Parted(claim)) => self.ask_chain(step, claim),
                None => {}
            }
            return;
        }
        let since = *self.ahead_since.get_or_insert(step.now);
        let first = self.choice(step, open).first(ahead, since, self.draws);
        self.draws = self.draws.wrapping_add(1);
        if let Some(claim) = first {
            self.ask_lineage(step, head.epoch, claim);
        }
    }

    /// What the choice of the next peer to ask rests on.
    fn choice<'a>(&'a self, step: &'a Step<'a>, open: Open<'a>) -> Choice<'a> {
        Choice { ours: &self.ours, requests: &self.requests, step, open }
    }

    /// The epoch machine has committed an epoch: our lineage has one more link.
    fn on_committed(&mut self, step: &mut Step<'_>, extension: Extension) {
        let Extension { head, link, by_commit } = extension;
        self.ours.note_spent(&self.ours.spent_by(&link.receipt));
        self.forks.log_start(step);
        step.put(Output::Log(Record::Committed { head }));
        let attempt = link.certificate.roster.attempt;
        let (receipt, regrouped) = (link.receipt.clone(), !link.openings.is_empty());
        self.push(Arc::from(link), head);
        self.forks.mark(step, head.epoch);
        self.forkable.note_returned(step, &self.ours);
        let forkable_since = self.forkable.since();
        let committed = Committed { head, attempt, receipt, regrouped, forkable_since, by_commit };
        step.put(Output::Event(Event::Committed(Arc::new(committed))));
    }

    /// Learns a notice from a peer, the manifest or a roster. A peer that sends a false one gets a
    /// fault. One that does not fit the known notices may be the organiser's mistake, and is no
    /// fault.
    fn on_notice(&mut self, step: &mut Step<'_>, notice: &Notice, from: Option<PeerId>) {
        let base = self.ours.ledger().map_or((0, Digest::ZERO), |ledger| ledger.last());
        let is_newest = notice.number >= self.ours.notices.last().0;
        match (self.ours.notices.learn(base, notice), from) {
            (Ok(true), _) => {}
            (Ok(false) | Err(NoticeError::Follows { .. } | NoticeError::Open), _) => return,
            (Err(_), None) => return,
            (Err(_), Some(from)) => {
                let fault = Fault::Certificate(CertificateFault::UnsignedNotice);
                return step.put(Output::Fault(from, fault));
            }
        }
        if notice.attests().is_some() {
            // The organiser has decided: what was ignored, or left for a person to decide, is
            // looked at again.
            self.requests.ignore_none();
            self.forks.hold_none();
        }
        if is_newest {
            self.passed.since = step.now;
        }
        let sealed = self.ours.validator.seal(Message::Notice(notice.clone()));
        let notice = Arc::new(notice.clone());
        step.put(Output::Event(Event::Notice { notice, in_force: None }));
        step.put(Output::Gossip(sealed));
        step.lead(Lead::Notices(Box::new(self.ours.notices.clone())));
        self.ours.wait_for_attested(step);
    }

    /// When to look again without an input.
    pub(crate) fn deadline(&self, step: &Step<'_>) -> Option<Time> {
        let waits = self.ahead_since.map(|since| since + USUAL_WAIT).filter(|at| *at > step.now);
        waits.into_iter().chain(self.requests.deadline(step)).min()
    }

    /// Our lineage, and the notices.
    pub(crate) fn lineage(&self) -> &Lineage {
        &self.ours
    }

    /// Whether a live peer has a greater head, and has wasted no question since it was last useful.
    pub(crate) fn sees_ahead(&self, step: &Step<'_>, open: Open<'_>) -> Ahead {
        let verified = matches!(&self.catch_up, Some(CatchUp::Lineage(candidate))
            if !candidate.entries.is_empty());
        self.choice(step, open).sees_ahead(verified)
    }

    /// R44: whether the voters of the open epoch have gone on without us, and we do not have its
    /// decision.
    pub(crate) fn is_passed_over(&self, step: &Step<'_>, open: Open<'_>) -> bool {
        !open.decided && self.choice(step, open).is_passed_over()
    }

    /// Bytes of the links in memory of a lineage that is being verified.
    pub(crate) fn judged_bytes(&self) -> usize {
        let Some(CatchUp::Lineage(candidate)) = &self.catch_up else { return 0 };
        candidate.bytes
    }

    /// Whether the outer step under way is part of a replay.
    pub(crate) fn is_replaying(&self) -> bool {
        matches!(self.catch_up, Some(CatchUp::Replay(_)))
    }

    /// Whether a replay continues with this update.
    pub(crate) fn needs(&self, update: &Digest) -> bool {
        matches!(&self.catch_up, Some(CatchUp::Replay(path)) if path.needs(update))
    }

    /// The peers that may serve the checkpoint being fetched; `None` while none is. Their number
    /// can grow while it arrives.
    pub(crate) fn donors(&self, step: &Step<'_>) -> Option<Vec<PeerId>> {
        let Some(CatchUp::Load(path)) = &self.catch_up else { return None };
        // A new attestation may have made our own lineage the greater one.
        let leads = path.leads_on(&self.ours);
        Some(if leads { path.serving(step, &self.ours) } else { Vec::new() })
    }
}
