//! What other peers ask for: lineages from the state, the newest checkpoint from memory, others from
//! disk; updates are in `updates`.

use std::sync::Arc;
use std::time::Instant;

use intellect_protocol::id::{Digest, PeerId};
use intellect_protocol::message::{Ask, Request};
use intellect_protocol::peer::Input;
use intellect_protocol::wire;

use super::updates::DISK_PAUSE;
use super::{Done, Driver};
use crate::fetch;
use crate::net::Reply;
use crate::store::{CHECKPOINTS, Saved, StoreError};

impl Driver {
    /// Answers a request; dropping `reply` refuses it.
    pub(super) fn serve(&mut self, from: PeerId, bytes: &[u8], reply: Reply) {
        let Some(request) = wire::open_request(bytes) else {
            self.net.fault(from, "a request that cannot be decoded");
            return;
        };
        self.finish.helps(Instant::now());
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
                self.serve_update(&update, offset, reply);
                return;
            }
            Request::Table { state, offset } => {
                self.note_asked(&state);
                self.table(&state).and_then(|table| fetch::part_of(&table, offset))
            }
            Request::Chunk { roster, chunk, offset } => {
                self.serve_chunk(from, (roster, chunk), offset, 0, reply);
                return;
            }
            Request::Piece { state, index } => {
                self.serve_piece(&state, index, reply);
                return;
            }
            Request::File { file, offset } => {
                self.serve_file(file, offset, reply);
                return;
            }
        };
        if let Some(answer) = answer {
            reply.send(answer);
        }
    }

    /// Answers a question about our lineage whose turn has come.
    pub(super) fn answer(&self, ask: &Ask, reply: Reply) {
        reply.send_at_once(wire::answer(&self.peer.answer(ask)));
    }

    fn table(&self, state: &Digest) -> Option<Vec<u8>> {
        if self.newest.table.state() == *state {
            return Some(self.newest.table.to_bytes());
        }
        self.saved_of(state).map(|saved| saved.table.to_bytes())
    }

    fn saved_of(&self, state: &Digest) -> Option<&Saved> {
        let kept = self.saved.iter().find(|saved| saved.state == *state);
        let published = || self.published.as_ref().filter(|saved| saved.state == *state);
        kept.or_else(|| self.pins.get(state)).or_else(published)
    }

    /// What is served here and asked for now stays served.
    fn note_asked(&mut self, state: &Digest) {
        if self.newest.table.state() == *state || self.saved_of(state).is_some() {
            self.pins.note(*state, Instant::now());
        }
    }

    /// From memory the newest, from disk the others, off the loop.
    fn serve_piece(&mut self, state: &Digest, index: u32, reply: Reply) {
        let Ok(index) = usize::try_from(index) else { return };
        self.note_asked(state);
        let newest = (self.newest.table.state() == *state).then(|| Arc::clone(&self.newest));
        let saved = self.saved_of(state).cloned();
        if newest.is_none() && saved.is_none() {
            return;
        }
        self.jobs.spawn_blocking(move || {
            let piece = match (newest, saved) {
                (Some(newest), _) => newest.state.piece(index).ok(),
                (None, saved) => saved.and_then(|saved| saved.piece(index).ok()),
            };
            if let Some(piece) = piece {
                reply.send(piece);
            }
            Done::Progress
        });
    }

    /// The run's tokenizer, if it is here.
    fn serve_file(&mut self, file: Digest, offset: u64, reply: Reply) {
        let vocabulary = self.manifest.vocabulary();
        if vocabulary.is_some_and(|vocabulary| vocabulary.digest == file.0) {
            let store = Arc::clone(&self.store);
            self.jobs.spawn_blocking(move || {
                if let Ok(part) = store.tokenizer_part(offset, fetch::PART_BYTES) {
                    reply.send(part);
                }
                Done::Progress
            });
        }
    }

    /// A fetched state is our head once it is on the disk.
    pub(super) fn note_loaded(&mut self) {
        let saved = self.saved.back().map(|saved| saved.state);
        if let Some(head) = self.loaded.take_if(|head| saved == Some(head.state)) {
            self.input(Input::Loaded(head));
        }
    }

    /// A checkpoint is on disk, or is not: training goes on either way. Only a state that was fetched
    /// is no head of ours before.
    pub(super) fn on_saved(&mut self, result: Result<Saved, StoreError>) {
        self.saving = false;
        match result {
            Ok(saved) => {
                self.drop_received(saved.state);
                self.outbox.saved(saved.table.header().epoch);
                self.saved.push_back(saved);
                self.note_loaded();
                while self.saved.len() > CHECKPOINTS {
                    if let Some(old) = self.saved.pop_front() {
                        self.pins.retire(old, Instant::now());
                    }
                }
                self.save();
            }
            Err(error) => {
                self.tell.disk(&error);
                self.make_room();
                let needed = self.loaded.is_some() || self.outbox.is_owing();
                if needed && !std::mem::replace(&mut self.resaving, true) {
                    self.jobs.spawn(async {
                        tokio::time::sleep(DISK_PAUSE).await;
                        Done::Resave
                    });
                }
            }
        }
    }

    /// What was fetched is a checkpoint of our own now.
    fn drop_received(&mut self, state: Digest) {
        let store = Arc::clone(&self.store);
        self.jobs.spawn_blocking(move || {
            if let Err(error) = store.drop_received(&state) {
                tracing::warn!(%error, "a received checkpoint stays");
            }
            Done::Progress
        });
    }
}
