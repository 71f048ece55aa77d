//! Which attempt the voters have come to, and which of them may propose it (R37, R38).
//!
//! As in the view changes of PBFT (Castro and Liskov 1999) each attempt from the second on belongs to
//! one voter, by an order that all peers compute alike. A voter comes to an attempt by itself when its
//! own timer is over, or because more voters have than may lie. Only then does it answer the owner of
//! that attempt. So one voter, whatever it says, neither ends a running roster nor moves the others.

use crate::base::id::PeerId;
use crate::base::rule::Rule;
use crate::message::Phase;
use crate::ring::Order;

use super::attendance::Question;
use super::facts::Facts;
use super::series::Stage;

/// How far above our own attempt the one is at most that others make us come to at once: the attempts
/// of a series cannot be used up.
const ATTEMPTS_AHEAD_MAX: u64 = 1 << 10;

/// The voter that may ask for an attempt from the second on, and propose it.
pub(super) fn owner(facts: Facts<'_>, attempt: u64) -> Option<PeerId> {
    let turns = facts.slot.series.turns.get_or_init(|| {
        let mut turns: Vec<PeerId> = facts.voters().iter().map(|voter| voter.peer).collect();
        turns.sort_by_cached_key(|peer| facts.order(Order::Turn, 0, peer));
        turns
    });
    let count = u64::try_from(turns.len()).ok().filter(|count| *count > 0)?;
    usize::try_from(attempt % count).ok().and_then(|place| turns.get(place)).copied()
}

/// Whether we ask for this attempt, and propose it.
pub(super) fn is_ours(facts: Facts<'_>, attempt: u64) -> bool {
    let me = facts.me.peer;
    owner(facts, attempt) == Some(me) || (!facts.keeps(Rule::G1) && !facts.names_voter(&me))
}

/// G2: whether another peer may ask for an attempt, and propose it.
pub(super) fn may_open(facts: Facts<'_>, peer: &PeerId, attempt: u64) -> bool {
    attempt < 2 || is_free(facts, peer) || owner(facts, attempt) == Some(*peer)
}

/// Whether a test has switched off the rules that bind this peer.
pub(super) fn is_free(facts: Facts<'_>, peer: &PeerId) -> bool {
    !facts.keeps(Rule::G2) || (!facts.keeps(Rule::G1) && !facts.names_voter(peer))
}

/// Whether the owner of an attempt can be expected to ask for it. A peer that seems dead is not
/// waited for.
pub(super) fn is_expected(facts: Facts<'_>, attempt: u64) -> bool {
    let Some(owner) = owner(facts, attempt) else { return false };
    let seen = facts.step.table.peers.get(&owner);
    owner == facts.me.peer
        || seen.is_some_and(|seen| {
            seen.beat.phase != Phase::Behind
                && facts.is_alive(&owner)
                && facts.peer_status_of(&owner, seen).counts(Question::TakesPart)
                && !facts.is_lost(&owner)
        })
}

/// The attempt that we have come to.
pub(super) fn ours(facts: Facts<'_>) -> u64 {
    let bound = facts.bound().attempt();
    let Stage::Recover { attempt, .. } = facts.slot.series.stage else { return bound };
    bound.max(attempt)
}

/// The attempt that a voter has come to, by what it has said last.
fn reached(facts: Facts<'_>, peer: &PeerId) -> u64 {
    if *peer == facts.me.peer {
        return ours(facts);
    }
    let beat = facts.step.table.peers.get(peer).map(|seen| &seen.beat);
    let named = beat.filter(|beat| beat.series == facts.series()).map_or(0, |beat| beat.attempt);
    facts.slot.series.reached.get(peer).copied().unwrap_or(0).max(named)
}

/// R38: the highest attempt to which more voters have come than may lie. Where none lies, more
/// than a third of those that are present must have come to it, for one with a bad link is hasty.
pub(super) fn common(facts: Facts<'_>) -> u64 {
    let (voters, ours) = (facts.voters(), ours(facts));
    let series = &facts.slot.series;
    // Mostly nobody has come to an attempt from the second on, and this runs at each input.
    if series.reached.is_empty() && !matches!(series.stage, Stage::Recover { .. }) {
        return ours;
    }
    let quorum = facts.validator.quorum;
    let most = if quorum.prepares() {
        quorum.liars(voters.len())
    } else {
        voters.iter().filter(|voter| facts.present(voter)).count() / 3
    };
    let mut all: Vec<u64> = voters.iter().map(|voter| reached(facts, &voter.peer)).collect();
    all.sort_unstable_by(|a, b| b.cmp(a));
    let common = all.get(most).copied().unwrap_or(0);
    common.min(ours.saturating_add(ATTEMPTS_AHEAD_MAX))
}
