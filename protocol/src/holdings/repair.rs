//! What the rings of the open epoch have finished, for this peer and for others, and the update
//! that is assembled from kept chunks and a ring (R10, R32).
//!
//! A chunk can be served once its ring has ended. The bytes of one ring lie in one buffer, which
//! its chunks share. Only the newest few rings are kept, and all of them go with the epoch.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::interface::{Buffer, Chunk, Inquiry, Output, Slice, Slices};
use crate::base::id::Digest;
use crate::base::time::Time;
use crate::consensus::epoch::Ring;
use crate::message::Finished;
use crate::ring::Layout;
use crate::ring::codec::Codec;

/// Rings whose bytes are kept: the last one, and the one that it completes. Each takes at most as
/// many bytes as an update.
const RINGS: usize = 2;

/// How long a request for a chunk waits for the end of a ring that is about to end.
const ASKED_WAIT: Duration = Duration::from_secs(2);

/// Requests for such chunks that wait; others are refused at once.
const ASKED_MAX: usize = 256;

/// What the rings of the open epoch have left.
#[derive(Clone, Debug, Default)]
pub(super) struct Repairs {
    /// The epoch to which all of it belongs.
    epoch: u64,
    /// The layout of each ring of the open epoch, by roster.
    layouts: BTreeMap<Digest, Layout>,
    /// The rosters that keep chunks: their rings compute only the rest.
    keeping: BTreeSet<Digest>,
    /// The rings that have ended and whose bytes are kept, the newest last.
    made: VecDeque<Digest>,
    /// Chunks of our own rings that are finished and sealed by their owners.
    sealed: BTreeSet<Chunk>,
    /// Chunks that other peers have sent.
    fetched: BTreeSet<Chunk>,
    /// At most one: a new attempt gives up the one before.
    open: Option<Open>,
    /// Bytes of rings that are released as soon as no update is being assembled from them.
    spare: Vec<Buffer>,
    /// Requests for sealed chunks whose ring has not ended, and until when they wait.
    asked: Vec<(Time, Inquiry, Chunk)>,
}

/// An update that is being assembled.
#[derive(Clone, Debug)]
struct Open {
    ring: Arc<Ring>,
    parts: BTreeMap<Chunk, Slice>,
    /// Bytes per second that we sent in the ring, once that has ended.
    send_rate: Option<u64>,
    /// Whether the caller is putting the parts together.
    is_joining: bool,
}

impl Repairs {
    /// Another epoch has begun. Returns the bytes that are not needed any more, and the
    /// requests that get no answer.
    pub(super) fn clear(&mut self) -> (Vec<Buffer>, Vec<Inquiry>) {
        let Self { made, fetched, spare, asked, .. } = std::mem::take(self);
        let rings = made.into_iter().map(Buffer::Ring);
        let bytes = rings.chain(fetched.into_iter().map(Buffer::Chunk)).chain(spare).collect();
        (bytes, asked.into_iter().map(|(_, ticket, _)| ticket).collect())
    }

    /// Whether a ring belongs to the open epoch, which is `epoch`. The result of a ring of an
    /// earlier epoch is useless, and could be mistaken for one of this epoch.
    pub(super) fn concerns(&self, roster: &Digest, epoch: u64) -> bool {
        self.epoch == epoch && self.layouts.contains_key(roster)
    }

    /// A ring of this epoch begins. Returns an order to fetch each chunk that its roster keeps and
    /// that is not here, with the length by which an answer is bounded.
    pub(super) fn begin(
        &mut self,
        epoch: u64,
        ring: &Arc<Ring>,
        codec: Codec,
        elements: u64,
    ) -> Vec<Output> {
        self.epoch = epoch;
        self.layouts.insert(ring.roster, ring.layout.clone());
        if ring.keep.is_empty() {
            return Vec::new();
        }
        self.keeping.insert(ring.roster);
        let (mut parts, mut lacking) = (BTreeMap::new(), Vec::new());
        for (roster, kept) in ring.keep.iter().flat_map(|k| k.chunks.iter().map(|c| (k.roster, c)))
        {
            let chunk = (roster, kept.chunk);
            if let Some(part) = self.part(codec, chunk) {
                parts.insert(chunk, part);
                continue;
            }
            lacking.push(Output::FetchChunk {
                ring: ring.roster,
                finished: Finished { roster, chunk: kept.chunk, seal: kept.seal },
                length: codec.encoded_bytes(kept.blocks.element_count(elements)),
                holders: kept.holders.clone(),
            });
        }
        self.open =
            Some(Open { ring: Arc::clone(ring), parts, send_rate: None, is_joining: false });
        lacking
    }

