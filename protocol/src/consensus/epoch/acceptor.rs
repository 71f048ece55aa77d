//! What a voter promises, accepts and answers, bound by its log of votes (R1–R4, G2, G3, G9, G14).

use std::sync::Arc;

use crate::base::fault::{DoneFault, Fault, RosterFault};
use crate::base::id::{Digest, PeerId};
use crate::base::rule::Rule;
use crate::base::sign::Verified;
use crate::history::log::Record;
use crate::machine::event::{Event, Progress, Reason};
use crate::machine::output::Output;
use crate::machine::step::Step;
use crate::message::wire;
use crate::message::{
    Ground, Heard, MEMBERS_MAX, Message, Opened, Prepared, Query, Ranked, Refusal, Report, Roster,
    Status, Voter,
};
use crate::ring::Order;
use crate::ring::order;

use super::attendance::Question;
use super::ballot::{Ballot, Vote};
use super::series::{Awaited, Reply, Stage};
use super::timers::Timer;
use super::{Facts, State, patience, roster, salvage, timers};

impl State {
    /// R1: our votes change only by a record that goes to the log.
    pub(super) fn log(&mut self, step: &mut Step<'_>, record: Record) {
        self.assert_lawful(&record);
        self.votes.append(&self.validator.run, &record);
        step.put(Output::Log(record));
    }

    /// S5: one roster per attempt, and nothing below a promise or in a closed series.
    fn assert_lawful(&self, record: &Record) {
        let (series, attempt) = match record {
            Record::Accepted { roster } => (roster.series, roster.attempt),
            Record::Prepared { series, attempt, .. } => (*series, *attempt),
            Record::Voted { voted } => (voted.roster.series, voted.roster.attempt),
            _ => return,
        };
        let bound = self.votes.of(series);
        let again = match record {
            Record::Accepted { .. } => bound.accepted(attempt).is_some(),
            Record::Prepared { .. } => bound.prepared(attempt).is_some(),
            _ => bound.done(attempt).is_some(),
        };
        assert!(attempt >= bound.promised(), "S5: nothing below a promise, or in a closed series");
        let once = !again || !self.keeps(Rule::R3);
        assert!(once, "S5: one roster, one value and one vote per attempt");
    }

    pub(super) fn promised(&self) -> u64 {
        self.votes.of(self.series()).promised()
    }

    /// Promises `attempt` and gives up what lies below it (R2).
    pub(super) fn promise(&mut self, step: &mut Step<'_>, attempt: u64) {
        if self.keeps(Rule::R2) && self.promised() < attempt {
            self.log(step, Record::Promised { series: self.series(), attempt });
        }
        self.slot.series.attempt_seen = self.slot.series.attempt_seen.max(attempt);
        let under_way = match &self.slot.series.stage {
            Stage::Open { roster, .. } => self.slot.roster(roster).map(|r| r.attempt),
            _ => None,
        };
        if under_way.is_some_and(|mine| mine < attempt) {
            self.abort(step, Reason::HigherAttempt);
        }
        let next = attempt.saturating_add(1);
        let wait = self.facts(step).ask_time() + self.facts(step).accept_time();
        match &self.slot.series.stage {
            Stage::Recover { attempt: mine, .. } if *mine > next => {}
            Stage::Idle { .. } | Stage::Recover { .. } => {
                self.slot.series.stage = Stage::Recover { attempt: next, since: step.now + wait };
            }
            _ => {}
        }
        self.slot.series.asking.take_if(|asking| asking.attempt < attempt);
    }

    /// Our highest vote in this series.
    pub(super) fn highest_done(&self) -> Option<Ranked> {
        let voted = self.votes.of(self.series()).dones().next_back()?;
        Some(wire::ranked(&self.validator.run, voted))
    }

