//! Named scenes: single stories that the rules of `docs/PROTOCOL.md` must bring to a good
//! end, each played message by message with the real machines. The invariants are checked at
//! each step. A scene also asserts that it reached the situation it is named for, and the
//! outcome that the rules require. It ends by [`ends`], and names what its hosts do or wait for then.
//!
//! Hosts are named by their order among the voters: `a` is the first voter. A scene whose rule can
//! be switched off is also played without it, and must then break an invariant.
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
mod reasons;
mod waits;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use intellect_protocol::base::id::{Digest, PeerId};
use intellect_protocol::base::rule::Rule;
use intellect_protocol::consensus::sync::LINKS_KEPT;
use intellect_protocol::machine::event::{Committed, Event, Reason};
use intellect_protocol::machine::wait::Wait;
use intellect_protocol::message::{Done, Message, Phase};
use intellect_protocol_sim::check::Violation;
use intellect_protocol_sim::network::Fate;
use intellect_protocol_sim::report::Count;
use intellect_protocol_sim::rings::Sends;
use intellect_protocol_sim::world::World;

use End::{
    Accepts, Alone, Applies, Behind, Founders, LeftOut, PassedOver, Ring, Training, Trains, Update,
    Voters,
};

type Played = Result<(), Violation>;

/// What a host does at the end of a scene: the kind of its [`Wait`], or its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Trains,
    Applies,
    Founders,
    Alone,
    Voters,
    Behind,
    PassedOver,
    Joins,
    Training,
    Roster,
    LeftOut,
    Accepts,
    Ring,
    Votes,
    Update,
}

impl End {
    fn of(phase: Phase, wait: Option<&Wait>) -> Self {
        match wait {
            None if phase == Phase::Finished => Self::Applies,
            None => {
                assert_eq!(phase, Phase::Train, "it stands still for no reason");
                Self::Trains
            }
            Some(Wait::Founders { .. }) => Self::Founders,
            Some(Wait::Alone { .. }) => Self::Alone,
            Some(Wait::Voters { .. }) => Self::Voters,
            Some(Wait::Behind) => Self::Behind,
            Some(Wait::PassedOver) => Self::PassedOver,
            Some(Wait::Joins(_)) => Self::Joins,
            Some(Wait::Training(_)) => Self::Training,
            Some(Wait::Roster { .. }) => Self::Roster,
            Some(Wait::LeftOut { .. }) => Self::LeftOut,
            Some(Wait::Accepts(_)) => Self::Accepts,
            Some(Wait::Ring { .. }) => Self::Ring,
            Some(Wait::Votes(_)) => Self::Votes,
            Some(Wait::Update) => Self::Update,
        }
    }
}

/// Ends a scene: each host does one of these or waits for it, and each of these is what one does.
fn ends(world: World, expected: &[End]) -> Played {
    ended(world, expected, |found, expected| found == expected)
}

/// Ends a scene amid a race: each host does one of these or waits for it.
fn ends_amid(world: World, expected: &[End]) -> Played {
    ended(world, expected, BTreeSet::is_subset)
}

fn ended(
    world: World,
    expected: &[End],
    fits: impl Fn(&BTreeSet<End>, &BTreeSet<End>) -> bool,
) -> Played {
    let stands = world.finish();
    let found = stands.iter().map(|(_, phase, wait)| End::of(*phase, wait.as_ref())).collect();
    if fits(&found, &expected.iter().copied().collect()) {
        return Ok(());
    }
    let what = format!("it ends with {stands:?}, and not as {expected:?}");
    Err(Violation { invariant: "end", what })
}

#[test]
fn an_end_that_is_named_wrong_is_a_violation() -> Played {
    let played = |expected: &[End], amid: bool| {
        let (world, _) = founded(2, 0, None)?;
        if amid { ends_amid(world, expected) } else { ends(world, expected) }
    };
    let is_wrong = |played: Played| played.is_err_and(|broken| broken.invariant == "end");
    played(&[Trains], false)?;
    played(&[Trains, Ring], true)?;
    assert!(is_wrong(played(&[Ring], false)) && is_wrong(played(&[Ring], true)));
    assert!(is_wrong(played(&[Trains, Ring], false)), "nobody waits for the ring");
    Ok(())
}

/// The run's `minority_grace` in milliseconds.
const GRACE_MS: u64 = 8_000;
/// Long enough for any scene to end, in milliseconds.
const END_MS: u64 = 120_000;

thread_local! {
    /// A rule that is off in every scene of this thread.
    static OFF: Cell<Option<Rule>> = const { Cell::new(None) };
}

