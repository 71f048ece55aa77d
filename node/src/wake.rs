//! Detects that this process did not run for a while: it was stopped, or the machine slept.
//!
//! A loop that turns twice a second asks at each turn. The clock of the process runs on while the process is stopped and
//! stands still while the machine sleeps; the clock since the machine's start runs in both cases. The time of day is
//! ignored, since it may be set meanwhile.
//!
//! A node that has slept must not take the silence of that time for the death of all others, and a
//! reader of the file should see why nothing happened. Both only need the length of the sleep.

use std::time::{Duration, Instant};

use crate::os;

/// A loop that did not turn for longer counts as asleep: what it has not heard meanwhile proves nothing.
/// A very busy machine may cause that too, so people read of long sleeps only.
const ASLEEP: Duration = Duration::from_secs(2);

/// When a loop has turned last, on the clocks of the process and of the machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turns {
    /// It runs on while the process is stopped.
    process: Instant,
    /// Time since the machine started, its sleep included; 0 where the system does not report it.
    machine: Duration,
}

impl Turns {
    /// The first turn is measured from here.
    pub(crate) fn new() -> Self {
        Self { process: Instant::now(), machine: os::since_boot().unwrap_or_default() }
    }

    /// Notes a turn. Returns how long the process slept before it, if it did.
    pub(crate) fn turn(&mut self) -> Option<Duration> {
        self.turn_at(Self::new())
    }

    fn turn_at(&mut self, now: Self) -> Option<Duration> {
        let process = now.process.saturating_duration_since(self.process);
        // The longer one of both times, so that each kind of sleep counts.
        let passed = process.max(now.machine.saturating_sub(self.machine));
        *self = now;
        (passed > ASLEEP).then_some(passed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_is_seen_by_either_clock_and_a_busy_turn_is_none() {
        let start = Turns { process: Instant::now(), machine: Duration::from_secs(100) };
        let after = |process: u64, machine: u64| Turns {
            process: start.process + Duration::from_millis(process),
            machine: start.machine + Duration::from_millis(machine),
        };
        let slept = |now| {
            let mut turns = start;
            turns.turn_at(now)
        };
        assert_eq!(slept(after(500, 500)), None);
        assert_eq!(slept(after(2_000, 2_000)), None);
        assert_eq!(slept(after(41_000, 41_000)), Some(Duration::from_secs(41)), "it was stopped");
        assert_eq!(slept(after(10, 9_000)), Some(Duration::from_secs(9)), "the machine slept");
        assert_eq!(slept(after(3_000, 0)), Some(Duration::from_secs(3)), "there is no other clock");
        let mut turns = start;
        assert!(turns.turn_at(after(5_000, 5_000)).is_some());
        assert_eq!(turns.turn_at(after(5_500, 5_500)), None);
    }
}
