//! The way of an update: into memory, onto the disk, to the peer, into the outer step, and away.

use std::sync::Arc;

use super::interface::{Buffer, Disk, Location, Name, Output};
use super::updates::{AHEAD, FETCH_PAUSE, FETCHES, Writing};
use super::{DISK_PAUSE, State};
use crate::base::id::{Digest, PeerId};
use crate::base::rule::Rule;
use crate::base::time::Time;
use crate::consensus::epoch::{Apply, Durability};
use crate::machine::output::Replayed;
use crate::peer;

impl State {
    /// Keeps an update that is in memory, and has it written to disk. `ring` is the roster whose
    /// ring computed it, with the bytes per second that we sent there; `None` if it was fetched.
    /// The peer learns of it once it is flushed, or refused by the disk.
    pub(super) fn keep(&mut self, name: Name, ring: Option<(Digest, u64)>, out: &mut Vec<Output>) {
        self.hold(name, out);
        if !self.writing.contains_key(&name.digest) {
            out.push(Output::Keep(name));
        }
        let new = || Writing { name, rings: Vec::new(), retry_at: None };
        self.writing.entry(name.digest).or_insert_with(new).rings.extend(ring);
    }

    /// An update is in memory. An older one that has to go for it is held no more,
    /// and must not be voted for (R5).
    pub(super) fn hold(&mut self, name: Name, out: &mut Vec<Output>) {
        let old = self.updates.hold(name);
        self.inbox.extend(old.iter().map(|old| peer::Input::UpdateMissing(old.digest)));
        self.drop_updates(old, out);
    }

    /// The disk has taken or refused an update. A refused one serves from memory, but no vote may name
    /// it (R19); it is written again after [`DISK_PAUSE`].
    pub(super) fn on_kept(&mut self, now: Time, name: Name, disk: Disk, out: &mut Vec<Output>) {
        let update = name.digest;
        match disk {
            Disk::Took => {
                let writing = self.writing.remove(&update);
                let rings = writing.map(|writing| writing.rings).unwrap_or_default();
                self.on_flushed(name, rings, out);
            }
            Disk::Refused => {
                self.make_room(out);
                self.inbox.push_back(peer::Input::UpdateHeld(update, Durability::InMemory));
                if let Some(writing) = self.writing.get_mut(&update) {
                    writing.retry_at = Some(now + DISK_PAUSE);
                }
            }
        }
        self.steps.under_way.remove(&update);
        self.on_arrived(now, update, out);
    }

    /// An update is flushed: it may be voted for.
    pub(super) fn on_flushed(
        &mut self,
        name: Name,
        rings: Vec<(Digest, u64)>,
        out: &mut Vec<Output>,
    ) {
        let update = name.digest;
        self.updates.flushed(&update);
        match self.updates.location(&update) {
            Some(_) => self.outbox.kept(&update),
            // Another one was decided meanwhile, or this one had to give way: it is not held (R5).
            None => return out.push(Output::Drop(vec![name])),
        }
        let fetched = rings.is_empty() || self.steps.under_way.contains(&update);
        let finished =
            |(roster, send_rate)| peer::Input::RingFinished { roster, update, send_rate };
        self.inbox.extend(rings.into_iter().map(finished));
        let held = peer::Input::UpdateHeld(update, Durability::Flushed);
        self.inbox.extend(fetched.then_some(held));
    }

    /// Tries a full disk again, while the update may still be decided or nothing may
    /// be sent before it is on disk.
    pub(super) fn retry_keep(&mut self, name: Name, out: &mut Vec<Output>) {
        let open = name.epoch >= self.open_epoch() || self.outbox.awaits_flush(&name.digest);
        if open && self.updates.is_in_memory(&name.digest) {
            out.push(Output::Keep(name));
        } else {
            self.writing.remove(&name.digest);
            self.steps.under_way.remove(&name.digest);
        }
    }

    /// The disk has refused a write: drops old updates. Only updates that a complete checkpoint
    /// contains go.
    pub(super) fn make_room(&mut self, out: &mut Vec<Output>) {
        let old = self.updates.make_room(self.checkpoints.whole());
        self.drop_updates(old, out);
    }

    /// Once the last commit is durable, the updates that were not chosen can go.
    pub(super) fn drop_obsolete(&mut self, out: &mut Vec<Output>) {
        if self.outbox.is_settled() {
            let obsolete = std::mem::take(&mut self.steps.obsolete);
            self.drop_updates(obsolete, out);
        }
    }

    /// Drops updates. One that is just being written is dropped when the write is done: a file that
    /// is removed during its write could outlive that, or be missed.
    fn drop_updates(&self, old: Vec<Name>, out: &mut Vec<Output>) {
        let is_written = |name: &Name| {
            self.writing.get(&name.digest).is_some_and(|writing| writing.retry_at.is_none())
        };
        let (written, old): (Vec<Name>, Vec<Name>) = old.into_iter().partition(is_written);
        let release = |name: Name| Output::Release(Buffer::Update(name.digest));
        out.extend(written.into_iter().map(release));
        if !old.is_empty() {
            out.push(Output::Drop(old));
        }
    }

