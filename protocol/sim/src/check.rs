//! What must never happen: the invariants S1–S10, S13 and S14 of `docs/PROTOCOL.md`, checked
//! against everything that simulated peers send, commit and follow, as they do it.
//!
//! The checks call none of the machines that they judge: they keep their own history of votes
//! (`votes`) and of lineages (`lineage`), and find majorities by themselves. They share values and
//! functions with them: digests, the order of heads, sets of blocks, the codec, and the members
//! that a receipt names. A mistake in one of those is for its own tests to find. A message counts
//! once its author has sent it, whether or not it arrives.
//!
//! Liars ([`Check::distrust`]) need not follow any rule; only what others do
//! with their messages is judged.
//!
//! In addition, no honest peer calls another one faulty, and none has another
//! state after an equal receipt.

mod lineage;
mod links;
mod rights;
mod votes;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::script::organiser;
use super::toy::Frozen;
use intellect_protocol::base::blocks::Blocks;
use intellect_protocol::base::id::{Digest, LogId, PeerId, RunId};
use intellect_protocol::base::sign::Verified;
use intellect_protocol::history::log::Recovered;
use intellect_protocol::holdings::Name;
use intellect_protocol::machine::event::{Committed, Event};
use intellect_protocol::message::wire;
use intellect_protocol::message::{
    Absence, Clause, Head, Heartbeat, Message, Notice, QuorumRule, Regroup, Series, Voter,
};

/// An invariant that was broken, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Its label: `S1` … `S14`, `R5`, `R19`, `R42`, `L1`, `L2`, `L3`, `durable`,
    /// `serve`, `fault`, `diverged` or `wait`; in a scene also `end`.
    pub invariant: &'static str,
    /// What happened, with the peers and values.
    pub what: String,
}

/// What a check finds; the first violation ends the run.
pub(super) type Verdict = Result<(), Violation>;

/// A violation with this label and text, unless `holds`.
pub(super) fn require(
    holds: bool,
    invariant: &'static str,
    what: impl FnOnce() -> String,
) -> Verdict {
    if holds { Ok(()) } else { Err(Violation { invariant, what: what() }) }
}

/// A process whose acts are judged.
///
/// Most rules judge a peer by what it could know. So this holds what the process was shown, as the
/// checks have read it themselves, beside where it stands. It ends with the process; what outlives
/// it is in [`Check`].
#[derive(Clone, Debug)]
pub(super) struct Process {
    /// Its key and the log of votes that binds it.
    pub(super) voter: Voter,
    /// The number of its start; the first process of a host has 1.
    pub(super) incarnation: u64,
    /// When it started, in virtual milliseconds.
    pub(super) started_ms: u64,
    /// What it has heard of each author, strangers included.
    heard: BTreeMap<PeerId, Heard>,
    /// The head that it has reached.
    pub(super) head: Head,
    /// Whether it raised a fork event since its head last changed.
    fork_raised: bool,
    /// A change of lineage that no fork event has reported yet. It must come before the process
    /// says in a heartbeat that it has the new head.
    fork_owed: Option<String>,
    /// The organiser's notices that it has heard, in that order. One may be in it more than once.
    pub(super) notices: Vec<Notice>,
    /// How many of them it knew when it last started to fetch a
    /// checkpoint: later ones may be too late.
    pub(super) set_out: usize,
}

/// What a process has heard of another peer.
#[derive(Clone, Debug, Default)]
struct Heard {
    /// Its newest heartbeat, if one was heard.
    last: Option<Arc<Verified<Message>>>,
    /// When it last named each series, and with which log.
    named: BTreeMap<Series, (u64, LogId)>,
    /// The series in which it was last heard to be Ready.
    ready: Option<Series>,
    /// Its incarnation that said `Leaving`.
    left: Option<u64>,
}

impl Heard {
    /// The newest heartbeat, by incarnation and count.
    fn beat(&self) -> Option<&Heartbeat> {
        let Message::Heartbeat(beat) = self.last.as_ref()?.body() else { return None };
        Some(beat)
    }

    /// Records a heartbeat. One that arrives after a newer one changes nothing but what is Ready.
    fn beats(&mut self, now_ms: u64, message: &Arc<Verified<Message>>, beat: &Heartbeat) {
        let newer = self
            .beat()
            .is_none_or(|last| (beat.incarnation, beat.count) > (last.incarnation, last.count));
        if newer {
            self.last = Some(Arc::clone(message));
            self.named.insert(beat.series, (now_ms, beat.log));
        }
        if beat.ready > 0 {
            self.ready = Some(beat.series);
        }
    }
}

