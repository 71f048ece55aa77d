//! Which peers have a ring position: what a proposer gives, and what a voter demands of another
//! voter's roster (R4, R7, R8, R35, R36, R40, G4–G7, G14).
//!
//! A proposer decides alone which peers compute and which vote next. So a voter accepts a free
//! roster only under these conditions:
//!
//! - it names every voter that is alive to the acceptor (G6): being late or lost costs the position, never the vote;
//! - before the acceptor's patience has ended, all of these have a position (G6): no peer is left out by haste;
//! - later, a fair share of those has one whose Ready the acceptor has known for a while (G6);
//! - newcomers stay a minority of the old voters, and none is named first (G7).
//!
//! Two honest peers have not seen the same, so each demand leaves room for what they may differ in.
//! What a proposer gives to newcomers is bounded as well (G5): a key is free, a ring position is
//! not.

use std::collections::BTreeSet;

use crate::base::fault::{RosterFault, require};
use crate::base::id::{Digest, PeerId};
use crate::base::rule::Rule;
use crate::history::evidence;
use crate::history::lineage::LocalPeer;
use crate::machine::table::PeerRecord;
use crate::message::{Heard, MEMBERS_MAX, Member, Phase, Ranked, Refusal, Roster, Voter, wire};
use crate::ring::Order;

use super::attendance::{PeerStatus, Question};
use super::ballot::Ballot;
use super::conduct::Pair;
use super::facts::Facts;
use super::seats::{has_seat, pair, seat};
use super::{admission, patience, turns};

/// At least one in this many honest ready voters must have a ring position.
const SHARE: usize = 3;

/// Attempts at which newcomers have positions; at the second, only those that accepted the first.
const NEWCOMER_ATTEMPTS: u64 = 2;

// ---- what a proposer gives ----------------------------------------------------------------------

/// Every voter that is present, and some newcomers (G5): first the ring in its order, then voters
/// without a position (R36). The first member is a voter (G7).
pub(super) fn compose(facts: Facts<'_>, attempt: u64) -> Vec<Member> {
    let me = facts.me.peer;
    let idle =
        facts.is_revocation_due(&me) || facts.conduct.is_outcast(&facts.validator, facts.slot, &me);
    let weight = if idle { 0 } else { facts.slot.frozen_weight() };
    let LocalPeer { peer, log, incarnation } = facts.me;
    let me = Member { peer, log, incarnation, weight };
    let key = |m: &Member| facts.order(Order::Ring, attempt, &m.peer);
    let is_voter = |m: &Member| facts.voters().contains(&m.voter());
    let mut voters = present_voters(facts, attempt);
    voters.extend([me].into_iter().filter(is_voter));
    voters.sort_by_cached_key(|m| (m.peer != facts.me.peer, key(m)));
    voters.truncate(MEMBERS_MAX);
    let others = facts.live(Question::TakesPart);
    let others = others.map(|(peer, seen)| member(facts, attempt, peer, seen));
    let newcomers = others.chain([me]).filter(|m| m.weight > 0 && !is_voter(m)).collect();
    let mut newcomers = choose_newcomers(facts, attempt, &voters, newcomers);
    newcomers.truncate(MEMBERS_MAX - voters.len());
    let (mut ring, mut idle): (Vec<_>, Vec<_>) = voters.into_iter().partition(|m| m.weight > 0);
    ring.extend(newcomers);
    ring.sort_by_cached_key(key);
    let apart = apart(facts, &ring);
    let (mut ring, without_place) = seat(ring, |member| !is_voter(member), &apart);
    idle.extend(without_place.into_iter().filter(is_voter).map(|m| Member { weight: 0, ..m }));
    idle.sort_by_cached_key(key);
    match ring.iter().position(is_voter) {
        Some(first) => {
            ring.rotate_left(first);
            ring.into_iter().chain(idle).collect()
        }
        None => idle.into_iter().chain(ring).collect(),
    }
}

