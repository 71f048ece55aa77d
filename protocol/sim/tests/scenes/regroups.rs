//! When a majority is gone: R12–R14, and what a Regroup must not forget.

use intellect_protocol::message::Message;

use super::*;

/// Drops every vote, and notes for what.
fn hide_votes(stage: &mut World) -> Votes {
    let votes = Votes::default();
    let noted = votes.clone();
    stage.direct(move |from, _, message| match message {
        Message::Done(done) => {
            noted.borrow_mut().insert(from, done.update);
            Fate::Drop
        }
        _ => Fate::Deliver,
    });
    votes
}

/// Of `count` voters, the half with the first one goes on at once, the other half after the grace.
fn half_dies(count: usize) -> Played {
    for first_half_lives in [true, false] {
        let (mut stage, all) = founded(count, 0, None)?;
        let (first, second) = all.split_at(count / 2);
        let (live, dead) = if first_half_lives { (first, second) } else { (second, first) };
        stage.play(100)?;
        let killed_ms = stage.now_ms;
        stage.kill(dead);
        if first_half_lives {
            reach(&mut stage, live, 2)?;
            assert!(stage.now_ms < killed_ms + GRACE_MS, "it waited");
            assert!(regroups(&stage, live[0]).is_empty());
            continue;
        }
        stage.play(GRACE_MS - 1_000)?;
        assert!(live.iter().all(|host| stage.epoch(*host) == 1), "it did not wait");
        reach(&mut stage, live, 3)?;
        for host in live {
            assert_eq!(regroups(&stage, *host), [(sorted(live), sorted(dead))]);
            let (second, third) = (commit(&stage, *host, 2), commit(&stage, *host, 3));
            assert!(second.regrouped && !third.regrouped);
            assert_eq!(third.forkable_since, Some(2), "the dead were never seen again");
        }
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

/// R12: a peer that has no vote yet does not go on alone: it waits until a voter is back.
#[test]
fn last_survivor_has_no_vote() -> Played {
    let (mut stage, all) = founded(2, 1, None)?;
    let x = 2;
    stage.start(&[x]);
    assert!(stage.until(END_MS, |stage| stage.epoch(x) >= 1)?);
    assert!(!stage.voters(x).contains(&x));
    stage.kill(&all);
    let epoch = stage.epoch(x);
    stage.play(4 * GRACE_MS)?;
    assert_eq!((stage.epoch(x), regroups(&stage, x)), (epoch, Vec::new()));
    stage.start(&all[..1]);
    reach(&mut stage, &[x, all[0]], epoch + 3)
}

/// R12 "elsewhere": `p` has joined a Regroup whose other member died before it did; `a` comes back,
/// and the two would be a majority of the voters if `p` were free.
#[test]
fn joined_a_regroup_that_never_opened() -> Played {
    let (mut stage, all) = founded(4, 0, None)?;
    let [a, b, c, d] = all[..] else { unreachable!() };
    let joined = hide_joins(&mut stage);
    stage.play(100)?;
    stage.pause(a);
    stage.kill(&[b]);
    assert!(stage.until(END_MS, |_| joined.borrow().is_some())?);
    let p = joined.borrow().unwrap();
    let q = if p == c { d } else { c };
    stage.kill(&[q]);
    stage.resume(a);
    stage.relent();
    reach(&mut stage, &[a, p], 3)?;
    for host in [a, p] {
        assert_eq!(regroups(&stage, host), [(sorted(&[a, p]), sorted(&[b, q]))]);
    }
    assert!(stage.same(&[a, p]) || stage.until(END_MS, |stage| stage.same(&[a, p]))?);
    assert!(forks(&stage, a).is_empty() && forks(&stage, p).is_empty());
    Ok(())
}

/// R13: `d` and `e` join {d, e, f}, the Join of `f` is late; they join {d, e}; then it arrives.
#[test]
fn regroup_half_joined() -> Played {
    let (mut stage, all) = founded(6, 0, None)?;
    let [a, b, c, d, e, f] = all[..] else { unreachable!() };
    let joined = counter();
    let noted = joined.clone();
    stage.direct(move |from, to, message| match message {
        Message::Join(_) if from == f => {
            count(&noted);
            Fate::Delay(25_000)
        }
        Message::Join(_) if to == f => Fate::Drop,
        _ => Fate::Deliver,
    });
    stage.play(100)?;
    stage.kill(&[a, b, c]);
    assert!(stage.until(END_MS, |_| joined.get() > 0)?);
    let joined_ms = stage.now_ms;
    stage.pause(f);
    reach(&mut stage, &[d, e], 2)?;
    assert!(stage.now_ms < joined_ms + 25_000, "its Join is still on its way");
    stage.train_in(d, 5_000);
    stage.train_in(e, 5_000);
    stage.play(joined_ms + 26_000 - stage.now_ms)?;
    for host in [d, e] {
        assert_eq!(regroups(&stage, host), [(sorted(&[d, e]), sorted(&[a, b, c, f]))]);
    }
    stage.resume(f);
    let epoch = stage.epoch(d) + 1;
    reach(&mut stage, &[d, e, f], epoch)?;
    assert!(forks(&stage, d).iter().all(|undone| *undone == 0));
    assert!(stage.until(END_MS, |stage| stage.same(&[d, e, f]))?);
    Ok(())
}

/// R13: all three have voted and nobody heard it; the last one must not contradict its own vote.
fn survivor(without: Option<Rule>) -> Played {
    let (mut stage, all) = founded(3, 0, without)?;
    let [a, b, c] = all[..] else { unreachable!() };
    let votes = hide_votes(&mut stage);
    assert!(stage.until(END_MS, |_| votes.borrow().len() == 3)?);
    stage.kill(&[a, b]);
    stage.relent();
    reach(&mut stage, &[c], 3)?;
    let second = commit(&stage, c, 2);
    assert_eq!(second.receipt.update, votes.borrow()[&a]);
    assert!(second.regrouped && accepted(&stage, c, 2).last().unwrap().1.is_some());
    // Once for epoch 2, and once more: the voters of epoch 3 are those of its receipt.
    let alone = (vec![c], sorted(&[a, b]));
    assert_eq!(regroups(&stage, c), [alone.clone(), alone]);
    Ok(())
}

#[test]
fn r13_survivor_keeps_what_it_voted_for() -> Played {
    survivor(None)
}

#[test]
fn r13_is_missed() {
    assert_eq!(survivor(Some(Rule::R13)).unwrap_err().invariant, "S2");
}

/// R13, R14: a Regroup of a Regroup still carries what was voted for before both.
#[test]
fn nested_regroup_keeps_the_dones() -> Played {
    let (mut stage, all) = founded(4, 0, None)?;
    let [a, b, c, d] = all[..] else { unreachable!() };
    let votes = hide_votes(&mut stage);
    assert!(stage.until(END_MS, |_| votes.borrow().len() == 4)?);
    let value = votes.borrow()[&a];
    stage.kill(&[a, b]);
    let entered = |stage: &World, host| regroups(stage, host).len();
    assert!(stage.until(END_MS, |stage| entered(stage, c) + entered(stage, d) == 2)?);
    let [first, last] = stage.voters(c)[..] else { unreachable!() };
    stage.kill(&[first]);
    stage.relent();
    reach(&mut stage, &[last], 2)?;
    let expected = [(sorted(&[c, d]), sorted(&[a, b])), (vec![last], vec![first])];
    assert_eq!(regroups(&stage, last), expected);
    assert_eq!(commit(&stage, last, 2).receipt.update, value);
    assert!(accepted(&stage, last, 2).last().unwrap().1.is_some());
    Ok(())
}

/// R8: the only holder of what the Regroup found dies; the others are free at last.
#[test]
fn forced_value_without_bytes() -> Played {
    let (mut stage, all) = founded(4, 0, None)?;
    let [a, b, c, d] = all[..] else { unreachable!() };
    for host in [a, b, d] {
        stage.train_in(host, 90_000);
    }
    let votes = hide_votes(&mut stage);
    assert!(stage.until(END_MS, |_| votes.borrow().contains_key(&c))?);
    stage.kill(&[a, b]);
    assert!(stage.until(END_MS, |stage| !regroups(stage, d).is_empty())?);
    stage.kill(&[c]);
    stage.train_in(d, 500);
    stage.relent();
    reach(&mut stage, &[d], 2)?;
    let second = commit(&stage, d, 2);
    let adopted = accepted(&stage, d, 2).iter().any(|(_, adopt)| adopt.is_some());
    assert!(adopted, "it tried: {:?}", accepted(&stage, d, 2));
    assert_eq!(votes.borrow().len(), 1, "{c} alone had the bytes");
    assert_ne!(second.receipt.update, votes.borrow()[&c]);
    assert!(second.regrouped && second.receipt.spends(&stage.name(d), 1));
    Ok(())
}

/// R12: who has joined a Regroup that did not open has left the series, not the others: of three that gather, one that
/// does not hear the others for seven seconds does not go on alone.
#[test]
fn who_has_joined_and_is_missed_for_a_moment_is_not_left_behind() -> Played {
    let (mut stage, all) = founded(6, 0, None)?;
    let (dead, live) = all.split_at(3);
    let joined: Noted<BTreeSet<usize>> = Rc::default();
    let (noted, last) = (Rc::clone(&joined), live[2]);
    let silent = Rc::new(Cell::new(false));
    let is_silent = Rc::clone(&silent);
    stage.direct(move |from, to, message| match message {
        Message::Join(_) => {
            noted.borrow_mut().insert(from);
            Fate::Drop
        }
        _ if to == last && is_silent.get() => Fate::Drop,
        _ => Fate::Deliver,
    });
    stage.play(100)?;
    stage.kill(dead);
    assert!(stage.until(END_MS, |_| joined.borrow().len() == 3)?);
    stage.play(1_000)?;
    silent.set(true);
    stage.play(GRACE_MS - 1_000)?;
    assert!(regroups(&stage, last).is_empty(), "it went on without those whom it had just heard");
    stage.relent();
    reach(&mut stage, live, 3)?;
    let together = [(sorted(live), sorted(dead))];
    assert!(live.iter().all(|host| regroups(&stage, *host) == together));
    Ok(())
}