impl Process {
    /// A process that has just started, at the founding state.
    pub(super) fn new(voter: Voter, incarnation: u64, started_ms: u64, genesis: Head) -> Self {
        Self {
            voter,
            incarnation,
            started_ms,
            heard: BTreeMap::new(),
            head: genesis,
            fork_raised: false,
            fork_owed: None,
            notices: Vec::new(),
            set_out: 0,
        }
    }

    /// S3: a change of lineage is always reported.
    fn owes_no_fork(&self) -> Verdict {
        self.fork_owed.as_ref().map_or(Ok(()), |what| require(false, "S3", || what.clone()))
    }

    /// Records the messages that the check of S7 needs.
    pub(super) fn hears(&mut self, now_ms: u64, message: &Arc<Verified<Message>>) {
        let heard = self.heard.entry(message.author()).or_default();
        match message.body() {
            Message::Heartbeat(beat) => heard.beats(now_ms, message, beat),
            Message::Ready(ready) => heard.ready = Some(ready.series),
            Message::Leaving(leaving) => heard.left = heard.left.max(Some(leaving.incarnation)),
            Message::Notice(notice) => self.knows(notice),
            _ => {}
        }
    }

    /// Records a notice, if the organiser has signed it.
    pub(super) fn knows(&mut self, notice: &Notice) {
        if notice.verify(&organiser().peer(), &notice.run).is_ok() {
            self.notices.push(notice.clone());
        }
    }

    /// The head that a peer last announced to it.
    pub(super) fn announced_by(&self, peer: &PeerId) -> Option<Head> {
        self.beat_of(peer).map(|beat| beat.head)
    }

    /// The newest heartbeat of a peer that it has heard.
    fn beat_of(&self, peer: &PeerId) -> Option<&Heartbeat> {
        self.heard.get(peer).and_then(Heard::beat)
    }

    /// Whether it has heard that a peer is Ready in a series.
    pub(super) fn knows_ready(&self, peer: &PeerId, series: &Series) -> bool {
        self.voter.peer == *peer
            || self.heard.get(peer).is_some_and(|heard| heard.ready == Some(*series))
    }

    /// S7: every voter that a Regroup leaves behind is absent for a reason. The reason is looked
    /// for in what this member has heard: the voter was not heard here for the grace, has left, has
    /// another log, or is in another series of the epoch. For a mute voter the proposer's word
    /// counts, and for a revoked one the notice that goes along.
    fn earned(&self, now_ms: u64, grace_ms: u64, voters: &[Voter], regroup: &Regroup) -> Verdict {
        let me = self.voter.peer;
        for voter in voters.iter().filter(|voter| !regroup.members.contains(voter)) {
            let absence = regroup.absent.iter().find(|(who, _)| who == voter).map(|(_, why)| why);
            let heard = self.heard.get(&voter.peer);
            let beat = heard.and_then(Heard::beat);
            let named = heard.and_then(|heard| heard.named.get(&regroup.series));
            let last_ms = named.filter(|(_, log)| *log == voter.log).map_or(0, |(at, _)| *at);
            let silent = now_ms.saturating_sub(last_ms.max(self.started_ms)) >= grace_ms;
            let left = heard.and_then(|heard| heard.left);
            let left = left.is_some_and(|i| beat.is_none_or(|beat| i >= beat.incarnation));
            let other_log = beat.is_some_and(|beat| beat.log != voter.log);
            let elsewhere = beat.is_some_and(|beat| {
                beat.series.is_beside(&regroup.series) && beat.series != regroup.series
            });
            // Each member needs a reason of its own; it may differ from the proposer's.
            let mute = absence == Some(&Absence::Mute);
            // T10: a notice that goes along is reason enough, whichever one the proposer names.
            let names = |n: &Notice| n.clauses().contains(&Clause::RevokePeer(voter.peer));
            let revoked = regroup.trust.iter().flat_map(|trust| &trust.notices).any(names);
            require(silent || left || other_log || elsewhere || mute || revoked, "S7", || {
                format!("{me} joins without {}, who is present ({absence:?}): {beat:?}", voter.peer)
            })?;
        }
        Ok(())
    }
}

