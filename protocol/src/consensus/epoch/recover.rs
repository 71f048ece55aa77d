//! What ends an attempt: a deadline, a loss or a refusal; and which peers it counts against (R8,
//! R35, R37).

use std::sync::Arc;
use std::time::Duration;

use crate::base::id::{Digest, PeerId};
use crate::base::rule::Rule;
use crate::machine::event::{Event, Progress, Reason};
use crate::machine::output::Output;
use crate::machine::step::Step;
use crate::message::{MEMBERS_MAX, Member, Message, Refusal, Refuse, Roster, Stalled};

use super::attendance::Question;
use super::ballot::RingState;
use super::conduct::{Amends, Decline, Halt, Offence};
use super::series::Stage;
use super::timers::Timer;
use super::{State, founders, patience, salvage, timers, turns};

/// Attempts of one series after which the user gets a report (R39).
const ATTEMPTS_MAX: u64 = 256;

impl State {
    /// R35: our own ring has stopped, which we say while nobody is known to have its update.
    pub(super) fn on_ring_stopped(&mut self, step: &mut Step<'_>, digest: Digest, halt: Halt) {
        let Some(roster) = self.slot.roster(&digest).cloned() else { return };
        self.ballot(digest).ring = RingState::Lost;
        if self.slot.has_update(self.validator.quorum, &digest) || roster.series != self.series() {
            return;
        }
        let Halt { lost, hops } = halt;
        let stalled = Stalled { series: roster.series, roster: digest, lost, hops };
        step.put(Output::Gossip(self.seal(Message::Stalled(stalled))));
        let members: Vec<PeerId> = roster.ring().map(|m| m.peer).collect();
        self.conduct.note_stopped(digest, &members, self.me.peer, halt);
        if let Some(neighbour) = lost {
            self.conduct.note(step, neighbour, Offence::Lost { by: Some(self.me.peer) });
        }
        if self.slot.series.is_at(digest, Progress::Reduce) {
            self.lose_ring(step, digest);
        }
    }

    /// R35: the ring of another member has stopped. If its neighbour is gone, ours cannot end either.
    pub(super) fn on_stalled(&mut self, step: &mut Step<'_>, from: PeerId, stalled: &Stalled) {
        let digest = stalled.roster;
        if !salvage::has_opened(self.facts(step), &digest) {
            return;
        }
        let Some(roster) = self.slot.roster(&digest) else { return };
        let members: Vec<PeerId> = roster.ring().map(|m| m.peer).collect();
        let Some(position) = members.iter().position(|peer| *peer == from) else { return };
        let count = members.len();
        let around = [members[(position + 1) % count], members[(position + count - 1) % count]];
        let Stalled { lost, hops, .. } = *stalled;
        if lost.is_some_and(|who| who == from || !around.contains(&who)) {
            return;
        }
        self.conduct.note_stopped(digest, &members, from, Halt { lost, hops });
        let Some(lost) = lost else { return };
        if lost != self.me.peer {
            self.conduct.note(step, lost, Offence::Lost { by: Some(from) });
        }
        let stopped = self.conduct.has_stopped(&digest, &lost);
        if !stopped && self.slot.series.is_at(digest, Progress::Reduce) {
            self.lose_ring(step, digest);
        }
    }

    /// If anybody has voted, the update exists and is fetched (R6). Else a higher attempt is due.
    fn lose_ring(&mut self, step: &mut Step<'_>, roster: Digest) {
        let has_update = self.slot.has_update(self.validator.quorum, &roster);
        let Some(ballot) = self.slot.ballots.get_mut(&roster) else { return };
        if ballot.ring == RingState::Running {
            step.put(Output::Abandon(roster));
        }
        ballot.ring = RingState::Lost;
        if !has_update {
            self.recover(step, Reason::RingLost);
        }
    }

    pub(super) fn on_refuse(&mut self, step: &mut Step<'_>, from: PeerId, refuse: &Refuse) {
        let me = self.me.peer;
        let mine = |r: &&Arc<Roster>| r.proposer == me && r.member(&from).is_some();
        let roster = self.slot.roster(&refuse.what).filter(mine).cloned();
        if self.names_voter(&from) {
            self.learn_promise(from, refuse.promised);
        }
        let Some(roster) = roster else { return };
        if refuse.reason == Refusal::Unproven {
            self.prove_adopted(step, from, &roster);
            return self.prove_kept(step, from, &roster);
        }
        if !self.slot.series.is_at(refuse.what, Progress::Accepted) {
            return;
        }
        // If that is true, it accepts the same roster later: its patience is a little longer than ours.
        let waits = matches!(refuse.reason, Refusal::Early(_)) && !self.conduct.has_declined(&from);
        let how = match refuse.reason {
            Refusal::Lacks(voter)
                if roster.member(&voter).is_none() && self.names_voter(&voter) =>
            {
                self.slot.reported_alive.insert(voter);
                Decline::Justified
            }
            Refusal::Expired(_) => Decline::Expired,
            reason if waits || self.is_justified(&roster, reason) => Decline::Justified,
            _ => Decline::Refused,
        };
        self.conduct.note(step, from, Offence::Declined(how));
        // G4: a refusal costs the refuser its position, and the others this attempt at most.
        if !waits && roster.ring().any(|m| m.peer == from) {
            self.recover(step, Reason::Refused);
        }
    }

