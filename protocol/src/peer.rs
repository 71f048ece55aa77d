//! One peer of a run: routes inputs to the machines and what they decide to the outside.
//!
//! The caller owns clock, network, files, worker and bytes. It calls [`State::handle`] with what
//! happened, applies every [`Output`] in order, and calls again with [`Input::Tick`] at
//! [`State::deadline`]. Time never goes back. Nothing here can fail: what a peer did wrong comes
//! out as [`Output::Fault`], what a person may want to see as [`Output::Event`].

mod interface;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::epoch;
use crate::event::{Committed, Event};
use crate::id::{Digest, PeerId};
use crate::lineage::Law;
use crate::log::{Recovered, Votes};
use crate::message::{Answer, Ask, Commit, Head, Heartbeat, Link, Message, Phase, Series, Voter};
use crate::roll::Roll;
use crate::sign::Verified;
use crate::sync;
use crate::time::Time;
use crate::view;
use crate::wire;

pub use interface::{ASK_TIMEOUT, Config, Input, Output, UPDATES_KEPT};

/// One peer.
#[derive(Clone, Debug)]
pub struct State {
    config: Config,
    me: PeerId,
    view: view::State,
    epoch: epoch::State,
    sync: sync::State,
    /// Whether somebody alive has a greater head that may be had.
    ahead: bool,
    direct: bool,
    send_rate: u64,
    count: u64,
    beat_at: Time,
    last_beat: Option<News>,
    /// When each author was last answered with a `Commit`.
    replied: BTreeMap<PeerId, Time>,
    due: Option<Time>,
    left: bool,
}

/// What of a heartbeat others act on: head, series, what we have joined, whether we are behind, and the
/// weight that is ready.
type News = (Head, Series, Option<Digest>, bool, u64);

/// The shortest interval between two heartbeats on news.
const BEAT_GAP: Duration = Duration::from_millis(50);

/// The shortest interval between two answers with `Commit` to one peer.
const COMMIT_GAP: Duration = Duration::from_millis(300);

/// Round-trip times in one heartbeat.
const ROUND_TRIPS_MAX: usize = 16;

impl State {
    /// A peer at genesis, or at the head that it recovered, bound by the votes of its log (R20). The
    /// caller starts to train the epoch after it at once, and says which updates are held still.
    #[must_use]
    pub fn new(now: Time, mut config: Config) -> Self {
        let me = config.key.peer();
        let genesis = Head { epoch: 0, tokens: 0, state: config.genesis };
        let founders = config.founders.clone().unwrap_or_default();
        let law = Law {
            run: config.run,
            key: config.key.clone(),
            peers_min: config.peers_min,
            majority_only: config.founders.is_some(),
            elements: config.elements,
        };
        let epoch = epoch::Config {
            law: law.clone(),
            me,
            log: config.log,
            incarnation: config.incarnation,
            ready_grace: config.ready_grace,
            weight_max: config.weight_max,
            weight_medians: config.weight_medians,
            update_bytes: config.update_bytes,
            without: config.without,
        };
        let incarnation = config.incarnation;
        let replay_max = config.replay_max.min(UPDATES_KEPT);
        let sync = sync::Config { law, me, incarnation, genesis, founders, replay_max };
        let roll = Roll::new(config.heartbeat, config.minority_grace);
        let Recovered { lineage, votes } = config.recovered.take().unwrap_or_default();
        let votes = Votes::replay(&config.run, &votes);
        let sync = sync::State::new(sync, lineage);
        let (head, voters, median) = sync.tip();
        let epoch = epoch::State::new(now, epoch, head, voters);
        Self {
            me,
            epoch: epoch.bound_by(now, &roll, votes, median),
            view: view::State::new(me, roll),
            sync,
            config,
            direct: true,
            send_rate: 0,
            count: 0,
            beat_at: now,
            ahead: false,
            last_beat: None,
            replied: BTreeMap::new(),
            due: Some(now),
            left: false,
        }
    }

