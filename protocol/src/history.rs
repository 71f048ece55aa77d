//! What proves a state: the chain of receipts, the votes that this peer
//! has logged, and checkpoints.

pub mod checkpoint;
pub mod lineage;
pub mod log;
