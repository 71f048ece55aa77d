//! The file of notices beside a manifest, from where a bootstrap hands it out.
//!
//! It has the name of the manifest with the ending `.notices`, and in a node's folder of the run
//! the name `notices`. The bootstrap reads it anew whenever somebody asks, so it is replaced as a
//! whole, by a rename. Everything in it is signed, so it can be copied from anywhere: what does not
//! verify is left out by [`chain`].

use std::path::Path;

use intellect_bootstrap::manifest::{notices_file, read_notices};
use intellect_protocol::{access::notices::Notices, base::id::RunId, message::Notice};

use super::AccessError;
use crate::{manifest::Manifest, os::cannot, store};

/// The notices in the file, unverified; without a file there are none. Bytes that are no notice are
/// left out. Writing the file back loses them.
///
/// # Errors
/// [`AccessError::OtherNotices`] if one is of another run than `run`: to write the file back would
/// lose it, and it may be kept nowhere else.
pub(super) fn read(path: &Path, run: RunId) -> Result<Vec<Notice>, AccessError> {
    let kept = read_notices(path).map_err(cannot("read", path))?;
    let kept: Vec<_> = kept.iter().filter_map(|bytes| Notice::from_bytes(bytes)).collect();
    match kept.iter().find(|notice| notice.run != run) {
        Some(other) => Err(AccessError::OtherNotices { path: path.to_owned(), of: other.run, run }),
        None => Ok(kept),
    }
}

/// The chain of these notices, which anybody may have handed out. If two do not fit each other, the
/// first one counts.
pub(super) fn chain(known: &[Notice], manifest: &Manifest) -> Notices {
    let level = manifest.run.trust.level;
    Notices::new(manifest.id, manifest.run.organiser, level).with(known)
}

/// Replaces the file by these notices.
pub(super) fn write<'a>(
    path: &Path,
    notices: impl IntoIterator<Item = &'a Notice>,
) -> Result<(), AccessError> {
    let bytes: Vec<Vec<u8>> = notices.into_iter().map(Notice::to_bytes).collect();
    let bytes = notices_file(bytes.iter().map(Vec::as_slice));
    let temporary = path.with_added_extension("tmp");
    Ok(store::write_by(&temporary, path, &bytes).map_err(cannot("write", path))?)
}
