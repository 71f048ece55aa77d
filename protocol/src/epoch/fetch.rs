//! Which updates of the open epoch are here, and who may serve one that is not (R5, R6, R8).

use std::collections::BTreeSet;

use crate::id::{Digest, PeerId};
use crate::output::Output;
use crate::step::Step;

use super::ballot::RingState;
use super::{Durability, State};

impl State {
    pub(super) fn fetch(&mut self, step: &mut Step<'_>, update: Digest, from: Vec<PeerId>) {
        if self.slot.term.fetching == Some(update)
            || step.now < self.slot.term.fetch_after
            || from.is_empty()
        {
            return;
        }
        self.slot.term.fetching = Some(update);
        step.put(Output::FetchUpdate(update, from));
    }

    pub(super) fn on_update_held(&mut self, update: Digest, durability: Durability) {
        self.slot.held.insert(update, durability);
        self.slot.term.fetching = self.slot.term.fetching.filter(|other| *other != update);
    }

    pub(super) fn on_update_missing(&mut self, step: &Step<'_>, update: Digest) {
        self.slot.held.remove(&update);
        self.slot.term.fetching = self.slot.term.fetching.filter(|other| *other != update);
        self.slot.term.fetch_after = step.now + self.repeat_interval(step);
    }

    /// The peers that may have an update: those that voted for it, the proposers of rosters that
    /// adopt it and the voters whom these have heard, and all voters if a Regroup forces it.
    pub(super) fn holders(&self, update: Digest) -> Vec<PeerId> {
        let mut from: Vec<PeerId> = Vec::new();
        for ballot in self.slot.ballots.values() {
            let voted = ballot.dones.iter().filter(|(_, vote)| vote.update == update);
            from.extend(voted.map(|(peer, _)| *peer));
            let prepared = ballot.prepared.iter().filter(|(_, (held, _))| *held == update);
            from.extend(prepared.map(|(peer, _)| *peer));
        }
        for roster in self.slot.ballots.values().filter_map(|ballot| ballot.roster.as_ref()) {
            if roster.adopt.as_ref().is_some_and(|receipt| receipt.update == update) {
                from.push(roster.proposer);
                from.extend(roster.heard.iter().map(|heard| heard.voter.peer));
            }
        }
        let forced = self.slot.forced.as_ref().is_some_and(|forced| forced.update == update);
        if forced {
            from.extend(self.voters().iter().map(|voter| voter.peer));
        }
        let mut seen = BTreeSet::from([self.me.peer]);
        from.retain(|peer| seen.insert(*peer));
        from.truncate(HOLDERS_MAX);
        from
    }

    pub(super) fn on_ring_finished(&mut self, roster: Digest, update: Digest) {
        self.slot.held.insert(update, Durability::Flushed);
        if let Some(ballot) = self.slot.ballots.get_mut(&roster) {
            ballot.computed = Some(update);
            ballot.ring = RingState::Closed;
        }
    }
}

/// Peers named in one fetch.
const HOLDERS_MAX: usize = 32;
