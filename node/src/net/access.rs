//! Which peers this node deals with: the list of them ([`allow_list`]), connections of peers that
//! are not on it yet ([`pending`]), and the stream on which a peer asks for it ([`handshake`]).

pub(super) mod allow_list;
pub(super) mod handshake;
pub(super) mod pending;
