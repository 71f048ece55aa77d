//! What the open epoch waits for, and for whom.

use std::collections::BTreeSet;

use crate::base::id::{Digest, PeerId};
use crate::machine::event::Progress;
use crate::machine::wait::{Obstacle, Wait};
use crate::message::{Member, Refusal, Roster};

use super::facts::Facts;
use super::seats::has_seat;
use super::series::Stage;
use super::{founders, patience, roster, turns};

/// What the open epoch waits for. `None`: we train, or take the outer step. `met`: whether this peer
/// has ever met another one. A peer that has not is a run of one, if the run needs no other, and
/// misses nobody.
pub(super) fn wait(facts: Facts<'_>, met: bool) -> Option<Wait> {
    if facts.behind {
        return Some(Wait::Behind);
    }
    let missing = absent(facts, met);
    // What is decided alone may be undone, however far its epoch is.
    if matches!(missing, Some(Wait::Alone { goes_on: true, .. })) {
        return missing;
    }
    let series = &facts.slot.series;
    let owner = |attempt| Wait::Roster { attempt, owner: turns::owner(facts, attempt) };
    let now = match &series.stage {
        Stage::Decided(_) => return Some(Wait::Update),
        Stage::Applying(_) => return None,
        Stage::Idle { left_out: Some((_, why)) } => Some(Wait::LeftOut(*why)),
        Stage::Idle { left_out: None } => facts.slot.frozen.is_some().then(|| {
            let training: BTreeSet<PeerId> = patience::awaited_and_unready(facts).collect();
            let first = Wait::Roster { attempt: 1, owner: None };
            if training.is_empty() { first } else { Wait::Training(training) }
        }),
        Stage::Open { roster, progress, .. } => in_attempt(facts, *roster, *progress),
        Stage::Recover { attempt, .. } => Some(owner(*attempt)),
        Stage::Joined { regroup, .. } => Some(Wait::Joins(not_joined(facts, regroup))),
    };
    // An attempt may end well without those that are gone, and a founding names those that lack.
    let runs = matches!(series.stage, Stage::Open { .. });
    let founds = facts.voters().is_empty() && matches!(series.stage, Stage::Joined { .. });
    if runs || founds { now } else { missing.or(now) }
}

/// The peers that are missing here, whatever the stage.
fn absent(facts: Facts<'_>, met: bool) -> Option<Wait> {
    let (table, now, voters) = (facts.step.table, facts.step.now, facts.voters());
    let needed = facts.validator.peers_min;
    let mut live = table.live(now);
    if voters.is_empty() && live.any(|(_, seen)| seen.beat.head.epoch > facts.slot.head.epoch) {
        return Some(Wait::PassedOver);
    }
    if voters.is_empty() {
        let here = founders::admitted(facts, table.live_in(facts.series(), now));
        return Some(Wait::Founders { here, needed });
    }
    let rule = facts.validator.quorum;
    let is_missing = |peer: &PeerId| *peer != facts.me.peer && !facts.is_alive(peer);
    let missing: BTreeSet<PeerId> =
        voters.iter().map(|voter| voter.peer).filter(is_missing).collect();
    // R20, R29: after a return or a goodbye others may have gone on, and are waited for.
    let waits = !missing.is_empty() && founders::awaits_news(facts);
    let enough = facts.hears_majority();
    let goes_on = enough && !facts.said_goodbye() && !waits;
    // R12, R19: where no voter is here with its log, its key is enough.
    let survives = facts.is_any_voter_here() || facts.names_voter(&facts.me.peer);
    let (all, regroups) = (voters.len(), rule.regroups() && survives);
    if table.live(now).next().is_none() && (needed > 1 || met) {
        return Some(Wait::Alone { voters: all, rule, goes_on, regroups });
    }
    (!goes_on).then_some(Wait::Voters { missing, all, enough, regroups, rule })
}

/// What an open attempt waits for: the Accepts, the ring, or the votes that are missing.
fn in_attempt(facts: Facts<'_>, digest: Digest, progress: Progress) -> Option<Wait> {
    let ballot = facts.slot.ballots.get(&digest)?;
    let roster = ballot.roster.as_deref()?;
    Some(match progress {
        Progress::Accepted => {
            let ring = roster.ring().map(|member| member.peer);
            Wait::Accepts(ring.filter(|peer| !ballot.accepts.contains_key(peer)).collect())
        }
        Progress::Reduce => ring(facts, roster),
        Progress::Finished => {
            let prepares = facts.validator.quorum.prepares();
            let prepares = prepares && !ballot.dones.contains_key(&facts.me.peer);
            let has_voted = |peer: &PeerId| match prepares {
                true => ballot.prepared.contains_key(peer),
                false => ballot.dones.contains_key(peer),
            };
            let voters = facts.voters().iter().map(|voter| voter.peer);
            Wait::Votes(voters.filter(|peer| !has_voted(peer)).collect())
        }
    })
}

/// The ring, with the slowest rate that a member has named, and the rate at which it would just
/// meet its deadline, both in bytes per second. They show a person whether it can end in time.
fn ring(facts: Facts<'_>, roster: &Roster) -> Wait {
    let rate = |peer: PeerId| Some((peer, facts.step.table.peers.get(&peer)?.beat.send_rate));
    let rates = roster.ring().filter_map(|member| rate(member.peer));
    let slowest = rates.filter(|(_, rate)| *rate > 0).min_by_key(|(_, rate)| *rate);
    let length_ms = u64::try_from(facts.ring_time(roster).as_millis()).unwrap_or(u64::MAX);
    let bytes = facts.ring_bytes(roster.ring().count());
    Wait::Ring { slowest, needed: bytes.saturating_mul(1_000) / length_ms.max(1) }
}

/// The members of a Regroup whose Joins are missing.
fn not_joined(facts: Facts<'_>, regroup: &Digest) -> BTreeSet<PeerId> {
    let Some(known) = facts.slot.series.gathering.known.get(regroup) else {
        return BTreeSet::new();
    };
    let members = known.regroup.iter().flat_map(|regroup| &regroup.members);
    members.map(|member| member.peer).filter(|peer| !known.joins.contains_key(peer)).collect()
}

/// What keeps us out of a roster that does not name us, or that we refuse. What a person can mend
/// comes before what the next epoch mends.
pub(super) fn obstacle(facts: Facts<'_>, roster: &Roster, refusal: Option<Refusal>) -> Obstacle {
    let me = facts.me.peer;
    match refusal {
        Some(Refusal::Expired(_)) => return Obstacle::Clock,
        Some(_) => return Obstacle::Refused,
        None if facts.is_voter() => return Obstacle::Unheard,
        None => {}
    }
    let others = || facts.voters().iter().map(|voter| voter.peer).filter(move |peer| *peer != me);
    let linked = others().filter(|peer| facts.reach.is_linked(peer)).count();
    let voters = others().count();
    let ring: Vec<Member> = roster.ring().copied().collect();
    let fits = || has_seat(&ring, me, &roster::apart(facts, &ring));
    if !facts.reach.is_direct(facts.step) {
        Obstacle::NotDirect
    } else if linked < voters && !(facts.reach.is_linked(&roster.proposer) && fits()) {
        Obstacle::FewLinks { linked, voters }
    } else if facts.slot.frozen.is_none() {
        Obstacle::Late
    } else if roster::is_full(facts, roster) {
        Obstacle::NoPlace
    } else {
        Obstacle::Unknown
    }
}
