//! Peers behind routers: a ring uses direct connections only, whichever
//! side dialled them (R41, R42).

use intellect_protocol::message::Member;
use intellect_protocol_sim::world::World;

use super::*;

/// `count` peers that have founded the run. No host can dial those in `undialable`, and the pairs
/// in `apart` have no direct connection. The numbers are their order among the voters of epoch 2.
fn street(
    count: usize,
    undialable: &[usize],
    apart: &[(usize, usize)],
) -> Result<(World, Vec<usize>), Violation> {
    let (mut world, all) = founded(count, 0, None)?;
    let undialable: Vec<usize> = undialable.iter().map(|index| all[*index]).collect();
    world.set_undialable(&undialable);
    apart.iter().for_each(|(a, b)| world.unlink(all[*a], all[*b]));
    // Waits for two heartbeats that report it, and for the epochs that were under way.
    let epoch = world.epoch(all[0]);
    reach(&mut world, &all, epoch + 3)?;
    Ok((world, all))
}

/// The ring of each of the next `count` epochs, in its order; each must
/// commit at the first attempt.
fn rings(world: &mut World, all: &[usize], count: u64) -> Result<Vec<Vec<usize>>, Violation> {
    let from = world.epoch(all[0]) + 1;
    reach(world, all, from + count - 1)?;
    let ring = |epoch: u64| {
        let committed = commit(world, all[0], epoch);
        assert_eq!(committed.attempt, 1, "epoch {epoch}: {committed:?}");
        let members = committed.receipt.members.iter();
        let host = |member: &Member| world.host(&member.peer).unwrap();
        members.filter(|member| member.weight > 0).map(host).collect()
    };
    Ok((from..from + count).map(ring).collect())
}

fn are_neighbours(ring: &[usize], a: usize, b: usize) -> bool {
    let next = ring.iter().cycle().skip(1);
    ring.iter().zip(next).any(|pair| pair == (&a, &b) || pair == (&b, &a))
}

fn unlinked_are_no_neighbours() -> Played {
    let (mut world, all) = street(5, &[], &[(0, 1), (2, 4)])?;
    for ring in rings(&mut world, &all, 8)? {
        assert_eq!(ring.len(), 5, "everybody has a place");
        let apart = [(all[0], all[1]), (all[2], all[4])];
        assert!(apart.iter().all(|(a, b)| !are_neighbours(&ring, *a, *b)), "{ring:?}");
    }
    ends(world, &[Trains])
}

#[test]
fn r42_whom_nothing_joins_are_no_neighbours() -> Played {
    unlinked_are_no_neighbours()
}

#[test]
fn r42_off_is_missed() {
    missed(Rule::R42, unlinked_are_no_neighbours);
}

#[test]
fn r42_two_behind_symmetric_routers_sit_between_two_that_all_can_dial() -> Played {
    let (mut world, all) = street(4, &[2, 3], &[(2, 3)])?;
    for ring in rings(&mut world, &all, 8)? {
        assert_eq!(sorted(&ring), sorted(&all));
        assert!(!are_neighbours(&ring, all[2], all[3]), "{ring:?}");
    }
    ends(world, &[Trains])
}

/// R42: of three peers one has IPv4 only and one IPv6 only. One of the two sits out, in turn.
#[test]
fn r42_of_three_one_sits_out_where_a_pair_is_not_joined() -> Played {
    let (mut world, all) = street(3, &[], &[(0, 1)])?;
    let mut out = BTreeSet::new();
    for ring in rings(&mut world, &all, 12)? {
        assert!(ring.len() == 2 && ring.contains(&all[2]), "{ring:?}");
        out.extend(all.iter().filter(|host| !ring.contains(host)));
    }
    assert_eq!(out, BTreeSet::from([all[0], all[1]]), "not always the same one");
    let regrouped = all.iter().any(|host| !regroups(&world, *host).is_empty());
    assert!(!regrouped && world.same(&all));
    ends(world, &[Trains])
}

/// R42: a peer without any direct connection has no position and follows. It costs no other peer a
/// position, neither as a newcomer nor later.
#[test]
fn r42_one_that_is_joined_with_nobody_costs_nobody_a_place() -> Played {
    let (mut world, all) = founded(3, 1, None)?;
    let newcomer = 3;
    world.set_undialable(&[newcomer]);
    all.iter().for_each(|host| world.unlink(*host, newcomer));
    world.start(&[newcomer]);
    let epoch = world.epoch(all[0]);
    reach(&mut world, &[all[0], all[1], all[2], newcomer], epoch + 3)?;
    for ring in rings(&mut world, &all, 6)? {
        assert_eq!(sorted(&ring), sorted(&all));
    }
    world.link(all[0], newcomer);
    world.link(all[1], newcomer);
    let seated = |world: &mut World| {
        let epoch = world.epoch(all[0]);
        epoch > 1 && weight(world, &commit(world, all[0], epoch), newcomer) > Some(0)
    };
    assert!(world.until(END_MS, seated)?, "it takes part where it has two connections");
    ends(world, &[Trains])
}

