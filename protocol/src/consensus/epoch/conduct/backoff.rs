//! The peers for which the first attempt does not wait (G5).
//!
//! A peer that is alive and never Ready costs each epoch its whole patience. It may be a newcomer,
//! whose key is free, or a voter whose machine is slow. So after each wait without effect it is
//! waited for half as often, and so rarely that the wait is a small part of the time.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::id::PeerId;
use crate::consensus::epoch::slot::Slot;

/// In which epochs the first attempt does not wait for a peer.
#[derive(Clone, Debug, Default)]
pub(super) struct Waits {
    /// One count for all newcomers together, since keys are free, and for the voters that were never
    /// Ready in time as voters: a newcomer becomes one for one Ready.
    newcomers: BackOff,
    voters: BTreeMap<PeerId, BackOff>,
    /// The peers that were Ready at the end of the last epoch.
    ready: BTreeSet<PeerId>,
}

impl Waits {
    /// Counts for whom an epoch has waited. From the second on, waits in vain are `apart` epochs apart.
    pub(super) fn count_epoch(&mut self, slot: &Slot, apart: u32) {
        self.ready = slot.ready.keys().copied().collect();
        let Some((came, missed)) = slot.waited.outcome() else { return };
        let epoch = slot.series.name.epoch;
        let is_voter = |peer: &PeerId| slot.series.names_voter(peer);
        self.voters.retain(|peer, _| is_voter(peer));
        let mut newcomers_missed = false;
        for peer in missed {
            match self.voters.get_mut(peer) {
                Some(voter) => voter.miss(epoch, apart),
                None => newcomers_missed = true,
            }
        }
        for peer in came.iter().filter(|peer| is_voter(peer)) {
            self.voters.entry(*peer).or_default().come(epoch);
        }
        if newcomers_missed {
            self.newcomers.miss(epoch, apart);
        } else if !came.iter().all(is_voter) {
            self.newcomers.come(epoch);
        }
    }

    /// Whether the first attempt of this epoch does not wait for a peer.
    pub(super) fn skip(&self, epoch: u64, peer: &PeerId, is_voter: bool) -> bool {
        let own = if is_voter { self.voters.get(peer) } else { None };
        own.unwrap_or(&self.newcomers).skips(epoch)
    }

    /// Whether a peer was Ready at the end of the last epoch.
    pub(super) fn was_ready(&self, peer: &PeerId) -> bool {
        self.ready.contains(peer)
    }
}

/// In which epochs a peer is waited for: in those whose number is a multiple of a power of two. So
/// voters that have counted differently wait in the same epochs.
#[derive(Clone, Copy, Debug, Default)]
struct BackOff {
    /// The exponent of that power; 0 where a peer is waited for in each epoch.
    exponent: u32,
}

/// How often a wait in vain doubles the epochs from one to the next, beyond those that make the
/// waits a small part of the time.
const DOUBLINGS_MAX: u32 = 2;

impl BackOff {
    /// Whether the first attempt of an epoch does not wait.
    fn skips(self, epoch: u64) -> bool {
        epoch.trailing_zeros() < self.exponent
    }

    /// An awaited peer was Ready in time. One that comes to every other wait still costs little.
    fn come(&mut self, epoch: u64) {
        if !self.skips(epoch) {
            self.exponent = self.exponent.saturating_sub(1);
        }
    }

    /// An awaited peer was not Ready.
    fn miss(&mut self, epoch: u64, apart: u32) {
        if !self.skips(epoch) {
            let least = apart.checked_next_power_of_two().unwrap_or(1 << 31).ilog2();
            self.exponent = (self.exponent + 1).clamp(least.max(1), least + DOUBLINGS_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g5_missed_waits_come_in_ever_fewer_epochs() {
        let missed = |apart, first: u64| {
            let (mut peer, mut waits) = (BackOff::default(), Vec::new());
            for epoch in first..70 {
                if !peer.skips(epoch) {
                    waits.push(epoch);
                }
                peer.miss(epoch, apart);
            }
            waits
        };
        assert_eq!(missed(4, 1), [1, 4, 8, 16, 32, 48, 64]);
        assert_eq!(missed(6, 5), [5, 8, 16, 32, 64]);
        assert_eq!(
            missed(0, 1),
            [1, 2, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60, 64, 68]
        );
        assert_eq!(missed(u32::MAX, 1), [1]);
    }

    #[test]
    fn g5_a_peer_that_comes_is_waited_for_again() {
        let mut peer = BackOff::default();
        peer.miss(1, 6);
        let waits: Vec<u64> = (2..20)
            .filter(|epoch| {
                let waits = !peer.skips(*epoch);
                peer.come(*epoch);
                waits
            })
            .collect();
        assert_eq!(waits, [8, 12, 14, 15, 16, 17, 18, 19]);
    }
}
