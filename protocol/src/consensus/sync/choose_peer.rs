//! Which peer to ask next: which peers are ahead, and which of them is asked first (R23, R25, G12).

use std::cmp::Reverse;
use std::time::Duration;

use crate::base::id::{Digest, PeerId};
use crate::base::rule::Rule;
use crate::base::time::Time;
use crate::machine::step::{Ahead, Step};
use crate::machine::table::PeerRecord;
use crate::message::{Heartbeat, Phase, Rank, Voter};

use super::fork::Forks;
use super::interface::Open;
use super::lineage::Lineage;
use super::requests::{Claim, Requests};

/// What the choice rests on, and cannot change.
#[derive(Clone, Copy)]
pub(super) struct Choice<'a> {
    /// What a greater head is compared with.
    pub(super) ours: &'a Lineage,
    /// What questions to each peer have led to, so that a useless peer is asked last.
    pub(super) requests: &'a Requests,
    pub(super) step: &'a Step<'a>,
    /// The open epoch: its Regroups, and whether it is about to be decided here.
    pub(super) open: Open<'a>,
}

/// What is asked of a peer that is not ahead.
pub(super) enum Missed {
    /// For Regroups of our open epoch that we missed.
    Regroup(Claim),
    /// For the chain of a lineage that parted from ours.
    Parted(Claim),
}

/// A head one epoch ahead is given this long to reach us as votes or a `Commit`; guess.
pub(super) const USUAL_WAIT: Duration = Duration::from_millis(600);

/// The head that a peer claims with its last heartbeat.
fn claim(peer: &PeerId, seen: &PeerRecord) -> Claim {
    Claim { peer: *peer, head: seen.beat.head }
}

