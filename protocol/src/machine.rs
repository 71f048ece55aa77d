//! What every machine is given, and what it hands out.
//!
//! [`step`] is what a machine may read and write in one call, [`table`] the peers that were heard,
//! [`output`] what the caller has to do. [`event`] and [`wait`] are for people: no rule reads them.

pub mod table;
pub mod step;
pub mod output;
pub mod event;
pub mod wait;
