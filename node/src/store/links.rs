//! Reads links of our lineage that the state no longer has in memory back from `receipts.log`, for
//! others to verify.
//!
//! The first question reads the whole log and notes where the links of each epoch lie; a later one
//! goes on where that ended. What is read is believed by the digest of its receipt. Where a link is
//! not found, the next question reads the log from its beginning, since a failed write may have
//! been cut off and given again; but it does so only once for each length of the log. One question
//! is answered at a time: whoever asks meanwhile has to ask again, or to ask another peer.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io,
    path::Path,
};

use intellect_protocol::{
    base::id::{Digest, RunId},
    history::log::Record,
    message::{Head, Link, wire},
};

use super::{Store, log};

/// Where links lie.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// An epoch, and where a batch begins in which a link of it was written.
    batches: BTreeSet<(u64, u64)>,
    /// Up to here the log is known.
    read_bytes: u64,
    /// The length at which a link was not in it.
    missed_bytes: Option<u64>,
}

impl Store {
    /// The links of these epochs, with receipts of these digests; `None` if some are not there.
    pub(crate) fn links(&self, run: &RunId, of: &[(u64, Digest)]) -> io::Result<Option<Vec<Link>>> {
        let log = File::open(self.folder.join("receipts.log"))?;
        let Ok(mut places) = self.places.try_lock() else {
            return Err(io::Error::new(io::ErrorKind::WouldBlock, "another question is answered"));
        };
        let length = log.metadata()?.len();
        while let Some((records, next)) = log::read_batch(&log, places.read_bytes)? {
            let at = std::mem::replace(&mut places.read_bytes, next);
            places.batches.extend(links_in(&records).map(|link| (link.receipt.series.epoch, at)));
        }
        let lie =
            of.iter().flat_map(|(epoch, _)| places.batches.range((*epoch, 0)..=(*epoch, u64::MAX)));
        let batches: BTreeSet<u64> = lie.map(|(_, at)| *at).collect();
        let mut found = BTreeMap::new();
        for at in batches {
            let (records, _) = log::read_batch(&log, at)?.unwrap_or_default();
            let links = links_in(&records);
            found.extend(links.map(|link| (wire::receipt_digest(run, &link.receipt), link)));
        }
        let links: Option<Vec<Link>> = of.iter().map(|(_, r)| found.remove(r)).collect();
        if links.is_none() && places.missed_bytes != Some(length) {
            *places = Places { missed_bytes: Some(length), ..Places::default() };
        }
        Ok(links)
    }
}

/// The lineage in the folder of a run, from epoch 1 on, as its log has it. It is only read: a node may be
/// running there.
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

fn links_in(records: &[Vec<u8>]) -> impl Iterator<Item = Link> {
    records.iter().filter_map(|record| match Record::open(record) {
        Some(Record::Decided { link }) => Some(*link),
        _ => None,
    })
}
