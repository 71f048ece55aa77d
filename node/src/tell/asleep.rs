//! Reports that this process slept, and once the node has caught up, at which epoch the run is.

use std::time::Duration;

use super::{Console, events, times::ms};
use crate::figures::length;

impl Console {
    /// This process did not run for this long.
    pub(crate) fn woke(&mut self, slept: Duration) {
        // It may sleep again before it has caught up.
        self.later.asleep = Some(self.later.asleep.unwrap_or_default() + slept);
        self.emit(None, events::Event::Woke { slept_ms: ms(slept) });
    }

    /// The node has caught up with the others: it has committed, fetched or replayed the newest
    /// epoch that it knows of. It says nothing if the process did not sleep.
    pub(super) fn awake(&mut self, epoch: u64) {
        if let Some(slept) = self.later.asleep.take() {
            let slept = length(slept.as_secs());
            self.say(&format!("asleep for {slept} · caught up at epoch {epoch}"));
        }
    }
}
