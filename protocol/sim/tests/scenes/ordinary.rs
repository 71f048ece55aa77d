//! What every day brings: joining, leaving, being slow, losing a message.

use intellect_protocol::machine::event::{Cause, Event};
use intellect_protocol::message::{Message, Refusal};
use intellect_protocol_sim::network::Fate;
use intellect_protocol_sim::world::World;

use super::*;

/// R5, R21: one whose disk is full votes for nothing that it cannot keep, and follows the others without
/// a word. When there is room again it takes part again.
fn full_disk(without: Option<Rule>) -> Played {
    let (mut stage, all) = founded(3, 0, without)?;
    let full = all[1];
    stage.fill_disk(full);
    let said = Noted::<Vec<u64>>::default();
    let noted = said.clone();
    stage.direct(move |from, _, message| {
        let head = match message {
            Message::Heartbeat(beat) => Some(beat.head.epoch),
            _ => done(message).map(|done| done.series.epoch),
        };
        noted.borrow_mut().extend(head.filter(|_| from == full));
        Fate::Deliver
    });
    reach(&mut stage, &all, 6)?;
    assert!(said.borrow().iter().all(|epoch| *epoch < 3), "{said:?}");
    stage.clear_disk(full);
    let again = |stage: &mut World| {
        let epoch = stage.epoch(full);
        epoch > 6 && weight(stage, &commit(stage, full, epoch), full).is_some_and(|w| w > 0)
    };
    assert!(stage.until(END_MS, again)?, "it takes part again");
    Ok(())
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
    let (mut stage, all) = founded(3, 0, None)?;
    reach(&mut stage, &all, 3)?;
    assert!(stage.same(&all));
    assert_eq!(commit(&stage, all[0], 1).attempt, 1, "the founders take turns");
    for (host, epoch) in all.iter().flat_map(|host| [(*host, 2), (*host, 3)]) {
        let committed = commit(&stage, host, epoch);
        assert_eq!((committed.attempt, committed.regrouped), (1, false));
        assert!(all.iter().all(|h| weight(&stage, &committed, *h) > Some(0)), "{committed:?}");
        assert_eq!(accepted(&stage, host, epoch), [(1, None)]);
    }
    Ok(())
}

/// R15, G8: who is present is not left out of the founding by one that is deaf to it.
#[test]
fn founding_waits_for_everyone_present() -> Played {
    let mut stage = World::scene(3, 0, None);
    let refused = counter();
    let noted = refused.clone();
    // For a while 0 does not hear of 2, and would found the run without it.
    stage.direct(move |from, to, message| {
        if matches!(message, Message::Refuse(r) if matches!(r.reason, Refusal::Present(_))) {
            count(&noted);
        }
        if (from, to) == (2, 0) { Fate::Drop } else { Fate::Deliver }
    });
    stage.start(&[0, 1, 2]);
    stage.play(5_000)?;
    assert!(refused.get() > 0, "nobody refused to found the run without one present");
    assert!((0..3).all(|host| stage.epoch(host) == 0));
    stage.relent();
    // Whoever joined the last one founds the run, and the deaf one comes as a newcomer.
    let all = |stage: &mut World| sorted(&stage.voters(0)) == [0, 1, 2];
    assert!(stage.until(END_MS, all)?);
    reach(&mut stage, &[0, 1, 2], 3)
}

/// A newcomer computes in the ring before it votes.
#[test]
fn late_joiner_next_epoch() -> Played {
    let (mut stage, all) = founded(3, 1, None)?;
    stage.start(&[3]);
    let counted = |stage: &World| {
        let committed = stage.commit(3, stage.epoch(3)).cloned();
        committed.is_some_and(|committed| weight(stage, &committed, 3) > Some(0))
    };
    assert!(stage.until(END_MS, |stage| counted(stage))?);
    let epoch = stage.epoch(3);
    let before = commit(&stage, all[0], epoch - 1);
    assert_eq!(weight(&stage, &before, 3), None, "it had no vote in its first epoch");
    assert!(stage.voters(3).contains(&3), "it votes on the next one");
    reach(&mut stage, &[0, 1, 2, 3], epoch + 2)?;
    assert!(stage.same(&all) && regroups(&stage, all[0]).is_empty());
    Ok(())
}

