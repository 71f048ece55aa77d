//! Named scenes: single stories that the rules of `docs/PROTOCOL.md` must bring to a good end, each
//! played message by message over the real machine. S1–S7 are checked at each step; a scene also
//! asserts that it came to the situation it is named for, and what the rules say comes out.
//!
//! Hosts are named by their order among the voters: `a` is the first voter. Those scenes whose rule
//! can be turned off are played without it as well, and must then break an invariant.
#![expect(clippy::unwrap_used, reason = "a test helper is a test too")]

mod attested;
mod ordinary;
mod stalls;
mod votes;
mod regroups;
mod heads;
mod durable;
mod joins;
mod strangers;
mod hostile;
mod minted;
mod repair;
mod reach;
mod invited;
mod evening;
mod liars;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use intellect_protocol::base::id::{Digest, PeerId};
use intellect_protocol::base::rule::Rule;
use intellect_protocol::consensus::sync::LINKS_KEPT;
use intellect_protocol::machine::event::{Committed, Event, Reason};
use intellect_protocol::message::{Done, Message};
use intellect_protocol_sim::check::Violation;
use intellect_protocol_sim::network::Fate;
use intellect_protocol_sim::report::Count;
use intellect_protocol_sim::rings::Sends;
use intellect_protocol_sim::world::World;

type Played = Result<(), Violation>;

/// The run's `minority_grace`.
const GRACE_MS: u64 = 8_000;
/// Long enough for any scene to end.
const END_MS: u64 = 120_000;

thread_local! {
    /// A rule that is off in every scene of this thread.
    static OFF: Cell<Option<Rule>> = const { Cell::new(None) };
}

/// A world, without a rule.
fn scene(hosts: usize, founders: usize, without: Option<Rule>) -> World {
    World::scene(hosts, founders, without.or_else(|| OFF.get()))
}

/// A scene notices that a rule is off: an invariant breaks, or what it asserts does not hold.
fn missed(rule: Rule, play: fn() -> Played) {
    OFF.set(Some(rule));
    let played = std::panic::catch_unwind(play);
    OFF.set(None);
    assert!(!matches!(played, Ok(Ok(()))), "the scene holds without {rule:?}");
}

/// `count` peers that have founded the run and committed epoch 1, as they are asked to vote on epoch
/// 2; on the stage are so many `spare` hosts more.
fn founded(
    count: usize,
    spare: usize,
    without: Option<Rule>,
) -> Result<(World, Vec<usize>), Violation> {
    found(scene(count + spare, 0, without), count)
}

/// The first `count` hosts found a run and commit epoch 1; they are returned in their order as voters.
fn found(mut stage: World, count: usize) -> Result<(World, Vec<usize>), Violation> {
    let hosts: Vec<usize> = (0..count).collect();
    stage.start(&hosts);
    assert!(stage.until(END_MS, |stage| all_at(stage, &hosts, 1))?);
    let order = stage.voters(0);
    assert_eq!(order.len(), count, "everyone founds");
    Ok((stage, order))
}

fn all_at(stage: &World, hosts: &[usize], epoch: u64) -> bool {
    hosts.iter().all(|host| stage.epoch(*host) >= epoch)
}

/// Plays until all `hosts` have committed `epoch`.
fn reach(stage: &mut World, hosts: &[usize], epoch: u64) -> Played {
    let there = stage.until(END_MS, |stage| all_at(stage, hosts, epoch))?;
    let heads: Vec<_> = hosts.iter().map(|host| stage.head(*host)).collect();
    assert!(there, "not at epoch {epoch}: {heads:?}");
    Ok(())
}

/// What a host committed as that epoch.
fn commit(stage: &World, host: usize, epoch: u64) -> Committed {
    stage.commit(host, epoch).cloned().unwrap()
}

/// The weight of a host in what `committed` sums up; `None` if it is no member.
fn weight(stage: &World, committed: &Committed, host: usize) -> Option<u64> {
    let members = committed.receipt.members.iter();
    members.filter(|m| m.peer == stage.name(host)).map(|m| m.weight).next()
}

/// The rosters of an epoch that a host accepted: attempt, and the value adopted.
fn accepted(stage: &World, host: usize, of: u64) -> Vec<(u64, Option<Digest>)> {
    let rosters = stage.told(host).filter_map(|event| match event {
        Event::Roster { epoch, attempt, adopt, .. } if *epoch == of => Some((*attempt, *adopt)),
        _ => None,
    });
    rosters.collect()
}

/// The Regroups that a host entered, but its founding: members and absent, as hosts.
fn regroups(stage: &World, host: usize) -> Vec<(Vec<usize>, Vec<usize>)> {
    let hosts = |peers: &[PeerId]| -> Vec<usize> {
        let mut hosts: Vec<_> = peers.iter().map(|peer| stage.host(peer).unwrap()).collect();
        hosts.sort_unstable();
        hosts
    };
    let entered = stage.told(host).filter_map(|event| match event {
        Event::Regroup { epoch, members, absent, .. } if *epoch > 1 => {
            Some((hosts(members), hosts(absent)))
        }
        _ => None,
    });
    entered.collect()
}

/// Epochs undone by each fork that a host told of.
fn forks(stage: &World, host: usize) -> Vec<u64> {
    let undone = stage.told(host).filter_map(|event| match event {
        Event::Fork { undone, .. } => Some(*undone),
        _ => None,
    });
    undone.collect()
}

fn told(stage: &World, host: usize, what: impl Fn(&Event) -> bool) -> bool {
    stage.told(host).any(what)
}

fn sorted(hosts: &[usize]) -> Vec<usize> {
    let mut hosts = hosts.to_vec();
    hosts.sort_unstable();
    hosts
}

fn done(message: &Message) -> Option<&Done> {
    match message {
        Message::Done(done) => Some(done),
        _ => None,
    }
}

fn epoch_of(message: &Message) -> u64 {
    message.series().map_or(0, |series| series.epoch)
}

/// What a director has seen, for the scene to read: shared with the closure that directs.
type Noted<T> = Rc<RefCell<T>>;

/// The last update that each host voted for.
type Votes = Noted<BTreeMap<usize, Digest>>;

/// Drops every Regroup and Join, and notes who is the first to join one.
fn hide_joins(stage: &mut World) -> Noted<Option<usize>> {
    let joined: Noted<Option<usize>> = Rc::default();
    let noted = joined.clone();
    stage.direct(move |from, _, message| match message {
        Message::Join(_) => {
            noted.borrow_mut().get_or_insert(from);
            Fate::Drop
        }
        Message::Regroup(_) => Fate::Drop,
        _ => Fate::Deliver,
    });
    joined
}

fn counter() -> Rc<Cell<u32>> {
    Rc::new(Cell::new(0))
}

fn count(counter: &Cell<u32>) {
    counter.set(counter.get() + 1);
}
