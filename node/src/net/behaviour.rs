//! The protocols on every connection of a node: discovery, gossip, and our own streams.
//!
//! Gossip is anonymous: our envelope carries the author and its signature, and a second signature by
//! libp2p would only double the cost. The id of a message is BLAKE3(topic, bytes), so equal messages of
//! two peers are gossiped once. Nothing is forwarded before the driver's verdict.

use std::{collections::HashSet, net::IpAddr, time::Duration};

use intellect_bootstrap::{
    address::Scope,
    discovery::{Discovery, Role},
    manifest, streams,
};
use libp2p::{
    StreamProtocol,
    gossipsub::{
        self, CallbackSubscriptionFilter, MaxCountSubscriptionFilter, MessageAuthenticity,
        MessageId, PeerScoreParams, PeerScoreThresholds, TopicHash, TopicScoreParams,
        ValidationMode,
    },
    identity::Keypair,
    relay,
    swarm::NetworkBehaviour,
};

use super::{
    access::handshake::ADMIT, gossip_filter::GossipFilter, joined::Joined, run::TOPIC_PREFIX,
};

/// Control messages, one stream per peer and direction.
pub(super) const CONTROL: StreamProtocol = StreamProtocol::new("/intellect/ctl/1");
/// The frames of a ring, one stream from each member to its successor.
pub(super) const RING: StreamProtocol = StreamProtocol::new("/intellect/ring/1");
/// Requests and answers, one stream for each.
pub(super) const FETCH: StreamProtocol = StreamProtocol::new("/intellect/fetch/2");

/// All behaviours of a node in one swarm.
#[derive(NetworkBehaviour)]
pub(super) struct Node {
    pub(super) discovery: Discovery,
    pub(super) gossip: GossipFilter<Gossip>,
    pub(super) streams: streams::Behaviour,
}

impl Node {
    /// The protocols that a node speaks. `scope`: how far away its entry points are, which decides
    /// whether UPnP is tried. Gossip is read of the `joined` topics.
    pub(super) fn new(
        key: &Keypair,
        relay: relay::client::Behaviour,
        scope: Scope,
        joined: Joined,
    ) -> Result<Self, &'static str> {
        Ok(Self {
            discovery: Discovery::new(key, relay, Role::Node { scope }),
            gossip: GossipFilter::new(gossip(joined)?),
            streams: streams::Behaviour::new(&[
                CONTROL,
                RING,
                FETCH,
                ADMIT,
                manifest::PROTOCOL,
                manifest::NOTICES,
            ]),
        })
    }
}

/// Gossipsub that stores a few subscriptions of a peer, and only of names that a run can have. Without that a stranger
/// could subscribe to other names as long as it is connected.
pub(super) type Gossip = gossipsub::Behaviour<
    Joined,
    MaxCountSubscriptionFilter<CallbackSubscriptionFilter<fn(&TopicHash) -> bool>>,
>;

/// Whether a run can have a topic of this name.
fn is_topic(topic: &TopicHash) -> bool {
    let name = topic.as_str();
    name.len() <= TOPIC_BYTES_MAX && name.starts_with(TOPIC_PREFIX)
}

/// Gossipsub with the settings of a run. A mesh of 6 neighbours passes messages on; our
/// own messages go to all subscribers (`flood_publish`), since a vote should not wait for a mesh to
/// form.
fn gossip(joined: Joined) -> Result<Gossip, &'static str> {
    let config = gossipsub::ConfigBuilder::default()
        .validation_mode(ValidationMode::Anonymous)
        .validate_messages()
        .message_id_fn(message_id)
        .max_transmit_size(TRANSMIT_BYTES_MAX)
        .heartbeat_interval(Duration::from_millis(700))
        .heartbeat_initial_delay(Duration::from_millis(200))
        .mesh_n_low(4)
        .mesh_n(6)
        .mesh_n_high(12)
        .flood_publish(true)
        .prune_backoff(PRUNE_BACKOFF)
        .connection_handler_queue_len(QUEUE_MESSAGES)
        .build()
        .map_err(|_| "the gossip settings contradict one another")?;
    let filter = MaxCountSubscriptionFilter {
        filter: CallbackSubscriptionFilter(is_topic as fn(&TopicHash) -> bool),
        max_subscribed_topics: TOPICS_MAX,
        max_subscriptions_per_request: 2 * TOPICS_MAX,
    };
    let privacy = MessageAuthenticity::Anonymous;
    let mut gossip =
        Gossip::new_with_subscription_filter_and_transform(privacy, config, filter, joined)?;
    let thresholds = PeerScoreThresholds {
        gossip_threshold: -50.0,
        publish_threshold: PUBLISH,
        graylist_threshold: GRAYLIST,
        ..PeerScoreThresholds::default()
    };
    gossip
        .with_peer_score(score(), thresholds)
        .map_err(|_| "the gossip scores contradict one another")?;
    Ok(gossip)
}

