//! Heads, forks, and catching up: which lineage to follow, and what proves it (R14, R16, R23–R28).
//!
//! Heads are ordered by what the organiser has attested (`attested`), then by committed tokens, then by
//! the smaller digest; the greatest whose links verify is followed. One question is open at a time (`whom`): first the links after the last common
//! epoch (`pursuit`, `judged`), and if they do not fit on ours, the chain, to find where the two part
//! (`fork`). Updates or a checkpoint are asked for only once every link to them is verified (`arrive`).
//!
//! Of every epoch of our lineage the digests stay in memory; what proves it stays there for the last
//! [`LINKS_KEPT`] epochs only. The older links are in the log, and the caller reads them for others to
//! verify. Whoever needs an older one itself is served it and knows it by its digest.
//!
//! What this does not do: votes (`epoch`), bytes of checkpoints and updates.

mod whom;
mod pursuit;
mod judged;
mod marks;
mod fork;
mod arrive;
mod attested;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::access::ledger::{Ledger, Ledgers};
use crate::access::notices::Notices;
use crate::base::blocks::Blocks;
use crate::base::id::{Digest, PeerId};
use crate::base::time::Time;
use crate::history::lineage::{Law, Me};
use crate::history::log::{Mark, Record};
use crate::machine::event::{Committed, Event};
use crate::machine::output::Output;
use crate::machine::step::{Extension, Step};
use crate::machine::table::Seen;
use crate::message::wire;
use crate::message::{
    Absence, Answer, Ask, Attestation, CHAIN_MAX, ChainLink, Head, Heartbeat, LINKS_MAX, Link,
    Message, Notice, Opening, Phase, Rank, Receipt, Series, Voter,
};

use marks::Marks;
use pursuit::{Before, Pursuit};

/// What the machine must know.
#[derive(Clone, Debug)]
pub struct Config {
    /// State digest of genesis, epoch 0.
    pub genesis: Digest,
    /// The voters of epoch 1, before any Regroup.
    pub founders: Vec<Voter>,
    /// The most updates that are replayed: a longer way begins with a checkpoint. At most
    /// [`UPDATES_KEPT`].
    pub replay_max: usize,
    /// Epochs that a greater head may undo of ours, however few have signed what came instead (G11).
    pub undo_max: u64,
    /// A greater head may undo of ours what we took within this time, however many epochs and however few
    /// have signed ([`UNDO_TIME`]).
    pub undo_time: Duration,
    /// The wall clock at the start: seconds since 1970.
    pub unix: u64,
    /// A head that is followed whatever it undoes, since a person says so.
    pub follow: Option<Digest>,
    /// The notices that are known at the start. One that the organiser has not signed counts for nothing.
    pub notices: Vec<Notice>,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// Time has passed, or the roll or the open epoch has changed.
    Tick,
    /// The answer to a question of ours.
    Answer {
        /// Who was asked.
        from: PeerId,
        /// `None` when there was none.
        answer: Option<Arc<Answer>>,
        /// Whether we may decide the open epoch: as one of a majority of its voters that is present (R24).
        majority: bool,
    },
    /// Our delta for the epoch after our head is frozen, and may be spent there.
    Frozen,
    /// The epoch machine committed.
    Extend(Extension),
    /// A replayed update gave this state.
    Applied(Digest),
    /// Nobody delivered an update that is replayed.
    UpdateMissing(Digest),
    /// The checkpoint of this state has come in part.
    Partial(Digest),
    /// A checkpoint is loaded.
    Loaded(Head),
    /// Nobody delivered the checkpoint.
    LoadFailed(Head),
    /// A notice, and who brought it; `None`: it came with the manifest, or proves itself.
    Notice(Box<Notice>, Option<PeerId>),
}

/// Where the open epoch stands.
#[derive(Clone, Copy, Debug)]
pub struct Open<'a> {
    /// Its series.
    pub series: Series,
    /// Whether it is decided already: our head is about to go one epoch on.
    pub decided: bool,
    /// Whether its outer step is under way.
    pub applying: bool,
    /// Its Regroups.
    pub openings: &'a [Opening],
    /// Who decides it.
    pub voters: &'a [Voter],
}

/// What stays in memory of an epoch of our lineage: 72 bytes, so a year of epochs of a minute is 38 MB.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Digest of the receipt.
    r: Digest,
    /// Digest of the state after it.
    state: Digest,
    /// Tokens committed on the lineage by then.
    tokens: u64,
}

/// A question to a peer.
#[derive(Clone, Copy, Debug)]
struct Asked {
    /// The time until which it is not asked again.
    until: Time,
    /// Whether it did not answer, or showed no such head as it had told of.
    in_vain: bool,
    /// How often that was so since it last was of use.
    failures: u32,
}

