//! Commands beside the node itself: most take files or the cores of this machine, write, and end; the public
//! entry point serves.

pub(crate) mod bench;
pub(crate) mod bootstrap;
pub(crate) mod data;
pub(crate) mod export;
pub(crate) mod manifest;
pub(crate) mod stored;
