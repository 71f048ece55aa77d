//! Everyday events: peers join, leave, are slow, and lose messages.

use intellect_protocol::machine::event::{Cause, Event};
use intellect_protocol::message::{Message, Refusal};
use intellect_protocol_sim::network::Fate;
use intellect_protocol_sim::world::World;

use super::*;

/// R5, R21: a peer whose disk is full does not vote for an update that it cannot store, and follows
/// the others silently. When there is room again it takes part again.
fn full_disk(without: Option<Rule>) -> Played {
    let (mut world, all) = founded(3, 0, without)?;
    let full = all[1];
    world.fill_disk(full);
    let said = Noted::<Vec<u64>>::default();
    let noted = said.clone();
    world.direct(move |from, _, message| {
        let head = match message {
            Message::Heartbeat(beat) => Some(beat.head.epoch),
            _ => done(message).map(|done| done.series.epoch),
        };
        if from == full {
            noted.borrow_mut().extend(head);
        }
        Fate::Deliver
    });
    reach(&mut world, &all, 6)?;
    assert!(said.borrow().iter().all(|epoch| *epoch < 3), "{said:?}");
    world.clear_disk(full);
    let again = |world: &mut World| {
        let epoch = world.epoch(full);
        epoch > 6 && weight(world, &commit(world, full, epoch), full).is_some_and(|w| w > 0)
    };
    assert!(world.until(END_MS, again)?, "it takes part again");
    ends(world, &[Trains])
}

#[test]
fn full_disk_gives_no_vote() -> Played {
    full_disk(None)
}

#[test]
fn an_owed_update_that_is_forgotten_is_missed() {
    assert_eq!(full_disk(Some(Rule::Owed)).unwrap_err().invariant, "durable");
}

#[test]
fn commit_three_peers() -> Played {
    let (mut world, all) = founded(3, 0, None)?;
    reach(&mut world, &all, 3)?;
    assert!(world.same(&all));
    assert_eq!(commit(&world, all[0], 1).attempt, 1, "the founders take turns");
    for (host, epoch) in all.iter().flat_map(|host| [(*host, 2), (*host, 3)]) {
        let committed = commit(&world, host, epoch);
        assert_eq!((committed.attempt, committed.regrouped), (1, false));
        assert!(all.iter().all(|h| weight(&world, &committed, *h) > Some(0)), "{committed:?}");
        assert_eq!(accepted(&world, host, epoch), [(1, None)]);
    }
    ends(world, &[Trains])
}

/// R15, G8: one founder does not hear another one that is present. It must
/// not found the run without it.
#[test]
fn founding_waits_for_everyone_present() -> Played {
    let mut world = World::scene(3, 0, None);
    let refused = counter();
    let noted = refused.clone();
    // For a while host 0 does not hear host 2, and would found the run without it.
    world.direct(move |from, to, message| {
        if matches!(message, Message::Refuse(r) if matches!(r.reason, Refusal::Present(_))) {
            count(&noted);
        }
        if (from, to) == (2, 0) { Fate::Drop } else { Fate::Deliver }
    });
    world.start(&[0, 1, 2]);
    world.play(5_000)?;
    assert!(refused.get() > 0, "nobody refused to found the run without one present");
    assert!((0..3).all(|host| world.epoch(host) == 0));
    let waits = (0..3).all(|host| {
        matches!(world.wait(host), Some(Wait::Founders { needed: 2, .. } | Wait::Joins(_)))
    });
    assert!(waits, "{:?}", (0..3).map(|host| world.wait(host)).collect::<Vec<_>>());
    world.let_through();
    // The members of the last Regroup found the run, and the one left out joins as a newcomer.
    let all = |world: &mut World| sorted(&world.voters(0)) == [0, 1, 2];
    assert!(world.until(END_MS, all)?);
    reach(&mut world, &[0, 1, 2], 3)?;
    ends(world, &[Trains])
}

