//! Whom this node lets in: the list of peers ([`allow_list`]), the connections of others ([`pending`]),
//! and the stream over which they ask ([`handshake`]).

pub(super) mod allow_list;
pub(super) mod handshake;
pub(super) mod pending;
