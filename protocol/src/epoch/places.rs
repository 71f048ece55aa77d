//! Who has a place in the ring, and what a voter demands of a roster that somebody else made (G4–G7).
//!
//! A proposer decides alone who computes and who votes next. So a voter accepts a free roster only if
//!
//! - it names every voter that is alive to it (G6): being late or lost takes a place, never the vote;
//! - before its patience has ended, all of them have a place (G6): nobody is left out by haste;
//! - later, a fair share of those have one whose work it has known to be frozen for a while (G6);
//! - newcomers stay a minority of the old voters, and none is named first (G7).
//!
//! Two honest peers have not seen the same, so each demand leaves room for what they may differ in. What
//! a proposer gives to newcomers is bounded as well (G5): a key is free, a place is not.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::id::PeerId;
use crate::message::{MEMBERS_MAX, Member, Phase, Refusal, Roster, Voter};
use crate::ring::{Order, order};
use crate::roll::Seen;
use crate::step::Step;
use crate::time::Time;

use super::attendance::{Place, Question};
use super::backoff::BackOff;
use super::ballot::Ballot;
use super::seats::has_seat;
use super::{Rule, State, ready};

/// Added to the median for epochs so short that scheduling noise exceeds half of them; guess.
const GRACE_MIN: Duration = Duration::from_secs(4);

/// A voter's patience with others ends so much before its own wait for them would: two peers measure
/// the last epoch differently.
const PATIENCE_MIN: Duration = Duration::from_secs(1);

/// Where the last epoch gives no measure, at the latest after so many graces.
const GRACES_MAX: u32 = 10;

/// How much longer than the voters newcomers have at least; guess: to fetch an update and apply it.
const GUEST_WAIT_MIN: Duration = Duration::from_millis(250);

/// Of the voters whose work is frozen, one of so many at least has a place.
const SHARE: usize = 3;

/// Attempts at which newcomers have places: the second only those that accepted the first.
const GUEST_ATTEMPTS: u64 = 2;

impl State {
    // ---- patience ------------------------------------------------------------------------------

    /// When waiting for others to be Ready ends (R36): some time after half of the voters were, at the
    /// latest a longer one after the first; both by how long they took last time.
    pub(super) fn grace_until(&self, step: &Step<'_>) -> Option<Time> {
        let grace = self.config.ready_grace;
        let usual = match self.ready_median {
            Some(m) => self.ready_for(step, (m / 2).max(GRACE_MIN), (m * 3 / 2).max(m + GRACE_MIN)),
            None => self.ready_for(step, grace, grace * GRACES_MAX),
        };
        // Who has no work of its own proposes that of others, once they have waited for the grace.
        match self.slot.frozen {
            Some(frozen) => Some(usual?.max(frozen.at)),
            None => Some(usual?.max(self.oldest_ready()? + grace)),
        }
    }

    /// When this voter accepts a roster that leaves somebody out: a little earlier than it would propose
    /// one, since no two peers measure the same.
    fn patience_until(&self, step: &Step<'_>) -> Option<Time> {
        let grace = self.config.ready_grace;
        match self.ready_median {
            Some(m) => {
                self.ready_for(step, (m / 8).max(PATIENCE_MIN), (m * 9 / 8).max(m + PATIENCE_MIN))
            }
            None => self.ready_for(step, grace / 2, grace * GRACES_MAX / 2),
        }
    }

    /// When half of the alive voters have been Ready for so long, or the first one for so much longer.
    fn ready_for(&self, step: &Step<'_>, half: Duration, first: Duration) -> Option<Time> {
        let alive = |v: &&Voter| **v == self.me.voter() || step.roll.alive(&v.peer, step.now);
        let alive = self.voters().iter().filter(alive).count();
        let mut at: Vec<Time> = self.ready_voters().map(|(_, at)| at).collect();
        at.sort_unstable();
        let latest = *at.first()? + first;
        let early = at.get(alive.div_ceil(2).saturating_sub(1)).map(|at| *at + half);
        Some(early.map_or(latest, |early| early.min(latest)))
    }

    /// The voters that are Ready, and since when; ourselves among them.
    fn ready_voters(&self) -> impl Iterator<Item = (PeerId, Time)> {
        let own = self.slot.frozen.filter(|_| self.is_voter()).map(|f| (self.me.peer, f.at));
        let others = self.slot.ready.iter().filter(|(peer, _)| self.names_voter(peer));
        others.map(|(peer, declared)| (*peer, declared.at)).chain(own)
    }

    fn oldest_ready(&self) -> Option<Time> {
        self.slot.ready.values().map(|declared| declared.at).min()
    }

    /// The median time that voters took to be Ready, if half of them were.
    pub(super) fn measured(&self) -> Option<Duration> {
        if 2 * self.ready_voters().count() < self.voters().len() {
            return None;
        }
        let since = |(_, at): (PeerId, Time)| at.since(self.slot.began);
        ready::median(&mut self.ready_voters().map(since).collect::<Vec<_>>())
    }

