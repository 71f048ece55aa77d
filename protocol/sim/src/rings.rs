//! The rings of a simulated run: what each member contributes, when each one has the result, and
//! which members notice that one is lost.
//!
//! The bytes are computed from the members' frozen deltas by [`reduce`]; the frames in between are
//! only time. A member that dies, stalls or gives up breaks the ring. Its neighbours lose a stream
//! at once. The others, and all if the frames have only stopped, hear nothing for [`QUIET_MS`].
//! Each knows how many hops have come, as in a ring where all send what they can.
//!
//! All members see one [`Run`], which begins with the first of them. A notice is computed when its
//! cause happens, and verified again when its host takes it: a ring that broke meanwhile finishes
//! nobody, and one that has ended stops nobody. Each member has one last notice.
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
    /// Every frame, until it says that its ring has stopped, for no fault of a neighbour, and closes
    /// its streams a moment later.
    UntilItBreaks,
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
    /// Its ring cannot end; `lost` is the neighbour whose connection failed.
    Stop { lost: Option<PeerId>, hops: u32 },
    /// Its predecessor has not begun in time.
    Wait,
}

/// A notice that reaches its member later.
#[derive(Clone, Debug)]
pub(crate) struct Due {
    /// After how many milliseconds it comes, from the call that returned it.
    pub(crate) delay_ms: u64,
    /// The host whose process notices it.
    pub(crate) host: usize,
    /// The ring, by the digest of its roster.
    pub(crate) roster: Digest,
    /// What the host notices, unless that no longer holds by then.
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

/// One ring under way, as its members together see it. Members that are no hosts have the number of
/// all hosts, and never start.
#[derive(Clone, Debug)]
struct Run {
    /// The digest of its roster, which names it.
    roster: Digest,
    /// The members with a position, in ring order. A position is an index here.
    members: Vec<Member>,
    /// Which blocks it computes, and how these are cut.
    layout: Layout,
    /// The host of each member, in ring order.
    hosts: Vec<usize>,
    /// The delta of each member, once it has started.
    deltas: Vec<Option<Arc<Vec<f32>>>>,
    /// The hosts that need no further notice.
    over: BTreeSet<usize>,
    /// The positions that send one hop in [`CRAWL_MS`].
    crawlers: BTreeSet<usize>,
    /// The positions that send nothing more.
    silent: BTreeSet<usize>,
    /// How long one hop takes where nobody crawls, in milliseconds: as its first member found it.
    hop_ms: u64,
    /// When all members had started.
    began_ms: Option<u64>,
    /// When a member first stopped sending.
    broke_ms: Option<u64>,
    /// The result, once all members have started; no member has it before its own end.
    bytes: Option<Arc<Vec<u8>>>,
}

/// All members of a ring finish within fewer half hops than this, in another order than that of
/// their positions.
const SPREAD_HOPS: u64 = 32;

/// A ring of more members than this reports no chunks: they are too many to simulate.
const CHUNKS_REPORTED: usize = 64;

/// All rings that were started. It computes no time of its own: each method returns what hosts will
/// notice and when, and the world queues it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rings {
    /// Virtual time, which the world sets before each call.
    pub(crate) now_ms: u64,
    /// A ring stays until each of its members has had its last notice.
    runs: BTreeMap<Digest, Run>,
    /// The longest duration of an undisturbed ring, of those started since this was last reset.
    pub(crate) longest_ms: u64,
}

