//! What the peers decide: the update of each epoch, and which of several histories holds.
//!
//! [`epoch`] votes on the open epoch. [`sync`] follows the lineage that is greatest, and brings
//! this peer to it. Neither imports the other: what one finds out for the other is a
//! [`Decision`](crate::machine::step::Decision) that `peer` hands on.

pub mod epoch;
pub mod sync;
