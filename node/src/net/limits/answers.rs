//! How many answers are in memory at once.
//!
//! An answer has up to [`ANSWER_BYTES_MAX`](crate::net::interface::ANSWER_BYTES_MAX) bytes, and stays in memory until the
//! peer has read it or [`TIMEOUT`](crate::net::fetch::TIMEOUT) has passed. Nobody need read it, and keys cost nothing. So
//! members and strangers have a number of answers each, and in it one key and the keys of one network have a share.
//! Answers to questions have numbers of their own, since a question is asked while a download goes on.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr},
    sync::{Arc, Mutex, PoisonError},
};

use intellect_protocol::base::id::PeerId as Peer;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The answers that may be in memory, for all connections of a node.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    /// What each holder may still have. Only holders that have an answer, or wait for one, have an entry.
    open: Mutex<HashMap<(Kind, Holder), Arc<Semaphore>>>,
}

/// What is asked for. The two kinds do not wait for each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// A question about a lineage, or what the node shows.
    Question,
    /// A part of an update, a chunk, a piece or a file.
    Bulk,
}

/// The peer that asks, and what it is to this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asker {
    /// A member of the run, as the driver has reported it.
    Member(Peer),
    /// Anybody else, from a network where these are limited (`crowding::site`).
    Stranger(Peer, Option<IpAddr>),
}

/// What has a number of answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Holder {
    Members,
    Strangers,
    Network(IpAddr),
    Key(Peer),
}

/// All strangers behind relays count as one network, since a relay hides where they are.
pub(crate) const RELAYED: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

impl Answers {
    /// Waits until there is memory for one more answer, which is free again when the permits are dropped; the caller
    /// bounds that wait. Never `None`, since no semaphore is closed.
    ///
    /// # Cancel safety
    /// Cancel safe: what was taken of a share is given back.
    pub(crate) async fn turn(&self, asker: Asker, kind: Kind) -> Option<Vec<OwnedSemaphorePermit>> {
        // The smallest share first, so that whoever waits for it keeps nothing from others.
        let (key, network, all) = match asker {
            Asker::Member(key) => (key, None, Holder::Members),
            Asker::Stranger(key, network) => (key, network, Holder::Strangers),
        };
        let shares = [Some(Holder::Key(key)), network.map(Holder::Network), Some(all)];
        let mut permits = Vec::with_capacity(shares.len());
        for holder in shares.into_iter().flatten() {
            permits.push(self.share(kind, holder).acquire_owned().await.ok()?);
        }
        Some(permits)
    }

    fn share(&self, kind: Kind, holder: Holder) -> Arc<Semaphore> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, share| Arc::strong_count(share) > 1);
        let most = match holder {
            Holder::Members => 2 * STRANGERS_MAX,
            Holder::Strangers => STRANGERS_MAX,
            Holder::Network(_) => STRANGERS_MAX / 4,
            Holder::Key(_) => KEY_MAX,
        };
        Arc::clone(open.entry((kind, holder)).or_insert_with(|| Arc::new(Semaphore::new(most))))
    }
}

/// With 1 MiB each 128 MiB of a kind, and as much again twice for members: less than a home machine has to spare. Four
/// networks are needed to take all of them.
const STRANGERS_MAX: usize = 128;

/// As many parts as a download asks one donor for at a time.
const KEY_MAX: usize = 4;

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    fn key(number: u8) -> Peer {
        Peer([number; 32])
    }

    #[test]
    fn who_reads_nothing_takes_no_turn_of_others() {
        let answers = Answers::default();
        let turn = |asker| answers.turn(asker, Kind::Bulk).now_or_never().flatten();
        let at = |network: u8| Some(IpAddr::from([203, 0, 113, network]));
        let fill = |network: Option<IpAddr>, keys: std::ops::Range<u8>| -> Vec<_> {
            let all = keys.flat_map(|number| [Asker::Stranger(key(number), network); KEY_MAX + 1]);
            all.filter_map(turn).collect()
        };
        assert_eq!(fill(at(7), 0..1).len(), KEY_MAX, "one key");
        let network = fill(at(7), 0..100);
        assert_eq!(network.len(), STRANGERS_MAX / 4, "the keys of one network");
        assert_eq!(fill(Some(RELAYED), 100..110).len(), STRANGERS_MAX / 4, "and behind relays");
        let nearby = fill(None, 110..200);
        assert_eq!(nearby.len(), STRANGERS_MAX - network.len(), "all that is left");
        let stranger = Asker::Stranger(key(201), at(8));
        assert!(turn(stranger).is_none());
        assert!(answers.turn(stranger, Kind::Question).now_or_never().flatten().is_some());
        assert!(turn(Asker::Member(key(202))).is_some());
        drop(nearby);
        assert!(turn(stranger).is_some());
        drop(network);
        assert!(turn(stranger).is_some());
        assert_eq!(answers.open.lock().unwrap().len(), 3, "idle shares are forgotten");
    }
}
