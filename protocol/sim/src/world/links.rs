//! Direct connections of a simulated run: which hosts nobody can dial,
//! and which pairs need a relay.
//!
//! A pair without a direct connection still exchanges messages, as through a relay; only a ring
//! cannot use it. Until `set_undialable` is called, no process hears of connections, and all pairs
//! count as joined.
//!
//! A pair that is not dialable from either side may still be joined: how two such peers meet is the
//! work of `bootstrap`, and here the draw alone says whether they have.

use super::{World, peer};
use crate::rings::Loss;

/// The share of pairs without a connection that are not both behind routers:
/// say, IPv4 only and IPv6 only.
const OTHERS_APART: f64 = 0.05;

impl World {
    /// Gives processes inputs about their connections from now on. No
    /// other host can dial these hosts.
    pub fn set_undialable(&mut self, hosts: &[usize]) {
        self.network.undialable = Some(hosts.iter().copied().collect());
        for host in self.running() {
            self.report_links(host);
        }
    }

    /// Draws the hosts behind a router, and the pairs without a direct connection: most pairs that
    /// are both behind routers, and a few others.
    pub(crate) fn draw_routers(&mut self, peers: usize) {
        let (undialable, apart) = (0.7 * self.rng.unit(), self.rng.unit());
        let undialable: Vec<usize> = (0..peers).filter(|_| self.rng.chance(undialable)).collect();
        for a in 0..peers {
            for b in 0..a {
                let both = undialable.contains(&a) && undialable.contains(&b);
                if self.rng.chance(if both { apart } else { OTHERS_APART }) {
                    self.unlink(a, b);
                }
            }
        }
        self.set_undialable(&undialable);
    }

    /// Removes the direct connection of two hosts; messages reach them through a relay. A ring in
    /// which they are neighbours breaks. Without effect if they have none.
    pub fn unlink(&mut self, a: usize, b: usize) {
        if self.network.unlinked.insert((a.min(b), a.max(b))) {
            self.report_link(a, b, false);
            self.part(Loss::Closed);
        }
    }

    /// Restores the direct connection of two hosts. A ring that has broken for it stays broken.
    pub fn link(&mut self, a: usize, b: usize) {
        if self.network.unlinked.remove(&(a.min(b), a.max(b))) {
            self.report_link(a, b, true);
        }
    }

    /// A process has started: reports whether it can be dialled, and its connections. Hosts on the
    /// other side of a fault count as not connected at this start.
    pub(super) fn report_links(&mut self, host: usize) {
        let Some(undialable) = &self.network.undialable else { return };
        let dialable = !undialable.contains(&host);
        self.feed_peer(host, peer::Input::Reachable(dialable));
        for other in self.running().into_iter().filter(|other| *other != host) {
            if self.network.joins(host, other) {
                self.report_link(host, other, true);
            }
        }
    }

    /// Tells both ends that a link has come or gone, each in its own time.
    fn report_link(&mut self, a: usize, b: usize, linked: bool) {
        if self.network.undialable.is_none() {
            return;
        }
        let delay_ms = self.network.delay_ms(a, b, &mut self.rng);
        for (host, other) in [(a, b), (b, a)] {
            let input = peer::Input::Linked(self.hosts[other].name, linked);
            self.push_peer(delay_ms, host, input);
        }
    }
}
