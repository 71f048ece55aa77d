//! What a peer holds: which updates, chunks and states are here, on disk, served, unflushed or
//! obsolete. It also owns the peer, whose every decision rests on what is on its disk.
//!
//! The caller owns clock, network, files, worker and bytes, and carries out each [`Output`] in
//! order: send, write, read, fetch, compute. Bytes are named, never carried: the caller keeps
//! incoming bytes in memory under a name ([`Buffer`]) until [`Output::Release`] or [`Output::Drop`].
//!
//! An update comes from our ring or from other peers. It is flushed to disk before the peer is
//! informed of it, because a peer votes for an update that it holds (R5). If the disk is full, room
//! is made by dropping updates that a checkpoint contains, and the write is tried again. Until it
//! succeeds the peer does not vote for the update. It serves the update from memory and, once
//! others have decided it, takes the outer step without a message (`outbox`).
//!
//! `keep` is the way of one update, `updates` the list of all, `repair` the chunks of rings, `checkpoints` the
//! states, `answers` what other peers ask for. Begin with `State::handle` and `State::decide`.

mod answers;
mod checkpoints;
mod interface;
mod keep;
mod outbox;
mod repair;
mod updates;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::base::id::{Digest, PeerId};
use crate::base::rule::{Rule, Rules};
use crate::base::time::Time;
use crate::consensus::epoch::{Durability, Ring};
use crate::history::log::Record;
use crate::message::{Finished, Head, Request};
use crate::peer;
use crate::ring::codec::Codec;

pub use checkpoints::{CHECKPOINTS, PINNED_MAX, Restored, restore};
pub use interface::{
    Buffer, Chunk, Config, Disk, Input, Inquiry, Location, Name, Origin, Output, Slice, Slices,
};
pub use outbox::BATCH_BYTES;
pub use updates::{IN_MEMORY, OPEN};

use checkpoints::Checkpoints;
use outbox::{Effect, Outbox, Ruling};
use repair::Repairs;
use updates::{Steps, Updates, Writing};

/// One peer, and what it holds.
#[derive(Clone, Debug)]
pub struct State {
    peer: peer::State,
    codec: Codec,
    elements: u64,
    rules: Rules,
    /// The run's tokenizer, if it has one; it is on disk.
    file: Option<Digest>,
    /// The files of the run's data that are handed out; they are on disk.
    data: Vec<Digest>,
    outbox: Outbox,
    updates: Updates,
    /// Updates that are being written to disk.
    writing: BTreeMap<Digest, Writing>,
    steps: Steps,
    repairs: Repairs,
    checkpoints: Checkpoints,
    /// When the disk is tried again after it refused a checkpoint.
    resave_at: Option<Time>,
    /// Updates of the open epoch that an earlier start has voted for.
    held: Vec<Digest>,
    /// What the peer takes next, in order.
    inbox: VecDeque<peer::Input>,
    /// When the peer was suspended because of its disk, if it is.
    suspended_since: Option<Time>,
    /// The peers that may serve the state that is being fetched.
    donors: Vec<PeerId>,
}

/// The pause before a disk that refused something is tried again.
const DISK_PAUSE: Duration = Duration::from_secs(2);

impl State {
    /// A peer at the head that its disk has restored. [`Input::Start`] lets it begin.
    #[must_use]
    pub fn new(now: Time, config: Config) -> Self {
        let Config { peer, codec, newest, saved, published, file, data, updates, held } = config;
        let (elements, rules) = (peer.validator.elements, peer.validator.rules);
        Self {
            peer: peer::State::new(now, peer),
            codec,
            elements,
            rules,
            file,
            data,
            outbox: Outbox::default(),
            updates: Updates::new(updates),
            writing: BTreeMap::new(),
            steps: Steps::default(),
            repairs: Repairs::default(),
            checkpoints: Checkpoints::new(newest, saved, published),
            resave_at: None,
            held,
            inbox: VecDeque::new(),
            suspended_since: None,
            donors: Vec::new(),
        }
    }