    /// Brings an update into memory, from disk or from other peers. An update that is already on
    /// its way is not fetched again, but may come from more peers.
    pub(super) fn fetch(
        &mut self,
        now: Time,
        name: Name,
        from: Vec<PeerId>,
        out: &mut Vec<Output>,
    ) {
        let begins = self.steps.under_way.insert(name.digest);
        match self.updates.location(&name.digest) {
            Some(Location::Update(name)) if begins => out.push(Output::Read(name)),
            Some(_) if begins => self.on_update(now, name, out),
            Some(_) => {}
            None if begins => out.push(Output::FetchUpdate(name, self.living_first(now, from))),
            None => out.push(Output::UpdateDonors(name.digest, self.living_first(now, from))),
        }
    }

    /// An update was read or fetched. A fetched one is written first.
    pub(super) fn on_update(&mut self, now: Time, name: Name, out: &mut Vec<Output>) {
        if !self.updates.is_on_disk(&name.digest) {
            return self.keep(name, None, out);
        }
        self.hold(name, out);
        self.on_kept(now, name, Disk::Took, out);
    }

    /// An update cannot be read or fetched. If it was on disk, it is damaged. If it has
    /// come from our ring meanwhile, it stays whether or not any peer delivers it, above
    /// all if we have voted for it (R19).
    pub(super) fn on_update_missed(&mut self, now: Time, name: Name, out: &mut Vec<Output>) {
        let update = name.digest;
        let here = self.updates.is_in_memory(&update);
        let lost = match self.steps.under_way.remove(&update) {
            true => !here,
            // The update was to be written, and is not in memory.
            false => self.writing.remove(&update).is_some(),
        };
        if lost {
            let gone = self.updates.forget(vec![update]);
            self.drop_updates(gone, out);
            self.inbox.push_back(peer::Input::UpdateMissing(update));
        }
        self.on_arrived(now, update, out);
    }

    /// Fetches what a replay will need, in its order.
    pub(super) fn fetch_ahead(&mut self, now: Time, out: &mut Vec<Output>) {
        while self.steps.under_way.len() + self.updates.open_count() < AHEAD {
            let Some(next) = self.steps.ahead.pop_front() else { return };
            let Replayed { epoch, update: digest, donors } = next;
            if !self.updates.is_in_memory(&digest) {
                self.fetch(now, Name { epoch, digest }, donors, out);
            }
        }
    }

    /// Applies the decided update, or fetches it from the peers that have it.
    pub(super) fn apply(&mut self, now: Time, apply: Arc<Apply>, out: &mut Vec<Output>) {
        if !self.updates.is_in_memory(&apply.update) {
            // The update is being fetched, or was one of very many in this epoch. Every
            // peer that has decided it has it.
            self.steps.unapplied = Some((apply, 0));
            return self.fetch_unapplied(now, out);
        }
        let name = Name { epoch: apply.epoch, digest: apply.update };
        let gone = self.updates.commit(name, self.checkpoints.whole());
        out.extend(gone.released.into_iter().map(|update| Output::Release(Buffer::Update(update))));
        if !self.rules.keeps(Rule::Bound) {
            self.drop_updates(gone.dropped, out);
        } else {
            // A vote may name one of them: they go once the commit is on disk.
            let buffers = gone.dropped.iter().map(|name| Buffer::Update(name.digest));
            out.extend(buffers.map(Output::Release));
            self.steps.obsolete.extend(gone.dropped);
        }
        out.push(Output::Apply(apply));
        self.fetch_ahead(now, out);
    }

    /// Fetches the update that the outer step waits for, if it waits. A replay knows who has it;
    /// otherwise all live peers are asked: most of those that have decided the epoch have its update.
    pub(super) fn fetch_unapplied(&mut self, now: Time, out: &mut Vec<Output>) {
        let Some((apply, fetches)) = &mut self.steps.unapplied else { return };
        let name = Name { epoch: apply.epoch, digest: apply.update };
        if self.steps.under_way.contains(&name.digest) {
            return;
        }
        *fetches += 1;
        let replayed = self.steps.ahead.pop_front_if(|next| next.update == name.digest);
        let living = || self.peer.table().live(now).map(|(peer, _)| *peer).collect();
        let donors = replayed.map_or_else(living, |next| next.donors);
        self.fetch(now, name, donors, out);
    }

    /// A fetch has ended; the outer step may be waiting for it.
    pub(super) fn on_arrived(&mut self, now: Time, update: Digest, out: &mut Vec<Output>) {
        self.fetch_ahead(now, out);
        let waiting = |(apply, _): &mut (Arc<Apply>, u32)| apply.update == update;
        let Some((apply, fetches)) = self.steps.unapplied.take_if(waiting) else { return };
        if self.updates.location(&update).is_some() {
            self.apply(now, apply, out);
        } else if fetches < FETCHES {
            self.steps.unapplied = Some((apply, fetches));
            self.steps.refetch_at = Some(now + FETCH_PAUSE);
        } else {
            out.push(Output::Lost { epoch: apply.epoch });
        }
    }
    /// The epoch after the peer's head, the only one whose rings and votes count.
    pub(super) fn open_epoch(&self) -> u64 {
        self.peer.head().epoch + 1
    }

    /// Sorts living donors first: each dead one costs the time of a request.
    pub(super) fn living_first(&self, now: Time, mut donors: Vec<PeerId>) -> Vec<PeerId> {
        donors.sort_by_key(|donor| !self.peer.table().alive(donor, now));
        donors
    }
}