    pub(super) fn on_roster(
        &mut self,
        step: &mut Step<'_>,
        message: &Arc<Verified<Message>>,
        roster: &Roster,
    ) {
        let proposer = message.author();
        let checked = roster::check_newcomers(self.facts(step), roster)
            .and_then(|()| roster::check_heard(self.facts(step), roster));
        if let Err(why) = checked {
            step.put(Output::Fault(proposer, Fault::Roster(why)));
            return;
        }
        let digest = wire::roster_digest(&self.validator.run, roster);
        let mine = proposer == self.me.peer;
        if !mine && self.slot.has_proposed_another(digest, roster) {
            return;
        }
        if let Err(why) = self.validator.check_seals(roster) {
            step.put(Output::Fault(proposer, Fault::Roster(why)));
            return;
        }
        Self::learn_notices(step, roster.trust.as_deref());
        let roster = self.note_roster(digest, message, roster);
        self.slot.series.attempt_seen = self.slot.series.attempt_seen.max(roster.attempt);
        self.slot.failures.of.entry(proposer).or_default();
        if self.votes.of(self.series()).accepted(roster.attempt) == Some(digest) {
            if roster::stands_by(self.facts(step), &roster)
                && self.may_reply(step, proposer, Reply::Roster)
            {
                step.put(Output::Send(proposer, self.accept_message(digest)));
            }
            return;
        }
        if self.behind || self.leaving.is_some() || self.decided().is_some() {
            return;
        }
        if roster.member(&self.me.peer).is_none() {
            self.be_patient(step);
            return;
        }
        match self.acceptable(step, digest, &roster) {
            Ok(()) => self.accept(step, digest, &roster),
            Err(reason) => {
                self.be_patient(step);
                self.refuse(step, proposer, digest, reason);
            }
        }
    }

    /// Remembers a roster. Votes on it that came earlier and do not fit it are dropped.
    fn note_roster(
        &mut self,
        digest: Digest,
        message: &Arc<Verified<Message>>,
        roster: &Roster,
    ) -> Arc<Roster> {
        let run = self.validator.run;
        let ballot = self.ballot(digest);
        ballot.signed.get_or_insert_with(|| Arc::clone(message));
        if let Some(known) = &ballot.roster {
            return Arc::clone(known);
        }
        let fits = |vote: &Vote| {
            let receipt = roster.receipt(vote.update);
            receipt.update == vote.update && wire::receipt_digest(&run, &receipt) == vote.r
        };
        ballot.dones.retain(|_, vote| fits(vote));
        let roster = Arc::new(roster.clone());
        ballot.roster = Some(Arc::clone(&roster));
        roster
    }

    /// R3, R4: what only this voter can know.
    fn acceptable(
        &self,
        step: &mut Step<'_>,
        digest: Digest,
        roster: &Roster,
    ) -> Result<(), Refusal> {
        let accepted = self.votes.of(self.series()).accepted(roster.attempt);
        let rival = accepted.is_some_and(|other| other != digest);
        if roster.attempt < self.promised() || (rival && self.keeps(Rule::R3)) {
            return Err(Refusal::Promised);
        }
        let Some(me) = roster.member(&self.me.peer) else { return Err(Refusal::Rule) };
        // Only a member itself knows its weight: another member with a wrong one refuses for
        // itself.
        let weight = self.slot.frozen.map(|frozen| frozen.weight);
        let mine = me.incarnation == self.me.incarnation && Some(me.weight) == weight;
        if me.log != self.me.log || (me.weight > 0 && !mine) {
            return Err(Refusal::Weight);
        }
        salvage::check_kept(self.facts(step), roster)?;
        if roster.attempt == 1 && roster.adopt != self.slot.forced {
            return Err(Refusal::Rule);
        }
        if roster.highest_done().is_some_and(|vote| !self.slot.grounds.knows(&vote)) {
            return Err(Refusal::Unproven);
        }
        let heard = self.name_liars(step, roster.heard.clone(), roster.attempt);
        if heard.len() < roster.heard.len() {
            return Err(Refusal::Rule);
        }
        self.check_trust(step, roster)?;
        if roster.proposer == self.me.peer {
            Ok(())
        } else {
            roster::check_places(self.facts(step), roster)
        }
    }

