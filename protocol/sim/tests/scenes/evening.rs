//! People stop their nodes and come back. A goodbye is remembered, a restarted peer
//! first hears the others, and what was trained apart for a short while is undone
//! automatically (R12, R20, R29, G11).

use super::*;

use std::time::Duration;

/// How long a peer that said goodbye waits for the others when it is back.
const RETURN_MS: u64 = 60_000;

/// Two peers at epoch 3 or later, in the order of their votes.
fn two() -> Result<(World, [usize; 2]), Violation> {
    let (mut world, order) = founded(2, 0, None)?;
    reach(&mut world, &order, 3)?;
    Ok((world, [order[0], order[1]]))
}

/// The same two: one has left, and the other one has gone on for some epochs since.
fn one_went_on(first: usize) -> Result<(World, [usize; 2]), Violation> {
    let (mut world, order) = two()?;
    let [gone, stays] = [order[first], order[1 - first]];
    leave(&mut world, gone)?;
    let epoch = world.epoch(stays);
    reach(&mut world, &[stays], epoch + 3)?;
    Ok((world, [gone, stays]))
}

fn leave(world: &mut World, host: usize) -> Played {
    world.leave(host);
    world.play(5_000)
}

/// Waits until all are in one ring again, and checks that no peer has reported a fork.
fn together(world: &mut World, hosts: &[usize]) -> Played {
    let in_one_ring = |world: &mut World| {
        let newest = world.commit(hosts[0], world.epoch(hosts[0]));
        let placed = |host: &usize| newest.and_then(|newest| weight(world, newest, *host));
        hosts.iter().all(|host| placed(host).is_some_and(|weight| weight > 0))
    };
    assert!(world.until(END_MS, in_one_ring)?, "apart");
    let epoch = hosts.iter().map(|host| world.epoch(*host)).max().unwrap();
    reach(world, hosts, epoch + 2)?;
    assert!(world.until(END_MS, |world| world.same(hosts))?);
    for host in hosts {
        assert_eq!(forks(world, *host), [] as [u64; 0], "{host}");
    }
    Ok(())
}

/// R29: one peer leaves, the other one goes on and leaves too. The first one comes back alone: it
/// must decide nothing that the other one may have decided differently, or there would be a fork.
#[test]
fn r29_whoever_said_goodbye_waits_for_those_who_went_on() -> Played {
    for first in 0..2 {
        let (mut world, [gone, stays]) = one_went_on(first)?;
        leave(&mut world, stays)?;
        world.start(&[gone]);
        let before = world.epoch(gone);
        world.play(RETURN_MS - 5_000)?;
        assert_eq!(world.epoch(gone), before, "it trains, and decides nothing");
        let waits = world.wait(gone);
        let later = matches!(waits, Some(Wait::Alone { goes_on: false, regroups: true, .. }));
        assert!(later, "{waits:?}");
        world.start(&[stays]);
        together(&mut world, &[gone, stays])?;
        ends(world, &[Trains])?;
    }
    Ok(())
}

/// R12, R20: a lid is closed, and the other peer goes on. Once it is open, the machine has no network for a while. Its
/// voter must decide nothing meanwhile, though it alone may be a majority: that would be a fork.
#[test]
fn r20_a_voter_that_slept_hears_the_others_before_it_decides() -> Played {
    for first in 0..2 {
        let (mut world, order) = two()?;
        let [sleeps, stays] = [order[first], order[1 - first]];
        world.pause(sleeps);
        let epoch = world.epoch(stays);
        world.play(GRACE_MS)?;
        reach(&mut world, &[stays], epoch + 3)?;
        world.cut(&[sleeps], 1);
        world.resume(sleeps);
        let before = world.epoch(sleeps);
        world.play(RETURN_MS - 5_000)?;
        assert_eq!(world.epoch(sleeps), before, "it trains, and decides nothing");
        world.cut(&[sleeps], 0);
        together(&mut world, &[sleeps, stays])?;
        ends(world, &[Trains])?;
    }
    Ok(())
}

