//! What is noted when it happens and reported later, or seldom.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use intellect_protocol::base::time::Time;

use crate::figures::number_of;

/// What waits to be reported, and when something was last.
#[derive(Clone, Debug, Default)]
pub(super) struct Later {
    /// For how long this process did not run, and when it went on, until the node has caught up.
    pub(super) asleep: Option<(Duration, Time)>,
    /// Whether the epoch that is committed next lacks the work that this node has ready.
    pub(super) left_out: bool,
    /// With how many peers the run is expected to begin.
    pub(super) beginning: Beginning,
    /// What the disk does not take, by its kind, until it takes all of that kind again.
    pub(super) refused: BTreeMap<&'static str, Refusals>,
    /// The commit that people were told of last.
    pub(super) commits: Commits,
}

/// The size of the ring and whether this node was in it, as people were last told, and when that was.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Commits(Option<(usize, bool, Instant)>);

impl Commits {
    /// Whether a commit is told to a person who sees the epochs go by beneath: one in ten seconds, and each that differs
    /// from the last one that was told.
    pub(super) fn is_due(&mut self, now: Instant, ring: usize, with_us: bool) -> bool {
        let due = self
            .0
            .is_none_or(|(size, part, at)| (size, part) != (ring, with_us) || now >= at + SELDOM);
        if due {
            self.0 = Some((ring, with_us, now));
        }
        due
    }
}

/// With how many peers the run was last said to begin.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Beginning(usize);

impl Beginning {
    /// The sentence that the run begins soon, where another number of peers is expected than it was last said.
    pub(super) fn note(&mut self, wait: Duration, peers: usize) -> Option<String> {
        let is_news = peers != std::mem::replace(&mut self.0, peers);
        let seconds = wait.as_millis().div_ceil(1_000);
        (is_news && seconds > 0).then(|| {
            let peers = number_of(peers, "peer");
            format!("beginning in {seconds} s with {peers}; others may still come")
        })
    }
}

/// The files of one kind that the disk has refused since it last took all of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Refusals {
    /// How many files those are so far.
    count: u64,
    /// When people were last told so.
    said: Option<Instant>,
    /// When the last of them was refused.
    last: Option<Instant>,
}

impl Refusals {
    /// One more is refused. Returns how many those are, if a report is due: the first, and then one every minute.
    pub(super) fn note(&mut self, now: Instant) -> Option<u64> {
        (self.count, self.last) = (self.count + 1, Some(now));
        let due = self.said.is_none_or(|at| now >= at + AGAIN);
        due.then(|| {
            self.said = Some(now);
            self.count
        })
    }

    /// Whether a file that is written now ends them. A disk that is nearly full takes one and refuses the next, so
    /// they end after a minute without any.
    pub(super) fn end(&self, now: Instant) -> bool {
        self.last.is_none_or(|at| now >= at + AGAIN)
    }
}

const AGAIN: Duration = Duration::from_secs(60);
/// How often a commit is told that is like the one before it.
const SELDOM: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_is_told_where_it_differs_and_else_one_in_ten_seconds() {
        let (mut commits, start) = (Commits::default(), Instant::now());
        let mut told =
            |ms, ring, with_us| commits.is_due(start + Duration::from_millis(ms), ring, with_us);
        assert_eq!(
            [0, 300, 9_900, 10_000, 10_300].map(|ms| told(ms, 2, true)),
            [true, false, false, true, false]
        );
        assert!(told(10_600, 3, true) && !told(10_900, 3, true), "another size");
        assert!(told(11_200, 3, false) && !told(11_500, 3, false), "without this node");
        assert!(told(11_800, 3, true), "with it again");
    }

    #[test]
    fn a_full_disk_is_reported_once_and_then_every_minute_with_a_count() {
        let (mut refused, start) = (Refusals::default(), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut ended = 0;
        let flap = |second| {
            let report = refused.note(after(second));
            ended += u64::from(refused.end(after(second)));
            report
        };
        let reports: Vec<_> = (0..=120).filter_map(flap).collect();
        assert_eq!((reports.as_slice(), ended), ([1, 61, 121].as_slice(), 0));
        assert!(!refused.end(after(179)) && refused.end(after(180)));
    }

    #[test]
    fn a_founding_is_announced_once_for_each_number_of_peers() {
        let mut beginning = Beginning::default();
        let mut said = |ms, peers| beginning.note(Duration::from_millis(ms), peers);
        let first = said(3_900, 2).unwrap();
        assert_eq!(first, "beginning in 4 s with 2 peers; others may still come");
        assert_eq!(said(2_000, 2), None);
        assert!(said(4_000, 3).is_some_and(|sentence| sentence.contains("3 peers")));
        assert_eq!(said(0, 4), None, "it begins now");
    }
}
