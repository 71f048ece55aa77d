//! Who has a say: whose signed word about the open epoch is read at all.
//!
//! Anybody can make a key, and sign what others then pass on. So what costs memory, or moves somebody,
//! is read only of those who have a part in it:
//!
//! | message | read of |
//! |---|---|
//! | `Done`, `Prepared`, `Query`, `Roster` | voters (G1) |
//! | `Ground`, `Opened` | voters, while it is not known |
//! | `Status`, `Report`, `Refuse` | voters; others where they answer a question or a roster of ours |
//! | `Accept` | members of its roster; while that is unknown, voters and who is Ready |
//! | `Lost` | members of its roster |
//! | `Regroup` | voters, while one of them is here; else who is heard in the run |
//! | `Ready`, `Join` | who is heard in the run |
//! | `Commit` | anybody: it proves itself |
//!
//! What is not read is no fault: its author may know more than we do. A fault is only what a message
//! proves of its own author ([`crate::fault`]), and is found before this.

use crate::fault::Fault;
use crate::id::PeerId;
use crate::message::{Message, Voter};
use crate::output::Output;
use crate::roll::Seen;
use crate::step::Step;

use super::attendance::Question;
use super::{Rule, State};

/// How far above what a majority has come to an attempt is read: they are made one by one, and the word of
/// one voter raises the next one by half of that ([`super::recover`]).
const ATTEMPTS_AHEAD_MAX: u64 = 1 << 10;

impl State {
    /// Whether an honest peer can have said `message`; else its author is named.
    pub(super) fn is_possible(
        &self,
        step: &mut Step<'_>,
        message: &Message,
        author: PeerId,
    ) -> bool {
        let fault = match message {
            Message::Ready(ready) if !self.can_weigh(ready.weight) => {
                Fault::Ready("weight of zero, or more than an epoch can hold")
            }
            Message::Roster(roster) => match self.check_roster(author, roster) {
                Err(why) => Fault::Roster(why),
                Ok(()) => return true,
            },
            _ => return true,
        };
        step.put(Output::Fault(author, fault));
        false
    }

    /// Whether `message` of `author`, about our series, is to be read.
    pub(super) fn has_say(&self, step: &Step<'_>, author: &PeerId, message: &Message) -> bool {
        // T2: whoever is not in has no say.
        if self.is_stranger(author) && !matches!(message, Message::Commit(_)) {
            return false;
        }
        match message {
            Message::Done(_) | Message::Prepared(_) | Message::Ground(_) | Message::Opened(_) => {
                self.names_voter(author)
            }
            Message::Query(query) => self.may_ask(author) && self.follows(step, query.attempt),
            Message::Roster(roster) => self.may_ask(author) && self.follows(step, roster.attempt),
            Message::Status(status) => {
                self.may_ask(author)
                    || self.slot.term.asking.as_ref().is_some_and(|a| a.attempt == status.attempt)
            }
            Message::Report(report) => {
                self.slot.term.asking.as_ref().is_some_and(|a| a.attempt == report.attempt)
            }
            Message::Refuse(refuse) => {
                let mine = || self.roster(&refuse.what).is_some_and(|r| r.proposer == self.me.peer);
                self.may_ask(author) || mine()
            }
            Message::Accept(accept) => match self.roster(&accept.roster) {
                Some(roster) => roster.member(author).is_some(),
                None => self.takes_part(author),
            },
            Message::Lost(lost) => {
                self.roster(&lost.roster).is_some_and(|roster| roster.member(author).is_some())
            }
            Message::Regroup(_) => {
                self.is_heard(step, author)
                    && (self.names_voter(author) || !self.is_any_voter_here(step))
            }
            Message::Ready(_) | Message::Join(_) => self.is_heard(step, author),
            Message::Commit(_)
            | Message::Heartbeat(_)
            | Message::Leaving(_)
            | Message::Vouch(_)
            | Message::Decree(_) => true,
        }
    }

    /// G1: only who votes proposes, and asks before that.
    fn may_ask(&self, peer: &PeerId) -> bool {
        self.names_voter(peer) || (!self.keeps(Rule::G1) && self.takes_part(peer))
    }

    /// G2: whether honest peers can have come to that attempt. One far above is not read, and not counted as
    /// seen; else a liar that tells one half of far attempts tears the two apart.
    fn follows(&self, step: &Step<'_>, attempt: u64) -> bool {
        attempt <= self.level(step).saturating_add(ATTEMPTS_AHEAD_MAX)
    }

    /// The attempt that a majority of voters has come to, by what each last said of itself. What we alone have
    /// come to is none: who is refused with far promises would run ahead of those who do not answer it.
    pub(super) fn level(&self, step: &Step<'_>) -> u64 {
        let (series, mine) = (self.series(), self.votes.of(self.series()).attempt());
        let told = |voter: &Voter| {
            let beat = step.roll.peers.get(&voter.peer).map(|seen| &seen.beat);
            beat.filter(|beat| beat.series == series).map_or(0, |beat| beat.attempt)
        };
        let named = |voter: &Voter| if *voter == self.me.voter() { mine } else { told(voter) };
        let mut all: Vec<u64> = self.voters().iter().map(named).collect();
        all.sort_unstable_by(|a, b| b.cmp(a));
        all.get(all.len() / 2).copied().unwrap_or(mine)
    }

    fn is_heard(&self, step: &Step<'_>, peer: &PeerId) -> bool {
        *peer == self.me.peer || step.roll.peers.contains_key(peer)
    }

    /// Whether a voter of this series may sign a Regroup of it: ourselves, or somebody alive.
    pub(super) fn is_any_voter_here(&self, step: &Step<'_>) -> bool {
        let votes = |(peer, seen): (&PeerId, &Seen)| {
            self.voters().contains(&Voter { peer: *peer, log: seen.beat.log })
        };
        self.is_voter() || self.live(step, Question::MayRegroup).any(votes)
    }

    /// Whether a peer votes in this series, or has something to contribute.
    pub(super) fn takes_part(&self, peer: &PeerId) -> bool {
        *peer == self.me.peer || self.names_voter(peer) || self.slot.ready.contains_key(peer)
    }
}
