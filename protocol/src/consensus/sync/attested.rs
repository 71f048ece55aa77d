//! What the organiser has attested, and which heads lie on it (G11).
//!
//! A heartbeat names the highest attestation that its head lies on. That is a claim: it makes us
//! ask, and nothing else. It counts for no more than the attestations that we know. It does not
//! count at all for a head before the epoch of the attestation, or on our own lineage, which we
//! know better. While links are verified, each attestation is compared with them as soon as they
//! reach its epoch. So a lie makes us fetch a lineage up to that epoch at most, and the first link
//! after it that parts from ours shows the lie. In the end only what the links prove is compared,
//! and a peer that has claimed more is ignored with that head (G12).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::access::ledger::Ledgers;
use crate::access::notices::{NoticeError, Notices};
use crate::base::fault::{CertificateFault, Fault};
use crate::base::id::{Digest, PeerId};
use crate::base::rule::Rule;
use crate::base::time::Time;
use crate::machine::event::Event;
use crate::machine::output::Output;
use crate::machine::step::{Lead, Step};
use crate::machine::table::PeerRecord;
use crate::message::{Attestation, ChainLink, Head, Message, Notice, Rank};

use super::State;
use super::catch_up::Candidate;

/// The least time between two notices that we send to one peer.
const SENT_GAP: Duration = Duration::from_secs(60);

/// Heartbeats that a notice may take to reach all peers by gossip; after that it is sent to those
/// that lack it.
const NOTICE_HEARTBEATS: u32 = 4;

/// When notices were sent, and to which peers.
#[derive(Clone, Debug, Default)]
pub(super) struct Passed {
    /// When the newest notice came to be known.
    since: Time,
    /// The peers that were sent a notice lately, and when.
    sent: BTreeMap<PeerId, Time>,
}

/// Our own lineage, and what it lies on.
impl State {
    /// The organiser's notices that are known.
    pub(crate) fn notices(&self) -> &Notices {
        &self.notices
    }

    /// The number of the highest attestation that our head lies on; 0: none.
    pub(crate) fn attested(&self) -> u64 {
        self.highest(|_, attestation| self.is_on_ours(attestation))
    }

    /// The number of the newest attestation; 0: none.
    fn attestation(&self) -> u64 {
        self.notices.attestations().next().map_or(0, |(number, _)| number)
    }

    pub(super) fn highest(&self, lies: impl Fn(u64, &Attestation) -> bool) -> u64 {
        if !self.validator.keeps(Rule::G11) {
            return 0;
        }
        self.notices
            .attestations()
            .find(|(number, attestation)| lies(*number, attestation))
            .map_or(0, |(number, _)| number)
    }

    pub(super) fn is_on_ours(&self, attestation: &Attestation) -> bool {
        let entry = self.entry(attestation.epoch);
        entry.is_some_and(|entry| attestation.names(&entry.r, &entry.state))
    }

    /// The rank of our own head (R23).
    pub(super) fn rank(&self) -> Rank {
        self.head.rank(self.attested())
    }

    /// Whether we have no state yet and an attestation exists: then we follow no lineage that lacks
    /// the newest one, and found none.
    pub(super) fn awaits_attested(&self) -> bool {
        self.head.epoch == 0 && self.attestation() > 0 && self.validator.keeps(Rule::G11)
    }

    /// Whether a head of this rank is to be followed.
    pub(super) fn is_greater(&self, rank: &Rank) -> bool {
        *rank > self.rank() && (!self.awaits_attested() || rank.attested == self.attestation())
    }
}

/// Heads of other peers, and what they lie on.
impl State {
    /// The greatest rank that `head` can have, if `said` is the highest attestation that its author
    /// claims.
    pub(super) fn claimed(&self, head: &Head, said: u64) -> Rank {
        let is_ours = self.state_after(head.epoch) == Some(head.state);
        let lies = |number, attestation: &Attestation| match is_ours {
            true => attestation.epoch <= head.epoch && self.is_on_ours(attestation),
            false => number <= said && can_lie_on(head, attestation),
        };
        head.rank(self.highest(lies))
    }

    /// The same, by the last heartbeat of a peer.
    pub(super) fn claimed_by(&self, seen: &PeerRecord) -> Rank {
        self.claimed(&seen.beat.head, seen.beat.attested)
    }

    /// The same of a head in an answer, by the attestation in its author's last heartbeat.
    pub(super) fn claimed_in(&self, step: &Step<'_>, from: &PeerId, head: &Head) -> Rank {
        let said = step.table.peers.get(from).map_or(0, |seen| seen.beat.attested);
        self.claimed(head, said)
    }

    /// The same, once a chain has named what follows on our epoch before `first_epoch`.
    pub(super) fn claimed_on(
        &self,
        step: &Step<'_>,
        from: &PeerId,
        head: &Head,
        first_epoch: u64,
        chain: &[ChainLink],
    ) -> Rank {
        let said = self.claimed_in(step, from, head).attested;
        let named = |epoch: u64| chain.iter().find(|link| link.epoch == epoch);
        head.rank(self.highest(|number, attestation| match named(attestation.epoch) {
            _ if attestation.epoch < first_epoch => self.is_on_ours(attestation),
            Some(link) => attestation.names(&link.r, &link.state),
            None => number <= said && can_lie_on(head, attestation),
        }))
    }

