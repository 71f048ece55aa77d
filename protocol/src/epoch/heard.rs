//! What a roster shows of those whom its proposer has heard, and what that proves (G14).

use crate::fault::Fault;
use crate::message::{Heard, Message, Ranked, Roster, Status, Voter};
use crate::output::Output;
use crate::step::Step;
use crate::wire;

use super::{Rule, State};

impl State {
    /// G14: whether each Status is its author's, and the value what R8 makes of them.
    pub(super) fn check_heard(&self, roster: &Roster) -> Result<(), &'static str> {
        if roster.attempt < 2 || !self.keeps(Rule::G14) || !self.keeps(Rule::R8) {
            return Ok(());
        }
        let Roster { series, attempt, .. } = *roster;
        let signed = |heard: &Heard| {
            let Heard { voter: Voter { peer, log }, done, holds_forced, signature } = *heard;
            let status = Status { series, log, attempt, done, holds_forced };
            self.law.signed(&peer, &Message::Status(status), &signature)
        };
        let possible = |vote: &Ranked| vote.depth <= self.depth() && vote.attempt <= attempt;
        if !roster.heard.iter().all(|heard| heard.done.as_ref().is_none_or(possible)) {
            return Err("a vote that nobody can have given");
        }
        if !roster.heard.iter().all(signed) {
            return Err("a Status that its author has not signed");
        }
        let adopts = roster.adopt.as_ref().map(|r| wire::receipt_digest(&self.law.run, r));
        let votes = || roster.heard.iter().filter_map(|heard| heard.done);
        let rank = |vote: &Ranked| (vote.depth, vote.attempt);
        let Some(highest) = votes().map(|vote| rank(&vote)).max() else {
            let holds = roster.heard.iter().any(|heard| heard.holds_forced);
            let forced = self.slot.forced.as_ref().filter(|_| holds);
            let same = roster.adopt.as_ref() == forced;
            return if same { Ok(()) } else { Err("another value than what it heard leaves") };
        };
        let lawful = votes().any(|vote| rank(&vote) == highest && Some(vote.r) == adopts);
        if lawful { Ok(()) } else { Err("another value than the highest vote that it heard") }
    }

    /// G14: a voter that says in a Status that it has not voted as it did. Both are signed by it.
    fn contradicts(&self, heard: &Heard, attempt: u64) -> bool {
        let rank = heard.done.map_or(0, |vote| vote.attempt);
        let ballots = self.slot.ballots.values();
        let mut voted = ballots.filter(|b| b.dones.contains_key(&heard.voter.peer));
        voted.any(|ballot| {
            ballot.roster.as_ref().is_some_and(|roster| {
                roster.series == self.series() && rank < roster.attempt && roster.attempt < attempt
            })
        })
    }

    /// G14: names those who contradict themselves. Their word is no ground for a value.
    pub(super) fn without_liars(
        &self,
        step: &mut Step<'_>,
        heard: Vec<Heard>,
        attempt: u64,
    ) -> Vec<Heard> {
        let lies = |h: &Heard| self.keeps(Rule::G14) && self.contradicts(h, attempt);
        let (liars, rest): (Vec<Heard>, Vec<Heard>) = heard.into_iter().partition(lies);
        for liar in liars {
            let why = "a Status that hides a vote";
            step.put(Output::Fault(liar.voter.peer, Fault::Done(why)));
        }
        rest
    }
}
