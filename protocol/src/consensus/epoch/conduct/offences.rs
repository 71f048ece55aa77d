//! The offences of peers in past epochs (G13), as far as we saw them ourselves.
//!
//! A peer with offences in several of the last epochs gets no ring position from us for a while,
//! which doubles each time. No rule of agreement rests on this: a peer without a position carries
//! what it learnt, and votes.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::id::PeerId;

/// What is remembered of past epochs.
#[derive(Clone, Debug, Default)]
pub(super) struct Offences(BTreeMap<PeerId, Past>);

/// What is left of the past epochs of one peer.
#[derive(Clone, Copy, Debug, Default)]
struct Past {
    /// The last eight epochs in which it could have a position, the newest one lowest; a set bit is
    /// an offence.
    epochs: u8,
    /// How often it was excluded; each time is twice as long as the one before.
    exclusions: u32,
    /// Epochs for which it is still excluded.
    left: u64,
}

/// How many of the last eight epochs must have an offence to exclude a peer.
const NEEDED: u32 = 3;

/// A peer is excluded for at most 2 to this power epochs.
const EXCLUSIONS_MAX: u32 = 6;

/// Peers that are remembered: as many as a view has. A full table forgets the peer with the fewest
/// offences.
const PEERS_MAX: usize = 1_024;

impl Offences {
    /// Counts an epoch in which the peers in `guilty` committed an offence, and those in `took_part`
    /// could have.
    pub(super) fn count_epoch(&mut self, guilty: &BTreeSet<PeerId>, took_part: &BTreeSet<PeerId>) {
        for past in self.0.values_mut() {
            past.left = past.left.saturating_sub(1);
        }
        for peer in took_part.difference(guilty) {
            if let Some(past) = self.0.get_mut(peer) {
                past.epochs <<= 1;
                if past.epochs == 0 {
                    past.exclusions = past.exclusions.saturating_sub(1);
                }
            }
        }
        for peer in guilty {
            self.count_offence(*peer);
        }
        self.0.retain(|_, past| past.epochs > 0 || past.exclusions > 0 || past.left > 0);
    }

    /// Counts an offence in the epoch that ends. From [`NEEDED`] of them on the peer is excluded,
    /// each time for twice as long; one bit less stays, so that the next offence excludes it again.
    fn count_offence(&mut self, peer: PeerId) {
        if self.0.len() >= PEERS_MAX && !self.0.contains_key(&peer) {
            let key = |(_, past): &(&PeerId, &Past)| (past.exclusions, past.epochs.count_ones());
            let least = self.0.iter().min_by_key(key).map(|(least, _)| *least);
            least.and_then(|least| self.0.remove(&least));
        }
        let past = self.0.entry(peer).or_default();
        past.epochs = past.epochs << 1 | 1;
        if past.epochs.count_ones() >= NEEDED {
            past.left = 1 << past.exclusions.min(EXCLUSIONS_MAX);
            past.exclusions = (past.exclusions + 1).min(EXCLUSIONS_MAX);
            // One more offence excludes it again.
            past.epochs = (1 << (NEEDED - 1)) - 1;
        }
    }

    /// Whether it gets no position from us now.
    pub(super) fn is_excluded(&self, peer: &PeerId) -> bool {
        self.0.get(peer).is_some_and(|past| past.left > 0)
    }

    /// Its offences, weighed: the recent epochs with one, and its earlier exclusions.
    pub(super) fn count(&self, peer: &PeerId) -> u32 {
        let count = |past: &Past| past.epochs.count_ones() + NEEDED * past.exclusions;
        self.0.get(peer).map_or(0, count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHO: PeerId = PeerId([1; 32]);

    fn epochs(offences: &mut Offences, guilty: bool, count: usize) {
        let who = BTreeSet::from([WHO]);
        let guilty = if guilty { who.clone() } else { BTreeSet::new() };
        (0..count).for_each(|_| offences.count_epoch(&guilty, &who));
    }

    fn out(offences: &mut Offences) -> usize {
        let mut count = 0;
        while offences.is_excluded(&WHO) {
            count += 1;
            offences.count_epoch(&BTreeSet::new(), &BTreeSet::new());
        }
        count
    }

    #[test]
    fn g13_three_of_eight_epochs_exclude_a_peer_and_each_time_twice_as_long() {
        let mut offences = Offences::default();
        epochs(&mut offences, true, 2);
        epochs(&mut offences, false, 5);
        assert!(!offences.is_excluded(&WHO));
        epochs(&mut offences, true, 1);
        assert_eq!(out(&mut offences), 1);
        for length in [2, 4, 8, 16, 32, 64, 64] {
            epochs(&mut offences, true, 1);
            assert_eq!(out(&mut offences), length);
        }
        epochs(&mut offences, false, 14);
        assert_eq!(offences.count(&WHO), 0, "good epochs count down");
    }
}
