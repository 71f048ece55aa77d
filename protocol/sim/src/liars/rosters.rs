//! What liars do with rosters: refuse, ignore, duplicate and bias them.
//!
//! A proposer decides alone which peers compute; what it may do with that is bounded by G6 and G7,
//! and what a member may do to a roster by G4 and G5.

use intellect_protocol::base::id::PeerId;
use intellect_protocol::message::wire;
use intellect_protocol::message::{Accept, Loss, Member, Message, Ready, Roster, Stalled, Voter};

use super::{Cue, Voice, refusal};

/// Refuses each roster that names it (G4). That costs it its position, and the others at most this
/// attempt.
pub(super) fn refuse(voice: &mut Voice<'_>, cue: Cue<'_>) {
    match cue {
        Cue::Says(Message::Accept(_)) => voice.swallow(),
        Cue::Hears(Message::Roster(roster)) if roster.member(&voice.me()).is_some() => {
            let what = wire::roster_digest(&voice.facts.run, roster);
            voice.send(roster.proposer, refusal(roster.series, what, 0));
        }
        _ => {}
    }
}

/// Accepts each roster that names it, for a position in which it then does nothing (G5).
pub(super) fn accept(voice: &mut Voice<'_>, cue: Cue<'_>) {
    accepted(voice, cue);
}

/// Accepts the roster of a cue if that names the liar, once for each roster. Returns that roster.
pub(super) fn accepted<'a>(voice: &mut Voice<'_>, cue: Cue<'a>) -> Option<&'a Roster> {
    let Cue::Hears(Message::Roster(roster)) = cue else { return None };
    roster.member(&voice.me())?;
    let (series, digest) = (roster.series, wire::roster_digest(&voice.facts.run, roster));
    if !voice.answers(digest) {
        return None;
    }
    voice.gossip(Message::Accept(Accept { series, roster: digest }));
    Some(roster)
}

/// Proposes, and accepts what others propose, but not its own roster (R38). The others wait for its
/// Accept until the deadline of that attempt.
pub(super) fn disown(voice: &mut Voice<'_>, cue: Cue<'_>) {
    match cue {
        Cue::Says(Message::Roster(roster)) => {
            let digest = wire::roster_digest(&voice.facts.run, roster);
            voice.answers(digest);
        }
        // It has answered this one already: it is its own.
        Cue::Says(Message::Accept(accept)) if !voice.answers(accept.roster) => voice.swallow(),
        _ => {}
    }
}

/// Shows every second member another roster, in which two members have changed positions. An
/// acceptor of one reports it once it has seen both (R2, R3).
pub(super) fn show_two(voice: &mut Voice<'_>, cue: Cue<'_>) {
    if let Cue::Says(Message::Roster(roster)) = cue {
        let mut other = roster.clone();
        let last = other.members.len() - 1;
        other.members.swap(last, last.saturating_sub(1));
        for member in roster.members.iter().skip(1).step_by(2) {
            voice.send(member.peer, Message::Roster(other.clone()));
        }
    }
}

/// Leaves a neighbour of its last ring out of its own rosters, and says just before that this one is
/// lost (R35). It may cost the neighbour a position, and never the vote (G6).
pub(super) fn leave_out(voice: &mut Voice<'_>, cue: Cue<'_>) {
    match cue {
        Cue::Hears(Message::Roster(roster)) => {
            let ring: Vec<PeerId> = roster.ring().map(|m| m.peer).collect();
            if let Some(at) = ring.iter().position(|peer| *peer == voice.me()) {
                let digest = wire::roster_digest(&voice.facts.run, roster);
                voice.memory.ring = Some((roster.series, digest, ring[(at + 1) % ring.len()]));
            }
        }
        Cue::Says(Message::Roster(roster)) => {
            let Some((series, digest, lost)) = voice.memory.ring else { return };
            if series != roster.series || lost == voice.me() {
                return;
            }
            voice.swallow();
            let stalled = Stalled { series, roster: digest, lost: Some(lost), hops: 0 };
            voice.gossip(Message::Stalled(stalled));
            let mut other = roster.clone();
            other.members.retain(|member| member.peer != lost);
            // Its own machine would compute for the roster that it did not show.
            for member in other.members.iter_mut().filter(|member| member.peer == voice.me()) {
                member.weight = 0;
            }
            other.members.sort_by_key(|member| member.weight == 0);
            voice.gossip(Message::Roster(other));
        }
        _ => {}
    }
}

/// Names another start of one member than that has declared, which that cannot accept (R37). The
/// others must not think it late.
pub(super) fn misname(voice: &mut Voice<'_>, cue: Cue<'_>) {
    let Cue::Says(Message::Roster(roster)) = cue else { return };
    let me = voice.me();
    let others: Vec<PeerId> = roster.ring().map(|m| m.peer).filter(|peer| *peer != me).collect();
    let Some(victim) = voice.rng.pick(&others).copied() else { return };
    voice.swallow();
    let mut other = roster.clone();
    for member in &mut other.members {
        // Its own machine would compute for the roster that it did not show.
        member.weight = if member.peer == me { 0 } else { member.weight };
        member.incarnation += u64::from(member.peer == victim);
    }
    other.members.sort_by_key(|member| member.weight == 0);
    voice.gossip(Message::Roster(other));
}

/// Proposes when an epoch opens: a bare majority of the voters, with positions only for those
/// that lie and are Ready (G6). An acceptor refuses it as long as the roster lacks a voter that is
/// alive to it.
pub(super) fn grab(voice: &mut Voice<'_>, cue: Cue<'_>) {
    let Cue::Look = cue else { return };
    let me = voice.me();
    let (stands, incarnation) = (voice.facts.stands, voice.memory.incarnation);
    let mine = voice.facts.me;
    let Some(stand) = voice.enters() else { return };
    let series = stand.series;
    if !stand.voters.contains(&mine) {
        return;
    }
    let half = stand.voters.len() / 2 + 1;
    let of = |peer| stands.iter().find(|stand| stand.voter.peer == peer);
    let member = |voter: &Voter| {
        let stand = of(voter.peer);
        let liar = stand.filter(|stand| stand.lies && stand.series == series);
        Member {
            peer: voter.peer,
            log: voter.log,
            incarnation: stand.map_or(incarnation, |stand| stand.incarnation),
            weight: liar.map_or(0, |stand| stand.ready),
        }
    };
    let mut members: Vec<Member> = stand.voters.iter().map(member).collect();
    members.sort_by_key(|member| (member.peer != me, member.weight == 0));
    members.truncate(half);
    if members.iter().any(|member| member.weight > 0) {
        let (heard, adopt, keep) = (Vec::new(), None, Vec::new());
        let roster =
            Roster { series, attempt: 1, proposer: me, members, heard, adopt, trust: None, keep };
        voice.gossip(Message::Roster(roster));
    } else {
        // The other liars are not Ready yet.
        voice.memory.series = None;
    }
}

/// Declares one weight to half of the peers, and another to the other half.
pub(super) fn weigh_twice(voice: &mut Voice<'_>, cue: Cue<'_>) {
    let Cue::Look = cue else { return };
    let (stands, incarnation) = (voice.facts.stands, voice.memory.incarnation);
    if voice.enters().is_none() {
        return;
    }
    for (n, stand) in stands.iter().enumerate() {
        let weight = if n % 2 == 0 { 100 } else { 200 };
        let ready = Ready { series: stand.series, incarnation, weight, norm: 1.0, loss: Loss(2.0) };
        voice.send(stand.voter.peer, Message::Ready(ready));
    }
}
