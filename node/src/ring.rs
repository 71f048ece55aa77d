//! The data plane of one ring: runs `protocol`'s exchange over a stream from the predecessor and a
//! stream to the successor.
//!
//! ```text
//! reader (task) ──items──▶ loop (exchange::State) ──items──▶ writer (task)
//!                            │ ▲
//!                         ops│ │replies
//!                            ▼ │
//!                     bench (thread): the update's bytes, arithmetic, hashes
//! ```
//!
//! The machine decides, the bench computes, in the order in which it is asked. Every payload is
//! checked against its label before anyone sees it, and everything that is kept is decoded once:
//! who votes for an update knows that it can be applied.
//!
//! Memory: the update and at most eight frames; every queue is bounded, and the reader stops while
//! the bench is behind, so a fast predecessor is held back by the transport. Sending is paced in
//! slices, so that a slow link still shows life.
//!
//! Chunks that are finished are told of at once: should the ring not end, they are kept (R10).

mod bench;
mod pace;
mod patience;
mod stream;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use intellect_protocol::{
    base::{
        blocks::Blocks,
        fault::{Fault, FrameFault},
        id::{Digest, PeerId, RunId},
        sign::Keypair,
    },
    message::{Member, seal::Seal},
    ring::{
        Cut,
        codec::{Codec, reduce::ReduceError},
        exchange::{
            Config, FRAMES_MAX, Input, Item, Output, State,
            frame::{Kind, Label, PREAMBLE_BYTES, Preamble},
        },
    },
};
use tokio::{
    io::{self, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    sync::mpsc,
    task::JoinSet,
    time,
};
use tokio_util::sync::CancellationToken;

use bench::{Bench, Op, Product};
pub(crate) use pace::{Pace, SLICE_BYTES, Take};
pub(crate) use patience::Patience;
use stream::{End, Packet};

/// One ring to run.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    /// The run.
    pub(crate) run: RunId,
    /// Digest of the roster.
    pub(crate) roster: Digest,
    /// How the fragment is cut: all of it, or what earlier rings have not finished.
    pub(crate) cut: Cut,
    /// Members with a place, in ring order.
    pub(crate) members: Vec<Member>,
    /// Our position among them.
    pub(crate) position: usize,
    /// How numbers travel.
    pub(crate) codec: Codec,
    /// Our key, to seal the chunk that we own.
    pub(crate) key: Keypair,
    /// Our frozen delta.
    pub(crate) delta: Arc<Vec<f32>>,
    /// The blocks of it that are cut; all of it if `None`.
    pub(crate) redone: Option<Blocks>,
    /// How long neighbours may be silent.
    pub(crate) patience: Patience,
}

impl Job {
    /// Who sends to us.
    pub(crate) fn predecessor(&self) -> PeerId {
        let count = self.members.len();
        self.members[(self.position + count - 1) % count].peer
    }

    /// To whom we send.
    pub(crate) fn successor(&self) -> PeerId {
        self.members[(self.position + 1) % self.members.len()].peer
    }
}

/// What a ring tells on its way.
#[derive(Debug)]
pub(crate) enum News {
    /// A chunk is held whole, with its owner's word.
    Sealed(u32, Seal),
    /// All that the ring computes is held.
    Held(Held),
    /// The ring has ended before; chunks that were told of lie at their places in these bytes.
    Remains(Arc<Vec<u8>>),
}

/// The whole update, or all of it that this ring computes.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    /// Its bytes, every block of which decodes.
    pub(crate) update: Arc<Vec<u8>>,
    /// BLAKE3 of the bytes.
    pub(crate) digest: Digest,
    /// Bytes sent to the successor so far.
    pub(crate) sent_bytes: u64,
    /// Bytes received from the predecessor.
    pub(crate) received_bytes: u64,
    /// Since the start.
    pub(crate) took: Duration,
}

impl Held {
    /// Bytes per second that we sent; 0 when nothing was sent.
    pub(crate) fn send_rate(&self) -> u64 {
        let millis = self.took.as_millis().max(1);
        u64::try_from(u128::from(self.sent_bytes) * 1000 / millis).unwrap_or(u64::MAX)
    }
}