    pub(super) fn accept(&mut self, step: &mut Step<'_>, digest: Digest, roster: &Arc<Roster>) {
        self.abort(step, Reason::HigherAttempt);
        self.log(step, Record::Accepted { roster: Box::new(roster.as_ref().clone()) });
        self.slot.series.asking.take_if(|asking| asking.attempt <= roster.attempt);
        self.slot.series.turn_since = None;
        let until = step.now + self.facts(step).accept_time_of(roster);
        self.slot.series.awaited = None;
        self.slot.series.stage =
            Stage::Open { roster: digest, progress: Progress::Accepted, until };
        self.slot.series.repeat_at = step.now + self.facts(step).repeat_interval();
        let logged = self.votes.of(roster.series).accepted(roster.attempt);
        assert!(logged == Some(digest), "R1: an Accept is logged before it counts");
        let (me, message) = (self.me.peer, self.accept_message(digest));
        self.ballot(digest).accepts.insert(me, message.signature());
        step.put(Output::Gossip(message));
        step.put(Output::Event(Event::Roster {
            epoch: self.series().epoch,
            attempt: roster.attempt,
            members: roster.members.iter().map(|m| m.peer).collect(),
            adopt: roster.adopt.as_ref().map(|r| wire::receipt_digest(&self.validator.run, r)),
            kept: roster.keep.iter().map(|keep| keep.chunks.len()).sum(),
        }));
    }

    /// R2, G2: answers a Query with a promise, and waits for the roster of its author. A higher
    /// Query is answered meanwhile.
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
        for peer in query.lost.iter().filter(|peer| step.table.peers.contains_key(peer)) {
            self.slot.conduct.note_loss(step, *peer);
        }
        self.slot.series.asking.take_if(|asking| asking.attempt <= attempt);
        // Repeating or raising a query does not extend its lease.
        let over = timers::is_over(self.facts(step), Timer::Roster);
        let awaited = self.slot.series.awaited.filter(|a| a.proposer == from && !over);
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
        // Gossiped, so that all voters see the answer (G9); a repeated Query may mean that its
        // author has not got the answer.
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

    /// G3: a promise that no roster followed, or an attempt that failed, counts against its author.
    pub(super) fn count_failure(&mut self, of: PeerId) {
        let failed = self.slot.failures.of.entry(of).or_default();
        *failed = failed.saturating_add(1);
    }

    /// G2, G9: ends the wait for a roster that did not come. Voters that gave no promise either
    /// have missed a reply.
    pub(super) fn end_wait(&mut self, step: &Step<'_>) -> bool {
        if !timers::is_over(self.facts(step), Timer::Roster) {
            return false;
        }
        let Some(awaited) = self.slot.series.awaited.take() else { return false };
        self.count_failure(awaited.proposer);
        self.count_missed_replies(step, awaited.attempt);
        true
    }

    /// G9: counts the voters that are here and have not answered the Query of that attempt.
    pub(super) fn count_missed_replies(&mut self, step: &Step<'_>, attempt: u64) {
        let answered = &self.slot.series.answered;
        let missed = |peer: &PeerId| answered.get(peer).is_none_or(|highest| *highest < attempt);
        let here = self.facts(step).live(Question::Answers).map(|(peer, _)| *peer);
        let missing: Vec<PeerId> = here.filter(|p| self.names_voter(p) && missed(p)).collect();
        for peer in missing {
            self.slot.missed_replies.note(peer, step.now);
        }
    }

