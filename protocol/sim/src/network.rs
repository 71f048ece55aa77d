//! The simulated network: how long a message takes, whether it arrives, and how often.
//!
//! Every peer has a distance from the middle of the network. A message takes both distances
//! and some jitter, so messages overtake each other. Gossip reaches every peer that one
//! relay reaches; a direct message needs a link that is open both ways. A black hole is an
//! open link that carries nothing.
//!
//! Nothing is bounded by bandwidth here: what a transfer takes is up to `world/fetch.rs`, and a
//! ring is only time (`rings`).
//!
//! The network decides and stores nothing in between: the world asks it when a message leaves, and
//! queues what comes out. So a message that is under way arrives even if its link breaks meanwhile.

use std::collections::BTreeSet;

use intellect_protocol::base::rng::Rng;

/// The fate of one message between two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It arrives after its usual time.
    Deliver,
    /// It never arrives, and its sender does not notice.
    Drop,
    /// It arrives this many milliseconds later than usual.
    Delay(u64),
    /// It arrives after its usual time, and once more this many milliseconds later.
    Again(u64),
}

/// The links, and what is wrong with them now.
#[derive(Clone, Debug, Default)]
pub(crate) struct Network {
    /// Distance of each peer from the middle, in milliseconds; at least 2. It never changes.
    distance_ms: Vec<u64>,
    /// Added to each message from or to a peer, in milliseconds; 0 where the peer is not slow.
    pub(crate) slow_ms: Vec<u64>,
    /// Chance that a message from or to a peer is lost, in addition to `loss`; from 0 to 1.
    pub(crate) deaf: Vec<f64>,
    /// The side of a partition on which each peer is. All are on side 0 while there is none.
    pub(crate) side: Vec<u32>,
    /// Links that carry nothing in this direction and are closed, from the first host to the
    /// second. The sender notices, and gossips instead.
    pub(crate) broken: BTreeSet<(usize, usize)>,
    /// Links that stay open and swallow what is sent in this direction. The sender does not notice.
    pub(crate) swallows: BTreeSet<(usize, usize)>,
    /// Hosts that no other host can dial; `None`: processes get no inputs about connections.
    pub(crate) undialable: Option<BTreeSet<usize>>,
    /// Pairs, the smaller host first, without a direct connection: no ring uses such a pair.
    pub(crate) unlinked: BTreeSet<(usize, usize)>,
    /// Chance that a message is lost.
    pub(crate) loss: f64,
    /// Chance that a message arrives twice.
    pub(crate) duplicate: f64,
    /// Chance that a message is late by up to two seconds.
    pub(crate) spike: f64,
    /// The greatest jitter of a message, in milliseconds; with 0 there is none.
    pub(crate) jitter_ms: u64,
}

impl Network {
    /// A network without faults of `peers` peers, each up to `distance_ms` from its middle and
    /// 2 ms more. It draws once for each peer.
    pub(crate) fn new(peers: usize, distance_ms: u64, jitter_ms: u64, rng: &mut Rng) -> Self {
        Self {
            distance_ms: (0..peers).map(|_| 2 + rng.below(distance_ms)).collect(),
            slow_ms: vec![0; peers],
            deaf: vec![0.0; peers],
            side: vec![0; peers],
            jitter_ms,
            ..Self::default()
        }
    }

    /// Undoes every fault that strikes now. Missing direct connections stay: they are how this
    /// network is, and no fault.
    pub(crate) fn heal(&mut self) {
        self.slow_ms.fill(0);
        self.deaf.fill(0.0);
        self.side.fill(0);
        self.broken.clear();
        self.swallows.clear();
        (self.loss, self.duplicate, self.spike) = (0.0, 0.0, 0.0);
    }

    /// Whether the link carries messages from one host to another. The other direction is a
    /// question of its own.
    pub(crate) fn carries(&self, from: usize, to: usize) -> bool {
        self.side[from] == self.side[to]
            && !self.broken.contains(&(from, to))
            && !self.swallows.contains(&(from, to))
    }

    /// Whether a stream between two hosts is open, though it may carry nothing. A sender uses an
    /// open stream even if it swallows everything; without one it gossips.
    pub(crate) fn is_open(&self, a: usize, b: usize) -> bool {
        let broken = self.broken.contains(&(a, b)) || self.broken.contains(&(b, a));
        self.side[a] == self.side[b] && !broken
    }

    /// Whether the link carries both ways, as a stream needs.
    pub(crate) fn linked(&self, a: usize, b: usize) -> bool {
        self.carries(a, b) && self.carries(b, a)
    }

    /// Whether a ring can use the pair: the link carries both ways, and a direct connection exists.
    pub(crate) fn joins(&self, a: usize, b: usize) -> bool {
        self.linked(a, b) && !self.unlinked.contains(&(a.min(b), a.max(b)))
    }

    /// How many links gossip takes from one host to another, through at most one of `relays`: one
    /// or two, and `None` if it does not get there. Real gossip also takes longer ways; here a peer
    /// that two hops do not reach hears nothing, which is harder on the rules.
    pub(crate) fn hops(&self, from: usize, to: usize, relays: &[usize]) -> Option<u64> {
        if self.carries(from, to) {
            return Some(1);
        }
        let passes = |via: &usize| self.carries(from, *via) && self.carries(*via, to);
        relays.iter().any(passes).then_some(2)
    }

    /// How long one message takes, in milliseconds. Draws jitter, and a spike where there are some.
    pub(crate) fn delay_ms(&self, from: usize, to: usize, rng: &mut Rng) -> u64 {
        let way = self.distance_ms[from] + self.distance_ms[to];
        let late = if self.spike > 0.0 && rng.chance(self.spike) { rng.below(2_000) } else { 0 };
        way + self.slow_ms[from] + self.slow_ms[to] + rng.below(self.jitter_ms) + late
    }

    /// A round trip without any fault, in milliseconds.
    pub(crate) fn round_trip_ms(&self, a: usize, b: usize) -> u32 {
        let both = 2 * (self.distance_ms[a] + self.distance_ms[b]) + self.jitter_ms;
        u32::try_from(both).unwrap_or(u32::MAX)
    }

    /// After how many milliseconds a message arrives: never, once, or twice. `hops` is the number
    /// of links that it takes; each costs the whole way.
    pub(crate) fn arrivals(
        &self,
        from: usize,
        to: usize,
        hops: u64,
        rng: &mut Rng,
    ) -> [Option<u64>; 2] {
        if self.loses(from, to, rng) {
            return [None, None];
        }
        let again = self.duplicate > 0.0 && rng.chance(self.duplicate);
        let first = self.delay_ms(from, to, rng) * hops;
        [Some(first), again.then(|| first + rng.below(1_500))]
    }

    /// Draws whether a message between two hosts is lost. Where nothing is lost it draws nothing.
    pub(crate) fn loses(&self, from: usize, to: usize, rng: &mut Rng) -> bool {
        let arrives = (1.0 - self.loss) * (1.0 - self.deaf[from]) * (1.0 - self.deaf[to]);
        arrives < 1.0 && !rng.chance(arrives)
    }
}
