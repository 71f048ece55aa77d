//! What each step of a machine is given: the time, who was heard, and where its decisions go.

use crate::id::PeerId;
use crate::message::{Head, Link, Opening, Voter};
use crate::output::Output;
use crate::roll::Roll;
use crate::time::Time;

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
    /// For whoever drives the peer: it passes through as it is.
    Out(Output),
    /// For the machine beside it.
    Tell(Told),
}

/// What one machine tells another.
#[derive(Clone, Debug)]
pub enum Told {
    /// `epoch` has committed an epoch.
    Committed {
        /// The new head.
        head: Head,
        /// What proves it.
        link: Box<Link>,
        /// Whether somebody else's `Commit` decided it for us.
        by_commit: bool,
    },
    /// `sync` fetches a greater head, or has given up; `Enter` ends it as well.
    Behind(bool),
    /// `sync` was served a proof of our open epoch's result, by this peer.
    Link(PeerId, Box<Link>),
    /// `sync` was served Regroups of our open epoch, by this peer.
    Openings(PeerId, Vec<Opening>),
    /// `sync` has come to another head: go on from there.
    Enter {
        /// The head.
        head: Head,
        /// Its voters.
        voters: Vec<Voter>,
        /// The median weight in its receipt.
        median: Option<u64>,
    },
}

impl Step<'_> {
    /// Asks something of whoever drives the peer.
    pub fn put(&mut self, output: Output) {
        self.out.push(Decision::Out(output));
    }

    /// Tells the machine beside it something.
    pub fn tell(&mut self, told: Told) {
        self.out.push(Decision::Tell(told));
    }
}
