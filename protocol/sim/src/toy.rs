//! A toy in place of the model: a thousand numbers that move as the mathematics of the run says.
//!
//! A peer's work is a count of tokens per process: `trained` so many, of which in each block all below
//! `spent` are in receipts of its lineage. Freezing makes a delta of everything in between, as
//! docs/MATH.md has it: what was left out is carried, block by block. So every delta is, in each block, a
//! range of tokens of one process, and the checks can hold each range against every receipt (S4).
//!
//! ```text
//! v ← μ·v + d̄;  θ ← θ − η·(d̄ + μ·v)
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use intellect_protocol::blocks::{BLOCK, Blocks};
use intellect_protocol::codec::Codec;
use intellect_protocol::epoch::Apply;
use intellect_protocol::id::{Digest, PeerId};
use intellect_protocol::message::Head;
use intellect_protocol::peer::UPDATES_KEPT;
use intellect_protocol::rng::Rng;

/// Elements of the toy's parameters: sixteen blocks, the last one short.
pub(crate) const ELEMENTS: usize = 4_000;
/// Its blocks.
pub(crate) const BLOCKS: usize = ELEMENTS.div_ceil(BLOCK);
/// How deltas travel.
pub(crate) const CODEC: Codec = Codec::Int8;
/// The greatest weight that a Ready may declare.
pub(crate) const WEIGHT_MAX: u64 = 8 * 100;
/// Committed states that a process keeps and serves.
const KEPT: usize = 3;
const ETA: f32 = 0.7;
const MU: f32 = 0.6;

/// A committed state.
#[derive(Clone, Debug)]
pub(crate) struct Anchor {
    pub(crate) epoch: u64,
    pub(crate) tokens: u64,
    r: Digest,
    theta: Vec<f32>,
    velocity: Vec<f32>,
}

impl Anchor {
    /// The state that every process of a run starts from.
    pub(crate) fn genesis(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let theta = (0..ELEMENTS).map(|_| number(&mut rng)).collect();
        Self { epoch: 0, tokens: 0, r: Digest::ZERO, theta, velocity: vec![0.0; ELEMENTS] }
    }

    /// The state digest.
    pub(crate) fn digest(&self) -> Digest {
        let mut bytes = Vec::with_capacity(8 * ELEMENTS + 48);
        bytes.extend_from_slice(&self.epoch.to_le_bytes());
        bytes.extend_from_slice(&self.tokens.to_le_bytes());
        bytes.extend_from_slice(self.r.as_bytes());
        for value in self.theta.iter().chain(&self.velocity) {
            bytes.extend_from_slice(&value.to_le_bytes());
        }
        Digest::derive("intellect-node 1 simulated state", &bytes)
    }

    /// The state after the outer step of `apply`.
    pub(crate) fn step(&self, apply: &Apply, update: &[u8]) -> Option<Self> {
        let mut mean = vec![0.0; ELEMENTS];
        CODEC.decode(update, &mut mean).ok()?;
        let mut next =
            Self { epoch: apply.epoch, tokens: apply.tokens, r: apply.r, ..self.clone() };
        for ((theta, velocity), d) in next.theta.iter_mut().zip(&mut next.velocity).zip(&mean) {
            *velocity = MU * *velocity + d;
            *theta -= ETA * (d + MU * *velocity);
        }
        Some(next)
    }
}

/// A delta that does not change until the next commit (R31).
#[derive(Clone, Debug)]
pub(crate) struct Frozen {
    pub(crate) delta: Arc<Vec<f32>>,
    /// Which tokens of this process count as its weight.
    pub(crate) span: Range<u64>,
    /// Which are in each block: from here to the end of the span.
    pub(crate) from: Vec<u64>,
}

impl Frozen {
    /// The weight that its Ready declares.
    pub(crate) fn weight(&self) -> u64 {
        (self.span.end - self.span.start).min(WEIGHT_MAX)
    }
}

/// What one process knows beside the protocol.
#[derive(Clone, Debug)]
pub(crate) struct Toy {
    pub(crate) anchor: Arc<Anchor>,
    /// Committed states, by digest; the newest [`KEPT`].
    served: BTreeMap<(u64, Digest), Arc<Anchor>>,
    /// Digests of committed updates; the newest [`UPDATES_KEPT`].
    committed: VecDeque<Digest>,
    /// Bytes of these and of those of the open epoch, by digest.
    pub(crate) updates: BTreeMap<Digest, Arc<Vec<u8>>>,
    /// Finished chunks of the open epoch, by roster and number.
    pub(crate) chunks: BTreeMap<(Digest, u32), Arc<Vec<u8>>>,
    pub(crate) frozen: Option<Frozen>,
    unspent: Vec<f32>,
    /// Tokens that some block has spent, and those that each block has.
    spent: u64,
    spent_in: Vec<u64>,
    trained: u64,
    rng: Rng,
}

