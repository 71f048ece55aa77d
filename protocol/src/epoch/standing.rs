//! Where the machine stands, for whoever asks: heartbeats, people, the machines beside it.

use crate::id::Digest;
use crate::message::{Head, Link, Opening, Phase, Series, Voter};
use crate::step::Step;

use super::State;
use super::term::{Progress, Stage};

impl State {
    /// The head that the open epoch follows.
    #[must_use]
    pub fn head(&self) -> Head {
        self.slot.head
    }

    /// The series that we are in.
    #[must_use]
    pub fn series(&self) -> Series {
        self.slot.term.series
    }

    /// Who decides it.
    #[must_use]
    pub fn voters(&self) -> &[Voter] {
        &self.slot.term.voters
    }

    /// The Regroups of the open epoch, in order.
    #[must_use]
    pub fn openings(&self) -> &[Opening] {
        &self.slot.openings
    }

    /// The Regroup that binds us and has not opened.
    #[must_use]
    pub fn joined(&self) -> Option<Digest> {
        match self.slot.term.stage {
            Stage::Joined { regroup, .. } => Some(regroup),
            _ => None,
        }
    }

    /// The link of the open epoch, once it is decided.
    #[must_use]
    pub fn decided(&self) -> Option<&Link> {
        match &self.slot.term.stage {
            Stage::Decided(decided) | Stage::Applying(decided) => Some(&decided.link),
            _ => None,
        }
    }

    /// The same once it is on disk, with the update: what may be passed on.
    #[must_use]
    pub fn decided_for_good(&self) -> Option<&Link> {
        match &self.slot.term.stage {
            Stage::Applying(decided) => Some(&decided.link),
            _ => None,
        }
    }

    /// The weight that we declare: 0 while no delta is frozen, and once we leave.
    #[must_use]
    pub fn ready_weight(&self) -> u64 {
        if self.leaving.is_some() { 0 } else { self.frozen_weight() }
    }

    /// Phase and attempt, for heartbeats and people.
    #[must_use]
    pub fn phase(&self) -> (Phase, u64) {
        let attempt_of = |digest: &Digest| self.roster(digest).map_or(0, |roster| roster.attempt);
        match &self.slot.term.stage {
            _ if self.behind => (Phase::Behind, 0),
            Stage::Idle { .. } if self.slot.frozen.is_some() => (Phase::Ready, 0),
            Stage::Idle { .. } => (Phase::Train, 0),
            Stage::Open { roster, progress, .. } => {
                let phase = match progress {
                    Progress::Accepted => Phase::Accepted,
                    Progress::Reduce => Phase::Reduce,
                    Progress::Finished => Phase::Finished,
                };
                (phase, attempt_of(roster))
            }
            Stage::Recover { attempt, .. } => (Phase::Recover, *attempt),
            Stage::Joined { .. } => (Phase::Regrouping, 0),
            Stage::Decided(d) | Stage::Applying(d) => {
                (Phase::Finished, d.link.certificate.roster.attempt)
            }
        }
    }

    /// R24: whether we are one of a majority of voters that is present, and so may decide the open epoch.
    #[must_use]
    pub fn decides(&self, step: &Step<'_>) -> bool {
        self.is_voter() && self.majority_present(step)
    }

    /// Whether a majority of voters is present to us.
    #[must_use]
    pub fn majority_present(&self, step: &Step<'_>) -> bool {
        self.law.quorum.holds(self.voters(), |voter| self.present(step, voter))
    }
}
