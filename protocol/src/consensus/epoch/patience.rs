//! How long others are waited for until they are Ready (R36, G5).

use std::time::Duration;

use crate::base::id::PeerId;
use crate::base::rule::Rule;
use crate::base::time::Time;
use crate::machine::table::PeerRecord;
use crate::message::{Phase, Voter};

use super::attendance::Question;
use super::facts::Facts;
use super::open_epoch::Epoch;

/// How much longer than voters newcomers are waited for at least; guess: the time to fetch an
/// update and apply it.
const NEWCOMER_WAIT_MIN: Duration = Duration::from_millis(250);

/// How many graces after the first Ready the wait ends at the latest, if no earlier epoch gives a
/// measure.
const GRACES_MAX: u32 = 10;

/// The shortest patience of a voter with a roster that leaves peers out. It is below [`GRACE_MIN`],
/// since two peers measure the last epoch differently.
const PATIENCE_MIN: Duration = Duration::from_secs(1);

/// Added to the median for epochs so short that scheduling noise exceeds half of them; guess.
const GRACE_MIN: Duration = Duration::from_secs(4);

/// The epochs from one wait for a peer that does not become Ready to the next one last so many times
/// as long as that wait: then a peer that never does costs a ninth of the time.
const WAITS_APART: u128 = 8;

/// Epochs are as short in a test only; a shorter one counts as so long.
const MEDIAN_MIN_MS: u128 = 50;

/// When the wait for others to be Ready ends (R36): some time after half of the voters were Ready,
/// at the latest a longer time after the first was. Both lengths follow from how long voters took
/// last time.
pub(super) fn grace_until(facts: Facts<'_>) -> Option<Time> {
    let grace = facts.config.ready_grace;
    let usual = match facts.ready_median {
        Some(m) => ready_for(facts, grace_after(m), m + grace_after(m)),
        None => ready_for(facts, grace, grace * GRACES_MAX),
    };
    // A voter without work of its own proposes that of others, once they have waited for the grace.
    match facts.slot.frozen {
        Some(frozen) => Some(usual?.max(frozen.at)),
        None => Some(usual?.max(facts.slot.ready.values().map(|ready| ready.first).min()? + grace)),
    }
}

/// How long the others are waited for once half of the voters are Ready, if that took `median`.
fn grace_after(median: Duration) -> Duration {
    (median / 2).max(GRACE_MIN)
}

/// How many epochs lie from one wait for a peer without effect to the next one, at least (G5).
pub(super) fn epochs_between_waits(median: Option<Duration>) -> u32 {
    let epochs = |m: Duration| {
        (WAITS_APART * grace_after(m).as_millis()).div_ceil(m.as_millis().max(MEDIAN_MIN_MS))
    };
    median.map_or(0, |m| u32::try_from(epochs(m)).unwrap_or(u32::MAX))
}

/// From when on this voter accepts a roster that leaves a peer out: a little earlier than it would
/// propose one, since no two peers measure the same.
fn patience_until(facts: Facts<'_>) -> Option<Time> {
    let grace = facts.config.ready_grace;
    match facts.ready_median {
        Some(m) => ready_for(facts, (m / 8).max(PATIENCE_MIN), (m * 9 / 8).max(m + PATIENCE_MIN)),
        None => ready_for(facts, grace / 2, grace * GRACES_MAX / 2),
    }
}

/// The longest that an honest voter's patience lasts beyond ours.
pub(super) fn longest_beyond_ours(facts: Facts<'_>) -> Duration {
    facts.ready_median.map_or(facts.config.ready_grace, |m| (m / 8).max(PATIENCE_MIN))
}

/// When half of the live voters have been Ready for `half`, or the first one for `first`.
fn ready_for(facts: Facts<'_>, half: Duration, first: Duration) -> Option<Time> {
    let mut at: Vec<Time> = ready_voters(facts).map(|(_, at)| at).collect();
    at.sort_unstable();
    let latest = *at.first()? + first;
    let alive = |v: &&Voter| **v == facts.me.voter() || facts.is_alive(&v.peer);
    let alive = facts.voters().iter().filter(alive).count();
    let early = at.get(alive.div_ceil(2).saturating_sub(1)).map(|at| *at + half);
    Some(early.map_or(latest, |early| early.min(latest)))
}

/// The voters that are Ready, and since when; they include us.
fn ready_voters<'a>(facts: Facts<'a>) -> impl Iterator<Item = (PeerId, Time)> + 'a {
    let own = if facts.is_voter() { facts.slot.frozen } else { None };
    let own = own.map(|frozen| (facts.me.peer, frozen.at));
    // Strangers are Ready too, and may be more than the voters.
    let others = facts.slot.series.voters.iter();
    let at = move |voter: &Voter| facts.slot.ready.get(&voter.peer).map(|ready| ready.first);
    others.filter_map(move |voter| Some((voter.peer, at(voter)?))).chain(own)
}

/// The median time that voters took to be Ready, if half of them were.
pub(super) fn median_time_to_ready(facts: Facts<'_>) -> Option<Duration> {
    if 2 * ready_voters(facts).count() < facts.voters().len() {
        return None;
    }
    let since = |(_, at): (PeerId, Time)| at.since(facts.slot.began);
    median(&mut ready_voters(facts).map(since).collect::<Vec<_>>())
}

