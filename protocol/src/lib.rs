//! How peers agree: pure state machines without clock, socket, file, thread or entropy.

pub mod base58;
pub mod checkpoint;
pub mod fault;
pub mod id;
pub mod rng;
pub mod sign;
pub mod time;

pub mod manifest;
pub mod message;
pub mod roll;
pub mod wire;

pub mod assign;
pub mod codec;
pub mod ring;

pub mod exchange;
pub mod peer;
pub mod view;
