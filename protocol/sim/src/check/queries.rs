//! What the simulated world asks of the history.

use intellect_protocol::base::id::Digest;
use intellect_protocol::message::{Head, Notice, Rank, Voter};

use super::Check;

impl Check {
    /// Tokens that were trained on a lineage given up and are lost with it (R27).
    pub(crate) fn forgone(&self) -> u64 {
        self.forgone
    }

    /// The number of Regroups that opened, without foundings.
    pub(crate) fn regroup_count(&self) -> u64 {
        self.votes.opened_count()
    }

    /// Where a head stands, if the organiser has said so much.
    pub(crate) fn rank(&self, notices: &[Notice], head: &Head) -> Rank {
        self.lineage.rank(notices, head)
    }

    /// Whether two heads lie on one lineage.
    pub(crate) fn one_lineage(&self, a: &Head, b: &Head) -> bool {
        self.lineage.descends(&a.state, &b.state) || self.lineage.descends(&b.state, &a.state)
    }

    /// Whether somebody has committed that state.
    pub(crate) fn knows(&self, state: &Digest) -> bool {
        self.lineage.knows(state)
    }

    /// The voters that the receipt before the epoch after `parent` names.
    pub(crate) fn voters_after(&self, parent: &Digest) -> Vec<Voter> {
        self.lineage.voters(parent)
    }

    /// The number of series that decided two values, of which every common voter lies.
    pub(crate) fn split_count(&self) -> u64 {
        self.votes.split_count()
    }
}
