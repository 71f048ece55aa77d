//! Which peers may sign a Regroup, and when (R12, R14, R15, R20, R43, G8): what its proposer names,
//! what a member demands, and what both wait for. A peer that was restarted or asleep hears the
//! others before it decides.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::base::fault::require;
use crate::base::id::PeerId;
use crate::base::rule::Rule;
use crate::base::time::Time;
use crate::machine::table::PeerRecord;
use crate::message::{Absence, MEMBERS_MAX, Refusal, Regroup, Voter};
use crate::ring::Order;

use super::attendance::Question;
use super::facts::Facts;
use super::series::Stage;
use super::timers::Timer;
use super::{admission, timers};

/// How long a founding waits for a direct connection to be punched through to a peer that is heard
/// through a relay.
const PUNCHING: Duration = Duration::from_secs(5);

/// How long a peer that said goodbye or slept waits after its return for the peers that were here then,
/// before it goes on without them. Guess: a person starts two machines in less, and what is trained
/// apart meanwhile can still be undone.
pub(super) const RETURN_WAIT: Duration = Duration::from_secs(60);

/// A peer that is heard for so long is known to all, and must not be left out of a founding.
const FOUNDER_KNOWN: Duration = Duration::from_secs(3);

/// The time, and the heartbeats, for which a peer is heard before a founding names it.
const FOUNDER_HEARD: Duration = Duration::from_secs(2);
const FOUNDER_BEATS: u32 = 3;

/// A founding waits until no new peer has come for so many heartbeats; guess: discovery takes less.
const FOUNDING_HEARTBEATS: u32 = 4;

/// Regroups that a peer without a vote may miss before the others go on without it; guess: each was
/// repeated to it for as long as its deadline.
const REGROUPS_MISSED_MAX: usize = 3;

/// How long the first Regroup of a founding waits after the last peer came; later ones do not wait.
pub(super) fn founding_wait(facts: Facts<'_>) -> Duration {
    let first = facts.voters().is_empty() && facts.slot.series.gathering.number_seen == 0;
    if first { facts.step.table.heartbeat * FOUNDING_HEARTBEATS } else { Duration::ZERO }
}

/// R12, R15: whether we may propose a Regroup, by what we see ourselves. A greater head of others
/// may still delay it.
pub(super) fn may_regroup(facts: Facts<'_>) -> bool {
    let waits = match &facts.slot.series.stage {
        Stage::Decided(_) | Stage::Applying(_) => false,
        Stage::Joined { .. } => timers::is_over(facts, Timer::Stage),
        // Nothing is due before our work is done, and until then the others may return.
        Stage::Idle { .. } => facts.slot.frozen.is_some() || facts.voters().is_empty(),
        _ => true,
    };
    waits
        && (facts.validator.quorum.regroups() || facts.voters().is_empty())
        && !facts.behind
        && facts.leaving.is_none()
        && !awaits_news(facts)
        && !may_be_led(facts)
        && !facts.has_majority()
        && match facts.voters().is_empty() {
            true => {
                candidates(facts).take(facts.validator.peers_min).count()
                    >= facts.validator.peers_min
            }
            false if facts.is_any_voter_here() => facts.is_voter(),
            false => facts.names_voter(&facts.me.peer),
        }
        && facts.voters().iter().all(|v| is_member_or_absent(facts, v))
}

/// The other peers that would take part: all live peers in this very series, except those without a
/// vote here that have missed several Regroups. A founding that needs these as well waits for them
/// all the same: on a lossy link two peers may have missed each other's Joins.
pub(super) fn candidates_beside<'a>(
    facts: Facts<'a>,
) -> impl Iterator<Item = (&'a PeerId, &'a PeerRecord)> {
    let steady = move |peer: &PeerId| !misses_regroups(facts, peer);
    let others = || facts.live(Question::MayRegroup);
    let least = facts.validator.peers_min.saturating_sub(1);
    let enough = !facts.voters().is_empty()
        || others().filter(|(peer, _)| steady(peer)).take(least).count() >= least;
    others().filter(move |(peer, _)| !enough || steady(peer))
}

/// Whether a Regroup of ours accounts for this voter: as a member, or left out with a reason.
fn is_member_or_absent(facts: Facts<'_>, voter: &Voter) -> bool {
    let status = facts.peer_status(voter);
    let alive = *voter == facts.me.voter() || facts.is_alive(&voter.peer);
    (alive && status.counts(Question::MayRegroup)) || status.absence().is_some()
}

