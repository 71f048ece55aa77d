//! What a peer knows of who may take part, beside its lineage: tickets that were shown, and decrees, those that follow
//! on its ledger and the last ones that are in it (T5, T8).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::interface::Credentials;
use crate::admit::{DECREES_MAX, Denied};
use crate::id::{Digest, PeerId};
use crate::ledger::{CHAIN_KEPT, Ledger};
use crate::lineage::Law;
use crate::message::{Decree, Ticket};
use crate::time::Time;

/// What is known of who may take part.
#[derive(Clone, Debug)]
pub(super) struct Admission {
    /// Before the open epoch (T1).
    pub(super) ledger: Arc<Ledger>,
    /// With the decrees that are due: who will be in after it, but for tickets.
    pub(super) due: Arc<Ledger>,
    pub(super) decrees: Decrees,
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
    pub(super) fn new(now: Time, ledger: Arc<Ledger>, credentials: Credentials) -> Self {
        let Credentials { ticket, decrees, unix } = credentials;
        Self {
            due: Arc::clone(&ledger),
            ledger,
            decrees: Decrees::of(decrees),
            ticket,
            shown: BTreeMap::new(),
            told: BTreeMap::new(),
            clock: (unix, now),
        }
    }

    /// Unix seconds now.
    pub(super) fn unix(&self, now: Time) -> u64 {
        let (unix, at) = self.clock;
        unix.saturating_add(now.since(at).as_secs())
    }
}

/// Decrees by number, and of one number by digest: the smaller one goes first.
#[derive(Clone, Debug)]
pub(super) struct Decrees(BTreeMap<(u64, Digest), Arc<Decree>>);

/// Decrees that are known ahead of the ledger, and how many of one number: two show that the authorities
/// disagree.
const AHEAD_MAX: u64 = 64;
const RIVALS_MAX: usize = 2;

impl Decrees {
    pub(super) fn of(decrees: Vec<Decree>) -> Self {
        let kept = decrees.into_iter().map(|decree| ((decree.number, decree.digest()), decree));
        Self(kept.map(|(name, decree)| (name, Arc::new(decree))).collect())
    }

    /// The decrees that a roster after `ledger` carries: the next in number, at most four (T5).
    pub(super) fn after(
        &self,
        ledger: &Ledger,
        law: &Law,
        members: &BTreeSet<PeerId>,
    ) -> Vec<Arc<Decree>> {
        let mut all = self.chain(ledger, law, members, u64::MAX).0;
        all.truncate(DECREES_MAX);
        all
    }

    /// The decrees after `ledger` below a number, and the ledger with them.
    fn chain(
        &self,
        ledger: &Ledger,
        law: &Law,
        members: &BTreeSet<PeerId>,
        below: u64,
    ) -> (Vec<Arc<Decree>>, Option<Ledger>) {
        let (last, _) = ledger.last();
        let (mut chain, mut with) = (Vec::new(), None::<Ledger>);
        for number in last.saturating_add(1)..below {
            let before = with.as_ref().unwrap_or(ledger);
            let good =
                |decree: &&Arc<Decree>| before.check_decree(&law.key, &law.run, decree).is_ok();
            let Some(next) = self.numbered(number).find(good).cloned() else { break };
            let mut ledger = with.unwrap_or_else(|| ledger.clone());
            ledger.take(0, members, &next);
            with = Some(ledger);
            chain.push(next);
        }
        (chain, with)
    }

    fn numbered(&self, number: u64) -> impl Iterator<Item = &Arc<Decree>> {
        let (first, last) = ((number, Digest::ZERO), (number, Digest([0xff; 32])));
        self.0.range(first..=last).map(|(_, decree)| decree)
    }

    /// Those of one number that are known.
    pub(super) fn rivals(&self, number: u64) -> Vec<Arc<Decree>> {
        self.numbered(number).cloned().collect()
    }

    /// Keeps a decree that is new and follows on `ledger` and those that are known. Returns whether it is.
    pub(super) fn learn(
        &mut self,
        ledger: &Ledger,
        law: &Law,
        members: &BTreeSet<PeerId>,
        decree: &Decree,
    ) -> bool {
        let (last, _) = ledger.last();
        let name = (decree.number, decree.digest());
        let ahead = decree.number.saturating_sub(last);
        let room = self.numbered(decree.number).count() < RIVALS_MAX;
        if !(1..=AHEAD_MAX).contains(&ahead) || self.0.contains_key(&name) || !room {
            return false;
        }
        let (chain, with) = self.chain(ledger, law, members, decree.number);
        let reaches = chain.len() as u64 + 1 == ahead;
        let before = with.as_ref().unwrap_or(ledger);
        let good = reaches && before.check_decree(&law.key, &law.run, decree).is_ok();
        if good {
            self.0.insert(name, Arc::new(decree.clone()));
        }
        good
    }

    /// Those that are in `after` and not in `before`.
    pub(super) fn in_force(&self, before: &Ledger, after: &Ledger) -> Vec<Arc<Decree>> {
        let new = |(number, digest): &(u64, Digest)| {
            after.decreed(*number) == Some(*digest) && before.decreed(*number) != Some(*digest)
        };
        self.0.iter().filter(|(name, _)| new(name)).map(|(_, decree)| Arc::clone(decree)).collect()
    }

    /// Drops those that can no more come into force after `ledger`, and those that have long been; returns the
    /// former (T8).
    pub(super) fn drop_void(&mut self, ledger: &Ledger) -> Vec<Arc<Decree>> {
        let (last, _) = ledger.last();
        self.0.retain(|(number, _), _| number.saturating_add(CHAIN_KEPT as u64) > last);
        let mut void = Vec::new();
        let mut known = BTreeSet::new();
        for ((number, digest), decree) in &self.0 {
            let follows = match number.checked_sub(last) {
                // In the ledger, or in its place stands another one.
                None | Some(0) => ledger.decreed(*number) == Some(*digest),
                Some(1) => decree.before == ledger.last().1,
                Some(_) => known.contains(&(number.saturating_sub(1), decree.before)),
            };
            if follows {
                known.insert((*number, *digest));
            } else {
                void.push(Arc::clone(decree));
            }
        }
        self.0.retain(|name, _| known.contains(name));
        void
    }
}