/// Why a ring gave no update.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RingError {
    /// A neighbour is gone, or too slow to be of use.
    #[error("lost {neighbour}: {why}")]
    Lost {
        /// The neighbour.
        neighbour: PeerId,
        /// What was seen.
        why: String,
    },
    /// The predecessor did what no honest member does.
    #[error("{who}: {fault}")]
    Fault {
        /// The predecessor.
        who: PeerId,
        /// What.
        fault: Fault,
    },
    /// The thread that computes is gone: the program is ending.
    #[error("the ring's thread has stopped")]
    Stopped,
    /// Nobody wants it any more.
    #[error("the ring was given up")]
    Abandoned,
}

/// Says what a stream to the successor is for: right after it was opened, since the successor does
/// not begin before.
///
/// # Errors
/// Nothing was taken for five seconds, or the stream failed.
///
/// # Cancel safety
/// Not cancel safe: drop the stream too.
pub(crate) async fn write_preamble(
    stream: &mut (impl AsyncWrite + Unpin),
    job: &Job,
) -> io::Result<()> {
    let (index, count) = (small(job.position), small(job.members.len()));
    let bytes = Preamble { run: job.run, roster: job.roster, index, count }.to_bytes();
    time::timeout(PREAMBLE_WAIT, stream.write_all(&bytes)).await??;
    time::timeout(PREAMBLE_WAIT, stream.flush()).await?
}

/// Reads what a stream is for; whether it belongs to a ring of ours is for the caller to judge.
///
/// # Errors
/// Nothing was said within five seconds, or the stream failed.
///
/// # Cancel safety
/// Not cancel safe: drop the stream too.
pub(crate) async fn read_preamble(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Preamble> {
    let mut bytes = [0; PREAMBLE_BYTES];
    time::timeout(PREAMBLE_WAIT, stream.read_exact(&mut bytes)).await??;
    Ok(Preamble::from_bytes(&bytes))
}

/// Runs one ring to its end, or until `stop`: `told` hears as soon as we hold a chunk, and the
/// update, and the ring goes on until nothing is left to pass on. A ring of one has no streams; of
/// others the preambles, from the predecessor and to the successor, are read and written already.
///
/// # Errors
/// [`RingError`]; once the update is held, the ring cannot fail any more. What was finished is told
/// before.
///
/// # Cancel safety
/// Cancel safe: the streams are reset, the thread ends with its current frame.
pub(crate) async fn run<R, W>(
    job: Job,
    streams: Option<(R, W)>,
    pace: Pace,
    stop: CancellationToken,
    told: mpsc::Sender<News>,
) -> Result<(), RingError>
where
    R: AsyncRead + Unpin + Send + 'static,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let mut tasks = JoinSet::new();
    let (arriving, arrived) = mpsc::channel(1);
    let (leaving, to_leave) = mpsc::channel(1);
    let (written, sent) = mpsc::channel(1);
    if let Some((from, to)) = streams {
        tasks.spawn(stream::read(from, job.patience, arriving));
        tasks.spawn(stream::write(to, job.patience, pace, to_leave, written));
    }
    Ring::new(job, leaving, told)?.run(tasks, arrived, sent, stop).await
}

/// The loop's side of a ring.
struct Ring {
    job: Job,
    began: Instant,
    state: State,
    bench: Bench,
    leaving: mpsc::Sender<Packet>,
    /// What the bench copies for the writer.
    copying: Option<Item>,
    told: mpsc::Sender<News>,
    held: bool,
    /// Chunks that can be kept.
    sealed: usize,
    /// Nothing is left to pass on.
    closed: bool,
    sent_bytes: u64,
    received_bytes: u64,
}

impl Ring {
    fn new(
        job: Job,
        leaving: mpsc::Sender<Packet>,
        told: mpsc::Sender<News>,
    ) -> Result<Self, RingError> {
        let state = State::new(Config {
            run: job.run,
            roster: job.roster,
            cut: job.cut,
            codec: job.codec,
            members: job.members.iter().map(|member| member.peer).collect(),
            position: job.position,
            key: job.key.clone(),
        });
        let total = job.members.iter().fold(0_u64, |sum, m| sum.saturating_add(m.weight));
        let weight = job.members.get(job.position).map_or(0, |member| member.weight);
        let bench = Bench::start(job.codec, job.delta.clone(), weight, total);
        Ok(Self {
            job,
            began: Instant::now(),
            state,
            bench,
            leaving,
            copying: None,
            told,
            held: false,
            sealed: 0,
            closed: false,
            sent_bytes: 0,
            received_bytes: 0,
        })
    }

