//! Who owes a word (G9): voters that say that they live, and answer neither a Query nor a roster.
//!
//! A heartbeat costs nothing, so it proves no will to take part. Who has owed a word at several deadlines
//! of one epoch, and for long enough, counts as absent for a Regroup, until it says one. Each peer keeps
//! its own account; nobody's report counts.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::base::id::PeerId;
use crate::base::time::Time;

/// What is owed in the open epoch.
#[derive(Clone, Debug, Default)]
pub(super) struct Debts(BTreeMap<PeerId, Debt>);

#[derive(Clone, Copy, Debug)]
struct Debt {
    count: u32,
    since: Time,
    /// It did answer, that something else binds it.
    bound: bool,
}

/// Deadlines at which a voter must have owed a word: one may pass by bad luck, two by a slow line.
const DEADLINES: u32 = 3;

impl Debts {
    /// A deadline passed at which this voter owed a word.
    pub(super) fn owe(&mut self, who: PeerId, now: Time) {
        let debt = self.0.entry(who).or_insert(Debt { count: 0, since: now, bound: false });
        debt.count += 1;
    }

    /// It has said what it owed, or something that costs it as much.
    pub(super) fn pay(&mut self, who: &PeerId) {
        self.0.remove(who);
    }

    /// It has answered that something else binds it: that may be true, and lasts as long as a ring.
    pub(super) fn defer(&mut self, who: &PeerId) {
        if let Some(debt) = self.0.get_mut(who) {
            debt.bound = true;
        }
    }

    /// Whether it counts as mute: for longer than `grace`, and than `ring` where it says that it is bound.
    pub(super) fn is_mute(
        &self,
        who: &PeerId,
        now: Time,
        grace: Duration,
        ring: impl FnOnce() -> Duration,
    ) -> bool {
        self.0.get(who).filter(|debt| debt.count >= DEADLINES).is_some_and(|debt| {
            let bound = if debt.bound { ring() } else { Duration::ZERO };
            now.since(debt.since) >= grace + bound
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(8);
    const RING: Duration = Duration::from_secs(60);
    const WHO: PeerId = PeerId([1; 32]);

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn g9_who_owes_thrice_and_for_the_grace_is_mute_until_it_speaks() {
        let mut debts = Debts::default();
        [0, 1, 2].into_iter().for_each(|second| debts.owe(WHO, at(second)));
        assert!(!debts.is_mute(&WHO, at(7), GRACE, || RING));
        assert!(debts.is_mute(&WHO, at(8), GRACE, || RING));
        debts.pay(&WHO);
        assert!(!debts.is_mute(&WHO, at(8), GRACE, || RING));
        [10, 30].into_iter().for_each(|second| debts.owe(WHO, at(second)));
        assert!(!debts.is_mute(&WHO, at(40), GRACE, || RING), "two deadlines may be bad luck");
    }

    #[test]
    fn g9_who_is_bound_elsewhere_is_given_as_long_as_a_ring() {
        let mut debts = Debts::default();
        [0, 1, 2].into_iter().for_each(|second| debts.owe(WHO, at(second)));
        debts.defer(&WHO);
        assert!(!debts.is_mute(&WHO, at(67), GRACE, || RING));
        assert!(debts.is_mute(&WHO, at(68), GRACE, || RING));
    }
}
