//! Which peers do not accept the rosters that name them (R37, G4, T4).
//!
//! A live peer that leaves a roster waiting for its Accept, or refuses it, has no ring position in
//! later rosters until it accepts or answers, and the second time in the whole epoch. Else one peer
//! that only says that it lives could hold up an epoch without end. What such a peer has learnt is
//! carried to the next epoch.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::id::PeerId;

/// How a peer did not accept a roster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::consensus::epoch) enum Decline {
    /// Its Accept did not come in time.
    Late,
    /// It refused a roster of ours.
    Refused,
    /// It refused a roster of ours with good reason.
    Justified,
    /// It refuses a ticket as expired: the ticket stays in use, so it would refuse the next roster
    /// as well.
    Expired,
}

impl Decline {
    /// The table: for how many it counts, whether it costs the position at once, and whether an
    /// answer to a Query gives that back, as an Accept does.
    fn terms(self) -> (u32, bool, bool) {
        match self {
            Self::Late => (1, true, false),
            Self::Refused => (1, true, true),
            Self::Justified => (1, false, true),
            Self::Expired => (DECLINES_MAX, true, true),
        }
    }
}

/// The peers that did not accept a roster of the open epoch.
#[derive(Clone, Debug, Default)]
pub(super) struct Declines {
    all: BTreeMap<PeerId, Declined>,
    /// The peers that a roster has named wrongly, each with the proposer.
    misnamed: BTreeSet<(PeerId, PeerId)>,
}

/// How often a peer has declined, how it did so last, and whether it has come back since.
#[derive(Clone, Copy, Debug)]
struct Declined {
    count: u32,
    last: Decline,
    is_back: bool,
}

/// Rosters of an epoch that a peer may decline before it loses its position for the rest of the
/// epoch. When two rosters cross, each peer leaves one of them.
const DECLINES_MAX: u32 = 2;

/// Peers that are remembered: as many as the rosters of a few attempts can have.
const PEERS_MAX: usize = 1_024;

impl Declines {
    /// Notes that a peer did not accept a roster. The counts of an epoch add up, and the last kind
    /// says what gives the position back.
    pub(super) fn note(&mut self, who: PeerId, last: Decline) {
        if self.all.len() < PEERS_MAX || self.all.contains_key(&who) {
            let (count, costs, _) = last.terms();
            let known = self.all.get(&who).map_or(0, |known| known.count);
            let count = known.saturating_add(count);
            self.all.insert(who, Declined { count, last, is_back: !costs });
        }
    }

    /// A roster of this proposer has its start or weight wrong, so it cannot accept. That counts once
    /// for each proposer, since one that repeats it would else take the position of the peer.
    pub(super) fn note_misnamed(&mut self, who: PeerId, proposer: PeerId) {
        if self.misnamed.len() < PEERS_MAX && self.misnamed.insert((who, proposer)) {
            self.note(who, Decline::Justified);
        }
    }

    /// This peer has accepted a roster after all.
    pub(super) fn note_accept(&mut self, who: &PeerId) {
        if let Some(declined) = self.all.get_mut(who) {
            declined.is_back = true;
        }
    }

    /// This peer has answered a Query: after it refused a roster, it may accept another one.
    pub(super) fn note_answer(&mut self, who: &PeerId) {
        if let Some(declined) = self.all.get_mut(who) {
            let (.., ends_by_answer) = declined.last.terms();
            declined.is_back |= ends_by_answer;
        }
    }

    /// Whether it has no position: it did not accept a roster of this epoch and is not back, or
    /// this happened more often than bad luck explains.
    pub(super) fn has(&self, who: &PeerId) -> bool {
        self.all.get(who).is_some_and(|known| !known.is_back || known.count >= DECLINES_MAX)
    }

    /// All peers that have no position because they do not accept.
    pub(super) fn all(&self) -> impl Iterator<Item = PeerId> {
        self.all.keys().filter(|who| self.has(who)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHO: PeerId = PeerId([1; 32]);

    fn after(declines: &[Decline], then: impl Fn(&mut Declines, &PeerId)) -> bool {
        let mut known = Declines::default();
        declines.iter().for_each(|how| known.note(WHO, *how));
        then(&mut known, &WHO);
        known.has(&WHO)
    }

    #[test]
    fn r37_one_proposer_that_names_a_peer_wrongly_takes_no_position_from_it() {
        let mut known = Declines::default();
        for _ in 0..3 {
            known.note_misnamed(WHO, PeerId([2; 32]));
        }
        assert!(!known.has(&WHO));
        known.note_misnamed(WHO, PeerId([3; 32]));
        assert!(known.has(&WHO));
    }

    /// `docs/PROTOCOL.md` shows this very table: what each costs, and until when.
    #[test]
    fn g4_the_table_is_that_of_the_document() {
        let row = |how: Decline| {
            let lost = after(&[how], |_, _| ());
            let answer = !after(&[how], Declines::note_answer);
            let accept = !after(&[how], Declines::note_accept);
            assert!(after(&[how, how], Declines::note_accept), "the second time never");
            let until = match (lost, answer, accept) {
                (false, ..) => "the second time never",
                (true, true, true) => "it answers or accepts; the second time never",
                (true, false, true) => "it accepts; the second time never",
                (true, _, false) => "never",
            };
            let (position, later) = if lost { ("no position", "offence") } else { ("", "") };
            (format!("| *{how:?}*: "), [position, until, later].map(str::to_owned))
        };
        let document = include_str!("../../../../../docs/PROTOCOL.md");
        for how in [Decline::Late, Decline::Refused, Decline::Justified, Decline::Expired] {
            let (start, cells) = row(how);
            let line = document.lines().find(|line| line.starts_with(&start));
            let shown: Vec<&str> = line.unwrap_or("").split('|').skip(2).map(str::trim).collect();
            assert_eq!(shown[..3.min(shown.len())], cells, "the row of {how:?} in PROTOCOL.md");
        }
    }
}
