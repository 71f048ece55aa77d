//! What each step of a machine is given: the time, the table of peers,
//! and a list for its decisions.

use std::sync::Arc;

use crate::access::ledger::Ledger;
use crate::access::notices::Notices;
use crate::base::id::PeerId;
use crate::base::time::Time;
use crate::machine::output::Output;
use crate::machine::table::PeerTable;
use crate::message::{Head, Link, Notice, Opening, Voter};

/// One step of a machine. It may read the table and push decisions, nothing else. Each machine gets
/// one per input. It cannot call another machine: what it decides for one goes into `out`, and
/// `peer` hands it on.
#[derive(Debug)]
pub struct Step<'a> {
    /// When it happens. Never before the time of an earlier step. Milliseconds of this process,
    /// which no other peer shares.
    pub now: Time,
    /// Which peers were heard until then.
    pub table: &'a PeerTable,
    /// The decisions of this step, in order.
    pub out: &'a mut Vec<Decision>,
}

/// What a machine decides in a step.
#[derive(Clone, Debug)]
pub enum Decision {
    /// A request to the peer's caller, which is passed on unchanged.
    Out(Output),
    /// A committed epoch, from `epoch` to `sync`.
    Extend(Extension),
    /// A notice that a roster or a Regroup has brought along, for `sync`.
    Notice(Box<Notice>),
    /// What `sync` has found out, for `epoch`.
    Lead(Lead),
}

/// An epoch that `epoch` has committed.
#[derive(Clone, Debug)]
pub struct Extension {
    /// The head that the epoch leads to.
    pub head: Head,
    /// Receipt, certificate and Regroups that prove it.
    pub link: Box<Link>,
    /// Whether another peer's `Commit` decided it here.
    pub by_commit: bool,
}

/// What `sync` has found out, for `epoch`.
#[derive(Clone, Debug)]
pub enum Lead {
    /// Whether a greater head is being fetched; `Enter` ends that as well. While it holds, `epoch`
    /// proposes, accepts and decides nothing.
    Behind(bool),
    /// The organiser's notices that are known.
    Notices(Box<Notices>),
    /// A peer served a proof of the open epoch's result. `epoch` checks it again against its own
    /// series.
    Link(PeerId, Box<Link>),
    /// A peer served Regroups of the open epoch.
    Openings(PeerId, Vec<Opening>),
    /// Another head is reached: `epoch` goes on from there.
    Enter {
        /// The new head, with its state loaded.
        head: Head,
        /// The voters of the epoch after it.
        voters: Vec<Voter>,
        /// The median weight in its receipt, which bounds the next
        /// weights (G11); `None` at genesis.
        median: Option<u64>,
        /// The ledger after the head; `None` in open runs.
        ledger: Option<Arc<Ledger>>,
    },
}

/// Whether a peer has a greater head, as far as is known. `sync` passes this
/// to `epoch` before each step. It decides for how long Regroups of ours are delayed (R12, R44):
/// not at all, one grace, sixteen graces, or without a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ahead {
    /// No peer, apart from those whose last answer led to no head.
    Nobody,
    /// A peer claims one, without proof yet.
    Claimed,
    /// Links of it have come and verify, and more of them are awaited.
    Proven,
    /// A majority of the voters has gone on to it (R44).
    PassedOver,
}

impl Step<'_> {
    /// Adds a request to the peer's caller.
    pub fn put(&mut self, output: Output) {
        self.out.push(Decision::Out(output));
    }

    /// Adds requests to the peer's caller, in order.
    pub fn put_all(&mut self, outputs: impl IntoIterator<Item = Output>) {
        self.out.extend(outputs.into_iter().map(Decision::Out));
    }

    /// Adds a message from `sync` for `epoch`.
    pub fn lead(&mut self, lead: Lead) {
        self.out.push(Decision::Lead(lead));
    }
}
