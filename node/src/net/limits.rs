//! Limits: what a peer may send us ([`bucket`], [`source`]), how fast we send ([`rate`]), and how many answers wait
//! for their readers ([`answers`]). What all strangers may send together is in [`strangers`].

pub(crate) mod answers;
pub(crate) mod bucket;
pub(crate) mod rate;
pub(crate) mod source;
pub(crate) mod strangers;