    /// The peer inside, for reading only.
    pub fn peer(&self) -> &peer::State {
        &self.peer
    }

    /// Whether a checkpoint is being written.
    #[must_use]
    pub fn is_saving(&self) -> bool {
        self.checkpoints.saving.is_some()
    }

    /// Whether a fetched state waits to be written: it is no head of ours before.
    #[must_use]
    pub fn is_loading(&self) -> bool {
        self.checkpoints.loaded.is_some()
    }

    /// Whether this peer cannot go on because of the disk: it has refused a fetched state, or has not answered for
    /// seconds.
    #[must_use]
    pub fn awaits_disk(&self, now: Time) -> bool {
        (self.is_loading() && self.resave_at.is_some()) || self.outbox.is_late(now)
    }

    /// Whether records are being written, by a disk that accepts them.
    #[must_use]
    pub fn is_logging(&self) -> bool {
        self.outbox.is_open()
    }

    /// Records that were decided and not handed out yet.
    pub fn unwritten(&self) -> impl Iterator<Item = &Record> {
        self.outbox.records()
    }

    /// When the caller has to give a tick if nothing happens before.
    pub fn deadline(&self) -> Option<Time> {
        let peer = if self.outbox.is_stuck() { None } else { self.peer.deadline() };
        let kept = self.writing.values().filter_map(|writing| writing.retry_at).min();
        let steps = self.steps.refetch_at;
        let (records, chunks) = (self.outbox.deadline(), self.repairs.deadline());
        let states = self.checkpoints.deadline();
        let all = [peer, kept, steps, self.resave_at, records, chunks, states];
        all.into_iter().flatten().min()
    }

    /// Takes one input. The caller carries out every output, in order, before the next.
    pub fn handle(&mut self, now: Time, input: Input, out: &mut Vec<Output>) {
        self.on_time(now, out);
        match input {
            Input::Start => self.start(out),
            Input::Peer(input) => self.inbox.push_back(input),
            Input::Written(disk) => self.on_written(now, disk, out),
            Input::Kept(name, disk) => self.on_kept(now, name, disk, out),
            Input::UpdateCame(name) => self.on_update(now, name, out),
            Input::UpdateMissed(name) => self.on_update_missed(now, name, out),
            Input::ChunkCame { ring, finished } => self.on_chunk(ring, finished, out),
            Input::ChunkMissed { ring, finished: Finished { roster, chunk, .. } } => {
                if self.concerns(&ring) {
                    self.inbox.push_back(peer::Input::ChunkMissing(ring, (roster, chunk)));
                }
            }
            Input::Sealed(finished) => {
                if self.concerns(&finished.roster) {
                    self.repairs.seal((finished.roster, finished.chunk));
                    self.inbox.push_back(peer::Input::ChunkHeld(finished));
                }
            }
            Input::RingEnded(roster) => self.on_ring_ended(now, roster, out),
            Input::RingHeld { roster, update, send_rate } => {
                self.on_ring_held(now, roster, update, send_rate, out);
            }
            Input::Joined { roster, update } => self.on_joined(roster, update, out),
            Input::State(head, origin) => self.on_state(head, origin, out),
            Input::Saved(disk) => self.on_saved(now, disk, out),
            // What a peer says of itself must not be ahead of its log.
            Input::Asked(ticket, Request::Ask(_) | Request::Picture) => {
                self.admit(now, Effect::Answer(ticket), out);
            }
            Input::Asked(ticket, request) => self.on_asked(now, ticket, &request, out),
        }
        self.drain(now, out);
    }