    /// Learns what a voter has promised, from its refusal. The greatest number says that it has left
    /// the series.
    fn learn_promise(&mut self, from: PeerId, promised: u64) {
        self.conduct.clear(&from, Amends::Bound);
        if promised == u64::MAX {
            if self.slot.series.closed.len() < MEMBERS_MAX {
                self.slot.series.closed.insert(from);
            }
        } else {
            self.note_reached(from, promised);
        }
    }

    /// R38: a voter has come to this attempt, by a message of its own.
    pub(super) fn note_reached(&mut self, voter: PeerId, attempt: u64) {
        if attempt > 1 && self.names_voter(&voter) {
            let reached = self.slot.series.reached.entry(voter).or_default();
            *reached = attempt.max(*reached);
        }
    }

    /// Ends the attempt under way; the next one is due.
    pub(super) fn recover(&mut self, step: &mut Step<'_>, reason: Reason) {
        self.abort(step, reason);
        let attempt = self.votes.of(self.series()).attempt().max(1).saturating_add(1);
        self.await_attempt(step, attempt);
    }

    /// R37: comes to an attempt, and waits for its roster; not where its owner seems dead.
    pub(super) fn await_attempt(&mut self, step: &mut Step<'_>, attempt: u64) {
        let facts = self.facts(step);
        let expected = turns::is_expected(facts, attempt);
        let wait = if expected { facts.ask_time() + facts.accept_time() } else { Duration::ZERO };
        self.slot.series.stage = Stage::Recover { attempt, until: step.now + wait };
        self.slot.series.asking.take_if(|asking| asking.attempt < attempt);
        if attempt > ATTEMPTS_MAX && !self.slot.series.stuck_reported {
            self.slot.series.stuck_reported = true;
            let epoch = self.series().epoch;
            step.put(Output::Event(Event::Stuck { epoch, attempts: attempt }));
        }
    }

    /// R38: comes to the attempt of the others, once more of them have than may lie.
    pub(super) fn follow_others(&mut self, step: &mut Step<'_>) -> bool {
        let open = self.slot.series.stage.is_undecided();
        if !open || self.behind || self.leaving.is_some() {
            return false;
        }
        let common = turns::common(self.facts(step));
        let follows = common > turns::ours(self.facts(step)).max(1);
        if follows {
            // Some voter that does not lie has waited for these Accepts as long as it must.
            if let Stage::Open { roster, progress: Progress::Accepted, .. } = self.slot.series.stage
            {
                self.note_late(step, roster);
            }
            self.abort(step, Reason::HigherAttempt);
            self.await_attempt(step, common);
        }
        follows
    }

    /// R37: whether we go on to the next attempt by ourselves, once the wait for a roster is over.
    pub(super) fn may_go_on(&self, step: &Step<'_>) -> bool {
        let facts = self.facts(step);
        // G6: a high attempt number is no reason to hurry.
        let early = || {
            self.keeps(Rule::G6)
                && self.slot.is_untouched(&self.me.peer)
                && patience::is_too_early(facts)
        };
        !self.behind
            && self.leaving.is_none()
            && (self.is_voter() || !self.keeps(Rule::G1))
            && !self.voters().is_empty()
            && facts.has_majority()
            && !self.said_goodbye()
            && !founders::awaits_news(facts)
            && !early()
    }

    /// R37: no roster of this attempt has come. Its owner may be dead, or our timers too short.
    pub(super) fn end_wait(&mut self, step: &mut Step<'_>, attempt: u64) {
        let facts = self.facts(step);
        let (expected, common) = (turns::is_expected(facts, attempt), turns::common(facts));
        if expected {
            self.slot.failures.count_here();
        }
        if self.promised() == attempt && common >= attempt {
            self.count_missed_replies(step, attempt);
        }
        self.await_attempt(step, attempt.saturating_add(1));
    }

