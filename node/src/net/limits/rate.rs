//! The rate at which we send ([`RateLimiter`], `--rate` on the command line), and a gauge of the
//! rate at which answers arrive ([`Inflow`]).
//!
//! Limiter: each slice moves the time at which the link is free by `bytes / rate`, and its sender
//! sleeps until the link was free before that. Gossip moves this time too, but does not wait.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// What bulk is sent for, the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// A ring: all its members wait.
    Ring,
    /// What the end of an epoch needs otherwise: finished chunks, and updates that are voted on.
    Epoch,
    /// One peer that catches up: it takes what the others leave, and at least an eighth of the
    /// link.
    Transfer,
}

/// For whom bulk is sent: a member of the run, or any other peer, such as one that catches up
/// before it takes part. Strangers wait for one another, and delay a member by one slice at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Receiver {
    /// The driver has reported this peer as a member.
    Member,
    /// Any other peer, also one that is allowed and has not taken part yet.
    Stranger,
}

/// The limit on all bulk that this node sends. One slice of each urgency and kind of receiver waits
/// for the link, and the others behind it, so a ring waits for four slices at most, however many
/// answers are under way.
#[derive(Debug)]
pub(crate) struct RateLimiter {
    /// The limit, where 0 means that there is none.
    bytes_per_second: u64,
    /// When the link is free, and for whom. The lock is held for a few instructions, never across a
    /// wait.
    link: Mutex<Schedule>,
    /// One turn for each [`Urgency`] and [`Receiver`]: the holder waits for the link, and the
    /// others of its kind behind it.
    turns: [[Turn; 2]; 3],
}

/// A fair lock: it passes on in the order of asking.
type Turn = tokio::sync::Mutex<()>;

/// The link as far as it is booked. Each time is in the past or `None` where nothing waits.
#[derive(Debug, Default)]
struct Schedule {
    /// When the last booked slice has left.
    free_at: Option<Instant>,
    /// Until when more urgent slices than those of transfers take it.
    taken_until: Option<Instant>,
    /// Until when messages that were passed on have used up their share.
    passed_on_until: Option<Instant>,
}

/// A slice of a transfer waits for more urgent ones at most this many times its own length.
const GIVE_WAY: u32 = 7;

/// The length of a slice, so that a ring keeps at least half of the link.
const MESSAGES_WAIT: Duration = Duration::from_millis(SLICE_MS);

/// Messages come in a burst at the end of each epoch.
const PASSED_ON_AHEAD: Duration = Duration::from_secs(2);

/// The longest slice. A neighbour in a ring counts as silent after ten of these.
const SLICE_MS: u64 = 50;

impl RateLimiter {
    /// `bytes_per_second` of 0 is no limit.
    pub(crate) fn new(bytes_per_second: u64) -> Self {
        Self { bytes_per_second, link: Mutex::default(), turns: Default::default() }
    }

    /// The length of the slices that a sender writes, at most `most` bytes.
    pub(crate) fn slice(&self, most: usize) -> usize {
        let bytes = usize::try_from(self.bytes_per_second.saturating_mul(SLICE_MS) / 1_000);
        if self.bytes_per_second == 0 { most } else { bytes.unwrap_or(most).clamp(1, most) }
    }

    /// Waits until `bytes` more may be sent.
    ///
    /// # Cancel safety
    /// Cancel safe; the bytes count as sent.
    pub(crate) async fn take(&self, bytes: usize, urgency: Urgency, receiver: Receiver) {
        let _turn = self.turns[urgency as usize][receiver as usize].lock().await;
        let patience = Instant::now() + GIVE_WAY * self.length(bytes);
        while let Some(until) = self.gives_way(urgency, Instant::now(), patience) {
            tokio::time::sleep_until(until).await;
        }
        if let Some(at) = self.reserve(bytes, urgency, Instant::now()) {
            tokio::time::sleep_until(at).await;
        }
    }

    /// Counts `bytes` of messages, which are sent at once. Bulk waits for them, but not for long: a
    /// ring shares the link with the messages about it.
    pub(crate) fn note(&self, bytes: usize, now: Instant) {
        let Some(mut link) = self.schedule() else { return };
        let free_at = link.free_at.map_or(now, |at| at.max(now));
        link.free_at = Some(free_at.max((free_at + self.length(bytes)).min(now + MESSAGES_WAIT)));
    }

    /// Whether `bytes` of others' messages may be passed on. They may take a quarter of the rate.
    pub(crate) fn passes_on(&self, bytes: usize, now: Instant) -> bool {
        let Some(mut link) = self.schedule() else { return true };
        let passed_on = link.passed_on_until.map_or(now, |at| at.max(now));
        let fair = passed_on <= now + PASSED_ON_AHEAD;
        if fair {
            link.passed_on_until = Some(passed_on + 4 * self.length(bytes));
        }
        fair
    }

