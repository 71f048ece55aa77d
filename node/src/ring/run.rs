//! The loop of one ring: gives what comes to the machine, and does what it decides.

use std::{sync::Arc, time::Instant};

use intellect_protocol::{
    codec::reduce::ReduceError,
    exchange::{
        Config, FRAMES_MAX, Input, Item, Output, State,
        frame::{Kind, Label},
    },
    fault::{Fault, FrameFault},
    id::{Digest, PeerId},
    seal::Seal,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::mpsc,
    task::JoinSet,
    time,
};
use tokio_util::sync::CancellationToken;

use super::compute::{Bench, Op, Product};
use super::pace::Pace;
use super::stream::{self, End, Packet};
use super::{Held, Job, News, RingError, small};

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