/// G8: the members of a Regroup of ours, which include us. After a lost majority these are voters;
/// if no voter is left with its log, the peers that were voters; at a founding the peers that are
/// heard steadily, and later those that joined before.
fn candidates<'a>(facts: Facts<'a>) -> impl Iterator<Item = Voter> + 'a {
    let survivors = facts.is_any_voter_here() && facts.keeps(Rule::G8);
    let named = move |(peer, seen): &(&PeerId, &PeerRecord)| {
        if survivors {
            return facts.voters().contains(&Voter { peer: **peer, log: seen.beat.log });
        }
        if !facts.voters().is_empty() {
            return facts.names_voter(peer);
        }
        !facts.keeps(Rule::G8) || founds(facts, peer, seen)
    };
    let others = candidates_beside(facts)
        .filter(named)
        .map(|(peer, seen)| Voter { peer: *peer, log: seen.beat.log });
    others.chain([facts.me.voter()])
}

/// The candidates, voters first, each group ordered by hash.
fn in_order(facts: Facts<'_>) -> Vec<Voter> {
    let mut all: Vec<Voter> = candidates(facts).collect();
    let key = |v: &Voter| {
        let number = facts.slot.series.gathering.number_seen;
        facts.order(Order::Ring, number, &v.peer)
    };
    all.sort_by_cached_key(|v| (!facts.voters().contains(v), v.peer != facts.me.peer, key(v)));
    all.truncate(MEMBERS_MAX);
    all.sort_by_cached_key(|v| (!facts.voters().contains(v), key(v)));
    all
}

/// G8: whether a founding of ours names a peer.
fn founds(facts: Facts<'_>, peer: &PeerId, seen: &PeerRecord) -> bool {
    let gathering = &facts.slot.series.gathering;
    let enough = |joined: &BTreeSet<PeerId>| joined.len() >= facts.validator.peers_min;
    // R15: two Regroups at once split the founders, and liars among them choose who is beside them.
    let last = |joined: &BTreeSet<PeerId>| !facts.validator.quorum.prepares() && enough(joined);
    let joined = gathering.joined_last(&facts.me.peer).filter(last);
    let joined = joined.or_else(|| Some(gathering.joined_ever().collect()).filter(enough));
    match joined {
        Some(joined) => joined.contains(peer),
        None => seen.beats >= FOUNDER_BEATS && facts.step.now.since(seen.since) >= FOUNDER_HEARD,
    }
}

/// The Regroup that we would propose; `None` if a voter is left out for which there is no reason.
pub(super) fn compose_regroup(facts: Facts<'_>) -> Option<Regroup> {
    let (members, trust) = admission::gathered(facts, in_order(facts));
    let outside = facts.voters().iter().filter(|v| !members.contains(v));
    let absent: Option<Vec<_>> =
        outside.map(|v| Some((*v, facts.peer_status(v).absence()?))).collect();
    Some(Regroup {
        series: facts.series(),
        number: facts.slot.series.gathering.number_seen.saturating_add(1),
        proposer: facts.me.peer,
        members,
        absent: absent?,
        trust,
    })
}

