//! Whom to ask next: who is ahead, and who has wasted a question (R23, R25, G12).

use std::cmp::Reverse;

use super::{
    ASK_INTERVAL, Asked, Digest, Event, Head, Heartbeat, Open, PeerId, Phase, REMEMBERED_MAX, Rank,
    Seen, State, Time, USUAL_WAIT, Voter,
};
use crate::base::rule::Rule;
use crate::machine::output::Output;
use crate::machine::step::{Ahead, Step};

impl State {
    /// Notes that a peer is asked now.
    pub(super) fn note_asked(&mut self, step: &Step<'_>, peer: PeerId) {
        let failures = self.asked.get(&peer).map_or(0, |asked| asked.failures);
        let until = step.now + ASK_INTERVAL;
        self.asked.insert(peer, Asked { until, in_vain: false, failures });
    }

    /// Notes that a peer was asked in vain: it is left alone for a while, and others come before it.
    pub(super) fn note_in_vain(&mut self, step: &Step<'_>, peer: PeerId) {
        let failures = self.asked.get(&peer).map_or(0, |asked| asked.failures);
        let until = step.now + step.roll.grace;
        let failures = failures.saturating_add(1);
        self.asked.insert(peer, Asked { until, in_vain: true, failures });
    }

    /// R25: what it has answered leads to no such head: it was asked in vain, and that head is left alone for a while.
    pub(super) fn note_nowhere(&mut self, step: &Step<'_>, peer: PeerId, head: Digest) {
        self.note_in_vain(step, peer);
        self.put_aside(peer, head, step.now + step.roll.grace);
    }

    /// Notes that a peer has led somewhere.
    pub(super) fn note_useful(&mut self, peer: &PeerId) {
        self.asked.entry(*peer).and_modify(|asked| asked.failures = 0);
    }

    fn is_asked(&self, step: &Step<'_>, peer: &PeerId) -> bool {
        self.asked.get(peer).is_some_and(|asked| step.now < asked.until)
    }

    /// Whether this peer was asked in vain lately.
    pub(super) fn is_silent(&self, step: &Step<'_>, peer: &PeerId) -> bool {
        self.asked.get(peer).is_some_and(|asked| asked.in_vain && step.now < asked.until)
    }

    /// Forgets questions that are over. Who failed is remembered for as long as it is there.
    fn forget_asked(&mut self, step: &Step<'_>) {
        let stays = |peer: &PeerId, asked: &mut Asked| {
            step.now < asked.until || (asked.failures > 0 && step.roll.alive(peer, step.now))
        };
        self.asked.retain(stays);
        let pairs = self.law.keeps(Rule::G12);
        let stays = |peer: &PeerId| !pairs || step.roll.alive(peer, step.now);
        self.aside.heads.retain(|(peer, _), until| *until > step.now && stays(peer));
        self.aside.unserved.retain(|_, until| *until > step.now);
    }

    pub(super) fn on_tick(&mut self, step: &mut Step<'_>, open: Open<'_>) {
        self.forget_asked(step);
        self.wait_for_attested(step);
        self.pass_notices(step);
        if self.pursuit.is_some() || open.applying {
            return;
        }
        self.rounds = 0;
        self.note_caught_up(step);
        if !step.roll.live(step.now).any(|(peer, seen)| self.is_ahead(peer, seen)) {
            self.ahead_since = None;
        }
        let Some((peer, head)) = self.first_ahead(step, open) else {
            if !self.awaits_next(step) {
                self.look_beside(step, open);
            }
            return;
        };
        self.ask_lineage(step, (peer, head), self.head.epoch);
    }

    /// Whether somebody who may be asked is one epoch ahead, which is waited for.
    fn awaits_next(&self, step: &Step<'_>) -> bool {
        let mut live = step.roll.live(step.now);
        live.any(|(peer, seen)| !self.is_asked(step, peer) && self.is_ahead(peer, seen))
    }

    /// G12: of those ahead whoever the newest receipt names comes first, as they are hard to feign; then who
    /// has wasted no question; then the greatest head (R23). Among equals chance decides, or a small name
    /// would be asked before all others. A head one epoch ahead is given a moment to reach us by votes.
    fn first_ahead(&mut self, step: &Step<'_>, open: Open<'_>) -> Option<(PeerId, Head)> {
        let ahead = |(peer, seen): &(&PeerId, &Seen)| {
            !self.is_asked(step, peer) && self.is_ahead(peer, seen)
        };
        let mut candidates: Vec<(PeerId, Head, Rank)> = step
            .roll
            .live(step.now)
            .filter(ahead)
            .map(|(peer, seen)| (*peer, seen.beat.head, self.claimed_by(seen)))
            .collect();
        if candidates.is_empty() {
            return None;
        }
        let since = *self.ahead_since.get_or_insert(step.now);
        if open.decided || step.now < since + USUAL_WAIT {
            let next = self.head.epoch.saturating_add(1);
            candidates.retain(|(_, head, _)| head.epoch != next);
        }
        let named = self.links.back().map(|link| &link.receipt);
        let key = |(peer, _, rank): &(PeerId, Head, Rank)| {
            let is_named = named.is_some_and(|last| last.members.iter().any(|m| m.peer == *peer));
            let failures = self.asked.get(peer).map_or(0, |asked| asked.failures);
            let chance = self.draw(peer);
            (Reverse(is_named), failures, Reverse(*rank), chance)
        };
        let first = candidates.iter().min_by_key(|candidate| match self.law.keeps(Rule::G12) {
            true => key(candidate),
            false => {
                let (_, _, rank, _) = key(candidate);
                (Reverse(false), 0, rank, Digest(candidate.0.0))
            }
        });
        let first = first.map(|(peer, head, _)| (*peer, *head));
        self.draws = self.draws.wrapping_add(1);
        first
    }

