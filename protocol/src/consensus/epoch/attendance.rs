//! Where another peer is, seen from our open series, and which rule counts whom: the one table of it.
//!
//! A place is what heartbeats and the peer's own word say; whether somebody is alive at all is asked
//! beside it, by those rules that wait for an answer.

use crate::base::id::PeerId;
use crate::machine::table::Seen;
use crate::message::{Absence, Series, Voter};

use super::{Facts, Rule};

/// Where a peer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In this series.
    Here,
    /// A voter of this series that was heard in it lately, and names one before: it is on its way.
    Coming,
    /// It still takes the step that we have taken, with work that the last epoch left out. A peer
    /// without a place in a ring has to fetch its update, and would else come too late to every
    /// epoch.
    Behind,
    /// A voter of this series that was heard in it lately, and has gone on.
    Ahead,
    /// In this series, and it has joined a Regroup of it, or has said goodbye in it: it has left it for ever
    /// (R13, R29).
    Closed,
    /// It has joined a Regroup of this series, or of one before, that does not lead here.
    Elsewhere,
    /// It has said `Leaving`.
    Left,
    /// It answers with another log than the voter's that is looked for.
    OtherLog,
    /// It was not heard in this series for `minority_grace`, or never belonged to it.
    Silent,
    /// In this series, or on its way, but it withholds the update that it votes for (R8).
    Mute,
    /// In this series, but it has owed its word for long (G9).
    Owing,
    /// A voter of this series that a notice revokes which is not in force yet (T6, T10).
    Revoked,
    /// Neither admitted nor with a good ticket, in a run of invited peers (T2).
    Stranger,
}

/// What a rule asks about a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// R36: whether the first attempt waits until it is Ready.
    IsAwaited,
    /// R36: whether a roster names it, and turns count it.
    TakesPart,
    /// R7: whether its answer is waited for before a higher attempt.
    Answers,
    /// R12: whether it may sign a Regroup of this series.
    MayRegroup,
    /// R7, R12, R24: whether it counts to the majority that is present.
    IsPresent,
}

impl Place {
    /// The table: whether somebody at this place counts.
    pub(super) fn counts(self, question: Question) -> bool {
        match question {
            Question::IsAwaited => {
                matches!(self, Self::Here | Self::Mute | Self::Coming | Self::Behind)
            }
            Question::TakesPart => {
                matches!(self, Self::Here | Self::Mute | Self::Coming | Self::Owing | Self::Revoked)
            }
            Question::Answers => matches!(self, Self::Here | Self::Mute | Self::Revoked),
            Question::MayRegroup => matches!(self, Self::Here | Self::Mute | Self::Closed),
            Question::IsPresent => {
                matches!(self, Self::Here | Self::Mute | Self::Coming | Self::Ahead)
            }
        }
    }

    /// R12: why a voter may be left behind; `None` while it may not.
    pub(super) fn absence(self) -> Option<Absence> {
        match self {
            Self::Here | Self::Coming | Self::Ahead | Self::Closed => None,
            Self::Behind | Self::Silent | Self::Stranger => Some(Absence::Silent),
            Self::Elsewhere => Some(Absence::Elsewhere),
            Self::Left => Some(Absence::Left),
            Self::OtherLog => Some(Absence::OtherLog),
            Self::Mute | Self::Owing => Some(Absence::Mute),
            Self::Revoked => Some(Absence::Revoked),
        }
    }
}

impl<'a> Facts<'a> {
    /// The place of a peer with that log.
    pub(super) fn place(self, who: &Voter) -> Place {
        if *who == self.me.voter() {
            return if self.said_goodbye() { Place::Closed } else { Place::Here };
        }
        let series = self.series();
        let silent = self.step.roll.silent(who, series, self.slot.series.entered, self.step.now);
        let Some(seen) = self.step.roll.peers.get(&who.peer) else {
            return if silent { Place::Silent } else { Place::Coming };
        };
        let here = seen.beat.series == series;
        let before = seen.beat.series.epoch < series.epoch || seen.beat.series.is_beside(&series);
        let voter = || !silent && self.voters().contains(who);
        match () {
            () if self.is_stranger(&who.peer) => Place::Stranger,
            () if seen.has_left() => Place::Left,
            () if seen.beat.log != who.log => Place::OtherLog,
            () if here && silent => Place::Silent,
            () if here && self.slot.series.has_closed(seen, who) => Place::Closed,
            () if !here && self.is_elsewhere(seen) => Place::Elsewhere,
            // Where no Regroup is lawful, who is revoked is asked once more all the same.
            () if here && self.is_going(&who.peer) && self.law.quorum.regroups() => Place::Revoked,
            () if self.slot.withholds(&who.peer) && (here || (before && voter())) => Place::Mute,
            () if here && self.owes(who) => Place::Owing,
            () if here => Place::Here,
            () if voter() => {
                if before {
                    Place::Coming
                } else {
                    Place::Ahead
                }
            }
            () if is_a_step_behind(seen, series) => Place::Behind,
            () => Place::Silent,
        }
    }