    /// Whether everyone is Ready for whom the first attempt waits (R36), for as long as our patience lasts: all but
    /// those who made us wait in vain lately (G5).
    pub(super) fn everyone_ready(&self, step: &Step<'_>) -> bool {
        step.roll.live(step.now).all(|(peer, seen)| {
            let beat = &seen.beat;
            self.ready_of(peer, beat.incarnation).is_some()
                || !beat.direct
                || beat.phase == Phase::Behind
                || !self.place_of(step, peer, seen).counts(Question::IsAwaited)
                || (self.keeps(Rule::G5) && self.is_not_awaited(step, peer))
        })
    }

    /// G5: whether somebody that is not Ready made us wait in vain lately. Of newcomers it has a little longer than the
    /// voters.
    fn is_not_awaited(&self, step: &Step<'_>, peer: &PeerId) -> bool {
        if self.names_voter(peer) {
            return self.waits.voters.get(peer).is_some_and(BackOff::is_out);
        }
        (self.waits.guests.is_out() || self.trouble.is_out(peer))
            && self.guests_until().is_some_and(|until| step.now >= until)
    }

    /// Until when newcomers are waited for that have made us wait in vain.
    pub(super) fn guests_until(&self) -> Option<Time> {
        let last = self.ready_voters().map(|(_, at)| at).max()?;
        Some(last + (last.since(self.slot.began) / 8).max(GUEST_WAIT_MIN))
    }

    /// Who made trouble in the open epoch (G13).
    pub(super) fn troubled(&self) -> BTreeSet<PeerId> {
        let accused = self.slot.lost.accused().copied().collect::<BTreeSet<_>>();
        let newcomer = |peer: &PeerId| !self.names_voter(peer);
        let suspects = accused.into_iter().chain(self.stallers()).filter(newcomer);
        self.slot.lost.troubled().into_iter().chain(suspects).collect()
    }

    /// Who was in every ring of this epoch that was lost, and in none that ended: when one member is silent,
    /// all of them blame their neighbours at once.
    pub(super) fn stallers(&self) -> BTreeSet<PeerId> {
        let ring = |ballot: &Ballot| -> BTreeSet<PeerId> {
            ballot.roster.iter().flat_map(|r| r.ring()).map(|member| member.peer).collect()
        };
        let all = || self.slot.ballots.values();
        let lost = all().filter(|ballot| ballot.is_ring_lost()).map(ring);
        let lost = lost.reduce(|a, b| a.intersection(&b).copied().collect()).unwrap_or_default();
        let ended: BTreeSet<PeerId> =
            all().filter(|b| !b.dones.is_empty()).flat_map(ring).collect();
        lost.difference(&ended).copied().collect()
    }

    /// Whether a ring of this epoch was lost.
    pub(super) fn any_ring_lost(&self) -> bool {
        self.slot.ballots.values().any(Ballot::is_ring_lost)
    }

    /// Whether the first roster of the epoch still waits: for everybody to be Ready, or for the grace.
    pub(super) fn is_too_early(&self, step: &Step<'_>) -> bool {
        let over = || self.grace_until(step).is_some_and(|until| step.now >= until);
        let ready = || self.slot.frozen.is_some() && self.everyone_ready(step);
        self.slot.forced.is_none() && !over() && !ready()
    }

    /// Whether nobody has accepted, or voted for, anything in this epoch that we know of.
    pub(super) fn is_untouched(&self) -> bool {
        let me = self.me.peer;
        let touched =
            |ballot: &Ballot| ballot.accepts.contains_key(&me) || !ballot.dones.is_empty();
        !self.slot.ballots.values().any(touched)
    }

    /// G5: an epoch is over: whether newcomers that were awaited came.
    pub(super) fn count_guests(&mut self, step: &Step<'_>) {
        let live = step.roll.live_in(self.series(), step.now);
        let here = live.filter(|(p, seen)| {
            !self.names_voter(p) && seen.beat.direct && seen.beat.phase != Phase::Behind
        });
        let came =
            |(peer, seen): (&PeerId, &Seen)| self.ready_of(peer, seen.beat.incarnation).is_some();
        let came: Vec<bool> = here.map(came).collect();
        self.waits.guests.count_epoch(came.contains(&true), came.contains(&false));
    }

