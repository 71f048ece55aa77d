//! Heads, forks, and catching up: which lineage to follow, and what proves it (R14, R16, R23–R28).
//!
//! Heads are ordered by what the organiser has attested (`attested`), then by committed tokens,
//! then by the smaller digest. The greatest head whose links verify is followed. One question is
//! open at a time (`choose_peer`): first for the links after the last common epoch (`catch_up`,
//! `verify`), and if they do not fit on ours, for the chain, to find where the two lineages part
//! (`fork`). Updates or a checkpoint are fetched only once every link to them is verified
//! (`apply`).
//!
//! For each epoch of our lineage the digests stay in memory; its proof stays there only for the
//! last [`LINKS_KEPT`] epochs. Older links are in the log, from which the caller reads them for
//! peers that verify them. A peer that needs an older link itself fetches it from others, and knows
//! it by its digest.
//!
//! Votes are left to `epoch`, the bytes of checkpoints and updates to the caller.

mod choose_peer;
mod catch_up;
mod verify;
mod marks;
mod fork;
mod apply;
mod attested;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::access::ledger::{Ledger, Ledgers};
use crate::access::notices::Notices;
use crate::base::blocks::Blocks;
use crate::base::id::{Digest, PeerId};
use crate::base::time::Time;
use crate::history::lineage::{LocalPeer, Validator};
use crate::history::log::{Mark, Record};
use crate::machine::event::{Committed, Event};
use crate::machine::output::Output;
use crate::machine::step::{Extension, Step};
use crate::machine::table::PeerRecord;
use crate::message::wire;
use crate::message::{
    Absence, Answer, Ask, CHAIN_MAX, ChainLink, Head, LINKS_MAX, Link, Notice, Opening, Receipt,
    Series, Voter,
};

use catch_up::{CatchUp, NextEpoch};
use marks::Marks;

/// What the machine must know when it starts.
#[derive(Clone, Debug)]
pub struct Config {
    /// State digest of genesis, epoch 0. Peers that differ in it cannot follow one another.
    pub genesis: Digest,
    /// The voters of epoch 1, before any Regroup; empty where the run founds itself by a Regroup.
    pub founders: Vec<Voter>,
    /// The most updates that are replayed; a longer way begins with a checkpoint. It is best about
    /// the number whose bytes make up a checkpoint (R28). 0 begins each way with a checkpoint; more
    /// than [`UPDATES_KEPT`] counts as that.
    pub replay_max: usize,
    /// Epochs of ours that a greater head may undo if a third of the voters signed its lineage, or
    /// if only genesis is common (G11). With 0 a person decides about each fork that is older than
    /// a day or begins at genesis; a large number lets old keys undo much.
    pub undo_max: u64,
    /// A greater head may undo what we took within this time, however many epochs that is and
    /// however few voters have signed ([`UNDO_TIME`]).
    pub undo_time: Duration,
    /// The wall clock at the start: seconds since 1970. It dates our head (G11).
    pub unix: u64,
    /// A head that is followed whatever it undoes, since a person has decided so (`--follow`).
    pub follow: Option<Digest>,
    /// The notices that are known at the start. One that the organiser has not signed is ignored.
    pub notices: Vec<Notice>,
}

/// What happened, as `peer` reports it.
#[derive(Clone, Debug)]
pub(crate) enum Input {
    /// Time has passed, or the peer table or the open epoch has changed.
    Tick,
    /// The answer to a question of ours, or its absence.
    Answer {
        /// The peer that was asked, and has answered or not.
        from: PeerId,
        /// `None` if the peer did not answer in time.
        answer: Option<Arc<Answer>>,
        /// Whether we may decide the open epoch, as one of a majority of its voters that is present
        /// (R24).
        majority: bool,
    },
    /// Our delta for the epoch after our head is frozen, and a receipt may include it there.
    Frozen,
    /// The epoch machine committed an epoch.
    Extend(Extension),
    /// A replayed update gave this state.
    Applied(Digest),
    /// No peer delivered an update that is replayed.
    UpdateMissing(Digest),
    /// Part of the checkpoint of this state is stored.
    Partial(Digest),
    /// The checkpoint of this head is loaded.
    Loaded(Head),
    /// No peer delivered the checkpoint of this head.
    LoadFailed(Head),
    /// A notice, and the peer that sent it; `None` if it came with the manifest or in a checked
    /// message.
    Notice(Box<Notice>, Option<PeerId>),
}

