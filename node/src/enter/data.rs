//! The files of the run's data: those that the user names, those that an earlier start fetched, and
//! those that this one fetches, where the manifest allows it.
//!
//! What the user names comes first. Files that are still missing are fetched into the run's folder, if they are not
//! larger in all than `--fetch-data` allows. They come from members that have them. A file that no connected peer has
//! comes from the web server that the manifest names.
//!
//! Which source is believed: none. Every file is compared with its length and BLAKE3 in the
//! manifest before training begins, wherever it comes from. A file of the user that is another one
//! is an error, because the user means it; a file in the run's folder that is damaged is repaired.

use std::path::PathBuf;
use std::sync::Arc;

use intellect_model::config::Fingerprint;
use intellect_model::data::{DataError, Dataset};

use super::{EnterError, off_loop};
use crate::config::Local;
use crate::fetch::{self, Fetched, WebError};
use crate::figures;
use crate::manifest::Manifest;
use crate::net;
use crate::store::Store;
use crate::tell::Console;

/// Which files of the run's data are here.
pub(crate) enum Files {
    /// All of them, opened and compared with the manifest.
    All(Arc<Dataset>),
    /// These files are missing and are to be fetched.
    Missing(Vec<Fingerprint>),
}

/// Opens the files that are here and reads them whole, to compare their digests.
///
/// # Errors
/// A file is not the run's, or it is missing and may not be fetched.
pub(crate) async fn look(
    local: &Local,
    manifest: &Arc<Manifest>,
    store: &Arc<Store>,
    console: &Console,
) -> Result<Files, EnterError> {
    let here = Here::new(local, manifest, store);
    let bytes = manifest.work.data.source.files().iter().map(|file| file.bytes).sum();
    let sentence = format!(
        "reading the run's data ({}), to compare it with the manifest",
        figures::bytes(bytes)
    );
    console.announced(&sentence, off_loop(move || here.look())).await?
}

/// Fetches the missing files and opens the whole data set.
///
/// # Errors
/// A file cannot be written; what has arrived is kept.
///
/// # Cancel safety
/// Cancel safe; what has arrived is kept.
pub(super) async fn fetch_missing(
    net: &net::Handle,
    local: &Local,
    manifest: &Arc<Manifest>,
    store: &Arc<Store>,
    missing: Vec<Fingerprint>,
    console: &Console,
) -> Result<Arc<Dataset>, EnterError> {
    let names: Vec<String> = missing.iter().map(|file| name(manifest, file)).collect();
    let bytes = figures::bytes(missing.iter().map(|file| file.bytes).sum());
    console.say(&format!("the run's data is not here: fetching {} ({bytes})", names.join(", ")));
    for (file, name) in missing.iter().zip(names) {
        if came_from_web(net, manifest, store, file, &name, console).await? {
            continue;
        }
        let unanswered =
            || console.say(&format!("waiting for {name}: no peer that is here has all of it yet"));
        let meter = &mut console.meter_of_data(&name, file);
        let fetched = fetch::data_at_last(net, store, *file, meter, unanswered).await;
        fetched.map_err(EnterError::FetchedData)?;
    }
    let here = Here::new(local, manifest, store);
    off_loop(move || here.open(&missing)).await?
}

/// Whether a file has come from the web server that the manifest names, or before that from members. If not, members
/// may have it later.
async fn came_from_web(
    net: &net::Handle,
    manifest: &Manifest,
    store: &Arc<Store>,
    file: &Fingerprint,
    name: &str,
    console: &Console,
) -> Result<bool, EnterError> {
    let Manifest { work, .. } = manifest;
    let address = index(manifest, file).and_then(|index| work.data.hints.address(index));
    let Some(url) = address else { return Ok(false) };
    let meter = || console.meter_of_data(name, file);
    if work.data.share {
        let came = fetch::data_soon(net, store, *file, &mut meter()).await;
        if came.map_err(EnterError::FetchedData)? == Fetched::All {
            return Ok(true);
        }
    }
    console.say(&format!("fetching {name} from {url}"));
    match fetch::data_from_web(store, *file, url, meter()).await {
        Ok(()) => Ok(true),
        Err(WebError::Disk(error)) => Err(EnterError::FetchedData(error)),
        Err(error) if work.data.share => {
            console.say(&error.to_string());
            Ok(false)
        }
        Err(error) => Err(error.into()),
    }
}

