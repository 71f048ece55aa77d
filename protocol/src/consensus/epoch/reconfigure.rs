//! Regroup: the founding, and what the survivors of a lost majority sign (R12–R15). Also the
//! goodbye of a peer that leaves, which closes the series for it (R29). Which peers may sign a
//! Regroup, and when, is in `founders`.

use std::sync::Arc;
use std::time::Duration;

use crate::base::fault::{CertificateFault, Fault};
use crate::base::id::{Digest, PeerId};
use crate::base::rule::Rule;
use crate::base::sign::Verified;
use crate::history::lineage::can_have_voted;
use crate::history::log::{Joined, Record};
use crate::machine::event::{Event, Reason};
use crate::machine::output::Output;
use crate::machine::step::{Ahead, Step};
use crate::message::wire;
use crate::message::{
    Join, Leaving, MEMBERS_MAX, Message, Opening, Refuse, Regroup, Series, Voted, Voter,
};

use super::gathering::Turn;
use super::series::{Reply, Stage};
use super::timers::Timer;
use super::{Facts, State, founders, timers};

/// How long a leaving peer waits for the open ring, within the 5 s that a person waits.
const LEAVE_WAIT: Duration = Duration::from_secs(4);

/// Regroups of one series that a peer can have missed; a number further ahead is not read.
const NUMBERS_MISSED_MAX: u64 = 1 << 10;

/// Heartbeats for which newcomers delay a founding at most; later ones join the next epoch.
const FOUNDING_HEARTBEATS_MAX: u32 = 30;

/// Graces for which a lineage that verifies as it arrives delays the Regroups of a series in all. A
/// long one takes a while to arrive, but two keys can make one up, so the delay ends; guess.
const PROVEN_GRACES: u32 = 16;

impl State {
    /// R12: proposes a Regroup when no majority of voters is present and it is our turn.
    pub(super) fn regroup(&mut self, step: &mut Step<'_>) -> bool {
        if !self.regroups_now(step) {
            self.slot.series.gathering.turn = None;
            return false;
        }
        let number = self.slot.series.gathering.number_seen.saturating_add(1);
        self.wait_for_founders(step);
        match self.slot.series.gathering.turn.filter(|turn| turn.number == number) {
            Some(_) if !timers::is_over(self.facts(step), Timer::RegroupTurn) => return false,
            Some(_) if founders::awaits_links(self.facts(step)) => return false,
            Some(_) => {}
            None => {
                let due = step.now
                    + founders::founding_wait(self.facts(step))
                    + timers::turn(self.facts(step), number);
                self.slot.series.gathering.turn = Some(Turn { number, due });
                return false;
            }
        }
        let Some(regroup) = founders::compose_regroup(self.facts(step)) else { return false };
        // What we would not join ourselves is not sent.
        if founders::check_regroup(self.facts(step), &regroup).is_err() {
            return false;
        }
        let message = self.seal(Message::Regroup(regroup.clone()));
        step.put(Output::Gossip(Arc::clone(&message)));
        self.slot.series.gathering.turn = None;
        self.on_regroup(step, &message, &regroup);
        true
    }

    /// A founding waits until no new peer has come for a while, up to a limit: newcomers cost
    /// nothing, so later they no longer move a turn (G8). A Regroup of survivors waits for nobody.
    fn wait_for_founders(&mut self, step: &Step<'_>) {
        if !self.voters().is_empty() {
            return;
        }
        let candidates = founders::candidates_beside(self.facts(step)).map(|(p, _)| *p).collect();
        let gathering = &mut self.slot.series.gathering;
        let since = *gathering.founding_since.get_or_insert(step.now);
        let early = step.now < since + step.table.heartbeat * FOUNDING_HEARTBEATS_MAX;
        if gathering.candidates != candidates {
            gathering.candidates = candidates;
            if (early && gathering.number_seen == 0) || !self.keeps(Rule::G8) {
                self.slot.series.gathering.turn = None;
            }
        }
    }

    /// R12: whether we may propose a Regroup, and no greater head of another peer delays it any
    /// more. Heads that are only claimed delay the Regroups of a series by one grace in all,
    /// however many keys claim them.
    fn regroups_now(&mut self, step: &Step<'_>) -> bool {
        let may = founders::may_regroup(self.facts(step));
        let most = match self.ahead {
            Ahead::Nobody => Duration::ZERO,
            Ahead::Claimed => step.table.grace,
            Ahead::Proven => PROVEN_GRACES * step.table.grace,
            Ahead::PassedOver => Duration::MAX,
        };
        let gathering = &mut self.slot.series.gathering;
        let since = gathering.held_since.unwrap_or(step.now);
        gathering.held = gathering.held.saturating_add(step.now.since(since));
        gathering.held_since = (may && most > Duration::ZERO).then_some(step.now);
        may && gathering.held >= most
    }

