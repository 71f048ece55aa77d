//! Which arrivals and departures are reported one by one: those of peers that a receipt names or that vote, and of a
//! few others. Anybody can make a key, so of all other peers only the number is reported, once a minute.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use intellect_protocol::base::id::PeerId;

use crate::net::Link;

/// So many newcomers are reported at once, and one more each minute: the friends that join a run, not a flood of keys.
const NEWCOMERS_MAX: u32 = 32;

/// How often the place of one peer is said, and the place of any: a run of 256 writes 40 MB a day.
const TURN_EVERY: Duration = Duration::from_secs(10);
const TURNS_APART: Duration = Duration::from_millis(500);

/// How often the unreported peers are counted.
const MINUTE: Duration = Duration::from_secs(60);

/// The peers that were reported to be here, and how each is connected.
#[derive(Clone, Debug)]
pub(super) struct Here {
    /// Which peers were reported one by one.
    pub(super) arrivals: Arrivals,
    /// The connection of each connected peer: direct or relayed.
    pub(super) links: Arc<Mutex<Linked>>,
}

/// Each connected peer: its link, and the version of its program once it has named one.
pub(super) type Linked = BTreeMap<PeerId, (Link, Option<String>)>;

impl Here {
    /// Nobody is here yet, and the full number of newcomers may be reported.
    pub(super) fn new(now: Instant) -> Self {
        Self { arrivals: Arrivals::new(now), links: Arc::default() }
    }
}

/// Which arrivals of newcomers were reported.
#[derive(Clone, Debug)]
pub(crate) struct Arrivals {
    /// Peers that are here and were reported.
    reported: BTreeSet<PeerId>,
    /// When it was last said where each of them is, and any of them.
    turns: BTreeMap<PeerId, Instant>,
    /// When the place of any of them was said last.
    turned: Option<Instant>,
    /// Peers that are here and were not reported: no more than the table has.
    unreported: BTreeSet<PeerId>,
    /// How many newcomers may still be reported.
    left: u32,
    /// How many have come since `since` without a report.
    count: u64,
    /// Since when unreported newcomers are counted.
    since: Instant,
}

impl Arrivals {
    /// Begins with all newcomers still to be reported, up to [`NEWCOMERS_MAX`].
    pub(crate) fn new(now: Instant) -> Self {
        let (reported, unreported) = (BTreeSet::new(), BTreeSet::new());
        let (turns, turned, left) = (BTreeMap::new(), None, NEWCOMERS_MAX);
        Self { reported, turns, turned, unreported, left, count: 0, since: now }
    }

    /// A peer has come; whether to report it.
    pub(crate) fn found(&mut self, who: PeerId, is_named: bool) -> bool {
        let is_reported = is_named || self.left > 0;
        if is_reported {
            self.left -= u32::from(!is_named);
            self.reported.insert(who);
        } else {
            self.count += 1;
            self.unreported.insert(who);
        }
        is_reported
    }

    /// The reported peer whose turn it is to have its place said: that of the longest time ago, if that is long enough.
    pub(crate) fn turn(&mut self, now: Instant) -> Option<PeerId> {
        let passed = |at: &Instant, length| now.saturating_duration_since(*at) >= length;
        if self.turned.is_some_and(|at| !passed(&at, TURNS_APART)) {
            return None;
        }
        let next = self.reported.iter().min_by_key(|peer| self.turns.get(*peer)).copied()?;
        if self.turns.get(&next).is_some_and(|at| !passed(at, TURN_EVERY)) {
            return None;
        }
        (self.turned, _) = (Some(now), self.turns.insert(next, now));
        Some(next)
    }

    /// A peer has gone; whether to report it.
    pub(crate) fn lost(&mut self, who: &PeerId) -> bool {
        self.turns.remove(who);
        self.unreported.remove(who);
        self.reported.remove(who)
    }

    /// A receipt names a peer; whether to report only now that it is here.
    pub(crate) fn named(&mut self, who: PeerId) -> bool {
        self.unreported.remove(&who) && self.reported.insert(who)
    }

    /// How many came without a report in the last minute, once it is over.
    pub(crate) fn count(&mut self, now: Instant) -> Option<u64> {
        if now < self.since + MINUTE {
            return None;
        }
        (self.since, self.left) = (now, (self.left + 1).min(NEWCOMERS_MAX));
        let count = std::mem::take(&mut self.count);
        (count > 0).then_some(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_peer_has_its_turn_and_none_too_often() {
        let start = Instant::now();
        let mut arrivals = Arrivals::new(start);
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(arrivals.turn(start), None);
        let key = |n: u8| PeerId([n; 32]);
        assert!((0..30).all(|n| arrivals.found(key(n), true)));
        let turns: Vec<_> = (0..120).filter_map(|n| arrivals.turn(at(250 * n))).collect();
        assert_eq!(turns.len(), 60, "two a second");
        assert_eq!(turns.iter().collect::<BTreeSet<_>>().len(), 30);
        assert!((1..30).all(|n| arrivals.lost(&key(n))));
        let few = (0..400).filter_map(|n| arrivals.turn(at(30_000 + 250 * n)));
        assert_eq!(few.count(), 10, "one in ten seconds");
        assert!(arrivals.lost(&key(0)) && arrivals.turns.is_empty());
    }

    #[test]
    fn a_flood_of_keys_is_one_line_a_minute_and_members_have_one_each() {
        let start = Instant::now();
        let mut arrivals = Arrivals::new(start);
        let key = |n: u8| PeerId([n; 32]);
        let reported = (0..200).filter(|n| arrivals.found(key(*n), false)).count();
        assert_eq!(reported, 32);
        assert!(arrivals.lost(&key(0)) && !arrivals.lost(&key(100)));
        assert!(!arrivals.found(key(0), false) && arrivals.found(key(201), true));
        assert!(arrivals.named(key(150)) && !arrivals.named(key(150)));
        assert!(arrivals.lost(&key(150)), "a peer that was reported is reported lost too");
        assert_eq!(arrivals.count(start + MINUTE / 2), None);
        assert_eq!(arrivals.count(start + MINUTE), Some(169));
        assert!(arrivals.found(key(100), false) && !arrivals.found(key(101), false));
        assert_eq!(arrivals.count(start + 2 * MINUTE), Some(1));
        assert_eq!(arrivals.count(start + 3 * MINUTE), None);
    }
}
