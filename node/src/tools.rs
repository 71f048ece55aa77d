//! The commands apart from the node itself. Most read files or use the cores of this machine, write something and end;
//! the bootstrap serves until it is stopped.

pub(crate) mod access;
pub(crate) mod bench;
pub(crate) mod bootstrap;
pub(crate) mod data;
pub(crate) mod evaluate;
pub(crate) mod export;
pub(crate) mod generate;
pub(crate) mod manifest;
pub(crate) mod merge;
mod models;
pub(crate) mod pace;
pub(crate) mod receipts;
pub(crate) mod replay;
pub(crate) mod report;
pub(crate) mod serve;
pub(crate) mod spectrum;
pub(crate) mod status;
pub(crate) mod stored;
pub(crate) mod tui;
pub(crate) mod watch;

#[cfg(test)]
mod tests;