    /// The place of a peer that was heard.
    pub(super) fn place_of(self, peer: &PeerId, seen: &Seen) -> Place {
        self.place(&Voter { peer: *peer, log: seen.beat.log })
    }

    /// The live peers that count.
    pub(super) fn live(self, question: Question) -> impl Iterator<Item = (&'a PeerId, &'a Seen)> {
        let counts = move |peer, seen| self.place_of(peer, seen).counts(question);
        let live = self.step.roll.live(self.step.now);
        live.filter(move |(peer, seen)| counts(peer, seen))
    }

    /// Whether a voter is here, or may yet come, as far as we heard.
    pub(super) fn present(self, voter: &Voter) -> bool {
        self.place(voter).counts(Question::IsPresent)
    }

    /// G9: whether a voter has owed its word for so long that it counts as absent.
    fn owes(self, who: &Voter) -> bool {
        let ring = || 3 * self.ring_time_of(self.voters().len(), None);
        self.slot.debts.is_mute(&who.peer, self.step.now, self.step.roll.grace, ring)
            && self.keeps(Rule::G9)
    }

    /// Whether it names a series beside ours, and has joined a Regroup there that does not lead to us.
    fn is_elsewhere(self, seen: &Seen) -> bool {
        let beat = &seen.beat;
        if !beat.series.is_beside(&self.series()) {
            return false;
        }
        let Some(index) = self.slot.chain.iter().position(|series| *series == beat.series) else {
            return true;
        };
        let ours = self.slot.openings.get(index).and_then(|opening| opening.joins.first());
        let ours = ours.map(|(_, join, _)| join.regroup);
        // A peer that joined ours may have said before that it had joined one that never opened.
        let news = seen.named(beat.series).is_some_and(|at| at > self.slot.series.entered);
        (beat.closed || (beat.joined.is_some() && beat.joined != ours)) && news
    }

    /// Whether a majority of voters is present to us.
    pub(super) fn has_majority(self) -> bool {
        self.law.quorum.holds(self.voters(), |voter| self.present(voter))
    }

    /// Whether a voter of this series may sign a Regroup of it: ourselves, or somebody alive.
    pub(super) fn is_any_voter_here(self) -> bool {
        let votes = |(peer, seen): (&PeerId, &Seen)| {
            self.voters().contains(&Voter { peer: *peer, log: seen.beat.log })
        };
        // Before the founding nobody votes, and this is asked at each input.
        self.is_voter() || !self.voters().is_empty() && self.live(Question::MayRegroup).any(votes)
    }
}

fn is_a_step_behind(seen: &Seen, series: Series) -> bool {
    seen.beat.series.epoch.saturating_add(1) == series.epoch && seen.beat.ready > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACES: [Place; 13] = [
        Place::Here,
        Place::Coming,
        Place::Behind,
        Place::Ahead,
        Place::Closed,
        Place::Elsewhere,
        Place::Left,
        Place::OtherLog,
        Place::Silent,
        Place::Mute,
        Place::Owing,
        Place::Revoked,
        Place::Stranger,
    ];

    /// `docs/PROTOCOL.md` shows this very table.
    #[test]
    fn the_table_is_that_of_the_document() {
        let yes = |counts| if counts { "yes" } else { "" };
        let row = |place: Place| {
            let asked = [
                Question::IsAwaited,
                Question::TakesPart,
                Question::Answers,
                Question::MayRegroup,
                Question::IsPresent,
            ];
            let asked = asked.map(|question| yes(place.counts(question)));
            let absence = place.absence().map(|why| format!("{why:?}").to_lowercase());
            let cells = [asked.as_slice(), &[absence.as_deref().unwrap_or("")]].concat();
            let cells: Vec<String> = cells.iter().map(|cell| format!(" {cell:<3}")).collect();
            format!("| {place:?} |{} |", cells.join(" |"))
        };
        let document = include_str!("../../../../docs/PROTOCOL.md");
        for place in PLACES {
            let row = row(place);
            let tidy = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(
                document.lines().any(|line| tidy(line) == tidy(&row)),
                "PROTOCOL.md lacks {row}"
            );
        }
    }
}