/// A world without this rule, or without that of `OFF`.
fn scene(hosts: usize, founders: usize, without: Option<Rule>) -> World {
    World::scene(hosts, founders, without.or_else(|| OFF.get()))
}

/// Checks that a scene notices the absence of a rule: an invariant breaks, or an assertion fails.
fn missed(rule: Rule, play: fn() -> Played) {
    OFF.set(Some(rule));
    let played = std::panic::catch_unwind(play);
    OFF.set(None);
    assert!(!matches!(played, Ok(Ok(()))), "the scene holds without {rule:?}");
}

/// `count` peers that have founded the run and committed epoch 1 and are about to vote on
/// epoch 2, with `spare` more hosts.
fn founded(
    count: usize,
    spare: usize,
    without: Option<Rule>,
) -> Result<(World, Vec<usize>), Violation> {
    found(scene(count + spare, 0, without), count)
}

/// The first `count` hosts found a run and commit epoch 1. Returns them in their order as voters.
fn found(mut world: World, count: usize) -> Result<(World, Vec<usize>), Violation> {
    let hosts: Vec<usize> = (0..count).collect();
    world.start(&hosts);
    assert!(world.until(END_MS, |world| all_at(world, &hosts, 1))?);
    let order = world.voters(0);
    assert_eq!(order.len(), count, "everyone founds");
    Ok((world, order))
}

fn all_at(world: &World, hosts: &[usize], epoch: u64) -> bool {
    hosts.iter().all(|host| world.epoch(*host) >= epoch)
}

/// Plays until all `hosts` have committed `epoch`, and fails if they never do.
fn reach(world: &mut World, hosts: &[usize], epoch: u64) -> Played {
    let there = world.until(END_MS, |world| all_at(world, hosts, epoch))?;
    let heads: Vec<_> = hosts.iter().map(|host| world.head(*host)).collect();
    assert!(there, "not at epoch {epoch}: {heads:?}");
    Ok(())
}

/// The commit of this epoch at a host.
fn commit(world: &World, host: usize, epoch: u64) -> Committed {
    world.commit(host, epoch).cloned().unwrap()
}

/// The weight of a host in the sum of `committed`; `None` if it is no member.
fn weight(world: &World, committed: &Committed, host: usize) -> Option<u64> {
    let members = committed.receipt.members.iter();
    members.filter(|m| m.peer == world.name(host)).map(|m| m.weight).next()
}

/// The rosters of an epoch that a host accepted: attempt, and the value adopted.
fn accepted(world: &World, host: usize, of: u64) -> Vec<(u64, Option<Digest>)> {
    let rosters = world.events(host).filter_map(|event| match event {
        Event::Roster { epoch, attempt, adopt, .. } if *epoch == of => Some((*attempt, *adopt)),
        _ => None,
    });
    rosters.collect()
}

/// The Regroups that a host entered, without its founding: members and absent voters, as hosts.
fn regroups(world: &World, host: usize) -> Vec<(Vec<usize>, Vec<usize>)> {
    let hosts = |peers: &[PeerId]| -> Vec<usize> {
        let mut hosts: Vec<_> = peers.iter().map(|peer| world.host(peer).unwrap()).collect();
        hosts.sort_unstable();
        hosts
    };
    let entered = world.events(host).filter_map(|event| match event {
        Event::Regroup { epoch, members, absent, .. } if *epoch > 1 => {
            let absent: Vec<PeerId> = absent.iter().map(|(peer, _)| *peer).collect();
            Some((hosts(members), hosts(&absent)))
        }
        _ => None,
    });
    entered.collect()
}

/// The number of epochs undone by each fork that a host reported.
fn forks(world: &World, host: usize) -> Vec<u64> {
    let undone = world.events(host).filter_map(|event| match event {
        Event::Fork { undone, .. } => Some(*undone),
        _ => None,
    });
    undone.collect()
}

fn reported(world: &World, host: usize, what: impl Fn(&Event) -> bool) -> bool {
    world.events(host).any(what)
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

/// What a filter has seen, shared with the scene that reads it.
type Noted<T> = Rc<RefCell<T>>;

/// The last update for which each host voted.
type Votes = Noted<BTreeMap<usize, Digest>>;

/// Drops every Regroup and Join, and records the first host that joins one.
fn hide_joins(world: &mut World) -> Noted<Option<usize>> {
    let joined: Noted<Option<usize>> = Rc::default();
    let noted = joined.clone();
    world.direct(move |from, _, message| match message {
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
