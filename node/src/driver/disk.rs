//! Stores, reads and assembles updates, and stores records and checkpoints, as the holdings ask. All of
//! this happens off the loop.
//!
//! Each method takes what it needs as an `Arc` or by value, starts a blocking job, and returns. The
//! end of the job comes back as a `Done`, in any order. So the state orders what must have an
//! order: it asks for the next write of records only after [`Input::Written`], and votes only after
//! [`Input::Kept`].
//!
//! A disk that refuses ends nothing. The node trains on, says so, and asks the disk again with the
//! next records, update or checkpoint. Only a log that was removed from outside ends the node
//! (`Driver::on_done`).

use std::sync::Arc;

use intellect_protocol::base::id::Digest;
use intellect_protocol::consensus::epoch::Ring;
use intellect_protocol::history::log::Record;
use intellect_protocol::holdings::{Buffer, Disk, Input, Name, Slice, Slices};
use intellect_protocol::ring::assembly::Repair;

use super::{Done, Driver};
use crate::store::{Journal, Saved, StoreError};

impl Driver {
    /// Appends records to the logs and flushes them. One write runs at a time, because the state
    /// waits for [`Input::Written`] before it asks for the next one.
    ///
    /// The job owns the [`Journal`] meanwhile, so no lock is needed, and a second write at once is
    /// an error of this program.
    pub(super) fn write(&mut self, records: Arc<Vec<Record>>) {
        let Some(mut journal) = self.buffers.journal.take() else {
            tracing::error!("two writes of records at once");
            return;
        };
        self.jobs.spawn_blocking(move || {
            let result = journal.append(&records);
            Done::Written(Box::new(journal), result)
        });
    }

    /// Takes the journal back, and reports a refusal. A disk that refuses does not end the node: it
    /// trains on, but says nothing that rests on the records.
    pub(super) fn on_written(&mut self, journal: Journal, result: Result<(), StoreError>) {
        self.buffers.journal = Some(journal);
        self.buffers.refused_log = result.is_err();
        self.tell.journal(result.as_ref().err());
        self.input(Input::Written(taken(&result)));
    }

    /// Stores an update that is in memory. If it is not, the state hears that it is missing, and
    /// fetches it.
    pub(super) fn keep(&mut self, name: Name) {
        let Some(bytes) = self.buffers.bytes.get(&Buffer::Update(name.digest)).cloned() else {
            tracing::error!("an update is to be kept that is not here");
            let missed = Box::new(Input::UpdateMissed(name));
            self.jobs.spawn(async move { Done::Input(missed) });
            return;
        };
        let store = Arc::clone(&self.store);
        self.jobs.spawn_blocking(move || Done::Kept(name, store.keep_update(name, &bytes)));
    }

    /// Reports a refusal, and gives the result to the state, which votes only for an update that is
    /// on the disk.
    pub(super) fn on_kept(&mut self, name: Name, result: Result<(), StoreError>) {
        self.buffers.refused_update = result.is_err();
        self.tell.update(result.as_ref().err());
        self.input(Input::Kept(name, taken(&result)));
    }

    /// Reads an update from the disk. A damaged file counts as missing, so the update is fetched
    /// from a peer.
    pub(super) fn read(&mut self, name: Name) {
        let (store, decodes) = (Arc::clone(&self.store), self.decodes());
        self.jobs.spawn_blocking(move || {
            update_came(name, store.read_update(name).ok().filter(|bytes| decodes(bytes)))
        });
    }

    /// Deletes updates in memory and on disk.
    /// The state decides which ones. A file that cannot be removed costs room only, and the next
    /// start lists it again.
    pub(super) fn drop_updates(&mut self, names: Vec<Name>) {
        for name in &names {
            self.buffers.bytes.remove(&Buffer::Update(name.digest));
        }
        let store = Arc::clone(&self.store);
        self.jobs.spawn_blocking(move || {
            if let Err(error) = store.drop_updates(&names) {
                tracing::warn!(%error, "an old update stays");
            }
            Done::Nothing
        });
    }

