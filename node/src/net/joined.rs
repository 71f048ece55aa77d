//! Refuses gossip of topics that this node has not joined.
//!
//! Gossipsub passes such a message to nobody, but remembers its id for a minute and its sender for two, some hundred
//! bytes for each message of ten. No limit of ours would see it, since it leads to no event.

use std::{
    collections::HashSet,
    io,
    sync::{Arc, PoisonError, RwLock},
};

use libp2p::gossipsub::{DataTransform, IdentityTransform, Message, RawMessage, TopicHash};

/// The topics that this node has joined, shared with gossipsub.
#[derive(Clone, Debug, Default)]
pub(super) struct Joined(Arc<RwLock<HashSet<TopicHash>>>);

impl Joined {
    /// From now on messages of this topic are read.
    pub(super) fn add(&self, topic: TopicHash) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(topic);
    }
}

impl DataTransform for Joined {
    /// An error makes gossipsub drop the message before it remembers anything.
    fn inbound_transform(&self, message: RawMessage) -> Result<Message, io::Error> {
        if !self.0.read().unwrap_or_else(PoisonError::into_inner).contains(&message.topic) {
            return Err(io::Error::other("a topic that was not joined"));
        }
        IdentityTransform.inbound_transform(message)
    }

    fn outbound_transform(&self, topic: &TopicHash, data: Vec<u8>) -> Result<Vec<u8>, io::Error> {
        IdentityTransform.outbound_transform(topic, data)
    }
}

#[cfg(test)]
mod tests {
    use libp2p::gossipsub::IdentTopic;

    use super::*;

    #[test]
    fn only_what_is_joined_is_read() {
        let [ours, other] = ["ours", "other"].map(|name| IdentTopic::new(name).hash());
        let message = |topic: &TopicHash| RawMessage {
            source: None,
            data: vec![7],
            sequence_number: None,
            topic: topic.clone(),
            signature: None,
            key: None,
            validated: false,
        };
        let joined = Joined::default();
        let gossip = joined.clone();
        assert!(gossip.inbound_transform(message(&ours)).is_err());
        joined.add(ours.clone());
        assert_eq!(gossip.inbound_transform(message(&ours)).unwrap().data, [7]);
        assert!(gossip.inbound_transform(message(&other)).is_err());
    }
}