    /// The same, once some links of its lineage are verified: what they prove for the epochs that
    /// they have reached, and what may still come.
    pub(super) fn claimed_after(
        &self,
        step: &Step<'_>,
        from: &PeerId,
        head: &Head,
        candidate: &Candidate,
    ) -> Rank {
        let said = self.claimed_in(step, from, head).attested;
        head.rank(self.highest(|number, attestation| {
            // The state after the last link is not proven yet.
            let (epoch, reached) = (attestation.epoch, candidate.reached());
            let is_last = || candidate.entries.back().is_some_and(|last| last.r == attestation.r);
            let open = epoch > reached || (epoch == reached && is_last());
            let may_come = open && number <= said && can_lie_on(head, attestation);
            may_come || self.is_proven(candidate, attestation)
        }))
    }

    /// The rank of a head whose links are all verified.
    pub(super) fn proven(&self, head: &Head, candidate: &Candidate) -> Rank {
        head.rank(self.highest(|_, attestation| self.is_proven(candidate, attestation)))
    }

    fn is_proven(&self, candidate: &Candidate, attestation: &Attestation) -> bool {
        let base = &candidate.base;
        match attestation.epoch.checked_sub(base.epoch) {
            None => self.is_on_ours(attestation),
            Some(0) => self.is_on_ours(attestation) && attestation.state == base.state,
            Some(after) => {
                let at = usize::try_from(after - 1).ok().and_then(|at| candidate.entries.get(at));
                at.is_some_and(|entry| attestation.names(&entry.r, &entry.state))
            }
        }
    }

    /// Ignores a peer's heads if it has claimed an attestation that they do not lie on.
    pub(super) fn note_claim(
        &mut self,
        step: &Step<'_>,
        from: PeerId,
        heads: [&Head; 2],
        proven: Rank,
    ) {
        if heads.iter().any(|head| self.claimed_in(step, &from, head).attested > proven.attested) {
            heads.iter().for_each(|head| self.ignore(from, head.state, Time(u64::MAX)));
            self.note_failure(step, from);
        }
    }
}

fn can_lie_on(head: &Head, attestation: &Attestation) -> bool {
    (head.epoch == attestation.epoch && head.state == attestation.state)
        || head.epoch > attestation.epoch
}

/// Learning notices, and passing them on.
impl State {
    /// Learns a notice from a peer, the manifest or a roster. A peer that sends a false one gets a
    /// fault. One that does not fit the known notices may be the organiser's mistake, and is no
    /// fault.
    pub(super) fn on_notice(&mut self, step: &mut Step<'_>, notice: &Notice, from: Option<PeerId>) {
        let base = self.ledger().map_or((0, Digest::ZERO), |ledger| ledger.last());
        let is_newest = notice.number >= self.notices.last().0;
        match (self.notices.learn(base, notice), from) {
            (Ok(true), _) => {}
            (Ok(false) | Err(NoticeError::Follows { .. } | NoticeError::Open), _) => return,
            (Err(_), None) => return,
            (Err(_), Some(from)) => {
                let fault = Fault::Certificate(CertificateFault::UnsignedNotice);
                return step.put(Output::Fault(from, fault));
            }
        }
        if notice.attests().is_some() {
            // The organiser has decided: what was ignored, or left for a person to decide, is
            // looked at again.
            self.ignored.heads.clear();
            self.reported.held.clear();
        }
        if is_newest {
            self.reported.notices.since = step.now;
        }
        let notice = Arc::new(notice.clone());
        step.put(Output::Event(Event::Notice { notice: Arc::clone(&notice), in_force: None }));
        step.put(Output::Gossip(self.validator.seal(Message::Notice(notice.as_ref().clone()))));
        step.lead(Lead::Notices(Box::new(self.notices.clone())));
        self.wait_for_attested(step);
    }

    /// Tells the notices where the lineage is, after it has moved or changed.
    pub(super) fn settle_notices(&mut self) {
        if let Some(ledger) = self.ledgers.as_ref().map(Ledgers::newest) {
            self.notices.settle(ledger.last());
        }
    }

    /// While we wait for the attested lineage, we begin no other one.
    pub(super) fn wait_for_attested(&self, step: &mut Step<'_>) {
        if self.awaits_attested() {
            step.lead(Lead::Behind(true));
        }
    }

    /// Sends the newest notice to peers that lack it, and the attestation that we lie on to peers
    /// whose head lies on none that high.
    pub(super) fn pass_notices(&mut self, step: &mut Step<'_>) {
        self.reported.notices.sent.retain(|_, at| step.now < *at + SENT_GAP);
        let Some(newest) = self.notices.newest().cloned() else { return };
        if step.now < self.reported.notices.since + step.table.heartbeat * NOTICE_HEARTBEATS {
            return;
        }
        let ours = self.attested();
        for (peer, seen) in step.table.live(step.now) {
            let lacks = match seen.beat.notice < newest.number {
                true => Some(newest.clone()),
                false if seen.beat.attested < ours && ours < newest.number => {
                    self.notices.get(ours).cloned()
                }
                false => None,
            };
            if let Some(notice) = lacks
                && !self.reported.notices.sent.contains_key(peer)
            {
                self.reported.notices.sent.insert(*peer, step.now);
                step.put(Output::Send(
                    *peer,
                    self.validator.seal(Message::Notice(notice.as_ref().clone())),
                ));
            }
        }
    }
}