    /// Gives the peer its inputs and carries out its decisions, until nothing is left. While the
    /// disk is full and the bound of waiting records is reached, messages are dropped and time does
    /// not pass: the peer is suspended, like a process that was stopped.
    fn drain(&mut self, now: Time, out: &mut Vec<Output>) {
        let mut decided = Vec::new();
        while let Some(input) = self.inbox.pop_front() {
            let since = self.suspended_since.unwrap_or(now);
            self.suspended_since = self.outbox.is_stuck().then_some(since);
            let from_outside = matches!(input, peer::Input::Message(_) | peer::Input::Tick);
            if self.suspended_since.is_none() || !from_outside {
                self.peer.handle(self.suspended_since.unwrap_or(now), input, &mut decided);
            }
            decided.drain(..).for_each(|decision| self.decide(now, decision, out));
        }
        out.extend(self.outbox.due(now).map(Output::Write));
        if let Some(donors) = self.peer.donors(now).map(|donors| self.living_first(now, donors))
            && donors != self.donors
        {
            self.donors.clone_from(&donors);
            out.push(Output::Donors(donors));
        }
    }

    /// Goes on from what was restored.
    fn start(&mut self, out: &mut Vec<Output>) {
        let held = std::mem::take(&mut self.held);
        let held = held.into_iter().map(|held| peer::Input::UpdateHeld(held, Durability::Flushed));
        self.inbox.extend(held);
        self.inbox.push_back(peer::Input::Saved(self.checkpoints.whole()));
        self.inbox.push_back(peer::Input::Tick);
        self.save(out);
    }

    /// Carries out what was postponed and is due now.
    fn on_time(&mut self, now: Time, out: &mut Vec<Output>) {
        let due = |at: &mut Option<Time>| at.take_if(|at| *at <= now).is_some();
        if due(&mut self.steps.refetch_at) {
            self.fetch_unapplied(now, out);
        }
        if due(&mut self.resave_at) {
            self.save(out);
        }
        let refused =
            self.writing.values_mut().filter_map(|w| due(&mut w.retry_at).then_some(w.name));
        for name in refused.collect::<Vec<_>>() {
            self.retry_keep(name, out);
        }
        out.extend(self.checkpoints.forget(now).into_iter().map(Output::Retire));
        self.answer_waiting(now, out);
    }

    /// Carries out a decision, once its records are on disk.
    fn decide(&mut self, now: Time, decision: peer::Output, out: &mut Vec<Output>) {
        match decision {
            peer::Output::Log(record) => self.log(record),
            decision => self.admit(now, Effect::Decision(Box::new(decision)), out),
        }
    }

    /// Logs a record. A vote pins its update; a decision binds nobody until its update is on disk.
    fn log(&mut self, record: Record) {
        if let Record::Voted { voted } = &record
            && self.rules.keeps(Rule::Bound)
        {
            self.updates.vote(&voted.update);
        }
        if let Record::Decided { link } = &record
            && self.rules.keeps(Rule::Owed)
        {
            let (epoch, update) = (link.receipt.series.epoch, link.receipt.update);
            if epoch > self.checkpoints.whole() && self.updates.is_unflushed(&update) {
                self.outbox.await_flush(epoch, update);
            }
        }
        self.outbox.log(record);
    }

    /// Performs an effect now, holds it back until the records before it are flushed, or drops it (R19).
    fn admit(&mut self, now: Time, item: Effect, out: &mut Vec<Output>) {
        if !self.rules.keeps(Rule::Durable) {
            return self.perform(now, item, out);
        }
        match self.outbox.admit(now, item) {
            Ruling::Now(item) => self.perform(now, item, out),
            Ruling::Never(Effect::Answer(ticket)) => out.push(Output::Refuse(ticket)),
            Ruling::Never(Effect::Decision(_)) | Ruling::Later => {}
        }
    }

    /// The disk took or refused a batch. What waited for it is performed or dropped; a dropped question is refused.
    fn on_written(&mut self, now: Time, disk: Disk, out: &mut Vec<Output>) {
        let (ready, never) = self.outbox.written(now, disk);
        for item in ready {
            self.perform(now, item, out);
        }
        let refused = |item| match item {
            Effect::Answer(ticket) => Some(Output::Refuse(ticket)),
            Effect::Decision(_) => None,
        };
        out.extend(never.into_iter().filter_map(refused));
    }