/// What the open epoch shows to this machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Open<'a> {
    /// The series that the epoch machine is in.
    pub series: Series,
    /// Whether it is decided already: our head is about to move one epoch on.
    pub decided: bool,
    /// Whether its outer step is under way.
    pub applying: bool,
    /// The Regroups that led to its series.
    pub openings: &'a [Opening],
    /// The voters that decide the open epoch.
    pub voters: &'a [Voter],
}

/// What stays in memory of an epoch of our lineage: 72 bytes, so a year of one-minute epochs is 38
/// MB.
#[derive(Clone, Copy, Debug)]
struct Entry {
    r: Digest,
    /// Digest of the state after it.
    state: Digest,
    /// Tokens committed on the lineage up to this epoch.
    tokens: u64,
}

/// What we remember of our questions to a peer.
#[derive(Clone, Copy, Debug)]
struct Request {
    /// The time until which it is not asked again.
    until: Time,
    /// Whether it did not answer, or did not show the head that it had claimed.
    failed: bool,
    /// How often that happened since its last useful answer.
    failures: u32,
}

/// What is ignored for a time, and until when.
#[derive(Clone, Debug, Default)]
struct Ignored {
    /// Heads that a peer has claimed and that are not followed.
    heads: BTreeMap<(PeerId, Digest), Time>,
    /// States after a receipt that nobody serves (R25).
    unserved: BTreeMap<(Digest, Digest), Time>,
}

/// What was already reported to the user, or sent to others.
#[derive(Clone, Debug, Default)]
struct Reported {
    /// Notices that were sent to others, and when.
    notices: attested::Passed,
    /// The heads of lineages that parted from ours, and the states that diverged.
    states: BTreeSet<Digest>,
    /// The first receipts of lineages that a person has to decide about.
    held: BTreeSet<Digest>,
    /// Peers that withdrew before they were asked, by the epoch of our head when we reported it.
    withdrew: BTreeMap<PeerId, u64>,
}

/// The machine of heads and lineages.
#[derive(Clone, Debug)]
pub(crate) struct State {
    validator: Validator,
    me: LocalPeer,
    config: Config,
    head: Head,
    /// Our lineage: epoch e at index e − 1.
    entries: Vec<Entry>,
    /// The proofs of the last of them.
    links: VecDeque<Arc<Link>>,
    catch_up: Option<CatchUp>,
    requests: BTreeMap<PeerId, Request>,
    /// Answers to the open question and to those that followed from it.
    rounds: u32,
    ignored: Ignored,
    ahead_since: Option<Time>,
    /// Changes with each question, so that chance chooses anew.
    draws: u64,
    /// When our head was at which epoch.
    marks: Marks,
    /// A state of whose checkpoint a part is stored.
    partial: Option<Digest>,
    /// Set until we report that we have caught up: the most updates that the next way may replay.
    catching_up: Option<usize>,
    /// The heads after which we froze the work that is still unspent here. A receipt of another
    /// lineage that follows one of them and names us has spent it (R27).
    frozen_after: Vec<Digest>,
    /// What the user knows of parted lineages.
    reported: Reported,
    notices: Notices,
    /// The voters that a Regroup left out and that may still hold another lineage, by the epoch of
    /// the Regroup (R14).
    forkable: BTreeMap<u64, BTreeSet<PeerId>>,
    /// The ledger after each epoch; `None` in open runs.
    ledgers: Option<Ledgers>,
}

/// [`Config::undo_time`] of every program; guess: within it two friends notice that they train
/// apart.
pub const UNDO_TIME: Duration = Duration::from_secs(marks::RECENT_S);

