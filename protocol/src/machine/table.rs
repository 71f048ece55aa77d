//! Which peers were heard, when, and where they stand: the view keeps
//! this table, the others read it.
//!
//! *Alive* asks whether a peer is there at all (silent-after); *present* asks whether a Regroup may
//! leave a voter behind (`minority_grace`, docs/PROTOCOL.md). Both are guesses about time: progress
//! depends on them, safety does not.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::base::id::PeerId;
use crate::base::time::Time;
use crate::message::{Heartbeat, Loss, Row, Series, Voter};

/// What is known of one other peer.
#[derive(Clone, Debug)]
pub struct PeerRecord {
    /// The newest heartbeat that it has signed. Lists in it that are longer than they may be were
    /// cut before.
    pub beat: Heartbeat,
    /// When that one came, or earlier once its connection has closed.
    pub heard: Time,
    /// Since when it has been heard without a silence that counts as one.
    pub since: Time,
    /// How many heartbeats came since then.
    pub beats: u32,
    /// When its newest heartbeat came, even if a closed connection has aged `heard` since.
    named_at: Time,
    /// The series that it named before, at most [`NAMED_MAX`], and when it last named each.
    named_before: Vec<(Series, Time)>,
    /// The incarnation that said `Leaving`, if one did.
    pub left: Option<u64>,
    /// Smoothed round trip in milliseconds; 0 while none is measured. At most 4,000: the other side
    /// decides when it answers (G10).
    pub rtt_ms: u32,
    /// The loss that it named with its last `Ready`, for people only.
    pub loss: Loss,
}

/// The most series that are remembered of one peer beyond its own: those that it has just left. A
/// peer that catches up by replay names one after another. A series that is forgotten before the
/// grace has passed is taken for silence in it (R12).
const NAMED_MAX: usize = 16;

/// Stands in while no round trip is measured; guess: between continents.
pub const ROUND_TRIP_UNKNOWN: Duration = Duration::from_millis(100);

impl PeerRecord {
    /// A peer whose first heartbeat comes now.
    #[must_use]
    pub fn new(beat: &Heartbeat, now: Time) -> Self {
        Self {
            beat: beat.clone(),
            heard: now,
            since: now,
            beats: 1,
            named_at: now,
            named_before: Vec::new(),
            left: None,
            rtt_ms: 0,
            loss: Loss::NONE,
        }
    }

    /// Takes a newer heartbeat of the peer.
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

    /// When its newest heartbeat came, whether or not its connection has closed since.
    pub(crate) fn spoke_at(&self) -> Time {
        self.named_at
    }

    /// When it last named `series`; `None` if it never did, or too long ago.
    pub fn named(&self, series: Series) -> Option<Time> {
        if self.beat.series == series {
            return Some(self.named_at);
        }
        self.named_before.iter().find(|(named, _)| *named == series).map(|(_, at)| *at)
    }

    /// What it says of itself, and the round trip to it.
    pub fn row(&self, peer: PeerId) -> Row {
        let Heartbeat { head, phase, ready, send_rate, .. } = self.beat;
        let (loss, rtt_ms) = (self.loss, self.rtt_ms);
        Row { peer, epoch: head.epoch, phase, ready, loss, rtt_ms, send_rate }
    }

    /// Whether it said `Leaving` and was not heard with a higher incarnation since.
    #[must_use]
    pub fn has_left(&self) -> bool {
        self.left.is_some_and(|incarnation| incarnation >= self.beat.incarnation)
    }
}

/// Peers in the table: four times the members of a roster. More cost memory; fewer let keys of
/// strangers displace newcomers.
pub const PEERS_MAX: usize = 1024;

/// Every peer heard so far, and the timers that follow from the run's settings. At most
/// [`PEERS_MAX`] peers are in it. The view alone writes it, before the other machines see the same
/// input.
#[derive(Clone, Debug)]
pub struct PeerTable {
    /// What is known of each other peer; this peer itself is never among them.
    pub peers: BTreeMap<PeerId, PeerRecord>,
    /// The run's heartbeat interval.
    pub heartbeat: Duration,
    /// The run's `minority_grace`, after which a silent voter counts as absent (R12).
    pub grace: Duration,
}

impl PeerTable {
    /// A table in which no peer was heard yet.
    #[must_use]
    pub fn new(heartbeat: Duration, grace: Duration) -> Self {
        Self { peers: BTreeMap::new(), heartbeat, grace }
    }

