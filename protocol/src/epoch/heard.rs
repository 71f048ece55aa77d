//! What a roster shows of those whom its proposer has heard, and what proves it (R8, G14).

use crate::fault::{DoneFault, Fault};
use crate::id::PeerId;
use crate::message::{Ground, Heard, Message, Ranked, Roster};
use crate::output::Output;
use crate::step::Step;
use crate::wire;

use super::ballot::Ballot;
use super::{State, roster};

impl State {
    /// R8: somebody proves a vote, its own or one that it has heard of.
    pub(super) fn on_ground(&mut self, step: &mut Step<'_>, from: PeerId, ground: &Ground) {
        let vote = wire::ranked(&self.law.run, &ground.voted);
        if self.slot.grounds.knows(&vote) {
            return;
        }
        if !self.law.has_ground(&self.slot.chain(), &ground.voted) {
            step.put(Output::Fault(from, Fault::Done(DoneFault::NoGround)));
            return;
        }
        self.slot.grounds.insert(vote, ground.voted.clone());
        // A roster that rests on it may have come before.
        let rests = |b: &&Ballot| b.roster.as_ref().is_some_and(|r| r.highest_done() == Some(vote));
        let waiting =
            self.slot.ballots.values().filter(rests).max_by_key(|ballot| ballot.attempt());
        let message = waiting.and_then(|ballot| ballot.signed.clone());
        if let Some(message) = message
            && let Message::Roster(roster) = message.body()
        {
            self.on_roster(step, &message, roster);
        }
    }

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

    /// The members of our roster have to believe its value before they accept it.
    pub(super) fn prove_to_all(&self, step: &mut Step<'_>, roster: &Roster) {
        let others = roster.members.iter().filter(|m| m.peer != self.me.peer);
        for member in others {
            self.prove_adopted(step, member.peer, roster);
        }
    }

    /// G14: those heard who do not contradict themselves; the others are named.
    pub(super) fn name_liars(
        &self,
        step: &mut Step<'_>,
        heard: Vec<Heard>,
        attempt: u64,
    ) -> Vec<Heard> {
        let (rest, liars) = roster::without_liars(self.facts(step), heard, attempt);
        for liar in liars {
            let why = DoneFault::Hidden;
            step.put(Output::Fault(liar.voter.peer, Fault::Done(why)));
        }
        rest
    }
}
