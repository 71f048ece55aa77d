//! Which messages are passed on: those that other peers may need. Anybody can make a key and sign useless
//! messages, and each message that is passed on costs bandwidth to each neighbour.
//!
//! A heartbeat is passed on if it is not older than the newest one of its author; a notice never, since
//! every peer that learns of it gossips it anew; any other message if its series is known and its author
//! votes or is heard in the run. A message that is not passed on is read all the same; what it means is for
//! the state to decide.

use intellect_protocol::base::sign::Verified;
use intellect_protocol::message::{Message, Series};
use intellect_protocol::peer;

/// What a message is worth to other peers, as far as is known here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Worth {
    /// Its author votes on the open epoch.
    Voter,
    /// Another author, whose message others may need.
    Other,
    /// The message is late, of an unknown series, or of an author that nobody knows here.
    Nothing,
}

/// The worth of a message that `peer` has not heard yet.
pub(super) fn worth(peer: &peer::State, message: &Verified<Message>) -> Worth {
    let author = message.author();
    let (series, voters) = peer.series();
    let votes = voters.iter().any(|voter| voter.peer == author);
    let heard = peer.table().peers.get(&author);
    let is_known = |about: Series| {
        about == series || peer.table().peers.values().any(|seen| seen.named(about).is_some())
    };
    let is_of_use = match message.body() {
        // Every peer that learns of it gossips it anew.
        Message::Notice(_) => false,
        // The same one may have come first by the control stream, from which nothing is passed
        // on.
        Message::Heartbeat(beat) => heard.is_none_or(|seen| {
            (beat.incarnation, beat.count) >= (seen.beat.incarnation, seen.beat.count)
        }),
        other => (votes || heard.is_some()) && other.series().is_none_or(is_known),
    };
    match (is_of_use, votes) {
        (false, _) => Worth::Nothing,
        (true, true) => Worth::Voter,
        (true, false) => Worth::Other,
    }
}
