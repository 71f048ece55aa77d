//! The ground of a vote: a quorum's Accepts or, where a third may lie and the roster is free, its word to hold the value (R5).
//!
//! An owner that seals its chunk twice gives one roster two values. So a voter first says which one it holds, once for
//! each attempt, and votes when a quorum has said the same: Castro, Liskov, "Practical Byzantine Fault Tolerance"
//! (1999), where that is the prepared certificate.

use crate::fault::Fault;
use crate::id::{Digest, PeerId};
use crate::log::Record;
use crate::message::{MEMBERS_MAX, Message, Prepared, Roster, Voter};
use crate::output::Output;
use crate::sign::{Signature, Verified};
use crate::step::Step;

use super::ballot::Ballot;
use super::{Rule, State};

impl State {
    /// Whether a quorum of the voters that a roster names holds an update.
    pub(super) fn is_prepared(&self, ballot: &Ballot, update: &Digest) -> bool {
        let holds = |voter: &Voter| {
            let named = ballot
                .roster
                .as_ref()
                .is_some_and(|r| r.members.iter().any(|m| m.voter() == *voter));
            named && ballot.prepared.get(&voter.peer).is_some_and(|(held, _)| held == update)
        };
        self.law.quorum.holds(self.voters(), holds)
    }

    /// R5: whether the ground of a vote for this value is here: a quorum accepted the roster or, where a third may lie and
    /// the roster is free, says to hold the update. We say so first, once.
    pub(super) fn is_grounded(
        &mut self,
        step: &mut Step<'_>,
        digest: Digest,
        update: Digest,
    ) -> bool {
        let Some(roster) = self.roster(&digest).cloned() else { return false };
        if self.law.quorum.prepares() && roster.is_free() {
            self.prepare(step, digest, &roster, update);
            return self.slot.ballots.get(&digest).is_some_and(|b| self.is_prepared(b, &update));
        }
        let Some(ballot) = self.slot.ballots.get(&digest) else { return false };
        let accepted = |v: &Voter| {
            ballot.accepts.contains_key(&v.peer) && roster.members.iter().any(|m| m.voter() == *v)
        };
        self.law.quorum.holds(self.voters(), accepted) || !self.keeps(Rule::R5)
    }

    fn prepare(&mut self, step: &mut Step<'_>, digest: Digest, roster: &Roster, update: Digest) {
        let (series, attempt, me) = (roster.series, roster.attempt, self.me.peer);
        let said = self.votes.of(series).prepared(attempt);
        let again = self.slot.ballots.get(&digest).is_some_and(|b| b.prepared.contains_key(&me));
        if again || said.is_some_and(|said| said != update) {
            return;
        }
        if said.is_none() {
            self.log(step, Record::Prepared { series, attempt, update });
        }
        let message = self.seal(Message::Prepared(Prepared { series, roster: digest, update }));
        self.ballot(digest).prepared.insert(me, (update, message.signature()));
        step.put(Output::Gossip(message));
    }

    /// R5: a voter says which update of a roster it holds.
    pub(super) fn on_prepared(
        &mut self,
        step: &mut Step<'_>,
        message: &Verified<Message>,
        prepared: &Prepared,
    ) {
        let (from, update) = (message.author(), prepared.update);
        if !self.law.quorum.prepares() {
            return;
        }
        self.slot.debts.pay(&from);
        let me = self.me.peer;
        let Some(ballot) = self.slot.ballot_voted_on(&me, prepared.roster) else { return };
        match ballot.prepared.get(&from).map(|(said, _)| *said) {
            Some(said) if said != update => {
                step.put(Output::Fault(from, Fault::Done("holds two values of one roster")));
            }
            Some(_) => {
                let mine = ballot.prepared.get(&me).map(|(update, _)| *update);
                if let Some(update) = mine
                    && self.may_reply(step, from, "prepared")
                {
                    let (series, roster) = (self.series(), prepared.roster);
                    let mine = Prepared { series, roster, update };
                    step.put(Output::Send(from, self.seal(Message::Prepared(mine))));
                }
            }
            None if ballot.prepared.len() < MEMBERS_MAX => {
                ballot.prepared.insert(from, (update, message.signature()));
            }
            None => {}
        }
    }

    /// The signatures that are the ground of a vote for this update of a roster.
    pub(super) fn ground_of(&self, digest: Digest, update: Digest) -> Vec<(PeerId, Signature)> {
        let Some(ballot) = self.slot.ballots.get(&digest) else { return Vec::new() };
        let Some(roster) = &ballot.roster else { return Vec::new() };
        // A voter may have spoken of it before it was known, and be no member.
        let votes = |peer: &PeerId| self.names_voter(peer) && roster.member(peer).is_some();
        if self.law.quorum.prepares() && roster.is_free() {
            let holds = ballot.prepared.iter().filter(|(peer, (u, _))| *u == update && votes(peer));
            return holds.map(|(peer, (_, signature))| (*peer, *signature)).collect();
        }
        let accepted = ballot.accepts.iter().filter(|(peer, _)| votes(peer));
        accepted.map(|(peer, signature)| (*peer, *signature)).collect()
    }
}
