//! Simulated runs: the real machines of many peers in virtual time, under
//! faults, checked against invariants.
//!
//! One seed is one run. Peers found it, train a toy (`toy`) and commit epochs over a
//! simulated network (`network`), while faults strike at chosen moments (`faults`). After
//! every step the invariants S1–S14 must hold ([`check`]). Then the faults stop, and the run
//! must make progress again (L1), with every live peer on one lineage (L2). A failing seed
//! names itself and repeats exactly.
//!
//! Signatures are simulated, since ed25519 would take all the time;
//! every other rule is the real one.
//!
//! Scenes play single stories in the same [`World`], message by message.
//!
//! To read it: [`run`] is one seed, `Story` its plot, [`World`] all that is simulated. A scene
//! begins with [`World::scene`]; those of `protocol/sim/tests/scenes` show how.
//!
//! Nothing here reads a clock or the system's entropy, and every collection is ordered. So a seed
//! gives the same run on every machine, as long as no code that draws from it changes.
//!
//! What is not simulated is left to other tests: the frames of a ring, real signatures and their
//! cost, tensors, sockets. Memory grows with the length of a run, because the checks forget almost
//! nothing.

pub mod check;
pub mod disk;
mod faults;
pub mod liars;
pub mod network;
pub mod report;
pub mod rings;
mod script;
mod toy;
pub mod world;

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use check::Violation;
use faults::Director;
use report::{Count, Failure, Moment, Report, Summary};
use world::{Setup, World};

use intellect_protocol::base::rng::Rng;
use intellect_protocol::base::rule::{Rule, Rules};
use intellect_protocol::machine::wait::Wait;
use intellect_protocol::message::{Head, QuorumRule};

/// A class of faults: which kinds strike a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Faults {
    /// None: a working network with changing delays, and peers of different speed.
    Clean,
    /// Messages are lost, late, doubled and reordered; some links work in one direction.
    Lossy,
    /// Peers die, start, restart with their logs or without, and leave,
    /// half of them or all at once.
    Churn,
    /// Links and hosts swallow what is sent, in one direction or both; no connection closes.
    Blackhole,
    /// The peers are partitioned into groups, and these again; some groups meet before the others.
    Partition,
    /// All of these, slow peers, peers that stop for a while, and clocks that leap.
    Mixed,
    /// Some peers cannot be dialled, some pairs are joined by a relay only, and that
    /// changes; some peers restart.
    Nat,
    /// All peers leave or are killed, in any order, until none runs; then
    /// all come back, in any order.
    Evening,
    /// Fewer than a third of the peers of an invited run lie, with up to 64 strangers and `tolerate
    /// = "liars"`. Some messages are lost, and some peers restart.
    Liars,
    /// Fewer than half of the peers of an open run lie, with up to 64
    /// strangers. Only safety is checked.
    Half,
    /// Peers of an invited run are revoked, while others die and restart, and the network is
    /// partitioned.
    Invited,
}

impl Faults {
    /// Every class, in the order in which they are run.
    pub const ALL: [Self; 11] = [
        Self::Clean,
        Self::Lossy,
        Self::Churn,
        Self::Blackhole,
        Self::Partition,
        Self::Mixed,
        Self::Nat,
        Self::Evening,
        Self::Liars,
        Self::Half,
        Self::Invited,
    ];
}

/// The name of the variant in lower case, as `--faults` takes it.
impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format!("{self:?}").to_lowercase())
    }
}

/// One simulated run, which repeats exactly.
#[derive(Clone, Debug)]
pub struct Config {
    /// Peers that start; at least 1. Churn, mixed and invited faults add up to [`SPARE`] more.
    pub peers: usize,
    /// The epoch that every live peer must reach in the end. More take longer to run, and show more
    /// of what carries over from one epoch to the next.
    pub epochs: u64,
    /// Determines everything that is drawn, and with `faults` and `peers` the whole run. Any number
    /// will do.
    pub seed: u64,
    /// The class of faults that strike it.
    pub faults: Faults,
    /// A rule that is switched off, to see that the checks notice. `None` in all seeds that have to
    /// hold.
    pub without: Option<Rule>,
}

