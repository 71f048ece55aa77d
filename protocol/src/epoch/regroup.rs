//! Regroup: the founding, and what the survivors of a lost majority sign (R12–R15).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::event::Event;
use crate::fault::Fault;
use crate::id::{Digest, PeerId};
use crate::lineage::can_have_voted;
use crate::log::{Joined, Record};
use crate::message::{
    Join, MEMBERS_MAX, Message, Opening, Refusal, Refuse, Regroup, Series, Voted, Voter,
};
use crate::output::Output;
use crate::ring::{Order, order};
use crate::roll::Seen;
use crate::sign::Verified;
use crate::step::{Ahead, Step};
use crate::wire;

use super::attendance::Question;
use super::gathering::{Known, Turn};
use super::term::Stage;
use super::{Rule, State};

/// Regroups of one series that a peer can have missed.
const NUMBERS_MISSED_MAX: u64 = 1 << 10;

/// Regroups that a peer without a vote may let pass before the others go on without it; guess: each
/// was repeated to it for as long as its deadline.
const PASSED_MAX: usize = 3;

/// The founding waits until nobody has come for so many heartbeats; guess: discovery takes less.
const FOUNDING_HEARTBEATS: u32 = 4;

/// And for so many at most: who comes later joins the next epoch.
const FOUNDING_HEARTBEATS_MAX: u32 = 30;

/// Heartbeats, and the time, for which a peer is heard before a founding names it.
const FOUNDER_BEATS: u32 = 3;
const FOUNDER_HEARD: Duration = Duration::from_secs(2);

/// Whoever is heard for so long is known to all, and not left out of a founding.
const FOUNDER_KNOWN: Duration = Duration::from_secs(3);

/// A lineage that verifies as it comes holds a Regroup for so many graces in all: a long one takes a while to come.
/// Guess; but two keys can make one up, so it is not for ever.
const PROVEN_GRACES: u32 = 16;

impl State {
    /// R12: proposes a Regroup when no majority of voters is present, and it is our turn.
    pub(super) fn regroup(&mut self, step: &mut Step<'_>) -> bool {
        if !self.regroups_now(step) {
            self.slot.term.gathering.turn = None;
            return false;
        }
        let number = self.slot.term.gathering.number_seen.saturating_add(1);
        self.wait_for_founders(step);
        match self.slot.term.gathering.turn.filter(|turn| turn.number == number) {
            Some(turn) if step.now < turn.due || self.awaits_links(step) => return false,
            Some(_) => {}
            None => {
                let due = step.now + self.founding_wait(step) + self.turn(step, number);
                self.slot.term.gathering.turn = Some(Turn { number, due });
                return false;
            }
        }
        let Some(regroup) = self.compose_regroup(step) else { return false };
        // What we would not join ourselves is never said.
        if self.check_regroup(step, &regroup).is_err() {
            return false;
        }
        let message = self.seal(Message::Regroup(regroup.clone()));
        step.put(Output::Gossip(Arc::clone(&message)));
        self.slot.term.gathering.turn = None;
        self.on_regroup(step, &message, &regroup);
        true
    }

    /// A founding waits until nobody has come for a while, but not for ever: newcomers cost nothing, so
    /// after a time they move no turn (G8). A Regroup of survivors waits for nobody.
    fn wait_for_founders(&mut self, step: &Step<'_>) {
        if !self.voters().is_empty() {
            return;
        }
        let candidates = self.candidates_beside(step).map(|(peer, _)| *peer).collect();
        let gathering = &mut self.slot.term.gathering;
        let since = *gathering.founding_since.get_or_insert(step.now);
        let early = step.now < since + step.roll.heartbeat * FOUNDING_HEARTBEATS_MAX;
        if gathering.candidates != candidates {
            gathering.candidates = candidates;
            if (early && gathering.number_seen == 0) || !self.keeps(Rule::G8) {
                self.slot.term.gathering.turn = None;
            }
        }
    }

    fn founding_wait(&self, step: &Step<'_>) -> Duration {
        let first = self.voters().is_empty() && self.slot.term.gathering.number_seen == 0;
        if first { step.roll.heartbeat * FOUNDING_HEARTBEATS } else { Duration::ZERO }
    }

