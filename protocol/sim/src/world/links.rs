//! Direct connections of a simulated run: whom nobody can dial, and which pairs nothing joins but a relay.

use super::{Happening, Input, World, peer};
use crate::rings::Loss;

/// Of pairs that are not both behind routers so many are not joined: one has IPv4 only, the other IPv6, say.
const OTHERS_APART: f64 = 0.05;

impl World {
    /// From now on processes are told of their connections; these hosts can be dialled by nobody.
    pub fn enclose(&mut self, hosts: &[usize]) {
        self.network.enclosed = Some(hosts.iter().copied().collect());
        for host in self.running() {
            self.tell_links(host);
        }
    }

    /// Draws who stands behind a router, and which pairs nothing joins: most of those who both do, and a few others.
    pub(crate) fn draw_routers(&mut self, peers: usize) {
        let (enclosed, apart) = (0.7 * self.rng.unit(), self.rng.unit());
        let enclosed: Vec<usize> = (0..peers).filter(|_| self.rng.chance(enclosed)).collect();
        for a in 0..peers {
            for b in 0..a {
                let both = enclosed.contains(&a) && enclosed.contains(&b);
                if self.rng.chance(if both { apart } else { OTHERS_APART }) {
                    self.unlink(a, b);
                }
            }
        }
        self.enclose(&enclosed);
    }

    /// No direct connection joins two hosts any more; messages reach them through a relay.
    pub fn unlink(&mut self, a: usize, b: usize) {
        if self.network.unlinked.insert((a.min(b), a.max(b))) {
            self.tell_link(a, b, false);
            self.part(Loss::Closed);
        }
    }

    /// A direct connection joins two hosts again.
    pub fn link(&mut self, a: usize, b: usize) {
        if self.network.unlinked.remove(&(a.min(b), a.max(b))) {
            self.tell_link(a, b, true);
        }
    }

    /// A process has started: it can be dialled or not, and connects with those whom it reaches.
    pub(super) fn tell_links(&mut self, host: usize) {
        let Some(enclosed) = &self.network.enclosed else { return };
        let dialable = !enclosed.contains(&host);
        self.tell(host, peer::Input::Reachable(dialable));
        for other in self.running().into_iter().filter(|other| *other != host) {
            if self.network.joins(host, other) {
                self.tell_link(host, other, true);
            }
        }
    }

    fn tell_link(&mut self, a: usize, b: usize, linked: bool) {
        if self.network.enclosed.is_none() {
            return;
        }
        let delay_ms = self.network.delay_ms(a, b, &mut self.rng);
        for (host, other) in [(a, b), (b, a)] {
            let input = peer::Input::Linked(self.hosts[other].name, linked);
            self.push(delay_ms, host, Happening::Input(Input::Peer(input)));
        }
    }
}
