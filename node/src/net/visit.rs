//! `/intellect/admit/1`: one visit, one reception, each a frame; a stream for each pair.
//!
//! The lobby ([`super::lobby`]) says whose visits are listened to, the driver answers them.

use std::time::Duration;

use futures::AsyncWriteExt as _;
use intellect_bootstrap::{
    frame::{self, FrameError},
    streams::{OpenError, Opening},
};
use intellect_protocol::access::handshake::{
    Outcome, RECEPTION_BYTES_MAX, Reception, VISIT_BYTES_MAX, Visit,
};
use libp2p::{PeerId, Stream, StreamProtocol};
use tokio::{
    sync::{OwnedSemaphorePermit, mpsc, oneshot},
    time::timeout,
};

use super::{
    inbox::{Gravity, Note},
    interface::{Event, Response},
    name,
};

/// The protocol id.
pub(super) const ADMIT: StreamProtocol = StreamProtocol::new("/intellect/admit/1");

/// Brings a visit to a peer, and tells what came of it.
pub(super) async fn pay(
    peer: PeerId,
    opening: Opening,
    visit: Vec<u8>,
    number: u64,
    notes: mpsc::Sender<Note>,
) {
    let exchange = async {
        let mut stream = match opening.await {
            Ok(Ok(stream)) => stream,
            Ok(Err(OpenError::Unsupported(_))) => return Err(Response::Unknown),
            Ok(Err(OpenError::Closed | OpenError::Failed(_))) | Err(_) => {
                return Err(Response::Silent);
            }
        };
        let exchanged = async {
            frame::write(&mut stream, &visit).await.ok()?;
            stream.close().await.ok()?;
            let answer = frame::read(&mut stream, frame_max(RECEPTION_BYTES_MAX)).await.ok()??;
            Reception::from_bytes(&answer)
        };
        exchanged.await.ok_or(Response::Silent)
    };
    let (response, reception) = match timeout(PATIENCE, exchange).await {
        Err(_) => (Response::Silent, None),
        Ok(Err(response)) => (response, None),
        Ok(Ok(reception)) => match reception.outcome {
            Outcome::Welcome => (Response::Welcome, Some(reception)),
            Outcome::Refused(_) => (Response::Refused, Some(reception)),
        },
    };
    // Without the actor nobody asks.
    let _ = notes.send(Note::Visited { peer, number, response, reception }).await;
}

/// Listens to a visit, lets the driver answer it, and brings the answer.
pub(super) async fn receive(
    peer: PeerId,
    mut stream: Stream,
    notes: mpsc::Sender<Note>,
    _permit: OwnedSemaphorePermit,
) {
    let exchange = async {
        let read = timeout(VISIT_PATIENCE, frame::read(&mut stream, frame_max(VISIT_BYTES_MAX)));
        let visit = match read.await.ok()? {
            Ok(bytes) => Visit::from_bytes(&bytes?),
            Err(FrameError::TooLong { .. }) => None,
            Err(FrameError::Truncated | FrameError::Late | FrameError::Io(_)) => return None,
        };
        let from = name::from_libp2p(&peer)?;
        let Some(visit) = visit else {
            let why = "a visit that cannot be read".to_owned();
            let _ = notes.send(Note::Fault { peer, why, gravity: Gravity::Grave }).await;
            return None;
        };
        let (reply, answer) = oneshot::channel();
        notes.send(Note::Tell(Event::Visit { from, visit: Box::new(visit), reply })).await.ok()?;
        let answer: Reception = answer.await.ok()?;
        frame::write(&mut stream, &answer.to_bytes()).await.ok()?;
        stream.close().await.ok()
    };
    // Whatever went wrong, who came sees that its stream has ended.
    let _ = timeout(PATIENCE, exchange).await;
}

fn frame_max(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// A visit comes with its stream, or right behind.
const VISIT_PATIENCE: Duration = Duration::from_secs(5);
/// What an answer may take: a driver that is busy, and a slow line.
const PATIENCE: Duration = Duration::from_secs(10);
