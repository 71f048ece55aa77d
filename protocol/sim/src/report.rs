//! What happened in a simulated run, and in many: counts, one line per class of faults, and the
//! failure that names its seed.
//!
//! A check that is never reached proves nothing. So a class also fails if its seeds together never
//! showed what the class is meant to show ([`Summary::missing`]):
//!
//! | class | must show, in all its seeds together |
//! |---|---|
//! | every one | commits, members without a position, each moment of an epoch |
//! | lossy | attempts from the second on, two proposers at one attempt, adopted Dones, commits by gossip |
//! | churn | what lossy must, epochs with kept chunks, Regroups, and everything about disks |
//! | blackhole | epochs with kept chunks, attempts from the second on, two proposers at one attempt, commits by gossip |
//! | partition | epochs with kept chunks, attempts from the second on, adopted Dones, Regroups, forks healed |
//! | mixed | everything |
//! | nat | attempts from the second on, heartbeats that name peers without a direct connection |
//! | invited | what lossy must, revocations, and everything about disks |
//! | liars, half | what lossy must, refusals, failed attempts, minted heads, liars without a position, found out |
//!
//! About disks: restarts with a log of votes and without one, crashes around a flush, epochs
//! replayed, checkpoints loaded.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::check::Violation;
use super::{Config, Faults};
use intellect_protocol::base::id::Digest;
use intellect_protocol::machine::event::Committed;
use intellect_protocol::message::{Roster, Series};

/// A moment of an epoch at which a fault can be aimed. A fault that is aimed at one strikes when
/// some peer reaches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Moment {
    /// A process begins to train, or goes on with a budget that it had begun.
    Training,
    /// A peer sends its Ready: the delta is frozen.
    Ready,
    /// A proposer sends its roster.
    Roster,
    /// A peer sends an Accept, and is bound by the promise in it.
    Accepted,
    /// A member opens its ring with the delta that it has frozen.
    Reduce,
    /// A voter sends a Done. After the first one of an epoch its value may be chosen.
    Finished,
    /// A peer commits the epoch, and has the next state.
    Committed,
    /// An owner sends a Query, so an attempt has failed.
    Asking,
    /// A voter sends a Join, and so leaves its series for good.
    Regrouping,
}

impl Moment {
    /// The moments that every epoch passes through. A class must be struck at each of them; the
    /// other two only happen once something has gone wrong.
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

/// What is counted in a run, to show what it has tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Count {
    /// Commits, counted once for every peer.
    Commits,
    /// Rosters of attempt 2 or more.
    Attempts,
    /// Attempts for which more than one roster was proposed.
    Duels,
    /// Rosters that adopt an earlier value.
    Adopted,
    /// Members without a position in committed rosters.
    Placeless,
    /// Chunks that rosters keep of rings that did not end.
    Kept,
    /// Committed epochs that contain kept chunks.
    Mended,
    /// Regroups that opened, without foundings.
    Regroups,
    /// Restarts with the log of votes.
    Resumed,
    /// Restarts without a log of votes, or with one that counts as lost (R19).
    Blank,
    /// Crashes before or after a flush, or between two outputs of one step.
    Crashes,
    /// How often a peer gave up its own lineage for a greater one.
    Forks,
    /// How often the organiser attested a state.
    Attestations,
    /// How often the organiser revoked a peer.
    Revocations,
    /// Tokens of unshared work that were lost with a lineage that was given up (R27).
    Forgone,
    /// Epochs that a peer caught up with by their updates.
    Replayed,
    /// Checkpoints that were loaded.
    Loaded,
    /// Pieces of checkpoints that were fetched.
    Pieces,
    /// Commits that another peer's `Commit` brought.
    ByCommit,
    /// How often 256 attempts were not enough.
    Stuck,
    /// Refusals that liars have sent.
    Refusals,
    /// Attempts that did not commit their epoch, while only liars disturb.
    Wasted,
    /// Liars that have no position in a committed roster.
    HeldBack,
    /// Voters that a Regroup leaves out because they do not answer (`mute`).
    MuteLeft,
    /// Requests about heads that liars claim and no peer has committed.
    Minted,
    /// Answers of liars, rosters and votes that were found to be false.
    Exposed,
    /// Blames with two messages of the author that prove them.
    Proven,
    /// Series that decided two values, in which every common voter lies.
    Split,
    /// Heartbeats that name a peer without a direct connection to their author.
    Unlinked,
    /// Messages that have arrived at a peer.
    Messages,
    /// Bytes of messages sent, each message counted once.
    Bytes,
}

