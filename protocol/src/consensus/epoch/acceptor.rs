//! What a voter promises, accepts and answers, bound by its log of votes (R1–R4, G2, G9, G14).

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

use super::attendance::Question;
use super::ballot::{Ballot, Vote};
use super::conduct::{Amends, Offence};
use super::series::{Reply, Stage};
use super::{Facts, State, roster, salvage, turns};

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
        let under_way = match &self.slot.series.stage {
            Stage::Open { roster, .. } => self.slot.roster(roster).map(|r| r.attempt),
            _ => None,
        };
        if under_way.is_some_and(|mine| mine < attempt) {
            self.abort(step, Reason::HigherAttempt);
        }
        let until = step.now + self.facts(step).ask_time() + self.facts(step).accept_time();
        if matches!(self.slot.series.stage, Stage::Idle { .. } | Stage::Recover { .. }) {
            let attempt = attempt.max(turns::ours(self.facts(step)));
            self.slot.series.stage = Stage::Recover { attempt, until };
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
        if !mine && let Some(other) = self.slot.other_of_its_proposer(digest, roster) {
            if other.series == roster.series {
                let why = RosterFault::TwoOfOneAttempt;
                step.put(Output::Fault(proposer, Fault::Roster(why)));
            }
            return;
        }
        if let Err(why) = self.validator.check_seals(roster) {
            step.put(Output::Fault(proposer, Fault::Roster(why)));
            return;
        }
        Self::learn_notices(step, roster.trust.as_deref());
        let roster = self.note_roster(digest, message, roster);
        roster.heard.iter().for_each(|heard| self.note_reached(heard.voter.peer, roster.attempt));
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

    /// Records that a voter asks for an attempt of its. It gets its answer once we have come to that
    /// attempt (G2).
    pub(super) fn on_query(&mut self, step: &mut Step<'_>, from: PeerId, query: &Query) {
        if query.attempt < 2 || self.behind || self.leaving.is_some() || self.decided().is_some() {
            return;
        }
        for peer in query.lost.iter().filter(|peer| step.table.peers.contains_key(peer)) {
            self.conduct.note(step, *peer, Offence::Lost { by: None });
        }
        self.note_reached(from, query.attempt);
        if self.slot.series.queries.len() < MEMBERS_MAX {
            self.slot.series.queries.insert(from, query.attempt);
        }
    }

    /// R2: answers a Query with a promise.
    pub(super) fn answer_query(&mut self, step: &mut Step<'_>) -> bool {
        let (facts, ours) = (self.facts(step), turns::ours(self.facts(step)));
        let mut queries = self.slot.series.queries.iter().map(|(peer, attempt)| (*peer, *attempt));
        let due = queries.find(|(peer, attempt)| *attempt <= ours || turns::is_free(facts, peer));
        let Some((from, attempt)) = due else { return false };
        self.slot.series.queries.remove(&from);
        if attempt < self.promised() || !self.slot.series.stage.is_undecided() {
            if self.may_reply(step, from, Reply::Query) {
                self.refuse(step, from, Digest::ZERO, Refusal::Promised);
            }
            return true;
        }
        self.slot.series.asking.take_if(|asking| asking.attempt <= attempt);
        let again = attempt == self.promised();
        if !again {
            self.promise(step, attempt);
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
        true
    }

    /// G9: counts the voters that are here and have not answered the Query of that attempt.
    pub(super) fn count_missed_replies(&mut self, step: &Step<'_>, attempt: u64) {
        let answered = &self.slot.series.answered;
        let missed = |peer: &PeerId| answered.get(peer).is_none_or(|highest| *highest < attempt);
        let here = self.facts(step).live(Question::Answers).map(|(peer, _)| *peer);
        let missing: Vec<PeerId> = here.filter(|p| self.names_voter(p) && missed(p)).collect();
        missing.iter().for_each(|peer| self.conduct.note(step, *peer, Offence::Unanswered));
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
        self.conduct.clear(&from, Amends::Reply);
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
