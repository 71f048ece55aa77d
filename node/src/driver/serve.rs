//! Requests of other peers: the holdings decide whether they are served, and from where.
//!
//! A request is stored under a name, and the state answers with a location: memory, disk, or a
//! question that is answered at once. A request that fits no location, or whose bytes are gone,
//! gets no answer: dropping its reply resets the stream, and the peer asks another one.
//!
//! `send_at_once` is for what the end of an epoch waits for, `send` for peers that catch up: with
//! `--rate` the latter give way to a ring. A part and a piece have at most [`PART_BYTES`], so the
//! memory of all answers is bounded by their number (`net/limits/answers.rs`).

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::{Duration, Instant};

use intellect_protocol::base::id::PeerId;
use intellect_protocol::holdings::{Input, Inquiry, Location};
use intellect_protocol::message::{Answer, Ask, Request, wire};

use super::{Done, Driver};
use crate::fetch::{PART_BYTES, part_of};
use crate::net::Reply;

impl Driver {
    /// Takes a request as it came. One that does not decode is a fault of its connection. A
    /// question about our lineage may have to wait ([`budget`](super::receive::budget)), so its
    /// input comes from a job.
    ///
    /// A request for bytes shows that a peer that is behind makes progress, so it prolongs the wait
    /// of a node at its end. A question does so only if the peer is one of the run: people who look
    /// on must not hold a node up.
    pub(super) fn on_request(&mut self, from: PeerId, bytes: &[u8], reply: Reply) {
        let Some(request) = wire::open_request(bytes) else {
            self.net.fault(from, "a request that cannot be decoded");
            return;
        };
        let asks = matches!(request, Request::Ask(_) | Request::Picture);
        // A node that has ended does not stay for those that only look.
        if !asks || self.holdings.peer().table().peers.contains_key(&from) {
            self.finish.helps(Instant::now());
        }
        if !asks {
            let ticket = self.requests.add(request.clone(), reply);
            return self.input(Input::Asked(ticket, request));
        }
        // A picture costs hardly anything, so people who look on take no turn from peers that join.
        let is_exempt = request == Request::Picture || self.is_named(&from);
        let Some(wait) = self.budgets.ask(from, is_exempt, Instant::now().into()) else { return };
        let ticket = self.requests.add(request.clone(), reply);
        self.jobs.spawn(async move {
            tokio::time::sleep(wait).await;
            Done::Input(Box::new(Input::Asked(ticket, request)))
        });
    }

    /// Answers a request from a location; the disk is read off the loop.
    ///
    /// Location and request come from the same ticket, so a pair that does not fit is an error of
    /// this program. It is logged, and the peer gets no answer. Bytes that are missing by then,
    /// since the state releases names at any time, are no error.
    pub(super) fn serve(&mut self, ticket: Inquiry, location: &Location) {
        let Some((request, reply)) = self.requests.take(ticket) else { return };
        match (location, request) {
            (Location::Now, Request::Ask(ask)) => self.answer(&ask, reply),
            (Location::Now, Request::Picture) => reply.send_at_once(self.picture()),
            // The update is of the open epoch or a recent one, so a vote may wait for it.
            (
                Location::Memory(part),
                Request::Update { offset, .. } | Request::Chunk { offset, .. },
            ) => {
                let part = self.buffers.slice(part);
                if let Some(part) = part.and_then(|part| part_of(part.get(), offset)) {
                    reply.send_at_once(part);
                }
            }
            (Location::Update(name), Request::Update { offset, .. }) => {
                let (store, name) = (Arc::clone(&self.store), *name);
                self.read_for(reply, move || store.update_part(name, offset, PART_BYTES).ok());
            }
            (Location::Newest, Request::Table { offset, .. }) => {
                if let Some(part) = part_of(&self.buffers.newest.table.to_bytes(), offset) {
                    reply.send(part);
                }
            }
            (Location::Newest, Request::Piece { index, .. }) => {
                let newest = Arc::clone(&self.buffers.newest);
                let piece = move || newest.state.piece(usize::try_from(index).ok()?).ok();
                self.read_for(reply, piece);
            }
            (Location::Checkpoint(state), Request::Table { offset, .. }) => {
                let table = self.buffers.saved.get(state).map(|saved| saved.table.to_bytes());
                if let Some(part) = table.and_then(|table| part_of(&table, offset)) {
                    reply.send(part);
                }
            }
            (Location::Checkpoint(state), Request::Piece { index, .. }) => {
                let saved = self.buffers.saved.get(state).cloned();
                let piece = move || saved?.piece(usize::try_from(index).ok()?);
                self.read_for(reply, piece);
            }
            (Location::File, Request::File { file, offset }) => {
                let store = Arc::clone(&self.store);
                self.read_for(reply, move || store.tokenizer_part(file, offset, PART_BYTES));
            }
            (Location::Data, Request::Tree { file, offset }) => {
                let shared = Arc::clone(&self.buffers.shared);
                self.read_for(reply, move || shared.tree_part(&file, offset));
            }
            (Location::Data, Request::Data { file, index }) => {
                let shared = Arc::clone(&self.buffers.shared);
                self.read_for(reply, move || shared.piece(&file, index));
            }
            (location, request) => {
                tracing::error!(?location, ?request, "an answer that does not fit");
            }
        }
    }

