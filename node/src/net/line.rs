//! `/intellect/ctl/1`: control messages for one peer alone, `length u32 LE ‖ envelope`.
//!
//! Each side opens one stream, writes on it and never reads from it, so the two directions cannot
//! block one another. A message waits in a bounded queue; when that is full the sender is told,
//! and the protocol repeats what matters.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::{AsyncReadExt as _, AsyncWriteExt as _};
use intellect_bootstrap::{
    frame::{self, FrameError},
    streams::Opening,
};
use libp2p::{PeerId, Stream, swarm::ConnectionId};
use tokio::{
    sync::{OwnedSemaphorePermit, mpsc},
    time::{Instant, timeout},
};

use super::{
    inbox::{Gravity, Note},
    interface::{Event, MESSAGE_BYTES_MAX, Via},
    name,
    pace::Bucket,
};

/// Opens our stream to a peer and writes what is queued, until either end goes.
pub(super) async fn send(
    peer: PeerId,
    connection: ConnectionId,
    opening: Opening,
    notes: mpsc::Sender<Note>,
) {
    if let Ok(Ok(stream)) = opening.await {
        let (outbox, queue) = mpsc::channel(QUEUE_MESSAGES);
        if notes.send(Note::LineUp { peer, connection, outbox }).await.is_ok() {
            write_all(stream, queue).await;
        }
    }
    // Fails only when the actor has gone.
    let _ = notes.send(Note::LineDown { peer, connection }).await;
}

/// Opens a stream to a peer, writes one message, and closes it.
pub(super) async fn send_once(opening: Opening, message: Vec<u8>) {
    if let Ok(Ok(mut stream)) = opening.await {
        // A connection that is going takes nothing; the caller tries again.
        let _ = timeout(STALL, async {
            frame::write(&mut stream, &message).await?;
            stream.close().await
        })
        .await;
    }
}

async fn write_all(stream: Stream, mut queue: mpsc::Receiver<Vec<u8>>) {
    let (mut from, mut to) = stream.split();
    let mut never = [0];
    loop {
        tokio::select! {
            biased;
            message = queue.recv() => {
                let Some(message) = message else { return };
                let written = timeout(STALL, frame::write(&mut to, &message)).await;
                if !matches!(written, Ok(Ok(()))) {
                    return;
                }
            }
            // Nothing is ever written to us here: this is how the end is noticed, also that the
            // peer does not speak the protocol.
            _ = from.read(&mut never) => {
                let _ = to.close().await;
                return;
            }
        }
    }
}

/// Reads what a peer writes, and hands it on. `bucket` is one for all streams of the peer, or who
/// opens another would have another burst.
pub(super) async fn receive(
    peer: PeerId,
    mut stream: Stream,
    notes: mpsc::Sender<Note>,
    bucket: Arc<Mutex<Bucket>>,
    _permit: OwnedSemaphorePermit,
) {
    let Some(from) = name::from_libp2p(&peer) else { return };
    let fair = || bucket.lock().unwrap_or_else(PoisonError::into_inner).take(Instant::now());
    loop {
        let note = match frame::read(&mut stream, MESSAGE_BYTES_MAX).await {
            Ok(Some(bytes)) if fair() => {
                Note::Tell(Event::Message { from, via: Via::Direct, bytes })
            }
            Ok(Some(_)) => {
                let why = format!("more than {MESSAGES_PER_SECOND} messages a second");
                Note::Fault { peer, why, gravity: Gravity::Minor }
            }
            Err(error @ FrameError::TooLong { .. }) => {
                let why = format!("a control message: {error}");
                let _ = notes.send(Note::Fault { peer, why, gravity: Gravity::Grave }).await;
                return;
            }
            // The end of the stream, or of the connection, which the swarm tells about.
            Ok(None) | Err(FrameError::Truncated | FrameError::Io(_)) => return,
        };
        if notes.send(note).await.is_err() {
            return;
        }
    }
}

/// What a peer may send over all its streams (docs/FORMATS.md).
pub(super) fn bucket(now: Instant) -> Arc<Mutex<Bucket>> {
    Arc::new(Mutex::new(Bucket::new(MESSAGES_PER_SECOND, MESSAGES_BURST, now)))
}

const MESSAGES_PER_SECOND: u32 = 64;
const MESSAGES_BURST: u32 = 256;

/// Messages that wait for one peer.
const QUEUE_MESSAGES: usize = 64;

/// A peer that takes nothing for this long is gone; a megabyte over a bad home line takes that.
const STALL: Duration = Duration::from_secs(10);
