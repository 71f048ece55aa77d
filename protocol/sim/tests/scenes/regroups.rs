//! When a majority is gone: R12–R14, and the values that a Regroup must keep.

use intellect_protocol::message::Message;

use super::*;

/// Drops every vote, and records its value.
fn hide_votes(world: &mut World) -> Votes {
    let votes = Votes::default();
    let noted = votes.clone();
    world.direct(move |from, _, message| match message {
        Message::Done(done) => {
            noted.borrow_mut().insert(from, done.update);
            Fate::Drop
        }
        _ => Fate::Deliver,
    });
    votes
}

/// R12: half of `count` voters die. The half with the first voter goes on at once,
/// the other half after the grace.
fn half_dies(count: usize) -> Played {
    for first_half_lives in [true, false] {
        let (mut world, all) = founded(count, 0, None)?;
        let (first, second) = all.split_at(count / 2);
        let (live, dead) = if first_half_lives { (first, second) } else { (second, first) };
        world.play(100)?;
        let killed_ms = world.now_ms;
        world.kill(dead);
        if first_half_lives {
            reach(&mut world, live, 2)?;
            assert!(world.now_ms < killed_ms + GRACE_MS, "it waited");
            assert!(regroups(&world, live[0]).is_empty());
            ends(world, &[if count == 2 { Alone } else { Trains }])?;
            continue;
        }
        world.play(GRACE_MS - 1_000)?;
        assert!(live.iter().all(|host| world.epoch(*host) == 1), "it did not wait");
        reach(&mut world, live, 3)?;
        for host in live {
            assert_eq!(regroups(&world, *host), [(sorted(live), sorted(dead))]);
            let (second, third) = (commit(&world, *host, 2), commit(&world, *host, 3));
            assert!(second.regrouped && !third.regrouped);
            assert_eq!(third.forkable_since, Some(2), "the dead were never seen again");
        }
        ends(world, &[if count == 2 { Alone } else { Trains }])?;
    }
    Ok(())
}

#[test]
fn half_killed_at_once() -> Played {
    half_dies(4)
}

#[test]
fn two_peers_one_dies_first_and_second_voter() -> Played {
    half_dies(2)
}

/// R12: a peer without a vote does not go on alone: it waits until a voter is back.
#[test]
fn last_survivor_has_no_vote() -> Played {
    let (mut world, all) = founded(2, 1, None)?;
    let x = 2;
    world.start(&[x]);
    assert!(world.until(END_MS, |world| world.epoch(x) >= 1)?);
    assert!(!world.voters(x).contains(&x));
    world.kill(&all);
    let epoch = world.epoch(x);
    world.play(4 * GRACE_MS)?;
    assert_eq!((world.epoch(x), regroups(&world, x)), (epoch, Vec::new()));
    let waits = world.wait(x);
    let stays = matches!(waits, Some(Wait::Alone { goes_on: false, regroups: false, .. }));
    assert!(stays, "{waits:?}");
    world.start(&all[..1]);
    reach(&mut world, &[x, all[0]], epoch + 3)?;
    ends(world, &[Trains])
}

/// R12 "elsewhere": `p` has joined a Regroup whose other member died before it joined. `a` comes
/// back, and the two would be a majority if `p` were not bound. They have to regroup.
#[test]
fn joined_a_regroup_that_never_opened() -> Played {
    let (mut world, all) = founded(4, 0, None)?;
    let [a, b, c, d] = all[..] else { unreachable!() };
    let joined = hide_joins(&mut world);
    world.play(100)?;
    world.pause(a);
    world.kill(&[b]);
    assert!(world.until(END_MS, |_| joined.borrow().is_some())?);
    let p = joined.borrow().unwrap();
    let q = if p == c { d } else { c };
    assert!(
        matches!(world.wait(p), Some(Wait::Joins(_) | Wait::Voters { .. })),
        "{:?}",
        world.wait(p)
    );
    world.kill(&[q]);
    world.resume(a);
    world.let_through();
    reach(&mut world, &[a, p], 3)?;
    for host in [a, p] {
        assert_eq!(regroups(&world, host), [(sorted(&[a, p]), sorted(&[b, q]))]);
    }
    assert!(world.same(&[a, p]) || world.until(END_MS, |world| world.same(&[a, p]))?);
    assert!(forks(&world, a).is_empty() && forks(&world, p).is_empty());
    ends(world, &[Trains])
}

/// R13: `d` and `e` join {d, e, f}, but the Join of `f` is late. They join {d, e}; then the late
/// Join arrives, and must not open the replaced Regroup.
#[test]
fn regroup_half_joined() -> Played {
    let (mut world, all) = founded(6, 0, None)?;
    let [a, b, c, d, e, f] = all[..] else { unreachable!() };
    let joined = counter();
    let noted = joined.clone();
    world.direct(move |from, to, message| match message {
        Message::Join(_) if from == f => {
            count(&noted);
            Fate::Delay(25_000)
        }
        Message::Join(_) if to == f => Fate::Drop,
        _ => Fate::Deliver,
    });
    world.play(100)?;
    world.kill(&[a, b, c]);
    assert!(world.until(END_MS, |_| joined.get() > 0)?);
    let joined_ms = world.now_ms;
    world.pause(f);
    reach(&mut world, &[d, e], 2)?;
    assert!(world.now_ms < joined_ms + 25_000, "its Join is still on its way");
    world.train_in(d, 5_000);
    world.train_in(e, 5_000);
    world.play(joined_ms + 26_000 - world.now_ms)?;
    for host in [d, e] {
        assert_eq!(regroups(&world, host), [(sorted(&[d, e]), sorted(&[a, b, c, f]))]);
    }
    world.resume(f);
    let epoch = world.epoch(d) + 1;
    reach(&mut world, &[d, e, f], epoch)?;
    assert!(forks(&world, d).iter().all(|undone| *undone == 0));
    assert!(world.until(END_MS, |world| world.same(&[d, e, f]))?);
    ends(world, &[Trains])
}

