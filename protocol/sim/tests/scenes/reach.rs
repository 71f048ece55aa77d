//! Machines behind routers: a ring goes over direct connections only, whoever dialled them (R41, R42).

use intellect_protocol::message::Member;
use intellect_protocol_sim::world::World;

use super::*;

/// `count` peers that have founded the run; of these, nobody can dial those in `enclosed`, and no direct connection
/// joins the pairs in `apart`. They are named by their order among the voters of epoch 2.
fn street(
    count: usize,
    enclosed: &[usize],
    apart: &[(usize, usize)],
) -> Result<(World, Vec<usize>), Violation> {
    let (mut stage, all) = founded(count, 0, None)?;
    let enclosed: Vec<usize> = enclosed.iter().map(|index| all[*index]).collect();
    stage.enclose(&enclosed);
    apart.iter().for_each(|(a, b)| stage.unlink(all[*a], all[*b]));
    // Two heartbeats until it is said, and whatever was under way.
    let epoch = stage.epoch(all[0]);
    reach(&mut stage, &all, epoch + 3)?;
    Ok((stage, all))
}

/// Who was in the ring of each of the next `count` epochs, in its order; each is committed at the first attempt.
fn rings(stage: &mut World, all: &[usize], count: u64) -> Result<Vec<Vec<usize>>, Violation> {
    let from = stage.epoch(all[0]) + 1;
    reach(stage, all, from + count - 1)?;
    let ring = |epoch: u64| {
        let committed = commit(stage, all[0], epoch);
        assert_eq!(committed.attempt, 1, "epoch {epoch}: {committed:?}");
        let members = committed.receipt.members.iter();
        let host = |member: &Member| stage.host(&member.peer).unwrap();
        members.filter(|member| member.weight > 0).map(host).collect()
    };
    Ok((from..from + count).map(ring).collect())
}

fn are_neighbours(ring: &[usize], a: usize, b: usize) -> bool {
    let next = ring.iter().cycle().skip(1);
    ring.iter().zip(next).any(|pair| pair == (&a, &b) || pair == (&b, &a))
}

fn unlinked_are_no_neighbours() -> Played {
    let (mut stage, all) = street(5, &[], &[(0, 1), (2, 4)])?;
    for ring in rings(&mut stage, &all, 8)? {
        assert_eq!(ring.len(), 5, "everybody has a place");
        let apart = [(all[0], all[1]), (all[2], all[4])];
        assert!(apart.iter().all(|(a, b)| !are_neighbours(&ring, *a, *b)), "{ring:?}");
    }
    Ok(())
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
    let (mut stage, all) = street(4, &[2, 3], &[(2, 3)])?;
    for ring in rings(&mut stage, &all, 8)? {
        assert_eq!(sorted(&ring), sorted(&all));
        assert!(!are_neighbours(&ring, all[2], all[3]), "{ring:?}");
    }
    Ok(())
}

/// As of three of which one has IPv4 only and one IPv6: one of the two sits out, another one each time.
#[test]
fn r42_of_three_one_sits_out_where_a_pair_is_not_joined() -> Played {
    let (mut stage, all) = street(3, &[], &[(0, 1)])?;
    let mut out = BTreeSet::new();
    for ring in rings(&mut stage, &all, 12)? {
        assert!(ring.len() == 2 && ring.contains(&all[2]), "{ring:?}");
        out.extend(all.iter().filter(|host| !ring.contains(host)));
    }
    assert_eq!(out, BTreeSet::from([all[0], all[1]]), "not always the same one");
    let regrouped = all.iter().any(|host| !regroups(&stage, *host).is_empty());
    assert!(!regrouped && stage.same(&all));
    Ok(())
}

/// One that is joined with nobody has no place, and follows; it costs nobody else a place, as a newcomer or later.
#[test]
fn r42_one_that_is_joined_with_nobody_costs_nobody_a_place() -> Played {
    let (mut stage, all) = founded(3, 1, None)?;
    let newcomer = 3;
    stage.enclose(&[newcomer]);
    all.iter().for_each(|host| stage.unlink(*host, newcomer));
    stage.start(&[newcomer]);
    let epoch = stage.epoch(all[0]);
    reach(&mut stage, &[all[0], all[1], all[2], newcomer], epoch + 3)?;
    for ring in rings(&mut stage, &all, 6)? {
        assert_eq!(sorted(&ring), sorted(&all));
    }
    stage.link(all[0], newcomer);
    stage.link(all[1], newcomer);
    let seated = |stage: &mut World| {
        let epoch = stage.epoch(all[0]);
        epoch > 1 && weight(stage, &commit(stage, all[0], epoch), newcomer) > Some(0)
    };
    assert!(stage.until(END_MS, seated)?, "it takes part where it has two connections");
    Ok(())
}

/// R41: a connection that is replaced costs no place: for two heartbeats it counts as there.
#[test]
fn r41_a_connection_that_comes_back_at_once_costs_no_place() -> Played {
    let (mut stage, all) = street(3, &[0, 1, 2], &[])?;
    for _ in 0..4 {
        let epoch = stage.epoch(all[0]);
        stage.unlink(all[0], all[1]);
        stage.play(100)?;
        stage.link(all[0], all[1]);
        reach(&mut stage, &all, epoch + 1)?;
        let committed = commit(&stage, all[0], epoch + 1);
        let places = all.iter().filter(|host| weight(&stage, &committed, **host) > Some(0));
        assert_eq!(places.count(), 3, "{committed:?}");
    }
    Ok(())
}

/// One hears two others through a relay, which carries gossip only: they decide an epoch, and it cannot fetch it.
fn passed_over() -> Played {
    let (mut stage, all) = founded(3, 0, None)?;
    let deaf = all[1];
    stage.direct(move |_, to, message| match message {
        Message::Heartbeat(_) => Fate::Deliver,
        _ if to == deaf => Fate::Drop,
        _ => Fate::Deliver,
    });
    stage.hush(deaf);
    let others = [all[0], all[2]];
    let epoch = stage.epoch(deaf);
    reach(&mut stage, &others, epoch + 2)?;
    stage.play(6 * GRACE_MS)?;
    assert!(stage.epoch(deaf) <= epoch + 1, "it goes on alone");
    assert!(regroups(&stage, deaf).is_empty());
    stage.relent();
    let epoch = stage.epoch(all[0]);
    reach(&mut stage, &all, epoch + 2)?;
    assert!(stage.same(&all) && forks(&stage, deaf).is_empty());
    Ok(())
}

#[test]
fn r44_whom_others_have_passed_over_waits() -> Played {
    passed_over()
}

#[test]
fn r44_off_is_missed() {
    missed(Rule::R44, passed_over);
}
