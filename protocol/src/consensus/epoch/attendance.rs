//! The status of another peer, seen from our open series, and which rule counts a peer of which
//! status: the one table of it.
//!
//! The status follows from heartbeats and from the peer's own messages. Whether the peer is alive
//! is a separate question, which the rules that wait for an answer ask in addition.

use crate::base::id::PeerId;
use crate::base::rule::Rule;
use crate::machine::table::PeerRecord;
use crate::message::{Absence, Voter};

use super::facts::Facts;

/// How many graces a voter that is heard may take to come from the epoch before; guess: an outer step of many
/// parameters, or an update over a slow line.
const SLOW_GRACES: u32 = 16;

/// The status of a peer, seen from our open series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PeerStatus {
    /// It is in this series, with nothing against it.
    Here,
    /// A voter of this series that was heard in it lately, and names an earlier one: it is on its
    /// way.
    Coming,
    /// It still takes the step that we have taken, with work that the last epoch left out. A peer
    /// without a ring position has to fetch the update, and would else be too late in every epoch.
    Behind,
    /// A voter of this series that was heard in it lately, and has gone on.
    Ahead,
    /// In this series, but it has joined a Regroup of it, or has said goodbye in it: it has left
    /// the series for good (R13, R29).
    Closed,
    /// It has joined a Regroup of this series, or of an earlier one, that does not lead here.
    Elsewhere,
    /// It has sent `Leaving`, and nothing with a higher incarnation since.
    Left,
    /// It has another log than the voter that is asked about.
    OtherLog,
    /// It was not heard in this series for `minority_grace`, or never belonged to it.
    Silent,
    /// In this series or on its way, but it withholds the update that it votes for (R8).
    Withholding,
    /// In this series, but it has missed replies for long (G9).
    Unresponsive,
    /// A voter of this series that a notice revokes which is not in force yet (T6, T10).
    Revoked,
    /// Neither admitted nor with a valid ticket, in a run of invited peers (T2).
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
    /// R7, R12, R24: whether it counts for the majority that is present.
    IsPresent,
}

impl PeerStatus {
    /// The table: whether a rule counts a peer of this status.
    pub(super) fn counts(self, question: Question) -> bool {
        use PeerStatus::{Ahead, Behind, Closed, Coming, Here, Revoked, Unresponsive, Withholding};
        match question {
            Question::IsAwaited => matches!(self, Here | Withholding | Coming | Behind),
            Question::TakesPart => {
                matches!(self, Here | Withholding | Coming | Unresponsive | Revoked)
            }
            Question::Answers => matches!(self, Here | Withholding | Revoked),
            Question::MayRegroup => matches!(self, Here | Withholding | Closed),
            Question::IsPresent => matches!(self, Here | Withholding | Coming | Ahead),
        }
    }

    /// R12: the reason for which a Regroup may leave a voter behind; `None` while it may not.
    pub(super) fn absence(self) -> Option<Absence> {
        match self {
            Self::Here | Self::Coming | Self::Ahead | Self::Closed => None,
            Self::Behind | Self::Silent | Self::Stranger => Some(Absence::Silent),
            Self::Elsewhere => Some(Absence::Elsewhere),
            Self::Left => Some(Absence::Left),
            Self::OtherLog => Some(Absence::OtherLog),
            Self::Withholding | Self::Unresponsive => Some(Absence::Mute),
            Self::Revoked => Some(Absence::Revoked),
        }
    }
}

impl<'a> Facts<'a> {
    /// The status of a peer with that log.
    pub(super) fn peer_status(self, who: &Voter) -> PeerStatus {
        if *who == self.me.voter() {
            return if self.said_goodbye() { PeerStatus::Closed } else { PeerStatus::Here };
        }
        let series = self.series();
        let silent = self.step.table.silent(who, series, self.slot.series.entered, self.step.now);
        let silent = silent && !self.is_slow(who);
        let Some(seen) = self.step.table.peers.get(&who.peer) else {
            return if silent { PeerStatus::Silent } else { PeerStatus::Coming };
        };
        let here = seen.beat.series == series;
        let before = seen.beat.series.epoch < series.epoch || seen.beat.series.is_beside(&series);
        let voter = || !silent && self.voters().contains(who);
        if self.is_stranger(&who.peer) {
            PeerStatus::Stranger
        } else if seen.has_left() {
            PeerStatus::Left
        } else if seen.beat.log != who.log {
            PeerStatus::OtherLog
        } else if here && silent {
            PeerStatus::Silent
        } else if here && self.slot.series.has_closed(seen, who) {
            PeerStatus::Closed
        } else if !here && self.is_elsewhere(seen) {
            PeerStatus::Elsewhere
        } else if here && self.is_revocation_due(&who.peer) && self.validator.quorum.regroups() {
            // Where no Regroup is lawful, it is asked once more all the same.
            PeerStatus::Revoked
        } else if self.slot.withholds(&who.peer) && (here || (before && voter())) {
            PeerStatus::Withholding
        } else if here && self.is_unresponsive(who) {
            PeerStatus::Unresponsive
        } else if here {
            PeerStatus::Here
        } else if voter() {
            if before { PeerStatus::Coming } else { PeerStatus::Ahead }
        } else if seen.beat.series.epoch.saturating_add(1) == series.epoch && seen.beat.ready > 0 {
            PeerStatus::Behind
        } else {
            PeerStatus::Silent
        }
    }

