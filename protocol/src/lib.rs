//! How peers agree: pure state machines without clock, socket, file, thread or entropy.
//!
//! Modules form layers, and each imports only layers with a lower number:
//!
//! 1. [`base`]: names, time, signatures, faults: values that the rest is written in;
//! 2. [`message`]: every byte of control on the wire and in the log;
//! 3. [`access`]: the organiser's notices, and the peers that they let in;
//!    [`ring`]: the arithmetic of an all-reduce, its codec, and its frames;
//! 4. [`history`]: what proves a state: the chain of receipts, the log, checkpoints;
//!    [`manifest`]: the settings of a run; [`machine`]: what a machine is given and hands out;
//! 5. [`view`] (membership), [`consensus`] and [`download`]: the machines, which never import one another;
//! 6. [`peer`], which routes between the machines, and [`holdings`], which owns the peer and what its disk holds.
//!
//! A machine takes one input at a time in `handle`, says in `deadline` when it wants to look again, and names
//! bulk data without carrying it. Every noun of the design has one line in "Words" of `docs/PROTOCOL.md`; rules
//! and invariants are there by number.
//!
//! To read it, begin with "One epoch" of that page, then [`message`], then [`consensus::epoch`]. A node drives
//! only [`holdings::State`]: it gives one [`holdings::Input`] at a time and carries out each [`holdings::Output`].
//! `protocol/examples/two_peers.rs` drives two [`peer::State`]s by hand, without a disk.

pub mod base;
pub mod message;

pub mod access;
pub mod ring;

pub mod history;
pub mod manifest;
pub mod machine;

pub mod view;
pub mod consensus;
pub mod download;

pub mod peer;
pub mod holdings;
