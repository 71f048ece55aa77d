//! Which faults strike a seed, when, and which peers.
//!
//! A fault is aimed: it strikes once some peer reaches a certain moment of a certain epoch,
//! or a little later, and often that very peer. So short moments (a roster sent to one peer,
//! the first Done) are hit as often as long ones. A fault that lasts has an end, and all ends
//! lie before the world is healed.
//!
//! `plan` draws what strikes, before the run begins. The director waits for the moments, puts what
//! it has to do into an agenda, and does it when it is due. Its source of chance is its own.

mod plan;

use std::collections::BTreeMap;

use plan::{Kind, Links, Planned, Trouble};

use super::Faults;
use super::disk::{Damage, Kept, PlannedCrash};
use super::report::Moment;
use super::world::World;
use intellect_protocol::base::rng::Rng;

/// A fault whose moment does not come strikes anyway after this long, in milliseconds.
const PATIENCE_MS: u64 = 40_000;

/// Something that is done to the world at a planned time. Hosts are named by their indices.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// Starts the first process of a host.
    Start(usize),
    /// Asks a process to leave, as Ctrl-C does.
    Leave(usize),
    /// Ends a process at once, as a power cut does.
    Kill(usize),
    /// Lets the fault with the index `planned` strike. `target` is the host that has reached its
    /// moment, and is struck if the fault is aimed.
    Strike { planned: usize, target: usize },
    /// Starts a host again, whose disk is damaged first. Without effect while a process runs there.
    Restart(usize, Damage),
    /// Loses the log of votes again, after it was lost once.
    LoseAgain(usize),
    /// Cancels the planned crash, which has found nothing to strike.
    Spare,
    /// Lets a stopped process go on.
    Resume(usize),
    /// Cuts one side of a partition in two.
    Nest,
    /// Lets the hosts on every side above 1 rejoin those on side 0. Side 1 stays cut off.
    Meet,
    /// Ends the partition: all hosts are on one side again.
    Join,
    /// Ends a host's slowness and deafness.
    Calm(usize),
    /// Repairs the link from one host to another, in this direction.
    Mend(usize, usize),
    /// Restores the direct connection of two hosts.
    Link(usize, usize),
}

/// Carries out a plan of faults.
#[derive(Clone, Debug)]
pub(super) struct Director {
    /// The faults of the seed, in the order in which they were drawn. None is ever removed.
    planned: Vec<Planned>,
    /// What is to be done, by its time in virtual milliseconds and its number.
    agenda: BTreeMap<(u64, usize), Act>,
    /// Acts so far, which orders those of one time.
    number: usize,
    /// When a fault was last armed, in virtual milliseconds.
    last_ms: u64,
    /// What the planned crash does to the disk.
    damage: Damage,
    /// Its own source of chance: what it draws moves neither network nor training.
    rng: Rng,
}

impl Director {
    /// Plans the faults of a seed, and the starts of its first `peers` hosts.
    pub(super) fn new(faults: Faults, seed: u64, peers: usize) -> Self {
        let mut rng = Rng::new(seed ^ 0x6661_756c_7473);
        let count = match faults {
            Faults::Clean => 0,
            Faults::Evening => 1,
            _ => 3 + rng.below(4),
        };
        let planned = (0..count).filter_map(|_| Planned::draw(faults, &mut rng)).collect();
        let (agenda, damage) = (BTreeMap::new(), Damage::None);
        let mut director = Self { planned, agenda, number: 0, last_ms: 0, damage, rng };
        for host in 0..peers {
            let at_ms = director.rng.below(1_500);
            director.put(at_ms, Act::Start(host));
        }
        director
    }

    /// When the next planned act is due, in virtual milliseconds; `None` if nothing is planned.
    pub(super) fn next_ms(&self) -> Option<u64> {
        self.agenda.first_key_value().map(|((at_ms, _), _)| *at_ms)
    }

    /// Whether every fault has struck and ended.
    pub(super) fn is_done(&self) -> bool {
        self.agenda.is_empty() && self.planned.iter().all(|planned| planned.armed)
    }

