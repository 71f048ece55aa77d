//! The rows of the other peers, by their names. A peer that was in a ring long ago makes room for a new one.
//!
//! What a row has comes from two kinds of records: receipts, which are proven, and what the peer
//! says of itself in heartbeats, which nobody can check.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::record::{Member, Text};

/// What this node has seen of a peer. `epochs` and `tokens` are those in which it had a position.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Peer {
    /// Whether it counts as present; unknown if only receipts name it.
    pub(crate) here: Option<bool>,
    /// Whether its connection was direct when it was found.
    pub(crate) direct: Option<bool>,
    /// Why it counts as absent; `None` while it is here.
    pub(crate) cause: Option<Text>,
    /// Epochs in which it had a position, as far as this file has them.
    pub(crate) epochs: u64,
    /// The tokens of these epochs that are its own.
    pub(crate) tokens: u64,
    /// The newest of these epochs; 0 if there is none.
    pub(crate) last_epoch: u64,
    /// The last loss that it wrote itself, where its file is read too; else the one that it names to others.
    pub(crate) loss: Option<f64>,
    /// The phase of its newest heartbeat.
    pub(crate) phase: Option<Text>,
    /// The epoch that it committed last.
    pub(crate) head: Option<u64>,
    /// Tokens of its frozen work; 0 while it has none.
    pub(crate) ready: Option<u64>,
    /// The smoothed round trip to it; `None` until one is measured.
    pub(crate) rtt_ms: Option<u64>,
    /// Bytes a second that it sent in its last ring.
    pub(crate) send_rate: Option<u64>,
    /// Its connection: `direct` or `relayed`.
    pub(crate) link: Option<Text>,
    /// The version of its program, as its connection said it last.
    pub(crate) version: Option<Text>,
}

impl Peer {
    /// Takes what the peer says of itself.
    pub(super) fn say(&mut self, member: &Member) {
        self.here = Some(true);
        (self.phase, self.head) = (Some(member.phase.clone()), Some(member.head));
        (self.ready, self.rtt_ms) = (Some(member.ready), member.rtt_ms);
        (self.send_rate, self.link) = (member.send_rate, member.link.clone());
        self.loss = member.loss.or(self.loss);
        self.version = member.version.clone().or_else(|| self.version.take());
    }

    /// It counts as present, and has not said anything yet.
    pub(super) fn come(&mut self, direct: bool) {
        (self.here, self.direct, self.cause) = (Some(true), Some(direct), None);
    }

    /// It counts as absent, and what it does is not known any more.
    pub(super) fn lose(&mut self, cause: Text) {
        (self.here, self.cause) = (Some(false), Some(cause));
        (self.phase, self.link, self.rtt_ms) = (None, None, None);
    }
}

/// The row of a peer. At the bound the one that was in a ring longest ago makes room.
pub(super) fn row<'a>(peers: &'a mut BTreeMap<Text, Peer>, name: &Text) -> &'a mut Peer {
    if peers.len() >= PEERS_MAX && !peers.contains_key(name) {
        let oldest = peers.iter().min_by_key(|(_, p)| (p.last_epoch, p.here == Some(true)));
        if let Some(oldest) = oldest.map(|(name, _)| name.clone()) {
            peers.remove(&oldest);
        }
    }
    peers.entry(name.clone()).or_default()
}

/// Nobody counts as present until it has come again.
pub(super) fn lose_all(peers: &mut BTreeMap<Text, Peer>) {
    for peer in peers.values_mut() {
        if peer.here == Some(true) {
            peer.lose(Text::new("not found again yet"));
        }
    }
}

/// No epoch and no token is counted any more.
pub(super) fn count_again(peers: &mut BTreeMap<Text, Peer>) {
    for peer in peers.values_mut() {
        (peer.epochs, peer.tokens, peer.last_epoch) = (0, 0, 0);
    }
}

/// The most rows that are kept.
pub(super) const PEERS_MAX: usize = 256;