/// The history of a simulated run, as far as the invariants need it.
#[derive(Clone, Debug)]
pub(super) struct Check {
    /// The run, over whose id every digest goes.
    run: RunId,
    /// The run's `minority_grace`, in milliseconds (S7).
    grace_ms: u64,
    /// All votes, and the series in which they were given. The world reads counts of its report.
    pub(super) votes: votes::Votes,
    /// All states that somebody has committed. The world asks it for ranks of heads, and for
    /// voters.
    pub(super) lineage: lineage::History,
    /// The head that each peer last announced.
    said: BTreeMap<PeerId, Head>,
    /// The ledger after each state, as the first peer that reached it reported.
    ledgers: BTreeMap<Digest, Digest>,
    /// Which connections peers have said they lack (R42).
    links: links::Neighbours,
    /// Tokens that were lost with lineages that were given up (R27), for the report.
    pub(super) forgone: u64,
    /// Whether nothing that two peers have committed together may be undone (S14).
    pub(super) together: bool,
}

impl Check {
    /// A run that starts at `genesis`; `founders` are its first voters, if any are named.
    pub(super) fn new(
        run: RunId,
        genesis: Head,
        founders: Vec<Voter>,
        quorum: QuorumRule,
        grace_ms: u64,
    ) -> Self {
        let lineage = lineage::History::new(genesis, founders);
        let (votes, said) = (votes::Votes::new(quorum), BTreeMap::new());
        let (ledgers, links) = (BTreeMap::new(), links::Neighbours::default());
        Self { run, grace_ms, votes, lineage, said, ledgers, links, forgone: 0, together: false }
    }

    /// Whether two heads lie on one lineage.
    pub(super) fn one_lineage(&self, a: &Head, b: &Head) -> bool {
        self.lineage.descends(&a.state, &b.state) || self.lineage.descends(&b.state, &a.state)
    }

    /// How many voters a Regroup leaves behind because they do not answer.
    pub(super) fn mute(regroup: &Regroup) -> u64 {
        regroup.absent.iter().filter(|(_, why)| *why == Absence::Mute).count() as u64
    }

    /// S7: a process binds itself by a Join, whether or not it survives to send it.
    pub(super) fn joins(&self, now_ms: u64, who: &Process, regroup: &Regroup) -> Verdict {
        let voters = self.voters(&regroup.series);
        who.earned(now_ms, self.grace_ms, &voters, regroup)
    }

    /// A process freezes a delta for the epoch after `head`.
    pub(super) fn froze(&mut self, who: &Process, head: &Head, frozen: &Frozen) -> Verdict {
        self.lineage.on_frozen(who.voter.peer, who.incarnation, head.state, frozen)
    }

    /// A process sends a message for the first time, or again. To repeat what was said is lawful,
    /// so each check compares with what the same author has said before.
    pub(super) fn sent(&mut self, who: &Process, message: &Message) -> Verdict {
        let voter = who.voter;
        match message {
            Message::Ready(ready) => self.lineage.on_ready(voter.peer, who.incarnation, ready),
            Message::Status(status) => self.votes.on_status(voter, status),
            Message::Roster(roster) => {
                let digest = wire::roster_digest(&self.run, roster);
                self.lineage.on_roster(roster)?;
                self.votes.on_roster(&self.run, digest, roster)
            }
            Message::Accept(accept) => self.votes.on_accept(voter, accept),
            Message::Done(done) => {
                let voters = self.voters(&done.series);
                self.votes.on_done(voter, done, &voters)
            }
            Message::Regroup(regroup) => {
                let digest = wire::regroup_digest(&self.run, regroup);
                self.votes.on_regroup(digest, regroup);
                Ok(())
            }
            Message::Join(join) => {
                require(self.votes.regroup(&join.regroup).is_some(), "S7", || {
                    format!("{} joins a Regroup that nobody proposed", voter.peer)
                })?;
                self.votes.on_join(&self.run, voter, join)
            }
            Message::Heartbeat(beat) => {
                self.said.insert(voter.peer, beat.head);
                if beat.head == who.head { who.owes_no_fork() } else { Ok(()) }
            }
            Message::Query(_)
            | Message::Report(_)
            | Message::Ground(_)
            | Message::Opened(_)
            | Message::Prepared(_)
            | Message::Refuse(_)
            | Message::Stalled(_)
            | Message::Commit(_)
            | Message::Leaving(_)
            | Message::Notice(_) => Ok(()),
        }
    }

