//! What ends an attempt: a deadline, a loss or a refusal; and which peers it counts against (R8,
//! R35, R37–R39, G4, G9).

use std::sync::Arc;
use std::time::Duration;

use crate::base::id::{Digest, PeerId};
use crate::base::rule::Rule;
use crate::machine::event::{Event, Progress, Reason};
use crate::machine::output::Output;
use crate::message::{MEMBERS_MAX, Member, Message, Refusal, Refuse, Roster, Stalled};

use super::attendance::Question;
use super::ballot::RingState;
use super::conduct::{Decline, Halt};
use super::facts::Facts;
use super::open_epoch::Epoch;
use super::series::Stage;
use super::slot::{Declared, Slot};
use super::timers::Timer;
use super::{admission, founders, patience, salvage, send, timers, turns, waits};

/// Attempts of one series after which the user gets a report (R39).
const ATTEMPTS_MAX: u64 = 256;

/// R35: our own ring has stopped, which we say while nobody is known to have its update.
pub(super) fn on_ring_stopped(epoch: &mut Epoch<'_>, digest: Digest, halt: Halt) {
    let Some(roster) = epoch.slot.roster(&digest).cloned() else { return };
    epoch.slot.ballot(&epoch.me.peer, digest).ring = RingState::Lost;
    if epoch.slot.has_update(epoch.validator.quorum, &digest) || roster.series != epoch.series() {
        return;
    }
    let Halt { lost, hops } = halt;
    let stalled = Stalled { series: roster.series, roster: digest, lost, hops };
    epoch.step.put(Output::Gossip(epoch.validator.seal(Message::Stalled(stalled))));
    let members: Vec<PeerId> = roster.ring().map(|m| m.peer).collect();
    let is_ordered = is_early(epoch.facts(), &digest, &roster);
    epoch.conduct.note_halt((digest, members), epoch.me.peer, halt, is_ordered);
    if let Some(neighbour) = lost {
        epoch.conduct.note_loss(&epoch.step, neighbour, epoch.me.peer);
    }
    if epoch.slot.series.is_at(digest, Progress::Reduce) {
        lose_ring(epoch, digest);
    }
}

/// R35: the ring of another member has stopped. If its neighbour is gone, ours cannot end either.
pub(super) fn on_stalled(epoch: &mut Epoch<'_>, from: PeerId, stalled: &Stalled) {
    let digest = stalled.roster;
    if !salvage::has_opened(epoch.facts(), &digest) {
        return;
    }
    let Some(roster) = epoch.slot.roster(&digest) else { return };
    let members: Vec<PeerId> = roster.ring().map(|m| m.peer).collect();
    let Some(position) = members.iter().position(|peer| *peer == from) else { return };
    let count = members.len();
    let around = [members[(position + 1) % count], members[(position + count - 1) % count]];
    let Stalled { lost, hops, .. } = *stalled;
    if lost.is_some_and(|who| who == from || !around.contains(&who)) {
        return;
    }
    let is_ordered = is_early(epoch.facts(), &digest, roster);
    epoch.conduct.note_halt((digest, members), from, Halt { lost, hops }, is_ordered);
    let Some(lost) = lost else { return };
    if lost != epoch.me.peer {
        epoch.conduct.note_loss(&epoch.step, lost, from);
    }
    let stopped = epoch.conduct.has_stopped(&digest, &lost);
    if !stopped && epoch.slot.series.is_at(digest, Progress::Reduce) {
        lose_ring(epoch, digest);
    }
}

/// R40: whether a member that stops this ring now has no reason but a neighbour: well before T_ring,
/// and nothing that is kept can be missing. The clocks of members differ by less than that eighth.
fn is_early(facts: Facts<'_>, digest: &Digest, roster: &Roster) -> bool {
    let Stage::Open { roster: open, progress: Progress::Reduce, until, .. } =
        facts.slot.series.stage
    else {
        return false;
    };
    let spare = facts.ring_time(roster) / 8;
    open == *digest && roster.keep.is_empty() && facts.step.now + spare < until
}

/// If anybody has voted, the update exists and is fetched (R6). Else a higher attempt is due.
fn lose_ring(epoch: &mut Epoch<'_>, roster: Digest) {
    let has_update = epoch.slot.has_update(epoch.validator.quorum, &roster);
    epoch.slot.stop_ring(&mut epoch.step, roster);
    let Some(ballot) = epoch.slot.ballots.get_mut(&roster) else { return };
    ballot.ring = RingState::Lost;
    if !has_update {
        recover(epoch, Reason::RingLost);
    }
}

