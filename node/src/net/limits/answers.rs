//! How many answers are in memory at once.
//!
//! An answer has up to [`ANSWER_BYTES_MAX`](crate::net::interface::ANSWER_BYTES_MAX) bytes, and stays in memory until the peer has
//! read it or [`TIMEOUT`](crate::net::fetch::TIMEOUT) has passed. Nobody need read it, and keys cost nothing. So all
//! strangers together have a fixed number of answers, the peers of one network a part of that, and members a number of
//! their own that strangers cannot take.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr},
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The answers that may be in memory, for all connections of a node.
#[derive(Debug)]
pub(crate) struct Answers {
    members: Arc<Semaphore>,
    strangers: Arc<Semaphore>,
    /// The share of each network that has an answer, or waits for one.
    networks: Mutex<HashMap<IpAddr, Arc<Semaphore>>>,
}

/// What a peer that asks is to this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asker {
    /// A member of the run, as the driver has reported it.
    Member,
    /// Anybody else, from the network where one is limited (`crowding::network`).
    Stranger(Option<IpAddr>),
}

impl Asker {
    /// All strangers behind relays count as one network, since a relay hides where they are.
    pub(crate) const RELAYED: Self = Self::Stranger(Some(IpAddr::V4(Ipv4Addr::UNSPECIFIED)));
}

/// The memory of one answer, which is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    _all: OwnedSemaphorePermit,
    _share: Option<OwnedSemaphorePermit>,
}

impl Default for Answers {
    fn default() -> Self {
        let [members, strangers] =
            [MEMBERS_MAX, STRANGERS_MAX].map(|most| Arc::new(Semaphore::new(most)));
        Self { members, strangers, networks: Mutex::default() }
    }
}

impl Answers {
    /// Waits until there is memory for one more answer; the caller bounds that wait. Never `None`, since the
    /// semaphores are not closed.
    ///
    /// # Cancel safety
    /// Cancel safe: whoever waits has taken nothing yet but a part of its network's share, which it gives back.
    pub(crate) async fn turn(&self, asker: Asker) -> Option<Turn> {
        let (all, share) = match asker {
            Asker::Member => (&self.members, None),
            Asker::Stranger(network) => (&self.strangers, network.map(|ip| self.share(ip))),
        };
        let share = match share {
            Some(share) => Some(share.acquire_owned().await.ok()?),
            None => None,
        };
        Some(Turn { _all: Arc::clone(all).acquire_owned().await.ok()?, _share: share })
    }

    /// The share of a network. Shares that nobody uses are forgotten.
    fn share(&self, network: IpAddr) -> Arc<Semaphore> {
        let mut networks = self.networks.lock().unwrap_or_else(PoisonError::into_inner);
        networks.retain(|_, share| Arc::strong_count(share) > 1);
        Arc::clone(networks.entry(network).or_insert_with(|| Arc::new(Semaphore::new(NETWORK_MAX))))
    }
}

/// With 1 MiB each: as much as all other memory of a node that trains a small model, and an answer for each member of
/// the largest roster.
const MEMBERS_MAX: usize = 256;

/// Half of that. At 1 MB/s sixteen newcomers wait two seconds for their turn.
const STRANGERS_MAX: usize = 128;

/// The answers to one network, so that eight networks are needed to take them all.
const NETWORK_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn strangers_who_read_nothing_take_no_turn_of_a_member_or_of_another_network() {
        let answers = Answers::default();
        let turns = |asker: Asker, most: usize| -> Vec<Turn> {
            (0..most).map_while(|_| answers.turn(asker).now_or_never().flatten()).collect()
        };
        let at = |number: u8| Asker::Stranger(Some(IpAddr::from([203, 0, 113, number])));
        let held = turns(at(7), STRANGERS_MAX);
        let relayed = turns(Asker::RELAYED, STRANGERS_MAX);
        assert_eq!((held.len(), relayed.len()), (NETWORK_MAX, NETWORK_MAX));
        let nearby = turns(Asker::Stranger(None), 2 * STRANGERS_MAX);
        assert_eq!(nearby.len(), STRANGERS_MAX - 2 * NETWORK_MAX, "all that is left");
        assert!(turns(at(8), 1).is_empty());
        assert_eq!(turns(Asker::Member, 2 * MEMBERS_MAX).len(), MEMBERS_MAX);
        drop(held);
        assert_eq!(turns(at(8), STRANGERS_MAX).len(), NETWORK_MAX);
        let shares = || answers.networks.lock().unwrap().len();
        drop(relayed);
        assert_eq!((turns(at(9), 1).len(), shares()), (1, 1), "idle networks are forgotten");
    }
}
