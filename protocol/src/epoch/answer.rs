//! Answering a question: the promise, whose roster it waits for, and who is answered later (R2, G2, G3, G9).

use std::sync::Arc;

use crate::id::{Digest, PeerId};
use crate::message::{Message, Query, Refusal, Report, Roster, Status, Voter};
use crate::output::Output;
use crate::ring::{Order, order};
use crate::step::Step;

use super::attendance::Question;
use super::term::{Awaited, Stage};
use super::{Rule, State};

impl State {
    /// R2, G2: the answer is a promise, and waits for the roster of whoever asked; a higher question does not wait.
    pub(super) fn on_query(&mut self, step: &mut Step<'_>, from: PeerId, query: &Query) {
        let attempt = query.attempt;
        if attempt < 2 || self.behind || self.leaving.is_some() || self.decided().is_some() {
            return;
        }
        self.slot.failures.of.entry(from).or_default();
        if attempt < self.promised()
            || self.is_first_due(step)
            || self.asks_before(&from, attempt)
            || self.is_bound_to_another(step, &from, attempt)
        {
            if self.may_reply(step, from, "query") {
                self.refuse(step, from, Digest::ZERO, Refusal::Promised);
            }
            return;
        }
        for peer in query.lost.iter().filter(|peer| step.roll.peers.contains_key(peer)) {
            self.slot.lost.hear_of(step, *peer);
        }
        self.slot.term.asking.take_if(|asking| asking.attempt <= attempt);
        // Who asks again, or for more, does not have longer for it.
        let awaited = self.slot.term.awaited.filter(|a| a.proposer == from && step.now < a.until);
        let again = awaited.is_some_and(|awaited| awaited.attempt == attempt);
        if self.running(step).is_some_and(|roster| roster.attempt < attempt) {
            self.count_failure(from);
        }
        self.promise(step, attempt);
        let whole = step.now + self.ask_time(step) + self.accept_time(step);
        let until = awaited.map_or(whole, |awaited| awaited.until);
        self.slot.term.awaited = Some(Awaited { proposer: from, attempt, until });
        if let Stage::Recover { since, .. } = &mut self.slot.term.stage {
            *since = until.min(*since);
        }
        let status = self.seal(Message::Status(self.status(attempt)));
        // Everybody sees who answers (G9); who asks again may not have.
        if self.is_voter() && !again {
            step.put(Output::Gossip(status));
        } else {
            step.put(Output::Send(from, status));
        }
        if let Some(vote) = self.highest_done() {
            self.prove(step, from, &vote);
        }
        step.put(Output::Send(from, self.seal(Message::Report(self.report(step, attempt)))));
    }

    /// Of two who ask at once for the same attempt, the one whose turn comes first goes on alone: this is
    /// ours.
    fn asks_before(&self, peer: &PeerId, attempt: u64) -> bool {
        let same = self.slot.term.asking.as_ref().is_some_and(|a| a.attempt == attempt);
        let (run, parent) = (&self.law.run, &self.series().parent);
        let turn = |peer: &PeerId| order(Order::Turn, run, parent, attempt, peer);
        same && turn(&self.me.peer) < turn(peer)
    }

    /// G2: whether the first attempt of the epoch still comes: nobody has to ask before it, nor while those
    /// whose turn it may be propose it.
    fn is_first_due(&self, step: &Step<'_>) -> bool {
        let idle = matches!(self.slot.term.stage, Stage::Idle { .. });
        let turns = self.slot.term.turn_since.is_some_and(|at| step.now < at + self.ask_time(step));
        let waits = || self.is_too_early(step) && self.patience_left(step).is_some();
        idle && self.is_untouched() && self.keeps(Rule::G2) && (turns || waits())
    }

    /// R38, G3: a roster that runs is disturbed by its own proposer, and by a member of its ring, which may lack an Accept
    /// without knowing that others have it, unless it has failed more often than others.
    fn is_bound_to_another(&self, step: &Step<'_>, peer: &PeerId, attempt: u64) -> bool {
        let may = || !self.keeps(Rule::G3) || !self.has_failed_more(step, peer);
        self.running(step).is_some_and(|roster| {
            let member = roster.ring().any(|m| m.peer == *peer);
            roster.attempt < attempt && roster.proposer != *peer && !(member && may())
        })
    }

    /// The roster under way, before its deadline.
    fn running(&self, step: &Step<'_>) -> Option<&Arc<Roster>> {
        match &self.slot.term.stage {
            Stage::Open { roster, until, .. } if step.now < *until => self.roster(roster),
            _ => None,
        }
    }

    /// G3: whether a peer has asked or proposed in vain more often than an alive voter that has done either.
    fn has_failed_more(&self, step: &Step<'_>, peer: &PeerId) -> bool {
        let failed = &self.slot.failures.of;
        let alive = |other: &PeerId| *other == self.me.peer || step.roll.alive(other, step.now);
        let least = failed.iter().filter(|(p, _)| alive(p)).map(|(_, count)| *count).min();
        failed.get(peer).copied().unwrap_or(0) > least.unwrap_or(0)
    }

    /// G3: a promise that no roster followed, or an attempt that came to nothing, counts against its author.
    pub(super) fn count_failure(&mut self, of: PeerId) {
        let failed = self.slot.failures.of.entry(of).or_default();
        *failed = failed.saturating_add(1);
    }

    /// G2, G9: the promise has waited in vain. Who gave none either owes one.
    pub(super) fn end_wait(&mut self, step: &Step<'_>) -> bool {
        let Some(awaited) = self.slot.term.awaited.filter(|a| step.now >= a.until) else {
            return false;
        };
        self.slot.term.awaited = None;
        self.count_failure(awaited.proposer);
        self.count_debts(step, awaited.attempt);
        true
    }

    /// G9: voters that are here and have not answered the question of that attempt.
    pub(super) fn count_debts(&mut self, step: &Step<'_>, attempt: u64) {
        let answered = &self.slot.term.answered;
        let owes = |peer: &PeerId| answered.get(peer).is_none_or(|highest| *highest < attempt);
        let here = self.live(step, Question::Answers).map(|(peer, _)| *peer);
        let owing: Vec<PeerId> = here.filter(|p| self.names_voter(p) && owes(p)).collect();
        owing.into_iter().for_each(|peer| self.slot.debts.owe(peer, step.now));
    }

    pub(super) fn status(&self, attempt: u64) -> Status {
        let forced = self.slot.forced.as_ref().map(|forced| &forced.update);
        Status {
            series: self.series(),
            log: self.me.log,
            attempt,
            done: self.highest_done(),
            holds_forced: forced.is_some_and(|update| self.slot.held.contains(update)),
        }
    }

    pub(super) fn report(&self, step: &Step<'_>, attempt: u64) -> Report {
        let present = |v: &&Voter| self.present(step, v);
        Report {
            series: self.series(),
            attempt,
            chunks: self.finished(),
            ready: self.slot.frozen.map(|frozen| (self.me.incarnation, frozen.weight)),
            present: self.voters().iter().filter(present).map(|v| v.peer).collect(),
        }
    }
}
