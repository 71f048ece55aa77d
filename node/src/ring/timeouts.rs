//! How long the neighbours in a ring may be silent.
//!
//! The predecessor may send nothing for T_quiet = clamp(8 × median frame gap + 4·rtt, 0.5 s, 2 s), the successor may take
//! nothing for 2 s, and both for 5 s before the first item. Then the ring ends, and the neighbour counts as quiet. It
//! counts as lost only if its stream ended: a predecessor after max(2·rtt, 0.1 s). A ring of minutes is worth a longer wait, for a
//! wireless link that drops: both bounds are at least a 16th of what it takes at 10 Mbit/s, up to 7 s.

use std::time::Duration;

/// The limits of one ring. They are the same at both ends only by chance: each end measures its own
/// round trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timeouts {
    /// Until the first item: neighbours may hear of the last Accept later than we, and must connect.
    pub(crate) first: Duration,
    /// The lower bound of T_quiet. Below it a pause of the scheduler would look like a failure.
    pub(crate) least: Duration,
    /// The upper bound, and the limit before a gap was measured.
    pub(crate) most: Duration,
    /// The round trip to the slower of both neighbours.
    pub(crate) rtt: Duration,
}

impl Timeouts {
    /// The values of the protocol for neighbours with this round trip, in a ring in which each member sends so
    /// many bytes.
    pub(crate) fn new(rtt: Duration, bytes: usize) -> Self {
        let share_ms = u64::try_from(bytes / HOME_BYTES_PER_MS / 16).unwrap_or(u64::MAX);
        let share = Duration::from_millis(share_ms).min(QUIET_MAX);
        let least = Duration::from_millis(500).max(share);
        Self { first: Duration::from_secs(5), least, most: Duration::from_secs(2).max(share), rtt }
    }

    /// T_quiet for this median gap between frames.
    pub(super) fn quiet(&self, median_gap: Option<Duration>) -> Duration {
        median_gap.map_or(self.most, |gap| (8 * gap + 4 * self.rtt).clamp(self.least, self.most))
    }

    /// How long we wait after a stream has ended. A neighbour that gives up because it lost its own neighbour
    /// is not lost itself, and the protocol reports that meanwhile.
    pub(super) fn closed(&self) -> Duration {
        (2 * self.rtt).max((self.least / 5).min(CLOSED))
    }
}

/// 10 Mbit/s, the upload of a common home line.
const HOME_BYTES_PER_MS: usize = 1_250;

/// Beyond this TCP gives the connection up.
const QUIET_MAX: Duration = Duration::from_secs(7);

/// How long a neighbour may need to say why its stream ended, if no round trip is longer.
const CLOSED: Duration = Duration::from_millis(100);
