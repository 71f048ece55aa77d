//! Single scenes over the real machine: a few peers, a network without chance, and a director who
//! decides what becomes of each message.
//!
//! Times are chosen, not drawn: a message takes 4 ms, training 400 ms. The invariants are checked at
//! each step as in any other simulated run.

use super::check::Violation;
use super::disk::{Damage, Doom, Kept};
pub use super::network::Fate;
use super::report::Report;
pub use super::rings::Sends;
use super::world::{Setup, World};
use super::{GRACE_MS, HEARTBEAT_MS};
use intellect_protocol::event::{Committed, Event};
use intellect_protocol::fault::Fault;
use intellect_protocol::id::{PeerId, RunId};
use intellect_protocol::message::{Answer, Head, Message, Phase};
use intellect_protocol::rule::Rule;

/// The peer that a stranger is.
#[must_use]
pub fn stranger(name: u8) -> PeerId {
    PeerId([name; 32])
}

/// A scene being played.
pub struct Stage {
    world: World,
}

impl Stage {
    /// `hosts` hosts, on which no process runs yet. `founders` of them are the voters of genesis, and
    /// with any the run has `quorum = "majority"`.
    #[must_use]
    pub fn new(hosts: usize, founders: usize, without: Option<Rule>) -> Self {
        let mut world = World::new(Setup {
            hosts,
            peers_min: 2,
            founders,
            heartbeat_ms: HEARTBEAT_MS,
            grace_ms: GRACE_MS,
            seed: 1,
            without,
            distance_ms: 1,
            jitter_ms: 0,
        });
        world.told = Some(Vec::new());
        Self { world }
    }

    /// Decides the fate of every message from now on: from which host, to which.
    pub fn direct(&mut self, fate: impl FnMut(usize, usize, &Message) -> Fate + 'static) {
        self.world.script.filter = Some(Box::new(fate));
    }

    /// Changes every answer about a lineage from now on: of which host, to which.
    pub fn forge(&mut self, forge: impl FnMut(usize, usize, &mut Answer) + 'static) {
        self.world.script.forger = Some(Box::new(forge));
    }

    /// A stranger, whose name is made of `name`, says something to some hosts.
    pub fn say(&mut self, hosts: &[usize], name: u8, message: &Message) {
        for host in hosts {
            self.world.bring(*host, stranger(name), message.clone());
        }
    }

    /// Which strangers were found at fault, and why.
    #[must_use]
    pub fn blamed(&self) -> &[(PeerId, Fault)] {
        &self.world.blamed
    }

    /// The run.
    #[must_use]
    pub fn run(&self) -> RunId {
        self.world.run()
    }

    /// Lets every message and answer through again, as it is.
    pub fn relent(&mut self) {
        self.world.script.forger = None;
        self.world.script.filter = None;
    }

    /// Starts processes, from what their disks have.
    pub fn start(&mut self, hosts: &[usize]) {
        hosts.iter().for_each(|host| self.world.start(*host));
    }

    /// Ends processes at once.
    pub fn kill(&mut self, hosts: &[usize]) {
        hosts.iter().for_each(|host| self.world.stop(*host));
    }

    /// Lets the power of a host fail at a point at which something could be lost: before and after each
    /// flush, and between two outputs. So many `points` pass before; of what is not flushed then,
    /// `kept` is there.
    pub fn crash(&mut self, host: usize, points: u64, kept: Kept) {
        self.world.doom(Some(Doom { host, points, kept }));
    }

    /// Hosts that have crashed since this was asked last.
    pub fn crashed(&mut self) -> Vec<usize> {
        self.world.crashed()
    }

    /// Loses some of what a host has on disk, while no process runs there.
    pub fn damage(&mut self, host: usize, damage: Damage) {
        self.world.damage(host, damage);
    }

    /// Asks a process to leave.
    pub fn leave(&mut self, host: usize) {
        self.world.leave(host);
    }

    /// Stops a process for a while.
    pub fn pause(&mut self, host: usize) {
        self.world.pause(host);
    }

    /// Lets a stopped process go on.
    pub fn resume(&mut self, host: usize) {
        self.world.resume(host);
    }

    /// Cuts these hosts off from the others, but not from each other.
    pub fn cut(&mut self, hosts: &[usize], side: u32) {
        self.world.cut(hosts, side);
    }

    /// Breaks the link in one direction.
    pub fn break_link(&mut self, from: usize, to: usize) {
        self.world.break_link(from, to);
    }

    /// Lets a host serve no finished chunk any more, whatever it says that it holds.
    pub fn withhold_chunks(&mut self, host: usize) {
        self.world.withhold_chunks(host);
    }

