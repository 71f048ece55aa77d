//! Which peer to ask next: which peers are ahead, and which have wasted a question (R23, R25, G12).

use std::cmp::Reverse;

use crate::base::id::{Digest, PeerId};
use crate::base::rule::Rule;
use crate::base::time::Time;
use crate::machine::event::Event;
use crate::machine::output::Output;
use crate::machine::step::{Ahead, Step};
use crate::machine::table::PeerRecord;
use crate::message::{Head, Heartbeat, Phase, Rank, Voter};

use super::{ASK_INTERVAL, Open, REMEMBERED_MAX, Request, State, USUAL_WAIT};

impl State {
    pub(super) fn note_request(&mut self, step: &Step<'_>, peer: PeerId) {
        let failures = self.requests.get(&peer).map_or(0, |request| request.failures);
        let until = step.now + ASK_INTERVAL;
        self.requests.insert(peer, Request { until, failed: false, failures });
    }

    /// Notes that a question to a peer led nowhere: it is left alone for a while, and asked after
    /// others.
    pub(super) fn note_failure(&mut self, step: &Step<'_>, peer: PeerId) {
        let failures = self.requests.get(&peer).map_or(0, |request| request.failures);
        let until = step.now + step.table.grace;
        let failures = failures.saturating_add(1);
        self.requests.insert(peer, Request { until, failed: true, failures });
    }

    /// R25: notes that its answer does not lead to the head that it claimed, which is ignored for a
    /// while.
    pub(super) fn note_misleading(&mut self, step: &Step<'_>, peer: PeerId, head: Digest) {
        self.note_failure(step, peer);
        self.ignore(peer, head, step.now + step.table.grace);
    }

    /// Notes that an answer of this peer was useful.
    pub(super) fn note_useful(&mut self, peer: &PeerId) {
        self.requests.entry(*peer).and_modify(|request| request.failures = 0);
    }

    fn asked_lately(&self, step: &Step<'_>, peer: &PeerId) -> bool {
        self.requests.get(peer).is_some_and(|request| step.now < request.until)
    }

    /// Whether a question to this peer led nowhere lately.
    pub(super) fn failed_lately(&self, step: &Step<'_>, peer: &PeerId) -> bool {
        self.requests.get(peer).is_some_and(|request| request.failed && step.now < request.until)
    }

    /// Forgets questions that are over. Failures of a peer are remembered as long as it is alive.
    fn forget_requests(&mut self, step: &Step<'_>) {
        let stays = |peer: &PeerId, request: &mut Request| {
            step.now < request.until || (request.failures > 0 && step.table.alive(peer, step.now))
        };
        self.requests.retain(stays);
        let pairs = self.validator.keeps(Rule::G12);
        let stays = |peer: &PeerId| !pairs || step.table.alive(peer, step.now);
        self.ignored.heads.retain(|(peer, _), until| *until > step.now && stays(peer));
        self.ignored.unserved.retain(|_, until| *until > step.now);
    }

    pub(super) fn on_tick(&mut self, step: &mut Step<'_>, open: Open<'_>) {
        self.forget_requests(step);
        self.wait_for_attested(step);
        self.pass_notices(step);
        if self.catch_up.is_some() || open.applying {
            return;
        }
        self.rounds = 0;
        self.note_caught_up(step);
        let table = step.table;
        let mut ahead: Vec<(&PeerId, &PeerRecord)> =
            table.live(step.now).filter(|(peer, seen)| self.is_ahead(peer, seen)).collect();
        if ahead.is_empty() {
            self.ahead_since = None;
        }
        ahead.retain(|(peer, _)| !self.asked_lately(step, peer));
        if ahead.is_empty() {
            return self.look_for_parted(step, open);
        }
        if let Some((peer, head)) = self.first_of(step, open, &ahead) {
            self.ask_lineage(step, peer, head, self.head.epoch);
        }
    }

