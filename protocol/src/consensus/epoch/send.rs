//! What is sent to one peer: an answer, a proof, or again a message that is not answered yet.

use std::sync::Arc;

use crate::base::id::{Digest, PeerId};
use crate::base::sign::Verified;
use crate::history::lineage::{LocalPeer, Validator};
use crate::machine::event::Progress;
use crate::machine::output::Output;
use crate::machine::step::Step;
use crate::message::wire;
use crate::message::{
    Accept, Ground, Message, Opened, Prepared, Ranked, Ready, Refusal, Refuse, Roster,
};

use super::ballot::Ballot;
use super::series::{Reply, Stage};
use super::slot::Frozen;
use super::timers::Timer;
use super::timing::REPEAT_MIN;
use super::{State, timers};

impl State {
    /// Proves to a peer a vote that is proven to us.
    pub(super) fn prove(&self, step: &mut Step<'_>, to: PeerId, vote: &Ranked) {
        if let Some(voted) = self.slot.grounds.get(vote) {
            let ground = Ground { series: self.series(), voted: voted.clone() };
            step.put(Output::Send(to, self.seal(Message::Ground(ground))));
        }
    }

    /// Proves to a peer the vote whose value a roster adopts.
    pub(super) fn prove_adopted(&self, step: &mut Step<'_>, to: PeerId, roster: &Roster) {
        if let Some(highest) = roster.highest_done() {
            self.prove(step, to, &highest);
        }
    }

    /// Proves the adopted vote to all members of our roster, which else would not accept it.
    pub(super) fn prove_to_all(&self, step: &mut Step<'_>, roster: &Roster) {
        let others = roster.members.iter().filter(|m| m.peer != self.me.peer);
        for member in others {
            self.prove_adopted(step, member.peer, roster);
        }
    }

    /// R32: proves to a peer that the rings opened of which a roster keeps chunks.
    pub(super) fn prove_kept(&self, step: &mut Step<'_>, to: PeerId, roster: &Roster) {
        for keep in &roster.keep {
            let Some(ballot) = self.slot.ballots.get(&keep.roster) else { continue };
            let Some(kept) = &ballot.roster else { continue };
            let (series, roster) = (self.series(), kept.as_ref().clone());
            let opened = Opened { series, roster, accepts: ballot.acceptors(kept).collect() };
            step.put(Output::Send(to, self.seal(Message::Opened(opened))));
        }
    }

    pub(super) fn accept_message(&self, digest: Digest) -> Arc<Verified<Message>> {
        self.seal(Message::Accept(Accept { series: self.series(), roster: digest }))
    }

    pub(super) fn refuse(&self, step: &mut Step<'_>, to: PeerId, what: Digest, reason: Refusal) {
        let (series, head, promised) = (self.series(), self.slot.head, self.promised());
        let refuse = Refuse { series, what, promised, head, reason };
        step.put(Output::Send(to, self.seal(Message::Refuse(refuse))));
    }

    pub(super) fn ready_message(&self, frozen: Frozen) -> Arc<Verified<Message>> {
        let LocalPeer { incarnation, .. } = self.me;
        let Frozen { weight, norm, .. } = frozen;
        self.seal(Message::Ready(Ready { series: self.series(), incarnation, weight, norm }))
    }

    pub(super) fn announce_ready(&mut self, step: &mut Step<'_>) {
        if let (Some(frozen), false) = (self.slot.frozen, self.leaving.is_some()) {
            step.put(Output::Gossip(self.ready_message(frozen)));
        }
    }

    /// Whether a repeated message may be answered to `peer` now: once per [`REPEAT_MIN`], so that
    /// two peers that answer each other do so slowly.
    pub(super) fn may_reply(&mut self, step: &Step<'_>, peer: PeerId, to: Reply) -> bool {
        let replied = &mut self.slot.series.replied;
        let due = replied.get(&(peer, to)).is_none_or(|last| step.now >= *last + REPEAT_MIN);
        if due {
            replied.insert((peer, to), step.now);
        }
        due
    }

