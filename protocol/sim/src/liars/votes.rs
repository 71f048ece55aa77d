//! What liars do with votes: withhold, hide, invent and repeat them.
//!
//! Each leaves its machine as it is and changes only its messages, so the machine of a liar goes on
//! by the rules.

use intellect_protocol::base::id::Digest;
use intellect_protocol::message::wire;
use intellect_protocol::message::{Done, Join, Message, Ranked, Series, Stalled, Status};

use super::{Cue, Voice};

/// Takes part in everything and never votes (G9). Its rings end like any other, and an epoch
/// commits without its vote as long as a majority of the others votes.
pub(super) fn never(voice: &mut Voice<'_>, cue: Cue<'_>) {
    if let Cue::Says(Message::Done(_) | Message::Commit(_)) = cue {
        voice.swallow();
    }
}

/// Sends heartbeats and Readies, and nothing else (G9). So it counts as here for everybody, and a
/// Regroup can leave it behind only as mute.
pub(super) fn mute(voice: &mut Voice<'_>, cue: Cue<'_>) {
    if let Cue::Says(message) = cue
        && !matches!(message, Message::Heartbeat(_) | Message::Ready(_))
    {
        voice.swallow();
    }
}

/// Claims that it has not voted, even if it has (G14). It withholds the proof of its vote too. An
/// acceptor that knows the vote refuses a roster that rests on this Status.
pub(super) fn forget(voice: &mut Voice<'_>, cue: Cue<'_>) {
    match cue {
        Cue::Says(Message::Status(status)) if status.done.is_some() => {
            voice.swallow();
            let status = Status { done: None, holds_forced: false, ..*status };
            voice.gossip(Message::Status(status));
        }
        Cue::Says(Message::Ground(_)) => voice.swallow(),
        _ => {}
    }
}

/// A value that no ring has computed. It is the same for all liars of an epoch, so that their false
/// votes for it add up.
fn invented(series: &Series) -> Digest {
    Digest::derive("an invented value", &series.parent.0)
}

/// Claims in each Status a vote for a value of its own, at the highest possible attempt (R8).
/// Nobody can prove such a vote, so it must count as no answer.
pub(super) fn invent(voice: &mut Voice<'_>, cue: Cue<'_>) {
    if let Cue::Says(Message::Status(status)) = cue {
        voice.swallow();
        let done = Ranked { depth: 0, attempt: status.attempt, r: invented(&status.series) };
        voice.gossip(Message::Status(Status { done: Some(done), ..*status }));
    }
}

/// Votes on each roster for its value, and for another one (R11). The second vote goes to all
/// peers, and each that has both reports the liar.
pub(super) fn vote_twice(voice: &mut Voice<'_>, cue: Cue<'_>) {
    if let Cue::Says(Message::Done(done)) = cue {
        let update = invented(&done.series);
        let r = Digest::derive("a receipt of it", &update.0);
        voice.gossip(Message::Done(Done { r, update, ..*done }));
    }
}

/// Joins each Regroup twice, the second time with a vote that it never gave (R13). Members that
/// have both Joins do not open the series; members that have different ones would open two.
pub(super) fn join_twice(voice: &mut Voice<'_>, cue: Cue<'_>) {
    if let Cue::Says(Message::Join(join)) = cue {
        let done = Ranked { depth: 0, attempt: 1, r: invented(&join.series) };
        voice.gossip(Message::Join(Join { done: Some(done), ..join.clone() }));
    }
}

/// Says in each ring of which it is a member that a neighbour is gone (R35). One such report must
/// cost the others no more than this ring.
pub(super) fn report(voice: &mut Voice<'_>, cue: Cue<'_>) {
    let Cue::Hears(Message::Roster(roster)) = cue else { return };
    let ring: Vec<_> = roster.ring().map(|m| m.peer).collect();
    let Some(at) = ring.iter().position(|peer| *peer == voice.me()) else { return };
    let beside = [ring[(at + 1) % ring.len()], ring[(at + ring.len() - 1) % ring.len()]];
    if let Some(lost) = voice.rng.pick(&beside).copied() {
        let (series, roster) = (roster.series, wire::roster_digest(&voice.facts.run, roster));
        let stalled = Stalled { series, roster, lost: Some(lost), hops: 0 };
        voice.gossip_later(200, Message::Stalled(stalled));
    }
}

/// Says of each ring that stops that nothing has come (R40). That puts it in dispute with the
/// neighbour that has sent, and not others with each other.
pub(super) fn deny(voice: &mut Voice<'_>, cue: Cue<'_>) {
    if let Cue::Says(Message::Stalled(stalled)) = cue {
        voice.swallow();
        voice.gossip(Message::Stalled(Stalled { lost: None, hops: 0, ..*stalled }));
    }
}