    /// A ring is abandoned. Returns the bytes that are not needed any more.
    pub(super) fn abandon(&mut self, roster: &Digest) -> Vec<Buffer> {
        match self.open.take_if(|open| open.ring.roster == *roster) {
            Some(_) => std::mem::take(&mut self.spare),
            None => Vec::new(),
        }
    }

    /// A chunk is finished and sealed; it can be reused once its ring has ended.
    pub(super) fn seal(&mut self, chunk: Chunk) {
        self.sealed.insert(chunk);
    }

    /// A ring has ended; the bytes of the newest rings are kept. Returns the ring that is dropped
    /// for this one, and the bytes that are not needed any more.
    pub(super) fn keep(&mut self, roster: Digest) -> (Option<Digest>, Vec<Buffer>) {
        self.made.retain(|known| *known != roster);
        self.made.push_back(roster);
        let old = (self.made.len() > RINGS).then(|| self.made.pop_front()).flatten();
        if let Some(old) = old {
            self.sealed.retain(|(of, _)| *of != old);
            self.spare.push(Buffer::Ring(old));
        }
        let free = self.open.is_none();
        (old, if free { std::mem::take(&mut self.spare) } else { Vec::new() })
    }

    /// Whether the ring of a roster computes only a part of its update; it may have been abandoned.
    pub(super) fn computes_a_part(&self, roster: &Digest) -> bool {
        self.keeping.contains(roster)
    }

    /// The ring of an update that is being assembled has ended.
    pub(super) fn put_ring(&mut self, roster: &Digest, send_rate: u64) {
        if let Some(open) = self.open.as_mut().filter(|open| open.ring.roster == *roster) {
            open.send_rate = Some(send_rate);
        }
    }

    /// A kept chunk has arrived from another peer.
    pub(super) fn put(&mut self, ring: &Digest, chunk: Chunk) {
        self.fetched.insert(chunk);
        if let Some(open) = self.open.as_mut().filter(|open| open.ring.roster == *ring) {
            open.parts.insert(chunk, Slice { buffer: Buffer::Chunk(chunk), range: None });
        }
    }

    /// The update of which all parts are here, so that the caller can put it
    /// together. It is returned once.
    pub(super) fn join(&mut self) -> Option<(Arc<Ring>, Slices)> {
        let open = self.open.as_mut()?;
        let kept: usize = open.ring.keep.iter().map(|keep| keep.chunks.len()).sum();
        if open.send_rate.is_none() || open.parts.len() < kept || open.is_joining {
            return None;
        }
        open.is_joining = true;
        Some((Arc::clone(&open.ring), std::mem::take(&mut open.parts).into_iter().collect()))
    }

    /// An update was put together. Returns how fast we sent in its ring, and the bytes
    /// that are not needed any more.
    pub(super) fn conclude(&mut self, roster: &Digest) -> (u64, Vec<Buffer>) {
        let open = self.open.take_if(|open| open.ring.roster == *roster);
        let spare = if open.is_some() { std::mem::take(&mut self.spare) } else { Vec::new() };
        (open.and_then(|open| open.send_rate).unwrap_or(0), spare)
    }

    /// The stored chunks do not fit together, and none of them is kept. Returns their rings, and
    /// the bytes that are not needed any more.
    pub(super) fn distrust(&mut self) -> (Vec<Digest>, Vec<Buffer>) {
        self.sealed.clear();
        let made: Vec<Digest> = self.made.drain(..).collect();
        let mut bytes: Vec<Buffer> = made.iter().copied().map(Buffer::Ring).collect();
        bytes.extend(std::mem::take(&mut self.fetched).into_iter().map(Buffer::Chunk));
        (made, bytes)
    }

    /// The location of a chunk, if it is here.
    pub(super) fn part(&self, codec: Codec, chunk: Chunk) -> Option<Slice> {
        if self.fetched.contains(&chunk) {
            return Some(Slice { buffer: Buffer::Chunk(chunk), range: None });
        }
        let (roster, number) = chunk;
        let here = self.sealed.contains(&chunk) && self.made.contains(&roster);
        let (Some(layout), true) = (self.layouts.get(&roster), here) else { return None };
        let place = codec.place(&layout.cut().chunk(usize::try_from(number).ok()?));
        Some(Slice { buffer: Buffer::Ring(roster), range: Some(place) })
    }

