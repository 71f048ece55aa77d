//! How a peer enters the network: the libp2p transport, the discovery behaviours, and the public
//! entry point that runs them for others. The crate knows neither the protocol nor the model; it
//! carries opaque bytes of limited length for the node.
//!
//! Read the modules in this order:
//!
//! - [`address`]: what a person types, and what is worth dialling.
//! - [`transport`]: how bytes get to a peer. [`shaper`] makes a line worse for simulations.
//! - [`discovery`]: how peers find and reach one another. [`providers`], [`table`], [`crowding`],
//!   [`candidates`], `circuits` and `handshakes` limit what one peer may take.
//! - [`streams`] and [`frame`]: our own protocols on a chosen connection.
//! - [`manifest`] and [`measure`]: the protocols that the entry point itself answers.
//! - [`key`], [`interrupts`] and [`server`]: the entry point.

pub mod address;
pub mod candidates;
mod circuits;
pub mod crowding;
pub mod discovery;
pub mod frame;
mod handshakes;
pub mod interrupts;
pub mod key;
pub mod manifest;
pub mod measure;
pub mod providers;
pub mod server;
pub mod shaper;
pub mod streams;
pub mod table;
pub mod transport;
