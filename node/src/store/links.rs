//! Reads links of our lineage that are no longer in memory back from `receipts.log`, for other peers to verify.
//!
//! The first question reads the whole log and notes where the links of each epoch are; later ones resume where that
//! ended. A link is believed by the digest of its receipt. If a link is not found, the next question reads the log from
//! its beginning, since a failed write may have been cut off and repeated; but only once for each length of the log.
//! One question is answered at a time; the others wait without a thread, which the disk may need for votes.
//!
//! The memory is 16 bytes in a tree for each link. A question reads only the batches that have its
//! links, which the caller bounds by their number.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io,
    ops::Range,
    path::Path,
    sync::Arc,
    time::Duration,
};

use intellect_protocol::{
    base::id::{Digest, RunId},
    history::log::Record,
    message::{Head, Link, wire},
};
use tokio::{task::spawn_blocking, time::timeout};

use super::{Store, log};

/// Where the links are in the log.
#[derive(Debug, Default)]
pub(super) struct LinkIndex {
    /// Pairs of an epoch and the offset of a batch that has a link of it.
    batches: BTreeSet<(u64, u64)>,
    /// Where the last batch is up to which the log is indexed.
    read: Range<u64>,
    /// Length of the log when a link was not found in it.
    missed_bytes: Option<u64>,
}

impl Store {
    /// The links of these epochs whose receipts have these digests; `None` if some are not there.
    ///
    /// `of` has pairs of an epoch and the digest of its receipt. The links are in the order of the
    /// pairs.
    ///
    /// # Errors
    /// The log cannot be read, or the questions before this one take longer than [`PATIENCE`]
    /// ([`io::ErrorKind::TimedOut`]).
    pub(crate) async fn links(
        self: Arc<Self>,
        run: RunId,
        of: Vec<(u64, Digest)>,
    ) -> io::Result<Option<Vec<Link>>> {
        let mut index = timeout(PATIENCE, Arc::clone(&self.index).lock_owned()).await?;
        spawn_blocking(move || self.find(&mut index, &run, &of)).await?
    }

    /// The same, once it is the turn of the question.
    fn find(
        &self,
        index: &mut LinkIndex,
        run: &RunId,
        of: &[(u64, Digest)],
    ) -> io::Result<Option<Vec<Link>>> {
        let log = File::open(self.folder.join("receipts.log"))?;
        let length = log.metadata()?.len();
        while let Some((records, batch)) = log::read_batch(&log, &index.read)? {
            let links = links_in(&records).map(|link| (link.receipt.series.epoch, batch.start));
            index.batches.extend(links);
            index.read = batch;
        }
        let lie =
            of.iter().flat_map(|(epoch, _)| index.batches.range((*epoch, 0)..=(*epoch, u64::MAX)));
        let batches: BTreeSet<u64> = lie.map(|(_, at)| *at).collect();
        let mut found = BTreeMap::new();
        for at in batches {
            let (records, _) = log::read_batch(&log, &(at..at))?.unwrap_or_default();
            let links = links_in(&records);
            found.extend(links.map(|link| (wire::receipt_digest(run, &link.receipt), link)));
        }
        let links: Option<Vec<Link>> = of.iter().map(|(_, r)| found.remove(r)).collect();
        if links.is_none() && index.missed_bytes != Some(length) {
            *index = LinkIndex { missed_bytes: Some(length), ..LinkIndex::default() };
        }
        Ok(links)
    }
}

/// Shorter than the wait of a peer that asks (`net::fetch::TIMEOUT`), so the net's limit of answers bounds how many
/// questions wait.
const PATIENCE: Duration = Duration::from_secs(10);

/// The lineage in the folder of a run, from epoch 1 on, as its log has it. The log is only read, since a node may be
/// running there.
/// A torn tail or damage ends it early; what comes before is whole.
pub(crate) fn lineage(run: &Path) -> io::Result<Vec<(Head, Link)>> {
    let content = log::Content::read(&run.join("receipts.log"))?;
    let records: Vec<_> = content.records.iter().filter_map(|bytes| Record::open(bytes)).collect();
    let first = records.iter().find_map(|record| match record {
        Record::Decided { link } if link.receipt.series.epoch == 1 => {
            Some(link.receipt.series.parent)
        }
        _ => None,
    });
    let genesis = first.map(|state| Head { epoch: 0, tokens: 0, state });
    Ok(genesis.map_or_else(Vec::new, |genesis| {
        intellect_protocol::history::log::lineage(genesis, records)
    }))
}

/// The links among the records of a batch.
fn links_in(records: &[Vec<u8>]) -> impl Iterator<Item = Link> {
    records.iter().filter_map(|record| match Record::open(record) {
        Some(Record::Decided { link }) => Some(*link),
        _ => None,
    })
}
