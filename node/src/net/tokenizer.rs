//! `/intellect/tokenizer/2`: the file of the run's tokenizer, from whichever peer has it.
//!
//! Request: one frame, the BLAKE3 of the file and from where on. Answer: the next mebibyte of the file
//! as one frame, less at its end, or the end of the stream, where the peer does not have it or hands it
//! to others just now. A part takes a slow line seconds, the largest file would take it many minutes.
//! The parts are believed by the digest of all of them, so it does not matter who answers.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use intellect_bootstrap::frame::{self, FrameError};
use intellect_protocol::id::PeerId as Peer;
use libp2p::{PeerId, Stream, StreamProtocol};
use tokio::{
    sync::{Notify, mpsc, oneshot},
    time::timeout,
};

use super::{
    ANSWER_BYTES_MAX, FetchError, Shared,
    actor::{Actor, Note, TASKS_MAX},
    fetch::{self, TIMEOUT},
    name,
    pace::Urgency,
    peers::FAULTS_MAX,
};

/// The protocol id.
pub(super) const TOKENIZER: StreamProtocol = StreamProtocol::new("/intellect/tokenizer/2");

/// Answers at once: who comes in vain asks somebody else, or again.
const ANSWERS: usize = 2;

/// Of every part but the last one, which is shorter.
pub(crate) const PART_BYTES: usize = 1 << 20;
const _: () = assert!(PART_BYTES <= ANSWER_BYTES_MAX as usize);

/// Digest and offset.
const REQUEST_BYTES: u32 = 32 + 8;

/// Who opens a stream says at once what for.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// A tokenizer that is handed out.
#[derive(Clone, Debug)]
pub(crate) struct File {
    pub(super) digest: [u8; 32],
    pub(super) bytes: Arc<[u8]>,
}

impl File {
    /// Its digest is that of its bytes.
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        Self { digest: *blake3::hash(&bytes).as_bytes(), bytes: bytes.into() }
    }
}

/// A part of a tokenizer, and who sent it.
pub(crate) type Part = (Peer, Vec<u8>);

/// What has come of a tokenizer, all of it from one peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun {
    pub(crate) author: Peer,
    pub(crate) length: u64,
}

impl Begun {
    /// From where on `peer` is asked: only its author continues what has begun, since what another
    /// one sent may be a lie.
    pub(crate) fn offset(begun: Option<Self>, peer: Peer) -> u64 {
        begun.filter(|begun| begun.author == peer).map_or(0, |begun| begun.length)
    }
}

/// A question for a part.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) digest: [u8; 32],
    pub(super) turn: usize,
    pub(super) begun: Option<Begun>,
    pub(super) reply: oneshot::Sender<Result<Part, FetchError>>,
}

/// Who is answered just now: [`ANSWERS`] of them, each with one answer, so that who reads slowly takes
/// one place and not all. Who asks again has no use for the answer before, which ends.
#[derive(Debug, Default)]
pub(super) struct Served(Mutex<BTreeMap<PeerId, Arc<Notify>>>);

/// A place among them, until it is dropped.
#[derive(Debug)]
struct Place {
    served: Arc<Served>,
    peer: PeerId,
    /// Told when the peer asks again.
    again: Arc<Notify>,
}

impl Served {
    fn admit(self: &Arc<Self>, peer: PeerId) -> Option<Place> {
        let mut places = self.places();
        if places.len() >= ANSWERS && !places.contains_key(&peer) {
            return None;
        }
        let again = Arc::new(Notify::new());
        if let Some(before) = places.insert(peer, Arc::clone(&again)) {
            before.notify_one();
        }
        Some(Place { served: Arc::clone(self), peer, again })
    }

    fn places(&self) -> MutexGuard<'_, BTreeMap<PeerId, Arc<Notify>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut places = self.served.places();
        // It may be that of the peer's next answer.
        if places.get(&self.peer).is_some_and(|place| Arc::ptr_eq(place, &self.again)) {
            places.remove(&self.peer);
        }
    }
}

