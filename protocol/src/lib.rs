//! How peers agree: pure state machines without clock, socket, file, thread or entropy.

pub mod id;
pub mod base58;
pub mod time;
pub mod rng;
pub mod rule;
pub mod fault;
pub mod sign;
pub mod seal;
pub mod blocks;
pub mod assign;
pub mod checkpoint;
pub mod manifest;

pub mod message;
pub mod wire;
pub mod roll;
pub mod event;
pub mod lineage;
pub mod log;

pub mod codec;
pub mod ring;
pub mod repair;

pub mod output;
pub mod step;

pub mod view;
pub mod epoch;
pub mod sync;
pub mod exchange;
pub mod crowd;

pub mod peer;
pub mod holdings;
