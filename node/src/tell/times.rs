//! Where the time of an epoch goes, by the marks that this node passes on its way from one state to the next.

use std::time::{Duration, Instant};

use intellect_protocol::base::id::{Digest, PeerId};

use super::events::Times;
use super::sample::Sampler;

/// How far the open epoch is, and where this node stands in its ring.
#[derive(Clone, Debug)]
pub(super) struct Timing {
    pub(super) marks: Marks,
    /// The steps of the training, for the picture.
    pub(super) sampler: Sampler,
    /// The place in the ring that was opened last.
    pub(super) seat: Option<Seat>,
}

impl Timing {
    pub(super) fn new(now: Instant) -> Self {
        Self { marks: Marks::new(now), sampler: Sampler::new(now), seat: None }
    }
}

/// The place of this node in a ring.
#[derive(Clone, Debug)]
pub(crate) struct Seat {
    pub(crate) roster: Digest,
    /// Its position, counted from 0.
    pub(crate) position: usize,
    /// How many members have a position.
    pub(crate) of: usize,
    /// The member to which it sends.
    pub(crate) to: PeerId,
}

/// The marks of the open epoch.
#[derive(Clone, Debug)]
pub(super) struct Marks {
    /// When the state before was there.
    began: Instant,
    /// When the work was frozen; `None` if it was not.
    ready: Option<Instant>,
    /// When the first roster was accepted.
    roster: Option<Instant>,
    /// When a ring last had the update.
    held: Option<Instant>,
    /// When the certificate was here.
    decided: Option<Instant>,
}

impl Marks {
    /// The marks of an epoch that begins at this time.
    pub(super) fn new(began: Instant) -> Self {
        Self { began, ready: None, roster: None, held: None, decided: None }
    }

    /// The work is frozen. What came before belongs to an attempt without it.
    pub(super) fn ready(&mut self, now: Instant) {
        *self = Self { ready: Some(now), ..Self::new(self.began) };
    }

    /// A roster was accepted. Only the first one of the epoch counts.
    pub(super) fn roster(&mut self, now: Instant) {
        self.roster.get_or_insert(now);
    }

    /// A ring has the update. The last one of the epoch counts.
    pub(super) fn held(&mut self, now: Instant) {
        self.held = Some(now);
    }

    /// The epoch is decided. A repeated certificate changes nothing.
    pub(super) fn decided(&mut self, now: Instant) {
        self.decided.get_or_insert(now);
    }

    /// The new state is here: the next epoch begins. Returns how long the parts of this one took, which add up to
    /// the time since the state before. A mark that was not passed takes no time of its own.
    pub(super) fn end(&mut self, now: Instant) -> Times {
        let marks = std::mem::replace(self, Self::new(now));
        let Some(ready) = marks.ready else { return Times::default() };
        let decided = marks.decided.unwrap_or(now).clamp(ready, now);
        // Without a ring of its own a node waits for the update of the others.
        let roster = marks.roster.unwrap_or(decided).clamp(ready, decided);
        let held = marks.held.unwrap_or(decided).clamp(roster, decided);
        // The sum stays exact, since each mark is rounded once.
        let at = |mark: Instant| ms(mark.saturating_duration_since(marks.began));
        let part = |from, to| Some(at(to).saturating_sub(at(from)));
        Times {
            train_ms: part(marks.began, ready),
            wait_ready_ms: part(ready, roster),
            ring_ms: part(roster, held),
            vote_ms: part(held, decided),
            apply_ms: part(decided, now),
        }
    }
}

/// A length in milliseconds, as events have it.
pub(super) fn ms(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(times: Times) -> [Option<u64>; 5] {
        let Times { train_ms, wait_ready_ms, ring_ms, vote_ms, apply_ms } = times;
        [train_ms, wait_ready_ms, ring_ms, vote_ms, apply_ms]
    }

    #[test]
    fn the_parts_of_an_epoch_add_up_to_it() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_micros(1_000 * ms + 700);
        let mut marks = Marks::new(start);
        marks.ready(at(500));
        marks.roster(at(520));
        marks.roster(at(700));
        marks.held(at(750));
        marks.decided(at(760));
        let times = marks.end(at(900));
        assert_eq!(parts(times), [500, 20, 230, 10, 140].map(Some));
        // An epoch that others decide without a ring of this node.
        marks.ready(at(1_000));
        marks.decided(at(1_300));
        assert_eq!(parts(marks.end(at(1_310))), [100, 300, 0, 0, 10].map(Some));
        // One in which it was not Ready, and marks in a foreign order.
        marks.roster(at(1_400));
        assert_eq!(marks.end(at(1_500)), Times::default());
        marks.held(at(1_510));
        marks.ready(at(1_600));
        marks.roster(at(1_590));
        let sum: u64 = parts(marks.end(at(1_700))).into_iter().flatten().sum();
        assert_eq!(sum, 200);
    }
}
