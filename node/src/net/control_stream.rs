//! `/intellect/ctl/1`: control messages for one peer, `length u32 LE ‖ envelope`.
//!
//! Each side opens one stream, writes on it and never reads from it, so the two directions cannot
//! block one another. Messages wait in a bounded queue; a full queue is an error to the sender, and
//! the protocol repeats what matters. Too many messages are a fault of the peer. Too many bytes are
//! not: we stop reading for a while, so that they stay with the sender. Messages of strangers wait
//! in the same way where all strangers together send too many.

use std::{
    net::IpAddr,
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
    time::{Instant, sleep_until, timeout},
};

use super::{
    inbox::{Severity, Shared, TaskEvent, blame},
    interface::{Event, MESSAGE_BYTES_MAX, Via},
    limits::{bucket::Bucket, strangers::is_stranger},
    name,
};

/// Opens our stream to a peer and writes what is queued, until one end closes. The actor hears of
/// its beginning and of its end, and opens another one a second after the end.
pub(super) async fn send(
    peer: PeerId,
    connection: ConnectionId,
    opening: Opening,
    events: mpsc::Sender<TaskEvent>,
) {
    if let Ok(Ok(stream)) = opening.await {
        let (outbox, queue) = mpsc::channel(QUEUE_MESSAGES);
        if events.send(TaskEvent::StreamUp { peer, connection, outbox }).await.is_ok() {
            write_all(stream, queue).await;
        }
    }
    // Fails only when the actor has gone.
    let _ = events.send(TaskEvent::StreamDown { peer, connection }).await;
}

/// Opens a stream to a peer, writes one message, and closes it. No queue is involved, so this
/// reaches a certain connection also where the control stream is on another one.
pub(super) async fn send_once(opening: Opening, message: Vec<u8>) {
    if let Ok(Ok(mut stream)) = opening.await {
        // A closing connection takes nothing; the caller tries again.
        let _ = timeout(STALL, async {
            frame::write(&mut stream, &message).await?;
            stream.close().await
        })
        .await;
    }
}

/// Writes messages until the queue, the stream or the peer's patience ends. A message that is cut
/// off ends the stream, so the peer never reads a part as a whole.
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
            // The peer never writes here, so this returns when the stream ends, also where the peer
            // does not speak the protocol.
            _ = from.read(&mut never) => {
                let _ = to.close().await;
                return;
            }
        }
    }
}

/// Reads what a peer writes, and hands it on. All streams of the peer share one quota, or each new
/// stream would allow another burst. A frame above the limit is a grave fault, since no version of
/// this program writes one. Its body is not read, so the stream is of no more use. A message of a
/// stranger is dropped if it gets no turn in time. `network`: where the peer is, if its network
/// has a limit.
pub(super) async fn receive(
    peer: PeerId,
    network: Option<IpAddr>,
    mut stream: Stream,
    events: mpsc::Sender<TaskEvent>,
    shared: Arc<Shared>,
    quota: Arc<Mutex<Quota>>,
    _permit: OwnedSemaphorePermit,
) {
    let Some(from) = name::from_libp2p(&peer) else { return };
    loop {
        let room = shared.room(&from);
        let (bytes, reserved) = match room.read(&mut stream, MESSAGE_BYTES_MAX).await {
            Ok(Some(read)) => read,
            Err(error @ FrameError::TooLong { .. }) => {
                blame(&events, peer, format!("a control message: {error}")).await;
                return;
            }
            // The end of the stream or of the connection, which the swarm reports; or a link that
            // is too slow, on which another stream may follow.
            Ok(None) | Err(FrameError::Truncated | FrameError::Late | FrameError::Io(_)) => return,
        };
        let (fair, until) = {
            let mut quota = quota.lock().unwrap_or_else(PoisonError::into_inner);
            quota.charge(bytes.len(), Instant::now())
        };
        // Nothing is verified for a fault, so it needs no turn.
        let is_limited = fair && is_stranger(&from, &shared.members.borrow());
        if !is_limited || shared.strangers.turn(network, bytes.len()).await {
            let event = if fair {
                TaskEvent::Emit(Event::Message { from, via: Via::Direct, bytes, reserved })
            } else {
                let why = format!("more than {MESSAGES_PER_SECOND} messages a second");
                TaskEvent::Fault { peer, why, severity: Severity::Minor }
            };
            if events.send(event).await.is_err() {
                return;
            }
        } else {
            // Its memory is free for others while this stream waits.
            drop((bytes, reserved));
        }
        sleep_until(until).await;
    }
}

/// What a peer may send over all its control streams together (docs/FORMATS.md).
#[derive(Debug)]
pub(super) struct Quota {
    /// Messages above this rate are faults.
    messages: Bucket,
    /// Bytes above this rate slow the reading down, and are no faults.
    bytes: Bucket,
}

impl Quota {
    /// A full quota, for a peer that was not connected before.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            messages: Bucket::new(MESSAGES_PER_SECOND, MESSAGES_BURST, now),
            bytes: Bucket::new(BYTES_PER_SECOND, BYTES_BURST, now),
        }
    }

    /// Counts a message that was read. Returns whether the rate allows it, and until when no other
    /// one is read from its stream.
    fn charge(&mut self, bytes: usize, now: Instant) -> (bool, Instant) {
        (self.messages.take(now), self.bytes.owe(bytes, now))
    }
}

/// Messages of one peer to this node alone, and how many at once (docs/FORMATS.md).
const MESSAGES_PER_SECOND: u32 = 64;
const MESSAGES_BURST: u32 = 256;

/// A second takes three proofs of an epoch with 256 members, for a peer that catches up; a burst
/// takes a few Regroups with all their Joins.
const BYTES_PER_SECOND: u32 = 128 * 1024;
const BYTES_BURST: u32 = 4 << 20;

/// Messages that may wait for one peer, 64 MiB at most. A further one is an error to its sender, so
/// a peer that reads slowly costs no more memory.
const QUEUE_MESSAGES: usize = 64;

/// A peer that takes nothing for this long is lost; a megabyte over a bad home link takes as long.
const STALL: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    /// Long messages stay with their sender, and are no fault.
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
