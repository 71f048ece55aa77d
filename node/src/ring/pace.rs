//! The rate at which a ring may send.

use std::{pin::Pin, sync::Arc};

/// The limit on all bulk of this node, as a ring sees it.
#[derive(Clone)]
pub(crate) struct Pace {
    /// The most bytes that are sent at a time.
    pub(crate) slice_bytes: usize,
    /// Waits until so many more bytes may be sent.
    pub(crate) take: Take,
}

/// Returns once that many bytes may be sent. It is a closure, so that tests of a ring need no
/// network.
pub(crate) type Take = Arc<dyn Fn(usize) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// Bytes written at a time where no rate is set.
pub(crate) const SLICE_BYTES: usize = 16 << 10;
