//! Every wait of `docs/PROTOCOL.md` (Turns and time): how long each lasts, how it grows with the attempts,
//! when a step is due, and what is repeated meanwhile. Only progress depends on them.

use std::sync::Arc;
use std::time::Duration;

use crate::id::{Digest, PeerId};
use crate::message::{Message, Phase, Prepared, Roster};
use crate::output::Output;
use crate::ring::{Order, order};
use crate::roll::ROUND_TRIP_UNKNOWN;
use crate::sign::Verified;
use crate::step::Step;
use crate::time::Time;

use super::attendance::{Place, Question};
use super::ballot::Ballot;
use super::term::{Progress, Stage};
use super::{Rule, State};

impl State {
    /// G10: the round trip that counts where a wait always passes: twice the median of those to the alive
    /// voters, or the longest, if that is shorter. While there are none of them, all who live count.
    fn usual_trip(&self, step: &Step<'_>) -> Duration {
        let voters = self.voters().iter().filter_map(|v| step.roll.peers.get_key_value(&v.peer));
        let mut voters = voters.filter(|(peer, _)| step.roll.alive(peer, step.now)).peekable();
        let mut trips: Vec<u32> = if voters.peek().is_some() && self.keeps(Rule::G10) {
            voters.map(|(_, seen)| seen.rtt_ms).collect()
        } else {
            step.roll.live(step.now).map(|(_, seen)| seen.rtt_ms).collect()
        };
        trips.sort_unstable();
        let Some(longest) = trips.last().copied() else { return Duration::ZERO };
        let measured = trips.iter().position(|trip| *trip > 0);
        let Some(first) = measured else { return ROUND_TRIP_UNKNOWN };
        let median = trips[first + (trips.len() - first) / 2];
        let usual = if self.keeps(Rule::G10) { (2 * median).min(longest) } else { longest };
        Duration::from_millis(usual.into())
    }

    /// G10: the round trip that a deadline allows for: that of the slowest member with a place, as far as
    /// that is not far beyond what is usual.
    fn slowest_trip(&self, step: &Step<'_>, roster: &Roster) -> Duration {
        let usual = self.usual_trip(step);
        let trips = roster.ring().filter_map(|m| step.roll.peers.get(&m.peer)).map(|s| s.rtt_ms);
        let slowest = Duration::from_millis(trips.max().unwrap_or(0).into());
        slowest.clamp(usual, (4 * usual).max(ROUND_TRIP_FAR))
    }

    /// Before our turn comes at attempt (or Regroup) `k`: rank · max(2·rtt, 50 ms).
    pub(super) fn turn(&self, step: &Step<'_>, k: u64) -> Duration {
        let key = |peer: &PeerId| order(Order::Turn, &self.law.run, &self.series().parent, k, peer);
        let mine = key(&self.me.peer);
        // Peers that are on their way count as well: just after a Regroup opens, nobody has named
        // its series yet.
        let joined = matches!(self.slot.term.stage, Stage::Joined { .. });
        // G1: who does not vote has no turn. Where nobody does yet, everyone has.
        let may = |peer: &PeerId| {
            joined || self.voters().is_empty() || self.names_voter(peer) || !self.keeps(Rule::G1)
        };
        let here = step.roll.live(step.now).filter(|(peer, seen)| {
            let counts = |place: Place| {
                place.counts(Question::TakesPart) || (joined && place.counts(Question::MayRegroup))
            };
            seen.beat.phase != Phase::Behind
                && counts(self.place_of(step, peer, seen))
                && may(peer)
                && !self.slot.lost.contains(step, peer)
                && key(peer) < mine
        });
        let turn = (2 * self.usual_trip(step)).max(TURN_MIN);
        turn * u32::try_from(here.count()).unwrap_or(u32::MAX)
    }

    pub(super) fn ask_time(&self, step: &Step<'_>) -> Duration {
        (4 * self.usual_trip(step) + ASK_BASE) * self.back_off()
    }

    pub(super) fn accept_time(&self, step: &Step<'_>) -> Duration {
        (4 * self.usual_trip(step) + ACCEPT_BASE) * self.back_off()
    }

    /// How long the Accepts of a roster are waited for.
    pub(super) fn accept_time_of(&self, step: &Step<'_>, roster: &Roster) -> Duration {
        (4 * self.slowest_trip(step, roster) + ACCEPT_BASE) * self.back_off()
    }

