//! What each step of a machine is given: the time, who was heard, and where its decisions go.

use std::sync::Arc;

use crate::access::ledger::Ledger;
use crate::access::notices::Notices;
use crate::base::id::PeerId;
use crate::base::time::Time;
use crate::machine::output::Output;
use crate::machine::table::Roll;
use crate::message::{Head, Link, Notice, Opening, Voter};

/// One step of a machine.
#[derive(Debug)]
pub struct Step<'a> {
    /// When it happens.
    pub now: Time,
    /// Who was heard until then.
    pub roll: &'a Roll,
    /// What is decided, in order.
    pub out: &'a mut Vec<Decision>,
}

/// What a machine decides.
#[derive(Clone, Debug)]
pub enum Decision {
    /// A request to whoever drives the peer, which is passed on as it is.
    Out(Output),
    /// What `epoch` tells `sync`.
    Extend(Extension),
    /// A notice that a roster or a Regroup has brought along, for `sync`.
    Notice(Box<Notice>),
    /// What `sync` tells `epoch`.
    Lead(Lead),
}

/// An epoch that was committed.
#[derive(Clone, Debug)]
pub struct Extension {
    /// The new head.
    pub head: Head,
    /// What proves it.
    pub link: Box<Link>,
    /// Whether somebody else's `Commit` decided it for us.
    pub by_commit: bool,
}

/// What `sync` tells `epoch`.
#[derive(Clone, Debug)]
pub enum Lead {
    /// Whether a greater head is being fetched; `Enter` ends it as well.
    Behind(bool),
    /// The organiser's notices that are known.
    Notices(Box<Notices>),
    /// A peer served a proof of the open epoch's result.
    Link(PeerId, Box<Link>),
    /// A peer served Regroups of the open epoch.
    Openings(PeerId, Vec<Opening>),
    /// Another head is reached: go on from there.
    Enter {
        /// The head.
        head: Head,
        /// Its voters.
        voters: Vec<Voter>,
        /// The median weight in its receipt.
        median: Option<u64>,
        /// Who is in; `None` in open runs.
        ledger: Option<Arc<Ledger>>,
    },
}

/// Whether somebody has a greater head, as far as is known: what `sync` tells `epoch` before each step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ahead {
    /// Nobody who has not wasted a question.
    Nobody,
    /// Somebody says so.
    Claimed,
    /// Links of it have come and verify, and more of them are awaited.
    Proven,
    /// A majority of the voters has gone on (R44).
    PassedOver,
}

impl Step<'_> {
    /// Asks something of whoever drives the peer.
    pub fn put(&mut self, output: Output) {
        self.out.push(Decision::Out(output));
    }

    /// Tells `epoch` something.
    pub fn lead(&mut self, lead: Lead) {
        self.out.push(Decision::Lead(lead));
    }
}
