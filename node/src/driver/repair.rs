//! Repair: what the rings of the open epoch have finished, for this node and for others, and an update
//! that is put together of kept chunks and a ring (R10, R32).
//!
//! A chunk can be served from the moment at which its ring has ended. Of one ring the bytes lie in one
//! buffer, which the chunks share; only the newest few rings are kept, and all is dropped with the
//! epoch.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use intellect_protocol::codec::Codec;
use intellect_protocol::epoch::Ring;
use intellect_protocol::id::{Digest, PeerId};
use intellect_protocol::message::{Finished, Keep};
use intellect_protocol::peer::Input;
use intellect_protocol::repair::{Repair, gather};
use intellect_protocol::ring::Layout;

use super::updates::Origin;
use super::{Done, Driver};
use crate::fetch;
use crate::net::Reply;
use crate::ring::{self, Held};
use crate::store::updates::Name;

/// Rings whose bytes are kept: the last one, and the one that it repaired.
const RINGS: usize = 2;

/// How often, and after which pause, somebody who asks for a chunk of a ring that is just ending is
/// looked after again: two seconds in all.
const ASKED_AGAIN: u32 = 20;
const ASKED_PAUSE: Duration = Duration::from_millis(100);

/// A chunk: by the roster that computed it, and its number there.
type Chunk = (Digest, u32);

/// Some of the bytes of a ring.
#[derive(Clone, Debug)]
struct Slice {
    bytes: Arc<Vec<u8>>,
    place: Range<usize>,
}

impl Slice {
    fn get(&self) -> &[u8] {
        self.bytes.get(self.place.clone()).unwrap_or_default()
    }
}

/// What rings of the open epoch left.
#[derive(Debug, Default)]
pub(super) struct Repairs {
    /// That of the rings.
    epoch: u64,
    layouts: BTreeMap<Digest, Layout>,
    /// The bytes of rings that have ended, the newest last.
    made: VecDeque<(Digest, Arc<Vec<u8>>)>,
    sealed: BTreeSet<Chunk>,
    fetched: BTreeMap<Chunk, Arc<Vec<u8>>>,
    open: Option<Open>,
}

/// An update that is being put together.
#[derive(Debug)]
struct Open {
    roster: Digest,
    layout: Layout,
    keep: Vec<Keep>,
    parts: BTreeMap<Chunk, Slice>,
    ring: Option<Held>,
}

impl Open {
    fn is_complete(&self) -> bool {
        let kept: usize = self.keep.iter().map(|keep| keep.chunks.len()).sum();
        self.ring.is_some() && self.parts.len() == kept
    }

    /// Puts it together; takes as long as hashing and copying all of it.
    fn join(self, codec: Codec, elements: u64) -> Option<Held> {
        let mut repair = Repair::new(codec, elements, &self.layout, &self.keep);
        let held = self.ring?;
        let mut parts = self.parts.iter();
        let good = parts.all(|((roster, chunk), slice)| repair.put(*roster, *chunk, slice.get()))
            && repair.put_ring(&held.update);
        let update = repair.take().filter(|_| good)?;
        let digest = Digest(*blake3::hash(&update).as_bytes());
        Some(Held { update: Arc::new(update), digest, ..held })
    }
}

impl Repairs {
    /// Another epoch has begun.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Whether a ring is of the open epoch, this one. What one of an earlier epoch still has to tell
    /// concerns nobody, and would pass for a result of this one.
    fn concerns(&self, roster: Digest, epoch: u64) -> bool {
        self.epoch == epoch && self.layouts.contains_key(&roster)
    }

    /// Keeps the bytes of a ring that has ended; which ring's are given up for them.
    fn keep(&mut self, roster: Digest, bytes: Arc<Vec<u8>>) -> Option<Digest> {
        self.made.retain(|(known, _)| *known != roster);
        self.made.push_back((roster, bytes));
        let (old, _) = (self.made.len() > RINGS).then(|| self.made.pop_front()).flatten()?;
        self.sealed.retain(|(of, _)| *of != old);
        Some(old)
    }

    fn slice(&self, codec: Codec, (roster, chunk): Chunk) -> Option<Slice> {
        if let Some(bytes) = self.fetched.get(&(roster, chunk)) {
            return Some(Slice { bytes: Arc::clone(bytes), place: 0..bytes.len() });
        }
        let layout =
            self.layouts.get(&roster).filter(|_| self.sealed.contains(&(roster, chunk)))?;
        let (_, bytes) = self.made.iter().find(|(made, _)| *made == roster)?;
        let elements = layout.cut().chunk(usize::try_from(chunk).ok()?);
        let place = codec.encoded_bytes(elements.start)..codec.encoded_bytes(elements.end);
        Some(Slice { bytes: Arc::clone(bytes), place })
    }
}

