//! Limits on rates: what a peer may send us ([`bucket`], [`source`]), and how fast we send ([`rate`]).

pub(crate) mod bucket;
pub(crate) mod rate;
pub(crate) mod source;