/// Committed updates that a peer stores for others to replay: a day away at an epoch of 45 minutes.
pub const UPDATES_KEPT: usize = 32;

/// Links of our lineage in memory, back from the head; guess: peers that were away for an hour are
/// answered without the disk.
pub const LINKS_KEPT: usize = 64;

/// Bytes of links in memory of another lineage, whatever its length (G12); one link more may be
/// there.
pub const LINKS_BYTES_MAX: usize = 16 << 20;

/// A head one epoch ahead is given this long to reach us as votes or a `Commit`; guess.
const USUAL_WAIT: Duration = Duration::from_millis(600);

/// A proof that led to no commit for this long is followed by its checkpoint; guess.
const LINK_WAIT: Duration = Duration::from_secs(6);

/// The shortest interval between questions to one peer.
const ASK_INTERVAL: Duration = Duration::from_secs(1);

/// Answers that one question may take: a million links. A lineage that never fits ends here.
const ROUNDS_MAX: u32 = 16_384;

/// The most heads that are remembered as ignored, or as reported.
const REMEMBERED_MAX: usize = 1_024;

impl State {
    /// A machine at the end of `lineage`, which starts at genesis.
    pub(crate) fn new(
        now: Time,
        validator: Validator,
        me: LocalPeer,
        config: Config,
        lineage: Vec<(Head, Link)>,
        marks: Vec<Mark>,
    ) -> Self {
        let (head, clock) = (genesis(&config), (config.unix, now));
        let reached = lineage.last().map_or(head, |(reached, _)| *reached);
        let notices =
            Notices::new(validator.run, validator.organiser, validator.level).with(&config.notices);
        let mut state = Self {
            notices,
            ledgers: validator.ledger().map(Ledgers::new),
            validator,
            me,
            config: Config { replay_max: config.replay_max.min(UPDATES_KEPT), ..config },
            head,
            entries: Vec::new(),
            links: VecDeque::new(),
            catch_up: None,
            requests: BTreeMap::new(),
            rounds: 0,
            ignored: Ignored::default(),
            ahead_since: None,
            draws: 0,
            marks: Marks::new(marks, reached.epoch, clock),
            partial: None,
            catching_up: None,
            frozen_after: Vec::new(),
            reported: Reported::default(),
            forkable: BTreeMap::new(),
        };
        for (head, link) in lineage {
            state.push(Arc::new(link), head);
        }
        state
    }

    /// The head, its voters, and the median weight in its receipt.
    pub(crate) fn tip(&self) -> (Head, Vec<Voter>, Option<u64>) {
        let before = self.next_after(self.head.epoch);
        let NextEpoch { voters, median, .. } = before.unwrap_or_else(|| self.founding());
        (self.head, voters, median)
    }

    /// The ledger after the head; `None` in open runs.
    pub(crate) fn ledger(&self) -> Option<&Arc<Ledger>> {
        self.ledgers.as_ref().map(Ledgers::newest)
    }

    fn founding(&self) -> NextEpoch {
        NextEpoch::founding(&self.config.founders, self.validator.ledger())
    }

    /// Takes one input, given what the open epoch shows.
    pub(crate) fn handle(&mut self, step: &mut Step<'_>, open: Open<'_>, input: Input) {
        match input {
            Input::Tick => self.on_tick(step, open),
            Input::Answer { from, answer, majority } => {
                self.on_answer(step, open, from, answer.as_deref(), majority);
            }
            Input::Frozen => self.note_frozen(),
            Input::Extend(extension) => self.on_committed(step, extension),
            Input::Applied(state) => self.on_applied(step, state),
            Input::UpdateMissing(update) => self.on_update_missing(step, &update),
            Input::Partial(state) => self.partial = Some(state),
            Input::Loaded(head) => self.on_loaded(step, head),
            Input::LoadFailed(head) => self.on_load_failed(step, head),
            Input::Notice(notice, from) => self.on_notice(step, &notice, from),
        }
        self.note_returned(step);
    }

