//! Which peers that come and go are told one by one: those that a receipt names or that vote, and a few strangers. Anybody can
//! make a key, so of all other ones only their number is told, once a minute.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use intellect_protocol::base::id::PeerId;

use crate::net::Link;

/// So many strangers are told at once, and one more each minute: friends who come to a run, not a crowd.
const STRANGERS_MAX: u32 = 32;

/// How often the others are counted.
const MINUTE: Duration = Duration::from_secs(60);

/// Who is here, as far as people were told, and by which way.
#[derive(Clone, Debug)]
pub(super) struct Here {
    pub(super) strangers: Strangers,
    /// How each peer is connected that is.
    pub(super) links: Arc<Mutex<BTreeMap<PeerId, Link>>>,
}

impl Here {
    /// Nobody is.
    pub(super) fn new(now: Instant) -> Self {
        Self { strangers: Strangers::new(now), links: Arc::default() }
    }
}

/// Who was told.
#[derive(Clone, Debug)]
pub(crate) struct Strangers {
    /// Who was told to be here.
    told: BTreeSet<PeerId>,
    /// Who is here, and was not told: no more than the roll has.
    untold: BTreeSet<PeerId>,
    /// How many strangers may still be told.
    left: u32,
    /// How many have come since then without being told.
    count: u64,
    since: Instant,
}

impl Strangers {
    /// Nobody has come yet.
    pub(crate) fn new(now: Instant) -> Self {
        let (told, untold, left) = (BTreeSet::new(), BTreeSet::new(), STRANGERS_MAX);
        Self { told, untold, left, count: 0, since: now }
    }

    /// A peer has come; whether that is told.
    pub(crate) fn found(&mut self, who: PeerId, is_named: bool) -> bool {
        let is_told = is_named || self.left > 0;
        if is_told {
            self.left -= u32::from(!is_named);
            self.told.insert(who);
        } else {
            self.count += 1;
            self.untold.insert(who);
        }
        is_told
    }

    /// A peer has gone; whether that is told.
    pub(crate) fn lost(&mut self, who: &PeerId) -> bool {
        self.untold.remove(who);
        self.told.remove(who)
    }

    /// A receipt names a peer; whether it is told only now that it is here.
    pub(crate) fn named(&mut self, who: PeerId) -> bool {
        self.untold.remove(&who) && self.told.insert(who)
    }

    /// How many have come untold in the last minute, once it is over.
    pub(crate) fn count(&mut self, now: Instant) -> Option<u64> {
        if now < self.since + MINUTE {
            return None;
        }
        (self.since, self.left) = (now, (self.left + 1).min(STRANGERS_MAX));
        Some(std::mem::take(&mut self.count)).filter(|count| *count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_is_one_line_a_minute_and_members_are_told_one_by_one() {
        let start = Instant::now();
        let mut strangers = Strangers::new(start);
        let key = |n: u8| PeerId([n; 32]);
        let told = (0..200).filter(|n| strangers.found(key(*n), false)).count();
        assert_eq!(told, 32);
        assert!(strangers.lost(&key(0)) && !strangers.lost(&key(100)));
        assert!(!strangers.found(key(0), false) && strangers.found(key(201), true));
        assert!(strangers.named(key(150)) && !strangers.named(key(150)));
        assert!(strangers.lost(&key(150)), "who was told is lost too");
        assert_eq!(strangers.count(start + MINUTE / 2), None);
        assert_eq!(strangers.count(start + MINUTE), Some(169));
        assert!(strangers.found(key(100), false) && !strangers.found(key(101), false));
        assert_eq!(strangers.count(start + 2 * MINUTE), Some(1));
        assert_eq!(strangers.count(start + 3 * MINUTE), None);
    }
}