/// What is left alone, until when.
#[derive(Clone, Debug, Default)]
struct Aside {
    /// What a peer has told of a head and that is not followed.
    heads: BTreeMap<(PeerId, Digest), Time>,
    /// States after a receipt that nobody serves (R25).
    unserved: BTreeMap<(Digest, Digest), Time>,
}

/// What people were told.
#[derive(Clone, Debug, Default)]
struct Told {
    /// Of notices, and when.
    notices: attested::Passed,
    /// The heads of parted lineages, and the states that diverged.
    states: BTreeSet<Digest>,
    /// The first receipts of lineages that a person has to decide about.
    held: BTreeSet<Digest>,
    /// Who withdrew before it was asked, by the epoch of our head when we told of it.
    withdrew: BTreeMap<PeerId, u64>,
}

/// The machine.
#[derive(Clone, Debug)]
pub struct State {
    law: Law,
    me: Me,
    config: Config,
    head: Head,
    /// Epoch e at index e − 1.
    entries: Vec<Entry>,
    /// What proves the last of them.
    links: VecDeque<Arc<Link>>,
    pursuit: Option<Pursuit>,
    asked: BTreeMap<PeerId, Asked>,
    /// Answers to the open question and to those that followed from it.
    rounds: u32,
    aside: Aside,
    ahead_since: Option<Time>,
    /// Changes with each question.
    draws: u64,
    /// When our head was where.
    marks: Marks,
    /// A state whose checkpoint has come in part.
    partial: Option<Digest>,
    /// Until we tell that we are there: the most updates that the next way may have to be replayed.
    catching_up: Option<usize>,
    /// The heads after which we froze what is still unspent here: a receipt of another lineage that
    /// follows one of them and names us has spent it.
    frozen_after: Vec<Digest>,
    /// What people were told of parted lineages.
    told: Told,
    notices: Notices,
    /// The voters that a Regroup left out and that may still hold another lineage, by the epoch of
    /// the Regroup (R14).
    forkable: BTreeMap<u64, BTreeSet<PeerId>>,
    /// Who is in, epoch by epoch; `None` in open runs.
    ledgers: Option<Ledgers>,
}

/// [`Config::undo_time`] of every program; guess: two friends notice within it that they train apart.
pub const UNDO_TIME: Duration = Duration::from_secs(marks::RECENT_S);

/// Committed updates that a peer keeps for others to replay: a day away at an epoch of 45 minutes.
pub const UPDATES_KEPT: usize = 32;

/// Links of our lineage in memory, back from the head; guess: those who were away for an hour are
/// answered without the disk.
pub const LINKS_KEPT: usize = 64;

/// Bytes of links in memory of another lineage, whatever its length (G12); one link more may be there.
pub const LINKS_BYTES_MAX: usize = 16 << 20;

/// A head one epoch ahead is given this long to reach us as votes or a `Commit`; guess.
const USUAL_WAIT: Duration = Duration::from_millis(600);

/// A proof that led to no commit for so long is followed by its checkpoint; guess.
const LINK_WAIT: Duration = Duration::from_secs(6);

/// The shortest interval between questions to one peer.
const ASK_INTERVAL: Duration = Duration::from_secs(1);

/// Answers that a question may take: a million links. A lineage that never fits ends here.
const ROUNDS_MAX: u32 = 16_384;

/// The most heads that are remembered as set aside, or as told of.
const REMEMBERED_MAX: usize = 1_024;

impl State {
    /// A machine at the end of `lineage`, which starts at genesis.
    #[must_use]
    pub fn new(
        now: Time,
        law: Law,
        me: Me,
        config: Config,
        (lineage, marks): (Vec<(Head, Link)>, Vec<Mark>),
    ) -> Self {
        let (head, clock) = (genesis(&config), (config.unix, now));
        let reached = lineage.last().map_or(head, |(reached, _)| *reached);
        let notices = Notices::new(law.run, law.organiser, law.level).with(&config.notices);
        let mut state = Self {
            notices,
            ledgers: law.ledger().map(Ledgers::new),
            law,
            me,
            config: Config { replay_max: config.replay_max.min(UPDATES_KEPT), ..config },
            head,
            entries: Vec::new(),
            links: VecDeque::new(),
            pursuit: None,
            asked: BTreeMap::new(),
            rounds: 0,
            aside: Aside::default(),
            ahead_since: None,
            draws: 0,
            marks: Marks::new(marks, reached.epoch, clock),
            partial: None,
            catching_up: None,
            frozen_after: Vec::new(),
            told: Told::default(),
            forkable: BTreeMap::new(),
        };
        lineage.into_iter().for_each(|(head, link)| state.push(Arc::new(link), head));
        state
    }