    /// Looks at what hosts have just done, and carries out what is due. It is called after each
    /// step of the world. After a long quiet the next fault strikes whatever the peers do, so that
    /// a run that does not move meets its faults too.
    pub(super) fn direct(&mut self, world: &mut World) {
        for (host, epoch, moment) in std::mem::take(&mut world.moments) {
            self.arm(world.now_ms, host, epoch, moment);
        }
        let quiet = world.now_ms.saturating_sub(self.last_ms) > PATIENCE_MS;
        let unarmed = self.planned.iter().position(|planned| !planned.armed);
        if quiet
            && let Some(index) = unarmed
            && let Some(host) = world.running().first()
        {
            self.strike_after(world.now_ms, index, *host);
        }
        for host in world.crashed() {
            self.restart_later(world.now_ms, host, self.damage);
        }
        while let Some(entry) = self.agenda.first_entry() {
            if entry.key().0 > world.now_ms {
                break;
            }
            let act = entry.remove();
            self.act(world, act);
        }
    }

    /// Starts the planned faults that wait for this moment. One whose epoch is past strikes all the
    /// same, so that every seed has its faults.
    fn arm(&mut self, now_ms: u64, host: usize, epoch: u64, moment: Moment) {
        for index in 0..self.planned.len() {
            let planned = &mut self.planned[index];
            let late = epoch > planned.epoch + 1;
            if planned.armed || !(late || (planned.epoch, planned.moment) == (epoch, moment)) {
                continue;
            }
            if planned.skip > 0 && !late {
                planned.skip -= 1;
                continue;
            }
            self.strike_after(now_ms, index, host);
        }
    }

    /// Has a planned fault strike after its delay.
    fn strike_after(&mut self, now_ms: u64, index: usize, target: usize) {
        self.planned[index].armed = true;
        self.last_ms = now_ms;
        self.put(now_ms + self.planned[index].delay_ms, Act::Strike { planned: index, target });
    }

    /// Plans an act; acts at the same time happen in the order of planning.
    fn put(&mut self, at_ms: u64, act: Act) {
        self.number += 1;
        self.agenda.insert((at_ms, self.number), act);
    }

    /// Carries out what is due now.
    fn act(&mut self, world: &mut World, act: Act) {
        match act {
            Act::Start(host) => world.boot(host),
            Act::Leave(host) => world.leave(host),
            Act::Kill(host) => world.stop(host),
            Act::Strike { planned, target } => {
                let planned = self.planned[planned];
                *world.report.faults.entry(planned.moment).or_default() += 1;
                let target = if planned.aimed { target } else { self.anyone(world) };
                self.strike(world, planned.kind, target);
            }
            Act::Restart(host, damage) => restart(world, host, damage),
            Act::LoseAgain(host) => {
                world.stop(host);
                restart(world, host, Damage::Votes);
            }
            Act::Spare => world.plan_crash(None),
            Act::Resume(host) => world.resume(host),
            Act::Nest => {
                let inner: Vec<usize> =
                    world.running().into_iter().filter(|h| world.network.side[*h] == 1).collect();
                world.cut(&self.some(&inner, inner.len() / 2), NESTED);
            }
            Act::Meet => {
                let apart = world.network.side.iter_mut().filter(|side| **side > 1);
                apart.for_each(|side| *side = 0);
            }
            Act::Join => world.network.side.fill(0),
            Act::Link(a, b) => world.link(a, b),
            Act::Calm(host) => {
                world.network.slow_ms[host] = 0;
                world.network.deaf[host] = 0.0;
            }
            Act::Mend(from, to) => {
                world.network.broken.remove(&(from, to));
                world.network.swallows.remove(&(from, to));
            }
        }
    }

