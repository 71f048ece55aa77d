//! The lobby: what comes from whoever is not let in yet, what others say to us there, and the notices
//! that come by it and from other peers.

use std::sync::Arc;
use std::time::Instant;

use intellect_protocol::access::handshake::{Outcome, Reception, Visit};
use intellect_protocol::access::notices::NoticeError;
use intellect_protocol::base::id::PeerId;
use intellect_protocol::message::{Clause, Notice, Ticket};
use intellect_protocol::peer;
use tokio::sync::oneshot;

use super::gate::Saving;
use super::{Done, Driver, DriverError};
use crate::admission::REFUSED_FOR;
use crate::store::StoreError;

impl Driver {
    /// Somebody is in the lobby.
    pub(super) fn on_visit(
        &mut self,
        from: PeerId,
        visit: Visit,
        reply: oneshot::Sender<Reception>,
    ) {
        let outcome = match visit {
            Visit::Enter(ticket) => self.on_ticket(from, ticket),
            Visit::Hand(notice) => match self.on_notice(&notice) {
                Ok(()) => Outcome::Welcome,
                Err(why) => Outcome::refused(&why),
            },
            Visit::Ask => Outcome::Welcome,
        };
        let epoch = self.holdings.peer().head().epoch;
        let open = Reception { outcome: outcome.clone(), epoch, notice: None };
        let admission = self.gate.admission.as_ref();
        // Whoever came may be gone.
        let _ = reply.send(admission.map_or(open, |admission| admission.reception(outcome)));
    }

    fn on_ticket(&mut self, from: PeerId, ticket: Option<Ticket>) -> Outcome {
        let Some(admission) = &mut self.gate.admission else { return Outcome::Welcome };
        match admission.enter(from, ticket) {
            Ok(false) => {}
            Ok(true) => self.net.let_in(admission.let_in()),
            Err(denied) => {
                if self.gate.is_first_refused(from) {
                    self.tell.refused(from, &denied.to_string());
                }
                return Outcome::refused(&denied);
            }
        }
        Outcome::Welcome
    }

    /// A peer has answered to what we show.
    pub(super) fn on_received(&mut self, peer: PeerId, reception: Reception) {
        let Some(admission) = &mut self.gate.admission else { return };
        let outcome = reception.outcome.clone();
        let first = admission.answered(Instant::now(), &peer, reception);
        if let (true, Outcome::Refused(why)) = (first, outcome) {
            self.tell.turned_away(peer, &why, REFUSED_FOR);
        }
    }

    /// Follows the ledger, and ends the node once it is clear that nobody lets it in.
    pub(super) fn attend(&mut self) -> Result<(), DriverError> {
        let peer = self.holdings.peer();
        let (Some(admission), Some(ledger)) = (&mut self.gate.admission, peer.ledger()) else {
            return Ok(());
        };
        if admission.follow(ledger, peer.head().epoch.saturating_add(1)) {
            self.net.let_in(admission.let_in());
        }
        admission.refused(Instant::now()).map_or(Ok(()), |why| Err(DriverError::Refused(why)))
    }

    /// Goes on with the ledger of an earlier start.
    pub(super) fn admit(&mut self) -> Result<(), DriverError> {
        let peer = self.holdings.peer();
        let (Some(admission), Some(ledger)) = (&mut self.gate.admission, peer.ledger()) else {
            return Ok(());
        };
        admission.resume(ledger, peer.head().epoch.saturating_add(1));
        self.net.let_in(admission.let_in());
        match admission.check() {
            Err(denied) if !self.is_named() => Err(DriverError::Refused(denied.to_string())),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Whether a notice that is known lets this node in, which then needs no ticket.
    fn is_named(&self) -> bool {
        let me = Clause::Admit(self.key.peer());
        self.holdings.peer().notices().all().any(|notice| notice.clauses().contains(&me))
    }

    /// Asks for the notices of the run: of one peer, or of the entry points and whoever is there.
    pub(super) fn ask_notices(&mut self, of: Option<PeerId>) {
        let (net, run) = (self.net.clone(), self.manifest.id);
        self.jobs.spawn(async move {
            let notices = match of {
                Some(peer) => net.notices(peer, run).await.unwrap_or_default(),
                None => {
                    let offers = net.entry_notices(run).await.unwrap_or_default();
                    offers.into_iter().map(|offer| offer.bytes).collect()
                }
            };
            Done::Notices(notices)
        });
    }

    /// Notices have come, from anybody.
    pub(super) fn on_notices(&mut self, notices: &[Vec<u8>]) {
        for notice in notices.iter().filter_map(|bytes| Notice::from_bytes(bytes)) {
            if let Err(error) = self.on_notice(&notice) {
                tracing::debug!(%error, "a notice that is of no use");
            }
        }
    }

    /// Takes a notice that anybody may have brought. It is kept once the state says that it is news.
    fn on_notice(&mut self, notice: &Notice) -> Result<(), NoticeError> {
        self.holdings.peer().notices().check(notice)?;
        self.hear(peer::Input::Notice(Box::new(notice.clone())));
        Ok(())
    }

    /// Keeps the notices that are known, and hands them out.
    pub(super) fn keep_notices(&mut self) {
        self.net.serve_notices(self.notices());
        self.save_notices();
    }

    pub(super) fn notices(&self) -> Vec<Arc<[u8]>> {
        self.holdings.peer().notices().all().map(|notice| notice.to_bytes().into()).collect()
    }

    fn save_notices(&mut self) {
        if self.gate.saving != Saving::Idle {
            self.gate.saving = Saving::Again;
            return;
        }
        self.gate.saving = Saving::Under;
        let (store, notices) = (Arc::clone(&self.store), self.notices());
        self.jobs.spawn_blocking(move || Done::NoticesKept(store.save_notices(&notices)));
    }

    /// Notices are on the disk, or are not; others have them too.
    pub(super) fn on_notices_kept(&mut self, result: Result<(), StoreError>) {
        if let Err(error) = result {
            tracing::warn!(%error, "notices are not kept");
        }
        if std::mem::take(&mut self.gate.saving) == Saving::Again {
            self.save_notices();
        }
    }
}
