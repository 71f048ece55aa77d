//! Which peers may take part, and by which signature of the organiser.

pub mod admit;
pub mod notices;
pub mod ledger;
pub mod handshake;
