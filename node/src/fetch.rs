//! Fetches lineages, updates, chunks, checkpoints, published weights, tokenizers and files of data from other peers.
//! Each is believed only by its digest. Files of data may also come from a web server (`web`).
//!
//! [`intellect_protocol::download`] decides which peer to ask for which bytes, and which answers to believe; this module
//! sends its requests. An answer has at most 1 MiB (docs/FORMATS.md), and every answer but the last one has that
//! length. The table of a checkpoint comes first. Then every piece is stored on disk as it arrives, so that a restart
//! resumes where it was.
//!
//! A transfer is a future on the task that wants it. It asks for at most as many parts at a time as
//! the download allows, so its memory is what it collects and those answers. Dropping the future
//! ends its requests. What must be on the disk (pieces of states and data) goes there through
//! `store`, off the loop.
//!
//! A peer that sends bytes with another digest is reported to the network as a fault. A peer that
//! sends none is not: it may have dropped them, or be fetching them itself.

mod data;
mod peer_download;
mod web;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use intellect_model::state::State;
use intellect_protocol::base::fault::AnswerFault;
use intellect_protocol::base::id::{Digest, PeerId};
use intellect_protocol::download::{Input, Length, Output, Piece, Want};
use intellect_protocol::history::checkpoint::{HEADER_BYTES, Header, PIECE_BYTES, Table};
use intellect_protocol::message::{Answer, Ask, Request, wire};
use intellect_protocol::peer::ASK_TIMEOUT;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::net::Handle;
use crate::store::genesis::Useless;
use crate::store::incoming::Incoming;
use crate::store::{Store, StoreError};
use crate::tell::{Meter, Progress};

pub(crate) use data::{Fetched, data_at_last, data_soon};
use peer_download::PeerDownload;
pub(crate) use web::{WebError, data_from_web};

/// Most bytes of an update, a chunk, a table or a file in one answer, and of a piece.
/// Donor and receiver have to agree on it: a shorter answer would count as the last one.
pub(crate) const PART_BYTES: usize = 1 << 20;
const _: () = assert!(PIECE_BYTES <= PART_BYTES);

/// Time between two tries while no connected peer has the whole: they are fetching it too.
const RETRY: Duration = Duration::from_secs(2);

/// Why a checkpoint cannot be fetched.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FetchError {
    /// None of the peers that were asked has all of it.
    Nobody,
    /// The same, but some of it came, and is stored.
    BrokenOff,
    /// All peers have the same state, and it cannot be used.
    Useless(Useless),
}

/// Asks a peer about its lineage; `None` if no good answer comes in time.
///
/// The answer is decoded and not verified: the state of the protocol proves each link of it.
pub(crate) async fn ask(net: &Handle, peer: PeerId, ask: Ask) -> Option<Answer> {
    let request = wire::request(&Request::Ask(ask));
    let bytes = timeout(ASK_TIMEOUT, net.fetch(peer, request)).await.ok()?.ok()?;
    wire::open_answer(&bytes)
}

/// Fetches the bytes of this digest and length from as many of `donors` as it takes. A peer that sends other bytes is
/// reported to the network. `part` makes the request for the bytes from an offset on.
///
/// `donors` is asked anew at each tick, so peers that are named meanwhile take part. `None`: every
/// donor is excluded or has nothing, and what has come is dropped.
pub(crate) async fn bytes(
    net: &Handle,
    digest: Digest,
    length: usize,
    donors: impl Fn() -> Vec<PeerId>,
    part: impl Fn(u64) -> Request,
) -> Option<Vec<u8>> {
    let mut download = PeerDownload::new(net, donors);
    let part = |_, offset| part(offset);
    let fault = |peer, why: AnswerFault| net.fault(peer, why.to_string());
    whole(&mut download, digest, Length::Exactly(length as u64), &part, blake3_of, fault).await
}

