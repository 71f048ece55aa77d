//! What proves a state: the chain of receipts, the votes that this peer
//! has logged, and checkpoints.
//!
//! [`lineage`] says which links are lawful, and is the one place that a peer, the simulator and a
//! tool ask. [`log`] is what must be on disk before anything is said. [`checkpoint`] turns a state
//! into bytes with a digest. [`evidence`] says which messages of one author contradict each other.
//! None of them opens a file.

pub mod checkpoint;
pub mod evidence;
pub mod lineage;
pub mod log;
