//! Who has a say: whose signed word about the open epoch is read at all.
//!
//! Anybody can make a key, and sign what others then pass on. So what costs memory, or moves somebody,
//! is read only of those who have a part in it:
//!
//! | message | read of |
//! |---|---|
//! | `Done` | voters |
//! | `Query`, `Status`, `Refuse`, `Roster` | voters, and who is Ready |
//! | `Accept` | members of its roster; while that is unknown, voters and who is Ready |
//! | `Lost` | members of its roster |
//! | `Ready`, `Regroup`, `Join` | who is heard in the run |
//! | `Commit` | anybody: it proves itself |
//!
//! What is not read is no fault: its author may know more than we do. A fault is only what a message
//! proves of its own author ([`crate::fault`]), and is found before this.

use crate::fault::Fault;
use crate::id::PeerId;
use crate::message::Message;
use crate::output::Output;
use crate::step::Step;

use super::State;

/// Attempts of one series that a peer can have missed. Only where a majority is present are any made,
/// and the largest timers make that days.
const ATTEMPTS_MISSED_MAX: u32 = 1 << 16;

impl State {
    /// Whether an honest peer can have said `message`; else its author is named.
    pub(super) fn is_possible(
        &self,
        step: &mut Step<'_>,
        message: &Message,
        author: PeerId,
    ) -> bool {
        let attempt = match message {
            Message::Ready(ready) => {
                let possible = self.can_weigh(ready.weight);
                if !possible {
                    let why = "weight of zero, or more than an epoch can hold";
                    step.put(Output::Fault(author, Fault::Ready(why)));
                }
                return possible;
            }
            Message::Query(query) => query.attempt,
            Message::Roster(roster) => roster.attempt,
            Message::Refuse(refuse) if refuse.promised < u32::MAX => refuse.promised,
            _ => return true,
        };
        // R37: attempts rise one by one, so whoever names one far above all that were seen wants to
        // use them up: from the last one on nothing could be decided.
        let seen = self.votes.of(self.series()).attempt().max(self.slot.term.attempt_seen);
        let follows = attempt <= seen.saturating_add(ATTEMPTS_MISSED_MAX);
        if !follows {
            step.put(Output::Fault(author, Fault::Attempt("far above all that were seen")));
        }
        follows
    }

    /// Whether `message` of `author`, about our series, is to be read.
    pub(super) fn has_say(&self, step: &Step<'_>, author: &PeerId, message: &Message) -> bool {
        match message {
            Message::Done(_) => self.names_voter(author),
            Message::Query(_) | Message::Status(_) | Message::Refuse(_) => self.takes_part(author),
            Message::Accept(accept) => match self.roster(&accept.roster) {
                Some(roster) => roster.member(author).is_some(),
                None => self.takes_part(author),
            },
            Message::Lost(lost) => {
                self.roster(&lost.roster).is_some_and(|roster| roster.member(author).is_some())
            }
            Message::Ready(_) | Message::Regroup(_) | Message::Join(_) => {
                *author == self.me.peer || step.roll.peers.contains_key(author)
            }
            // What these prove is looked at first.
            Message::Roster(_) | Message::Commit(_) => true,
            Message::Heartbeat(_) | Message::Leaving(_) => true,
        }
    }

    /// Whether a peer votes in this series, or has something to contribute.
    pub(super) fn takes_part(&self, peer: &PeerId) -> bool {
        *peer == self.me.peer || self.names_voter(peer) || self.slot.ready.contains_key(peer)
    }
}
