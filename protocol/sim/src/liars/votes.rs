//! What liars do with votes (H4, G3, G14).

use intellect_protocol::message::{Lost, Message, Status};
use intellect_protocol::wire;

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