    /// Assembles an update, which takes as long as hashing and copying all of it.
    ///
    /// A ring that repairs an earlier one computes only the chunks that were not finished there.
    /// Its result and the finished chunks (`parts`) together are the update. Each chunk is checked
    /// against the digest in its seal. The whole has no digest that it could be compared with: its
    /// digest is what the vote is about.
    ///
    /// The outcome is [`Input::Joined`] in both cases, without a digest if the parts do not fit
    /// together.
    pub(super) fn join(&mut self, ring: &Ring, parts: Slices) {
        let elements = self.buffers.newest.table.header().parameters;
        let mut repair =
            Repair::new(self.manifest.run.ring.codec, elements, &ring.layout, &ring.keep);
        let (roster, bulk) = (ring.roster, &self.buffers);
        let rest = bulk.slice(&Slice { buffer: Buffer::Ring(roster), range: None });
        let parts: Option<Vec<_>> =
            parts.into_iter().map(|(chunk, part)| Some((chunk, bulk.slice(&part)?))).collect();
        self.jobs.spawn_blocking(move || {
            let good = rest.is_some_and(|rest| repair.put_ring(rest.get()))
                && parts.is_some_and(|parts| {
                    parts
                        .iter()
                        .all(|((roster, chunk), part)| repair.put(*roster, *chunk, part.get()))
                });
            let (Some(update), true) = (repair.take(), good) else {
                tracing::error!("kept chunks that do not fit together");
                return Done::Input(Box::new(Input::Joined { roster, update: None }));
            };
            let digest = Digest(*blake3::hash(&update).as_bytes());
            let input = Box::new(Input::Joined { roster, update: Some(digest) });
            Done::Came { bytes: Buffer::Update(digest), content: Arc::new(update), input }
        });
    }

    /// Stores the newest state as a checkpoint. The state itself is shared, so training does not
    /// wait for the disk.
    ///
    /// What is written is the newest state at this moment. The state of the protocol hears of the
    /// end by [`Input::Saved`].
    pub(super) fn save(&mut self) {
        let (store, snapshot) = (Arc::clone(&self.store), Arc::clone(&self.buffers.newest));
        self.jobs.spawn_blocking(move || {
            let table = Arc::clone(&snapshot.table);
            Done::Saved(store.save(table, snapshot.state.theta(), snapshot.state.momentum()))
        });
    }

    /// A checkpoint was stored or could not be stored; training goes on either way.
    ///
    /// In both cases the fetched form of the state goes: stored, it is there twice; refused, it
    /// takes the room that its checkpoint lacks.
    pub(super) fn on_saved(&mut self, result: Result<Saved, StoreError>) {
        let disk = taken(&result);
        self.tell.checkpoint(result.as_ref().err(), self.holdings.is_loading());
        match result {
            Ok(saved) => {
                self.drop_received(saved.state);
                self.buffers.saved.insert(saved.state, saved);
            }
            // It is in memory, and takes the room that its checkpoint needs.
            Err(_) => self.drop_received(self.buffers.newest.table.state()),
        }
        self.input(Input::Saved(disk));
    }

    /// Deletes the fetched form of a state.
    /// A state that was computed here has none, which is no error.
    fn drop_received(&mut self, state: Digest) {
        let store = Arc::clone(&self.store);
        self.jobs.spawn_blocking(move || {
            if let Err(error) = store.drop_received(&state) {
                tracing::warn!(%error, "a received checkpoint stays");
            }
            Done::Nothing
        });
    }

    /// Whether an update can be applied. A peer must not vote for one that cannot.
    /// The closure has its own copy of the codec and the number of parameters, so that a job can
    /// take it along.
    pub(super) fn decodes(&self) -> impl Fn(&Vec<u8>) -> bool + Send + use<> {
        let (codec, elements) =
            (self.manifest.run.ring.codec, self.buffers.newest.state.theta().len());
        move |update| codec.validate(update, elements).is_ok()
    }
}

/// The result of reading or fetching an update.
/// `found` has been compared with the digest of `name` and decodes.
pub(super) fn update_came(name: Name, found: Option<Vec<u8>>) -> Done {
    let Some(content) = found.map(Arc::new) else {
        return Done::Input(Box::new(Input::UpdateMissed(name)));
    };
    let (bytes, input) = (Buffer::Update(name.digest), Box::new(Input::UpdateCame(name)));
    Done::Came { bytes, content, input }
}

/// Whether the disk took what was written, in the words of the state.
fn taken<T>(result: &Result<T, StoreError>) -> Disk {
    if result.is_ok() { Disk::Took } else { Disk::Refused }
}