    /// R12: whether a Regroup is ours to propose, and no greater head of somebody holds it any more. What is only
    /// claimed does so for one grace of a series in all, however many keys claim it.
    fn regroups_now(&mut self, step: &Step<'_>) -> bool {
        let may = self.may_regroup(step);
        let most = match self.ahead {
            Ahead::Nobody => Duration::ZERO,
            Ahead::Claimed => step.roll.grace,
            Ahead::Proven => PROVEN_GRACES * step.roll.grace,
            Ahead::PassedOver => Duration::MAX,
        };
        let gathering = &mut self.slot.term.gathering;
        let since = gathering.held_since.unwrap_or(step.now);
        gathering.held = gathering.held.saturating_add(step.now.since(since));
        gathering.held_since = (may && most > Duration::ZERO).then_some(step.now);
        may && gathering.held >= most
    }

    fn may_regroup(&self, step: &Step<'_>) -> bool {
        let waits = match &self.slot.term.stage {
            Stage::Decided(_) | Stage::Applying(_) => false,
            Stage::Joined { until, .. } => step.now >= *until,
            _ => true,
        };
        waits
            && (self.law.quorum.regroups() || self.voters().is_empty())
            && !self.behind
            && self.leaving.is_none()
            && !self.awaits_news(step)
            && !self.may_be_led(step)
            && !self.majority_present(step)
            && match self.voters().is_empty() {
                true => self.candidates(step).len() >= self.law.peers_min,
                false if self.is_any_voter_here(step) => self.is_voter(),
                false => self.names_voter(&self.me.peer),
            }
            && self.voters().iter().all(|v| self.is_member_or_absent(step, v))
    }

