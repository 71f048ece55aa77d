//! Checks over every vote that was ever sent: S1, S2, S5 and S13.
//!
//! A vote counts once its author has sent it, to whomever. So the history is at least what any peer
//! can know, and a value that is decided here may not be known to anybody yet. Nothing is forgotten
//! before the end of the run.
//!
//! With liars a majority of votes proves less. A value is decided *firmly* if every other majority
//! shares an honest voter with its own: only such a value must stay chosen (S1, S2). A liar may
//! help to decide two values that are not firm, and that is counted, as it is no broken rule.

use std::collections::{BTreeMap, BTreeSet};

use super::{Verdict, require};
use intellect_protocol::base::id::{Digest, PeerId, RunId};
use intellect_protocol::base::sign::Signature;
use intellect_protocol::history::log::Record;
use intellect_protocol::message::wire;
use intellect_protocol::message::{
    Accept, Done, Join, Opening, QuorumRule, Ranked, Regroup, Roster, Series, Status, Voter,
};

/// The votes of one voter in one series.
#[derive(Clone, Debug, Default)]
struct Log {
    /// The highest attempt that it has answered or accepted: no lower one may follow.
    promised: u64,
    /// The roster that it has accepted at each attempt.
    accepted: BTreeMap<u64, Digest>,
    /// The value that it has voted for, by the roster in which it did.
    done: BTreeMap<Digest, Digest>,
    /// The Regroups of this series that it has joined and no later one replaces.
    joined: Vec<Digest>,
    /// Whether it has left the series for good, by a Join: it may not vote any more.
    closed: bool,
}

/// What one series has come to.
#[derive(Clone, Debug, Default)]
struct Ballots {
    /// Every roster: its attempt, and the value that it adopts.
    rosters: BTreeMap<Digest, (u64, Option<Digest>)>,
    /// Decided values, each with the lowest attempt that decided it, and whether firmly.
    decided: BTreeMap<Digest, (u64, bool)>,
    /// Values with a certificate whose roster allows that value by its own Statuses.
    allowed: BTreeSet<Digest>,
    /// The value that the Joins of its Regroup found, with its rank.
    forced: Option<((u32, u64), Digest)>,
    /// Whether every member of its Regroup has joined; false for a series that a receipt opens.
    opened: bool,
}

/// All votes of a run, in every series.
#[derive(Clone, Debug)]
pub(crate) struct Votes {
    /// How many voters decide. The checks count them by themselves.
    quorum: QuorumRule,
    /// What each voter has said in each series. A peer with another log is another voter (R19).
    logs: BTreeMap<(Voter, Series), Log>,
    /// What each series has come to, once anything was said in it.
    series: BTreeMap<Series, Ballots>,
    /// The series and attempt of each roster, by its digest.
    places: BTreeMap<Digest, (Series, u64)>,
    /// The values that each voter has voted for on a roster; a liar may have several.
    dones: BTreeMap<Digest, BTreeMap<Voter, BTreeSet<Digest>>>,
    /// Every Regroup that somebody has shown, by its digest.
    regroups: BTreeMap<Digest, Regroup>,
    /// The Joins to each Regroup; of a voter that joins twice only the last one.
    joins: BTreeMap<Digest, BTreeMap<Voter, Join>>,
    /// The Regroup that each opening opens.
    openings: BTreeMap<Digest, Digest>,
    /// Regroups that a voter has joined before another one.
    replaced: BTreeSet<(Voter, Digest)>,
    /// The peers for which no rule is checked, and on whose votes alone nothing is firm.
    liars: BTreeSet<PeerId>,
    /// Rosters whose value is not what R8 makes of the Statuses that they show (G14).
    contradict: BTreeSet<Digest>,
}

impl Votes {
    /// Begins with no vote counted and no roster known.
    pub(super) fn new(quorum: QuorumRule) -> Self {
        Self {
            quorum,
            logs: BTreeMap::new(),
            series: BTreeMap::new(),
            places: BTreeMap::new(),
            dones: BTreeMap::new(),
            regroups: BTreeMap::new(),
            joins: BTreeMap::new(),
            openings: BTreeMap::new(),
            replaced: BTreeSet::new(),
            liars: BTreeSet::new(),
            contradict: BTreeSet::new(),
        }
    }

    /// S5: no peer answers an attempt below one that it has promised. The answer is a promise
    /// itself (R2).
    pub(super) fn on_status(&mut self, voter: Voter, status: &Status) -> Verdict {
        let log = self.logs.entry((voter, status.series)).or_default();
        require(status.attempt >= log.promised, "S5", || {
            format!("{} answers {} below {}", voter.peer, status.attempt, log.promised)
        })?;
        log.promised = status.attempt;
        Ok(())
    }