/// R29: the same, but the peer that went on never left: the other one finds it and follows.
#[test]
fn r29_whoever_comes_back_finds_those_who_went_on() -> Played {
    for first in 0..2 {
        let (mut world, [gone, stays]) = one_went_on(first)?;
        world.start(&[gone]);
        together(&mut world, &[gone, stays])?;
        ends(world, &[Trains])?;
    }
    Ok(())
}

/// R29: both leave at once, each while the other one is here, so both have closed the series. When
/// both are back they open the next series as soon as they have heard each other.
#[test]
fn r29_two_that_left_at_once_go_on_as_soon_as_both_are_back() -> Played {
    let (mut world, [a, b]) = two()?;
    world.leave(a);
    world.leave(b);
    world.play(10_000)?;
    world.start(&[a, b]);
    let (before, since_ms) = (world.epoch(a).max(world.epoch(b)), world.now_ms);
    reach(&mut world, &[a, b], before + 1)?;
    assert!(world.now_ms - since_ms < GRACE_MS, "nobody is waited for in vain");
    together(&mut world, &[a, b])?;
    ends(world, &[Trains])
}

/// R29: the other peer never comes back: after a minute the one that said goodbye goes on alone.
#[test]
fn r29_after_a_minute_it_goes_on_alone() -> Played {
    let (mut world, [a, b]) = two()?;
    leave(&mut world, a)?;
    leave(&mut world, b)?;
    world.start(&[a]);
    let before = world.epoch(a);
    world.play(RETURN_MS - 5_000)?;
    assert_eq!(world.epoch(a), before);
    world.play(20_000)?;
    assert!(world.epoch(a) > before + 1);
    for _ in 0..100 {
        world.play(37)?;
        let waits = world.wait(a);
        assert!(matches!(waits, Some(Wait::Alone { voters: 1, goes_on: true, .. })), "{waits:?}");
    }
    ends(world, &[Alone])
}

/// R20: a killed peer has said goodbye to nobody. When it is back it waits
/// as long as for a silent peer.
#[test]
fn r20_whoever_was_killed_waits_for_the_grace() -> Played {
    for first in 0..2 {
        let (mut world, order) = two()?;
        world.kill(&order);
        let back = order[first];
        world.start(&[back]);
        let before = world.epoch(back);
        world.play(GRACE_MS - 500)?;
        assert_eq!(world.epoch(back), before, "the other one may be on its way");
        world.play(5_000)?;
        assert!(world.epoch(back) > before);
        ends(world, &[Alone])?;
    }
    Ok(())
}

/// R29: the peer that leaves last has left nobody behind, so it goes on at once.
#[test]
fn r29_the_last_one_goes_on_at_once() -> Played {
    let (mut world, [a, b]) = two()?;
    leave(&mut world, a)?;
    leave(&mut world, b)?;
    world.start(&[b]);
    let before = world.epoch(b);
    world.play(GRACE_MS)?;
    assert!(world.epoch(b) > before);
    world.start(&[a]);
    together(&mut world, &[a, b])?;
    ends(world, &[Trains])
}

/// R29: with a majority of named founders no Regroup could open a closed series again, so a goodbye
/// closes none, and all come back into the old series.
#[test]
fn r29_founders_of_a_majority_all_leave_and_all_come_back() -> Played {
    let mut world = scene(3, 3, None);
    let all = [0, 1, 2];
    world.start(&all);
    reach(&mut world, &all, 3)?;
    for host in all {
        leave(&mut world, host)?;
    }
    world.start(&all);
    together(&mut world, &all)?;
    ends(world, &[Trains])
}

