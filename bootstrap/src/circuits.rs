//! Counts the circuits that peers have opened through the relay, and leaves some for other networks.
//!
//! The relay itself limits the circuits of one key and of all keys together. Keys cost nothing, so sixteen of them at
//! one address could hold every circuit for an hour, and no peer behind a router could be reached meanwhile.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    net::IpAddr,
};

use libp2p::PeerId;

/// The open circuits. Bounded by the relay's own limits.
#[derive(Debug, Default)]
pub(crate) struct Circuits {
    /// The circuits of each peer to each other one.
    open: HashMap<PeerId, BTreeMap<PeerId, usize>>,
    /// The network of each of these peers, where there is a limit for it.
    networks: HashMap<PeerId, IpAddr>,
}

impl Circuits {
    /// Counts a circuit from a peer to another one. Where the share of the peer's `network`
    /// ([`crate::crowding::network`]) is used up, returns who has most of it: the caller disconnects that one, which ends
    /// its circuits.
    pub(crate) fn opened(
        &mut self,
        from: PeerId,
        to: PeerId,
        network: Option<IpAddr>,
    ) -> Option<PeerId> {
        *self.open.entry(from).or_default().entry(to).or_default() += 1;
        let network = network?;
        self.networks.insert(from, network);
        let count = |peer: &PeerId| self.open.get(peer).map_or(0, |to| to.values().sum::<usize>());
        let near = || self.networks.iter().filter(|(_, other)| **other == network);
        let all: usize = near().map(|(peer, _)| count(peer)).sum();
        let most = near().map(|(peer, _)| *peer).min_by_key(|peer| (Reverse(count(peer)), *peer));
        if all > PER_NETWORK_MAX { most } else { None }
    }

    /// Counts the end of a circuit. The relay reports some ends twice; what is not counted is passed over.
    pub(crate) fn closed(&mut self, from: &PeerId, to: &PeerId) {
        let Some(circuits) = self.open.get_mut(from) else { return };
        if let Some(count) = circuits.get_mut(to) {
            *count -= 1;
        }
        circuits.retain(|_, count| *count > 0);
        if circuits.is_empty() {
            self.open.remove(from);
            self.networks.remove(from);
        }
    }
}

/// A quarter of all circuits of the relay, and enough for a house: its peers need one for each peer elsewhere that
/// cannot be reached otherwise, until a hole is punched.
const PER_NETWORK_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greediest_key_of_a_network_leaves_circuits_for_others() {
        let (mut circuits, crowd) = (Circuits::default(), Some(IpAddr::from([203, 0, 113, 7])));
        let [greedy, modest, other] = [(); 3].map(|()| PeerId::random());
        let open = |circuits: &mut Circuits, from, network| {
            circuits.opened(from, PeerId::random(), network)
        };
        assert_eq!(open(&mut circuits, modest, crowd), None);
        let all = 1..PER_NETWORK_MAX;
        assert!(all.clone().all(|_| open(&mut circuits, greedy, crowd).is_none()));
        assert_eq!(open(&mut circuits, modest, crowd), Some(greedy), "one too many");
        let elsewhere = Some(IpAddr::from([203, 0, 113, 8]));
        assert_eq!(open(&mut circuits, other, elsewhere), None);
        assert!(all.clone().all(|_| open(&mut circuits, PeerId::random(), None).is_none()));
        // All of them end, and some ends are reported twice.
        for to in circuits.open[&greedy].clone().keys() {
            circuits.closed(&greedy, to);
            circuits.closed(&greedy, to);
        }
        assert!(!circuits.open.contains_key(&greedy) && circuits.networks.len() == 2);
        assert_eq!(open(&mut circuits, greedy, crowd), None);
    }
}
