//! How peers agree: pure state machines without clock, socket, file, thread or entropy.
//!
//! Modules stand in layers, and each imports only those above it: values; messages, their bytes, and what
//! they prove; the arithmetic of a ring; what goes in and out; the machines, which never import one
//! another; and [`peer`], which routes between them. A machine takes one input at a time in `handle`, says
//! in `deadline` when it wants to look again, and names bulk data without carrying it.
//!
//! Every noun of the design has one line in "Words" of `docs/PROTOCOL.md`; rules and invariants are there
//! by number.

pub mod id;
pub mod base58;
pub mod time;
pub mod rng;
pub mod rule;
pub mod fault;
pub mod sign;
pub mod seal;
pub mod blocks;
pub mod assign;
pub mod checkpoint;
pub mod manifest;

pub mod message;
pub mod wire;
pub mod admit;
pub mod lobby;
pub mod roll;
pub mod event;
pub mod ledger;
pub mod lineage;
pub mod log;

pub mod codec;
pub mod ring;
pub mod repair;

pub mod notices;
pub mod output;
pub mod step;

pub mod view;
pub mod epoch;
pub mod sync;
pub mod exchange;
pub mod crowd;
pub mod tree;

pub mod peer;
pub mod holdings;
