//! What the organiser has vouched for, and which heads lie on it (G11).
//!
//! A heartbeat says how high a vouch its head lies on. That is a claim: it makes us ask, and nothing else.
//! It counts for no more than the vouches that we know, and not where it cannot be: a head before the
//! epoch of the vouch, or on our own lineage, of which we know better. While the links are judged each vouch
//! whose epoch they have reached is held against them, so a lie costs its author's lineage up to that epoch
//! at most, and is found out with the first link that parts from ours after it. Only what the links prove is
//! compared in the end, and whoever has claimed more is set aside with that head (G12).

use std::sync::Arc;
use std::time::Duration;

use super::pursuit::Judged;
use super::{ChainLink, Event, Head, Message, PeerId, Rank, Seen, State, Time, Vouch};
use crate::fault::{CertificateFault, Fault};
use crate::output::Output;
use crate::rule::Rule;
use crate::sign::Verified;
use crate::step::{Lead, Step};
use crate::vouch::VouchError;
use crate::wire;

/// The least time between two vouches that we gossip, and between two that we tell one peer.
const VOUCH_GAP: Duration = Duration::from_secs(60);

/// Heartbeats for which a vouch may be on its way to everybody: who has not heard of it then is told.
const VOUCH_HEARTBEATS: u32 = 4;

/// Our own lineage.
impl State {
    /// The number of the newest vouch that is known; 0: none.
    #[must_use]
    pub fn vouch(&self) -> u64 {
        self.vouches.number()
    }

    /// Whether the organiser has signed this vouch after the newest one that is known.
    #[must_use]
    pub fn lacks(&self, vouch: &Vouch) -> bool {
        vouch.number > self.vouch() && vouch.verify(&self.config.organiser, &self.law.run).is_ok()
    }

    /// The number of the highest vouch that our head lies on; 0: none.
    #[must_use]
    pub fn vouched(&self) -> u64 {
        self.highest(|vouch| self.is_on_ours(vouch))
    }

    pub(super) fn highest(&self, lies: impl Fn(&Vouch) -> bool) -> u64 {
        if self.law.keeps(Rule::G11) { self.vouches.highest(lies) } else { 0 }
    }

    pub(super) fn is_on_ours(&self, vouch: &Vouch) -> bool {
        self.entry(vouch.epoch).is_some_and(|entry| vouch.names(&entry.r, &entry.state))
    }

    /// Where our head stands (R23).
    pub(super) fn rank(&self) -> Rank {
        self.head.rank(self.vouched())
    }

    /// Whoever begins without a state follows no lineage that lacks the newest vouch, and founds none.
    pub(super) fn awaits_vouched(&self) -> bool {
        self.head.epoch == 0 && self.vouch() > 0 && self.law.keeps(Rule::G11)
    }

    /// Whether a head of this rank is to be followed.
    pub(super) fn is_greater(&self, rank: &Rank) -> bool {
        *rank > self.rank() && (!self.awaits_vouched() || rank.vouch == self.vouch())
    }
}

/// Heads of others.
impl State {
    /// The greatest rank that `head` can have, if `said` is the highest vouch that it lies on.
    pub(super) fn claimed(&self, head: &Head, said: u64) -> Rank {
        let is_ours = self.state_after(head.epoch) == Some(head.state);
        let lies = |vouch: &Vouch| match is_ours {
            true => vouch.epoch <= head.epoch && self.is_on_ours(vouch),
            false => vouch.number <= said && can_lie_on(head, vouch),
        };
        head.rank(self.highest(lies))
    }

    /// The same of what a peer was heard to say of its head.
    pub(super) fn claimed_by(&self, seen: &Seen) -> Rank {
        self.claimed(&seen.beat.head, seen.beat.vouched)
    }