/// G4: the answer of a peer that does not accept our roster. A voter shows its promise by it,
/// whatever it refuses. `Unproven` is answered with the proof and costs nothing. The first `Early`
/// of a peer leaves our roster open; any other refusal of a member with a position ends the
/// attempt.
pub(super) fn on_refuse(epoch: &mut Epoch<'_>, from: PeerId, refuse: &Refuse) {
    let me = epoch.me.peer;
    let mine = |r: &&Arc<Roster>| r.proposer == me && r.member(&from).is_some();
    let roster = epoch.slot.roster(&refuse.what).filter(mine).cloned();
    if epoch.names_voter(&from) {
        learn_promise(epoch, from, refuse.promised);
    }
    let Some(roster) = roster else { return };
    if refuse.reason == Refusal::Unproven {
        epoch.step.put_all(send::prove_adopted(epoch.facts(), from, &roster));
        epoch.step.put_all(send::prove_kept(epoch.facts(), from, &roster));
        return;
    }
    if !epoch.slot.series.is_at(refuse.what, Progress::Accepted) {
        return;
    }
    // If a peer is right that it is early, it accepts the same roster later: its patience is a little
    // longer than ours.
    let waits = matches!(refuse.reason, Refusal::Early(_)) && !epoch.conduct.has_declined(&from);
    if let (true, Refusal::Early(left_ms)) = (waits, refuse.reason) {
        if !epoch.slot.ballot(&me, refuse.what).early.insert(from) {
            return;
        }
        outlast(epoch, &roster, refuse.what, Duration::from_millis(left_ms.into()));
    }
    let how = match refuse.reason {
        Refusal::Lacks(voter) if roster.member(&voter).is_none() && epoch.names_voter(&voter) => {
            epoch.slot.reported_alive.insert(voter);
            Decline::Justified
        }
        Refusal::Expired(_) => Decline::Expired,
        reason if waits || admission::is_justified(epoch.facts(), &roster, reason) => {
            Decline::Justified
        }
        _ => Decline::Refused,
    };
    epoch.conduct.note_decline(from, how);
    // G4: a refusal costs the refuser its position, and the others this attempt at most.
    if !waits && roster.ring().any(|m| m.peer == from) {
        recover(epoch, Reason::Refused);
    }
}

/// Waits with our roster until the patience of other voters is over, if they are more than may lie.
/// Peers remember differently whom an epoch has awaited in vain (G5), so one proposes before the
/// others accept; alone it would use up attempts that they come to later.
fn outlast(epoch: &mut Epoch<'_>, roster: &Roster, digest: Digest, left: Duration) {
    let facts = epoch.facts();
    let Some(ballot) = facts.slot.ballots.get(&digest) else { return };
    let voters = ballot.early.iter().filter(|peer| facts.names_voter(peer)).count();
    if voters <= facts.validator.quorum.liars(facts.voters().len()) {
        return;
    }
    let left = left.min(patience::longest_beyond_ours(facts));
    let end = facts.step.now + left + facts.accept_time_of(roster);
    if let Stage::Open { until, .. } = &mut epoch.slot.series.stage {
        *until = end.max(*until);
    }
}

/// Learns what a voter has promised, from its refusal. The greatest number says that it has left
/// the series.
fn learn_promise(epoch: &mut Epoch<'_>, from: PeerId, promised: u64) {
    epoch.conduct.note_bound(&from);
    if promised == u64::MAX {
        if epoch.slot.series.closed.len() < MEMBERS_MAX {
            epoch.slot.series.closed.insert(from);
        }
    } else {
        epoch.slot.series.note_reached(from, promised);
    }
}

/// Ends the attempt under way; the next one is due.
pub(super) fn recover(epoch: &mut Epoch<'_>, reason: Reason) {
    if let Stage::Open { until, progress: Progress::Accepted, .. } = epoch.slot.series.stage {
        epoch.slot.series.bound_until = until;
    }
    epoch.slot.abort(&mut epoch.step, reason);
    let attempt = epoch.bound().attempt().max(1).saturating_add(1);
    await_attempt(epoch, attempt);
}

