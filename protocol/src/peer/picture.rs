//! What a peer says to people that look from outside. No decision reads it.
//!
//! Nobody signs it, and a peer may say anything.

use super::State;
use crate::base::time::Time;
use crate::message::{MEMBERS_MAX, Picture, Row};

impl State {
    /// This peer and those that it hears: the voters, and the peers that the last receipts name,
    /// before others. It has at most [`MEMBERS_MAX`] rows, ours first; only peers that are alive
    /// have one.
    pub fn picture(&self, now: Time) -> Picture {
        let (head, peer) = (self.epoch.head(), self.me.peer);
        let (phase, _) = self.epoch.phase();
        let (ready, loss, send_rate) = (self.epoch.ready_weight(), self.loss, self.send_rate);
        let own = Row { peer, epoch: head.epoch, phase, ready, loss, rtt_ms: 0, send_rate };
        let table = self.view.table();
        let (mut named, others): (Vec<_>, Vec<_>) =
            table.live(now).partition(|(peer, _)| self.view.is_named(peer));
        named.extend(others);
        let rows = named.into_iter().map(|(peer, seen)| seen.row(*peer));
        Picture { head, rows: std::iter::once(own).chain(rows).take(MEMBERS_MAX).collect() }
    }
}
