//! Proposing: turns, the Query before a higher attempt, the choice of the value, the roster (R7–R9,
//! R35, R36).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::fault::{AnswerFault, DoneFault, Fault};
use crate::base::id::PeerId;
use crate::base::rule::Rule;
use crate::base::sign::Verified;
use crate::machine::output::Output;
use crate::machine::step::{Decision, Step};
use crate::message::{
    CHUNKS_MAX, Heard, Keep, MEMBERS_MAX, Message, Query, Ranked, Receipt, Report, Roster, Status,
    Voted, Voter,
};

use super::attendance::Question;
use super::conduct::Amends;
use super::series::{Asking, Stage};
use super::slot::Declared;
use super::timers::Timer;
use super::{State, acceptor, founders, patience, roster, salvage, timers, turns};

impl State {
    /// R36: proposes attempt 1, which asks nobody. It waits for all live peers of this series, and
    /// for voters that are still on their way into it, at most for the grace.
    pub(super) fn propose_first(&mut self, step: &mut Step<'_>) -> bool {
        let idle = matches!(self.slot.series.stage, Stage::Idle { patience: None });
        let able = !self.behind && self.leaving.is_none() && self.promised() <= 1;
        let votes = self.is_voter() || !self.keeps(Rule::G1);
        // The cheapest conditions first: most messages come while peers still train.
        let due = idle
            && able
            && votes
            && !patience::is_too_early(self.facts(step))
            && self.facts(step).has_majority();
        let due = due && !founders::awaits_news(self.facts(step));
        if !due {
            self.slot.series.turn_since = None;
            return false;
        }
        self.slot.series.turn_since.get_or_insert(step.now);
        if !timers::is_over(self.facts(step), Timer::FirstTurn) {
            return false;
        }
        let adopt = self.slot.forced.clone();
        self.propose(step, 1, Vec::new(), Value { adopt, keep: Vec::new() })
    }

    /// R7: asks for `Status(k)` once we have come to an attempt k that is ours.
    pub(super) fn ask(&mut self, step: &mut Step<'_>) -> bool {
        let Stage::Recover { attempt, .. } = self.slot.series.stage else { return false };
        let asks = self.slot.series.asking.is_none() && attempt >= self.promised();
        if !asks || !turns::is_ours(self.facts(step), attempt) || !self.may_go_on(step) {
            return false;
        }
        let lost = self.conduct.lost(step).take(MEMBERS_MAX).copied();
        let query = Query { series: self.series(), attempt, lost: lost.collect() };
        let query = self.seal(Message::Query(query));
        self.promise(step, attempt);
        let (mut statuses, mut reports) = (BTreeMap::new(), BTreeMap::new());
        if self.is_voter() {
            let status = acceptor::status(self.facts(step), attempt);
            let sealed = self.seal(Message::Status(status));
            statuses.insert(self.me.peer, (status, sealed.signature()));
            reports.insert(self.me.peer, acceptor::report(self.facts(step), attempt));
            step.put(Output::Gossip(sealed));
        }
        for (peer, _) in step.table.live_in(self.series(), step.now) {
            step.put(Output::Send(*peer, Arc::clone(&query)));
        }
        let until = step.now + self.facts(step).ask_time();
        self.slot.series.repeat_at = step.now + self.facts(step).repeat_interval();
        self.slot.series.asking = Some(Asking { attempt, until, statuses, reports, query });
        true
    }

    pub(super) fn on_status(
        &mut self,
        step: &mut Step<'_>,
        message: &Verified<Message>,
        status: &Status,
    ) {
        let from = message.author();
        let possible = |v: &Ranked| v.depth <= self.slot.depth() && v.attempt <= status.attempt;
        if !status.done.as_ref().is_none_or(possible) {
            step.put(Output::Fault(from, Fault::Done(DoneFault::Impossible)));
            return;
        }
        if self.names_voter(&from) {
            let highest = self.slot.series.answered.entry(from).or_default();
            *highest = status.attempt.max(*highest);
            self.conduct.clear(&from, Amends::Reply);
        }
        self.note_reached(from, status.attempt);
        self.conduct.clear(&from, Amends::Query);
        if let Some(asking) = &mut self.slot.series.asking
            && asking.attempt == status.attempt
            && asking.statuses.len() < MEMBERS_MAX
        {
            asking.statuses.insert(from, (*status, message.signature()));
        }
    }