impl Driver {
    fn concerns(&self, roster: Digest) -> bool {
        self.repairs.concerns(roster, self.peer.head().epoch + 1)
    }

    pub(super) fn start_ring(&mut self, ring: &Ring) {
        let Some(delta) = self.delta.clone() else {
            tracing::error!("a ring without a frozen delta");
            return;
        };
        self.tell.ring_opened();
        self.repairs.epoch = self.peer.head().epoch + 1;
        self.repairs.layouts.insert(ring.roster, ring.layout.clone());
        let job = ring::Job {
            run: self.manifest.id,
            roster: ring.roster,
            cut: ring.layout.cut(),
            members: ring.members.clone(),
            position: ring.index,
            codec: self.manifest.run.codec,
            key: self.key.clone(),
            delta,
            patience: ring::Patience::new(self.round_trip()),
        };
        if ring.keep.is_empty() {
            return self.rings.start(job);
        }
        self.begin_repair(ring);
        let redone = ring.layout.redone().clone();
        self.jobs.spawn_blocking(move || {
            let delta = Arc::new(gather(&job.delta, &redone));
            Done::Gathered(Box::new(ring::Job { delta, ..job }))
        });
    }

    /// The part of the delta that a ring redoes is there; it may have been given up meanwhile.
    pub(super) fn on_gathered(&mut self, job: ring::Job) {
        if self.repairs.open.as_ref().is_some_and(|open| open.roster == job.roster) {
            self.rings.start(job);
        }
    }

    /// Looks for the chunks that a roster keeps.
    fn begin_repair(&mut self, ring: &Ring) {
        let (codec, elements) = (self.manifest.run.codec, self.newest.table.header().parameters);
        let (layout, keep) = (ring.layout.clone(), ring.keep.clone());
        let mut parts = BTreeMap::new();
        for (roster, kept) in keep.iter().flat_map(|k| k.chunks.iter().map(|c| (k.roster, c))) {
            let chunk = (roster, kept.chunk);
            if let Some(slice) = self.repairs.slice(codec, chunk) {
                parts.insert(chunk, slice);
                continue;
            }
            let length = codec.encoded_bytes(kept.blocks.element_count(elements));
            let finished = Finished { roster, chunk: kept.chunk, seal: kept.seal };
            let (net, ring, holders) = (self.net.clone(), ring.roster, kept.holders.clone());
            self.jobs.spawn(async move {
                let found = fetch::chunk(&net, finished, length, holders).await;
                Done::Chunk { ring, finished, found: found.map(Arc::new) }
            });
        }
        self.repairs.open = Some(Open { roster: ring.roster, layout, keep, parts, ring: None });
    }

    pub(super) fn abandon_ring(&mut self, roster: Digest) {
        self.rings.abandon(roster);
        self.repairs.open.take_if(|open| open.roster == roster);
    }

    pub(super) fn on_sealed(&mut self, finished: Finished) {
        if self.concerns(finished.roster) {
            self.repairs.sealed.insert((finished.roster, finished.chunk));
            self.input(Input::ChunkHeld(finished));
        }
    }

    pub(super) fn on_remains(&mut self, roster: Digest, bytes: Arc<Vec<u8>>) {
        if self.concerns(roster)
            && let Some(old) = self.repairs.keep(roster, bytes)
        {
            self.input(Input::ChunksGone(old));
        }
    }

    /// A ring has computed what it had to.
    pub(super) fn on_ring_ended(&mut self, roster: Digest, held: Held) {
        self.on_remains(roster, Arc::clone(&held.update));
        match self.repairs.open.as_mut().filter(|open| open.roster == roster) {
            Some(open) => {
                open.ring = Some(held);
                self.conclude_repair();
            }
            None => self.on_ring_held(roster, held),
        }
    }

    /// A kept chunk has come, or nobody serves it.
    pub(super) fn on_chunk(&mut self, ring: Digest, f: Finished, found: Option<Arc<Vec<u8>>>) {
        let chunk = (f.roster, f.chunk);
        if !self.concerns(ring) {
            return;
        }
        // The attempt may be over: what came, or did not, matters to the next one.
        let Some(bytes) = found else { return self.input(Input::ChunkMissing(ring, chunk)) };
        if let Some(open) = self.repairs.open.as_mut().filter(|open| open.roster == ring) {
            let slice = Slice { place: 0..bytes.len(), bytes: Arc::clone(&bytes) };
            open.parts.insert(chunk, slice);
        }
        self.repairs.fetched.insert(chunk, bytes);
        self.input(Input::ChunkHeld(f));
        self.conclude_repair();
    }