    /// This peer lies: no rule is checked for it.
    pub(super) fn distrust(&mut self, peer: PeerId) {
        self.votes.distrust(peer);
        self.lineage.distrust(peer);
    }

    /// A liar sends a message: others may accept it, and count its votes. A vote counts for the
    /// voter that the series knows by this key, whatever log the liar claims.
    pub(super) fn lied(&mut self, author: PeerId, message: &Message) {
        match message {
            Message::Roster(roster) => {
                let digest = wire::roster_digest(&self.run, roster);
                self.votes.note_roster(&self.run, digest, roster);
            }
            Message::Regroup(regroup) => {
                self.votes.on_regroup(wire::regroup_digest(&self.run, regroup), regroup);
            }
            Message::Join(join) => {
                let regroup = self.votes.regroup(&join.regroup);
                let members = regroup.map_or(&[][..], |regroup| &regroup.members);
                if let Some(voter) = members.iter().find(|m| m.peer == author).copied() {
                    self.votes.note_join(&self.run, voter, join);
                }
            }
            Message::Done(done) => {
                let voters = self.voters(&done.series);
                if let Some(voter) = voters.iter().find(|voter| voter.peer == author) {
                    self.votes.note_done(*voter, done, &voters);
                }
            }
            Message::Heartbeat(_)
            | Message::Ready(_)
            | Message::Query(_)
            | Message::Status(_)
            | Message::Report(_)
            | Message::Ground(_)
            | Message::Opened(_)
            | Message::Prepared(_)
            | Message::Accept(_)
            | Message::Refuse(_)
            | Message::Stalled(_)
            | Message::Commit(_)
            | Message::Leaving(_)
            | Message::Notice(_) => {}
        }
    }

    /// A process reports an event. `update` is the update of a commit, if the process holds it.
    pub(super) fn on_event(
        &mut self,
        who: &mut Process,
        event: &Event,
        update: Option<&Arc<Vec<u8>>>,
        settled: Option<&(Blocks, Vec<Range<u64>>)>,
    ) -> Verdict {
        match event {
            Event::Committed(committed) => {
                self.committed(who, committed, update)?;
                self.settled(who, settled)
            }
            Event::Fork { mine, theirs, .. } => {
                who.fork_raised = true;
                who.fork_owed = None;
                require(!self.one_lineage(mine, theirs), "S3", || {
                    format!(
                        "{} tells of a fork, and {theirs:?} is none of {mine:?}",
                        who.voter.peer
                    )
                })
            }
            Event::Replayed { head, .. } => {
                self.lineage.on_replayed(who.voter.peer, &who.head, head)?;
                who.head = *head;
                self.settled(who, settled)
            }
            Event::Diverged { who: other, .. } => require(false, "diverged", || {
                format!("{} says that {other} has another state", who.voter.peer)
            }),
            Event::PeerFound { .. }
            | Event::PeerLost { .. }
            | Event::Roster { .. }
            | Event::Regroup { .. }
            | Event::Aborted { .. }
            | Event::LeftOut { .. }
            | Event::Behind { .. }
            | Event::CaughtUp { .. }
            | Event::ForkExcluded { .. }
            | Event::Admitted { .. }
            | Event::Revoked { .. }
            | Event::Refused { .. }
            | Event::Notice { .. }
            | Event::Stuck { .. }
            | Event::Leaving => Ok(()),
        }
    }

    /// S4: an outer step takes what its receipt spends, and nothing else is lost. `settled` has the
    /// blocks that it took as spent, and the unspent tokens before it.
    fn settled(&self, who: &Process, settled: Option<&(Blocks, Vec<Range<u64>>)>) -> Verdict {
        let (peer, incarnation) = (who.voter.peer, who.incarnation);
        let Some((spent, unspent)) = settled else { return Ok(()) };
        let forgone = self.lineage.on_settled(peer, incarnation, &who.head, spent, unspent)?;
        require(forgone == 0, "S4", || format!("{peer} forgoes {forgone} at an outer step"))
    }

