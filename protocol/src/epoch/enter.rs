//! Entering an epoch, and a series of it: afresh, or as the log of votes left it (R13, R20).

use std::sync::Arc;

use crate::log::Votes;
use crate::message::{Head, Message, Roster, Series, Voter};
use crate::roll::Roll;
use crate::time::Time;

use super::keep::Remains;
use super::loss::Losses;
use super::regroup::Gathering;
use super::{Ballot, Output, RingState, Stage, State, Vote, ready};

impl State {
    /// Binds a peer that has just started by the votes that its log still has.
    #[must_use]
    pub fn bound_by(mut self, now: Time, roll: &Roll, votes: Votes, median: Option<u64>) -> Self {
        self.votes = votes;
        self.votes.forget(self.head.epoch);
        self.limit_weight(median);
        self.resume(now, roll);
        self
    }

    /// R20: goes back to the series that the log last entered, and to where it stood there.
    fn resume(&mut self, now: Time, roll: &Roll) {
        loop {
            self.resume_ballots();
            let Some(opening) = self.votes.of(self.series).opened().cloned() else { break };
            self.enter_opened(now, opening);
        }
        let bound = self.votes.of(self.series);
        let (attempt, joined) = (bound.attempt(), bound.joined().cloned());
        let accepted = bound.accepted(attempt);
        self.attempt_seen = attempt;
        if let Some(joined) = joined {
            let until = now + self.accept_time(now, roll, joined.regroup.number);
            let regroup = self.resume_joined(joined);
            self.stage = Stage::Joined { regroup, until };
        } else if let Some(roster) = accepted {
            self.stage = match self.roster(&roster) {
                // We voted on it, or may yet, once its update is here.
                Some(body) => {
                    Stage::Reduce { roster, until: now + self.ring_time(now, roll, body) }
                }
                None => Stage::Idle { patience: None },
            };
        } else if attempt > 0 {
            let wait = self.ask_time(now, roll, attempt) + self.accept_time(now, roll, attempt);
            let attempt = attempt.saturating_add(1);
            self.stage = Stage::Recover { attempt, since: now + wait };
        }
    }

    /// The rosters that we accepted in this series, with our own word on each. Whether the last vote was
    /// said as well is not known: it is said again, like one that is given now.
    fn resume_ballots(&mut self) {
        let bound = self.votes.of(self.series);
        let said = |roster: &Roster| {
            let receipt =
                bound.done(roster.attempt).filter(|_| roster.attempt < bound.attempt())?;
            let done = self.config.law.done(roster, receipt);
            let (r, update) = (done.r, done.update);
            Some(Vote { r, update, signature: self.seal(Message::Done(done)).signature() })
        };
        let ballots: Vec<(_, Ballot)> = bound
            .rosters()
            .map(|(digest, roster)| {
                let mut ballot = Ballot { roster: Some(Arc::clone(roster)), ..Ballot::default() };
                // The ring needs the delta of the process that was.
                ballot.ring = RingState::Lost;
                ballot.accepts.insert(self.config.me);
                ballot.computed = bound.done(roster.attempt).map(|receipt| receipt.update);
                ballot.dones.extend(said(roster).map(|vote| (self.config.me, vote)));
                (digest, ballot)
            })
            .collect();
        self.ballots.extend(ballots);
    }

    /// Begins the epoch after `head`.
    pub(super) fn enter(
        &mut self,
        now: Time,
        roll: &Roll,
        head: Head,
        voters: Vec<Voter>,
        out: &mut Vec<Output>,
    ) {
        self.ready_median = ready::median(&mut self.ready_after).or(self.ready_median);
        self.head = head;
        self.base = voters.clone();
        self.began = now;
        self.openings.clear();
        self.chain.clear();
        self.forced = None;
        self.votes.forget(head.epoch);
        self.ballots.clear();
        self.ready.clear();
        self.ready_after.clear();
        self.broken.clear();
        self.lost = Losses::default();
        self.held.clear();
        self.remains = Remains::default();
        self.unserved.clear();
        self.commit_heard = None;
        self.frozen = None;
        self.enter_series(now, Series::after(&head), voters);
        self.early.retain(|m| m.body().series().is_some_and(|s| s.epoch > head.epoch));
        self.resume(now, roll);
        out.push(Output::Train(head));
        roll.live(now).for_each(|(peer, _)| self.learn_ready(now, roll, *peer));
        self.replay_early(now, roll, out);
    }

    pub(super) fn enter_series(&mut self, now: Time, series: Series, voters: Vec<Voter>) {
        self.series = series;
        self.chain.push(series);
        self.voters = voters;
        self.entered = now;
        self.stage = Stage::Idle { patience: None };
        self.attempt_seen = 0;
        self.asking = None;
        self.gathering = Gathering::default();
        self.turn_since = None;
        self.stalled = 0;
        self.adopted.clear();
        self.closed.clear();
        self.replied.clear();
        self.fetching = None;
        self.fetch_after = now;
        self.stuck_told = false;
    }

    pub(super) fn replay_early(&mut self, now: Time, roll: &Roll, out: &mut Vec<Output>) {
        for message in std::mem::take(&mut self.early) {
            self.on_message(now, roll, &message, out);
        }
    }
}
