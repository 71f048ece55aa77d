//! A toy in place of the model: 4,000 numbers that move by the equations of the run.
//!
//! A peer's work is a count of tokens per process. It has trained `trained` tokens; in each
//! block, those below `spent` are in receipts of its lineage. Freezing makes a delta of
//! everything in between, as docs/MATH.md has it: work that was left out is carried, block by
//! block. So in each block every delta is a range of tokens of one process, and the checks
//! compare each range with every receipt (S4).
//!
//! ```text
//! v ← μ·v + d̄;  θ ← θ − η·(d̄ + μ·v)
//! ```

use std::ops::Range;
use std::sync::Arc;

use intellect_protocol::base::blocks::{BLOCK, Blocks};
use intellect_protocol::base::id::{Digest, PeerId};
use intellect_protocol::base::rng::Rng;
use intellect_protocol::consensus::epoch::Apply;
use intellect_protocol::download::Piece;
use intellect_protocol::message::Head;
use intellect_protocol::ring::codec::Codec;

/// Elements of the toy's parameters: sixteen blocks, the last one short.
pub(crate) const ELEMENTS: usize = 4_000;
/// Blocks of the toy's parameters.
pub(crate) const BLOCKS: usize = ELEMENTS.div_ceil(BLOCK);
/// The codec of every simulated run.
pub(crate) const CODEC: Codec = Codec::Int8;
/// Tokens that one peer trains in an epoch.
pub(crate) const TOKENS: u64 = 100;
/// The greatest weight that a Ready may declare.
pub(crate) const WEIGHT_MAX: u64 = 8 * TOKENS;
/// Bytes of a state: θ and v as f32.
pub(crate) const STATE_BYTES: usize = 8 * ELEMENTS;
/// Bytes of a piece of a state; the last one is shorter.
const PIECE_BYTES: usize = 2_048;
/// Bytes before the digests in a table: epoch, tokens and receipt.
const TABLE_HEADER_BYTES: usize = 48;
/// Bytes of a whole table, with a digest of each piece.
pub(crate) const TABLE_BYTES: usize = TABLE_HEADER_BYTES + 32 * STATE_BYTES.div_ceil(PIECE_BYTES);
/// η of the outer step, as in the equations above.
const ETA: f32 = 0.7;
/// μ of the outer step, as in the equations above.
const MU: f32 = 0.6;

/// A committed state: the head's numbers, and θ and v.
#[derive(Clone, Debug)]
pub(crate) struct Anchor {
    /// The epoch after which the state is; 0 at genesis.
    pub(crate) epoch: u64,
    /// The tokens in all receipts up to here.
    pub(crate) tokens: u64,
    /// Digest of the last receipt; zero at genesis.
    r: Digest,
    /// Digest of all of it; stored, since it is asked for often.
    state: Digest,
    /// θ, the agreed parameters, as many as [`ELEMENTS`].
    theta: Vec<f32>,
    /// v, the outer momentum, as long as θ.
    velocity: Vec<f32>,
}

impl Anchor {
    /// The state from which every process of a run starts.
    pub(crate) fn genesis(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let theta = (0..ELEMENTS).map(|_| number(&mut rng)).collect();
        let (r, state, velocity) = (Digest::ZERO, Digest::ZERO, vec![0.0; ELEMENTS]);
        Self { epoch: 0, tokens: 0, r, state, theta, velocity }.named()
    }

    /// The digest by which the protocol names this state.
    pub(crate) fn digest(&self) -> Digest {
        self.state
    }

    /// Computes the digest anew after the numbers have changed.
    fn named(mut self) -> Self {
        self.state = table_digest(&self.table());
        self
    }

    /// The bytes behind the digest: epoch, tokens, receipt, and the digest of every piece.
    pub(crate) fn table(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(TABLE_BYTES);
        bytes.extend_from_slice(&self.epoch.to_le_bytes());
        bytes.extend_from_slice(&self.tokens.to_le_bytes());
        bytes.extend_from_slice(self.r.as_bytes());
        for piece in self.numbers().chunks(PIECE_BYTES) {
            bytes.extend_from_slice(blake3::hash(piece).as_bytes());
        }
        bytes
    }

    /// The numbers θ and v as they are sent, in pieces.
    pub(crate) fn numbers(&self) -> Vec<u8> {
        self.theta.iter().chain(&self.velocity).flat_map(|value| value.to_le_bytes()).collect()
    }

    /// The state with this head and receipt, from numbers that were received. The digest is
    /// computed from the numbers, and not taken from the head.
    pub(crate) fn of(head: &Head, r: Digest, numbers: &[u8]) -> Self {
        let value = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().unwrap_or_default());
        let mut theta: Vec<f32> = numbers.chunks(4).map(value).collect();
        let velocity = theta.split_off(ELEMENTS.min(theta.len()));
        let (Head { epoch, tokens, .. }, state) = (*head, Digest::ZERO);
        Self { epoch, tokens, r, state, theta, velocity }.named()
    }

    /// The head whose state this is.
    pub(crate) fn head(&self) -> Head {
        Head { epoch: self.epoch, tokens: self.tokens, state: self.digest() }
    }

    /// The state after the outer step of `apply`. `None` if the update cannot be decoded.
    pub(crate) fn step(&self, apply: &Apply, update: &[u8]) -> Option<Self> {
        let mut mean = vec![0.0; ELEMENTS];
        CODEC.decode(update, &mut mean).ok()?;
        let mut next =
            Self { epoch: apply.epoch, tokens: apply.tokens, r: apply.r, ..self.clone() };
        for ((theta, velocity), d) in next.theta.iter_mut().zip(&mut next.velocity).zip(&mean) {
            *velocity = MU * *velocity + d;
            *theta -= ETA * (d + MU * *velocity);
        }
        Some(next.named())
    }
}