/// Hosts beyond the first peers, for peers that are started later. Classes that start no new peers
/// have none.
pub const SPARE: usize = 4;

/// Peers that found a run of more than one; below it, one founds alone.
const PEERS_MIN: usize = 2;

/// The same where liars are tolerated, as a manifest has to: two liars alone could found otherwise.
const PEERS_MIN_LIARS: usize = 4;

/// The run's heartbeat in milliseconds, as `manifest new` writes it.
const HEARTBEAT_MS: u64 = 500;
/// The run's `minority_grace` in milliseconds, as `manifest new` writes it.
const GRACE_MS: u64 = 8_000;

/// From this many peers on, a run sends heartbeats at a quarter of the rate, as its organiser would
/// choose, and has no slow peers: it shows that the core carries that many.
const LARGE: usize = 64;

/// By how much the heartbeats are slowed down for this many peers.
fn slower(peers: usize) -> u64 {
    if peers < LARGE { 1 } else { 4 }
}

/// Runs one seed from its first start to its last epoch, on the calling thread.
///
/// # Errors
/// The invariant that was broken, and when.
pub fn run(config: &Config) -> Result<Report, Failure> {
    let mut story = Story::new(config);
    match story.play() {
        Ok(()) => Ok(story.world.into_report()),
        Err(mut violation) => {
            violation.what += &story.world.describe_liars();
            Err(Failure { config: config.clone(), at_ms: story.world.now_ms, violation })
        }
    }
}

/// Runs many seeds of 8 epochs each, on `threads` threads. The result does not depend on the number
/// of threads. A seed that fails stops no other one.
#[must_use]
pub fn swarm(peers: usize, seeds: Range<u64>, faults: Faults, threads: usize) -> Summary {
    swarm_shown(peers, seeds, faults, threads, &|_| ())
}

/// The same. `shown` is called by each of these threads after a seed, with how many are done.
#[must_use]
pub fn swarm_shown(
    peers: usize,
    seeds: Range<u64>,
    faults: Faults,
    threads: usize,
    shown: &(dyn Fn(u64) + Sync),
) -> Summary {
    let done = AtomicU64::new(0);
    let each = |seed| {
        let result = run(&Config { peers, epochs: 8, seed, faults, without: None });
        shown(done.fetch_add(1, Ordering::Relaxed) + 1);
        result
    };
    let threads = threads.max(1);
    #[expect(clippy::disallowed_methods, reason = "seeds share nothing; the core has no threads")]
    let mut results: Vec<(u64, Result<Report, Failure>)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|worker| {
                let mine = seeds.clone().skip(worker).step_by(threads);
                scope.spawn(move || mine.map(|seed| (seed, each(seed))).collect::<Vec<_>>())
            })
            .collect();
        let joined = workers.into_iter().map(std::thread::ScopedJoinHandle::join);
        joined
            .flat_map(|results| results.unwrap_or_else(|e| std::panic::resume_unwind(e)))
            .collect()
    });
    results.sort_by_key(|(seed, _)| *seed);
    Summary::new(faults, peers, results.into_iter().map(|(_, result)| result))
}

/// One seed, from the first start to the last epoch. It has two acts: faults strike until all have
/// ended, and then progress is required.
struct Story {
    /// The class that was asked for. Some rules of a seed depend on it.
    faults: Faults,
    /// The epoch that all must reach, or one more than the greatest if the faults took longer.
    epochs: u64,
    /// The peers that the run begins with. Spare ones and strangers are not among them.
    peers: usize,
    /// How many of the members lie. They need not make progress, and cost the others some (L3).
    liars: usize,
    /// All that is simulated, with the checks over it.
    world: World,
    /// The faults of this seed, and when each strikes.
    director: Director,
}

