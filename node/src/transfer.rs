//! What is fetched from other peers: lineages, updates and checkpoints, each believed only by what
//! it hashes to.
//!
//! An answer is at most 1 MiB (docs/FORMATS.md), and every answer but the last one of a thing is
//! that long. Of a checkpoint its table comes first; then every piece is checked as it arrives, and kept
//! on disk, so that a restart goes on where it was. An update, and the table, can be checked only
//! whole: where what many donors sent is wrong, it is fetched of one after the other, and what comes
//! out shows who had lied. Whoever sent something wrong is left out of the transfer and named; the
//! rest of what has come is kept.

mod crowd;

use std::sync::Arc;
use std::time::Duration;

use intellect_model::state::State;
use intellect_protocol::checkpoint::{HEADER_BYTES, Header, PIECE_BYTES, Table};
use intellect_protocol::id::{Digest, PeerId};
use intellect_protocol::message::{Answer, Ask, Finished, Request};
use intellect_protocol::peer::ASK_TIMEOUT;
use intellect_protocol::wire;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::net::{FETCH_TIMEOUT, FetchError, Handle};
use crate::store::genesis::Useless;
use crate::store::incoming::Incoming;
use crate::store::{Store, StoreError};

use crowd::{Crowd, Event, Line, Part, Patience};

/// Most bytes of an update or a table in one answer, and of a piece.
pub(crate) const PART_BYTES: usize = 1 << 20;
const _: () = assert!(PIECE_BYTES <= PART_BYTES);

/// A line of 4 Mbit/s brings a part in two seconds, one of 0.5 in half of the longest time.
const PATIENCE: Patience =
    Patience { quick: Duration::from_secs(2), slow: Duration::from_secs(10), end: FETCH_TIMEOUT };

impl Line for Handle {
    async fn fetch(&self, peer: PeerId, request: Vec<u8>) -> Result<Vec<u8>, FetchError> {
        Self::fetch(self, peer, request).await
    }

    fn is_full(&self) -> bool {
        self.is_line_full()
    }
}

/// What is told while a transfer goes on.
pub(crate) enum Notice {
    /// More has come.
    Progress(Progress),
    /// A donor sent something else than it was asked for.
    Fault(PeerId, &'static str),
    /// What comes is not kept on disk: a restart begins anew.
    Disk(StoreError),
}

/// Why a checkpoint is not to be had.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Lack {
    /// Of those who were asked nobody has all of it.
    Nobody,
    /// Everybody has the same, and it is of no use.
    Useless(Useless),
}

/// A state as it comes in.
pub(crate) struct Progress {
    /// Verified so far.
    pub(crate) have_bytes: u64,
    /// Size of all.
    pub(crate) want_bytes: u64,
    /// Who serves it.
    pub(crate) donors: Vec<PeerId>,
}

/// A question about another peer's lineage; `None` if there is no good answer in time.
pub(crate) async fn ask(net: &Handle, peer: PeerId, ask: Ask) -> Option<Answer> {
    let request = wire::request(&Request::Ask(ask));
    let bytes = timeout(ASK_TIMEOUT, net.fetch(peer, request)).await.ok()?.ok()?;
    wire::open_answer(&bytes)
}

/// The update of this digest and length, from as many of `from` as it takes.
pub(crate) async fn update(
    net: &Handle,
    update: Digest,
    length: usize,
    from: &[PeerId],
) -> Option<Vec<u8>> {
    let part = |offset| Request::Update { update, offset };
    whole(net, update, length, part, from).await
}

/// The bytes of a finished chunk, `length` of them, from as many of `holders` as it takes.
pub(crate) async fn chunk(
    net: &Handle,
    finished: Finished,
    length: usize,
    holders: &[PeerId],
) -> Option<Vec<u8>> {
    let Finished { roster, chunk, seal } = finished;
    let part = |offset| Request::Chunk { roster, chunk, offset };
    whole(net, seal.digest, length, part, holders).await
}

/// Bytes of a digest; who sends others is named by the network.
async fn whole(
    net: &Handle,
    digest: Digest,
    length: usize,
    part: impl Fn(u64) -> Request,
    from: &[PeerId],
) -> Option<Vec<u8>> {
    let good = |bytes: &[u8]| *blake3::hash(bytes).as_bytes() == digest.0;
    let mut tell = |notice| {
        if let Notice::Fault(peer, why) = notice {
            net.fault(peer, why);
        }
    };
    let mut crowd = Crowd::new(net, from, PATIENCE);
    Whole { length, part, good }.fetch(&mut crowd, net, &mut tell).await
}

