//! Proposing: turns, the question before a higher attempt, the choice of the value, the roster
//! (R7–R9, R35, R36).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::fault::Fault;
use crate::id::{Digest, PeerId};
use crate::lineage::Me;
use crate::message::{
    CHUNKS_MAX, Heard, Keep, MEMBERS_MAX, Member, Message, Query, Ranked, Receipt, Report, Roster,
    Status, Voted, Voter,
};
use crate::output::Output;
use crate::ring::{Order, order};
use crate::sign::Verified;
use crate::step::{Decision, Step};

use super::attendance::Question;
use super::seats::seat;
use super::slot::Declared;
use super::term::{Adopted, Asking, Stage};
use super::{Rule, State};

impl State {
    /// R36: attempt 1 asks nobody. It waits for everyone alive in this series, and for voters that
    /// are still on their way into it, at most for the grace.
    pub(super) fn propose_first(&mut self, step: &mut Step<'_>) -> bool {
        let idle = matches!(self.slot.term.stage, Stage::Idle { patience: None });
        let able = !self.behind && self.leaving.is_none() && self.promised() <= 1;
        let votes = self.is_voter() || !self.keeps(Rule::G1);
        // The cheapest first: most messages come while somebody still trains.
        let due = idle && able && votes && !self.is_too_early(step) && self.majority_present(step);
        let due = due && !self.awaits_news(step);
        if !due {
            self.slot.term.turn_since = None;
            return false;
        }
        let since = *self.slot.term.turn_since.get_or_insert(step.now);
        if step.now < since + self.turn(step, 1) {
            return false;
        }
        let adopt = self.slot.forced.clone();
        self.propose(step, 1, Vec::new(), Value { adopt, keep: Vec::new() })
    }

    /// R7: asks for `Status(k)` when a higher attempt is due and the turn is ours.
    pub(super) fn ask(&mut self, step: &mut Step<'_>) -> bool {
        let Stage::Recover { attempt, since } = self.slot.term.stage else { return false };
        let able = !self.behind && self.leaving.is_none() && self.slot.term.asking.is_none();
        // G1: nobody reads a question of who has no vote.
        let able = able && (self.is_voter() || !self.keeps(Rule::G1));
        if !able
            || self.voters().is_empty()
            || !self.majority_present(step)
            || self.said_goodbye()
            || self.awaits_news(step)
        {
            return false;
        }
        // G6: a high number is no reason to hurry.
        if self.keeps(Rule::G6) && self.is_untouched() && self.is_too_early(step) {
            return false;
        }
        let attempt = attempt.max(self.slot.term.attempt_seen.saturating_add(1)).max(2);
        if step.now < since + self.turn(step, attempt) {
            return false;
        }
        if attempt > ATTEMPTS_MAX && !self.slot.term.stuck_told {
            self.slot.term.stuck_told = true;
            let (epoch, attempts) = (self.series().epoch, attempt);
            step.put(Output::Event(crate::event::Event::Stuck { epoch, attempts }));
        }
        let lost = self.slot.lost.all(step).take(MEMBERS_MAX).copied();
        let query = Query { series: self.series(), attempt, lost: lost.collect() };
        let query = self.seal(Message::Query(query));
        self.promise(step, attempt);
        let (mut statuses, mut reports) = (BTreeMap::new(), BTreeMap::new());
        if self.is_voter() {
            let status = self.status(attempt);
            let sealed = self.seal(Message::Status(status));
            statuses.insert(self.me.peer, (status, sealed.signature()));
            reports.insert(self.me.peer, self.report(step, attempt));
            step.put(Output::Gossip(sealed));
        }
        for (peer, _) in step.roll.live_in(self.series(), step.now) {
            step.put(Output::Send(*peer, Arc::clone(&query)));
        }
        let until = step.now + self.ask_time(step);
        self.slot.term.repeat_at = step.now + self.repeat_interval(step);
        self.slot.term.asking = Some(Asking { attempt, until, statuses, reports, query });
        true
    }

    pub(super) fn on_status(
        &mut self,
        step: &mut Step<'_>,
        message: &Verified<Message>,
        status: &Status,
    ) {
        let from = message.author();
        let possible = |vote: &Ranked| vote.depth <= self.depth() && vote.attempt <= status.attempt;
        if !status.done.as_ref().is_none_or(possible) {
            step.put(Output::Fault(from, Fault::Done("a vote that nobody can have given")));
            return;
        }
        if self.names_voter(&from) {
            let highest = self.slot.term.answered.entry(from).or_default();
            *highest = status.attempt.max(*highest);
            self.slot.debts.pay(&from);
        }
        self.slot.lost.answers(&from);
        if let Some(asking) = &mut self.slot.term.asking
            && asking.attempt == status.attempt
            && asking.statuses.len() < MEMBERS_MAX
        {
            asking.statuses.insert(from, (*status, message.signature()));
        }
    }

