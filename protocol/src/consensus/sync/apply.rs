//! The path to a verified head: by its updates, or by its checkpoint (R21, R25, R27, R28).
//!
//! A short extension of our own head is *replayed*: each update is applied like that of a commit,
//! and the next one only if its receipt's parent is the state that came out. So what is reached in
//! this way is computed, not believed. A longer path, or another lineage, begins with a checkpoint
//! of the newest head. By the time it has arrived the run has gone further, and the rest is
//! replayed. An update is an eighth of a checkpoint, so a peer that can follow the run at all
//! catches up.

use std::sync::Arc;

use crate::base::id::{Digest, PeerId};
use crate::base::rule::Rule;
use crate::base::time::Time;
use crate::history::log::Record;
use crate::machine::event::Event;
use crate::machine::output::{Apply, Output};
use crate::machine::step::{Lead, Step};
use crate::message::{Ask, Head, Link};

use super::catch_up::CatchUp;
use super::path::Path;
use super::{State, UPDATES_KEPT};

impl State {
    /// Begins the path: by updates if it extends our head and is short, else by a checkpoint.
    pub(super) fn begin(&mut self, step: &mut Step<'_>, path: Path) {
        let most = self.catching_up.unwrap_or(self.replay_max);
        step.lead(Lead::Behind(true));
        step.put(Output::Event(Event::Behind {
            from_epoch: self.ours.head.epoch,
            to_epoch: path.claim.head.epoch,
            donors: path.serving(step, &self.ours),
        }));
        let short = path.links.len() <= most && path.without_link() == 0;
        if path.base == self.ours.head.epoch && short {
            // The next path must be shorter; if not, the run is faster than its updates arrive here.
            let fewer = path.links.len().saturating_sub(1);
            self.catching_up = Some(fewer.max(self.replay_max));
            step.put(Output::Replay(path.updates(step, &self.ours)));
            self.apply_next(step, path);
        } else {
            // After another checkpoint the run would be as far away again.
            self.catching_up = Some(UPDATES_KEPT);
            self.load(step, path);
        }
    }

    /// R28: the next update is applied only to the state that its receipt names.
    fn apply_next(&mut self, step: &mut Step<'_>, path: Path) {
        let next = path.links.front().map(|link| &link.receipt);
        let theirs = next.map_or(path.claim.head.state, |receipt| receipt.series.parent);
        let (head, validator) = (self.ours.head, &self.ours.validator);
        if theirs != head.state {
            // The receipts up to here are ours too, so one of the machines has computed wrongly
            // (R26). Nobody has signed the state after the last of them.
            if next.is_some() || !validator.keeps(Rule::G12) {
                self.forks.note_diverged(step, path.claim.peer, [head.state, theirs]);
            }
            self.forks.remember(path.claim.head.state);
            self.give_up(&path, Time(u64::MAX));
            if path.base < head.epoch {
                return self.enter_head(step);
            }
            return step.lead(Lead::Behind(self.ours.awaits_attested()));
        }
        let Some(receipt) = next else { return self.enter_head(step) };
        let spent = self.ours.spent_by(receipt);
        let apply = Apply::of(&validator.run, &head, receipt, spent);
        step.put(Output::Apply(Arc::new(apply)));
        self.catch_up = Some(CatchUp::Replay(path));
    }

    /// A replayed update gave this state. Each step is logged and counts at once, so a replay that
    /// breaks off keeps what it has reached.
    pub(super) fn on_applied(&mut self, step: &mut Step<'_>, state: Digest) {
        let replays = |c: &mut CatchUp| matches!(c, CatchUp::Replay(_));
        let Some(CatchUp::Replay(mut path)) = self.catch_up.take_if(replays) else { return };
        let Some(link) = path.links.pop_front() else { return };
        path.entries.pop_front();
        self.ours.note_spent(&self.ours.spent_by(&link.receipt));
        self.extend(step, link, state);
        let (head, to_epoch) = (self.ours.head, path.claim.head.epoch);
        step.put(Output::Event(Event::Replayed { head, to_epoch }));
        self.apply_next(step, path);
    }

