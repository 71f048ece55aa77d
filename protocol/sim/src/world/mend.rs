//! Rings of processes, and their repair: what a ring computes, and the chunks that its roster keeps of
//! earlier ones, become one update.

use std::sync::Arc;

use super::work::SILENT_DONOR_MS;
use super::{Happening, World};
use crate::report::Moment;
use crate::rings::{CRAWL_MS, Due, Notice, Sends};
use crate::toy::{CODEC, ELEMENTS};
use intellect_protocol::epoch::Ring;
use intellect_protocol::id::{Digest, PeerId};
use intellect_protocol::message::Finished;
use intellect_protocol::peer::Input;
use intellect_protocol::repair::Repair;
use intellect_protocol::seal::Seal;
use intellect_protocol::sign::Keypair;

impl World {
    pub(super) fn ring(&mut self, host: usize, ring: &Ring) {
        let Some(process) = &self.hosts[host].process else { return };
        let epoch = process.judged.head().epoch + 1;
        let Some(frozen) = &process.toy.frozen else {
            return self.break_with("S4", "a ring without a frozen delta".to_owned());
        };
        if process.sends == Sends::Never {
            return;
        }
        let delta = Arc::clone(&frozen.delta);
        let hosts: Vec<usize> =
            ring.members.iter().filter_map(|member| self.host(&member.peer)).collect();
        let slowest = hosts.iter().zip(hosts.iter().cycle().skip(1));
        let network = &self.network;
        let rng = &mut self.rng;
        let hop_ms = slowest.map(|(a, b)| network.delay_ms(*a, *b, rng)).max().unwrap_or(1);
        // One slow hop does not slow them all as much: frames follow each other.
        let hop_ms = hop_ms.min(100);
        let crawls = |host: &usize| {
            let process = self.hosts[*host].process.as_ref();
            process.is_some_and(|process| process.sends == Sends::Slowly)
        };
        let hop_ms = if hosts.iter().any(crawls) { CRAWL_MS } else { hop_ms };
        let carries = |a: usize, b: usize| network.linked(a, b);
        let due = self.rings.start(ring, &hosts, delta, hop_ms, carries);
        self.moments.push((host, epoch, Moment::Reduce));
        self.notify(due);
        if !ring.keep.is_empty() {
            self.begin_repair(host, ring);
        }
    }

    /// Puts what the members of a ring will notice into the queue.
    pub(super) fn notify(&mut self, due: Vec<Due>) {
        for Due { delay_ms, host, roster, notice } in due {
            self.push(delay_ms, host, Happening::Ringing { roster, notice });
        }
    }

    pub(super) fn on_ringing(&mut self, host: usize, roster: Digest, notice: &Notice) {
        let Some((notice, bytes)) = self.rings.take(&roster, host, notice) else { return };
        match (notice, bytes) {
            (Notice::Lose(neighbour), _) => self.feed(host, Input::RingLost { roster, neighbour }),
            (Notice::Chunk((chunk, owner)), Some(bytes)) => {
                let digest = Digest(*blake3::hash(&bytes).as_bytes());
                let seal = Seal::new(&Keypair::simulated(owner), &self.run, &roster, chunk, digest);
                self.hold_chunk(host, Finished { roster, chunk, seal }, bytes);
            }
            (Notice::Finish, Some(bytes)) => self.finish(host, roster, bytes),
            (Notice::Chunk(_) | Notice::Finish, None) => {}
        }
    }

    /// The ring has ended; its update may lack kept chunks.
    fn finish(&mut self, host: usize, roster: Digest, bytes: Arc<Vec<u8>>) {
        let Some(process) = &mut self.hosts[host].process else { return };
        match process.repairs.get_mut(&roster).map(|repair| repair.put_ring(&bytes)) {
            Some(true) => self.conclude(host, roster),
            Some(false) => {
                self.break_with("S4", "a ring that does not fill what is missing".into());
            }
            None => self.tell_finished(host, roster, bytes),
        }
    }

