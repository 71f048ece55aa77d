//! What the organiser has attested, and which heads lie on it (G11).
//!
//! A heartbeat says how high an attestation its head lies on. That is a claim: it makes us ask, and nothing else.
//! It counts for no more than the attestations that we know, and not where it cannot be: a head before the
//! epoch of the attestation, or on our own lineage, of which we know better. While the links are judged each attestation
//! whose epoch they have reached is held against them, so a lie costs its author's lineage up to that epoch
//! at most, and is found out with the first link that parts from ours after it. Only what the links prove is
//! compared in the end, and whoever has claimed more is set aside with that head (G12).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::pursuit::Judged;
use super::{ChainLink, Event, Head, Message, PeerId, Rank, Seen, State, Time};
use crate::access::ledger::Ledgers;
use crate::access::notices::{NoticeError, Notices};
use crate::base::fault::{CertificateFault, Fault};
use crate::base::id::Digest;
use crate::base::rule::Rule;
use crate::base::sign::Verified;
use crate::machine::output::Output;
use crate::machine::step::{Lead, Step};
use crate::message::wire;
use crate::message::{Attestation, Notice};

/// The least time between two notices that we tell one peer.
const TOLD_GAP: Duration = Duration::from_secs(60);

/// Heartbeats for which a notice may be on its way to everybody: who has not heard of it then is told.
const NOTICE_HEARTBEATS: u32 = 4;

/// What was said of notices, and when.
#[derive(Clone, Debug, Default)]
pub(super) struct Passed {
    /// When the newest one came to be known.
    since: Time,
    /// Who was told one lately, and when.
    told: BTreeMap<PeerId, Time>,
}

/// Our own lineage.
impl State {
    /// The notices that are known.
    #[must_use]
    pub fn notices(&self) -> &Notices {
        &self.notices
    }

    /// The number of the highest attestation that our head lies on; 0: none.
    #[must_use]
    pub fn attested(&self) -> u64 {
        self.highest(|_, attestation| self.is_on_ours(attestation))
    }

    /// The number of the newest attestation; 0: none.
    fn attestation(&self) -> u64 {
        self.notices.attestations().next().map_or(0, |(number, _)| number)
    }

    pub(super) fn highest(&self, lies: impl Fn(u64, &Attestation) -> bool) -> u64 {
        let mut all = self.notices.attestations().filter(|_| self.law.keeps(Rule::G11));
        all.find(|(number, attestation)| lies(*number, attestation)).map_or(0, |(number, _)| number)
    }

    pub(super) fn is_on_ours(&self, attestation: &Attestation) -> bool {
        let entry = self.entry(attestation.epoch);
        entry.is_some_and(|entry| attestation.names(&entry.r, &entry.state))
    }

    /// Where our head stands (R23).
    pub(super) fn rank(&self) -> Rank {
        self.head.rank(self.attested())
    }

    /// Whoever begins without a state follows no lineage that lacks the newest attestation, and founds none.
    pub(super) fn awaits_attested(&self) -> bool {
        self.head.epoch == 0 && self.attestation() > 0 && self.law.keeps(Rule::G11)
    }

    /// Whether a head of this rank is to be followed.
    pub(super) fn is_greater(&self, rank: &Rank) -> bool {
        *rank > self.rank() && (!self.awaits_attested() || rank.attested == self.attestation())
    }
}

/// Heads of others.
impl State {
    /// The greatest rank that `head` can have, if `said` is the highest attestation that it lies on.
    pub(super) fn claimed(&self, head: &Head, said: u64) -> Rank {
        let is_ours = self.state_after(head.epoch) == Some(head.state);
        let lies = |number, attestation: &Attestation| match is_ours {
            true => attestation.epoch <= head.epoch && self.is_on_ours(attestation),
            false => number <= said && can_lie_on(head, attestation),
        };
        head.rank(self.highest(lies))
    }

    /// The same of what a peer was heard to say of its head.
    pub(super) fn claimed_by(&self, seen: &Seen) -> Rank {
        self.claimed(&seen.beat.head, seen.beat.attested)
    }

    /// The same of a head that is told in an answer: what its author said last of the one that it had.
    pub(super) fn claimed_in(&self, step: &Step<'_>, from: &PeerId, head: &Head) -> Rank {
        let said = step.roll.peers.get(from).map_or(0, |seen| seen.beat.attested);
        self.claimed(head, said)
    }

    /// The same, once a chain has told what follows on our epoch before `first_epoch`.
    pub(super) fn claimed_on(
        &self,
        step: &Step<'_>,
        (from, head): (&PeerId, &Head),
        first_epoch: u64,
        chain: &[ChainLink],
    ) -> Rank {
        let said = self.claimed_in(step, from, head).attested;
        let told = |epoch: u64| chain.iter().find(|link| link.epoch == epoch);
        head.rank(self.highest(|number, attestation| match told(attestation.epoch) {
            _ if attestation.epoch < first_epoch => self.is_on_ours(attestation),
            Some(link) => attestation.names(&link.r, &link.state),
            None => number <= said && can_lie_on(head, attestation),
        }))
    }