impl Actor {
    /// Asks the member of the run whose turn it is.
    pub(super) fn ask_tokenizer(&mut self, ask: Ask) {
        let Ask { digest, turn, begun, mut reply } = ask;
        let members = self.peers.iter().filter(|(_, entry)| entry.member);
        let members = members.filter_map(|(peer, entry)| {
            Some((*peer, name::from_libp2p(peer)?, entry.control()?.id))
        });
        let members: Vec<_> = members.collect();
        let Some(index) = turn.checked_rem(members.len()) else {
            // Nobody waits any longer, or hears that nobody is there.
            let _ = reply.send(Err(FetchError::NotConnected));
            return;
        };
        let (peer, author, connection) = members[index];
        let opening = self.swarm.behaviour_mut().streams.open(peer, connection, TOKENIZER);
        let shared = Arc::clone(&self.shared);
        let request = [&digest[..], &Begun::offset(begun, author).to_le_bytes()].concat();
        self.tasks.spawn(async move {
            let answer = tokio::select! {
                answer = fetch::ask(opening, &request, &shared.inflow) => answer,
                () = reply.closed() => return,
            };
            let _ = reply.send(answer.map(|part| (author, part)));
        });
    }

    /// Answers on a stream that somebody opened: with a part of the file, if it is a member of the
    /// run, and not enough others are answered just now.
    pub(super) fn serve_tokenizer(&mut self, peer: PeerId, stream: Stream) {
        let member = self.peers.iter().any(|(known, entry)| *known == peer && entry.member);
        if self.tasks.len() < TASKS_MAX {
            let held = self.tokenizer.clone().filter(|_| member);
            let shared = Arc::clone(&self.shared);
            let served = Arc::clone(&self.served);
            self.tasks.spawn(serve(peer, stream, held, self.notes.clone(), shared, served));
        }
    }
}

async fn serve(
    peer: PeerId,
    mut stream: Stream,
    held: Option<File>,
    notes: mpsc::Sender<Note>,
    shared: Arc<Shared>,
    served: Arc<Served>,
) {
    let exchange = async {
        let read = timeout(REQUEST_TIMEOUT, frame::read(&mut stream, REQUEST_BYTES)).await.ok()?;
        let read = match read {
            Ok(None) => return None,
            Ok(Some(request)) => {
                let length = request.len();
                wanted(&request).ok_or_else(|| format!("{length} bytes, which means nothing"))
            }
            Err(error @ FrameError::TooLong { .. }) => Err(error.to_string()),
            Err(FrameError::Truncated | FrameError::Io(_)) => return None,
        };
        let (digest, offset) = match read {
            Ok(wanted) => wanted,
            Err(why) => {
                let why = format!("a request for a tokenizer: {why}");
                let _ = notes.send(Note::Fault { peer, why, weight: FAULTS_MAX }).await;
                return None;
            }
        };
        let file = held.filter(|file| digest == file.digest)?;
        let rest = file.bytes.get(usize::try_from(offset).ok()?..)?;
        let place = served.admit(peer)?;
        let part = &rest[..rest.len().min(PART_BYTES)];
        tokio::select! {
            written = fetch::write(stream, part, Urgency::Transfer, &shared) => written,
            () = place.again.notified() => None,
        }
    };
    // Whatever went wrong, the asker sees that its stream has ended.
    let _ = timeout(TIMEOUT, exchange).await;
}

/// The digest and the offset of a request.
fn wanted(request: &[u8]) -> Option<([u8; 32], u64)> {
    let (digest, offset) = request.split_at_checked(32)?;
    Some((digest.try_into().ok()?, u64::from_le_bytes(offset.try_into().ok()?)))
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn nobody_is_answered_twice_at_once() {
        let served = Arc::new(Served::default());
        let [one, other, third] = [(); 3].map(|()| PeerId::random());
        let is_over = |place: &Place| place.again.notified().now_or_never().is_some();
        let first = served.admit(one).unwrap();
        let again = served.admit(one).unwrap();
        assert!(is_over(&first) && !is_over(&again));
        let second = served.admit(other).unwrap();
        assert!(served.admit(third).is_none());
        drop(first);
        assert!(served.admit(third).is_none(), "the place is that of the next answer");
        drop(again);
        assert!(served.admit(third).is_some() && !is_over(&second));
    }
}
