//! Deadlines and losses: what ends an attempt, how long each wait lasts, and what is repeated
//! meanwhile (R35, R37–R39, docs/PROTOCOL.md). Only progress depends on them.

use std::sync::Arc;
use std::time::Duration;

use crate::event::Event;
use crate::id::{Digest, PeerId};
use crate::message::{Lost, MEMBERS_MAX, Message, Refuse, Roster};
use crate::roll::Roll;
use crate::sign::Verified;
use crate::time::Time;

use super::propose::pair;
use super::{Kept, Output, REPEAT_MIN, RingState, Stage, State};

impl State {
    pub(super) fn on_ring_finished(&mut self, roster: Digest, update: Digest) {
        self.held.insert(update);
        if let Some(ballot) = self.ballots.get_mut(&roster) {
            ballot.computed = Some(update);
            ballot.ring = RingState::Closed;
        }
    }

    pub(super) fn on_ring_lost(
        &mut self,
        now: Time,
        roll: &Roll,
        roster: Digest,
        neighbour: PeerId,
        out: &mut Vec<Output>,
    ) {
        if !matches!(self.stage, Stage::Reduce { roster: open, .. } if open == roster) {
            // What is decided meanwhile is fetched then.
            if let Some(ballot) = self.ballots.get_mut(&roster) {
                ballot.ring = RingState::Lost;
            }
            return;
        }
        let lost = Lost { series: self.series, roster, who: neighbour };
        out.push(Output::Gossip(self.seal(Message::Lost(lost))));
        self.lost.report(now, roll, neighbour, self.config.me);
        self.broken.insert(pair(self.config.me, neighbour));
        self.lose_ring(now, roster, out);
    }

    /// Somebody else's neighbour is lost: the ring cannot end.
    pub(super) fn on_lost(
        &mut self,
        now: Time,
        roll: &Roll,
        from: PeerId,
        lost: &Lost,
        out: &mut Vec<Output>,
    ) {
        let Some(roster) = self.roster(&lost.roster) else { return };
        let Some(place) = roster.ring().position(|m| m.peer == from) else { return };
        let count = roster.ring().count();
        let around = [(place + 1) % count, (place + count - 1) % count];
        let is_lost = |at: &usize| roster.ring().nth(*at).is_some_and(|m| m.peer == lost.who);
        if from == lost.who || !around.iter().any(is_lost) {
            return;
        }
        if lost.who != self.config.me {
            self.lost.report(now, roll, lost.who, from);
        }
        self.broken.insert(pair(from, lost.who));
        if matches!(self.stage, Stage::Reduce { roster: open, .. } if open == lost.roster) {
            self.lose_ring(now, lost.roster, out);
        }
    }

    /// If somebody has voted, the update exists: fetch it (R6). Else a higher attempt is due.
    fn lose_ring(&mut self, now: Time, roster: Digest, out: &mut Vec<Output>) {
        let Some(ballot) = self.ballots.get_mut(&roster) else { return };
        if ballot.ring == RingState::Running {
            out.push(Output::Abandon(roster));
        }
        ballot.ring = RingState::Lost;
        if ballot.dones.is_empty() {
            self.recover(now, "ring lost", out);
        }
    }

    pub(super) fn on_refuse(
        &mut self,
        now: Time,
        from: PeerId,
        refuse: &Refuse,
        out: &mut Vec<Output>,
    ) {
        if refuse.promised < u32::MAX {
            self.attempt_seen = self.attempt_seen.max(refuse.promised);
        } else if self.closed.len() < MEMBERS_MAX {
            self.closed.insert(from);
        }
        let me = self.config.me;
        let asked = |r: &Arc<Roster>| r.proposer == me && r.member(&from).is_some();
        let refused = self.roster(&refuse.what).is_some_and(asked);
        if refused && matches!(self.stage, Stage::Accepted { roster, .. } if roster == refuse.what)
        {
            self.recover(now, "refused", out);
        }
    }

