//! What the links of a simulation do to packets: a switch in virtual time, without sockets.
//!
//! Each peer has one access link, and these links meet here. A packet of b bytes waits until its sender's link is free,
//! takes b / rate to be sent, travels for `delay`, and then does the same on its receiver's link:
//!
//! t₁ = max(t, free) + b / rate;   arrival = t₁ + delay
//!
//! A packet that would wait for longer than the link's buffer holds is dropped. So is a share `loss` of the packets on
//! each link, and everything between two peers that a cut or a black hole separates, also what is on the way. Neither
//! side is notified of a drop.
//!
//! The caller supplies the time, and a seed the random numbers: equal packets at equal times fare equally.
//!
//! [`Links`] is what a scenario or the chaos says of the links, and serves both kinds of bad links;
//! [`Switch`] is what it means for packets, and serves emulated ones alone.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap},
    fmt,
    time::Duration,
};

use intellect_protocol::base::rng::Rng;

/// One change of the links, as a scenario or the chaos makes it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Change {
    /// The access link of one peer gets other properties.
    Access {
        /// The peer at the end of the link.
        peer: usize,
        link: AccessLink,
    },
    /// These peers are cut off from all the others, not from each other.
    Cut(BTreeSet<usize>),
    /// What `from` sends to `to` vanishes. Neither side gets an error, as with a router that fails
    /// in silence.
    BlackHole {
        /// The peer whose packets vanish.
        from: usize,
        /// The peer that does not get them.
        to: usize,
        /// Whether the other direction vanishes too.
        both: bool,
    },
    /// Every link is up, without cuts and black holes. Rate, delay and loss stay.
    Heal,
}

/// Properties of an access link; what is absent stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct AccessLink {
    /// Whether any packet passes, in or out.
    pub(crate) up: Option<bool>,
    /// Bytes per second each way; 0 for no limit.
    pub(crate) rate: Option<u64>,
    /// Time that a packet travels, each way.
    pub(crate) delay: Option<Duration>,
    /// Share of the packets that are lost, each way.
    pub(crate) loss: Option<f64>,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Access { peer, link } => {
                write!(f, "link of peer {peer}:")?;
                if let Some(up) = link.up {
                    f.write_str(if up { " up" } else { " down" })?;
                }
                match link.rate {
                    Some(0) => f.write_str(" no limit")?,
                    Some(rate) => write!(f, " {rate} B/s")?,
                    None => {}
                }
                link.delay.map_or(Ok(()), |delay| write!(f, " delay {} ms", delay.as_millis()))?;
                link.loss.map_or(Ok(()), |loss| write!(f, " loss {} %", 100.0 * loss))
            }
            Self::Cut(peers) => write!(f, "cut off {peers:?}"),
            Self::BlackHole { from, to, both: true } => write!(f, "black hole {from} ↔ {to}"),
            Self::BlackHole { from, to, both: false } => write!(f, "black hole {from} → {to}"),
            Self::Heal => f.write_str("heal the links"),
        }
    }
}

/// The properties of all access links, and who is separated from whom.
#[derive(Clone, Debug)]
pub(crate) struct Links {
    /// One entry for each peer, by its number.
    ports: Vec<Port>,
    /// Pairs of sender and receiver whose packets vanish.
    holes: BTreeSet<(usize, usize)>,
    /// How many cuts there were, which numbers the groups.
    cuts: u32,
}

/// The end of one access link at the switch.
#[derive(Clone, Debug, Default)]
struct Port {
    /// Whether no packet passes at all, in or out.
    down: bool,
    /// Bytes per second each way; 0 is no limit.
    rate: u64,
    /// The time that a packet travels on this link.
    delay: Duration,
    /// The share of packets that vanish on this link.
    loss: f64,
    /// Peers of different groups are cut off from each other.
    group: u32,
}

impl Links {
    /// Links without limit, delay or loss between `count` peers.
    pub(crate) fn new(count: usize) -> Self {
        Self { ports: vec![Port::default(); count], holes: BTreeSet::new(), cuts: 0 }
    }

    /// Applies a change from now on. A number without a peer changes nothing: the file of a
    /// scenario was checked before. Each cut makes a group of its own, so that the peers of two
    /// cuts are cut off from one another too.
    pub(crate) fn apply(&mut self, change: &Change) {
        match change {
            Change::Access { peer, link } => {
                if let Some(port) = self.ports.get_mut(*peer) {
                    port.down = link.up.map_or(port.down, |up| !up);
                    port.rate = link.rate.unwrap_or(port.rate);
                    port.delay = link.delay.unwrap_or(port.delay);
                    port.loss = link.loss.unwrap_or(port.loss);
                }
            }
            Change::Cut(peers) => {
                self.cuts += 1;
                for peer in peers {
                    if let Some(port) = self.ports.get_mut(*peer) {
                        port.group = self.cuts;
                    }
                }
            }
            Change::BlackHole { from, to, both } => {
                self.holes.insert((*from, *to));
                if *both {
                    self.holes.insert((*to, *from));
                }
            }
            Change::Heal => {
                self.holes.clear();
                for port in &mut self.ports {
                    (port.down, port.group) = (false, 0);
                }
            }
        }
    }

    /// Rate, delay and loss of a peer's access link.
    pub(crate) fn access(&self, index: usize) -> (u64, Duration, f64) {
        self.ports.get(index).map(|port| (port.rate, port.delay, port.loss)).unwrap_or_default()
    }

