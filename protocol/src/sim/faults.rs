//! Which faults strike a seed, when, and whom.
//!
//! A fault is aimed: it strikes once some peer reaches a certain moment of a certain epoch, a little
//! later, often that very peer. So the narrow moments (a roster sent to one peer, the first Done)
//! are hit as often as the wide ones. A fault that lasts has an end, and all ends lie before the
//! world is healed.

use std::collections::BTreeMap;

use super::Faults;
use super::report::Moment;
use super::world::World;
use crate::rng::Rng;

/// Epochs in which faults strike; the first one founds the run.
const FIRST_EPOCH: u64 = 2;
const EPOCHS: u64 = 5;
/// A fault whose moment does not come strikes anyway after this long, in milliseconds.
const PATIENCE_MS: u64 = 40_000;

/// Something that is done to the world.
#[derive(Clone, Copy, Debug)]
enum Act {
    Start(usize),
    Strike { planned: usize, target: usize },
    Resume(usize),
    Join,
    Calm(usize),
    Mend(usize, usize),
}

/// A kind of fault; times in milliseconds.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Kill,
    Restart,
    Start,
    Leave,
    Half,
    Pause(u64),
    Cut(u64),
    Slow(u64),
    Deaf(u64),
    OneWay(u64),
}

#[derive(Clone, Copy, Debug)]
struct Planned {
    kind: Kind,
    epoch: u64,
    moment: Moment,
    /// How many such moments pass before.
    skip: u64,
    delay_ms: u64,
    /// Whether it strikes the peer whose moment it was.
    aimed: bool,
    armed: bool,
}

/// Carries a plan of faults out.
#[derive(Clone, Debug)]
pub(super) struct Director {
    planned: Vec<Planned>,
    agenda: BTreeMap<(u64, usize), Act>,
    number: usize,
    last_ms: u64,
    rng: Rng,
}

impl Director {
    /// Plans the faults of a seed, and the starts of its first `peers` hosts.
    pub(super) fn new(faults: Faults, seed: u64, peers: usize) -> Self {
        let mut rng = Rng::new(seed ^ 0x6661_756c_7473);
        let count = if faults == Faults::Clean { 0 } else { 3 + rng.below(4) };
        let planned = (0..count).filter_map(|_| Planned::draw(faults, &mut rng)).collect();
        let mut director = Self { planned, agenda: BTreeMap::new(), number: 0, last_ms: 0, rng };
        for host in 0..peers {
            let at_ms = director.rng.below(1_500);
            director.put(at_ms, Act::Start(host));
        }
        director
    }

    /// When the next act is due.
    pub(super) fn next_ms(&self) -> Option<u64> {
        self.agenda.first_key_value().map(|((at_ms, _), _)| *at_ms)
    }

    /// Whether every fault has struck and ended.
    pub(super) fn is_done(&self) -> bool {
        self.agenda.is_empty() && self.planned.iter().all(|planned| planned.armed)
    }

    /// Looks at what hosts have just done, and does what is due.
    pub(super) fn direct(&mut self, world: &mut World) {
        for (host, epoch, moment) in std::mem::take(&mut world.moments) {
            self.arm(world.now_ms, host, epoch, moment);
        }
        let quiet = world.now_ms.saturating_sub(self.last_ms) > PATIENCE_MS;
        let unarmed = self.planned.iter().position(|planned| !planned.armed);
        if let (true, Some(index), Some(host)) = (quiet, unarmed, world.running().first()) {
            self.strike_after(world.now_ms, index, *host);
        }
        while let Some(entry) = self.agenda.first_entry() {
            if entry.key().0 > world.now_ms {
                break;
            }
            let act = entry.remove();
            self.act(world, act);
        }
    }

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

    fn strike_after(&mut self, now_ms: u64, index: usize, target: usize) {
        self.planned[index].armed = true;
        self.last_ms = now_ms;
        self.put(now_ms + self.planned[index].delay_ms, Act::Strike { planned: index, target });
    }

    fn put(&mut self, at_ms: u64, act: Act) {
        self.number += 1;
        self.agenda.insert((at_ms, self.number), act);
    }