    /// Carries out an effect whose records are on disk; what concerns no bytes is handed on
    /// unchanged.
    fn perform(&mut self, now: Time, item: Effect, out: &mut Vec<Output>) {
        let decision = match item {
            Effect::Answer(ticket) => return out.push(Output::Serve(ticket, Location::Now)),
            Effect::Decision(decision) => *decision,
        };
        match decision {
            peer::Output::Log(record) => self.log(record),
            peer::Output::Gossip(message) => out.push(Output::Gossip(message)),
            peer::Output::Send(to, message) => out.push(Output::Send(to, message)),
            peer::Output::Ring(ring) => self.start_ring(ring, out),
            peer::Output::Abandon(roster) => {
                out.push(Output::Abandon(roster));
                out.extend(self.repairs.abandon(&roster).into_iter().map(Output::Release));
            }
            peer::Output::FetchUpdate(digest, from) => {
                self.fetch(now, Name { epoch: self.open_epoch(), digest }, from, out);
            }
            peer::Output::Apply(apply) => self.apply(now, apply, out),
            peer::Output::Ask(peer, ask) => out.push(Output::Ask(peer, ask)),
            peer::Output::Fetch { head, r, donors, spent } => {
                self.steps.end_replay();
                let donors = self.living_first(now, donors);
                self.donors.clone_from(&donors);
                out.push(Output::Fetch { head, r, donors, spent });
            }
            peer::Output::Replay(updates) => {
                self.steps.ahead = updates.into();
                self.fetch_ahead(now, out);
            }
            peer::Output::Train { epoch, tokens } => {
                self.steps.end_replay();
                let (bytes, asked) = self.repairs.clear();
                out.extend(bytes.into_iter().map(Output::Release));
                out.extend(asked.into_iter().map(Output::Refuse));
                self.drop_obsolete(out);
                out.push(Output::Train { epoch, tokens });
            }
            peer::Output::Fault(peer, fault) => out.push(Output::Fault(peer, fault)),
            peer::Output::Proven(fault, proof) => out.push(Output::Proven(fault, proof)),
            peer::Output::Event(event) => out.push(Output::Event(event)),
            peer::Output::Left => out.push(Output::Left),
            peer::Output::Restart => out.push(Output::Restart),
        }
    }
}

impl State {
    /// Whether a ring is of the open epoch; what others bring is released.
    fn concerns(&self, roster: &Digest) -> bool {
        self.repairs.concerns(roster, self.open_epoch())
    }

    /// Hands out a ring, and fetches the chunks that its roster keeps and that are not here.
    fn start_ring(&mut self, ring: Arc<Ring>, out: &mut Vec<Output>) {
        let epoch = self.open_epoch();
        let lacking = self.repairs.begin(epoch, &ring, self.codec, self.elements);
        out.push(Output::Ring(ring));
        out.extend(lacking);
    }

    /// A ring is over. Its finished chunks stay for a later attempt if its epoch is still open.
    fn on_ring_ended(&mut self, now: Time, roster: Digest, out: &mut Vec<Output>) {
        if !self.concerns(&roster) {
            return out.push(Output::Release(Buffer::Ring(roster)));
        }
        let (old, spare) = self.repairs.keep(roster);
        self.inbox.extend(old.map(peer::Input::ChunksGone));
        out.extend(spare.into_iter().map(Output::Release));
        self.answer_waiting(now, out);
    }

    /// A ring has computed its part.
    fn on_ring_held(
        &mut self,
        now: Time,
        roster: Digest,
        update: Digest,
        send_rate: u64,
        out: &mut Vec<Output>,
    ) {
        self.on_ring_ended(now, roster, out);
        if self.concerns(&roster) && !self.repairs.computes_a_part(&roster) {
            let name = Name { epoch: self.open_epoch(), digest: update };
            return self.keep(name, Some((roster, send_rate)), out);
        }
        self.release_update(update, out);
        self.repairs.put_ring(&roster, send_rate);
        self.conclude_repair(out);
    }