/// The checkpoint with this header and digest, from the `donors` that are known so far; what `store` has of
/// it already is not fetched again.
pub(crate) async fn checkpoint<L: Line>(
    line: &L,
    store: &Arc<Store>,
    header: Header,
    state: Digest,
    mut donors: watch::Receiver<Vec<PeerId>>,
    mut tell: impl FnMut(Notice),
) -> Result<(Table, State), Lack> {
    let mut crowd = Crowd::new(line, &donors.borrow_and_update(), PATIENCE);
    let table = match kept_table(store, header, state).await {
        Some(table) => Some(table),
        None => table_of(&mut crowd, line, header, state, &mut tell).await,
    };
    let table = table.ok_or(Lack::Nobody)?;
    if header == Header::published(header.parameters) && table.has_momentum() {
        return Err(Lack::Useless(Useless::Momentum));
    }
    let mut incoming = match open_incoming(store, &table).await {
        Ok(incoming) => Some(incoming),
        Err(error) => {
            tell(Notice::Disk(error));
            None
        }
    };
    let kept = kept_pieces(&table, incoming.clone()).await;
    let (mut fetched, missing) = kept.ok_or(Lack::Nobody)?;
    let bytes = |piece: usize| table.piece(piece).map_or(0, |range| 4 * range.len());
    let want_bytes = header.parameters.saturating_mul(8);
    let lacking: u64 = missing.iter().map(|piece| bytes(*piece) as u64).sum();
    let mut have_bytes = want_bytes.saturating_sub(lacking);
    crowd.begin(missing.into_iter().filter_map(|index| {
        let piece = u32::try_from(index).ok()?;
        let request = wire::request(&Request::Piece { state, index: piece });
        Some(Part { index, request, length: bytes(index) })
    }));
    tell(Notice::Progress(Progress { have_bytes, want_bytes, donors: crowd.left() }));
    loop {
        crowd.welcome(&donors.borrow_and_update());
        let Some(event) = crowd.next().await else { break };
        let (peer, index, bytes) = match event {
            Event::Part { peer, index, bytes } => (peer, index, bytes),
            Event::Fault { peer, why } => {
                tell(Notice::Fault(peer, why));
                continue;
            }
            Event::Nothing => continue,
        };
        let digest = table.pieces().get(index).ok_or(Lack::Nobody)?;
        if blake3::hash(&bytes) != blake3::Hash::from_bytes(digest.0) {
            crowd.refuse(peer, index);
            tell(Notice::Fault(peer, "sent another piece of a checkpoint than was asked for"));
            continue;
        }
        // The right digest, and still no numbers.
        fetched.put_piece(index, &bytes).map_err(|_| Lack::Useless(Useless::NotFinite))?;
        crowd.accept(index);
        have_bytes += bytes.len() as u64;
        if let Some(error) = keep(&mut incoming, &table, index, bytes).await {
            tell(Notice::Disk(error));
        }
        tell(Notice::Progress(Progress { have_bytes, want_bytes, donors: crowd.active() }));
    }
    if crowd.is_done() { Ok((table, fetched)) } else { Err(Lack::Nobody) }
}

async fn kept_table(store: &Arc<Store>, header: Header, state: Digest) -> Option<Table> {
    let store = Arc::clone(store);
    let table = spawn_blocking(move || store.partial_table(&state)).await.ok()??;
    (*table.header() == header).then_some(table)
}

async fn table_of<L: Line>(
    crowd: &mut Crowd<'_, L>,
    line: &L,
    header: Header,
    state: Digest,
    tell: &mut impl FnMut(Notice),
) -> Option<Table> {
    let open = |bytes: &[u8]| {
        Table::from_bytes(bytes, &state).ok().filter(|table| *table.header() == header)
    };
    let whole = Whole {
        length: HEADER_BYTES.checked_add(header.piece_count().ok()?.checked_mul(32)?)?,
        part: |offset| Request::Table { state, offset },
        good: |bytes: &[u8]| open(bytes).is_some(),
    };
    open(&whole.fetch(crowd, line, tell).await?)
}

async fn open_incoming(store: &Arc<Store>, table: &Table) -> Result<Arc<Incoming>, StoreError> {
    let (store, table) = (Arc::clone(store), table.clone());
    let opened = spawn_blocking(move || store.receive(&table)).await;
    opened.map_err(|error| StoreError::Ended(error.to_string()))?.map(Arc::new)
}

