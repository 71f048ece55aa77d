//! The file of the run's tokenizer: peers hand it to one another, so that nobody needs to send it round.
//!
//! Training needs tokens only. `sample` and `eval` want text, and find the file in the run's folder.
//! Whoever starts with `--tokenizer` brings it into the run; every other node asks one peer after the
//! other for it, by the digest in the manifest, until one has it, keeps it, and hands it out too.
//!
//! It comes in parts, and only the whole can be checked. So all parts are of one peer: where it breaks
//! off it is asked again for what follows, and any other peer for the begin, whose first part takes
//! the place of all that has come. Whoever lies can spoil nothing but its own file.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use intellect_model::config::{Scheme, Vocabulary};
use intellect_model::tokenizer::{FILE_BYTES_MAX, File, OpenError, Tokenizer};
use intellect_protocol::id::PeerId;

use super::EnterError;
use crate::net::Handle;
use crate::net::tokenizer::{Begun, PART_BYTES, Part};
use crate::store::{Store, StoreError};
use crate::tell::Teller;

/// What becomes of the tokenizer of a run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Need {
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
    pub(crate) fn of(
        vocabulary: Option<&Vocabulary>,
        named: Option<&Path>,
        store: &Store,
    ) -> Result<Self, EnterError> {
        let vocabulary = vocabulary.filter(|vocabulary| vocabulary.scheme != Scheme::Bytes);
        match (vocabulary, named) {
            (None, None) => Ok(Self::Nothing),
            (None, Some(path)) => {
                let path = path.to_owned();
                Err(EnterError::from(OpenError::NeedlessFile { path }))
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
pub(crate) async fn keep(
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
    let mut coming = Coming::new(digest, usize::from(first));
    let mut pause = PAUSE;
    loop {
        tokio::time::sleep(pause).await;
        pause = (pause + pause / 2).min(PAUSE_MAX);
        loop {
            match net.tokenizer(digest, coming.turn, coming.begun()).await {
                Ok(part) => match coming.add(part) {
                    Step::More => pause = PAUSE,
                    Step::Whole(file) => return file,
                    Step::Wrong { author } => {
                        net.drop_peer(author, "a tokenizer of another digest");
                        break;
                    }
                },
                Err(error) => {
                    tracing::debug!(%error, "no tokenizer");
                    coming.fail();
                    break;
                }
            }
        }
    }
}

/// What has come of the file, and who is asked next.
#[derive(Debug)]
struct Coming {
    digest: [u8; 32],
    turn: usize,
    /// How often the same one may still fail before it is the next one's turn.
    again: u32,
    /// Who sent what has come; nobody if that is nothing.
    author: Option<PeerId>,
    bytes: Vec<u8>,
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
        /// Who sent all of it.
        author: PeerId,
    },
}

impl Coming {
    fn new(digest: [u8; 32], turn: usize) -> Self {
        Self { digest, turn, again: 0, author: None, bytes: Vec::new() }
    }

    fn begun(&self) -> Option<Begun> {
        self.author.map(|author| Begun { author, length: self.bytes.len() as u64 })
    }

    /// A part of whoever was asked last.
    fn add(&mut self, (author, part): Part) -> Step {
        if self.author != Some(author) {
            self.bytes.clear();
        }
        self.author = Some(author);
        self.again = AGAIN_MAX;
        self.bytes.extend_from_slice(&part);
        let is_whole = part.len() < PART_BYTES;
        if !is_whole && self.bytes.len() <= FILE_BYTES_MAX {
            return Step::More;
        }
        let next = Self::new(self.digest, self.turn.wrapping_add(1));
        let Self { bytes, .. } = std::mem::replace(self, next);
        if is_whole && *blake3::hash(&bytes).as_bytes() == self.digest {
            Step::Whole(bytes)
        } else {
            Step::Wrong { author }
        }
    }

    /// Whoever was asked last has sent nothing. What has come is kept until somebody else begins.
    fn fail(&mut self) {
        match self.again.checked_sub(1) {
            Some(again) => self.again = again,
            None => self.turn = self.turn.wrapping_add(1),
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

/// How often somebody who broke off is asked again before the next one is: with the pauses, for a
/// quarter of a minute.
const AGAIN_MAX: u32 = 4;

#[cfg(test)]
mod tests;
