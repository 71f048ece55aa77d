//! Who is Ready, with which weight, and how long that took (R31, R36).

use std::sync::Arc;
use std::time::Duration;

use crate::fault::{Fault, ReadyFault};
use crate::id::PeerId;
use crate::lineage::Me;
use crate::message::{Message, Ready};
use crate::output::Output;
use crate::sign::Verified;
use crate::step::Step;

use super::State;
use super::slot::{Declared, Frozen};

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
    ) -> Result<(), ReadyFault> {
        if !self.can_weigh(weight) {
            return Ok(());
        }
        match self.slot.ready.get(&peer) {
            Some(known) if known.incarnation == incarnation => {
                let same = known.weight == weight;
                if same { Ok(()) } else { Err(ReadyFault::Changed) }
            }
            Some(known) if known.incarnation > incarnation => Ok(()),
            _ => {
                self.slot.ready.insert(peer, Declared { incarnation, weight, at: step.now });
                Ok(())
            }
        }
    }

    /// Whether an epoch can hold that weight.
    pub(super) fn can_weigh(&self, weight: u64) -> bool {
        (1..=self.weight_max).contains(&weight)
    }

    /// Bounds the weights of this epoch, by the median of the last receipt (G11).
    pub(super) fn limit_weight(&mut self, median: Option<u64>) {
        self.weight_max = self.law.capacity.weight_max(median);
    }
}

/// The middle one of some lengths of time.
pub(super) fn median(lengths: &mut [Duration]) -> Option<Duration> {
    lengths.sort_unstable();
    lengths.get(lengths.len() / 2).copied()
}