impl Toy {
    /// A process that starts from genesis.
    pub(crate) fn new(genesis: Arc<Anchor>, name: &PeerId, incarnation: u64) -> Self {
        let seed = Digest::derive("intellect-node 1 simulated data", name.as_bytes());
        let [a, b, c, d, e, f, g, h, ..] = seed.0;
        let seed = u64::from_le_bytes([a, b, c, d, e, f, g, h]).wrapping_add(incarnation);
        Self {
            anchor: genesis,
            served: BTreeMap::new(),
            committed: VecDeque::new(),
            updates: BTreeMap::new(),
            chunks: BTreeMap::new(),
            frozen: None,
            unspent: vec![0.0; ELEMENTS],
            spent: 0,
            spent_in: vec![0; BLOCKS],
            trained: 0,
            rng: Rng::new(seed),
        }
    }

    /// Ends an epoch's training of `tokens`, and freezes all that is unspent.
    pub(crate) fn freeze(&mut self, tokens: u64) -> Frozen {
        self.trained += tokens;
        for value in &mut self.unspent {
            *value += number(&mut self.rng);
        }
        let delta = Arc::new(self.unspent.clone());
        let (span, from) = (self.spent..self.trained, self.spent_in.clone());
        let frozen = Frozen { delta, span, from };
        self.frozen = Some(frozen.clone());
        frozen
    }

    /// Takes an outer step; `None` when the update is not held, or cannot be decoded.
    pub(crate) fn apply(&mut self, apply: &Apply) -> Option<Digest> {
        let next = self.anchor.step(apply, self.updates.get(&apply.update)?)?;
        self.settle(&apply.spent);
        self.committed.retain(|digest| *digest != apply.update);
        self.committed.push_back(apply.update);
        if self.committed.len() > UPDATES_KEPT {
            self.committed.pop_front();
        }
        let committed = &self.committed;
        self.updates.retain(|digest, _| committed.contains(digest));
        Some(self.enter(Arc::new(next)))
    }

    /// Continues from a fetched state.
    pub(crate) fn load(&mut self, anchor: Arc<Anchor>, spent: &Blocks) {
        self.settle(spent);
        self.enter(anchor);
    }

    /// States that a disk still has, older than the one that it starts from.
    pub(crate) fn keep(&mut self, states: Vec<Arc<Anchor>>) {
        for anchor in states {
            self.served.insert((anchor.epoch, anchor.digest()), anchor);
            if self.served.len() > KEPT {
                self.served.pop_first();
            }
        }
    }

    /// The committed state that `head` and `r` name, if it is still kept.
    pub(crate) fn serve(&self, head: &Head, r: &Digest) -> Option<Arc<Anchor>> {
        self.served.get(&(head.epoch, head.state)).filter(|anchor| anchor.r == *r).cloned()
    }

    /// Which of its tokens each block has that it has trained and not spent.
    pub(crate) fn unspent(&self) -> Vec<Range<u64>> {
        self.spent_in.iter().map(|spent| *spent..self.trained).collect()
    }

    fn settle(&mut self, spent: &Blocks) {
        self.frozen = None;
        if !spent.is_empty() {
            self.spent = self.trained;
        }
        for range in spent.elements(ELEMENTS as u64) {
            self.unspent[range].fill(0.0);
        }
        for block in spent.ranges().flatten() {
            self.spent_in[usize::try_from(block).unwrap_or(0)] = self.trained;
        }
    }

    fn enter(&mut self, anchor: Arc<Anchor>) -> Digest {
        let state = anchor.digest();
        self.chunks.clear();
        self.served.insert((anchor.epoch, state), Arc::clone(&anchor));
        while self.served.len() > KEPT {
            self.served.pop_first();
        }
        self.anchor = anchor;
        state
    }
}

/// A number in [−1, 1).
fn number(rng: &mut Rng) -> f32 {
    let unit = u16::try_from(rng.next_u64() >> 48).unwrap_or(0);
    f32::from(unit) / 32_768.0 - 1.0
}
