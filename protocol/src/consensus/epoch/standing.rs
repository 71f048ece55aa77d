//! What the open epoch shows to others: to heartbeats, people and the other machines.

use std::sync::Arc;

use crate::access::ledger::Ledger;
use crate::base::id::Digest;
use crate::base::time::Time;
use crate::machine::event::Progress;
use crate::machine::step::Step;
use crate::machine::wait::Wait;
use crate::message::{Head, Link, Opening, Phase, Series, Ticket, Voter};

use super::series::Stage;
use super::{State, founders, waits};

impl State {
    /// The head that the open epoch follows on.
    pub(crate) fn head(&self) -> Head {
        self.slot.head
    }

    /// The series that we are in: the present configuration of voters.
    pub(crate) fn series(&self) -> Series {
        self.slot.series.name
    }

    /// The voters that decide the open epoch.
    pub(crate) fn voters(&self) -> &[Voter] {
        &self.slot.series.voters
    }

    /// The Regroups of the open epoch, in order.
    pub(crate) fn openings(&self) -> &[Opening] {
        &self.slot.openings
    }

    /// The Regroup that binds us and has not opened.
    pub(crate) fn joined(&self) -> Option<Digest> {
        let Stage::Joined { regroup, .. } = self.slot.series.stage else { return None };
        Some(regroup)
    }

    /// The link of the open epoch, once it is decided.
    pub(crate) fn decided(&self) -> Option<&Link> {
        self.slot.series.decided()
    }

    /// The same once link and update are on disk: only then may others get it.
    pub(crate) fn decided_for_good(&self) -> Option<&Link> {
        let Stage::Applying(decided) = &self.slot.series.stage else { return None };
        Some(&decided.link)
    }

    /// The weight that we declare: 0 while no delta is frozen, and once we leave.
    pub(crate) fn ready_weight(&self) -> u64 {
        if self.process.leaving.is_some() { 0 } else { self.slot.frozen_weight() }
    }

    /// R15: when the run is expected to begin if no further peer comes, and with how many peers; `None` while too few
    /// are heard, or once it has begun.
    pub(crate) fn expected_founding(&self, step: &Step<'_>) -> Option<(Time, usize)> {
        founders::expected(self.facts(step))
    }

    /// What the open epoch waits for; `met`: whether this peer has ever met another one.
    pub(crate) fn wait(&self, step: &Step<'_>, met: bool) -> Option<Wait> {
        waits::wait(self.facts(step), met)
    }

    /// Phase and attempt, for heartbeats and people.
    pub(crate) fn phase(&self) -> (Phase, u64) {
        let attempt_of = |d: &Digest| self.slot.roster(d).map_or(0, |roster| roster.attempt);
        match &self.slot.series.stage {
            _ if self.process.behind => (Phase::Behind, 0),
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
    pub(crate) fn decides(&self, step: &Step<'_>) -> bool {
        self.facts(step).is_voter() && self.facts(step).has_majority()
    }

    /// R41: whether a ring can pass through us.
    pub(crate) fn is_direct(&self, step: &Step<'_>) -> bool {
        self.process.reach.is_direct(step)
    }

    /// R42: a bit for each voter of the open series that is alive and unlinked with us; empty if
    /// there is none.
    pub(crate) fn unlinked(&self, step: &Step<'_>) -> Vec<u8> {
        let (voters, mut bits) = (self.voters(), Vec::new());
        for (index, Voter { peer, .. }) in voters.iter().enumerate() {
            // This runs at each input, and mostly all peers are linked.
            let linked = self.process.reach.is_linked(peer);
            if !linked
                && self.process.reach.is_unlinked(step, peer)
                && step.table.alive(peer, step.now)
            {
                bits.resize(voters.len().div_ceil(8), 0);
                bits[index / 8] |= 1 << (index % 8);
            }
        }
        bits
    }

    /// R29: whether we said goodbye in this series before a restart, and have joined no Regroup of
    /// it since.
    pub(crate) fn said_goodbye(&self) -> bool {
        self.votes.of(self.series()).said_goodbye()
    }

    /// The ledger before the open epoch; `None` in open runs.
    pub(crate) fn ledger(&self) -> Option<&Arc<Ledger>> {
        self.process.ledger()
    }

    /// The ticket that our heartbeats show: ours, until the ledger of our head admits us.
    pub(crate) fn ticket(&self) -> Option<&Ticket> {
        let admission = self.process.admission.as_ref()?;
        let is_in = admission.ledger.admits(&self.process.me.peer).is_ok();
        if is_in { None } else { admission.ticket.as_ref() }
    }
}
