//! `/intellect/ctl/1`: control messages for one peer alone, `length u32 LE ‖ envelope`.
//!
//! Each side opens one stream, writes on it and never reads from it, so the two directions cannot
//! block one another. A message waits in a bounded queue; when that is full the sender is told,
//! and the protocol repeats what matters. More messages than anybody needs are a fault; of more bytes
//! than that none are read for a while, so that they stay with who sends them.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::{AsyncReadExt as _, AsyncWriteExt as _};
use intellect_bootstrap::{
    frame::{self, FrameError, Room},
    streams::Opening,
};
use libp2p::{PeerId, Stream, swarm::ConnectionId};
use tokio::{
    sync::{OwnedSemaphorePermit, mpsc},
    time::{Instant, sleep_until, timeout},
};

use super::{
    inbox::{Gravity, Note},
    interface::{Event, MESSAGE_BYTES_MAX, Via},
    limits::bucket::Bucket,
    name,
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

/// Reads what a peer writes, and hands it on. The quota is one for all streams of the peer, or who
/// opens another would have another burst.
pub(super) async fn receive(
    peer: PeerId,
    mut stream: Stream,
    notes: mpsc::Sender<Note>,
    (room, quota): (Room, Arc<Mutex<Quota>>),
    _permit: OwnedSemaphorePermit,
) {
    let Some(from) = name::from_libp2p(&peer) else { return };
    loop {
        let (note, until) = match room.read(&mut stream, MESSAGE_BYTES_MAX).await {
            Ok(Some((bytes, place))) => {
                let (fair, until) = {
                    let mut quota = quota.lock().unwrap_or_else(PoisonError::into_inner);
                    quota.charge(bytes.len(), Instant::now())
                };
                if fair {
                    let via = Via::Direct;
                    (Note::Tell(Event::Message { from, via, bytes, place }), until)
                } else {
                    let why = format!("more than {MESSAGES_PER_SECOND} messages a second");
                    (Note::Fault { peer, why, gravity: Gravity::Minor }, until)
                }
            }
            Err(error @ FrameError::TooLong { .. }) => {
                let why = format!("a control message: {error}");
                let _ = notes.send(Note::Fault { peer, why, gravity: Gravity::Grave }).await;
                return;
            }
            // The end of the stream, or of the connection, which the swarm tells about; or a line
            // that is too slow for us, on which another stream may follow.
            Ok(None) | Err(FrameError::Truncated | FrameError::Late | FrameError::Io(_)) => return,
        };
        if notes.send(note).await.is_err() {
            return;
        }
        sleep_until(until).await;
    }
}

/// What a peer may send over all its streams (docs/FORMATS.md).
#[derive(Debug)]
pub(super) struct Quota {
    messages: Bucket,
    bytes: Bucket,
}

impl Quota {
    /// Of a peer that has sent nothing yet.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            messages: Bucket::new(MESSAGES_PER_SECOND, MESSAGES_BURST, now),
            bytes: Bucket::new(BYTES_PER_SECOND, BYTES_BURST, now),
        }
    }

    /// Counts a message that was read. Returns whether it is one of not too many, and until when no
    /// other one is read from its stream.
    fn charge(&mut self, bytes: usize, now: Instant) -> (bool, Instant) {
        (self.messages.take(now), self.bytes.owe(bytes, now))
    }
}

const MESSAGES_PER_SECOND: u32 = 64;
const MESSAGES_BURST: u32 = 256;

/// Three proofs of an epoch a second, of 256 members, for who is behind; and as much at once as a
/// few Regroups with all their Joins take.
const BYTES_PER_SECOND: u32 = 128 * 1024;
const BYTES_BURST: u32 = 4 << 20;

/// Messages that wait for one peer.
const QUEUE_MESSAGES: usize = 64;

/// A peer that takes nothing for this long is gone; a megabyte over a bad home line takes that.
const STALL: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    /// What is too long stays with its sender; nobody is blamed for it.
    #[test]
    fn long_messages_are_read_at_a_pace_and_many_are_a_fault() {
        let start = Instant::now();
        let mut quota = Quota::new(start);
        for _ in 0..4 {
            assert_eq!(quota.charge(1 << 20, start), (true, start));
        }
        assert_eq!(quota.charge(1 << 20, start), (true, start + Duration::from_secs(8)));
        let many = (0..1_000).filter(|_| quota.charge(100, start).0).count();
        assert_eq!(many, 256 - 5);
    }
}
