//! The commands beside the node itself. Most of them take files, or the cores of this machine,
//! write something and end; the public entry point serves until it is stopped.

pub(crate) mod admit;
pub(crate) mod bench;
pub(crate) mod bootstrap;
pub(crate) mod data;
pub(crate) mod export;
pub(crate) mod manifest;
pub(crate) mod replay;
pub(crate) mod stored;
