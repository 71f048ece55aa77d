//! What every machine is given, and what it hands out.

pub mod table;
pub mod step;
pub mod output;
pub mod event;
pub mod wait;
