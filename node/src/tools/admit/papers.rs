//! The file of papers that lies beside a manifest, from where a bootstrap hands it out.

use std::{
    fs,
    io::{self, Write as _},
    path::Path,
};

use intellect_bootstrap::manifest::{papers_file, read_papers};
use intellect_protocol::{
    lobby::Paper,
    message::{Decree, Vouch},
};

use super::AdmitError;
use crate::{
    manifest::Manifest,
    os::{self, cannot},
};

/// What the file holds, unverified; none is an empty one.
pub(super) fn read(path: &Path) -> Result<Vec<Paper>, AdmitError> {
    let kept = read_papers(path).map_err(cannot("read", path))?;
    Ok(kept.iter().filter_map(|bytes| Paper::from_bytes(bytes)).collect())
}

/// The decrees, unverified, and the newest vouch that the organiser has signed.
pub(super) fn sorted(papers: Vec<Paper>, manifest: &Manifest) -> (Vec<Decree>, Option<Vouch>) {
    let (mut decrees, mut newest) = (Vec::new(), None::<Vouch>);
    for paper in papers {
        match paper {
            Paper::Decree(decree) => decrees.push(decree),
            Paper::Vouch(vouch) => {
                let newer = newest.as_ref().is_none_or(|known| vouch.number > known.number);
                if newer && vouch.verify(&manifest.run.organiser, &manifest.id).is_ok() {
                    newest = Some(vouch);
                }
            }
        }
    }
    (decrees, newest)
}

/// Keeps these, of many decrees the last ones.
pub(super) fn write<'a>(
    path: &Path,
    decrees: impl IntoIterator<Item = &'a Decree>,
    vouch: Option<&Vouch>,
) -> Result<(), AdmitError> {
    let decrees: Vec<&Decree> = decrees.into_iter().collect();
    let newest = decrees[decrees.len().saturating_sub(DECREES_KEPT)..].iter().copied().cloned();
    let papers = newest.map(Paper::Decree).chain(vouch.cloned().map(Paper::Vouch));
    let papers: Vec<Vec<u8>> = papers.map(|paper| paper.to_bytes()).collect();
    replace(path, &papers_file(papers.iter().map(Vec::as_slice)))
}

/// Writes a file whole or not at all.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> Result<(), AdmitError> {
    let mut temporary = path.to_owned().into_os_string();
    temporary.push(".tmp");
    let write = || -> io::Result<()> {
        let mut file = fs::File::create(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        os::sync_parent(path)
    };
    Ok(write().map_err(cannot("write", path))?)
}

/// Decrees that are kept beside the manifest: as many as one answer has place for, and some room.
const DECREES_KEPT: usize = 56;
