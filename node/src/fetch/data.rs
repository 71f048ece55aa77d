//! A file of the run's data, from members that have it.
//!
//! The values of its pieces come first and are held against the digest in the manifest
//! ([`intellect_protocol::base::tree`]); then each piece of 1 MiB is checked as it comes, and kept on disk,
//! so that a restart goes on where it was.

use std::sync::Arc;
use std::time::{Duration, Instant};

use intellect_model::config::Fingerprint;
use intellect_protocol::base::fault::AnswerFault;
use intellect_protocol::base::id::{Digest, PeerId};
use intellect_protocol::base::tree::{self, Tree};
use intellect_protocol::download::{Input, Length, Output, Piece, Want};
use intellect_protocol::message::Request;
use tokio::task::spawn_blocking;

use super::asked::Asked;
use super::{ALONE, RETRY, RETRY_MAX, whole};
use crate::net::Handle;
use crate::store::data::Part;
use crate::store::{Store, StoreError};
use crate::tell::{Meter, Progress};

/// What has come of one try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Came {
    /// All of it, and it is kept.
    All,
    /// Of those who were asked nobody has all of it.
    Nobody,
}

/// The file of this digest and length, into the run's folder, as soon as somebody who is there has all of
/// it; `in_vain` is told of the first try that is, and then every minute.
///
/// # Errors
/// It cannot be written. What has come is kept.
///
/// # Cancel safety
/// Cancel safe; what has come is kept.
pub(crate) async fn data_at_last(
    net: &Handle,
    store: &Arc<Store>,
    file: Fingerprint,
    meter: &mut Meter,
    in_vain: impl Fn(),
) -> Result<(), StoreError> {
    let (mut pause, mut told) = (RETRY, None::<Instant>);
    let mut tell = || {
        if told.is_none_or(|told| told.elapsed() >= RETRY_MAX) {
            in_vain();
            told = Some(Instant::now());
        }
    };
    let begun = Instant::now();
    loop {
        while net.members().is_empty() {
            tokio::time::sleep(ALONE).await;
            if begun.elapsed() >= PATIENCE {
                tell();
            }
        }
        if data(net, store, file, meter).await? == Came::All {
            return Ok(());
        }
        tell();
        tokio::time::sleep(pause).await;
        pause = (2 * pause).min(RETRY_MAX);
    }
}

/// One try, as soon as a member is there; in vain if none comes in a few seconds.
///
/// # Errors
/// It cannot be written. What has come is kept.
///
/// # Cancel safety
/// Cancel safe; what has come is kept.
pub(crate) async fn data_soon(
    net: &Handle,
    store: &Arc<Store>,
    file: Fingerprint,
    meter: &mut Meter,
) -> Result<Came, StoreError> {
    let member = async {
        while net.members().is_empty() {
            tokio::time::sleep(ALONE).await;
        }
    };
    match tokio::time::timeout(PATIENCE, member).await {
        Ok(()) => data(net, store, file, meter).await,
        Err(_) => Ok(Came::Nobody),
    }
}

/// One try, with all members that are there meanwhile.
///
/// # Errors
/// It cannot be written. What has come is kept.
///
/// # Cancel safety
/// Cancel safe; what has come is kept.
pub(crate) async fn data(
    net: &Handle,
    store: &Arc<Store>,
    file: Fingerprint,
    meter: &mut Meter,
) -> Result<Came, StoreError> {
    let mut asked = Asked::new(net, || net.members());
    let kept = Arc::clone(store);
    let kept = spawn_blocking(move || kept.data_tree(&file)).await?;
    let tree = match kept {
        Some(tree) => Some(tree),
        None => tree_of(net, &mut asked, file).await,
    };
    let Some(tree) = tree else { return Ok(Came::Nobody) };
    let pieces: Vec<Piece> = tree.pieces().map(piece).collect();
    let to = Arc::clone(store);
    let open = move || {
        let part = to.receive_data(&file, Some(&tree))?;
        let held = part.held();
        Ok::<_, StoreError>((Arc::new(part), held))
    };
    let (part, held) = spawn_blocking(open).await??;
    let of_held = held.iter().filter_map(|number| pieces.get(*number));
    let mut have_bytes = of_held.map(|piece| u64::from(piece.length)).sum();
    let want_bytes = file.bytes;
    meter.show(Progress { have_bytes, want_bytes, donors: asked.donors() });
    asked.hash_by(move |number, bytes| tree::value_of(file.bytes, number, bytes));
    asked.input(Input::Fetch(Want::Pieces(pieces, held)));
    let request = |number, _| {
        let index = u32::try_from(number).unwrap_or(u32::MAX);
        Request::Data { file: Digest(file.digest), index }
    };
    loop {
        match asked.next(&request).await {
            Output::Keep { offset, .. } => {
                let bytes = asked.answer().to_vec();
                have_bytes += bytes.len() as u64;
                put(&part, offset, bytes).await?;
                meter.show(Progress { have_bytes, want_bytes, donors: asked.active() });
            }
            Output::Fault(peer, why) => net.fault(peer, why.to_string()),
            Output::Done => {
                spawn_blocking(move || part.finish()).await??;
                return Ok(Came::All);
            }
            Output::Nobody => return Ok(Came::Nobody),
            Output::Ask { .. } | Output::Hash { .. } => {}
        }
    }
}

fn piece((offset, length, digest): (u64, u32, Digest)) -> Piece {
    Piece { offset, length, digest }
}

async fn put(part: &Arc<Part>, offset: u64, bytes: Vec<u8>) -> Result<(), StoreError> {
    let part = Arc::clone(part);
    spawn_blocking(move || part.put(offset, &bytes)).await?
}

/// The values of all pieces, which together have the digest of the file.
async fn tree_of<D: Fn() -> Vec<PeerId>>(
    net: &Handle,
    asked: &mut Asked<'_, D>,
    file: Fingerprint,
) -> Option<Tree> {
    let digest = Digest(file.digest);
    let part = |_, offset| Request::Tree { file: digest, offset };
    let fault = |peer, why: AnswerFault| net.fault(peer, why.to_string());
    let read = |bytes: &[u8]| Tree::from_bytes(bytes, file.bytes, &digest);
    let length = Length::Exactly(tree::tree_bytes(file.bytes));
    // Values of another file have no digest that anybody wants.
    let hash = |bytes: &[u8]| read(bytes).map_or(Digest([0; 32]), |tree| tree.digest());
    let bytes = whole(asked, digest, length, &part, hash, fault).await?;
    read(&bytes)
}

/// To find somebody takes a moment; who waits longer than this is told for whom.
const PATIENCE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
