//! Who was heard, when, and where they stand: the table that the view keeps and the others read.
//!
//! *Alive* asks whether somebody is there at all (silent-after); *present* asks whether a voter may
//! be left behind by a Regroup (`minority_grace`, PROTOCOL-RULES §2). Both are guesses about time;
//! only progress depends on them, never what is true.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::id::{LogId, PeerId};
use crate::message::{Heartbeat, Series, Voter};
use crate::time::Time;

/// What is known of one other peer.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Its newest heartbeat.
    pub beat: Heartbeat,
    /// When that one came.
    pub heard: Time,
    /// The incarnation that said `Leaving`, if it did.
    pub left: Option<u64>,
    /// Smoothed round trip in milliseconds; 0 is not yet measured.
    pub rtt_ms: u32,
}

impl Seen {
    /// Whether it said `Leaving` and was not heard with a higher incarnation since.
    #[must_use]
    pub fn has_left(&self) -> bool {
        self.left.is_some_and(|incarnation| incarnation >= self.beat.incarnation)
    }
}

/// Everyone heard so far, and the timers that follow from the run's settings.
#[derive(Clone, Debug)]
pub struct Roll {
    /// By peer; never contains the peer itself.
    pub peers: BTreeMap<PeerId, Seen>,
    /// The run's heartbeat interval.
    pub heartbeat: Duration,
    /// The run's `minority_grace`.
    pub grace: Duration,
}

impl Roll {
    /// An empty table.
    #[must_use]
    pub fn new(heartbeat: Duration, grace: Duration) -> Self {
        Self { peers: BTreeMap::new(), heartbeat, grace }
    }

    /// The largest smoothed round trip among live peers.
    #[must_use]
    pub fn round_trip(&self, now: Time) -> Duration {
        let live = self.peers.values().filter(|seen| self.fresh(seen, now));
        Duration::from_millis(live.map(|seen| u64::from(seen.rtt_ms)).max().unwrap_or(0))
    }

    /// After how long without a heartbeat `seen` counts as dead: 4 heartbeats + 4·rtt.
    #[must_use]
    pub fn silent_after(&self, seen: &Seen) -> Duration {
        4 * (self.heartbeat + Duration::from_millis(u64::from(seen.rtt_ms)))
    }

    /// Whether `peer` was heard lately and has not left.
    #[must_use]
    pub fn alive(&self, peer: &PeerId, now: Time) -> bool {
        self.peers.get(peer).is_some_and(|seen| self.fresh(seen, now))
    }

    /// The live peers.
    pub fn live(&self, now: Time) -> impl Iterator<Item = (&PeerId, &Seen)> {
        self.peers.iter().filter(move |(_, seen)| self.fresh(seen, now))
    }

    /// The live peers that are in `series`.
    pub fn live_in(&self, series: Series, now: Time) -> impl Iterator<Item = (&PeerId, &Seen)> {
        self.live(now).filter(move |(_, seen)| seen.beat.series == series)
    }

    /// Whether `voter` may not be left behind yet: it was heard within `minority_grace`, counted
    /// from `since` at the earliest, with its own log, in `series` and bound to no Regroup of it.
    #[must_use]
    pub fn present(&self, voter: &Voter, series: Series, since: Time, now: Time) -> bool {
        let Some(seen) = self.peers.get(&voter.peer) else { return now.since(since) < self.grace };
        if seen.has_left() || seen.beat.log != voter.log {
            return false;
        }
        if seen.beat.series == series {
            return seen.beat.joined.is_none() && now.since(seen.heard.max(since)) < self.grace;
        }
        // It may be on its way into this series, until the grace has passed.
        seen.beat.series.epoch < series.epoch && now.since(since) < self.grace
    }

    /// The log under which `peer` was last heard.
    #[must_use]
    pub fn log(&self, peer: &PeerId) -> Option<LogId> {
        self.peers.get(peer).map(|seen| seen.beat.log)
    }

    fn fresh(&self, seen: &Seen, now: Time) -> bool {
        !seen.has_left() && now.since(seen.heard) < self.silent_after(seen)
    }
}