/// G6: the other voters that a roster of ours names, with or without a position: those that may
/// still be there, by what we have heard or by what another peer reported.
pub(super) fn present_voters(facts: Facts<'_>, attempt: u64) -> Vec<Member> {
    let others = facts.voters().iter().filter(|voter| **voter != facts.me.voter());
    let present = others.filter_map(|voter| {
        let seen = facts.step.table.peers.get(&voter.peer);
        let follows = seen.is_some_and(|seen| seen.beat.phase == Phase::Behind);
        let heard = seen.map_or(facts.started, |seen| seen.heard);
        let here = facts.peer_status(voter).counts(Question::TakesPart)
            && !follows
            && facts.step.now.since(heard) < facts.step.table.grace;
        let reported_alive = facts.slot.reported_alive.contains(&voter.peer);
        let unheard = Member { peer: voter.peer, log: voter.log, incarnation: 0, weight: 0 };
        let member = |seen| member(facts, attempt, &voter.peer, seen);
        let named = here || reported_alive;
        named.then(|| seen.filter(|s| s.beat.log == voter.log).map_or(unheard, member))
    });
    present.collect()
}

/// What a roster of ours says of a peer: weight 0 if it gets no position.
///
/// R35: one report that it is lost proves nothing, for the link may be broken, or the reporter
/// itself. So it is asked like any other, and its silence is the second opinion.
pub(super) fn member(facts: Facts<'_>, attempt: u64, peer: &PeerId, seen: &PeerRecord) -> Member {
    let beat = &seen.beat;
    let lost = facts.conduct.reporters(facts.step, peer) > 0
        && facts.slot.series.answered.get(peer).is_none_or(|highest| *highest < attempt);
    let able = is_able(facts, peer, seen) && !lost;
    let ready = facts.slot.ready_of(peer, beat.incarnation).unwrap_or(0);
    let weight = if able { ready } else { 0 };
    Member { peer: *peer, log: beat.log, incarnation: beat.incarnation, weight }
}

/// Whether a peer that is Ready can have a position in our roster.
pub(super) fn is_able(facts: Facts<'_>, peer: &PeerId, seen: &PeerRecord) -> bool {
    facts.is_reached(peer, seen)
        && seen.beat.phase != Phase::Behind
        && facts.is_alive(peer)
        && !facts.is_revocation_due(peer)
        && facts.conduct.may_compute(&facts.validator, facts.slot, peer)
}

/// G5, G7: the newcomers of a roster with these `voters`, among all that could have a position.
pub(super) fn choose_newcomers(
    facts: Facts<'_>,
    attempt: u64,
    voters: &[Member],
    mut newcomers: Vec<Member>,
) -> Vec<Member> {
    let key = |m: &Member| facts.order(Order::Ring, attempt, &m.peer);
    if !facts.keeps(Rule::G5) {
        return newcomers;
    }
    let mut most = newcomers_most(facts, voters.len());
    let idle = !voters.iter().any(|m| m.weight > 0);
    if attempt > NEWCOMER_ATTEMPTS {
        // If no voter has work, one newcomer computes, another one at each attempt.
        most = usize::from(idle);
    } else if attempt > 1 && !idle {
        let accepted = |m: &Member| {
            facts.slot.ballots.values().any(|ballot| ballot.accepts.contains_key(&m.peer))
        };
        newcomers.retain(accepted);
    }
    let since = |m: &Member| facts.step.table.peers.get(&m.peer).map(|seen| seen.since);
    let offences = |m: &Member| facts.conduct.offences(&m.peer);
    newcomers.sort_by_cached_key(|m| (offences(m), since(m), key(m)));
    let mut rest = newcomers.split_off(newcomers.len().min(most.div_ceil(2)));
    rest.sort_by_cached_key(|m| (offences(m), key(m)));
    newcomers.extend(rest);
    newcomers.truncate(most);
    newcomers
}

/// G5, G7: the most newcomers that a proposer gives positions at the first attempt, beside so many
/// old voters.
fn newcomers_most(facts: Facts<'_>, old: usize) -> usize {
    if !facts.bounds_newcomers() {
        return MEMBERS_MAX;
    }
    let most = (old / 2).max(1);
    if facts.keeps(Rule::G7) { most.min(newcomers_max(facts, old)) } else { most }
}