/// The pieces that need not come, and which ones are missing: those that came before a restart are
/// verified again, those of zeros are known by their digest (the momentum of published weights).
async fn kept_pieces(table: &Table, kept: Option<Arc<Incoming>>) -> Option<(State, Vec<usize>)> {
    let table = table.clone();
    let read = move || {
        let parameters = usize::try_from(table.header().parameters).ok()?;
        let mut state = State::genesis(vec![0.0; parameters]);
        let mut missing = Vec::new();
        for (piece, is_zero) in table.zeros().enumerate() {
            if is_zero {
                continue;
            }
            let bytes = kept.as_ref().and_then(|kept| kept.get(&table, piece));
            match bytes.map(|bytes| state.put_piece(piece, &bytes)) {
                Some(Ok(())) => {}
                _ => missing.push(piece),
            }
        }
        Some((state, missing))
    };
    spawn_blocking(read).await.ok()?
}

/// Keeps a piece on disk; after an error none any more.
async fn keep(
    incoming: &mut Option<Arc<Incoming>>,
    table: &Table,
    index: usize,
    bytes: Vec<u8>,
) -> Option<StoreError> {
    let (kept, offset) = (Arc::clone(incoming.as_ref()?), table.offset(index)?);
    let put = spawn_blocking(move || kept.put(offset, &bytes)).await;
    let error = put.map_err(|error| StoreError::Ended(error.to_string())).flatten().err()?;
    *incoming = None;
    Some(error)
}

/// Something that can be checked only when all of it is there.
struct Whole<P, G> {
    length: usize,
    part: P,
    good: G,
}

impl<P, G> Whole<P, G>
where
    P: Fn(u64) -> Request,
    G: Fn(&[u8]) -> bool,
{
    async fn fetch<L: Line>(
        &self,
        crowd: &mut Crowd<'_, L>,
        line: &L,
        tell: &mut impl FnMut(Notice),
    ) -> Option<Vec<u8>> {
        let wrong = "sent other bytes than those of the digest that it was asked for";
        let (bytes, authors) = self.of(crowd, tell).await?;
        if (self.good)(&bytes) {
            return Some(bytes);
        }
        if let Some(author) = authors.first().filter(|a| authors.iter().all(|b| b == *a)) {
            crowd.leave_out(*author);
            tell(Notice::Fault(*author, wrong));
        }
        for donor in crowd.left() {
            let mut alone = Crowd::new(line, &[donor], PATIENCE);
            let Some((found, _)) = self.of(&mut alone, tell).await else {
                crowd.leave_out(donor);
                continue;
            };
            if !(self.good)(&found) {
                crowd.leave_out(donor);
                tell(Notice::Fault(donor, wrong));
                continue;
            }
            let parts = bytes.chunks(PART_BYTES).zip(found.chunks(PART_BYTES)).zip(&authors);
            for (_, liar) in parts.filter(|((before, now), _)| before != now) {
                if crowd.left().contains(liar) {
                    crowd.leave_out(*liar);
                    tell(Notice::Fault(*liar, wrong));
                }
            }
            return Some(found);
        }
        None
    }

    /// All of it, whether or not it is good, and who sent each part.
    async fn of<L: Line>(
        &self,
        crowd: &mut Crowd<'_, L>,
        tell: &mut impl FnMut(Notice),
    ) -> Option<(Vec<u8>, Vec<PeerId>)> {
        let count = self.length.div_ceil(PART_BYTES);
        let (mut whole, mut authors) = (vec![0; self.length], vec![PeerId([0; 32]); count]);
        crowd.begin((0..count).map(|index| {
            let offset = index * PART_BYTES;
            let request = wire::request(&(self.part)(offset as u64));
            Part { index, request, length: PART_BYTES.min(self.length - offset) }
        }));
        while let Some(event) = crowd.next().await {
            match event {
                Event::Part { peer, index, bytes } => {
                    let place = whole.chunks_mut(PART_BYTES).zip(&mut authors).nth(index);
                    if let Some((part, author)) = place {
                        part.copy_from_slice(&bytes);
                        *author = peer;
                    }
                    crowd.accept(index);
                }
                Event::Fault { peer, why } => tell(Notice::Fault(peer, why)),
                Event::Nothing => {}
            }
        }
        crowd.is_done().then_some((whole, authors))
    }
}

/// The part of `bytes` that begins at `offset`, as it is served.
pub(crate) fn part_of(bytes: &[u8], offset: u64) -> Option<Vec<u8>> {
    let rest = bytes.get(usize::try_from(offset).ok()?..)?;
    Some(rest.get(..rest.len().min(PART_BYTES))?.to_vec())
}

#[cfg(test)]
mod tests;
