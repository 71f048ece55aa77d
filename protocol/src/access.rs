//! Which peers may take part, and which signature of the organiser admits them.

pub mod admit;
pub mod notices;
pub mod ledger;
pub mod handshake;
