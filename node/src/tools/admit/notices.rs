//! The file of notices that lies beside a manifest, from where a bootstrap hands it out.

use std::{
    fs,
    io::{self, Write as _},
    path::Path,
};

use intellect_bootstrap::manifest::{notices_file, read_notices};
use intellect_protocol::{access::notices::Notices, message::Notice};

use super::AdmitError;
use crate::{
    manifest::Manifest,
    os::{self, cannot},
};

/// What the file holds, unverified; none is an empty one.
pub(super) fn read(path: &Path) -> Result<Vec<Notice>, AdmitError> {
    let kept = read_notices(path).map_err(cannot("read", path))?;
    Ok(kept.iter().filter_map(|bytes| Notice::from_bytes(bytes)).collect())
}

/// The chain that notices make which anybody may have handed out; of two that do not fit the first one counts.
pub(super) fn chain(known: &[Notice], manifest: &Manifest) -> Notices {
    let level = manifest.run.trust.level;
    Notices::new(manifest.id, manifest.run.organiser, level).with(known)
}

/// Keeps these.
pub(super) fn write<'a>(
    path: &Path,
    notices: impl IntoIterator<Item = &'a Notice>,
) -> Result<(), AdmitError> {
    let bytes: Vec<Vec<u8>> = notices.into_iter().map(Notice::to_bytes).collect();
    let bytes = notices_file(bytes.iter().map(Vec::as_slice));
    let mut temporary = path.to_owned().into_os_string();
    temporary.push(".tmp");
    let write = || -> io::Result<()> {
        let mut file = fs::File::create(&temporary)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        os::sync_parent(path)
    };
    Ok(write().map_err(cannot("write", path))?)
}