/// R41: a connection that is replaced at once costs no position: for two
/// heartbeats it counts as there.
#[test]
fn r41_a_connection_that_comes_back_at_once_costs_no_place() -> Played {
    let (mut world, all) = street(3, &[0, 1, 2], &[])?;
    for _ in 0..4 {
        let epoch = world.epoch(all[0]);
        world.unlink(all[0], all[1]);
        world.play(100)?;
        world.link(all[0], all[1]);
        reach(&mut world, &all, epoch + 1)?;
        let committed = commit(&world, all[0], epoch + 1);
        let places = all.iter().filter(|host| weight(&world, &committed, **host) > Some(0));
        assert_eq!(places.count(), 3, "{committed:?}");
    }
    ends(world, &[Trains])
}

/// R42: heartbeats reach one of three peers three heartbeats late. When the other two lose their
/// connection it does not know of it, and makes them neighbours. That costs attempts, and no more.
#[test]
fn r42_a_report_that_has_not_come_yet_binds_no_proposer() -> Played {
    let mut unknowing = 0;
    for late in 0..3 {
        let (mut world, all) = street(3, &[], &[])?;
        let late = all[late];
        let (rosters, reports) = (counter(), Rc::new(RefCell::new([0; 3])));
        let (made, said) = (rosters.clone(), reports.clone());
        world.direct(move |from, to, message| match message {
            Message::Heartbeat(beat) => {
                let unlinked = !beat.unlinked.is_empty();
                let count = if unlinked { said.borrow()[from] + 1 } else { 0 };
                said.borrow_mut()[from] = count;
                if to == late { Fate::Delay(1_500) } else { Fate::Deliver }
            }
            Message::Roster(roster) if from == late && roster.ring().count() == 3 => {
                let both = said.borrow().iter().filter(|reports| **reports > 2).count() == 2;
                if both {
                    count(&made);
                }
                Fate::Deliver
            }
            _ => Fate::Deliver,
        });
        let others: Vec<usize> = all.iter().copied().filter(|host| *host != late).collect();
        all.iter().for_each(|host| world.train_in(*host, 3_000));
        for _ in 0..4 {
            let epoch = world.epoch(all[0]) + 1;
            reach(&mut world, &all, epoch)?;
            world.play(1_000)?;
            world.unlink(others[0], others[1]);
            world.play(6_000)?;
            world.link(others[0], others[1]);
        }
        unknowing += rosters.get();
        let epoch = world.epoch(all[0]);
        reach(&mut world, &all, epoch + 3)?;
        assert!(world.same(&all) || world.until(END_MS, |world| world.same(&all))?);
        ends(world, &[Trains])?;
    }
    assert!(unknowing > 0, "each proposer knew of it");
    Ok(())
}

/// R44: one of three voters hears the others through a relay that carries gossip only. They decide
/// epochs that it cannot fetch. It must wait, instead of proposing a Regroup and going on alone.
fn passed_over() -> Played {
    let (mut world, all) = founded(3, 0, None)?;
    let deaf = all[1];
    world.direct(move |_, to, message| match message {
        Message::Heartbeat(_) => Fate::Deliver,
        _ if to == deaf => Fate::Drop,
        _ => Fate::Deliver,
    });
    world.drop_requests(deaf);
    let others = [all[0], all[2]];
    let epoch = world.epoch(deaf);
    reach(&mut world, &others, epoch + 2)?;
    world.play(6 * GRACE_MS)?;
    assert!(world.epoch(deaf) <= epoch + 1, "it goes on alone");
    assert!(regroups(&world, deaf).is_empty());
    assert_eq!(world.wait(deaf), Some(Wait::PassedOver));
    world.let_through();
    let epoch = world.epoch(all[0]);
    reach(&mut world, &all, epoch + 2)?;
    assert!(world.until(END_MS, |world| world.same(&all))?);
    assert!(forks(&world, deaf).is_empty());
    ends(world, &[Trains])
}

#[test]
fn r44_whom_others_have_passed_over_waits() -> Played {
    passed_over()
}

#[test]
fn r44_off_is_missed() {
    missed(Rule::R44, passed_over);
}