/// R12, R15, S7: every member checks for itself which peers are present and which are absent.
pub(super) fn check_regroup(facts: Facts<'_>, regroup: &Regroup) -> Result<(), Refusal> {
    let me = facts.me.voter();
    // Else one voter could make all others leave series after series, of an epoch without end.
    let stays = |voter: &Voter| regroup.members.contains(voter) && facts.present(voter);
    if facts.bound().joined().is_none() && facts.validator.quorum.holds(facts.voters(), stays) {
        return Err(Refusal::Rule);
    }
    for voter in facts.voters().iter().filter(|v| !regroup.members.contains(v)) {
        let is_absent = match facts.peer_status(voter).absence() {
            None => false,
            Some(Absence::Revoked) => admission::is_revoked_by(facts, regroup, &voter.peer),
            Some(_) => true,
        };
        require(*voter != me && is_absent, Refusal::Present(voter.peer))?;
    }
    let survivors = facts.is_any_voter_here() && facts.keeps(Rule::G8);
    for member in regroup.members.iter().filter(|m| **m != me) {
        // G8: newcomers wait for the next epoch.
        let may_stay = !survivors || facts.voters().contains(member);
        let here = || facts.peer_status(member).counts(Question::MayRegroup);
        let takes_part = may_stay && here() && facts.is_alive(&member.peer);
        require(takes_part, Refusal::Absent(member.peer))?;
    }
    if facts.voters().is_empty() {
        // G8: a peer that came after our first Join waits for the next epoch.
        let since = facts.slot.series.gathering.joined_at.unwrap_or(facts.step.now);
        let gathering = &facts.slot.series.gathering;
        let joins = |peer: &PeerId| {
            gathering.missed_count(&facts.me.peer, peer) == 0
                || facts.validator.quorum.prepares() && gathering.joined_ever().any(|p| p == *peer)
        };
        let waited_for = |peer: &PeerId, seen: &PeerRecord| {
            !facts.keeps(Rule::G8) || (seen.since + FOUNDER_KNOWN <= since && joins(peer))
        };
        let outside = candidates_beside(facts).find(|(peer, seen)| {
            waited_for(peer, seen)
                && !regroup.members.iter().any(|m| m.peer == **peer)
                && admission::has_room(facts, regroup, peer)
        });
        if let Some((peer, _)) = outside {
            return Err(Refusal::Present(*peer));
        }
    }
    Ok(())
}

/// Whether a peer without a vote has missed too many Regroups that named it and that we have
/// joined.
fn misses_regroups(facts: Facts<'_>, peer: &PeerId) -> bool {
    let passed = || facts.slot.series.gathering.missed_count(&facts.me.peer, peer);
    !facts.names_voter(peer) && passed() > REGROUPS_MISSED_MAX
}

/// R20: how long a voter that was restarted waits at most for the others.
pub(super) fn return_wait(facts: Facts<'_>) -> Duration {
    let wait = if facts.said_goodbye() { RETURN_WAIT } else { Duration::ZERO };
    facts.step.table.grace.max(wait)
}

/// R12, R20: whether we have returned, and other peers may have gone on without us and can still tell us: a voter has not
/// said goodbye, and was not heard since or claims a greater head; or a live peer is in a series opened by Regroups that
/// we lack.
pub(super) fn awaits_news(facts: Facts<'_>) -> bool {
    let Some(returned) = facts.returned else { return false };
    let told = |seen: &PeerRecord| {
        let here = seen.beat.head.epoch <= facts.slot.head.epoch;
        seen.has_left() || (here && seen.spoke_at() >= returned.since)
    };
    let unsure = |voter: &Voter| {
        let seen = facts.step.table.peers.get(&voter.peer);
        *voter != facts.me.voter() && !seen.is_some_and(told)
    };
    can_part(facts)
        && facts.step.now < returned.until
        && (facts.voters().iter().any(unsure) || is_any_parted(facts))
}

/// R12: whether we entered this series lately while a live peer is in a series of this epoch that
/// we lack: it may lead us there.
pub(super) fn may_be_led(facts: Facts<'_>) -> bool {
    let lately = facts.step.now < facts.slot.series.entered + facts.step.table.grace;
    lately && can_part(facts) && is_any_parted(facts)
}

/// Whether a live peer is in a series of this epoch, after a Regroup, that we have not been in.
fn is_any_parted(facts: Facts<'_>) -> bool {
    let parted = |seen: &PeerRecord| {
        let series = seen.beat.series;
        series.is_beside(&facts.series())
            && series.regroup.is_some()
            && !facts.slot.chain.contains(&series)
    };
    facts.step.table.live(facts.step.now).any(|(_, seen)| parted(seen))
}

/// T9: how many of these peers, and us, a founding may name, as far as their tickets have uses left.
pub(super) fn admitted<'a>(
    facts: Facts<'a>,
    others: impl Iterator<Item = (&'a PeerId, &'a PeerRecord)>,
) -> usize {
    let others = others.map(|(peer, seen)| Voter { peer: *peer, log: seen.beat.log });
    admission::gathered(facts, others.chain([facts.me.voter()]).collect()).0.len()
}

