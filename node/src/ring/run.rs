//! The loop of one ring: gives inputs to the machine, and carries out its outputs.
//!
//! Data flows through three queues of one item each: from the reader, to the writer, and the
//! writer's confirmations. So a slow successor stops the loop's sending, and a slow thread stops
//! its reading, and the transport passes that on to the predecessor. Besides these only a few
//! operations of the thread wait ([`ComputeThread`]).
//!
//! Replies of the thread come first in the `select!`: they free memory, and what they lead to may
//! already be due.
//!
//! Where an error comes from decides what it means. Bytes that an honest predecessor cannot send
//! are its fault. The end of the predecessor's stream says that it is gone, but only after a moment
//! in which the protocol may say why. A stream that stands still accuses nobody: each member waits
//! for the one before it.

use std::{mem, sync::Arc, time::Instant};

use intellect_protocol::{
    base::{
        fault::{Fault, FrameFault},
        id::{Digest, PeerId},
    },
    message::seal::Seal,
    ring::{
        codec::reduce::ReduceError,
        exchange::{
            Config, FRAMES_MAX, Input, Item, Output, State,
            frame::{Kind, Label},
        },
    },
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::mpsc,
    task::JoinSet,
    time,
};
use tokio_util::sync::CancellationToken;

use super::compute::{ComputeThread, Op, Product};
use super::pace::Pace;
use super::stream::{self, End, Packet, StreamFailure};
use super::{Held, Job, News, RingError, small};

/// Runs one ring to its end, or until `stop`. `news` hears of each complete chunk and of the update; after
/// that the ring goes on until nothing is left to pass on. A ring of one has no streams; on other streams
/// the preambles have been read and written.
///
/// # Errors
/// [`RingError`], after the news of what was finished. Once the update is complete, the ring cannot fail.
///
/// # Cancel safety
/// Cancel safe: the streams are reset, the thread ends with its current frame.
pub(crate) async fn run<R, W>(
    job: Job,
    streams: Option<(R, W)>,
    pace: Pace,
    stop: CancellationToken,
    news: mpsc::Sender<News>,
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
        tasks.spawn(stream::read(from, job.timeouts, arriving));
        tasks.spawn(stream::write(to, job.timeouts, pace, to_leave, written));
    }
    Ring::new(job, leaving, news).run(tasks, arrived, sent, stop).await
}

/// One ring while it runs, and all that it counts.
struct Ring {
    /// The job, with the delta as this ring computes it.
    job: Job,
    /// When the ring began; [`Held::took`] counts from here.
    began: Instant,
    /// The machine, which decides what comes next.
    state: State,
    /// The thread that owns the update.
    compute: ComputeThread,
    /// Items for the writer. There is room for one.
    leaving: mpsc::Sender<Packet>,
    /// The item whose payload is being copied for the writer.
    copying: Option<Item>,
    /// Where the ring reports what is finished.
    news: mpsc::Sender<News>,
    /// Whether the update is complete. After that an error ends the ring, but fails nothing.
    held: bool,
    /// How many chunks can be salvaged.
    sealed: usize,
    /// Whether nothing is left to pass on.
    closed: bool,
    /// Bytes given to the writer that were not reported yet, labels included.
    sent_bytes: u64,
    /// Bytes taken from the reader that were not reported yet, labels included.
    received_bytes: u64,
}

impl Ring {
    /// Starts the thread. A position outside the members has weight 0, which no caller gives.
    fn new(job: Job, leaving: mpsc::Sender<Packet>, news: mpsc::Sender<News>) -> Self {
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
        let compute = ComputeThread::start(job.codec, job.delta.clone(), weight, total);
        Self {
            job,
            began: Instant::now(),
            state,
            compute,
            leaving,
            copying: None,
            news,
            held: false,
            sealed: 0,
            closed: false,
            sent_bytes: 0,
            received_bytes: 0,
        }
    }

