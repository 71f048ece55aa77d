//! What the simulated world asks of the recorded history.

use intellect_protocol::base::id::{Digest, PeerId};
use intellect_protocol::message::{Head, Notice, Rank, Voter};

use super::Check;

impl Check {
    /// Tokens of a lineage that was given up, and that are lost with it (R27).
    pub(crate) fn forgone(&self) -> u64 {
        self.forgone
    }

    /// The number of Regroups that opened, without foundings.
    pub(crate) fn regroup_count(&self) -> u64 {
        self.votes.opened_count()
    }

    /// The rank of a head, if the organiser has signed these notices.
    pub(crate) fn rank(&self, notices: &[Notice], head: &Head) -> Rank {
        self.lineage.rank(notices, head)
    }

    /// Whether two heads lie on one lineage.
    pub(crate) fn one_lineage(&self, a: &Head, b: &Head) -> bool {
        self.lineage.descends(&a.state, &b.state) || self.lineage.descends(&b.state, &a.state)
    }

    /// Whether some peer has committed this state.
    pub(crate) fn knows(&self, state: &Digest) -> bool {
        self.lineage.knows(state)
    }

    /// The voters of the epoch after `parent`, by the receipt before it.
    pub(crate) fn voters_after(&self, parent: &Digest) -> Vec<Voter> {
        self.lineage.voters(parent)
    }

    /// The number of series that decided two values, in which every common voter lies.
    pub(crate) fn split_count(&self) -> u64 {
        self.votes.split_count()
    }

    /// Whether a peer was revoked up to a state.
    pub(crate) fn has_revoked(&self, state: &Digest, peer: &PeerId) -> bool {
        self.lineage.has_revoked(state, peer)
    }
}
