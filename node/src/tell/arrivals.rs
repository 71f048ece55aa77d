//! Which arrivals and departures are reported one by one: those of peers that a receipt names or that vote, and of a
//! few others. Anybody can make a key, so of all other peers only the number is reported, once a minute.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use intellect_protocol::base::id::PeerId;

use crate::net::Link;

/// So many newcomers are reported at once, and one more each minute: the friends that join a run, not a flood of keys.
const NEWCOMERS_MAX: u32 = 32;

/// How often the unreported peers are counted.
const MINUTE: Duration = Duration::from_secs(60);

/// The peers that were reported to be here, and how each is connected.
#[derive(Clone, Debug)]
pub(super) struct Here {
    pub(super) arrivals: Arrivals,
    /// The connection of each connected peer: direct or relayed.
    pub(super) links: Arc<Mutex<BTreeMap<PeerId, Link>>>,
}

impl Here {
    pub(super) fn new(now: Instant) -> Self {
        Self { arrivals: Arrivals::new(now), links: Arc::default() }
    }
}

/// Which arrivals of newcomers were reported.
#[derive(Clone, Debug)]
pub(crate) struct Arrivals {
    /// Peers that are here and were reported.
    reported: BTreeSet<PeerId>,
    /// Peers that are here and were not reported: no more than the table has.
    unreported: BTreeSet<PeerId>,
    /// How many newcomers may still be reported.
    left: u32,
    /// How many have come since `since` without a report.
    count: u64,
    since: Instant,
}

impl Arrivals {
    pub(crate) fn new(now: Instant) -> Self {
        let (reported, unreported) = (BTreeSet::new(), BTreeSet::new());
        Self { reported, unreported, left: NEWCOMERS_MAX, count: 0, since: now }
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

    /// A peer has gone; whether to report it.
    pub(crate) fn lost(&mut self, who: &PeerId) -> bool {
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