impl Story {
    /// Sets the world up; nobody has started yet.
    ///
    /// In a quarter of the seeds of some classes all peers are founders and the run has `quorum =
    /// "majority"`. There nothing may be lost for good: the run would wait forever for a majority
    /// of the voters that it began with. The draws stand in the order in which they are made.
    fn new(config: &Config) -> Self {
        let Config { peers, epochs, seed, faults, without } = *config;
        let slower = slower(peers);
        // Classes in which no peer loses a log or dies for good.
        let stays = matches!(faults, Faults::Lossy | Faults::Blackhole | Faults::Partition);
        let strangers = strangers(faults, seed);
        let founders = if stays && seed % 4 == 3 { peers } else { 0 };
        let starts = matches!(faults, Faults::Churn | Faults::Mixed | Faults::Invited);
        let spare = if starts { SPARE } else { 0 };
        let quorum = match faults {
            Faults::Liars => QuorumRule::Byzantine,
            _ if founders > 0 => QuorumRule::Majority,
            _ => QuorumRule::Available,
        };
        let least = if faults == Faults::Liars { PEERS_MIN_LIARS } else { PEERS_MIN };
        let mut world = World::new(Setup {
            hosts: peers + spare + strangers,
            peers_min: peers.min(least),
            quorum,
            founders,
            heartbeat_ms: slower * HEARTBEAT_MS,
            grace_ms: slower * GRACE_MS,
            seed,
            rules: Rules::without(without),
            distance_ms: 20,
            jitter_ms: 30,
        });
        if faults == Faults::Lossy || (faults == Faults::Mixed && seed % 2 == 1) {
            world.network.loss = 0.02 + 0.18 * world.rng.unit();
            world.network.duplicate = 0.1 * world.rng.unit();
            world.network.spike = 0.03 * world.rng.unit();
        }
        for host in 0..peers {
            if peers < LARGE && world.rng.below(8) == 0 {
                let training_ms = 2_000 + world.rng.below(6_000);
                world.set_training(host, training_ms);
            }
        }
        if faults == Faults::Nat {
            world.draw_routers(peers);
        }
        let mut liars = 0;
        if matches!(faults, Faults::Liars | Faults::Half) {
            world.network.loss = 0.05 * world.rng.unit();
            let most = if faults == Faults::Liars { (peers - 1) / 3 } else { (peers - 1) / 2 };
            liars = world.draw_liars(peers, most, strangers);
        }
        if faults == Faults::Liars {
            world.invite_first(peers);
        }
        if faults == Faults::Invited {
            world.invite_each(peers + spare);
            world.draw_revocations(seed, peers);
        }
        if matches!(faults, Faults::Churn | Faults::Partition | Faults::Mixed) {
            world.draw_attestations(seed, faults != Faults::Partition);
        }
        world.undo_as_nodes();
        Self { faults, epochs, peers, liars, world, director: Director::new(faults, seed, peers) }
    }

    /// Plays all of a seed: first the faults, then the progress that must follow once they are
    /// healed.
    fn play(&mut self) -> Result<(), Violation> {
        self.disturb()?;
        if self.faults == Faults::Clean {
            return self.play_undisturbed();
        }
        self.heal();
        let healed_ms = self.world.now_ms;
        if self.world.honest().len() < self.peers.min(PEERS_MIN) || self.has_no_voter() {
            // Too few peers are left to go on.
            return Ok(());
        }
        if self.faults == Faults::Half {
            // This class promises safety only.
            return self.play_on(HALF_MS);
        }
        let before = self.greatest();
        let bound_ms = bound_ms(self.peers, self.attempt()) + lies_ms(self.liars);
        let waits_ms = if self.is_any_back() { RETURN_WAIT_MS } else { 0 };
        let before = before.map(|head| self.world.rank(&head));
        let beyond =
            |world: &World, head: &Head| before.is_none_or(|before| world.rank(head) > before);
        self.reach(beyond, bound_ms + waits_ms)?;
        self.world.report.progress_ms = self.world.now_ms - healed_ms;
        let now = self.greatest().map_or(0, |head| head.epoch);
        let last = self.epochs.max(now + 1);
        let ends = |world: &World, head: &Head| head.epoch >= last && world.are_revoked(head);
        self.reach(ends, bound_ms * (last - now))?;
        self.note_state();
        Ok(())
    }