    /// Takes one input. The caller applies every output, in order, before the next.
    pub fn handle(&mut self, now: Time, input: Input, out: &mut Vec<Output>) {
        if self.left {
            return;
        }
        let heard = match &input {
            Input::Message(m) if matches!(m.body(), Message::Heartbeat(_)) => Some(m.author()),
            _ => None,
        };
        match input {
            Input::Tick => {
                self.see(now, view::Input::Tick, out);
            }
            Input::Message(message) => {
                if !self.on_message(now, message, out) {
                    return;
                }
            }
            Input::Unlinked(peer) => {
                self.see(now, view::Input::Unlinked(peer), out);
            }
            Input::RoundTrip(peer, ms) => {
                self.see(now, view::Input::RoundTrip(peer, ms), out);
                return;
            }
            Input::Reachable(direct) => self.direct = direct,
            Input::Trained { tokens, norm } => {
                self.follow(now, sync::Input::Frozen, out);
                self.turn(now, epoch::Input::Trained { tokens, norm }, out);
            }
            Input::RingFinished { roster, update, send_rate } => {
                self.send_rate = send_rate;
                self.turn(now, epoch::Input::RingFinished { roster, update }, out);
            }
            Input::RingLost { roster, neighbour } => {
                self.turn(now, epoch::Input::RingLost { roster, neighbour }, out);
            }
            Input::ChunkHeld(finished) => self.turn(now, epoch::Input::ChunkHeld(finished), out),
            Input::ChunkMissing(roster, chunk) => {
                self.turn(now, epoch::Input::ChunkMissing(roster, chunk), out);
            }
            Input::ChunksGone(roster) => self.turn(now, epoch::Input::ChunksGone(roster), out),
            Input::UpdateHeld(update) => self.hold(now, update, epoch::Kept::Flushed, out),
            Input::UpdateUnflushed(update) => self.hold(now, update, epoch::Kept::InMemory, out),
            Input::UpdateMissing(update) => self.on_update_missing(now, update, out),
            Input::Applied { state } => self.on_applied(now, state, out),
            Input::Answer(from, answer) => {
                let (standing, answer) = (self.standing(), answer.as_deref());
                let majority = self.epoch.majority_present(now, self.view.roll());
                let openings = self.epoch.openings().to_vec();
                let openings = openings.as_slice();
                let input = sync::Input::Answer { from, answer, standing, majority, openings };
                self.follow(now, input, out);
            }
            Input::Partial(state) => self.follow(now, sync::Input::Partial(state), out),
            Input::Loaded(head) => self.follow(now, sync::Input::Loaded(head), out),
            Input::LoadFailed(head) => self.follow(now, sync::Input::LoadFailed(head), out),
            Input::Leave => {
                out.push(Output::Event(Event::Leaving));
                self.turn(now, epoch::Input::Leave, out);
            }
        }
        self.note_ahead(now, out);
        self.turn(now, heard.map_or(epoch::Input::Tick, epoch::Input::Heard), out);
        let standing = self.standing();
        self.follow(now, sync::Input::Tick(standing), out);
        self.beat(now, out);
        let epoch = self.epoch.deadline(now, self.view.roll());
        let all = [Some(self.beat_at), self.view.deadline(), epoch, self.sync.deadline(now)];
        self.due = all.into_iter().flatten().min().filter(|_| !self.left);
    }

