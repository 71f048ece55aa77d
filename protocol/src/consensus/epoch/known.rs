//! What a peer knows about admission in addition to its lineage: the tickets that others have
//! shown, and the organiser's notices (T5, T8).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::interface::Credentials;
use crate::access::admit::{Denied, NOTICES_MAX};
use crate::access::ledger::Ledger;
use crate::access::notices::Notices;
use crate::base::id::PeerId;
use crate::base::time::Time;
use crate::message::{Notice, Ticket};

/// What is known of which peers may take part.
#[derive(Clone, Debug)]
pub(super) struct Admission {
    /// The ledger before the open epoch (T1).
    pub(super) ledger: Arc<Ledger>,
    /// The ledger with the notices that are due: which peers will be in after this epoch, apart
    /// from tickets.
    pub(super) due: Arc<Ledger>,
    /// The notices, as `sync` has them.
    pub(super) notices: Notices,
    pub(super) ticket: Option<Ticket>,
    /// The tickets of peers that are alive and not yet in, each with whether it is valid.
    pub(super) shown: BTreeMap<PeerId, (Ticket, Result<(), Denied>)>,
    /// Refusals already reported to the user, by peer.
    pub(super) reported: BTreeMap<PeerId, Denied>,
    /// Unix seconds at some time (T4).
    clock: (u64, Time),
}

impl Admission {
    pub(super) fn new(
        now: Time,
        ledger: Arc<Ledger>,
        notices: Notices,
        credentials: Credentials,
    ) -> Self {
        let Credentials { ticket, unix } = credentials;
        Self {
            due: Arc::clone(&ledger),
            ledger,
            notices,
            ticket,
            shown: BTreeMap::new(),
            reported: BTreeMap::new(),
            clock: (unix, now),
        }
    }

    /// The notices that a roster on this ledger has to carry (T5).
    pub(super) fn pending(&self) -> Vec<Arc<Notice>> {
        self.notices.after(self.ledger.last(), NOTICES_MAX)
    }

    pub(super) fn unix(&self, now: Time) -> u64 {
        let (unix, at) = self.clock;
        unix.saturating_add(now.since(at).as_secs())
    }
}
