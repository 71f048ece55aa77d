//! How peers agree: pure state machines without clock, socket, file, thread or entropy.

pub mod id;
pub mod time;
pub mod rng;
pub mod fault;
pub mod sign;

pub mod message;
pub mod wire;
pub mod roll;

pub mod codec;
pub mod ring;

pub mod view;
pub mod peer;