impl Rings {
    /// A member opens its ring with its frozen delta. `hop_ms` is the duration of a hop, but
    /// [`CRAWL_MS`] of a host for which `crawls` holds; `carries` says whether a link works.
    ///
    /// Until all members have opened it, each is only promised the end of its wait. The last
    /// one begins the ring: the bytes are computed, and every member's chunks and end are planned.
    pub(crate) fn start(
        &mut self,
        ring: &Ring,
        hosts: &[usize],
        delta: Arc<Vec<f32>>,
        hop_ms: u64,
        crawls: impl Fn(usize) -> bool,
        carries: impl Fn(usize, usize) -> bool,
    ) -> Vec<Due> {
        let now_ms = self.now_ms;
        let (count, index, roster) = (ring.members.len(), ring.index, ring.roster);
        let run = self.runs.entry(roster).or_insert_with(|| Run {
            roster,
            members: ring.members.clone(),
            layout: ring.layout.clone(),
            hosts: hosts.to_vec(),
            deltas: vec![None; count],
            over: BTreeSet::new(),
            crawlers: (0..count).filter(|index| crawls(hosts[*index])).collect(),
            silent: BTreeSet::new(),
            hop_ms,
            began_ms: None,
            broke_ms: None,
            bytes: None,
        });
        let hop_ms = if run.crawlers.is_empty() { run.hop_ms } else { CRAWL_MS };
        run.deltas[index] = Some(Arc::new(assembly::gather(&delta, ring.layout.redone())));
        if run.broke_ms.is_some() || run.deltas.iter().any(Option::is_none) {
            return vec![run.due(QUIET_MS, index, Notice::Wait)];
        }
        run.bytes = run.reduce().map(Arc::new);
        run.began_ms = Some(now_ms);
        let hops = 2 * (count as u64 - 1);
        // The last hop of each half ends at another position, so members finish one after another.
        let after = |i: usize| (i as u64 * 5) % (hops + 1).min(SPREAD_HOPS);
        let end = |i: usize| 1 + hop_ms * hops + hop_ms * after(i) / 2;
        self.longest_ms = (0..count).map(end).fold(self.longest_ms, u64::max);
        let mut due: Vec<Due> = (0..count).map(|i| run.due(end(i), i, Notice::Finish)).collect();
        due.extend(run.chunks(hop_ms));
        due.extend(run.part(now_ms, Loss::Stalled, carries));
        due
    }

    /// A host is lost to all its open rings, or gives up that of `roster`. A host that is lost
    /// notices nothing more; one that gives up a ring gets its own last notice at once.
    pub(crate) fn lose(&mut self, host: usize, loss: Loss, roster: Option<Digest>) -> Vec<Due> {
        let (mut due, now_ms) = (Vec::new(), self.now_ms);
        for run in self.runs.values_mut() {
            let other = roster.is_some_and(|only| only != run.roster);
            let Some(index) = run.hosts.iter().position(|h| *h == host) else { continue };
            if other || run.over.contains(&host) {
                continue;
            }
            if roster.is_none() {
                run.over.insert(host);
            } else {
                due.push(run.due(0, index, Notice::Stop { lost: None, hops: 0 }));
            }
            if run.breaks(now_ms, index, loss) {
                due.extend(run.notices(index, loss));
            }
        }
        due
    }

    /// Some links have stopped working: rings that use them break.
    pub(crate) fn part(&mut self, loss: Loss, carries: impl Fn(usize, usize) -> bool) -> Vec<Due> {
        let now_ms = self.now_ms;
        let open = self.runs.values_mut().filter(|r| r.bytes.is_some() && r.broke_ms.is_none());
        open.flat_map(|run| run.part(now_ms, loss, &carries)).collect()
    }

    /// The range of a chunk in the bytes of its ring.
    pub(crate) fn place(&self, roster: &Digest, chunk: u32) -> Option<Range<usize>> {
        let chunk = usize::try_from(chunk).ok()?;
        Some(CODEC.place(&self.runs.get(roster)?.layout.cut().chunk(chunk)))
    }

    /// Takes a notice at its time. Returns what the host notices, if that still holds, and the
    /// bytes of the ring. Chunks come beside the rest; of all other notices a host takes the first
    /// that holds, and none after it. A wait that ends is a ring that has stopped.
    pub(crate) fn take(
        &mut self,
        roster: &Digest,
        host: usize,
        notice: &Notice,
    ) -> Option<(Notice, Option<Arc<Vec<u8>>>)> {
        let run = self.runs.get_mut(roster)?;
        let started = run.bytes.is_some() && run.broke_ms.is_none();
        let holds = match notice {
            Notice::Chunk(_) | Notice::Finish => started,
            Notice::Stop { .. } => !started,
            Notice::Wait => run.bytes.is_none(),
        };
        let hops = run.hops(self.now_ms, host);
        let notice = match notice {
            Notice::Stop { lost, .. } => Notice::Stop { lost: *lost, hops },
            Notice::Wait => Notice::Stop { lost: None, hops },
            other => other.clone(),
        };
        let bytes = run.bytes.clone();
        if holds && !run.over.contains(&host) && matches!(notice, Notice::Chunk(_)) {
            return Some((notice, bytes));
        }
        if !holds || !run.over.insert(host) {
            return None;
        }
        if run.over.len() == run.hosts.len() {
            self.runs.remove(roster);
        }
        Some((notice, bytes))
    }
}

