//! Commands that need no network: each takes files or this machine's cores, writes, and ends.

pub(crate) mod bench;
pub(crate) mod data;
pub(crate) mod export;
pub(crate) mod manifest;
pub(crate) mod stored;
