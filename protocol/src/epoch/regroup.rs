//! Regroup: the founding, and what the survivors of a lost majority sign (R12–R15).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::event::Event;
use crate::fault::Fault;
use crate::id::{Digest, PeerId};
use crate::lineage::can_have_voted;
use crate::log::{Joined, Record};
use crate::message::{
    Absence, Join, MEMBERS_MAX, Message, Opening, Refusal, Refuse, Regroup, Series, Voted, Voter,
};
use crate::ring::{Order, order};
use crate::roll::{Roll, Seen};
use crate::sign::{Signature, Verified};
use crate::time::Time;
use crate::wire;

use super::{Output, Rule, Stage, State};

/// The Regroups of the current series, as far as they are known.
#[derive(Clone, Debug, Default)]
pub(super) struct Gathering {
    known: BTreeMap<Digest, Known>,
    number_seen: u32,
    /// Who would take part beside us, in order, and when it is our turn to propose that.
    candidates: Vec<PeerId>,
    turn: Option<Turn>,
}

#[derive(Clone, Copy, Debug)]
struct Turn {
    number: u32,
    due: Time,
}

#[derive(Clone, Debug, Default)]
struct Known {
    regroup: Option<Arc<Regroup>>,
    signed: Option<Arc<Verified<Message>>>,
    joins: BTreeMap<PeerId, (Join, Signature)>,
}

/// Regroups remembered of one series, and those that are known only from a Join.
const KNOWN_MAX: usize = 128;
const UNKNOWN_MAX: usize = 32;

/// Regroups of one series that a peer can have missed.
const NUMBERS_MISSED_MAX: u32 = 1 << 10;

/// Regroups that a peer without a vote may let pass before the others go on without it; guess: each
/// was repeated to it for as long as its deadline.
const PASSED_MAX: usize = 3;

/// The founding waits until nobody has come for so many heartbeats; guess: discovery takes less.
const FOUNDING_HEARTBEATS: u32 = 4;

impl State {
    /// R12: proposes a Regroup when no majority of voters is present, and it is our turn.
    pub(super) fn regroup(&mut self, now: Time, roll: &Roll, out: &mut Vec<Output>) -> bool {
        if !self.may_regroup(now, roll) {
            self.gathering.turn = None;
            return false;
        }
        let candidates = || self.candidates_beside(now, roll).map(|(peer, _)| *peer);
        let number = self.gathering.number_seen.saturating_add(1);
        let Gathering { turn, candidates: before, .. } = &self.gathering;
        let same = before.iter().copied().eq(candidates());
        match turn.filter(|turn| same && turn.number == number) {
            Some(turn) if now < turn.due => return false,
            Some(_) => {}
            None => {
                self.gathering.candidates = candidates().collect();
                self.gathering.turn = Some(self.next_turn(now, roll, number));
                return false;
            }
        }
        let Some(regroup) = self.compose_regroup(now, roll) else { return false };
        let message = self.seal(Message::Regroup(regroup.clone()));
        out.push(Output::Gossip(Arc::clone(&message)));
        self.gathering.turn = None;
        self.on_regroup(now, roll, &message, &regroup, out);
        true
    }

    fn may_regroup(&self, now: Time, roll: &Roll) -> bool {
        let waits = match &self.stage {
            Stage::Decided(_) | Stage::Applying(_) => false,
            Stage::Joined { until, .. } => now >= *until,
            _ => true,
        };
        waits
            && !self.config.law.majority_only
            && !self.behind
            && !self.ahead
            && self.leaving.is_none()
            && !self.majority_present(now, roll)
            && (!self.voters.is_empty() || self.enough_to_found(now, roll))
            && self.voters.iter().all(|v| self.is_member_or_absent(v, now, roll))
    }

    fn enough_to_found(&self, now: Time, roll: &Roll) -> bool {
        self.candidates_beside(now, roll).count() + 1 >= self.config.law.peers_min
    }

