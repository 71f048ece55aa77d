//! The file of the run's tokenizer: peers hand it to one another, so that nobody needs to send it round.
//!
//! Training needs tokens only. `sample` and `eval` want text, and find the file in the run's folder.
//! Whoever starts with `--tokenizer` brings it into the run; every other node asks one peer after the
//! other for it, by the digest in the manifest, until one has it, keeps it, and hands it out too.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use intellect_model::config::{Scheme, Vocabulary};
use intellect_model::tokenizer::{File, OpenError, Tokenizer};

use super::enter::EnterError;
use super::tell::Teller;
use crate::error::Error;
use crate::net::Handle;
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

/// Asks one peer after the other. Each node begins with another one.
async fn fetch(digest: [u8; 32], net: &Handle, first: u8) -> Vec<u8> {
    let (mut turn, mut pause) = (usize::from(first), PAUSE);
    loop {
        tokio::time::sleep(pause).await;
        pause = (pause + pause / 2).min(PAUSE_MAX);
        match net.tokenizer(digest, turn).await {
            Ok(file) => return file,
            Err(error) => tracing::debug!(%error, "no tokenizer"),
        }
        turn = turn.wrapping_add(1);
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

#[cfg(test)]
mod tests;
