//! Which messages about the open epoch are read, by their author.
//!
//! Anybody can make a key, and sign messages that others then pass on. So a message that costs
//! memory, or moves the machine, is read only from peers that have a part in its subject:
//!
//! | message | read of |
//! |---|---|
//! | `Done`, `Prepared`, `Roster` | voters (G1) |
//! | `Query` | the owner of its attempt (G2) |
//! | `Ground`, `Opened` | voters, while it is not known |
//! | `Status`, `Report`, `Refuse` | voters; other peers if they answer a question or a roster of ours |
//! | `Accept` | members of its roster; while that is unknown, voters and peers that are Ready |
//! | `Stalled` | members of its roster |
//! | `Regroup` | voters, while one of them is here; else peers that are heard in the run |
//! | `Ready`, `Join` | peers that are heard in the run |
//! | `Commit` | anybody: it proves itself |
//!
//! A message that is not read is no fault: its author may know more than we do. A fault is only
//! what a message proves of its own author ([`crate::base::fault`]), and is looked for before this.

use crate::base::fault::{Fault, ReadyFault};
use crate::base::id::PeerId;
use crate::base::rule::Rule;
use crate::message::Message;

use super::facts::Facts;
use super::{roster, turns};

/// Whether `message` of `author`, about our series, is to be read.
pub(super) fn is_read(facts: Facts<'_>, author: &PeerId, message: &Message) -> bool {
    // T2: nothing is read of a stranger, except what proves itself.
    if facts.is_stranger(author) && !matches!(message, Message::Commit(_)) {
        return false;
    }
    let asking = facts.slot.series.asking.as_ref();
    let is_asking = |attempt| asking.is_some_and(|asking| asking.attempt == attempt);
    match message {
        Message::Done(_) | Message::Prepared(_) | Message::Ground(_) | Message::Opened(_) => {
            facts.names_voter(author)
        }
        Message::Query(query) => turns::may_open(facts, author, query.attempt),
        Message::Roster(_) => may_ask(facts, author),
        Message::Status(status) => may_ask(facts, author) || is_asking(status.attempt),
        Message::Report(report) => is_asking(report.attempt),
        Message::Refuse(refuse) => {
            let roster = facts.slot.roster(&refuse.what);
            may_ask(facts, author) || roster.is_some_and(|r| r.proposer == facts.me.peer)
        }
        Message::Accept(accept) => match facts.slot.roster(&accept.roster) {
            Some(roster) => roster.member(author).is_some(),
            None => takes_part(facts, author),
        },
        Message::Stalled(stalled) => {
            facts.slot.roster(&stalled.roster).is_some_and(|roster| roster.member(author).is_some())
        }
        Message::Regroup(_) => {
            is_heard(facts, author) && (facts.names_voter(author) || !facts.is_any_voter_here())
        }
        Message::Ready(_) | Message::Join(_) => is_heard(facts, author),
        Message::Commit(_) | Message::Heartbeat(_) | Message::Leaving(_) | Message::Notice(_) => {
            true
        }
    }
}

fn is_heard(facts: Facts<'_>, peer: &PeerId) -> bool {
    *peer == facts.me.peer || facts.step.table.peers.contains_key(peer)
}

/// G1: only voters propose, and ask before that.
fn may_ask(facts: Facts<'_>, peer: &PeerId) -> bool {
    facts.names_voter(peer) || (!facts.keeps(Rule::G1) && takes_part(facts, peer))
}

/// Whether a peer votes in this series, or has work to contribute.
fn takes_part(facts: Facts<'_>, peer: &PeerId) -> bool {
    *peer == facts.me.peer || facts.names_voter(peer) || facts.slot.ready.contains_key(peer)
}

/// What `message` proves against its author, about our series.
pub(super) fn fault_of(facts: Facts<'_>, author: PeerId, message: &Message) -> Option<Fault> {
    match message {
        Message::Ready(ready) if !facts.can_weigh(ready.weight) => {
            Some(Fault::Ready(ReadyFault::Weight))
        }
        Message::Roster(roster) => {
            roster::check_roster(facts, author, roster).err().map(Fault::Roster)
        }
        _ => None,
    }
}