    async fn run(
        mut self,
        mut tasks: JoinSet<End>,
        mut arrived: mpsc::Receiver<Packet>,
        mut sent: mpsc::Receiver<()>,
        stop: CancellationToken,
    ) -> Result<(), RingError> {
        let result = tokio::select! {
            biased;
            () = stop.cancelled() => Err(RingError::Abandoned),
            result = self.go(&mut tasks, &mut arrived, &mut sent) => result,
        };
        if result.is_err() {
            self.tell_remains().await;
            return result;
        }
        // The last bytes are on their way once the writer has closed its stream.
        drop((self, arrived, sent));
        while tasks.join_next().await.is_some() {}
        Ok(())
    }

    async fn go(
        &mut self,
        tasks: &mut JoinSet<End>,
        arrived: &mut mpsc::Receiver<Packet>,
        sent: &mut mpsc::Receiver<()>,
    ) -> Result<(), RingError> {
        self.input(Input::Open, Vec::new()).await?;
        let mut ended = None;
        // The digest of the update may come after the last item was passed on.
        while !self.closed || !self.held {
            let may_read = self.state.may_read() && self.bench.asked() < FRAMES_MAX;
            let step = tokio::select! {
                biased;
                reply = self.bench.reply() => self.on_reply(reply.ok_or(RingError::Stopped)?).await,
                Some(()) = sent.recv() => self.input(Input::Sent, Vec::new()).await,
                Some(packet) = arrived.recv(), if may_read => self.on_packet(packet).await,
                Some(end) = tasks.join_next() => self.on_end(end, &mut ended),
                () = until(ended) => {
                    ended = None;
                    self.on_gone()
                }
            };
            match step {
                // What is left to pass on helps others, but nobody waits for us to do it.
                Err(_) if self.held => return Ok(()),
                other => other?,
            }
        }
        Ok(())
    }

    /// What is finished can be kept, whatever ended the ring.
    async fn tell_remains(&mut self) {
        if self.sealed == 0 || self.held {
            return;
        }
        if let Some(bytes) = self.bench.remains().await {
            // Whoever asked may be gone.
            drop(self.told.send(News::Remains(bytes)).await);
        }
    }

    /// Gives one input to the machine and does what it says; `payload` is what came with it.
    async fn input(&mut self, input: Input, payload: Vec<u8>) -> Result<(), RingError> {
        let mut outputs = Vec::new();
        self.state.handle(input, &mut outputs);
        let mut payload = Some(payload);
        for output in outputs {
            match output {
                Output::Work(work, at) => {
                    let elements = self.job.cut.frame(at.chunk, at.frame);
                    let (place, payload) =
                        (self.state.place(at), payload.take().unwrap_or_default());
                    self.bench.ask(Op::Reduce { work, elements, place, payload }).await;
                }
                Output::Keep(at) => {
                    let elements = self.job.cut.frame(at.chunk, at.frame).len();
                    let (place, payload) =
                        (self.state.place(at), payload.take().unwrap_or_default());
                    self.bench.ask(Op::Keep { elements, place, payload }).await;
                }
                Output::Hash(chunk) => {
                    let place = self.state.chunk_place(chunk);
                    self.bench.ask(Op::Hash { chunk, place }).await;
                }
                Output::Send(item @ Item::Frame(_, at)) => {
                    self.copying = Some(item);
                    self.bench.ask(Op::Copy(self.state.place(at))).await;
                }
                Output::Send(item @ Item::Seal(_, seal)) => {
                    self.send(&item, seal.to_bytes().to_vec()).await;
                }
                Output::Sealed(chunk, seal) => {
                    self.sealed += 1;
                    drop(self.told.send(News::Sealed(small(chunk), seal)).await);
                }
                Output::Held => self.bench.ask(Op::Whole).await,
                Output::Closed => self.closed = true,
                Output::Fault(fault) => {
                    return Err(RingError::Fault { who: self.job.predecessor(), fault });
                }
            }
        }
        Ok(())
    }

