//! How long others are waited for until they are Ready (R36, G5).

use std::time::Duration;

use crate::base::id::PeerId;
use crate::base::time::Time;
use crate::message::{Phase, Voter};

use super::attendance::Question;
use super::backoff::BackOff;
use super::{Facts, Rule};

/// How much longer than the voters newcomers have at least; guess: to fetch an update and apply it.
const GUEST_WAIT_MIN: Duration = Duration::from_millis(250);

/// Where the last epoch gives no measure, at the latest after so many graces.
const GRACES_MAX: u32 = 10;

/// A voter's patience with others ends so much before its own wait for them would: two peers measure
/// the last epoch differently.
const PATIENCE_MIN: Duration = Duration::from_secs(1);

/// Added to the median for epochs so short that scheduling noise exceeds half of them; guess.
const GRACE_MIN: Duration = Duration::from_secs(4);

/// When waiting for others to be Ready ends (R36): some time after half of the voters were, at the
/// latest a longer one after the first; both by how long they took last time.
pub(super) fn grace_until(facts: Facts<'_>) -> Option<Time> {
    let grace = facts.config.ready_grace;
    let usual = match facts.ready_median {
        Some(m) => ready_for(facts, (m / 2).max(GRACE_MIN), (m * 3 / 2).max(m + GRACE_MIN)),
        None => ready_for(facts, grace, grace * GRACES_MAX),
    };
    // Who has no work of its own proposes that of others, once they have waited for the grace.
    match facts.slot.frozen {
        Some(frozen) => Some(usual?.max(frozen.at)),
        None => Some(usual?.max(facts.slot.oldest_ready()? + grace)),
    }
}

/// When this voter accepts a roster that leaves somebody out: a little earlier than it would propose
/// one, since no two peers measure the same.
fn patience_until(facts: Facts<'_>) -> Option<Time> {
    let grace = facts.config.ready_grace;
    match facts.ready_median {
        Some(m) => ready_for(facts, (m / 8).max(PATIENCE_MIN), (m * 9 / 8).max(m + PATIENCE_MIN)),
        None => ready_for(facts, grace / 2, grace * GRACES_MAX / 2),
    }
}

/// When half of the alive voters have been Ready for so long, or the first one for so much longer.
fn ready_for(facts: Facts<'_>, half: Duration, first: Duration) -> Option<Time> {
    let alive =
        |v: &&Voter| **v == facts.me.voter() || facts.step.roll.alive(&v.peer, facts.step.now);
    let alive = facts.voters().iter().filter(alive).count();
    let mut at: Vec<Time> = ready_voters(facts).map(|(_, at)| at).collect();
    at.sort_unstable();
    let latest = *at.first()? + first;
    let early = at.get(alive.div_ceil(2).saturating_sub(1)).map(|at| *at + half);
    Some(early.map_or(latest, |early| early.min(latest)))
}

/// The voters that are Ready, and since when; ourselves among them.
fn ready_voters<'a>(facts: Facts<'a>) -> impl Iterator<Item = (PeerId, Time)> + 'a {
    let own = facts.slot.frozen.filter(|_| facts.is_voter()).map(|f| (facts.me.peer, f.at));
    let others = facts.state.slot.ready.iter().filter(move |(peer, _)| facts.names_voter(peer));
    others.map(|(peer, declared)| (*peer, declared.at)).chain(own)
}

/// The median time that voters took to be Ready, if half of them were.
pub(super) fn measured(facts: Facts<'_>) -> Option<Duration> {
    if 2 * ready_voters(facts).count() < facts.voters().len() {
        return None;
    }
    let since = |(_, at): (PeerId, Time)| at.since(facts.slot.began);
    median(&mut ready_voters(facts).map(since).collect::<Vec<_>>())
}

/// Whether everyone is Ready for whom the first attempt waits (R36), for as long as our patience lasts: all but
/// those who made us wait in vain lately (G5).
pub(super) fn everyone_ready(facts: Facts<'_>) -> bool {
    facts.step.roll.live(facts.step.now).all(|(peer, seen)| {
        let beat = &seen.beat;
        facts.slot.ready_of(peer, beat.incarnation).is_some()
            || !beat.direct
            || beat.phase == Phase::Behind
            || !facts.place_of(peer, seen).counts(Question::IsAwaited)
            || (facts.keeps(Rule::G5) && is_not_awaited(facts, peer))
    })
}

/// G5: whether somebody that is not Ready made us wait in vain lately. Of newcomers it has a little longer than the
/// voters.
pub(super) fn is_not_awaited(facts: Facts<'_>, peer: &PeerId) -> bool {
    if facts.names_voter(peer) {
        return facts.waits.voters.get(peer).is_some_and(BackOff::is_out);
    }
    (facts.waits.guests.is_out() || facts.trouble.is_out(peer))
        && guests_until(facts).is_some_and(|until| facts.step.now >= until)
}

/// Until when newcomers are waited for that have made us wait in vain.
pub(super) fn guests_until(facts: Facts<'_>) -> Option<Time> {
    let last = ready_voters(facts).map(|(_, at)| at).max()?;
    Some(last + (last.since(facts.slot.began) / 8).max(GUEST_WAIT_MIN))
}

/// Whether the first roster of the epoch still waits: for everybody to be Ready, or for the grace.
pub(super) fn is_too_early(facts: Facts<'_>) -> bool {
    let over = || grace_until(facts).is_some_and(|until| facts.step.now >= until);
    let ready = || facts.slot.frozen.is_some() && everyone_ready(facts);
    facts.slot.forced.is_none() && !over() && !ready()
}

/// How long our patience lasts still; `None` once we have accepted a roster of this epoch.
pub(super) fn patience_left(facts: Facts<'_>) -> Option<Duration> {
    let me = facts.me.peer;
    if facts.slot.ballots.values().any(|ballot| ballot.accepts.contains_key(&me)) {
        return None;
    }
    // Nobody is Ready that we know of: it is too early for any roster.
    let until = patience_until(facts).unwrap_or(facts.step.now + facts.config.ready_grace);
    (facts.step.now < until).then(|| until.since(facts.step.now))
}

/// The middle one of some lengths of time.
pub(super) fn median(lengths: &mut [Duration]) -> Option<Duration> {
    lengths.sort_unstable();
    lengths.get(lengths.len() / 2).copied()
}