    /// Does the damage of one fault, and plans the act that ends it.
    fn strike(&mut self, world: &mut World, kind: Kind, target: usize) {
        let running = world.running();
        let now_ms = world.now_ms;
        let end_ms = |length_ms: u64| now_ms + length_ms;
        match kind {
            // The last two stay: with no peer left nothing can be checked.
            Kind::Kill if running.len() > 2 => world.stop(target),
            Kind::Leave if running.len() > 2 => world.leave(target),
            Kind::Kill | Kind::Leave => {}
            Kind::Restart(damage) => {
                world.stop(target);
                self.restart_later(now_ms, target, damage);
            }
            Kind::LoseTwice => {
                world.stop(target);
                self.put(end_ms(300), Act::Restart(target, Damage::Votes));
                let length_ms = 400 + self.rng.below(3_000);
                self.put(end_ms(length_ms), Act::LoseAgain(target));
            }
            Kind::Crash(damage) => {
                let points = self.rng.below(CRASH_POINTS);
                let [votes, receipts, files] =
                    [(); 3].map(|()| usize::try_from(self.rng.below(4)).unwrap_or(0));
                let kept = Kept { votes, receipts, files };
                self.damage = damage;
                world.plan_crash(Some(PlannedCrash { host: target, points, kept }));
                self.put(end_ms(CRASH_PATIENCE_MS), Act::Spare);
            }
            Kind::Start => {
                let idle = (0..world.network.side.len()).find(|host| !running.contains(host));
                if let Some(host) = idle {
                    world.boot(host);
                }
            }
            Kind::Half | Kind::HalfBack => {
                let half = self.some(&running, running.len() / 2);
                half.iter().for_each(|host| world.stop(*host));
                let back = if matches!(kind, Kind::HalfBack) { half.len() / 2 } else { 0 };
                for host in half.iter().take(back) {
                    self.restart_later(now_ms, *host, Damage::None);
                }
            }
            Kind::All => {
                running.iter().for_each(|host| world.stop(*host));
                for host in running {
                    self.restart_later(now_ms, host, Damage::None);
                }
            }
            Kind::Evening => self.evening(world, &running),
            Kind::Pause(length_ms) => {
                world.pause(target);
                self.put(end_ms(length_ms), Act::Resume(target));
            }
            Kind::Leap(length_ms) => world.leap(target, length_ms),
            Kind::Disturb(trouble, length_ms) => self.disturb(world, trouble, target, length_ms),
        }
    }

    /// All peers leave one after the other, or are killed, until none runs; then all
    /// come back, in another order.
    fn evening(&mut self, world: &mut World, running: &[usize]) {
        let gap_ms = *self.rng.pick(&[100, 3_000, 15_000]).unwrap_or(&100);
        let back_ms = *self.rng.pick(&[500, 5_000, 25_000]).unwrap_or(&500);
        let some_die = self.rng.chance(0.25);
        let mut at_ms = world.now_ms;
        for host in self.some(running, running.len()) {
            at_ms += self.rng.below(gap_ms);
            let dies = some_die && self.rng.chance(0.5);
            self.put(at_ms, if dies { Act::Kill(host) } else { Act::Leave(host) });
        }
        at_ms += NIGHT_MS;
        let first_ms = at_ms;
        for host in self.some(running, running.len()) {
            at_ms += self.rng.below(back_ms);
            self.put(at_ms, Act::Restart(host, Damage::None));
        }
        // The first peer back waits this long for the others, and then
        // goes on without them (R20, R29).
        let waits_ms = if some_die { DEAD_WAITS_MS } else { GOODBYE_WAITS_MS };
        if at_ms - first_ms < waits_ms {
            world.keep_together();
        }
    }

