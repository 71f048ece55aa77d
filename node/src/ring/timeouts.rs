//! How long the neighbours in a ring may be silent.
//!
//! T_quiet = clamp(8 × median frame gap + 4·rtt, 0.5 s, 2 s): a neighbour that is silent or takes
//! nothing for so long is lost, and so is one whose stream ended and was not replaced within 2·rtt.

use std::time::Duration;

/// How long neighbours may be silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Patience {
    /// Until the first item: they may hear of the last Accept later than we, and must connect.
    pub(crate) first: Duration,
    /// The least T_quiet.
    pub(crate) least: Duration,
    /// The greatest T_quiet.
    pub(crate) most: Duration,
    /// Round trip to the slower of both neighbours.
    pub(crate) rtt: Duration,
}

impl Patience {
    /// The values of the protocol for neighbours with this round trip.
    pub(crate) fn new(rtt: Duration) -> Self {
        let least = Duration::from_millis(500);
        Self { first: Duration::from_secs(5), least, most: Duration::from_secs(2), rtt }
    }

    /// T_quiet for this median gap between frames.
    pub(super) fn quiet(&self, median_gap: Option<Duration>) -> Duration {
        median_gap.map_or(self.most, |gap| (8 * gap + 4 * self.rtt).clamp(self.least, self.most))
    }

    /// How long a stream that ended may be replaced by the end of the whole ring: a neighbour that
    /// gives up because it lost its own is not lost itself, and the protocol says so meanwhile.
    pub(super) fn closed(&self) -> Duration {
        (2 * self.rtt).max(self.least / 5)
    }
}