    /// Whether a peer was heard lately in an earlier epoch, and may still come: its outer step takes
    /// its time, or the update is on its way to it.
    fn is_slow(self, who: &Voter) -> bool {
        let (now, grace) = (self.step.now, self.step.table.grace);
        let before = |seen: &PeerRecord| {
            seen.beat.series.epoch < self.series().epoch && now.since(seen.heard) < grace
        };
        now < self.slot.series.entered + SLOW_GRACES * grace
            && self.step.table.peers.get(&who.peer).is_some_and(before)
    }

    /// The status of a peer that was heard.
    pub(super) fn peer_status_of(self, peer: &PeerId, seen: &PeerRecord) -> PeerStatus {
        self.peer_status(&Voter { peer: *peer, log: seen.beat.log })
    }

    /// The live peers that a rule counts.
    pub(super) fn live(
        self,
        question: Question,
    ) -> impl Iterator<Item = (&'a PeerId, &'a PeerRecord)> {
        let counts = move |peer, seen| self.peer_status_of(peer, seen).counts(question);
        let live = self.step.table.live(self.step.now);
        live.filter(move |(peer, seen)| counts(peer, seen))
    }

    /// Whether a voter is here, or may yet come, as far as we have heard.
    pub(super) fn present(self, voter: &Voter) -> bool {
        self.peer_status(voter).counts(Question::IsPresent)
    }

    /// G9: whether a voter has missed replies for so long that it counts as absent.
    fn is_unresponsive(self, who: &Voter) -> bool {
        let ring = || 3 * self.ring_time_of(self.voters().len(), None);
        self.conduct.is_unresponsive(self.step, &who.peer, ring) && self.keeps(Rule::G9)
    }

    /// Whether it names a series of this epoch beside ours, and has joined a Regroup there that
    /// does not lead to us.
    fn is_elsewhere(self, seen: &PeerRecord) -> bool {
        let beat = &seen.beat;
        if !beat.series.is_beside(&self.series()) {
            return false;
        }
        let Some(index) = self.slot.chain.iter().position(|series| *series == beat.series) else {
            return true;
        };
        let ours = self.slot.openings.get(index).and_then(|opening| opening.joins.first());
        let ours = ours.map(|(_, join, _)| join.regroup);
        // A peer that joined our Regroup may have named one before that never opened.
        let news = seen.named(beat.series).is_some_and(|at| at > self.slot.series.entered);
        (beat.closed || (beat.joined.is_some() && beat.joined != ours)) && news
    }

    /// Whether a majority of voters is present to us.
    pub(super) fn has_majority(self) -> bool {
        self.validator.quorum.holds(self.voters(), |voter| self.present(voter))
    }

    /// Whether a majority of voters is alive: we, and those that were heard just now.
    pub(super) fn hears_majority(self) -> bool {
        let is_alive = |voter: &Voter| voter.peer == self.me.peer || self.is_alive(&voter.peer);
        self.validator.quorum.holds(self.voters(), is_alive)
    }

    /// Whether any voter of this series can sign a Regroup of it: we, or a live peer.
    pub(super) fn is_any_voter_here(self) -> bool {
        let votes = |(peer, seen): (&PeerId, &PeerRecord)| {
            self.voters().contains(&Voter { peer: *peer, log: seen.beat.log })
        };
        // Before the founding there are no voters, and this runs at each input.
        self.is_voter() || !self.voters().is_empty() && self.live(Question::MayRegroup).any(votes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUSES: [PeerStatus; 13] = [
        PeerStatus::Here,
        PeerStatus::Coming,
        PeerStatus::Behind,
        PeerStatus::Ahead,
        PeerStatus::Closed,
        PeerStatus::Elsewhere,
        PeerStatus::Left,
        PeerStatus::OtherLog,
        PeerStatus::Silent,
        PeerStatus::Withholding,
        PeerStatus::Unresponsive,
        PeerStatus::Revoked,
        PeerStatus::Stranger,
    ];

    /// `docs/PROTOCOL.md` shows this very table.
    #[test]
    fn the_table_is_that_of_the_document() {
        let yes = |counts| if counts { "yes" } else { "" };
        let row = |status: PeerStatus| {
            let asked = [
                Question::IsAwaited,
                Question::TakesPart,
                Question::Answers,
                Question::MayRegroup,
                Question::IsPresent,
            ];
            let asked = asked.map(|question| yes(status.counts(question)));
            let absence = status.absence().map(|why| format!("{why:?}").to_lowercase());
            let cells = [asked.as_slice(), &[absence.as_deref().unwrap_or("")]].concat();
            let cells: Vec<String> = cells.iter().map(|cell| format!(" {cell:<3}")).collect();
            format!("| {status:?} |{} |", cells.join(" |"))
        };
        let document = include_str!("../../../../docs/PROTOCOL.md");
        for status in STATUSES {
            let row = row(status);
            let tidy = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(
                document.lines().any(|line| tidy(line) == tidy(&row)),
                "PROTOCOL.md lacks {row}"
            );
        }
    }
}
