//! One peer of a run: routes inputs to the machines, and their decisions to the outside.
//!
//! The caller owns clock, network, files, worker and bytes. It calls [`State::handle`] with what
//! happened, applies every [`Output`] in order, and calls again with [`Input::Tick`] at
//! [`State::deadline`]. Time never goes back. Nothing here can fail: what a peer did wrong comes
//! out as [`Output::Fault`], what the user may want to see as [`Output::Event`].
//!
//! Three machines decide: `view` which peers are alive, `epoch` what this epoch's update is, `sync`
//! which lineage to follow. None calls another. What one decides for another goes through the queue
//! of [`State::run`].

mod interface;
mod picture;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::access::ledger::Ledger;
use crate::access::notices::Notices;
use crate::base::id::{Digest, PeerId};
use crate::base::sign::Verified;
use crate::base::time::Time;
use crate::consensus::epoch;
use crate::consensus::sync;
use crate::history::lineage::{LocalPeer, Validator};
use crate::history::log::{Recovered, Votes};
use crate::machine::event::Event;
use crate::machine::step::{Ahead, Decision, Step};
use crate::machine::table::PeerTable;
use crate::machine::wait::Wait;
use crate::message::{
    Answer, Ask, Commit, Head, Heartbeat, Link, Loss, Message, Phase, Series, Voter,
};
use crate::view;

pub use crate::consensus::sync::UPDATES_KEPT;
pub use crate::machine::output::Output;
pub use interface::{ASK_TIMEOUT, Config, Input};

/// One peer: its three machines, and what its next heartbeat says.
#[derive(Clone, Debug)]
pub struct State {
    validator: Validator,
    me: LocalPeer,
    view: view::State,
    epoch: epoch::State,
    sync: sync::State,
    /// What is still to be done for one input; empty between two inputs.
    queue: VecDeque<Next>,
    count: u64,
    beat_at: Time,
    last_beat: Option<News>,
    /// The series for whose voters the view keeps room.
    named_for: Option<Series>,
    /// Whether a live peer has a greater head that may be fetched.
    ahead: Ahead,
    /// Bytes per second that we sent in our last ring; 0 before one.
    send_rate: u64,
    /// The loss of the last training, for people only.
    loss: Loss,
    /// The epoch of the newest checkpoint on disk, which others may fetch.
    serves: u64,
    /// When each author was last answered with a `Commit`.
    replied: BTreeMap<PeerId, Time>,
    /// The earliest deadline of all, after the last input.
    due: Option<Time>,
    left: bool,
}

/// Something that is still to be done for the present input.
#[derive(Clone, Debug)]
enum Next {
    Epoch(epoch::Input),
    Sync(sync::Input),
    Out(Output),
}

/// What the epoch machine shows to `sync`.
fn open(epoch: &epoch::State) -> sync::Open<'_> {
    sync::Open {
        series: epoch.series(),
        decided: epoch.decided().is_some(),
        applying: epoch.decided_for_good().is_some(),
        openings: epoch.openings(),
        voters: epoch.voters(),
    }
}

/// The part of a heartbeat that others act on: head, series, the Regroup that we have joined, our
/// goodbye; whether we are behind, and the attempt that we wait for; the weight that is ready; the
/// newest notice that we know and the attestation that our head lies on; our direct connections.
type News = ((Head, Series, Option<Digest>, bool), (bool, u64), u64, (u64, u64), (bool, Vec<u8>));

/// The shortest interval between two heartbeats that bring news.
const BEAT_GAP: Duration = Duration::from_millis(50);

/// The shortest interval between two answers with `Commit` to one peer.
const COMMIT_GAP: Duration = Duration::from_millis(300);

