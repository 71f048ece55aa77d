//! The bytes that the holdings name, and the requests of other peers that are not answered yet.
//!
//! A name of the state leads to bytes here, or to a file in `store`. The state decides when a name
//! is released; nothing here is dropped by itself. So what bounds this memory is the number of
//! names that the state may hold at once.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use intellect_protocol::base::id::Digest;
use intellect_protocol::holdings::{Buffer, Inquiry, Slice};
use intellect_protocol::message::Request;

use super::shared::SharedData;
use crate::net::Reply;
use crate::store::{Journal, Saved};
use crate::worker::Snapshot;

/// Bytes in memory, and files that are open.
pub(super) struct Buffers {
    /// The updates, ring results and chunks in memory, by the names that the state uses.
    pub(super) bytes: BTreeMap<Buffer, Arc<Vec<u8>>>,
    /// The frozen delta of the open epoch.
    pub(super) delta: Option<Arc<Vec<f32>>>,
    /// The newest state, and those on disk that are served.
    pub(super) newest: Arc<Snapshot>,
    pub(super) saved: BTreeMap<Digest, Saved>,
    /// The data files that are served.
    pub(super) shared: Arc<SharedData>,
    /// `None` while records are being written.
    pub(super) journal: Option<Journal>,
    /// What was said of the run last, and when.
    pub(super) picture: Option<(Instant, Vec<u8>)>,
    /// Whether the disk refused the last records and the last update.
    pub(super) refused_log: bool,
    pub(super) refused_update: bool,
}

impl Buffers {
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
            picture: None,
            refused_log: false,
            refused_update: false,
        }
    }

    /// Whether the disk refuses what a vote rests on.
    pub(super) fn disk_refuses(&self) -> bool {
        self.refused_log || self.refused_update
    }

    /// The bytes that a slice names, if they are in memory.
    pub(super) fn slice(&self, slice: &Slice) -> Option<Window> {
        let bytes = Arc::clone(self.bytes.get(&slice.buffer)?);
        let range = slice.range.clone().unwrap_or(0..bytes.len());
        Some(Window { bytes, range })
    }
}

/// A range of bytes that are shared with the map, so no copy is made.
pub(super) struct Window {
    bytes: Arc<Vec<u8>>,
    range: Range<usize>,
}

impl Window {
    /// The bytes of the window; none if the range does not fit them.
    /// The range comes from the state, which knows the length of each update and chunk, so it fits
    /// unless this program is wrong.
    pub(super) fn get(&self) -> &[u8] {
        self.bytes.get(self.range.clone()).unwrap_or_default()
    }
}

/// Requests of other peers that are not answered yet.
#[derive(Default)]
pub(super) struct PendingRequests {
    /// The number of requests so far, from which each gets its name.
    count: u64,
    /// The open requests. The network bounds how many there are, and each ends by an output of the
    /// state.
    open: BTreeMap<Inquiry, (Request, Reply)>,
}

impl PendingRequests {
    /// Stores a request, and returns the name by which the state answers it.
    pub(super) fn add(&mut self, request: Request, reply: Reply) -> Inquiry {
        self.count += 1;
        let ticket = Inquiry(self.count);
        self.open.insert(ticket, (request, reply));
        ticket
    }

    /// Takes a request. Dropping its reply refuses it.
    pub(super) fn take(&mut self, ticket: Inquiry) -> Option<(Request, Reply)> {
        self.open.remove(&ticket)
    }
}
