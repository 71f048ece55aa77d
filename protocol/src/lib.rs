//! How peers agree: pure state machines without clock, socket, file, thread or entropy.

pub mod codec;
pub mod fault;
pub mod id;
pub mod ring;
pub mod rng;
pub mod sign;
pub mod time;
