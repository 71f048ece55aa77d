//! What liars say of where they stand (H5, H6, M1).

use intellect_protocol::base::id::{Digest, PeerId};
use intellect_protocol::message::{Heartbeat, Message};

use super::{Cue, LOOK_MS, Tongue, stranger_log};

/// H5, H6: a fresh key each second.
pub(super) fn fresh_keys(tongue: &mut Tongue<'_>, cue: Cue<'_>) {
    let Cue::Look = cue else { return };
    if tongue.rng.below(1_000) >= LOOK_MS {
        return;
    }
    let key = PeerId(Digest::derive("a fresh key", &tongue.rng.next_u64().to_le_bytes()).0);
    let stands = tongue.facts.stands;
    for stand in stands {
        let beat = tongue.beat(stand);
        let beat = Heartbeat { log: stranger_log(&key), incarnation: 1, count: 1, ..beat };
        tongue.say_as(key, stand.voter.peer, Message::Heartbeat(beat));
    }
}

/// Says now and then that it has started again.
pub(super) fn flap(tongue: &mut Tongue<'_>, cue: Cue<'_>) {
    match cue {
        Cue::Look if tongue.facts.is_stranger && tongue.rng.chance(0.3) => {
            tongue.memory.incarnation += 1;
        }
        Cue::Says(Message::Heartbeat(beat)) if tongue.rng.chance(0.3) => {
            tongue.swallow();
            let incarnation = beat.incarnation + tongue.rng.below(3);
            tongue.gossip(Message::Heartbeat(Heartbeat { incarnation, ..beat.clone() }));
        }
        _ => {}
    }
}

/// M1: tells of a greater head that nobody has.
pub(super) fn mint(tongue: &mut Tongue<'_>, cue: Cue<'_>) {
    let minted = |beat: &Heartbeat, state: u64| {
        let mut beat = beat.clone();
        beat.head.epoch += 5;
        beat.head.tokens += 1_000_000;
        beat.head.state = Digest::derive("a minted state", &state.to_le_bytes());
        beat.serves = beat.head.epoch;
        beat
    };
    match cue {
        Cue::Look if tongue.facts.is_stranger => {
            tongue.memory.count += 1;
            let stands = tongue.facts.stands;
            for stand in stands {
                let beat = minted(&tongue.beat(stand), stand.head.epoch);
                tongue.send(stand.voter.peer, Message::Heartbeat(beat));
            }
        }
        Cue::Says(Message::Heartbeat(beat)) if beat.head.epoch % 2 == 0 => {
            tongue.swallow();
            tongue.gossip(Message::Heartbeat(minted(beat, beat.head.epoch)));
        }
        _ => {}
    }
}

/// Lives, and is never Ready.
pub(super) fn never_ready(tongue: &mut Tongue<'_>, cue: Cue<'_>) {
    tongue.memory.ready = 0;
    match cue {
        Cue::Says(Message::Ready(_)) => tongue.swallow(),
        Cue::Says(Message::Heartbeat(beat)) if beat.ready > 0 => {
            tongue.swallow();
            tongue.gossip(Message::Heartbeat(Heartbeat { ready: 0, ..beat.clone() }));
        }
        _ => {}
    }
}
