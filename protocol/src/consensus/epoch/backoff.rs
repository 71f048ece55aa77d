//! The peers for which the first attempt does not wait (G5).
//!
//! A peer that is alive and never Ready costs each epoch its whole patience. It may be a newcomer,
//! whose key is free, or a voter whose machine is slow. So after each wait without effect it is not
//! waited for in twice as many epochs.

use std::collections::BTreeMap;

use crate::base::id::PeerId;

/// For how many epochs the first attempt does not wait for a peer.
#[derive(Clone, Debug, Default)]
pub(super) struct Waits {
    /// One count for all newcomers together, since keys are free.
    pub(super) newcomers: BackOff,
    pub(super) voters: BTreeMap<PeerId, BackOff>,
}

/// For how long a peer is not waited for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BackOff {
    /// Epochs that are left until it is waited for again.
    epochs_left: u32,
    /// Waits without effect, one after the other.
    missed_waits: u32,
}

/// The first attempt skips a peer in at most 2 to this power epochs in a row.
const MISSED_WAITS_MAX: u32 = 4;

impl BackOff {
    /// Whether the first attempt of this epoch does not wait.
    pub(super) fn is_skipped(&self) -> bool {
        self.epochs_left > 0
    }

    /// Counts an epoch in which some awaited peer `came`, and some awaited peer `missed` it.
    pub(super) fn count_epoch(&mut self, came: bool, missed: bool) {
        if self.epochs_left > 0 {
            self.epochs_left -= 1;
        } else if missed {
            self.epochs_left = 1 << self.missed_waits;
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
        let mut newcomers = BackOff::default();
        let mut waits = Vec::new();
        for epoch in 0..40 {
            if !newcomers.is_skipped() {
                waits.push(epoch);
            }
            newcomers.count_epoch(false, true);
        }
        assert_eq!(waits, [0, 2, 5, 10, 19, 36]);
        let mut newcomers = BackOff::default();
        (0..9).for_each(|_| newcomers.count_epoch(true, false));
        assert!(!newcomers.is_skipped());
    }
}
