//! The rings of a simulated run: what each member contributes, when each one has the result, and
//! which members notice that one is lost.
//!
//! The bytes are computed from the members' frozen deltas by [`reduce`]; the frames in between are
//! only time. A member that dies, stalls or gives up breaks the ring. Its neighbours lose a stream
//! at once, or hear nothing for [`QUIET_MS`]. A member further away hears nothing either, and
//! reports its own predecessor, which is alive.
//!
//! [`reduce`]: intellect_protocol::ring::codec::reduce

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use super::toy::CODEC;
use intellect_protocol::base::id::{Digest, PeerId};
use intellect_protocol::consensus::epoch::Ring;
use intellect_protocol::message::Member;
use intellect_protocol::ring::Layout;
use intellect_protocol::ring::assembly;
use intellect_protocol::ring::codec::reduce::Share;

/// How a member sends in a ring whose roster it has accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sends {
    /// Every frame, as soon as it may be sent.
    AsItShould,
    /// A frame now and then: its successor hears it, and the ring does not end in time.
    Slowly,
    /// Not a single frame, so the ring never ends.
    Never,
}

/// What one hop takes in a ring with a member that sends slowly.
pub(crate) const CRAWL_MS: u64 = 600_000;

/// How long a member waits for a frame before it gives up: the largest `T_quiet`.
pub(crate) const QUIET_MS: u64 = 2_000;

/// What a member notices about its ring.
#[derive(Clone, Debug)]
pub(crate) enum Notice {
    /// It has a chunk, of this number and owner, with the owner's seal.
    Chunk((u32, PeerId)),
    /// It has everything that the ring computes.
    Finish,
    /// It has lost this neighbour, and the ring cannot end.
    Lose(PeerId),
    /// This predecessor has not begun in time.
    Wait(PeerId),
}

/// A notice that reaches its member later.
#[derive(Clone, Debug)]
pub(crate) struct Due {
    pub(crate) delay_ms: u64,
    pub(crate) host: usize,
    pub(crate) roster: Digest,
    pub(crate) notice: Notice,
}

/// How a member is lost to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// Its streams have closed, which neighbours notice at once.
    Closed,
    /// Its frames have stopped, which takes [`QUIET_MS`] to notice.
    Stalled,
}

/// One ring under way, as its members together see it.
#[derive(Clone, Debug)]
struct Run {
    roster: Digest,
    members: Vec<Member>,
    layout: Layout,
    hosts: Vec<usize>,
    /// The delta of each member, once it has started.
    deltas: Vec<Option<Arc<Vec<f32>>>>,
    /// The hosts that need no further notice.
    over: BTreeSet<usize>,
    broken: bool,
    bytes: Option<Arc<Vec<u8>>>,
}

/// All members of a ring finish within fewer half hops than this.
const SPREAD_HOPS: u64 = 32;

/// A ring of more members than this reports no chunks: they are too many to simulate.
const CHUNKS_REPORTED: usize = 64;

/// All rings that were started.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rings {
    runs: BTreeMap<Digest, Run>,
    /// The longest duration of an undisturbed ring, of those started since this was last reset.
    pub(crate) longest_ms: u64,
}

impl Rings {
    /// A member opens its ring with its frozen delta. `hop_ms` is the duration of a hop;
    /// `carries` says whether a link works.
    pub(crate) fn start(
        &mut self,
        ring: &Ring,
        hosts: &[usize],
        delta: Arc<Vec<f32>>,
        hop_ms: u64,
        carries: impl Fn(usize, usize) -> bool,
    ) -> Vec<Due> {
        let (count, index, roster) = (ring.members.len(), ring.index, ring.roster);
        let run = self.runs.entry(roster).or_insert_with(|| Run {
            roster,
            members: ring.members.clone(),
            layout: ring.layout.clone(),
            hosts: hosts.to_vec(),
            deltas: vec![None; count],
            over: BTreeSet::new(),
            broken: false,
            bytes: None,
        });
        run.deltas[index] = Some(Arc::new(assembly::gather(&delta, ring.layout.redone())));
        if run.broken || run.deltas.iter().any(Option::is_none) {
            return vec![run.due(QUIET_MS, index, Notice::Wait(run.before(index)))];
        }
        run.bytes = run.reduce().map(Arc::new);
        let hops = 2 * (count as u64 - 1);
        // The last hop of each half ends at another position, so members finish one after another.
        let after = |i: usize| (i as u64 * 5) % (hops + 1).min(SPREAD_HOPS);
        let end = |i: usize| 1 + hop_ms * hops + hop_ms * after(i) / 2;
        self.longest_ms = (0..count).map(end).fold(self.longest_ms, u64::max);
        let mut due: Vec<Due> = (0..count).map(|i| run.due(end(i), i, Notice::Finish)).collect();
        due.extend(run.chunks(hop_ms));
        due.extend(run.part(Loss::Stalled, carries));
        due
    }

    /// A host is lost to all its open rings, or only to that of `roster`.
    pub(crate) fn lose(&mut self, host: usize, loss: Loss, roster: Option<Digest>) -> Vec<Due> {
        let mut due = Vec::new();
        for run in self.runs.values_mut() {
            let other = roster.is_some_and(|only| only != run.roster);
            let Some(index) = run.hosts.iter().position(|h| *h == host) else { continue };
            if other || !run.over.insert(host) {
                continue;
            }
            if !run.broken {
                run.broken = true;
                due.extend(run.notices(index, loss));
            }
        }
        due
    }