    /// Repeats the current message to the peers whose answer is missing.
    pub(super) fn repeat(&mut self, step: &mut Step<'_>) {
        if self.left || !timers::is_over(self.facts(step), Timer::Repeat) {
            return;
        }
        self.slot.series.repeat_at = step.now + self.facts(step).repeat_interval();
        if let Some(asking) = &self.slot.series.asking {
            for (peer, _) in step.table.live_in(self.series(), step.now) {
                if !asking.statuses.contains_key(peer) || !asking.reports.contains_key(peer) {
                    step.put(Output::Send(*peer, Arc::clone(&asking.query)));
                }
            }
        }
        match self.slot.series.stage {
            Stage::Open { roster, progress: Progress::Accepted, .. } => {
                self.repeat_accept(step, roster);
            }
            Stage::Open { roster, progress: Progress::Finished, .. } => {
                // A roster that adopts needs no ring, so nothing has waited for the Accepts; a vote
                // does.
                let voted = |b: &Ballot| b.dones.contains_key(&self.me.peer);
                if !self.slot.ballots.get(&roster).is_some_and(voted) {
                    self.repeat_accept(step, roster);
                }
                self.repeat_done(step, roster);
            }
            Stage::Joined { regroup, .. } => self.repeat_join(step, regroup),
            _ => {}
        }
    }

    /// Sends the roster, as its proposer signed it, and our Accept to the members whose Accept is
    /// missing.
    fn repeat_accept(&self, step: &mut Step<'_>, digest: Digest) {
        let Some(ballot) = self.slot.ballots.get(&digest) else { return };
        let (Some(roster), Some(signed)) = (&ballot.roster, &ballot.signed) else { return };
        let accept = self.accept_message(digest);
        for member in &roster.members {
            if member.peer != self.me.peer && !ballot.accepts.contains_key(&member.peer) {
                self.prove_adopted(step, member.peer, roster);
                step.put(Output::Send(member.peer, Arc::clone(signed)));
                step.put(Output::Send(member.peer, Arc::clone(&accept)));
            }
        }
    }

    /// Sends our own Done to voters whose Done is missing; a peer that has committed answers with
    /// `Commit`.
    fn repeat_done(&self, step: &mut Step<'_>, digest: Digest) {
        let Some(ballot) = self.slot.ballots.get(&digest) else { return };
        let Some(message) = self.latest_message(digest) else { return };
        for voter in self.voters() {
            if voter.peer != self.me.peer && !ballot.dones.contains_key(&voter.peer) {
                step.put(Output::Send(voter.peer, Arc::clone(&message)));
            }
        }
    }

    /// Our newest message about a finished roster: our Done, the update that we hold, or the Ready
    /// of a peer without a vote.
    fn latest_message(&self, digest: Digest) -> Option<Arc<Verified<Message>>> {
        let roster = self.slot.roster(&digest)?;
        let bound = self.votes.of(self.series());
        if let Some(voted) = bound.done(roster.attempt) {
            return Some(self.seal(Message::Done(self.validator.done(roster, &voted.receipt()))));
        }
        if let Some(update) = bound.prepared(roster.attempt) {
            let prepared = Prepared { series: self.series(), roster: digest, update };
            return Some(self.seal(Message::Prepared(prepared)));
        }
        self.slot.frozen.map(|frozen| self.ready_message(frozen))
    }

    /// Sends the Regroup, as its proposer signed it, and our Join to the members whose Join is
    /// missing.
    pub(super) fn repeat_join(&self, step: &mut Step<'_>, digest: Digest) {
        let Some(known) = self.slot.series.gathering.known.get(&digest) else { return };
        let Some(regroup) = &known.regroup else { return };
        let Some((join, _)) = known.joins.get(&self.me.peer) else { return };
        let proven = join.done;
        let join = self.seal(Message::Join(join.clone()));
        for member in regroup.members.iter().filter(|m| !known.joins.contains_key(&m.peer)) {
            // After a restart the Regroup is known, but no longer as its proposer signed it.
            if let Some(signed) = &known.signed {
                step.put(Output::Send(member.peer, Arc::clone(signed)));
            }
            step.put(Output::Send(member.peer, Arc::clone(&join)));
            proven.iter().for_each(|vote| self.prove(step, member.peer, vote));
        }
    }

    pub(super) fn seal(&self, message: Message) -> Arc<Verified<Message>> {
        let Validator { key, run, .. } = &self.validator;
        Arc::new(wire::seal(key, run, message))
    }
}
