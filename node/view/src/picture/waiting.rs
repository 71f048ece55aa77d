//! Why the node does not get on, and how long what it said last holds.

use serde::{Deserialize, Serialize};

use crate::record::Text;

/// Why the node does not get on, in its own words; `reason` is a word of docs/FORMATS.md.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Waiting {
    /// A word by which programs tell the reasons apart.
    pub(crate) reason: Text,
    #[serde(default)]
    /// The reason for people. Older programs wrote none.
    pub(crate) text: Text,
    /// What a person can do, or why nothing has to be done.
    pub(crate) cure: Text,
    /// When it was said last, in Unix milliseconds.
    pub(crate) t_ms: u64,
}

impl Waiting {
    /// Whether the node trains on though no other peer is here.
    pub(super) fn goes_on_alone(&self) -> bool {
        self.reason.as_str() == "goes-on-alone"
    }

    /// Whether another peer that is found ends the wait.
    pub(super) fn ends_with_a_peer(&self) -> bool {
        self.goes_on_alone() || self.reason.as_str() == "alone"
    }

    /// Whether a person has to decide about a fork, while the node trains on its own lineage.
    pub(crate) fn is_forked(&self) -> bool {
        self.reason.as_str() == "forked"
    }

    /// Whether it holds at `t_ms` although the run goes on. A disk that refuses votes lets the node
    /// follow the others, and a fork lets it train. Both are said again each minute for as long as
    /// that lasts.
    pub(super) fn holds(&self, t_ms: u64) -> bool {
        let lasts = self.is_forked() || self.reason.as_str() == "disk";
        lasts && self.t_ms.abs_diff(t_ms) < AGAIN_MS
    }
}

/// What lasts holds so long after its last line: a little longer than a minute.
const AGAIN_MS: u64 = 65_000;