    /// Ends the attempt under way; the next one is due.
    pub(super) fn recover(&mut self, now: Time, reason: &'static str, out: &mut Vec<Output>) {
        self.abort(reason, out);
        let promised = self.votes.of(self.series).attempt();
        let attempt = self.attempt_seen.max(promised).max(1).saturating_add(1);
        self.stage = Stage::Recover { attempt, since: now };
    }

    /// Whether a roster is under way.
    pub(super) fn under_way(&self) -> bool {
        matches!(self.stage, Stage::Accepted { .. } | Stage::Reduce { .. } | Stage::Finished { .. })
    }

    /// Gives up the roster under way, if there is one.
    pub(super) fn abort(&mut self, reason: &'static str, out: &mut Vec<Output>) {
        let (digest, phase) = match &self.stage {
            Stage::Accepted { roster, .. } => (*roster, "accepted"),
            Stage::Reduce { roster, .. } => (*roster, "reduce"),
            Stage::Finished { roster, .. } => (*roster, "finished"),
            _ => return,
        };
        if let Some(ballot) = self.ballots.get_mut(&digest)
            && ballot.ring == RingState::Running
        {
            ballot.ring = RingState::Lost;
            out.push(Output::Abandon(digest));
        }
        let attempt = self.roster(&digest).map_or(0, |roster| roster.attempt);
        let epoch = self.series.epoch;
        out.push(Output::Event(Event::Aborted { epoch, attempt, phase, reason }));
        self.stage = Stage::Idle { patience: None };
    }

    /// R37: the deadline of any phase makes the next attempt due.
    pub(super) fn time_out(&mut self, now: Time, out: &mut Vec<Output>) -> bool {
        let reason = match self.stage {
            Stage::Accepted { until, roster } if now >= until => {
                self.note_late(roster);
                "accepts missing"
            }
            Stage::Reduce { until, roster } if now >= until => {
                self.note_mute(roster);
                self.note_stalled(roster);
                "update missing"
            }
            Stage::Finished { until, .. } if now >= until => "votes missing",
            Stage::Idle { patience: Some(until) } if now >= until => "left out",
            _ => return false,
        };
        self.recover(now, reason, out);
        true
    }

    /// Whose Accept is missing holds up no second roster.
    fn note_late(&mut self, roster: Digest) {
        let Some(ballot) = self.ballots.get(&roster) else { return };
        let Some(roster) = &ballot.roster else { return };
        let missing = roster.ring().filter(|m| !ballot.accepts.contains(&m.peer));
        for member in missing.filter(|m| m.peer != self.config.me) {
            self.lost.be_late(member.peer);
        }
    }

    /// R8: the authors of a value whose bytes did not come are not asked next time.
    fn note_mute(&mut self, roster: Digest) {
        let Some(adopt) = self.roster(&roster).and_then(|r| r.adopt.clone()) else { return };
        if let Some(adopted) = self.adopted.get_mut(&adopt.update) {
            adopted.missed = true;
        }
    }

    /// R40: a neighbour that is silent is reported; one that crawls is not, nor can its successor tell it
    /// from one that waits for its own.
    fn note_stalled(&mut self, roster: Digest) {
        if self.roster(&roster).is_some_and(|roster| roster.adopt.is_none()) {
            self.stalled = self.stalled.saturating_add(1);
        }
    }

    /// R38: a peer without a roster waits three times as long before it asks.
    pub(super) fn be_patient(&mut self, now: Time, roll: &Roll, attempt: u32) {
        if let Stage::Idle { patience } = &self.stage {
            let count = roll.live_in(self.series, now).count() + 1;
            let wait = self.accept_time(now, roll, attempt)
                + self.ring_time_of(now, roll, count, None, attempt)
                + self.done_time(now, roll, attempt);
            let until = (now + 3 * wait).max(patience.unwrap_or(now));
            self.stage = Stage::Idle { patience: Some(until) };
        }
    }

    // ---- fetching ------------------------------------------------------------------------------