/// Fetches the file of this digest, of at most `most` bytes, from whichever peer has it. It asks until one has it,
/// less often after each failed try. A peer that sends another file is dropped. The order of the peers begins at
/// `first`, so that not all nodes ask the same peer first.
///
/// # Cancel safety
/// Cancel safe; what has arrived of it is lost.
pub(crate) async fn file(net: &Handle, file: Digest, most: usize, first: u8) -> Vec<u8> {
    let part = |_, offset| Request::File { file, offset };
    let members = || {
        let mut members = net.members();
        members.sort_by_key(|peer| peer.as_bytes()[0].wrapping_sub(first));
        members
    };
    let fault = |peer, why: AnswerFault| net.drop_peer(peer, why.to_string());
    let length = Length::AtMost(most as u64);
    let mut pause = RETRY;
    loop {
        tokio::time::sleep(pause).await;
        let mut download = PeerDownload::new(net, members);
        if let Some(found) = whole(&mut download, file, length, &part, blake3_of, fault).await {
            return found;
        }
        pause = (pause + pause / 2).min(FILE_RETRY_MAX);
    }
}

/// The longest pause: an answer that does not come in time occupies a whole connection, and nothing waits for a file.
const FILE_RETRY_MAX: Duration = Duration::from_secs(600);

/// BLAKE3 of bytes, by which most downloads are named.
fn blake3_of(bytes: &[u8]) -> Digest {
    Digest(*blake3::hash(bytes).as_bytes())
}

/// Fetches the bytes of this digest as a whole.
///
/// Its memory grows with what arrives, up to `length`. `request` makes a request from the number of
/// a part and its offset, `hash` computes the digest of the whole, and `fault` hears which peer has
/// sent wrong bytes. The caller may have used `download` before; what it knows of donors goes on to
/// count.
async fn whole<D: Fn() -> Vec<PeerId>>(
    download: &mut PeerDownload<'_, D>,
    digest: Digest,
    length: Length,
    request: &impl Fn(usize, u64) -> Request,
    hash: impl Fn(&[u8]) -> Digest,
    mut fault: impl FnMut(PeerId, AnswerFault),
) -> Option<Vec<u8>> {
    let mut whole = Vec::new();
    download.input(Input::Fetch(Want::Whole(digest, length)));
    loop {
        match download.next(request).await {
            Output::Keep { offset, .. } => put(&mut whole, offset, download.answer())?,
            Output::Hash { length } => {
                whole.truncate(usize::try_from(length).ok()?);
                download.input(Input::Hashed(hash(&whole)));
            }
            Output::Fault(peer, why) => fault(peer, why),
            Output::Done => return Some(whole),
            Output::Nobody => return None,
            Output::Ask { .. } => {}
        }
    }
}

/// Puts a part where it belongs. Parts come in any order, and from a second donor again.
/// `None` if the range does not fit into memory, which a bounded length prevents.
fn put(whole: &mut Vec<u8>, offset: u64, part: &[u8]) -> Option<()> {
    let begin = usize::try_from(offset).ok()?;
    let end = begin.checked_add(part.len())?;
    if whole.len() < end {
        whole.resize(end, 0);
    }
    whole.get_mut(begin..end)?.copy_from_slice(part);
    Some(())
}

