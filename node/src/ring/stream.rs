//! Reading items from a predecessor and writing them to a successor, with patience.

use std::{
    collections::VecDeque,
    fmt, io,
    time::{Duration, Instant},
};

use intellect_protocol::base::fault::FrameFault;
use intellect_protocol::ring::exchange::frame::{LABEL_BYTES, Label};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    sync::mpsc,
    time,
};

use super::{Pace, Patience};

/// An item: its label and its payload, which the label announces.
pub(super) type Packet = (Label, Vec<u8>);

/// How a task ended.
pub(super) enum End {
    /// The loop is gone.
    Done,
    /// Nothing more can be read.
    Read(Trouble),
    /// Nothing more can be written.
    Written(Trouble),
    /// What was read makes no sense.
    Fault(FrameFault),
}

/// What is the matter with a stream.
pub(super) enum Trouble {
    /// It ended.
    Closed,
    /// It broke.
    Broken(io::Error),
    /// It stood still for so long.
    Quiet(Duration),
}

impl Trouble {
    /// Whether the stream is gone, and not only silent.
    pub(super) fn is_closed(&self) -> bool {
        matches!(self, Self::Closed | Self::Broken(_))
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("its stream ended"),
            Self::Broken(error) => write!(f, "its stream broke: {error}"),
            Self::Quiet(length) => write!(f, "it stood still for {:.1} s", length.as_secs_f32()),
        }
    }
}

/// Bytes that an item with this payload takes on a stream.
pub(super) fn bytes_of(payload: &[u8]) -> u64 {
    (LABEL_BYTES + payload.len()) as u64
}

/// Reads items and hands them on, one at a time.
pub(super) async fn read(
    mut stream: impl AsyncRead + Unpin,
    patience: Patience,
    items: mpsc::Sender<Packet>,
) -> End {
    let mut gaps = Gaps::default();
    let mut quiet = patience.first;
    while let Ok(permit) = items.reserve().await {
        let packet = tokio::select! {
            packet = read_packet(&mut stream, quiet) => packet,
            () = items.closed() => return End::Done,
        };
        match packet {
            Ok(packet) => permit.send(packet),
            Err(end) => return end,
        }
        quiet = patience.quiet(gaps.mark());
    }
    End::Done
}

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

/// Fills `bytes`; every byte is a sign of life.
async fn fill(
    stream: &mut (impl AsyncRead + Unpin),
    mut bytes: &mut [u8],
    quiet: Duration,
) -> Result<(), Trouble> {
    while !bytes.is_empty() {
        let read = time::timeout(quiet, stream.read(bytes)).await;
        match read.map_err(|_| Trouble::Quiet(quiet))?.map_err(Trouble::Broken)? {
            0 => return Err(Trouble::Closed),
            count => bytes = &mut bytes[count..],
        }
    }
    Ok(())
}

/// Writes every item, and says of each that it is written; closes the stream when the loop is gone.
pub(super) async fn write(
    mut stream: impl AsyncWrite + Unpin,
    patience: Patience,
    pace: Pace,
    mut items: mpsc::Receiver<Packet>,
    written: mpsc::Sender<()>,
) -> End {
    // The successor reads nothing before its own ring has begun.
    let mut quiet = patience.first;
    while let Some((label, payload)) = items.recv().await {
        (pace.take)(LABEL_BYTES).await;
        let mut result = push(&mut stream, &label.to_bytes(), quiet).await;
        for slice in payload.chunks(pace.slice_bytes) {
            if result.is_ok() {
                (pace.take)(slice.len()).await;
                result = push(&mut stream, slice, quiet).await;
            }
        }
        if let Err(trouble) = result {
            return End::Written(trouble);
        }
        quiet = patience.most;
        if written.send(()).await.is_err() {
            break;
        }
    }
    // What was flushed arrives; a successor that has all it needs may be gone already.
    let _ = time::timeout(quiet, stream.shutdown()).await;
    End::Done
}

/// Writes and flushes `bytes`; whatever is taken is a sign of life.
async fn push(
    stream: &mut (impl AsyncWrite + Unpin),
    mut bytes: &[u8],
    quiet: Duration,
) -> Result<(), Trouble> {
    while !bytes.is_empty() {
        let written = time::timeout(quiet, stream.write(bytes)).await;
        match written.map_err(|_| Trouble::Quiet(quiet))?.map_err(Trouble::Broken)? {
            0 => return Err(Trouble::Closed),
            count => bytes = &bytes[count..],
        }
    }
    let flushed = time::timeout(quiet, stream.flush()).await;
    flushed.map_err(|_| Trouble::Quiet(quiet))?.map_err(Trouble::Broken)
}

/// Times between items.
#[derive(Default)]
struct Gaps {
    last: Option<Instant>,
    gaps: VecDeque<Duration>,
}

impl Gaps {
    /// Notes that an item came; the median of the last gaps, once there is one.
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

/// Gaps that the median is taken of; guess: enough to forget one hiccup, few enough to follow a
/// link.
const GAPS: usize = 16;
