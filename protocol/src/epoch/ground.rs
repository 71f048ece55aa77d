//! What proves the votes that others name: the Accepts of a majority for the roster that was voted on (R5, R8).
//!
//! A vote is a word, and a word costs nothing: of one that nobody can prove it is as if its author had not spoken.
//! Lamport, "Byzantizing Paxos by Refinement" (2011): what a voter says of its past carries what allowed it.

use std::collections::BTreeMap;

use crate::fault::Fault;
use crate::id::PeerId;
use crate::message::{Ground, MEMBERS_MAX, Message, Ranked, Roster, Series, Voted, Voter};
use crate::output::Output;
use crate::step::Step;
use crate::wire;

use super::State;
use super::ballot::Ballot;

/// The votes of the open epoch that are proven to us, the highest of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Grounds(BTreeMap<Ranked, Voted>);

impl Grounds {
    pub(super) fn get(&self, vote: &Ranked) -> Option<&Voted> {
        self.0.get(vote)
    }

    pub(super) fn knows(&self, vote: &Ranked) -> bool {
        self.0.contains_key(vote)
    }

    /// Keeps one that is proven.
    pub(super) fn insert(&mut self, vote: Ranked, voted: Voted) {
        self.0.insert(vote, voted);
        if self.0.len() > MEMBERS_MAX {
            self.0.pop_first();
        }
    }
}

impl State {
    /// R8: somebody proves a vote, its own or one that it has heard of.
    pub(super) fn on_ground(&mut self, step: &mut Step<'_>, from: PeerId, ground: &Ground) {
        let vote = wire::ranked(&self.law.run, &ground.voted);
        if self.slot.grounds.knows(&vote) {
            return;
        }
        if !self.law.has_ground(&self.chain(), &ground.voted) {
            step.put(Output::Fault(from, Fault::Done("a vote without its ground")));
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

    /// The series that we have been in, each with its voters.
    fn chain(&self) -> Vec<(Series, Vec<Voter>)> {
        let opened = self.slot.openings.iter().map(|opening| &opening.regroup.members);
        let voters = [&self.slot.base].into_iter().chain(opened);
        self.slot.chain.iter().copied().zip(voters.cloned()).collect()
    }
}
