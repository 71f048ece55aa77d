//! What liars say about their presence, head and work.
//!
//! Heartbeats are read of anybody, so these lies cost nothing: what they may cost others is bounded
//! by the view, the choice of positions, and the waits for Ready peers.

use intellect_protocol::base::id::{Digest, PeerId};
use intellect_protocol::message::{Heartbeat, Loss, Message, Ready, Series};

use super::{Cue, LOOK_MS, Voice, stranger_log};

/// Brings a fresh key each second, which is here for a moment and then silent (G8). Nobody may
/// wait for one of them.
pub(super) fn fresh_keys(voice: &mut Voice<'_>, cue: Cue<'_>) {
    let Cue::Look = cue else { return };
    if voice.rng.below(1_000) >= LOOK_MS {
        return;
    }
    let key = PeerId(Digest::derive("a fresh key", &voice.rng.next_u64().to_le_bytes()).0);
    let stands = voice.facts.stands;
    for stand in stands {
        let beat = voice.beat(stand);
        let beat = Heartbeat { log: stranger_log(&key), incarnation: 1, count: 1, ..beat };
        voice.say_as(key, stand.voter.peer, Message::Heartbeat(beat));
    }
}

/// Claims now and then that it has started again. A member repeats its heartbeats with a later
/// incarnation now and then, so that its real ones count as old.
pub(super) fn flap(voice: &mut Voice<'_>, cue: Cue<'_>) {
    match cue {
        Cue::Look if voice.facts.is_stranger && voice.rng.chance(0.3) => {
            voice.memory.incarnation += 1;
        }
        Cue::Says(Message::Heartbeat(beat)) if voice.rng.chance(0.3) => {
            voice.swallow();
            let incarnation = beat.incarnation + voice.rng.below(3);
            voice.gossip(Message::Heartbeat(Heartbeat { incarnation, ..beat.clone() }));
        }
        _ => {}
    }
}

/// Announces a greater head that no peer has (R12, R25). It cannot lead there, so a peer that asks
/// it sets the claim aside, and a Regroup waits for it once only.
pub(super) fn mint(voice: &mut Voice<'_>, cue: Cue<'_>) {
    let minted = |beat: &Heartbeat, state: u64| {
        let mut beat = beat.clone();
        beat.head.epoch += 5;
        beat.head.tokens += 1_000_000;
        beat.head.state = Digest::derive("a minted state", &state.to_le_bytes());
        beat.serves = beat.head.epoch;
        beat
    };
    match cue {
        Cue::Look if voice.facts.is_stranger => {
            voice.memory.count += 1;
            let stands = voice.facts.stands;
            for stand in stands {
                let beat = minted(&voice.beat(stand), stand.head.epoch);
                voice.send(stand.voter.peer, Message::Heartbeat(beat));
            }
        }
        Cue::Says(Message::Heartbeat(beat)) if beat.head.epoch % 2 == 0 => {
            voice.swallow();
            voice.gossip(Message::Heartbeat(minted(beat, beat.head.epoch)));
        }
        _ => {}
    }
}

/// Sends heartbeats, and is never Ready (G5). The others wait for it once, and then for some epochs
/// no more.
pub(super) fn never_ready(voice: &mut Voice<'_>, cue: Cue<'_>) {
    voice.memory.ready = 0;
    match cue {
        Cue::Says(Message::Ready(_)) => voice.swallow(),
        Cue::Says(Message::Heartbeat(beat)) if beat.ready > 0 => {
            voice.swallow();
            voice.gossip(Message::Heartbeat(Heartbeat { ready: 0, ..beat.clone() }));
        }
        _ => {}
    }
}

/// Is never Ready for its own start, and says once in each epoch that it is for the next one (G5). It
/// is waited for no longer than one that says nothing.
pub(super) fn ready_elsewhere(voice: &mut Voice<'_>, cue: Cue<'_>) {
    never_ready(voice, cue);
    match cue {
        Cue::Says(Message::Ready(ready)) => {
            let incarnation = ready.incarnation + 1;
            voice.gossip(Message::Ready(Ready { incarnation, ..ready.clone() }));
        }
        Cue::Look if voice.facts.is_stranger => {
            let incarnation = voice.memory.incarnation + 1;
            if let Some(stand) = voice.enters() {
                voice.gossip(declared(stand.series, incarnation));
            }
        }
        _ => {}
    }
}

/// Says all the time that it is Ready, each time for a later start (G5). Waits that begin when the last
/// voter is Ready begin once all the same.
pub(super) fn ready_again(voice: &mut Voice<'_>, cue: Cue<'_>) {
    let Cue::Look = cue else { return };
    let Some(newest) = voice.facts.stands.iter().max_by_key(|stand| stand.head.epoch) else {
        return;
    };
    voice.memory.incarnation += 1;
    voice.gossip(declared(newest.series, voice.memory.incarnation));
}

fn declared(series: Series, incarnation: u64) -> Message {
    Message::Ready(Ready { series, incarnation, weight: 100, norm: 1.0, loss: Loss(2.0) })
}
