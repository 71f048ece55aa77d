//! The bytes that the holdings name, and the requests of other peers that are not answered yet.

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
    /// Whether the disk refused the last records and the last update, which is reported once.
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

    /// The bytes that a slice names, if they are in memory.
    pub(super) fn slice(&self, slice: &Slice) -> Option<Window> {
        let bytes = Arc::clone(self.bytes.get(&slice.buffer)?);
        let range = slice.range.clone().unwrap_or(0..bytes.len());
        Some(Window { bytes, range })
    }
}

pub(super) struct Window {
    bytes: Arc<Vec<u8>>,
    range: Range<usize>,
}

impl Window {
    pub(super) fn get(&self) -> &[u8] {
        self.bytes.get(self.range.clone()).unwrap_or_default()
    }
}

/// Requests of other peers that are not answered yet.
#[derive(Default)]
pub(super) struct PendingRequests {
    count: u64,
    open: BTreeMap<Inquiry, (Request, Reply)>,
}

impl PendingRequests {
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
