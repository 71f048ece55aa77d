//! What the swarm gossips: which topics it has joined, to whom it speaks, and what it passes on.

use std::collections::HashSet;

use libp2p::{
    PeerId,
    gossipsub::{MessageAcceptance, TopicHash},
};
use tokio::time::Instant;

use super::SwarmTasks;
use crate::net::behaviour::{HUSHED, topic_score};
use crate::net::interface::{GossipToken, Topic, Verdict};
use crate::net::run::Run;

impl SwarmTasks {
    /// Subscribes to the gossip of a run. Returns the peers that are known to be subscribed to its
    /// heartbeats.
    pub(in crate::net) fn subscribe(&mut self, run: &Run) -> Vec<PeerId> {
        let gossip = &mut self.swarm.behaviour_mut().gossip.inner;
        for topic in [Topic::Beat, Topic::Ctl].map(|topic| run.topic(topic)) {
            self.joined.add(topic.hash());
            // The filter lets the topics of runs pass, and the scores are set once.
            let _ = gossip.subscribe(&topic);
            let _ = gossip.set_topic_params(topic, topic_score());
        }
        let beat = run.beat();
        let listeners = gossip.all_peers().filter(|(_, topics)| topics.contains(&&beat));
        listeners.map(|(peer, _)| *peer).collect()
    }

    /// Publishes a message on a topic at once; it counts against the rate.
    pub(in crate::net) fn publish(&mut self, topic: TopicHash, bytes: Vec<u8>) {
        let gossip = &mut self.swarm.behaviour_mut().gossip.inner;
        let hears = |(peer, topics): &(&PeerId, Vec<&TopicHash>)| {
            topics.contains(&&topic) && !self.hushed.contains(*peer)
        };
        let listeners = gossip.all_peers().filter(hears).count();
        self.shared.limiter.note(listeners.saturating_mul(bytes.len()), Instant::now());
        // No subscriber yet, a duplicate, full queues: all ordinary, and the protocol repeats.
        if let Err(error) = gossip.publish(topic, bytes) {
            tracing::debug!(%error, "not gossiped");
        }
    }

    /// Replaces the set of peers that gossip skips. Messages queued for a peer that reads nothing would be
    /// stale once it does, and gossipsub would warn about them.
    pub(in crate::net) fn hush(&mut self, peers: HashSet<PeerId>) {
        let gossip = &mut self.swarm.behaviour_mut().gossip.inner;
        for peer in peers.symmetric_difference(&self.hushed) {
            gossip.set_application_score(peer, if peers.contains(peer) { HUSHED } else { 0.0 });
        }
        self.hushed = peers;
    }

    /// Passes a verdict on a gossiped message to gossipsub. A message that is passed on counts against the
    /// part of the rate that is reserved for that.
    pub(in crate::net) fn judge(&mut self, token: &GossipToken, verdict: Verdict) {
        let gossip = &mut self.swarm.behaviour_mut().gossip.inner;
        let acceptance = match verdict {
            Verdict::Accept => {
                let heirs = gossip.mesh_peers(&token.topic).count();
                let (bytes, now) = (heirs.saturating_mul(token.bytes), Instant::now());
                if self.shared.limiter.passes_on(bytes, now) {
                    self.shared.limiter.note(bytes, now);
                    MessageAcceptance::Accept
                } else {
                    MessageAcceptance::Ignore
                }
            }
            Verdict::Ignore => MessageAcceptance::Ignore,
            Verdict::Reject => MessageAcceptance::Reject,
        };
        gossip.report_message_validation_result(&token.id, &token.source, acceptance);
    }
}
