//! Membership: who lives, from signed heartbeats.
//!
//! A heartbeat counts when its (incarnation, count) is above the last one seen of its author, so
//! that a replayed or reordered one revives nobody. A closed connection ages a peer, so that one
//! missing heartbeat more declares it lost; another peer's word, relayed by gossip, keeps it.
//!
//! Bounds: [`PEERS_MAX`] peers; who was silent for [`FORGET_AFTER`] is forgotten.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::event::Cause;
use crate::id::PeerId;
use crate::message::{Heartbeat, Leaving};
use crate::roll::{Roll, Seen};
use crate::time::Time;

/// Peers kept in the table: four times what a roster holds.
pub const PEERS_MAX: usize = 1024;

/// After this long in silence a peer is forgotten; guess: longer than any pause worth remembering.
pub const FORGET_AFTER: Duration = Duration::from_secs(600);

/// What the view is told.
#[derive(Debug)]
pub enum Input<'a> {
    /// Time has passed.
    Tick,
    /// A verified heartbeat.
    Heartbeat(PeerId, &'a Heartbeat),
    /// A verified farewell.
    Leaving(PeerId, &'a Leaving),
    /// The last direct connection closed.
    Unlinked(PeerId),
    /// A round trip was measured, in milliseconds.
    RoundTrip(PeerId, u32),
}

/// What the view found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// A peer came, or came back.
    Found(PeerId),
    /// A peer is gone.
    Lost(PeerId, Cause),
}

/// The membership view of one peer.
#[derive(Clone, Debug)]
pub struct State {
    me: PeerId,
    roll: Roll,
    /// Who counts as alive, as last told.
    told: BTreeSet<PeerId>,
    /// Whose connection closed since it was last found.
    closed: BTreeSet<PeerId>,
}

impl State {
    /// A view of nobody.
    #[must_use]
    pub fn new(me: PeerId, roll: Roll) -> Self {
        Self { me, roll, told: BTreeSet::new(), closed: BTreeSet::new() }
    }

    /// The table itself.
    #[must_use]
    pub fn roll(&self) -> &Roll {
        &self.roll
    }

    /// Takes one input.
    pub fn handle(&mut self, now: Time, input: Input<'_>, out: &mut Vec<Output>) {
        match input {
            Input::Tick => {}
            Input::Heartbeat(author, beat) => self.on_heartbeat(now, author, beat),
            Input::Leaving(author, leaving) => {
                if let Some(seen) = self.roll.peers.get_mut(&author) {
                    seen.left = seen.left.max(Some(leaving.incarnation));
                }
            }
            Input::Unlinked(peer) => self.on_closed(now, peer),
            Input::RoundTrip(peer, sample) => {
                if let Some(seen) = self.roll.peers.get_mut(&peer) {
                    seen.rtt_ms = smoothed(seen.rtt_ms, sample);
                }
            }
        }
        self.tell(now, out);
    }

    /// When somebody falls silent next.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        let told = self.told.iter().filter_map(|peer| self.roll.peers.get(peer));
        told.map(|seen| seen.heard + self.roll.silent_after(seen)).min()
    }

    fn on_heartbeat(&mut self, now: Time, author: PeerId, beat: &Heartbeat) {
        if author == self.me {
            return;
        }
        let peers = &mut self.roll.peers;
        if let Some(seen) = peers.get_mut(&author) {
            if (beat.incarnation, beat.count) > (seen.beat.incarnation, seen.beat.count) {
                seen.hear(beat, now);
            }
        } else if peers.len() < PEERS_MAX {
            peers.insert(author, Seen::new(beat, now));
        }
    }

    /// Ages the peer so that the next missing heartbeat declares it lost.
    fn on_closed(&mut self, now: Time, peer: PeerId) {
        let heartbeat = self.roll.heartbeat;
        let Some(seen) = self.roll.peers.get(&peer) else { return };
        let aged = now - self.roll.silent_after(seen) + heartbeat * 3 / 2;
        if let Some(seen) = self.roll.peers.get_mut(&peer) {
            seen.heard = seen.heard.min(aged);
        }
        self.closed.insert(peer);
    }

    fn tell(&mut self, now: Time, out: &mut Vec<Output>) {
        let Self { roll, told, closed, .. } = self;
        roll.peers.retain(|_, seen| now.since(seen.heard) < FORGET_AFTER);
        for peer in roll.live(now).map(|(peer, _)| *peer) {
            if told.insert(peer) {
                closed.remove(&peer);
                out.push(Output::Found(peer));
            }
        }
        told.retain(|peer| {
            let alive = roll.alive(peer, now);
            if !alive {
                let cause = match roll.peers.get(peer) {
                    Some(seen) if seen.has_left() => Cause::Left,
                    _ if closed.remove(peer) => Cause::Closed,
                    _ => Cause::Silent,
                };
                out.push(Output::Lost(*peer, cause));
            }
            alive
        });
    }
}

/// Smoothed round trip: RFC 6298's gain of 1/8.
fn smoothed(old_ms: u32, sample_ms: u32) -> u32 {
    if old_ms == 0 {
        return sample_ms.max(1);
    }
    let mean = (u64::from(old_ms) * 7 + u64::from(sample_ms)) / 8;
    u32::try_from(mean).unwrap_or(u32::MAX).max(1)
}

#[cfg(test)]
mod tests;
