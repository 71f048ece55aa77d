//! What is fetched from other peers: lineages, updates and checkpoints, each believed only by what
//! it hashes to.
//!
//! An answer is at most 1 MiB (docs/FORMATS.md), and every answer but the last one of a thing is
//! that long: a donor that sends less, or something else, is not asked again. One that takes longer
//! than [`PATIENCE`] is asked once more, with the patience of a slow line, after all the others. So
//! whatever donors do, a transfer ends, and a silent one costs ten seconds.

use std::collections::VecDeque;
use std::future::Future;
use std::time::Duration;

use intellect_model::state::State;
use intellect_protocol::checkpoint::{HEADER_BYTES, Header, PIECE_BYTES, Table};
use intellect_protocol::id::{Digest, PeerId};
use intellect_protocol::message::{Answer, Ask, Finished, Request};
use intellect_protocol::peer::ASK_TIMEOUT;
use intellect_protocol::wire;
use tokio::time::timeout;

use crate::net::{FETCH_TIMEOUT, FetchError, Handle};

/// Most bytes of an update or a table in one answer, and of a piece.
pub(crate) const PART_BYTES: usize = 1 << 20;
const _: () = assert!(PIECE_BYTES <= PART_BYTES);

/// How long a part may take while other donors may be faster: a line of 1 Mbit/s needs eight.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long it may take when all others have failed: a line of 0.5 Mbit/s needs half of it.
const LAST_PATIENCE: Duration = FETCH_TIMEOUT;

/// A question about another peer's lineage; `None` if there is no good answer in time.
pub(crate) async fn ask(net: &Handle, peer: PeerId, ask: Ask) -> Option<Answer> {
    let request = wire::request(&Request::Ask(ask));
    let bytes = timeout(ASK_TIMEOUT, net.fetch(peer, request)).await.ok()?.ok()?;
    wire::open_answer(&bytes)
}

/// The update of this digest and length, from the first of `from` that delivers all of it.
pub(crate) async fn update(
    net: &Handle,
    update: Digest,
    length: usize,
    from: &[PeerId],
) -> Option<Vec<u8>> {
    let part = |offset| Request::Update { update, offset };
    let good = |bytes: &[u8]| *blake3::hash(bytes).as_bytes() == update.0;
    let fetch = |peer, request| net.fetch(peer, request);
    Donors::new(fetch, from, PATIENCE, LAST_PATIENCE).whole(length, part, good).await
}

