//! Entering an epoch, and a series of it: afresh, or as the log of votes left it (R13, R20).

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::id::PeerId;
use crate::log::Votes;
use crate::message::{Head, Message, Roster, Voted, Voter};
use crate::output::Output;
use crate::step::Step;
use crate::wire;

use super::State;
use super::ballot::{Ballot, RingState, Vote};
use super::slot::Slot;
use super::term::{Progress, Stage};

impl State {
    /// Binds a peer that has just started by the votes that its log still has.
    #[must_use]
    pub fn bound_by(mut self, step: &Step<'_>, votes: Votes, median: Option<u64>) -> Self {
        self.votes = votes;
        self.votes.forget(self.slot.head.epoch);
        self.limit_weight(median);
        self.resume(step);
        // A peer with another log has left nobody behind.
        self.restarted = self.is_voter();
        self
    }

    /// R20: goes back to the series that the log last entered, and to where it stood there.
    fn resume(&mut self, step: &Step<'_>) {
        loop {
            self.resume_ballots();
            let Some(opening) = self.votes.of(self.series()).opened().cloned() else { break };
            self.enter_opened(step, opening);
        }
        let bound = self.votes.of(self.series());
        let (attempt, joined) = (bound.attempt(), bound.joined().cloned());
        let accepted = bound.accepted(attempt);
        self.slot.term.attempt_seen = attempt;
        if let Some(joined) = joined {
            let until = step.now + self.join_time(step);
            self.slot.term.stage = Stage::Joined { regroup: joined.digest, until };
            self.note_joined(joined);
        } else if let Some(roster) = accepted {
            self.slot.term.stage = match self.roster(&roster) {
                // We voted on it, or may yet, once its update is here.
                Some(body) => {
                    let until = step.now + self.ring_time(step, body);
                    Stage::Open { roster, progress: Progress::Reduce, until }
                }
                None => Stage::Idle { patience: None },
            };
        } else if attempt > 0 {
            let wait = self.ask_time(step) + self.accept_time(step);
            let attempt = attempt.saturating_add(1);
            self.slot.term.stage = Stage::Recover { attempt, since: step.now + wait };
        }
    }

    /// The rosters that we accepted in this series, with our own word on each. Whether the last vote was
    /// said as well is not known: it is said again, like one that is given now.
    fn resume_ballots(&mut self) {
        let bound = self.votes.of(self.series());
        let said = |roster: &Roster| {
            let voted = bound.done(roster.attempt).filter(|_| roster.attempt < bound.attempt())?;
            let done = self.law.done(roster, &voted.receipt());
            let (r, update) = (done.r, done.update);
            Some(Vote { r, update, signature: self.seal(Message::Done(done)).signature() })
        };
        let ballots: Vec<(_, Ballot)> = bound
            .rosters()
            .map(|(digest, roster)| {
                let mut ballot = Ballot { roster: Some(Arc::clone(roster)), ..Ballot::default() };
                // The ring needs the delta of the process that was.
                ballot.ring = RingState::Lost;
                let accept = self.accept_message(digest);
                ballot.accepts.insert(self.me.peer, accept.signature());
                ballot.computed = bound.done(roster.attempt).map(|voted| voted.update);
                ballot.dones.extend(said(roster).map(|vote| (self.me.peer, vote)));
                (digest, ballot)
            })
            .collect();
        let dones: Vec<Voted> = bound.dones().cloned().collect();
        self.slot.ballots.extend(ballots);
        for voted in dones {
            self.slot.grounds.insert(wire::ranked(&self.law.run, &voted), voted);
        }
    }

    /// Begins the epoch after `head`.
    pub(super) fn enter(&mut self, step: &mut Step<'_>, head: Head, voters: Vec<Voter>) {
        self.ready_median = self.measured().or(self.ready_median);
        self.count_guests(step);
        self.count_late(step);
        self.trouble.count_epoch(&self.troubled(), &self.members_seen());
        let stalled = if self.any_ring_lost() { self.members_seen() } else { BTreeSet::new() };
        self.stalls.count_epoch(&self.stallers(), &stalled);
        self.slot = Slot::new(step.now, head, voters);
        self.votes.forget(head.epoch);
        self.early.retain(|m| m.body().series().is_some_and(|s| s.epoch > head.epoch));
        self.resume(step);
        step.put(Output::Train { epoch: head.epoch.saturating_add(1), tokens: head.tokens });
        self.resume_admission(step);
        step.roll.live(step.now).for_each(|(peer, _)| self.learn_ready(step, *peer));
        self.replay_early(step);
    }

    /// Who was named with a place in a roster of this epoch.
    fn members_seen(&self) -> BTreeSet<PeerId> {
        let rosters = self.slot.ballots.values().filter_map(|ballot| ballot.roster.as_ref());
        rosters.flat_map(|roster| roster.ring()).map(|member| member.peer).collect()
    }

    pub(super) fn replay_early(&mut self, step: &mut Step<'_>) {
        for message in std::mem::take(&mut self.early) {
            self.on_message(step, &message);
        }
    }
}
