//! In which epochs this peer has been: an attestation may lead it back there (G11, R20).

use std::collections::VecDeque;

use crate::message::Series;

/// The epochs in which this peer may have declared or signed something that it does not know any more.
#[derive(Clone, Debug, Default)]
pub(super) struct Entered {
    /// It may have been in each one up to this one.
    up_to: u64,
    /// The first series of later ones, the newest at the end.
    series: VecDeque<Series>,
}

/// The most epochs that are remembered by their series.
const ENTERED_MAX: usize = 4_096;

impl Entered {
    /// The log has forgotten the votes of the epochs up to this one.
    pub(super) fn forget(&mut self, epoch: u64) {
        self.up_to = self.up_to.max(epoch);
    }

    /// Notes the epoch of `series`, and returns whether it was noted before.
    pub(super) fn note(&mut self, series: Series) -> bool {
        let first = Series { regroup: None, ..series };
        let again = first.epoch <= self.up_to || self.series.contains(&first);
        self.series.push_back(first);
        if self.series.len() > ENTERED_MAX
            && let Some(oldest) = self.series.pop_front()
        {
            self.up_to = self.up_to.max(oldest.epoch);
        }
        again
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::Digest;

    #[test]
    fn what_is_no_longer_remembered_counts_as_entered() {
        let series = |epoch| Series { epoch, parent: Digest([1; 32]), regroup: None };
        let mut entered = Entered::default();
        assert!((1..=ENTERED_MAX as u64).all(|epoch| !entered.note(series(epoch))));
        let parted = |epoch| Series { parent: Digest([2; 32]), ..series(epoch) };
        assert!(!entered.note(parted(9)) && entered.note(parted(9)), "on another lineage");
        assert!(entered.note(series(2).regrouped(Digest([3; 32]))), "whatever its Regroups");
        entered.forget(20);
        assert!(entered.note(parted(20)) && !entered.note(parted(21)));
    }
}
