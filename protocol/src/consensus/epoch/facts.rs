//! What a rule may look at, and cannot change.
//!
//! A rule that only looks takes [`Facts`], or is a method of the type below it that owns what it
//! looks at. So its signature says that it changes nothing, and a test can build the facts.

use std::ops::Deref;
use std::time::Duration;

use crate::base::id::{Digest, PeerId};
use crate::base::rule::Rule;
use crate::base::time::Time;
use crate::history::lineage::{LocalPeer, Validator};
use crate::history::log::{Bound, Votes};
use crate::machine::step::{Ahead, Step};
use crate::message::wire;
use crate::message::{Ranked, Series, Voter};
use crate::ring::Order;
use crate::ring::order;

use super::conduct::Conduct;
use super::interface::Config;
use super::known::Admission;
use super::reach::Reach;
use super::slot::Slot;

/// What lives as long as the process. No rule of an epoch changes it.
#[derive(Clone, Debug)]
pub(super) struct Process {
    pub(super) validator: Validator,
    pub(super) me: LocalPeer,
    pub(super) config: Config,
    /// The median time to Ready in the last epoch in which half of the voters were Ready.
    pub(super) ready_median: Option<Duration>,
    /// The greatest weight that a Ready may declare (G11).
    pub(super) weight_max: u64,
    pub(super) started: Time,
    /// Whether this start continues from a log in which we voted (R20).
    pub(super) restarted: bool,
    /// Which peers direct connections join (R41, R42).
    pub(super) reach: Reach,
    /// Which peers may take part; `None` in open runs (T1).
    pub(super) admission: Option<Admission>,
    pub(super) behind: bool,
    /// Whether another peer has a greater head and may lead us there. Until then we do not regroup
    /// (R12).
    pub(super) ahead: Ahead,
    pub(super) leaving: Option<Time>,
}

impl Process {
    /// Bounds the weights of this epoch, by the median of the last receipt (G11).
    pub(super) fn limit_weight(&mut self, median: Option<u64>) {
        self.weight_max = self.validator.capacity.weight_max(median);
    }

    /// Whether an epoch can hold that weight.
    pub(super) fn can_weigh(&self, weight: u64) -> bool {
        (1..=self.weight_max).contains(&weight)
    }

    pub(super) fn keeps(&self, rule: Rule) -> bool {
        self.validator.keeps(rule)
    }
}

/// The state, and which peers were heard until now; neither can be changed.
#[derive(Clone, Copy)]
pub(super) struct Facts<'a> {
    pub(super) process: &'a Process,
    pub(super) conduct: &'a Conduct,
    pub(super) votes: &'a Votes,
    pub(super) slot: &'a Slot,
    pub(super) step: &'a Step<'a>,
}

impl Deref for Facts<'_> {
    type Target = Process;

    fn deref(&self) -> &Process {
        self.process
    }
}

impl<'a> Facts<'a> {
    pub(super) fn series(self) -> Series {
        self.slot.series.name
    }

    pub(super) fn voters(self) -> &'a [Voter] {
        &self.slot.series.voters
    }

    pub(super) fn names_voter(self, peer: &PeerId) -> bool {
        self.slot.series.names_voter(peer)
    }

    pub(super) fn is_voter(self) -> bool {
        self.voters().contains(&self.me.voter())
    }

    pub(super) fn is_alive(self, peer: &PeerId) -> bool {
        self.step.table.alive(peer, self.step.now)
    }

    /// The place of a peer in an order of this epoch that all peers compute alike.
    pub(super) fn order(self, of: Order, number: u64, peer: &PeerId) -> Digest {
        order(of, &self.validator.run, &self.series().parent, number, peer)
    }

    /// The votes that bind us in the open series.
    pub(super) fn bound(self) -> &'a Bound {
        self.votes.of(self.series())
    }

    /// Whether we only look on: we follow another head, leave, or know what is decided.
    pub(super) fn looks_on(self) -> bool {
        self.behind || self.leaving.is_some() || self.slot.series.decided().is_some()
    }

    /// Our highest vote in this series.
    pub(super) fn highest_done(self) -> Option<Ranked> {
        let voted = self.bound().dones().next_back()?;
        Some(wire::ranked(&self.validator.run, voted))
    }

    /// R29: whether we said goodbye in this series before a restart, and have joined no Regroup of
    /// it since.
    pub(super) fn said_goodbye(self) -> bool {
        self.bound().said_goodbye()
    }
}
