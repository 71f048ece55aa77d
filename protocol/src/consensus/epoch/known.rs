//! What a peer knows of who may take part, beside its lineage: tickets that were shown, and the organiser's notices
//! (T5, T8).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::interface::Credentials;
use crate::access::admit::{Denied, NOTICES_MAX};
use crate::access::ledger::Ledger;
use crate::access::notices::Notices;
use crate::base::id::PeerId;
use crate::base::time::Time;
use crate::message::{Notice, Ticket};

/// What is known of who may take part.
#[derive(Clone, Debug)]
pub(super) struct Admission {
    /// Before the open epoch (T1).
    pub(super) ledger: Arc<Ledger>,
    /// With the notices that are due: who will be in after it, but for tickets.
    pub(super) due: Arc<Ledger>,
    /// As `sync` has them.
    pub(super) notices: Notices,
    /// Our own ticket.
    pub(super) ticket: Option<Ticket>,
    /// The tickets of those who are alive and not in.
    pub(super) shown: BTreeMap<PeerId, (Ticket, Result<(), Denied>)>,
    /// Of whom people were told that they are refused, and why.
    pub(super) told: BTreeMap<PeerId, Denied>,
    /// Unix seconds at some time (T4).
    clock: (u64, Time),
}

impl Admission {
    pub(super) fn new(
        now: Time,
        ledger: Arc<Ledger>,
        (notices, credentials): (Notices, Credentials),
    ) -> Self {
        let Credentials { ticket, unix } = credentials;
        Self {
            due: Arc::clone(&ledger),
            ledger,
            notices,
            ticket,
            shown: BTreeMap::new(),
            told: BTreeMap::new(),
            clock: (unix, now),
        }
    }

    /// The notices that a roster after the ledger carries (T5).
    pub(super) fn pending(&self) -> Vec<Arc<Notice>> {
        self.notices.after(self.ledger.last(), NOTICES_MAX)
    }

    /// Unix seconds now.
    pub(super) fn unix(&self, now: Time) -> u64 {
        let (unix, at) = self.clock;
        unix.saturating_add(now.since(at).as_secs())
    }
}
