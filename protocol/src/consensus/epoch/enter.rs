//! How an epoch begins: entering it and its series, anew or as the log of votes left them, and
//! which peers are Ready in it (R13, R20, R31, R36).

use std::sync::Arc;

use crate::base::fault::{Fault, ReadyFault};
use crate::base::id::{Digest, PeerId};
use crate::history::log::Votes;
use crate::machine::event::Progress;
use crate::machine::output::Output;
use crate::machine::step::Step;
use crate::message::wire;
use crate::message::{Head, Message, Ready, Roster, Voted, Voter};

use super::ballot::{Ballot, RingState, Vote};
use super::series::Stage;
use super::slot::{Declared, Frozen, Slot};
use super::{State, patience};

impl State {
    /// Binds a peer that has just started by the votes that its log still has.
    #[must_use]
    pub fn bound_by(mut self, step: &Step<'_>, votes: Votes, median: Option<u64>) -> Self {
        self.votes = votes;
        self.votes.forget(self.slot.head.epoch);
        self.limit_weight(median);
        self.resume(step);
        // A peer with another log is another voter, and has left nobody behind.
        self.restarted = self.is_voter();
        self
    }

    /// R20: returns to the series that the log entered last, and to where it stood there.
    fn resume(&mut self, step: &Step<'_>) {
        loop {
            self.resume_ballots();
            let Some(opening) = self.votes.of(self.series()).opened().cloned() else { break };
            self.enter_opened(step, opening);
        }
        let bound = self.votes.of(self.series());
        let (attempt, joined) = (bound.attempt(), bound.joined().cloned());
        let accepted = bound.accepted(attempt);
        if let Some(joined) = joined {
            let until = step.now + self.facts(step).join_time();
            self.slot.series.stage = Stage::Joined { regroup: joined.digest, until };
            self.note_joined(joined);
        } else if let Some(roster) = accepted {
            self.slot.series.stage = match self.slot.roster(&roster) {
                // We voted on it, or may do so once its update is stored.
                Some(body) => {
                    let until = step.now + self.facts(step).ring_time(body);
                    Stage::Open { roster, progress: Progress::Reduce, until }
                }
                None => Stage::Idle { patience: None },
            };
        } else if attempt > 0 {
            let wait = self.facts(step).ask_time() + self.facts(step).accept_time();
            let attempt = attempt.saturating_add(1);
            self.slot.series.stage = Stage::Recover { attempt, until: step.now + wait };
        }
    }

    /// The rosters that we accepted in this series, with our own Accept and vote on each. The log
    /// does not say whether the last vote was sent, so it is sent again, like a new one.
    fn resume_ballots(&mut self) {
        let bound = self.votes.of(self.series());
        let said = |roster: &Roster| {
            if roster.attempt >= bound.attempt() {
                return None;
            }
            let voted = bound.done(roster.attempt)?;
            let done = self.validator.done(roster, &voted.receipt());
            let (r, update) = (done.r, done.update);
            Some(Vote { r, update, signature: self.seal(Message::Done(done)).signature() })
        };
        let ballot = |(digest, roster): (Digest, &Arc<Roster>)| {
            let mut ballot = Ballot { roster: Some(Arc::clone(roster)), ..Ballot::default() };
            // The ring needs the delta, which ended with the earlier process.
            ballot.ring = RingState::Lost;
            let accept = self.accept_message(digest);
            ballot.accepts.insert(self.me.peer, accept.signature());
            ballot.computed = bound.done(roster.attempt).map(|voted| voted.update);
            ballot.dones.extend(said(roster).map(|vote| (self.me.peer, vote)));
            (digest, ballot)
        };
        let ballots: Vec<(_, Ballot)> = bound.rosters().map(ballot).collect();
        let dones: Vec<Voted> = bound.dones().cloned().collect();
        self.slot.ballots.extend(ballots);
        for voted in dones {
            self.slot.grounds.insert(wire::ranked(&self.validator.run, &voted), voted);
        }
    }