    /// A process goes on from a fetched state. The new head must be greater (S3). If it is on
    /// another lineage, work may be lost with the old one, and a fork event must have come before
    /// or must come before its next heartbeat from there.
    pub(super) fn loaded(
        &mut self,
        who: &mut Process,
        head: Head,
        spent: &Blocks,
        unspent: &[Range<u64>],
    ) -> Verdict {
        let raised = std::mem::take(&mut who.fork_raised);
        let (peer, incarnation) = (who.voter.peer, who.incarnation);
        let notices = &who.notices[..who.set_out];
        self.lineage.on_loaded(peer, notices, &who.head, &head)?;
        let extends = self.lineage.descends(&head.state, &who.head.state);
        if let (true, Some(undone)) =
            (self.together, self.lineage.undone_together(&who.head, &head))
        {
            return require(false, "S14", || {
                format!("{peer} goes from {:?} to {head:?}, and undoes {undone:?}", who.head)
            });
        }
        if unspent.iter().any(|unspent| !unspent.is_empty()) {
            let forgone = self.lineage.on_settled(peer, incarnation, &head, spent, unspent)?;
            require(!extends || forgone == 0, "S4", || {
                format!("{peer} forgoes {forgone} on its own lineage, from {:?} on", who.head)
            })?;
            self.forgone += forgone;
        }
        if !raised && !extends {
            who.fork_owed = Some(format!("{peer} silently leaves {:?} for {head:?}", who.head));
        }
        who.head = head;
        Ok(())
    }

    /// A process starts from what its disk still has. Epochs that it restores count as committed,
    /// and the Joins of an opening as sent, though it may have died before it said so. It is where
    /// it was, or beyond, unless its disk was damaged (S3). It may also be on the greater lineage
    /// that it followed, and have died before it said that.
    pub(super) fn restored(
        &mut self,
        who: &Process,
        recovered: &Recovered,
        updates: &[(Name, Arc<Vec<u8>>)],
        damaged: bool,
    ) -> Verdict {
        self.votes.on_restored(&self.run, who.voter, &recovered.votes)?;
        for (head, link) in &recovered.lineage {
            let receipt = link.receipt.clone();
            if !self.lineage.knows(&head.state) {
                let held = updates.iter().find(|(name, _)| name.digest == receipt.update);
                let r = wire::receipt_digest(&self.run, &receipt);
                let regrouped = !link.openings.is_empty();
                let update = held.map(|(_, bytes)| bytes);
                self.lineage.on_committed(r, *head, &receipt, regrouped, update)?;
            }
        }
        let Some(before) = self.said.get(&who.voter.peer) else { return Ok(()) };
        let follows = who.head.tokens > before.tokens;
        let stands = damaged || follows || self.lineage.descends(&who.head.state, &before.state);
        require(stands, "S3", || {
            format!("{} starts at {:?}, and had said {before:?}", who.voter.peer, who.head)
        })
    }

    /// S8: peers with equal states have equal ledgers.
    pub(super) fn has_ledger(&mut self, who: PeerId, state: Digest, ledger: Digest) -> Verdict {
        let first = *self.ledgers.entry(state).or_insert(ledger);
        require(first == ledger, "S8", || {
            format!("{who} has ledger {ledger} after state {state}, others have {first}")
        })
    }

    /// S1, S3 and S13 of a commit: it extends the head, a majority voted, and its roster allows it.
    fn committed(
        &mut self,
        who: &mut Process,
        committed: &Committed,
        update: Option<&Arc<Vec<u8>>>,
    ) -> Verdict {
        let (parent, head) = (committed.receipt.series.parent, committed.head);
        require(parent == who.head.state, "S3", || {
            format!("{} extends {parent}, but its head is {}", who.voter.peer, who.head.state)
        })?;
        let r = wire::receipt_digest(&self.run, &committed.receipt);
        require(self.votes.is_decided(&committed.receipt.series, &r), "S1", || {
            format!("{} commits {r}, for which no majority voted", who.voter.peer)
        })?;
        require(self.votes.is_allowed(&committed.receipt.series, &r), "S13", || {
            format!("{} commits {r}, which the Statuses of its roster do not allow", who.voter.peer)
        })?;
        let regrouped = committed.regrouped;
        self.lineage.on_committed(r, head, &committed.receipt, regrouped, update)?;
        who.head = head;
        who.fork_raised = false;
        Ok(())
    }

    /// The voters of a series, by its Regroup or by the receipt before it. None if nobody has shown
    /// either.
    fn voters(&self, series: &Series) -> Vec<Voter> {
        match self.votes.regroup_of(series) {
            Some(regroup) => regroup.members.clone(),
            None => self.lineage.voters(&series.parent),
        }
    }
}
