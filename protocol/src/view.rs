//! Membership: which peers are alive, by their signed heartbeats.
//!
//! A heartbeat counts if its (incarnation, count) is above the last one seen of its author, so that
//! a replayed or reordered one revives nobody. A closed connection ages a peer, so that one more
//! missing heartbeat makes it lost; a heartbeat that reaches us through other peers keeps it alive.
//!
//! Bounds: [`PEERS_MAX`] peers. Anybody can make a key, so only voters and peers that one of the
//! last receipts names are remembered for [`FORGET_AFTER`] of silence; any other peer is forgotten
//! as soon as it counts as silent. In a full table the peer that is not named and was silent
//! longest gives way.
//!
//! The view decides nothing but this. It neither asks nor answers anybody, and a peer that it takes
//! for dead may still vote: no vote depends on it.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::time::Duration;

use crate::access::admit::TICKET_BYTES_MAX;
use crate::base::id::PeerId;
use crate::base::time::Time;
use crate::machine::event::{Cause, Event};
use crate::machine::table::{PEERS_MAX, PeerRecord, PeerTable};
use crate::message::{Heartbeat, Leaving, Loss, Phase, Ticket, UNLINKED_BYTES_MAX};

/// How long a named peer may be silent before it is forgotten; guess: longer than any pause worth
/// remembering.
pub const FORGET_AFTER: Duration = Duration::from_secs(600);

/// Round-trip times that one heartbeat may carry; more are cut off.
pub const ROUND_TRIPS_MAX: usize = 16;

/// The longest round trip that counts: the other side answers as late as it likes, so a measured
/// one is its claim (G10). Nothing on earth is farther away. Without it one peer could stretch the
/// timers of the others.
const ROUND_TRIP_MAX_MS: u32 = 4_000;

