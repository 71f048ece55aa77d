//! The bytes that the holdings name, in memory.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use intellect_protocol::base::id::Digest;
use intellect_protocol::holdings::{Buffer, Slice};

use super::shared::SharedData;
use crate::store::{Journal, Saved};
use crate::worker::Snapshot;

/// What this node has in memory, or open on its disk.
pub(super) struct Bulk {
    pub(super) bytes: BTreeMap<Buffer, Arc<Vec<u8>>>,
    /// The frozen delta of the open epoch.
    pub(super) delta: Option<Arc<Vec<f32>>>,
    /// The newest state, and those on disk that are served.
    pub(super) newest: Arc<Snapshot>,
    pub(super) saved: BTreeMap<Digest, Saved>,
    /// The files of data that are handed out.
    pub(super) shared: Arc<SharedData>,
    /// Absent while records are being written.
    pub(super) journal: Option<Journal>,
    /// Whether the disk refused the last records, and the last update: that is told once.
    pub(super) refused_log: bool,
    pub(super) refused_update: bool,
}

impl Bulk {
    pub(super) fn new(
        newest: Arc<Snapshot>,
        saved: impl Iterator<Item = Saved>,
        journal: Journal,
        shared: SharedData,
    ) -> Self {
        Self {
            bytes: BTreeMap::new(),
            delta: None,
            newest,
            saved: saved.map(|saved| (saved.state, saved)).collect(),
            shared: Arc::new(shared),
            journal: Some(journal),
            refused_log: false,
            refused_update: false,
        }
    }

    /// Bytes in memory, and which of them are meant.
    pub(super) fn slice(&self, slice: &Slice) -> Option<Window> {
        let bytes = Arc::clone(self.bytes.get(&slice.buffer)?);
        let range = slice.range.clone().unwrap_or(0..bytes.len());
        Some(Window { bytes, range })
    }
}

/// A part of bytes in memory.
pub(super) struct Window {
    bytes: Arc<Vec<u8>>,
    range: Range<usize>,
}

impl Window {
    pub(super) fn get(&self) -> &[u8] {
        self.bytes.get(self.range.clone()).unwrap_or_default()
    }
}
