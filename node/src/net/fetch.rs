//! `/intellect/fetch/2`: one request and one answer, each a frame, on a stream of its own.
//!
//! Their content is the driver's business. Answers are checked by digest, so no peer is trusted here; a
//! truncated answer is an error.

use std::{
    io,
    net::IpAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures::{AsyncRead, AsyncWriteExt as _};
use intellect_bootstrap::{
    frame::{self, FrameError},
    streams::Opening,
};
use intellect_protocol::{
    download::Failure,
    message::{Request, wire},
};
use libp2p::{PeerId, Stream};
use tokio::{
    sync::{OwnedSemaphorePermit, mpsc},
    time::{Instant, timeout},
};

use super::{
    inbox::{Shared, TaskEvent, blame},
    interface::{ANSWER_BYTES_MAX, Event, Link, REQUEST_BYTES_MAX, Reply},
    limits::{
        answers::{Asker, Kind},
        rate::{Inflow, Receiver, Urgency},
    },
    name,
};

/// Sends a request on a stream that is being opened; `inflow` counts the answer as it arrives.
pub(super) async fn ask(
    opening: Opening,
    request: &[u8],
    inflow: &Inflow,
) -> Result<Vec<u8>, Failure> {
    let exchange = async {
        let mut stream = opening.await.ok()?.ok()?;
        frame::write(&mut stream, request).await.ok()?;
        stream.close().await.ok()?;
        let mut counted = Counted { stream, inflow };
        match frame::read(&mut counted, ANSWER_BYTES_MAX).await {
            Err(FrameError::TooLong { .. }) => Some(Err(Failure::TooLong)),
            answer => answer.ok()?.map(Ok),
        }
    };
    let answer = timeout(TIMEOUT, exchange).await;
    answer.map_or(Err(Failure::Silent), |answer| answer.unwrap_or(Err(Failure::Refused)))
}

/// A stream whose bytes the gauge counts as they are read.
struct Counted<'a> {
    /// The stream that carries one answer.
    stream: Stream,
    /// The gauge that all fetches share.
    inflow: &'a Inflow,
}

impl AsyncRead for Counted<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let read = Pin::new(&mut self.stream).poll_read(context, into);
        if let Poll::Ready(Ok(bytes)) = &read {
            self.inflow.note(*bytes, Instant::now());
        }
        read
    }
}

/// Reads a request, lets the driver answer it, and writes the answer at the pace of all bulk. `network`: where the peer
/// is, if its network has a limit.
pub(super) async fn answer(
    peer: PeerId,
    network: Option<IpAddr>,
    mut stream: Stream,
    events: mpsc::Sender<TaskEvent>,
    shared: Arc<Shared>,
    link: Link,
    _permit: OwnedSemaphorePermit,
) {
    let exchange = async {
        let from = name::from_libp2p(&peer)?;
        let room = shared.room(&from);
        let (request, _place) = match room.read(&mut stream, REQUEST_BYTES_MAX).await {
            Ok(request) => request?,
            Err(error) => {
                if matches!(error, FrameError::TooLong { .. }) {
                    blame(&events, peer, format!("a request: {error}")).await;
                }
                return None;
            }
        };
        let (reply, answered) = Reply::new();
        let asker = if shared.is_member(&from) {
            Asker::Member(from)
        } else {
            Asker::Stranger(from, network)
        };
        // What does not decode is the driver's fault to name, and is answered with nothing.
        let kind = match wire::open_request(&request) {
            Some(Request::Ask(_) | Request::Picture) | None => Kind::Question,
            Some(_) => Kind::Bulk,
        };
        let _turn = shared.answers.turn(asker, kind).await?;
        events.send(TaskEvent::Emit(Event::Fetch { from, request, reply })).await.ok()?;
        let (answer, urgency) = answered.await.ok()?;
        let receiver = shared.receiver(&from);
        write(stream, &answer, urgency, receiver, link, &shared).await
    };
    // Whatever went wrong, the peer sees that its stream has ended.
    let _ = timeout(TIMEOUT, exchange).await;
}

/// Writes an answer as one frame, at the pace of all bulk.
pub(super) async fn write(
    mut stream: Stream,
    answer: &[u8],
    urgency: Urgency,
    receiver: Receiver,
    link: Link,
    shared: &Shared,
) -> Option<()> {
    let length = u32::try_from(answer.len()).ok()?;
    stream.write_all(&length.to_le_bytes()).await.ok()?;
    let slice_bytes = match link {
        Link::Direct => shared.limiter.slice(SLICE_BYTES),
        Link::Relayed => shared.relayed.slice(SLICE_BYTES),
    };
    for slice in answer.chunks(slice_bytes) {
        if link == Link::Relayed {
            shared.relayed.take(slice.len(), urgency, receiver).await;
        }
        shared.limiter.take(slice.len(), urgency, receiver).await;
        stream.write_all(slice).await.ok()?;
    }
    stream.close().await.ok()
}

/// Twice the time that 1 MiB takes over a home link of 0.5 Mbit/s.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// Small enough that other bulk gets its turn under a low rate.
const SLICE_BYTES: usize = 64 * 1024;