/// Whether every peer is Ready for which the first attempt waits. Voters that it does not wait for
/// must leave a quorum in the series, which can decide without them.
pub(super) fn everyone_ready(facts: Facts<'_>) -> bool {
    let mut late = unready(facts).peekable();
    let is_skipped = late.peek().is_some();
    let here = |voter: &Voter| {
        *voter == facts.me.voter() || facts.peer_status(voter).counts(Question::Answers)
    };
    late.all(|peer| is_awaited_no_longer(facts, &peer))
        && (!is_skipped || facts.validator.quorum.holds(facts.voters(), here))
}

/// The peers for which the first attempt waits, since they are not Ready (R36).
pub(super) fn awaited_and_unready<'a>(facts: Facts<'a>) -> impl Iterator<Item = PeerId> + 'a {
    unready(facts).filter(move |peer| !is_awaited_no_longer(facts, peer))
}

/// The peers that could be Ready, and are not.
fn unready<'a>(facts: Facts<'a>) -> impl Iterator<Item = PeerId> + 'a {
    let live = facts.step.table.live(facts.step.now);
    let is_late = move |peer: &PeerId, seen: &PeerRecord| {
        facts.slot.ready_of(peer, seen.beat.incarnation).is_none()
            && facts.is_reached(peer, seen)
            && seen.beat.phase != Phase::Behind
            && facts.peer_status_of(peer, seen).counts(Question::IsAwaited)
    };
    live.filter(move |(peer, seen)| is_late(peer, seen)).map(|(peer, _)| *peer)
}

/// G5: whether a peer that is not Ready was last awaited without effect, and this is no epoch that
/// waits for it again.
pub(super) fn is_awaited_in_vain(facts: Facts<'_>, peer: &PeerId) -> bool {
    let (is_voter, epoch) = (facts.names_voter(peer), facts.series().epoch);
    facts.keeps(Rule::G5) && facts.conduct.is_awaited_in_vain(epoch, peer, is_voter)
}

/// G5: whether nobody waits any more for a peer that was last awaited without effect. A newcomer has
/// a little longer than the others, and a voter that was Ready in the last epoch, even too late.
fn is_awaited_no_longer(facts: Facts<'_>, peer: &PeerId) -> bool {
    let has_longer = || !facts.names_voter(peer) || facts.conduct.was_ready(peer);
    let over = || newcomers_until(facts).is_some_and(|until| facts.step.now >= until);
    is_awaited_in_vain(facts, peer) && (!has_longer() || over())
}

/// Notes for whom the first attempt waits once our patience is over, and who is Ready once the wait is.
pub(super) fn note_wait(epoch: &mut Epoch<'_>) {
    let facts = epoch.facts();
    if facts.slot.frozen.is_none() || facts.slot.waited.is_over() {
        return;
    }
    let ends = has_accepted(facts) || !is_too_early(facts);
    let waits = !ends && patience_until(facts).is_some_and(|until| facts.step.now >= until);
    let late: Vec<PeerId> = if waits { awaited_and_unready(facts).collect() } else { Vec::new() };
    // Its heartbeats name the start in which a peer is awaited, so a Ready of another one is none.
    let start = |peer: &PeerId| facts.step.table.peers.get(peer).map(|seen| seen.beat.incarnation);
    let is_ready = |p: &&PeerId| start(p).is_some_and(|s| facts.slot.ready_of(p, s).is_some());
    let came = ends.then(|| facts.slot.ready.keys().filter(is_ready).copied().collect());
    epoch.slot.waited.late.extend(late);
    epoch.slot.waited.came = came;
}

/// Until when newcomers are waited for that were last awaited without effect.
pub(super) fn newcomers_until(facts: Facts<'_>) -> Option<Time> {
    let last = ready_voters(facts).map(|(_, at)| at).max()?;
    Some(last + (last.since(facts.slot.began) / 8).max(NEWCOMER_WAIT_MIN))
}

/// Whether the first roster of the epoch still waits: for all to be Ready, or for the grace.
pub(super) fn is_too_early(facts: Facts<'_>) -> bool {
    let over = || grace_until(facts).is_some_and(|until| facts.step.now >= until);
    let ready = || facts.slot.frozen.is_some() && everyone_ready(facts);
    facts.slot.forced.is_none() && !over() && !ready()
}

/// How much longer our patience lasts; `None` once it is over, or we have accepted a roster of this
/// epoch.
pub(super) fn patience_left(facts: Facts<'_>) -> Option<Duration> {
    if has_accepted(facts) {
        return None;
    }
    // No voter is known to be Ready: it is too early for any roster.
    let until = patience_until(facts).unwrap_or(facts.step.now + facts.config.ready_grace);
    (facts.step.now < until).then(|| until.since(facts.step.now))
}

/// Whether we have accepted a roster of this epoch.
fn has_accepted(facts: Facts<'_>) -> bool {
    let me = facts.me.peer;
    facts.slot.ballots.values().any(|ballot| ballot.accepts.contains_key(&me))
}

/// The upper median of some lengths of time.
pub(super) fn median(lengths: &mut [Duration]) -> Option<Duration> {
    lengths.sort_unstable();
    lengths.get(lengths.len() / 2).copied()
}