/// R37: comes to an attempt, whose roster is due once enough voters have come to it.
pub(super) fn await_attempt(epoch: &mut Epoch<'_>, attempt: u64) {
    epoch.slot.series.stage = Stage::Recover { attempt, until: None };
    epoch.slot.series.asking.take_if(|asking| asking.attempt < attempt);
    if attempt > ATTEMPTS_MAX && !epoch.slot.series.stuck_reported {
        epoch.slot.series.stuck_reported = true;
        let stuck = Event::Stuck { epoch: epoch.series().epoch, attempts: attempt };
        epoch.step.put(Output::Event(stuck));
    }
}

/// R37: begins to wait for a roster. Where voters may lie, so many must have come to its attempt
/// that all others will: a hasty voter would leave one attempt after another before they come to
/// it. Nobody waits where the owner seems dead.
pub(super) fn begin_wait(epoch: &mut Epoch<'_>) -> bool {
    let Stage::Recover { attempt, until: None } = epoch.slot.series.stage else { return false };
    let facts = epoch.facts();
    let expected = turns::is_expected(facts, attempt);
    if expected && facts.validator.quorum.prepares() && turns::common(facts) < attempt {
        return false;
    }
    let wait = if expected { facts.ask_time() + facts.accept_time() } else { Duration::ZERO };
    let until = Some(epoch.step.now + wait);
    epoch.slot.series.stage = Stage::Recover { attempt, until };
    true
}

/// R38: comes to the attempt of the others, once more of them have than may lie.
pub(super) fn follow_others(epoch: &mut Epoch<'_>) -> bool {
    let undecided = epoch.slot.series.stage.is_undecided();
    if !undecided || epoch.process.behind || epoch.process.leaving.is_some() {
        return false;
    }
    let common = turns::common(epoch.facts());
    let follows = common > turns::ours(epoch.facts()).max(1);
    if follows {
        // Some voter that does not lie has waited for these Accepts, or bytes, as long as it must.
        match epoch.slot.series.stage {
            Stage::Open { roster, progress: Progress::Accepted, .. } => note_late(epoch, roster),
            Stage::Open { roster, progress: Progress::Reduce, .. } => note_withheld(epoch, roster),
            _ => {}
        }
        epoch.slot.abort(&mut epoch.step, Reason::HigherAttempt);
        await_attempt(epoch, common);
    }
    follows
}

/// R37: whether we go on to the next attempt by ourselves, once the wait for a roster is over.
pub(super) fn may_go_on(facts: Facts<'_>) -> bool {
    // G6: a high attempt number is no reason to hurry.
    let early = || {
        facts.keeps(Rule::G6)
            && facts.slot.is_untouched(&facts.me.peer)
            && patience::is_too_early(facts)
    };
    !facts.behind
        && facts.leaving.is_none()
        && (facts.is_voter() || !facts.keeps(Rule::G1))
        && !facts.voters().is_empty()
        && facts.has_majority()
        && facts.hears_majority()
        && !facts.said_goodbye()
        && !founders::awaits_news(facts)
        && !early()
}

/// R37: no roster of this attempt has come. Its owner may be dead, or our timers too short.
pub(super) fn end_wait(epoch: &mut Epoch<'_>, attempt: u64) {
    let facts = epoch.facts();
    let (expected, common) = (turns::is_expected(facts, attempt), turns::common(facts));
    if expected {
        epoch.slot.count_failure();
    }
    if epoch.bound().promised() == attempt && common >= attempt {
        note_unanswered(epoch, |slot, peer| {
            slot.series.answered.get(peer).is_none_or(|highest| *highest < attempt)
        });
    }
    await_attempt(epoch, attempt.saturating_add(1));
}

/// R37: the deadline of any phase makes the next attempt due.
pub(super) fn time_out(epoch: &mut Epoch<'_>) -> bool {
    let over = || timers::is_over(epoch.facts(), Timer::Stage);
    let reason = match epoch.slot.series.stage {
        Stage::Open { roster, progress, .. } if over() => match progress {
            Progress::Accepted => {
                note_late(epoch, roster);
                Reason::AcceptsMissing
            }
            Progress::Reduce => {
                note_withheld(epoch, roster);
                Reason::UpdateMissing
            }
            Progress::Finished => {
                // Voters that the roster names, and that have not voted on it.
                note_unanswered(epoch, |slot, peer| {
                    slot.ballots.get(&roster).is_some_and(|ballot| {
                        let roster = ballot.roster.as_ref();
                        roster.is_some_and(|r| r.member(peer).is_some())
                            && !ballot.dones.contains_key(peer)
                    })
                });
                Reason::VotesMissing
            }
        },
        Stage::Idle { left_out: Some(_) } if over() => {
            epoch.slot.count_failure();
            Reason::LeftOut
        }
        Stage::Recover { attempt, .. } if over() && may_go_on(epoch.facts()) => {
            end_wait(epoch, attempt);
            return true;
        }
        _ => return false,
    };
    recover(epoch, reason);
    true
}

