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
use crate::machine::table::PeerRecord;
use crate::message::{Ranked, Series, Voter, wire};
use crate::ring::{Order, order};

use super::admission::Admission;
use super::conduct::Conduct;
use super::interface::Config;
use super::reach::Reach;
use super::slot::Slot;

/// The return of a voter that did not run for a time: after a restart, or a sleep. Others may have gone on without it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Return {
    /// What a peer says from then on shows how far it is. What it said before may come in late.
    pub(super) since: Time,
    /// When the wait for all that is over at the latest.
    pub(super) until: Time,
}

/// What lives as long as the process. No rule of an epoch changes it.
#[derive(Clone, Debug)]
pub(super) struct Process {
    /// The rules of the run, its quorum among them, and the key that signs.
    pub(super) validator: Validator,
    /// Our key, the log that binds us, and this start.
    pub(super) me: LocalPeer,
    /// The grace and the length of an update by the manifest, and our own ticket.
    pub(super) config: Config,
    /// The median time to Ready in the last epoch in which half of the voters were Ready.
    pub(super) ready_median: Option<Duration>,
    /// The greatest weight that a Ready may declare (G11).
    pub(super) weight_max: u64,
    /// When this process began: silence before it proves nothing.
    pub(super) started: Time,
    /// Our last return, until we have heard how far the others are (R12, R20).
    pub(super) returned: Option<Return>,
    /// Which peers direct connections join (R41, R42).
    pub(super) reach: Reach,
    /// Which peers may take part; `None` in open runs (T1).
    pub(super) admission: Option<Admission>,
    /// Whether `sync` goes to another head, or waits for an attested one. Then nothing here may
    /// move the state.
    pub(super) behind: bool,
    /// Whether another peer has a greater head and may lead us there. Until then we do not regroup
    /// (R12).
    pub(super) ahead: Ahead,
    /// Until when a peer that leaves finishes the open ring; `None` while it stays (R29).
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

    /// Whether a rule applies: all do, except one that a test has switched off.
    pub(super) fn keeps(&self, rule: Rule) -> bool {
        self.validator.keeps(rule)
    }
}

/// The state, and which peers were heard until now; neither can be changed.
#[derive(Clone, Copy)]
pub(super) struct Facts<'a> {
    /// It is the target of `deref`, so that a rule writes `facts.me`.
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
    /// The name of the open series, which our messages carry.
    pub(super) fn series(self) -> Series {
        self.slot.series.name
    }

    /// The voters of the open series, the one that decides a tie first.
    pub(super) fn voters(self) -> &'a [Voter] {
        &self.slot.series.voters
    }

    /// Whether a voter of the open series has this key, with whatever log.
    pub(super) fn names_voter(self, peer: &PeerId) -> bool {
        self.slot.series.names_voter(peer)
    }

    /// Whether we vote in the open series: a voter with our key and our very log (R19).
    pub(super) fn is_voter(self) -> bool {
        self.voters().contains(&self.me.voter())
    }

    /// Whether a peer was heard lately, in any series, and has not left. We are not in the table.
    pub(super) fn is_alive(self, peer: &PeerId) -> bool {
        self.step.table.alive(peer, self.step.now)
    }

    /// R35: whether a peer counts as lost: more of its neighbours in rings have reported that than voters
    /// may lie, and it was not heard since.
    pub(super) fn is_lost(self, peer: &PeerId) -> bool {
        let liars = self.validator.quorum.liars(self.voters().len());
        self.conduct.reporters(self.step, peer) > liars
    }

    /// R35: whether nobody waits for the answer of a peer: at least two neighbours have reported it lost.
    pub(super) fn is_surely_lost(self, peer: &PeerId) -> bool {
        self.is_lost(peer) && self.conduct.reporters(self.step, peer) > 1
    }

    /// Whether a ring can pass through a peer: somebody reaches it, and if it is a newcomer, a direct connection joins it
    /// with us. Otherwise anybody could make keys that only gossip brings, and each would cost an attempt (G5, R41).
    pub(super) fn is_reached(self, peer: &PeerId, seen: &PeerRecord) -> bool {
        seen.beat.direct && (self.names_voter(peer) || self.reach.is_linked(peer))
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
