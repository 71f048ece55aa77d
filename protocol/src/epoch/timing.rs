//! Every wait of `docs/PROTOCOL.md` (Turns and time): how long each lasts, how it grows with the attempts,
//! when a step is due, and what is repeated meanwhile. Only progress depends on them.

use std::sync::Arc;
use std::time::Duration;

use crate::id::{Digest, PeerId};
use crate::message::{Message, Phase, Roster};
use crate::output::Output;
use crate::ring::{Order, order};
use crate::sign::Verified;
use crate::step::Step;
use crate::time::Time;

use super::State;
use super::attendance::{Place, Question};
use super::ballot::Ballot;
use super::term::{Progress, Stage};

impl State {
    /// When waiting for others to be Ready ends.
    pub(super) fn grace_until(&self, step: &Step<'_>) -> Option<Time> {
        let frozen = self.slot.frozen?;
        let bound = frozen.at + self.config.ready_grace;
        let Some(median) = self.ready_median else { return Some(bound) };
        let usual = self.slot.began + (median * 3 / 2).max(median + GRACE_MIN);
        debug_assert!(frozen.at <= step.now);
        Some(bound.min(usual.max(frozen.at)))
    }

    /// Before our turn comes at attempt (or Regroup) `k`: rank · max(2·rtt, 50 ms).
    pub(super) fn turn(&self, step: &Step<'_>, k: u32) -> Duration {
        let key = |peer: &PeerId| order(Order::Turn, &self.law.run, &self.series().parent, k, peer);
        let mine = key(&self.me.peer);
        // Peers that are on their way count as well: just after a Regroup opens, nobody has named
        // its series yet.
        let joined = matches!(self.slot.term.stage, Stage::Joined { .. });
        let here = step.roll.live(step.now).filter(|(peer, seen)| {
            let counts = |place: Place| {
                place.counts(Question::TakesPart) || (joined && place.counts(Question::MayRegroup))
            };
            seen.beat.phase != Phase::Behind
                && counts(self.place_of(step, peer, seen))
                && !self.slot.lost.contains(step, peer)
                && key(peer) < mine
        });
        let turn = (2 * step.roll.round_trip(step.now)).max(TURN_MIN);
        turn * u32::try_from(here.count()).unwrap_or(u32::MAX)
    }

    pub(super) fn ask_time(&self, step: &Step<'_>, attempt: u32) -> Duration {
        (4 * step.roll.round_trip(step.now) + ASK_BASE) * back_off(attempt)
    }

    pub(super) fn accept_time(&self, step: &Step<'_>, attempt: u32) -> Duration {
        (4 * step.roll.round_trip(step.now) + ACCEPT_BASE) * back_off(attempt)
    }

    /// T_done, with the time to flush and hash the update.
    pub(super) fn done_time(&self, step: &Step<'_>, attempt: u32) -> Duration {
        let flush = Duration::from_millis(self.config.update_bytes / FLUSH_BYTES_PER_MS);
        self.accept_time(step, attempt) + flush
    }

    pub(super) fn ring_time(&self, step: &Step<'_>, roster: &Roster) -> Duration {
        let seen = roster.ring().filter_map(|m| step.roll.peers.get(&m.peer));
        let rate = seen.map(|seen| seen.beat.send_rate).map(known_rate).min();
        self.ring_time_of(step, roster.ring().count(), rate, roster.attempt)
    }

    /// T_ring: three times what the slowest rate needs; it doubles with every other attempt, so that two
    /// halves of the members have as long (R40).
    pub(super) fn ring_time_of(
        &self,
        step: &Step<'_>,
        count: usize,
        rate: Option<u64>,
        attempt: u32,
    ) -> Duration {
        let n = u64::try_from(count.max(1)).unwrap_or(u64::MAX);
        let rate = rate.unwrap_or(RATE_UNKNOWN);
        let bytes = 2 * (n - 1) * (self.config.update_bytes / n + 1);
        let trips = step.roll.round_trip(step.now) * u32::try_from(n).unwrap_or(u32::MAX);
        let once = Duration::from_millis(bytes.saturating_mul(1000) / rate) + trips;
        (3 * once).max(RING_MIN) * back_off(attempt.div_ceil(2))
    }

    pub(super) fn repeat_interval(&self, step: &Step<'_>) -> Duration {
        (4 * step.roll.round_trip(step.now)).max(REPEAT_MIN)
    }

    pub(super) fn timers(&self, step: &Step<'_>) -> Vec<Option<Time>> {
        // The end of a voter's grace is seen at our next heartbeat.
        let mut timers = vec![
            self.slot.term.asking.as_ref().map(|asking| asking.until),
            self.slot.term.turn_since.map(|since| since + self.turn(step, 1)),
            self.slot.frozen.and_then(|_| self.grace_until(step)),
            self.leaving,
            Some(self.slot.term.fetch_after),
            self.slot.term.gathering.turn.map(|turn| turn.due),
        ];
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
                if !asking.statuses.contains_key(peer) {
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
        let accept = self.accept_message(digest, roster);
        for member in &roster.members {
            if member.peer != self.me.peer && !ballot.accepts.contains(&member.peer) {
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

    /// What says where we stand in a finished roster: our Done, or the Ready of a joiner.
    fn standing(&self, digest: Digest) -> Option<Arc<Verified<Message>>> {
        let roster = self.roster(&digest)?;
        let bound = self.votes.of(self.series());
        match bound.done(roster.attempt) {
            Some(receipt) => Some(self.seal(Message::Done(self.law.done(roster, receipt)))),
            None => self.slot.frozen.map(|frozen| self.ready_message(frozen)),
        }
    }
}

/// b(k) = 2^min(k − 1, 6): attempts outlast any real delay (R39).
fn back_off(attempt: u32) -> u32 {
    1 << attempt.saturating_sub(1).min(6)
}

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

/// Added to the median for epochs so short that scheduling noise exceeds half of them; guess.
const GRACE_MIN: Duration = Duration::from_secs(4);

/// The shortest interval between repeats.
const REPEAT_MIN: Duration = Duration::from_millis(300);
