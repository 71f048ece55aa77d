//! The open epoch, as its rules may change it.
//!
//! They change what is known of the epoch, the account of the other peers, and our votes: these only
//! by a record that also goes to the log (R1). What else lives as long as the process they can only
//! read.

use crate::base::id::PeerId;
use crate::base::rule::Rule;
use crate::history::lineage::{LocalPeer, Validator};
use crate::history::log::{Bound, Record, Votes};
use crate::machine::output::Output;
use crate::machine::step::Step;
use crate::message::{Series, Voter};

use super::conduct::Conduct;
use super::facts::{Facts, Process};
use super::slot::Slot;

/// The open epoch in one step of the machine.
pub(super) struct Epoch<'a> {
    pub(super) me: LocalPeer,
    pub(super) validator: &'a Validator,
    /// What outlives the epoch. A rule can only read it.
    pub(super) process: &'a Process,
    /// The account of other peers, which outlives the epoch too.
    pub(super) conduct: &'a mut Conduct,
    pub(super) slot: &'a mut Slot,
    /// The time, the peers that were heard, and the list for our decisions.
    pub(super) step: Step<'a>,
    /// The votes that bind us, as our log records them (R1).
    votes: &'a mut Votes,
}

impl<'a> Epoch<'a> {
    pub(super) fn new(
        process: &'a Process,
        conduct: &'a mut Conduct,
        votes: &'a mut Votes,
        slot: &'a mut Slot,
        step: Step<'a>,
    ) -> Self {
        let (me, validator) = (process.me, &process.validator);
        Self { me, validator, process, conduct, slot, step, votes }
    }

    /// What a rule may look at in this step.
    pub(super) fn facts(&self) -> Facts<'_> {
        let Self { process, conduct, votes, slot, step, .. } = self;
        Facts { process, conduct, votes, slot, step }
    }

    pub(super) fn series(&self) -> Series {
        self.slot.series.name
    }

    pub(super) fn voters(&self) -> &[Voter] {
        &self.slot.series.voters
    }

    pub(super) fn names_voter(&self, peer: &PeerId) -> bool {
        self.slot.series.names_voter(peer)
    }

    /// The votes that bind us in the open series.
    pub(super) fn bound(&self) -> &Bound {
        self.votes.of(self.series())
    }

    /// R1: our votes change only by a record that goes to the log.
    pub(super) fn log(&mut self, record: Record) {
        self.assert_lawful(&record);
        self.votes.append(&self.validator.run, &record);
        self.step.put(Output::Log(record));
    }

    /// S5: one roster per attempt, and nothing below a promise or in a closed series.
    fn assert_lawful(&self, record: &Record) {
        let (series, attempt) = match record {
            Record::Accepted { roster } => (roster.series, roster.attempt),
            Record::Prepared { series, attempt, .. } => (*series, *attempt),
            Record::Voted { voted } => (voted.roster.series, voted.roster.attempt),
            _ => return,
        };
        let bound = self.votes.of(series);
        let again = match record {
            Record::Accepted { .. } => bound.accepted(attempt).is_some(),
            Record::Prepared { .. } => bound.prepared(attempt).is_some(),
            _ => bound.done(attempt).is_some(),
        };
        assert!(attempt >= bound.promised(), "S5: nothing below a promise, or in a closed series");
        let once = !again || !self.validator.keeps(Rule::R3);
        assert!(once, "S5: one roster, one value and one vote per attempt");
    }
}
