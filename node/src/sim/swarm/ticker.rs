//! How many seeds of a class are done, while it runs.
//!
//! It goes to standard error, since the table on standard output may go into a file: on a terminal a line that is
//! overwritten, elsewhere a line every ten seconds.

use std::{
    io::{self, IsTerminal as _, Write as _},
    sync::Mutex,
    time::{Duration, Instant},
};

use intellect_protocol_sim::Faults;

/// The line about one class while it runs.
pub(super) struct Ticker {
    class: Faults,
    seeds: u64,
    /// When the class began, for the time that is left.
    began: Instant,
    /// Whether the line can be overwritten.
    is_terminal: bool,
    /// How long after the beginning the next line is due.
    next: Mutex<Duration>,
}

impl Ticker {
    /// Begins a class with so many seeds.
    pub(super) fn begin(class: Faults, seeds: u64) -> Self {
        let is_terminal = io::stderr().is_terminal();
        let next = Mutex::new(if is_terminal { Duration::ZERO } else { SELDOM });
        Self { class, seeds, began: Instant::now(), is_terminal, next }
    }

    /// So many seeds are done; threads call it in any order.
    pub(super) fn show(&self, done: u64) {
        let passed = self.began.elapsed();
        // Another thread is just writing its line.
        let Ok(mut next) = self.next.try_lock() else { return };
        if passed < *next {
            return;
        }
        *next = passed + if self.is_terminal { OFTEN } else { SELDOM };
        let (begin, end) = if self.is_terminal { ("\r\x1b[K", "") } else { ("", "\n") };
        // Nobody reads it where standard error is closed.
        let _ = write!(io::stderr(), "{begin}{}{end}", self.line(done, passed));
    }

    /// Takes the line away, before the result of the class is printed.
    pub(super) fn clear(&self) {
        if self.is_terminal {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }

    /// The line: how many are done, and how long the rest takes at this pace.
    fn line(&self, done: u64, passed: Duration) -> String {
        let rest = self.seeds.saturating_sub(done) as f64 / done.max(1) as f64;
        let left = passed.as_secs_f64() * rest;
        format!("{}: {done} of {} seeds, about {left:.0} s left", self.class, self.seeds)
    }
}

const OFTEN: Duration = Duration::from_millis(250);
const SELDOM: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_many_seeds_are_done_and_how_long_the_rest_takes() {
        let ticker = Ticker::begin(Faults::Clean, 64);
        let line = ticker.line(16, Duration::from_secs(10));
        assert_eq!(line, "clean: 16 of 64 seeds, about 30 s left");
    }
}
