//! Which peers may take part, and which signature of the organiser admits them.
//!
//! A run of invited peers adds this to the protocol; an open run reads only the attestations in
//! [`notices`]. To read it: [`admit`] is what the organiser signs once, [`notices`] what it signs
//! later, [`ledger`] what follows from both along a lineage, [`handshake`] what a peer says before
//! it is let in.

pub mod admit;
pub mod notices;
pub mod ledger;
pub mod handshake;
