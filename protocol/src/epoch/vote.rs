//! Voting: what a voter may answer, accept and sign (R1–R6, R11), kept in its log of votes.

use std::sync::Arc;

use crate::event::Event;
use crate::fault::Fault;
use crate::id::{Digest, PeerId};
use crate::log::Record;
use crate::message::{
    Accept, Done, MEMBERS_MAX, Member, Message, Query, Refusal, Refuse, Roster, Series, Status,
    Voted, Voter, majority,
};
use crate::ring::Layout;
use crate::roll::Roll;
use crate::sign::Verified;
use crate::time::Time;
use crate::wire;

use super::{Ballot, Output, RingState, Rule, Stage, State, Vote};

impl State {
    /// R1: our votes change by nothing but what goes to the log.
    pub(super) fn log(&mut self, record: Record, out: &mut Vec<Output>) {
        self.votes.append(&self.config.law.run, &record);
        out.push(Output::Log(record));
    }

    pub(super) fn promised(&self) -> u32 {
        self.votes.of(self.series).promised()
    }

    /// R2, R38: the answer is a promise.
    pub(super) fn on_query(
        &mut self,
        now: Time,
        roll: &Roll,
        from: PeerId,
        query: &Query,
        out: &mut Vec<Output>,
    ) {
        let attempt = query.attempt;
        if attempt < 2 || self.behind || self.leaving.is_some() || self.decided().is_some() {
            return;
        }
        if self.is_busy_without(now, &from) {
            return;
        }
        if attempt < self.promised() || attempt == u32::MAX {
            self.refuse(from, Digest::ZERO, Refusal::Promised, out);
            return;
        }
        for peer in query.lost.iter().filter(|peer| roll.peers.contains_key(peer)) {
            self.lost.hear_of(now, *peer);
        }
        self.promise(now, roll, attempt, out);
        let status = self.status(now, roll, attempt);
        out.push(Output::Send(from, self.seal(Message::Status(status))));
    }

    /// R38: while its deadline runs, a roster is disturbed by its own members only.
    fn is_busy_without(&self, now: Time, peer: &PeerId) -> bool {
        match &self.stage {
            Stage::Accepted { roster, until }
            | Stage::Reduce { roster, until }
            | Stage::Finished { roster, until } => {
                now < *until && self.roster(roster).is_some_and(|r| r.member(peer).is_none())
            }
            _ => false,
        }
    }

    /// Promises `attempt` and gives up what lies below it.
    pub(super) fn promise(&mut self, now: Time, roll: &Roll, attempt: u32, out: &mut Vec<Output>) {
        if self.keeps(Rule::R2) && self.promised() < attempt {
            self.log(Record::Promised { series: self.series, attempt }, out);
        }
        self.attempt_seen = self.attempt_seen.max(attempt);
        let under_way = match &self.stage {
            Stage::Accepted { roster, .. }
            | Stage::Reduce { roster, .. }
            | Stage::Finished { roster, .. } => self.roster(roster).map(|r| r.attempt),
            _ => None,
        };
        if under_way.is_some_and(|mine| mine < attempt) {
            self.abort("a higher attempt", out);
        }
        let next = attempt.saturating_add(1);
        let wait = self.ask_time(now, roll, attempt) + self.accept_time(now, roll, attempt);
        match &self.stage {
            Stage::Recover { attempt: mine, .. } if *mine > next => {}
            Stage::Idle { .. } | Stage::Recover { .. } => {
                self.stage = Stage::Recover { attempt: next, since: now + wait };
            }
            _ => {}
        }
        if self.asking.as_ref().is_some_and(|asking| asking.attempt < attempt) {
            self.asking = None;
        }
    }