/// Fetches the checkpoint with this header and digest from the `donors` that are known at each moment. Pieces that
/// `store` has are not fetched again.
///
/// `header` comes from the lineage, so donors choose nothing but the bytes. The state is built in
/// memory, 8 bytes for each parameter. A disk that refuses a piece is reported and not asked again,
/// and the fetch goes on without it: then a restart has only what was stored before.
///
/// # Errors
/// [`FetchError`]; only `Useless` is final, as every peer has the same bytes.
///
/// # Cancel safety
/// Cancel safe; what has arrived is kept.
pub(crate) async fn checkpoint(
    net: &Handle,
    store: &Arc<Store>,
    header: Header,
    state: Digest,
    donors: impl Fn() -> Vec<PeerId>,
    meter: &mut Meter,
) -> Result<(Table, State), FetchError> {
    let mut download = PeerDownload::new(net, donors);
    let table = match stored_table(store, header, state).await {
        Some(table) => table,
        None => table_of(net, &mut download, header, state).await.ok_or(FetchError::Nobody)?,
    };
    if header == Header::published(header.parameters) && table.has_momentum() {
        return Err(FetchError::Useless(Useless::Momentum));
    }
    let mut incoming = match open_incoming(store, &table).await {
        Ok(incoming) => Some(incoming),
        Err(error) => {
            meter.console.disk(&error);
            None
        }
    };
    let stored = stored_pieces(&table, incoming.clone()).await;
    let (mut fetched, present) = stored.ok_or(FetchError::Nobody)?;
    let pieces = pieces(&table);
    let want_bytes = header.parameters.saturating_mul(8);
    let stored_bytes = bytes_of(&pieces, &present);
    let mut have_bytes = stored_bytes;
    meter.show(Progress { have_bytes, want_bytes, donors: download.donors() });
    download.input(Input::Fetch(Want::Pieces(pieces, present)));
    let request =
        |part, _| Request::Piece { state, index: u32::try_from(part).unwrap_or(u32::MAX) };
    loop {
        match download.next(&request).await {
            Output::Keep { part, .. } => {
                let bytes = download.answer();
                // The digest is right, but the numbers are not finite.
                fetched
                    .put_piece(part, bytes)
                    .map_err(|_| FetchError::Useless(Useless::NotFinite))?;
                have_bytes += bytes.len() as u64;
                let bytes = bytes.to_vec();
                if let Some(error) = store_piece(&mut incoming, &table, part, bytes).await {
                    meter.console.disk(&error);
                }
                meter.show(Progress { have_bytes, want_bytes, donors: download.active() });
            }
            Output::Fault(peer, why) => net.fault(peer, why.to_string()),
            Output::Done => return Ok((table, fetched)),
            Output::Nobody if incoming.is_some() && have_bytes > stored_bytes => {
                return Err(FetchError::BrokenOff);
            }
            Output::Nobody => return Err(FetchError::Nobody),
            Output::Ask { .. } | Output::Hash { .. } => {}
        }
    }
}

/// The same, until a connected peer has all of it. `unanswered` is called after the first try without success, and
/// then once a minute. Each try reads what is stored again, so the pauses become longer, up to a minute.
///
/// # Errors
/// The weights cannot be trained, whichever peer sends them. Nothing else ends it.
///
/// # Cancel safety
/// Cancel safe; what has arrived is kept.
pub(crate) async fn checkpoint_at_last(
    net: &Handle,
    store: &Arc<Store>,
    header: Header,
    state: Digest,
    meter: &mut Meter,
    unanswered: impl Fn(),
) -> Result<(Table, State), Useless> {
    let (mut pause, mut reported) = (RETRY, Instant::now());
    let mut patience = NOBODY_PATIENCE;
    loop {
        while net.members().is_empty() {
            tokio::time::sleep(ALONE).await;
            if reported.elapsed() >= patience {
                unanswered();
                (reported, patience) = (Instant::now(), RETRY_MAX);
            }
        }
        match checkpoint(net, store, header, state, || net.members(), meter).await {
            Ok(found) => return Ok(found),
            Err(FetchError::Useless(why)) => return Err(why),
            Err(FetchError::Nobody | FetchError::BrokenOff) => {}
        }
        if pause == RETRY || pause == RETRY_MAX {
            unanswered();
            reported = Instant::now();
        }
        tokio::time::sleep(pause).await;
        pause = (2 * pause).min(RETRY_MAX);
    }
}

/// The longest pause between two tries to fetch what a node needs before it can begin.
const RETRY_MAX: Duration = Duration::from_secs(60);

/// How soon it is first reported that no peer is here.
const NOBODY_PATIENCE: Duration = Duration::from_secs(5);

/// How often it checks whether a member is connected.
const ALONE: Duration = Duration::from_millis(250);

/// The pieces of a state as the download wants them: where each is, how long, and its digest.
fn pieces(table: &Table) -> Vec<Piece> {
    let piece = |(number, digest): (usize, &Digest)| {
        let length = table.piece(number).map_or(0, |range| 4 * range.len());
        Piece {
            offset: table.offset(number).unwrap_or(u64::MAX),
            length: u32::try_from(length).unwrap_or(u32::MAX),
            digest: *digest,
        }
    };
    table.pieces().iter().enumerate().map(piece).collect()
}

