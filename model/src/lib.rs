//! What peers compute.

pub mod config;
pub mod genesis;
pub mod outer;
pub mod schedule;
pub mod state;
