//! Who is Ready, with which weight, and how long that took (R31, R36).

use std::sync::Arc;
use std::time::Duration;

use crate::fault::Fault;
use crate::id::PeerId;
use crate::lineage::Me;
use crate::message::{Message, Ready};
use crate::output::Output;
use crate::sign::Verified;
use crate::step::Step;

use super::State;
use super::slot::Frozen;

impl State {
    pub(super) fn on_trained(&mut self, step: &mut Step<'_>, tokens: u64, norm: f32) {
        let weight = tokens.min(self.weight_max);
        self.slot.frozen = Some(Frozen { weight, norm, at: step.now });
        self.say_ready(step);
    }

    pub(super) fn say_ready(&mut self, step: &mut Step<'_>) {
        if let (Some(frozen), false) = (self.slot.frozen, self.leaving.is_some()) {
            step.put(Output::Gossip(self.ready_message(frozen)));
        }
    }

    pub(super) fn ready_message(&self, frozen: Frozen) -> Arc<Verified<Message>> {
        let Me { incarnation, .. } = self.me;
        let Frozen { weight, norm, .. } = frozen;
        self.seal(Message::Ready(Ready { series: self.series(), incarnation, weight, norm }))
    }

    pub(super) fn on_ready(&mut self, step: &mut Step<'_>, from: PeerId, ready: &Ready) {
        if let Err(why) = self.note_ready(step, from, ready.incarnation, ready.weight) {
            step.put(Output::Fault(from, Fault::Ready(why)));
        }
    }

    /// Heartbeats repeat what a lost Ready would have said.
    pub(super) fn learn_ready(&mut self, step: &Step<'_>, peer: PeerId) {
        let Some(seen) = step.roll.peers.get(&peer) else { return };
        let beat = &seen.beat;
        if beat.ready > 0 && beat.series.is_beside(&self.series()) {
            // A contradiction is a fault only where its author signed it as a Ready.
            let _ = self.note_ready(step, peer, beat.incarnation, beat.ready);
        }
    }

    fn note_ready(
        &mut self,
        step: &Step<'_>,
        peer: PeerId,
        incarnation: u64,
        weight: u64,
    ) -> Result<(), &'static str> {
        if !self.can_weigh(weight) {
            return Ok(());
        }
        match self.slot.ready.get(&peer) {
            Some((known, frozen)) if *known == incarnation => {
                if *frozen == weight {
                    Ok(())
                } else {
                    Err("changed a frozen weight")
                }
            }
            Some((known, _)) if *known > incarnation => Ok(()),
            _ => {
                if self.slot.ready.insert(peer, (incarnation, weight)).is_none() {
                    self.slot.ready_after.push(step.now.since(self.slot.began));
                }
                Ok(())
            }
        }
    }

    /// Whether an epoch can hold that weight.
    pub(super) fn can_weigh(&self, weight: u64) -> bool {
        (1..=self.weight_max).contains(&weight)
    }

    /// Bounds the weights of this epoch by the median of the last receipt: where an epoch is so
    /// many seconds long, nothing else tells what a peer can do in it.
    pub(super) fn limit_weight(&mut self, median: Option<u64>) {
        if let (Some(medians), Some(median)) = (self.config.weight_medians, median) {
            self.weight_max = medians.saturating_mul(median).min(self.config.weight_max);
        }
    }
}

/// The middle one of some lengths of time.
pub(super) fn median(lengths: &mut [Duration]) -> Option<Duration> {
    lengths.sort_unstable();
    lengths.get(lengths.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use crate::epoch::Config;
    use crate::id::{Digest, LogId, RunId};
    use crate::lineage::Law;
    use crate::message::Head;
    use crate::sign::Keypair;
    use crate::time::Time;

    use super::*;

    fn at_genesis(weight_medians: Option<u64>) -> State {
        let (run, me) = (RunId([1; 32]), PeerId([2; 32]));
        let key = Keypair::simulated(me);
        let law = Law { run, key, peers_min: 1, majority_only: false, elements: 1 };
        let me = Me { peer: me, log: LogId([3; 16]), incarnation: 1 };
        let config = Config {
            ready_grace: Duration::from_secs(30),
            weight_max: 1_000,
            weight_medians,
            update_bytes: 1,
            without: None,
        };
        let genesis = Head { epoch: 0, tokens: 0, state: Digest::ZERO };
        State::new(Time::ZERO, law, me, config, genesis, Vec::new())
    }

    #[test]
    fn r31_where_time_is_the_budget_the_last_receipt_bounds_a_weight() {
        let mut state = at_genesis(Some(8));
        assert!(state.can_weigh(1_000) && !state.can_weigh(1_001) && !state.can_weigh(0));
        state.limit_weight(Some(10));
        assert!(state.can_weigh(80) && !state.can_weigh(81));
        state.limit_weight(Some(u64::MAX));
        assert!(state.can_weigh(1_000) && !state.can_weigh(1_001));
        let mut counted = at_genesis(None);
        counted.limit_weight(Some(10));
        assert!(counted.can_weigh(1_000));
    }
}
