//! Values in which every other module is written. Nothing here imports a module of another folder.
//!
//! What is here knows no run and no peer table. So every machine, the simulator and the tools of
//! the node can use it.

pub mod id;
pub mod base58;
pub mod time;
pub mod rng;
pub mod rule;
pub mod fault;
pub mod sign;
pub mod blocks;
pub mod tree;
pub mod assign;