/// R13: all three have voted and no peer heard of it. The last survivor must
/// not contradict its own vote.
fn survivor(without: Option<Rule>) -> Played {
    let (mut world, all) = founded(3, 0, without)?;
    let [a, b, c] = all[..] else { unreachable!() };
    let votes = hide_votes(&mut world);
    assert!(world.until(END_MS, |_| votes.borrow().len() == 3)?);
    world.kill(&[a, b]);
    world.let_through();
    reach(&mut world, &[c], 3)?;
    let second = commit(&world, c, 2);
    assert_eq!(second.receipt.update, votes.borrow()[&a]);
    assert!(second.regrouped && accepted(&world, c, 2).last().unwrap().1.is_some());
    // Once for epoch 2, and once for epoch 3, whose voters are the members of its receipt.
    let alone = (vec![c], sorted(&[a, b]));
    assert_eq!(regroups(&world, c), [alone.clone(), alone]);
    ends(world, &[Alone])
}

#[test]
fn r13_survivor_keeps_what_it_voted_for() -> Played {
    survivor(None)
}

#[test]
fn r13_is_missed() {
    assert_eq!(survivor(Some(Rule::R13)).unwrap_err().invariant, "S2");
}

/// R13, R14: a Regroup of a Regroup still carries the value that was voted for before both.
#[test]
fn nested_regroup_keeps_the_dones() -> Played {
    let (mut world, all) = founded(4, 0, None)?;
    let [a, b, c, d] = all[..] else { unreachable!() };
    let votes = hide_votes(&mut world);
    assert!(world.until(END_MS, |_| votes.borrow().len() == 4)?);
    let value = votes.borrow()[&a];
    world.kill(&[a, b]);
    let entered = |world: &World, host| regroups(world, host).len();
    assert!(world.until(END_MS, |world| entered(world, c) + entered(world, d) == 2)?);
    let [first, last] = world.voters(c)[..] else { unreachable!() };
    world.kill(&[first]);
    world.let_through();
    reach(&mut world, &[last], 2)?;
    let expected = [(sorted(&[c, d]), sorted(&[a, b])), (vec![last], vec![first])];
    assert_eq!(regroups(&world, last), expected);
    assert_eq!(commit(&world, last, 2).receipt.update, value);
    assert!(accepted(&world, last, 2).last().unwrap().1.is_some());
    ends(world, &[Alone])
}

/// R8: a Regroup forces a value, and the only peer with its bytes dies. The others try to adopt it,
/// and are free after that attempt has failed.
#[test]
fn forced_value_without_bytes() -> Played {
    let (mut world, all) = founded(4, 0, None)?;
    let [a, b, c, d] = all[..] else { unreachable!() };
    for host in [a, b, d] {
        world.train_in(host, 90_000);
    }
    let votes = hide_votes(&mut world);
    assert!(world.until(END_MS, |_| votes.borrow().contains_key(&c))?);
    world.kill(&[a, b]);
    assert!(world.until(END_MS, |world| !regroups(world, d).is_empty())?);
    world.kill(&[c]);
    world.train_in(d, 500);
    world.let_through();
    reach(&mut world, &[d], 2)?;
    let second = commit(&world, d, 2);
    let adopted = accepted(&world, d, 2).iter().any(|(_, adopt)| adopt.is_some());
    assert!(adopted, "it tried: {:?}", accepted(&world, d, 2));
    assert_eq!(votes.borrow().len(), 1, "{c} alone had the bytes");
    assert_ne!(second.receipt.update, votes.borrow()[&c]);
    assert!(second.regrouped && second.receipt.spends(&world.name(d), 1));
    ends(world, &[Alone])
}

/// R12: a peer that has joined a Regroup has left the series, not the others. Three gather; one
/// does not hear the others for seven seconds, and must not go on alone.
#[test]
fn who_has_joined_and_is_missed_for_a_moment_is_not_left_behind() -> Played {
    let (mut world, all) = founded(6, 0, None)?;
    let (dead, live) = all.split_at(3);
    let joined: Noted<BTreeSet<usize>> = Rc::default();
    let (noted, last) = (Rc::clone(&joined), live[2]);
    let silent = Rc::new(Cell::new(false));
    let is_silent = Rc::clone(&silent);
    world.direct(move |from, to, message| match message {
        Message::Join(_) => {
            noted.borrow_mut().insert(from);
            Fate::Drop
        }
        _ if to == last && is_silent.get() => Fate::Drop,
        _ => Fate::Deliver,
    });
    world.play(100)?;
    world.kill(dead);
    assert!(world.until(END_MS, |_| joined.borrow().len() == 3)?);
    world.play(1_000)?;
    silent.set(true);
    world.play(GRACE_MS - 1_000)?;
    assert!(regroups(&world, last).is_empty(), "it went on without those whom it had just heard");
    world.let_through();
    reach(&mut world, live, 3)?;
    let together = [(sorted(live), sorted(dead))];
    assert!(live.iter().all(|host| regroups(&world, *host) == together));
    ends(world, &[Trains])
}