    /// The head, its voters, and the median weight in its receipt.
    #[must_use]
    pub fn tip(&self) -> (Head, Vec<Voter>, Option<u64>) {
        let before = self.before(self.head.epoch);
        let Before { voters, median, .. } = before.unwrap_or_else(|| self.founding());
        (self.head, voters, median)
    }

    /// Who is in after the head; `None` in open runs.
    #[must_use]
    pub fn ledger(&self) -> Option<&Arc<Ledger>> {
        self.ledgers.as_ref().map(Ledgers::newest)
    }

    fn founding(&self) -> Before {
        Before::founding(&self.config.founders, self.law.ledger())
    }

    /// Takes one input, beside the open epoch.
    pub fn handle(&mut self, step: &mut Step<'_>, open: Open<'_>, input: Input) {
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
    #[must_use]
    pub fn deadline(&self, step: &Step<'_>) -> Option<Time> {
        let waits = self.ahead_since.map(|since| since + USUAL_WAIT).filter(|at| *at > step.now);
        let aside = self.aside.heads.values().filter(|until| **until > step.now).min();
        waits.into_iter().chain(aside.copied()).min()
    }

    /// Bytes of the links in memory of a lineage that is being judged.
    #[must_use]
    pub fn judged_bytes(&self) -> usize {
        match &self.pursuit {
            Some(Pursuit::Lineage { judged, .. }) => judged.bytes,
            _ => 0,
        }
    }

    /// Since when another lineage may exist (R14).
    #[must_use]
    pub fn forkable_since(&self) -> Option<u64> {
        self.forkable.keys().next().copied()
    }

    /// The link of an epoch that was committed lately ([`LINKS_KEPT`]).
    #[must_use]
    pub fn link(&self, epoch: u64) -> Option<&Arc<Link>> {
        let at = epoch.checked_sub(self.first_link())?;
        self.links.get(usize::try_from(at).ok()?)
    }

    /// The first epoch whose link is in memory: the one after the head if there is none.
    fn first_link(&self) -> u64 {
        (self.entries.len() - self.links.len()) as u64 + 1
    }

    /// State digest after an epoch of our lineage.
    #[must_use]
    pub fn state_after(&self, epoch: u64) -> Option<Digest> {
        self.head_at(epoch).map(|head| head.state)
    }

    /// What we tell another peer about our lineage, and which links are still to be put into it: those
    /// that our log has, of these epochs, with receipts of these digests.
    #[must_use]
    pub fn answer(&self, ask: &Ask, openings: &[Opening]) -> (Answer, Vec<(u64, Digest)>) {
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

    /// After receipts that named us in every block nothing is left to spend.
    fn note_spent(&mut self, spent: &Blocks) {
        if *spent == Blocks::all(self.law.elements) {
            self.frozen_after.clear();
        }
    }

    /// The blocks in which a receipt has spent what is unspent here.
    fn spent(&self, receipt: &Receipt) -> Blocks {
        if !self.frozen_after.contains(&receipt.series.parent) {
            return Blocks::default();
        }
        receipt.spent(&self.me.peer, self.me.incarnation, self.law.elements)
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

    /// What the receipt of this epoch says of the next one; `None` where its link is not in memory.
    fn before(&self, epoch: u64) -> Option<Before> {
        if epoch == 0 {
            return Some(self.founding());
        }
        let ledger = || self.ledgers.as_ref().map(|ledgers| ledgers.at(epoch));
        self.link(epoch).map(|link| Before::of(&link.receipt, ledger()))
    }

    /// Whether a receipt is of our lineage.
    fn has(&self, receipt: &Receipt) -> bool {
        let r = || wire::receipt_digest(&self.law.run, receipt);
        self.entry(receipt.series.epoch).is_some_and(|entry| entry.r == r())
    }

    fn push(&mut self, link: Arc<Link>, head: Head) {
        assert!(head.epoch == self.head.epoch + 1, "S3: a head is only extended");
        let away = self.away(&link);
        if !away.is_empty() && self.forkable.len() < REMEMBERED_MAX {
            self.forkable.insert(head.epoch, away);
        }
        let r = wire::receipt_digest(&self.law.run, &link.receipt);
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
            let is_ours =
                |head: Head| head.epoch >= *since && self.head_at(head.epoch) == Some(head);
            let is_back = |seen: &Seen| seen.has_left() || is_ours(seen.beat.head);
            away.retain(|peer| !step.roll.peers.get(peer).is_some_and(is_back));
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
