//! Values in which every other module is written. Nothing here imports a module of another folder.

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