    fn act(&mut self, world: &mut World, act: Act) {
        match act {
            Act::Start(host) => world.start(host),
            Act::Strike { planned, target } => {
                let planned = self.planned[planned];
                *world.report.faults.entry(planned.moment).or_default() += 1;
                let target = if planned.aimed { target } else { self.anyone(world) };
                self.strike(world, planned.kind, target);
            }
            Act::Resume(host) => world.resume(host),
            Act::Join => world.network.side.fill(0),
            Act::Calm(host) => {
                world.network.slow_ms[host] = 0;
                world.network.deaf[host] = 0.0;
            }
            Act::Mend(from, to) => {
                world.network.broken.remove(&(from, to));
            }
        }
    }

    fn strike(&mut self, world: &mut World, kind: Kind, target: usize) {
        let running = world.running();
        let now_ms = world.now_ms;
        let end_ms = |length_ms: u64| now_ms + length_ms;
        match kind {
            // The last two stay: with nobody left there is nothing to see.
            Kind::Kill if running.len() > 2 => world.stop(target),
            Kind::Leave if running.len() > 2 => world.leave(target),
            Kind::Kill | Kind::Leave => {}
            Kind::Restart => {
                world.stop(target);
                let length_ms = 200 + self.rng.below(6_000);
                self.put(end_ms(length_ms), Act::Start(target));
            }
            Kind::Start => {
                let idle = (0..world.network.side.len()).find(|host| !running.contains(host));
                idle.into_iter().for_each(|host| world.start(host));
            }
            Kind::Half => {
                let half = self.some(&running, running.len() / 2);
                half.iter().for_each(|host| world.stop(*host));
            }
            Kind::Pause(length_ms) => {
                world.pause(target);
                self.put(end_ms(length_ms), Act::Resume(target));
            }
            Kind::Cut(length_ms) => {
                let count = 1 + self.rng.below(running.len() as u64 / 2 + 1);
                let count = usize::try_from(count).unwrap_or(1);
                world.cut(&self.some(&running, count), 1);
                self.put(end_ms(length_ms), Act::Join);
            }
            Kind::Slow(length_ms) => {
                world.network.slow_ms[target] = 200 + self.rng.below(1_500);
                self.put(end_ms(length_ms), Act::Calm(target));
            }
            Kind::Deaf(length_ms) => {
                world.network.deaf[target] = 0.7;
                self.put(end_ms(length_ms), Act::Calm(target));
            }
            Kind::OneWay(length_ms) => {
                for other in self.some(&running, running.len() / 2) {
                    world.break_link(target, other);
                    self.put(end_ms(length_ms), Act::Mend(target, other));
                }
            }
        }
    }

    fn anyone(&mut self, world: &World) -> usize {
        self.rng.pick(&world.running()).copied().unwrap_or(0)
    }

    /// `count` of `hosts`.
    fn some(&mut self, hosts: &[usize], count: usize) -> Vec<usize> {
        let mut drawn: Vec<(u64, usize)> =
            hosts.iter().map(|host| (self.rng.next_u64(), *host)).collect();
        drawn.sort_unstable();
        drawn.into_iter().take(count).map(|(_, host)| host).collect()
    }
}

impl Planned {
    fn draw(faults: Faults, rng: &mut Rng) -> Option<Self> {
        let kind = match faults {
            Faults::Clean => return None,
            Faults::Lossy => match rng.below(3) {
                0 => Kind::Slow(1_000 + rng.below(4_000)),
                1 => Kind::Deaf(1_000 + rng.below(4_000)),
                _ => Kind::OneWay(1_000 + rng.below(8_000)),
            },
            Faults::Churn => match rng.below(10) {
                0 | 1 => Kind::Kill,
                2 => Kind::Restart,
                3 => Kind::Start,
                4 => Kind::Leave,
                5 => Kind::Half,
                6 | 7 => Kind::Pause(500 + rng.below(12_000)),
                _ => Kind::Cut(5_000 + rng.below(15_000)),
            },
        };
        let epoch = FIRST_EPOCH + rng.below(EPOCHS);
        if rng.chance(0.3) {
            // The first vote of an epoch, and its author: what must be adopted, and may be forgotten.
            let (moment, skip, delay_ms) = (Moment::Finished, 0, 0);
            return Some(Self { kind, epoch, moment, skip, delay_ms, aimed: true, armed: false });
        }
        Some(Self {
            kind,
            epoch,
            moment: *rng.pick(&Moment::REGULAR)?,
            skip: if rng.chance(0.5) { 0 } else { rng.below(8) },
            delay_ms: if rng.chance(0.5) { 0 } else { rng.below(300) },
            aimed: rng.chance(0.5),
            armed: false,
        })
    }
}
