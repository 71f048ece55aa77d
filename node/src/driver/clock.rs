//! The clock of the state, which stands still while the process does not run.

use std::time::{Duration, Instant};

use intellect_protocol::base::time::Time;

use crate::wake::Turns;

/// The most that one turn adds to the clock of the state.
pub(super) const TURN_MAX: Duration = Duration::from_secs(1);

/// The time of the state: the milliseconds since the driver was made in which it ran. A clock that jumped
/// would make all peers seem silent after a sleep.
pub(super) struct Clock {
    /// Its value at the last turn of the loop.
    shown: Duration,
    /// The real time at that turn, from which the time since then is measured.
    turned: Instant,
    /// Detects that the process slept between two turns.
    turns: Turns,
    /// Its value when timers were last fired.
    looked: Time,
}

impl Clock {
    /// The time of the state begins at 0, for each start anew. No time leaves the process, so that
    /// is enough.
    pub(super) fn new() -> Self {
        let (shown, turned) = (Duration::ZERO, Instant::now());
        Self { shown, turned, turns: Turns::new(), looked: Time::ZERO }
    }

    /// The time of the state now. A turn adds at most [`TURN_MAX`], so a sleep of any length adds
    /// one second.
    fn elapsed(&self) -> Duration {
        self.shown + self.turned.elapsed().min(TURN_MAX)
    }

    /// In whole milliseconds. Between two turns it rises by at most [`TURN_MAX`].
    pub(super) fn now(&self) -> Time {
        Time(u64::try_from(self.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    /// Notes a turn of the loop. Returns how long this process has slept, if it has.
    pub(super) fn turn(&mut self) -> Option<Duration> {
        (self.shown, self.turned) = (self.elapsed(), Instant::now());
        self.turns.turn()
    }

    /// Whether the time has moved since timers were last fired, which the caller then does.
    pub(super) fn moves(&mut self) -> bool {
        let now = self.now();
        let moves = self.looked < now;
        self.looked = now;
        moves
    }
}
