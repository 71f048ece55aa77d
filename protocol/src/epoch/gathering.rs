//! The Regroups of the open series, as far as they are known, and when it is our turn to propose one.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::id::{Digest, PeerId};
use crate::message::{Join, Message, Regroup};
use crate::sign::{Signature, Verified};
use crate::time::Time;

/// The Regroups of the current series, as far as they are known.
#[derive(Clone, Debug, Default)]
pub(super) struct Gathering {
    pub(super) known: BTreeMap<Digest, Known>,
    pub(super) number_seen: u32,
    /// The peers that would take part beside us, in order, and when it is our turn to propose that.
    pub(super) candidates: Vec<PeerId>,
    pub(super) turn: Option<Turn>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) number: u32,
    pub(super) due: Time,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    pub(super) regroup: Option<Arc<Regroup>>,
    pub(super) signed: Option<Arc<Verified<Message>>>,
    pub(super) joins: BTreeMap<PeerId, (Join, Signature)>,
}

/// The most Regroups that are remembered of one series, and the most of them that are known only
/// from a Join.
const KNOWN_MAX: usize = 128;
const UNKNOWN_MAX: usize = 32;

impl Gathering {
    /// What is known of a Regroup. Where there is no room, the one of the lowest number gives way that
    /// does not bind `me`.
    pub(super) fn known(&mut self, me: &PeerId, digest: Digest) -> &mut Known {
        let known = &mut self.known;
        if known.len() >= KNOWN_MAX && !known.contains_key(&digest) {
            let number = |known: &Known| known.regroup.as_ref().map_or(0, |r| r.number);
            let free = known.iter().filter(|(_, known)| !known.joins.contains_key(me));
            let lowest = free.min_by_key(|(_, known)| number(known)).map(|(digest, _)| *digest);
            lowest.and_then(|lowest| known.remove(&lowest));
        }
        known.entry(digest).or_default()
    }

    /// As [`Self::known`], if the Regroup is known or there is room for one that is known only from
    /// a Join.
    pub(super) fn joined(&mut self, me: &PeerId, digest: Digest) -> Option<&mut Known> {
        let unknown = self.known.values().filter(|known| known.regroup.is_none()).count();
        let room = self.known.contains_key(&digest) || unknown < UNKNOWN_MAX;
        room.then(|| self.known(me, digest))
    }
}