    fn on_committed(&mut self, step: &mut Step<'_>, extension: Extension) {
        let Extension { head, link, by_commit } = extension;
        self.note_spent(&self.spent(&link.receipt));
        step.put_all(self.marks.start().map(Output::Log));
        step.put(Output::Log(Record::Committed { head }));
        let attempt = link.certificate.roster.attempt;
        let (receipt, regrouped) = (link.receipt.clone(), !link.openings.is_empty());
        self.push(Arc::from(link), head);
        self.mark(step);
        self.note_returned(step);
        let forkable_since = self.forkable_since();
        let committed = Committed { head, attempt, receipt, regrouped, forkable_since, by_commit };
        step.put(Output::Event(Event::Committed(Arc::new(committed))));
    }

    /// When to look again without an input.
    pub(crate) fn deadline(&self, step: &Step<'_>) -> Option<Time> {
        let waits = self.ahead_since.map(|since| since + USUAL_WAIT).filter(|at| *at > step.now);
        let ignored = self.ignored.heads.values().filter(|until| **until > step.now).min();
        waits.into_iter().chain(ignored.copied()).min()
    }

    /// Bytes of the links in memory of a lineage that is being verified.
    pub(crate) fn judged_bytes(&self) -> usize {
        let Some(CatchUp::Lineage { candidate, .. }) = &self.catch_up else { return 0 };
        candidate.bytes
    }

    /// The epoch since which another lineage may exist (R14); `None` if none may.
    pub(crate) fn forkable_since(&self) -> Option<u64> {
        self.forkable.keys().next().copied()
    }

    /// The link of an epoch that was committed lately ([`LINKS_KEPT`]).
    pub(crate) fn link(&self, epoch: u64) -> Option<&Arc<Link>> {
        let at = epoch.checked_sub(self.first_link())?;
        self.links.get(usize::try_from(at).ok()?)
    }

    /// The first epoch whose link is in memory; the one after the head if there is none.
    fn first_link(&self) -> u64 {
        (self.entries.len() - self.links.len()) as u64 + 1
    }

    /// State digest after an epoch of our lineage.
    pub(crate) fn state_after(&self, epoch: u64) -> Option<Digest> {
        self.head_at(epoch).map(|head| head.state)
    }

    /// Our answer about our lineage, and the links that the caller still has to put into it from
    /// our log: their epochs, and the digests of their receipts.
    pub(crate) fn answer(&self, ask: &Ask, openings: &[Opening]) -> (Answer, Vec<(u64, Digest)>) {
        let from = |epoch: u64| epoch.max(1)..=self.head.epoch;
        match ask {
            Ask::Lineage { from_epoch } => {
                let logged = from(*from_epoch).take_while(|epoch| *epoch < self.first_link());
                let logged = logged.map_while(|epoch| Some((epoch, self.entry(epoch)?.r)));
                let logged: Vec<_> = logged.take(LINKS_MAX).collect();
                let links = from(*from_epoch).map_while(|epoch| self.link(epoch));
                let links = links.take(LINKS_MAX).map(|link| link.as_ref().clone()).collect();
                let (head, openings) = (self.head, openings.to_vec());
                (Answer::Lineage { links, head, openings }, logged)
            }
            Ask::Chain { from_epoch } => {
                let link = |epoch| {
                    self.entry(epoch).map(|Entry { r, state, .. }| ChainLink { epoch, state, r })
                };
                let links = from(*from_epoch).map_while(link).take(CHAIN_MAX);
                (Answer::Chain(links.collect()), Vec::new())
            }
        }
    }

    fn note_frozen(&mut self) {
        if self.frozen_after.len() >= REMEMBERED_MAX {
            self.frozen_after.remove(0);
        }
        if self.frozen_after.last() != Some(&self.head.state) {
            self.frozen_after.push(self.head.state);
        }
    }

    /// Once receipts have included us in every block, nothing is left unspent.
    fn note_spent(&mut self, spent: &Blocks) {
        if *spent == Blocks::all(self.validator.elements) {
            self.frozen_after.clear();
        }
    }

