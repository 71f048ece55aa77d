//! What is known of those who come: who is let in, and who was named for what
//! is no fault.

use std::collections::BTreeSet;

use intellect_protocol::base::id::PeerId;

use crate::admission::Admission;

/// See the module.
#[derive(Debug)]
pub(super) struct Gate {
    /// Absent in an open run.
    pub(super) admission: Option<Admission>,
    pub(super) saving: Saving,
    incompatible: BTreeSet<PeerId>,
    refused: BTreeSet<PeerId>,
}

/// Whether notices are being written, and whether there are newer ones already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Saving {
    #[default]
    Idle,
    Under,
    Again,
}

impl Gate {
    pub(super) fn new(admission: Option<Admission>) -> Self {
        let (incompatible, refused) = (BTreeSet::new(), BTreeSet::new());
        Self { admission, saving: Saving::Idle, incompatible, refused }
    }

    /// Whether it is news that a peer speaks another version.
    pub(super) fn is_first_incompatible(&mut self, peer: PeerId) -> bool {
        is_first(&mut self.incompatible, peer)
    }

    /// Whether it is news that a peer was refused.
    pub(super) fn is_first_refused(&mut self, peer: PeerId) -> bool {
        is_first(&mut self.refused, peer)
    }
}

fn is_first(named: &mut BTreeSet<PeerId>, peer: PeerId) -> bool {
    named.len() < NAMED_MAX && named.insert(peer)
}

/// Peers that are named; more of them say nothing new.
const NAMED_MAX: usize = 256;
