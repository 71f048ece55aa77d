//! The rows of a report: what happened in each epoch of each lineage, and to each peer in it.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{name::PeerName, tell::events::Times};

use crate::sim::{
    observations::{
        Observations,
        branch::{Branch, lineages},
    },
    observer::Measurement,
};

/// One epoch of one lineage, by the names of `report.json`.
#[derive(Debug, Default, Serialize)]
pub(super) struct Row<'a> {
    pub(super) epoch: u64,
    /// 0 is the lineage that the run kept.
    pub(super) lineage: usize,
    /// Unix milliseconds of the first commit.
    pub(super) t_ms: u64,
    /// Seconds since the start of the simulation; absent if nobody here committed it.
    pub(super) t_s: Option<f64>,
    /// The highest attempt that decided it.
    pub(super) attempt: u64,
    /// Members of the roster that formed the receipt.
    pub(super) members: &'a [PeerName],
    /// Tokens that the receipt counts.
    pub(super) tokens: u64,
    /// Mean of the members' training losses, in nats per token.
    pub(super) train_loss: Option<f64>,
    /// Measured by the simulation, in nats per token; absent where nothing was measured.
    pub(super) held_out_loss: Option<f64>,
    /// Standard error of the held-out loss.
    pub(super) held_out_error: Option<f64>,
    /// What the held-out loss is above the entropy rate, where that is known.
    pub(super) excess: Option<f64>,
    /// The longest time from a member's Ready to its commit.
    pub(super) sync_ms: u64,
    /// The digest of the state after the epoch.
    pub(super) state: &'a str,
    /// How many processes have the state.
    pub(super) reports: usize,
    /// One entry for each peer of the simulation, by its number.
    pub(super) peers: Vec<PeerRow>,
}

/// What one peer did in an epoch. All is absent for a peer that is not in its roster and did not commit it.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct PeerRow {
    pub(super) peer: usize,
    /// Its tokens that the receipt counts.
    pub(super) weight: Option<u64>,
    /// The training loss that the peer reported, in nats per token.
    pub(super) train_loss: Option<f64>,
    /// From its Ready to its commit, in milliseconds.
    pub(super) sync_ms: Option<u64>,
    /// Bulk bytes that it sent for the epoch.
    pub(super) sent_bytes: Option<u64>,
    /// Bulk bytes that it received for the epoch.
    pub(super) received_bytes: Option<u64>,
    /// Where its time of the epoch went; all is absent if it was not Ready in the epoch.
    #[serde(flatten)]
    pub(super) times: Times,
}

/// All rows, by epoch and then by lineage. A measurement belongs to the row whose state it is of:
/// only one lineage of an epoch is measured.
pub(super) fn rows<'a>(
    observations: &'a Observations,
    evaluations: &BTreeMap<u64, Measurement>,
    started_ms: u64,
    peers: usize,
) -> Vec<Row<'a>> {
    let mut rows = Vec::new();
    for ((epoch, lineage), (state, branch)) in lineages(&observations.epochs) {
        let measured = evaluations.get(&epoch).filter(|m| m.state.as_ref() == Some(state));
        let evaluation = measured.map(|measured| measured.evaluation);
        let since = branch.first_ms.checked_sub(started_ms);
        rows.push(Row {
            epoch,
            lineage,
            t_ms: branch.first_ms,
            t_s: since.map(|since| since as f64 / 1_000.0),
            attempt: branch.attempt,
            members: &branch.members,
            tokens: branch.tokens(),
            train_loss: branch.loss(),
            held_out_loss: evaluation.map(|evaluation| evaluation.loss),
            held_out_error: evaluation.and_then(|evaluation| evaluation.error),
            excess: evaluation.and_then(|evaluation| evaluation.excess),
            sync_ms: branch.sync_ms(),
            state: state.as_str(),
            reports: branch.by.len(),
            peers: shares(observations, branch, peers),
        });
    }
    rows
}

/// One row for each peer, whether it took part or not.
fn shares(observations: &Observations, branch: &Branch, peers: usize) -> Vec<PeerRow> {
    let mut rows: Vec<PeerRow> =
        (0..peers).map(|peer| PeerRow { peer, ..PeerRow::default() }).collect();
    for (name, weight) in branch.members.iter().zip(&branch.weights) {
        if let Some(row) = observations.index(name).and_then(|peer| rows.get_mut(peer)) {
            row.weight = Some(*weight);
        }
    }
    for (peer, share) in &branch.shares {
        if let Some(row) = rows.get_mut(*peer) {
            row.train_loss = share.loss;
            row.sync_ms = Some(share.sync_ms);
            row.sent_bytes = Some(share.sent_bytes);
            row.received_bytes = Some(share.received_bytes);
            row.times = share.times;
        }
    }
    rows
}