    /// Runs the loop, reports what was finished if it fails, and all bytes that were not reported yet. On success
    /// it waits for the writer, so that the last bytes leave before the stream is dropped.
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
            self.send_salvaged().await;
        }
        let Self { sent_bytes, received_bytes, .. } = self;
        let ended = News::Ended { hops: small(self.state.hops()), sent_bytes, received_bytes };
        // Fails only where the receiver is gone.
        drop(self.news.send(ended).await);
        if result.is_ok() {
            // Once the writer has closed its stream, the last bytes are on their way.
            drop((self, arrived, sent));
            while tasks.join_next().await.is_some() {}
        }
        result
    }

    /// The loop: until the update is here, and nothing is left to pass on.
    ///
    /// `tasks` are the reader and the writer, `arrived` the items of the first, `sent` the
    /// confirmations of the second. Nothing is read while the machine has no use for it, or while
    /// [`FRAMES_MAX`] operations have no reply: this is what holds a fast predecessor back.
    async fn go(
        &mut self,
        tasks: &mut JoinSet<End>,
        arrived: &mut mpsc::Receiver<Packet>,
        sent: &mut mpsc::Receiver<()>,
    ) -> Result<(), RingError> {
        self.input(Input::Open, Vec::new()).await?;
        let mut ended: Option<time::Instant> = None;
        // The digest of the update may come only after the last item was passed on.
        while !self.closed || !self.held {
            let may_read = self.state.may_read() && self.compute.asked() < FRAMES_MAX;
            let gone = ended.unwrap_or_else(time::Instant::now);
            let step = tokio::select! {
                biased;
                reply = self.compute.reply() => self.on_reply(reply.ok_or(RingError::Stopped)?).await,
                Some(()) = sent.recv() => self.input(Input::Sent, Vec::new()).await,
                Some(packet) = arrived.recv(), if may_read => self.on_packet(packet).await,
                Some(end) = tasks.join_next() => self.on_end(end, &mut ended),
                () = time::sleep_until(gone), if ended.is_some() => {
                    ended = None;
                    self.on_gone()
                }
            };
            match step {
                // What is left helps other members, but they do not need us for it.
                Err(_) if self.held => return Ok(()),
                other => other?,
            }
        }
        Ok(())
    }

    /// Reports the bytes of the finished chunks, which other rings need not compute again.
    /// With the update nothing has to be salvaged, and without a seal nobody could tell what is
    /// finished.
    async fn send_salvaged(&mut self) {
        if self.sealed == 0 || self.held {
            return;
        }
        if let Some(bytes) = self.compute.salvage().await {
            // Fails only where the receiver is gone.
            drop(self.news.send(News::Salvaged(bytes)).await);
        }
    }

    /// Gives one input, with its payload, to the machine, and carries out the outputs.
    ///
    /// An input has at most one payload, and at most one output uses it. The machine's frames are
    /// ranges of the update in bytes (`range`) and of the delta in elements (`elements`).
    async fn input(&mut self, input: Input, mut payload: Vec<u8>) -> Result<(), RingError> {
        let mut outputs = Vec::new();
        self.state.handle(input, &mut outputs);
        for output in outputs {
            match output {
                Output::Work(work, at) => {
                    let elements = self.job.cut.frame(at.chunk, at.frame);
                    let (range, payload) = (self.state.place(at), mem::take(&mut payload));
                    self.compute.ask(Op::Reduce { work, elements, range, payload }).await;
                }
                Output::Keep(at) => {
                    let elements = self.job.cut.frame(at.chunk, at.frame).len();
                    let (range, payload) = (self.state.place(at), mem::take(&mut payload));
                    self.compute.ask(Op::Keep { elements, range, payload }).await;
                }
                Output::Hash(chunk) => {
                    let range = self.state.chunk_place(chunk);
                    self.compute.ask(Op::Hash { chunk, range }).await;
                }
                Output::Send(item @ Item::Frame(_, at)) => {
                    self.copying = Some(item);
                    self.compute.ask(Op::Copy(self.state.place(at))).await;
                }
                Output::Send(item @ Item::Seal(_, seal)) => {
                    self.send(&item, seal.to_bytes().to_vec()).await;
                }
                Output::Sealed(chunk, seal) => {
                    self.sealed += 1;
                    drop(self.news.send(News::Sealed(small(chunk), seal)).await);
                }
                Output::Held => self.compute.ask(Op::Whole).await,
                Output::Closed => self.closed = true,
                Output::Fault(fault) => {
                    return Err(RingError::Fault { who: self.job.predecessor(), fault });
                }
            }
        }
        Ok(())
    }

    /// Takes one item of the predecessor. Its payload matches its label already; whether the label
    /// is the expected one is the machine's decision.
    /// Both were read from one stream, so their sender is the predecessor.
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

    /// Takes one reply of the thread.
    /// Replies come in the order of the requests, so a copy belongs to the item in `copying`.
    async fn on_reply(&mut self, reply: Product) -> Result<(), RingError> {
        match reply {
            Product::Reduced(Ok(())) => self.input(Input::Worked, Vec::new()).await,
            Product::Reduced(Err(ReduceError::Decode(_))) | Product::Kept(Err(_)) => {
                Err(self.fault(FrameFault::Undecodable))
            }
            // Our own delta times its weight is finite, so what came is too large. Any member before us may
            // have made it so: the predecessor is lost, but not at fault.
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
            Product::Salvaged(_) => Ok(()),
        }
    }

    /// A task has ended: the reader with its stream, or the writer.
    ///
    /// An end of the predecessor's stream is no failure at once. It starts a wait (`ended`) in
    /// which the state of the protocol may hear that the predecessor left, or gave the ring up.
    /// Then the ring is cancelled from outside, and nobody is accused.
    fn on_end(
        &self,
        end: Result<End, tokio::task::JoinError>,
        ended: &mut Option<time::Instant>,
    ) -> Result<(), RingError> {
        match end {
            // It may have sent all that it has to send.
            Ok(End::Read(_)) if !self.state.is_due() => Ok(()),
            Ok(End::Fault(why)) => Err(self.fault(why)),
            Ok(End::Read(why)) if why.is_closed() => {
                *ended = Some(time::Instant::now() + self.job.timeouts.closed());
                Ok(())
            }
            Ok(End::Read(why)) => Err(failed(self.job.predecessor(), &why)),
            Ok(End::Written(why)) => Err(failed(self.job.successor(), &why)),
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

    /// Reports the update. The ring goes on, as other members may still need frames from us.
    async fn hold(&mut self, update: Arc<Vec<u8>>, digest: Digest) {
        self.held = true;
        let took = self.began.elapsed();
        let sent_bytes = mem::take(&mut self.sent_bytes);
        let received_bytes = mem::take(&mut self.received_bytes);
        let held = Held { update, digest, sent_bytes, received_bytes, took };
        // Fails only where the receiver has given the ring up.
        drop(self.news.send(News::Held(held)).await);
    }

    /// Gives one item to the writer. There is room, because the machine sends the next item only
    /// after [`Input::Sent`].
    async fn send(&mut self, item: &Item, payload: Vec<u8>) {
        self.sent_bytes += stream::bytes_of(&payload);
        let label: Label = self.state.label(item, &payload);
        // A writer that has ended has reported why.
        let _ = self.leaving.send((label, payload)).await;
    }

    /// An error that blames the predecessor, the only member from which bytes come.
    fn fault(&self, why: FrameFault) -> RingError {
        RingError::Fault { who: self.job.predecessor(), fault: Fault::Frame(why) }
    }
}

/// An error that says that a neighbour is gone, without accusing it of anything.
fn lost(neighbour: PeerId, why: &impl ToString) -> RingError {
    RingError::Lost { neighbour, why: why.to_string() }
}

/// A stream that has ended shows that its neighbour is gone; one that stands still does not.
fn failed(neighbour: PeerId, why: &StreamFailure) -> RingError {
    let text = why.to_string();
    if why.is_closed() {
        RingError::Lost { neighbour, why: text }
    } else {
        RingError::Quiet { neighbour, why: text }
    }
}
