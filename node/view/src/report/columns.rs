//! The table of a report in columns, as charts want them.
//!
//! The report has a row for each epoch with a list of peers in it; a chart has one array for x and
//! one for y. Sums over epochs are made here, so that the script only draws.

use serde::{Deserialize, Serialize};

use crate::record::Text;

/// One epoch of the lineage that the run kept.
#[derive(Debug, Deserialize)]
pub(super) struct Row {
    epoch: u64,
    /// Seconds from the start of the simulation to the first commit.
    t_s: Option<f64>,
    /// The attempt that decided, from 1.
    attempt: u64,
    /// Tokens of this epoch alone, not those so far.
    tokens: u64,
    /// The mean of the members' training losses, in nats per token.
    train_loss: Option<f64>,
    /// `None` in an epoch whose state was not measured.
    held_out_loss: Option<f64>,
    /// The standard error of the held-out loss.
    held_out_error: Option<f64>,
    /// The mean divergence from a synthetic source, in nats per token.
    excess: Option<f64>,
    /// The longest time of a peer from its Ready to its commit.
    sync_ms: u64,
    /// The state's digest after the epoch.
    pub(super) state: Option<Text>,
    /// An entry for each peer of the simulation, by its number.
    peers: Vec<PeerRow>,
}

impl Row {
    /// How many peers it has an entry for.
    pub(super) fn peers(&self) -> usize {
        self.peers.len()
    }
}

/// What one peer did in the epoch. All is `None` for a peer that neither had a position nor
/// committed.
#[derive(Debug, Deserialize)]
struct PeerRow {
    /// The tokens of its work that the receipt counts.
    weight: Option<u64>,
    /// Its training loss in nats per token.
    train_loss: Option<f64>,
    /// Bulk bytes that it sent in the epoch.
    sent_bytes: Option<u64>,
}

/// One array for a column, all equally long. Losses are nats per token.
#[derive(Debug, Default, Serialize)]
pub(super) struct Curves {
    /// The epoch of each row, in the order of the table.
    pub(super) epoch: Vec<u64>,
    /// Seconds from the start of the simulation to the first commit of the epoch.
    pub(super) t_s: Vec<Option<f64>>,
    /// Committed tokens up to each epoch.
    pub(super) tokens: Vec<u64>,
    /// Bytes that all peers have sent up to each epoch.
    pub(super) sent_bytes: Vec<u64>,
    /// The mean of the members' training losses.
    pub(super) train: Vec<Option<f64>>,
    /// The least training loss of a peer.
    train_min: Vec<Option<f64>>,
    /// The greatest training loss of a peer.
    train_max: Vec<Option<f64>>,
    /// The held-out loss; `None` in an epoch whose state was not measured.
    pub(super) held_out: Vec<Option<f64>>,
    /// The standard error of the held-out loss.
    pub(super) error: Vec<Option<f64>>,
    /// The mean divergence from a synthetic source.
    excess: Vec<Option<f64>>,
    /// Seconds from Ready to commit of the slowest peer.
    pub(super) sync_s: Vec<f64>,
    /// The attempt that decided, from 1.
    attempt: Vec<u64>,
    /// How many peers had a weight in the epoch.
    members: Vec<u64>,
    /// For each peer its tokens in each epoch; `None` where it had no weight.
    weights: Vec<Vec<Option<u64>>>,
}

impl Curves {
    /// Turns the table over, whose rows are equally long. Each column has one entry for each row, also where numbers
    /// are absent.
    pub(super) fn of(table: &[Row]) -> Self {
        let mut columns = Self::default();
        let (mut tokens, mut sent) = (0_u64, 0_u64);
        columns.weights = vec![Vec::new(); table.first().map_or(0, Row::peers)];
        for row in table {
            let losses = || row.peers.iter().filter_map(|peer| peer.train_loss);
            let bytes = row.peers.iter().filter_map(|peer| peer.sent_bytes);
            tokens = tokens.saturating_add(row.tokens);
            sent = bytes.fold(sent, u64::saturating_add);
            columns.epoch.push(row.epoch);
            columns.t_s.push(row.t_s);
            columns.tokens.push(tokens);
            columns.sent_bytes.push(sent);
            columns.train.push(row.train_loss);
            columns.train_min.push(losses().reduce(f64::min));
            columns.train_max.push(losses().reduce(f64::max));
            columns.held_out.push(row.held_out_loss);
            columns.error.push(row.held_out_error);
            columns.excess.push(row.excess);
            columns.sync_s.push(row.sync_ms as f64 / 1_000.0);
            columns.attempt.push(row.attempt);
            // A member of weight 0 is a voter without a position in the ring.
            let weight = |peer: &PeerRow| peer.weight.filter(|tokens| *tokens > 0);
            let seats = row.peers.iter().filter(|peer| weight(peer).is_some()).count();
            columns.members.push(seats as u64);
            for (weights, peer) in columns.weights.iter_mut().zip(&row.peers) {
                weights.push(weight(peer));
            }
        }
        columns
    }
}
