//! The thread of a ring that owns the bytes of the update, and computes on them in the order in which it is
//! asked.
//!
//! The loop of the ring may ask for at most [`OPS`] operations before it takes their replies. Then
//! neither channel is ever full, and the loop and the thread cannot wait for each other.

use std::{ops::Range, sync::Arc, thread};

use intellect_protocol::{
    base::id::Digest,
    ring::{
        codec::{
            Codec, DecodeError,
            reduce::{ReduceError, Share},
        },
        exchange::Work,
    },
};
use tokio::sync::mpsc;

/// One operation. `elements` are those of the delta, `range` are bytes of the update.
pub(super) enum Op {
    /// Compute a frame, from its payload if it has one.
    Reduce { work: Work, elements: Range<usize>, range: Range<usize>, payload: Vec<u8> },
    /// Store a finished frame, if it decodes.
    Keep { elements: usize, range: Range<usize>, payload: Vec<u8> },
    /// Copy a range for the writer.
    Copy(Range<usize>),
    /// Hash the bytes of one chunk.
    Hash { chunk: usize, range: Range<usize> },
    /// Hash and return the whole update.
    Whole,
    /// Return what there is of the update.
    Salvage,
}

/// The result of one operation.
pub(super) enum Product {
    /// The result of a sum. An error is the sender's if it does not decode, and nobody's if it is
    /// too large.
    Reduced(Result<(), ReduceError>),
    /// Whether a frame to store decodes.
    Kept(Result<(), DecodeError>),
    /// The copy, which the writer sends as it is.
    Copied(Vec<u8>),
    /// The chunk that was hashed, and its digest.
    Hashed(usize, Digest),
    /// The update and its digest, by which it is named from here on.
    Whole(Arc<Vec<u8>>, Digest),
    /// The update as far as it is finished. The caller knows which chunks are.
    Salvaged(Arc<Vec<u8>>),
}

/// The handle of the thread, which ends when this is dropped.
pub(super) struct ComputeThread {
    /// Operations for the thread, in the order in which it does them.
    ops: mpsc::Sender<Op>,
    /// The results, in the same order.
    replies: mpsc::Receiver<Product>,
    /// Operations without a reply yet, at most [`OPS`].
    asked: usize,
}

impl ComputeThread {
    /// Starts the thread for a delta of this weight in a ring of this total weight.
    pub(super) fn start(codec: Codec, delta: Arc<Vec<f32>>, weight: u64, total: u64) -> Self {
        let (ops, mut inbox) = mpsc::channel(OPS);
        let (outbox, replies) = mpsc::channel(OPS);
        let work = move || {
            let update = Arc::new(vec![0; codec.encoded_bytes(delta.len())]);
            let mut table = Table { codec, delta, weight, total, update };
            while let Some(op) = inbox.blocking_recv() {
                if outbox.blocking_send(table.apply(op)).is_err() {
                    return;
                }
            }
        };
        // Without a thread there are no replies, which ends the ring.
        let _ = thread::Builder::new().name("ring".to_owned()).spawn(work);
        Self { ops, replies, asked: 0 }
    }

    /// Asks for an operation; replies come in the same order.
    pub(super) async fn ask(&mut self, op: Op) {
        self.asked += 1;
        assert!(self.asked <= OPS, "the loop reads only while little is asked for");
        // The next reply shows that the thread has ended.
        let _ = self.ops.send(op).await;
    }

    /// The next reply; `None` when the thread has ended.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn reply(&mut self) -> Option<Product> {
        let reply = self.replies.recv().await;
        self.asked = self.asked.saturating_sub(1);
        reply
    }

    /// Returns what there is of the update after all operations; the last thing to ask for.
    pub(super) async fn salvage(&mut self) -> Option<Arc<Vec<u8>>> {
        self.ask(Op::Salvage).await;
        loop {
            if let Product::Salvaged(bytes) = self.reply().await? {
                return Some(bytes);
            }
        }
    }

    /// How many operations have no reply yet.
    pub(super) fn asked(&self) -> usize {
        self.asked
    }
}

/// What the thread owns. Nothing outside reads the update before it is whole or salvaged.
struct Table {
    /// Encodes sums, and decodes what comes.
    codec: Codec,
    /// Our frozen delta, of which a frame uses a range of elements.
    delta: Arc<Vec<f32>>,
    /// Our tokens, by which the delta is multiplied.
    weight: u64,
    /// The tokens of all members: the divisor of the mean.
    total: u64,
    /// The bytes of the update, zero where nothing has come yet.
    update: Arc<Vec<u8>>,
}

impl Table {
    /// Does one operation. Ranges come from the cut of the ring, which both the machine and this
    /// table derive from the same job, so they always fit.
    fn apply(&mut self, op: Op) -> Product {
        match op {
            Op::Reduce { work, elements, range, payload } => {
                let (codec, weight) = (self.codec, self.weight);
                let share = Share { codec, weight, delta: &self.delta[elements] };
                // The update is shared only once it is whole, so this copies nothing.
                let out = &mut Arc::make_mut(&mut self.update)[range];
                Product::Reduced(match work {
                    Work::Start => share.start(out),
                    Work::Add => share.add(&payload, out),
                    Work::Finish => share.finish(&payload, self.total, out),
                    Work::Alone => share.alone(out),
                })
            }
            Op::Keep { elements, range, payload } => {
                let valid = self.codec.validate(&payload, elements);
                if valid.is_ok() {
                    Arc::make_mut(&mut self.update)[range].copy_from_slice(&payload);
                }
                Product::Kept(valid)
            }
            Op::Copy(range) => Product::Copied(self.update[range].to_vec()),
            Op::Hash { chunk, range } => Product::Hashed(chunk, digest(&self.update[range])),
            Op::Whole => Product::Whole(self.update.clone(), digest(&self.update)),
            Op::Salvage => Product::Salvaged(self.update.clone()),
        }
    }
}

/// BLAKE3 of bytes, as every update and chunk is named.
fn digest(bytes: &[u8]) -> Digest {
    Digest(*blake3::hash(bytes).as_bytes())
}

/// Operations and replies that may wait: six reads, each with a hash, six sums, a copy, and the end.
const OPS: usize = 32;