    async fn on_packet(&mut self, (label, payload): Packet) -> Result<(), RingError> {
        self.received_bytes += stream::bytes_of(&payload);
        match label.kind {
            Kind::Frame(_) => self.input(Input::Frame(label), payload).await,
            Kind::Seal => match Seal::from_bytes(&payload) {
                Some(seal) => self.input(Input::Seal(label, seal), payload).await,
                None => Err(self.fault(FrameFault::SealLength)),
            },
        }
    }

    async fn on_reply(&mut self, reply: Product) -> Result<(), RingError> {
        match reply {
            Product::Reduced(Ok(())) => self.input(Input::Worked, Vec::new()).await,
            Product::Reduced(Err(ReduceError::Decode(_))) | Product::Kept(Err(_)) => {
                Err(self.fault(FrameFault::Undecodable))
            }
            // Our own delta times its weight is finite, so it is what came that is too large. Who
            // made it so is not seen from here: the predecessor goes, not its reputation.
            Product::Reduced(Err(error @ ReduceError::Encode(_))) => {
                Err(lost(self.job.predecessor(), &error))
            }
            Product::Kept(Ok(())) => Ok(()),
            Product::Hashed(chunk, digest) => {
                self.input(Input::Hashed(chunk, digest), Vec::new()).await
            }
            Product::Copied(bytes) => {
                if let Some(item) = self.copying.take() {
                    self.send(&item, bytes).await;
                }
                Ok(())
            }
            Product::Whole(update, digest) => {
                self.hold(update, digest).await;
                Ok(())
            }
            Product::Remains(_) => Ok(()),
        }
    }

    /// A task has ended: the reader with its stream, or the writer.
    fn on_end(
        &self,
        end: Result<End, tokio::task::JoinError>,
        ended: &mut Option<time::Instant>,
    ) -> Result<(), RingError> {
        match end {
            // It may have nothing more to say.
            Ok(End::Read(_)) if !self.state.is_due() => Ok(()),
            Ok(End::Fault(why)) => Err(self.fault(why)),
            Ok(End::Read(why)) if why.is_closed() => {
                *ended = Some(time::Instant::now() + self.job.patience.closed());
                Ok(())
            }
            Ok(End::Read(why)) => Err(lost(self.job.predecessor(), &why)),
            Ok(End::Written(why)) => Err(lost(self.job.successor(), &why)),
            Ok(End::Done) => Ok(()),
            Err(_) => Err(RingError::Stopped),
        }
    }

    /// The predecessor's stream ended a while ago.
    fn on_gone(&self) -> Result<(), RingError> {
        if self.state.is_due() {
            return Err(lost(self.job.predecessor(), &"its stream ended"));
        }
        Ok(())
    }

    async fn hold(&mut self, update: Arc<Vec<u8>>, digest: Digest) {
        self.held = true;
        let took = self.began.elapsed();
        let (sent_bytes, received_bytes) = (self.sent_bytes, self.received_bytes);
        let held = Held { update, digest, sent_bytes, received_bytes, took };
        // Whoever asked may have given the ring up.
        drop(self.told.send(News::Held(held)).await);
    }

    async fn send(&mut self, item: &Item, payload: Vec<u8>) {
        self.sent_bytes += stream::bytes_of(&payload);
        let label: Label = self.state.label(item, &payload);
        // A writer that is gone has said why.
        let _ = self.leaving.send((label, payload)).await;
    }

    fn fault(&self, why: FrameFault) -> RingError {
        RingError::Fault { who: self.job.predecessor(), fault: Fault::Frame(why) }
    }
}

fn lost(neighbour: PeerId, why: &impl ToString) -> RingError {
    RingError::Lost { neighbour, why: why.to_string() }
}

/// Sleeps until then; for ever where there is no then.
async fn until(then: Option<time::Instant>) {
    match then {
        Some(then) => time::sleep_until(then).await,
        None => std::future::pending().await,
    }
}

/// A position or a count of a ring, of at most 256.
fn small(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// How long the opener of a stream may take to say what it is for; guess: it writes at once.
const PREAMBLE_WAIT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