/// G5, G7: whether a roster has no position for one more newcomer: there are enough, a value is
/// adopted, or it is of an attempt in which we can have none.
pub(super) fn is_full(facts: Facts<'_>, roster: &Roster) -> bool {
    let is_old = |m: &&Member| facts.voters().contains(&m.voter());
    let old = roster.members.iter().filter(is_old).count();
    let accepted = |ballot: &Ballot| ballot.accepts.contains_key(&facts.me.peer);
    let is_late = roster.attempt > NEWCOMER_ATTEMPTS
        || roster.attempt > 1
            && roster.ring().any(|member| is_old(&member))
            && !facts.slot.ballots.values().any(accepted);
    is_late || !roster.is_free() || roster.members.len() - old >= newcomers_most(facts, old)
}

/// G7: the most newcomers in a roster with so many old voters. They are voters next, and where a
/// third may lie, liars among them must not become a third at once.
fn newcomers_max(facts: Facts<'_>, old: usize) -> usize {
    if facts.validator.quorum.prepares() { (old / 8).max(1) } else { old.saturating_sub(1).max(1) }
}

/// R35, R42: the pairs of these members that must not be neighbours: a link between them broke in
/// this epoch, or one of the two says that none joins them.
pub(super) fn apart(facts: Facts<'_>, ring: &[Member]) -> BTreeSet<Pair> {
    let mut apart = facts.conduct.parted(&facts.validator, facts.slot);
    if !facts.keeps(Rule::R42) {
        return apart;
    }
    for Member { peer, .. } in ring {
        apart.extend(facts.reach.named_by(peer).map(|other| pair(*peer, other)));
        if facts.reach.is_unlinked(facts.step, peer) {
            apart.insert(pair(facts.me.peer, *peer));
        }
    }
    apart
}

// ---- what a voter demands ----------------------------------------------------------------------

/// What every proposer can check before it proposes; breaking it is a fault (R4, R7, R8).
pub(super) fn check_roster(
    facts: Facts<'_>,
    proposer: PeerId,
    roster: &Roster,
) -> Result<(), RosterFault> {
    facts.validator.check_keep(roster)?;
    admission::check_admitted(facts, roster)?;
    roster.adopt.iter().try_for_each(|receipt| facts.validator.check_parts(&receipt.parts))?;
    crate::history::lineage::check_sums(facts.weight_max, &roster.receipt(Digest::ZERO))?;
    let kept = roster.keep.iter().flat_map(|keep| &keep.members);
    let mut peers: Vec<_> = roster.members.iter().map(|m| m.peer).collect();
    peers.sort_unstable();
    let distinct = peers.windows(2).all(|pair| pair[0] != pair[1]);
    let voter = |m: &Member| facts.voters().contains(&m.voter());
    let heard = |v: &Voter| roster.heard.iter().any(|heard| heard.voter == *v);
    let majority = !facts.keeps(Rule::R7) || facts.validator.quorum.holds(facts.voters(), heard);
    let beside = roster.adopt.as_ref().is_none_or(|r| r.series.is_beside(&facts.series()));
    let votes = |heard: &Heard| facts.voters().contains(&heard.voter);
    require(roster.proposer == proposer, RosterFault::NotItsAuthor)?;
    require(roster.member(&proposer).is_some(), RosterFault::NoMember)?;
    require((1..u64::MAX).contains(&roster.attempt), RosterFault::Attempt)?;
    require(roster.heard.iter().all(votes), RosterFault::HeardNoVoter)?;
    require(roster.heard.len() <= facts.voters().len(), RosterFault::HeardMany)?;
    require(roster.members.len() <= MEMBERS_MAX, RosterFault::ManyMembers)?;
    require(distinct, RosterFault::MemberTwice)?;
    require(roster.members.iter().all(|m| m.weight > 0 || voter(m)), RosterFault::IdleNoVoter)?;
    let mut all = roster.members.iter().chain(kept);
    require(all.all(|m| declared(facts, m)), RosterFault::Undeclared)?;
    require(!roster.is_free() || roster.ring().next().is_some(), RosterFault::RingOfNobody)?;
    require(roster.attempt < 2 || majority, RosterFault::NoMajority)?;
    require(beside, RosterFault::OtherEpoch)?;
    require(turns::may_open(facts, &proposer, roster.attempt), RosterFault::NotItsAttempt)
}

