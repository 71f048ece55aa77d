//! For whom the first attempt does not wait (G5).
//!
//! Whoever lives and is never Ready costs each epoch its whole patience: a newcomer, whose key is free, or a voter whose
//! machine is slow. So after a wait in vain it is not waited for, each time for twice as many epochs.

use std::collections::BTreeMap;

use crate::base::id::PeerId;

/// For whom the first attempt does not wait.
#[derive(Clone, Debug, Default)]
pub(super) struct Waits {
    /// Newcomers, all together.
    pub(super) guests: BackOff,
    /// Each voter.
    pub(super) voters: BTreeMap<PeerId, BackOff>,
}

/// For how long somebody is not waited for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BackOff {
    /// Epochs that are left.
    out: u32,
    /// Waits in vain, one after the other.
    vain: u32,
}

/// Nobody is waited for in more than 2 to this many epochs.
const VAIN_MAX: u32 = 4;

impl BackOff {
    /// Whether this epoch does not wait.
    pub(super) fn is_out(&self) -> bool {
        self.out > 0
    }

    /// An epoch is over, to which somebody `came`, and which somebody `missed`.
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