    /// Lets a request wait for a chunk whose ring is ending; false if there is nothing to wait for.
    pub(super) fn wait(&mut self, now: Time, ticket: Inquiry, chunk: Chunk) -> bool {
        let waits = self.sealed.contains(&chunk) && self.asked.len() < ASKED_MAX;
        if waits {
            self.asked.push((now + ASKED_WAIT, ticket, chunk));
        }
        waits
    }

    /// The requests whose wait has ended, each with its chunk if that is here.
    pub(super) fn answered(&mut self, now: Time, codec: Codec) -> Vec<(Inquiry, Option<Slice>)> {
        let mut over = Vec::new();
        for (until, ticket, chunk) in std::mem::take(&mut self.asked) {
            match self.part(codec, chunk) {
                None if now < until => self.asked.push((until, ticket, chunk)),
                part => over.push((ticket, part)),
            }
        }
        over
    }

    /// When the first request that waits for a chunk must be answered.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.asked.iter().map(|(until, ..)| *until).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::{LogId, PeerId};
    use crate::message::{Head, Member, Roster, Series};

    fn layout(elements: u64) -> Layout {
        let [member, other] = [1, 2].map(|n| Member {
            peer: PeerId([n; 32]),
            log: LogId([1; 16]),
            incarnation: 1,
            weight: 1,
        });
        let head = Head { epoch: 0, tokens: 0, state: Digest::ZERO };
        let roster = Roster {
            series: Series::after(&head),
            attempt: 1,
            proposer: member.peer,
            members: vec![member, other],
            heard: Vec::new(),
            adopt: None,
            trust: None,
            keep: Vec::new(),
        };
        Layout::of(&roster, elements).unwrap()
    }

    #[test]
    fn only_sealed_chunks_of_the_newest_rings_are_served() {
        let mut repairs = Repairs::default();
        let codec = Codec::F32;
        for n in 1..=3 {
            let roster = Digest([n; 32]);
            repairs.layouts.insert(roster, layout(4 * 256));
            repairs.seal((roster, 1));
            assert!(repairs.part(codec, (roster, 1)).is_none(), "its ring has not ended");
            assert!(repairs.wait(Time::ZERO, Inquiry(n.into()), (roster, 1)));
            let old = (n == 3).then_some(Digest([1; 32]));
            assert_eq!(repairs.keep(roster), (old, old.map(Buffer::Ring).into_iter().collect()));
            let part = repairs.part(codec, (roster, 1)).unwrap();
            assert_eq!(
                (part.buffer, part.range.clone()),
                (Buffer::Ring(roster), Some(2_048..4_096))
            );
            let answered = repairs.answered(Time::ZERO, codec);
            assert_eq!(answered, [(Inquiry(n.into()), Some(part))]);
            assert!(repairs.part(codec, (roster, 0)).is_none(), "nobody has sealed it");
            assert!(!repairs.wait(Time::ZERO, Inquiry(0), (roster, 0)));
        }
        assert!(repairs.part(codec, (Digest([1; 32]), 1)).is_none());
        assert!(repairs.concerns(&Digest([3; 32]), 0) && !repairs.concerns(&Digest([3; 32]), 1));
        let (bytes, _) = repairs.clear();
        assert_eq!(bytes, [2, 3].map(|n| Buffer::Ring(Digest([n; 32]))));
        assert!(repairs.part(codec, (Digest([3; 32]), 1)).is_none());
        assert!(!repairs.concerns(&Digest([3; 32]), 0), "it is of an epoch that is over");
    }

    #[test]
    fn who_asks_for_a_chunk_of_a_ring_that_never_ends_waits_for_a_while_only() {
        let (mut repairs, chunk) = (Repairs::default(), (Digest([1; 32]), 0));
        repairs.seal(chunk);
        assert!(repairs.wait(Time::ZERO, Inquiry(7), chunk));
        let until = repairs.deadline().unwrap();
        assert!(repairs.answered(until - Duration::from_millis(1), Codec::F32).is_empty());
        assert_eq!(repairs.answered(until, Codec::F32), [(Inquiry(7), None)]);
        assert_eq!(repairs.deadline(), None);
    }
}
