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
    pub(super) guests: BackOff,
    pub(super) voters: BTreeMap<PeerId, BackOff>,
}

/// For how long a peer is not waited for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BackOff {
    /// Epochs that are left until it is waited for again.
    out: u32,
    /// Waits without effect, one after the other.
    vain: u32,
}

/// The first attempt skips a peer in at most 2 to this power epochs in a row.
const VAIN_MAX: u32 = 4;

impl BackOff {
    /// Whether the first attempt of this epoch does not wait.
    pub(super) fn is_out(&self) -> bool {
        self.out > 0
    }

    /// Counts an epoch in which some awaited peer `came`, and some awaited peer `missed` it.
    pub(super) fn count_epoch(&mut self, came: bool, missed: bool) {
        if self.out > 0 {
            self.out -= 1;
        } else if missed {
            self.out = 1 << self.vain;
            self.vain = (self.vain + 1).min(VAIN_MAX);
        } else if came {
            self.vain = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g5_a_wait_in_vain_is_not_repeated_for_twice_as_long() {
        let mut guests = BackOff::default();
        let mut waits = Vec::new();
        for epoch in 0..40 {
            if !guests.is_out() {
                waits.push(epoch);
            }
            guests.count_epoch(false, true);
        }
        assert_eq!(waits, [0, 2, 5, 10, 19, 36]);
        let mut guests = BackOff::default();
        (0..9).for_each(|_| guests.count_epoch(true, false));
        assert!(!guests.is_out());
    }
}