    /// R5: says once that we hold the update of a free roster.
    pub(super) fn prepare(
        &mut self,
        step: &mut Step<'_>,
        digest: Digest,
        roster: &Roster,
        update: Digest,
    ) {
        let (series, attempt, me) = (roster.series, roster.attempt, self.me.peer);
        let said = self.votes.of(series).prepared(attempt);
        let again = self.slot.ballots.get(&digest).is_some_and(|b| b.prepared.contains_key(&me));
        if again || said.is_some_and(|said| said != update) {
            return;
        }
        if said.is_none() {
            self.log(step, Record::Prepared { series, attempt, update });
        }
        let message = self.seal(Message::Prepared(Prepared { series, roster: digest, update }));
        self.ballot(digest).prepared.insert(me, (update, message.signature()));
        step.put(Output::Gossip(message));
    }

    /// R5: a voter says which update of a roster it holds.
    pub(super) fn on_prepared(
        &mut self,
        step: &mut Step<'_>,
        message: &Verified<Message>,
        prepared: &Prepared,
    ) {
        let (from, update) = (message.author(), prepared.update);
        if !self.validator.quorum.prepares() {
            return;
        }
        self.slot.missed_replies.clear(&from);
        let me = self.me.peer;
        let Some(ballot) = self.slot.ballot_voted_on(&me, prepared.roster) else { return };
        match ballot.prepared.get(&from).map(|(said, _)| *said) {
            Some(said) if said != update => {
                step.put(Output::Fault(from, Fault::Done(DoneFault::HoldsTwo)));
            }
            Some(_) => {
                let mine = ballot.prepared.get(&me).map(|(update, _)| *update);
                if let Some(update) = mine
                    && self.may_reply(step, from, Reply::Prepared)
                {
                    let (series, roster) = (self.series(), prepared.roster);
                    let mine = Prepared { series, roster, update };
                    step.put(Output::Send(from, self.seal(Message::Prepared(mine))));
                }
            }
            None if ballot.prepared.len() < MEMBERS_MAX => {
                ballot.prepared.insert(from, (update, message.signature()));
            }
            None => {}
        }
    }

    /// R8: a voter proves a vote, its own or one that it has heard of.
    pub(super) fn on_ground(&mut self, step: &mut Step<'_>, from: PeerId, ground: &Ground) {
        let vote = wire::ranked(&self.validator.run, &ground.voted);
        if self.slot.grounds.knows(&vote) {
            return;
        }
        if !self.validator.has_ground(&self.slot.chain(), &ground.voted) {
            step.put(Output::Fault(from, Fault::Done(DoneFault::NoGround)));
            return;
        }
        self.slot.grounds.insert(vote, ground.voted.clone());
        self.recheck_rosters(step, |roster| roster.highest_done() == Some(vote));
    }

    /// R32: a voter proves that a ring opened of which its roster keeps chunks.
    pub(super) fn on_opened(&mut self, step: &mut Step<'_>, from: PeerId, opened: &Opened) {
        let digest = wire::roster_digest(&self.validator.run, &opened.roster);
        if salvage::has_opened(self.facts(step), &digest) {
            return;
        }
        if !self.validator.has_opened(&self.slot.chain(), opened) {
            step.put(Output::Fault(from, Fault::Roster(RosterFault::NeverOpened)));
            return;
        }
        let ballot = self.ballot(digest);
        ballot.roster.get_or_insert_with(|| Arc::new(opened.roster.clone()));
        for (peer, signature) in &opened.accepts {
            ballot.accepts.entry(*peer).or_insert(*signature);
        }
        self.recheck_rosters(step, |roster| roster.keep.iter().any(|keep| keep.roster == digest));
    }

    /// Checks once more the highest of the rosters that came before what proves them.
    fn recheck_rosters(&mut self, step: &mut Step<'_>, rests: impl Fn(&Roster) -> bool) {
        let rests = |ballot: &&Ballot| ballot.roster.as_deref().is_some_and(&rests);
        let waiting = self.slot.ballots.values().filter(rests);
        let highest = waiting.max_by_key(|ballot| ballot.attempt());
        let message = highest.and_then(|ballot| ballot.signed.clone());
        if let Some(message) = message
            && let Message::Roster(roster) = message.body()
        {
            self.on_roster(step, &message, roster);
        }
    }