    /// R25: no peer serves the next update; its checkpoint may still be served.
    pub(super) fn on_update_missing(&mut self, step: &mut Step<'_>, update: &Digest) {
        let needs = |c: &mut CatchUp| matches!(c, CatchUp::Replay(path) if path.needs(update));
        let Some(CatchUp::Replay(mut path)) = self.catch_up.take_if(needs) else { return };
        if path.base < self.ours.head.epoch {
            path.begin_at_head(&self.ours);
            self.enter_head(step);
            step.lead(Lead::Behind(true));
        }
        self.load(step, path);
    }

    /// Fetches the checkpoint at the end of the path, or at an earlier state that is easier to get.
    fn load(&mut self, step: &mut Step<'_>, mut path: Path) {
        // What is stored of a checkpoint is tried again only if the last try brought more.
        path.shorten(step, &self.ours, self.partial.take());
        if path.without_link() > 0 {
            step.put(Output::Log(Record::Rewound { epoch: path.base, to: path.claim.head }));
        }
        self.copy(step, path);
    }

    /// Asks for the next links that are no longer in memory, and then for the checkpoint. Links
    /// that are in the log by then count once the checkpoint is loaded.
    pub(super) fn copy(&mut self, step: &mut Step<'_>, path: Path) {
        let donors = path.serving(step, &self.ours);
        if let Some(from_epoch) = path.next_to_copy() {
            let slow = path.is_slow(step);
            let answers = |peer: &PeerId| !slow && !self.requests.failed_lately(step, peer);
            let answering = donors.into_iter().filter(answers);
            let Some(from) = answering.min_by_key(|peer| self.requests.failures(peer)) else {
                self.give_up(&path, step.now + step.table.grace);
                // It was asked first. The head that it claimed may lie beyond the end of this path.
                self.requests.note_failure(step, path.claim.peer);
                return step.lead(Lead::Behind(self.ours.awaits_attested()));
            };
            step.put(Output::Ask(from, Ask::Lineage { from_epoch }));
            self.catch_up = Some(CatchUp::Copy(from, path));
            return;
        }
        let Some(last) = path.entries.back() else { return };
        let (head, r, spent) = (path.claim.head, last.r, path.spent.clone());
        step.put(Output::Fetch { head, r, donors, spent });
        self.catch_up = Some(CatchUp::Load(path));
    }

    /// The checkpoint is loaded: gives up what lies beyond the last common epoch, and reports it.
    /// Only now, with the state here and on disk, is anything of ours undone (S3).
    pub(super) fn on_loaded(&mut self, step: &mut Step<'_>, head: Head) {
        let loaded = |c: &mut CatchUp| matches!(c, CatchUp::Load(path) if path.claim.head == head);
        let Some(CatchUp::Load(mut path)) = self.catch_up.take_if(loaded) else { return };
        let (mine, epoch, theirs) = (self.ours.head, path.base, path.claim.head);
        self.ours.note_spent(&path.spent);
        let undone = mine.epoch.saturating_sub(epoch);
        if undone > 0 {
            if path.copied == 0 {
                step.put(Output::Log(Record::Rewound { epoch, to: theirs }));
            }
            self.forks.report(step, epoch.saturating_add(1), [mine, theirs], undone);
        }
        self.ours.rewind(epoch);
        self.forkable.rewind(epoch);
        self.forks.marks.rewind(epoch);
        let logged = path.entries.drain(..path.without_link()).collect();
        self.ours.push_logged(logged, &path.admitting);
        self.ahead_since = None;
        self.forkable.extend(path.away);
        for (link, entry) in path.links.into_iter().zip(path.entries) {
            self.extend(step, link, entry.state);
        }
        self.enter_head(step);
    }