/// R6, R34, R36: it is a member without a place, votes, and keeps what it learnt for the next epoch.
#[test]
fn slow_voter_has_no_place_and_keeps_its_delta() -> Played {
    let (mut stage, all) = founded(3, 0, None)?;
    let [a, b, c] = all[..] else { unreachable!() };
    // Its delta is frozen when the others' patience has ended, just before the commit.
    stage.train_in(c, END_MS);
    stage.direct(|_, _, message| match message {
        Message::Done(_) => Fate::Delay(100),
        _ => Fate::Deliver,
    });
    assert!(stage.until(END_MS, |stage| !accepted(stage, c, 2).is_empty())?);
    stage.train_in(c, 50);
    reach(&mut stage, &all, 2)?;
    let second = commit(&stage, a, 2);
    assert_eq!(weight(&stage, &second, c), Some(0));
    assert_eq!(accepted(&stage, c, 2), [(1, None)]);
    assert!(told(&stage, c, |event| *event == Event::LeftOut { epoch: 2 }));
    stage.relent();
    stage.train_in(c, 400);
    reach(&mut stage, &all, 3)?;
    let third = commit(&stage, b, 3);
    // An epoch's budget is 50 to 99 tokens: this is that of two.
    assert!(weight(&stage, &third, c) >= Some(100), "{third:?}");
    assert!(stage.same(&all));
    Ok(())
}

#[test]
fn accept_lost_then_repeated() -> Played {
    let (mut stage, all) = founded(3, 0, None)?;
    // Round trips are measured by then.
    stage.play(6_000)?;
    let (a, epoch) = (all[0], stage.epoch(all[0]) + 2);
    let lost = counter();
    let noted = lost.clone();
    stage.direct(move |from, _, message| match message {
        Message::Accept(_) if from == a && epoch_of(message) == epoch && noted.get() < 2 => {
            count(&noted);
            Fate::Drop
        }
        _ => Fate::Deliver,
    });
    reach(&mut stage, &all, epoch)?;
    assert_eq!(lost.get(), 2, "its Accept was lost on the way to both");
    assert!(all.iter().all(|host| commit(&stage, *host, epoch).attempt == 1));
    assert!(stage.same(&all));
    Ok(())
}

#[test]
fn duplicate_and_reordered_everything() -> Played {
    let (mut stage, all) = founded(4, 0, None)?;
    let sent = counter();
    let noted = sent.clone();
    stage.direct(move |_, _, _| {
        count(&noted);
        let late_ms = u64::from(noted.get() * 7 % 31) * 7;
        if noted.get().is_multiple_of(2) { Fate::Again(late_ms) } else { Fate::Delay(late_ms) }
    });
    reach(&mut stage, &all, 6)?;
    assert!(sent.get() > 500, "{}", sent.get());
    assert!(stage.same(&all) && all.iter().all(|host| forks(&stage, *host).is_empty()));
    Ok(())
}

/// R12, R29: nobody waits for who has said farewell, not even where only its vote made a majority.
#[test]
fn leave_then_next_epoch_without_grace() -> Played {
    for count in [3, 2] {
        let (mut stage, all) = founded(count, 0, None)?;
        let (a, rest) = (all[0], &all[1..]);
        stage.play(100)?;
        stage.leave(a);
        let left_ms = stage.now_ms;
        reach(&mut stage, rest, 3)?;
        assert!(stage.now_ms < left_ms + GRACE_MS, "they waited");
        let (a_left, name) = (Cause::Left, stage.name(a));
        assert!(rest.iter().all(|host| {
            told(&stage, *host, |e| *e == Event::PeerLost { who: name, cause: a_left })
        }));
        let expected = if count == 2 { vec![(rest.to_vec(), vec![a])] } else { Vec::new() };
        assert_eq!(regroups(&stage, rest[0]), expected);
        let third = commit(&stage, rest[0], 3);
        assert_eq!((weight(&stage, &third, a), third.forkable_since), (None, None));
    }
    Ok(())
}