impl State {
    /// A peer at genesis, or at the head that it recovered, bound by the votes of its log (R20).
    /// The caller starts to train the epoch after it at once, and reports which updates are still
    /// stored.
    #[must_use]
    pub fn new(now: Time, config: Config) -> Self {
        let Config { validator, me, epoch, sync, heartbeat, minority_grace, recovered } = config;
        assert!(validator.key.peer() == me.peer, "D2: who we are is whose key we sign with");
        let table = PeerTable::new(heartbeat, minority_grace);
        let Recovered { lineage, marks, votes, forgotten } = recovered;
        let votes = Votes::replay(&validator.run, &votes);
        let sync = sync::State::new(now, validator.clone(), me, sync, lineage, marks);
        let (head, voters, median) = sync.lineage().tip();
        let start = epoch::Start { head, voters, ledger: sync.lineage().ledger().cloned() };
        let epoch =
            epoch::State::new(now, validator.clone(), me, epoch, start, &sync.lineage().notices);
        let step = &mut Step { now, table: &table, out: &mut Vec::new() };
        Self {
            epoch: epoch.bound_by(step, votes, forgotten, median),
            view: view::State::new(me.peer, table),
            validator,
            me,
            sync,
            queue: VecDeque::new(),
            send_rate: 0,
            loss: Loss::NONE,
            serves: 0,
            count: 0,
            beat_at: now,
            named_for: None,
            ahead: Ahead::Nobody,
            last_beat: None,
            replied: BTreeMap::new(),
            due: Some(now),
            left: false,
        }
    }

    /// Takes one input. The caller applies every output, in order, before the next input. Before it
    /// the machines learn which peers are named; after it whether a peer is ahead, and they get a
    /// tick. After [`Output::Left`] or [`Output::Restart`] every input is ignored.
    pub fn handle(&mut self, now: Time, input: Input, out: &mut Vec<Output>) {
        if self.left {
            return;
        }
        self.note_named();
        let heard = match &input {
            Input::Message(m) if matches!(m.body(), Message::Heartbeat(_)) => Some(m.author()),
            _ => None,
        };
        if !self.take(now, input, out) {
            return;
        }
        self.note_ahead(now, out);
        self.run(now, Next::Epoch(heard.map_or(epoch::Input::Tick, epoch::Input::Heard)), out);
        self.run(now, Next::Sync(sync::Input::Tick), out);
        self.beat(now, out);
        let step = &Step { now, table: self.view.table(), out: &mut Vec::new() };
        let (epoch, sync) = (self.epoch.deadline(step), self.sync.deadline(step));
        let all = [Some(self.beat_at), self.view.deadline(), epoch, sync];
        self.due = if self.left { None } else { all.iter().flatten().min().copied() };
    }

