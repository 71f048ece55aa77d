//! Counts the circuits that peers have opened through the relay, and leaves some for other networks.
//!
//! The relay itself limits the circuits of one key and of all keys together. Keys cost nothing, so sixteen of them at
//! one address could hold every circuit for an hour, and no peer behind a router could be reached meanwhile.

use std::{collections::HashMap, net::IpAddr};

use libp2p::PeerId;

/// The open circuits of each peer that has any.
#[derive(Debug, Default)]
pub(crate) struct Circuits {
    /// The network of each peer, where there is a limit for it, and its circuits. Bounded by the relay's own limits.
    open: HashMap<PeerId, (Option<IpAddr>, usize)>,
}

impl Circuits {
    /// Counts a circuit that the relay has opened for a peer. Returns whether the share of the peer's `network`
    /// ([`crate::crowding::network`]) still covers it; if not, the caller disconnects the peer, which ends its circuits.
    pub(crate) fn opened(&mut self, peer: PeerId, network: Option<IpAddr>) -> bool {
        self.open.entry(peer).or_insert((network, 0)).1 += 1;
        let near = self.open.values().filter(|(other, _)| *other == network);
        network.is_none() || near.map(|(_, count)| count).sum::<usize>() <= PER_NETWORK_MAX
    }

    /// Counts the end of a circuit.
    pub(crate) fn closed(&mut self, peer: &PeerId) {
        if let Some((_, count)) = self.open.get_mut(peer) {
            *count -= 1;
            if *count == 0 {
                self.open.remove(peer);
            }
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
    fn the_keys_of_one_network_leave_circuits_for_others() {
        let (mut circuits, crowd) = (Circuits::default(), Some(IpAddr::from([203, 0, 113, 7])));
        let keys: Vec<PeerId> = (0..PER_NETWORK_MAX).map(|_| PeerId::random()).collect();
        assert!(keys.iter().all(|key| circuits.opened(*key, crowd)));
        let late = PeerId::random();
        assert!(!circuits.opened(late, crowd), "one too many");
        assert!(circuits.opened(PeerId::random(), Some(IpAddr::from([203, 0, 113, 8]))));
        assert!((0..=PER_NETWORK_MAX).all(|_| circuits.opened(PeerId::random(), None)), "nearby");
        for key in [&late, &keys[0], &late] {
            circuits.closed(key);
        }
        assert!(circuits.opened(late, crowd), "two have ended");
    }
}
