//! What the state decided, done.

use std::sync::Arc;
use std::time::{Duration, Instant};

use intellect_protocol::blocks::Blocks;
use intellect_protocol::checkpoint::Header;
use intellect_protocol::id::{Digest, PeerId};
use intellect_protocol::log::Record;
use intellect_protocol::message::Head;
use intellect_protocol::peer::Output;
use intellect_protocol::wire;

use super::outbox::{Item, Written};
use super::{Done, Driver};
use crate::fetch::{self, Notice};
use crate::net::SendError;

impl Driver {
    /// Does what the state decided, once the disk has what it rests on.
    pub(super) fn apply(&mut self, output: Output) {
        match output {
            Output::Log(record) => self.log(record),
            output => self.decide(Item::Output(Box::new(output))),
        }
    }

    /// A vote pins its update; a decision whose update is not on the disk binds nobody until it is.
    fn log(&mut self, record: Record) {
        match &record {
            Record::Voted { receipt, .. } => self.updates.vote(&receipt.update),
            Record::Decided { link } => {
                let (epoch, update) = (link.receipt.series.epoch, link.receipt.update);
                if epoch > self.whole() && self.updates.is_unflushed(&update) {
                    self.outbox.owe(epoch, update);
                }
            }
            Record::Promised { .. }
            | Record::Accepted { .. }
            | Record::Joined { .. }
            | Record::Opened { .. }
            | Record::Committed { .. }
            | Record::Rewound { .. } => {}
        }
        self.outbox.log(record);
    }

    pub(super) fn decide(&mut self, item: Item) {
        if let Some(item) = self.outbox.admit(item, Instant::now()) {
            self.perform(item);
        }
    }

    /// Writes what the state wants logged, off the loop.
    pub(super) fn write_log(&mut self) {
        if let Some(batch) = self.outbox.due(Instant::now()) {
            self.jobs.spawn_blocking(|| Done::Written(Box::new(batch.write())));
        }
    }

    pub(super) fn on_written(&mut self, written: Written) {
        let (items, news) = self.outbox.written(written, Instant::now());
        match news {
            Some(Err(error)) => self.tell.journal(&error),
            Some(Ok(())) => self.tell.disk_again(),
            None => {}
        }
        for item in items {
            self.perform(item);
        }
        self.write_log();
    }

    fn perform(&mut self, item: Item) {
        match item {
            Item::Output(output) => self.act(*output),
            Item::Answer(ask, reply) => self.answer(&ask, reply),
        }
    }

    fn act(&mut self, output: Output) {
        match output {
            Output::Log(record) => self.log(record),
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
            Output::Abandon(roster) => self.abandon_ring(roster),
            Output::FetchUpdate(update, from) => self.fetch_update(update, from),
            Output::Apply(apply) => self.apply_update(apply),
            Output::Ask(peer, ask) => {
                let net = self.net.clone();
                self.jobs
                    .spawn(async move { Done::Answer(peer, fetch::ask(&net, peer, ask).await) });
            }
            Output::Fetch { head, r, donors, spent } => self.fetch_state(head, r, donors, spent),
            Output::Replay { updates, donors } => self.replay(&updates, donors),
            Output::Train { epoch, tokens } => {
                self.steps.end_replay();
                self.repairs.clear();
                self.drop_obsolete();
                self.worker_train(epoch, tokens);
            }
            Output::Fault(peer, fault) => {
                self.tell.fault(peer, &fault.to_string());
                self.net.drop_peer(peer, fault.to_string());
            }
            Output::Event(event) => self.on_event(event),
            Output::Left => self.finish.left(),
        }
    }

    pub(super) fn round_trip(&self) -> Duration {
        self.peer.roll().round_trip(self.now())
    }

    /// Who is heard comes first: a dead donor costs its patience.
    pub(super) fn living_first(&self, donors: &mut [PeerId]) {
        let (roll, now) = (self.peer.roll(), self.now());
        donors.sort_by_key(|donor| !roll.alive(donor, now));
    }

    fn fetch_state(&mut self, head: Head, r: Digest, mut donors: Vec<PeerId>, spent: Blocks) {
        self.steps.end_replay();
        self.living_first(&mut donors);
        let header = Header {
            run: self.manifest.id,
            epoch: head.epoch,
            tokens: head.tokens,
            r,
            parameters: self.newest.table.header().parameters,
        };
        self.donors.send_replace(donors);
        let (net, donors) = (self.net.clone(), self.donors.subscribe());
        let store = Arc::clone(&self.store);
        let (tell, mut meter) =
            (self.tell.clone(), self.tell.meter(self.peer.head().epoch, head.epoch));
        self.jobs.spawn(async move {
            let notice = |notice| match notice {
                Notice::Progress(progress) => meter.show(progress),
                Notice::Fault(peer, why) => net.fault(peer, why),
                Notice::Disk(error) => tell.disk(&error),
            };
            let donors = || donors.borrow().clone();
            let found = fetch::checkpoint(&net, &store, header, head.state, donors, notice).await;
            Done::Checkpoint(head, spent, found.ok().map(Box::new))
        });
    }

    /// Tells the transfer of a state of donors that were heard since it began.
    pub(super) fn note_donors(&self) {
        let Some(mut donors) = self.peer.donors(self.now()) else { return };
        self.living_first(&mut donors);
        self.donors.send_if_modified(|known| {
            let news = *known != donors;
            *known = donors;
            news
        });
    }

    /// Writes the newest state; while one is being written, only the newest of the next waits.
    pub(super) fn save(&mut self) {
        let table = &self.newest.table;
        let newest = self.saved.back().map(|saved| saved.state);
        if self.saving || table.header().epoch == 0 || newest == Some(table.state()) {
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