/// What one seed did, or many together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The seed; of many, the first one.
    pub seed: u64,
    /// Epochs of the greatest head, summed over seeds.
    pub epochs: u64,
    /// What was counted, and how often; what never happened has no entry, or 0.
    counts: BTreeMap<Count, u64>,
    /// Faults that struck, by the moment at which they did.
    pub faults: BTreeMap<Moment, u64>,
    /// Virtual time, in milliseconds.
    pub virtual_ms: u64,
    /// How long each epoch after the first took, from the first commit
    /// of the one before to its own.
    epochs_ms: Vec<u64>,
    /// When the greatest epoch was first committed.
    committed_ms: u64,
    /// The longest time from the end of the faults to the next commit of every peer.
    pub progress_ms: u64,
    /// State digest of the greatest head; of many seeds, that of the last one.
    pub state: Option<Digest>,
    /// The most failed attempts of any epoch since the faults stopped.
    pub wasted_most: u64,
    /// The rosters of each attempt, so that each is counted once.
    rosters: BTreeMap<(Series, u64), BTreeSet<Digest>>,
    /// The states of epochs that some peer has committed, so that each epoch is counted once.
    receipts: BTreeSet<Digest>,
}

impl Report {
    /// An empty report on the run of this seed.
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    /// How often this was counted so far.
    #[must_use]
    pub fn of(&self, count: Count) -> u64 {
        self.counts.get(&count).copied().unwrap_or(0)
    }

    /// Adds to how often something happened.
    pub(super) fn count(&mut self, count: Count, times: u64) {
        *self.counts.entry(count).or_default() += times;
    }

    /// Counts what a roster shows, once however many peers receive it. Rosters of one attempt with
    /// different digests are a duel, counted at the second one.
    pub(super) fn count_roster(&mut self, digest: &Digest, roster: &Roster) {
        let same = self.rosters.entry((roster.series, roster.attempt)).or_default();
        if !same.insert(*digest) {
            return;
        }
        let duel = same.len() == 2;
        self.count(Count::Duels, u64::from(duel));
        self.count(Count::Attempts, u64::from(roster.attempt > 1));
        self.count(Count::Adopted, u64::from(!roster.is_free()));
        self.count(Count::Kept, roster.keep.iter().map(|keep| keep.chunks.len() as u64).sum());
    }

    /// Counts the attempts of a committed epoch that did not commit it. Returns their number. All
    /// series of that epoch and parent count.
    pub(super) fn count_wasted(&mut self, of: &Series) -> u64 {
        let tried = self.rosters.keys().filter(|(series, _)| series.is_beside(of)).count() as u64;
        let wasted = tried.saturating_sub(1);
        self.count(Count::Wasted, wasted);
        self.wasted_most = self.wasted_most.max(wasted);
        wasted
    }

    /// Counts one peer's commit; the first of an epoch also gives its length. A fork may lead to an
    /// epoch that some peer has committed before: then the length counts no more.
    pub(super) fn count_commit(&mut self, now_ms: u64, committed: &Committed) {
        if committed.head.epoch > self.epochs {
            let since_ms = std::mem::replace(&mut self.committed_ms, now_ms);
            self.epochs_ms.extend((self.epochs > 0).then_some(now_ms - since_ms));
        }
        self.count(Count::Commits, 1);
        self.count(Count::ByCommit, u64::from(committed.by_commit));
        self.epochs = self.epochs.max(committed.head.epoch);
        if self.receipts.insert(committed.head.state) {
            let members = committed.receipt.members.iter();
            let placeless = members.filter(|member| member.weight == 0).count() as u64;
            self.count(Count::Placeless, placeless);
            self.count(Count::Mended, u64::from(!committed.receipt.parts.is_empty()));
        }
    }

    /// The median time of an epoch in virtual milliseconds, without the first one.
    #[must_use]
    pub fn epoch_ms(&self) -> u64 {
        let mut sorted = self.epochs_ms.clone();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied().unwrap_or(0)
    }

    /// Adds the counts of another run, and takes the greater of the maxima. The sets that only
    /// serve to count once within a run are left out.
    fn add(&mut self, other: &Self) {
        self.epochs += other.epochs;
        other.counts.iter().for_each(|(count, times)| self.count(*count, *times));
        self.virtual_ms += other.virtual_ms;
        self.epochs_ms.extend(&other.epochs_ms);
        self.progress_ms = self.progress_ms.max(other.progress_ms);
        self.wasted_most = self.wasted_most.max(other.wasted_most);
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
             {} adopted Dones, {} chunks kept (in {} epochs), {} without a position, {} Regroups, {} forks healed ({} \
             tokens forgone), {} attestations, {} revocations, {} epochs replayed, {} checkpoints loaded, {} restarts with a log and {} \
             without, {} crashes around a flush, {} faults, \
             {} messages, {} KiB, {} virtual s, {} ms an epoch (median), progress within {} ms",
            self.epochs,
            self.of(Count::Commits),
            self.of(Count::ByCommit),
            self.of(Count::Attempts),
            self.of(Count::Duels),
            self.of(Count::Adopted),
            self.of(Count::Kept),
            self.of(Count::Mended),
            self.of(Count::Placeless),
            self.of(Count::Regroups),
            self.of(Count::Forks),
            self.of(Count::Forgone),
            self.of(Count::Attestations),
            self.of(Count::Revocations),
            self.of(Count::Replayed),
            self.of(Count::Loaded),
            self.of(Count::Resumed),
            self.of(Count::Blank),
            self.of(Count::Crashes),
            self.faults.values().sum::<u64>(),
            self.of(Count::Messages),
            self.of(Count::Bytes) >> 10,
            self.virtual_ms / 1_000,
            self.epoch_ms(),
            self.progress_ms,
        )?;
        if self.of(Count::Refusals) == 0 {
            return Ok(());
        }
        write!(
            f,
            "; of liars: {} refusals, {} failed attempts (at most {} in an epoch), {} without a position, {} \
             unresponsive and left behind, {} minted heads asked for, {} found out, {} series split",
            self.of(Count::Refusals),
            self.of(Count::Wasted),
            self.wasted_most,
            self.of(Count::HeldBack),
            self.of(Count::MuteLeft),
            self.of(Count::Minted),
            self.of(Count::Exposed),
            self.of(Count::Split),
        )
    }
}

