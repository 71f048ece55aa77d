//! What liars do with the numbers of attempts (H2, H3).

use intellect_protocol::base::id::Digest;
use intellect_protocol::message::wire;
use intellect_protocol::message::{Accept, Head, Message, Query, Refusal, Refuse, Series};

use super::{Attempt, Cue, Tongue};

/// As far above what a majority has come to as an attempt is read.
const FAR: Attempt = 1 << 10;

fn ask(series: Series, attempt: Attempt) -> Message {
    Message::Query(Query { series, attempt, lost: Vec::new() })
}

/// Remembers the highest attempt of the newest series that anybody names.
fn note(tongue: &mut Tongue<'_>, series: Series, attempt: Attempt) {
    let memory = &mut *tongue.memory;
    match memory.series {
        Some(known) if known == series => memory.attempt = memory.attempt.max(attempt),
        Some(known) if known.epoch > series.epoch => {}
        _ => (memory.series, memory.attempt) = (Some(series), attempt),
    }
}

fn noted(tongue: &mut Tongue<'_>, cue: Cue<'_>) {
    match cue {
        Cue::Hears(Message::Roster(m)) => note(tongue, m.series, m.attempt),
        Cue::Hears(Message::Query(m)) => note(tongue, m.series, m.attempt),
        _ => {}
    }
}

/// H2: accepts each roster that names it, and asks for the next attempt 6 ms later.
pub(super) fn ask_after(tongue: &mut Tongue<'_>, cue: Cue<'_>) {
    if let Cue::Hears(Message::Roster(roster)) = cue
        && roster.member(&tongue.me()).is_some()
    {
        let (series, digest) = (roster.series, wire::roster_digest(&tongue.facts.run, roster));
        if tongue.answers(digest) {
            let accept = Accept { series, roster: digest };
            tongue.gossip(Message::Accept(accept));
            tongue.gossip_later(6, ask(series, roster.attempt.saturating_add(1)));
        }
    }
}

/// H2: asks for the next attempt whenever it looks up.
pub(super) fn ask_always(tongue: &mut Tongue<'_>, cue: Cue<'_>) {
    noted(tongue, cue);
    if let (Cue::Look, Some(series)) = (cue, tongue.memory.series) {
        let attempt = tongue.memory.attempt.saturating_add(1).max(2);
        tongue.gossip(ask(series, attempt));
    }
}

/// H3: asks for attempts as far as anybody may be.
pub(super) fn ask_far(tongue: &mut Tongue<'_>, cue: Cue<'_>) {
    noted(tongue, cue);
    if let (Cue::Look, Some(series)) = (cue, tongue.memory.series) {
        let attempt = tongue.memory.attempt.saturating_add(FAR);
        tongue.memory.attempt = attempt;
        tongue.gossip(ask(series, attempt));
    }
}

/// H3, H4: refuses each question, with a promise as far as anybody may be.
pub(super) fn promise_far(tongue: &mut Tongue<'_>, cue: Cue<'_>) {
    match cue {
        Cue::Says(Message::Status(_)) => tongue.swallow(),
        Cue::Hears(Message::Query(query)) => {
            let (series, what, reason) = (query.series, Digest::ZERO, Refusal::Promised);
            let promised = query.attempt.saturating_add(FAR);
            let head = Head { epoch: series.epoch - 1, tokens: 0, state: series.parent };
            tongue.gossip(Message::Refuse(Refuse { series, what, promised, head, reason }));
        }
        _ => {}
    }
}
