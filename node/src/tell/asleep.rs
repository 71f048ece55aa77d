//! Reports that this process slept, and once the node has caught up, at which epoch the run is.

use std::time::Duration;

use super::{Console, events};
use crate::figures::length;

impl Console {
    /// This process did not run for this long.
    pub(crate) fn woke(&mut self, slept: Duration) {
        // It may sleep again before it has caught up.
        self.later.asleep = Some(self.later.asleep.unwrap_or_default() + slept);
        let slept_ms = u64::try_from(slept.as_millis()).unwrap_or(u64::MAX);
        self.emit(None, events::Event::Woke { slept_ms });
    }

    /// The node has caught up with the others.
    pub(super) fn awake(&mut self, epoch: u64) {
        if let Some(slept) = self.later.asleep.take() {
            let slept = length(slept.as_secs());
            self.say(&format!("asleep for {slept} · caught up at epoch {epoch}"));
        }
    }
}
