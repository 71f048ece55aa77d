//! Reads items from a predecessor and writes them to a successor, with timeouts.
//!
//! A label precedes each payload and says its length and checksum, so that damaged or invented
//! bytes end the ring here and never reach a sum. The preamble comes once, before the first label.
//!
//! The reader measures the gaps between items: a slow but steady neighbour gets more time than a
//! fast one that stops.
//!
//! Each read and each write has a time limit of its own, so a slow line is not cut off while bytes
//! move. The memory of a stream is one item. An item has at most the length that its label may name
//! (D1).

use std::{
    collections::VecDeque,
    io,
    time::{Duration, Instant},
};

use intellect_protocol::base::fault::FrameFault;
use intellect_protocol::ring::exchange::frame::{LABEL_BYTES, Label, PREAMBLE_BYTES, Preamble};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    sync::mpsc,
    time,
};

use super::pace::Pace;
use super::timeouts::Timeouts;
use super::{Job, small};

/// Writes the preamble, which names the ring, right after the stream was opened: the successor does not begin
/// before.
///
/// # Errors
/// The peer took nothing for five seconds, or the stream failed.
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

/// Reads a preamble. The caller checks whether it names a ring of ours.
///
/// # Errors
/// The peer wrote nothing for five seconds, or the stream failed.
///
/// # Cancel safety
/// Not cancel safe: drop the stream too.
pub(crate) async fn read_preamble(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Preamble> {
    let mut bytes = [0; PREAMBLE_BYTES];
    time::timeout(PREAMBLE_WAIT, stream.read_exact(&mut bytes)).await??;
    Ok(Preamble::from_bytes(&bytes))
}

/// An item: a label, and the payload that it announces.
pub(super) type Packet = (Label, Vec<u8>);

/// How the reader or writer of a stream ended.
pub(super) enum End {
    /// The loop of the ring has ended.
    Done,
    /// The predecessor's stream failed or stood still.
    Read(StreamFailure),
    /// The successor's stream failed or stood still.
    Written(StreamFailure),
    /// The predecessor sent something malformed.
    Fault(FrameFault),
}

/// Why a stream cannot be used any more.
#[derive(Debug, thiserror::Error)]
pub(super) enum StreamFailure {
    /// The other end closed it, or is gone.
    #[error("its stream ended")]
    Closed,
    /// The transport reported an error.
    #[error("its stream broke: {0}")]
    Broken(io::Error),
    /// No byte has passed for this time.
    #[error("it stood still for {:.1} s", .0.as_secs_f32())]
    Quiet(Duration),
}

impl StreamFailure {
    /// Whether the stream has ended, and is not only silent.
    pub(super) fn is_closed(&self) -> bool {
        matches!(self, Self::Closed | Self::Broken(_))
    }
}

/// Bytes that an item with this payload takes on a stream.
pub(super) fn bytes_of(payload: &[u8]) -> u64 {
    (LABEL_BYTES + payload.len()) as u64
}

/// Reads items and passes them to the loop, one at a time.
/// It waits for room before it reads, so that what the loop does not take stays in the transport.
pub(super) async fn read(
    mut stream: impl AsyncRead + Unpin,
    timeouts: Timeouts,
    items: mpsc::Sender<Packet>,
) -> End {
    let mut gaps = Gaps::default();
    let mut quiet = timeouts.first;
    while let Ok(permit) = items.reserve().await {
        let packet = tokio::select! {
            packet = read_packet(&mut stream, quiet) => packet,
            () = items.closed() => return End::Done,
        };
        match packet {
            Ok(packet) => permit.send(packet),
            Err(end) => return end,
        }
        quiet = timeouts.quiet(gaps.mark());
    }
    End::Done
}

/// Reads one item. The time limit holds for each read, not for the whole item, so a slow line is
/// not cut off while bytes come.
async fn read_packet(
    stream: &mut (impl AsyncRead + Unpin),
    quiet: Duration,
) -> Result<Packet, End> {
    let mut label = [0; LABEL_BYTES];
    fill(stream, &mut label, quiet).await.map_err(End::Read)?;
    // D1: the length is bounded before anything is allocated.
    let label = Label::from_bytes(&label).map_err(|_| End::Fault(FrameFault::Header))?;
    let mut payload = vec![0; usize::try_from(label.length).unwrap_or(0)];
    fill(stream, &mut payload, quiet).await.map_err(End::Read)?;
    if !label.announces(&payload) {
        return Err(End::Fault(FrameFault::Payload));
    }
    Ok((label, payload))
}

/// Fills `bytes`; every byte restarts the timeout.
async fn fill(
    stream: &mut (impl AsyncRead + Unpin),
    mut bytes: &mut [u8],
    quiet: Duration,
) -> Result<(), StreamFailure> {
    while !bytes.is_empty() {
        let read = time::timeout(quiet, stream.read(bytes)).await;
        match read.map_err(|_| StreamFailure::Quiet(quiet))?.map_err(StreamFailure::Broken)? {
            0 => return Err(StreamFailure::Closed),
            count => bytes = &mut bytes[count..],
        }
    }
    Ok(())
}

/// Writes items and confirms each; closes the stream when the loop has ended.
///
/// Each slice waits for its turn under the limit of bulk (`pace`), and that wait is not counted as
/// silence of the successor.
pub(super) async fn write(
    mut stream: impl AsyncWrite + Unpin,
    timeouts: Timeouts,
    pace: Pace,
    mut items: mpsc::Receiver<Packet>,
    written: mpsc::Sender<()>,
) -> End {
    // The successor reads nothing before its own ring has begun.
    let mut quiet = timeouts.first;
    while let Some((label, payload)) = items.recv().await {
        (pace.take)(LABEL_BYTES).await;
        let mut result = push(&mut stream, &label.to_bytes(), quiet).await;
        for slice in payload.chunks(pace.slice_bytes) {
            if result.is_ok() {
                (pace.take)(slice.len()).await;
                result = push(&mut stream, slice, quiet).await;
            }
        }
        if let Err(failure) = result {
            return End::Written(failure);
        }
        quiet = timeouts.most;
        if written.send(()).await.is_err() {
            break;
        }
    }
    // What was flushed arrives. A successor that has all it needs may have closed the stream.
    let _ = time::timeout(quiet, stream.shutdown()).await;
    End::Done
}

/// Writes and flushes `bytes`; every byte that is taken restarts the timeout.
async fn push(
    stream: &mut (impl AsyncWrite + Unpin),
    mut bytes: &[u8],
    quiet: Duration,
) -> Result<(), StreamFailure> {
    while !bytes.is_empty() {
        let written = time::timeout(quiet, stream.write(bytes)).await;
        match written.map_err(|_| StreamFailure::Quiet(quiet))?.map_err(StreamFailure::Broken)? {
            0 => return Err(StreamFailure::Closed),
            count => bytes = &bytes[count..],
        }
    }
    let flushed = time::timeout(quiet, stream.flush()).await;
    flushed.map_err(|_| StreamFailure::Quiet(quiet))?.map_err(StreamFailure::Broken)
}

/// The times between items, of which the median is used.
#[derive(Default)]
struct Gaps {
    /// When the last item came; the first one has no gap.
    last: Option<Instant>,
    /// At most [`GAPS`] times, the newest last.
    gaps: VecDeque<Duration>,
}

impl Gaps {
    /// Notes an item. Returns the median of the last gaps, once there is one.
    fn mark(&mut self) -> Option<Duration> {
        let now = Instant::now();
        if let Some(last) = self.last.replace(now) {
            self.gaps.push_back(now - last);
        }
        if self.gaps.len() > GAPS {
            self.gaps.pop_front();
        }
        let mut sorted: Vec<_> = self.gaps.iter().copied().collect();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied()
    }
}

/// The number of gaps in the median; guess: enough to ignore one outlier, few enough to follow a link.
const GAPS: usize = 16;

/// Time for the preamble; guess: the opener writes it at once.
const PREAMBLE_WAIT: Duration = Duration::from_secs(5);
