//! What ends an attempt: a deadline, a loss, a refusal; and who is to blame for it (R8, R35, R37, R40).

use std::sync::Arc;

use crate::event::Event;
use crate::id::{Digest, PeerId};
use crate::message::{Lost, MEMBERS_MAX, Message, Refuse, Roster};
use crate::output::Output;
use crate::step::Step;

use super::State;
use super::ballot::RingState;
use super::propose::pair;
use super::term::{Progress, Stage};

impl State {
    pub(super) fn on_ring_lost(&mut self, step: &mut Step<'_>, roster: Digest, neighbour: PeerId) {
        if !self.slot.term.is_at(roster, Progress::Reduce) {
            // What is decided meanwhile is fetched then.
            if let Some(ballot) = self.slot.ballots.get_mut(&roster) {
                ballot.ring = RingState::Lost;
            }
            return;
        }
        let lost = Lost { series: self.series(), roster, who: neighbour };
        step.put(Output::Gossip(self.seal(Message::Lost(lost))));
        self.slot.lost.report(step, neighbour, self.me.peer);
        self.slot.broken.insert(pair(self.me.peer, neighbour));
        self.lose_ring(step, roster);
    }

    /// Somebody else's neighbour is lost: the ring cannot end.
    pub(super) fn on_lost(&mut self, step: &mut Step<'_>, from: PeerId, lost: &Lost) {
        let Some(roster) = self.roster(&lost.roster) else { return };
        let Some(place) = roster.ring().position(|m| m.peer == from) else { return };
        let count = roster.ring().count();
        let around = [(place + 1) % count, (place + count - 1) % count];
        let is_lost = |at: &usize| roster.ring().nth(*at).is_some_and(|m| m.peer == lost.who);
        if from == lost.who || !around.iter().any(is_lost) {
            return;
        }
        if lost.who != self.me.peer {
            self.slot.lost.report(step, lost.who, from);
        }
        self.slot.broken.insert(pair(from, lost.who));
        if self.slot.term.is_at(lost.roster, Progress::Reduce) {
            self.lose_ring(step, lost.roster);
        }
    }

    /// If somebody has voted, the update exists: fetch it (R6). Else a higher attempt is due.
    fn lose_ring(&mut self, step: &mut Step<'_>, roster: Digest) {
        let Some(ballot) = self.slot.ballots.get_mut(&roster) else { return };
        if ballot.ring == RingState::Running {
            step.put(Output::Abandon(roster));
        }
        ballot.ring = RingState::Lost;
        if ballot.dones.is_empty() {
            self.recover(step, "ring lost");
        }
    }

    pub(super) fn on_refuse(&mut self, step: &mut Step<'_>, from: PeerId, refuse: &Refuse) {
        if refuse.promised < u32::MAX {
            self.slot.term.attempt_seen = self.slot.term.attempt_seen.max(refuse.promised);
        } else if self.slot.term.closed.len() < MEMBERS_MAX {
            self.slot.term.closed.insert(from);
        }
        let me = self.me.peer;
        let asked = |r: &Arc<Roster>| r.proposer == me && r.member(&from).is_some();
        let refused = self.roster(&refuse.what).is_some_and(asked);
        if refused && self.slot.term.is_at(refuse.what, Progress::Accepted) {
            self.recover(step, "refused");
        }
    }

    /// Ends the attempt under way; the next one is due.
    pub(super) fn recover(&mut self, step: &mut Step<'_>, reason: &'static str) {
        self.abort(step, reason);
        let promised = self.votes.of(self.series()).attempt();
        let attempt = self.slot.term.attempt_seen.max(promised).max(1).saturating_add(1);
        self.slot.term.stage = Stage::Recover { attempt, since: step.now };
    }

    /// Gives up the roster under way, if there is one.
    pub(super) fn abort(&mut self, step: &mut Step<'_>, reason: &'static str) {
        let Stage::Open { roster: digest, progress, .. } = self.slot.term.stage else { return };
        if let Some(ballot) = self.slot.ballots.get_mut(&digest)
            && ballot.ring == RingState::Running
        {
            ballot.ring = RingState::Lost;
            step.put(Output::Abandon(digest));
        }
        let attempt = self.roster(&digest).map_or(0, |roster| roster.attempt);
        let epoch = self.series().epoch;
        step.put(Output::Event(Event::Aborted { epoch, attempt, phase: progress.name(), reason }));
        self.slot.term.stage = Stage::Idle { patience: None };
    }

    /// R37: the deadline of any phase makes the next attempt due.
    pub(super) fn time_out(&mut self, step: &mut Step<'_>) -> bool {
        let reason = match self.slot.term.stage {
            Stage::Open { roster, progress, until } if step.now >= until => match progress {
                Progress::Accepted => {
                    self.note_late(roster);
                    "accepts missing"
                }
                Progress::Reduce => {
                    self.note_mute(roster);
                    self.note_stalled(roster);
                    "update missing"
                }
                Progress::Finished => "votes missing",
            },
            Stage::Idle { patience: Some(until) } if step.now >= until => "left out",
            _ => return false,
        };
        self.recover(step, reason);
        true
    }

    /// R37: remembers the members whose Accept is missing, so that they hold up no second roster.
    fn note_late(&mut self, roster: Digest) {
        let Some(ballot) = self.slot.ballots.get(&roster) else { return };
        let Some(roster) = &ballot.roster else { return };
        let missing = roster.ring().filter(|m| !ballot.accepts.contains(&m.peer));
        for member in missing.filter(|m| m.peer != self.me.peer) {
            self.slot.lost.be_late(member.peer);
        }
    }

    /// R8: the authors of a value whose bytes did not come are not asked next time.
    fn note_mute(&mut self, roster: Digest) {
        let adopt = self.roster(&roster).and_then(|roster| roster.adopt.as_ref());
        let Some(update) = adopt.map(|receipt| receipt.update) else { return };
        if let Some(adopted) = self.slot.term.adopted.get_mut(&update) {
            adopted.missed = true;
        }
    }

    /// R40: a neighbour that is silent is reported; one that crawls is not, nor can its successor tell it
    /// from one that waits for its own.
    fn note_stalled(&mut self, roster: Digest) {
        if self.roster(&roster).is_some_and(|roster| roster.adopt.is_none()) {
            self.slot.term.stalled = self.slot.term.stalled.saturating_add(1);
        }
    }

    /// R38: a peer without a roster waits three times as long before it asks.
    pub(super) fn be_patient(&mut self, step: &Step<'_>, attempt: u32) {
        if let Stage::Idle { patience } = &self.slot.term.stage {
            let count = step.roll.live_in(self.series(), step.now).count() + 1;
            let wait = self.accept_time(step, attempt)
                + self.ring_time_of(step, count, None, attempt)
                + self.done_time(step, attempt);
            let until = (step.now + 3 * wait).max(patience.unwrap_or(step.now));
            self.slot.term.stage = Stage::Idle { patience: Some(until) };
        }
    }
}