/// The id of a message. The length of the topic comes first, so that no two pairs of topic and
/// bytes hash alike.
fn message_id(message: &gossipsub::Message) -> MessageId {
    let mut hasher = blake3::Hasher::new();
    let topic = message.topic.as_str().as_bytes();
    hasher.update(&u64::try_from(topic.len()).unwrap_or(u64::MAX).to_le_bytes());
    hasher.update(topic).update(&message.data);
    MessageId(hasher.finalize().as_bytes().to_vec())
}

/// In a small run the terms that count deliveries penalise honest peers, and a home link that is busy with
/// its ring is slow by nature; so only invalid messages and broken gossip rules lower a score.
fn score() -> PeerScoreParams {
    let loopback = [IpAddr::from([127, 0, 0, 1]), IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1_u16])];
    PeerScoreParams {
        ip_colocation_factor_threshold: COLOCATION_MAX,
        ip_colocation_factor_whitelist: HashSet::from(loopback),
        slow_peer_weight: 0.0,
        ..PeerScoreParams::default()
    }
}

/// The score of one topic, see [`score`].
pub(super) fn topic_score() -> TopicScoreParams {
    TopicScoreParams {
        time_in_mesh_weight: 0.0,
        first_message_deliveries_weight: 0.0,
        mesh_message_deliveries_weight: 0.0,
        mesh_failure_penalty_weight: 0.0,
        invalid_message_deliveries_weight: INVALID_WEIGHT,
        ..TopicScoreParams::default()
    }
}

/// Gossipsub squares the count of invalid messages and halves the sum. At the eighth, which costs a peer its
/// connection (`FAULTS_MAX`), the score is −192, and 110 less where the peer is hushed. Below [`GRAYLIST`]
/// gossipsub would ignore the peer, so that it would be neither reported nor dropped.
const INVALID_WEIGHT: f64 = -6.0;
const GRAYLIST: f64 = -320.0;

/// Below this score nothing is sent to a peer.
const PUBLISH: f64 = -100.0;

/// The application score of a silent peer. Gossipsub weighs it tenfold, which is below [`PUBLISH`], but still
/// reads the peer, whose first message ends it.
pub(super) const HUSHED: f64 = -11.0;

/// A hushed peer leaves the mesh, and may join it again after this time. Our own messages do not wait for
/// that.
const PRUNE_BACKOFF: Duration = Duration::from_secs(10);

/// A whole RPC, which may hold one of our largest messages and its gossip (docs/FORMATS.md).
const TRANSMIT_BYTES_MAX: usize = 128 * 1024;

/// Messages that may wait for one slow peer; further ones are dropped, as gossip may be.
const QUEUE_MESSAGES: usize = 256;

/// Members that may share one public address, as a computer room behind one router.
const COLOCATION_MAX: f64 = 64.0;

/// Topics of one peer: two for each run. A peer is in one run, and may pass on to a few others.
const TOPICS_MAX: usize = 16;

/// The prefix, a run's 64 digits and a word take less.
const TOPIC_BYTES_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use intellect_protocol::base::id::RunId;
    use libp2p::gossipsub::IdentTopic;

    use super::*;

    #[test]
    fn the_settings_are_consistent() {
        gossip(Joined::default()).map(|_| ()).unwrap();
        topic_score().validate().unwrap();
    }

    #[test]
    fn only_names_of_runs_are_subscribed_to() {
        let mut gossip = gossip(Joined::default()).unwrap();
        let mut takes = |name: &str| gossip.subscribe(&IdentTopic::new(name)).is_ok();
        let run = format!("/intellect/1/{}/", RunId([7; 32]).hex());
        assert!(takes(&format!("{run}beat")) && takes(&format!("{run}ctl")));
        assert!(!takes("elsewhere") && !takes(&format!("{run}{}", "x".repeat(TOPIC_BYTES_MAX))));
    }

    #[test]
    fn a_message_is_known_by_topic_and_bytes() {
        let topics = ["beat", "ctl"].map(IdentTopic::new);
        let id = |topic: &IdentTopic, data: &[u8], sequence_number| {
            message_id(&gossipsub::Message {
                source: None,
                data: data.into(),
                sequence_number,
                topic: topic.hash(),
            })
        };
        let one = id(&topics[0], b"x", None);
        assert_eq!(one, id(&topics[0], b"x", Some(7)));
        assert_ne!(one, id(&topics[1], b"x", None));
        assert_ne!(one, id(&topics[0], b"y", None));
    }
}