/// The index of a file in the manifest.
fn index(manifest: &Manifest, file: &Fingerprint) -> Option<usize> {
    manifest.work.data.source.files().iter().position(|known| known == file)
}

/// The name of a file in sentences.
/// Manifests name files for people; a file without a name is only counted.
fn name(manifest: &Manifest, file: &Fingerprint) -> String {
    let data = &manifest.work.data;
    let named = index(manifest, file).and_then(|index| data.hints.names.get(index));
    named.cloned().unwrap_or_else(|| "a file".to_owned())
}

/// Where the files of the run's data may be.
struct Here {
    manifest: Arc<Manifest>,
    store: Arc<Store>,
    /// Files and folders that the user named.
    named: Vec<PathBuf>,
    /// Most bytes that may be fetched in all.
    fetch_bytes: u64,
}

impl Here {
    /// The folder and the limit come from the command line; everything else from the manifest.
    fn new(local: &Local, manifest: &Arc<Manifest>, store: &Arc<Store>) -> Self {
        Self {
            manifest: Arc::clone(manifest),
            store: Arc::clone(store),
            named: local.options.data.clone(),
            fetch_bytes: local.fetch_data,
        }
    }

    /// Opens the files, or says which are missing. A damaged file in the run's folder becomes one
    /// that is arriving, so that only its bad pieces are fetched again.
    fn look(&self) -> Result<Files, EnterError> {
        let lack = match self.open_with(&[]) {
            Ok(source) => return Ok(Files::All(source)),
            Err(lack) => lack,
        };
        let files = lack.lacking();
        if files.is_empty() || !self.manifest.work.data.is_fetched() {
            return Err(lack.into());
        }
        let (here, mut missing): (Vec<_>, Vec<_>) =
            files.into_iter().partition(|file| self.store.has_data(file));
        if missing.is_empty() {
            match self.open_with(&here) {
                Ok(source) => return Ok(Files::All(source)),
                // Their undamaged pieces are kept.
                Err(error) if is_damage(&error) => {
                    here.iter().try_for_each(|file| self.store.reopen_data(file))?;
                    missing = here;
                }
                Err(error) => return Err(error.into()),
            }
        }
        if self.fetch_bytes == 0 {
            return Err(lack.into());
        }
        let bytes = missing.iter().map(|file| file.bytes).sum();
        if bytes > self.fetch_bytes {
            let (bytes, most) = (figures::bytes(bytes), figures::bytes(self.fetch_bytes));
            return Err(EnterError::MuchData { bytes, most });
        }
        Ok(Files::Missing(missing))
    }

    /// Opens what the user named, what is in the run's folder, and what was just `fetched`.
    /// Of the folder only those files are opened that the user has not named.
    fn open(&self, fetched: &[Fingerprint]) -> Result<Arc<Dataset>, EnterError> {
        let all = self.manifest.work.data.source.files().into_iter();
        let kept = all.filter(|file| fetched.contains(file) || self.store.has_data(file));
        let needed = self.open_with(&[]).err().map(|lack| lack.lacking()).unwrap_or_default();
        let kept: Vec<_> = kept.filter(|file| needed.contains(file)).collect();
        Ok(self.open_with(&kept)?)
    }

    /// Opens what the user named, and these files of the run's folder.
    fn open_with(&self, kept: &[Fingerprint]) -> Result<Arc<Dataset>, DataError> {
        let kept = kept.iter().map(|file| self.store.data_path(file));
        let named: Vec<_> = self.named.iter().cloned().chain(kept).collect();
        let Manifest { work, run, .. } = &*self.manifest;
        Dataset::open(work, run.seed, &named).map(Arc::new)
    }
}

/// Whether the error can mean that a stored file was changed or damaged.
fn is_damage(error: &DataError) -> bool {
    matches!(
        error,
        DataError::AnotherFile { .. }
            | DataError::NoTokens { .. }
            | DataError::NoToken { .. }
            | DataError::NotOfMix { .. }
            | DataError::NoFile { .. }
            | DataError::MissingOfMix { .. }
    )
}

#[cfg(test)]
mod tests;