    /// Records a roster that peers may accept, whether or not its author lies. Of one that shows
    /// Statuses it notes whether its value follows from them by R8. Where they show no vote, that
    /// is the value which the Regroup brought along, or any new one.
    pub(super) fn note_roster(&mut self, run: &RunId, digest: Digest, roster: &Roster) {
        self.places.insert(digest, (roster.series, roster.attempt));
        let adopts = roster.adopt.as_ref().map(|receipt| wire::receipt_digest(run, receipt));
        let votes = || roster.heard.iter().filter_map(|heard| heard.done);
        let rank = |vote: &Ranked| (vote.depth, vote.attempt);
        let highest = votes().map(|vote| rank(&vote)).max();
        let allowed = match highest {
            Some(highest) => votes().any(|v| rank(&v) == highest && Some(v.r) == adopts),
            None => {
                let forced = self.series.get(&roster.series).and_then(|ballots| ballots.forced);
                adopts.is_none() || adopts == forced.map(|(_, r)| r)
            }
        };
        if roster.attempt > 1 && !allowed {
            self.contradict.insert(digest);
        }
    }

    /// S13: whether some certificate of this value names a roster that its own Statuses allow.
    pub(super) fn is_allowed(&self, series: &Series, r: &Digest) -> bool {
        self.beside(series).any(|ballots| ballots.allowed.contains(r))
    }

    /// S2: a roster must not propose another value than one that is chosen already.
    pub(super) fn on_roster(&mut self, run: &RunId, digest: Digest, roster: &Roster) -> Verdict {
        self.note_roster(run, digest, roster);
        let adopts = roster.adopt.as_ref().map(|receipt| wire::receipt_digest(run, receipt));
        let ballots = self.series.entry(roster.series).or_default();
        ballots.rosters.insert(digest, (roster.attempt, adopts));
        ballots.chosen_stays_chosen(&roster.series)
    }

    /// S5: a peer accepts one roster at an attempt, and none below its promise.
    pub(super) fn on_accept(&mut self, voter: Voter, accept: &Accept) -> Verdict {
        let Some((series, attempt)) = self.places.get(&accept.roster).copied() else {
            return require(false, "S5", || format!("{} accepts an unknown roster", voter.peer));
        };
        let log = self.logs.entry((voter, series)).or_default();
        let before = log.accepted.get(&attempt).copied();
        if before == Some(accept.roster) {
            return Ok(());
        }
        require(before.is_none(), "S5", || {
            format!("{} accepts two rosters at attempt {attempt} of {series:?}", voter.peer)
        })?;
        log.may_vote(&voter, attempt)?;
        log.promised = attempt;
        log.accepted.insert(attempt, accept.roster);
        Ok(())
    }

    /// S1, S2 and S5 of a vote: its author may give it, it decides no second value, and it makes no
    /// roster or Regroup wrong that has been seen before. A vote that is repeated is not judged
    /// again.
    pub(super) fn on_done(&mut self, voter: Voter, done: &Done, voters: &[Voter]) -> Verdict {
        let Some((series, attempt)) = self.places.get(&done.roster).copied() else {
            return require(false, "S5", || format!("{} votes in an unknown roster", voter.peer));
        };
        let log = self.logs.entry((voter, series)).or_default();
        if log.done.insert(done.roster, done.r).is_some() {
            return Ok(());
        }
        log.may_vote(&voter, attempt)?;
        self.note_done(voter, done, voters);
        let Some(ballots) = self.series.get(&series) else { return Ok(()) };
        let firm = ballots.decided.values().any(|(_, firm)| *firm);
        require(!firm || ballots.decided.len() == 1, "S1", || {
            format!("{series:?} decides {:?}", ballots.decided)
        })?;
        ballots.chosen_stays_chosen(&series)?;
        let mut children = self.regroups.iter().filter(|(_, regroup)| regroup.series == series);
        children.try_for_each(|(digest, _)| self.regroup_remembers(digest))
    }

    /// Counts a vote, also that of a liar. A value that a majority voted for is decided. It is
    /// decided firmly if any other majority contains an honest peer among them.
    pub(super) fn note_done(&mut self, voter: Voter, done: &Done, voters: &[Voter]) {
        let Some((series, attempt)) = self.places.get(&done.roster).copied() else { return };
        let dones = self.dones.entry(done.roster).or_default();
        dones.entry(voter).or_default().insert(done.r);
        let voted = |v: &Voter| dones.get(v).is_some_and(|values| values.contains(&done.r));
        if !is_quorum(self.quorum, voters, voted) {
            return;
        }
        let firm = !is_quorum(self.quorum, voters, |v| self.liars.contains(&v.peer) || !voted(v));
        let ballots = self.series.entry(series).or_default();
        if !self.contradict.contains(&done.roster) {
            ballots.allowed.insert(done.r);
        }
        let (lowest, is_firm) = ballots.decided.entry(done.r).or_insert((attempt, firm));
        // Higher attempts must adopt from the lowest attempt on at which it is firm.
        if firm && !*is_firm || firm == *is_firm && attempt < *lowest {
            (*lowest, *is_firm) = (attempt, firm);
        }
    }

