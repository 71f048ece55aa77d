//! Two limits on rates: how much a peer may send us ([`Bucket`]), and how fast we send bulk
//! ([`Pace`], the `--rate` of the command line).
//!
//! Bucket: `tokens ← min(burst, tokens + rate · Δt)`, one message takes one token. Pace: each
//! slice moves the time at which the line is free by `bytes / rate`, and its sender sleeps until
//! the line was free before it.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// A token bucket for the messages of one peer.
#[derive(Debug)]
pub(super) struct Bucket {
    per_second: f64,
    burst: f64,
    tokens: f64,
    filled: Instant,
}

impl Bucket {
    /// A full bucket.
    pub(super) fn new(per_second: u32, burst: u32, now: Instant) -> Self {
        let burst = f64::from(burst);
        Self { per_second: per_second.into(), burst, tokens: burst, filled: now }
    }

    /// Whether one more message may pass.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        let gained = now.saturating_duration_since(self.filled).as_secs_f64() * self.per_second;
        self.tokens = (self.tokens + gained).min(self.burst);
        self.filled = now;
        if self.tokens < 1.0 {
            return false;
        }
        self.tokens -= 1.0;
        true
    }
}

/// For whom bulk is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// A ring: everybody in it waits.
    Ring,
    /// One peer that catches up: it gives way to rings, but for an eighth of the line.
    Transfer,
}

/// The limit on all bulk that this node sends.
#[derive(Debug)]
pub(super) struct Pace {
    /// 0: no limit.
    bytes_per_second: u64,
    line: Mutex<Line>,
}

#[derive(Debug, Default)]
struct Line {
    /// When it is free.
    free_at: Option<Instant>,
    /// Until when a ring is taken to be under way.
    ring_until: Option<Instant>,
}

/// A ring that sent nothing for so long waits for somebody else.
const RING_PAUSE: Duration = Duration::from_millis(200);

/// A slice of a transfer lets rings go first for as many times as long as it takes itself.
const GIVE_WAY: u32 = 7;

/// No slice takes the line for longer: a neighbour in a ring counts as silent after ten of these.
const SLICE_MS: u64 = 50;

impl Pace {
    /// `bytes_per_second` of 0 is no limit.
    pub(super) fn new(bytes_per_second: u64) -> Self {
        Self { bytes_per_second, line: Mutex::default() }
    }

    /// Into slices of how many bytes a sender cuts what it sends, where it would take `most`.
    pub(super) fn slice(&self, most: usize) -> usize {
        let bytes = usize::try_from(self.bytes_per_second.saturating_mul(SLICE_MS) / 1_000);
        if self.bytes_per_second == 0 { most } else { bytes.unwrap_or(most).clamp(1, most) }
    }

    /// Waits until `bytes` more may be sent.
    ///
    /// # Cancel safety
    /// Cancel safe; the bytes count as sent.
    pub(super) async fn take(&self, bytes: usize, urgency: Urgency) {
        let patience = Instant::now() + GIVE_WAY * self.length(bytes);
        while let Some(until) = self.gives_way(urgency, Instant::now(), patience) {
            tokio::time::sleep_until(until).await;
        }
        if let Some(at) = self.reserve(bytes, urgency, Instant::now()) {
            tokio::time::sleep_until(at).await;
        }
    }

    /// Until when a transfer lets a ring go first, at most for its patience.
    fn gives_way(&self, urgency: Urgency, now: Instant, patience: Instant) -> Option<Instant> {
        if urgency == Urgency::Ring || self.bytes_per_second == 0 {
            return None;
        }
        let line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        line.ring_until.map(|until| until.min(patience)).filter(|until| *until > now)
    }

    fn reserve(&self, bytes: usize, urgency: Urgency, now: Instant) -> Option<Instant> {
        if self.bytes_per_second == 0 {
            return None;
        }
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        let start = line.free_at.map_or(now, |at| at.max(now));
        let end = start + self.length(bytes);
        line.free_at = Some(end);
        if urgency == Urgency::Ring {
            line.ring_until = Some(end + RING_PAUSE);
        }
        Some(start)
    }

    fn length(&self, bytes: usize) -> Duration {
        #[expect(clippy::cast_precision_loss, reason = "a duration needs no 53 bits")]
        let seconds = bytes as f64 / self.bytes_per_second.max(1) as f64;
        Duration::from_secs_f64(seconds.min(3_600.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_lets_a_burst_pass_and_then_its_rate() {
        let start = Instant::now();
        let mut bucket = Bucket::new(10, 20, start);
        let passed = |bucket: &mut Bucket, now| (0..100).filter(|_| bucket.take(now)).count();
        assert_eq!(passed(&mut bucket, start), 20);
        assert_eq!(passed(&mut bucket, start + Duration::from_millis(1_050)), 10);
        assert_eq!(passed(&mut bucket, start + Duration::from_secs(100)), 20);
    }

    #[test]
    fn a_pace_spaces_slices_by_their_size() {
        let start = Instant::now();
        let pace = Pace::new(1_000);
        let at = |seconds: u64| Some(start + Duration::from_secs(seconds));
        assert_eq!(pace.reserve(2_000, Urgency::Ring, start), at(0));
        assert_eq!(pace.reserve(1_000, Urgency::Transfer, start), at(2));
        // An idle line saves nothing up.
        assert_eq!(pace.reserve(1_000, Urgency::Transfer, start + Duration::from_secs(60)), at(60));
        assert_eq!(pace.reserve(0, Urgency::Ring, start), at(61));
        assert_eq!(Pace::new(0).reserve(usize::MAX, Urgency::Ring, start), None);
    }

    /// A joiner that downloads from us does not hold up a ring, and is not starved by one either.
    #[test]
    fn a_transfer_gives_way_to_a_ring_for_a_while() {
        let start = Instant::now();
        let (pace, second) = (Pace::new(1_000), Duration::from_secs(1));
        let patience = start + 7 * second;
        assert_eq!(pace.gives_way(Urgency::Transfer, start, patience), None, "no ring runs");
        pace.reserve(1_000, Urgency::Ring, start);
        let until = start + second + RING_PAUSE;
        assert_eq!(pace.gives_way(Urgency::Transfer, start, patience), Some(until));
        assert_eq!(pace.gives_way(Urgency::Ring, start, patience), None);
        assert_eq!(pace.gives_way(Urgency::Transfer, until, patience), None, "it has ended");
        pace.reserve(60_000, Urgency::Ring, start);
        assert_eq!(pace.gives_way(Urgency::Transfer, start, patience), Some(patience));
        assert_eq!(pace.gives_way(Urgency::Transfer, patience, patience), None, "long enough");
    }

    #[test]
    fn slices_are_small_where_the_line_is_slow() {
        assert_eq!(Pace::new(0).slice(65_536), 65_536);
        assert_eq!(Pace::new(60_000).slice(65_536), 3_000);
        assert_eq!(Pace::new(1 << 40).slice(65_536), 65_536);
        assert_eq!(Pace::new(1).slice(65_536), 1);
    }
}
