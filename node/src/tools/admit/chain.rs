//! The decrees of a run, as far as anybody hands them out: which one is the last, and who signs the next.

use std::collections::{BTreeMap, BTreeSet};

use intellect_protocol::{
    admit::Authorities,
    id::{Digest, RunId},
    message::{Clause, Decree},
    sign::Keypair,
};

/// A chain of decrees, each signed by those who were authorities then.
#[derive(Debug)]
pub(super) struct Chain {
    /// Number and digest of the last one; zeros before the first.
    pub(super) last: (u64, Digest),
    /// Who signs the next one.
    pub(super) authorities: Authorities,
    /// From the first one that is known on.
    pub(super) decrees: Vec<Decree>,
}

impl Chain {
    /// What `known` makes. Anybody may have handed them out: what is not signed, or leads nowhere, is left out. Of
    /// two of one number the one that another follows on counts, else the one with the smaller digest, as
    /// with proposers (T5). `key` names the signature scheme.
    pub(super) fn of(
        known: impl IntoIterator<Item = Decree>,
        key: &Keypair,
        run: &RunId,
        first: Authorities,
    ) -> Self {
        let mut chain = Self { last: (0, Digest::ZERO), authorities: first, decrees: Vec::new() };
        let by_name = known.into_iter().map(|decree| ((decree.number, decree.digest()), decree));
        let by_name: BTreeMap<_, _> = by_name.collect();
        let named: BTreeSet<Digest> = by_name.values().map(|decree| decree.before).collect();
        let numbers: BTreeSet<u64> = by_name.keys().map(|(number, _)| *number).collect();
        for number in numbers {
            let candidates =
                by_name.range((number, Digest::ZERO)..).take_while(|(k, _)| k.0 == number);
            let good = candidates.filter(|(_, decree)| {
                // Of a long chain nobody keeps the beginning.
                (chain.last.0 + 1 < number || chain.last == (number - 1, decree.before))
                    && decree.verify(key, run, &chain.authorities).is_ok()
            });
            let Some((name, decree)) =
                good.max_by_key(|(name, _)| (named.contains(&name.1), std::cmp::Reverse(name.1)))
            else {
                continue;
            };
            chain.last = *name;
            for clause in &decree.clauses {
                if let Clause::Authorities { keys, threshold } = clause {
                    let threshold = usize::from(*threshold);
                    chain.authorities = Authorities { keys: keys.clone(), threshold };
                }
            }
            chain.decrees.push(decree.clone());
        }
        chain
    }
}

#[cfg(test)]
mod tests {
    use intellect_protocol::id::PeerId;

    use super::*;

    const RUN: RunId = RunId([7; 32]);

    fn key(seed: u8) -> Keypair {
        Keypair::from_seed(&[seed; 32])
    }

    fn first() -> Authorities {
        Authorities { keys: vec![key(1).peer()], threshold: 1 }
    }

    fn decree(last: (u64, Digest), about: u8, by: u8) -> Decree {
        let clauses = vec![Clause::RevokePeer(PeerId([about; 32]))];
        Decree::after(RUN, last, clauses).signed(&key(by))
    }

    fn name(decree: &Decree) -> (u64, Digest) {
        (decree.number, decree.digest())
    }

    fn last(known: &[&Decree]) -> (u64, Digest) {
        Chain::of(known.iter().copied().cloned(), &key(9), &RUN, first()).last
    }

    #[test]
    fn the_last_decree_is_the_one_that_the_others_lead_to() {
        let none = (0, Digest::ZERO);
        assert_eq!(last(&[]), none);
        let one = decree(none, 1, 1);
        let (two, beside) = (decree(name(&one), 2, 1), decree(name(&one), 3, 1));
        let three = decree(name(&beside), 4, 1);
        let other_three = decree(name(&two), 4, 1);
        assert_eq!(last(&[&one]), name(&one));
        let smaller = if two.digest() < beside.digest() { &two } else { &beside };
        assert_eq!(last(&[&beside, &two, &one]), name(smaller));
        // The other one is void: the chain went on without it.
        assert_eq!(last(&[&three, &two, &one, &beside]), name(&three));
        assert_eq!(last(&[&other_three, &two, &one, &beside]), name(&other_three));
        // The beginning is gone.
        assert_eq!(last(&[&three, &beside]), name(&three));
        // Forged, and out of nothing.
        let forged = decree(name(&one), 5, 2);
        assert_eq!(last(&[&one, &forged]), name(&one));
        let stray = decree((1, Digest([5; 32])), 5, 1);
        assert_eq!(last(&[&one, &stray]), name(&one));
    }

    #[test]
    fn from_the_decree_on_that_names_them_others_sign() {
        let keys = vec![key(2).peer(), key(3).peer()];
        let clauses = vec![Clause::Authorities { keys: keys.clone(), threshold: 1 }];
        let one = Decree::after(RUN, (0, Digest::ZERO), clauses).signed(&key(1));
        let two = decree(name(&one), 2, 3);
        let old = decree(name(&one), 3, 1);
        let chain = Chain::of([two.clone(), one.clone(), old], &key(9), &RUN, first());
        assert_eq!((chain.last, chain.authorities.keys), (name(&two), keys));
        assert_eq!(chain.decrees, [one, two]);
    }
}