    /// Until when a transfer waits for more urgent slices, at most until `patience`.
    fn gives_way(&self, urgency: Urgency, now: Instant, patience: Instant) -> Option<Instant> {
        if urgency != Urgency::Transfer {
            return None;
        }
        let taken_until = self.schedule()?.taken_until;
        taken_until.map(|until| until.min(patience)).filter(|until| *until > now)
    }

    /// Books the link for a slice. Returns when the slice before it has left; the caller waits
    /// until then.
    fn reserve(&self, bytes: usize, urgency: Urgency, now: Instant) -> Option<Instant> {
        let mut link = self.schedule()?;
        let start = link.free_at.map_or(now, |at| at.max(now));
        let end = start + self.length(bytes);
        link.free_at = Some(end);
        if urgency != Urgency::Transfer {
            link.taken_until = Some(end);
        }
        Some(start)
    }

    /// The schedule of the link; `None` where there is no limit.
    fn schedule(&self) -> Option<MutexGuard<'_, Schedule>> {
        let is_limited = self.bytes_per_second > 0;
        is_limited.then(|| self.link.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// How long a slice occupies the link, an hour at most, so that no sum of times overflows.
    fn length(&self, bytes: usize) -> Duration {
        #[expect(clippy::cast_precision_loss, reason = "a duration needs no 53 bits")]
        let seconds = bytes as f64 / self.bytes_per_second.max(1) as f64;
        Duration::from_secs_f64(seconds.min(3_600.0))
    }
}

/// The rate at which answers arrive, and its maximum so far.
#[derive(Debug, Default)]
pub(crate) struct Inflow(Mutex<Flow>);

/// The count of one window of time, and of those before it.
#[derive(Debug, Default)]
struct Flow {
    /// The start of the open window, and its bytes.
    window: Option<(Instant, u64)>,
    /// Bytes of the last complete window.
    last: u64,
    /// The most bytes of a window; it decays slowly, since a link may get slower.
    most: u64,
}

/// Long enough that queues on a full link do not look like a pause.
const WINDOW: Duration = Duration::from_secs(1);

impl Inflow {
    /// Counts bytes that have arrived.
    pub(crate) fn note(&self, bytes: usize, now: Instant) {
        let mut flow = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        flow.turn(now);
        let (_, count) = flow.window.get_or_insert((now, 0));
        *count = count.saturating_add(bytes as u64);
    }