    /// Stores the Report that goes with the Status of `from`.
    pub(super) fn on_report(&mut self, step: &mut Step<'_>, from: PeerId, report: &Report) {
        if report.chunks.len() > CHUNKS_MAX {
            step.put(Output::Fault(from, Fault::Answer(AnswerFault::ManyChunks)));
            return;
        }
        self.conduct.clear(&from, Amends::Query);
        if let Some((incarnation, weight)) = report.ready {
            let known = self.slot.ready.get(&from).map_or(0, |known| known.incarnation);
            if incarnation > known && self.can_weigh(weight) {
                let declared = Declared { incarnation, weight, at: step.now };
                self.slot.ready.insert(from, declared);
            }
        }
        if let Some(asking) = &mut self.slot.series.asking
            && asking.attempt == report.attempt
            && asking.reports.len() < MEMBERS_MAX
        {
            asking.reports.insert(from, report.clone());
        }
    }

    /// Proposes once all live peers have answered, or once the time is over and a majority has
    /// answered.
    pub(super) fn finish_asking(&mut self, step: &mut Step<'_>) -> bool {
        let Some(asking) = &self.slot.series.asking else { return false };
        let (grounds, attempt) = (&self.slot.grounds, asking.attempt);
        let over = timers::is_over(self.facts(step), Timer::Answers);
        let known = |p: &PeerId| {
            let answered = asking.status(grounds, p).is_some() && asking.reports.contains_key(p);
            answered || self.conduct.is_confirmed_lost(step, p)
        };
        let answered = self.facts(step).live(Question::Answers).all(|(p, _)| known(p));
        if !answered && !over {
            return false;
        }
        let heard = self.voters().iter().filter_map(|voter| asking.heard(grounds, voter)).collect();
        let heard =
            self.name_liars(step, roster::without_withholding(self.facts(step), heard), attempt);
        let names = |v: &Voter| heard.iter().any(|heard| heard.voter == *v);
        if !self.validator.quorum.holds(self.voters(), names) && self.keeps(Rule::R7) {
            if answered && !over {
                return false;
            }
            self.slot.series.asking = None;
            self.end_wait(step, attempt);
            return true;
        }
        let Some(asking) = self.slot.series.asking.take() else { return false };
        let adopt = self.choose(&asking, &heard);
        let keep = match &adopt {
            None => salvage::choose_keep(self.facts(step), attempt, &asking.reports),
            Some(_) => Vec::new(),
        };
        if !self.propose(step, attempt, heard, Value { adopt, keep }) {
            self.await_attempt(step, attempt.saturating_add(1));
        }
        true
    }

    /// R8: the highest Done heard; else the forced value, if its bytes are held; else free.
    fn choose(&mut self, asking: &Asking, heard: &[Heard]) -> Option<Receipt> {
        let dones = heard.iter().filter_map(|heard| heard.done);
        let highest = if self.keeps(Rule::R8) { dones.max() } else { dones.min() };
        let voted = highest.and_then(|vote| self.slot.grounds.get(&vote));
        if let Some(receipt) = voted.map(Voted::receipt) {
            let same =
                |status: &Status| status.done.map(|vote| vote.r) == highest.map(|vote| vote.r);
            let authors = asking.statuses.iter().filter(|(_, (status, _))| same(status));
            if self.slot.series.adopted.len() < MEMBERS_MAX {
                let adopted = self.slot.series.adopted.entry(receipt.update).or_default();
                adopted.from.extend(authors.map(|(peer, _)| *peer));
            }
            return Some(receipt);
        }
        let holds = heard.iter().any(|heard| heard.holds_forced);
        if holds { self.slot.forced.clone() } else { None }
    }

    /// Makes the roster, gossips it, and accepts it ourselves. Returns false if no member can
    /// compute.
    fn propose(
        &mut self,
        step: &mut Step<'_>,
        attempt: u64,
        heard: Vec<Heard>,
        Value { adopt, keep }: Value,
    ) -> bool {
        let members = roster::compose(self.facts(step), attempt);
        let (members, trust) = self.admitted(step, members, adopt.as_ref());
        let keep = self.without_revoked(keep);
        let idle = !members.iter().any(|m| m.weight > 0);
        if (adopt.is_none() && idle) || !members.iter().any(|m| m.peer == self.me.peer) {
            return false;
        }
        let proposer = self.me.peer;
        let series = self.series();
        let mut roster = Roster { series, attempt, proposer, members, heard, adopt, trust, keep };
        salvage::fit(self.facts(step), &mut roster);
        if roster::check_roster(self.facts(step), proposer, &roster).is_err() {
            return false;
        }
        let message = self.seal(Message::Roster(roster.clone()));
        let said = step.out.len();
        self.on_roster(step, &message, &roster);
        // What we would not accept ourselves is not sent.
        let accepted = matches!(self.slot.series.stage, Stage::Open { .. });
        if accepted {
            step.out.insert(said, Decision::Out(Output::Gossip(message)));
            self.prove_to_all(step, &roster);
        } else {
            step.out.truncate(said);
        }
        accepted
    }
}

/// What a roster decides on: a known value again, or a new one, of which some chunks may exist.
struct Value {
    adopt: Option<Receipt>,
    keep: Vec<Keep>,
}
