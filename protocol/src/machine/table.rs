//! Who was heard, when, and where they stand: the table that the view keeps and the others read.
//!
//! *Alive* asks whether somebody is there at all (silent-after); *present* asks whether a voter may
//! be left behind by a Regroup (`minority_grace`, docs/PROTOCOL.md). Both are guesses about time;
//! only progress depends on them, never what is true.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::base::id::PeerId;
use crate::base::time::Time;
use crate::message::{Heartbeat, Series, Voter};

/// What is known of one other peer.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Its newest heartbeat.
    pub beat: Heartbeat,
    /// When that one came.
    pub heard: Time,
    /// Since when it is heard, without a silence that counts as one.
    pub since: Time,
    /// How many heartbeats came since then.
    pub beats: u32,
    /// When its newest heartbeat came, also if a closed connection has aged `heard` since.
    named_at: Time,
    /// The series that it named before, at most [`NAMED_MAX`], and when it named each last.
    named_before: Vec<(Series, Time)>,
    /// The incarnation that said `Leaving`, if it did.
    pub left: Option<u64>,
    /// Smoothed round trip in milliseconds; 0 is not yet measured.
    pub rtt_ms: u32,
}

/// The most series that are remembered of one peer beside its own: those that it has just left. Who
/// catches up by replay names one after another; what is forgotten before the grace has passed is
/// taken for silence (R12).
const NAMED_MAX: usize = 16;

/// What counts while no round trip is measured; guess: between continents.
pub const ROUND_TRIP_UNKNOWN: Duration = Duration::from_millis(100);

impl Seen {
    /// A peer that is first heard now.
    #[must_use]
    pub fn new(beat: &Heartbeat, now: Time) -> Self {
        let (beat, named_before) = (beat.clone(), Vec::new());
        Self {
            beat,
            heard: now,
            since: now,
            beats: 1,
            named_at: now,
            named_before,
            left: None,
            rtt_ms: 0,
        }
    }

    /// The peer is heard again, with a newer heartbeat.
    pub fn hear(&mut self, beat: &Heartbeat, now: Time, heartbeat: Duration) {
        if now.since(self.heard) >= self.silent_after(heartbeat) {
            (self.since, self.beats) = (now, 0);
        }
        self.beats = self.beats.saturating_add(1);
        if self.beat.series != beat.series {
            self.named_before.retain(|(series, _)| *series != beat.series);
            self.named_before.push((self.beat.series, self.named_at));
            if self.named_before.len() > NAMED_MAX {
                self.named_before.remove(0);
            }
        }
        self.beat.clone_from(beat);
        (self.heard, self.named_at) = (now, now);
    }

    /// After how long without a heartbeat it counts as dead: 4 heartbeats + 4·rtt.
    pub(crate) fn silent_after(&self, heartbeat: Duration) -> Duration {
        4 * (heartbeat + Duration::from_millis(u64::from(self.rtt_ms)))
    }

    /// When it last named `series`.
    #[must_use]
    pub fn named(&self, series: Series) -> Option<Time> {
        if self.beat.series == series {
            return Some(self.named_at);
        }
        self.named_before.iter().find(|(named, _)| *named == series).map(|(_, at)| *at)
    }

    /// Whether it said `Leaving` and was not heard with a higher incarnation since.
    #[must_use]
    pub fn has_left(&self) -> bool {
        self.left.is_some_and(|incarnation| incarnation >= self.beat.incarnation)
    }
}

/// Everyone heard so far, and the timers that follow from the run's settings.
#[derive(Clone, Debug)]
pub struct Roll {
    /// What is known of each other peer; the peer itself is never among them.
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

    /// The longest round trip to any of these peers; [`ROUND_TRIP_UNKNOWN`] while none is measured.
    #[must_use]
    pub fn round_trip<'a>(&self, peers: impl Iterator<Item = &'a PeerId>) -> Duration {
        let trips = peers.filter_map(|peer| self.peers.get(peer)).map(|seen| seen.rtt_ms);
        match trips.max() {
            None | Some(0) => ROUND_TRIP_UNKNOWN,
            Some(longest) => Duration::from_millis(longest.into()),
        }
    }

    /// After how long without a heartbeat `seen` counts as dead: 4 heartbeats + 4·rtt.
    #[must_use]
    pub fn silent_after(&self, seen: &Seen) -> Duration {
        seen.silent_after(self.heartbeat)
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

    /// Whether `voter` was not heard naming `series` for `minority_grace`, counted from `since` at
    /// the earliest. What it names now does not matter: it may be on its way, either way.
    #[must_use]
    pub fn silent(&self, voter: &Voter, series: Series, since: Time, now: Time) -> bool {
        let named = self.peers.get(&voter.peer).and_then(|seen| seen.named(series));
        now.since(named.map_or(since, |at| at.max(since))) >= self.grace
    }

    fn fresh(&self, seen: &Seen, now: Time) -> bool {
        !seen.has_left() && now.since(seen.heard) < self.silent_after(seen)
    }
}
