//! Which updates of the open epoch are here, and who may serve one that is not (R5, R6, R8).

use crate::id::{Digest, PeerId};
use crate::output::Output;
use crate::step::Step;

use super::ballot::RingState;
use super::timers::Timer;
use super::{Durability, State, timers};

impl State {
    pub(super) fn fetch(&mut self, step: &mut Step<'_>, update: Digest, from: Vec<PeerId>) {
        if self.slot.series.fetching == Some(update)
            || !timers::is_over(self.facts(step), Timer::Fetch)
            || from.is_empty()
        {
            return;
        }
        self.slot.series.fetching = Some(update);
        step.put(Output::FetchUpdate(update, from));
    }

    pub(super) fn on_update_held(&mut self, update: Digest, durability: Durability) {
        self.slot.held.insert(update, durability);
        self.slot.series.fetching = self.slot.series.fetching.filter(|other| *other != update);
    }

    pub(super) fn on_update_missing(&mut self, step: &Step<'_>, update: Digest) {
        self.slot.held.remove(&update);
        self.slot.series.fetching = self.slot.series.fetching.filter(|other| *other != update);
        self.slot.series.fetch_after = step.now + self.facts(step).repeat_interval();
    }

    pub(super) fn on_ring_finished(&mut self, roster: Digest, update: Digest) {
        self.slot.held.insert(update, Durability::Flushed);
        if let Some(ballot) = self.slot.ballots.get_mut(&roster) {
            ballot.computed = Some(update);
            ballot.ring = RingState::Closed;
        }
    }
}
