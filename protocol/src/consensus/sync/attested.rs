//! What the organiser has attested, and which heads lie on it (G11).
//!
//! A heartbeat names the highest attestation that its head lies on. That is a claim: it makes us
//! ask, and nothing else. It counts for no more than the attestations that we know. It does not
//! count at all for a head before the epoch of the attestation, or on our own lineage, which we
//! know better. While links are verified, each attestation is compared with them as soon as they
//! reach its epoch. So a lie makes us fetch a lineage up to that epoch at most, and the first link
//! after it that parts from ours shows the lie. In the end only what the links prove is compared,
//! and a peer that has claimed more is ignored with that head (G12).

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::base::id::PeerId;
use crate::base::rule::Rule;
use crate::base::time::Time;
use crate::machine::output::Output;
use crate::machine::step::{Lead, Step};
use crate::machine::table::PeerRecord;
use crate::message::{Attestation, ChainLink, Head, Message, Rank};

use super::candidate::Candidate;
use super::lineage::{Entry, Lineage};
use super::requests::Claim;

/// The least time between two notices that we send to one peer.
const SENT_GAP: Duration = Duration::from_secs(60);

/// Heartbeats that a notice may take to reach all peers by gossip; after that it is sent to those
/// that lack it.
const NOTICE_HEARTBEATS: u32 = 4;

/// When notices were sent, and to which peers.
#[derive(Clone, Debug, Default)]
pub(super) struct Passed {
    /// When the newest notice came to be known.
    pub(super) since: Time,
    /// The peers that were sent a notice lately, and when.
    sent: BTreeMap<PeerId, Time>,
}

/// Our own lineage, and what it lies on.
impl Lineage {
    /// The number of the highest attestation that our head lies on; 0: none.
    pub(crate) fn attested(&self) -> u64 {
        self.highest(|_, attestation| self.is_on_ours(attestation))
    }

    /// The number of the newest attestation; 0: none.
    fn attestation(&self) -> u64 {
        self.highest(|_, _| true)
    }

    /// The number of the highest known attestation for which `lies` holds; 0: none.
    fn highest(&self, lies: impl Fn(u64, &Attestation) -> bool) -> u64 {
        let lies = |(number, of): &(u64, &Attestation)| self.keeps(Rule::G11) && lies(*number, of);
        self.notices.attestations().find(lies).map_or(0, |(number, _)| number)
    }

    /// Whether our lineage has the attested state, by that receipt, at that epoch.
    fn is_on_ours(&self, attestation: &Attestation) -> bool {
        let entry = self.entry(attestation.epoch);
        entry.is_some_and(|entry| attestation.names(&entry.r, &entry.state))
    }

    /// Whether we have no state yet and an attestation exists: then we follow no lineage that lacks
    /// the newest one, and found none.
    pub(super) fn awaits_attested(&self) -> bool {
        self.head.epoch == 0 && self.attestation() > 0
    }

    /// Whether a head of this rank is to be followed (R23).
    pub(super) fn is_greater(&self, rank: &Rank) -> bool {
        let ours = self.head.rank(self.attested());
        *rank > ours && (!self.awaits_attested() || rank.attested == self.attestation())
    }
}