/// A peer that has never met another one is a run of one, if the run needs no other: it misses nobody.
#[test]
fn a_run_of_one_waits_for_nobody() -> Played {
    let mut world = scene(1, 0, None);
    world.needs(1);
    world.start(&[0]);
    reach(&mut world, &[0], 1)?;
    for _ in 0..20 {
        world.play(100)?;
        let waits = world.wait(0);
        assert!(!matches!(waits, Some(Wait::Alone { .. } | Wait::Voters { .. })), "{waits:?}");
    }
    assert!(world.epoch(0) > 3);
    ends(world, &[Trains])
}

/// A newcomer contributes to a ring before it votes.
#[test]
fn late_joiner_next_epoch() -> Played {
    let (mut world, all) = founded(3, 1, None)?;
    world.start(&[3]);
    let counted = |world: &World| {
        let committed = world.commit(3, world.epoch(3)).cloned();
        committed.is_some_and(|committed| weight(world, &committed, 3) > Some(0))
    };
    assert!(world.until(END_MS, |world| counted(world))?);
    let epoch = world.epoch(3);
    let before = commit(&world, all[0], epoch - 1);
    assert_eq!(weight(&world, &before, 3), None, "it had no vote in its first epoch");
    assert!(world.voters(3).contains(&3), "it votes on the next one");
    reach(&mut world, &[0, 1, 2, 3], epoch + 2)?;
    assert!(world.same(&all) && regroups(&world, all[0]).is_empty());
    ends(world, &[Trains])
}

/// R6, R34, R36: a voter is too slow for the ring. It is a member without a position, votes, and
/// carries its work into the next epoch.
#[test]
fn slow_voter_has_no_place_and_keeps_its_delta() -> Played {
    let (mut world, all) = founded(3, 0, None)?;
    let [a, b, c] = all[..] else { unreachable!() };
    // Its delta is frozen when the others' patience has ended, just before the commit.
    world.train_in(c, END_MS);
    world.direct(|_, _, message| match message {
        Message::Done(_) => Fate::Delay(100),
        _ => Fate::Deliver,
    });
    assert!(world.until(END_MS, |world| !accepted(world, c, 2).is_empty())?);
    world.train_in(c, 50);
    reach(&mut world, &all, 2)?;
    let second = commit(&world, a, 2);
    assert_eq!(weight(&world, &second, c), Some(0));
    assert_eq!(accepted(&world, c, 2), [(1, None)]);
    assert!(reported(&world, c, |event| *event == Event::LeftOut { epoch: 2 }));
    world.let_through();
    world.train_in(c, 400);
    reach(&mut world, &all, 3)?;
    let third = commit(&world, b, 3);
    // An epoch's budget is 50 to 99 tokens, so this weight is the work of two epochs.
    assert!(weight(&world, &third, c) >= Some(100), "{third:?}");
    assert!(world.same(&all));
    ends(world, &[Trains])
}

/// R36, G5: `a` has not heard that `c` was Ready in epoch 2, so it does not wait for `c` in epoch 3,
/// and `b` does. The roster of `a` waits until the patience of `b` is over; no attempt is lost.
#[test]
fn a_roster_that_comes_early_waits() -> Played {
    let (mut world, all) = founded(3, 0, None)?;
    let [a, b, c] = all[..] else { unreachable!() };
    world.direct(move |from, to, message| match message {
        Message::Ready(_) if (from, to) == (c, a) => Fate::Drop,
        Message::Heartbeat(beat) if (from, to) == (c, a) && beat.ready > 0 => Fate::Drop,
        _ => Fate::Deliver,
    });
    reach(&mut world, &all, 2)?;
    world.let_through();
    world.train_in(c, 30_000);
    let since_ms = world.now_ms;
    reach(&mut world, &[a, b], 3)?;
    let third = commit(&world, b, 3);
    assert_eq!((third.attempt, weight(&world, &third, c)), (1, Some(0)), "{third:?}");
    assert!(world.now_ms - since_ms < 5_000, "{} ms", world.now_ms - since_ms);
    ends_amid(world, &[Trains, Update])
}

