//! Leaving: what is open is finished first, if that does not take long (R29).

use std::time::Duration;

use crate::message::{Leaving, Message};
use crate::time::Time;

use super::{Output, Stage, State};

/// How long a leaving peer waits for the open ring, within the 5 s that a person waits.
const LEAVE_WAIT: Duration = Duration::from_secs(4);

impl State {
    pub(super) fn on_leave(&mut self, now: Time) {
        self.leaving.get_or_insert(now + LEAVE_WAIT);
    }

    /// R29: says farewell once nothing is open, or the wait is over.
    pub(super) fn leave(&mut self, now: Time, out: &mut Vec<Output>) -> bool {
        let Some(until) = self.leaving else { return false };
        let open = match &self.stage {
            Stage::Accepted { .. } | Stage::Reduce { .. } | Stage::Applying(_) => true,
            Stage::Decided(_) | Stage::Finished { .. } => true,
            Stage::Idle { .. } | Stage::Recover { .. } | Stage::Joined { .. } => false,
        };
        if open && now < until {
            return false;
        }
        self.left = true;
        let leaving = Leaving { head: self.head, incarnation: self.config.incarnation };
        out.push(Output::Gossip(self.seal(Message::Leaving(leaving))));
        out.push(Output::Left);
        false
    }
}
