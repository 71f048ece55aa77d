//! Carries out the outputs of the state in the order in which it decides them.
//!
//! Each output is one arm of [`Driver::apply`], and each arm ends at once: what takes long becomes
//! a job, whose end comes back as an input. An output that refers to bytes or to the journal relies
//! on the state's bookkeeping, and logs an error where that is wrong.
//!
//! Outputs are not reordered and not batched. No arm gives the state an input: what leads to one
//! goes through a job. So [`Driver::apply`] never runs inside itself.

use std::sync::Arc;
use std::time::Instant;

use intellect_protocol::base::blocks::Blocks;
use intellect_protocol::base::fault::Fault;
use intellect_protocol::base::id::{Digest, PeerId};
use intellect_protocol::base::sign::Verified;
use intellect_protocol::consensus::epoch::{Apply, Ring};
use intellect_protocol::history::checkpoint::Header;
use intellect_protocol::history::evidence::Evidence;
use intellect_protocol::holdings::{Buffer, Input, Name, Output};
use intellect_protocol::message::{Ask, Finished, Head, Message, Request, wire};
use intellect_protocol::peer;

use super::access::is_first;
use super::disk::update_came;
use super::{Done, Driver};
use crate::fetch;
use crate::net::SendError;
use crate::ring::timeouts::Timeouts;
use crate::tell::Seat;
use crate::{net, ring, worker};

impl Driver {
    /// Carries out one output. The state gives out a message only once the records that it rests on
    /// are written, so nothing is held back here.
    pub(super) fn apply(&mut self, output: Output) {
        match output {
            Output::Write(records) => self.write(records),
            Output::Keep(name) => self.keep(name),
            Output::Read(name) => self.read(name),
            Output::FetchUpdate(name, from) => self.fetch_update(name, from),
            Output::UpdateDonors(update, from) => self.donors.name_of_update(&update, from),
            Output::FetchChunk { ring, finished, length, holders } => {
                self.fetch_chunk(ring, finished, length, holders);
            }
            Output::Join { ring, parts } => self.join(&ring, parts),
            Output::Drop(names) => self.drop_updates(names),
            Output::Release(bytes) => drop(self.buffers.bytes.remove(&bytes)),
            Output::Save(_) => self.save(),
            Output::Retire(state) => drop(self.buffers.saved.remove(&state)),
            Output::Serve(ticket, location) => self.serve(ticket, &location),
            Output::Refuse(ticket) => drop(self.requests.take(ticket)),
            Output::Gossip(message) => self.gossip(0, &message),
            Output::Send(to, message) => self.send(to, &message),
            Output::Ring(ring) => self.start_ring(&ring),
            Output::Abandon(roster) => self.rings.abandon(roster),
            Output::Apply(apply) => self.step(&apply),
            Output::Ask(peer, ask) => self.ask(peer, ask),
            Output::Fetch { head, r, donors, spent } => self.fetch_state(head, r, donors, spent),
            Output::Donors(donors) => self.donors.name_of_state(donors),
            Output::Train { epoch, tokens } => self.train(epoch, tokens),
            Output::Fault(peer, fault) => self.on_fault(peer, fault, None),
            Output::Proven(fault, proof) => self.on_fault(proof.author(), fault, Some(&proof)),
            Output::Event(event) => self.on_event(event),
            Output::Left => self.finish.left(),
            Output::Restart => self.finish.restart(),
            Output::Lost { epoch } => self.finish.lost = Some(epoch),
        }
    }

    /// A peer broke a rule: reports and drops it. In a run of invited peers the organiser's line
    /// comes with the report. A proof is long, so one for each peer and fault is written.
    fn on_fault(&mut self, peer: PeerId, fault: Fault, proof: Option<&Evidence>) {
        let why = fault.to_string();
        let mut pieces = proof.and_then(Evidence::pieces);
        if pieces.is_some() && !is_first(&mut self.access.proven, (peer, why.clone())) {
            pieces = None;
        }
        self.tell.proven(peer, &why, pieces);
        if self.access.admission.is_some() {
            self.tell.suggest_revoking(peer);
        }
        self.net.drop_peer(peer, why);
    }