    /// Begins the epoch after `head`, with nothing known of it.
    pub(super) fn enter(&mut self, step: &mut Step<'_>, head: Head, voters: Vec<Voter>) {
        self.ready_median = patience::measured(self.facts(step)).or(self.ready_median);
        let awaited = patience::awaited(self.facts(step));
        self.conduct.next_epoch(&self.validator, &self.slot, &awaited);
        self.slot = Slot::new(step.now, head, voters);
        self.votes.forget(head.epoch);
        self.early.retain(|m| m.body().series().is_some_and(|s| s.epoch > head.epoch));
        self.resume(step);
        step.put(Output::Train { epoch: head.epoch.saturating_add(1), tokens: head.tokens });
        self.resume_admission(step);
        step.table.live(step.now).for_each(|(peer, _)| self.learn_ready(step, *peer));
        self.replay_early(step);
    }

    pub(super) fn replay_early(&mut self, step: &mut Step<'_>) {
        for message in std::mem::take(&mut self.early) {
            self.on_message(step, &message);
        }
    }

    pub(super) fn on_trained(&mut self, step: &mut Step<'_>, tokens: u64, norm: f32) {
        let weight = tokens.min(self.weight_max);
        self.slot.frozen = Some(Frozen { weight, norm, at: step.now });
        self.announce_ready(step);
    }

    pub(super) fn on_ready(&mut self, step: &mut Step<'_>, from: PeerId, ready: &Ready) {
        if let Err(why) = self.note_ready(step, from, ready.incarnation, ready.weight) {
            step.put(Output::Fault(from, Fault::Ready(why)));
        }
    }

    /// Learns a Ready from a heartbeat, which repeats what a lost `Ready` would have said.
    pub(super) fn learn_ready(&mut self, step: &Step<'_>, peer: PeerId) {
        let Some(seen) = step.table.peers.get(&peer) else { return };
        let beat = &seen.beat;
        if beat.ready > 0 && beat.series.is_beside(&self.series()) {
            // A contradiction is a fault only if its author signed it as a Ready.
            let _ = self.note_ready(step, peer, beat.incarnation, beat.ready);
        }
    }

    fn note_ready(
        &mut self,
        step: &Step<'_>,
        peer: PeerId,
        incarnation: u64,
        weight: u64,
    ) -> Result<(), ReadyFault> {
        if !self.can_weigh(weight) {
            return Ok(());
        }
        match self.slot.ready.get(&peer) {
            Some(known) if known.incarnation == incarnation => {
                let same = known.weight == weight;
                if same { Ok(()) } else { Err(ReadyFault::Changed) }
            }
            Some(known) if known.incarnation > incarnation => Ok(()),
            _ => {
                self.slot.ready.insert(peer, Declared { incarnation, weight, at: step.now });
                Ok(())
            }
        }
    }

    /// Whether an epoch can hold that weight.
    pub(super) fn can_weigh(&self, weight: u64) -> bool {
        (1..=self.weight_max).contains(&weight)
    }

    /// Bounds the weights of this epoch, by the median of the last receipt (G11).
    pub(super) fn limit_weight(&mut self, median: Option<u64>) {
        self.weight_max = self.validator.capacity.weight_max(median);
    }

    /// Reads heartbeats by the voters of the open series from now on, if the series has changed.
    pub(super) fn follow_series(&mut self, step: &Step<'_>) {
        let (series, voters) = (self.slot.series.name, &self.slot.series.voters);
        self.reach.follow(step.table, series, voters);
    }

    /// Reads what a heartbeat says of its author's connections.
    pub(super) fn learn_links(&mut self, step: &Step<'_>, peer: PeerId) {
        if let Some(seen) = step.table.peers.get(&peer) {
            self.reach.hear(peer, &seen.beat);
        }
    }
}
