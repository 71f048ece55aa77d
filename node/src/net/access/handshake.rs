//! `/intellect/admit/1`: one request and one reply, each a frame, on a stream of its own.
//!
//! [`super::pending`] says whose requests are read, the driver answers them.
//!
//! The side that wants to be let in opens the stream, writes its [`Visit`], and closes its half.
//! The other side's driver judges it, and a [`Reception`] comes back. A refusal closes nothing by
//! itself: [`super::pending`] does, once the time of the connection is over.
//!
//! No peer waits longer than [`TIMEOUT`] for the other: a request that cannot be read is a fault, a
//! late one is dropped.

use std::time::Duration;

use futures::AsyncWriteExt as _;
use intellect_bootstrap::{
    frame::{self, FrameError},
    streams::{OpenError, Opening},
};
use intellect_protocol::access::handshake::{
    RECEPTION_BYTES_MAX, Reception, VISIT_BYTES_MAX, Visit,
};
use libp2p::{PeerId, Stream, StreamProtocol};
use tokio::{
    sync::{OwnedSemaphorePermit, mpsc, oneshot},
    time::timeout,
};

use crate::net::{
    inbox::{TaskEvent, blame},
    interface::{Event, Unanswered},
    name,
};

/// The protocol id of the handshake, which every node speaks, also before it has joined a run.
pub(crate) const ADMIT: StreamProtocol = StreamProtocol::new("/intellect/admit/1");

/// Sends our request to a peer, and reports the result to the actor in every case, since the next
/// request to this peer waits for it. `number` says which request it answers.
pub(crate) async fn request(
    peer: PeerId,
    opening: Opening,
    request: Vec<u8>,
    number: u64,
    events: mpsc::Sender<TaskEvent>,
) {
    let exchange = async {
        let mut stream = match opening.await {
            Ok(Ok(stream)) => stream,
            Ok(Err(OpenError::Unsupported(_))) => return Err(Unanswered::Unknown),
            Ok(Err(OpenError::Closed | OpenError::Failed(_))) | Err(_) => {
                return Err(Unanswered::Silent);
            }
        };
        let exchanged = async {
            frame::write(&mut stream, &request).await.ok()?;
            stream.close().await.ok()?;
            let answer = frame::read(&mut stream, frame_max(RECEPTION_BYTES_MAX)).await.ok()??;
            Reception::from_bytes(&answer)
        };
        exchanged.await.ok_or(Unanswered::Silent)
    };
    let answer = timeout(TIMEOUT, exchange).await.unwrap_or(Err(Unanswered::Silent));
    // Fails only when the actor has gone.
    let _ = events.send(TaskEvent::Answered { peer, number, answer }).await;
}

/// Reads a request, lets the driver answer it, and writes the answer. The permit bounds how many
/// answers to this peer are under way.
pub(crate) async fn answer(
    peer: PeerId,
    mut stream: Stream,
    events: mpsc::Sender<TaskEvent>,
    _permit: OwnedSemaphorePermit,
) {
    let exchange = async {
        let read = timeout(REQUEST_TIMEOUT, frame::read(&mut stream, frame_max(VISIT_BYTES_MAX)));
        let request = match read.await.ok()? {
            Ok(bytes) => Visit::from_bytes(&bytes?),
            Err(FrameError::TooLong { .. }) => None,
            Err(FrameError::Truncated | FrameError::Late | FrameError::Io(_)) => return None,
        };
        let from = name::from_libp2p(&peer)?;
        let Some(request) = request else {
            blame(&events, peer, "a visit that cannot be read".to_owned()).await;
            return None;
        };
        let (reply, answer) = oneshot::channel();
        events
            .send(TaskEvent::Emit(Event::AdmitRequest { from, request: Box::new(request), reply }))
            .await
            .ok()?;
        let answer: Reception = answer.await.ok()?;
        frame::write(&mut stream, &answer.to_bytes()).await.ok()?;
        stream.close().await.ok()
    };
    // Whatever went wrong, the peer sees that its stream has ended.
    let _ = timeout(TIMEOUT, exchange).await;
}

/// The limit of a frame, whose constants are sizes in memory.
fn frame_max(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// A request follows the opening of its stream at once.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for an answer: a busy driver and a slow link.
const TIMEOUT: Duration = Duration::from_secs(10);
