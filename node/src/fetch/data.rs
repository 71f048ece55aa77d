//! Fetches a file of the run's data from members that have it.
//!
//! The values of its pieces come first and are checked against the digest in the manifest
//! ([`intellect_protocol::base::tree`]). Then each piece of 1 MiB is checked as it arrives and stored on disk, so that a
//! restart resumes where it was.
//!
//! The pieces are the blocks of BLAKE3's tree, so the digest of the manifest proves them without
//! another list: their values together have that digest. A member that has not read its file yet
//! computes the values at the first request, which takes a while (`driver::shared`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use intellect_model::config::Fingerprint;
use intellect_protocol::base::fault::AnswerFault;
use intellect_protocol::base::id::{Digest, PeerId};
use intellect_protocol::base::tree::{self, Tree};
use intellect_protocol::download::{Input, Length, Output, Piece, Want};
use intellect_protocol::message::Request;
use tokio::task::spawn_blocking;

use super::peer_download::PeerDownload;
use super::{ALONE, RETRY, RETRY_MAX, bytes_of, whole};
use crate::net::Handle;
use crate::store::{Store, StoreError};
use crate::tell::{Meter, Progress};

/// How a try to fetch a file ended, if the disk took what came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fetched {
    /// The whole file has arrived and is stored.
    All,
    /// None of the peers that were asked has all of it.
    Nobody,
}

/// Fetches the file of this digest and length into the run's folder, as soon as a connected peer has all of it.
/// `unanswered` is called after the first try without success, and then every minute.
///
/// # Errors
/// The file cannot be written. What has arrived is kept.
///
/// # Cancel safety
/// Cancel safe; what has arrived is kept.
pub(crate) async fn data_at_last(
    net: &Handle,
    store: &Arc<Store>,
    file: Fingerprint,
    meter: &mut Meter,
    unanswered: impl Fn(),
) -> Result<(), StoreError> {
    let (mut pause, mut reported) = (RETRY, None::<Instant>);
    let mut report = || {
        if reported.is_none_or(|reported| reported.elapsed() >= RETRY_MAX) {
            unanswered();
            reported = Some(Instant::now());
        }
    };
    let begun = Instant::now();
    loop {
        while net.members().is_empty() {
            tokio::time::sleep(ALONE).await;
            if begun.elapsed() >= PATIENCE {
                report();
            }
        }
        if data(net, store, file, meter).await? == Fetched::All {
            return Ok(());
        }
        report();
        tokio::time::sleep(pause).await;
        pause = (2 * pause).min(RETRY_MAX);
    }
}

/// Tries once, as soon as a member is connected; gives up if none is within a few seconds.
///
/// # Errors
/// The file cannot be written. What has arrived is kept.
///
/// # Cancel safety
/// Cancel safe; what has arrived is kept.
pub(crate) async fn data_soon(
    net: &Handle,
    store: &Arc<Store>,
    file: Fingerprint,
    meter: &mut Meter,
) -> Result<Fetched, StoreError> {
    let member = async {
        while net.members().is_empty() {
            tokio::time::sleep(ALONE).await;
        }
    };
    match tokio::time::timeout(PATIENCE, member).await {
        Ok(()) => data(net, store, file, meter).await,
        Err(_) => Ok(Fetched::Nobody),
    }
}

/// Tries once, with all members that are connected meanwhile.
///
/// The memory is that of the values, 32 bytes for each MiB, and of the open requests.
///
/// # Errors
/// The file cannot be written. What has arrived is kept.
///
/// # Cancel safety
/// Cancel safe; what has arrived is kept.
pub(crate) async fn data(
    net: &Handle,
    store: &Arc<Store>,
    file: Fingerprint,
    meter: &mut Meter,
) -> Result<Fetched, StoreError> {
    let mut download = PeerDownload::new(net, || net.members());
    let kept = Arc::clone(store);
    let kept = spawn_blocking(move || kept.data_tree(&file)).await?;
    let tree = match kept {
        Some(tree) => Some(tree),
        None => tree_of(net, &mut download, file).await,
    };
    let Some(tree) = tree else { return Ok(Fetched::Nobody) };
    let pieces: Vec<Piece> =
        tree.pieces().map(|(offset, length, digest)| Piece { offset, length, digest }).collect();
    let to = Arc::clone(store);
    let open = move || {
        let part = to.receive_data(&file, Some(&tree))?;
        let present = part.present();
        Ok::<_, StoreError>((Arc::new(part), present))
    };
    let (part, present) = spawn_blocking(open).await??;
    let mut have_bytes = bytes_of(&pieces, &present);
    let want_bytes = file.bytes;
    meter.show(Progress { have_bytes, want_bytes, donors: download.donors() });
    download.hash_by(move |number, bytes| tree::value_of(file.bytes, number, bytes));
    download.input(Input::Fetch(Want::Pieces(pieces, present)));
    let request = |number, _| {
        let index = u32::try_from(number).unwrap_or(u32::MAX);
        Request::Data { file: Digest(file.digest), index }
    };
    loop {
        match download.next(&request).await {
            Output::Keep { offset, .. } => {
                let bytes = download.answer().to_vec();
                have_bytes += bytes.len() as u64;
                let to = Arc::clone(&part);
                spawn_blocking(move || to.put(offset, &bytes)).await??;
                meter.show(Progress { have_bytes, want_bytes, donors: download.active() });
            }
            Output::Fault(peer, why) => net.fault(peer, why.to_string()),
            Output::Done => {
                spawn_blocking(move || part.finish()).await??;
                return Ok(Fetched::All);
            }
            Output::Nobody => return Ok(Fetched::Nobody),
            Output::Ask { .. } | Output::Hash { .. } => {}
        }
    }
}

/// Fetches the values of all pieces, which together have the digest of the file.
/// `None` if no donor has them.
async fn tree_of<D: Fn() -> Vec<PeerId>>(
    net: &Handle,
    download: &mut PeerDownload<'_, D>,
    file: Fingerprint,
) -> Option<Tree> {
    let digest = Digest(file.digest);
    let part = |_, offset| Request::Tree { file: digest, offset };
    let fault = |peer, why: AnswerFault| net.fault(peer, why.to_string());
    let read = |bytes: &[u8]| Tree::from_bytes(bytes, file.bytes, &digest);
    let length = Length::Exactly(tree::tree_bytes(file.bytes));
    // Values of another file get a digest that nobody asks for.
    let hash = |bytes: &[u8]| read(bytes).map_or(Digest([0; 32]), |tree| tree.digest());
    let bytes = whole(download, digest, length, &part, hash, fault).await?;
    read(&bytes)
}

/// Finding a member takes a moment; a node that waits longer reports what it waits for.
const PATIENCE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