/// G9: notes it against each voter that is here and owes us a reply.
fn note_unanswered(epoch: &mut Epoch<'_>, owes: impl Fn(&Slot, &PeerId) -> bool) {
    let facts = epoch.facts();
    let here = facts.live(Question::Answers).map(|(peer, _)| *peer);
    let owing = here.filter(|peer| facts.names_voter(peer) && owes(facts.slot, peer));
    for peer in owing.collect::<Vec<_>>() {
        epoch.conduct.note_unanswered(peer, epoch.step.now);
    }
}

/// R37: remembers the members whose Accept is missing, so that they delay no second roster. Where
/// two rosters crossed, a member that accepted the other one is bound by it, and not late. Nor is one
/// whose start or weight the roster has wrong, since it cannot accept that.
fn note_late(epoch: &mut Epoch<'_>, roster: Digest) {
    let Some(roster) = epoch.slot.roster(&roster).cloned() else { return };
    let same = |r: &Arc<Roster>| (r.series, r.attempt) == (roster.series, roster.attempt);
    let ballots = epoch.slot.ballots.values();
    let ballots: Vec<_> = ballots.filter(|b| b.roster.as_ref().is_some_and(same)).collect();
    let accepts = |m: &&Member| ballots.iter().any(|b| b.accepts.contains_key(&m.peer));
    let missing = roster.members.iter().filter(|m| !accepts(m));
    let missing: Vec<Member> = missing.filter(|m| m.peer != epoch.me.peer).copied().collect();
    for Member { peer, incarnation, weight, .. } in missing {
        let is_misnamed = |r: &Declared| (r.incarnation, r.weight) != (incarnation, weight);
        if weight > 0 && epoch.slot.ready.get(&peer).is_none_or(is_misnamed) {
            epoch.conduct.note_misnamed(peer, roster.proposer);
        } else if weight > 0 {
            epoch.conduct.note_decline(peer, Decline::Late);
        }
        if epoch.names_voter(&peer) {
            epoch.conduct.note_unanswered(peer, epoch.step.now);
        }
    }
}

/// R8: the authors of a value whose bytes did not come are left out next time.
fn note_withheld(epoch: &mut Epoch<'_>, roster: Digest) {
    let adopt = epoch.slot.roster(&roster).and_then(|roster| roster.adopt.as_ref());
    let Some(update) = adopt.map(|receipt| receipt.update) else { return };
    if let Some(adopted) = epoch.slot.series.adopted.get_mut(&update) {
        adopted.missed = true;
    }
}

/// R37: a peer that a roster leaves out waits three times as long as that may take before it asks. A
/// ring in which we have a position, and that we refuse, does not begin: it waits until the others see that.
pub(super) fn note_left_out(epoch: &mut Epoch<'_>, roster: &Roster, refusal: Option<Refusal>) {
    let facts = epoch.facts();
    if let Stage::Idle { left_out } = &facts.slot.series.stage {
        let now = facts.step.now;
        let wait = if roster.ring().any(|member| member.peer == facts.me.peer) {
            facts.accept_time_of(roster) + patience::patience_left(facts).unwrap_or_default()
        } else {
            3 * (facts.accept_time() + facts.ring_time(roster) + facts.done_time())
        };
        let until = (now + wait).max(left_out.map_or(now, |(until, _)| until));
        let why = waits::obstacle(facts, roster, refusal);
        epoch.slot.series.stage = Stage::Idle { left_out: Some((until, why)) };
    }
}

/// R32: a chunk that a ring was to keep cannot be fetched.
pub(super) fn on_chunk_missing(epoch: &mut Epoch<'_>, roster: Digest, chunk: (Digest, u32)) {
    epoch.slot.chunks.note_undelivered(chunk);
    if epoch.slot.series.is_at(roster, Progress::Reduce) {
        recover(epoch, Reason::KeptUnserved);
    }
}
