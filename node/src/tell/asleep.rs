//! What is told of a sleep: that there was one, and once this node has caught up, where the run is.

use std::time::Duration;

use super::{Teller, events, meter};

impl Teller {
    /// This process did not run for so long.
    pub(crate) fn woke(&mut self, slept: Duration) {
        // It may sleep again before it has caught up.
        self.asleep = Some(self.asleep.unwrap_or_default() + slept);
        let slept_ms = u64::try_from(slept.as_millis()).unwrap_or(u64::MAX);
        self.emit(None, events::Event::Woke { slept_ms });
    }

    /// It is where the others are.
    pub(super) fn awake(&mut self, epoch: u64) {
        if let Some(slept) = self.asleep.take() {
            let slept = meter::length(slept.as_secs());
            self.say(&format!("asleep for {slept} · caught up at epoch {epoch}"));
        }
    }
}
