//! What a roster shows of those whom its proposer has heard, and what proves it (R8, G14).

use std::sync::Arc;

use crate::fault::Fault;
use crate::id::{Digest, PeerId};
use crate::message::{Ground, Heard, Message, Opened, Ranked, Roster, Series, Status, Voter};
use crate::output::Output;
use crate::step::Step;
use crate::wire;

use super::ballot::Ballot;
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
        self.judge_again(step, |roster| roster.highest_done() == Some(vote));
    }

    /// R32: somebody proves that a ring opened of which its roster keeps chunks.
    pub(super) fn on_opened(&mut self, step: &mut Step<'_>, from: PeerId, opened: &Opened) {
        let digest = wire::roster_digest(&self.law.run, &opened.roster);
        if self.has_opened(&digest) {
            return;
        }
        if !self.law.has_opened(&self.chain(), opened) {
            step.put(Output::Fault(
                from,
                Fault::Roster("keeps chunks of a ring that never opened"),
            ));
            return;
        }
        let ballot = self.ballot(digest);
        ballot.roster.get_or_insert_with(|| Arc::new(opened.roster.clone()));
        for (peer, signature) in &opened.accepts {
            ballot.accepts.entry(*peer).or_insert(*signature);
        }
        self.judge_again(step, |roster| roster.keep.iter().any(|keep| keep.roster == digest));
    }

    /// Judges the highest roster again of those that came before what proves them.
    fn judge_again(&mut self, step: &mut Step<'_>, rests: impl Fn(&Roster) -> bool) {
        let rests = |ballot: &&Ballot| ballot.roster.as_deref().is_some_and(&rests);
        let waiting = self.slot.ballots.values().filter(rests);
        let highest = waiting.max_by_key(|ballot| ballot.attempt());
        let message = highest.and_then(|ballot| ballot.signed.clone());
        if let Some(message) = message
            && let Message::Roster(roster) = message.body()
        {
            self.on_roster(step, &message, roster);
        }
    }

    /// Whether we know that the ring of a roster opened (R5): in this series, or in one that it descends from.
    pub(super) fn has_opened(&self, digest: &Digest) -> bool {
        let Some(ballot) = self.slot.ballots.get(digest) else { return false };
        let Some(roster) = &ballot.roster else { return false };
        let accepted = ballot.accepts.keys().copied().collect();
        let chain = self.chain();
        let voters = chain.iter().find(|(series, _)| *series == roster.series);
        voters.is_some_and(|(_, voters)| self.law.ring_opens(roster, voters, &accepted))
    }

    /// R32: proves to a peer that the rings opened of which a roster keeps chunks.
    pub(super) fn prove_kept(&self, step: &mut Step<'_>, to: PeerId, roster: &Roster) {
        for keep in &roster.keep {
            let Some(ballot) = self.slot.ballots.get(&keep.roster) else { continue };
            let Some(kept) = &ballot.roster else { continue };
            let (series, roster) = (self.series(), kept.as_ref().clone());
            let members = ballot.accepts.iter().filter(|(peer, _)| kept.member(peer).is_some());
            let accepts = members.map(|(peer, signature)| (*peer, *signature)).collect();
            let opened = Opened { series, roster, accepts };
            step.put(Output::Send(to, self.seal(Message::Opened(opened))));
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