    /// Moves our head one epoch on, and logs it.
    fn extend(&mut self, step: &mut Step<'_>, link: Link, state: Digest) {
        let tokens = self.ours.head.tokens.saturating_add(link.receipt.tokens());
        let epoch = self.ours.head.epoch.saturating_add(1);
        let head = Head { epoch, tokens, state };
        self.forks.log_start(step);
        step.put(Output::Log(Record::Decided { link: Box::new(link.clone()) }));
        step.put(Output::Log(Record::Committed { head }));
        self.push(Arc::new(link), head);
    }

    /// Moves our head one epoch on.
    pub(super) fn push(&mut self, link: Arc<Link>, head: Head) {
        self.forkable.note(&self.ours, &link);
        self.ours.push(link, head);
        self.ahead_since = None;
    }

    /// Lets the epoch machine go on from the head that is reached.
    fn enter_head(&mut self, step: &mut Step<'_>) {
        self.forks.mark(step, self.ours.head.epoch);
        let (head, voters, median) = self.ours.tip();
        step.lead(Lead::Enter { head, voters, median, ledger: self.ours.ledger().cloned() });
        self.ours.wait_for_attested(step);
    }

    /// R25: no peer serves the checkpoint, so we go on with our own lineage until one may. What has
    /// come of it is gone on with, as long as each try brings more.
    pub(super) fn on_load_failed(&mut self, step: &mut Step<'_>, head: Head, kept: bool) {
        let failed = |c: &mut CatchUp| matches!(c, CatchUp::Load(path) if path.claim.head == head);
        let Some(CatchUp::Load(path)) = self.catch_up.take_if(failed) else { return };
        self.partial = kept.then_some(head.state);
        let until = step.now + step.table.grace;
        if let Some(last) = path.entries.back() {
            self.requests.note_unserved(head.state, last.r, until);
        }
        self.give_up(&path, until);
        step.lead(Lead::Behind(self.ours.awaits_attested()));
    }

