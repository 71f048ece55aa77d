//! The thread of a ring that owns the update's bytes and computes on them, in the order in which it
//! is asked.

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

/// What to do. Ranges of elements are the delta's, places are bytes of the update.
pub(super) enum Op {
    /// Compute a frame from its payload, if it has one, to its place.
    Reduce { work: Work, elements: Range<usize>, place: Range<usize>, payload: Vec<u8> },
    /// Put a finished frame to its place.
    Keep { elements: usize, place: Range<usize>, payload: Vec<u8> },
    /// Copy what lies at a place.
    Copy(Range<usize>),
    /// Hash a chunk.
    Hash { chunk: usize, place: Range<usize> },
    /// Hash and hand out the update.
    Whole,
    /// Hand out what there is of it.
    Remains,
}

/// What was done.
pub(super) enum Product {
    /// For [`Op::Reduce`].
    Reduced(Result<(), ReduceError>),
    /// For [`Op::Keep`]: whether it decodes.
    Kept(Result<(), DecodeError>),
    /// For [`Op::Copy`].
    Copied(Vec<u8>),
    /// For [`Op::Hash`].
    Hashed(usize, Digest),
    /// For [`Op::Whole`].
    Whole(Arc<Vec<u8>>, Digest),
    /// For [`Op::Remains`].
    Remains(Arc<Vec<u8>>),
}

/// The loop's end of the thread; dropped, the thread ends.
pub(super) struct Bench {
    ops: mpsc::Sender<Op>,
    replies: mpsc::Receiver<Product>,
    asked: usize,
}

impl Bench {
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
        // Without a thread nobody replies, and the ring ends with that.
        let _ = thread::Builder::new().name("ring".to_owned()).spawn(work);
        Self { ops, replies, asked: 0 }
    }

    /// Asks for something; the replies come in the same order.
    pub(super) async fn ask(&mut self, op: Op) {
        self.asked += 1;
        assert!(self.asked <= OPS, "the loop reads only while little is asked for");
        // A thread that is gone is noticed by the next reply.
        let _ = self.ops.send(op).await;
    }

    /// The next reply; `None` when the thread is gone.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn reply(&mut self) -> Option<Product> {
        let reply = self.replies.recv().await;
        self.asked = self.asked.saturating_sub(1);
        reply
    }

    /// What there is of the update, once all that was asked for is done; the last thing to ask.
    pub(super) async fn remains(&mut self) -> Option<Arc<Vec<u8>>> {
        self.ask(Op::Remains).await;
        loop {
            if let Product::Remains(bytes) = self.reply().await? {
                return Some(bytes);
            }
        }
    }

    /// What was asked for and not replied to yet.
    pub(super) fn asked(&self) -> usize {
        self.asked
    }
}

struct Table {
    codec: Codec,
    delta: Arc<Vec<f32>>,
    weight: u64,
    total: u64,
    update: Arc<Vec<u8>>,
}

impl Table {
    fn apply(&mut self, op: Op) -> Product {
        match op {
            Op::Reduce { work, elements, place, payload } => {
                let (codec, weight) = (self.codec, self.weight);
                let share = Share { codec, weight, delta: &self.delta[elements] };
                // Nobody else holds the update before it is whole, so this copies nothing.
                let out = &mut Arc::make_mut(&mut self.update)[place];
                Product::Reduced(match work {
                    Work::Start => share.start(out),
                    Work::Add => share.add(&payload, out),
                    Work::Finish => share.finish(&payload, self.total, out),
                    Work::Alone => share.alone(out),
                })
            }
            Op::Keep { elements, place, payload } => {
                let valid = self.codec.validate(&payload, elements);
                if valid.is_ok() {
                    Arc::make_mut(&mut self.update)[place].copy_from_slice(&payload);
                }
                Product::Kept(valid)
            }
            Op::Copy(place) => Product::Copied(self.update[place].to_vec()),
            Op::Hash { chunk, place } => Product::Hashed(chunk, digest(&self.update[place])),
            Op::Whole => Product::Whole(self.update.clone(), digest(&self.update)),
            Op::Remains => Product::Remains(self.update.clone()),
        }
    }
}

fn digest(bytes: &[u8]) -> Digest {
    Digest(*blake3::hash(bytes).as_bytes())
}

/// Operations that may wait, and replies: six reads, each with a hash, six sums, a copy, and the
/// end.
const OPS: usize = 32;
