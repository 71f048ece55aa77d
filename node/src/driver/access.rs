//! Admission as the driver sees it: requests of other peers, their replies to ours, and the notices that
//! come with either or are fetched.
//!
//! In an open run [`Access::admission`] is `None`: every ticket is welcome, and notices are fetched
//! all the same.
//!
//! Nobody is believed here. A ticket and a notice prove themselves by signatures, which
//! `access::admit` and `access::notices` check. So it does not matter which peer brings them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use intellect_protocol::access::handshake::{Outcome, Reception, Visit};
use intellect_protocol::access::notices::NoticeError;
use intellect_protocol::base::id::PeerId;
use intellect_protocol::message::{Notice, Ticket};
use intellect_protocol::peer;
use tokio::sync::oneshot;

use super::{Done, Driver, DriverError};
use crate::access::{Admission, REFUSED_FOR};
use crate::store::StoreError;

/// Admission of the run, and the peers that were reported, each once.
#[derive(Debug, Default)]
pub(super) struct Access {
    /// `None` in an open run, which has no admission.
    pub(super) admission: Option<Admission>,
    /// Keeps two writes of the notices from running at once.
    pub(super) saving: Saving,
    /// Peers of another version that were reported, at most [`NAMED_MAX`].
    pub(super) incompatible: BTreeSet<PeerId>,
    /// Peers that were refused and reported, at most [`NAMED_MAX`].
    pub(super) refused: BTreeSet<PeerId>,
    /// What was proven of each peer, with the proof in an event, at most [`NAMED_MAX`].
    pub(super) proven: BTreeSet<(PeerId, String)>,
}

/// Whether notices are being written, and whether newer ones wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Saving {
    /// The store is free for a write.
    #[default]
    Idle,
    /// A write is under way, and newer notices wait for its end.
    Under,
    /// A write is under way, and another one follows with what is known then.
    Again,
}

/// Adds a peer to those that were reported. Once the set is full every further one counts as
/// reported, so an attacker with many keys can fill neither memory nor the screen.
/// Returns whether this call added it, so whether to report it.
pub(super) fn is_first<T: Ord>(named: &mut BTreeSet<T>, one: T) -> bool {
    named.len() < NAMED_MAX && named.insert(one)
}

impl Driver {
    /// A peer has sent an admit request.
    ///
    /// The same stream serves three visits. A member shows its ticket, a tool of the organiser
    /// hands over a notice, and a visitor asks how far the run is. Each gets an answer, which in a
    /// run of invited peers also names the last notice of our ledger.
    pub(super) fn on_admit_request(
        &mut self,
        from: PeerId,
        request: Visit,
        reply: oneshot::Sender<Reception>,
    ) {
        let outcome = match request {
            Visit::Enter(ticket) => self.on_ticket(from, ticket),
            Visit::Hand(notice) => match self.on_notice(&notice) {
                Ok(()) => Outcome::Welcome,
                Err(why) => Outcome::refused(&why),
            },
            Visit::Ask => Outcome::Welcome,
        };
        let epoch = self.holdings.peer().head().epoch;
        let open = Reception { outcome: outcome.clone(), epoch, notice: None };
        let admission = self.access.admission.as_ref();
        // Fails only where the peer has disconnected.
        let _ = reply.send(admission.map_or(open, |admission| admission.reply(outcome)));
    }

    /// Judges a ticket. In an open run everybody is welcome. A refusal is also reported to the owner
    /// of this node, once for each peer, but not before the first epoch is here: the empty ledger of
    /// a newcomer names no member either.
    ///
    /// `Ok(true)` of the admission means that the list of admitted peers has changed, which the
    /// network has to know too.
    fn on_ticket(&mut self, from: PeerId, ticket: Option<Ticket>) -> Outcome {
        let knows_members = self.holdings.peer().head().epoch > 0;
        let Some(admission) = &mut self.access.admission else { return Outcome::Welcome };
        match admission.enter(from, ticket) {
            Ok(false) => {}
            Ok(true) => self.net.allow(admission.allowed()),
            Err(denied) => {
                if knows_members && is_first(&mut self.access.refused, from) {
                    self.tell.refused(from, &denied.to_string());
                }
                return Outcome::refused(&denied);
            }
        }
        Outcome::Welcome
    }