    /// Sends a message over the control stream. Without a stream it is gossiped instead, as long as
    /// the budget for that lasts: two peers behind routers may have no connection at all. Peers that the
    /// run does not name have a budget of their own.
    ///
    /// Gossip drops what it has seen, and such a message may be repeated or go to several peers. So
    /// each one gets a number of its own.
    fn send(&mut self, to: PeerId, message: &Verified<Message>) {
        let envelope = wire::envelope(message);
        let bytes = envelope.len();
        let sent = self.net.send(to, envelope);
        let (is_named, now) = (self.is_named(&to), Instant::now().into());
        if sent == Err(SendError::NoStream) && self.budgets.answer(is_named, bytes, now) {
            self.repeats = self.repeats.wrapping_add(1);
            self.gossip(self.repeats, message);
        }
    }

    /// Whether the run names this peer: it votes, or one of the last receipts has it. Until there are voters, anybody
    /// may become one.
    pub(super) fn is_named(&self, who: &PeerId) -> bool {
        let peer = self.holdings.peer();
        peer.is_named(who) || peer.series().1.is_empty()
    }

    /// Gossips a message. A heartbeat also goes to some peers by other ways: to peers that may not
    /// hear our gossip, and to those that count as silent. `repeat` makes equal messages distinct.
    ///
    /// Nothing is done about an error: a heartbeat comes again, and the state repeats what else
    /// matters.
    fn gossip(&self, repeat: u32, message: &Verified<Message>) {
        let beat = matches!(message.body(), Message::Heartbeat(_));
        if beat {
            self.net.knock(wire::envelope(message));
            // Gossip skips silent peers, and of two peers that are silent to each other one must begin.
            for peer in self.net.silent() {
                let _ = self.net.send(peer, wire::envelope(message));
            }
        }
        let topic = if beat { net::Topic::Beat } else { net::Topic::Ctl };
        if let Err(error) = self.net.gossip(topic, wire::gossip(repeat, message)) {
            tracing::debug!(%error, "not gossiped");
        }
    }

    /// Starts the ring of a roster that has opened. Without a frozen delta the ring is not started,
    /// and its attempt fails at its deadline.
    ///
    /// `sent` is what one member sends in the whole ring, 2·(n − 1)/n of an update, and scales the
    /// patience with a slow line ([`Timeouts::new`]). The round trip is the longest that members of
    /// this ring have reported.
    fn start_ring(&mut self, ring: &Ring) {
        let Some(delta) = self.buffers.delta.clone() else {
            tracing::error!("a ring without a frozen delta");
            return;
        };
        let (position, of) = (ring.index, ring.members.len());
        let to = ring.members[(position + 1) % of].peer;
        self.tell.ring_opened(Seat { roster: ring.roster, position, of, to });
        let members = ring.members.iter().map(|member| &member.peer);
        let round_trip = self.holdings.peer().table().round_trip(members);
        let (cut, codec) = (ring.layout.cut(), self.manifest.run.ring.codec);
        let sent = codec.encoded_bytes(cut.elements()).saturating_mul(2) / of * (of - 1);
        self.rings.start(ring::Job {
            run: self.manifest.id,
            roster: ring.roster,
            cut,
            recomputed: (!ring.keep.is_empty()).then(|| ring.layout.redone().clone()),
            members: ring.members.clone(),
            position: ring.index,
            codec,
            key: self.key.clone(),
            delta,
            timeouts: Timeouts::new(round_trip, sent),
        });
    }

    /// Hands an outer step to the worker. The update is in memory by then: the state has
    /// asked for it before.
    ///
    /// The worker answers with the new state, and only then the state of the protocol has moved.
    /// The bytes of the update stay until [`Output::Release`], since others may ask for them
    /// meanwhile.
    fn step(&mut self, apply: &Apply) {
        let Some(update) = self.buffers.bytes.get(&Buffer::Update(apply.update)).cloned() else {
            tracing::error!("an outer step without its update");
            return;
        };
        // No ring of this epoch starts any more; the worker has its own copy.
        self.buffers.delta = None;
        self.tell.applied(!apply.spent.is_empty());
        let Apply { epoch, r, tokens, ref spent, .. } = *apply;
        let header = self.header(epoch, tokens, r);
        self.command(worker::Command::Apply { header, update, spent: spent.clone() });
    }

    /// The header of the state after `epoch`, before its digest is known.
    /// The number of parameters never changes in a run, so any known state has it.
    fn header(&self, epoch: u64, tokens: u64, r: Digest) -> Header {
        let parameters = self.buffers.newest.table.header().parameters;
        Header { run: self.manifest.id, epoch, tokens, r, parameters }
    }

