//! Where another peer is, seen from our open series, and which rule counts whom: the one table of it.
//!
//! A place is what heartbeats and the peer's own word say; whether somebody is alive at all is asked
//! beside it, by those rules that wait for an answer.

use crate::id::PeerId;
use crate::message::{Absence, Series, Voter};
use crate::roll::Seen;
use crate::step::Step;

use super::{Rule, State};

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
    /// A voter of this series that a decree revokes which is not in force yet (T6, T10).
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

impl State {
    /// The place of a peer with that log.
    pub(super) fn place(&self, step: &Step<'_>, who: &Voter) -> Place {
        if *who == self.me.voter() {
            return if self.said_goodbye() { Place::Closed } else { Place::Here };
        }
        let series = self.series();
        let silent = step.roll.silent(who, series, self.slot.term.entered, step.now);
        let Some(seen) = step.roll.peers.get(&who.peer) else {
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
            () if here && self.has_closed(seen, who) => Place::Closed,
            () if !here && self.is_elsewhere(seen) => Place::Elsewhere,
            // Where no Regroup is lawful, who is revoked is asked once more all the same.
            () if here && self.is_going(&who.peer) && self.law.quorum.regroups() => Place::Revoked,
            () if self.withholds(&who.peer) && (here || (before && voter())) => Place::Mute,
            () if here && self.owes(step, who) => Place::Owing,
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
    pub(super) fn place_of(&self, step: &Step<'_>, peer: &PeerId, seen: &Seen) -> Place {
        self.place(step, &Voter { peer: *peer, log: seen.beat.log })
    }

    /// The live peers that count.
    pub(super) fn live<'a>(
        &'a self,
        step: &'a Step<'_>,
        question: Question,
    ) -> impl Iterator<Item = (&'a PeerId, &'a Seen)> {
        let counts = move |peer, seen| self.place_of(step, peer, seen).counts(question);
        let live = step.roll.live(step.now);
        live.filter(move |(peer, seen)| counts(peer, seen))
    }

    /// Whether a voter is here, or may yet come, as far as we heard.
    pub(super) fn present(&self, step: &Step<'_>, voter: &Voter) -> bool {
        self.place(step, voter).counts(Question::IsPresent)
    }

    /// G9: whether a voter has owed its word for so long that it counts as absent.
    fn owes(&self, step: &Step<'_>, who: &Voter) -> bool {
        let ring = || 3 * self.ring_time_of(step, self.voters().len(), None);
        self.slot.debts.is_mute(&who.peer, step.now, step.roll.grace, ring) && self.keeps(Rule::G9)
    }

    fn has_closed(&self, seen: &Seen, who: &Voter) -> bool {
        seen.beat.joined.is_some() || seen.beat.closed || self.slot.term.closed.contains(&who.peer)
    }

    /// Whether it names a series beside ours, and has joined a Regroup there that does not lead to us.
    fn is_elsewhere(&self, seen: &Seen) -> bool {
        let beat = &seen.beat;
        if !beat.series.is_beside(&self.series()) {
            return false;
        }
        let chain = &self.slot.chain;
        let Some(index) = chain.iter().position(|series| *series == beat.series) else {
            return true;
        };
        let ours = self.slot.openings.get(index).and_then(|opening| opening.joins.first());
        let ours = ours.map(|(_, join, _)| join.regroup);
        // A peer that joined ours may have said before that it had joined one that never opened.
        let news = seen.named(beat.series).is_some_and(|at| at > self.slot.term.entered);
        (beat.closed || (beat.joined.is_some() && beat.joined != ours)) && news
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
        let document = include_str!("../../../docs/PROTOCOL.md");
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