    /// Whether at least half of the maximum arrives.
    pub(crate) fn is_full(&self, now: Instant) -> bool {
        let mut flow = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        flow.turn(now);
        flow.last > 0 && flow.last >= flow.most / 2
    }
}

impl Flow {
    /// Begins the next window, where the open one is over.
    fn turn(&mut self, now: Instant) {
        let Some((since, count)) = self.window else { return };
        let windows = now.saturating_duration_since(since).as_secs() / WINDOW.as_secs();
        if windows > 0 {
            self.last = if windows == 1 { count } else { 0 };
            self.most = count.max(self.most - self.most / 32);
            self.window = (windows == 1).then_some((since + WINDOW, 0));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use super::*;

    #[test]
    fn messages_delay_bulk_for_a_moment_and_passed_on_ones_take_a_quarter() {
        let (start, pace) = (Instant::now(), RateLimiter::new(1_000));
        pace.note(30, start);
        assert_eq!(pace.reserve(0, Urgency::Ring, start), Some(start + Duration::from_millis(30)));
        pace.note(100_000, start);
        assert_eq!(pace.reserve(0, Urgency::Ring, start), Some(start + MESSAGES_WAIT));
        let passed = |pace: &RateLimiter, now| (0..100).filter(|_| pace.passes_on(50, now)).count();
        // 50 bytes in 0.2 s; after a minute as many as at first.
        assert_eq!((passed(&pace, start), passed(&pace, start + Duration::from_secs(1))), (11, 5));
        assert_eq!(passed(&pace, start + Duration::from_secs(60)), 11);
        let free = RateLimiter::new(0);
        free.note(usize::MAX, start);
        assert_eq!((passed(&free, start), free.reserve(9, Urgency::Ring, start)), (100, None));
    }

    #[test]
    fn a_link_is_full_while_it_brings_what_it_can() {
        let (start, inflow) = (Instant::now(), Inflow::default());
        let at = |tenths: u32| start + tenths * WINDOW / 10;
        let bring = |tenths: std::ops::Range<u32>, bytes| {
            tenths.for_each(|tenth| inflow.note(bytes, at(tenth)));
        };
        assert!(!inflow.is_full(start), "nothing has come yet");
        bring(0..10, 100);
        assert!(!inflow.is_full(at(9)) && inflow.is_full(at(10)));
        bring(10..20, 60);
        assert!(inflow.is_full(at(20)), "it is as busy as ever, or nearly");
        bring(20..30, 1);
        assert!(!inflow.is_full(at(30)), "somebody drips");
        bring(30..40, 1_000);
        assert!(inflow.is_full(at(40)) && !inflow.is_full(at(60)), "silence");
        // A link that has got slower counts as full again some minutes later.
        bring(60..2_000, 30);
        assert!(inflow.is_full(at(2_000)));
    }

    #[test]
    fn a_pace_spaces_slices_by_their_size() {
        let start = Instant::now();
        let pace = RateLimiter::new(1_000);
        let at = |seconds: u64| Some(start + Duration::from_secs(seconds));
        assert_eq!(pace.reserve(2_000, Urgency::Ring, start), at(0));
        assert_eq!(pace.reserve(1_000, Urgency::Transfer, start), at(2));
        // An idle link saves nothing up.
        assert_eq!(pace.reserve(1_000, Urgency::Transfer, start + Duration::from_secs(60)), at(60));
        assert_eq!(pace.reserve(0, Urgency::Ring, start), at(61));
        assert_eq!(RateLimiter::new(0).reserve(usize::MAX, Urgency::Ring, start), None);
    }

    /// A download from us does not delay a ring, and a ring does not starve it either.
    #[test]
    fn a_transfer_gives_way_to_a_ring_for_a_while() {
        let start = Instant::now();
        let (pace, second) = (RateLimiter::new(1_000), Duration::from_secs(1));
        let patience = start + 7 * second;
        assert_eq!(pace.gives_way(Urgency::Transfer, start, patience), None, "no ring runs");
        pace.reserve(1_000, Urgency::Ring, start);
        let until = start + second;
        assert_eq!(pace.gives_way(Urgency::Transfer, start, patience), Some(until));
        assert_eq!(pace.gives_way(Urgency::Ring, start, patience), None);
        assert_eq!(pace.gives_way(Urgency::Transfer, until, patience), None, "it has ended");
        pace.reserve(60_000, Urgency::Ring, start);
        assert_eq!(pace.gives_way(Urgency::Transfer, start, patience), Some(patience));
        assert_eq!(pace.gives_way(Urgency::Transfer, patience, patience), None, "long enough");
    }

    /// With forty answers under way a ring still sends about every third slice.
    #[tokio::test]
    async fn many_answers_do_not_hold_up_a_ring() {
        let others = [Urgency::Epoch, Urgency::Transfer].map(|urgency| (urgency, Receiver::Member));
        let between = answered_during(Urgency::Ring, &others).await;
        assert!((10..=2 * 20 + 4).contains(&between), "{between} answers went first");
    }

    /// However many strangers ask, a member that catches up sends every second slice.
    #[tokio::test]
    async fn many_strangers_do_not_hold_up_a_member() {
        let others = [(Urgency::Transfer, Receiver::Stranger)];
        let between = answered_during(Urgency::Transfer, &others).await;
        assert!((10..=20 + 4).contains(&between), "{between} strangers went first");
    }

    /// How many slices of forty answers are sent while twenty of this urgency are.
    async fn answered_during(urgency: Urgency, others: &[(Urgency, Receiver)]) -> usize {
        let (pace, answered) = (Arc::new(RateLimiter::new(100_000)), Arc::new(AtomicUsize::new(0)));
        for (other, receiver) in others.iter().copied().cycle().take(40) {
            let (pace, answered) = (Arc::clone(&pace), Arc::clone(&answered));
            tokio::spawn(async move {
                loop {
                    pace.take(200, other, receiver).await;
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        while answered.load(Ordering::Relaxed) < 40 {
            tokio::task::yield_now().await;
        }
        let before = answered.load(Ordering::Relaxed);
        for _ in 0..20 {
            pace.take(200, urgency, Receiver::Member).await;
        }
        answered.load(Ordering::Relaxed) - before
    }

    #[test]
    fn slices_are_short_where_the_link_is_slow() {
        assert_eq!(RateLimiter::new(0).slice(65_536), 65_536);
        assert_eq!(RateLimiter::new(60_000).slice(65_536), 3_000);
        assert_eq!(RateLimiter::new(1 << 40).slice(65_536), 65_536);
        assert_eq!(RateLimiter::new(1).slice(65_536), 1);
    }
}
