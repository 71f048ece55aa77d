//! Voting: what a voter may answer, accept and sign (R1–R6, R11), kept in its log of votes.

use std::sync::Arc;

use crate::blocks::Blocks;
use crate::event::Event;
use crate::fault::Fault;
use crate::id::{Digest, PeerId};
use crate::log::Record;
use crate::message::{
    Accept, Done, MEMBERS_MAX, Member, Message, Ranked, Refusal, Refuse, Roster, Voted, Voter,
};
use crate::output::{Output, Ring};
use crate::ring::Layout;
use crate::sign::Verified;
use crate::step::Step;
use crate::time::Time;
use crate::wire;

use super::ballot::{Ballot, RingState, Vote};
use super::term::{Progress, Stage};
use super::{Rule, State};

impl State {
    /// R1: our votes change by nothing but what goes to the log.
    pub(super) fn log(&mut self, step: &mut Step<'_>, record: Record) {
        self.assert_lawful(&record);
        self.votes.append(&self.law.run, &record);
        step.put(Output::Log(record));
    }

    /// S5: one roster per attempt, and nothing below a promise or in a closed series.
    fn assert_lawful(&self, record: &Record) {
        if self.config.without.is_some() {
            return;
        }
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
        assert!(!again, "S5: one roster, one value and one vote per attempt");
    }

    pub(super) fn promised(&self) -> u64 {
        self.votes.of(self.series()).promised()
    }

    /// Promises `attempt` and gives up what lies below it.
    pub(super) fn promise(&mut self, step: &mut Step<'_>, attempt: u64) {
        if self.keeps(Rule::R2) && self.promised() < attempt {
            self.log(step, Record::Promised { series: self.series(), attempt });
        }
        self.slot.term.attempt_seen = self.slot.term.attempt_seen.max(attempt);
        let under_way = match &self.slot.term.stage {
            Stage::Open { roster, .. } => self.roster(roster).map(|r| r.attempt),
            _ => None,
        };
        if under_way.is_some_and(|mine| mine < attempt) {
            self.abort(step, "a higher attempt");
        }
        let next = attempt.saturating_add(1);
        let wait = self.ask_time(step) + self.accept_time(step);
        match &self.slot.term.stage {
            Stage::Recover { attempt: mine, .. } if *mine > next => {}
            Stage::Idle { .. } | Stage::Recover { .. } => {
                self.slot.term.stage = Stage::Recover { attempt: next, since: step.now + wait };
            }
            _ => {}
        }
        self.slot.term.asking.take_if(|asking| asking.attempt < attempt);
    }

    pub(super) fn depth(&self) -> u32 {
        u32::try_from(self.slot.openings.len()).unwrap_or(u32::MAX)
    }

    /// Our highest vote in this series.
    pub(super) fn highest_done(&self) -> Option<Ranked> {
        let voted = self.votes.of(self.series()).dones().next_back()?;
        Some(wire::ranked(&self.law.run, voted))
    }

