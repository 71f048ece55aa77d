//! What happened in a simulated run, and in many: counts, one line per class of faults, and the
//! failure that names its seed.
//!
//! A check that is never reached proves nothing. So a class fails as well when its seeds together
//! never showed what the class is there to show ([`Summary::missing`]):
//!
//! | class | must show, in all its seeds together |
//! |---|---|
//! | every one | commits, members without a place, each moment of an epoch |
//! | lossy | attempts from the second on, two proposers at one attempt, adopted Dones, commits by gossip |
//! | churn | what lossy must, epochs mended, Regroups, and all about disks |
//! | blackhole | epochs mended, attempts from the second on, two proposers at one attempt, commits by gossip |
//! | partition | epochs mended, attempts from the second on, adopted Dones, Regroups, forks healed |
//! | mixed | everything |
//!
//! About disks: restarts with a log of votes and without one, crashes on the way to disk, epochs
//! replayed, checkpoints loaded.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::check::Violation;
use super::{Config, Faults};
use intellect_protocol::event::Committed;
use intellect_protocol::id::Digest;
use intellect_protocol::message::{Roster, Series};

/// A moment of an epoch at which a fault can be aimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the phases of docs/PROTOCOL.md, and what opens a recovery")]
pub enum Moment {
    Training,
    Ready,
    Roster,
    Accepted,
    Reduce,
    Finished,
    Committed,
    Asking,
    Regrouping,
}

impl Moment {
    /// Those that every epoch goes through.
    pub(super) const REGULAR: [Self; 7] = [
        Self::Training,
        Self::Ready,
        Self::Roster,
        Self::Accepted,
        Self::Reduce,
        Self::Finished,
        Self::Committed,
    ];
}

/// What one seed, or many, did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The seed; the first one of many.
    pub seed: u64,
    /// Epochs of the greatest head, summed over seeds.
    pub epochs: u64,
    /// Commits, of every peer.
    pub commits: u64,
    /// Rosters of an attempt from the second on.
    pub attempts: u64,
    /// Attempts for which more than one roster was proposed.
    pub duels: u64,
    /// Rosters that adopt a value.
    pub adopted: u64,
    /// Members without a place in committed rosters.
    pub placeless: u64,
    /// Chunks that rosters keep of rings that did not end.
    pub kept: u64,
    /// Committed epochs of which a part was kept so.
    pub mended: u64,
    /// Regroups that opened, but foundings.
    pub regroups: u64,
    /// Restarts with the log of votes, and without it.
    pub resumed: u64,
    /// Restarts that found no log of votes, or one that counts as lost (R19).
    pub blank: u64,
    /// Crashes before or after a flush, or between two outputs of one step.
    pub crashes: u64,
    /// Times that a peer withdrew from a lineage of its own for a greater one.
    pub forks: u64,
    /// Tokens of peers' own unshared work that were lost with a lineage given up.
    pub forgone: u64,
    /// Epochs that were caught up with by their updates.
    pub replayed: u64,
    /// Checkpoints that were loaded.
    pub loaded: u64,
    /// Commits that somebody else's `Commit` brought.
    pub by_commit: u64,
    /// Times that 256 attempts were not enough.
    pub stuck: u64,
    /// Faults injected, by the moment at which they struck.
    pub faults: BTreeMap<Moment, u64>,
    /// Messages that arrived.
    pub messages: u64,
    /// Bytes of messages sent, each counted once.
    pub bytes: u64,
    /// Virtual time.
    pub virtual_ms: u64,
    /// The longest time from the end of the faults to the next commit of every peer.
    pub progress_ms: u64,
    /// State digest of the greatest head; of many seeds, of the last one.
    pub state: Option<Digest>,
    rosters: BTreeMap<(Series, u32), BTreeSet<Digest>>,
    receipts: BTreeSet<Digest>,
}

impl Report {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    pub(super) fn count_roster(&mut self, digest: &Digest, roster: &Roster) {
        let same = self.rosters.entry((roster.series, roster.attempt)).or_default();
        if !same.insert(*digest) {
            return;
        }
        self.duels += u64::from(same.len() == 2);
        self.attempts += u64::from(roster.attempt > 1);
        self.adopted += u64::from(!roster.is_free());
        self.kept += roster.keep.iter().map(|keep| keep.chunks.len() as u64).sum::<u64>();
    }

    pub(super) fn count_commit(&mut self, committed: &Committed) {
        self.commits += 1;
        self.by_commit += u64::from(committed.by_commit);
        self.epochs = self.epochs.max(committed.head.epoch);
        if self.receipts.insert(committed.head.state) {
            let members = committed.receipt.members.iter();
            self.placeless += members.filter(|member| member.weight == 0).count() as u64;
            self.mended += u64::from(!committed.receipt.parts.is_empty());
        }
    }