/// Whether a member can have declared its weight. Only of ourselves is it known for sure: another peer may have declared something else to its proposer than to us.
fn declared(facts: Facts<'_>, member: &Member) -> bool {
    let mine = facts.slot.frozen_weight();
    let is_me = member.peer == facts.me.peer && member.incarnation == facts.me.incarnation;
    member.weight <= facts.weight_max && (member.weight == 0 || !is_me || member.weight == mine)
}

/// G7: newcomers stay a minority of the old voters that are named, and none decides a tie.
pub(super) fn check_newcomers(facts: Facts<'_>, roster: &Roster) -> Result<(), RosterFault> {
    if !roster.is_free() || !facts.keeps(Rule::G7) {
        return Ok(());
    }
    let (old, new): (Vec<Member>, Vec<Member>) =
        roster.members.iter().partition(|m| facts.voters().contains(&m.voter()));
    let old_first = roster.members.first().is_some_and(|m| old.contains(m));
    let few = !facts.bounds_newcomers() || new.len() <= newcomers_max(facts, old.len());
    require(few, RosterFault::ManyNewcomers)?;
    require(old_first, RosterFault::NewcomerFirst)
}

/// G14: whether each Status is its author's, and whether the value follows from them by R8.
pub(super) fn check_heard(facts: Facts<'_>, roster: &Roster) -> Result<(), RosterFault> {
    if roster.attempt < 2 || !facts.keeps(Rule::G14) || !facts.keeps(Rule::R8) {
        return Ok(());
    }
    let Roster { series, attempt, .. } = *roster;
    let signed = |heard: &Heard| {
        let status = evidence::status(series, attempt, heard);
        facts.validator.signed(&heard.voter.peer, &status, &heard.signature)
    };
    let depth = facts.slot.depth();
    let possible = |h: &Heard| h.done.is_none_or(|v| v.depth <= depth && v.attempt <= attempt);
    require(roster.heard.iter().all(possible), RosterFault::ImpossibleVote)?;
    require(roster.heard.iter().all(signed), RosterFault::UnsignedStatus)?;
    let adopts = roster.adopt.as_ref().map(|r| wire::receipt_digest(&facts.validator.run, r));
    let votes = || roster.heard.iter().filter_map(|heard| heard.done);
    let rank = |vote: &Ranked| (vote.depth, vote.attempt);
    let Some(highest) = votes().map(|vote| rank(&vote)).max() else {
        let holds = roster.heard.iter().any(|heard| heard.holds_forced);
        let forced = if holds { facts.slot.forced.as_ref() } else { None };
        return require(roster.adopt.as_ref() == forced, RosterFault::NotForced);
    };
    let lawful = votes().any(|vote| rank(&vote) == highest && Some(vote.r) == adopts);
    require(lawful, RosterFault::NotTheHighest)
}