    /// Releases an update that is not kept, unless the same bytes are held already.
    fn release_update(&self, update: Digest, out: &mut Vec<Output>) {
        if !self.updates.is_in_memory(&update) {
            out.push(Output::Release(Buffer::Update(update)));
        }
    }

    /// A kept chunk has arrived. If the attempt is over, the next one may use it.
    fn on_chunk(&mut self, ring: Digest, finished: Finished, out: &mut Vec<Output>) {
        let chunk = (finished.roster, finished.chunk);
        if !self.concerns(&ring) {
            return out.push(Output::Release(Buffer::Chunk(chunk)));
        }
        self.repairs.put(&ring, chunk);
        self.inbox.push_back(peer::Input::ChunkHeld(finished));
        self.conclude_repair(out);
    }

    /// Has an update assembled once its ring has ended and every kept chunk is here.
    fn conclude_repair(&mut self, out: &mut Vec<Output>) {
        out.extend(self.repairs.join().map(|(ring, parts)| Output::Join { ring, parts }));
    }

    /// An update was assembled: it is kept, or released if its epoch is over.
    fn on_joined(&mut self, roster: Digest, update: Option<Digest>, out: &mut Vec<Output>) {
        let (send_rate, spare) = self.repairs.conclude(&roster);
        out.extend(spare.into_iter().map(Output::Release));
        match update {
            Some(digest) if self.concerns(&roster) => {
                let name = Name { epoch: self.open_epoch(), digest };
                self.keep(name, Some((roster, send_rate)), out);
            }
            Some(update) => self.release_update(update, out),
            // Our copy of a ring is not what its owner sealed: a fault of our memory or program.
            None => {
                let (rings, bytes) = self.repairs.distrust();
                self.inbox.extend(rings.into_iter().map(peer::Input::ChunksGone));
                out.extend(bytes.into_iter().map(Output::Release));
            }
        }
    }
}

impl State {
    /// A state is here: the outer step that led to it is done, or its fetch. A fetched one is our
    /// head only once it is on disk, so that a restart does not go back behind it.
    fn on_state(&mut self, head: Head, origin: Origin, out: &mut Vec<Output>) {
        self.checkpoints.newest = head;
        self.steps.taken();
        match origin {
            Origin::Applied => self.inbox.push_back(peer::Input::Applied { state: head.state }),
            Origin::Loaded => {
                self.checkpoints.loaded = Some(head);
                self.note_loaded();
            }
        }
        self.save(out);
    }

    /// A fetched state becomes our head once it is on disk.
    fn note_loaded(&mut self) {
        self.inbox.extend(self.checkpoints.take_loaded().map(peer::Input::Loaded));
    }

    /// Orders a checkpoint of the newest state, unless one is being written or it is on disk.
    fn save(&mut self, out: &mut Vec<Output>) {
        out.extend(self.checkpoints.due().map(Output::Save));
    }

    /// A checkpoint is on disk, or was refused: training goes on either way. Only a fetched state
    /// cannot become our head before.
    fn on_saved(&mut self, now: Time, disk: Disk, out: &mut Vec<Output>) {
        match disk {
            Disk::Took => {
                let retired = self.checkpoints.saved();
                out.extend(retired.into_iter().map(Output::Retire));
                self.outbox.saved(self.checkpoints.whole());
                self.inbox.push_back(peer::Input::Saved(self.checkpoints.whole()));
                self.note_loaded();
                self.save(out);
            }
            Disk::Refused => {
                self.checkpoints.saving = None;
                self.make_room(out);
                let needed = self.checkpoints.loaded.is_some() || self.outbox.awaits_any_flush();
                self.resave_at = needed.then_some(self.resave_at.unwrap_or(now + DISK_PAUSE));
            }
        }
        self.answer_waiting(now, out);
    }
}

#[cfg(test)]
mod tests;
