//! Which messages are passed on: those that others may need. Anybody can make a key and sign what
//! is of no use to anybody, and each message that is passed on costs a line for each neighbour.
//!
//! A heartbeat is worth it if it is not older than the newest one of its author, a notice never, since whoever learns of
//! it says it anew; any other message if the series that it is about is known, and its author is heard in
//! the run or votes. This is about
//! lines only: what is not passed on is read all the same, and what a message means is for the state.

use intellect_protocol::base::id::PeerId;
use intellect_protocol::base::sign::Verified;
use intellect_protocol::message::{Message, Series};
use intellect_protocol::peer;

/// What a message is worth to others, as far as is known here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Worth {
    /// Somebody says it who votes on the open epoch.
    Voter,
    /// Somebody else says it, whom it may concern.
    Stranger,
    /// Nobody needs it.
    Nothing,
}

/// What a message is worth that `peer` has not heard yet.
pub(super) fn worth(peer: &peer::State, message: &Verified<Message>) -> Worth {
    let (author, (_, voters)) = (message.author(), peer.series());
    let votes = voters.iter().any(|voter| voter.peer == author);
    if !is_of_use(peer, author, message.body()) {
        return Worth::Nothing;
    }
    if votes { Worth::Voter } else { Worth::Stranger }
}

fn is_of_use(peer: &peer::State, author: PeerId, message: &Message) -> bool {
    if matches!(message, Message::Notice(_)) {
        // Whoever learns of it says it anew.
        return false;
    }
    let (series, voters) = peer.series();
    let heard = peer.roll().peers.get(&author);
    if let Message::Heartbeat(beat) = message {
        // The same one may have come first by another way, on which it is not passed on.
        return heard.is_none_or(|seen| {
            (beat.incarnation, beat.count) >= (seen.beat.incarnation, seen.beat.count)
        });
    }
    let speaks = heard.is_some() || voters.iter().any(|voter| voter.peer == author);
    let is_known = |about: Series| {
        about == series || peer.roll().peers.values().any(|seen| seen.named(about).is_some())
    };
    speaks && message.series().is_none_or(is_known)
}
