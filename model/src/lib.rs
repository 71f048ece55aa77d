//! What peers compute.

pub mod config;
pub mod data;
pub mod genesis;
pub mod ops;
pub mod outer;
pub mod schedule;
pub mod state;
