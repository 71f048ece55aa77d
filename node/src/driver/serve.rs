//! What other peers ask for: lineages from the state, updates from memory, checkpoints from disk.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use intellect_protocol::id::{Digest, PeerId};
use intellect_protocol::message::{Ask, Request};
use intellect_protocol::wire;
use tokio::sync::oneshot;

use super::{Done, Driver};
use crate::store::{CHECKPOINTS, Saved, StoreError};
use crate::transfer;

/// Committed updates that are kept for peers that were too slow for the ring.
pub(super) const COMMITTED: usize = 4;

/// Updates of one epoch that are not decided: one per attempt, of which honest peers need few.
const OPEN: usize = 16;

/// The bytes of updates, by digest.
#[derive(Debug, Default)]
pub(super) struct Updates {
    open: VecDeque<Digest>,
    committed: VecDeque<Digest>,
    bytes: BTreeMap<Digest, Arc<Vec<u8>>>,
}

impl Updates {
    /// Keeps an update that may be decided.
    pub(super) fn hold(&mut self, digest: Digest, bytes: Arc<Vec<u8>>) {
        if self.bytes.insert(digest, bytes).is_none() {
            self.open.push_back(digest);
        }
        while self.open.len() > OPEN {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some(old) = self.open.pop_front() {
            self.bytes.remove(&old);
        }
    }

    /// One is decided; the others of its epoch are not needed any more.
    pub(super) fn commit(&mut self, digest: Digest) {
        self.open.retain(|open| *open != digest);
        while !self.open.is_empty() {
            self.forget_oldest();
        }
        if !self.committed.contains(&digest) {
            self.committed.push_back(digest);
        }
        while self.committed.len() > COMMITTED {
            if let Some(old) = self.committed.pop_front() {
                self.bytes.remove(&old);
            }
        }
    }

    pub(super) fn get(&self, digest: &Digest) -> Option<Arc<Vec<u8>>> {
        self.bytes.get(digest).cloned()
    }
}

impl Driver {
    /// Answers a request; dropping `reply` refuses it.
    pub(super) fn serve(&mut self, from: PeerId, bytes: &[u8], reply: oneshot::Sender<Vec<u8>>) {
        let Some(request) = wire::open_request(bytes) else {
            self.net.fault(from, "a request that cannot be decoded");
            return;
        };
        let answer = match request {
            Request::Ask(ask) => {
                if let Some(wait) = self.budgets.ask(from, Instant::now()) {
                    self.jobs.spawn(async move {
                        tokio::time::sleep(wait).await;
                        Done::Asked(ask, reply)
                    });
                }
                return;
            }
            Request::Update { update, offset } => {
                self.updates.get(&update).and_then(|bytes| transfer::part_of(&bytes, offset))
            }
            Request::Table { state, offset } => {
                self.table(&state).and_then(|table| transfer::part_of(&table, offset))
            }
            Request::Piece { state, index } => {
                self.serve_piece(&state, index, reply);
                return;
            }
        };
        if let Some(answer) = answer {
            // Whoever asked may be gone.
            let _ = reply.send(answer);
        }
    }

    /// Answers a question about our lineage whose turn has come.
    pub(super) fn answer(&self, ask: &Ask, reply: oneshot::Sender<Vec<u8>>) {
        // Whoever asked may be gone.
        let _ = reply.send(wire::answer(&self.peer.answer(ask)));
    }

    fn table(&self, state: &Digest) -> Option<Vec<u8>> {
        if self.newest.table.state() == *state {
            return Some(self.newest.table.to_bytes());
        }
        self.saved_of(state).map(|saved| saved.table.to_bytes())
    }

    fn saved_of(&self, state: &Digest) -> Option<&Saved> {
        self.saved.iter().find(|saved| saved.state == *state)
    }

    /// From memory the newest, from disk the others, off the loop.
    fn serve_piece(&mut self, state: &Digest, index: u32, reply: oneshot::Sender<Vec<u8>>) {
        let Ok(index) = usize::try_from(index) else { return };
        if self.newest.table.state() == *state {
            if let Ok(piece) = self.newest.state.piece(index) {
                let _ = reply.send(piece);
            }
            return;
        }
        let Some(saved) = self.saved_of(state).cloned() else { return };
        self.jobs.spawn_blocking(move || {
            if let Ok(piece) = saved.piece(index) {
                let _ = reply.send(piece);
            }
            Done::Progress
        });
    }

    /// A checkpoint is on disk, or is not: training goes on either way.
    pub(super) fn on_saved(&mut self, result: Result<Saved, StoreError>) {
        self.saving = false;
        match result {
            Ok(saved) => {
                self.saved.push_back(saved);
                while self.saved.len() > CHECKPOINTS {
                    self.saved.pop_front();
                }
                self.save();
            }
            Err(error) => self.tell.disk(&error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(n: u8) -> Digest {
        Digest([n; 32])
    }

    #[test]
    fn committed_updates_outlive_the_open_ones_and_both_are_bounded() {
        let mut updates = Updates::default();
        for n in 0..40 {
            updates.hold(digest(n), Arc::new(vec![n]));
        }
        assert_eq!(updates.bytes.len(), OPEN);
        updates.commit(digest(39));
        assert_eq!(updates.bytes.len(), 1);
        for n in 50..60 {
            updates.hold(digest(n), Arc::new(vec![n]));
            updates.commit(digest(n));
        }
        assert_eq!(updates.bytes.len(), COMMITTED);
        assert!(updates.get(&digest(59)).is_some() && updates.get(&digest(39)).is_none());
    }
}
