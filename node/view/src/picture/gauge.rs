//! What a running node measures between its events, which no file has.

use serde::{Deserialize, Serialize};

/// One sample of a running node, taken between two events.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gauge {
    /// Unix milliseconds at which it was taken.
    pub t_ms: u64,
    /// The steps of the epoch that is being trained, if there was one.
    pub training: Option<Training>,
    /// When the node last saw that the run is alive.
    pub life: Life,
    /// Whether the node waits for something. If not, what it said of an earlier wait is over.
    pub waits: bool,
}

/// How far the training of the open epoch is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Training {
    /// Tokens of the steps of this epoch so far.
    pub tokens: u64,
    /// Share of the epoch's budget that is used, from 0 to 1.
    pub share: f64,
    /// Loss of the last steps, in nats per token; a number that is not finite is none.
    pub loss: Option<f64>,
    /// Tokens a second since the epoch began; none before its second step.
    pub tokens_per_s: Option<f64>,
}

/// Signs by which one sees that the run goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Life {
    /// Unix milliseconds of the last heartbeat of another peer, step of training, or commit.
    pub heard_ms: u64,
    /// The run's `minority_grace` in milliseconds: after so long a silence a peer counts as absent.
    pub grace_ms: u64,
}
