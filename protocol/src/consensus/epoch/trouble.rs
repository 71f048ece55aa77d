//! Who made trouble in past epochs (G13), as far as we saw it ourselves.
//!
//! Whoever did so in several of the last epochs has no place from us for a while, which doubles each
//! time. No rule of agreement rests on it: who has no place carries what it learnt, and votes.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::id::PeerId;

/// What is remembered of past epochs.
#[derive(Clone, Debug)]
pub(super) struct Trouble {
    /// Epochs with trouble, of the last eight, that cost a peer its place.
    needed: u32,
    past: BTreeMap<PeerId, Past>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Past {
    /// The last eight epochs in which it could have a place, the newest one lowest: 1 is trouble.
    epochs: u8,
    /// How often it has lost its places: the next time is twice as long.
    times: u32,
    /// Epochs without a place that are left.
    out: u64,
}

/// Of what a peer did itself, three of eight epochs cost it its place. Of the rings that it was in when they were
/// lost, six: whoever sat in the same half had only bad luck (R40).
pub(super) const OWN: u32 = 3;
pub(super) const SHARED: u32 = 6;

/// A peer is without a place for at most 2 to this many epochs.
const TIMES_MAX: u32 = 6;

/// Peers that are remembered: as many as a view has. Of more, those that did least are forgotten.
const PEERS_MAX: usize = 1_024;

impl Trouble {
    /// Nobody has made any; so many epochs `needed`, of eight, cost a peer its place.
    pub(super) fn new(needed: u32) -> Self {
        Self { needed, past: BTreeMap::new() }
    }

    /// An epoch is over in which `made` made trouble, and `took_part` had a chance to.
    pub(super) fn count_epoch(&mut self, made: &BTreeSet<PeerId>, took_part: &BTreeSet<PeerId>) {
        for past in self.past.values_mut() {
            past.out = past.out.saturating_sub(1);
        }
        for peer in took_part.difference(made) {
            if let Some(past) = self.past.get_mut(peer) {
                past.epochs <<= 1;
                if past.epochs == 0 {
                    past.times = past.times.saturating_sub(1);
                }
            }
        }
        for peer in made {
            self.count_trouble(*peer);
        }
        self.past.retain(|_, past| past.epochs > 0 || past.times > 0 || past.out > 0);
    }

    fn count_trouble(&mut self, peer: PeerId) {
        if self.past.len() >= PEERS_MAX && !self.past.contains_key(&peer) {
            let least =
                self.past.iter().min_by_key(|(_, past)| (past.times, past.epochs.count_ones()));
            least.map(|(least, _)| *least).and_then(|least| self.past.remove(&least));
        }
        let needed = self.needed;
        let past = self.past.entry(peer).or_default();
        past.epochs = past.epochs << 1 | 1;
        if past.epochs.count_ones() >= needed {
            past.out = 1 << past.times.min(TIMES_MAX);
            past.times = (past.times + 1).min(TIMES_MAX);
            // One more of the same and it is out again.
            past.epochs = (1 << (needed - 1)) - 1;
        }
    }

    /// Whether it gets no place from us now.
    pub(super) fn is_out(&self, peer: &PeerId) -> bool {
        self.past.get(peer).is_some_and(|past| past.out > 0)
    }

    /// How many of its last epochs were troubled.
    pub(super) fn count(&self, peer: &PeerId) -> u32 {
        self.past.get(peer).map_or(0, |past| past.epochs.count_ones() + self.needed * past.times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHO: PeerId = PeerId([1; 32]);

    fn epochs(trouble: &mut Trouble, made: bool, count: usize) {
        let who = BTreeSet::from([WHO]);
        let made = if made { who.clone() } else { BTreeSet::new() };
        (0..count).for_each(|_| trouble.count_epoch(&made, &who));
    }

    fn out(trouble: &mut Trouble) -> usize {
        let mut count = 0;
        while trouble.is_out(&WHO) {
            count += 1;
            trouble.count_epoch(&BTreeSet::new(), &BTreeSet::new());
        }
        count
    }

    #[test]
    fn g13_three_of_eight_epochs_cost_the_place_and_each_time_twice_as_long() {
        let mut trouble = Trouble::new(OWN);
        epochs(&mut trouble, true, 2);
        epochs(&mut trouble, false, 5);
        assert!(!trouble.is_out(&WHO));
        epochs(&mut trouble, true, 1);
        assert_eq!(out(&mut trouble), 1);
        for length in [2, 4, 8, 16, 32, 64, 64] {
            epochs(&mut trouble, true, 1);
            assert_eq!(out(&mut trouble), length);
        }
        epochs(&mut trouble, false, 14);
        assert_eq!(trouble.count(&WHO), 0, "good epochs count down");
    }
}