    /// Who would take part beside us: everyone alive in this very series, but for those without a
    /// vote here that have let several Regroups pass.
    fn candidates_beside<'a>(
        &'a self,
        now: Time,
        roll: &'a Roll,
    ) -> impl Iterator<Item = (&'a PeerId, &'a Seen)> {
        roll.live_in(self.series, now).filter(|(peer, _)| !self.keeps_away(peer))
    }

    /// Whether a peer has not joined several Regroups that named it and that we have joined.
    fn keeps_away(&self, peer: &PeerId) -> bool {
        let me = self.config.me;
        let passed = |known: &&Known| {
            let names = |regroup: &Arc<Regroup>| regroup.members.iter().any(|m| m.peer == *peer);
            known.joins.contains_key(&me)
                && !known.joins.contains_key(peer)
                && known.regroup.as_ref().is_some_and(names)
        };
        !self.names_voter(peer) && self.gathering.known.values().filter(passed).count() > PASSED_MAX
    }

    fn is_member_or_absent(&self, voter: &Voter, now: Time, roll: &Roll) -> bool {
        let here = |seen: &Seen| seen.beat.series == self.series && seen.beat.log == voter.log;
        *voter == self.as_voter()
            || (roll.alive(&voter.peer, now) && roll.peers.get(&voter.peer).is_some_and(here))
            || self.absence(voter, now, roll).is_some()
    }

    /// When our turn to propose comes, if nobody comes or goes.
    pub(super) fn regroup_due(&self) -> Option<Time> {
        self.gathering.turn.map(|turn| turn.due)
    }

    fn next_turn(&self, now: Time, roll: &Roll, number: u32) -> Turn {
        let founding = if self.voters.is_empty() { FOUNDING_HEARTBEATS } else { 0 };
        let due = now + roll.heartbeat * founding + self.turn(now, roll, number);
        Turn { number, due }
    }

    /// Everyone alive in this very series, ourselves included, by hash.
    fn candidates(&self, now: Time, roll: &Roll) -> Vec<Voter> {
        let others = self
            .candidates_beside(now, roll)
            .map(|(peer, seen)| Voter { peer: *peer, log: seen.beat.log });
        let mut all: Vec<Voter> = others.chain([self.as_voter()]).collect();
        let key = |v: &Voter| {
            let number = self.gathering.number_seen;
            order(Order::Ring, &self.config.law.run, &self.series.parent, number, &v.peer)
        };
        all.sort_by_cached_key(|v| (!self.voters.contains(v), v.peer != self.config.me, key(v)));
        all.truncate(MEMBERS_MAX);
        all.sort_by_cached_key(|v| (!self.voters.contains(v), key(v)));
        all
    }

    /// Whether `voter` is here, or may yet come, as far as we heard.
    pub(super) fn present(&self, voter: &Voter, now: Time, roll: &Roll) -> bool {
        // The usual case, in short: heard in this very series just now.
        if let Some(seen) = roll.peers.get(&voter.peer)
            && seen.beat.series == self.series
            && seen.beat.log == voter.log
            && seen.beat.joined.is_none()
            && !seen.has_left()
            && now.since(seen.heard) < roll.grace
        {
            return true;
        }
        matches!(self.absence(voter, now, roll), None | Some(Absence::Mute))
    }

    /// Why a voter outside may be left behind; `None` while it may not.
    fn absence(&self, voter: &Voter, now: Time, roll: &Roll) -> Option<Absence> {
        let because = |seen: &Seen| {
            if seen.has_left() {
                Some(Absence::Left)
            } else if seen.beat.log != voter.log {
                Some(Absence::OtherLog)
            } else if self.is_elsewhere(seen) {
                Some(Absence::Elsewhere)
            } else {
                None
            }
        };
        if *voter == self.as_voter() {
            return None;
        }
        let mute = self.withholds(&voter.peer).then_some(Absence::Mute);
        let silent = roll.silent(voter, self.series, self.entered, now);
        let silent = silent.then_some(Absence::Silent);
        roll.peers.get(&voter.peer).and_then(because).or(silent).or(mute)
    }

    /// Whether it has joined a Regroup of our series, or of one before, that does not lead to us.
    fn is_elsewhere(&self, seen: &Seen) -> bool {
        let beat = &seen.beat;
        if !beat.series.is_beside(&self.series) {
            return false;
        }
        match self.chain.iter().position(|series| *series == beat.series) {
            Some(index) => {
                let ours = self.chain.get(index + 1).and_then(|next| next.regroup);
                // Who joined ours may have said before that it had joined one that never opened.
                let news = seen.named(beat.series).is_some_and(|at| at > self.entered);
                beat.joined.is_some() && beat.joined != ours && (news || ours.is_none())
            }
            None => true,
        }
    }

    fn compose_regroup(&self, now: Time, roll: &Roll) -> Option<Regroup> {
        let members = self.candidates(now, roll);
        let outside = self.voters.iter().filter(|v| !members.contains(v));
        let absent: Option<Vec<_>> =
            outside.map(|v| Some((*v, self.absence(v, now, roll)?))).collect();
        Some(Regroup {
            series: self.series,
            number: self.gathering.number_seen.saturating_add(1),
            proposer: self.config.me,
            members,
            absent: absent?,
        })
    }

    pub(super) fn on_regroup(
        &mut self,
        now: Time,
        roll: &Roll,
        message: &Arc<Verified<Message>>,
        regroup: &Regroup,
        out: &mut Vec<Output>,
    ) {
        let proposer = message.author();
        if regroup.proposer != proposer {
            out.push(Output::Fault(proposer, Fault::Certificate("a Regroup of somebody else")));
            return;
        }
        if let Err(fault) = self.config.law.check_regroup(&self.voters, regroup) {
            out.push(Output::Fault(proposer, fault));
            return;
        }
        // Numbers rise one by one; a jump would use them up.
        let most = self.gathering.number_seen.saturating_add(NUMBERS_MISSED_MAX);
        if regroup.number > most || regroup.number == u32::MAX {
            return;
        }
        let digest = wire::regroup_digest(&self.config.law.run, regroup);
        let known = self.known(digest);
        known.signed.get_or_insert_with(|| Arc::clone(message));
        known.regroup.get_or_insert_with(|| Arc::new(regroup.clone()));
        self.gathering.number_seen = self.gathering.number_seen.max(regroup.number);
        let joined = self.votes.of(self.series).joined().map_or(0, |joined| joined.regroup.number);
        if regroup.number <= joined || !regroup.members.contains(&self.as_voter()) {
            return;
        }
        if self.behind || self.leaving.is_some() || self.decided().is_some() {
            return;
        }
        match self.check_regroup(now, roll, regroup) {
            Ok(()) => self.join(now, roll, digest, regroup, out),
            Err(reason) if proposer != self.config.me => {
                let (series, head) = (self.series, self.head);
                let refuse = Refuse { series, what: digest, promised: 0, head, reason };
                out.push(Output::Send(proposer, self.seal(Message::Refuse(refuse))));
            }
            Err(_) => {}
        }
    }

    /// R12, R15, S7: every member checks with its own eyes.
    fn check_regroup(&self, now: Time, roll: &Roll, regroup: &Regroup) -> Result<(), Refusal> {
        let me = self.as_voter();
        for voter in self.voters.iter().filter(|v| !regroup.members.contains(v)) {
            if *voter == me || self.absence(voter, now, roll).is_none() {
                return Err(Refusal::Present(voter.peer));
            }
        }
        for member in regroup.members.iter().filter(|m| **m != me) {
            let here = roll.live_in(self.series, now);
            let mut same =
                here.filter(|(p, seen)| **p == member.peer && seen.beat.log == member.log);
            if same.next().is_none() {
                return Err(Refusal::Absent(member.peer));
            }
        }
        if self.voters.is_empty() {
            let outside = self
                .candidates_beside(now, roll)
                .find(|(peer, _)| !regroup.members.iter().any(|m| m.peer == **peer));
            if let Some((peer, _)) = outside {
                return Err(Refusal::Present(*peer));
            }
        }
        Ok(())
    }

    /// R13: leaves the series, and those that it descends from, for ever.
    fn join(
        &mut self,
        now: Time,
        roll: &Roll,
        digest: Digest,
        regroup: &Regroup,
        out: &mut Vec<Output>,
    ) {
        self.abort("regroup", out);
        self.asking = None;
        let done = self.keeps(Rule::R13).then(|| self.highest_done_of_chain()).flatten();
        let logged = done.clone().map(Box::new);
        self.log(Record::Joined { regroup: regroup.clone(), done: logged }, out);
        let (series, log, me) = (self.series, self.config.log, self.config.me);
        let join = Join { series, regroup: digest, log, done };
        let message = self.seal(Message::Join(join.clone()));
        self.known(digest).joins.insert(me, (join, message.signature()));
        let until = now + self.accept_time(now, roll, regroup.number);
        self.stage = Stage::Joined { regroup: digest, until };
        self.repeat_at = now + self.repeat_interval(now, roll);
        out.push(Output::Gossip(message));
    }

    fn highest_done_of_chain(&self) -> Option<Voted> {
        let chain = (0..).zip(&self.chain);
        chain
            .filter_map(|(depth, series)| self.highest_done(*series, depth))
            .max_by_key(Voted::rank)
    }

    pub(super) fn on_join(
        &mut self,
        now: Time,
        message: &Verified<Message>,
        join: &Join,
        out: &mut Vec<Output>,
    ) {
        let (from, digest, me) = (message.author(), join.regroup, self.config.me);
        if !can_have_voted(join, self.depth()) {
            out.push(Output::Fault(from, Fault::Certificate("a Join with an impossible vote")));
            return;
        }
        let all = &self.gathering.known;
        let unknown = all.values().filter(|known| known.regroup.is_none()).count();
        if !all.contains_key(&digest) && unknown >= UNKNOWN_MAX {
            return;
        }
        let known = self.known(digest);
        let member = |regroup: &Arc<Regroup>| regroup.members.iter().any(|m| m.peer == from);
        if known.regroup.as_ref().is_some_and(|regroup| !member(regroup)) {
            return;
        }
        let room = known.joins.len() < MEMBERS_MAX;
        let repeated =
            room && known.joins.insert(from, (join.clone(), message.signature())).is_some();
        let mine = known.joins.get(&me).map(|(join, _)| join.clone());
        if let (true, Some(join)) = (repeated, mine)
            && self.may_reply(now, from, 3)
        {
            out.push(Output::Send(from, self.seal(Message::Join(join))));
        }
    }

    /// R13: when every member has joined, the new series is open. Only the last Regroup joined is
    /// ever entered.
    pub(super) fn open_joined(&mut self, now: Time, roll: &Roll, out: &mut Vec<Output>) -> bool {
        let Stage::Joined { regroup: digest, .. } = self.stage else { return false };
        let Some(known) = self.gathering.known.get(&digest) else { return false };
        let Some(regroup) = &known.regroup else { return false };
        let joins: Option<Vec<_>> = regroup
            .members
            .iter()
            .map(|m| {
                let (join, signature) = known.joins.get(&m.peer)?;
                (join.log == m.log).then(|| (m.peer, join.clone(), *signature))
            })
            .collect();
        let Some(joins) = joins else { return false };
        let opening = Opening { regroup: regroup.as_ref().clone(), joins };
        self.open(now, roll, opening, out);
        true
    }

    fn open(&mut self, now: Time, roll: &Roll, opening: Opening, out: &mut Vec<Output>) {
        self.log(Record::Opened { opening: opening.clone() }, out);
        let Regroup { members, absent, .. } = &opening.regroup;
        out.push(Output::Event(Event::Regroup {
            epoch: self.series.epoch,
            members: members.iter().map(|v| v.peer).collect(),
            absent: absent.iter().map(|(v, _)| v.peer).collect(),
        }));
        self.enter_opened(now, opening);
        self.say_ready(out);
        self.replay_early(now, roll, out);
    }

    /// Enters the series that a Regroup of ours opens, with what its Joins force there.
    pub(super) fn enter_opened(&mut self, now: Time, opening: Opening) {
        let digest = wire::regroup_digest(&self.config.law.run, &opening.regroup);
        let found = opening.joins.iter().filter_map(|(_, join, _)| join.done.clone());
        let highest = found.max_by_key(Voted::rank);
        self.forced = highest.or_else(|| self.forced.take());
        let voters = opening.regroup.members.clone();
        self.openings.push(opening);
        self.enter_series(now, self.series.regrouped(digest), voters);
    }

    /// R20: a Join that was logged binds, and is repeated, though the Regroup has not opened.
    pub(super) fn resume_joined(&mut self, joined: Joined) -> Digest {
        let Joined { digest, regroup, done } = joined;
        let (series, log, me) = (self.series, self.config.log, self.config.me);
        let join = Join { series, regroup: digest, log, done };
        let signature = self.seal(Message::Join(join.clone())).signature();
        self.gathering.number_seen = regroup.number;
        let known = self.known(digest);
        known.regroup = Some(Arc::new(regroup));
        known.joins.insert(me, (join, signature));
        digest
    }

    /// Regroups that somebody served. A member enters through its own Join; anybody else may go
    /// along without a vote, and thereby leaves its own series for ever (R13): only where that
    /// series has no majority present, or no vote of ours.
    pub(super) fn on_openings(
        &mut self,
        now: Time,
        roll: &Roll,
        from: PeerId,
        openings: &[Opening],
        out: &mut Vec<Output>,
    ) {
        let (ours, theirs) = (self.openings.len(), openings.len());
        if theirs <= ours
            || openings.get(..ours) != Some(&self.openings)
            || self.decided().is_some()
        {
            return;
        }
        let base = Series { regroup: None, ..self.series };
        if !openings.iter().all(|o| o.regroup.series.is_beside(&base)) {
            return;
        }
        if let Err(fault) = self.config.law.follow(base, &self.base, openings) {
            out.push(Output::Fault(from, fault));
            return;
        }
        let me = self.as_voter();
        for opening in openings.iter().skip(ours) {
            let digest = wire::regroup_digest(&self.config.law.run, &opening.regroup);
            let member = opening.regroup.members.contains(&me);
            let last = self.votes.of(self.series).joined().map(|joined| joined.digest);
            let free = !member && (!self.is_voter() || !self.majority_present(now, roll));
            if !(last == Some(digest) || free) {
                return;
            }
            self.abort("regroup", out);
            self.open(now, roll, opening.clone(), out);
        }
    }

    /// To members whose Join is missing: the Regroup as its proposer signed it, and our Join.
    pub(super) fn repeat_join(&self, digest: Digest, out: &mut Vec<Output>) {
        let Some(known) = self.gathering.known.get(&digest) else { return };
        let Some(regroup) = &known.regroup else { return };
        let Some((join, _)) = known.joins.get(&self.config.me) else { return };
        let join = self.seal(Message::Join(join.clone()));
        for member in regroup.members.iter().filter(|m| !known.joins.contains_key(&m.peer)) {
            // After a restart it is known, but no longer as its proposer signed it.
            if let Some(signed) = &known.signed {
                out.push(Output::Send(member.peer, Arc::clone(signed)));
            }
            out.push(Output::Send(member.peer, Arc::clone(&join)));
        }
    }

    /// What is known of a Regroup. Where there is no room, the one of the lowest number gives way that
    /// does not bind us.
    fn known(&mut self, digest: Digest) -> &mut Known {
        let me = self.config.me;
        let known = &mut self.gathering.known;
        if known.len() >= KNOWN_MAX && !known.contains_key(&digest) {
            let number = |known: &Known| known.regroup.as_ref().map_or(0, |r| r.number);
            let free = known.iter().filter(|(_, known)| !known.joins.contains_key(&me));
            let lowest = free.min_by_key(|(_, known)| number(known)).map(|(digest, _)| *digest);
            lowest.and_then(|lowest| known.remove(&lowest));
        }
        known.entry(digest).or_default()
    }
}
