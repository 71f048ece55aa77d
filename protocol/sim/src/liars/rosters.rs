//! What liars do with rosters (H1, H2, H7).

use intellect_protocol::message::wire;
use intellect_protocol::message::{Accept, Member, Message, Ready, Refusal, Refuse, Roster};

use super::{Cue, Tongue};

/// H1: refuses each roster that names it.
pub(super) fn refuse(tongue: &mut Tongue<'_>, cue: Cue<'_>) {
    match cue {
        Cue::Says(Message::Accept(_)) => tongue.swallow(),
        Cue::Hears(Message::Roster(roster)) if roster.member(&tongue.me()).is_some() => {
            let what = wire::roster_digest(&tongue.facts.run, roster);
            let head = intellect_protocol::message::Head {
                epoch: roster.series.epoch - 1,
                tokens: 0,
                state: roster.series.parent,
            };
            let (series, reason) = (roster.series, Refusal::Promised);
            let refuse = Refuse { series, what, promised: 0, head, reason };
            tongue.send(roster.proposer, Message::Refuse(refuse));
        }
        _ => {}
    }
}

/// Accepts each roster that names it, for a place that it does not take.
pub(super) fn accept(tongue: &mut Tongue<'_>, cue: Cue<'_>) {
    if let Cue::Hears(Message::Roster(roster)) = cue
        && roster.member(&tongue.me()).is_some()
    {
        let digest = wire::roster_digest(&tongue.facts.run, roster);
        if tongue.answers(digest) {
            let accept = Accept { series: roster.series, roster: digest };
            tongue.gossip(Message::Accept(accept));
        }
    }
}

/// Proposes, and accepts what others propose, but not its own.
pub(super) fn disown(tongue: &mut Tongue<'_>, cue: Cue<'_>) {
    match cue {
        Cue::Says(Message::Roster(roster)) => {
            let digest = wire::roster_digest(&tongue.facts.run, roster);
            tongue.answers(digest);
        }
        // It has answered this one already: it is its own.
        Cue::Says(Message::Accept(accept)) if !tongue.answers(accept.roster) => tongue.swallow(),
        _ => {}
    }
}

/// Shows each second member of its roster another one, in which two have changed places.
pub(super) fn show_two(tongue: &mut Tongue<'_>, cue: Cue<'_>) {
    if let Cue::Says(Message::Roster(roster)) = cue {
        let mut other = roster.clone();
        let last = other.members.len() - 1;
        other.members.swap(last, last.saturating_sub(1));
        for member in roster.members.iter().skip(1).step_by(2) {
            tongue.send(member.peer, Message::Roster(other.clone()));
        }
    }
}

/// H7: proposes as an epoch opens: a bare majority of the voters, and no place but for those that lie and
/// are Ready.
pub(super) fn grab(tongue: &mut Tongue<'_>, cue: Cue<'_>) {
    let Cue::Look = cue else { return };
    let me = tongue.me();
    let (stands, incarnation) = (tongue.facts.stands, tongue.memory.incarnation);
    let mine = tongue.facts.me;
    let Some(stand) = tongue.enters() else { return };
    let series = stand.series;
    if !stand.voters.contains(&mine) {
        return;
    }
    let half = stand.voters.len() / 2 + 1;
    let of = |peer| stands.iter().find(|stand| stand.voter.peer == peer);
    let member = |voter: &intellect_protocol::message::Voter| {
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
        tongue.gossip(Message::Roster(roster));
    } else {
        // Those that lie are not Ready yet.
        tongue.memory.series = None;
    }
}

/// Tells one half of the peers another weight than the other half.
pub(super) fn weigh_twice(tongue: &mut Tongue<'_>, cue: Cue<'_>) {
    let Cue::Look = cue else { return };
    let (stands, incarnation) = (tongue.facts.stands, tongue.memory.incarnation);
    if tongue.enters().is_none() {
        return;
    }
    for (n, stand) in stands.iter().enumerate() {
        let weight = if n % 2 == 0 { 100 } else { 200 };
        let ready = Ready { series: stand.series, incarnation, weight, norm: 1.0 };
        tongue.send(stand.voter.peer, Message::Ready(ready));
    }
}