    /// How long the Joins of a Regroup are waited for; it doubles with each that we have joined, but for those by
    /// which the list of members shrank (R39).
    pub(super) fn join_time(&self, step: &Step<'_>) -> Duration {
        let stalled = self.slot.term.gathering.stalled_count(&self.me.peer);
        (4 * self.usual_trip(step) + ACCEPT_BASE) * (1 << stalled.min(DOUBLINGS_MAX))
    }

    /// T_done, with the time to flush and hash the update.
    pub(super) fn done_time(&self, step: &Step<'_>) -> Duration {
        let flush = Duration::from_millis(self.config.update_bytes / FLUSH_BYTES_PER_MS);
        self.accept_time(step) + flush
    }

    /// b: doubles with each deadline that has passed here, so that attempts outlast any real delay (R39).
    /// No number that others name counts (G2).
    fn back_off(&self) -> u32 {
        1 << self.slot.failures.here.min(DOUBLINGS_MAX)
    }

    pub(super) fn ring_time(&self, step: &Step<'_>, roster: &Roster) -> Duration {
        let seen = roster.ring().filter_map(|m| step.roll.peers.get(&m.peer));
        let rate = seen.map(|seen| seen.beat.send_rate).map(known_rate).min();
        self.ring_time_of(step, roster.ring().count(), rate)
    }

    /// T_ring: three times what the slowest rate needs; it doubles with every other deadline, so that two
    /// halves of the members have as long (R40).
    pub(super) fn ring_time_of(
        &self,
        step: &Step<'_>,
        count: usize,
        rate: Option<u64>,
    ) -> Duration {
        let n = u64::try_from(count.max(1)).unwrap_or(u64::MAX);
        let rate = rate.unwrap_or(RATE_UNKNOWN);
        let bytes = 2 * (n - 1) * (self.config.update_bytes / n + 1);
        let trips = self.usual_trip(step) * u32::try_from(n).unwrap_or(u32::MAX);
        let once = Duration::from_millis(bytes.saturating_mul(1000) / rate) + trips;
        (3 * once).max(RING_MIN) * (1 << (self.slot.failures.here.min(DOUBLINGS_MAX) / 2))
    }

    pub(super) fn repeat_interval(&self, step: &Step<'_>) -> Duration {
        (4 * self.usual_trip(step)).max(REPEAT_MIN)
    }

    pub(super) fn timers(&self, step: &Step<'_>) -> Vec<Option<Time>> {
        // The end of a voter's grace is seen at our next heartbeat.
        let mut timers = vec![
            self.slot.term.asking.as_ref().map(|asking| asking.until),
            self.slot.term.turn_since.map(|since| since + self.turn(step, 1)),
            self.slot.term.awaited.map(|awaited| awaited.until),
            self.leaving,
            Some(self.slot.term.fetch_after),
            self.slot.term.gathering.turn.map(|turn| turn.due),
        ];
        if matches!(self.slot.term.stage, Stage::Idle { .. } | Stage::Recover { .. }) {
            timers.extend([self.grace_until(step), self.guests_until()]);
        }
        let due = match &self.slot.term.stage {
            Stage::Open { until, .. } | Stage::Joined { until, .. } => Some(*until),
            Stage::Idle { patience } => *patience,
            Stage::Recover { attempt, since } => {
                let attempt = (*attempt).max(self.slot.term.attempt_seen.saturating_add(1));
                Some(*since + self.turn(step, attempt))
            }
            Stage::Decided(decided) => {
                timers.push(Some(decided.ring_until));
                Some(decided.until)
            }
            Stage::Applying(_) => None,
        };
        timers.push(due);
        let repeats = match self.slot.term.stage {
            Stage::Open { progress, .. } => progress != Progress::Reduce,
            Stage::Joined { .. } => true,
            Stage::Idle { .. } | Stage::Recover { .. } | Stage::Decided(_) | Stage::Applying(_) => {
                false
            }
        };
        timers
            .push((repeats || self.slot.term.asking.is_some()).then_some(self.slot.term.repeat_at));
        timers
    }

    // ---- repeats -------------------------------------------------------------------------------

    /// Whether a message with this tag may be answered to `peer` now: once per [`REPEAT_MIN`], so that
    /// two peers that answer each other do so slowly.
    pub(super) fn may_reply(&mut self, step: &Step<'_>, peer: PeerId, tag: &'static str) -> bool {
        let replied = &mut self.slot.term.replied;
        let due = replied.get(&(peer, tag)).is_none_or(|last| step.now >= *last + REPEAT_MIN);
        if due {
            replied.insert((peer, tag), step.now);
        }
        due
    }