    pub(super) fn fetch(
        &mut self,
        now: Time,
        update: Digest,
        from: Vec<PeerId>,
        out: &mut Vec<Output>,
    ) {
        if self.fetching == Some(update) || now < self.fetch_after || from.is_empty() {
            return;
        }
        self.fetching = Some(update);
        out.push(Output::FetchUpdate(update, from));
    }

    pub(super) fn on_update_held(&mut self, update: Digest, kept: Kept) {
        match kept {
            Kept::Flushed => self.held.insert(update),
            Kept::InMemory => self.held.insert_unflushed(update),
        }
        self.fetching = self.fetching.filter(|other| *other != update);
    }

    pub(super) fn on_update_missing(&mut self, now: Time, roll: &Roll, update: Digest) {
        self.fetching = self.fetching.filter(|other| *other != update);
        self.fetch_after = now + self.repeat_interval(now, roll);
    }

    /// Who can serve an update: who voted for it, and who was heard to have.
    pub(super) fn holders(&self, update: Digest) -> Vec<PeerId> {
        let mut from: Vec<PeerId> = Vec::new();
        for ballot in self.ballots.values() {
            let voted = ballot.dones.iter().filter(|(_, vote)| vote.update == update);
            from.extend(voted.map(|(peer, _)| *peer));
        }
        for roster in self.ballots.values().filter_map(|ballot| ballot.roster.as_ref()) {
            if roster.adopt.as_ref().is_some_and(|receipt| receipt.update == update) {
                from.push(roster.proposer);
                from.extend(roster.heard.iter().map(|voter| voter.peer));
            }
        }
        let forced = self.forced.as_ref().is_some_and(|f| f.receipt.update == update);
        if forced {
            from.extend(self.voters.iter().map(|voter| voter.peer));
        }
        let mut seen = std::collections::BTreeSet::from([self.config.me]);
        from.retain(|peer| seen.insert(*peer));
        from.truncate(HOLDERS_MAX);
        from
    }

    // ---- timers --------------------------------------------------------------------------------

    pub(super) fn ask_time(&self, now: Time, roll: &Roll, attempt: u32) -> Duration {
        (4 * roll.round_trip(now) + ASK_BASE) * back_off(attempt)
    }

    pub(super) fn accept_time(&self, now: Time, roll: &Roll, attempt: u32) -> Duration {
        (4 * roll.round_trip(now) + ACCEPT_BASE) * back_off(attempt)
    }

    /// T_done, with the time to flush and hash the update.
    pub(super) fn done_time(&self, now: Time, roll: &Roll, attempt: u32) -> Duration {
        let flush = Duration::from_millis(self.config.update_bytes / FLUSH_BYTES_PER_MS);
        self.accept_time(now, roll, attempt) + flush
    }

    pub(super) fn ring_time(&self, now: Time, roll: &Roll, roster: &Roster) -> Duration {
        let seen = roster.ring().filter_map(|m| roll.peers.get(&m.peer));
        let rate = seen.map(|seen| seen.beat.send_rate).map(known_rate).min();
        self.ring_time_of(now, roll, roster.ring().count(), rate, roster.attempt)
    }

    /// T_ring: three times what the slowest rate needs; it doubles with every other attempt, so that two
    /// halves of the members have as long (R40).
    fn ring_time_of(
        &self,
        now: Time,
        roll: &Roll,
        count: usize,
        rate: Option<u64>,
        attempt: u32,
    ) -> Duration {
        let n = u64::try_from(count.max(1)).unwrap_or(u64::MAX);
        let rate = rate.unwrap_or(RATE_UNKNOWN);
        let bytes = 2 * (n - 1) * (self.config.update_bytes / n + 1);
        let trips = roll.round_trip(now) * u32::try_from(n).unwrap_or(u32::MAX);
        let once = Duration::from_millis(bytes.saturating_mul(1000) / rate) + trips;
        (3 * once).max(RING_MIN) * back_off(attempt.div_ceil(2))
    }

    pub(super) fn repeat_interval(&self, now: Time, roll: &Roll) -> Duration {
        (4 * roll.round_trip(now)).max(REPEAT_MIN)
    }

