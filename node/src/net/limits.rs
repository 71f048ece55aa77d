//! Limits: what a peer may send us ([`bucket`], [`source`]), how fast we send ([`rate`]), and how many answers wait
//! for their readers ([`answers`]).

pub(crate) mod answers;
pub(crate) mod bucket;
pub(crate) mod rate;
pub(crate) mod source;
