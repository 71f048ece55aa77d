//! The lobby: what comes from whoever is not let in yet, what others say to us there, and the papers
//! that come by it and from other peers.

use std::sync::Arc;
use std::time::Instant;

use intellect_protocol::id::PeerId;
use intellect_protocol::lobby::{Outcome, Paper, Reception, Visit};
use intellect_protocol::message::Ticket;
use intellect_protocol::peer;
use tokio::sync::oneshot;

use super::gate::{Gate, Saving};
use super::{Done, Driver, DriverError};
use crate::admission::REFUSED_FOR;
use crate::papers::PaperError;
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
            Visit::Hand(paper) => match self.on_paper(&paper) {
                Ok(()) => Outcome::Welcome,
                Err(why) => Outcome::refused(&why),
            },
            Visit::Ask => Outcome::Welcome,
        };
        let epoch = self.holdings.peer().head().epoch;
        let open = Reception { outcome: outcome.clone(), epoch, decree: None };
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
            self.gate.signers.set(ledger.authorities());
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
        self.gate.signers.set(ledger.authorities());
        match admission.check() {
            Err(denied) if !self.gate.papers.admits(&self.key.peer()) => {
                Err(DriverError::Refused(denied.to_string()))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Asks for the papers of the run: of one peer, or of the entry points and whoever is there.
    pub(super) fn ask_papers(&mut self, of: Option<PeerId>) {
        let (net, run) = (self.net.clone(), self.manifest.id);
        self.jobs.spawn(async move {
            let papers = match of {
                Some(peer) => net.papers(peer, run).await.unwrap_or_default(),
                None => {
                    let offers = net.entry_papers(run).await.unwrap_or_default();
                    offers.into_iter().map(|offer| offer.bytes).collect()
                }
            };
            Done::Papers(papers)
        });
    }

    /// Papers have come, from anybody.
    pub(super) fn on_papers(&mut self, papers: &[Vec<u8>]) {
        for paper in papers.iter().filter_map(|bytes| Paper::from_bytes(bytes)) {
            if let Err(error) = self.on_paper(&paper) {
                tracing::debug!(%error, "a paper that is of no use");
            }
        }
    }

    /// Takes a paper that anybody may have brought. It is kept once the state says that it is news.
    fn on_paper(&mut self, paper: &Paper) -> Result<(), PaperError> {
        self.gate.papers.check(paper, &self.gate.signers)?;
        match paper {
            Paper::Decree(decree) => {
                self.hear(peer::Input::Decree(Box::new(decree.clone())));
            }
            Paper::Vouch(vouch) => self.hear(peer::Input::Vouch(Box::new(vouch.clone()))),
        }
        Ok(())
    }

    /// Keeps a paper, if it is news, and hands it out.
    pub(super) fn keep_paper(&mut self, paper: &Paper) {
        let Gate { papers, signers, .. } = &mut self.gate;
        if let Ok(true) = papers.take(paper, signers) {
            self.net.serve_papers(papers.all());
            self.save_papers();
        }
    }

    fn save_papers(&mut self) {
        if self.gate.saving != Saving::Idle {
            self.gate.saving = Saving::Again;
            return;
        }
        self.gate.saving = Saving::Under;
        let (store, papers) = (Arc::clone(&self.store), self.gate.papers.all());
        self.jobs.spawn_blocking(move || Done::PapersKept(store.save_papers(&papers)));
    }

    /// Papers are on the disk, or are not; others have them too.
    pub(super) fn on_papers_kept(&mut self, result: Result<(), StoreError>) {
        if let Err(error) = result {
            tracing::warn!(%error, "papers are not kept");
        }
        if std::mem::take(&mut self.gate.saving) == Saving::Again {
            self.save_papers();
        }
    }
}