    fn add(&mut self, other: &Self) {
        self.epochs += other.epochs;
        self.commits += other.commits;
        self.attempts += other.attempts;
        self.duels += other.duels;
        self.adopted += other.adopted;
        self.placeless += other.placeless;
        self.kept += other.kept;
        self.mended += other.mended;
        self.regroups += other.regroups;
        self.resumed += other.resumed;
        self.blank += other.blank;
        self.crashes += other.crashes;
        self.forks += other.forks;
        self.forgone += other.forgone;
        self.replayed += other.replayed;
        self.loaded += other.loaded;
        self.by_commit += other.by_commit;
        self.stuck += other.stuck;
        self.messages += other.messages;
        self.bytes += other.bytes;
        self.virtual_ms += other.virtual_ms;
        self.progress_ms = self.progress_ms.max(other.progress_ms);
        self.state = other.state;
        for (moment, count) in &other.faults {
            *self.faults.entry(*moment).or_default() += count;
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} epochs, {} commits ({} by gossip), {} rosters of attempt 2 or more, {} duels, \
             {} adopted Dones, {} chunks kept ({} epochs mended), {} without a place, {} Regroups, {} forks healed ({} \
             tokens forgone), {} epochs replayed, {} checkpoints loaded, {} restarts with a log and {} \
             without, {} crashes on the way to disk, {} faults, \
             {} messages, {} KiB, {} virtual s, progress within {} ms",
            self.epochs,
            self.commits,
            self.by_commit,
            self.attempts,
            self.duels,
            self.adopted,
            self.kept,
            self.mended,
            self.placeless,
            self.regroups,
            self.forks,
            self.forgone,
            self.replayed,
            self.loaded,
            self.resumed,
            self.blank,
            self.crashes,
            self.faults.values().sum::<u64>(),
            self.messages,
            self.bytes >> 10,
            self.virtual_ms / 1_000,
            self.progress_ms,
        )
    }
}

/// A seed that failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What was run.
    pub config: Config,
    /// When, in virtual milliseconds.
    pub at_ms: u64,
    /// What broke.
    pub violation: Violation,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { config: Config { peers, seed, faults, .. }, at_ms, violation } = self;
        let Violation { invariant, what } = violation;
        write!(
            f,
            "seed {seed} at {at_ms} ms: {invariant}: {what}\n  repeat: intellect-node sim --virtual \
             --peers {peers} --seeds {seed}..{} --faults {faults}",
            seed + 1
        )
    }
}

impl std::error::Error for Failure {}

/// What the seeds of one class did together.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The class.
    pub faults: Faults,
    /// Seeds that held.
    pub held: u64,
    /// The sum of what they did.
    pub total: Report,
    /// Seeds that failed, in order.
    pub failures: Vec<Failure>,
}

impl Summary {
    pub(super) fn new(
        faults: Faults,
        results: impl IntoIterator<Item = Result<Report, Failure>>,
    ) -> Self {
        let (total, failures) = (Report::default(), Vec::new());
        let mut summary = Self { faults, held: 0, total, failures };
        for result in results {
            match result {
                Ok(report) => {
                    summary.held += 1;
                    summary.total.add(&report);
                }
                Err(failure) => summary.failures.push(failure),
            }
        }
        summary
    }

    /// What the class should have shown and did not.
    #[must_use]
    pub fn missing(&self) -> Vec<&'static str> {
        let total = &self.total;
        let each = [("commits", total.commits), ("members without a place", total.placeless)];
        let disturbed = [
            ("attempts from the second on", total.attempts),
            ("two proposers at one attempt", total.duels),
            ("adopted Dones", total.adopted),
            ("commits by gossip", total.by_commit),
        ];
        let mended = ("epochs mended with kept chunks", total.mended);
        let parted = [("forks healed", total.forks), ("Regroups", total.regroups)];
        let restarted = [
            ("restarts with a log", total.resumed),
            ("restarts without a log", total.blank),
            ("crashes on the way to disk", total.crashes),
            ("epochs replayed", total.replayed),
            ("checkpoints loaded", total.loaded),
        ];
        let [attempts, duels, adopted, by_commit] = disturbed;
        let wanted: Vec<(&'static str, u64)> = match self.faults {
            Faults::Clean => each.to_vec(),
            Faults::Lossy => [each.as_slice(), &disturbed].concat(),
            Faults::Churn => {
                [each.as_slice(), &disturbed, &[mended], &parted[1..], &restarted].concat()
            }
            Faults::Blackhole => [each.as_slice(), &[attempts, duels, by_commit, mended]].concat(),
            Faults::Partition => [each.as_slice(), &[attempts, adopted, mended], &parted].concat(),
            Faults::Mixed => [each.as_slice(), &disturbed, &[mended], &parted, &restarted].concat(),
        };
        let zero = wanted.iter().filter(|(_, count)| *count == 0).map(|(name, _)| *name);
        let struck = |moment: &Moment| total.faults.contains_key(moment);
        let unhit = self.faults != Faults::Clean && !Moment::REGULAR.iter().all(struck);
        zero.chain(unhit.then_some("faults at each moment of an epoch")).collect()
    }

    /// Whether every seed held, and the class showed what it should.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.failures.is_empty() && self.missing().is_empty()
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seeds = self.held + self.failures.len() as u64;
        write!(f, "{}: {} of {seeds} seeds hold; {}", self.faults, self.held, self.total)?;
        for name in self.missing() {
            write!(f, "\n  never seen: {name}")?;
        }
        self.failures.iter().try_for_each(|failure| write!(f, "\n{failure}"))
    }
}