    /// G5: an epoch is over for which we were Ready ourselves: which of the other voters were not.
    pub(super) fn count_late(&mut self, step: &Step<'_>) {
        if self.slot.frozen.is_none() {
            return;
        }
        let live = step.roll.live_in(self.series(), step.now);
        let awaited = live.filter(|(peer, seen)| {
            self.names_voter(peer) && seen.beat.direct && seen.beat.phase != Phase::Behind
        });
        let came = |(peer, seen): (&PeerId, &Seen)| {
            (*peer, self.ready_of(peer, seen.beat.incarnation).is_some())
        };
        let came: Vec<(PeerId, bool)> = awaited.map(came).collect();
        self.waits.voters.retain(|peer, _| came.iter().any(|(other, _)| other == peer));
        for (peer, came) in came {
            self.waits.voters.entry(peer).or_default().count_epoch(came, !came);
        }
    }

    // ---- what a proposer gives -----------------------------------------------------------------

    /// Whether a peer that is Ready can have a place in our roster of that attempt.
    pub(super) fn is_able(&self, step: &Step<'_>, peer: &PeerId, seen: &Seen) -> bool {
        seen.beat.direct
            && seen.beat.phase != Phase::Behind
            && step.roll.alive(peer, step.now)
            && !self.is_going(peer)
            && !self.slot.lost.contains(step, peer)
            && !self.is_excused(peer)
    }

    /// G4, G13: whether we have it on record that this peer costs attempts.
    fn is_excused(&self, peer: &PeerId) -> bool {
        let late = self.slot.lost.is_trouble(peer) && self.keeps(Rule::G4);
        // Two may lie of one: that costs a newcomer its place, not a voter.
        let mute = !self.names_voter(peer) && self.slot.lost.is_accused(peer);
        late || (mute && self.keeps(Rule::G5))
            || ((self.trouble.is_out(peer) || self.stalls.is_out(peer)) && self.keeps(Rule::G13))
    }

    /// G6: the voters that a roster of ours names beside us, with or without a place: who may still be
    /// there, by what we have heard or by what somebody told us.
    pub(super) fn present_voters(&self, step: &Step<'_>, attempt: u64) -> Vec<Member> {
        let others = self.voters().iter().filter(|voter| **voter != self.me.voter());
        let present = others.filter_map(|voter| {
            let seen = step.roll.peers.get(&voter.peer);
            let follows = seen.is_some_and(|seen| seen.beat.phase == Phase::Behind);
            let heard = seen.map_or(self.started, |seen| seen.heard);
            let here = self.place(step, voter).counts(Question::TakesPart)
                && !follows
                && step.now.since(heard) < step.roll.grace;
            let vouched = self.slot.vouched.contains(&voter.peer);
            let unheard = Member { peer: voter.peer, log: voter.log, incarnation: 0, weight: 0 };
            let member = |seen| self.member(step, attempt, &voter.peer, seen);
            let named = here || vouched;
            named.then(|| seen.filter(|s| s.beat.log == voter.log).map_or(unheard, member))
        });
        present.collect()
    }

    /// What a roster of ours says of a peer.
    pub(super) fn member(
        &self,
        step: &Step<'_>,
        attempt: u64,
        peer: &PeerId,
        seen: &Seen,
    ) -> Member {
        let beat = &seen.beat;
        let able = self.is_able(step, peer, seen) && !self.sits_out(step, attempt, peer);
        let weight = self.ready_of(peer, beat.incarnation).filter(|_| able).unwrap_or(0);
        Member { peer: *peer, log: beat.log, incarnation: beat.incarnation, weight }
    }

    /// G5, G7: the newcomers of a roster with so many `voters`, of all that could have a place.
    pub(super) fn choose_guests(
        &self,
        step: &Step<'_>,
        attempt: u64,
        voters: &[Member],
        mut guests: Vec<Member>,
    ) -> Vec<Member> {
        let key =
            |m: &Member| order(Order::Ring, &self.law.run, &self.series().parent, attempt, &m.peer);
        if !self.keeps(Rule::G5) {
            return guests;
        }
        let bounded = self.bounds_newcomers();
        let mut most = if bounded { (voters.len() / 2).max(1) } else { MEMBERS_MAX };
        let idle = !voters.iter().any(|m| m.weight > 0);
        if attempt > GUEST_ATTEMPTS {
            // Nobody else has work: then one, another one at each attempt.
            most = usize::from(idle);
        } else if attempt > 1 && !idle {
            let accepted = |m: &Member| {
                self.slot.ballots.values().any(|ballot| ballot.accepts.contains_key(&m.peer))
            };
            guests.retain(accepted);
        }
        if self.keeps(Rule::G7) && bounded {
            most = most.min(self.newcomers_max(voters.len()));
        }
        let since = |m: &Member| step.roll.peers.get(&m.peer).map(|seen| seen.since);
        let trouble = |m: &Member| self.trouble.count(&m.peer);
        guests.sort_by_cached_key(|m| (trouble(m), since(m), key(m)));
        let mut rest = guests.split_off(guests.len().min(most.div_ceil(2)));
        rest.sort_by_cached_key(|m| (trouble(m), key(m)));
        guests.extend(rest);
        guests.truncate(most);
        guests
    }

