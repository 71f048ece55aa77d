//! Leaving, and coming back: what is open is finished first, if that does not take long; a goodbye closes
//! the series for its author, and whoever was restarted hears the others before it decides (R20, R29).

use std::time::Duration;

use crate::log::Record;
use crate::message::{Leaving, Message, Voter};
use crate::output::Output;
use crate::roll::Seen;
use crate::step::Step;

use super::State;
use super::term::Stage;

/// How long a peer that said goodbye waits, once it is back, for those who were here then, before it goes on
/// without them; guess: a person starts two machines in less, and what is trained apart meanwhile can
/// still be undone.
const RETURN_WAIT: Duration = Duration::from_secs(60);

/// How long a leaving peer waits for the open ring, within the 5 s that a person waits.
const LEAVE_WAIT: Duration = Duration::from_secs(4);

impl State {
    pub(super) fn on_leave(&mut self, step: &Step<'_>) {
        self.leaving.get_or_insert(step.now + LEAVE_WAIT);
    }

    /// R29: whether we have said goodbye in this series, in an earlier life, and have joined no Regroup of it
    /// since.
    #[must_use]
    pub fn said_goodbye(&self) -> bool {
        let bound = self.votes.of(self.series());
        bound.has_left() && bound.joined().is_none()
    }

    /// R20: whether we were restarted, and somebody may have gone on without us who can still tell: a voter
    /// that was not heard since, or somebody in a series that Regroups opened which we have not got.
    pub(super) fn awaits_news(&self, step: &Step<'_>) -> bool {
        if !self.restarted || !self.can_part() {
            return false;
        }
        let wait = if self.said_goodbye() { RETURN_WAIT } else { Duration::ZERO };
        let unheard = |v: &Voter| *v != self.me.voter() && !step.roll.peers.contains_key(&v.peer);
        step.now < self.started + step.roll.grace.max(wait)
            && (self.voters().iter().any(unheard) || self.is_any_parted(step))
    }

    /// R12: whether somebody alive has entered a series of this epoch that we have not got, and we came here
    /// lately: it may lead us there.
    pub(super) fn may_be_led(&self, step: &Step<'_>) -> bool {
        let lately = step.now < self.slot.term.entered + step.roll.grace;
        lately && self.can_part() && self.is_any_parted(step)
    }

    /// Whether others can go on without us, and we without them: not before the founding, and not where it
    /// takes a majority of the founders.
    fn can_part(&self) -> bool {
        self.slot.head.epoch > 0 && self.law.quorum.regroups()
    }

    fn is_any_parted(&self, step: &Step<'_>) -> bool {
        let parted = |seen: &Seen| {
            let series = seen.beat.series;
            series.is_beside(&self.series())
                && series.regroup.is_some()
                && !self.slot.chain.contains(&series)
        };
        step.roll.live(step.now).any(|(_, seen)| parted(seen))
    }

    /// R29: says goodbye once nothing is open, or the wait is over.
    pub(super) fn leave(&mut self, step: &mut Step<'_>) -> bool {
        let Some(until) = self.leaving else { return false };
        let open = match &self.slot.term.stage {
            Stage::Open { .. } | Stage::Decided(_) | Stage::Applying(_) => true,
            Stage::Idle { .. } | Stage::Recover { .. } | Stage::Joined { .. } => false,
        };
        if open && step.now < until {
            return false;
        }
        self.left = true;
        // R29: those who are here may go on without us, and those who were here may have decided what is open,
        // so that we must not decide beside them once we are back. Whoever leaves last, with nothing open, has
        // left nobody; and where no Regroup is lawful nothing could open the series again.
        let others = open || step.roll.live(step.now).next().is_some();
        if others && self.is_voter() && self.law.quorum.regroups() {
            self.log(step, Record::Left { series: self.series() });
        }
        let leaving = Leaving { head: self.slot.head, incarnation: self.me.incarnation };
        step.put(Output::Gossip(self.seal(Message::Leaving(leaving))));
        step.put(Output::Left);
        false
    }
}