    /// G12: among the peers ahead, those that the newest receipt names come first, as they are hard
    /// to fake; then those that wasted fewest questions; then the greatest head (R23). Among equals
    /// chance decides; else a peer with a small name would always be asked first. A head one epoch
    /// ahead is given a moment to reach us by votes.
    fn first_of(
        &mut self,
        step: &Step<'_>,
        open: Open<'_>,
        ahead: &[(&PeerId, &PeerRecord)],
    ) -> Option<(PeerId, Head)> {
        let claim =
            |(peer, seen): &(&PeerId, &PeerRecord)| (**peer, seen.beat.head, self.claimed_by(seen));
        let mut candidates: Vec<(PeerId, Head, Rank)> = ahead.iter().map(claim).collect();
        let since = *self.ahead_since.get_or_insert(step.now);
        if open.decided || step.now < since + USUAL_WAIT {
            let next = self.head.epoch.saturating_add(1);
            candidates.retain(|(_, head, _)| head.epoch != next);
        }
        let named = self.links.back().map(|link| &link.receipt);
        let key = |(peer, _, rank): &(PeerId, Head, Rank)| {
            let is_named = named.is_some_and(|last| last.members.iter().any(|m| m.peer == *peer));
            let failures = self.requests.get(peer).map_or(0, |request| request.failures);
            let chance = self.draw(peer);
            (Reverse(is_named), failures, Reverse(*rank), chance)
        };
        let first =
            candidates.iter().min_by_key(|candidate| match self.validator.keeps(Rule::G12) {
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

    /// A number of `peer` that differs with each question, so that no name stays the first.
    fn draw(&self, peer: &PeerId) -> Digest {
        let (me, start) = (self.me.peer.0, self.me.incarnation.to_le_bytes());
        let drawn = self.draws.to_le_bytes();
        Digest::derive("intellect-node 1 ask", &[&me[..], &start, &drawn, &peer.0].concat())
    }

    /// Whether a live peer has a greater head, and has wasted no question since it was last useful.
    /// If wasted questions did not count, one of several peers that never answer would always be
    /// next, and delay each Regroup (G12).
    pub(crate) fn sees_ahead(&self, step: &Step<'_>, open: Open<'_>) -> Ahead {
        if self.validator.keeps(Rule::R44) && self.is_passed_over(step, open) {
            return Ahead::PassedOver;
        }
        let wasted = |peer: &PeerId| match self.validator.keeps(Rule::G12) {
            true => self.requests.get(peer).is_some_and(|request| request.failures > 0),
            false => self.failed_lately(step, peer),
        };
        let mut live = step.table.live(step.now);
        match live.any(|(peer, seen)| self.is_ahead(peer, seen) && !wasted(peer)) {
            true if self.has_verified() => Ahead::Proven,
            true => Ahead::Claimed,
            false => Ahead::Nobody,
        }
    }

    /// The peers that the receipts of the last [`super::LINKS_KEPT`] epochs name.
    pub(crate) fn named(&self) -> impl Iterator<Item = PeerId> {
        self.links.iter().flat_map(|link| link.receipt.members.iter().map(|member| member.peer))
    }

    /// R44: whether so many voters of the open epoch have gone on that they have decided it, by
    /// their last messages, and one of them is alive and could serve it. A head that was verified
    /// and refused does not count.
    pub(crate) fn is_passed_over(&self, step: &Step<'_>, open: Open<'_>) -> bool {
        let gone_on = |voter: &Voter| {
            let seen =
                step.table.peers.get(&voter.peer).filter(|seen| seen.beat.log == voter.log)?;
            let head = seen.beat.head;
            let refused = || self.ignored.heads.get(&self.pair(voter.peer, head.state));
            let leads =
                || refused() != Some(&Time(u64::MAX)) && self.is_greater(&self.claimed_by(seen));
            (head.epoch >= open.series.epoch && leads()).then_some(voter.peer)
        };
        let gone: Vec<PeerId> = open.voters.iter().filter_map(gone_on).collect();
        let decided =
            || self.validator.quorum.holds(open.voters, |voter| gone.contains(&voter.peer));
        gone.iter().any(|peer| step.table.alive(peer, step.now)) && decided()
    }

    /// Whether a peer claims a head that is greater than ours. The claim is all that we have before
    /// its links arrive.
    pub(super) fn is_ahead(&self, peer: &PeerId, seen: &PeerRecord) -> bool {
        let Heartbeat { phase, head, .. } = &seen.beat;
        // This runs for each peer at each input, and mostly all have our head.
        *head != self.head
            && *phase != Phase::Behind
            && self.is_greater(&self.claimed_by(seen))
            && !self.is_ignored(*peer, head.state)
    }

    /// If no peer is ahead: looks for Regroups that we missed, and for lineages that parted from
    /// ours.
    fn look_for_parted(&mut self, step: &mut Step<'_>, open: Open<'_>) {
        for (peer, seen) in step.table.live(step.now) {
            let beat = &seen.beat;
            let same = (beat.head, beat.series) == (self.head, open.series);
            if same || self.asked_lately(step, peer) {
                continue;
            }
            let regrouped = beat.phase != Phase::Behind
                && beat.series.is_beside(&open.series)
                && beat.series != open.series
                && beat.series.regroup.is_some();
            let parted = self.state_after(beat.head.epoch).is_some_and(|s| s != beat.head.state);
            if regrouped && beat.head == self.head {
                self.ask_lineage(step, *peer, beat.head, self.head.epoch);
                return;
            }
            let new = !self.reported.contains(&beat.head.state)
                && !self.is_ignored(*peer, beat.head.state);
            if parted && new {
                self.ask_chain(step, *peer, beat.head);
                return;
            }
        }
    }

    /// Reports once that we have caught up: no peer that answers is further than the next epoch,
    /// which is decided here like any other.
    fn note_caught_up(&mut self, step: &mut Step<'_>) {
        if self.catching_up.is_none() {
            return;
        }
        let next = self.head.epoch.saturating_add(1);
        let further = step.table.live(step.now).any(|(peer, seen)| {
            seen.beat.head.epoch > next
                && self.is_ahead(peer, seen)
                && !self.failed_lately(step, peer)
        });
        if !further {
            self.catching_up = None;
            step.put(Output::Event(Event::CaughtUp { head: self.head }));
        }
    }

    /// G12: what one peer says of a head is no reason not to believe another one.
    pub(super) fn ignore(&mut self, peer: PeerId, state: Digest, until: Time) {
        if self.ignored.heads.len() < REMEMBERED_MAX {
            self.ignored.heads.insert(self.pair(peer, state), until);
        }
    }

    fn is_ignored(&self, peer: PeerId, state: Digest) -> bool {
        self.ignored.heads.contains_key(&self.pair(peer, state))
    }

    fn pair(&self, peer: PeerId, state: Digest) -> (PeerId, Digest) {
        (if self.validator.keeps(Rule::G12) { peer } else { PeerId([0; 32]) }, state)
    }
}