    fn tell_finished(&mut self, host: usize, roster: Digest, bytes: Arc<Vec<u8>>) {
        let Some(update) = self.keep_update(host, bytes) else { return };
        let finished = Input::RingFinished { roster, update, send_rate: 1_000_000 };
        let full = self.hosts[host].disk.full;
        self.feed(host, if full { Input::UpdateUnflushed(update) } else { finished });
    }

    fn begin_repair(&mut self, host: usize, ring: &Ring) {
        let mut repair = Repair::new(CODEC, ELEMENTS as u64, &ring.layout, &ring.keep);
        let Some(process) = &mut self.hosts[host].process else { return };
        for ((roster, chunk), bytes) in &process.toy.chunks {
            repair.put(*roster, *chunk, bytes);
        }
        let missing: Vec<(Finished, Vec<PeerId>)> = repair
            .missing()
            .map(|(roster, kept)| {
                let (chunk, seal) = (kept.chunk, kept.seal);
                (Finished { roster, chunk, seal }, kept.holders.clone())
            })
            .collect();
        process.repairs.insert(ring.roster, repair);
        for (finished, holders) in missing {
            self.push_soon(host, Happening::TryChunk { ring: ring.roster, finished, holders });
        }
    }

    pub(super) fn on_try_chunk(
        &mut self,
        host: usize,
        ring: Digest,
        finished: Finished,
        mut holders: Vec<PeerId>,
    ) {
        let at = (finished.roster, finished.chunk);
        let Some(process) = &self.hosts[host].process else { return };
        if !process.repairs.contains_key(&ring) {
            return;
        }
        if let Some(bytes) = process.toy.chunks.get(&at).cloned() {
            return self.hold_chunk(host, finished, bytes);
        }
        if holders.is_empty() {
            return self.feed(host, Input::ChunkMissing(ring, at));
        }
        let holder = holders.remove(0);
        let served = self.reach(host, &holder).and_then(|from| {
            let process = self.hosts[from].process.as_ref().filter(|p| !p.withholds)?;
            Some((from, process.toy.chunks.get(&at).cloned()?))
        });
        let again = Happening::TryChunk { ring, finished, holders };
        match served {
            Some((from, bytes)) => {
                if let Some(process) = &mut self.hosts[host].process {
                    process.toy.chunks.insert(at, bytes);
                }
                let delay_ms = 2 * self.network.delay_ms(from, host, &mut self.rng);
                self.push(delay_ms, host, again);
            }
            None => self.push(SILENT_DONOR_MS, host, again),
        }
    }

    /// A chunk is here: it may be kept later, and may be what an update lacks.
    fn hold_chunk(&mut self, host: usize, finished: Finished, bytes: Arc<Vec<u8>>) {
        let Some(process) = &mut self.hosts[host].process else { return };
        let (roster, chunk) = (finished.roster, finished.chunk);
        for repair in process.repairs.values_mut() {
            repair.put(roster, chunk, &bytes);
        }
        let rings: Vec<Digest> = process.repairs.keys().copied().collect();
        process.toy.chunks.insert((roster, chunk), bytes);
        self.feed(host, Input::ChunkHeld(finished));
        rings.into_iter().for_each(|ring| self.conclude(host, ring));
    }

    /// Sets how a process sends in the rings that it accepts.
    pub(crate) fn set_sends(&mut self, host: usize, sends: Sends) {
        if let Some(process) = &mut self.hosts[host].process {
            process.sends = sends;
        }
    }

    /// Makes a liar of a process.
    pub(crate) fn withhold_chunks(&mut self, host: usize) {
        if let Some(process) = &mut self.hosts[host].process {
            process.withholds = true;
        }
    }

    pub(super) fn give_up_repair(&mut self, host: usize, ring: &Digest) {
        if let Some(process) = &mut self.hosts[host].process {
            process.repairs.remove(ring);
        }
    }

    /// Tells of an update that is whole now.
    fn conclude(&mut self, host: usize, ring: Digest) {
        let Some(process) = &mut self.hosts[host].process else { return };
        let whole = process.repairs.get_mut(&ring).and_then(Repair::take);
        if let Some(update) = whole {
            process.repairs.remove(&ring);
            self.tell_finished(host, ring, Arc::new(update));
        }
    }
}