    /// Hands an input to the machine that it is for. Returns whether anything may follow from it.
    fn take(&mut self, now: Time, input: Input, out: &mut Vec<Output>) -> bool {
        let next = match input {
            Input::Tick => return self.see(now, view::Input::Tick, out),
            Input::Woke(slept) => {
                self.run(now, Next::Sync(sync::Input::Woke(slept)), out);
                Next::Epoch(epoch::Input::Woke(slept))
            }
            Input::Message(message) => return self.on_message(now, message, out),
            Input::Unlinked(peer) => {
                self.see(now, view::Input::Unlinked(peer), out);
                Next::Epoch(epoch::Input::Linked(peer, false))
            }
            Input::Linked(peer, linked) => Next::Epoch(epoch::Input::Linked(peer, linked)),
            Input::RoundTrip(peer, ms) => {
                self.see(now, view::Input::RoundTrip(peer, ms), out);
                return false;
            }
            Input::Reachable(dialable) => Next::Epoch(epoch::Input::Reachable(dialable)),
            Input::Saved(epoch) => {
                self.serves = epoch;
                return false;
            }
            Input::Trained { tokens, norm, loss } => {
                self.loss = loss;
                self.run(now, Next::Sync(sync::Input::Frozen), out);
                Next::Epoch(epoch::Input::Trained { tokens, norm, loss })
            }
            Input::RingFinished { roster, update, send_rate } => {
                self.send_rate = send_rate;
                Next::Epoch(epoch::Input::RingFinished { roster, update })
            }
            Input::RingStopped { roster, lost, hops } => {
                Next::Epoch(epoch::Input::RingStopped { roster, lost, hops })
            }
            Input::ChunkHeld(finished) => Next::Epoch(epoch::Input::ChunkHeld(finished)),
            Input::ChunkMissing(ring, chunk) => {
                Next::Epoch(epoch::Input::ChunkMissing(ring, chunk))
            }
            Input::ChunksGone(roster) => Next::Epoch(epoch::Input::ChunksGone(roster)),
            Input::UpdateHeld(update, durability) => {
                Next::Epoch(epoch::Input::UpdateHeld(update, durability))
            }
            Input::UpdateMissing(update) if self.sync.needs(&update) => {
                Next::Sync(sync::Input::UpdateMissing(update))
            }
            Input::UpdateMissing(update) => Next::Epoch(epoch::Input::UpdateMissing(update)),
            // Only one outer step is under way at a time: that of an epoch decided here, or of a
            // replay.
            Input::Applied { state } if self.sync.is_replaying() => {
                Next::Sync(sync::Input::Applied(state))
            }
            Input::Applied { state } => Next::Epoch(epoch::Input::Applied(state)),
            Input::Answer(from, answer) => {
                let step = &Step { now, table: self.view.table(), out: &mut Vec::new() };
                let majority = self.epoch.decides(step);
                Next::Sync(sync::Input::Answer { from, answer, majority })
            }
            Input::Partial(state) => Next::Sync(sync::Input::Partial(state)),
            Input::Loaded(head) => Next::Sync(sync::Input::Loaded(head)),
            Input::LoadFailed { head, kept } => Next::Sync(sync::Input::LoadFailed { head, kept }),
            Input::Notice(notice) => Next::Sync(sync::Input::Notice(notice, None)),
            Input::Leave => {
                out.push(Output::Event(Event::Leaving));
                Next::Epoch(epoch::Input::Leave)
            }
        };
        self.run(now, next, out);
        true
    }

    /// Does one thing and all that follows from it, before anything that was decided later. So the
    /// outputs are in the order of the decisions, whichever machine takes them.
    fn run(&mut self, now: Time, first: Next, out: &mut Vec<Output>) {
        assert!(self.queue.is_empty(), "nothing is left of what was done before");
        self.queue.push_back(first);
        while let Some(next) = self.queue.pop_front() {
            let mut decided = Vec::new();
            let step = &mut Step { now, table: self.view.table(), out: &mut decided };
            match next {
                Next::Epoch(input) => self.epoch.handle(step, input),
                Next::Sync(input) => self.sync.handle(step, open(&self.epoch), input),
                Next::Out(output) => {
                    self.left |= matches!(output, Output::Left | Output::Restart);
                    out.push(output);
                }
            }
            for decision in decided.into_iter().rev() {
                self.queue.push_front(match decision {
                    Decision::Out(output) => Next::Out(output),
                    Decision::Notice(notice) => Next::Sync(sync::Input::Notice(notice, None)),
                    Decision::Extend(extension) => Next::Sync(sync::Input::Extend(extension)),
                    Decision::Lead(lead) => Next::Epoch(epoch::Input::Lead(lead)),
                });
            }
        }
    }

    /// When to call with [`Input::Tick`] if nothing happens before.
    pub fn deadline(&self) -> Option<Time> {
        self.due
    }

    /// Our answer to another peer's question about our lineage, and the links that the caller puts
    /// before its own from the log: their epochs, and the digests of their receipts. If the log
    /// cannot be read, the caller must not answer.
    pub fn answer(&self, ask: &Ask) -> (Answer, Vec<(u64, Digest)>) {
        self.sync.lineage().answer(ask, self.epoch.openings())
    }

    /// The head that we last committed.
    pub fn head(&self) -> Head {
        self.epoch.head()
    }

    /// The series that we are in, and the voters that decide it.
    pub fn series(&self) -> (Series, &[Voter]) {
        (self.epoch.series(), self.epoch.voters())
    }

    /// The members of the last receipt, and the voters of the open epoch.
    pub fn members(&self) -> impl Iterator<Item = PeerId> {
        let last = self.sync.lineage().link(self.head().epoch);
        let last = last.into_iter().flat_map(|link| link.receipt.members.iter().map(|m| m.peer));
        last.chain(self.epoch.voters().iter().map(|voter| voter.peer))
    }

