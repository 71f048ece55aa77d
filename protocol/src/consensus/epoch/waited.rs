//! For whom the first attempt of an epoch has waited (G5): `patience` notes it, and `conduct` counts it.

use std::collections::BTreeSet;

use crate::base::id::PeerId;

/// For whom the first attempt of an epoch has waited (G5).
#[derive(Clone, Debug, Default)]
pub(super) struct Waited {
    /// The peers that were awaited once our patience had ended, at any moment until the wait did: a
    /// peer could withdraw just before that, or come just after our patience, in every epoch.
    pub(super) late: BTreeSet<PeerId>,
    /// The peers whose present start was Ready when the wait ended: a Ready after it is worth nothing.
    pub(super) came: Option<BTreeSet<PeerId>>,
}

impl Waited {
    /// Whether the wait of the first attempt has ended.
    pub(super) fn is_over(&self) -> bool {
        self.came.is_some()
    }

    /// The peers that came in time, and those that did not; nothing if no wait of ours has ended.
    pub(super) fn outcome(&self) -> Option<(&BTreeSet<PeerId>, impl Iterator<Item = &PeerId>)> {
        let came = self.came.as_ref()?;
        Some((came, self.late.iter().filter(|peer| !came.contains(*peer))))
    }
}
