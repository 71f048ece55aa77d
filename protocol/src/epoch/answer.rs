//! Answering a question: the promise, whose roster it waits for, and who is answered later (R2, G2, G3, G9).

use std::sync::Arc;

use crate::id::{Digest, PeerId};
use crate::message::{Message, Query, Refusal, Report, Roster, Status, Voter};
use crate::output::Output;
use crate::ring::{Order, order};
use crate::step::Step;

use super::attendance::Question;
use super::series::{Awaited, Reply, Stage};
use super::timers::Timer;
use super::{Facts, Rule, State, patience, timers};

impl State {
    /// R2, G2: the answer is a promise, and waits for the roster of whoever asked; a higher question does not wait.
    pub(super) fn on_query(&mut self, step: &mut Step<'_>, from: PeerId, query: &Query) {
        let attempt = query.attempt;
        if attempt < 2 || self.behind || self.leaving.is_some() || self.decided().is_some() {
            return;
        }
        self.slot.failures.of.entry(from).or_default();
        if attempt < self.promised()
            || is_first_due(self.facts(step))
            || asks_before(self.facts(step), &from, attempt)
            || is_bound_to_another(self.facts(step), &from, attempt)
        {
            if self.may_reply(step, from, Reply::Query) {
                self.refuse(step, from, Digest::ZERO, Refusal::Promised);
            }
            return;
        }
        for peer in query.lost.iter().filter(|peer| step.roll.peers.contains_key(peer)) {
            self.slot.lost.hear_of(step, *peer);
        }
        self.slot.series.asking.take_if(|asking| asking.attempt <= attempt);
        // Who asks again, or for more, does not have longer for it.
        let awaited = self.slot.series.awaited.filter(|a| a.proposer == from);
        let awaited = awaited.filter(|_| !timers::is_over(self.facts(step), Timer::Roster));
        let again = awaited.is_some_and(|awaited| awaited.attempt == attempt);
        if running(self.facts(step)).is_some_and(|roster| roster.attempt < attempt) {
            self.count_failure(from);
        }
        self.promise(step, attempt);
        let whole = step.now + self.facts(step).ask_time() + self.facts(step).accept_time();
        let until = awaited.map_or(whole, |awaited| awaited.until);
        self.slot.series.awaited = Some(Awaited { proposer: from, attempt, until });
        if let Stage::Recover { since, .. } = &mut self.slot.series.stage {
            *since = until.min(*since);
        }
        let status = self.seal(Message::Status(status(self.facts(step), attempt)));
        // Everybody sees who answers (G9); who asks again may not have.
        if self.is_voter() && !again {
            step.put(Output::Gossip(status));
        } else {
            step.put(Output::Send(from, status));
        }
        if let Some(vote) = self.highest_done() {
            self.prove(step, from, &vote);
        }
        step.put(Output::Send(from, self.seal(Message::Report(report(self.facts(step), attempt)))));
    }

    /// G3: a promise that no roster followed, or an attempt that came to nothing, counts against its author.
    pub(super) fn count_failure(&mut self, of: PeerId) {
        let failed = self.slot.failures.of.entry(of).or_default();
        *failed = failed.saturating_add(1);
    }

    /// G2, G9: the promise has waited in vain. Who gave none either owes one.
    pub(super) fn end_wait(&mut self, step: &Step<'_>) -> bool {
        let Some(awaited) =
            self.slot.series.awaited.filter(|_| timers::is_over(self.facts(step), Timer::Roster))
        else {
            return false;
        };
        self.slot.series.awaited = None;
        self.count_failure(awaited.proposer);
        self.count_debts(step, awaited.attempt);
        true
    }

    /// G9: voters that are here and have not answered the question of that attempt.
    pub(super) fn count_debts(&mut self, step: &Step<'_>, attempt: u64) {
        let answered = &self.slot.series.answered;
        let owes = |peer: &PeerId| answered.get(peer).is_none_or(|highest| *highest < attempt);
        let here = self.facts(step).live(Question::Answers).map(|(peer, _)| *peer);
        let owing: Vec<PeerId> = here.filter(|p| self.names_voter(p) && owes(p)).collect();
        owing.into_iter().for_each(|peer| self.slot.debts.owe(peer, step.now));
    }
}

/// G2: whether the first attempt of the epoch still comes: nobody has to ask before it, nor while those
/// whose turn it may be propose it.
fn is_first_due(facts: Facts<'_>) -> bool {
    let idle = matches!(facts.slot.series.stage, Stage::Idle { .. });
    let turns =
        facts.slot.series.turn_since.is_some_and(|at| facts.step.now < at + facts.ask_time());
    let waits = || patience::is_too_early(facts) && patience::patience_left(facts).is_some();
    idle && facts.slot.is_untouched(&facts.me.peer) && facts.keeps(Rule::G2) && (turns || waits())
}

/// R38, G3: a roster that runs is disturbed by its own proposer, and by a member of its ring, which may lack an Accept
/// without knowing that others have it, unless it has failed more often than others.
fn is_bound_to_another(facts: Facts<'_>, peer: &PeerId, attempt: u64) -> bool {
    let may = || !facts.keeps(Rule::G3) || !has_failed_more(facts, peer);
    running(facts).is_some_and(|roster| {
        let member = roster.ring().any(|m| m.peer == *peer);
        roster.attempt < attempt && roster.proposer != *peer && !(member && may())
    })
}

/// The roster under way, before its deadline.
fn running<'a>(facts: Facts<'a>) -> Option<&'a Arc<Roster>> {
    match &facts.slot.series.stage {
        Stage::Open { roster, .. } if !timers::is_over(facts, Timer::Stage) => {
            facts.state.slot.roster(roster)
        }
        _ => None,
    }
}

/// G3: whether a peer has asked or proposed in vain more often than an alive voter that has done either.
fn has_failed_more(facts: Facts<'_>, peer: &PeerId) -> bool {
    let failed = &facts.slot.failures.of;
    let alive =
        |other: &PeerId| *other == facts.me.peer || facts.step.roll.alive(other, facts.step.now);
    let least = failed.iter().filter(|(p, _)| alive(p)).map(|(_, count)| *count).min();
    failed.get(peer).copied().unwrap_or(0) > least.unwrap_or(0)
}

pub(super) fn report(facts: Facts<'_>, attempt: u64) -> Report {
    let present = |v: &&Voter| facts.present(v);
    Report {
        series: facts.series(),
        attempt,
        chunks: facts.slot.finished(),
        ready: facts.slot.frozen.map(|frozen| (facts.me.incarnation, frozen.weight)),
        present: facts.voters().iter().filter(present).map(|v| v.peer).collect(),
    }
}

/// Of two who ask at once for the same attempt, the one whose turn comes first goes on alone: this is
/// ours.
fn asks_before(facts: Facts<'_>, peer: &PeerId, attempt: u64) -> bool {
    let same = facts.slot.series.asking.as_ref().is_some_and(|a| a.attempt == attempt);
    let (run, parent) = (&facts.law.run, &facts.series().parent);
    let turn = |peer: &PeerId| order(Order::Turn, run, parent, attempt, peer);
    same && turn(&facts.me.peer) < turn(peer)
}

pub(super) fn status(facts: Facts<'_>, attempt: u64) -> Status {
    let forced = facts.slot.forced.as_ref().map(|forced| &forced.update);
    Status {
        series: facts.series(),
        log: facts.me.log,
        attempt,
        done: facts.highest_done(),
        holds_forced: forced.is_some_and(|update| facts.slot.held.contains(update)),
    }
}