impl Choice<'_> {
    /// The heads of live peers that are ahead, and the ranks that they can have.
    pub(super) fn ahead(self) -> Vec<(Claim, Rank)> {
        let live = self.step.table.live(self.step.now);
        let ahead = live.filter(|(peer, seen)| self.is_ahead(peer, seen));
        ahead.map(|(peer, seen)| (claim(peer, seen), self.ours.claimed_by(seen))).collect()
    }

    /// G12: among the peers ahead, those that the newest receipt names come first, as they are hard
    /// to fake; then those that wasted fewest questions; then the greatest head (R23). Among equals
    /// chance decides; else a peer with a small name would always be asked first. Of peers
    /// that no receipt names it also decides every other time, or ever new keys could claim the
    /// greatest heads. A head one epoch ahead is given a moment to reach us by votes, from `since`
    /// on.
    pub(super) fn first(self, ahead: Vec<(Claim, Rank)>, since: Time, draws: u64) -> Option<Claim> {
        let waits = self.open.decided || self.step.now < since + USUAL_WAIT;
        let next = self.ours.head.epoch.saturating_add(1);
        let ahead = ahead.into_iter().filter(|(claim, _)| !waits || claim.head.epoch != next);
        let fair = self.ours.keeps(Rule::G12);
        let key = |(Claim { peer, .. }, rank): &(Claim, Rank)| match fair {
            true => {
                let is_named = self.ours.names(self.ours.head.epoch, peer);
                let failures = self.requests.failures(peer);
                let rank = (is_named || draws.is_multiple_of(2)).then_some(*rank);
                (Reverse(is_named), failures, Reverse(rank), self.draw(peer, draws))
            }
            false => (Reverse(false), 0, Reverse(Some(*rank)), Digest(peer.0)),
        };
        ahead.min_by_key(key).map(|(claim, _)| claim)
    }

    /// A number of `peer` that differs with each question, so that no name stays the first.
    fn draw(self, peer: &PeerId, draws: u64) -> Digest {
        let (me, start) = (self.ours.me.peer.0, self.ours.me.incarnation.to_le_bytes());
        let drawn = draws.to_le_bytes();
        Digest::derive("intellect-node 1 ask", &[&me[..], &start, &drawn, &peer.0].concat())
    }

    /// Whether a live peer has a greater head, and has wasted no question since it was last useful;
    /// `verified`: links of such a head have come. If wasted questions did not count, one of several
    /// peers that never answer would always be next, and delay each Regroup (G12).
    pub(super) fn sees_ahead(self, verified: bool) -> Ahead {
        let Self { ours, requests, step, .. } = self;
        if ours.keeps(Rule::R44) && self.is_passed_over() {
            return Ahead::PassedOver;
        }
        let wasted = |peer: &PeerId| match ours.keeps(Rule::G12) {
            true => requests.failures(peer) > 0,
            false => requests.failed_lately(step, peer),
        };
        let mut live = step.table.live(step.now);
        match live.any(|(peer, seen)| self.is_ahead(peer, seen) && !wasted(peer)) {
            true if verified => Ahead::Proven,
            true => Ahead::Claimed,
            false => Ahead::Nobody,
        }
    }

    /// R44: whether so many voters of the open epoch have gone on that they have decided it, by
    /// their last messages, and one of them is alive and could serve it. A head that was verified
    /// and refused does not count.
    pub(super) fn is_passed_over(self) -> bool {
        let Self { ours, requests, step, open } = self;
        let gone_on = |voter: &Voter| {
            let seen =
                step.table.peers.get(&voter.peer).filter(|seen| seen.beat.log == voter.log)?;
            let head = seen.beat.head;
            let refused = || requests.ignored(claim(&voter.peer, seen)) == Some(Time(u64::MAX));
            let leads = || !refused() && ours.is_greater(&ours.claimed_by(seen));
            (head.epoch >= open.series.epoch && leads()).then_some(voter.peer)
        };
        let gone: Vec<PeerId> = open.voters.iter().filter_map(gone_on).collect();
        let decided =
            || ours.validator.quorum.holds(open.voters, |voter| gone.contains(&voter.peer));
        gone.iter().any(|peer| step.table.alive(peer, step.now)) && decided()
    }

    /// Whether a peer claims a head that is greater than ours. The claim is all that we have before
    /// its links arrive.
    fn is_ahead(self, peer: &PeerId, seen: &PeerRecord) -> bool {
        let Heartbeat { phase, head, .. } = &seen.beat;
        // This runs for each peer at each input, and mostly all have our head.
        *head != self.ours.head
            && *phase != Phase::Behind
            && self.ours.is_greater(&self.ours.claimed_by(seen))
            && self.requests.ignored(claim(peer, seen)).is_none()
    }

    /// Whether a peer that answers is further than the next epoch, which is decided here like any
    /// other.
    pub(super) fn is_behind(self) -> bool {
        let next = self.ours.head.epoch.saturating_add(1);
        self.step.table.live(self.step.now).any(|(peer, seen)| {
            seen.beat.head.epoch > next
                && self.is_ahead(peer, seen)
                && !self.requests.failed_lately(self.step, peer)
        })
    }

    /// If no peer is ahead: Regroups that we missed, and lineages that parted from ours.
    pub(super) fn missed(self, forks: &Forks) -> Option<Missed> {
        let Self { ours, requests, step, open } = self;
        step.table.live(step.now).find_map(|(peer, seen)| {
            let beat = &seen.beat;
            let same = (beat.head, beat.series) == (ours.head, open.series);
            if same || requests.asked_lately(step, peer) {
                return None;
            }
            let regrouped = beat.phase != Phase::Behind
                && beat.series.is_beside(&open.series)
                && beat.series != open.series
                && beat.series.regroup.is_some();
            if regrouped && beat.head == ours.head {
                return Some(Missed::Regroup(claim(peer, seen)));
            }
            let parted = ours.state_after(beat.head.epoch).is_some_and(|s| s != beat.head.state);
            let new = !forks.is_reported(&beat.head.state)
                && requests.ignored(claim(peer, seen)).is_none();
            (parted && new).then(|| Missed::Parted(claim(peer, seen)))
        })
    }
}