    fn conclude_repair(&mut self) {
        let Some(open) = self.repairs.open.take_if(|open| open.is_complete()) else { return };
        let (codec, elements) = (self.manifest.run.codec, self.newest.table.header().parameters);
        let roster = open.roster;
        self.jobs.spawn_blocking(move || Done::Repaired(roster, open.join(codec, elements)));
    }

    pub(super) fn on_repaired(&mut self, roster: Digest, held: Option<Held>) {
        match held {
            Some(held) => self.on_ring_held(roster, held),
            // What we hold of a ring is not what its owner sealed: our memory, or the program.
            None => {
                tracing::error!("kept chunks that do not fit together");
                let held: Vec<Digest> = self.repairs.made.drain(..).map(|(of, _)| of).collect();
                self.repairs.sealed.clear();
                self.repairs.fetched.clear();
                held.into_iter().for_each(|of| self.input(Input::ChunksGone(of)));
            }
        }
    }

    fn on_ring_held(&mut self, roster: Digest, held: Held) {
        if !self.concerns(roster) {
            return;
        }
        let (send_rate, digest) = (held.send_rate(), held.digest);
        self.tell.ring(held.sent_bytes, held.received_bytes);
        let epoch = self.peer.head().epoch + 1;
        self.keep(Name { epoch, digest }, held.update, Origin::Ring { roster, send_rate });
    }

    /// Answers with a part of a finished chunk; dropping `reply` refuses it.
    pub(super) fn serve_chunk(
        &mut self,
        from: PeerId,
        chunk: Chunk,
        offset: u64,
        asked: u32,
        reply: Reply,
    ) {
        if let Some(slice) = self.repairs.slice(self.manifest.run.codec, chunk) {
            if let Some(part) = fetch::part_of(slice.get(), offset) {
                reply.send_at_once(part);
            }
        } else if self.repairs.sealed.contains(&chunk) && asked < ASKED_AGAIN {
            self.jobs.spawn(async move {
                tokio::time::sleep(ASKED_PAUSE).await;
                Done::ChunkAsked { from, chunk, offset, asked: asked + 1, reply }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(elements: usize) -> Layout {
        let member = intellect_protocol::message::Member {
            peer: PeerId([1; 32]),
            log: intellect_protocol::id::LogId([1; 16]),
            incarnation: 1,
            weight: 1,
        };
        let other = intellect_protocol::message::Member { peer: PeerId([2; 32]), ..member };
        let head = intellect_protocol::message::Head { epoch: 0, tokens: 0, state: Digest::ZERO };
        let roster = intellect_protocol::message::Roster {
            series: intellect_protocol::message::Series::after(&head),
            attempt: 1,
            proposer: member.peer,
            members: vec![member, other],
            heard: Vec::new(),
            adopt: None,
            keep: Vec::new(),
        };
        Layout::of(&roster, elements as u64).unwrap()
    }

    #[test]
    fn only_sealed_chunks_of_the_newest_rings_are_served() {
        let mut repairs = Repairs::default();
        let (codec, elements) = (Codec::F32, 4 * 256);
        for n in 1..=3 {
            let roster = Digest([n; 32]);
            repairs.layouts.insert(roster, layout(elements));
            repairs.sealed.insert((roster, 1));
            assert!(repairs.slice(codec, (roster, 1)).is_none(), "its ring has not ended");
            let gone = repairs.keep(roster, Arc::new(vec![n; codec.encoded_bytes(elements)]));
            assert_eq!(gone, (n == 3).then_some(Digest([1; 32])));
            let slice = repairs.slice(codec, (roster, 1)).unwrap();
            assert_eq!((slice.get().len(), slice.place.start), (2_048, 2_048));
            assert!(repairs.slice(codec, (roster, 0)).is_none(), "nobody has sealed it");
        }
        assert!(repairs.slice(codec, (Digest([1; 32]), 1)).is_none());
        assert!(repairs.concerns(Digest([3; 32]), 0) && !repairs.concerns(Digest([3; 32]), 1));
        repairs.clear();
        assert!(repairs.slice(codec, (Digest([3; 32]), 1)).is_none());
        assert!(!repairs.concerns(Digest([3; 32]), 0), "it is of an epoch that is over");
    }
}