    /// Asks a peer about its lineage, and gives the answer to the state. A missing answer is an
    /// input too, so the state never waits for it.
    /// The time for an answer is `ASK_TIMEOUT`. A peer that sends none in time is not at fault.
    fn ask(&mut self, peer: PeerId, ask: Ask) {
        let net = self.net.clone();
        self.jobs.spawn(async move {
            let answer = fetch::ask(&net, peer, ask).await.map(Arc::new);
            Done::Input(Box::new(Input::Peer(peer::Input::Answer(peer, answer))))
        });
    }

    /// Fetches an update from the peers that may have it, of which [`Output::UpdateDonors`] may
    /// name more. The bytes count only if they have the digest and decode: a peer must not vote for
    /// an update that nobody can apply.
    ///
    /// Its length follows from the codec and the number of parameters, so a donor cannot make this
    /// node take more memory than one update.
    fn fetch_update(&mut self, name: Name, from: Vec<PeerId>) {
        let from = self.donors.of_update(name.digest, from);
        let (net, decodes) = (self.net.clone(), self.decodes());
        let length =
            self.manifest.run.ring.codec.encoded_bytes(self.buffers.newest.state.theta().len());
        self.jobs.spawn(async move {
            let part = |offset| Request::Update { update: name.digest, offset };
            let donors = || from.borrow().clone();
            let found = fetch::bytes(&net, name.digest, length, donors, part).await;
            update_came(name, found.filter(|bytes| decodes(bytes)))
        });
    }

    /// Fetches a finished chunk of a ring that did not end. Its seal names the digest, so it does
    /// not matter which holder sends it.
    /// The holders are those of one moment. If none of them has it, the state hears
    /// [`Input::ChunkMissed`].
    fn fetch_chunk(&mut self, ring: Digest, f: Finished, length: usize, holders: Vec<PeerId>) {
        let net = self.net.clone();
        let Finished { roster, chunk, seal } = f;
        self.jobs.spawn(async move {
            let part = |offset| Request::Chunk { roster, chunk, offset };
            let donors = || holders.clone();
            let found = fetch::bytes(&net, seal.digest, length, donors, part).await;
            let Some(content) = found else {
                return Done::Input(Box::new(Input::ChunkMissed { ring, finished: f }));
            };
            let input = Box::new(Input::ChunkCame { ring, finished: f });
            let bytes = Buffer::Chunk((roster, chunk));
            Done::Came { bytes, content: Arc::new(content), input }
        });
    }

    /// Fetches a state from several peers at once. More of them may be named later by
    /// [`Output::Donors`], which the job sees through a watch channel.
    ///
    /// `spent` are the blocks in which the state contains pending work of this node; the worker
    /// needs them to move its local weights. A failure says by `kept` whether a part of the state
    /// came and is stored.
    fn fetch_state(&mut self, head: Head, r: Digest, donors: Vec<PeerId>, spent: Blocks) {
        let header = self.header(head.epoch, head.tokens, r);
        let (net, donors) = (self.net.clone(), self.donors.of_state(donors));
        let store = Arc::clone(&self.store);
        let from_epoch = self.holdings.peer().head().epoch;
        let mut meter = self.tell.meter(from_epoch, head.epoch);
        self.jobs.spawn(async move {
            let (meter, donors) = (&mut meter, || donors.borrow().clone());
            match fetch::checkpoint(&net, &store, header, head.state, donors, meter).await {
                Ok((table, state)) => Done::Loaded(table, Box::new(state), spent),
                Err(error) => {
                    let kept = matches!(error, fetch::FetchError::BrokenOff);
                    Done::Input(Box::new(Input::Peer(peer::Input::LoadFailed { head, kept })))
                }
            }
        });
    }

    /// Makes the worker train an epoch, unless this node has reached its last one.
    /// `tokens` are those that the run has committed: the position of the first step in the
    /// schedule.
    pub(super) fn train(&mut self, epoch: u64, tokens: u64) {
        if !self.finish.is_reached() {
            self.command(worker::Command::Train { epoch, tokens });
        }
    }

    /// Gives a command to the worker. A failure is only logged: the channel of reports ends too,
    /// and that ends the loop.
    pub(super) fn command(&mut self, command: worker::Command) {
        if self.worker.try_send(command).is_err() {
            // Its end reaches the loop by the channel of reports.
            tracing::error!("the worker takes no command");
        }
    }
}