    // ---- what a voter demands ------------------------------------------------------------------

    /// G7: newcomers stay a minority of the old voters that are named, and none decides a tie.
    pub(super) fn check_newcomers(&self, roster: &Roster) -> Result<(), &'static str> {
        if !roster.is_free() || !self.keeps(Rule::G7) {
            return Ok(());
        }
        let (old, new): (Vec<Member>, Vec<Member>) =
            roster.members.iter().partition(|m| self.voters().contains(&m.voter()));
        let old_first = roster.members.first().is_some_and(|m| old.contains(m));
        match () {
            () if self.bounds_newcomers() && new.len() > self.newcomers_max(old.len()) => {
                Err("too many newcomers")
            }
            () if !old_first => Err("a newcomer first"),
            () => Ok(()),
        }
    }

    /// G6: whether a roster of somebody else leaves nobody out.
    pub(super) fn check_places(&self, step: &Step<'_>, roster: &Roster) -> Result<(), Refusal> {
        if !roster.is_free() || !self.is_voter() || !self.keeps(Rule::G6) {
            return Ok(());
        }
        let has_place = |peer: &PeerId| roster.member(peer).is_some_and(|m| m.weight > 0);
        let alive: Vec<(&PeerId, &Seen)> = self
            .live(step, Question::TakesPart)
            .filter(|(p, s)| self.is_alive(step, p, s))
            .collect();
        if let Some((peer, _)) = alive.iter().find(|(peer, _)| roster.member(peer).is_none()) {
            return Err(Refusal::Lacks(**peer));
        }
        let me = self.me.peer;
        let ring: Vec<Member> = roster.ring().copied().collect();
        let apart = self.apart(step, &roster.members);
        let seatless = |peer: &PeerId| !has_seat(&ring, *peer, &apart);
        let excused =
            |peer: &PeerId, seen: &Seen| !self.is_able(step, peer, seen) || seatless(peer);
        if let Some(left) = self.patience_left(step) {
            let late = |peer: &PeerId, seen: &Seen| {
                self.ready_of(peer, seen.beat.incarnation).is_none()
                    && self.is_not_awaited(step, peer)
            };
            let waits =
                |(peer, seen): &&(&PeerId, &Seen)| !excused(peer, seen) && !late(peer, seen);
            let mut all = alive.iter().filter(waits);
            let own = has_place(&me) || self.leaving.is_some() || seatless(&me);
            if !own || !all.all(|(peer, _)| has_place(peer)) {
                let left_ms = u32::try_from(left.as_millis()).unwrap_or(u32::MAX);
                return Err(Refusal::Early(left_ms));
            }
            return Ok(());
        }
        let settled_in = self.ask_time(step);
        let settled = |peer: &PeerId, seen: &Seen| {
            let declared = self.slot.ready.get(peer);
            declared.is_some_and(|d| {
                d.incarnation == seen.beat.incarnation && step.now.since(d.at) >= settled_in
            })
        };
        let ready = alive.iter().filter(|(p, s)| settled(p, s) && !excused(p, s));
        let own = usize::from(self.slot.frozen.is_some_and(|f| step.now.since(f.at) >= settled_in));
        let ready = ready.count() + own;
        let voters: BTreeSet<PeerId> = self.voters().iter().map(|v| v.peer).collect();
        let places = roster.ring().filter(|m| voters.contains(&m.peer)).count();
        if places < ready / SHARE { Err(Refusal::Places) } else { Ok(()) }
    }

    /// Whether a voter is so plainly alive that every proposer knows: heard since any loss of it.
    fn is_alive(&self, step: &Step<'_>, peer: &PeerId, seen: &Seen) -> bool {
        // R19: one that has lost its log is another voter, or none yet.
        self.voters().contains(&Voter { peer: *peer, log: seen.beat.log })
            && seen.beat.phase != Phase::Behind
            && self.place_of(step, peer, seen) != Place::Coming
            && !self.slot.lost.contains(step, peer)
    }

    /// How long our patience lasts still; `None` once we have accepted a roster of this epoch.
    pub(super) fn patience_left(&self, step: &Step<'_>) -> Option<Duration> {
        let me = self.me.peer;
        if self.slot.ballots.values().any(|ballot| ballot.accepts.contains_key(&me)) {
            return None;
        }
        // Nobody is Ready that we know of: it is too early for any roster.
        let until = self.patience_until(step).unwrap_or(step.now + self.config.ready_grace);
        (step.now < until).then(|| until.since(step.now))
    }

    /// G7: the most newcomers beside so many old voters. They are voters next: where a third may lie, liars among them must
    /// not become a third at once.
    fn newcomers_max(&self, old: usize) -> usize {
        if self.law.quorum.prepares() { (old / 8).max(1) } else { old.saturating_sub(1).max(1) }
    }
}
