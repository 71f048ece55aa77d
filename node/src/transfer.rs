//! What is fetched from other peers: lineages, updates and checkpoints, each believed only by what
//! it hashes to.
//!
//! Every function asks the peers it is given in turn until one delivers, and returns who failed,
//! so that the caller can go on with others. An answer is at most 1 MiB (docs/FORMATS.md).

use intellect_model::state::State;
use intellect_protocol::checkpoint::{HEADER_BYTES, Header, Table};
use intellect_protocol::id::{Digest, PeerId};
use intellect_protocol::message::{Answer, Ask, Request};
use intellect_protocol::peer::ASK_TIMEOUT;
use intellect_protocol::wire;
use tokio::time::timeout;

use crate::net::Handle;

/// Most bytes of an update or a table in one answer.
pub(crate) const PART_BYTES: usize = 1 << 20;

/// A question about another peer's lineage; `None` if there is no good answer in time.
pub(crate) async fn ask(net: &Handle, peer: PeerId, ask: Ask) -> Option<Answer> {
    let request = wire::request(&Request::Ask(ask));
    let bytes = timeout(ASK_TIMEOUT, net.fetch(peer, request)).await.ok()?.ok()?;
    wire::open_answer(&bytes)
}

/// The update of this digest and length, from the first of `from` that has it.
pub(crate) async fn update(
    net: &Handle,
    update: Digest,
    length: usize,
    from: &[PeerId],
) -> Option<Vec<u8>> {
    for peer in from {
        let part = |offset| Request::Update { update, offset };
        let bytes = whole(net, *peer, length, part).await;
        if let Some(bytes) = bytes.filter(|b| *blake3::hash(b).as_bytes() == update.0) {
            return Some(bytes);
        }
    }
    None
}

/// A state as it comes in.
pub(crate) struct Progress {
    /// Verified so far.
    pub(crate) have_bytes: u64,
    /// Size of all.
    pub(crate) want_bytes: u64,
    /// Who serves it.
    pub(crate) donor: PeerId,
}

/// The checkpoint with this header and digest, from the first donor that delivers all of it.
pub(crate) async fn checkpoint(
    net: &Handle,
    header: Header,
    state: Digest,
    donors: &[PeerId],
    mut progress: impl FnMut(Progress),
) -> Option<(Table, State)> {
    for donor in donors {
        if let Some(found) = checkpoint_of(net, header, state, *donor, &mut progress).await {
            return Some(found);
        }
    }
    None
}

async fn checkpoint_of(
    net: &Handle,
    header: Header,
    state: Digest,
    donor: PeerId,
    progress: &mut impl FnMut(Progress),
) -> Option<(Table, State)> {
    let length = HEADER_BYTES.checked_add(header.piece_count().ok()?.checked_mul(32)?)?;
    let part = |offset| Request::Table { state, offset };
    let table = whole(net, donor, length, part).await?;
    let table = Table::from_bytes(&table, &state).ok().filter(|t| *t.header() == header)?;
    let parameters = usize::try_from(header.parameters).ok()?;
    let mut fetched = State::genesis(vec![0.0; parameters]);
    let want_bytes = header.parameters.saturating_mul(8);
    let mut have_bytes = 0;
    for (index, digest) in table.pieces().iter().enumerate() {
        let request = Request::Piece { state, index: u32::try_from(index).ok()? };
        let piece = net.fetch(donor, wire::request(&request)).await.ok()?;
        if *blake3::hash(&piece).as_bytes() != digest.0 {
            return None;
        }
        fetched.put_piece(index, &piece).ok()?;
        have_bytes += piece.len() as u64;
        progress(Progress { have_bytes, want_bytes, donor });
    }
    Some((table, fetched))
}

/// `length` bytes, part by part.
async fn whole(
    net: &Handle,
    peer: PeerId,
    length: usize,
    part: impl Fn(u64) -> Request,
) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(length);
    while bytes.len() < length {
        let request = wire::request(&part(bytes.len() as u64));
        let more = net.fetch(peer, request).await.ok()?;
        if more.is_empty() || more.len() > length - bytes.len() {
            return None;
        }
        bytes.extend_from_slice(&more);
    }
    Some(bytes)
}

/// The part of `bytes` that begins at `offset`, as it is served.
pub(crate) fn part_of(bytes: &[u8], offset: u64) -> Option<Vec<u8>> {
    let rest = bytes.get(usize::try_from(offset).ok()?..)?;
    Some(rest.get(..rest.len().min(PART_BYTES))?.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_the_whole_and_end() {
        let bytes: Vec<u8> = (0..PART_BYTES + 5).map(|i| i.to_le_bytes()[0]).collect();
        assert_eq!(part_of(&bytes, 0).unwrap().len(), PART_BYTES);
        assert_eq!(part_of(&bytes, PART_BYTES as u64).unwrap(), bytes[PART_BYTES..]);
        assert!(part_of(&bytes, bytes.len() as u64).unwrap().is_empty());
        assert_eq!(part_of(&bytes, u64::MAX), None);
    }
}
