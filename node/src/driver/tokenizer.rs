//! The file of the run's tokenizer: peers hand it to one another, so that nobody needs to send it round.
//!
//! Training needs tokens only. `sample` and `eval` want text, and find the file in the run's folder.
//! Whoever starts with `--tokenizer` brings it into the run; every other node asks one peer after the
//! other for it, by the digest in the manifest, until one has it, keeps it, and hands it out too. It
//! comes in parts, and when a peer stops in the middle the next one goes on.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use intellect_model::config::{Scheme, Vocabulary};
use intellect_model::tokenizer::{File, OpenError, Tokenizer};
use intellect_protocol::id::PeerId;

use super::enter::EnterError;
use super::tell::Teller;
use crate::error::Error;
use crate::net::Handle;
use crate::net::tokenizer::{PART_BYTES, Part};
use crate::store::{Store, StoreError};

/// What becomes of the tokenizer of a run.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// It has no file.
    Nothing,
    /// It is to be handed out.
    Held(Vec<u8>),
    /// It is to be asked for by this digest.
    Wanted([u8; 32]),
}

impl Need {
    /// Of the run whose tokenizer this is; `named` is the file that was typed. What is found is in
    /// the run's folder then.
    pub(super) fn of(
        vocabulary: Option<&Vocabulary>,
        named: Option<&Path>,
        store: &Store,
    ) -> Result<Self, Error> {
        let vocabulary = vocabulary.filter(|vocabulary| vocabulary.scheme != Scheme::Bytes);
        match (vocabulary, named) {
            (None, None) => Ok(Self::Nothing),
            (None, Some(path)) => {
                let path = path.to_owned();
                Err(EnterError::from(OpenError::NeedlessFile { path }).into())
            }
            (Some(vocabulary), Some(path)) => {
                let file = Tokenizer::of_documents(vocabulary, Some(path))
                    .and_then(|_| File::open(path))
                    .map_err(EnterError::from)?;
                store.save_tokenizer(&file.bytes)?;
                Ok(Self::Held(file.bytes))
            }
            (Some(vocabulary), None) => match File::open(&store.tokenizer_path()) {
                Ok(file) if file.digest() == vocabulary.digest => Ok(Self::Held(file.bytes)),
                // Absent, or damaged: another one takes its place.
                _ => Ok(Self::Wanted(vocabulary.digest)),
            },
        }
    }
}

/// Hands the tokenizer out, once it is here. Ends never, so that whoever waits for something else
/// too may wait for both.
///
/// # Cancel safety
/// Cancel safe.
pub(super) async fn keep(
    need: Need,
    net: Handle,
    store: Arc<Store>,
    tell: Teller,
    first: u8,
) -> Infallible {
    let file = match need {
        Need::Nothing => None,
        Need::Held(file) => Some(file),
        Need::Wanted(digest) => {
            let file = fetch(digest, &net, first).await;
            match save(&store, file.clone()).await {
                Ok(()) => tell.say("the run's tokenizer is here: sample needs no file"),
                Err(error) => tell.disk(&error),
            }
            Some(file)
        }
    };
    if let Some(file) = file {
        // A network that has stopped hands nothing out.
        let _ = net.hand_out(file).await;
    }
    std::future::pending().await
}

/// Asks one peer after the other, each as long as it answers. Each node begins with another one.
async fn fetch(digest: [u8; 32], net: &Handle, first: u8) -> Vec<u8> {
    let (mut turn, mut pause) = (usize::from(first), PAUSE);
    let mut coming = Coming::default();
    loop {
        tokio::time::sleep(pause).await;
        pause = (pause + pause / 2).min(PAUSE_MAX);
        loop {
            match net.tokenizer(digest, coming.bytes.len() as u64, turn).await {
                Ok(part) => match coming.add(part, digest) {
                    Step::More => pause = PAUSE,
                    Step::Whole(file) => return file,
                    Step::Wrong { author } => {
                        if let Some(peer) = author {
                            net.drop_peer(peer, "a tokenizer of another digest");
                        }
                        break;
                    }
                },
                Err(error) => {
                    tracing::debug!(%error, "no tokenizer");
                    break;
                }
            }
        }
        turn = turn.wrapping_add(1);
    }
}

/// What has come of the file.
#[derive(Debug, Default)]
struct Coming {
    bytes: Vec<u8>,
    /// Who sent it; none if several did, of whom nobody can be blamed.
    author: Option<PeerId>,
}

/// What a part makes of it.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// The next part is asked for.
    More,
    /// That was the last one, and it is the file.
    Whole(Vec<u8>),
    /// It is another file, or endless: all of it is thrown away.
    Wrong {
        /// Who sent all of it, if it was one peer.
        author: Option<PeerId>,
    },
}

impl Coming {
    fn add(&mut self, (peer, part): Part, digest: [u8; 32]) -> Step {
        let is_alone = self.bytes.is_empty() || self.author == Some(peer);
        self.author = is_alone.then_some(peer);
        self.bytes.extend_from_slice(&part);
        let is_whole = part.len() < PART_BYTES;
        if !is_whole && self.bytes.len() <= BYTES_MAX {
            return Step::More;
        }
        let Self { bytes, author } = std::mem::take(self);
        if is_whole && *blake3::hash(&bytes).as_bytes() == digest {
            Step::Whole(bytes)
        } else {
            Step::Wrong { author }
        }
    }
}

async fn save(store: &Arc<Store>, file: Vec<u8>) -> Result<(), StoreError> {
    let store = Arc::clone(store);
    let write = move || store.save_tokenizer(&file);
    match tokio::task::spawn_blocking(write).await {
        Ok(saved) => saved,
        Err(error) => Err(StoreError::Ended(error.to_string())),
    }
}

/// Between two questions, longer each time: an answer that does not come in time costs a whole line.
const PAUSE: Duration = Duration::from_secs(2);
const PAUSE_MAX: Duration = Duration::from_secs(600);

/// Twice the largest one in wide use, of 33 MB (Gemma's).
const BYTES_MAX: usize = 64 << 20;

#[cfg(test)]
mod tests;