    /// When to call with [`Input::Tick`] if nothing happens before.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        self.due
    }

    /// What we answer to another peer's question about our lineage.
    #[must_use]
    pub fn answer(&self, ask: &Ask) -> Answer {
        self.sync.answer(ask, self.epoch.openings())
    }

    /// What we last committed.
    #[must_use]
    pub fn head(&self) -> Head {
        self.epoch.head()
    }

    /// The series that we are in, and who decides it.
    #[must_use]
    pub fn series(&self) -> (Series, &[Voter]) {
        (self.epoch.series(), self.epoch.voters())
    }

    /// Where we stand in the open epoch.
    #[must_use]
    pub fn phase(&self) -> (Phase, u32) {
        self.epoch.phase()
    }

    /// Who was heard, and where they stand.
    #[must_use]
    pub fn roll(&self) -> &Roll {
        self.view.roll()
    }

    /// Who may serve the checkpoint that is being fetched, as far as we have heard.
    #[must_use]
    pub fn donors(&self, now: Time) -> Option<Vec<PeerId>> {
        self.sync.donors(now, self.view.roll())
    }

    /// The proof of a committed epoch.
    #[must_use]
    pub fn link(&self, epoch: u64) -> Option<&Arc<Link>> {
        self.sync.link(epoch)
    }

    fn standing(&self) -> sync::Standing {
        sync::Standing {
            series: self.epoch.series(),
            decided: self.epoch.decided().is_some(),
            applying: self.epoch.decided_for_good().is_some(),
        }
    }

    fn note_ahead(&mut self, now: Time, out: &mut Vec<Output>) {
        let ahead = self.sync.sees_ahead(now, self.view.roll());
        if ahead != std::mem::replace(&mut self.ahead, ahead) {
            self.turn(now, epoch::Input::Ahead(ahead), out);
        }
    }

    fn hold(&mut self, now: Time, update: Digest, kept: epoch::Kept, out: &mut Vec<Output>) {
        self.turn(now, epoch::Input::UpdateHeld(update, kept), out);
    }

    fn on_update_missing(&mut self, now: Time, update: Digest, out: &mut Vec<Output>) {
        if self.sync.needs(&update) {
            self.follow(now, sync::Input::UpdateMissing(update), out);
        } else {
            self.turn(now, epoch::Input::UpdateMissing(update), out);
        }
    }

    /// One outer step is under way at a time: of an epoch that was decided here, or of a replay.
    fn on_applied(&mut self, now: Time, state: Digest, out: &mut Vec<Output>) {
        if self.sync.is_replaying() {
            self.follow(now, sync::Input::Applied(state), out);
        } else {
            self.turn(now, epoch::Input::Applied(state), out);
        }
    }

    /// Whether anything may follow from it: most heartbeats only say that their author lives.
    fn on_message(
        &mut self,
        now: Time,
        message: Arc<Verified<Message>>,
        out: &mut Vec<Output>,
    ) -> bool {
        let author = message.author();
        if author == self.me {
            return false;
        }
        match message.body() {
            Message::Heartbeat(beat) => self.see(now, view::Input::Heartbeat(author, beat), out),
            Message::Leaving(leaving) => self.see(now, view::Input::Leaving(author, leaving), out),
            _ => {
                self.reply_with_commit(now, &message, out);
                self.turn(now, epoch::Input::Message(message), out);
                true
            }
        }
    }

    /// R16, R26: whoever still works on what is decided here is told.
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
        let Some(series) = message.body().series().filter(|_| asks) else { return };
        let open =
            self.epoch.decided_for_good().filter(|link| link.receipt.series.is_beside(&series));
        let past = self.sync.link(series.epoch).map(Arc::as_ref);
        let link = past.filter(|link| link.receipt.series.is_beside(&series)).or(open);
        let Some(link) = link.cloned() else { return };
        let author = message.author();
        if self.replied.get(&author).is_some_and(|last| now < *last + COMMIT_GAP) {
            return;
        }
        self.replied.insert(author, now);
        let commit = Message::Commit(Commit::Whole(Box::new(link)));
        out.push(Output::Send(author, self.seal(commit)));
    }

    fn see(&mut self, now: Time, input: view::Input<'_>, out: &mut Vec<Output>) -> bool {
        let mut seen = Vec::new();
        let news = self.view.handle(now, input, &mut seen);
        out.extend(seen.into_iter().map(|change| {
            Output::Event(match change {
                view::Output::Found(who) => Event::PeerFound { who },
                view::Output::Lost(who, cause) => Event::PeerLost { who, cause },
            })
        }));
        self.replied.retain(|_, at| now < *at + COMMIT_GAP);
        news
    }

    fn turn(&mut self, now: Time, input: epoch::Input, out: &mut Vec<Output>) {
        let mut decided = Vec::new();
        self.epoch.handle(now, self.view.roll(), input, &mut decided);
        for output in decided {
            match output {
                epoch::Output::Log(record) => out.push(Output::Log(record)),
                epoch::Output::Gossip(message) => out.push(Output::Gossip(message)),
                epoch::Output::Send(to, message) => out.push(Output::Send(to, message)),
                epoch::Output::Ring(ring) => out.push(Output::Ring(ring)),
                epoch::Output::Abandon(roster) => out.push(Output::Abandon(roster)),
                epoch::Output::FetchUpdate(update, from) => {
                    out.push(Output::FetchUpdate(update, from));
                }
                epoch::Output::Apply(apply) => out.push(Output::Apply(apply)),
                epoch::Output::Committed { head, link, by_commit } => {
                    self.commit(now, head, link, by_commit, out);
                }
                epoch::Output::Train(head) => {
                    out.push(Output::Train { epoch: head.epoch + 1, tokens: head.tokens });
                }
                epoch::Output::Fault(peer, fault) => out.push(Output::Fault(peer, fault)),
                epoch::Output::Event(event) => out.push(Output::Event(event)),
                epoch::Output::Left => {
                    self.left = true;
                    out.push(Output::Left);
                }
            }
        }
    }

    fn commit(
        &mut self,
        now: Time,
        head: Head,
        link: Box<Link>,
        by_commit: bool,
        out: &mut Vec<Output>,
    ) {
        let attempt = link.certificate.roster.attempt;
        let (receipt, regrouped) = (link.receipt.clone(), !link.openings.is_empty());
        self.follow(now, sync::Input::Committed(head, link), out);
        let forkable_since = self.sync.forkable_since();
        let committed = Committed { head, attempt, receipt, regrouped, forkable_since, by_commit };
        out.push(Output::Event(Event::Committed(Arc::new(committed))));
    }

    fn follow(&mut self, now: Time, input: sync::Input<'_>, out: &mut Vec<Output>) {
        let mut found = Vec::new();
        self.sync.handle(now, self.view.roll(), input, &mut found);
        for output in found {
            match output {
                sync::Output::Log(record) => out.push(Output::Log(record)),
                sync::Output::Ask(peer, ask) => out.push(Output::Ask(peer, ask)),
                sync::Output::Behind(behind) => {
                    self.turn(now, epoch::Input::Behind(behind), out);
                }
                sync::Output::Fetch { head, r, donors, spent } => {
                    out.push(Output::Fetch { head, r, donors, spent });
                }
                sync::Output::Replay { updates, donors } => {
                    out.push(Output::Replay { updates, donors });
                }
                sync::Output::Apply { before, receipt, spent } => {
                    let apply = epoch::Apply::of(&self.config.run, &before, &receipt, spent);
                    out.push(Output::Apply(Arc::new(apply)));
                }
                sync::Output::Link(from, link) => {
                    self.turn(now, epoch::Input::Link(from, link), out);
                }
                sync::Output::Openings(from, openings) => {
                    self.turn(now, epoch::Input::Openings(from, openings), out);
                }
                sync::Output::Enter { head, voters, median } => {
                    self.turn(now, epoch::Input::Enter { head, voters, median }, out);
                }
                sync::Output::Fault(peer, fault) => out.push(Output::Fault(peer, fault)),
                sync::Output::Event(event) => out.push(Output::Event(event)),
            }
        }
    }

    /// A heartbeat when it is due, and soon when it brings news.
    fn beat(&mut self, now: Time, out: &mut Vec<Output>) {
        if self.left {
            return;
        }
        let (phase, attempt) = self.epoch.phase();
        let (head, series) = (self.epoch.head(), self.epoch.series());
        let ready = self.epoch.ready_weight();
        let news = (head, series, self.epoch.joined(), phase == Phase::Behind, ready);
        if self.last_beat != Some(news) {
            let last = self.beat_at - self.config.heartbeat;
            self.beat_at = self.beat_at.min((last + BEAT_GAP).max(now));
        }
        if now < self.beat_at {
            return;
        }
        self.last_beat = Some(news);
        self.beat_at = now + self.config.heartbeat;
        self.count += 1;
        let roll = self.view.roll();
        let measured = roll.live(now).filter(|(_, seen)| seen.rtt_ms > 0);
        let round_trips = measured.map(|(peer, seen)| (*peer, seen.rtt_ms));
        let heartbeat = Heartbeat {
            count: self.count,
            head,
            series,
            joined: self.epoch.joined(),
            log: self.config.log,
            incarnation: self.config.incarnation,
            phase,
            attempt,
            ready,
            direct: self.direct,
            round_trips: round_trips.take(ROUND_TRIPS_MAX).collect(),
            send_rate: self.send_rate,
            serves: head.epoch,
        };
        out.push(Output::Gossip(self.seal(Message::Heartbeat(heartbeat))));
    }

    fn seal(&self, message: Message) -> Arc<Verified<Message>> {
        Arc::new(wire::seal(&self.config.key, &self.config.run, message))
    }
}