    /// From now on a liar may drive this peer: its votes alone make no value firm.
    pub(super) fn distrust(&mut self, peer: PeerId) {
        self.liars.insert(peer);
    }

    /// Records a Regroup under its digest, whoever shows it.
    pub(super) fn on_regroup(&mut self, digest: Digest, regroup: &Regroup) {
        self.regroups.entry(digest).or_insert_with(|| regroup.clone());
    }

    /// S5: a Join closes the series, those that it descends from, and the Regroups joined before.
    pub(super) fn on_join(&mut self, run: &RunId, voter: Voter, join: &Join) -> Verdict {
        if !self.is_new(voter, join) {
            return Ok(());
        }
        for series in self.ancestors(join.series) {
            let log = self.logs.entry((voter, series)).or_default();
            log.closed = true;
            let before = std::mem::take(&mut log.joined);
            for digest in before {
                self.replaced.insert((voter, digest));
                for opened in self.opened_by(&digest) {
                    self.logs.entry((voter, opened)).or_default().closed = true;
                }
            }
        }
        let log = self.logs.entry((voter, join.series)).or_default();
        log.joined.push(join.regroup);
        self.note_join(run, voter, join);
        self.regroup_remembers(&join.regroup)
    }

    /// Counts the Joins with which a voter's log opens a series: it may have died before it sent
    /// its own.
    pub(super) fn on_restored(&mut self, run: &RunId, voter: Voter, log: &[Record]) -> Verdict {
        for record in log {
            let Record::Opened { opening } = record else { continue };
            self.on_regroup(wire::regroup_digest(run, &opening.regroup), &opening.regroup);
            let mut joins = opening.joins.iter();
            if let Some((_, join, _)) = joins.find(|(peer, ..)| *peer == voter.peer) {
                self.on_join(run, voter, join)?;
            }
        }
        Ok(())
    }

    /// Counts a Join, also that of a liar. The last one that is missing opens the series.
    pub(super) fn note_join(&mut self, run: &RunId, voter: Voter, join: &Join) {
        self.joins.entry(join.regroup).or_default().insert(voter, join.clone());
        self.open(run, &join.regroup);
    }

    /// Whether this is the first Join of a voter to its Regroup.
    fn is_new(&self, voter: Voter, join: &Join) -> bool {
        !self.joins.get(&join.regroup).is_some_and(|joins| joins.contains_key(&voter))
    }

    /// The Regroup of this digest, if any peer has shown it.
    pub(super) fn regroup(&self, digest: &Digest) -> Option<&Regroup> {
        self.regroups.get(digest)
    }

    /// The Regroup that opened a series; `None` for one that a receipt opened.
    pub(super) fn regroup_of(&self, series: &Series) -> Option<&Regroup> {
        self.regroups.get(self.openings.get(&series.regroup?)?)
    }

    /// The series that a Regroup has opened: two if a liar has joined it twice.
    fn opened_by(&self, digest: &Digest) -> Vec<Series> {
        let Some(regroup) = self.regroups.get(digest) else { return Vec::new() };
        let opened = self.openings.iter().filter(|(_, opens)| *opens == digest);
        opened.map(|(opening, _)| regroup.series.regrouped(*opening)).collect()
    }

    /// Whether some series of this epoch and parent decided `r`.
    pub(super) fn is_decided(&self, series: &Series, r: &Digest) -> bool {
        self.beside(series).any(|ballots| ballots.decided.contains_key(r))
    }

    /// The series of one epoch and parent: the one that the receipt before opened, and those that
    /// Regroups opened. They are neighbours in the order of series, whose last key is the Regroup.
    fn beside(&self, series: &Series) -> impl Iterator<Item = &Ballots> {
        let first = Series { regroup: None, ..*series };
        let last = Series { regroup: Some(Digest([0xff; 32])), ..*series };
        self.series.range(first..=last).map(|(_, ballots)| ballots)
    }

    /// The number of Regroups that every member joined, without foundings.
    pub(crate) fn opened_count(&self) -> u64 {
        let opened = self.series.iter().filter(|(series, ballots)| {
            let regroup = self.regroup_of(series);
            let founding = series.epoch == 1 && regroup.is_some_and(|r| r.absent.is_empty());
            ballots.opened && !founding
        });
        opened.count() as u64
    }