    pub(super) fn timers(&self, now: Time, roll: &Roll) -> Vec<Option<Time>> {
        // The end of a voter's grace is seen at our next heartbeat.
        let mut timers = vec![
            self.asking.as_ref().map(|asking| asking.until),
            self.turn_since.map(|since| since + self.turn(now, roll, 1)),
            self.frozen.and_then(|_| self.grace_until(now)),
            self.leaving,
            Some(self.fetch_after),
            self.regroup_due(),
        ];
        let due = match &self.stage {
            Stage::Accepted { until, .. }
            | Stage::Reduce { until, .. }
            | Stage::Finished { until, .. }
            | Stage::Joined { until, .. } => Some(*until),
            Stage::Idle { patience } => *patience,
            Stage::Recover { attempt, since } => {
                let attempt = (*attempt).max(self.attempt_seen.saturating_add(1));
                Some(*since + self.turn(now, roll, attempt))
            }
            Stage::Decided(decided) => {
                timers.push(Some(decided.ring_until));
                Some(decided.until)
            }
            Stage::Applying(_) => None,
        };
        timers.push(due);
        let repeats = matches!(
            self.stage,
            Stage::Accepted { .. } | Stage::Finished { .. } | Stage::Joined { .. }
        );
        timers.push((repeats || self.asking.is_some()).then_some(self.repeat_at));
        timers
    }

    // ---- repeats -------------------------------------------------------------------------------

    /// Repeats the current message to those whose answer is missing.
    pub(super) fn repeat(&mut self, now: Time, roll: &Roll, out: &mut Vec<Output>) {
        if now < self.repeat_at || self.left {
            return;
        }
        self.repeat_at = now + self.repeat_interval(now, roll);
        if let Some(asking) = &self.asking {
            for (peer, _) in roll.live_in(self.series, now) {
                if !asking.statuses.contains_key(peer) {
                    out.push(Output::Send(*peer, Arc::clone(&asking.query)));
                }
            }
        }
        match self.stage {
            Stage::Accepted { roster, .. } => self.repeat_accept(roster, out),
            Stage::Finished { roster, .. } => self.repeat_done(roster, out),
            Stage::Joined { regroup, .. } => self.repeat_join(regroup, out),
            _ => {}
        }
    }

    /// To members whose Accept is missing: the roster as its proposer signed it, and our Accept.
    fn repeat_accept(&self, digest: Digest, out: &mut Vec<Output>) {
        let Some(ballot) = self.ballots.get(&digest) else { return };
        let (Some(roster), Some(signed)) = (&ballot.roster, &ballot.signed) else { return };
        let accept = self.accept_message(digest, roster);
        for member in &roster.members {
            if member.peer != self.config.me && !ballot.accepts.contains(&member.peer) {
                out.push(Output::Send(member.peer, Arc::clone(signed)));
                out.push(Output::Send(member.peer, Arc::clone(&accept)));
            }
        }
    }

    /// To voters whose Done is missing: our own; a peer that has committed answers with `Commit`.
    fn repeat_done(&self, digest: Digest, out: &mut Vec<Output>) {
        let Some(ballot) = self.ballots.get(&digest) else { return };
        let Some(message) = self.standing(digest) else { return };
        for voter in &self.voters {
            if voter.peer != self.config.me && !ballot.dones.contains_key(&voter.peer) {
                out.push(Output::Send(voter.peer, Arc::clone(&message)));
            }
        }
    }

    /// What says where we stand in a finished roster: our Done, or the Ready of a joiner.
    fn standing(&self, digest: Digest) -> Option<Arc<Verified<Message>>> {
        let roster = self.roster(&digest)?;
        let bound = self.votes.of(self.series);
        match bound.done(roster.attempt) {
            Some(receipt) => Some(self.seal(Message::Done(self.config.law.done(roster, receipt)))),
            None => self.frozen.map(|frozen| self.ready_message(frozen)),
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

/// Peers named in one fetch.
const HOLDERS_MAX: usize = 32;