    pub(super) fn on_regroup(
        &mut self,
        step: &mut Step<'_>,
        message: &Arc<Verified<Message>>,
        regroup: &Regroup,
    ) {
        let proposer = message.author();
        if regroup.proposer != proposer {
            step.put(Output::Fault(proposer, Fault::Certificate(CertificateFault::NotItsAuthor)));
            return;
        }
        if let Err(fault) = self.validator.check_regroup(self.voters(), self.ledger(), regroup) {
            step.put(Output::Fault(proposer, fault));
            return;
        }
        // Numbers rise one by one; a jump would use them up.
        let most = self.slot.series.gathering.number_seen.saturating_add(NUMBERS_MISSED_MAX);
        if regroup.number > most || regroup.number == u64::MAX {
            return;
        }
        Self::learn_notices(step, regroup.trust.as_deref());
        let digest = wire::regroup_digest(&self.validator.run, regroup);
        let known = self.slot.series.gathering.known(&self.me.peer, digest);
        known.signed.get_or_insert_with(|| Arc::clone(message));
        known.regroup.get_or_insert_with(|| Arc::new(regroup.clone()));
        self.slot.series.gathering.number_seen =
            self.slot.series.gathering.number_seen.max(regroup.number);
        let joined = self.votes.of(self.series()).joined().map_or(0, |j| j.regroup.number);
        if regroup.number <= joined || !regroup.members.contains(&self.me.voter()) {
            return;
        }
        if self.behind || self.leaving.is_some() || self.decided().is_some() {
            return;
        }
        match founders::check_regroup(self.facts(step), regroup) {
            Ok(()) => self.join(step, digest, regroup),
            Err(reason) if proposer != self.me.peer => {
                let (series, head) = (self.series(), self.slot.head);
                let refuse = Refuse { series, what: digest, promised: 0, head, reason };
                step.put(Output::Send(proposer, self.seal(Message::Refuse(refuse))));
            }
            Err(_) => {}
        }
    }

    /// R13: leaves the series, and those that it descends from, for good.
    fn join(&mut self, step: &mut Step<'_>, digest: Digest, regroup: &Regroup) {
        self.abort(step, Reason::Regroup);
        self.slot.series.asking = None;
        let done = self.keeps(Rule::R13).then(|| highest_done_of_chain(self.facts(step))).flatten();
        let (regroup, logged) = (regroup.clone(), done.clone().map(Box::new));
        self.log(step, Record::Joined { regroup: regroup.clone(), done: logged });
        let members = regroup.members.clone();
        let joined = Joined { digest, regroup, done };
        self.slot.series.gathering.joined_at.get_or_insert(step.now);
        let proven = joined.done.as_ref().map(|done| wire::ranked(&self.validator.run, done));
        let message = self.note_joined(joined);
        let until = step.now + self.facts(step).join_time();
        self.slot.series.stage = Stage::Joined { regroup: digest, until };
        self.slot.series.repeat_at = step.now + self.facts(step).repeat_interval();
        step.put(Output::Gossip(message));
        for member in members.iter().filter(|m| m.peer != self.me.peer) {
            proven.iter().for_each(|vote| self.prove(step, member.peer, vote));
        }
    }

    pub(super) fn on_join(
        &mut self,
        step: &mut Step<'_>,
        message: &Verified<Message>,
        join: &Join,
    ) {
        let (from, digest, me) = (message.author(), join.regroup, self.me.peer);
        let impossible = join.done.is_some() && self.voters().is_empty();
        if impossible || !can_have_voted(join, self.slot.depth()) {
            step.put(Output::Fault(from, Fault::Certificate(CertificateFault::ImpossibleVote)));
            return;
        }
        let Some(known) = self.slot.series.gathering.joined(&me, digest) else { return };
        let who = Voter { peer: from, log: join.log };
        if known.regroup.as_ref().is_some_and(|regroup| !regroup.members.contains(&who)) {
            return;
        }
        let said = known.joins.get(&from).map(|(said, _)| said);
        if said.is_some_and(|said| said != join) {
            known.is_torn = true;
            step.put(Output::Fault(from, Fault::Certificate(CertificateFault::TwoJoins)));
            return;
        }
        let room = known.joins.len() < MEMBERS_MAX;
        let repeated =
            room && known.joins.insert(from, (join.clone(), message.signature())).is_some();
        let mine = known.joins.get(&me).map(|(join, _)| join.clone());
        // A Regroup that we joined before another one must not open with us: we would not follow
        // it.
        let last = self.votes.of(self.series()).joined().map(|joined| joined.digest);
        if let (true, Some(join)) = (repeated, mine)
            && last == Some(digest)
            && self.may_reply(step, from, Reply::Join)
        {
            let proven = join.done;
            step.put(Output::Send(from, self.seal(Message::Join(join))));
            proven.iter().for_each(|vote| self.prove(step, from, vote));
        }
    }