    pub(super) fn on_roster(
        &mut self,
        step: &mut Step<'_>,
        message: &Arc<Verified<Message>>,
        roster: &Roster,
    ) {
        let proposer = message.author();
        let checked = self.check_newcomers(roster).and_then(|()| self.check_heard(roster));
        if let Err(why) = checked {
            step.put(Output::Fault(proposer, Fault::Roster(why)));
            return;
        }
        let digest = wire::roster_digest(&self.law.run, roster);
        let mine = proposer == self.me.peer;
        if !mine && self.has_proposed_another(digest, roster) {
            return;
        }
        if let Err(why) = self.law.check_seals(roster) {
            step.put(Output::Fault(proposer, Fault::Roster(why)));
            return;
        }
        self.learn_decrees(step, roster.trust.as_deref());
        let roster = self.note_roster(digest, message, roster);
        self.slot.term.attempt_seen = self.slot.term.attempt_seen.max(roster.attempt);
        self.slot.failures.of.entry(proposer).or_default();
        if self.votes.of(self.series()).accepted(roster.attempt) == Some(digest) {
            if self.stands_by(&roster) && self.may_reply(step, proposer, "roster") {
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

    /// Whether the proposer, in the same incarnation, has proposed another roster at this attempt.
    fn has_proposed_another(&self, digest: Digest, roster: &Roster) -> bool {
        let start = |r: &Roster| r.member(&r.proposer).map(|m| (m.peer, m.incarnation, r.attempt));
        let known = self.slot.ballots.iter().filter(|(other, _)| **other != digest);
        let mut rosters = known.filter_map(|(_, ballot)| ballot.roster.as_ref());
        rosters.any(|other| start(other) == start(roster))
    }

    /// Remembers a roster; votes on it that came before and do not fit it are none.
    fn note_roster(
        &mut self,
        digest: Digest,
        message: &Arc<Verified<Message>>,
        roster: &Roster,
    ) -> Arc<Roster> {
        let run = self.law.run;
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

    /// What every proposer can check before it proposes: breaking it is a fault (R4, R7, R8).
    pub(super) fn check_roster(
        &self,
        proposer: PeerId,
        roster: &Roster,
    ) -> Result<(), &'static str> {
        self.law.check_keep(roster)?;
        self.check_admitted(roster)?;
        roster.adopt.iter().try_for_each(|receipt| self.law.check_parts(&receipt.parts))?;
        crate::lineage::check_sums(self.weight_max, &roster.receipt(Digest::ZERO))?;
        let kept = roster.keep.iter().flat_map(|keep| &keep.members);
        let mut peers: Vec<_> = roster.members.iter().map(|m| m.peer).collect();
        peers.sort_unstable();
        let distinct = peers.windows(2).all(|pair| pair[0] != pair[1]);
        let voter = |m: &Member| self.voters().contains(&m.voter());
        let heard = |v: &Voter| roster.heard.iter().any(|heard| heard.voter == *v);
        let rules = [
            (roster.proposer == proposer, "proposer is not its author"),
            (roster.member(&proposer).is_some(), "proposer is no member"),
            ((1..u64::MAX).contains(&roster.attempt), "attempt out of range"),
            (
                roster.heard.iter().all(|h| self.voters().contains(&h.voter)),
                "heard who has no vote",
            ),
            (roster.heard.len() <= self.voters().len(), "heard more than have a vote"),
            (roster.members.len() <= MEMBERS_MAX, "too many members"),
            (distinct, "a member twice"),
            (roster.members.iter().all(|m| m.weight > 0 || voter(m)), "weight 0 for no voter"),
            (
                roster.members.iter().chain(kept).all(|m| self.declared(m)),
                "a weight that nobody declared",
            ),
            (!roster.is_free() || roster.ring().next().is_some(), "a ring of nobody"),
            (
                roster.attempt < 2
                    || self.law.quorum.holds(self.voters(), heard)
                    || !self.keeps(Rule::R7),
                "heard no majority",
            ),
            (
                roster.adopt.as_ref().is_none_or(|r| r.series.is_beside(&self.series())),
                "adopts the value of another epoch",
            ),
        ];
        rules.iter().find(|(holds, _)| !holds).map_or(Ok(()), |(_, why)| Err(*why))
    }

    /// Whether a member can have declared its weight. Only of ourselves is it known for sure: another
    /// peer may have told its proposer something else than us.
    fn declared(&self, member: &Member) -> bool {
        let mine = self.frozen_weight();
        let is_me = member.peer == self.me.peer && member.incarnation == self.me.incarnation;
        member.weight <= self.weight_max && (member.weight == 0 || !is_me || member.weight == mine)
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
        // Of another member's weight only that one can tell: it refuses itself.
        let weight = self.slot.frozen.map(|frozen| frozen.weight);
        let mine = me.incarnation == self.me.incarnation && Some(me.weight) == weight;
        if me.log != self.me.log || (me.weight > 0 && !mine) {
            return Err(Refusal::Weight);
        }
        self.check_kept(roster)?;
        if roster.attempt == 1 && roster.adopt != self.slot.forced {
            return Err(Refusal::Rule);
        }
        if roster.highest_done().is_some_and(|vote| !self.slot.grounds.knows(&vote)) {
            return Err(Refusal::Unproven);
        }
        let heard = self.without_liars(step, roster.heard.clone(), roster.attempt);
        if heard.len() < roster.heard.len() {
            return Err(Refusal::Rule);
        }
        self.check_trust(step, roster)?;
        if roster.proposer == self.me.peer { Ok(()) } else { self.check_places(step, roster) }
    }

    pub(super) fn accept(&mut self, step: &mut Step<'_>, digest: Digest, roster: &Arc<Roster>) {
        self.abort(step, "a higher attempt");
        self.log(step, Record::Accepted { roster: Box::new(roster.as_ref().clone()) });
        self.slot.term.asking.take_if(|asking| asking.attempt <= roster.attempt);
        self.slot.term.turn_since = None;
        let until = step.now + self.accept_time_of(step, roster);
        self.slot.term.awaited = None;
        self.slot.term.stage = Stage::Open { roster: digest, progress: Progress::Accepted, until };
        self.slot.term.repeat_at = step.now + self.repeat_interval(step);
        let logged = self.votes.of(roster.series).accepted(roster.attempt);
        assert!(logged == Some(digest), "R1: an Accept is logged before it counts");
        let (me, message) = (self.me.peer, self.accept_message(digest));
        self.ballot(digest).accepts.insert(me, message.signature());
        step.put(Output::Gossip(message));
        step.put(Output::Event(Event::Roster {
            epoch: self.series().epoch,
            attempt: roster.attempt,
            members: roster.members.iter().map(|m| m.peer).collect(),
            adopt: roster.adopt.as_ref().map(|r| wire::receipt_digest(&self.law.run, r)),
            kept: roster.keep.iter().map(|keep| keep.chunks.len()).sum(),
        }));
    }

    /// R20: the place of an earlier start in the ring is gone with the delta.
    fn stands_by(&self, roster: &Roster) -> bool {
        let lost = |m: &Member| m.weight > 0 && m.incarnation != self.me.incarnation;
        !(roster.is_free() && roster.member(&self.me.peer).is_some_and(lost))
    }

    pub(super) fn accept_message(&self, digest: Digest) -> Arc<Verified<Message>> {
        self.seal(Message::Accept(Accept { series: self.series(), roster: digest }))
    }

    pub(super) fn refuse(&self, step: &mut Step<'_>, to: PeerId, what: Digest, reason: Refusal) {
        let (series, head, promised) = (self.series(), self.slot.head, self.promised());
        let refuse = Refuse { series, what, promised, head, reason };
        step.put(Output::Send(to, self.seal(Message::Refuse(refuse))));
    }

    pub(super) fn on_accept(
        &mut self,
        step: &mut Step<'_>,
        message: &Verified<Message>,
        accept: &Accept,
    ) {
        let (from, digest) = (message.author(), accept.roster);
        // Our own clock or its disk may have been slow: whoever accepts at all can take part.
        self.slot.lost.accepts(&from);
        self.slot.debts.pay(&from);
        let Some(ballot) = self.slot.ballot_voted_on(&self.me.peer, digest) else { return };
        let room = ballot.accepts.len() < MEMBERS_MAX;
        let repeated = room && ballot.accepts.insert(from, message.signature()).is_some();
        let Some(roster) = ballot.roster.clone() else { return };
        let accepted = self.votes.of(self.series()).accepted(roster.attempt);
        let mine = accepted == Some(digest) && self.stands_by(&roster);
        if repeated && mine && self.may_reply(step, from, "accept") {
            step.put(Output::Send(from, self.accept_message(digest)));
        }
    }

    /// R11: one roster has one value.
    pub(super) fn on_done(
        &mut self,
        step: &mut Step<'_>,
        message: &Verified<Message>,
        done: &Done,
    ) {
        let from = message.author();
        let run = self.law.run;
        self.slot.debts.pay(&from);
        let Some(ballot) = self.slot.ballot_voted_on(&self.me.peer, done.roster) else { return };
        // Every vote on a roster that is known has been found to fit it.
        let fits = |vote: &Vote| vote.update == done.update && vote.r == done.r;
        if let Some(roster) = &ballot.roster
            && !ballot.dones.values().any(fits)
        {
            let receipt = roster.receipt(done.update);
            if wire::receipt_digest(&run, &receipt) != done.r || receipt.update != done.update {
                step.put(Output::Fault(from, Fault::Done("a value that its roster cannot have")));
                return;
            }
        }
        // Two voters who differ prove nothing of either: who has the majority is right.
        if ballot.dones.get(&from).is_some_and(|other| other.r != done.r) {
            step.put(Output::Fault(from, Fault::Done("two values of one roster")));
            return;
        }
        let vote = Vote { r: done.r, update: done.update, signature: message.signature() };
        let room = ballot.dones.len() < MEMBERS_MAX;
        let repeated = room && ballot.dones.insert(from, vote).is_some();
        let me = self.me.peer;
        let voted = self.slot.ballots.get(&done.roster).is_some_and(|b| b.dones.contains_key(&me));
        if repeated && voted && self.may_reply(step, from, "done") {
            step.put(Output::Send(from, self.seal(Message::Done(done.clone()))));
        }
    }

    /// Moves the accepted roster on: Accepts complete, update held, vote due.
    pub(super) fn settle(&mut self, step: &mut Step<'_>) -> bool {
        match self.slot.term.stage {
            Stage::Open { roster, progress, until } => match progress {
                Progress::Accepted => self.settle_accepted(step, roster),
                Progress::Reduce => self.settle_reduce(step, roster, until),
                Progress::Finished => self.vote(step, roster),
            },
            // R17: whoever has a place in its ring waits for our vote.
            Stage::Decided(ref decided) => {
                let (digest, update) = (decided.roster, decided.link.receipt.update);
                self.slot.held.contains(&update)
                    && self.value(digest) == Some(update)
                    && self.vote(step, digest)
            }
            _ => false,
        }
    }

    /// R5: the ring opens when every member with a place has accepted.
    fn settle_accepted(&mut self, step: &mut Step<'_>, digest: Digest) -> bool {
        let Some(roster) = self.roster(&digest).cloned() else { return false };
        let all = self.slot.ballots.get(&digest).is_some_and(|ballot| {
            !roster.is_free() || roster.ring().all(|m| ballot.accepts.contains_key(&m.peer))
        });
        if !all {
            return false;
        }
        let until = step.now + self.ring_time(step, &roster);
        self.slot.term.stage = Stage::Open { roster: digest, progress: Progress::Reduce, until };
        let index = roster.ring().position(|m| m.peer == self.me.peer);
        let layout = Layout::of(&roster, self.law.elements).filter(|_| roster.is_free());
        if let (Some(layout), Some(index)) = (layout, index) {
            let (members, keep) = (roster.ring().copied().collect(), roster.keep.clone());
            let kept = keep.iter().fold(Blocks::default(), |all, keep| all.and(&keep.blocks()));
            let all = kept.and(layout.redone()) == Blocks::all(self.law.elements);
            assert!(all && !kept.overlaps(layout.redone()), "D3: each block once");
            let ring = Ring { roster: digest, members, index, layout, keep };
            step.put(Output::Ring(Arc::new(ring)));
            self.ballot(digest).ring = RingState::Running;
        }
        true
    }

    /// R6: who has no ring, or lost it, fetches what others computed.
    fn settle_reduce(&mut self, step: &mut Step<'_>, digest: Digest, until: Time) -> bool {
        let Some(update) = self.value(digest) else { return false };
        if self.slot.held.contains(&update) {
            // Whoever is first waits for those who still compute, or fetch, for as long as they
            // may: a higher attempt would end what they are about to finish.
            let until = until.max(step.now + self.done_time(step));
            self.slot.term.stage =
                Stage::Open { roster: digest, progress: Progress::Finished, until };
            return true;
        }
        let runs = |ballot: &Ballot| ballot.ring == RingState::Running;
        if !self.slot.ballots.get(&digest).is_some_and(runs) {
            let holders = self.holders(update);
            self.fetch(step, update, holders);
        }
        false
    }

    /// The update of a roster, as far as we know: what a quorum holds, our own ring gave or it adopts, or what others
    /// hold or have voted for.
    fn value(&self, digest: Digest) -> Option<Digest> {
        let ballot = self.slot.ballots.get(&digest)?;
        let prepared = ballot.most_prepared();
        if let Some(update) = prepared.filter(|update| self.is_prepared(ballot, update)) {
            return Some(update);
        }
        let adopted = || ballot.roster.as_ref()?.adopt.as_ref().map(|receipt| receipt.update);
        let voted = || ballot.value().map(|vote| vote.update);
        ballot.computed.or_else(adopted).or_else(voted).or(prepared)
    }

    /// R5: Done, when (a) its ground is here, (b) the update is held, (c) nothing higher is promised.
    fn vote(&mut self, step: &mut Step<'_>, digest: Digest) -> bool {
        let Some(roster) = self.roster(&digest).cloned() else { return false };
        let Some(ballot) = self.slot.ballots.get(&digest) else { return false };
        let (me, bound) = (self.me.peer, self.votes.of(self.series()));
        // R20: what was voted for before a restart is said again.
        let logged = bound.done(roster.attempt).is_some();
        let bound_to_it = bound.accepted(roster.attempt) == Some(digest);
        let free = bound.promised() <= roster.attempt;
        if ballot.dones.contains_key(&me) || !(self.is_voter() && bound_to_it && free) {
            return false;
        }
        let Some(update) = self.value(digest) else { return false };
        if !(logged || self.is_grounded(step, digest, update)) {
            return false;
        }
        let receipt = roster.receipt(update);
        let done = self.law.done(&roster, &receipt);
        let (r, message) = (done.r, self.seal(Message::Done(done)));
        let vote = Vote { r, update, signature: message.signature() };
        let (series, attempt) = (roster.series, roster.attempt);
        if !logged {
            let accepts = self.ground_of(digest, update);
            let roster = roster.as_ref().clone();
            let voted = Voted { depth: self.depth(), roster, update, accepts };
            self.slot.grounds.insert(wire::ranked(&self.law.run, &voted), voted.clone());
            self.log(step, Record::Voted { voted: Box::new(voted) });
        }
        assert!(
            self.votes.of(series).done(attempt).is_some(),
            "R1: a vote is logged before it counts"
        );
        self.ballot(digest).dones.insert(me, vote);
        step.put(Output::Gossip(message));
        true
    }
}
