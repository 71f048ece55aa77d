//! What is said of an epoch and of its peers: functions of their arguments, which know no console.

use intellect_protocol::base::id::PeerId;
use intellect_protocol::message::{Absence, Receipt};

use crate::figures::number_of;

/// The members of the roster that formed a receipt, then the peers of which only kept chunks count; each with the
/// weight that counts.
pub(crate) fn contributors(receipt: &Receipt) -> Vec<(PeerId, u64)> {
    let mut rest = receipt.contributors();
    let members = receipt.members.iter().map(|member| {
        let weight = rest.remove(&(member.peer, member.incarnation)).unwrap_or(0);
        (member.peer, weight)
    });
    let mut all: Vec<_> = members.collect();
    all.extend(rest.into_iter().map(|((peer, _), weight)| (peer, weight)));
    all
}

/// What an epoch is for this node: its loss, or that the epoch is without it. Work that was `left_out`, finished or not,
/// goes into the next one.
pub(super) fn our_part(loss: Option<f64>, left_out: bool) -> String {
    match (loss, left_out) {
        (Some(loss), _) => format!("loss {loss:.3}"),
        (None, true) => "without us, nothing is lost".to_owned(),
        (None, false) => "without us".to_owned(),
    }
}

/// The sentence that this node goes over to the lineage of others. The greater one need not have more epochs.
pub(super) fn behind(ours: u64, theirs: u64, donors: usize) -> String {
    let what = match theirs > ours {
        true => format!("the run is at epoch {theirs}, we are at {ours}"),
        false => format!("others follow a greater lineage, at epoch {theirs}, we are at {ours}"),
    };
    format!("behind: {what}; {}", number_of(donors, "donor"))
}

/// The sentence about a Regroup: how many members it has, and why it leaves how many voters out.
/// The first epoch's founds the run, if nobody is absent.
pub(super) fn regrouped(epoch: u64, members: usize, absent: &[Absence]) -> String {
    let members = number_of(members, "peer");
    let gone = REASONS.iter().filter_map(|(reason, one, more)| {
        let number = absent.iter().filter(|why| *why == reason).count();
        let how = if number == 1 { one } else { more };
        (number > 0).then(|| format!("{number} that {how}"))
    });
    let gone: Vec<String> = gone.collect();
    match gone.as_slice() {
        [] if epoch == 1 => format!("founded: the run begins with {members}"),
        [] => format!("regrouped: {members} together"),
        gone => format!("regrouped: {members} without {}", gone.join(" and ")),
    }
}

/// Why a Regroup leaves voters out, in the words for one of them and for more.
const REASONS: [(Absence, &str, &str); 6] = [
    (Absence::Left, "left", "left"),
    (Absence::Revoked, "is revoked", "are revoked"),
    (Absence::Elsewhere, "joined other peers", "joined other peers"),
    (Absence::OtherLog, "lost its votes", "lost their votes"),
    (Absence::Mute, "gives no answer", "give no answer"),
    (Absence::Silent, "is silent", "are silent"),
];