    /// Answers a question about our lineage; old links are read off the loop, for one question at a time.
    ///
    /// The state has the newest links in memory. For older ones it returns the epochs and the
    /// digests of their receipts, and `store::links` looks them up in `receipts.log`. If one of
    /// them is missing, nothing is sent: half a lineage would look like a lie.
    fn answer(&mut self, ask: &Ask, reply: Reply) {
        let (mut answer, logged) = self.holdings.peer().answer(ask);
        if logged.is_empty() {
            return reply.send_at_once(wire::answer(&answer));
        }
        let (store, run) = (Arc::clone(&self.store), self.manifest.id);
        self.jobs.spawn(async move {
            let found = store.links(run, logged.clone()).await;
            match (&mut answer, found) {
                (Answer::Lineage { links, .. }, Ok(Some(found))) => {
                    links.splice(..0, found);
                    reply.send_at_once(wire::answer(&answer));
                }
                (_, Err(error)) if error.kind() == ErrorKind::TimedOut => {
                    tracing::debug!("too many questions about old links");
                }
                (_, Err(error)) => tracing::warn!(%error, "links cannot be read"),
                _ => tracing::warn!(?logged, "links are not in the log"),
            }
            Done::Nothing
        });
    }

    /// What this node says of the run, made at most once in [`PICTURE_EVERY`], however many ask.
    /// Many visitors cost hardly more than one: within that time each gets a copy.
    fn picture(&mut self) -> Vec<u8> {
        let now = Instant::now();
        let fresh = |at: Instant| now.saturating_duration_since(at) < PICTURE_EVERY;
        match &self.buffers.picture {
            Some((at, bytes)) if fresh(*at) => bytes.clone(),
            _ => {
                let picture = self.holdings.peer().picture(self.now());
                let bytes = wire::answer(&Answer::Picture(picture));
                self.buffers.picture = Some((now, bytes.clone()));
                bytes
            }
        }
    }

    /// Reads off the loop, and sends what was read. `None` sends nothing: a file may have been
    /// deleted since the state named it.
    ///
    /// The thread is occupied by the disk only: sending the bytes is the work of the network's
    /// task.
    fn read_for(&mut self, reply: Reply, read: impl FnOnce() -> Option<Vec<u8>> + Send + 'static) {
        self.jobs.spawn_blocking(move || {
            if let Some(bytes) = read() {
                reply.send(bytes);
            }
            Done::Nothing
        });
    }
}

/// People see no faster than this.
const PICTURE_EVERY: Duration = Duration::from_secs(1);
