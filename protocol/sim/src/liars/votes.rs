//! What liars do with votes (H4, G3, G14).

use intellect_protocol::base::id::Digest;
use intellect_protocol::message::wire;
use intellect_protocol::message::{Done, Join, Lost, Message, Ranked, Status};

use super::{Cue, Tongue};

/// H4: takes part in everything and never votes.
pub(super) fn never(tongue: &mut Tongue<'_>, cue: Cue<'_>) {
    if let Cue::Says(Message::Done(_) | Message::Commit(_)) = cue {
        tongue.swallow();
    }
}

/// H4: says that it lives, and no more.
pub(super) fn mute(tongue: &mut Tongue<'_>, cue: Cue<'_>) {
    if let Cue::Says(message) = cue
        && !matches!(message, Message::Heartbeat(_) | Message::Ready(_))
    {
        tongue.swallow();
    }
}

/// G14: says that it has not voted, whatever it has.
pub(super) fn forget(tongue: &mut Tongue<'_>, cue: Cue<'_>) {
    match cue {
        Cue::Says(Message::Status(status)) if status.done.is_some() => {
            tongue.swallow();
            let status = Status { done: None, holds_forced: false, ..*status };
            tongue.gossip(Message::Status(status));
        }
        Cue::Says(Message::Ground(_)) => tongue.swallow(),
        _ => {}
    }
}

/// A value that nobody has computed.
fn invented(series: &intellect_protocol::message::Series) -> Digest {
    Digest::derive("an invented value", &series.parent.0)
}

/// F1: says in each Status that it has voted for a value of its own, at the highest attempt that can be.
pub(super) fn invent(tongue: &mut Tongue<'_>, cue: Cue<'_>) {
    if let Cue::Says(Message::Status(status)) = cue {
        tongue.swallow();
        let done = Ranked { depth: 0, attempt: status.attempt, r: invented(&status.series) };
        tongue.gossip(Message::Status(Status { done: Some(done), ..*status }));
    }
}

/// Votes on each roster for the value that it has, and for another one.
pub(super) fn vote_twice(tongue: &mut Tongue<'_>, cue: Cue<'_>) {
    if let Cue::Says(Message::Done(done)) = cue {
        let update = invented(&done.series);
        let r = Digest::derive("a receipt of it", &update.0);
        tongue.gossip(Message::Done(Done { r, update, ..*done }));
    }
}

/// B7: joins each Regroup twice, the second time with a vote that it never gave.
pub(super) fn join_twice(tongue: &mut Tongue<'_>, cue: Cue<'_>) {
    if let Cue::Says(Message::Join(join)) = cue {
        let done = Ranked { depth: 0, attempt: 1, r: invented(&join.series) };
        tongue.gossip(Message::Join(Join { done: Some(done), ..join.clone() }));
    }
}

/// G3: reports some member of each ring lost in which it is.
pub(super) fn report(tongue: &mut Tongue<'_>, cue: Cue<'_>) {
    let Cue::Hears(Message::Roster(roster)) = cue else { return };
    let others: Vec<_> =
        roster.ring().map(|m| m.peer).filter(|peer| *peer != tongue.me()).collect();
    if roster.member(&tongue.me()).is_some()
        && let Some(who) = tongue.rng.pick(&others).copied()
    {
        let (series, roster) = (roster.series, wire::roster_digest(&tongue.facts.run, roster));
        tongue.gossip_later(200, Message::Lost(Lost { series, roster, who }));
    }
}
