//! What happens next, in the order of (time, number).

use std::sync::Arc;

use crate::rings::Notice;
use crate::toy::Anchor;
use intellect_protocol::blocks::Blocks;
use intellect_protocol::epoch::Apply;
use intellect_protocol::id::{Digest, PeerId};
use intellect_protocol::message::{Ask, Finished, Head};
use intellect_protocol::peer::Input;

/// What happens to a process.
#[derive(Clone, Debug)]
pub(super) enum Happening {
    Input(Input),
    Tick,
    Measure,
    Trained { epoch: u64 },
    Step { serial: u64, apply: Arc<Apply> },
    TryChunk { ring: Digest, finished: Finished, holders: Vec<PeerId> },
    TryUpdate { update: Digest, donors: Vec<PeerId> },
    TryStep { serial: u64, apply: Arc<Apply>, donors: Vec<PeerId> },
    TryLoad { serial: u64, head: Head, r: Digest, donors: Vec<PeerId>, spent: Blocks },
    Load { serial: u64, head: Head, anchor: Arc<Anchor>, spent: Blocks },
    Asked { donor: PeerId, ask: Ask },
    Ringing { roster: Digest, notice: Notice },
}

/// A happening in the queue: which process of which host.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) at_ms: u64,
    pub(super) number: u64,
    pub(super) host: usize,
    pub(super) incarnation: u64,
    pub(super) happening: Happening,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at_ms, self.number).cmp(&(other.at_ms, other.number))
    }
}
