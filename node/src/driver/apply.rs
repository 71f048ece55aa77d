//! What the state decided, done.

use std::sync::Arc;
use std::time::{Duration, Instant};

use intellect_protocol::checkpoint::Header;
use intellect_protocol::epoch::{Apply, Ring};
use intellect_protocol::id::{Digest, PeerId};
use intellect_protocol::message::Head;
use intellect_protocol::peer::Output;
use intellect_protocol::wire;

use super::{Done, Driver};
use crate::error::Error;
use crate::net::SendError;
use crate::{ring, transfer, worker};

/// A decided epoch whose update was not kept.
pub(super) struct Unapplied {
    apply: Arc<Apply>,
    fetches: u32,
}

/// How often its update is asked for, of everybody, before the node gives up, and the pause between:
/// who restarts fetches the state instead.
const FETCHES: u32 = 5;
const FETCH_PAUSE: Duration = Duration::from_secs(1);

impl Driver {
    pub(super) fn apply(&mut self, output: Output) {
        match output {
            // Until votes and receipts have a file, a restarted node is a new voter (R19).
            Output::Log(_) => {}
            Output::Gossip(message) => self.gossip(0, &message),
            Output::Send(to, message) => {
                let sent = self.net.send(to, wire::envelope(&message));
                let lost = sent == Err(SendError::NoStream);
                if lost && self.budgets.answer(Instant::now()) {
                    self.repeats = self.repeats.wrapping_add(1);
                    self.gossip(self.repeats, &message);
                }
            }
            Output::Ring(ring) => self.start_ring(&ring),
            Output::Abandon(roster) => self.rings.abandon(roster),
            Output::FetchUpdate(update, from) => self.fetch_update(update, from),
            Output::Apply(apply) => self.apply_update(apply),
            Output::Ask(peer, ask) => {
                let net = self.net.clone();
                self.jobs
                    .spawn(async move { Done::Answer(peer, transfer::ask(&net, peer, ask).await) });
            }
            Output::Fetch { head, r, donors, spent } => self.fetch_state(head, r, donors, spent),
            Output::Train { epoch, tokens } => self.worker_train(epoch, tokens),
            Output::Fault(peer, fault) => {
                self.tell.fault(peer, &fault.to_string());
                self.net.drop_peer(peer, fault.to_string());
            }
            Output::Event(event) => self.on_event(event),
            Output::Left => self.finish.left(),
        }
    }

    fn start_ring(&mut self, ring: &Ring) {
        let Some(delta) = self.delta.clone() else {
            tracing::error!("a ring without a frozen delta");
            return;
        };
        self.tell.ring_opened();
        self.rings.start(ring::Job {
            run: self.manifest.id,
            roster: ring.roster,
            members: ring.members.clone(),
            position: ring.index,
            codec: self.manifest.run.codec,
            key: self.key.clone(),
            delta,
            patience: ring::Patience::new(self.round_trip()),
        });
    }

    fn round_trip(&self) -> Duration {
        self.peer.roll().round_trip(self.now())
    }

    /// Who is heard comes first: a dead donor costs its patience.
    fn living_first(&self, donors: &mut [PeerId]) {
        let (roll, now) = (self.peer.roll(), self.now());
        donors.sort_by_key(|donor| !roll.alive(donor, now));
    }

    fn fetch_update(&mut self, update: Digest, mut from: Vec<PeerId>) {
        self.living_first(&mut from);
        let net = self.net.clone();
        let length = self.update_bytes();
        self.jobs.spawn(async move {
            Done::Update(update, transfer::update(&net, update, length, &from).await)
        });
    }

    pub(super) fn update_bytes(&self) -> usize {
        self.manifest.run.codec.encoded_bytes(self.newest.state.theta().len())
    }

    fn apply_update(&mut self, apply: Arc<Apply>) {
        let Some(update) = self.updates.get(&apply.update) else {
            // It was one of very many of this epoch. Whoever has decided it has it.
            self.unapplied = Some(Unapplied { apply, fetches: 0 });
            self.fetch_unapplied();
            return;
        };
        self.updates.commit(apply.update);
        // No ring of this epoch starts any more; the worker keeps what it needs.
        self.delta = None;
        let header = Header {
            run: self.manifest.id,
            epoch: apply.epoch,
            tokens: apply.tokens,
            r: apply.r,
            parameters: self.newest.table.header().parameters,
        };
        self.tell.applied(apply.spent);
        self.command(worker::Command::Apply { header, update, spent: apply.spent });
    }

    /// Fetches what the outer step waits for, if it does.
    pub(super) fn fetch_unapplied(&mut self) {
        let Some(waiting) = &mut self.unapplied else { return };
        waiting.fetches += 1;
        let update = waiting.apply.update;
        let living = self.peer.roll().live(self.now()).map(|(peer, _)| *peer).collect();
        self.fetch_update(update, living);
    }

    /// An update has come, or not; the outer step may be waiting for it.
    pub(super) fn on_fetched(&mut self, update: Digest) -> Result<(), Error> {
        let Some(waiting) = self.unapplied.take_if(|waiting| waiting.apply.update == update) else {
            return Ok(());
        };
        if self.updates.get(&update).is_some() {
            self.apply_update(waiting.apply);
        } else if waiting.fetches < FETCHES {
            self.unapplied = Some(waiting);
            self.jobs.spawn(async {
                tokio::time::sleep(FETCH_PAUSE).await;
                Done::Refetch
            });
        } else {
            return Err(Error::UpdateLost { epoch: waiting.apply.epoch });
        }
        Ok(())
    }

    fn fetch_state(&mut self, head: Head, r: Digest, mut donors: Vec<PeerId>, spent: bool) {
        self.living_first(&mut donors);
        let header = Header {
            run: self.manifest.id,
            epoch: head.epoch,
            tokens: head.tokens,
            r,
            parameters: self.newest.table.header().parameters,
        };
        let net = self.net.clone();
        let mut meter = self.tell.meter(self.peer.head().epoch, head.epoch);
        self.jobs.spawn(async move {
            let progress = |p| meter.show(p);
            let found = transfer::checkpoint(&net, header, head.state, &donors, progress).await;
            Done::Checkpoint(head, spent, found.map(Box::new))
        });
    }

    /// Writes the newest state; while one is being written, only the newest of the next waits.
    pub(super) fn save(&mut self) {
        let epoch = self.newest.table.header().epoch;
        let newest = self.saved.back().map_or(0, |saved| saved.table.header().epoch);
        if self.saving || epoch == 0 || epoch == newest {
            return;
        }
        self.saving = true;
        let (store, snapshot) = (Arc::clone(&self.store), Arc::clone(&self.newest));
        self.jobs.spawn_blocking(move || {
            let state = &snapshot.state;
            let table = Arc::clone(&snapshot.table);
            Done::Saved(store.save(table, state.theta(), state.momentum()))
        });
    }
}
