//! What peers compute.

pub mod arch;
pub mod config;
pub mod data;
pub mod genesis;
pub mod ops;
pub mod optim;
pub mod outer;
pub mod params;
pub mod schedule;
pub mod state;
