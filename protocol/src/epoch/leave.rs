//! Leaving, and coming back: what is open is finished first, if that does not take long; a goodbye closes
//! the series for its author, and whoever was restarted hears the others before it decides (R20, R29).

use std::time::Duration;

use crate::log::Record;
use crate::message::{Leaving, Message};
use crate::output::Output;
use crate::step::Step;

use super::series::Stage;
use super::timers::Timer;
use super::{State, timers};

/// How long a leaving peer waits for the open ring, within the 5 s that a person waits.
const LEAVE_WAIT: Duration = Duration::from_secs(4);

impl State {
    pub(super) fn on_leave(&mut self, step: &Step<'_>) {
        self.leaving.get_or_insert(step.now + LEAVE_WAIT);
    }

    /// R29: whether we have said goodbye in this series, in an earlier life, and have joined no Regroup of it
    /// since.
    #[must_use]
    pub fn said_goodbye(&self) -> bool {
        let bound = self.votes.of(self.series());
        bound.has_left() && bound.joined().is_none()
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
        // R29: those who are here may go on without us, and those who were here may have decided what is open,
        // so that we must not decide beside them once we are back. Whoever leaves last, with nothing open, has
        // left nobody; and where no Regroup is lawful nothing could open the series again.
        let others = open || step.roll.live(step.now).next().is_some();
        if others && self.is_voter() && !self.law.majority_only {
            self.log(step, Record::Left { series: self.series() });
        }
        let leaving = Leaving { head: self.slot.head, incarnation: self.me.incarnation };
        step.put(Output::Gossip(self.seal(Message::Leaving(leaving))));
        step.put(Output::Left);
        false
    }
}