    /// Lets a host answer every request for bytes with other bytes.
    pub fn lie(&mut self, host: usize) {
        self.world.lie(host);
    }

    /// Lets a host accept rosters and then send in no ring, or just often enough to be heard.
    pub fn send_in_rings(&mut self, host: usize, sends: Sends) {
        self.world.set_sends(host, sends);
    }

    /// Makes every link whole.
    pub fn mend(&mut self) {
        self.world.network.heal();
    }

    /// Sets how long an epoch's training takes on a host. That of its open epoch begins anew, unless
    /// it has ended.
    pub fn train_in(&mut self, host: usize, training_ms: u64) {
        self.world.set_training(host, training_ms);
        self.world.train_anew(host);
    }

    /// Sets how long a checkpoint takes to arrive at a host; an update takes an eighth, an
    /// answer an eighth of that.
    pub fn load_in(&mut self, host: usize, loading_ms: u64) {
        self.world.set_loading(host, loading_ms);
    }

    /// Fills the disk of a host: it takes records, and no update and no checkpoint any more.
    pub fn fill_disk(&mut self, host: usize) {
        self.world.set_full(host, true);
    }

    /// Makes room on the disk of a host.
    pub fn clear_disk(&mut self, host: usize) {
        self.world.set_full(host, false);
    }

    /// Sets how long a flush takes on a host: none, until told.
    pub fn flush_in(&mut self, host: usize, flush_ms: u64) {
        self.world.set_flushing(host, flush_ms);
    }

    /// Plays until `done`, at most for `limit_ms`; whether it came to that.
    ///
    /// # Errors
    /// An invariant that broke.
    pub fn until(
        &mut self,
        limit_ms: u64,
        mut done: impl FnMut(&mut Self) -> bool,
    ) -> Result<bool, Violation> {
        let end_ms = self.world.now_ms + limit_ms;
        while !done(self) {
            self.world.moments.clear();
            if !self.world.step(end_ms)? {
                return Ok(done(self));
            }
        }
        Ok(true)
    }

    /// Plays for so long.
    ///
    /// # Errors
    /// An invariant that broke.
    pub fn play(&mut self, length_ms: u64) -> Result<(), Violation> {
        self.until(length_ms, |_| false).map(|_| ())
    }

    /// Virtual time in milliseconds.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        self.world.now_ms
    }

    /// The head of a host's process; `None` where none runs.
    #[must_use]
    pub fn head(&self, host: usize) -> Option<Head> {
        self.world.head(host)
    }

    /// The epoch of a host's head; 0 where no process runs.
    #[must_use]
    pub fn epoch(&self, host: usize) -> u64 {
        self.head(host).map_or(0, |head| head.epoch)
    }

    /// Where a host stands in its open epoch; `None` where no process runs.
    #[must_use]
    pub fn phase(&self, host: usize) -> Option<(Phase, u32)> {
        self.world.phase(host)
    }

    /// Whether these hosts have one and the same head.
    #[must_use]
    pub fn same(&self, hosts: &[usize]) -> bool {
        hosts.windows(2).all(|pair| self.head(pair[0]) == self.head(pair[1]))
    }

    /// The host that a peer is.
    #[must_use]
    pub fn host(&self, peer: &PeerId) -> Option<usize> {
        self.world.host(peer)
    }

    /// The peer that a host is.
    #[must_use]
    pub fn name(&self, host: usize) -> PeerId {
        self.world.name(host)
    }

    /// What a host's processes have told so far.
    pub fn told(&self, host: usize) -> impl Iterator<Item = &Event> {
        let told = self.world.told.iter().flatten();
        told.filter(move |(who, _)| *who == host).map(|(_, event)| event)
    }

    /// What a host's processes committed as that epoch, last.
    #[must_use]
    pub fn commit(&self, host: usize, epoch: u64) -> Option<&Committed> {
        let commits = self.told(host).filter_map(|event| match event {
            Event::Committed(committed) => Some(committed.as_ref()),
            _ => None,
        });
        commits.filter(|committed| committed.head.epoch == epoch).last()
    }

    /// The hosts that vote in a host's open series, in the order in which it names them.
    #[must_use]
    pub fn voters(&self, host: usize) -> Vec<usize> {
        let voters = self.world.voters(host).iter();
        voters.filter_map(|voter| self.world.host(&voter.peer)).collect()
    }

    /// The counts so far.
    #[must_use]
    pub fn report(&self) -> &Report {
        &self.world.report
    }
}