/// Heads of other peers, and what they lie on.
impl Lineage {
    /// The greatest rank that `head` can have, if `said` is the highest attestation that its author
    /// claims.
    fn claimed(&self, head: &Head, said: u64) -> Rank {
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
    pub(super) fn claimed_in(&self, step: &Step<'_>, claim: Claim) -> Rank {
        let said = step.table.peers.get(&claim.peer).map_or(0, |seen| seen.beat.attested);
        self.claimed(&claim.head, said)
    }

    /// The same, once a chain has named what follows on our epoch before `first_epoch`.
    pub(super) fn claimed_on(
        &self,
        step: &Step<'_>,
        claim: Claim,
        first_epoch: u64,
        chain: &[ChainLink],
    ) -> Rank {
        let (head, said) = (&claim.head, self.claimed_in(step, claim).attested);
        let named = |epoch: u64| chain.iter().find(|link| link.epoch == epoch);
        head.rank(self.highest(|number, attestation| match named(attestation.epoch) {
            _ if attestation.epoch < first_epoch => self.is_on_ours(attestation),
            Some(link) => attestation.names(&link.r, &link.state),
            None => number <= said && can_lie_on(head, attestation),
        }))
    }

    /// The same, once some links of its lineage are verified: what they prove for the epochs that
    /// they have reached, and what may still come.
    pub(super) fn claimed_with(&self, step: &Step<'_>, claim: Claim, other: &Candidate) -> Rank {
        let (head, said) = (&claim.head, self.claimed_in(step, claim).attested);
        head.rank(self.highest(|number, attestation| {
            // The state after the last link is not proven yet.
            let (epoch, reached) = (attestation.epoch, other.reached());
            let is_last = || other.entries.back().is_some_and(|last| last.r == attestation.r);
            let open = epoch > reached || (epoch == reached && is_last());
            let may_come = open && number <= said && can_lie_on(head, attestation);
            may_come || self.lies_on(other.base.epoch, &other.entries, attestation)
        }))
    }

    /// The rank of a head whose links are all verified: it is one of `entries`, which follow on our
    /// epoch `base`.
    pub(super) fn proven(&self, base: u64, entries: &VecDeque<Entry>, head: &Head) -> Rank {
        head.rank(self.highest(|_, attestation| {
            attestation.epoch <= head.epoch && self.lies_on(base, entries, attestation)
        }))
    }

    /// The same of the claimed head that a candidate has reached.
    pub(super) fn proven_by(&self, candidate: &Candidate) -> Rank {
        self.proven(candidate.base.epoch, &candidate.entries, &candidate.claim.head)
    }

    /// The same of another lineage that has our epochs up to `base`, and then these entries.
    fn lies_on(&self, base: u64, entries: &VecDeque<Entry>, attestation: &Attestation) -> bool {
        match attestation.epoch.checked_sub(base) {
            None | Some(0) => self.is_on_ours(attestation),
            Some(after) => {
                let at = usize::try_from(after - 1).ok().and_then(|at| entries.get(at));
                at.is_some_and(|entry| attestation.names(&entry.r, &entry.state))
            }
        }
    }

    /// While we wait for the attested lineage, we begin no other one.
    pub(super) fn wait_for_attested(&self, step: &mut Step<'_>) {
        if self.awaits_attested() {
            step.lead(Lead::Behind(true));
        }
    }
}

/// Whether a head may lie on an attestation, as far as its epoch and state show.
fn can_lie_on(head: &Head, attestation: &Attestation) -> bool {
    (head.epoch == attestation.epoch && head.state == attestation.state)
        || head.epoch > attestation.epoch
}

impl Passed {
    /// Sends the newest notice to peers that lack it, and the attestation that we lie on to peers
    /// whose head lies on none that high.
    pub(super) fn pass(&mut self, step: &mut Step<'_>, ours: &Lineage) {
        self.sent.retain(|_, at| step.now < *at + SENT_GAP);
        let Some(newest) = ours.notices.newest() else { return };
        if step.now < self.since + step.table.heartbeat * NOTICE_HEARTBEATS {
            return;
        }
        let attested = ours.attested();
        for (peer, seen) in step.table.live(step.now) {
            let lacks = match (seen.beat.notice < newest.number, seen.beat.attested < attested) {
                (true, _) => newest.number,
                (false, true) if attested < newest.number => attested,
                (false, _) => continue,
            };
            if let Some(notice) = ours.notices.get(lacks)
                && !self.sent.contains_key(peer)
            {
                self.sent.insert(*peer, step.now);
                let notice = Message::Notice(notice.as_ref().clone());
                step.put(Output::Send(*peer, ours.validator.seal(notice)));
            }
        }
    }
}