    /// Gives up the roster under way, if there is one.
    pub(super) fn abort(&mut self, step: &mut Step<'_>, reason: Reason) {
        let Stage::Open { roster: digest, progress, .. } = self.slot.series.stage else { return };
        if let Some(ballot) = self.slot.ballots.get_mut(&digest)
            && ballot.ring == RingState::Running
        {
            ballot.ring = RingState::Lost;
            step.put(Output::Abandon(digest));
        }
        // This counts for all members, no matter which of them ended the attempt. Among peers whose waits are too
        // short for a bad link, the hastiest one ends the attempt for all, and each time it may be
        // another one.
        self.slot.failures.count_here();
        let attempt = self.slot.roster(&digest).map_or(0, |roster| roster.attempt);
        let epoch = self.series().epoch;
        step.put(Output::Event(Event::Aborted { epoch, attempt, phase: progress, reason }));
        self.slot.series.stage = Stage::Idle { patience: None };
    }

    /// R37: the deadline of any phase makes the next attempt due.
    pub(super) fn time_out(&mut self, step: &mut Step<'_>) -> bool {
        let over = || timers::is_over(self.facts(step), Timer::Stage);
        let reason = match self.slot.series.stage {
            Stage::Open { roster, progress, .. } if over() => match progress {
                Progress::Accepted => {
                    self.note_late(step, roster);
                    Reason::AcceptsMissing
                }
                Progress::Reduce => {
                    self.note_withheld(roster);
                    Reason::UpdateMissing
                }
                Progress::Finished => {
                    self.note_voteless(step, roster);
                    Reason::VotesMissing
                }
            },
            Stage::Idle { patience: Some(_) } if over() => {
                self.slot.failures.count_here();
                Reason::LeftOut
            }
            Stage::Recover { attempt, .. } if over() && self.may_go_on(step) => {
                self.end_wait(step, attempt);
                return true;
            }
            _ => return false,
        };
        self.recover(step, reason);
        true
    }

    /// G9: voters that are here, and have not voted on the roster that names them.
    fn note_voteless(&mut self, step: &Step<'_>, roster: Digest) {
        let Some(ballot) = self.slot.ballots.get(&roster) else { return };
        let voted = |peer: &PeerId| ballot.dones.contains_key(peer);
        let named = |p: &PeerId| ballot.roster.as_ref().is_some_and(|r| r.member(p).is_some());
        let here = self.facts(step).live(Question::Answers).map(|(peer, _)| *peer);
        let missing: Vec<PeerId> =
            here.filter(|p| self.names_voter(p) && named(p) && !voted(p)).collect();
        missing.iter().for_each(|peer| self.conduct.note(step, *peer, Offence::Unanswered));
    }

    /// R37: remembers the members whose Accept is missing, so that they delay no second roster.
    fn note_late(&mut self, step: &Step<'_>, roster: Digest) {
        let Some(ballot) = self.slot.ballots.get(&roster) else { return };
        let Some(roster) = ballot.roster.clone() else { return };
        let missing = roster.members.iter().filter(|m| !ballot.accepts.contains_key(&m.peer));
        let missing: Vec<Member> = missing.filter(|m| m.peer != self.me.peer).copied().collect();
        for Member { peer, weight, .. } in missing {
            if weight > 0 {
                self.conduct.note(step, peer, Offence::Declined(Decline::Late));
            }
            if self.names_voter(&peer) {
                self.conduct.note(step, peer, Offence::Unanswered);
            }
        }
    }

    /// R8: the authors of a value whose bytes did not come are left out next time.
    fn note_withheld(&mut self, roster: Digest) {
        let adopt = self.slot.roster(&roster).and_then(|roster| roster.adopt.as_ref());
        let Some(update) = adopt.map(|receipt| receipt.update) else { return };
        if let Some(adopted) = self.slot.series.adopted.get_mut(&update) {
            adopted.missed = true;
        }
    }

    /// R37: a peer that no roster names waits three times as long before it asks.
    pub(super) fn be_patient(&mut self, step: &Step<'_>) {
        if let Stage::Idle { patience } = &self.slot.series.stage {
            let count = step.table.live_in(self.series(), step.now).count() + 1;
            let wait = self.facts(step).accept_time()
                + self.facts(step).ring_time_of(count, None)
                + self.facts(step).done_time();
            let until = (step.now + 3 * wait).max(patience.unwrap_or(step.now));
            self.slot.series.stage = Stage::Idle { patience: Some(until) };
        }
    }

    /// R32: a chunk that a ring was to keep cannot be fetched.
    pub(super) fn on_chunk_missing(
        &mut self,
        step: &mut Step<'_>,
        roster: Digest,
        chunk: (Digest, u32),
    ) {
        self.slot.chunks.note_undelivered(chunk);
        if self.slot.series.is_at(roster, Progress::Reduce) {
            self.recover(step, Reason::KeptUnserved);
        }
    }
}