    /// G14: the voters heard that do not contradict themselves; the others get a fault.
    pub(super) fn name_liars(
        &self,
        step: &mut Step<'_>,
        heard: Vec<Heard>,
        attempt: u64,
    ) -> Vec<Heard> {
        let (rest, liars) = roster::without_liars(self.facts(step), heard, attempt);
        for liar in liars {
            let why = DoneFault::Hidden;
            step.put(Output::Fault(liar.voter.peer, Fault::Done(why)));
        }
        rest
    }
}

/// G2: whether the first attempt of the epoch is still to come. Nobody has to ask before it, nor
/// while the peers whose turn it may be propose it.
fn is_first_due(facts: Facts<'_>) -> bool {
    let idle = matches!(facts.slot.series.stage, Stage::Idle { .. });
    let turns =
        facts.slot.series.turn_since.is_some_and(|at| facts.step.now < at + facts.ask_time());
    let waits = || patience::is_too_early(facts) && patience::patience_left(facts).is_some();
    idle && facts.slot.is_untouched(&facts.me.peer) && facts.keeps(Rule::G2) && (turns || waits())
}

/// R38, G3: whether a running roster binds us against this peer. A member of its ring may end it, for
/// it may lack an Accept that others have, unless it has failed more often than others. So may its
/// proposer, a few times more often.
fn is_bound_to_another(facts: Facts<'_>, peer: &PeerId, attempt: u64) -> bool {
    running(facts).is_some_and(|roster| {
        let member = roster.ring().any(|m| m.peer == *peer);
        let most = if roster.proposer == *peer { Some(OWN_ENDS_MAX) } else { member.then_some(0) };
        let may =
            most.is_some_and(|most| !facts.keeps(Rule::G3) || failed_more(facts, peer) <= most);
        roster.attempt < attempt && !may
    })
}

/// How many more failures than others a proposer may have that ends its own running rosters.
const OWN_ENDS_MAX: u32 = 2;

/// The roster under way, before its deadline.
fn running<'a>(facts: Facts<'a>) -> Option<&'a Arc<Roster>> {
    match &facts.slot.series.stage {
        Stage::Open { roster, .. } if !timers::is_over(facts, Timer::Stage) => {
            facts.state.slot.roster(roster)
        }
        _ => None,
    }
}

/// G3: how many more failures, of Queries or rosters, a peer has than the live voter with the fewest
/// of those that have sent any.
fn failed_more(facts: Facts<'_>, peer: &PeerId) -> u32 {
    let failed = &facts.slot.failures.of;
    let alive = |p: &PeerId| *p == facts.me.peer || facts.step.table.alive(p, facts.step.now);
    let least = failed.iter().filter(|(p, _)| alive(p)).map(|(_, count)| *count).min();
    failed.get(peer).copied().unwrap_or(0).saturating_sub(least.unwrap_or(0))
}

/// Whether we ask for this very attempt as well, and our turn comes before theirs: then we alone go
/// on.
fn asks_before(facts: Facts<'_>, peer: &PeerId, attempt: u64) -> bool {
    let same = facts.slot.series.asking.as_ref().is_some_and(|a| a.attempt == attempt);
    let (run, parent) = (&facts.validator.run, &facts.series().parent);
    let turn = |peer: &PeerId| order(Order::Turn, run, parent, attempt, peer);
    same && turn(&facts.me.peer) < turn(peer)
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

pub(super) fn status(facts: Facts<'_>, attempt: u64) -> Status {
    let forced = facts.slot.forced.as_ref().map(|forced| &forced.update);
    Status {
        series: facts.series(),
        log: facts.me.log,
        attempt,
        done: facts.highest_done(),
        holds_forced: forced.is_some_and(|update| facts.slot.updates.is_flushed(update)),
    }
}