/// What happened, as `peer` reports it.
#[derive(Debug)]
pub enum Input<'a> {
    /// Time has passed, and some peers may have become silent.
    Tick,
    /// A heartbeat whose signature was verified.
    Heartbeat(PeerId, &'a Heartbeat),
    /// A farewell whose signature was verified.
    Leaving(PeerId, &'a Leaving),
    /// The loss in a `Ready` whose signature was verified.
    Ready(PeerId, Loss),
    /// The last direct connection to this peer closed.
    Unlinked(PeerId),
    /// A round trip to this peer was measured, in milliseconds.
    RoundTrip(PeerId, u32),
}

/// The membership view of one peer: the only writer of the peer table.
#[derive(Clone, Debug)]
pub struct State {
    me: PeerId,
    table: PeerTable,
    /// The voters, and the peers that the last receipts name.
    named: BTreeSet<PeerId>,
    /// The peers that were last reported as found.
    reported: BTreeSet<PeerId>,
    /// Those reported peers whose connection has closed since they were last found.
    closed: BTreeSet<PeerId>,
    /// When all peers were last checked.
    checked_at: Time,
}

impl State {
    /// A view in which no peer is known yet.
    #[must_use]
    pub fn new(me: PeerId, table: PeerTable) -> Self {
        let (named, reported, closed) = Default::default();
        Self { me, table, named, reported, closed, checked_at: Time::ZERO }
    }

    /// Sets for which peers room is kept from now on: the voters, and those that the last receipts
    /// name. A peer that is named no more keeps its entry until it is silent.
    pub fn set_named(&mut self, named: BTreeSet<PeerId>) {
        self.named = named;
    }

    /// Whether room is kept for a peer.
    #[must_use]
    pub fn is_named(&self, peer: &PeerId) -> bool {
        self.named.contains(peer)
    }

    /// The table of peers that were heard.
    pub fn table(&self) -> &PeerTable {
        &self.table
    }

    /// Takes one input, and reports peers that came or went. Returns whether the input changed
    /// anything that decisions depend on: most heartbeats do not.
    pub fn handle(&mut self, now: Time, input: Input<'_>, out: &mut Vec<Event>) -> bool {
        let before = out.len();
        let mut news = true;
        let about = match input {
            Input::Tick => {
                self.check_all(now, out);
                return true;
            }
            Input::Heartbeat(author, beat) => {
                news = self.on_heartbeat(now, author, beat, out);
                author
            }
            Input::Leaving(author, leaving) => {
                if let Some(seen) = self.table.peers.get_mut(&author) {
                    seen.left = seen.left.max(Some(leaving.incarnation));
                }
                author
            }
            Input::Ready(author, loss) => {
                if let Some(seen) = self.table.peers.get_mut(&author) {
                    seen.loss = loss;
                }
                author
            }
            Input::Unlinked(peer) => {
                self.on_closed(now, peer);
                peer
            }
            Input::RoundTrip(peer, sample) => {
                if let Some(seen) = self.table.peers.get_mut(&peer) {
                    seen.rtt_ms = smoothed(seen.rtt_ms, sample.min(ROUND_TRIP_MAX_MS));
                }
                peer
            }
        };
        self.check(now, about, out);
        news || out.len() > before
    }

    /// When the next peer becomes silent, for the caller to send a tick.
    pub fn deadline(&self) -> Option<Time> {
        let silent = |seen: &PeerRecord| seen.heard + self.table.silent_after(seen);
        // Peers that had fallen silent by the last check were reported then.
        self.table.peers.values().map(silent).filter(|at| *at > self.checked_at).min()
    }

    /// Takes a heartbeat, if it is newer than the last one of its author. Returns whether a
    /// decision may depend on what it says.
    fn on_heartbeat(
        &mut self,
        now: Time,
        author: PeerId,
        beat: &Heartbeat,
        out: &mut Vec<Event>,
    ) -> bool {
        if author == self.me {
            return false;
        }
        let beat = &*bounded(beat);
        let heartbeat = self.table.heartbeat;
        let peers = &mut self.table.peers;
        if let Some(seen) = peers.get_mut(&author) {
            let newer = (beat.incarnation, beat.count) > (seen.beat.incarnation, seen.beat.count);
            let news = newer && relevant(beat) != relevant(&seen.beat);
            if newer {
                seen.hear(beat, now, heartbeat);
            }
            return news;
        }
        let room = self.has_room_for(now, &author, out);
        if room {
            self.table.peers.insert(author, PeerRecord::new(beat, now));
        }
        room
    }

    /// Whether there is room for one more peer; in a full table another one may give way.
    fn has_room_for(&mut self, now: Time, peer: &PeerId, out: &mut Vec<Event>) -> bool {
        if self.table.peers.len() < PEERS_MAX {
            return true;
        }
        let rank =
            |(other, seen): &(&PeerId, &PeerRecord)| (self.named.contains(*other), seen.heard);
        let last = self.table.peers.iter().min_by_key(rank).map(|(other, _)| *other);
        let last = last.filter(|last| !self.is_named(last) || self.is_named(peer));
        let Some(last) = last else { return false };
        self.table.peers.remove(&last);
        self.check(now, last, out);
        true
    }

    /// Ages the peer so that the next missing heartbeat makes it lost.
    fn on_closed(&mut self, now: Time, peer: PeerId) {
        let heartbeat = self.table.heartbeat;
        let Some(seen) = self.table.peers.get(&peer) else { return };
        let aged = now - self.table.silent_after(seen) + heartbeat * 3 / 2;
        if let Some(seen) = self.table.peers.get_mut(&peer) {
            seen.heard = seen.heard.min(aged);
        }
        if self.reported.contains(&peer) {
            self.closed.insert(peer);
        }
    }

    /// Reports every peer whose state has changed since the last check, and forgets those that were
    /// silent for long enough.
    fn check_all(&mut self, now: Time, out: &mut Vec<Event>) {
        self.checked_at = now;
        let (table, reported) = (&self.table, &self.reported);
        let changed = |(peer, seen): &(&PeerId, &PeerRecord)| {
            table.fresh(seen, now) != reported.contains(*peer)
        };
        let changed = table.peers.iter().filter(changed).map(|(peer, _)| *peer);
        let changed: Vec<PeerId> = changed.collect();
        for peer in changed {
            self.check(now, peer, out);
        }
        let (named, heartbeat) = (&self.named, self.table.heartbeat);
        self.table.peers.retain(|peer, seen| {
            let named = named.contains(peer);
            let forget_after = if named { FORGET_AFTER } else { seen.silent_after(heartbeat) };
            now.since(seen.heard) < forget_after
        });
    }

    /// Reports a peer that came or went.
    fn check(&mut self, now: Time, who: PeerId, out: &mut Vec<Event>) {
        if self.table.alive(&who, now) {
            if self.reported.insert(who) {
                self.closed.remove(&who);
                out.push(Event::PeerFound { who });
            }
        } else if self.reported.remove(&who) {
            let closed = self.closed.remove(&who);
            let cause = match self.table.peers.get(&who) {
                Some(seen) if seen.has_left() => Cause::Left,
                _ if closed => Cause::Closed,
                _ => Cause::Silent,
            };
            out.push(Event::PeerLost { who, cause });
        }
    }
}

/// A heartbeat without the parts that are longer than they may be: it is stored for each of many
/// peers.
fn bounded(beat: &Heartbeat) -> Cow<'_, Heartbeat> {
    let long = |ticket: &Ticket| ticket.bytes() > TICKET_BYTES_MAX;
    let mut beat = Cow::Borrowed(beat);
    if beat.round_trips.len() > ROUND_TRIPS_MAX {
        beat.to_mut().round_trips.truncate(ROUND_TRIPS_MAX);
    }
    if beat.unlinked.len() > UNLINKED_BYTES_MAX {
        beat.to_mut().unlinked = Vec::new();
    }
    if beat.ticket.as_deref().is_some_and(long) {
        beat.to_mut().ticket = None;
    }
    beat
}

/// The parts of a heartbeat that a decision may depend on. A field that is left out here, as a
/// round trip, reaches the other machines only with their next tick.
fn relevant(beat: &Heartbeat) -> impl PartialEq {
    let Heartbeat { log, incarnation, head, series, joined, closed, phase, attempt, .. } = *beat;
    let shows = beat.ticket.is_some();
    let says = (head, series, joined, closed, phase == Phase::Behind, attempt, beat.ready, shows);
    (log, incarnation, says, (beat.direct, &beat.unlinked), beat.notice, beat.attested)
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
