//! Where the time of an epoch goes: as the node measured it, else by the times of its events.
//!
//! The parts follow one another: train, wait, retry, ring, vote, apply. A node that was Ready says
//! their lengths itself. Of a node that was not, and of older files, only the events tell, which
//! separate neither the votes nor the application from the ring.

use serde::{Deserialize, Serialize};

use crate::record::Commit;

/// When the events of an open epoch came, in Unix milliseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Marks {
    /// The commit before, or a start.
    pub(crate) began_ms: Option<u64>,
    /// This node's own Ready; `None` if the epoch goes on without it.
    pub(crate) ready_ms: Option<u64>,
    /// The first roster, and the last one.
    pub(crate) roster_ms: Option<(u64, u64)>,
}

/// Where the time of an epoch went, in milliseconds; only what the events of this node tell apart.
/// A part is `None` where one of its two ends was not seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Times {
    /// From the commit before to its own Ready.
    pub(crate) train: Option<u64>,
    /// From Ready to the first roster.
    pub(crate) wait: Option<u64>,
    /// From the first roster to the one that decided: attempts without a decision.
    pub(crate) retry: Option<u64>,
    /// From that roster to the update; to the commit, if the node did not tell them apart.
    pub(crate) ring: Option<u64>,
    /// From the update to its certificate.
    pub(crate) vote: Option<u64>,
    /// From the certificate to the state.
    pub(crate) apply: Option<u64>,
    /// From Ready to the commit, as the node measured it.
    pub(crate) sync: u64,
}

impl Times {
    /// The times of an epoch that is committed at `t_ms`, with these marks before.
    pub(super) fn of(open: &Marks, commit: &Commit, t_ms: u64) -> Self {
        let since = |from: Option<u64>| from.map(|from| t_ms.saturating_sub(from));
        let between =
            |from: Option<u64>, to: Option<u64>| Some(since(from)?.saturating_sub(since(to)?));
        let (first, last) = (open.roster_ms.map(|(f, _)| f), open.roster_ms.map(|(_, l)| l));
        let mut times = Self {
            train: between(open.began_ms, open.ready_ms),
            wait: between(open.ready_ms, first),
            retry: between(first, last),
            ring: since(last),
            sync: commit.sync_ms,
            ..Self::default()
        };
        // What the node measured by its own clock, if it did.
        let Some(ring) = commit.ring_ms else { return times };
        // The node's ring begins with the first roster, and contains the attempts without a decision.
        let retry = times.retry.unwrap_or_default().min(ring);
        (times.train, times.wait) = (commit.train_ms, commit.wait_ready_ms);
        (times.retry, times.ring) = (Some(retry), Some(ring - retry));
        (times.vote, times.apply) = (commit.vote_ms, commit.apply_ms);
        times
    }
}