    /// The blocks in which a receipt has included what is unspent here.
    fn spent(&self, receipt: &Receipt) -> Blocks {
        if !self.frozen_after.contains(&receipt.series.parent) {
            return Blocks::default();
        }
        receipt.spent(&self.me.peer, self.me.incarnation, self.validator.elements)
    }

    fn entry(&self, epoch: u64) -> Option<Entry> {
        self.entries.get(usize::try_from(epoch.checked_sub(1)?).ok()?).copied()
    }

    fn head_at(&self, epoch: u64) -> Option<Head> {
        if epoch == 0 {
            return Some(genesis(&self.config));
        }
        self.entry(epoch).map(|Entry { state, tokens, .. }| Head { epoch, tokens, state })
    }

    /// What the receipt of this epoch says of the next one; `None` if its link is not in memory.
    fn next_after(&self, epoch: u64) -> Option<NextEpoch> {
        if epoch == 0 {
            return Some(self.founding());
        }
        let ledger = || self.ledgers.as_ref().map(|ledgers| ledgers.at(epoch));
        self.link(epoch).map(|link| NextEpoch::of(&link.receipt, ledger()))
    }

    /// Whether a receipt is of our lineage.
    fn has(&self, receipt: &Receipt) -> bool {
        let r = || wire::receipt_digest(&self.validator.run, receipt);
        self.entry(receipt.series.epoch).is_some_and(|entry| entry.r == r())
    }

    fn push(&mut self, link: Arc<Link>, head: Head) {
        assert!(head.epoch == self.head.epoch + 1, "S3: a head is only extended");
        let away = self.away(&link);
        if !away.is_empty() && self.forkable.len() < REMEMBERED_MAX {
            self.forkable.insert(head.epoch, away);
        }
        let r = wire::receipt_digest(&self.validator.run, &link.receipt);
        self.ledgers.iter_mut().for_each(|ledgers| ledgers.push(&link.receipt));
        self.settle_notices();
        self.links.push_back(link);
        if self.links.len() > LINKS_KEPT {
            self.links.pop_front();
        }
        self.take_entry(Entry { r, state: head.state, tokens: head.tokens });
    }

    fn take_entry(&mut self, entry: Entry) {
        let epoch = self.head.epoch.saturating_add(1);
        self.head = Head { epoch, tokens: entry.tokens, state: entry.state };
        self.entries.push(entry);
        self.ahead_since = None;
    }

    /// R14: the voters that a link leaves out and that may hold another lineage.
    fn away(&self, link: &Link) -> BTreeSet<PeerId> {
        // A founding leaves nobody behind.
        let founds = link.receipt.series.epoch == 1 && self.config.founders.is_empty();
        let regroups = link.openings.iter().skip(usize::from(founds));
        let absent = regroups.flat_map(|opening| &opening.regroup.absent);
        let may_live = absent
            .filter(|(_, why)| matches!(why, Absence::Silent | Absence::Elsewhere | Absence::Mute));
        may_live.map(|(voter, _)| voter.peer).collect()
    }

    /// R14: a voter that was left out and is seen on this lineage holds no other one.
    fn note_returned(&mut self, step: &mut Step<'_>) {
        let Some(first_epoch) = self.forkable_since() else { return };
        let mut forkable = std::mem::take(&mut self.forkable);
        for (since, away) in &mut forkable {
            let is_ours = |h: Head| h.epoch >= *since && self.head_at(h.epoch) == Some(h);
            let is_back = |seen: &PeerRecord| seen.has_left() || is_ours(seen.beat.head);
            away.retain(|peer| !step.table.peers.get(peer).is_some_and(is_back));
        }
        forkable.retain(|_, away| !away.is_empty());
        self.forkable = forkable;
        if self.forkable.is_empty() {
            step.put(Output::Event(Event::ForkExcluded { first_epoch }));
        }
    }
}

fn genesis(config: &Config) -> Head {
    Head { epoch: 0, tokens: 0, state: config.genesis }
}

#[cfg(test)]
mod tests;