    /// What goes with the Status of `from`.
    pub(super) fn on_report(&mut self, step: &mut Step<'_>, from: PeerId, report: &Report) {
        if report.chunks.len() > CHUNKS_MAX {
            step.put(Output::Fault(from, Fault::Answer("more chunks than rings have")));
            return;
        }
        self.slot.lost.answers(&from);
        if let Some((incarnation, weight)) = report.ready {
            let known = self.slot.ready.get(&from).map_or(0, |known| known.incarnation);
            if incarnation > known && self.can_weigh(weight) {
                let declared = Declared { incarnation, weight, at: step.now };
                self.slot.ready.insert(from, declared);
            }
        }
        if let Some(asking) = &mut self.slot.term.asking
            && asking.attempt == report.attempt
            && asking.reports.len() < MEMBERS_MAX
        {
            asking.reports.insert(from, report.clone());
        }
    }

    /// Proposes once all alive have answered, or the time is over and a majority has.
    pub(super) fn finish_asking(&mut self, step: &mut Step<'_>) -> bool {
        let Some(asking) = &self.slot.term.asking else { return false };
        let (grounds, attempt, until) = (&self.slot.grounds, asking.attempt, asking.until);
        let known = |p: &PeerId| {
            let answered = asking.status(grounds, p).is_some() && asking.reports.contains_key(p);
            answered || self.slot.lost.confirms(step, p)
        };
        let answered = self.live(step, Question::Answers).all(|(p, _)| known(p));
        if !answered && step.now < until {
            return false;
        }
        let heard = self.voters().iter().filter_map(|voter| asking.heard(grounds, voter)).collect();
        let heard = self.without_liars(step, self.without_mute(heard), attempt);
        let names = |v: &Voter| heard.iter().any(|heard| heard.voter == *v);
        if !self.law.quorum.holds(self.voters(), names) && self.keeps(Rule::R7) {
            if answered && step.now < until {
                return false;
            }
            self.slot.term.asking = None;
            self.slot.failures.count_here();
            self.count_debts(step, attempt);
            let attempt = attempt.saturating_add(1);
            self.slot.term.stage = Stage::Recover { attempt, since: step.now };
            return true;
        }
        let Some(asking) = self.slot.term.asking.take() else { return false };
        let adopt = self.choose(&asking, &heard);
        let free = adopt.is_none();
        let keep = if free { self.choose_keep(attempt, &asking.reports) } else { Vec::new() };
        if !self.propose(step, attempt, heard, Value { adopt, keep }) {
            let since = step.now + NOBODY_READY_WAIT;
            self.slot.term.stage = Stage::Recover { attempt: attempt.saturating_add(1), since };
        }
        true
    }

    /// R8: whether it votes for what it does not deliver.
    pub(super) fn withholds(&self, peer: &PeerId) -> bool {
        let missing = |(update, adopted): (&Digest, &Adopted)| {
            adopted.missed && adopted.from.contains(peer) && !self.slot.held.is_here(update)
        };
        self.slot.term.adopted.iter().any(missing)
    }

    /// R8: who withholds what it votes for is not heard, where the rest is a majority.
    fn without_mute(&self, heard: Vec<Heard>) -> Vec<Heard> {
        let delivers = |h: &&Heard| !self.withholds(&h.voter.peer);
        let rest: Vec<Heard> = heard.iter().filter(delivers).copied().collect();
        let names = |v: &Voter| rest.iter().any(|heard| heard.voter == *v);
        if self.law.quorum.holds(self.voters(), names) { rest } else { heard }
    }

    /// R8: the highest Done heard; else the forced value, if its bytes are held; else free.
    fn choose(&mut self, asking: &Asking, heard: &[Heard]) -> Option<Receipt> {
        let dones = heard.iter().filter_map(|heard| heard.done);
        let highest = if self.keeps(Rule::R8) { dones.max() } else { dones.min() };
        if let Some(receipt) =
            highest.and_then(|vote| self.slot.grounds.get(&vote)).map(Voted::receipt)
        {
            let same =
                |status: &Status| status.done.map(|vote| vote.r) == highest.map(|vote| vote.r);
            let authors = asking.statuses.iter().filter(|(_, (status, _))| same(status));
            if self.slot.term.adopted.len() < MEMBERS_MAX {
                let adopted = self.slot.term.adopted.entry(receipt.update).or_default();
                adopted.from.extend(authors.map(|(peer, _)| *peer));
            }
            return Some(receipt);
        }
        let holds = heard.iter().any(|heard| heard.holds_forced);
        self.slot.forced.clone().filter(|_| holds)
    }