    /// How many series decided two values, which only a broken rule makes possible.
    pub(crate) fn split_count(&self) -> u64 {
        self.series.values().filter(|ballots| ballots.decided.len() > 1).count() as u64
    }

    /// `series` and the series that it was regrouped from, the newest first. The last one is that
    /// which a receipt opened, or whose Regroup nobody has shown.
    fn ancestors(&self, series: Series) -> Vec<Series> {
        let mut out = vec![series];
        let mut next = series;
        while let Some(regroup) = self.regroup_of(&next) {
            next = regroup.series;
            out.push(next);
        }
        out
    }

    /// R13: the series of a Regroup opens once every member has joined. A member that has joined a
    /// later Regroup meanwhile may not vote in it. The highest vote in the Joins is forced on it;
    /// if there is none, what was forced on the series before.
    fn open(&mut self, run: &RunId, digest: &Digest) {
        let Some(regroup) = self.regroups.get(digest).cloned() else { return };
        let Some(joins) = self.joins.get(digest) else { return };
        let join = |voter: &Voter| {
            joins.get(voter).map(|join| (voter.peer, join.clone(), Signature([0; 64])))
        };
        let Some(all) = regroup.members.iter().map(join).collect() else { return };
        let opening = Opening { regroup: regroup.clone(), joins: all, ground: None };
        let opening = wire::opening_digest(run, &opening);
        let opened = regroup.series.regrouped(opening);
        self.openings.insert(opening, *digest);
        for voter in &regroup.members {
            if self.replaced.contains(&(*voter, *digest)) {
                self.logs.entry((*voter, opened)).or_default().closed = true;
            }
        }
        let dones = joins.values().filter_map(|join| join.done);
        let found = dones.max().map(|vote| ((vote.depth, vote.attempt), vote.r));
        let old = self.series.get(&regroup.series).and_then(|ballots| ballots.forced);
        let new = self.series.entry(opened).or_default();
        new.forced = found.or(old);
        new.opened = true;
    }

    /// S2 across a Regroup: a member that voted in a deciding attempt, or above, forces the value.
    fn regroup_remembers(&self, digest: &Digest) -> Verdict {
        let Some(regroup) = self.regroups.get(digest) else { return Ok(()) };
        let Some(old) = self.series.get(&regroup.series) else { return Ok(()) };
        let voted = |voter: &Voter| {
            let log = self.logs.get(&(*voter, regroup.series))?;
            log.done.keys().filter_map(|roster| self.places.get(roster)).map(|(_, k)| *k).max()
        };
        let top = regroup.members.iter().filter_map(voted).max().unwrap_or(0);
        let opened =
            self.opened_by(digest).into_iter().filter_map(|series| self.series.get(&series));
        for new in opened.filter(|ballots| ballots.opened) {
            for (r, (attempt, _)) in old.decided.iter().filter(|(_, (_, firm))| *firm) {
                let forgets = top >= *attempt && new.forced.is_none_or(|(_, forced)| forced != *r);
                require(!forgets, "S2", || {
                    format!("Regroup {digest} forgets {r}, which a member had voted for")
                })?;
            }
        }
        Ok(())
    }
}

impl Log {
    /// S5: no vote after a Join, and none below the promised attempt.
    fn may_vote(&self, voter: &Voter, attempt: u64) -> Verdict {
        require(!self.closed, "S5", || format!("{} votes after its Join", voter.peer))?;
        require(attempt >= self.promised, "S5", || {
            format!("{} votes at {attempt}, promised {}", voter.peer, self.promised)
        })
    }
}

impl Ballots {
    /// S2: above an attempt that decided, every roster adopts the decided value.
    fn chosen_stays_chosen(&self, series: &Series) -> Verdict {
        for (r, (decided_at, _)) in self.decided.iter().filter(|(_, (_, firm))| *firm) {
            for (roster, (attempt, adopts)) in &self.rosters {
                let against = attempt > decided_at && *adopts != Some(*r);
                require(!against, "S2", || {
                    format!(
                        "{roster} at {attempt} of {series:?} against {r}, decided at {decided_at}"
                    )
                })?;
            }
        }
        Ok(())
    }
}

/// Whether these voters are a majority: more than half of them, or exactly half including
/// the first one. With liars tolerated, whether they are so many that any two quorums
/// share more voters than may lie.
fn is_quorum(quorum: QuorumRule, voters: &[Voter], has: impl Fn(&Voter) -> bool) -> bool {
    let got = voters.iter().filter(|voter| has(voter)).count();
    match quorum {
        QuorumRule::Byzantine => got > (voters.len() + voters.len().saturating_sub(1) / 3) / 2,
        QuorumRule::Available | QuorumRule::Majority => {
            2 * got > voters.len() || (2 * got == voters.len() && voters.first().is_some_and(has))
        }
    }
}
