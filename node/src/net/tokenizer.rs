//! `/intellect/tokenizer/1`: the file of the run's tokenizer, from whichever peer has it.
//!
//! Request: one frame, the BLAKE3 of the file. Answer: the file as one frame, or the end of the
//! stream, where the peer does not have it or hands it to others just now. What comes is believed by
//! its digest, so it does not matter who answers.

use std::{sync::Arc, time::Duration};

use intellect_bootstrap::frame::{self, FrameError};
use libp2p::{PeerId, Stream, StreamProtocol};
use tokio::{
    sync::{Semaphore, mpsc, oneshot},
    time::timeout,
};

use super::{
    FetchError, Shared,
    actor::{Actor, Note, TASKS_MAX},
    fetch::{self, Limits},
    pace::Urgency,
    peers::FAULTS_MAX,
};

/// The protocol id.
pub(super) const TOKENIZER: StreamProtocol = StreamProtocol::new("/intellect/tokenizer/1");

/// Answers at once: who comes in vain asks somebody else, or again.
pub(super) const ANSWERS: usize = 2;

const DIGEST_BYTES: u32 = 32;

/// Who opens a stream says at once what for.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// The largest tokenizer in wide use has 33 MB (Gemma's); 64 MiB over 10 Mbit/s are 54 s.
const LIMITS: Limits = Limits { bytes: 64 << 20, time: Duration::from_secs(120) };

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

impl Actor {
    /// Asks the member of the run whose turn it is.
    pub(super) fn ask_tokenizer(
        &mut self,
        digest: [u8; 32],
        turn: usize,
        mut reply: oneshot::Sender<Result<Vec<u8>, FetchError>>,
    ) {
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
        let (shared, notes) = (Arc::clone(&self.shared), self.notes.clone());
        self.tasks.spawn(async move {
            let answer = tokio::select! {
                answer = fetch::ask(opening, &digest, LIMITS, &shared.inflow) => answer,
                () = reply.closed() => return,
            };
            let answer = match answer {
                Ok(bytes) if *blake3::hash(&bytes).as_bytes() != digest => {
                    let why = "a tokenizer of another digest".to_owned();
                    let _ = notes.send(Note::Fault { peer, why, weight: FAULTS_MAX }).await;
                    Err(FetchError::Refused)
                }
                answer => answer,
            };
            let _ = reply.send(answer);
        });
    }

    /// Answers on a stream that somebody opened: with the file, if it is a member of the run, and not enough
    /// others are answered just now.
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
        let read = timeout(REQUEST_TIMEOUT, frame::read(&mut stream, DIGEST_BYTES)).await.ok()?;
        let read = match read {
            Ok(None) => return None,
            Ok(Some(request)) if request.len() == DIGEST_BYTES as usize => Ok(request),
            Ok(Some(request)) => Err(format!("{} bytes, which means nothing", request.len())),
            Err(error @ FrameError::TooLong { .. }) => Err(error.to_string()),
            Err(FrameError::Truncated | FrameError::Io(_)) => return None,
        };
        let request = match read {
            Ok(request) => request,
            Err(why) => {
                let why = format!("a request for a tokenizer: {why}");
                let _ = notes.send(Note::Fault { peer, why, weight: FAULTS_MAX }).await;
                return None;
            }
        };
        let file = held.filter(|file| request == file.digest)?;
        let _permit = answers.try_acquire_owned().ok()?;
        fetch::write(stream, &file.bytes, Urgency::Transfer, &shared).await
    };
    // Whatever went wrong, the asker sees that its stream has ended.
    let _ = timeout(LIMITS.time, exchange).await;
}
