//! The peers for which the first attempt does not wait (G5).
//!
//! A peer that is alive and never Ready costs each epoch its whole patience. It may be a newcomer,
//! whose key is free, or a voter whose machine is slow. So after each wait without effect it is not
//! waited for in twice as many epochs, and in so many that the wait is a small part of their time.

use std::collections::BTreeMap;

use crate::base::id::PeerId;
use crate::consensus::epoch::slot::Slot;

/// For how many epochs the first attempt does not wait for a peer.
#[derive(Clone, Debug, Default)]
pub(super) struct Waits {
    /// One count for all newcomers together, since keys are free.
    newcomers: BackOff,
    voters: BTreeMap<PeerId, BackOff>,
}

impl Waits {
    /// Counts the peers for which an epoch could have waited, each with whether it became Ready.
    /// Voters count only if we were Ready ourselves. A wait is followed by at least `pause` epochs.
    pub(super) fn count_epoch(
        &mut self,
        slot: &Slot,
        could_be_awaited: &[(PeerId, bool)],
        pause: u32,
    ) {
        let (voters, newcomers): (Vec<_>, Vec<_>) =
            could_be_awaited.iter().partition(|(peer, _)| slot.series.names_voter(peer));
        let came = |which| newcomers.iter().any(|(_, came)| *came == which);
        self.newcomers.count_epoch(came(true), came(false), pause);
        if slot.frozen.is_none() {
            return;
        }
        self.voters.retain(|peer, _| voters.iter().any(|(other, _)| other == peer));
        for (peer, came) in voters {
            self.voters.entry(peer).or_default().count_epoch(came, !came, pause);
        }
    }

    /// Whether the first attempt of this epoch does not wait for a peer.
    pub(super) fn skip(&self, peer: &PeerId, is_voter: bool) -> bool {
        let wait = if is_voter { self.voters.get(peer) } else { Some(&self.newcomers) };
        wait.is_some_and(BackOff::is_skipped)
    }
}

/// For how long a peer is not waited for.
#[derive(Clone, Copy, Debug, Default)]
struct BackOff {
    /// Epochs that are left until it is waited for again.
    epochs_left: u32,
    /// Waits without effect, one after the other.
    missed_waits: u32,
}

/// The waits without effect double the epochs between them up to 2 to this power.
const MISSED_WAITS_MAX: u32 = 4;

impl BackOff {
    /// Whether the first attempt of this epoch does not wait.
    fn is_skipped(&self) -> bool {
        self.epochs_left > 0
    }

    /// Counts an epoch in which some awaited peer `came`, and some awaited peer `missed` it.
    fn count_epoch(&mut self, came: bool, missed: bool, pause: u32) {
        if self.epochs_left > 0 {
            self.epochs_left -= 1;
        } else if missed {
            self.epochs_left = pause.max(1 << self.missed_waits);
            self.missed_waits = (self.missed_waits + 1).min(MISSED_WAITS_MAX);
        } else if came {
            self.missed_waits = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g5_each_missed_wait_is_followed_by_twice_as_many_epochs_without_one() {
        for (pause, expected) in [(1, [0, 2, 5, 10, 19, 36]), (6, [0, 7, 14, 21, 30, 47])] {
            let (mut newcomers, mut waits) = (BackOff::default(), Vec::new());
            for epoch in 0..50 {
                if !newcomers.is_skipped() {
                    waits.push(epoch);
                }
                newcomers.count_epoch(false, true, pause);
            }
            assert_eq!(waits, expected);
        }
        let mut newcomers = BackOff::default();
        (0..9).for_each(|_| newcomers.count_epoch(true, false, 6));
        assert!(!newcomers.is_skipped());
    }
}
