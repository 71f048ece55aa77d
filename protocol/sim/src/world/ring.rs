//! Rings of processes: what they compute, and what a process does with it.
//!
//! No frame is sent: `rings` says when each member has what, and the bytes are computed at once.
//! The real exchange is tested by itself, in `protocol/src/ring/exchange`.
//!
//! `rings` sees all members of a ring together and knows no process. This file is between the two:
//! it gives a ring the delta and the links of each member, and turns what a member notices into
//! inputs of its machine.

use std::sync::Arc;

use super::{Happening, World};
use crate::report::Moment;
use crate::rings::{Due, Loss, Notice, Sends};
use crate::toy::{CODEC, ELEMENTS};
use intellect_protocol::base::id::Digest;
use intellect_protocol::base::sign::Keypair;
use intellect_protocol::consensus::epoch::Ring;
use intellect_protocol::holdings::{Buffer, Chunk, Input, Slice};
use intellect_protocol::message::Finished;
use intellect_protocol::message::seal::Seal;
use intellect_protocol::peer;
use intellect_protocol::ring::assembly::Repair;

impl World {
    /// Starts a host's part in a ring, with the delta that it has frozen. A member that never sends
    /// does not start, so the ring of the others cannot end.
    pub(super) fn ring(&mut self, host: usize, ring: &Ring) {
        self.note_ring(host, ring.roster);
        let Some(process) = &self.hosts[host].process else { return };
        let epoch = process.judged.head.epoch + 1;
        let Some(frozen) = &process.toy.frozen else {
            return self.break_with("S4", "a ring without a frozen delta".to_owned());
        };
        if process.sends == Sends::Never {
            return;
        }
        let breaks = process.sends == Sends::UntilItBreaks;
        let delta = Arc::clone(&frozen.delta);
        // A member that is not a host never starts.
        let nobody = self.hosts.len();
        let hosts = ring.members.iter().map(|member| self.host(&member.peer).unwrap_or(nobody));
        let hosts: Vec<usize> = hosts.collect();
        let real: Vec<usize> = hosts.iter().copied().filter(|host| *host != nobody).collect();
        let slowest = real.iter().zip(real.iter().cycle().skip(1));
        let (network, rng) = (&self.network, &mut self.rng);
        // One slow hop does not slow all of them down as much: frames follow each other.
        let hop_ms =
            slowest.map(|(a, b)| network.delay_ms(*a, *b, rng)).max().unwrap_or(1).min(100);
        let crawls = |host: usize| {
            let process = self.hosts.get(host).and_then(|host| host.process.as_ref());
            process.is_some_and(|process| process.sends == Sends::Slowly)
        };
        let carries = |a: usize, b: usize| network.joins(a, b);
        self.rings.now_ms = self.now_ms;
        let due = self.rings.start(ring, &hosts, delta, hop_ms, crawls, carries);
        self.moments.push((host, epoch, Moment::Reduce));
        self.notify(due);
        if breaks {
            self.push(hop_ms + hop_ms / 2, host, Happening::BreaksOff(ring.roster));
        }
    }

    /// Puts what the members of a ring will notice into the queue. A member that is no host notices
    /// nothing.
    pub(super) fn notify(&mut self, due: Vec<Due>) {
        for Due { delay_ms, host, roster, notice } in due {
            if host < self.hosts.len() {
                self.push(delay_ms, host, Happening::Ringing { roster, notice });
            }
        }
    }