    /// The head is not followed until then; other peers that claim it may still be asked (G12).
    fn give_up(&mut self, path: &Path, until: Time) {
        self.catching_up = None;
        self.requests.ignore(path.claim, until);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::consensus::sync::candidate::Candidate;
    use crate::consensus::sync::interface::Open;
    use crate::consensus::sync::lineage::Entry;
    use crate::consensus::sync::lineage::tests::{lineage, setup};
    use crate::consensus::sync::requests::Claim;
    use crate::machine::table::{PeerRecord, PeerTable, beat};
    use crate::message::{Answer, Heartbeat};

    /// A lineage whose links are all verified, and none of them in memory. This peer claims its head.
    fn verified(step: &Step<'_>, state: &State, all: &[(Head, Link)], by: u8) -> Candidate {
        let claim = Claim { peer: PeerId([by; 32]), head: all.last().unwrap().0 };
        let mut other = Candidate::after(step, &state.ours, 0, claim).unwrap();
        let entry = |(head, link): &(Head, Link)| {
            let r = state.ours.digest(&link.receipt);
            Entry { r, state: head.state, tokens: head.tokens }
        };
        other.entries = all.iter().map(entry).collect();
        other
    }

    /// A verified path of which no link is in memory, and peers that answer each question with so many
    /// links, after so many milliseconds: the peers that were asked, how many links came, and what is
    /// remembered.
    fn copied(peers: u8, answers: impl Fn(u8) -> (usize, u64)) -> (Vec<u8>, usize, State) {
        let (validator, me, config) = setup();
        let mut state = State::new(Time::ZERO, validator, me, config, Vec::new(), Vec::new());
        let all = lineage(state.ours.head);
        let (head, _) = *all.last().unwrap();
        let mut table = PeerTable::new(Duration::from_millis(500), Duration::from_secs(8));
        let series = beat().series;
        let open = Open { series, decided: false, applying: false, openings: &[], voters: &[] };
        let (mut asked, mut came, mut now) = (Vec::new(), 0, Time::ZERO);
        for question in 0..1_000 {
            if let Some(CatchUp::Copy(from, _)) = &state.catch_up {
                now = now + Duration::from_millis(answers(from.0[0]).1);
            }
            let says = PeerRecord::new(&Heartbeat { head, ..beat() }, now);
            table.peers.extend((1..=peers).map(|n| (PeerId([n; 32]), says.clone())));
            let step = &mut Step { now, table: &table, out: &mut Vec::new() };
            if question == 0 {
                let other = verified(step, &state, &all, 1);
                let rank = state.ours.proven_by(&other);
                let path = Path::new(step, other, rank);
                state.copy(step, path);
            }
            let Some(CatchUp::Copy(from, path)) = &state.catch_up else { break };
            let from = *from;
            if question > 0 {
                let links = all.iter().skip(path.copied).take(answers(from.0[0]).0);
                let links: Vec<Link> = links.map(|(_, link)| link.clone()).collect();
                (asked, came) = ([asked, vec![from.0[0]]].concat(), path.copied + links.len());
                let answer = Answer::Lineage { links, head, openings: Vec::new() };
                state.on_answer(step, open, from, Some(&answer), false);
            }
        }
        (asked, came, state)
    }

    /// Peer 2 claims the head, and 3 is there too. Only peer 1 was in the rings.
    #[test]
    fn r28_an_update_is_asked_of_its_ring_first() {
        let (validator, me, config) = setup();
        let state = State::new(Time::ZERO, validator, me, config, Vec::new(), Vec::new());
        let all = &lineage(state.ours.head)[..3];
        let mut table = PeerTable::new(Duration::from_millis(500), Duration::from_secs(8));
        let says = PeerRecord::new(&Heartbeat { head: all[2].0, ..beat() }, Time::ZERO);
        table.peers.extend((1..=3).map(|n| (PeerId([n; 32]), says.clone())));
        let step = &mut Step { now: Time::ZERO, table: &table, out: &mut Vec::new() };
        let mut other = verified(step, &state, all, 2);
        other.links = all.iter().map(|(_, link)| link.clone()).collect();
        let rank = state.ours.proven_by(&other);
        let path = Path::new(step, other, rank);
        assert_eq!(path.serving(step, &state.ours), [2, 1, 3].map(|n| PeerId([n; 32])));
        let updates = path.updates(step, &state.ours);
        assert_eq!(updates.len(), 3);
        for (update, (head, link)) in updates.iter().zip(all) {
            assert_eq!((update.epoch, update.update), (head.epoch, link.receipt.update));
            assert_eq!(update.donors, [1, 2, 3].map(|n| PeerId([n; 32])));
        }
    }

    #[test]
    fn g12_peers_that_serve_no_link_of_their_head_are_not_asked_for_ever() {
        assert_eq!(copied(1, |_| (0, 5_000)).0, [1]);
        let (asked, ..) = copied(4, |_| (0, 5_000));
        assert!(asked.starts_with(&[1, 2, 3, 4]) && asked.len() < 10, "{asked:?}");
    }

    #[test]
    fn g12_three_peers_that_serve_nothing_keep_no_other_one_from_serving() {
        let (asked, came, _) = copied(4, |peer| if peer == 4 { (64, 100) } else { (0, 5_000) });
        assert_eq!((asked, came), (vec![1, 2, 3, 4, 4, 4, 4, 4], 320));
    }

    #[test]
    fn g12_a_peer_that_serves_one_link_at_a_time_is_given_up_and_asked_after_others() {
        let (asked, came, state) = copied(1, |_| (1, 5_000));
        assert!(came < 10, "{came} links in {} answers", asked.len());
        assert!(state.requests.failures(&PeerId([1; 32])) > 0);
    }

    #[test]
    fn g12_one_that_answers_quickly_after_slow_ones_is_not_blamed() {
        let (asked, came, state) =
            copied(7, |peer| if peer == 7 { (64, 1_900) } else { (0, 5_200) });
        assert!(asked.ends_with(&[7]) && came >= 64, "{asked:?}");
        assert_eq!(state.requests.failures(&PeerId([7; 32])), 0);
    }
}
