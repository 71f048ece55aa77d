//! Lineages that part and meet, and links that work in one direction: R23–R27, R35.

use intellect_protocol::machine::event::Event;
use intellect_protocol::message::Message;

use super::*;

/// R35: `b` never hears `a` directly. The ring keeps the two apart, no peer counts
/// as dead, and no fork appears.
#[test]
fn one_way_link() -> Played {
    for count in [3, 5] {
        let (mut world, all) = founded(count, 0, None)?;
        let [a, b, ..] = all[..] else { unreachable!() };
        world.break_link(a, b);
        reach(&mut world, &all, 6)?;
        let mut counted = Vec::new();
        for epoch in 2..=6 {
            let committed = commit(&world, a, epoch);
            // No peer counts as dead because of one bad link.
            assert_eq!(committed.receipt.members.len(), count, "{committed:?}");
            let members = committed.receipt.members.iter().filter(|m| m.weight > 0);
            let ring: Vec<usize> = members.map(|m| world.host(&m.peer).unwrap()).collect();
            let next = ring.iter().cycle().skip(1);
            let beside = ring.iter().zip(next).any(|(i, j)| sorted(&[*i, *j]) == sorted(&[a, b]));
            assert!(!beside, "{a} and {b} are neighbours in {ring:?}");
            counted.extend(ring);
        }
        // Among three, one of the two has no position; the hash of the epoch decides which one.
        let least = if count == 3 { 2 } else { count };
        let contributed = all.iter().filter(|host| counted.contains(host)).count();
        assert!(contributed >= least, "{counted:?}");
        for host in &all {
            assert!(forks(&world, *host).is_empty() && regroups(&world, *host).is_empty());
        }
        ends_amid(world, &[Trains, Training])?;
    }
    Ok(())
}

/// R7, R12, R23, R26: newcomers join both halves of a partition, but only voters
/// count for a majority. When the halves meet, every peer reports the fork, and the
/// smaller lineage is given up.
#[test]
fn halves_with_joiners() -> Played {
    let (mut world, all) = founded(4, 6, None)?;
    let [a, b, c, d] = all[..] else { unreachable!() };
    let (one, other) = ([a, b, 4, 5, 6], [c, d, 7, 8, 9]);
    world.play(100)?;
    world.cut(&other, 1);
    world.start(&[4, 5, 6, 7, 8, 9]);
    world.play(GRACE_MS - 1_000)?;
    assert!(world.epoch(a) > 1 && world.epoch(c) == 1, "only the half with the first voter");
    let members = |world: &World, of: &[usize]| {
        of.iter().all(|host| world.epoch(*host) > 2 && sorted(&world.voters(*host)) == sorted(of))
    };
    let grown = |world: &mut World| members(world, &one) && members(world, &other);
    assert!(world.until(END_MS, grown)?);
    assert!(regroups(&world, a).is_empty());
    // Newcomers that know the head by then are members too.
    let [(voters, absent)] = &regroups(&world, c)[..] else { unreachable!() };
    assert!(voters.contains(&c) && voters.contains(&d) && *absent == sorted(&[a, b]));
    let parted = one.iter().chain(&other).copied().collect::<Vec<_>>();
    // The greater side hears of the other one first: the smaller side gives
    // up within milliseconds here.
    let greater = world.head(a).unwrap().rank(0) > world.head(c).unwrap().rank(0);
    let (kept, lost) = if greater { (one, other) } else { (other, one) };
    world.direct(move |from, _, message| match message {
        Message::Heartbeat(_) if kept.contains(&from) => Fate::Delay(600),
        _ => Fate::Deliver,
    });
    world.mend();
    let heard = |world: &mut World| parted.iter().all(|host| !forks(world, *host).is_empty());
    assert!(world.until(END_MS, heard)?, "someone is silent");
    world.let_through();
    let met = |world: &mut World| {
        world.same(&parted) && world.voters(a).len() == 10 && members(world, &parted)
    };
    assert!(world.until(END_MS, met)?);
    for host in kept {
        assert!(forks(&world, host).iter().all(|undone| *undone == 0), "{host} stays");
    }
    for host in lost {
        assert!(matches!(forks(&world, host)[..], [undone] if undone > 0), "{host} withdraws");
    }
    ends(world, &[Trains])
}

/// R23, R26: two halves are apart for so long that neither has the link of the last common epoch
/// in memory. The side that gives up is sent that link and verifies it by its digest, and it
/// reports everything since as undone.
#[test]
fn lineages_that_parted_long_ago_meet() -> Played {
    let (mut world, all) = founded(4, 0, None)?;
    let [a, b, c, d] = all[..] else { unreachable!() };
    world.cut(&[c, d], 1);
    let far = 2 + 2 * LINKS_KEPT as u64;
    while world.epoch(a).min(world.epoch(c)) < far {
        world.play(GRACE_MS)?;
    }
    let parted: BTreeMap<usize, u64> = all.iter().map(|host| (*host, world.epoch(*host))).collect();
    world.mend();
    assert!(world.until(END_MS, |world| world.same(&all))?);
    // The event comes once its record is on disk.
    world.play(10)?;
    let kept = |host: &&usize| forks(&world, **host).iter().all(|undone| *undone == 0);
    let (stayed, withdrew): (Vec<usize>, Vec<usize>) = all.iter().partition(kept);
    assert_eq!((sorted(&stayed) == sorted(&[a, b]), withdrew.len()), (stayed.contains(&a), 2));
    for host in withdrew {
        let undone = forks(&world, host).into_iter().sum::<u64>();
        assert!(undone + 3 >= parted[&host] && undone < world.epoch(host), "{undone} epochs");
    }
    ends(world, &[Trains])
}

/// R25: `c` has gone further than the others, alone; it stops just when they want to follow it.
/// They set that head aside, go on, and follow when `c` is back.
#[test]
fn greater_head_that_nobody_serves() -> Played {
    let (mut world, all) = founded(3, 0, None)?;
    let [a, b, c] = all[..] else { unreachable!() };
    world.train_in(a, 20_000);
    world.train_in(b, 20_000);
    world.cut(&[c], 1);
    world.play(60_000)?;
    let far = world.head(c).unwrap();
    assert!(far.rank(0) > world.head(a).unwrap().rank(0) && world.epoch(a) >= 2, "{far:?}");
    world.mend();
    let behind = |world: &mut World| {
        [a, b].iter().any(|host| reported(world, *host, |e| matches!(e, Event::Behind { .. })))
    };
    assert!(world.until(END_MS, behind)?);
    assert!([a, b].iter().any(|host| world.wait(*host) == Some(Wait::Behind)));
    world.pause(c);
    let epoch = world.epoch(a).max(world.epoch(b));
    reach(&mut world, &[a, b], epoch + 2)?;
    assert!(forks(&world, a).is_empty() && forks(&world, b).is_empty(), "they went on");
    world.resume(c);
    let taken = |world: &mut World| world.same(&all) && world.epoch(a) > far.epoch;
    assert!(world.until(END_MS, taken)?);
    for host in [a, b] {
        assert!(forks(&world, host).iter().sum::<u64>() > 0, "{host} left its lineage silently");
        assert!(reported(&world, host, |e| matches!(e, Event::CaughtUp { .. })));
    }
    ends_amid(world, &[Trains, Training])
}