    /// The peers that would take part beside us: everyone alive in this very series, except those
    /// without a vote here that have let several Regroups pass. A founding that needs these as well waits
    /// for them all the same: on a lossy line two peers may have missed each other's Joins.
    pub(super) fn candidates_beside<'a>(
        &'a self,
        step: &'a Step<'_>,
    ) -> impl Iterator<Item = (&'a PeerId, &'a Seen)> {
        let steady = |peer: &PeerId| !self.keeps_away(peer);
        let others = || self.live(step, Question::MayRegroup);
        let enough = !self.voters().is_empty()
            || others().filter(|(peer, _)| steady(peer)).count() + 1 >= self.law.peers_min;
        others().filter(move |(peer, _)| !enough || steady(peer))
    }

    /// Whether a peer has not joined several Regroups that named it and that we have joined.
    fn keeps_away(&self, peer: &PeerId) -> bool {
        let me = self.me.peer;
        let passed = |known: &&Known| {
            let names = |regroup: &Arc<Regroup>| regroup.members.iter().any(|m| m.peer == *peer);
            known.joins.contains_key(&me)
                && !known.joins.contains_key(peer)
                && known.regroup.as_ref().is_some_and(names)
        };
        !self.names_voter(peer)
            && self.slot.term.gathering.known.values().filter(passed).count() > PASSED_MAX
    }

    fn is_member_or_absent(&self, step: &Step<'_>, voter: &Voter) -> bool {
        let place = self.place(step, voter);
        let alive = *voter == self.me.voter() || step.roll.alive(&voter.peer, step.now);
        (alive && place.counts(Question::MayRegroup)) || place.absence().is_some()
    }

    /// G8: the members of a Regroup of ours, by hash, ourselves among them. Of survivors these are voters; where no
    /// voter is left with its log, the peers that were voters; at a founding the peers that are heard steadily, and
    /// later those that joined before.
    fn candidates(&self, step: &Step<'_>) -> Vec<Voter> {
        let survivors = self.is_any_voter_here(step) && self.keeps(Rule::G8);
        let named = |(peer, seen): &(&PeerId, &Seen)| {
            if survivors {
                return self.voters().contains(&Voter { peer: **peer, log: seen.beat.log });
            }
            if !self.voters().is_empty() {
                return self.names_voter(peer);
            }
            !self.keeps(Rule::G8) || self.founds(step, peer, seen)
        };
        let others = self
            .candidates_beside(step)
            .filter(named)
            .map(|(peer, seen)| Voter { peer: *peer, log: seen.beat.log });
        let mut all: Vec<Voter> = others.chain([self.me.voter()]).collect();
        let key = |v: &Voter| {
            let number = self.slot.term.gathering.number_seen;
            order(Order::Ring, &self.law.run, &self.series().parent, number, &v.peer)
        };
        all.sort_by_cached_key(|v| (!self.voters().contains(v), v.peer != self.me.peer, key(v)));
        all.truncate(MEMBERS_MAX);
        all.sort_by_cached_key(|v| (!self.voters().contains(v), key(v)));
        all
    }

    /// G8: whether a founding of ours names a peer.
    fn founds(&self, step: &Step<'_>, peer: &PeerId, seen: &Seen) -> bool {
        let gathering = &self.slot.term.gathering;
        let enough = |joined: &BTreeSet<PeerId>| joined.len() >= self.law.peers_min;
        let joined = gathering.joined_last(&self.me.peer).filter(enough);
        let joined = joined.or_else(|| Some(gathering.joined_ever()).filter(enough));
        match joined {
            Some(joined) => joined.contains(peer),
            None => seen.beats >= FOUNDER_BEATS && step.now.since(seen.since) >= FOUNDER_HEARD,
        }
    }

    fn compose_regroup(&self, step: &Step<'_>) -> Option<Regroup> {
        let (members, trust) = self.gathered(step, self.candidates(step));
        let outside = self.voters().iter().filter(|v| !members.contains(v));
        let absent: Option<Vec<_>> =
            outside.map(|v| Some((*v, self.place(step, v).absence()?))).collect();
        Some(Regroup {
            series: self.series(),
            number: self.slot.term.gathering.number_seen.saturating_add(1),
            proposer: self.me.peer,
            members,
            absent: absent?,
            trust,
        })
    }

    pub(super) fn on_regroup(
        &mut self,
        step: &mut Step<'_>,
        message: &Arc<Verified<Message>>,
        regroup: &Regroup,
    ) {
        let proposer = message.author();
        if regroup.proposer != proposer {
            step.put(Output::Fault(proposer, Fault::Certificate("a Regroup of somebody else")));
            return;
        }
        if let Err(fault) = self.law.check_regroup((self.voters(), self.ledger()), regroup) {
            step.put(Output::Fault(proposer, fault));
            return;
        }
        // Numbers rise one by one; a jump would use them up.
        let most = self.slot.term.gathering.number_seen.saturating_add(NUMBERS_MISSED_MAX);
        if regroup.number > most || regroup.number == u64::MAX {
            return;
        }
        self.learn_decrees(step, regroup.trust.as_deref());
        let digest = wire::regroup_digest(&self.law.run, regroup);
        let known = self.slot.term.gathering.known(&self.me.peer, digest);
        known.signed.get_or_insert_with(|| Arc::clone(message));
        known.regroup.get_or_insert_with(|| Arc::new(regroup.clone()));
        self.slot.term.gathering.number_seen =
            self.slot.term.gathering.number_seen.max(regroup.number);
        let joined =
            self.votes.of(self.series()).joined().map_or(0, |joined| joined.regroup.number);
        if regroup.number <= joined || !regroup.members.contains(&self.me.voter()) {
            return;
        }
        if self.behind || self.leaving.is_some() || self.decided().is_some() {
            return;
        }
        match self.check_regroup(step, regroup) {
            Ok(()) => self.join(step, digest, regroup),
            Err(reason) if proposer != self.me.peer => {
                let (series, head) = (self.series(), self.slot.head);
                let refuse = Refuse { series, what: digest, promised: 0, head, reason };
                step.put(Output::Send(proposer, self.seal(Message::Refuse(refuse))));
            }
            Err(_) => {}
        }
    }

    /// R12, R15, S7: every member checks for itself who is present and who is absent.
    fn check_regroup(&self, step: &Step<'_>, regroup: &Regroup) -> Result<(), Refusal> {
        let me = self.me.voter();
        for voter in self.voters().iter().filter(|v| !regroup.members.contains(v)) {
            if *voter == me || self.place(step, voter).absence().is_none() {
                return Err(Refusal::Present(voter.peer));
            }
        }
        let survivors = self.is_any_voter_here(step) && self.keeps(Rule::G8);
        for member in regroup.members.iter().filter(|m| **m != me) {
            // G8: newcomers wait for the next epoch.
            if survivors && !self.voters().contains(member) {
                return Err(Refusal::Absent(member.peer));
            }
            let here = self.place(step, member).counts(Question::MayRegroup);
            if !here || !step.roll.alive(&member.peer, step.now) {
                return Err(Refusal::Absent(member.peer));
            }
        }
        if self.voters().is_empty() {
            // G8: whoever came after the first one that we joined waits for the next epoch.
            let since = self.slot.term.gathering.joined_at.unwrap_or(step.now);
            let gathering = &self.slot.term.gathering;
            let waited_for = |peer: &PeerId, seen: &Seen| {
                !self.keeps(Rule::G8)
                    || (seen.since + FOUNDER_KNOWN <= since
                        && !gathering.stays_away(&self.me.peer, peer))
            };
            let outside = self.candidates_beside(step).find(|(peer, seen)| {
                waited_for(peer, seen)
                    && !regroup.members.iter().any(|m| m.peer == **peer)
                    && self.has_room(step, regroup, peer)
            });
            if let Some((peer, _)) = outside {
                return Err(Refusal::Present(*peer));
            }
        }
        Ok(())
    }

    /// R13: leaves the series, and those that it descends from, for ever.
    fn join(&mut self, step: &mut Step<'_>, digest: Digest, regroup: &Regroup) {
        self.abort(step, "regroup");
        self.slot.term.asking = None;
        let done = self.keeps(Rule::R13).then(|| self.highest_done_of_chain()).flatten();
        let (regroup, logged) = (regroup.clone(), done.clone().map(Box::new));
        self.log(step, Record::Joined { regroup: regroup.clone(), done: logged });
        let members = regroup.members.clone();
        let joined = Joined { digest, regroup, done };
        self.slot.term.gathering.joined_at.get_or_insert(step.now);
        let proven = joined.done.as_ref().map(|done| wire::ranked(&self.law.run, done));
        let message = self.note_joined(joined);
        let until = step.now + self.join_time(step);
        self.slot.term.stage = Stage::Joined { regroup: digest, until };
        self.slot.term.repeat_at = step.now + self.repeat_interval(step);
        step.put(Output::Gossip(message));
        for member in members.iter().filter(|m| m.peer != self.me.peer) {
            proven.iter().for_each(|vote| self.prove(step, member.peer, vote));
        }
    }

    fn highest_done_of_chain(&self) -> Option<Voted> {
        let dones = self.slot.chain.iter().filter_map(|s| self.votes.of(*s).dones().next_back());
        dones.max_by_key(|done| (done.depth, done.roster.attempt)).cloned()
    }

    pub(super) fn on_join(
        &mut self,
        step: &mut Step<'_>,
        message: &Verified<Message>,
        join: &Join,
    ) {
        let (from, digest, me) = (message.author(), join.regroup, self.me.peer);
        let impossible = join.done.is_some() && self.voters().is_empty();
        if impossible || !can_have_voted(join, self.depth()) {
            step.put(Output::Fault(from, Fault::Certificate("a Join with an impossible vote")));
            return;
        }
        let Some(known) = self.slot.term.gathering.joined(&me, digest) else { return };
        let who = Voter { peer: from, log: join.log };
        if known.regroup.as_ref().is_some_and(|regroup| !regroup.members.contains(&who)) {
            return;
        }
        let said = known.joins.get(&from).map(|(said, _)| said);
        if said.is_some_and(|said| said != join) {
            known.is_torn = true;
            step.put(Output::Fault(from, Fault::Certificate("two Joins for one Regroup")));
            return;
        }
        let room = known.joins.len() < MEMBERS_MAX;
        let repeated =
            room && known.joins.insert(from, (join.clone(), message.signature())).is_some();
        let mine = known.joins.get(&me).map(|(join, _)| join.clone());
        // A Regroup that we have joined before another one is not to be opened with us: we would
        // not follow.
        let last = self.votes.of(self.series()).joined().map(|joined| joined.digest);
        if let (true, Some(join)) = (repeated, mine)
            && last == Some(digest)
            && self.may_reply(step, from, "join")
        {
            let proven = join.done;
            step.put(Output::Send(from, self.seal(Message::Join(join))));
            proven.iter().for_each(|vote| self.prove(step, from, vote));
        }
    }

    /// R13: when every member has joined, the new series is open. Only the last Regroup joined is
    /// ever entered.
    pub(super) fn open_joined(&mut self, step: &mut Step<'_>) -> bool {
        let Stage::Joined { regroup: digest, .. } = self.slot.term.stage else { return false };
        let Some(known) = self.slot.term.gathering.known.get(&digest) else { return false };
        let Some(regroup) = known.regroup.as_ref().filter(|_| !known.is_torn) else { return false };
        let joins: Option<Vec<_>> = regroup
            .members
            .iter()
            .map(|m| {
                let (join, signature) = known.joins.get(&m.peer)?;
                (join.log == m.log).then(|| (m.peer, join.clone(), *signature))
            })
            .collect();
        let Some(joins) = joins else { return false };
        let mut opening = Opening { regroup: regroup.as_ref().clone(), joins, ground: None };
        // Whose vote is not proven has not joined.
        if let Some(highest) = opening.highest_done() {
            let Some(voted) = self.slot.grounds.get(&highest) else { return false };
            opening.ground = Some(Box::new(voted.clone()));
        }
        self.open(step, opening);
        true
    }

    fn open(&mut self, step: &mut Step<'_>, opening: Opening) {
        self.log(step, Record::Opened { opening: opening.clone() });
        let Regroup { number, proposer, members, absent, .. } = &opening.regroup;
        step.put(Output::Event(Event::Regroup {
            epoch: self.series().epoch,
            number: *number,
            proposer: *proposer,
            members: members.iter().map(|v| v.peer).collect(),
            absent: absent.iter().map(|(v, _)| v.peer).collect(),
        }));
        self.enter_opened(step, opening);
        self.say_ready(step);
        self.replay_early(step);
    }

    /// Enters the series that a Regroup of ours opens, with what its Joins force there.
    pub(super) fn enter_opened(&mut self, step: &Step<'_>, opening: Opening) {
        let series = self.law.opened(&opening);
        self.slot.enter(step.now, opening, series);
    }

    /// Remembers a Regroup that we have joined, now or before a restart (R20). Returns our Join.
    pub(super) fn note_joined(&mut self, joined: Joined) -> Arc<Verified<Message>> {
        let Joined { digest, regroup, done } = joined;
        let (series, log, me) = (self.series(), self.me.log, self.me.peer);
        let done = done.map(|done| {
            let vote = wire::ranked(&self.law.run, &done);
            self.slot.grounds.insert(vote, done);
            vote
        });
        let join = Join { series, regroup: digest, log, done };
        let message = self.seal(Message::Join(join.clone()));
        let gathering = &mut self.slot.term.gathering;
        gathering.number_seen = gathering.number_seen.max(regroup.number);
        let known = gathering.known(&me, digest);
        known.regroup.get_or_insert_with(|| Arc::new(regroup));
        known.joins.insert(me, (join, message.signature()));
        message
    }

    /// Regroups that somebody served. A member enters through its own Join; anybody else may go
    /// along without a vote, and thereby leaves its own series for ever (R13): only where that
    /// series has no majority present, or no vote of ours.
    pub(super) fn on_openings(&mut self, step: &mut Step<'_>, from: PeerId, openings: &[Opening]) {
        let ours = self.slot.openings.len();
        let theirs = openings.iter().map(|opening| self.law.opened(opening));
        // What proves a vote can differ: two openings are the same if they open the same series.
        let extend = theirs.take(ours).eq(self.slot.chain.iter().skip(1).copied());
        if openings.len() <= ours || !extend || self.decided().is_some() {
            return;
        }
        let base = Series { regroup: None, ..self.series() };
        if !openings.iter().all(|o| o.regroup.series.is_beside(&base)) {
            return;
        }
        if let Err(fault) = self.law.follow(base, (&self.slot.base, self.ledger()), openings) {
            step.put(Output::Fault(from, fault));
            return;
        }
        let me = self.me.voter();
        for opening in openings.iter().skip(ours) {
            let digest = wire::regroup_digest(&self.law.run, &opening.regroup);
            let member = opening.regroup.members.contains(&me);
            let last = self.votes.of(self.series()).joined().map(|joined| joined.digest);
            let bound = self.is_voter() && self.majority_present(step) && !self.awaits_news(step);
            let free = !member && !bound;
            if !(last == Some(digest) || free) {
                return;
            }
            self.abort(step, "regroup");
            self.open(step, opening.clone());
        }
    }

    /// Sends to members whose Join is missing the Regroup, as its proposer signed it, and our Join.
    pub(super) fn repeat_join(&self, step: &mut Step<'_>, digest: Digest) {
        let Some(known) = self.slot.term.gathering.known.get(&digest) else { return };
        let Some(regroup) = &known.regroup else { return };
        let Some((join, _)) = known.joins.get(&self.me.peer) else { return };
        let proven = join.done;
        let join = self.seal(Message::Join(join.clone()));
        for member in regroup.members.iter().filter(|m| !known.joins.contains_key(&m.peer)) {
            // After a restart it is known, but no longer as its proposer signed it.
            if let Some(signed) = &known.signed {
                step.put(Output::Send(member.peer, Arc::clone(signed)));
            }
            step.put(Output::Send(member.peer, Arc::clone(&join)));
            proven.iter().for_each(|vote| self.prove(step, member.peer, vote));
        }
    }
}
