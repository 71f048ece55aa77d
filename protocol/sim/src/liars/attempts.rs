//! What liars do with the numbers of attempts.
//!
//! An attempt number that a liar names must neither end the ring of others nor move them, unless
//! more than may lie have come to it (R38).

use intellect_protocol::base::id::Digest;
use intellect_protocol::message::{Heartbeat, Message, Query, Series};

use super::{Attempt, Cue, Voice, refusal, rosters};

/// By how much others follow at once to a higher attempt (R38).
const FAR: Attempt = 1 << 10;

/// The Query that opens this attempt, as its owner would send it.
fn ask(series: Series, attempt: Attempt) -> Message {
    Message::Query(Query { series, attempt })
}

/// Records the highest attempt of the newest series that any peer names.
fn note(voice: &mut Voice<'_>, series: Series, attempt: Attempt) {
    let memory = &mut *voice.memory;
    match memory.series {
        Some(known) if known == series => memory.attempt = memory.attempt.max(attempt),
        Some(known) if known.epoch > series.epoch => {}
        _ => (memory.series, memory.attempt) = (Some(series), attempt),
    }
}

/// Records the attempts that a Roster or a Query names.
fn noted(voice: &mut Voice<'_>, cue: Cue<'_>) {
    match cue {
        Cue::Hears(Message::Roster(m)) => note(voice, m.series, m.attempt),
        Cue::Hears(Message::Query(m)) => note(voice, m.series, m.attempt),
        _ => {}
    }
}

/// Accepts each roster that names it, and queries for the next attempt 6 ms later (G2).
pub(super) fn ask_after(voice: &mut Voice<'_>, cue: Cue<'_>) {
    if let Some(roster) = rosters::accepted(voice, cue) {
        voice.gossip_later(6, ask(roster.series, roster.attempt.saturating_add(1)));
    }
}

/// Queries for the next attempt every [`LOOK_MS`](super::LOOK_MS) (G2).
pub(super) fn ask_always(voice: &mut Voice<'_>, cue: Cue<'_>) {
    noted(voice, cue);
    if let (Cue::Look, Some(series)) = (cue, voice.memory.series) {
        let attempt = voice.memory.attempt.saturating_add(1).max(2);
        voice.gossip(ask(series, attempt));
    }
}

/// Queries for attempts as far above as any peer may be (G2). A voter reads a Query of the owner of
/// its attempt alone, and answers it once it has come there itself.
pub(super) fn ask_far(voice: &mut Voice<'_>, cue: Cue<'_>) {
    noted(voice, cue);
    if let (Cue::Look, Some(series)) = (cue, voice.memory.series) {
        let attempt = voice.memory.attempt.saturating_add(FAR);
        voice.memory.attempt = attempt;
        voice.gossip(ask(series, attempt));
    }
}

/// Refuses each query, with a promise as far above as any peer may be (G1, G2).
pub(super) fn promise_far(voice: &mut Voice<'_>, cue: Cue<'_>) {
    match cue {
        Cue::Says(Message::Status(_)) => voice.swallow(),
        Cue::Hears(Message::Query(query)) => {
            let promised = query.attempt.saturating_add(FAR);
            voice.gossip(refusal(query.series, Digest::ZERO, promised));
        }
        _ => {}
    }
}

/// Names an attempt in its heartbeats that no peer has come to (R38). Others follow only to an
/// attempt that more voters name than may lie.
pub(super) fn come_far(voice: &mut Voice<'_>, cue: Cue<'_>) {
    if let Cue::Says(Message::Heartbeat(beat)) = cue
        && beat.attempt < FAR
    {
        voice.swallow();
        let attempt = beat.attempt + FAR;
        voice.gossip(Message::Heartbeat(Heartbeat { attempt, ..beat.clone() }));
    }
}
