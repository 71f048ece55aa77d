//! When our head was at which epoch, by the wall clock: how old is what a greater head would undo
//! (G11).
//!
//! A mark is made at most every [`GAP_S`] seconds, in memory and in the log, so that a restart
//! forgets nothing. All marks of the last [`RECENT_S`] seconds stay in memory; older ones of a day
//! stay at a wider gap.

use std::collections::VecDeque;
use std::time::Duration;

use crate::base::time::Time;
use crate::history::log::{Mark, Record};

/// The times at which our head was at an epoch.
#[derive(Clone, Debug)]
pub(super) struct Marks {
    /// Sorted by time, the oldest first.
    marks: VecDeque<Mark>,
    /// The mark of this start, until it is logged.
    unlogged: Option<Mark>,
    /// The start on both clocks: seconds since 1970, and our own.
    clock: (u64, Time),
}

impl Marks {
    /// The marks of earlier starts, and one for now: at `clock` the head is at `epoch`.
    pub(super) fn new(marks: Vec<Mark>, epoch: u64, clock: (u64, Time)) -> Self {
        let (mut marks, start) = (VecDeque::from(marks), Mark { epoch, unix: clock.0 });
        marks.push_back(start);
        Self { marks, unlogged: Some(start), clock }
    }

    /// What to log before the first epoch that is taken after a start. No later mark shows that it
    /// is so new.
    pub(super) fn start(&mut self) -> Option<Record> {
        self.unlogged.take().map(|Mark { epoch, unix }| Record::Marked { epoch, unix })
    }

    /// Notes that the head is at `epoch` now; returns what to log, if a mark is due.
    pub(super) fn mark(&mut self, now: Time, epoch: u64) -> Option<Record> {
        let unix = self.unix(now);
        let last = self.marks.back().map(|mark| mark.unix);
        if last.is_some_and(|last| unix.abs_diff(last) < GAP_S) {
            return None;
        }
        self.marks.push_back(Mark { epoch, unix });
        let (mut kept, dense) = (0, unix.saturating_sub(RECENT_S));
        self.marks.retain(|mark| {
            let stays = mark.unix >= dense || mark.unix.saturating_sub(kept) >= OLD_GAP_S;
            kept = if stays { mark.unix } else { kept };
            stays
        });
        self.marks.drain(..self.marks.len().saturating_sub(MARKS_KEPT));
        Some(Record::Marked { epoch, unix })
    }

    /// Whether what follows on `epoch` was taken within `time`: within it the head was there, or
    /// before. A clock that was put back makes everything recent.
    pub(super) fn is_recent(&self, now: Time, epoch: u64, time: Duration) -> bool {
        let unix = self.unix(now);
        let age = |mark: &Mark| unix.saturating_sub(mark.unix);
        self.marks.iter().any(|mark| mark.epoch <= epoch && age(mark) < time.as_secs())
    }

    /// Drops the marks beyond `epoch`, which is given up.
    pub(super) fn rewind(&mut self, epoch: u64) {
        self.marks.retain(|mark| mark.epoch <= epoch);
        self.unlogged.take_if(|mark| mark.epoch > epoch);
    }

    /// Counts a time that our clock lacks, since this process did not run.
    pub(super) fn sleep(&mut self, slept: Duration) {
        self.clock.0 = self.clock.0.saturating_add(slept.as_secs());
    }

    /// The wall clock now, from its value at the start; it is not read again.
    fn unix(&self, now: Time) -> u64 {
        let (unix, at) = self.clock;
        unix.saturating_add(now.since(at).as_secs())
    }
}

/// A split this old is more than a short failure of the network.
pub(super) const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The least time between two marks, and between two that are older than [`RECENT_S`], in seconds.
/// [`RECENT_S`] is ten minutes: what is younger, a greater head undoes without asking anybody
/// (G11).
const GAP_S: u64 = 10;
const OLD_GAP_S: u64 = DAY.as_secs() / 64;
pub(super) const RECENT_S: u64 = 600;

/// Marks in memory: all of [`RECENT_S`], and those of a day before.
const MARKS_KEPT: usize = 160;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Time {
        Time::ZERO + Duration::from_secs(s)
    }

    #[test]
    fn g11_a_restart_forgets_no_time() {
        let mut marks = Marks::new(Vec::new(), 0, (1_000_000, at(0)));
        let logged: Vec<Record> = (1..=600).filter_map(|e| marks.mark(at(e), e)).collect();
        assert_eq!(logged.len(), 60, "one in ten seconds");
        let minutes = |m: u64| Duration::from_secs(60 * m);
        assert!(
            marks.is_recent(at(600), 100, minutes(9)) && !marks.is_recent(at(600), 40, minutes(9))
        );
        let kept = crate::history::log::marks(&logged);
        let again = Marks::new(kept, 600, (1_000_000 + 660, at(0)));
        assert!(
            again.is_recent(at(0), 130, minutes(9)) && !again.is_recent(at(0), 100, minutes(9))
        );
    }

    /// The first epochs are taken so soon after the start that no mark is due.
    #[test]
    fn g11_a_restart_forgets_no_start() {
        let mut marks = Marks::new(Vec::new(), 0, (1_000_000, at(0)));
        let mut logged: Vec<Record> = marks.start().into_iter().collect();
        logged.extend((1..=11).filter_map(|e| marks.mark(at(e), e)));
        assert_eq!((logged.len(), marks.start()), (2, None), "logged once");
        let again = Marks::new(crate::history::log::marks(&logged), 11, (1_000_020, at(0)));
        assert!(again.is_recent(at(0), 1, Duration::from_secs(RECENT_S)));
        let mut given_up = Marks::new(Vec::new(), 9, (0, at(0)));
        given_up.rewind(8);
        assert_eq!(given_up.start(), None, "beyond a fork");
    }

    #[test]
    fn g11_time_passes_while_the_machine_sleeps() {
        let mut marks = Marks::new(Vec::new(), 0, (1_000_000, at(0)));
        marks.mark(at(20), 5);
        let recent = Duration::from_secs(RECENT_S);
        assert!(marks.is_recent(at(30), 5, recent));
        marks.sleep(2 * recent);
        assert!(!marks.is_recent(at(31), 5, recent));
    }

    #[test]
    fn marks_of_a_day_are_few_and_those_beyond_a_fork_are_gone() {
        let mut marks = Marks::new(Vec::new(), 0, (0, at(0)));
        (1..200_000).for_each(|e| drop(marks.mark(at(e), e)));
        assert!(marks.marks.len() <= MARKS_KEPT);
        assert!(marks.is_recent(at(200_000), 199_500, Duration::from_secs(RECENT_S)));
        assert!(marks.is_recent(at(200_000), 120_000, DAY));
        marks.rewind(150_000);
        assert!(!marks.is_recent(at(200_000), 199_999, Duration::from_secs(RECENT_S)));
    }
}
