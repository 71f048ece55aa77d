//! What peers compute.

pub mod config;
pub mod genesis;