    /// A number of `peer` that is another one for each question, so that no name is the first for long.
    fn draw(&self, peer: &PeerId) -> Digest {
        let (me, start) = (self.me.peer.0, self.me.incarnation.to_le_bytes());
        let drawn = self.draws.to_le_bytes();
        Digest::derive("intellect-node 1 ask", &[&me[..], &start, &drawn, &peer.0].concat())
    }

    /// Whether somebody alive has a greater head, and has not wasted a question since it was of use: of a few
    /// that never answer one would always be next, and hold up each Regroup (G12).
    #[must_use]
    pub fn sees_ahead(&self, step: &Step<'_>, open: Open<'_>) -> Ahead {
        if self.law.keeps(Rule::R44) && self.is_passed_over(step, open) {
            return Ahead::PassedOver;
        }
        let wasted = |peer: &PeerId| match self.law.keeps(Rule::G12) {
            true => self.asked.get(peer).is_some_and(|asked| asked.failures > 0),
            false => self.is_silent(step, peer),
        };
        let mut live = step.roll.live(step.now);
        match live.any(|(peer, seen)| self.is_ahead(peer, seen) && !wasted(peer)) {
            true if self.has_verified() => Ahead::Proven,
            true => Ahead::Claimed,
            false => Ahead::Nobody,
        }
    }

    /// The peers that the receipts of the last [`super::LINKS_KEPT`] epochs name.
    pub fn named(&self) -> impl Iterator<Item = PeerId> {
        self.links.iter().flat_map(|link| link.receipt.members.iter().map(|member| member.peer))
    }

    /// R44: whether so many voters of the open epoch have gone on that they have decided it, by their last words, and
    /// one of them lives who could hand it out. A head that was verified and refused leads nowhere.
    #[must_use]
    pub fn is_passed_over(&self, step: &Step<'_>, open: Open<'_>) -> bool {
        let gone_on = |voter: &Voter| {
            let seen =
                step.roll.peers.get(&voter.peer).filter(|seen| seen.beat.log == voter.log)?;
            let head = seen.beat.head;
            let refused = || self.aside.heads.get(&self.pair(voter.peer, head.state));
            let leads =
                || refused() != Some(&Time(u64::MAX)) && self.is_greater(&self.claimed_by(seen));
            (head.epoch >= open.series.epoch && leads()).then_some(voter.peer)
        };
        let gone: Vec<PeerId> = open.voters.iter().filter_map(gone_on).collect();
        let decided = || self.law.quorum.holds(open.voters, |voter| gone.contains(&voter.peer));
        gone.iter().any(|peer| step.roll.alive(peer, step.now)) && decided()
    }

    /// Whether a peer says that its head is greater than ours. That is a claim, and all that there is to go by
    /// before its links are here.
    pub(super) fn is_ahead(&self, peer: &PeerId, seen: &Seen) -> bool {
        let Heartbeat { phase, head, .. } = &seen.beat;
        *phase != Phase::Behind
            && self.is_greater(&self.claimed_by(seen))
            && !self.is_aside(*peer, head.state)
    }

    /// Nobody is ahead: look for Regroups that we missed, and for lineages that parted from ours.
    fn look_beside(&mut self, step: &mut Step<'_>, open: Open<'_>) {
        for (peer, seen) in step.roll.live(step.now) {
            let beat = &seen.beat;
            if self.is_asked(step, peer) {
                continue;
            }
            let regrouped = beat.phase != Phase::Behind
                && beat.series.is_beside(&open.series)
                && beat.series != open.series
                && beat.series.regroup.is_some();
            let parted = self.state_after(beat.head.epoch).is_some_and(|s| s != beat.head.state);
            if regrouped && beat.head == self.head {
                self.ask_lineage(step, (*peer, beat.head), self.head.epoch);
                return;
            }
            let new =
                !self.told.contains(&beat.head.state) && !self.is_aside(*peer, beat.head.state);
            if parted && new {
                self.ask_chain(step, *peer, beat.head);
                return;
            }
        }
    }

    /// Tells once that the way is at its end: nobody who answers is further than the next epoch,
    /// which is decided here as any other.
    fn note_caught_up(&mut self, step: &mut Step<'_>) {
        let next = self.head.epoch.saturating_add(1);
        let further = step.roll.live(step.now).any(|(peer, seen)| {
            seen.beat.head.epoch > next && self.is_ahead(peer, seen) && !self.is_silent(step, peer)
        });
        if self.catching_up.is_some() && !further {
            self.catching_up = None;
            step.put(Output::Event(Event::CaughtUp { head: self.head }));
        }
    }

    /// G12: what one peer says of a head is no reason not to believe another one.
    pub(super) fn put_aside(&mut self, peer: PeerId, state: Digest, until: Time) {
        if self.aside.heads.len() < REMEMBERED_MAX {
            self.aside.heads.insert(self.pair(peer, state), until);
        }
    }

    fn is_aside(&self, peer: PeerId, state: Digest) -> bool {
        self.aside.heads.contains_key(&self.pair(peer, state))
    }

    fn pair(&self, peer: PeerId, state: Digest) -> (PeerId, Digest) {
        (if self.law.keeps(Rule::G12) { peer } else { PeerId([0; 32]) }, state)
    }
}