    pub(super) fn status(&self, now: Time, roll: &Roll, attempt: u32) -> Status {
        let present = |v: &&Voter| self.present(v, now, roll);
        Status {
            series: self.series,
            log: self.config.log,
            attempt,
            done: self.highest_done(self.series, self.depth()),
            holds_forced: self
                .forced
                .as_ref()
                .is_some_and(|f| self.held.contains(&f.receipt.update)),
            chunks: self.finished(),
            ready: self.frozen.map(|frozen| (self.config.incarnation, frozen.weight)),
            present: self.voters.iter().filter(present).map(|v| v.peer).collect(),
        }
    }

    pub(super) fn depth(&self) -> u32 {
        u32::try_from(self.openings.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn highest_done(&self, series: Series, depth: u32) -> Option<Voted> {
        let (attempt, receipt) = self.votes.of(series).highest_done()?;
        Some(Voted { depth, attempt, receipt: receipt.clone() })
    }

    pub(super) fn on_roster(
        &mut self,
        now: Time,
        roll: &Roll,
        message: &Arc<Verified<Message>>,
        roster: &Roster,
        out: &mut Vec<Output>,
    ) {
        let proposer = message.author();
        if let Err(why) = self.check_roster(proposer, roster) {
            out.push(Output::Fault(proposer, Fault::Roster(why)));
            return;
        }
        let digest = wire::roster_digest(&self.config.law.run, roster);
        let mine = proposer == self.config.me;
        if !mine && (!self.takes_part(&proposer) || self.has_proposed_another(digest, roster)) {
            return;
        }
        if let Err(why) = self.config.law.check_seals(roster) {
            out.push(Output::Fault(proposer, Fault::Roster(why)));
            return;
        }
        let roster = self.note_roster(digest, message, roster);
        self.attempt_seen = self.attempt_seen.max(roster.attempt);
        if self.votes.of(self.series).accepted(roster.attempt) == Some(digest) {
            if self.stands_by(&roster) && self.may_reply(now, proposer, 0) {
                out.push(Output::Send(proposer, self.accept_message(digest, &roster)));
            }
            return;
        }
        if self.behind || self.leaving.is_some() || self.decided().is_some() {
            return;
        }
        if roster.member(&self.config.me).is_none() {
            self.be_patient(now, roll, roster.attempt);
            return;
        }
        match self.acceptable(digest, &roster) {
            Ok(()) => self.accept(now, roll, digest, &roster, out),
            Err(reason) => {
                self.be_patient(now, roll, roster.attempt);
                self.refuse(proposer, digest, reason, out);
            }
        }
    }

    /// Whether the proposer, in the same incarnation, has proposed another roster at this attempt.
    fn has_proposed_another(&self, digest: Digest, roster: &Roster) -> bool {
        let start = |r: &Roster| r.member(&r.proposer).map(|m| (m.peer, m.incarnation, r.attempt));
        let known = self.ballots.iter().filter(|(other, _)| **other != digest);
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
        let run = self.config.law.run;
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
    fn check_roster(&self, proposer: PeerId, roster: &Roster) -> Result<(), &'static str> {
        self.config.law.check_keep(roster)?;
        roster.adopt.iter().try_for_each(|receipt| self.config.law.check_parts(&receipt.parts))?;
        let kept = roster.keep.iter().flat_map(|keep| &keep.members);
        let mut peers: Vec<_> = roster.members.iter().map(|m| m.peer).collect();
        peers.sort_unstable();
        let distinct = peers.windows(2).all(|pair| pair[0] != pair[1]);
        let voter = |m: &Member| self.voters.contains(&m.voter());
        let heard = |v: &Voter| roster.heard.contains(v);
        let rules = [
            (roster.proposer == proposer, "proposer is not its author"),
            (roster.member(&proposer).is_some(), "proposer is no member"),
            ((1..u32::MAX).contains(&roster.attempt), "attempt out of range"),
            (roster.members.len() <= MEMBERS_MAX, "too many members"),
            (distinct, "a member twice"),
            (roster.members.iter().all(|m| m.weight > 0 || voter(m)), "weight 0 for no voter"),
            (
                roster.members.iter().chain(kept).all(|m| self.declared(m)),
                "a weight that nobody declared",
            ),
            (!roster.is_free() || roster.ring().next().is_some(), "a ring of nobody"),
            (
                roster.attempt < 2 || majority(&self.voters, heard) || !self.keeps(Rule::R7),
                "heard no majority",
            ),
            (
                roster.adopt.as_ref().is_none_or(|r| r.series.is_beside(&self.series)),
                "adopts the value of another epoch",
            ),
        ];
        rules.iter().find(|(holds, _)| !holds).map_or(Ok(()), |(_, why)| Err(*why))
    }

    /// Whether a member can have declared its weight. Only of ourselves is it known for sure: another
    /// peer may have told its proposer something else than us.
    fn declared(&self, member: &Member) -> bool {
        let mine = self.frozen.map_or(0, |frozen| frozen.weight);
        let is_me = member.peer == self.config.me && member.incarnation == self.config.incarnation;
        member.weight <= self.weight_max && (member.weight == 0 || !is_me || member.weight == mine)
    }

    /// R3, R4: what only this voter can know.
    fn acceptable(&self, digest: Digest, roster: &Roster) -> Result<(), Refusal> {
        let accepted = self.votes.of(self.series).accepted(roster.attempt);
        let rival = accepted.is_some_and(|other| other != digest);
        if roster.attempt < self.promised() || (rival && self.keeps(Rule::R3)) {
            return Err(Refusal::Promised);
        }
        let Some(me) = roster.member(&self.config.me) else { return Err(Refusal::Rule) };
        let contradicts = |m: &Member| {
            let declared = self.ready.get(&m.peer).filter(|(start, _)| *start == m.incarnation);
            m.weight > 0 && declared.is_some_and(|(_, weight)| *weight != m.weight)
        };
        if roster.members.iter().any(contradicts) {
            return Err(Refusal::Weight);
        }
        let weight = self.frozen.map(|frozen| frozen.weight);
        let mine = me.incarnation == self.config.incarnation && Some(me.weight) == weight;
        if me.log != self.config.log || (me.weight > 0 && !mine) {
            return Err(Refusal::Weight);
        }
        self.check_kept(roster)?;
        let forced = self.forced.as_ref().map(|forced| &forced.receipt);
        if roster.attempt == 1 && forced.is_some() && roster.adopt.as_ref() != forced {
            return Err(Refusal::Rule);
        }
        Ok(())
    }

    pub(super) fn accept(
        &mut self,
        now: Time,
        roll: &Roll,
        digest: Digest,
        roster: &Arc<Roster>,
        out: &mut Vec<Output>,
    ) {
        self.abort("a higher attempt", out);
        self.log(Record::Accepted { roster: Box::new(roster.as_ref().clone()) }, out);
        if self.asking.as_ref().is_some_and(|asking| asking.attempt <= roster.attempt) {
            self.asking = None;
        }
        self.turn_since = None;
        let until = now + self.accept_time(now, roll, roster.attempt);
        self.stage = Stage::Accepted { roster: digest, until };
        self.repeat_at = now + self.repeat_interval(now, roll);
        let me = self.config.me;
        self.ballot(digest).accepts.insert(me);
        out.push(Output::Gossip(self.accept_message(digest, roster)));
        out.push(Output::Event(Event::Roster {
            epoch: self.series.epoch,
            attempt: roster.attempt,
            members: roster.members.iter().map(|m| m.peer).collect(),
            adopt: roster.adopt.as_ref().map(|r| wire::receipt_digest(&self.config.law.run, r)),
            kept: roster.keep.iter().map(|keep| keep.chunks.len()).sum(),
        }));
    }

    /// R20: the place of an earlier start in the ring is gone with the delta.
    fn stands_by(&self, roster: &Roster) -> bool {
        let lost = |m: &Member| m.weight > 0 && m.incarnation != self.config.incarnation;
        !(roster.is_free() && roster.member(&self.config.me).is_some_and(lost))
    }

    pub(super) fn accept_message(&self, digest: Digest, roster: &Roster) -> Arc<Verified<Message>> {
        let lacks = self.ready.keys().filter(|peer| roster.member(peer).is_none());
        let lacks = lacks.take(MEMBERS_MAX).copied().collect();
        self.seal(Message::Accept(Accept { series: self.series, roster: digest, lacks }))
    }

    fn refuse(&self, to: PeerId, what: Digest, reason: Refusal, out: &mut Vec<Output>) {
        let (series, head, promised) = (self.series, self.head, self.promised());
        let refuse = Refuse { series, what, promised, head, reason };
        out.push(Output::Send(to, self.seal(Message::Refuse(refuse))));
    }

    pub(super) fn on_accept(
        &mut self,
        now: Time,
        from: PeerId,
        accept: &Accept,
        out: &mut Vec<Output>,
    ) {
        let digest = accept.roster;
        // Our own clock or its disk may have been slow: whoever accepts at all can take part.
        self.lost.accepts(&from);
        let Some(ballot) = self.ballot_voted_on(digest) else { return };
        let repeated = ballot.accepts.len() < MEMBERS_MAX && !ballot.accepts.insert(from);
        let Some(roster) = ballot.roster.clone() else { return };
        let accepted = self.votes.of(self.series).accepted(roster.attempt);
        let mine = accepted == Some(digest) && self.stands_by(&roster);
        if repeated && mine && self.may_reply(now, from, 1) {
            out.push(Output::Send(from, self.accept_message(digest, &roster)));
        }
    }

    /// R11: one roster has one value.
    pub(super) fn on_done(
        &mut self,
        now: Time,
        message: &Verified<Message>,
        done: &Done,
        out: &mut Vec<Output>,
    ) {
        let from = message.author();
        let run = self.config.law.run;
        let Some(ballot) = self.ballot_voted_on(done.roster) else { return };
        if let Some(roster) = &ballot.roster {
            let receipt = roster.receipt(done.update);
            if wire::receipt_digest(&run, &receipt) != done.r || receipt.update != done.update {
                out.push(Output::Fault(from, Fault::Done("a value that its roster cannot have")));
                return;
            }
        }
        // Two voters who differ prove nothing of either: who has the majority is right.
        if ballot.dones.get(&from).is_some_and(|other| other.r != done.r) {
            out.push(Output::Fault(from, Fault::Done("two values of one roster")));
            return;
        }
        let vote = Vote { r: done.r, update: done.update, signature: message.signature() };
        let room = ballot.dones.len() < MEMBERS_MAX;
        let repeated = room && ballot.dones.insert(from, vote).is_some();
        let me = self.config.me;
        let voted = self.ballots.get(&done.roster).is_some_and(|b| b.dones.contains_key(&me));
        if repeated && voted && self.may_reply(now, from, 2) {
            out.push(Output::Send(from, self.seal(Message::Done(done.clone()))));
        }
    }

    /// Moves the accepted roster on: Accepts complete, update held, vote due.
    pub(super) fn settle(&mut self, now: Time, roll: &Roll, out: &mut Vec<Output>) -> bool {
        match self.stage {
            Stage::Accepted { roster: digest, .. } => self.settle_accepted(now, roll, digest, out),
            Stage::Reduce { roster: digest, until } => {
                self.settle_reduce(now, roll, digest, until, out)
            }
            Stage::Finished { roster: digest, .. } => self.vote(digest, out),
            // R17: whoever has a place in its ring waits for our vote.
            Stage::Decided(ref decided) => {
                let (digest, update) = (decided.roster, decided.link.receipt.update);
                self.held.contains(&update)
                    && self.value(digest) == Some(update)
                    && self.vote(digest, out)
            }
            _ => false,
        }
    }

    /// R5: the ring opens when every member with a place has accepted.
    fn settle_accepted(
        &mut self,
        now: Time,
        roll: &Roll,
        digest: Digest,
        out: &mut Vec<Output>,
    ) -> bool {
        let Some(roster) = self.roster(&digest).cloned() else { return false };
        let all = self.ballots.get(&digest).is_some_and(|ballot| {
            !roster.is_free() || roster.ring().all(|m| ballot.accepts.contains(&m.peer))
        });
        if !all {
            return false;
        }
        let until = now + self.ring_time(now, roll, &roster);
        self.stage = Stage::Reduce { roster: digest, until };
        let index = roster.ring().position(|m| m.peer == self.config.me);
        let layout = Layout::of(&roster, self.config.law.elements).filter(|_| roster.is_free());
        if let (Some(layout), Some(index)) = (layout, index) {
            let (members, keep) = (roster.ring().copied().collect(), roster.keep.clone());
            let ring = super::Ring { roster: digest, members, index, layout, keep };
            out.push(Output::Ring(Arc::new(ring)));
            self.ballot(digest).ring = RingState::Running;
        }
        true
    }

    /// R6: who has no ring, or lost it, fetches what others computed.
    fn settle_reduce(
        &mut self,
        now: Time,
        roll: &Roll,
        digest: Digest,
        until: Time,
        out: &mut Vec<Output>,
    ) -> bool {
        let Some(roster) = self.roster(&digest).cloned() else { return false };
        let Some(update) = self.value(digest) else { return false };
        if self.held.contains(&update) {
            // Who is first waits for those who still compute, or fetch, for as long as they may: a
            // higher attempt would end what they are about to finish.
            let until = until.max(now + self.done_time(now, roll, roster.attempt));
            self.stage = Stage::Finished { roster: digest, until };
            return true;
        }
        let runs = |ballot: &Ballot| ballot.ring == RingState::Running;
        if !self.ballots.get(&digest).is_some_and(runs) {
            let holders = self.holders(update);
            self.fetch(now, update, holders, out);
        }
        false
    }

    /// The update of a roster, as far as we know: what our own ring gave, what it adopts, or what others
    /// have voted for.
    fn value(&self, digest: Digest) -> Option<Digest> {
        let ballot = self.ballots.get(&digest)?;
        let adopted = || ballot.roster.as_ref()?.adopt.as_ref().map(|receipt| receipt.update);
        let voted = || ballot.value().map(|vote| vote.update);
        ballot.computed.or_else(adopted).or_else(voted)
    }

    /// R5: Done, when (a) a majority of voters accepted, ourselves among them, (b) the update is
    /// held, (c) nothing higher is promised.
    fn vote(&mut self, digest: Digest, out: &mut Vec<Output>) -> bool {
        let Some(roster) = self.roster(&digest).cloned() else { return false };
        let Some(ballot) = self.ballots.get(&digest) else { return false };
        let (me, bound) = (self.config.me, self.votes.of(self.series));
        let accepted = |v: &Voter| {
            ballot.accepts.contains(&v.peer) && roster.members.iter().any(|m| m.voter() == *v)
        };
        // R20: what was voted for before a restart is said again.
        let logged = bound.done(roster.attempt).is_some();
        let majority = logged || majority(&self.voters, accepted) || !self.keeps(Rule::R5);
        let bound_to_it = bound.accepted(roster.attempt) == Some(digest);
        let free = bound.promised() <= roster.attempt;
        if ballot.dones.contains_key(&me) || !(self.is_voter() && bound_to_it && free && majority) {
            return false;
        }
        let Some(update) = self.value(digest) else { return false };
        let receipt = roster.receipt(update);
        let done = self.config.law.done(&roster, &receipt);
        let (r, message) = (done.r, self.seal(Message::Done(done)));
        let vote = Vote { r, update, signature: message.signature() };
        self.ballot(digest).dones.insert(me, vote);
        let (series, attempt) = (roster.series, roster.attempt);
        if !logged {
            self.log(Record::Voted { series, attempt, receipt }, out);
        }
        out.push(Output::Gossip(message));
        true
    }
}