/// R12: a peer without a vote finds the voters in the series of a Regroup: it follows,
/// and opens no series of its own.
#[test]
fn r12_a_peer_without_a_vote_goes_along() -> Played {
    let (mut world, order) = founded(3, 0, None)?;
    let [a, b, c] = [order[0], order[1], order[2]];
    leave(&mut world, c)?;
    let epoch = world.epoch(a);
    reach(&mut world, &[a, b], epoch + 3)?;
    leave(&mut world, a)?;
    leave(&mut world, b)?;
    world.start(&[a, b, c]);
    together(&mut world, &order)?;
    ends(world, &[Trains])
}

/// R15: two peers lose all of each other's Joins for a long time. They do not give each other up,
/// since there is no other peer to found with, and found the run as soon as the link is good.
#[test]
fn r15_two_on_a_bad_line_found_as_soon_as_it_is_good() -> Played {
    let mut world = scene(2, 0, None);
    let bad = Rc::new(Cell::new(true));
    let is_bad = Rc::clone(&bad);
    world.direct(move |_, _, message| {
        let lost = is_bad.get() && matches!(message, Message::Join(_));
        if lost { Fate::Drop } else { Fate::Deliver }
    });
    world.start(&[0, 1]);
    world.play(100_000)?;
    assert_eq!((world.epoch(0), world.epoch(1)), (0, 0));
    bad.set(false);
    reach(&mut world, &[0, 1], 2)?;
    ends(world, &[Trains])
}

/// G11: one of four trained alone for some minutes and has the greater head. The others' epochs of
/// that time are young, so they follow without a person's decision, even after a restart, though
/// fewer than a third of the voters signed that head. Older epochs would be kept.
#[test]
fn g11_what_was_taken_within_ten_minutes_is_undone() -> Played {
    for (minutes, follows) in [(10, true), (0, false)] {
        let mut world = scene(4, 0, None);
        world.undo_within(3, Duration::from_secs(60 * minutes));
        let all = [0, 1, 2, 3];
        world.start(&all);
        assert!(world.until(END_MS, |world| all_at(world, &all, 1))?);
        world.play(12_000)?;
        let others = [0, 1, 2];
        others.iter().for_each(|host| world.train_in(*host, 5_000));
        world.cut(&[3], 1);
        let since_ms = world.now_ms;
        let epoch = world.epoch(0);
        reach(&mut world, &others, epoch + 6)?;
        let greater = |world: &mut World| {
            world.head(3).unwrap().tokens > world.head(0).unwrap().tokens + 2_000
        };
        assert!(world.until(4 * END_MS, greater)?);
        assert!(world.now_ms - since_ms < 9 * 60_000);
        world.train_in(3, 600_000);
        // The log says which epochs were taken when.
        world.kill(&[1]);
        world.start(&[1]);
        world.mend();
        world.play(30_000)?;
        let undone = forks(&world, 0).into_iter().max().unwrap_or(0);
        assert_eq!(undone > 3, follows, "{minutes} minutes: {undone}");
        assert_eq!(world.same(&all), follows);
        ends_amid(world, &[Trains, Training])?;
    }
    Ok(())
}

/// G11: four of seven voters die, and the network splits those that are left. One trains alone, is
/// killed, and finds two that have trained more. So few of the last common voters have signed that
/// only the age of its own epochs lets it give them up: its log still has that.
#[test]
fn g11_a_restart_does_not_make_young_epochs_old() -> Played {
    let mut world = scene(7, 0, None);
    world.undo_within(64, Duration::from_secs(600));
    let (mut world, all) = found(world, 7)?;
    let (left, dead) = all.split_at(3);
    let [pair @ .., alone] = left else { unreachable!() };
    world.kill(dead);
    world.cut(&[*alone], 1);
    reach(&mut world, &[*alone], 3)?;
    world.kill(&[*alone]);
    let epoch = world.epoch(*alone);
    reach(&mut world, pair, epoch + 3)?;
    world.mend();
    world.start(&[*alone]);
    assert!(world.until(END_MS, |world| world.same(left))?, "a person has to decide");
    assert!(forks(&world, *alone).iter().any(|undone| *undone > 1));
    ends(world, &[Trains])
}