    /// Makes the roster, gossips it, and accepts it ourselves. False if nobody can compute.
    fn propose(
        &mut self,
        step: &mut Step<'_>,
        attempt: u64,
        heard: Vec<Heard>,
        Value { adopt, keep }: Value,
    ) -> bool {
        let members = self.compose(step, attempt);
        let (members, trust) = self.admitted(step, members, adopt.as_ref());
        let keep = self.without_revoked(keep);
        let idle = !members.iter().any(|m| m.weight > 0);
        if (adopt.is_none() && idle) || !members.iter().any(|m| m.peer == self.me.peer) {
            return false;
        }
        let proposer = self.me.peer;
        let series = self.series();
        let mut roster = Roster { series, attempt, proposer, members, heard, adopt, trust, keep };
        self.fit(&mut roster);
        if self.check_roster(proposer, &roster).is_err() {
            return false;
        }
        let message = self.seal(Message::Roster(roster.clone()));
        let said = step.out.len();
        self.on_roster(step, &message, &roster);
        // What we would not accept ourselves is never said.
        let accepted = matches!(self.slot.term.stage, Stage::Open { .. });
        if accepted {
            step.out.insert(said, Decision::Out(Output::Gossip(message)));
            self.prove_to_all(step, &roster);
        } else {
            step.out.truncate(said);
        }
        accepted
    }

    /// Every voter that is present, and some newcomers (G5): first the ring in its order, then voters
    /// without a place (R36). The first one is a voter (G7).
    fn compose(&self, step: &Step<'_>, attempt: u64) -> Vec<Member> {
        let sits_out = self.sits_out(step, attempt, &self.me.peer);
        let idle = sits_out || self.is_going(&self.me.peer);
        let weight = if idle { 0 } else { self.frozen_weight() };
        let Me { peer, log, incarnation } = self.me;
        let me = Member { peer, log, incarnation, weight };
        let key =
            |m: &Member| order(Order::Ring, &self.law.run, &self.series().parent, attempt, &m.peer);
        let is_voter = |m: &Member| self.voters().contains(&m.voter());
        let mut voters = self.present_voters(step, attempt);
        voters.extend([me].into_iter().filter(is_voter));
        voters.sort_by_cached_key(|m| (m.peer != self.me.peer, key(m)));
        voters.truncate(MEMBERS_MAX);
        let others = self.live(step, Question::TakesPart);
        let others = others.map(|(peer, seen)| self.member(step, attempt, peer, seen));
        let guests = others.chain([me]).filter(|m| m.weight > 0 && !is_voter(m)).collect();
        let mut guests = self.choose_guests(step, attempt, &voters, guests);
        guests.truncate(MEMBERS_MAX - voters.len());
        let (mut ring, mut idle): (Vec<_>, Vec<_>) = voters.into_iter().partition(|m| m.weight > 0);
        ring.extend(guests);
        ring.sort_by_cached_key(key);
        let apart = self.apart(step, &ring);
        let (mut ring, without_place) = seat(ring, |member| !is_voter(member), &apart);
        idle.extend(without_place.into_iter().filter(is_voter).map(|m| Member { weight: 0, ..m }));
        idle.sort_by_cached_key(key);
        match ring.iter().position(is_voter) {
            Some(first) => {
                ring.rotate_left(first);
                ring.into_iter().chain(idle).collect()
            }
            None => idle.into_iter().chain(ring).collect(),
        }
    }

    /// R40: once rings stall and nobody knows at whom, an even attempt tries one half, and the odd one
    /// after it the other. Who sits out carries what it learnt.
    pub(super) fn sits_out(&self, step: &Step<'_>, attempt: u64, peer: &PeerId) -> bool {
        let key = |k| order(Order::Ring, &self.law.run, &self.series().parent, k, peer);
        let in_vain = self.slot.term.stalled as usize + self.slot.lost.spoilt(step);
        in_vain >= STALLS && u64::from(key(attempt & !1).0[31] & 1) == attempt & 1
    }

    /// The weight of our frozen delta; 0 while there is none.
    pub(super) fn frozen_weight(&self) -> u64 {
        self.slot.frozen.map_or(0, |frozen| frozen.weight)
    }
}

/// What a roster is to decide: a value again, or a new one, of which some chunks may be there.
struct Value {
    adopt: Option<Receipt>,
    keep: Vec<Keep>,
}

/// A higher attempt that finds nobody Ready waits this long; guess: a few turns.
const NOBODY_READY_WAIT: Duration = Duration::from_millis(500);

/// Attempts of one series after which people are told (R39).
const ATTEMPTS_MAX: u64 = 256;

/// Rings of an epoch that may stall before half of the members sit out: one may have had bad luck.
const STALLS: usize = 2;