    /// Reports to a machine what its ring has reached, or that it has stopped. The seal of a chunk
    /// is made here, with the simulated key of its owner.
    pub(super) fn on_ringing(&mut self, host: usize, roster: Digest, notice: &Notice) {
        self.rings.now_ms = self.now_ms;
        let Some((notice, mut bytes)) = self.rings.take(&roster, host, notice) else { return };
        if self.script.deceived == Some(host)
            && let Some(last) = bytes.as_mut().and_then(|bytes| Arc::make_mut(bytes).last_mut())
        {
            *last = u8::from(*last == 0);
        }
        match (notice, bytes) {
            (Notice::Stop { lost, hops }, _) => {
                self.ring_ended(host, roster);
                self.feed_peer(host, peer::Input::RingStopped { roster, lost, hops });
            }
            (Notice::Chunk((chunk, owner)), Some(bytes)) => {
                let place = self.rings.place(&roster, chunk).and_then(|place| bytes.get(place));
                let digest = Digest(*blake3::hash(place.unwrap_or_default()).as_bytes());
                let seal = Seal::new(&Keypair::simulated(owner), &self.run, &roster, chunk, digest);
                if let Some(process) = &mut self.hosts[host].process {
                    process.rings.insert(roster, bytes);
                }
                self.feed(host, Input::Sealed(Finished { roster, chunk, seal }));
            }
            (Notice::Finish, Some(bytes)) => {
                let Some(process) = &mut self.hosts[host].process else { return };
                let update = Digest(*blake3::hash(&bytes).as_bytes());
                process.rings.remove(&roster);
                process.bytes.insert(Buffer::Ring(roster), Arc::clone(&bytes));
                process.bytes.insert(Buffer::Update(update), bytes);
                self.feed(host, Input::RingHeld { roster, update, send_rate: 1_000_000 });
            }
            (Notice::Chunk(_) | Notice::Finish, None) | (Notice::Wait, _) => {}
        }
    }

    /// A process abandons a ring, which breaks it for all its members. The chunks that it has with
    /// their seals stay in memory, as in a ring that stops.
    pub(super) fn abandon(&mut self, host: usize, roster: Digest) {
        self.rings.now_ms = self.now_ms;
        let due = self.rings.lose(host, Loss::Closed, Some(roster));
        self.notify(due);
        let process = self.hosts[host].process.as_mut();
        if let Some(content) = process.and_then(|process| process.rings.remove(&roster)) {
            let (bytes, input) = (Buffer::Ring(roster), Input::RingEnded(roster));
            self.push(0, host, Happening::Came { bytes, content, input });
        }
    }

    /// A liar says that its ring has stopped, before its neighbours notice anything.
    pub(super) fn break_off(&mut self, host: usize, roster: Digest) {
        self.rings.now_ms = self.now_ms;
        let mut due = self.rings.lose(host, Loss::Closed, Some(roster));
        due.iter_mut().filter(|due| due.host != host).for_each(|due| due.delay_ms += HUSH_MS);
        self.notify(due);
    }

    /// Chunks that a ring has sealed before it ended are kept. They lie in memory as one buffer of
    /// that ring.
    fn ring_ended(&mut self, host: usize, roster: Digest) {
        let Some(process) = &mut self.hosts[host].process else { return };
        if let Some(bytes) = process.rings.remove(&roster) {
            process.bytes.insert(Buffer::Ring(roster), bytes);
            self.feed(host, Input::RingEnded(roster));
        }
    }

    /// Puts an update together from a ring and kept chunks, by the assembly of a node. Parts that
    /// do not fit are a violation of S4.
    pub(super) fn join(&mut self, host: usize, ring: &Ring, parts: &[(Chunk, Slice)]) {
        let Some(process) = &self.hosts[host].process else { return };
        let mut repair = Repair::new(CODEC, ELEMENTS as u64, &ring.layout, &ring.keep);
        let rest = Slice { buffer: Buffer::Ring(ring.roster), range: None };
        let fits = process.part(&rest).is_some_and(|bytes| repair.put_ring(&bytes))
            && parts.iter().all(|((roster, chunk), part)| {
                process.part(part).is_some_and(|bytes| repair.put(*roster, *chunk, &bytes))
            });
        let (Some(content), true) = (repair.take(), fits) else {
            return self.break_with("S4", "kept chunks that do not fit together".to_owned());
        };
        let update = Digest(*blake3::hash(&content).as_bytes());
        let input = Input::Joined { roster: ring.roster, update: Some(update) };
        let (bytes, content) = (Buffer::Update(update), Arc::new(content));
        self.push(0, host, Happening::Came { bytes, content, input });
    }

    /// Sets how a host sends in the rings of rosters that it accepts. It holds until the process
    /// ends.
    pub fn send_in_rings(&mut self, host: usize, sends: Sends) {
        if let Some(process) = &mut self.hosts[host].process {
            process.sends = sends;
        }
    }
}

/// How long after its word a member that breaks off a ring closes its streams.
const HUSH_MS: u64 = 400;
