//! How fast a ring may send.

use std::{pin::Pin, sync::Arc};

/// The limit on all bulk of this node.
#[derive(Clone)]
pub(crate) struct Pace {
    /// Most bytes that are sent at a time.
    pub(crate) slice_bytes: usize,
    /// Waits until so many bytes more may be sent.
    pub(crate) take: Take,
}

/// See [`Pace::take`].
pub(crate) type Take = Arc<dyn Fn(usize) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// Bytes written at a time where nothing limits them.
pub(crate) const SLICE_BYTES: usize = 16 << 10;