    /// A peer has replied to our admit request.
    /// A refusal of one member is reported once, and ends nothing: other members may know a newer
    /// ledger.
    pub(super) fn on_admit_reply(&mut self, peer: PeerId, reply: Reception) {
        let Some(admission) = &mut self.access.admission else { return };
        let outcome = reply.outcome.clone();
        let first = admission.answered(Instant::now(), &peer, reply);
        if let (true, Outcome::Refused(why)) = (first, outcome) {
            self.tell.turned_away(peer, &why, REFUSED_FOR);
        }
    }

    /// Follows the ledger, and ends the node once it is clear that no member admits it.
    ///
    /// It is called at every turn of the loop. The epoch that counts is the one that is open.
    pub(super) fn update_admission(&mut self) -> Result<(), DriverError> {
        let peer = self.holdings.peer();
        let (Some(admission), Some(ledger)) = (&mut self.access.admission, peer.ledger()) else {
            return Ok(());
        };
        if admission.follow(ledger, peer.head().epoch.saturating_add(1)) {
            self.net.allow(admission.allowed());
        }
        let named = peer.notices().admit(&self.key.peer());
        admission
            .refused(Instant::now(), named)
            .map_or(Ok(()), |why| Err(DriverError::Refused(why)))
    }

    /// Takes over the ledger of an earlier start.
    /// A node that the ledger refuses ends here, before it says anything, unless a notice admits it
    /// anew.
    pub(super) fn resume_admission(&mut self) -> Result<(), DriverError> {
        let peer = self.holdings.peer();
        let (Some(admission), Some(ledger)) = (&mut self.access.admission, peer.ledger()) else {
            return Ok(());
        };
        admission.resume(ledger, peer.head().epoch.saturating_add(1));
        self.net.allow(admission.allowed());
        match admission.check() {
            Err(denied) if !peer.notices().admit(&self.key.peer()) => {
                Err(DriverError::Refused(denied.to_string()))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Fetches the notices of the run from one peer, or from all connected ones.
    /// A failure is no event, since notices also come by gossip.
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

    /// Takes notices that any peer may have served.
    pub(super) fn on_notices(&mut self, notices: &[Vec<u8>]) {
        for notice in notices.iter().filter_map(|bytes| Notice::from_bytes(bytes)) {
            if let Err(error) = self.on_notice(&notice) {
                tracing::debug!(%error, "a notice that is of no use");
            }
        }
    }

    /// Takes a notice that any peer may have sent. The state reports it if it is news, and then it is stored.
    /// The error says why it is of no use, which a peer that has handed it over gets as an answer.
    fn on_notice(&mut self, notice: &Notice) -> Result<(), NoticeError> {
        self.holdings.peer().notices().check(notice)?;
        self.peer_input(peer::Input::Notice(Box::new(notice.clone())));
        Ok(())
    }

    /// Stores the known notices, and serves them.
    pub(super) fn keep_notices(&mut self) {
        self.net.serve_notices(self.notices());
        self.save_notices();
    }

    /// The known notices in the form in which they are stored and served.
    pub(super) fn notices(&self) -> Vec<Arc<[u8]>> {
        self.holdings.peer().notices().all().map(|notice| notice.to_bytes().into()).collect()
    }

    /// Writes the notices off the loop. Only one write runs at a time, since two could end in the
    /// wrong order and leave the older file.
    /// However many notices come meanwhile, one more write is enough, because it takes what is
    /// known then.
    fn save_notices(&mut self) {
        if self.access.saving != Saving::Idle {
            self.access.saving = Saving::Again;
            return;
        }
        self.access.saving = Saving::Under;
        let (store, notices) = (Arc::clone(&self.store), self.notices());
        self.jobs.spawn_blocking(move || Done::NoticesKept(store.save_notices(&notices)));
    }

    /// Notices are stored. If that failed they can be fetched again.
    pub(super) fn on_notices_kept(&mut self, result: Result<(), StoreError>) {
        if let Err(error) = result {
            tracing::warn!(%error, "notices are not kept");
        }
        if std::mem::take(&mut self.access.saving) == Saving::Again {
            self.save_notices();
        }
    }
}

/// Peers that are reported; more reports would not help.
const NAMED_MAX: usize = 256;