/// When a founding is to be expected if no further peer comes, and of how many peers; `None` while too few are heard.
pub(super) fn expected(facts: Facts<'_>) -> Option<(Time, usize)> {
    if !facts.voters().is_empty() || facts.behind {
        return None;
    }
    let latest = candidates_beside(facts).map(|(_, seen)| seen.since).max()?;
    let peers = admitted(facts, candidates_beside(facts));
    let steady = latest + FOUNDER_HEARD + facts.step.table.heartbeat * FOUNDING_HEARTBEATS;
    let turn = facts.slot.series.gathering.turn;
    (peers >= facts.validator.peers_min).then(|| (turn.map_or(steady, |turn| turn.due), peers))
}

/// Whether others can go on without us, and we without them: not before the founding, and not if
/// Regroups are forbidden.
fn can_part(facts: Facts<'_>) -> bool {
    facts.slot.head.epoch > 0 && facts.validator.quorum.regroups()
}

/// R43: whether a founding still waits for direct connections, of us with the peers that take part,
/// or of one of them with anybody.
pub(super) fn awaits_links(facts: Facts<'_>) -> bool {
    let Some(since) = facts.slot.series.gathering.founding_since else { return false };
    let mut beside = candidates_beside(facts);
    facts.step.now < since + PUNCHING
        && beside.any(|(peer, seen)| !facts.reach.is_linked(peer) || !seen.beat.direct)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use crate::access::admit::Level;
    use crate::access::notices::Notices;
    use crate::base::id::{Digest, LogId, PeerId, RunId};
    use crate::base::rule::Rules;
    use crate::base::sign::Keypair;
    use crate::base::time::Time;
    use crate::consensus::epoch::{Config, Credentials, Input, Start, State};
    use crate::history::lineage::{Capacity, LocalPeer, Validator};
    use crate::history::log::Record;
    use crate::machine::output::Output;
    use crate::machine::step::{Decision, Step};
    use crate::machine::table::{PeerRecord, PeerTable, beat};
    use crate::message::wire;
    use crate::message::{Absence, Head, Message, QuorumRule, Regroup, Series, Voter};

    /// Whether a voter joins a Regroup of all voters that are alive, of `alive` of five.
    fn joins(alive: u8) -> bool {
        let key = |n: u8| Keypair::from_seed(&[n; 32]);
        let voter = |n: u8| Voter { peer: key(n).peer(), log: LogId([0; 16]) };
        let (run, organiser) = (RunId([7; 32]), PeerId([9; 32]));
        let validator = Validator {
            run,
            key: key(1),
            peers_min: 1,
            quorum: QuorumRule::Available,
            elements: 1,
            capacity: Capacity::Counted(1),
            level: Level::Open,
            organiser,
            rules: Rules::ALL,
        };
        let me = LocalPeer { peer: key(1).peer(), log: LogId([0; 16]), incarnation: 1 };
        let (ready_grace, credentials) = (Duration::from_secs(10), Credentials::default());
        let config = Config { ready_grace, update_bytes: 1, credentials };
        let head = Head { epoch: 0, tokens: 0, state: Digest::ZERO };
        let start = Start { head, voters: (1..=5).map(voter).collect(), ledger: None };
        let notices = Notices::new(run, organiser, Level::Open);
        let mut state = State::new(Time::ZERO, validator, me, config, start, &notices);
        let mut table = PeerTable::new(Duration::from_millis(500), Duration::from_secs(8));
        let regroup = Regroup {
            series: Series::after(&head),
            number: 1,
            proposer: key(2).peer(),
            members: (1..=alive).map(voter).collect(),
            absent: (alive + 1..=5).map(|n| (voter(n), Absence::Silent)).collect(),
            trust: None,
        };
        let message = Arc::new(wire::seal(&key(2), &run, Message::Regroup(regroup)));
        let mut out = Vec::new();
        for second in 0..=8 {
            let now = Time::ZERO + Duration::from_secs(second);
            let heard = (2..=alive).map(|n| (voter(n).peer, PeerRecord::new(&beat(), now)));
            table.peers.extend(heard);
            let step = &mut Step { now, table: &table, out: &mut out };
            let last = (second == 8).then(|| Input::Message(Arc::clone(&message)));
            state.handle(step, last.unwrap_or(Input::Tick));
        }
        let joined = |d: &Decision| matches!(d, Decision::Out(Output::Log(Record::Joined { .. })));
        out.iter().any(joined)
    }

    #[test]
    fn r12_nobody_leaves_a_series_whose_majority_is_present() {
        assert!(joins(2), "two of five regroup");
        assert!(!joins(5), "nobody is absent");
        assert!(!joins(3), "three of five are a majority");
    }
}
