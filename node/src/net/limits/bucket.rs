//! How much a peer may send us: [`Bucket`], and [`Allowance`] for messages and bytes together.
//!
//! `tokens ← min(burst, tokens + rate · Δt)`; one message takes one token, or one for each byte.

use std::time::Duration;

use tokio::time::Instant;

/// A token bucket for the messages or bytes of one peer.
#[derive(Debug)]
pub(crate) struct Bucket {
    /// Tokens that come back each second; above 0, since waits are divided by it.
    per_second: f64,
    /// The most tokens, which a bucket has at first.
    burst: f64,
    /// Tokens that are left. Below 0 after [`Bucket::owe`] or a reservation.
    tokens: f64,
    /// The time for which `tokens` was computed.
    filled: Instant,
}

impl Bucket {
    /// A full bucket, so that a peer may begin with a burst.
    pub(crate) fn new(per_second: u32, burst: u32, now: Instant) -> Self {
        let burst = f64::from(burst);
        Self { per_second: per_second.into(), burst, tokens: burst, filled: now }
    }

    /// Takes one token, if there is one.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        self.reserve(Duration::ZERO, now).is_some()
    }

    /// Takes a token that will exist after the returned time, unless that is more than `wait_max`.
    pub(crate) fn reserve(&mut self, wait_max: Duration, now: Instant) -> Option<Duration> {
        self.reserve_many(1, wait_max, now)
    }

    /// The same for `count` tokens that are taken together.
    pub(crate) fn reserve_many(
        &mut self,
        count: u32,
        wait_max: Duration,
        now: Instant,
    ) -> Option<Duration> {
        self.fill(now);
        let count = f64::from(count);
        let wait = Duration::from_secs_f64((count - self.tokens).max(0.0) / self.per_second);
        let fair = wait <= wait_max;
        if fair {
            self.tokens -= count;
        }
        fair.then_some(wait)
    }

    /// Whether it is as good as a new one.
    pub(crate) fn is_full(&mut self, now: Instant) -> bool {
        self.fill(now);
        self.tokens >= self.burst
    }

    /// Takes `count` tokens, perhaps more than exist, and returns until when the taker has to wait.
    /// The caller must keep that wait itself: a further call only adds to the debt.
    pub(crate) fn owe(&mut self, count: usize, now: Instant) -> Instant {
        self.fill(now);
        self.tokens -= number(count);
        now + Duration::from_secs_f64((-self.tokens).max(0.0) / self.per_second)
    }

    /// Adds what has come back since the last use.
    fn fill(&mut self, now: Instant) {
        let more = self.rested(now).as_secs_f64() * self.per_second;
        self.tokens = (self.tokens + more).min(self.burst);
        self.filled = now;
    }

    /// How long it has not been used.
    pub(crate) fn rested(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.filled)
    }
}

/// A limit on messages and on bytes, each with a rate and a burst.
#[derive(Debug)]
pub(crate) struct Allowance {
    /// Takes one token for each message.
    messages: Bucket,
    /// Takes one token for each byte.
    bytes: Bucket,
}

impl Allowance {
    /// An allowance of two buckets, each with its own rate and burst.
    pub(crate) fn new(messages: Bucket, bytes: Bucket) -> Self {
        Self { messages, bytes }
    }

    /// Whether one more message of `bytes` bytes may pass; it is counted only if it may.
    pub(crate) fn take(&mut self, bytes: usize, now: Instant) -> bool {
        let cost = number(bytes);
        self.bytes.fill(now);
        let fair = self.bytes.tokens >= cost && self.messages.take(now);
        if fair {
            self.bytes.tokens -= cost;
        }
        fair
    }

    /// Sets the rates, in messages and bytes per second. The bursts stay, and so do the tokens that
    /// are left; those that came back since the last use are counted at the new rate.
    pub(crate) fn set_rates(&mut self, messages: u32, bytes: u32) {
        (self.messages.per_second, self.bytes.per_second) = (messages.into(), bytes.into());
    }

    /// How long it has not been used.
    pub(crate) fn rested(&self, now: Instant) -> Duration {
        self.bytes.rested(now)
    }
}

/// Exact up to 2^32, which is more than the bytes of any message.
fn number(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::INFINITY, f64::from)
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
    fn several_tokens_are_taken_together_or_not_at_all() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut bucket = Bucket::new(10, 20, start);
        assert!(bucket.is_full(start));
        assert_eq!(bucket.reserve_many(15, second, start), Some(Duration::ZERO));
        assert_eq!(bucket.reserve_many(16, second, start), None);
        assert_eq!(bucket.reserve_many(15, second, start), Some(second));
        assert!(!bucket.is_full(start + 2 * second) && bucket.is_full(start + 3 * second));
    }

    #[test]
    fn an_allowance_counts_messages_and_bytes_and_what_does_not_pass_is_free() {
        let start = Instant::now();
        let (messages, bytes) = (Bucket::new(2, 4, start), Bucket::new(300, 1_000, start));
        let mut allowance = Allowance::new(messages, bytes);
        let mut passed = |bytes, now| (0..100).filter(|_| allowance.take(bytes, now)).count();
        assert_eq!((passed(2_000, start), passed(400, start), passed(100, start)), (0, 2, 2));
        let later = start + Duration::from_secs(1);
        assert_eq!((passed(301, later), passed(150, later), passed(0, later)), (0, 2, 0));
    }
}
