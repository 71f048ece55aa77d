//! What the peers decide: the update of each epoch, and which of several histories holds.

pub mod epoch;
pub mod sync;
