//! How long each wait of `docs/PROTOCOL.md` (Turns and time) lasts, and how it grows with failed
//! attempts. Timers affect only progress, never what is true.

use std::time::Duration;

use crate::base::rule::Rule;
use crate::machine::step::Step;
use crate::machine::table::ROUND_TRIP_UNKNOWN;
use crate::message::Roster;

use super::facts::Facts;
use super::series::REPEAT_MIN;

impl<'a> Facts<'a> {
    /// G10: the round trip that counts for a wait that always passes: twice the median of those to
    /// the live voters, or the longest, if that is shorter. If no voter is alive, all live peers
    /// count.
    pub(super) fn usual_trip(self) -> Duration {
        let Step { table, now, .. } = *self.step;
        let voters = self.voters().iter().filter_map(|v| table.peers.get_key_value(&v.peer));
        let mut voters = voters.filter(|(peer, _)| table.alive(peer, now)).peekable();
        let mut trips: Vec<u32> = if voters.peek().is_some() && self.keeps(Rule::G10) {
            voters.map(|(_, seen)| seen.rtt_ms).collect()
        } else {
            table.live(now).map(|(_, seen)| seen.rtt_ms).collect()
        };
        trips.sort_unstable();
        let Some(longest) = trips.last().copied() else { return Duration::ZERO };
        let measured = trips.iter().position(|trip| *trip > 0);
        let Some(first) = measured else { return ROUND_TRIP_UNKNOWN };
        let median = trips[first + (trips.len() - first) / 2];
        let usual = if self.keeps(Rule::G10) { (2 * median).min(longest) } else { longest };
        Duration::from_millis(usual.into())
    }

    /// G10: the round trip that a deadline allows for: that of the slowest member with a ring
    /// position, within limits set by the usual one.
    fn slowest_trip(self, roster: &Roster) -> Duration {
        let usual = self.usual_trip();
        let peers = roster.ring().filter_map(|m| self.step.table.peers.get(&m.peer));
        let slowest = peers.map(|seen| seen.rtt_ms).max().unwrap_or(0);
        let slowest = Duration::from_millis(slowest.into());
        slowest.clamp(usual, (4 * usual).max(ROUND_TRIP_FAR))
    }

    /// b: doubles with each deadline that has passed here (R39).
    fn back_off(self) -> u32 {
        1 << self.slot.failures.min(DOUBLINGS_MAX)
    }

    /// T_ask: how long the answers to a Query are awaited.
    pub(super) fn ask_time(self) -> Duration {
        (4 * self.usual_trip() + ASK_BASE) * self.back_off()
    }

    /// T_accept for waits that no roster belongs to; [`Self::accept_time_of`] allows for its
    /// slowest member.
    pub(super) fn accept_time(self) -> Duration {
        ((4 * self.usual_trip() + ACCEPT_BASE) * self.back_off()).max(ACCEPT_MIN)
    }

    /// How long the Accepts of a roster are waited for.
    pub(super) fn accept_time_of(self, roster: &Roster) -> Duration {
        ((4 * self.slowest_trip(roster) + ACCEPT_BASE) * self.back_off()).max(ACCEPT_MIN)
    }

    /// How long the Joins of a Regroup are waited for. It doubles with each Regroup that we have
    /// joined, except those that made the list of members shorter (R39).
    pub(super) fn join_time(self) -> Duration {
        let stalled = self.slot.series.gathering.stalled_count(&self.me.peer);
        (4 * self.usual_trip() + ACCEPT_BASE) * (1 << stalled.min(DOUBLINGS_MAX))
    }

    /// T_done: T_accept, and the time to flush and hash the update.
    pub(super) fn done_time(self) -> Duration {
        let flush = Duration::from_millis(self.config.update_bytes / FLUSH_BYTES_PER_MS);
        self.accept_time() + flush
    }

    /// T_ring of a roster, at the slowest rate that its members with a position have named. A rate
    /// is a claim: a low one makes this wait longer, within [`RATE_LEAST`].
    pub(super) fn ring_time(self, roster: &Roster) -> Duration {
        let seen = roster.ring().filter_map(|m| self.step.table.peers.get(&m.peer));
        let rate = seen.map(|seen| seen.beat.send_rate).map(known_rate).min();
        self.ring_time_of(roster.ring().count(), rate)
    }

    /// Bytes that each of so many members of a ring sends.
    pub(super) fn ring_bytes(self, count: usize) -> u64 {
        let n = u64::try_from(count.max(1)).unwrap_or(u64::MAX);
        2 * (n - 1) * (self.config.update_bytes / n + 1)
    }

    /// T_ring: three times what a ring needs at the slowest rate. It doubles with every other
    /// deadline.
    pub(super) fn ring_time_of(self, count: usize, rate: Option<u64>) -> Duration {
        let rate = rate.unwrap_or(RATE_UNKNOWN);
        let trips = self.usual_trip() * u32::try_from(count.max(1)).unwrap_or(u32::MAX);
        let once =
            Duration::from_millis(self.ring_bytes(count).saturating_mul(1000) / rate) + trips;
        (3 * once).max(RING_MIN) * (1 << (self.slot.failures.min(DOUBLINGS_MAX) / 2))
    }

    /// The interval at which messages that may be lost are repeated.
    pub(super) fn repeat_interval(self) -> Duration {
        (4 * self.usual_trip()).max(REPEAT_MIN)
    }
}

/// b is at most 2 to this power, so the longest waits are 64 times the first ones.
const DOUBLINGS_MAX: u32 = 6;

/// The round trip that one slow member may have without being late; guess: a satellite, or a shaped
/// link.
const ROUND_TRIP_FAR: Duration = Duration::from_millis(500);

/// The constant parts of T_ask and T_accept (docs/PROTOCOL.md).
const ASK_BASE: Duration = Duration::from_millis(100);
const ACCEPT_BASE: Duration = Duration::from_millis(300);

/// The shortest T_accept. A member that is late loses its position, and it flushes before it accepts: a busy hard
/// disk, or an SD card, needs most of this.
const ACCEPT_MIN: Duration = Duration::from_secs(1);

/// Bytes per second of a peer whose rate is unknown: 1 Mbit/s (docs/PROTOCOL.md).
const RATE_UNKNOWN: u64 = 125_000;

/// Bytes per second below which no deadline grows further: 64 kbit/s; guess: a slower peer could
/// add little.
const RATE_LEAST: u64 = 8_000;

/// The rate that counts for a peer, in bytes per second; 0 stands for one that it does not know.
fn known_rate(rate: u64) -> u64 {
    if rate == 0 { RATE_UNKNOWN } else { rate.max(RATE_LEAST) }
}

/// Flushing and hashing, bytes per millisecond: 100 MB/s; guess: a slow disk.
const FLUSH_BYTES_PER_MS: u64 = 100_000;

/// The shortest T_ring; guess: a loaded machine may not run a thread for a second.
const RING_MIN: Duration = Duration::from_secs(2);