    /// Repeats the current message to those whose answer is missing.
    pub(super) fn repeat(&mut self, step: &mut Step<'_>) {
        if step.now < self.slot.term.repeat_at || self.left {
            return;
        }
        self.slot.term.repeat_at = step.now + self.repeat_interval(step);
        if let Some(asking) = &self.slot.term.asking {
            for (peer, _) in step.roll.live_in(self.series(), step.now) {
                if !asking.statuses.contains_key(peer) || !asking.reports.contains_key(peer) {
                    step.put(Output::Send(*peer, Arc::clone(&asking.query)));
                }
            }
        }
        match self.slot.term.stage {
            Stage::Open { roster, progress: Progress::Accepted, .. } => {
                self.repeat_accept(step, roster);
            }
            Stage::Open { roster, progress: Progress::Finished, .. } => {
                // A roster that adopts needs no ring, so nothing has waited for the Accepts; a vote does.
                let voted = |b: &Ballot| b.dones.contains_key(&self.me.peer);
                if !self.slot.ballots.get(&roster).is_some_and(voted) {
                    self.repeat_accept(step, roster);
                }
                self.repeat_done(step, roster);
            }
            Stage::Joined { regroup, .. } => self.repeat_join(step, regroup),
            _ => {}
        }
    }

    /// Sends to members whose Accept is missing the roster, as its proposer signed it, and our
    /// Accept.
    fn repeat_accept(&self, step: &mut Step<'_>, digest: Digest) {
        let Some(ballot) = self.slot.ballots.get(&digest) else { return };
        let (Some(roster), Some(signed)) = (&ballot.roster, &ballot.signed) else { return };
        let accept = self.accept_message(digest);
        for member in &roster.members {
            if member.peer != self.me.peer && !ballot.accepts.contains_key(&member.peer) {
                self.prove_adopted(step, member.peer, roster);
                step.put(Output::Send(member.peer, Arc::clone(signed)));
                step.put(Output::Send(member.peer, Arc::clone(&accept)));
            }
        }
    }

    /// Sends our own Done to voters whose Done is missing; a peer that has committed answers with
    /// `Commit`.
    fn repeat_done(&self, step: &mut Step<'_>, digest: Digest) {
        let Some(ballot) = self.slot.ballots.get(&digest) else { return };
        let Some(message) = self.standing(digest) else { return };
        for voter in self.voters() {
            if voter.peer != self.me.peer && !ballot.dones.contains_key(&voter.peer) {
                step.put(Output::Send(voter.peer, Arc::clone(&message)));
            }
        }
    }

    /// What says where we stand in a finished roster: our Done, the update that we hold, or the Ready of a joiner.
    fn standing(&self, digest: Digest) -> Option<Arc<Verified<Message>>> {
        let roster = self.roster(&digest)?;
        let bound = self.votes.of(self.series());
        if let Some(voted) = bound.done(roster.attempt) {
            return Some(self.seal(Message::Done(self.law.done(roster, &voted.receipt()))));
        }
        if let Some(update) = bound.prepared(roster.attempt) {
            let prepared = Prepared { series: self.series(), roster: digest, update };
            return Some(self.seal(Message::Prepared(prepared)));
        }
        self.slot.frozen.map(|frozen| self.ready_message(frozen))
    }
}

/// b is at most 2 to this.
const DOUBLINGS_MAX: u32 = 6;

/// What a member may take on a line of its own without being late; guess: a satellite, or a shaped line.
const ROUND_TRIP_FAR: Duration = Duration::from_millis(500);

/// docs/PROTOCOL.md.
const ASK_BASE: Duration = Duration::from_millis(100);
const ACCEPT_BASE: Duration = Duration::from_millis(300);

/// A peer whose rate is unknown counts as 1 Mbit/s (docs/PROTOCOL.md).
const RATE_UNKNOWN: u64 = 125_000;

/// Nobody is waited for as if it were slower: 64 kbit/s; guess: what such a peer could add is little.
const RATE_LEAST: u64 = 8_000;

fn known_rate(rate: u64) -> u64 {
    if rate == 0 { RATE_UNKNOWN } else { rate.max(RATE_LEAST) }
}

/// Flushing and hashing, bytes per millisecond: 100 MB/s; guess: a slow disk.
const FLUSH_BYTES_PER_MS: u64 = 100_000;

/// The shortest T_ring; guess: a loaded machine may not run a thread for a second.
const RING_MIN: Duration = Duration::from_secs(2);

/// Turns are at least this long, docs/PROTOCOL.md.
const TURN_MIN: Duration = Duration::from_millis(50);

/// The shortest interval between repeats.
const REPEAT_MIN: Duration = Duration::from_millis(300);