    /// The same of a head that is told in an answer: what its author said last of the one that it had.
    pub(super) fn claimed_in(&self, step: &Step<'_>, from: &PeerId, head: &Head) -> Rank {
        let said = step.roll.peers.get(from).map_or(0, |seen| seen.beat.vouched);
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
        let said = self.claimed_in(step, from, head).vouch;
        let told = |epoch: u64| chain.iter().find(|link| link.epoch == epoch);
        head.rank(self.highest(|vouch| match told(vouch.epoch) {
            _ if vouch.epoch < first_epoch => self.is_on_ours(vouch),
            Some(link) => vouch.names(&link.r, &link.state),
            None => vouch.number <= said && can_lie_on(head, vouch),
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
        let said = self.claimed_in(step, from, head).vouch;
        head.rank(self.highest(|vouch| {
            // The state after the last link is still to come.
            let last = judged.entries.back().filter(|_| vouch.epoch == judged.reached());
            let open = vouch.epoch > judged.reached() || last.is_some_and(|last| last.r == vouch.r);
            let may_come = open && vouch.number <= said && can_lie_on(head, vouch);
            may_come || self.is_proven(judged, vouch)
        }))
    }

    /// The rank of a head whose links are all verified.
    pub(super) fn proven(&self, head: &Head, judged: &Judged) -> Rank {
        head.rank(self.highest(|vouch| self.is_proven(judged, vouch)))
    }

    fn is_proven(&self, judged: &Judged, vouch: &Vouch) -> bool {
        let base = &judged.base;
        match vouch.epoch.checked_sub(base.epoch) {
            None => self.is_on_ours(vouch),
            Some(0) => self.is_on_ours(vouch) && vouch.state == base.state,
            Some(after) => {
                let at = usize::try_from(after - 1).ok().and_then(|at| judged.entries.get(at));
                at.is_some_and(|entry| vouch.names(&entry.r, &entry.state))
            }
        }
    }

    /// Its author has claimed a vouch for a head that does not lie on it.
    pub(super) fn note_claim(
        &mut self,
        step: &Step<'_>,
        from: PeerId,
        heads: [&Head; 2],
        proven: Rank,
    ) {
        if heads.iter().any(|head| self.claimed_in(step, &from, head).vouch > proven.vouch) {
            heads.iter().for_each(|head| self.put_aside(from, head.state, Time(u64::MAX)));
            self.note_in_vain(step, from);
        }
    }
}

fn can_lie_on(head: &Head, vouch: &Vouch) -> bool {
    (head.epoch == vouch.epoch && head.state == vouch.state) || head.epoch > vouch.epoch
}

/// Taking vouches, and passing them on.
impl State {
    /// A vouch has come, from a peer or with the manifest. What is none costs whoever brought it; one that does not fit those before may
    /// be the organiser's mistake.
    pub(super) fn on_vouch(&mut self, step: &mut Step<'_>, vouch: &Vouch, from: Option<PeerId>) {
        let newest = self.vouch();
        match (self.vouches.take(vouch), from) {
            (Ok(true), _) => {}
            (Err(VouchError::Extends { .. }), _) | (Ok(false), _) | (Err(_), None) => {
                return;
            }
            (Err(_), Some(from)) => {
                let fault = Fault::Certificate(CertificateFault::UnsignedVouch);
                return step.put(Output::Fault(from, fault));
            }
        }
        // A person has decided: what was left alone, or for a person to decide, is looked at anew.
        self.aside.heads.clear();
        self.told.held.clear();
        if vouch.number < newest {
            return;
        }
        self.vouches.passed.since = step.now;
        self.vouches.passed.is_due = from.is_none();
        let Vouch { number, epoch, .. } = *vouch;
        step.put(Output::Vouch(Arc::new(vouch.clone())));
        step.put(Output::Event(Event::Vouched { number, epoch }));
        self.wait_for_vouched(step);
    }

    /// While we wait for the vouched lineage, no other one begins here.
    pub(super) fn wait_for_vouched(&self, step: &mut Step<'_>) {
        if self.awaits_vouched() {
            step.lead(Lead::Behind(true));
        }
    }

    /// Gossips the newest vouch once; later tells it to whoever does not have it, and the one that we lie on to
    /// whoever lies on none that high.
    pub(super) fn pass_vouches(&mut self, step: &mut Step<'_>) {
        let recent = |at: Time| step.now < at + VOUCH_GAP;
        self.vouches.passed.told.retain(|_, at| recent(*at));
        let Some(newest) = self.vouches.newest().cloned() else { return };
        let passed = &mut self.vouches.passed;
        if passed.is_due {
            if !passed.gossiped.is_some_and(recent) {
                (passed.is_due, passed.gossiped, passed.since) = (false, Some(step.now), step.now);
                step.put(Output::Gossip(self.seal(Message::Vouch(newest))));
            }
            return;
        }
        if step.now < passed.since + step.roll.heartbeat * VOUCH_HEARTBEATS {
            return;
        }
        let ours = self.vouched();
        let is_newest = ours == newest.number;
        for (peer, seen) in step.roll.live(step.now) {
            let lacks = match seen.beat.vouch < newest.number {
                true => Some(newest.clone()),
                false if seen.beat.vouched < ours && !is_newest => self.vouches.get(ours).cloned(),
                false => None,
            };
            let told = &mut self.vouches.passed.told;
            let Some(vouch) = lacks.filter(|_| !told.contains_key(peer)) else { continue };
            told.insert(*peer, step.now);
            step.put(Output::Send(*peer, self.seal(Message::Vouch(vouch))));
        }
    }

    fn seal(&self, message: Message) -> Arc<Verified<Message>> {
        Arc::new(wire::seal(&self.law.key, &self.law.run, message))
    }
}
