//! What the open epoch shows to others: to heartbeats, people and the other machines.

use crate::base::id::{Digest, PeerId};
use crate::base::time::Time;
use crate::machine::event::Progress;
use crate::machine::step::Step;
use crate::message::{Head, Link, Opening, Phase, Series, Voter};

use super::series::Stage;
use super::{State, founders};

impl State {
    /// The head that the open epoch follows on.
    #[must_use]
    pub fn head(&self) -> Head {
        self.slot.head
    }

    /// The series that we are in: the present configuration of voters.
    #[must_use]
    pub fn series(&self) -> Series {
        self.slot.series.name
    }

    /// The voters that decide the open epoch.
    #[must_use]
    pub fn voters(&self) -> &[Voter] {
        &self.slot.series.voters
    }

    /// The Regroups of the open epoch, in order.
    #[must_use]
    pub fn openings(&self) -> &[Opening] {
        &self.slot.openings
    }

    /// The Regroup that binds us and has not opened.
    #[must_use]
    pub fn joined(&self) -> Option<Digest> {
        match self.slot.series.stage {
            Stage::Joined { regroup, .. } => Some(regroup),
            _ => None,
        }
    }

    /// The link of the open epoch, once it is decided.
    #[must_use]
    pub fn decided(&self) -> Option<&Link> {
        match &self.slot.series.stage {
            Stage::Decided(decided) | Stage::Applying(decided) => Some(&decided.link),
            _ => None,
        }
    }

    /// The same once link and update are on disk: only then may others get it.
    #[must_use]
    pub fn decided_for_good(&self) -> Option<&Link> {
        match &self.slot.series.stage {
            Stage::Applying(decided) => Some(&decided.link),
            _ => None,
        }
    }

    /// The weight that we declare: 0 while no delta is frozen, and once we leave.
    #[must_use]
    pub fn ready_weight(&self) -> u64 {
        if self.leaving.is_some() { 0 } else { self.slot.frozen_weight() }
    }

    /// R15: when the run is expected to begin if no further peer comes, and with how many peers; `None` while too few
    /// are heard, or once it has begun.
    #[must_use]
    pub fn expected_founding(&self, step: &Step<'_>) -> Option<(Time, usize)> {
        founders::expected(self.facts(step))
    }

    /// Phase and attempt, for heartbeats and people.
    #[must_use]
    pub fn phase(&self) -> (Phase, u64) {
        let attempt_of = |d: &Digest| self.slot.roster(d).map_or(0, |roster| roster.attempt);
        match &self.slot.series.stage {
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

    /// R24: whether we are one of a majority of voters that is present, and so may decide the open
    /// epoch.
    #[must_use]
    pub fn decides(&self, step: &Step<'_>) -> bool {
        self.is_voter() && self.facts(step).has_majority()
    }

    /// Whether a majority of voters is present to us.
    #[must_use]
    pub fn majority_present(&self, step: &Step<'_>) -> bool {
        self.facts(step).has_majority()
    }

    /// R41: whether a ring can pass through us.
    #[must_use]
    pub fn is_direct(&self, step: &Step<'_>) -> bool {
        self.reach.is_direct(step)
    }

    /// R42: a bit for each voter of the open series that is alive and unlinked with us; empty if
    /// there is none.
    #[must_use]
    pub fn unlinked(&self, step: &Step<'_>) -> Vec<u8> {
        let (voters, mut bits) = (self.voters(), Vec::new());
        for (index, Voter { peer, .. }) in voters.iter().enumerate() {
            // This runs at each input, and mostly all peers are linked.
            let linked = self.reach.is_linked(peer);
            if !linked && self.reach.is_unlinked(step, peer) && step.table.alive(peer, step.now) {
                bits.resize(voters.len().div_ceil(8), 0);
                bits[index / 8] |= 1 << (index % 8);
            }
        }
        bits
    }

    /// R29: whether we said goodbye in this series before a restart, and have joined no Regroup of
    /// it since.
    #[must_use]
    pub fn said_goodbye(&self) -> bool {
        let bound = self.votes.of(self.series());
        bound.has_left() && bound.joined().is_none()
    }

    pub(super) fn names_voter(&self, peer: &PeerId) -> bool {
        self.slot.series.names_voter(peer)
    }

    pub(super) fn is_voter(&self) -> bool {
        self.voters().contains(&self.me.voter())
    }
}