    /// Whether packets that `from` sends can reach `to`. The other direction may differ, by a black
    /// hole one way.
    pub(crate) fn join(&self, from: usize, to: usize) -> bool {
        let (Some(a), Some(b)) = (self.ports.get(from), self.ports.get(to)) else { return false };
        !a.down && !b.down && a.group == b.group && !self.holes.contains(&(from, to))
    }
}

/// The switch, with the packets that are on their way.
#[derive(Debug)]
pub(super) struct Switch {
    links: Links,
    /// Until when each access link is busy, out and in.
    busy: Vec<[Duration; 2]>,
    /// Packets on the way, the next one first. At most [`IN_FLIGHT_MAX`].
    in_flight: BinaryHeap<Reverse<Packet>>,
    /// Packets so far, so that packets of one instant keep their order.
    count: u64,
    /// Decides which packets are lost.
    rng: Rng,
}

/// A packet on its way, ordered by the time of its next step, then by age.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Packet {
    /// When the next step of the packet is due.
    at: Duration,
    /// Its age; later packets of one instant come later.
    number: u64,
    /// The link that it is on until `at`.
    leg: Leg,
    /// The port at which it came in.
    from: usize,
    /// The port at which it goes out.
    to: usize,
    /// The payload as it was read from the device.
    bytes: Vec<u8>,
}

/// On which of the two links a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Leg {
    /// The packet is on the link of its sender.
    Out,
    /// On the link of its receiver.
    In,
}

impl Switch {
    /// Links without limit, delay or loss between `count` peers; `seed` decides which packets are lost.
    pub(super) fn new(count: usize, seed: u64) -> Self {
        Self {
            links: Links::new(count),
            busy: vec![[Duration::ZERO; 2]; count],
            in_flight: BinaryHeap::new(),
            count: 0,
            rng: Rng::new(seed),
        }
    }

    /// Applies a change. Packets that are on the way feel it too, since they are checked again on
    /// arrival.
    pub(super) fn apply(&mut self, change: &Change) {
        self.links.apply(change);
    }

    /// Takes a packet that `from` sends to `to` at `now`. A switch that is full drops it.
    pub(super) fn offer(&mut self, now: Duration, from: usize, to: usize, bytes: Vec<u8>) {
        if self.in_flight.len() < IN_FLIGHT_MAX {
            let packet = Packet { at: now, number: 0, leg: Leg::Out, from, to, bytes };
            self.travel(now, Leg::Out, packet);
        }
    }

    /// The next packet that arrives until `now`, with its receiver. A packet that has passed its
    /// sender's link goes onto the other one at the time at which it passed, however late this call
    /// comes: delays do not add up the caller's pauses.
    pub(super) fn arrival(&mut self, now: Duration) -> Option<(usize, Vec<u8>)> {
        while self.in_flight.peek().is_some_and(|Reverse(packet)| packet.at <= now) {
            let Reverse(packet) = self.in_flight.pop()?;
            match packet.leg {
                Leg::Out => self.travel(packet.at, Leg::In, packet),
                Leg::In if self.links.join(packet.from, packet.to) => {
                    return Some((packet.to, packet.bytes));
                }
                Leg::In => {}
            }
        }
        None
    }

    /// When [`Self::arrival`] has to be called again.
    pub(super) fn next(&self) -> Option<Duration> {
        self.in_flight.peek().map(|Reverse(packet)| packet.at)
    }

    /// Puts a packet on a link at time `t`, unless it is lost. A random number is drawn only for
    /// links that lose packets, so that perfect ones do not change what the others lose.
    fn travel(&mut self, t: Duration, leg: Leg, packet: Packet) {
        if !self.links.join(packet.from, packet.to) {
            return;
        }
        let link = match leg {
            Leg::Out => packet.from,
            Leg::In => packet.to,
        };
        let (Some(port), Some(busy)) = (self.links.ports.get(link), self.busy.get_mut(link)) else {
            return;
        };
        if port.loss > 0.0 && self.rng.chance(port.loss) {
            return;
        }
        let free = &mut busy[usize::from(leg == Leg::In)];
        let start = t.max(*free);
        if port.rate > 0 && start - t > buffer(port.rate) {
            return;
        }
        *free = start + sending(packet.bytes.len(), port.rate);
        self.count += 1;
        let packet = Packet { at: *free + port.delay, number: self.count, leg, ..packet };
        self.in_flight.push(Reverse(packet));
    }
}

/// b / rate; zero on a link without a limit.
fn sending(bytes: usize, rate: u64) -> Duration {
    let nanos = (bytes as u64).saturating_mul(1_000_000_000).checked_div(rate);
    Duration::from_nanos(nanos.unwrap_or(0))
}

/// How long a packet may wait for a link of this rate: the buffer's time, or longer where the link
/// is slow.
fn buffer(rate: u64) -> Duration {
    BUFFER.max(sending(BUFFER_PACKETS_MIN * PACKET_BYTES_MAX, rate))
}

/// Largest packet, as on Ethernet.
pub(super) const PACKET_BYTES_MAX: usize = 1_500;
/// Drop-tail buffer of a link, in time; a guess at a home router.
const BUFFER: Duration = Duration::from_millis(100);
/// A slow link holds at least so many packets, or TCP never gets a window.
const BUFFER_PACKETS_MIN: usize = 64;
/// Packets on the way at once: more than 100 ms of 1 Gbit/s.
const IN_FLIGHT_MAX: usize = 16_384;

#[cfg(test)]
mod tests;