    /// Goes on for this long without requiring progress.
    fn play_on(&mut self, length_ms: u64) -> Result<(), Violation> {
        let until_ms = self.world.now_ms + length_ms;
        while self.world.now_ms < until_ms {
            self.world.step(until_ms)?;
            self.world.moments.clear();
        }
        Ok(())
    }

    /// Records the greatest head at the end in the report.
    fn note_state(&mut self) {
        let ends = self.world.honest();
        let heads = ends.iter().filter_map(|host| self.world.head(*host));
        self.world.report.state = heads.max_by_key(|head| head.epoch).map(|head| head.state);
    }

    /// L1 without disturbances: after the founding each epoch takes its training, its ring and no
    /// more than a second, and another second for each attempt at which two proposals crossed.
    fn play_undisturbed(&mut self) -> Result<(), Violation> {
        self.reach(|_, head| head.epoch >= 1, bound_ms(self.peers, 0))?;
        let limit_ms = bound_ms(self.peers, 0);
        for epoch in 2..=self.epochs {
            let (since_ms, duels) = (self.world.now_ms, self.world.report.of(Count::Duels));
            self.world.rings.longest_ms = 0;
            self.reach(|_, head| head.epoch >= epoch, limit_ms)?;
            let took_ms = self.world.now_ms - since_ms;
            let work_ms = self.world.longest_training_ms() + self.world.rings.longest_ms;
            let duels = self.world.report.of(Count::Duels) - duels;
            let most_ms = work_ms + slower(self.peers) * UNDISTURBED_MS * (1 + duels);
            if took_ms > most_ms {
                let what = format!("epoch {epoch} took {took_ms} ms, not {most_ms} ms");
                return Err(Violation { invariant: "L1", what });
            }
            let longest_ms = &mut self.world.report.progress_ms;
            *longest_ms = took_ms.max(*longest_ms);
        }
        self.note_state();
        Ok(())
    }

    /// Lets the faults strike until all of them have ended. It always ends, because a fault whose
    /// moment does not come strikes anyway after a while.
    fn disturb(&mut self) -> Result<(), Violation> {
        while !self.director.is_done() {
            let until_ms = self.director.next_ms().unwrap_or(u64::MAX);
            self.world.step(until_ms.min(self.world.now_ms + 1_000))?;
            self.director.direct(&mut self.world);
            self.world.attest_when_due();
            self.world.revoke_when_due();
        }
        Ok(())
    }

    /// Ends every fault: all links work, and whoever was paused goes on.
    fn heal(&mut self) {
        self.world.heal();
        self.world.plan_crash(None);
        for host in self.world.running() {
            self.world.resume(host);
        }
        self.world.say_revocations();
    }

    /// L1 and L2, and L3 if peers lie: every live peer reaches such a head within `bound_ms`, all
    /// on one lineage. Liars and revoked peers may be anywhere. It looks after each commit, and
    /// after each event that came more than 100 ms after the one before, since a peer also arrives
    /// by loading a state.
    fn reach(
        &mut self,
        there: impl Fn(&World, &Head) -> bool,
        bound_ms: u64,
    ) -> Result<(), Violation> {
        let until_ms = self.world.now_ms + bound_ms;
        let mut checked = 0;
        while self.world.now_ms < until_ms {
            self.world.step(until_ms)?;
            let committed = self.world.moments.drain(..).any(|(.., m)| m == Moment::Committed);
            if (committed || self.world.now_ms > checked + 100) && self.all_are(&there) {
                return Ok(());
            }
            checked = self.world.now_ms;
        }
        // The head that all were following may have no voter that runs.
        if self.all_are(&there) || self.has_no_voter() {
            return Ok(());
        }
        let hosts = self.world.honest().into_iter();
        let heads: Vec<String> = hosts.map(|host| self.world.describe(host)).collect();
        let what = format!("not everyone has moved on after {bound_ms} ms: {heads:?}");
        let invariant = if self.liars > 0 { "L3" } else { "L1" };
        Err(Violation { invariant, what })
    }