impl Run {
    /// A notice for the member at `index`, and when it comes.
    fn due(&self, delay_ms: u64, index: usize, notice: Notice) -> Due {
        Due { delay_ms, host: self.hosts[index], roster: self.roster, notice }
    }

    /// The member at `index` sends nothing more. Returns whether that broke the ring. Only the
    /// first one breaks it; a ring stays broken, and what comes after changes no hops.
    fn breaks(&mut self, now_ms: u64, index: usize, loss: Loss) -> bool {
        let first = self.broke_ms.is_none();
        if first {
            // Streams that close end the others one after the other, so nobody receives more.
            if loss == Loss::Stalled {
                self.silent.insert(index);
            }
            self.broke_ms = Some(now_ms);
        }
        first
    }

    /// The hops that have come to a host whole. Each position can send one hop more than it has
    /// received, until a silent or slow one holds it up; four rounds carry that round the ring.
    fn hops(&self, now_ms: u64, host: usize) -> u32 {
        let count = self.hosts.len();
        let all = 2 * (count as u64 - 1);
        let since = |ms: u64| self.began_ms.map_or(0, |began| ms.saturating_sub(began));
        let sent = since(self.broke_ms.unwrap_or(now_ms)) / self.hop_ms.max(1);
        let crawled = since(now_ms) / CRAWL_MS;
        // What a position has sent at most; `None` if it sends all that it can.
        let stands = |at: usize| self.silent.contains(&at) || self.deltas[at].is_none();
        let held = |at: usize| match self.crawlers.contains(&at) {
            true => Some(crawled),
            false => stands(at).then_some(sent),
        };
        let is_held = (0..count).any(|at| held(at).is_some());
        let mut hops = vec![0; count];
        for at in (0..4 * count).map(|step| step % count) {
            let before = (at + count - 1) % count;
            hops[at] = (hops[before] + 1).min(held(before).unwrap_or(all)).min(all);
        }
        let index = self.hosts.iter().position(|h| *h == host);
        let hops = if is_held { index.map_or(0, |at| hops[at]) } else { sent.min(all) };
        u32::try_from(hops).unwrap_or(u32::MAX)
    }

    /// Breaks the ring where two neighbours have no link. Every member that still needs it notices.
    fn part(
        &mut self,
        now_ms: u64,
        loss: Loss,
        carries: impl Fn(usize, usize) -> bool,
    ) -> Vec<Due> {
        let count = self.hosts.len();
        let cut = (0..count).find(|i| !carries(self.hosts[*i], self.hosts[(i + 1) % count]));
        let Some(index) = cut else { return Vec::new() };
        self.breaks(now_ms, index, loss);
        let after = (index + 1) % count;
        let notice = |i: usize| match loss {
            Loss::Closed if i == index => self.stop(20, i, Some(after)),
            Loss::Closed if i == after => self.stop(20, i, Some(index)),
            Loss::Closed | Loss::Stalled => self.stop(QUIET_MS + 50, i, None),
        };
        (0..count).map(notice).collect()
    }

    /// What the others notice when the member at index `lost` is gone.
    fn notices(&self, lost: usize, loss: Loss) -> Vec<Due> {
        let count = self.members.len();
        let notice = |i: usize| {
            let neighbour = (i + 1) % count == lost || (lost + 1) % count == i;
            match loss {
                Loss::Closed if neighbour => self.stop(20, i, Some(lost)),
                Loss::Closed | Loss::Stalled => self.stop(QUIET_MS + 50, i, None),
            }
        };
        (0..count).filter(|i| *i != lost).map(notice).collect()
    }

    /// The notice that the ring of a member cannot end. The hops are filled in when it is taken.
    fn stop(&self, delay_ms: u64, index: usize, lost: Option<usize>) -> Due {
        let lost = lost.map(|at| self.members[at].peer);
        self.due(delay_ms, index, Notice::Stop { lost, hops: 0 })
    }

    /// When each member has each chunk: its owner after the reduce half, the others one by one. A
    /// chunk of no elements is left out.
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

    /// The bytes of the ring: each chunk goes round once and is finished by its owner. `None` if a
    /// member has not started, or a sum cannot be encoded. It is computed once for all, since each
    /// member would get the same bits.
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
