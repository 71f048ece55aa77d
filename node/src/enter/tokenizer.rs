//! The file of the run's tokenizer, which peers hand to one another, so that nobody has to distribute it.
//!
//! Training needs tokens only. `sample` and `eval` need text, and look for the file in the run's folder. A node that is
//! started with `--tokenizer` brings it into the run; every other node asks its peers for it, by the digest in the
//! manifest, until one has it. A node that has it in its folder hands it out (`driver::serve`).
//!
//! A run on bytes has no such file. A node never waits for it: it trains meanwhile, and asks less
//! often as time passes.

use std::path::Path;
use std::sync::Arc;

use intellect_model::config::{Scheme, Vocabulary};
use intellect_model::tokenizer::{FILE_BYTES_MAX, File, OpenError, Tokenizer};
use intellect_protocol::base::id::Digest;

use super::EnterError;
use crate::fetch;
use crate::net::Handle;
use crate::store::{Store, StoreError};
use crate::tell::Console;

/// The digest of the tokenizer's file if it has to be fetched. `named` is the file that was typed; if it is right, it
/// is copied into the run's folder.
///
/// # Errors
/// The named file is not the run's tokenizer, or the run has none; both are mistakes of the user. A
/// damaged file in the folder is set aside and fetched again.
pub(crate) fn wanted(
    vocabulary: Option<&Vocabulary>,
    named: Option<&Path>,
    store: &Store,
) -> Result<Option<Digest>, EnterError> {
    let vocabulary = vocabulary.filter(|vocabulary| vocabulary.scheme != Scheme::Bytes);
    match (vocabulary, named) {
        (None, None) => Ok(None),
        (None, Some(path)) => Err(OpenError::NeedlessFile(path.to_owned()).into()),
        (Some(vocabulary), Some(path)) => {
            let file = Tokenizer::of_documents(vocabulary, Some(path))
                .and_then(|_| File::open(path))
                .map_err(EnterError::from)?;
            store.save_tokenizer(&file.bytes)?;
            Ok(None)
        }
        (Some(vocabulary), None) => {
            let path = store.tokenizer_path();
            if File::open(&path).is_ok_and(|file| file.digest() == vocabulary.digest) {
                return Ok(None);
            }
            // A damaged file must not be handed out.
            if path.exists() {
                store.set_aside(&path)?;
            }
            Ok(Some(Digest(vocabulary.digest)))
        }
    }
}

/// Fetches the tokenizer into the run's folder, if one is `wanted`.
/// `first` is any byte that differs between nodes, by which they ask different peers first.
///
/// # Cancel safety
/// Cancel safe.
pub(crate) async fn fetch_wanted(
    wanted: Option<Digest>,
    net: Handle,
    store: Arc<Store>,
    console: Console,
    first: u8,
) {
    let Some(digest) = wanted else { return };
    let file = fetch::file(&net, digest, FILE_BYTES_MAX, first).await;
    // Off the loop of events, as the file may be large and the disk slow.
    let saved = tokio::task::spawn_blocking(move || store.save_tokenizer(&file)).await;
    match saved.map_err(StoreError::from).flatten() {
        Ok(()) => console.say("the run's tokenizer is here: sample needs no file"),
        Err(error) => console.disk(&error),
    }
}

#[cfg(test)]
mod tests;