    /// Disturbs the network; the disturbance ends after `length_ms`.
    fn disturb(&mut self, world: &mut World, trouble: Trouble, target: usize, length_ms: u64) {
        let running = world.running();
        let others: Vec<usize> = running.iter().copied().filter(|host| *host != target).collect();
        let (now_ms, end_ms) = (world.now_ms, world.now_ms + length_ms);
        match trouble {
            Trouble::Split { sides, nested, met } => {
                for side in 1..sides {
                    let count = 1 + self.rng.below(running.len() as u64 / sides + 1);
                    let count = usize::try_from(count).unwrap_or(1);
                    world.cut(&self.some(&running, count), u32::try_from(side).unwrap_or(1));
                }
                if nested {
                    self.put(now_ms + length_ms / 2, Act::Nest);
                }
                if met {
                    self.put(now_ms + length_ms * 3 / 4, Act::Meet);
                }
                self.put(end_ms, Act::Join);
            }
            Trouble::Swallow(links) => {
                for (from, to) in self.links(&others, target, links) {
                    world.swallow(from, to);
                    self.put(end_ms, Act::Mend(from, to));
                }
            }
            Trouble::Slow => {
                world.network.slow_ms[target] = 200 + self.rng.below(1_500);
                self.put(end_ms, Act::Calm(target));
            }
            Trouble::Unlink => {
                let joined = others.into_iter().filter(|host| world.network.joins(*host, target));
                let joined: Vec<usize> = joined.collect();
                for other in self.some(&joined, joined.len() / 2) {
                    world.unlink(target, other);
                    self.put(end_ms, Act::Link(target, other));
                }
            }
            Trouble::Deaf => {
                world.network.deaf[target] = 0.7;
                self.put(end_ms, Act::Calm(target));
            }
            Trouble::OneWay => {
                for other in self.some(&others, running.len() / 2) {
                    world.break_link(target, other);
                    self.put(end_ms, Act::Mend(target, other));
                }
            }
        }
    }

    /// Starts a stopped host again within six seconds or so.
    fn restart_later(&mut self, now_ms: u64, host: usize, damage: Damage) {
        let length_ms = 200 + self.rng.below(6_000);
        self.put(now_ms + length_ms, Act::Restart(host, damage));
    }

    /// The directed links of `target` that turn into a black hole, as (from, to).
    fn links(&mut self, others: &[usize], target: usize, links: Links) -> Vec<(usize, usize)> {
        let (count, inward, outward) = match links {
            Links::One => (1, false, true),
            Links::Half => (others.len() / 2, true, true),
            Links::In => (others.len(), true, false),
            Links::Out => (others.len(), false, true),
            Links::All => (others.len(), true, true),
        };
        let others = self.some(others, count);
        let inward = if inward { others.as_slice() } else { &[] };
        let outward = if outward { others.as_slice() } else { &[] };
        let inward = inward.iter().map(|host| (*host, target));
        inward.chain(outward.iter().map(|host| (target, *host))).collect()
    }

    /// A running host, drawn at random.
    fn anyone(&mut self, world: &World) -> usize {
        self.rng.pick(&world.running()).copied().unwrap_or(0)
    }

    /// `count` of `hosts`, drawn at random and in random order. It draws once for each of `hosts`,
    /// whatever `count` is.
    fn some(&mut self, hosts: &[usize], count: usize) -> Vec<usize> {
        let mut drawn: Vec<(u64, usize)> =
            hosts.iter().map(|host| (self.rng.next_u64(), *host)).collect();
        drawn.sort_unstable();
        drawn.into_iter().take(count).map(|(_, host)| host).collect()
    }
}

/// Starts a process again that has ended, from what is left of its disk.
fn restart(world: &mut World, host: usize, damage: Damage) {
    if !world.running().contains(&host) {
        world.damage(host, damage);
        world.boot(host);
    }
}

/// How long no process runs, in milliseconds: longer than any peer takes to leave.
const NIGHT_MS: u64 = 8_000;
/// How long, in milliseconds, a peer that is back waits for peers that died with it; a little less
/// than the `minority_grace` that the rules say (R20).
const DEAD_WAITS_MS: u64 = 7_000;
/// The same for peers that said goodbye, for which the rules say a minute (R20).
const GOODBYE_WAITS_MS: u64 = 58_000;
/// A crash strikes at one of this many points at which something could be
/// lost: those of a vote or two.
const CRASH_POINTS: u64 = 12;
/// A crash that has not struck within this time, in milliseconds, is cancelled.
const CRASH_PATIENCE_MS: u64 = 5_000;
/// The side of hosts that are cut off from the others of their side.
const NESTED: u32 = 9;