    /// Some links have stopped working: rings that use them break.
    pub(crate) fn part(&mut self, loss: Loss, carries: impl Fn(usize, usize) -> bool) -> Vec<Due> {
        let open = self.runs.values_mut().filter(|run| run.bytes.is_some() && !run.broken);
        open.flat_map(|run| run.part(loss, &carries)).collect()
    }

    /// The range of a chunk in the bytes of its ring.
    pub(crate) fn place(&self, roster: &Digest, chunk: u32) -> Option<Range<usize>> {
        let chunk = usize::try_from(chunk).ok()?;
        Some(CODEC.place(&self.runs.get(roster)?.layout.cut().chunk(chunk)))
    }

    /// Takes a notice at its time. Returns what the host notices, if that still
    /// holds, and the bytes of the ring.
    pub(crate) fn take(
        &mut self,
        roster: &Digest,
        host: usize,
        notice: &Notice,
    ) -> Option<(Notice, Option<Arc<Vec<u8>>>)> {
        let run = self.runs.get_mut(roster)?;
        let started = run.bytes.is_some() && !run.broken;
        let holds = match notice {
            Notice::Chunk(_) | Notice::Finish => started,
            Notice::Lose(_) => !started,
            Notice::Wait(_) => run.bytes.is_none(),
        };
        let bytes = run.bytes.clone();
        if holds && !run.over.contains(&host) && matches!(notice, Notice::Chunk(_)) {
            return Some((notice.clone(), bytes));
        }
        if !holds || !run.over.insert(host) {
            return None;
        }
        if run.over.len() == run.hosts.len() {
            self.runs.remove(roster);
        }
        Some((notice.clone(), bytes))
    }
}

impl Run {
    /// The member that sends to this one.
    fn before(&self, index: usize) -> PeerId {
        self.members[(index + self.members.len() - 1) % self.members.len()].peer
    }

    /// The member that this one sends to.
    fn after(&self, index: usize) -> PeerId {
        self.members[(index + 1) % self.members.len()].peer
    }

    /// What a member will be told, and when.
    fn due(&self, delay_ms: u64, index: usize, notice: Notice) -> Due {
        Due { delay_ms, host: self.hosts[index], roster: self.roster, notice }
    }

    /// Breaks the ring where two neighbours have no link. Every member that still needs it notices.
    fn part(&mut self, loss: Loss, carries: impl Fn(usize, usize) -> bool) -> Vec<Due> {
        let count = self.hosts.len();
        let cut = (0..count).find(|i| !carries(self.hosts[*i], self.hosts[(i + 1) % count]));
        let Some(index) = cut else { return Vec::new() };
        self.broken = true;
        let soon_ms = if loss == Loss::Closed { 20 } else { QUIET_MS };
        let notice = |i: usize| match i {
            i if i == index => self.due(soon_ms, i, Notice::Lose(self.after(i))),
            i if i == (index + 1) % count => self.due(soon_ms, i, Notice::Lose(self.before(i))),
            i => self.due(QUIET_MS + 50, i, Notice::Lose(self.before(i))),
        };
        (0..count).map(notice).collect()
    }

    /// What the others notice when the member at index `lost` is gone.
    fn notices(&self, lost: usize, loss: Loss) -> Vec<Due> {
        let count = self.members.len();
        let gone = self.members[lost].peer;
        let notice = |i: usize| {
            let neighbour = (i + 1) % count == lost || (lost + 1) % count == i;
            match (neighbour, loss) {
                (true, Loss::Closed) => self.due(20, i, Notice::Lose(gone)),
                (true, Loss::Stalled) => self.due(QUIET_MS, i, Notice::Lose(gone)),
                (false, _) => self.due(QUIET_MS + 50, i, Notice::Lose(self.before(i))),
            }
        };
        (0..count).filter(|i| *i != lost).map(notice).collect()
    }

    /// When each member has each chunk: its owner after the reduce half, the others one by one.
    fn chunks(&self, hop_ms: u64) -> Vec<Due> {
        let (count, cut) = (self.members.len(), self.layout.cut());
        if count > CHUNKS_REPORTED {
            return Vec::new();
        }
        let mut due = Vec::new();
        for chunk in (0..count).filter(|chunk| !cut.chunk(*chunk).is_empty()) {
            for distance in 0..count {
                let at_ms = 1 + hop_ms * (count - 1 + distance) as u64;
                let index = (cut.owner(chunk) + distance) % count;
                let owner = self.members[cut.owner(chunk)].peer;
                let number = u32::try_from(chunk).unwrap_or(u32::MAX);
                due.push(self.due(at_ms, index, Notice::Chunk((number, owner))));
            }
        }
        due
    }

    /// The bytes of the ring: each chunk goes round once and is finished by its owner.
    fn reduce(&self) -> Option<Vec<u8>> {
        let count = self.members.len();
        let cut = self.layout.cut();
        let total = self.members.iter().map(|member| member.weight).sum();
        let mut update = Vec::with_capacity(CODEC.encoded_bytes(cut.elements()));
        for chunk in 0..count {
            let range = cut.chunk(chunk);
            let mut bytes = vec![0; CODEC.encoded_bytes(range.len())];
            for step in 0..count {
                let position = (chunk + step) % count;
                let delta = self.deltas[position].as_ref()?.get(range.clone())?;
                let weight = self.members[position].weight;
                let share = Share { codec: CODEC, weight, delta };
                let payload = bytes.clone();
                match (count, step) {
                    (1, _) => share.alone(&mut bytes),
                    (_, 0) => share.start(&mut bytes),
                    (n, s) if s + 1 < n => share.add(&payload, &mut bytes),
                    _ => share.finish(&payload, total, &mut bytes),
                }
                .ok()?;
            }
            update.extend_from_slice(&bytes);
        }
        Some(update)
    }
}
