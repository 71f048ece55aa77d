//! `/intellect/tokenizer/1`: the file of the run's tokenizer, from whichever peer has it.
//!
//! Request: one frame, the BLAKE3 of the file and from where on. Answer: the next mebibyte of the file
//! as one frame, less at its end, or the end of the stream, where the peer does not have it or hands it
//! to others just now. A part takes a slow line seconds, the largest file would take it many minutes.
//! The parts are believed by the digest of all of them, so it does not matter who answers.

use std::{sync::Arc, time::Duration};

use intellect_bootstrap::frame::{self, FrameError};
use libp2p::{PeerId, Stream, StreamProtocol};
use tokio::{
    sync::{Semaphore, mpsc, oneshot},
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
pub(super) const TOKENIZER: StreamProtocol = StreamProtocol::new("/intellect/tokenizer/1");

/// Answers at once: who comes in vain asks somebody else, or again.
pub(super) const ANSWERS: usize = 2;

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
pub(crate) type Part = (intellect_protocol::id::PeerId, Vec<u8>);

/// A question for a part.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) digest: [u8; 32],
    pub(super) offset: u64,
    pub(super) turn: usize,
    pub(super) reply: oneshot::Sender<Result<Part, FetchError>>,
}

impl Actor {
    /// Asks the member of the run whose turn it is.
    pub(super) fn ask_tokenizer(&mut self, ask: Ask) {
        let Ask { digest, offset, turn, mut reply } = ask;
        let members = self.peers.iter().filter(|(_, entry)| entry.member);
        let members: Vec<_> =
            members.filter_map(|(peer, entry)| Some((*peer, entry.control()?.id))).collect();
        let Some(index) = turn.checked_rem(members.len()) else {
            // Nobody waits any longer, or hears that nobody is there.
            let _ = reply.send(Err(FetchError::NotConnected));
            return;
        };
        let (peer, connection) = members[index];
        let opening = self.swarm.behaviour_mut().streams.open(peer, connection, TOKENIZER);
        let shared = Arc::clone(&self.shared);
        let request = [&digest[..], &offset.to_le_bytes()].concat();
        self.tasks.spawn(async move {
            let answer = tokio::select! {
                answer = fetch::ask(opening, &request, &shared.inflow) => answer,
                () = reply.closed() => return,
            };
            let peer = name::from_libp2p(&peer).ok_or(FetchError::NotConnected);
            let _ = reply.send(peer.and_then(|peer| Ok((peer, answer?))));
        });
    }

    /// Answers on a stream that somebody opened: with a part of the file, if it is a member of the
    /// run, and not enough others are answered just now.
    pub(super) fn serve_tokenizer(&mut self, peer: PeerId, stream: Stream) {
        let member = self.peers.iter().any(|(known, entry)| *known == peer && entry.member);
        if self.tasks.len() < TASKS_MAX {
            let held = self.tokenizer.clone().filter(|_| member);
            let shared = Arc::clone(&self.shared);
            let answers = Arc::clone(&self.handing);
            self.tasks.spawn(serve(peer, stream, held, self.notes.clone(), shared, answers));
        }
    }
}

async fn serve(
    peer: PeerId,
    mut stream: Stream,
    held: Option<File>,
    notes: mpsc::Sender<Note>,
    shared: Arc<Shared>,
    answers: Arc<Semaphore>,
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
        let _permit = answers.try_acquire_owned().ok()?;
        let part = &rest[..rest.len().min(PART_BYTES)];
        fetch::write(stream, part, Urgency::Transfer, &shared).await
    };
    // Whatever went wrong, the asker sees that its stream has ended.
    let _ = timeout(TIMEOUT, exchange).await;
}

/// The digest and the offset of a request.
fn wanted(request: &[u8]) -> Option<([u8; 32], u64)> {
    let (digest, offset) = request.split_at_checked(32)?;
    Some((digest.try_into().ok()?, u64::from_le_bytes(offset.try_into().ok()?)))
}