    /// Whether a voter is back, and still waits for the others to say whether they have gone on (R20).
    fn is_any_back(&self) -> bool {
        let waits = |host| matches!(self.world.wait(host), Some(Wait::Voters { enough: true, .. }));
        self.world.honest().into_iter().any(waits)
    }

    /// Whether `there` holds for the heads of all honest peers, and these lie on one lineage.
    fn all_are(&self, there: impl Fn(&World, &Head) -> bool) -> bool {
        let running = self.world.honest();
        let agree = |pair: &[usize]| self.world.agree(pair[0], pair[1]);
        running
            .iter()
            .all(|host| self.world.head(*host).is_some_and(|head| there(&self.world, &head)))
            && running.windows(2).all(agree)
    }

    /// R12: whether no voter of the epoch after the greatest head runs any
    /// more, unless it is revoked. The others wait for one.
    fn has_no_voter(&self) -> bool {
        let (greatest, here) = (self.greatest(), self.world.honest());
        let mut there = here.iter().filter(|host| self.world.head(**host) == greatest);
        let waits = |host: &usize| {
            let voters = self.world.voters(*host);
            !voters.is_empty() && voters.iter().all(|voter| !here.contains(voter))
        };
        greatest.is_some_and(|head| head.epoch > 0) && there.all(waits)
    }

    /// The highest attempt of any live peer.
    fn attempt(&self) -> u64 {
        let running = self.world.honest().into_iter();
        running.filter_map(|host| self.world.phase(host)).map(|(_, at)| at).max().unwrap_or(0)
    }

    /// The head that all must follow, by R23, which is not always that of the longest lineage.
    fn greatest(&self) -> Option<Head> {
        let heads = self.world.honest().into_iter().filter_map(|host| self.world.head(host));
        heads.max_by_key(|head| self.world.rank(head))
    }
}

/// How long a voter that said goodbye waits for the others when it is back (R20), in milliseconds.
const RETURN_WAIT_MS: u64 = 60_000;

/// How long a seed of [`Faults::Half`] goes on after its faults, in milliseconds.
const HALF_MS: u64 = 120_000;

/// How many strangers a seed has: often few, sometimes 64.
fn strangers(faults: Faults, seed: u64) -> usize {
    let mut rng = Rng::new(seed ^ 0x7374_7261_6e67);
    let most = [0, 1, 2, 4, 8, 16, 64][usize::try_from(rng.below(7)).unwrap_or(0)];
    let count = usize::try_from(rng.below(most + 1)).unwrap_or(0);
    if matches!(faults, Faults::Liars | Faults::Half) { count } else { 0 }
}

/// What this many liars among the members may cost beyond the timers of an epoch, in milliseconds
/// (L3): two attempts, and three more for each. With timers that grow they take 12 s in the mean:
/// in seed 563 of 16 peers four liars spoil eight attempts in 104 s.
fn lies_ms(liars: usize) -> u64 {
    if liars == 0 { 0 } else { (2 + 3 * liars as u64) * 12_000 }
}

/// What an undisturbed epoch may take in addition to its training and its ring, in milliseconds,
/// and what two crossing proposals may cost, which is the wait for the missing Accepts.
const UNDISTURBED_MS: u64 = 1_000;

/// How long after the end of the faults the next epoch may take on every live peer, in
/// milliseconds, with each timer at the factor b that its attempt has reached by then. It is the
/// sum of what may follow one after another: silence is noticed, a Regroup waits for its grace, an
/// epoch is trained, and an attempt passes. Each peer adds a little, since each takes part in the
/// ring.
fn bound_ms(peers: usize, attempt: u64) -> u64 {
    let slower = slower(peers);
    let silent_ms = 4 * slower * HEARTBEAT_MS + 800;
    // A peer may train at the slowest speed, and the grace for Ready is half as much again.
    let epoch_ms = 8_000 * 5 / 2;
    // The phases of an attempt; after the faults, up to the fourth attempt may fail.
    let attempt_ms = 4 * 1_000 * (1 << (attempt.clamp(4, 7) - 1));
    silent_ms + slower * GRACE_MS + epoch_ms + attempt_ms + 50 * peers as u64
}