/// The length of those pieces that are here already, in bytes.
fn bytes_of(pieces: &[Piece], present: &BTreeSet<usize>) -> u64 {
    let present = present.iter().filter_map(|number| pieces.get(*number));
    present.map(|piece| u64::from(piece.length)).sum()
}

/// The table that an earlier start has fetched, if it is the table of this very state.
/// Its digest is the name of its folder, and the header has to be the one that is asked for.
async fn stored_table(store: &Arc<Store>, header: Header, state: Digest) -> Option<Table> {
    let store = Arc::clone(store);
    let table = spawn_blocking(move || store.partial_table(&state)).await.ok()??;
    (*table.header() == header).then_some(table)
}

/// Fetches the table of a checkpoint. Its digest is the state's, and its header must be the one
/// that the lineage proves, so a donor can invent neither.
async fn table_of<D: Fn() -> Vec<PeerId>>(
    net: &Handle,
    download: &mut PeerDownload<'_, D>,
    header: Header,
    state: Digest,
) -> Option<Table> {
    let length = HEADER_BYTES.checked_add(header.piece_count().ok()?.checked_mul(32)?)?;
    let part = |_, offset| Request::Table { state, offset };
    let fault = |peer, why: AnswerFault| net.fault(peer, why.to_string());
    let length = Length::Exactly(length as u64);
    let bytes = whole(download, state, length, &part, Table::digest_of, fault).await?;
    let table = Table::from_bytes(&bytes, &state).ok()?;
    (*table.header() == header).then_some(table)
}

/// Opens the file for the pieces, off the loop.
async fn open_incoming(store: &Arc<Store>, table: &Table) -> Result<Arc<Incoming>, StoreError> {
    let (store, table) = (Arc::clone(store), table.clone());
    Ok(Arc::new(spawn_blocking(move || store.receive(&table)).await??))
}

/// The pieces that need not be fetched, as numbers in a state and as a set. Those that came before a restart are
/// verified again; those of zeros are recognised by their digest (the momentum of published weights).
///
/// `None` if the state does not fit into the address space, or the job has panicked.
async fn stored_pieces(
    table: &Table,
    kept: Option<Arc<Incoming>>,
) -> Option<(State, BTreeSet<usize>)> {
    let table = table.clone();
    let read = move || {
        let parameters = usize::try_from(table.header().parameters).ok()?;
        let mut state = State::genesis(vec![0.0; parameters]);
        let mut present = BTreeSet::new();
        for (piece, is_zero) in table.zeros().enumerate() {
            let bytes = || kept.as_ref().and_then(|kept| kept.get(&table, piece));
            if is_zero || bytes().is_some_and(|bytes| state.put_piece(piece, &bytes).is_ok()) {
                present.insert(piece);
            }
        }
        Some((state, present))
    };
    spawn_blocking(read).await.ok()?
}

/// Stores a piece on disk; after an error it stores no more pieces.
async fn store_piece(
    incoming: &mut Option<Arc<Incoming>>,
    table: &Table,
    index: usize,
    bytes: Vec<u8>,
) -> Option<StoreError> {
    let (kept, offset) = (Arc::clone(incoming.as_ref()?), table.offset(index)?);
    let put = spawn_blocking(move || kept.put(offset, &bytes)).await;
    let error = put.map_err(StoreError::from).flatten().err()?;
    *incoming = None;
    Some(error)
}

/// The part of `bytes` that is served for a request at `offset`.
/// It is empty at the end of the bytes, and `None` beyond it.
pub(crate) fn part_of(bytes: &[u8], offset: u64) -> Option<Vec<u8>> {
    let rest = bytes.get(usize::try_from(offset).ok()?..)?;
    Some(rest.get(..rest.len().min(PART_BYTES))?.to_vec())
}

#[cfg(test)]
mod tests;
