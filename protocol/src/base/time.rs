//! Time as the machines see it: milliseconds since the node's own start.
//!
//! A machine never reads a clock; each input carries the time at which it happened.
//! Durations are std's `Duration`.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// A moment, in milliseconds since the node's start. The caller never lets it go back. Additions
/// and subtractions saturate: `Time(u64::MAX)` stands for "never", and no sum with a duration from
/// a manifest or a peer can wrap.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// The moment at which the node started.
    pub const ZERO: Self = Self(0);

    /// How long ago `earlier` was; zero when it is not in the past.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    fn add(self, length: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(length.as_millis()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for Time {
    type Output = Self;

    fn sub(self, length: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(length.as_millis()).unwrap_or(u64::MAX)))
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}s", self.0 / 1000, self.0 % 1000)
    }
}
