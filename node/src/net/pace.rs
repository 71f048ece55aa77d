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

/// The limit on all bulk that this node sends.
#[derive(Debug)]
pub(super) struct Pace {
    /// 0: no limit.
    bytes_per_second: u64,
    free_at: Mutex<Option<Instant>>,
}

impl Pace {
    /// `bytes_per_second` of 0 is no limit.
    pub(super) fn new(bytes_per_second: u64) -> Self {
        Self { bytes_per_second, free_at: Mutex::new(None) }
    }

    /// Waits until `bytes` more may be sent.
    ///
    /// # Cancel safety
    /// Cancel safe; the bytes count as sent.
    pub(super) async fn take(&self, bytes: usize) {
        if let Some(at) = self.reserve(bytes, Instant::now()) {
            tokio::time::sleep_until(at).await;
        }
    }

    fn reserve(&self, bytes: usize, now: Instant) -> Option<Instant> {
        if self.bytes_per_second == 0 {
            return None;
        }
        let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
        let start = free_at.map_or(now, |at| at.max(now));
        #[expect(clippy::cast_precision_loss, reason = "a duration needs no 53 bits")]
        let seconds = bytes as f64 / self.bytes_per_second as f64;
        *free_at = Some(start + Duration::from_secs_f64(seconds.min(3_600.0)));
        Some(start)
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
        assert_eq!(pace.reserve(2_000, start), at(0));
        assert_eq!(pace.reserve(1_000, start), at(2));
        // An idle line saves nothing up.
        assert_eq!(pace.reserve(1_000, start + Duration::from_secs(60)), at(60));
        assert_eq!(pace.reserve(0, start), at(61));
        assert_eq!(Pace::new(0).reserve(usize::MAX, start), None);
    }
}
