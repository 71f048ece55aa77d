//! When a command that takes long says how far it is.

use std::time::{Duration, Instant};

/// Allows a line of progress after two seconds, and then every ten seconds.
pub(crate) struct ProgressPace {
    /// When the work began, for its speed.
    begun: Instant,
    /// When the next line of progress is due.
    next: Instant,
}

impl ProgressPace {
    pub(crate) fn new() -> Self {
        let begun = Instant::now();
        Self { begun, next: begun + FIRST }
    }

    /// Whether a line is due, which the caller then writes.
    pub(crate) fn is_due(&mut self) -> bool {
        let now = Instant::now();
        let due = now >= self.next;
        if due {
            self.next = now + EVERY;
        }
        due
    }

    /// How many of these were done in a second so far.
    pub(crate) fn per_second(&self, done: u64) -> u64 {
        done / self.begun.elapsed().as_secs().max(1)
    }
}

/// Time before the first line of progress.
const FIRST: Duration = Duration::from_secs(2);
/// Time between two lines of progress.
const EVERY: Duration = Duration::from_secs(10);