#[test]
fn accept_lost_then_repeated() -> Played {
    let (mut world, all) = founded(3, 0, None)?;
    // All round trips are measured by then.
    world.play(6_000)?;
    let (a, epoch) = (all[0], world.epoch(all[0]) + 2);
    let lost = counter();
    let noted = lost.clone();
    world.direct(move |from, _, message| match message {
        Message::Accept(_) if from == a && epoch_of(message) == epoch && noted.get() < 2 => {
            count(&noted);
            Fate::Drop
        }
        _ => Fate::Deliver,
    });
    reach(&mut world, &all, epoch)?;
    assert_eq!(lost.get(), 2, "its Accept was lost on the way to both");
    assert!(all.iter().all(|host| commit(&world, *host, epoch).attempt == 1));
    assert!(world.same(&all));
    ends(world, &[Trains])
}

#[test]
fn duplicate_and_reordered_everything() -> Played {
    let (mut world, all) = founded(4, 0, None)?;
    let sent = counter();
    let noted = sent.clone();
    world.direct(move |_, _, _| {
        count(&noted);
        let late_ms = u64::from(noted.get() * 7 % 31) * 7;
        if noted.get().is_multiple_of(2) { Fate::Again(late_ms) } else { Fate::Delay(late_ms) }
    });
    reach(&mut world, &all, 6)?;
    assert!(sent.get() > 500, "{}", sent.get());
    assert!(world.same(&all) && all.iter().all(|host| forks(&world, *host).is_empty()));
    ends(world, &[Trains])
}

/// R12, R29: no peer waits for one that has said goodbye, even if its vote
/// would be needed for a majority.
#[test]
fn leave_then_next_epoch_without_grace() -> Played {
    for count in [3, 2] {
        let (mut world, all) = founded(count, 0, None)?;
        let (a, rest) = (all[0], &all[1..]);
        world.play(100)?;
        world.leave(a);
        let left_ms = world.now_ms;
        reach(&mut world, rest, 3)?;
        assert!(world.now_ms < left_ms + GRACE_MS, "they waited");
        let (a_left, name) = (Cause::Left, world.name(a));
        assert!(rest.iter().all(|host| {
            reported(&world, *host, |e| *e == Event::PeerLost { who: name, cause: a_left })
        }));
        let expected = if count == 2 { vec![(rest.to_vec(), vec![a])] } else { Vec::new() };
        assert_eq!(regroups(&world, rest[0]), expected);
        let third = commit(&world, rest[0], 3);
        assert_eq!((weight(&world, &third, a), third.forkable_since), (None, None));
        ends(world, &[if count == 2 { Alone } else { Trains }])?;
    }
    Ok(())
}

/// R20: a peer is killed in the middle of an epoch. It comes back as a joiner, without its position
/// in the old ring, and takes part again.
#[test]
fn restart_mid_epoch_without_a_place() -> Played {
    let (mut world, all) = founded(3, 0, None)?;
    let [a, b, c] = all[..] else { unreachable!() };
    let accepts = |world: &mut World| !accepted(world, c, 2).is_empty();
    assert!(world.until(END_MS, accepts)?);
    world.kill(&[c]);
    world.start(&[c]);
    reach(&mut world, &[a, b], 2)?;
    let second = commit(&world, a, 2);
    assert!(second.attempt >= 2, "its death cost the ring");
    assert_eq!(second.receipt.member(&world.name(c), 1), None, "its old place is gone");
    reach(&mut world, &all, 6)?;
    assert!(world.same(&all) && world.voters(a).contains(&c));
    assert!(commit(&world, a, 6).receipt.spends(&world.name(c), 2));
    assert!(regroups(&world, a).is_empty());
    ends(world, &[Trains])
}