    /// R13: opens the new series when every member has joined. Only the last Regroup joined is ever
    /// entered.
    pub(super) fn open_joined(&mut self, step: &mut Step<'_>) -> bool {
        let Stage::Joined { regroup: digest, .. } = self.slot.series.stage else { return false };
        let known = self.slot.series.gathering.known.get(&digest);
        let Some(known) = known.filter(|known| !known.is_torn) else { return false };
        let Some(regroup) = &known.regroup else { return false };
        let join = |m: &Voter| {
            let (join, signature) = known.joins.get(&m.peer)?;
            (join.log == m.log).then(|| (m.peer, join.clone(), *signature))
        };
        let joins: Option<Vec<_>> = regroup.members.iter().map(join).collect();
        let Some(joins) = joins else { return false };
        let mut opening = Opening { regroup: regroup.as_ref().clone(), joins, ground: None };
        // A member whose vote is not proven has not joined.
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
        self.announce_ready(step);
        self.replay_early(step);
    }

    /// Enters the series that a Regroup opens, with what its Joins force there.
    pub(super) fn enter_opened(&mut self, step: &Step<'_>, opening: Opening) {
        let series = self.validator.opened(&opening);
        self.slot.enter(step.now, opening, series);
    }

    /// Remembers a Regroup that we have joined, now or before a restart (R20). Returns our Join.
    pub(super) fn note_joined(&mut self, joined: Joined) -> Arc<Verified<Message>> {
        let Joined { digest, regroup, done } = joined;
        let (series, log, me) = (self.series(), self.me.log, self.me.peer);
        let done = done.map(|done| {
            let vote = wire::ranked(&self.validator.run, &done);
            self.slot.grounds.insert(vote, done);
            vote
        });
        let join = Join { series, regroup: digest, log, done };
        let message = self.seal(Message::Join(join.clone()));
        let gathering = &mut self.slot.series.gathering;
        gathering.number_seen = gathering.number_seen.max(regroup.number);
        let known = gathering.known(&me, digest);
        known.regroup.get_or_insert_with(|| Arc::new(regroup));
        known.joins.insert(me, (join, message.signature()));
        message
    }

    /// Follows Regroups that another peer served. A member enters through its own Join. Any other
    /// peer may go along without a vote, and thereby leaves its own series for good (R13): only if
    /// that series has no majority present, or no vote of ours.
    pub(super) fn on_openings(&mut self, step: &mut Step<'_>, from: PeerId, openings: &[Opening]) {
        let ours = self.slot.openings.len();
        let theirs = openings.iter().map(|opening| self.validator.opened(opening));
        // What proves a vote can differ: two openings are the same if they open the same series.
        let extend = theirs.take(ours).eq(self.slot.chain.iter().skip(1).copied());
        if openings.len() <= ours || !extend || self.decided().is_some() {
            return;
        }
        let base = Series { regroup: None, ..self.series() };
        if !openings.iter().all(|o| o.regroup.series.is_beside(&base)) {
            return;
        }
        if let Err(fault) = self.validator.follow(base, &self.slot.base, self.ledger(), openings) {
            step.put(Output::Fault(from, fault));
            return;
        }
        let me = self.me.voter();
        for opening in openings.iter().skip(ours) {
            let digest = wire::regroup_digest(&self.validator.run, &opening.regroup);
            let member = opening.regroup.members.contains(&me);
            let last = self.votes.of(self.series()).joined().map(|joined| joined.digest);
            let bound = self.is_voter()
                && self.facts(step).has_majority()
                && !founders::awaits_news(self.facts(step));
            let free = !member && !bound;
            if !(last == Some(digest) || free) {
                return;
            }
            self.abort(step, Reason::Regroup);
            self.open(step, opening.clone());
        }
    }

    pub(super) fn on_leave(&mut self, step: &Step<'_>) {
        self.leaving.get_or_insert(step.now + LEAVE_WAIT);
    }

    /// R29: says goodbye once nothing is open, or the wait is over.
    pub(super) fn leave(&mut self, step: &mut Step<'_>) -> bool {
        if self.leaving.is_none() {
            return false;
        }
        let open = match &self.slot.series.stage {
            Stage::Open { .. } | Stage::Decided(_) | Stage::Applying(_) => true,
            Stage::Idle { .. } | Stage::Recover { .. } | Stage::Joined { .. } => false,
        };
        if open && !timers::is_over(self.facts(step), Timer::Leave) {
            return false;
        }
        self.left = true;
        // R29: the peers that are here may go on without us, and those that were here may have
        // decided what is open. So we must not decide it again after our return. The last peer to
        // leave, with nothing open, has left nobody behind; and where no Regroup is lawful, nothing
        // could open the series again.
        let others = open || step.table.live(step.now).next().is_some();
        if others && self.is_voter() && self.validator.quorum.regroups() {
            self.log(step, Record::Left { series: self.series() });
        }
        let leaving = Leaving { head: self.slot.head, incarnation: self.me.incarnation };
        step.put(Output::Gossip(self.seal(Message::Leaving(leaving))));
        step.put(Output::Left);
        false
    }
}

fn highest_done_of_chain(facts: Facts<'_>) -> Option<Voted> {
    let dones = facts.slot.chain.iter().filter_map(|s| facts.votes.of(*s).dones().next_back());
    dones.max_by_key(|done| (done.depth, done.roster.attempt)).cloned()
}