/// A delta that does not change until the next commit (R31).
#[derive(Clone, Debug)]
pub(crate) struct Frozen {
    /// One number per element of the parameters.
    pub(crate) delta: Arc<Vec<f32>>,
    /// The tokens of this process that count as its weight.
    pub(crate) span: Range<u64>,
    /// The first token in each block; all tokens from there to the end of the span are in it.
    pub(crate) from: Vec<u64>,
    /// The greatest weight that its Ready may declare.
    most: u64,
}

impl Frozen {
    /// The weight that its Ready declares.
    pub(crate) fn weight(&self) -> u64 {
        (self.span.end - self.span.start).min(self.most)
    }
}

/// The model and data of one process.
#[derive(Clone, Debug)]
pub(crate) struct Toy {
    /// The state of the head, to which the next outer step is applied.
    pub(crate) anchor: Arc<Anchor>,
    /// The delta of the open epoch, once its training has ended.
    pub(crate) frozen: Option<Frozen>,
    /// What is learnt and in no receipt of its lineage, element by element.
    unspent: Vec<f32>,
    /// The token up to which the weight was counted when something was last spent. The weight of
    /// the next delta begins here, whatever older work some blocks still carry.
    spent: u64,
    /// The token up to which each block is spent.
    spent_in: Vec<u64>,
    /// Tokens trained by this process in all. They are counted from 0 at each start.
    trained: u64,
    /// Draws what stands in for gradients.
    rng: Rng,
}

impl Toy {
    /// A process that starts from genesis. Two starts of one peer draw different data.
    pub(crate) fn new(genesis: Arc<Anchor>, name: &PeerId, incarnation: u64) -> Self {
        let seed = Digest::derive("intellect-node 1 simulated data", name.as_bytes());
        let [a, b, c, d, e, f, g, h, ..] = seed.0;
        let seed = u64::from_le_bytes([a, b, c, d, e, f, g, h]).wrapping_add(incarnation);
        Self {
            anchor: genesis,
            frozen: None,
            unspent: vec![0.0; ELEMENTS],
            spent: 0,
            spent_in: vec![0; BLOCKS],
            trained: 0,
            rng: Rng::new(seed),
        }
    }

    /// Ends an epoch's training of `tokens` and freezes all unspent work;
    /// at most `most` of it counts.
    pub(crate) fn freeze(&mut self, tokens: u64, most: u64) -> Frozen {
        self.trained += tokens;
        for value in &mut self.unspent {
            *value += number(&mut self.rng);
        }
        let delta = Arc::new(self.unspent.clone());
        let (span, from) = (self.spent..self.trained, self.spent_in.clone());
        let frozen = Frozen { delta, span, from, most };
        self.frozen = Some(frozen.clone());
        frozen
    }

    /// Takes an outer step; `None` if the update cannot be decoded.
    pub(crate) fn apply(&mut self, apply: &Apply, update: &[u8]) -> Option<()> {
        let next = self.anchor.step(apply, update)?;
        self.settle(&apply.spent);
        self.anchor = Arc::new(next);
        Some(())
    }

    /// Continues from a fetched state; `spent` are the blocks in which it has work of this process.
    pub(crate) fn load(&mut self, anchor: Arc<Anchor>, spent: &Blocks) {
        self.settle(spent);
        self.anchor = anchor;
    }

    /// For each block, the tokens that are trained and not spent.
    pub(crate) fn unspent(&self) -> Vec<Range<u64>> {
        self.spent_in.iter().map(|spent| *spent..self.trained).collect()
    }

    /// Ends the work on a frozen delta; data whose update was committed is spent.
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
}

/// The digest of the state with this table.
pub(crate) fn table_digest(table: &[u8]) -> Digest {
    Digest::derive("intellect-node 1 simulated state", table)
}

/// The pieces that a table names.
pub(crate) fn pieces(table: &[u8]) -> Vec<Piece> {
    let digests = table.get(TABLE_HEADER_BYTES..).unwrap_or_default().chunks_exact(32);
    let piece = |(number, digest): (usize, &[u8])| {
        let offset = number * PIECE_BYTES;
        Piece {
            offset: offset as u64,
            length: u32::try_from(PIECE_BYTES.min(STATE_BYTES - offset)).unwrap_or(0),
            digest: Digest(digest.try_into().unwrap_or_default()),
        }
    };
    digests.take(STATE_BYTES.div_ceil(PIECE_BYTES)).enumerate().map(piece).collect()
}

/// A number in [−1, 1), which stands in for a gradient.
fn number(rng: &mut Rng) -> f32 {
    let unit = u16::try_from(rng.next_u64() >> 48).unwrap_or(0);
    f32::from(unit) / 32_768.0 - 1.0
}