/// R34: a peer is cut off during the ring and left out of the second roster. Its work
/// counts once, in the next epoch.
#[test]
fn declared_dead_but_alive() -> Played {
    let (mut world, all) = founded(3, 0, None)?;
    let [a, b, c] = all[..] else { unreachable!() };
    // The ring is open everywhere once the last Accept has arrived, and takes 20 ms.
    let open = |world: &mut World| all.iter().all(|host| !accepted(world, *host, 2).is_empty());
    assert!(world.until(END_MS, open)?);
    world.play(8)?;
    world.cut(&[c], 1);
    reach(&mut world, &[a, b], 2)?;
    world.mend();
    let second = commit(&world, a, 2);
    assert!(second.attempt >= 2);
    assert!(weight(&world, &second, c).is_none_or(|weight| weight == 0), "{second:?}");
    reach(&mut world, &all, 3)?;
    let both = (3..=4).find_map(|epoch| {
        reach(&mut world, &all, epoch).ok()?;
        weight(&world, &commit(&world, a, epoch), c).filter(|weight| *weight > 0)
    });
    assert!(both >= Some(100), "{both:?}");
    assert!(world.same(&all));
    ends(world, &[Trains])
}

/// Each peer hears a changing part of the others, so their views are never equal.
/// Epochs must commit all the same: a roster that adopts a value waits for Accepts
/// only, and lost ones are repeated.
#[test]
fn views_never_equal_still_commits() -> Played {
    for window_ms in [2_000, 2_500, 3_000, 3_500] {
        views_never_equal(window_ms)?;
    }
    Ok(())
}

fn views_never_equal(window_ms: u64) -> Played {
    let (mut world, all) = founded(5, 0, None)?;
    let window = counter();
    let noted = window.clone();
    world.direct(move |from, to, _| {
        let deaf_to = (to + 1 + noted.get() as usize % 4) % 5;
        if from == deaf_to { Fate::Drop } else { Fate::Deliver }
    });
    // How soon they commit depends on the order of turns; attempts back off up to 64 times.
    for _ in 0..400_000 / window_ms {
        world.play(window_ms)?;
        count(&window);
    }
    for host in &all {
        let lost = world.events(*host).filter(|e| matches!(e, Event::PeerLost { .. })).count();
        assert!(lost >= 3, "{host} lost {lost} only");
        assert!(world.epoch(*host) >= 4, "{:?}", world.head(*host));
        assert!(forks(&world, *host).is_empty() && regroups(&world, *host).is_empty());
    }
    ends_amid(
        world,
        &[Trains, End::Roster, Ring, Accepts, LeftOut, Training, PassedOver, End::Votes],
    )
}

/// R17: no peer waits longer than its vote takes to arrive, even if it finished its
/// ring after a majority had voted.
#[test]
fn healthy_peers_commit_within_four_round_trips_of_the_last_vote() -> Played {
    const ROUND_TRIP_MS: u64 = 8;
    for count in 2..=16 {
        let (mut world, all) = founded(count, 0, None)?;
        for epoch in 2..=4 {
            let voted: Noted<BTreeSet<usize>> = Rc::default();
            let seen = Rc::clone(&voted);
            world.direct(move |from, _, message| {
                if done(message).is_some_and(|done| done.series.epoch == epoch) {
                    seen.borrow_mut().insert(from);
                }
                Fate::Deliver
            });
            let (mut votes, mut last_ms) = (0, 0);
            let there = world.until(END_MS, |world| {
                let now = voted.borrow().len();
                if now > votes {
                    last_ms = world.now_ms;
                }
                votes = now;
                all_at(world, &all, epoch)
            })?;
            assert!(there && votes == count, "{count} peers, epoch {epoch}: {votes} votes");
            let took_ms = world.now_ms - last_ms;
            assert!(took_ms <= 4 * ROUND_TRIP_MS, "{count} peers, epoch {epoch}: {took_ms} ms");
        }
        ends(world, &[Trains])?;
    }
    Ok(())
}