/// A seed that failed, with what is needed to repeat it. Its `Display` ends with the command that
/// repeats it.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The configuration that repeats it.
    pub config: Config,
    /// When it failed, in virtual milliseconds.
    pub at_ms: u64,
    /// The invariant that was broken.
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

/// From this many peers on, a class must show everything that it is for. In smaller runs some of it
/// is too rare.
const MANY: usize = 16;

/// What the seeds of one class did together.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The class of faults that struck.
    pub faults: Faults,
    /// Number of peers of each seed.
    pub peers: usize,
    /// Number of seeds without a violation.
    pub held: u64,
    /// The sum of the reports of those seeds.
    pub total: Report,
    /// Seeds that failed, in order.
    pub failures: Vec<Failure>,
}

impl Summary {
    /// Adds up the runs of one class of faults.
    pub(super) fn new(
        faults: Faults,
        peers: usize,
        results: impl IntoIterator<Item = Result<Report, Failure>>,
    ) -> Self {
        let (total, failures) = (Report::default(), Vec::new());
        let mut summary = Self { faults, peers, held: 0, total, failures };
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

    /// What the class should have shown and did not; runs of a few peers need not show anything.
    /// The names are for people.
    #[must_use]
    pub fn missing(&self) -> Vec<&'static str> {
        if self.peers < MANY {
            return Vec::new();
        }
        let each = [("commits", Count::Commits), ("members without a position", Count::Placeless)];
        let disturbed = [
            ("attempts from the second on", Count::Attempts),
            ("two proposers at one attempt", Count::Duels),
            ("adopted Dones", Count::Adopted),
            ("commits by gossip", Count::ByCommit),
        ];
        let mended = ("epochs with kept chunks", Count::Mended);
        let parted = [
            ("forks healed", Count::Forks),
            ("Regroups", Count::Regroups),
            ("attestations", Count::Attestations),
        ];
        let restarted = [
            ("restarts with a log", Count::Resumed),
            ("restarts without a log", Count::Blank),
            ("crashes around a flush", Count::Crashes),
            ("epochs replayed", Count::Replayed),
            ("checkpoints loaded", Count::Loaded),
        ];
        let lied = [
            ("refusals of liars", Count::Refusals),
            ("failed attempts", Count::Wasted),
            ("liars without a position", Count::HeldBack),
            ("minted heads asked for", Count::Minted),
            ("lies found out", Count::Exposed),
        ];
        let [attempts, duels, adopted, by_commit] = disturbed;
        let revoked = ("revocations", Count::Revocations);
        let unlinked = ("peers without a connection", Count::Unlinked);
        let wanted: Vec<(&'static str, Count)> = match self.faults {
            Faults::Clean | Faults::Evening => each.to_vec(),
            Faults::Nat => [each.as_slice(), &[attempts, unlinked]].concat(),
            Faults::Lossy => [each.as_slice(), &disturbed].concat(),
            Faults::Churn => {
                [each.as_slice(), &disturbed, &[mended], &parted[1..], &restarted].concat()
            }
            Faults::Blackhole => [each.as_slice(), &[attempts, duels, by_commit, mended]].concat(),
            Faults::Partition => [each.as_slice(), &[attempts, adopted, mended], &parted].concat(),
            Faults::Invited => [each.as_slice(), &disturbed, &restarted, &[revoked]].concat(),
            Faults::Liars | Faults::Half => [each.as_slice(), &disturbed, &lied].concat(),
            Faults::Mixed => [each.as_slice(), &disturbed, &[mended], &parted, &restarted].concat(),
        };
        let never = wanted.iter().filter(|(_, count)| self.total.of(*count) == 0);
        let struck = |moment: &Moment| self.total.faults.contains_key(moment);
        let aimed = !matches!(self.faults, Faults::Clean | Faults::Evening);
        let unhit = aimed && !Moment::REGULAR.iter().all(struck);
        let never = never.map(|(name, _)| *name);
        never.chain(unhit.then_some("faults at each moment of an epoch")).collect()
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