    /// Whether one of the last receipts names a peer, or it votes on the open epoch.
    #[must_use]
    pub fn is_named(&self, peer: &PeerId) -> bool {
        self.view.is_named(peer)
    }

    /// The organiser's notices that are known.
    pub fn notices(&self) -> &Notices {
        &self.sync.lineage().notices
    }

    /// The ledger before the open epoch; `None` in open runs.
    pub fn ledger(&self) -> Option<&Arc<Ledger>> {
        self.epoch.ledger()
    }

    /// Phase and attempt of the open epoch, for people.
    pub fn phase(&self) -> (Phase, u64) {
        self.epoch.phase()
    }

    /// The table of peers: when each was heard, and what it said.
    pub fn table(&self) -> &PeerTable {
        self.view.table()
    }

    /// The peers that may serve the checkpoint being fetched, as far as we have heard. `None` while
    /// no checkpoint is fetched.
    pub fn donors(&self, now: Time) -> Option<Vec<PeerId>> {
        self.sync.donors(&Step { now, table: self.view.table(), out: &mut Vec::new() })
    }

    /// Bytes of the links in memory of a lineage that is being verified.
    pub fn judged_bytes(&self) -> usize {
        self.sync.judged_bytes()
    }

    /// What this peer waits for; `None` while it trains or takes the outer step. `met`: whether it
    /// has ever met another peer, as only the caller knows after a restart.
    pub fn wait(&self, now: Time, met: bool) -> Option<Wait> {
        let step = &Step { now, table: self.view.table(), out: &mut Vec::new() };
        // A peer that is behind fetches a greater head already.
        let is_behind = self.phase().0 == Phase::Behind;
        if !is_behind && self.sync.is_passed_over(step, open(&self.epoch)) {
            return Some(Wait::PassedOver);
        }
        self.epoch.wait(step, met)
    }

    /// R15: when the run is expected to begin if no further peer comes, and with how many peers; `None` while too few
    /// are heard, or once it has begun.
    pub fn expected_founding(&self, now: Time) -> Option<(Time, usize)> {
        self.epoch.expected_founding(&Step { now, table: self.view.table(), out: &mut Vec::new() })
    }

    /// The proof of an epoch that was committed lately.
    pub fn link(&self, epoch: u64) -> Option<&Arc<Link>> {
        self.sync.lineage().link(epoch)
    }

    /// Gives the view the peers for which to keep room, after each new head and each Regroup.
    fn note_named(&mut self) {
        let series = self.epoch.series();
        if self.named_for.replace(series) != Some(series) {
            let voters = self.epoch.voters().iter().map(|voter| voter.peer);
            self.view.set_named(self.sync.lineage().named().chain(voters).collect());
        }
    }

    /// Gives `epoch` what `sync` knows of greater heads, whenever that has changed.
    fn note_ahead(&mut self, now: Time, out: &mut Vec<Output>) {
        let step = &Step { now, table: self.view.table(), out: &mut Vec::new() };
        let ahead = self.sync.sees_ahead(step, open(&self.epoch));
        if ahead != self.ahead {
            self.ahead = ahead;
            self.run(now, Next::Epoch(epoch::Input::Ahead(ahead)), out);
        }
    }

    /// Takes a message. Returns whether anything may follow from it: most heartbeats only say that
    /// their author is alive.
    fn on_message(
        &mut self,
        now: Time,
        message: Arc<Verified<Message>>,
        out: &mut Vec<Output>,
    ) -> bool {
        let author = message.author();
        if author == self.me.peer {
            return false;
        }
        match message.body() {
            Message::Heartbeat(beat) => self.see(now, view::Input::Heartbeat(author, beat), out),
            Message::Leaving(leaving) => self.see(now, view::Input::Leaving(author, leaving), out),
            Message::Notice(notice) => {
                let input = sync::Input::Notice(Box::new(notice.clone()), Some(author));
                self.run(now, Next::Sync(input), out);
                true
            }
            _ => {
                if let Message::Ready(ready) = message.body() {
                    self.see(now, view::Input::Ready(author, ready.loss), out);
                }
                self.reply_with_commit(now, &message, out);
                self.run(now, Next::Epoch(epoch::Input::Message(message)), out);
                true
            }
        }
    }