/// The bytes of a finished chunk, `length` of them, from the first of `holders` that delivers them all.
pub(crate) async fn chunk(
    net: &Handle,
    finished: Finished,
    length: usize,
    holders: &[PeerId],
) -> Option<Vec<u8>> {
    let Finished { roster, chunk, seal } = finished;
    let part = |offset| Request::Chunk { roster, chunk, offset };
    let good = |bytes: &[u8]| *blake3::hash(bytes).as_bytes() == seal.digest.0;
    let fetch = |peer, request| net.fetch(peer, request);
    Donors::new(fetch, holders, PATIENCE, LAST_PATIENCE).whole(length, part, good).await
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

/// The checkpoint with this header and digest. What one donor has delivered stays when another one
/// goes on.
pub(crate) async fn checkpoint(
    net: &Handle,
    header: Header,
    state: Digest,
    donors: &[PeerId],
    mut progress: impl FnMut(Progress),
) -> Option<(Table, State)> {
    let fetch = |peer, request| net.fetch(peer, request);
    let mut donors = Donors::new(fetch, donors, PATIENCE, LAST_PATIENCE);
    let length = HEADER_BYTES.checked_add(header.piece_count().ok()?.checked_mul(32)?)?;
    let part = |offset| Request::Table { state, offset };
    let open = |bytes: &[u8]| {
        Table::from_bytes(bytes, &state).ok().filter(|table| *table.header() == header)
    };
    let table = donors.whole(length, part, |bytes| open(bytes).is_some()).await?;
    let table = open(&table)?;
    let mut fetched = State::genesis(vec![0.0; usize::try_from(header.parameters).ok()?]);
    let want_bytes = header.parameters.saturating_mul(8);
    let mut have_bytes = 0;
    for (place, digest) in table.pieces().iter().enumerate() {
        let (index, length) = (u32::try_from(place).ok()?, 4 * table.piece(place)?.len());
        let good = |bytes: &[u8]| *blake3::hash(bytes).as_bytes() == digest.0;
        let piece = donors.whole(length, |_| Request::Piece { state, index }, good).await?;
        fetched.put_piece(place, &piece).ok()?;
        have_bytes += piece.len() as u64;
        let donor = donors.first()?;
        progress(Progress { have_bytes, want_bytes, donor });
    }
    Some((table, fetched))
}

/// Those who may still deliver, the one that is asked first, and how to ask.
struct Donors<F> {
    fetch: F,
    queue: VecDeque<(PeerId, Duration)>,
    last_patience: Duration,
}

/// Why a donor did not deliver.
enum Failure {
    Slow,
    Wrong,
}

impl<F, Fetched> Donors<F>
where
    F: Fn(PeerId, Vec<u8>) -> Fetched,
    Fetched: Future<Output = Result<Vec<u8>, FetchError>>,
{
    fn new(fetch: F, donors: &[PeerId], patience: Duration, last_patience: Duration) -> Self {
        let queue = donors.iter().map(|donor| (*donor, patience)).collect();
        Self { fetch, queue, last_patience }
    }

    fn first(&self) -> Option<PeerId> {
        self.queue.front().map(|(donor, _)| *donor)
    }

    /// `length` bytes that are `good`, all from one donor; it is the first one then.
    async fn whole(
        &mut self,
        length: usize,
        part: impl Fn(u64) -> Request,
        good: impl Fn(&[u8]) -> bool,
    ) -> Option<Vec<u8>> {
        while let Some((donor, patience)) = self.queue.front().copied() {
            match self.from(donor, patience, length, &part).await {
                Ok(bytes) if good(&bytes) => return Some(bytes),
                Err(Failure::Slow) if patience < self.last_patience => {
                    self.queue.pop_front();
                    self.queue.push_back((donor, self.last_patience));
                }
                Ok(_) | Err(Failure::Slow | Failure::Wrong) => drop(self.queue.pop_front()),
            }
        }
        None
    }

    async fn from(
        &self,
        donor: PeerId,
        patience: Duration,
        length: usize,
        part: impl Fn(u64) -> Request,
    ) -> Result<Vec<u8>, Failure> {
        let mut bytes = Vec::with_capacity(length);
        while bytes.len() < length {
            let request = wire::request(&part(bytes.len() as u64));
            let answer = timeout(patience, (self.fetch)(donor, request)).await;
            let more = match answer {
                Ok(Ok(more)) => more,
                Ok(Err(FetchError::Timeout)) | Err(_) => return Err(Failure::Slow),
                Ok(Err(_)) => return Err(Failure::Wrong),
            };
            if more.len() != PART_BYTES.min(length - bytes.len()) {
                return Err(Failure::Wrong);
            }
            bytes.extend_from_slice(&more);
        }
        Ok(bytes)
    }
}

/// The part of `bytes` that begins at `offset`, as it is served.
pub(crate) fn part_of(bytes: &[u8], offset: u64) -> Option<Vec<u8>> {
    let rest = bytes.get(usize::try_from(offset).ok()?..)?;
    Some(rest.get(..rest.len().min(PART_BYTES))?.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRIP: PeerId = PeerId([1; 32]);
    const SILENT: PeerId = PeerId([2; 32]);
    const LIAR: PeerId = PeerId([3; 32]);
    const HONEST: PeerId = PeerId([4; 32]);

    fn thing() -> Vec<u8> {
        (0..2 * PART_BYTES + 5).map(|i| i.to_le_bytes()[0]).collect()
    }

    /// Tries `donors` in turn: what came, and the order in which they were asked.
    fn fetched(donors: &[PeerId]) -> (Option<Vec<u8>>, Vec<PeerId>) {
        let asked = std::cell::RefCell::new(Vec::new());
        let asked_of = &asked;
        let fetch = |peer, request: Vec<u8>| async move {
            asked_of.borrow_mut().push(peer);
            let Some(Request::Update { offset, .. }) = wire::open_request(&request) else {
                return Err(FetchError::Refused);
            };
            let part = part_of(&thing(), offset).ok_or(FetchError::Refused)?;
            match peer {
                DRIP => Ok(part[..1].to_vec()),
                LIAR => Ok(vec![7; part.len()]),
                SILENT => std::future::pending().await,
                _ => Ok(part),
            }
        };
        let update = Digest([0; 32]);
        let part = |offset| Request::Update { update, offset };
        let (first, last) = (Duration::from_millis(1), Duration::from_millis(2));
        let mut donors = Donors::new(fetch, donors, first, last);
        let good = |bytes: &[u8]| bytes == thing();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let got = runtime.block_on(donors.whole(thing().len(), part, good));
        drop(donors);
        (got, asked.into_inner())
    }

    #[test]
    fn a_donor_that_drips_or_lies_is_left_for_the_next_one() {
        let (got, asked) = fetched(&[DRIP, LIAR, HONEST]);
        assert_eq!(got, Some(thing()));
        assert_eq!(asked, [DRIP, LIAR, LIAR, LIAR, HONEST, HONEST, HONEST]);
    }

    #[test]
    fn a_silent_donor_is_asked_again_after_the_others_and_then_no_more() {
        assert_eq!(fetched(&[SILENT, DRIP]), (None, vec![SILENT, DRIP, SILENT]));
        let (got, asked) = fetched(&[SILENT, HONEST]);
        assert_eq!((got, asked), (Some(thing()), vec![SILENT, HONEST, HONEST, HONEST]));
    }

    #[test]
    fn parts_cover_the_whole_and_end() {
        let bytes: Vec<u8> = (0..PART_BYTES + 5).map(|i| i.to_le_bytes()[0]).collect();
        assert_eq!(part_of(&bytes, 0).unwrap().len(), PART_BYTES);
        assert_eq!(part_of(&bytes, PART_BYTES as u64).unwrap(), bytes[PART_BYTES..]);
        assert!(part_of(&bytes, bytes.len() as u64).unwrap().is_empty());
        assert_eq!(part_of(&bytes, u64::MAX), None);
    }
}