    /// The same, once some links of its lineage are verified: what they prove of the epochs that they have
    /// reached, and what may still come.
    pub(super) fn claimed_after(
        &self,
        step: &Step<'_>,
        (from, head): (&PeerId, &Head),
        judged: &Judged,
    ) -> Rank {
        let said = self.claimed_in(step, from, head).attested;
        head.rank(self.highest(|number, attestation| {
            // The state after the last link is still to come.
            let last = judged.entries.back().filter(|_| attestation.epoch == judged.reached());
            let open = attestation.epoch > judged.reached()
                || last.is_some_and(|last| last.r == attestation.r);
            let may_come = open && number <= said && can_lie_on(head, attestation);
            may_come || self.is_proven(judged, attestation)
        }))
    }

    /// The rank of a head whose links are all verified.
    pub(super) fn proven(&self, head: &Head, judged: &Judged) -> Rank {
        head.rank(self.highest(|_, attestation| self.is_proven(judged, attestation)))
    }

    fn is_proven(&self, judged: &Judged, attestation: &Attestation) -> bool {
        let base = &judged.base;
        match attestation.epoch.checked_sub(base.epoch) {
            None => self.is_on_ours(attestation),
            Some(0) => self.is_on_ours(attestation) && attestation.state == base.state,
            Some(after) => {
                let at = usize::try_from(after - 1).ok().and_then(|at| judged.entries.get(at));
                at.is_some_and(|entry| attestation.names(&entry.r, &entry.state))
            }
        }
    }

    /// Its author has claimed an attestation for a head that does not lie on it.
    pub(super) fn note_claim(
        &mut self,
        step: &Step<'_>,
        from: PeerId,
        heads: [&Head; 2],
        proven: Rank,
    ) {
        if heads.iter().any(|head| self.claimed_in(step, &from, head).attested > proven.attested) {
            heads.iter().for_each(|head| self.put_aside(from, head.state, Time(u64::MAX)));
            self.note_in_vain(step, from);
        }
    }
}

fn can_lie_on(head: &Head, attestation: &Attestation) -> bool {
    (head.epoch == attestation.epoch && head.state == attestation.state)
        || head.epoch > attestation.epoch
}

/// Taking notices, and passing them on.
impl State {
    /// A notice has come, from a peer, or with the manifest or a roster. What is none costs whoever brought it; one that
    /// does not fit those that are known may be the organiser's mistake.
    pub(super) fn on_notice(&mut self, step: &mut Step<'_>, notice: &Notice, from: Option<PeerId>) {
        let base = self.ledger().map_or((0, Digest::ZERO), |ledger| ledger.last());
        let is_newest = notice.number >= self.notices.last().0;
        match (self.notices.learn(base, notice), from) {
            (Ok(true), _) => {}
            (Ok(false) | Err(NoticeError::Follows { .. } | NoticeError::Open), _)
            | (Err(_), None) => {
                return;
            }
            (Err(_), Some(from)) => {
                let fault = Fault::Certificate(CertificateFault::UnsignedNotice);
                return step.put(Output::Fault(from, fault));
            }
        }
        if notice.attests().is_some() {
            // A person has decided: what was left alone, or for a person to decide, is looked at anew.
            self.aside.heads.clear();
            self.told.held.clear();
        }
        if is_newest {
            self.told.notices.since = step.now;
        }
        let notice = Arc::new(notice.clone());
        step.put(Output::Event(Event::Notice { notice: Arc::clone(&notice), in_force: None }));
        step.put(Output::Gossip(self.seal(Message::Notice(notice.as_ref().clone()))));
        step.lead(Lead::Notices(Box::new(self.notices.clone())));
        self.wait_for_attested(step);
    }

    /// The lineage has come to another notice, or is another one.
    pub(super) fn settle_notices(&mut self) {
        if let Some(ledger) = self.ledgers.as_ref().map(Ledgers::newest) {
            self.notices.settle(ledger.last());
        }
    }

    /// While we wait for the attested lineage, no other one begins here.
    pub(super) fn wait_for_attested(&self, step: &mut Step<'_>) {
        if self.awaits_attested() {
            step.lead(Lead::Behind(true));
        }
    }

    /// Tells the newest notice to whoever does not have it, and the attestation that we lie on to whoever lies on none
    /// that high.
    pub(super) fn pass_notices(&mut self, step: &mut Step<'_>) {
        self.told.notices.told.retain(|_, at| step.now < *at + TOLD_GAP);
        let Some(newest) = self.notices.newest().cloned() else { return };
        if step.now < self.told.notices.since + step.roll.heartbeat * NOTICE_HEARTBEATS {
            return;
        }
        let ours = self.attested();
        for (peer, seen) in step.roll.live(step.now) {
            let lacks = match seen.beat.notice < newest.number {
                true => Some(newest.clone()),
                false if seen.beat.attested < ours && ours < newest.number => {
                    self.notices.get(ours).cloned()
                }
                false => None,
            };
            let Some(notice) = lacks.filter(|_| !self.told.notices.told.contains_key(peer)) else {
                continue;
            };
            self.told.notices.told.insert(*peer, step.now);
            step.put(Output::Send(*peer, self.seal(Message::Notice(notice.as_ref().clone()))));
        }
    }

    fn seal(&self, message: Message) -> Arc<Verified<Message>> {
        Arc::new(wire::seal(&self.law.key, &self.law.run, message))
    }
}