    /// R16, R26: answers with `Commit` a peer that still works on what is decided here. Each author
    /// gets one per [`COMMIT_GAP`].
    fn reply_with_commit(&mut self, now: Time, message: &Verified<Message>, out: &mut Vec<Output>) {
        let asks = matches!(
            message.body(),
            Message::Ready(_)
                | Message::Query(_)
                | Message::Roster(_)
                | Message::Done(_)
                | Message::Regroup(_)
                | Message::Join(_)
        );
        let (true, Some(series)) = (asks, message.body().series()) else { return };
        let open =
            self.epoch.decided_for_good().filter(|link| link.receipt.series.is_beside(&series));
        let past = self.sync.lineage().link(series.epoch).map(Arc::as_ref);
        let link = past.filter(|link| link.receipt.series.is_beside(&series)).or(open);
        let Some(link) = link.cloned() else { return };
        let author = message.author();
        if self.replied.get(&author).is_some_and(|last| now < *last + COMMIT_GAP) {
            return;
        }
        self.replied.insert(author, now);
        let commit = Message::Commit(Commit::Whole(Box::new(link)));
        out.push(Output::Send(author, self.validator.seal(commit)));
    }

    /// Gives the view an input. Returns whether a decision may depend on what it changed.
    fn see(&mut self, now: Time, input: view::Input<'_>, out: &mut Vec<Output>) -> bool {
        let mut seen = Vec::new();
        let news = self.view.handle(now, input, &mut seen);
        out.extend(seen.into_iter().map(Output::Event));
        self.replied.retain(|_, at| now < *at + COMMIT_GAP);
        news
    }

    /// Sends a heartbeat when it is due, and soon when it brings news.
    fn beat(&mut self, now: Time, out: &mut Vec<Output>) {
        if self.left {
            return;
        }
        let (phase, attempt) = self.epoch.phase();
        let (head, series) = (self.epoch.head(), self.epoch.series());
        let ready = self.epoch.ready_weight();
        let lineage = self.sync.lineage();
        let (notice, attested) = (lineage.notices.last().0, lineage.attested());
        let step = &Step { now, table: self.view.table(), out: &mut Vec::new() };
        let (direct, unlinked) = (self.epoch.is_direct(step), self.epoch.unlinked(step));
        let (joined, closed) = (self.epoch.joined(), self.epoch.said_goodbye());
        let (standing, links) = ((head, series, joined, closed), (direct, unlinked.clone()));
        let waits_for = if phase == Phase::Recover { attempt } else { 0 };
        let at = (phase == Phase::Behind, waits_for);
        let news = (standing, at, ready, (notice, attested), links);
        if self.last_beat.as_ref() != Some(&news) {
            let last = self.beat_at - self.view.table().heartbeat;
            self.beat_at = self.beat_at.min((last + BEAT_GAP).max(now));
        }
        if now < self.beat_at {
            return;
        }
        self.last_beat = Some(news);
        self.beat_at = now + self.view.table().heartbeat;
        self.count += 1;
        let table = self.view.table();
        let measured = table.live(now).filter(|(_, seen)| seen.rtt_ms > 0);
        let round_trips = measured.map(|(peer, seen)| (*peer, seen.rtt_ms));
        let heartbeat = Heartbeat {
            count: self.count,
            head,
            series,
            joined,
            closed,
            log: self.me.log,
            incarnation: self.me.incarnation,
            phase,
            attempt,
            ready,
            direct,
            unlinked,
            round_trips: round_trips.take(view::ROUND_TRIPS_MAX).collect(),
            send_rate: self.send_rate,
            serves: self.serves,
            notice,
            attested,
            ticket: self.epoch.ticket().cloned().map(Box::new),
        };
        out.push(Output::Gossip(self.validator.seal(Message::Heartbeat(heartbeat))));
    }
}
