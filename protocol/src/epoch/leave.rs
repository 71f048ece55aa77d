//! Leaving: what is open is finished first, if that does not take long (R29).

use std::time::Duration;

use crate::message::{Leaving, Message};
use crate::output::Output;
use crate::step::Step;

use super::State;
use super::term::Stage;

/// How long a leaving peer waits for the open ring, within the 5 s that a person waits.
const LEAVE_WAIT: Duration = Duration::from_secs(4);

impl State {
    pub(super) fn on_leave(&mut self, step: &Step<'_>) {
        self.leaving.get_or_insert(step.now + LEAVE_WAIT);
    }

    /// R29: says farewell once nothing is open, or the wait is over.
    pub(super) fn leave(&mut self, step: &mut Step<'_>) -> bool {
        let Some(until) = self.leaving else { return false };
        let open = match &self.slot.term.stage {
            Stage::Open { .. } | Stage::Decided(_) | Stage::Applying(_) => true,
            Stage::Idle { .. } | Stage::Recover { .. } | Stage::Joined { .. } => false,
        };
        if open && step.now < until {
            return false;
        }
        self.left = true;
        let leaving = Leaving { head: self.slot.head, incarnation: self.me.incarnation };
        step.put(Output::Gossip(self.seal(Message::Leaving(leaving))));
        step.put(Output::Left);
        false
    }
}