/// R20 without a disk: it comes back as a joiner, its old place and vote are gone.
#[test]
fn restart_mid_epoch_without_a_place() -> Played {
    let (mut stage, all) = founded(3, 0, None)?;
    let [a, b, c] = all[..] else { unreachable!() };
    let accepts = |stage: &mut World| !accepted(stage, c, 2).is_empty();
    assert!(stage.until(END_MS, accepts)?);
    stage.kill(&[c]);
    stage.start(&[c]);
    reach(&mut stage, &[a, b], 2)?;
    let second = commit(&stage, a, 2);
    assert!(second.attempt >= 2, "its death cost the ring");
    assert_eq!(second.receipt.member(&stage.name(c), 1), None, "its old place is gone");
    reach(&mut stage, &all, 6)?;
    assert!(stage.same(&all) && stage.voters(a).contains(&c));
    assert!(commit(&stage, a, 6).receipt.spends(&stage.name(c), 2));
    assert!(regroups(&stage, a).is_empty());
    Ok(())
}

/// R34 for whole updates: who was left out of the second roster contributes once, in the next epoch.
#[test]
fn declared_dead_but_alive() -> Played {
    let (mut stage, all) = founded(3, 0, None)?;
    let [a, b, c] = all[..] else { unreachable!() };
    // The ring is open everywhere once the last Accept has arrived, and takes 20 ms.
    let open = |stage: &mut World| all.iter().all(|host| !accepted(stage, *host, 2).is_empty());
    assert!(stage.until(END_MS, open)?);
    stage.play(8)?;
    stage.cut(&[c], 1);
    reach(&mut stage, &[a, b], 2)?;
    stage.mend();
    let second = commit(&stage, a, 2);
    assert!(second.attempt >= 2);
    assert!(weight(&stage, &second, c).is_none_or(|weight| weight == 0), "{second:?}");
    reach(&mut stage, &all, 3)?;
    let both = (3..=4).find_map(|epoch| {
        reach(&mut stage, &all, epoch).ok()?;
        weight(&stage, &commit(&stage, a, epoch), c).filter(|weight| *weight > 0)
    });
    assert!(both >= Some(100), "{both:?}");
    assert!(stage.same(&all));
    Ok(())
}

/// Each hears a changing part of the others: views are never equal, and epochs are committed. A roster that
/// adopts has nothing to wait for but Accepts, and those that were lost are repeated.
#[test]
fn views_never_equal_still_commits() -> Played {
    for window_ms in [2_000, 2_500, 3_000, 3_500] {
        views_never_equal(window_ms)?;
    }
    Ok(())
}

fn views_never_equal(window_ms: u64) -> Played {
    let (mut stage, all) = founded(5, 0, None)?;
    let window = counter();
    let noted = window.clone();
    stage.direct(move |from, to, _| {
        let deaf_to = (to + 1 + noted.get() as usize % 4) % 5;
        if from == deaf_to { Fate::Drop } else { Fate::Deliver }
    });
    // How soon they commit depends on whose turns come when; attempts back off up to 64 times.
    for _ in 0..400_000 / window_ms {
        stage.play(window_ms)?;
        count(&window);
    }
    for host in &all {
        let lost = stage.told(*host).filter(|e| matches!(e, Event::PeerLost { .. })).count();
        assert!(lost >= 3, "{host} lost {lost} only");
        assert!(stage.epoch(*host) >= 4, "{:?}", stage.head(*host));
        assert!(forks(&stage, *host).is_empty() && regroups(&stage, *host).is_empty());
    }
    Ok(())
}

/// R17: nobody waits longer than its vote takes to arrive, also if it finished its ring after a majority
/// had voted.
#[test]
fn healthy_peers_commit_within_four_round_trips_of_the_last_vote() -> Played {
    const ROUND_TRIP_MS: u64 = 8;
    for count in 2..=16 {
        let (mut stage, all) = founded(count, 0, None)?;
        for epoch in 2..=4 {
            let voted: Noted<BTreeSet<usize>> = Rc::default();
            let seen = Rc::clone(&voted);
            stage.direct(move |from, _, message| {
                if done(message).is_some_and(|done| done.series.epoch == epoch) {
                    seen.borrow_mut().insert(from);
                }
                Fate::Deliver
            });
            let (mut votes, mut last_ms) = (0, 0);
            let there = stage.until(END_MS, |stage| {
                let now = voted.borrow().len();
                if now > std::mem::replace(&mut votes, now) {
                    last_ms = stage.now_ms;
                }
                all_at(stage, &all, epoch)
            })?;
            assert!(there && votes == count, "{count} peers, epoch {epoch}: {votes} votes");
            let took_ms = stage.now_ms - last_ms;
            assert!(took_ms <= 4 * ROUND_TRIP_MS, "{count} peers, epoch {epoch}: {took_ms} ms");
        }
    }
    Ok(())
}
