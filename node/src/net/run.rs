//! The run that this node is in: its topics, its provider record, and when to search for peers.
//!
//! Peers of the run publish a provider record under BLAKE3("intellect-node 1 find" ‖ RunId). This
//! node searches for it every second while the run forms, and every half minute later.

use std::{sync::Arc, time::Duration};

use intellect_bootstrap::manifest;
use intellect_protocol::base::id::RunId;
use libp2p::{
    gossipsub::{IdentTopic, TopicHash},
    kad::RecordKey,
};
use tokio::time::Instant;

use super::interface::Topic;

/// The run, as far as finding its peers goes.
pub(super) struct Run {
    /// The hash of its manifest, which its topics and its key are made of.
    pub(super) id: RunId,
    /// The key of its provider records.
    pub(super) key: RecordKey,
    /// The signed manifest, served to every peer that asks. `None` where the peers of the run are
    /// only looked for: then nothing is announced and nothing served.
    manifest: Option<manifest::File>,
    /// When it was joined, by which the searches get rarer.
    joined: Instant,
    /// When the next search is due.
    find_at: Instant,
    /// When the next announcement is due; `None` where one was made, which Kademlia then renews.
    provide_at: Option<Instant>,
    /// The peers that are looked for while fewer are connected.
    pub(super) most: usize,
}

/// What the names of all topics begin with. The number is the protocol's.
pub(super) const TOPIC_PREFIX: &str = "/intellect/1/";

impl Run {
    /// A run that this node joins. The first announcement and the first search are due at once.
    pub(super) fn new(id: RunId, manifest: manifest::File, now: Instant) -> Self {
        Self {
            id,
            key: record_key(id),
            manifest: Some(manifest),
            joined: now,
            find_at: now,
            provide_at: Some(now),
            most: usize::MAX,
        }
    }

    /// A run whose peers this node looks for without joining.
    pub(super) fn sought(id: RunId, most: usize, now: Instant) -> Self {
        Self { provide_at: None, manifest: None, most, ..Self::new(id, Arc::default(), now) }
    }

    /// The id and manifest that this node serves, if it has joined.
    pub(super) fn offered(&self) -> Option<(RunId, manifest::File)> {
        Some((self.id, self.manifest.clone()?))
    }

    /// The gossip topic of one kind of message in this run.
    pub(super) fn topic(&self, topic: Topic) -> IdentTopic {
        let name = match topic {
            Topic::Beat => "beat",
            Topic::Ctl => "ctl",
        };
        IdentTopic::new(format!("{TOPIC_PREFIX}{}/{name}", self.id.hex()))
    }

    /// The topic that makes its subscribers members.
    pub(super) fn beat(&self) -> TopicHash {
        self.topic(Topic::Beat).hash()
    }

    /// Whether an announcement is due; it then counts as made.
    pub(super) fn take_announcement(&mut self, now: Instant) -> bool {
        self.provide_at.take_if(|at| *at <= now).is_some()
    }

    /// Whether a search is due, often at first, then seldom; it then counts as made.
    pub(super) fn take_search(&mut self, now: Instant) -> bool {
        let due = self.find_at <= now;
        if due {
            let young = now.saturating_duration_since(self.joined) < FIND_YOUNG;
            self.find_at = now + if young { FIND_OFTEN } else { FIND_SELDOM };
        }
        due
    }

    /// Announces this node again soon: its address has changed, or a restarted entry point knows no
    /// peers.
    pub(super) fn announce_soon(&mut self, now: Instant) {
        if self.manifest.is_some() {
            self.provide_at = Some(now + PROVIDE_DELAY);
        }
        self.find_at = self.find_at.min(now + PROVIDE_DELAY);
    }
}

/// The key of a run's provider records. Every node must compute the same one to be found.
pub(super) fn record_key(run: RunId) -> RecordKey {
    let mut key = b"intellect-node 1 find".to_vec();
    key.extend_from_slice(run.as_bytes());
    RecordKey::new(blake3::hash(&key).as_bytes())
}

/// A run forms in the first seconds; a peer that starts later searches for us as often. So a pair
/// that misses each other at first meets within seconds, and an old run costs two searches a
/// minute.
const FIND_YOUNG: Duration = Duration::from_secs(20);
const FIND_OFTEN: Duration = Duration::from_secs(1);
const FIND_SELDOM: Duration = Duration::from_secs(30);
/// After a new connection identify fills the routing table, which takes a round trip.
const PROVIDE_DELAY: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_are_looked_for_often_at_first_and_each_search_is_made_once() {
        let start = Instant::now();
        let mut run = Run::new(RunId([0xab; 32]), Vec::new().into(), start);
        assert_eq!(run.beat().as_str(), format!("/intellect/1/{}/beat", "ab".repeat(32)));
        assert!(run.take_announcement(start) && !run.take_announcement(start + FIND_YOUNG));
        assert!(run.take_search(start) && !run.take_search(start));
        assert!(run.take_search(start + FIND_OFTEN));
        let later = start + FIND_YOUNG;
        assert!(run.take_search(later) && !run.take_search(later + FIND_OFTEN));
        run.announce_soon(later);
        assert!(!run.take_announcement(later) && !run.take_search(later));
        let soon = later + PROVIDE_DELAY;
        assert!(run.take_announcement(soon) && run.take_search(soon));
    }
}