    /// Forgets what is known of peers that are neither in the table nor `kept`, once it is known of
    /// more peers than a table has: each key that says something may be replaced by another one.
    pub(crate) fn bound<T>(&self, known: &mut BTreeMap<PeerId, T>, kept: impl Fn(&PeerId) -> bool) {
        if known.len() > PEERS_MAX {
            known.retain(|peer, _| self.peers.contains_key(peer) || kept(peer));
        }
    }

    /// The longest round trip to any of these peers; [`ROUND_TRIP_UNKNOWN`] while none is measured.
    pub fn round_trip<'a>(&self, peers: impl Iterator<Item = &'a PeerId>) -> Duration {
        let trips = peers.filter_map(|peer| self.peers.get(peer)).map(|seen| seen.rtt_ms);
        match trips.max() {
            None | Some(0) => ROUND_TRIP_UNKNOWN,
            Some(longest) => Duration::from_millis(longest.into()),
        }
    }

    /// After how long without a heartbeat `seen` counts as dead: 4 heartbeats + 4·rtt.
    pub(crate) fn silent_after(&self, seen: &PeerRecord) -> Duration {
        seen.silent_after(self.heartbeat)
    }

    /// Whether `peer` was heard within silent-after and has not left.
    #[must_use]
    pub fn alive(&self, peer: &PeerId, now: Time) -> bool {
        self.peers.get(peer).is_some_and(|seen| self.fresh(seen, now))
    }

    /// The peers heard within silent-after that have not left.
    pub fn live(&self, now: Time) -> impl Iterator<Item = (&PeerId, &PeerRecord)> {
        self.peers.iter().filter(move |(_, seen)| self.fresh(seen, now))
    }

    /// The peers that are alive and name `series`.
    pub fn live_in(
        &self,
        series: Series,
        now: Time,
    ) -> impl Iterator<Item = (&PeerId, &PeerRecord)> {
        self.live(now).filter(move |(_, seen)| seen.beat.series == series)
    }

    /// Whether `voter` was not heard naming `series` for `minority_grace`, counted from
    /// `since` at the earliest. What it names now does not matter: it may be on its way
    /// into the series or out of it.
    #[must_use]
    pub fn silent(&self, voter: &Voter, series: Series, since: Time, now: Time) -> bool {
        let named = self.peers.get(&voter.peer).and_then(|seen| seen.named(series));
        now.since(named.map_or(since, |at| at.max(since))) >= self.grace
    }

    /// Whether a peer counts as alive: it has not left, and its last heartbeat is recent.
    pub(crate) fn fresh(&self, seen: &PeerRecord, now: Time) -> bool {
        !seen.has_left() && now.since(seen.heard) < self.silent_after(seen)
    }
}

#[cfg(test)]
pub(crate) use tests::{beat, key, passing};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::{Digest, LogId};
    use crate::message::{Head, Phase};

    /// One of very many keys of strangers.
    pub(crate) fn key(n: usize) -> PeerId {
        let mut key = [0xcc; 32];
        key[..8].copy_from_slice(&n.to_be_bytes());
        PeerId(key)
    }

    /// A heartbeat in the first epoch.
    pub(crate) fn beat() -> Heartbeat {
        let (epoch, parent) = (1, Digest::ZERO);
        Heartbeat {
            count: 1,
            head: Head { epoch: 0, tokens: 0, state: parent },
            series: Series { epoch, parent, regroup: None },
            joined: None,
            closed: false,
            log: LogId([0; 16]),
            incarnation: 1,
            phase: Phase::Train,
            attempt: 0,
            ready: 0,
            direct: true,
            unlinked: Vec::new(),
            round_trips: Vec::new(),
            send_rate: 0,
            serves: 0,
            notice: 0,
            attested: 0,
            ticket: None,
        }
    }

    /// Keys that come one after the other, each forgotten when the next one comes, beside one peer that stays.
    pub(crate) fn passing(mut each: impl FnMut(&PeerTable, PeerId)) {
        let mut table = PeerTable::new(Duration::from_millis(500), Duration::from_secs(8));
        for n in 0..=3 * PEERS_MAX {
            table.peers.retain(|peer, _| *peer == key(0));
            table.peers.insert(key(n), PeerRecord::new(&beat(), Time::ZERO));
            each(&table, key(n));
        }
    }
}