/// G6: whether another voter's roster leaves no peer out.
pub(super) fn check_places(facts: Facts<'_>, roster: &Roster) -> Result<(), Refusal> {
    if !roster.is_free() || !facts.is_voter() || !facts.keeps(Rule::G6) {
        return Ok(());
    }
    let has_place = |peer: &PeerId| roster.member(peer).is_some_and(|m| m.weight > 0);
    let alive: Vec<(&PeerId, &PeerRecord)> =
        facts.live(Question::TakesPart).filter(|(p, s)| is_alive(facts, p, s)).collect();
    if let Some((peer, _)) = alive.iter().find(|(peer, _)| roster.member(peer).is_none()) {
        return Err(Refusal::Lacks(**peer));
    }
    let me = facts.me.peer;
    let ring: Vec<Member> = roster.ring().copied().collect();
    let apart = apart(facts, &roster.members);
    let seatless = |peer: &PeerId| !has_seat(&ring, *peer, &apart);
    let excused = |peer: &PeerId, seen: &PeerRecord| {
        !is_able(facts, peer, seen) || facts.is_lost(peer) || seatless(peer)
    };
    if let Some(left) = patience::patience_left(facts) {
        let late = |peer: &PeerId, seen: &PeerRecord| {
            facts.slot.ready_of(peer, seen.beat.incarnation).is_none()
                && patience::is_awaited_in_vain(facts, peer)
        };
        let waits =
            |(peer, seen): &&(&PeerId, &PeerRecord)| !excused(peer, seen) && !late(peer, seen);
        let mut all = alive.iter().filter(waits);
        let own = has_place(&me) || facts.leaving.is_some() || seatless(&me);
        let left_ms = u32::try_from(left.as_millis()).unwrap_or(u32::MAX);
        return require(own && all.all(|(peer, _)| has_place(peer)), Refusal::Early(left_ms));
    }
    let settled_in = facts.ask_time();
    let settled = |peer: &PeerId, seen: &PeerRecord| {
        let declared = facts.slot.ready.get(peer);
        declared.is_some_and(|d| {
            d.incarnation == seen.beat.incarnation && facts.step.now.since(d.at) >= settled_in
        })
    };
    let own = facts.slot.frozen.is_some_and(|f| facts.step.now.since(f.at) >= settled_in);
    let ready = alive.iter().filter(|(p, s)| settled(p, s) && !excused(p, s));
    let ready = ready.count() + usize::from(own);
    let voters: BTreeSet<PeerId> = facts.voters().iter().map(|v| v.peer).collect();
    let places = roster.ring().filter(|m| voters.contains(&m.peer)).count();
    // f of the Readies and f of the positions may be of liars, and no honest peer sees which.
    let liars = facts.validator.quorum.liars(facts.voters().len());
    require(places >= ready.min((ready + (SHARE - 1) * liars) / SHARE), Refusal::Places)
}

/// Whether a voter is so clearly alive that every proposer knows. A report of its loss does not
/// count: it can be a lie that its author tells for its own roster.
fn is_alive(facts: Facts<'_>, peer: &PeerId, seen: &PeerRecord) -> bool {
    // R19: a voter that has lost its log is another voter, or none yet.
    facts.voters().contains(&Voter { peer: *peer, log: seen.beat.log })
        && seen.beat.phase != Phase::Behind
        && facts.peer_status_of(peer, seen) != PeerStatus::Coming
}

/// R20: whether we can still do what a roster expects of us: a position of an earlier start is lost
/// with its delta.
pub(super) fn stands_by(facts: Facts<'_>, roster: &Roster) -> bool {
    let lost = |m: &Member| m.weight > 0 && m.incarnation != facts.me.incarnation;
    !(roster.is_free() && roster.member(&facts.me.peer).is_some_and(lost))
}

// ---- whose word counts ------------------------------------------------------------------------

/// G14: the voters heard that do not contradict themselves, and those that do, whose Status is no
/// ground for a value.
pub(super) fn without_liars(
    facts: Facts<'_>,
    heard: Vec<Heard>,
    attempt: u64,
) -> (Vec<Heard>, Vec<Heard>) {
    let lies = |h: &Heard| facts.keeps(Rule::G14) && facts.slot.denied(h, attempt).is_some();
    heard.into_iter().partition(|h| !lies(h))
}

/// R8: leaves out the voters that withhold what they vote for, if the rest is a majority.
pub(super) fn without_withholding(facts: Facts<'_>, heard: Vec<Heard>) -> Vec<Heard> {
    let delivers = |h: &&Heard| !facts.slot.withholds(&h.voter.peer);
    let rest: Vec<Heard> = heard.iter().filter(delivers).copied().collect();
    let names = |v: &Voter| rest.iter().any(|heard| heard.voter == *v);
    if facts.validator.quorum.holds(facts.voters(), names) { rest } else { heard }
}
