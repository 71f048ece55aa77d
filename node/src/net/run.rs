//! The run that this node is in: its topics, its record in the table, and its gossip.
//!
//! A peer of the run is found by a provider record under BLAKE3("intellect-node 1 find" ‖ RunId):
//! looked for every second while the run forms, and every half minute later.

use std::time::Duration;

use intellect_bootstrap::manifest;
use intellect_protocol::id::RunId;
use libp2p::{
    gossipsub::{self, MessageAcceptance},
    kad::RecordKey,
};
use tokio::time::Instant;

use super::{
    Event, GOSSIP_BYTES_MAX, GossipToken, Topic, Verdict, Via,
    actor::Actor,
    behaviour::{Topics, topic_score},
    name,
};

/// The run that this node is in.
pub(super) struct Run {
    pub(super) id: RunId,
    pub(super) topics: Topics,
    pub(super) key: RecordKey,
    pub(super) manifest: manifest::File,
    joined: Instant,
    find_at: Instant,
    provide_at: Option<Instant>,
}

impl Actor {
    /// Once and for good: a node is in one run.
    pub(super) fn join(&mut self, run: RunId, manifest: manifest::File, now: Instant) {
        if self.run.is_some() {
            return;
        }
        let topics = Topics::new(run);
        let gossip = &mut self.swarm.behaviour_mut().gossip.inner;
        for topic in [&topics.beat, &topics.control] {
            // Both fail only where a filter or other scores are configured, which they are not.
            let _ = gossip.subscribe(topic);
            let _ = gossip.set_topic_params(topic.clone(), topic_score());
        }
        let mut key = b"intellect-node 1 find".to_vec();
        key.extend_from_slice(run.as_bytes());
        let key = RecordKey::new(blake3::hash(&key).as_bytes());
        let run = Run {
            id: run,
            topics,
            key,
            manifest,
            joined: now,
            find_at: now,
            provide_at: Some(now),
        };
        self.run = Some(run);
        self.find(now);
        self.greet_members();
    }

    /// Announces this node and looks for others: often at first, then seldom.
    pub(super) fn find(&mut self, now: Instant) {
        let Some(run) = &mut self.run else { return };
        let kademlia = &mut self.swarm.behaviour_mut().discovery.kademlia;
        if run.provide_at.is_some_and(|at| at <= now) {
            run.provide_at = None;
            if let Err(error) = kademlia.start_providing(run.key.clone()) {
                tracing::warn!(?error, "this node cannot be announced");
            }
        }
        if run.find_at <= now {
            let young = now.saturating_duration_since(run.joined) < FIND_YOUNG;
            run.find_at = now + if young { FIND_OFTEN } else { FIND_SELDOM };
            kademlia.get_providers(run.key.clone());
        }
    }

    /// Says again, soon, where this node is: it has moved, or an entry point was restarted and knows
    /// nobody.
    pub(super) fn provide_soon(&mut self, now: Instant) {
        if let Some(run) = &mut self.run {
            run.provide_at = Some(now + PROVIDE_DELAY);
            run.find_at = run.find_at.min(now + PROVIDE_DELAY);
        }
    }

    pub(super) fn publish(&mut self, topic: Topic, bytes: Vec<u8>) {
        let Some(run) = &self.run else { return };
        let topic = match topic {
            Topic::Beat => run.topics.beat.hash(),
            Topic::Ctl => run.topics.control.hash(),
        };
        // Nobody there yet, said before, queues full: all ordinary, and repeated by the protocol.
        if let Err(error) = self.swarm.behaviour_mut().gossip.inner.publish(topic, bytes) {
            tracing::debug!(%error, "not gossiped");
        }
    }

    pub(super) fn on_verdict(&mut self, token: GossipToken, verdict: Verdict) {
        let acceptance = match verdict {
            Verdict::Accept => MessageAcceptance::Accept,
            Verdict::Ignore => MessageAcceptance::Ignore,
            Verdict::Reject => MessageAcceptance::Reject,
        };
        let GossipToken { id, source } = token;
        self.swarm
            .behaviour_mut()
            .gossip
            .inner
            .report_message_validation_result(&id, &source, acceptance);
    }

    pub(super) fn on_gossip(&mut self, event: gossipsub::Event, now: Instant) {
        match event {
            gossipsub::Event::Message { propagation_source, message_id, message } => {
                let token = GossipToken { id: message_id, source: propagation_source };
                let Some(peer) = self.peers.get(&propagation_source) else { return };
                if !peer.gossip.take(now) {
                    return self.on_verdict(token, Verdict::Ignore);
                }
                let bytes = message.data.len();
                if bytes > GOSSIP_BYTES_MAX {
                    self.on_verdict(token, Verdict::Reject);
                    let why =
                        format!("gossip of {bytes} bytes, at most {GOSSIP_BYTES_MAX} are allowed");
                    return self.fault(propagation_source, why, 1);
                }
                if let Some(from) = name::from_libp2p(&propagation_source) {
                    self.emit(Event::Message {
                        from,
                        via: Via::Gossip(token),
                        bytes: message.data,
                    });
                }
            }
            gossipsub::Event::Subscribed { peer_id, topic } => {
                self.on_subscribed(peer_id, &topic, true, now);
            }
            gossipsub::Event::Unsubscribed { peer_id, topic } => {
                self.on_subscribed(peer_id, &topic, false, now);
            }
            _ => {}
        }
    }
}

/// A run is formed in the first seconds; whoever comes later looks for us as often.
const FIND_YOUNG: Duration = Duration::from_secs(20);
const FIND_OFTEN: Duration = Duration::from_secs(1);
const FIND_SELDOM: Duration = Duration::from_secs(30);
/// After a connection the table is filled by identify, which takes a round trip.
const PROVIDE_DELAY: Duration = Duration::from_millis(500);
