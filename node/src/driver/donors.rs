//! The peers that may serve what is being fetched. A download sees them through a channel, since more may be named
//! while it runs.
//!
//! One state at most is fetched at a time, and each update at most once, so one channel for the
//! state and one for each update are enough.

use std::collections::BTreeMap;

use intellect_protocol::base::id::{Digest, PeerId};
use tokio::sync::watch;

/// The peers that may serve the state, and each update, that is being fetched.
#[derive(Debug, Default)]
pub(super) struct Donors {
    /// Those of the state, in the order in which they are asked.
    state: watch::Sender<Vec<PeerId>>,
    /// Those of each update; without a receiver its download has ended.
    updates: BTreeMap<Digest, watch::Sender<Vec<PeerId>>>,
}

impl Donors {
    /// The donors of the state, from these on.
    pub(super) fn of_state(&self, peers: Vec<PeerId>) -> watch::Receiver<Vec<PeerId>> {
        self.state.send_replace(peers);
        self.state.subscribe()
    }

    /// Names all donors of the state that are known by now.
    pub(super) fn name_of_state(&self, peers: Vec<PeerId>) {
        self.state.send_replace(peers);
    }

    /// The donors of an update, from these on.
    pub(super) fn of_update(
        &mut self,
        update: Digest,
        peers: Vec<PeerId>,
    ) -> watch::Receiver<Vec<PeerId>> {
        self.updates.retain(|_, donors| !donors.is_closed());
        let (donors, seen) = watch::channel(peers);
        self.updates.insert(update, donors);
        seen
    }

    /// Names all donors of an update that are known by now, if it is being fetched.
    pub(super) fn name_of_update(&self, update: &Digest, peers: Vec<PeerId>) {
        if let Some(donors) = self.updates.get(update) {
            donors.send_replace(peers);
        }
    }
}
